package flash

import (
	"math"
	"sync/atomic"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

const (
	// fewRows is the largest SeqQ that takes the decode path. Lanes are then mostly empty, and time is what it takes to read K and V.
	fewRows = 4
	// part is the number of keys that one task reads. Parts start at multiples of it, whatever the number of workers, and are merged in order,
	// so that the bits are the same for any of them.
	part = 1024
	// chunk is the number of float32 keys that go through scores, weights and output together: their rows of V come from memory while those of K
	// are still in the first-level cache, and scores never leave it. There are as many more keys of other types as are the same number of bytes.
	chunk = 64
)

// chunkOf is the number of keys in a chunk of a problem.
func chunkOf(p *attn.Problem) int {
	switch p.KV {
	case attn.F16, attn.BF16:
		return 2 * chunk
	case attn.I8:
		return 4 * chunk
	}
	return chunk
}

// few says that a problem takes the decode path. The limits of temperature do not: they are not worth a second set of rules.
func few(p *attn.Problem) bool {
	t := p.Temperature()
	return p.SeqQ <= fewRows && t != attn.Frozen && !math.IsInf(t, 1)
}

// parts is how many parts so many keys make: one if there are none.
func parts(keys int) int { return max(1, (keys+part-1)/part) }

func (k kernel) checkFew(p *attn.Problem, workers int) (int64, error) {
	states, err := attn.Floats(p.Batch, p.HeadsQ, p.SeqQ, parts(p.SeqKV), p.DimV+3)
	if err != nil {
		return 0, err
	}
	rows, chunk := p.Group()*p.SeqQ, chunkOf(p)
	queries, sums := copies(p)
	scratch, err := attn.Floats(k.workersFew(p, workers), rows*(chunk+3)+queries+sums+chunk*p.DimV)
	return scratch + states, err
}

func (k kernel) workersFew(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsKV*parts(p.SeqKV)))
}

func (k kernel) planFew(p attn.Problem, team *attn.Team, scratch int64) attn.Plan {
	n := p.Batch * p.HeadsQ * p.SeqQ * parts(p.SeqKV)
	d := &decoder{
		kernel: k, p: p, team: team, scratch: scratch, o: make([]float32, n*p.DimV), m: make([]float32, n), l: make([]float32, n), s: make([]float32, n),
		bad: make([]bool, n), factor: math.Log2E / p.Temperature(), chunk: chunkOf(&p),
	}
	d.scan, d.merge = d.scanPart, d.mergeRow
	rows := p.Group() * p.SeqQ
	for range k.workersFew(&p, team.Workers()) {
		w := &fewWorker{clean: make([]float32, d.chunk*p.DimV), lo: make([]int, rows), hi: make([]int, rows), bad: make([]bool, rows)}
		queries, sums := copies(&p)
		w.queries, w.sums = make([]float32, queries), make([]float32, sums)
		w.P, w.Stride = make([]float32, rows*d.chunk), d.chunk
		w.m, w.l, w.s = make([]float32, rows), make([]float32, rows), make([]float32, rows)
		d.workers = append(d.workers, w)
	}
	return d
}

// decoder is the plan of the decode path: a task scans one part of the keys for all queries that share a key head and leaves a partial state
// (o, m, l, s) of each; then each query's states are merged.
type decoder struct {
	kernel
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []*fewWorker
	factor  float64 // of a bias
	chunk   int
	a       *attn.Args
	n       int // parts of this call's keys

	// [batch][head][query][part], o with d_v numbers each
	o, m, l, s []float32
	bad        []bool // to be answered by definition

	careful     bool        // the second round, when an output was not finite: see package tile
	again       atomic.Bool // asks for it
	scan, merge func(worker, task int)
}

// fewWorker is the scratch of one worker. A row of it is a query: those of one head after those of the head before.
type fewWorker struct {
	asm.Few
	cache
	queries []float32 // [row][d]: those that are not stored as float32
	sums    []float32 // [row][d_v]: of the chunk's keys that came before, where they lie apart
	clean   []float32 // [chunk][d_v]: rows of V without those that are not finite
	m, l, s []float32
	lo, hi  []int
	bad     []bool
}

