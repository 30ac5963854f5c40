package asm

// The calls of decode compute a few queries, each in a row of its own, against a block of keys.
// Lanes would be mostly empty. Each row of K or V must be read once for all queries, at the speed
// of memory.

// A RowPanel is a block of scores or weights, with one row for each query.
type RowPanel struct {
	R, N   int       // queries; keys
	P      []float32 // [R][Stride]
	Stride int       // at least N rounded up to a multiple of 16, as Weigh writes whole vectors
}

// Runs say where keys that are not one contiguous block are stored. Each run has Run keys; the last
// one may be shorter. Run i begins at element At[i] of K or V, and its scales at Scales[i]. If Run
// is 0, all keys are one run that begins at the first element, and nothing is prefetched.
//
// While assembly reads a run, it prefetches Run rows at the same stride, starting at the address
// Ahead[i], which need not exist. It also touches the line at Far[i], which is needed later, since
// translating the address of a page takes longer than reading a line. It touches the same line in
// the following pages of 4 KiB, FarPages in all. Where elements are I8, it touches the line at
// FarScale[i] too.
//
// The runs of several heads may be interleaved: run i then belongs to head i%Heads, and each head
// has the same keys in its run. Heads of 0 means one head.
type Runs struct {
	Run                  int
	At, Scales           []int
	Ahead, Far, FarScale []uintptr
	FarPages             int
	Heads                int

	//lint:ignore U1000 used by assembly: runs done, keys left, keys and head of the current run
	run, left, keys, head int
	//lint:ignore U1000 used by assembly: address of the head's rows in Rows
	rows uintptr
	//lint:ignore U1000 used by assembly: rows that this micro-tile prefetches, and all of them
	share, shares uint64
	//lint:ignore U1000 used by assembly: Ahead of one run
	ahead [1]uintptr
}

// A Walk is a call of Sum, and the part of a call that Dot and Sum share: rows of queries against
// all rows of K or V.
type Walk struct {
	RowPanel
	Runs
	D        int   // columns
	Cache    Cells // K for Dot, V for Sum
	Rows     Rows  // [R][D]: queries for Dot, O for Sum
	HeadStep int   // elements from the rows of one head in Rows to those of the next
}

// A Dot is a call of Dot.
type Dot struct {
	Walk
	Factor float64
}

// A Weigh is a call of Weigh, which leaves early as Exp does.
type Weigh struct {
	RowPanel
	Sums
	From int     // first query to process
	Done int     // queries finished
	Top  float32 // largest score of query Done, if it left early
	// Weigh prefetches the line at At with each vector of a query that it compares with the limit,
	// and with each that it turns into weights. It then advances At by By bytes.
	Prefetch
	//lint:ignore U1000 used by assembly: Top of each lane
	tops [16]float32
}

// runLength returns the number of keys in a run that is not the last.
func (p *Walk) runLength() int {
	if p.Run == 0 {
		return p.N
	}
	return p.Run
}

// rowsOf returns the rows of run i.
func (p *Walk) rowsOf(i int) Cells {
	if p.Run == 0 {
		return p.Cache
	}
	scale := 0
	if p.Cache.Type == I8 {
		scale = p.Scales[i]
	}
	return p.Cache.at(p.At[i], scale)
}

// heads returns the number of heads whose runs are interleaved.
func (p *Runs) heads() int { return max(p.Heads, 1) }

// eachRun calls do for each run: n keys of a head. scores begins with those of the head's first
// query.
func (p *Walk) eachRun(do func(run, head int, scores []float32, n int)) {
	heads := p.heads()
	for i, j := 0, 0; j < p.N && p.R > 0; i++ {
		head, n := i%heads, min(p.runLength(), p.N-j)
		do(i, head, p.P[head*p.R*p.Stride+j:], n)
		if head == heads-1 {
			j += n
		}
	}
}

