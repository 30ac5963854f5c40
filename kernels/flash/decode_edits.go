package flash

import (
	"math"
	"math/bits"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/tile"
)

// fewEdits is what a worker of the decode path changes scores with. A query's scores lie in a row; loops of panels take so many of them as have lanes for a row
// of a panel, and then what is left.
type fewEdits struct {
	changes  asm.Panel
	left     []float32 // [lanes]: what goes with the scores that fill no row
	relative []float32 // [part]: products with rows of the table
	apart    []float32 // [part+queries-1]: how far the keys in hand are from the last query; those of the one before it begin one further on
	from, n  int       // how far the first of them is, and how many there are
}

// fewEditsSizes are the lengths of the rows above.
func fewEditsSizes(p *attn.Problem, ops *asm.Ops) (left, relative, apart int) {
	if p.Score.Terms&attn.TermRelative != 0 {
		relative = part
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		apart = part + p.SeqQ - 1
	}
	return ops.Lanes, relative, apart
}

func fewEditsFloats(p *attn.Problem, ops *asm.Ops) int {
	left, relative, apart := fewEditsSizes(p, ops)
	return left + relative + apart
}

func newFewEdits(p *attn.Problem, ops *asm.Ops) fewEdits {
	left, relative, apart := fewEditsSizes(p, ops)
	return fewEdits{left: make([]float32, left), relative: make([]float32, relative), apart: make([]float32, apart)}
}

// change has a loop change the first n of a row of scores, which Weigh may write in whole vectors. Add wants as many numbers beside them.
func (e *fewEdits) change(ops *asm.Ops, loop func(*asm.Panel), scores, add []float32, n int) {
	p := &e.changes
	p.Lanes, p.Width, p.N, p.P, p.Edit.Add = ops.Lanes, ops.Lanes, n/ops.Lanes, scores, add
	loop(p)
	done := p.N * p.Lanes
	if done == n {
		return
	}
	if add != nil {
		copy(e.left, add[done:n])
	}
	p.Width, p.N, p.P, p.Edit.Add = (n-done+ops.Vec-1)/ops.Vec*ops.Vec, 1, scores[done:], e.left
	loop(p)
}

// distances are how far query i of so many is from each of n keys, whose first is so far before the first of the queries.
func (e *fewEdits) distances(i, queries, before, n int) []float32 {
	if from, all := before+queries-1, n+queries-1; e.from != from || e.n != all {
		e.from, e.n = from, all
		for j := range e.apart[:all] {
			e.apart[j] = float32(max(from-j, j-from))
		}
	}
	return e.apart[queries-1-i:][:n]
}

// edit finishes the scores of one query, which is row in the worker and row at of those in hand: terms added, hidden keys set to -Inf.
func (d *decoder) edit(w *fewWorker, k *block, row, at, key int) {
	p, a, e, b := &d.p, d.a, &w.edits, k.b
	h, i := d.asker(k, at)
	s, f, change := &p.Score, &d.factors, &e.changes.Edit
	scores := w.P[at*w.Stride:]
	if s.Terms&attn.TermRelative != 0 {
		d.addRelative(w, b, h, i, scores, key)
	}
	if s.Softcap != 0 {
		change.Scale = f.Cap
		e.change(d.loops, d.loops.Cap, scores, nil, w.N)
	}
	if s.Terms&attn.TermBias != 0 {
		bias := &a.Terms.Bias
		change.Scale, change.Factor, change.Bounded = f.Add, f.Beta, true
		if off, step := bias.Offset(b, i, h); step == 0 { // one for all keys
			for j, x := range scores[:w.N] {
				scores[j] = change.Biased(x, bias.Data[off])
			}
		} else {
			e.change(d.loops, d.loops.Add, scores, bias.Data[off+key:], w.N)
		}
	}
	if s.Terms&attn.TermALiBi != 0 {
		change.Scale, change.Factor, change.Bounded = f.Tilt, -float64(a.Terms.Slopes[h])*f.Beta, false
		e.change(d.loops, d.loops.Add, scores, e.distances(i, a.Queries(p, b), a.Pos(p, b)-key, w.N), w.N)
	}
	scores = scores[:w.N]
	hide(scores, 0, w.lo[at]-key)
	hide(scores, w.hi[at]-key, len(scores))
	if p.Mask.Bitmap != attn.NoBitmap {
		d.hideBitmap(b, h, i, scores, key)
	}
	if p.Want&(attn.WantMax|attn.WantArgMax) != 0 {
		for j, s := range scores {
			if s > w.max[row] {
				w.max[row], w.first[row] = s, int32(key+j)
			}
		}
	}
}

// addRelative adds the products of a query with the rows of the table that go with the keys: one row after another, but where distances are held, the same.
func (d *decoder) addRelative(w *fewWorker, b, h, i int, scores []float32, key int) {
	p, a, e, table := &d.p, d.a, &w.edits, &d.a.Terms.Relative
	first, last := a.Relative(p, b, i, key), a.Relative(p, b, i, key+w.N-1)
	few := w.Few
	w.R, w.N, w.D = 1, last-first+1, p.QDim()
	w.Q, w.K, w.P = asm.Rows{Data: w.row.Raw(a, b, i, h), Stride: p.QDim()}, asm.Cells{Rows: operand.Rows(table, 0, first, h%table.H)}, e.relative
	w.Run = 0
	d.loops.Dot(&w.Few)
	w.Few = few
	products := e.relative[:w.N]
	if different := last - first + 1; different < w.N {
		near := min(max(a.Pos(p, b)+i-a.Terms.RelativeClip-key, 0), w.N-different) // as many keys are too far before the query
		low, high := products[0], products[different-1]
		copy(products[near:], products[:different])
		fill(products[:near], low)
		fill(products[near+different:], high)
	}
	e.changes.Edit.Scale, e.changes.Edit.Factor, e.changes.Edit.Bounded = 1, 1, false
	e.change(d.loops, d.loops.Add, scores, products, w.N)
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// hide hides keys from one to another.
func hide(scores []float32, from, to int) {
	for j := max(from, 0); j < min(to, len(scores)); j++ {
		scores[j] = float32(math.Inf(-1))
	}
}

// hideBitmap hides keys, whose first is key, that the bitmap does not show to query i.
func (d *decoder) hideBitmap(b, h, i int, scores []float32, key int) {
	if d.p.Mask.Bitmap == attn.BlockBitmap {
		i /= d.p.Mask.Block
	}
	at, step := d.a.Allowed.Offset(b, i, h)
	for from := 0; from < len(scores); from += 32 {
		n := min(32, len(scores)-from)
		hidden := ^tile.Shown(&d.p, d.a, at, step, key+from, n) << (32 - n) >> (32 - n)
		for ; hidden != 0; hidden &= hidden - 1 {
			scores[from+bits.TrailingZeros32(hidden)] = float32(math.Inf(-1))
		}
	}
}