func (d *decoder) Scratch() int64 { return d.scratch }

func (d *decoder) Forward(a *attn.Args) {
	d.p.Must(d.name, a)
	longest := 0
	for b := range d.p.Batch {
		longest = max(longest, a.Keys(&d.p, b))
	}
	d.a, d.n, d.careful = a, parts(longest), false
	for {
		d.again.Store(false)
		d.team.Run(d.p.Batch*d.p.HeadsKV*d.n, d.scan)
		d.team.Run(d.p.Batch*d.p.HeadsQ*d.p.SeqQ, d.merge)
		if !d.again.Load() {
			break
		}
		d.careful = true
	}
	d.a = nil
}

// state is the index of the first partial state of query i of a head; that of the query after it is d.n on.
func (d *decoder) state(b, h, i int) int { return ((b*d.p.HeadsQ+h)*d.p.SeqQ + i) * d.n }

// scanPart takes the queries of one key head through one part of the keys.
func (d *decoder) scanPart(worker, task int) {
	w, p, a := d.workers[worker], &d.p, d.a
	at, kv, b := task%d.n, task/d.n%p.HeadsKV, task/d.n/p.HeadsKV
	nq, keys := a.Queries(p, b), a.Keys(p, b)
	rows := p.Group() * nq
	first, last := keys, 0
	for r := range rows {
		w.lo[r], w.hi[r] = a.Visible(p, b, r%nq)
		w.m[r], w.l[r], w.s[r], w.bad[r] = asm.Unset, 0, 0, false
		if w.lo[r] < w.hi[r] {
			first, last = min(first, w.lo[r]), max(last, w.hi[r])
		}
		clear(d.o[(d.state(b, kv*p.Group()+r/nq, r%nq)+at)*p.DimV:][:p.DimV])
	}
	first, last = max(first-first%d.chunk, at*part), min(last, (at+1)*part)
	if first < last {
		d.loadQueries(w, b, kv, nq)
		w.open(p, a, b, kv)
	}
	for key := first; key < last; key += d.chunk {
		n := min(d.chunk, last-key)
		if d.careful {
			d.cleanValues(w, b, kv, key, n, nq)
		}
		// Queries of different heads are one set of rows when each head has one, otherwise head by head.
		step := nq
		if nq == 1 {
			step = rows
		}
		for r := 0; r < rows; r += step {
			w.R, w.N, w.D, w.C, w.Factor = step, n, p.Dim, p.DimV, p.Scale()*d.factor
			w.M, w.L, w.S = w.m[r:], w.l[r:], w.s[r:]
			if p.Want&(attn.WantMean|attn.WantEntropy) == 0 {
				w.S = nil
			}
			w.Q = d.queries(w, b, kv, r, nq)
			w.O = asm.Rows{Data: d.o[(d.state(b, kv*p.Group()+r/nq, 0)+at)*p.DimV:], Stride: d.n * p.DimV}
			if nq == 1 {
				w.O.Stride *= p.SeqQ
			}
			d.dot(w, key, n)
			for i := range w.R {
				d.edit(w, b, kv*p.Group()+(r+i)/nq, r+i, i, key)
			}
			w.From = 0
			for d.ops.Weigh(&w.Few); w.Done < w.R; d.ops.Weigh(&w.Few) {
				w.raise(r+w.Done, w.Done)
				w.From = w.Done
			}
			d.sum(w, key, n, keys)
		}
	}
	for r := range rows {
		i := d.state(b, kv*p.Group()+r/nq, r%nq) + at
		d.m[i], d.l[i], d.s[i], d.bad[i] = w.m[r], w.l[r], w.s[r], w.bad[r] || w.l[r] != w.l[r]
	}
}