// dot computes P[r][j] = Factor Σ_x Q[r][x] K[j][x]. The scale of a row of K multiplies its
// finished sums.
func dot(p *Dot) {
	p.eachRun(func(run, head int, scores []float32, n int) {
		k, q := p.rowsOf(run), p.Rows
		if p.D > 0 {
			q.Data = q.Data[head*p.HeadStep:]
		}
		if k.Type == F32 {
			dotRows(p, &k, &q, scores, n)
		} else {
			dotCells(p, &k, &q, scores, n)
		}
	})
}

// dotRows computes the scores of n keys, whose rows are k, for the queries q.
func dotRows(p *Dot, k *Cells, q *Rows, scores []float32, n int) {
	for r := range p.R {
		q, row := q.Row(r, p.D), scores[r*p.Stride:][:n]
		for j := range row {
			row[j] = float32(float64(product(q, k.Row(j, p.D))) * p.Factor)
		}
	}
}

// product returns Σ_x q[x] k[x], as the sum of four sums of every fourth product.
func product(q, k []float32) float32 {
	var a, b, c, d float32
	for len(q) >= 4 && len(k) >= 4 {
		a += float32(q[0] * k[0])
		b += float32(q[1] * k[1])
		c += float32(q[2] * k[2])
		d += float32(q[3] * k[3])
		q, k = q[4:], k[4:]
	}
	for i, x := range k {
		a += float32(q[i] * x)
	}
	return (a + b) + (c + d)
}

// weigh computes P = 2^(P-M), L += Σ P, S += Σ P*score for queries From..R. It leaves before a
// query with a score over M+Limit, and sets Top to its largest score. NaN does not make it leave;
// it becomes a weight.
func weigh(p *Weigh) {
	for p.Done = p.From; p.Done < p.R; p.Done++ {
		r := p.Done
		row, ref := p.P[r*p.Stride:][:p.N], p.M[r]
		p.Top = ref
		for _, z := range row {
			if z > p.Top {
				p.Top = z
			}
		}
		if p.Top > ref+Limit {
			return
		}
		sum, sumZ := 0., 0. // float64, as thousands of equal weights would round alike
		for j, z := range row {
			e := exp2(float64(z) - float64(ref))
			row[j] = e
			sum += float64(e)
			if p.S != nil && e != 0 { // 0*-Inf
				sumZ += float64(e) * float64(z)
			}
		}
		p.L[r] += float32(sum)
		if p.S != nil {
			p.S[r] += float32(sumZ)
		}
	}
}

// sum computes O[r][c] += Σ_j P[r][j] V[j][c], key after key. The scale of a row of V multiplies
// its weights.
func sum(p *Walk) {
	var row [piece]float32
	p.eachRun(func(run, head int, weights []float32, n int) {
		v := p.rowsOf(run)
		for r := range p.R {
			for c := 0; c < p.D; c += piece {
				out, weights := p.Rows.Data[head*p.HeadStep+r*p.Rows.Stride+c:][:min(piece, p.D-c)], weights[r*p.Stride:][:n]
				if v.Type == F32 {
					accumulate(out, weights, Rows{Data: v.Data[c:], Stride: v.Stride})
				} else {
					accumulateCells(out, weights, &v, c, row[:len(out)])
				}
			}
		}
	})
}

// accumulate computes o[c] += Σ_j w[j] y[j][c], in order of j, four rows at a time.
func accumulate(o, w []float32, y Rows) {
	j := 0
	for ; j+4 <= len(w); j += 4 {
		w := (*[4]float32)(w[j:])
		y0, y1, y2, y3 := y.Row(j, len(o)), y.Row(j+1, len(o)), y.Row(j+2, len(o)), y.Row(j+3, len(o))
		for c := range o {
			o[c] = o[c] + float32(w[0]*y0[c]) + float32(w[1]*y1[c]) + float32(w[2]*y2[c]) + float32(w[3]*y3[c])
		}
	}
	for ; j < len(w); j++ {
		for c, x := range y.Row(j, len(o)) {
			o[c] += float32(w[j] * x)
		}
	}
}
