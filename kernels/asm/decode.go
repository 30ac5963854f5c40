package asm

// The calls of decoding work on a few queries, each a row, against a block of keys. With so few,
// lanes would be empty, and what counts is that a row of K or V is read once, at the speed of memory,
// for all the queries.

// A RowPanel is a block of scores or weights, a query's in one row.
type RowPanel struct {
	R, N   int       // queries; keys
	P      []float32 // [R][Stride]
	Stride int       // at least N rounded up to a multiple of 16: Weigh may write so far
}

// Runs say where keys are stored, if that is not one block: in runs of Run keys, the last of which
// may be shorter. Run i begins at element At[i] of K or V, and its scales at Scales[i]. Where Run is 0
// all keys are one run, from the first element on, and nothing is prefetched.
//
// While assembly reads a run, it prefetches as many rows, as far apart, from the address Ahead[i] on,
// where there need be nothing. It touches the line at Far[i], which comes later, since to find a page
// of memory takes longer than to read a line of it; does the same at that place in the pages of 4 KiB
// that follow, FarPages together; and, where elements are I8, touches the line at FarScale[i].
//
// Several heads, whose runs lie between one another, may be taken in turn: run i is then of head
// i%Heads, and the same keys are in a run of each. Heads of 0 is one head.
type Runs struct {
	Run                  int
	At, Scales           []int
	Ahead, Far, FarScale []uintptr
	FarPages             int
	Heads                int

	//lint:ignore U1000 assembly counts in them: runs done, keys to do, and keys of the current run; its head, and where its rows of Rows begin
	run, left, keys, head int
	//lint:ignore U1000 as above
	rows uintptr
	//lint:ignore U1000 where there is assembly: what the current tile and those after it prefetch, as turns says, and all of them
	turn, turns uint64
	//lint:ignore U1000 where there is assembly: Ahead of one run
	ahead [1]uintptr
}

// A Walk is what Dot and Sum have in common, and a call of Sum: rows of queries against all rows of K
// or V.
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
	From int     // first query to do
	Done int     // queries finished
	Top  float32 // the largest score of the query that it left before
	// Prefetch asks for the line at At, and for another By bytes on with each vector of a query that is
	// compared with the limit, and with each that becomes weights.
	Prefetch
	//lint:ignore U1000 where there is assembly: Top, of each lane
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

// heads returns the number of heads that are taken in turn.
func (p *Runs) heads() int { return max(p.Heads, 1) }

// eachRun visits run after run: the n keys from one on of a head, whose rows of P begin at scores.
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

// dot is P[r][j] = Factor Σ_x Q[r][x] K[j][x]. The scale of a row of K multiplies its finished sums.
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

// dotRows does n keys, whose rows are k, for the queries q.
func dotRows(p *Dot, k *Cells, q *Rows, scores []float32, n int) {
	for r := range p.R {
		q, row := q.Row(r, p.D), scores[r*p.Stride:][:n]
		for j := range row {
			row[j] = float32(float64(product(q, k.Row(j, p.D))) * p.Factor)
		}
	}
}

// product is Σ_x q[x] k[x], every fourth product in one of four sums.
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

// weigh is P = 2^(P-M), L += Σ P, S += Σ P*score for queries From to R. It leaves before a query with a score over M+Limit, and says what its Top is.
// A NaN is no reason to leave: it becomes a weight.
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
		sum, sumZ := 0., 0. // of up to thousands of weights, which may be equal and be rounded alike
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

// sum is O[r][c] += Σ_j P[r][j] V[j][c], key after key. The scale of a row of V multiplies its weights.
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

// accumulate is o[c] += Σ_j w[j] y[j][c], in order of j, four rows at a time.
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