// edit finishes the scores of one row, which is row at of the block in hand: bias added, hidden keys set to -Inf.
func (d *decoder) edit(w *fewWorker, b, h, row, at, key int) {
	p, a, scores := &d.p, d.a, w.P[at*w.Stride:][:w.N]
	i := row % a.Queries(p, b)
	if p.Score.Terms&attn.TermBias != 0 {
		off, step := a.Terms.Bias.Offset(b, i, h)
		for j := range scores { // one rounding of the sum
			scores[j] = float32(float64(scores[j]) + float64(float64(a.Terms.Bias.Data[off+(key+j)*step])*d.factor))
		}
	}
	hide(scores, 0, w.lo[row]-key)
	hide(scores, w.hi[row]-key, len(scores))
	if p.Mask.Bitmap == attn.BoolBitmap {
		off, step := a.Allowed.Offset(b, i, h)
		for j := range scores {
			if !a.Allowed.Bool[off+(key+j)*step] {
				scores[j] = float32(math.Inf(-1))
			}
		}
	}
}

// hide hides keys from one to another.
func hide(scores []float32, from, to int) {
	for j := max(from, 0); j < min(to, len(scores)); j++ {
		scores[j] = float32(math.Inf(-1))
	}
}

// raise lifts the reference of one row, which is row at of the block in hand, to its largest score, and scales what was summed below the old one.
// A row with a score that is no number, or +Inf, is hidden instead.
func (w *fewWorker) raise(row, at int) {
	scores, top := w.P[at*w.Stride:][:w.N], float32(math.Inf(-1))
	for _, x := range scores {
		if !(x <= top) {
			top = x
		}
		if x != x {
			break
		}
	}
	if top-top != 0 { // NaN or +Inf
		w.bad[row] = true
		hide(scores, 0, len(scores))
		return
	}
	f := float32(math.Exp2(float64(w.m[row]) - float64(top)))
	w.m[row] = top
	w.l[row] *= f
	w.s[row] *= f
	for c, o := 0, w.O.Row(at, w.C); c < len(o); c++ {
		o[c] *= f
	}
}

// cleanValues copies the values of a chunk without the rows that are not finite, and marks the queries that see one of those.
func (d *decoder) cleanValues(w *fewWorker, b, kv, key, n, nq int) {
	p, a := &d.p, d.a
	for j := range n {
		to := w.clean[j*p.DimV:][:p.DimV]
		at, row := a.KRow(p, b, key+j)
		if from := a.V.Read(to, at, row, kv); d.ops.Finite(from) {
			copy(to, from)
			continue
		}
		clear(to)
		for r := range p.Group() * nq {
			sees := w.lo[r] <= key+j && key+j < w.hi[r] && a.Shows(p, b, r%nq, kv*p.Group()+r/nq, key+j)
			w.bad[r] = w.bad[r] || sees
		}
	}
}

// mergeRow joins the partial states of one query, in the order of their keys, in the first of them, and writes the row.
func (d *decoder) mergeRow(_, task int) {
	p, a := &d.p, d.a
	i, h, b := task%p.SeqQ, task/p.SeqQ%p.HeadsQ, task/p.SeqQ/p.HeadsQ
	if i >= a.Queries(p, b) {
		return
	}
	row := tile.Row{P: p, A: a, B: b, H: h, I: i}
	at := d.state(b, h, i)
	top, bad := float32(asm.Unset), false
	for k := at; k < at+d.n; k++ {
		bad = bad || d.bad[k]
		if d.l[k] > 0 {
			top = max(top, d.m[k])
		}
	}
	if bad {
		row.ByDefinition()
		return
	}
	out, l, s := d.o[at*p.DimV:][:p.DimV], float32(0), float32(0)
	for k := at; k < at+d.n; k++ {
		f := float32(0)
		if d.l[k] > 0 {
			f = float32(math.Exp2(float64(d.m[k]) - float64(top)))
		}
		l += float32(f * d.l[k])
		s += float32(f * d.s[k])
		for c, x := range d.o[k*p.DimV:][:p.DimV] {
			if k == at {
				out[c] = 0
			}
			out[c] += float32(f * x)
		}
	}
	if !d.ops.Finite(out) {
		if d.careful {
			row.ByDefinition()
		} else {
			d.again.Store(true)
		}
		return
	}
	if l == 0 {
		clear(out)
		row.Stats(math.Inf(-1), 0, 0)
	} else {
		for c := range out {
			out[c] /= l
		}
		row.FromSums(float64(top), float64(l), float64(s))
	}
	batch, r := a.QRow(p, b, i)
	a.Out.Write(out, batch, r, h)
}
