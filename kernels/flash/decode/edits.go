package decode

import (
	"math"
	"math/bits"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/tile"
)

// edits are the scratch for a worker's changes of scores. A query's scores are in a row. Loops of
// panels edit Shape.Lanes of them as one row of a panel, and then the rest.
type edits struct {
	call     asm.Edit
	rest     []float32 // [lanes]: addends of the scores that do not fill a row
	relative asm.Dot   // product of one query with rows of the table
	products []float32 // [split]: result of relative
	apart    distances
}

// distances are the distances of keys from the queries of a task.
type distances struct {
	// [split+queries-1]: distances from the last query. Those of the query before begin one later.
	last    []float32
	from, n int // distance of the first key before the last query; number of distances
}

// editsSizes returns the lengths of the slices.
func editsSizes(p *attn.Problem, ops *asm.Ops) (rest, relative, apart int) {
	if p.Score.Terms&attn.TermRelative != 0 {
		relative = splitKeys
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		apart = splitKeys + p.SeqQ - 1
	}
	return ops.Shape.Lanes, relative, apart
}

func editsFloats(p *attn.Problem, ops *asm.Ops) int {
	rest, relative, apart := editsSizes(p, ops)
	return rest + relative + apart
}

func newEdits(p *attn.Problem, ops *asm.Ops) edits {
	rest, relative, apart := editsSizes(p, ops)
	e := edits{rest: make([]float32, rest), products: make([]float32, relative), apart: distances{last: make([]float32, apart)}}
	e.relative.R, e.relative.D, e.relative.P = 1, p.QDim(), e.products
	e.call.Lanes = ops.Shape.Lanes
	return e
}

// change applies a loop to the first n of a row of scores, whose memory is whole vectors. For Add,
// add has an addend for each score.
func (e *edits) change(loop func(*asm.Edit), vec int, scores, add []float32, n int) {
	c := &e.call
	c.Width, c.N, c.P, c.Bias = c.Lanes, n/c.Lanes, scores, add
	loop(c)
	done := c.N * c.Lanes
	if done == n {
		return
	}
	if add != nil {
		copy(e.rest, add[done:n])
	}
	c.Width, c.N, c.P, c.Bias = cover(n-done, vec)*vec, 1, scores[done:], e.rest
	loop(c)
}

// of returns the distances of query i, of queries, from n keys. before is the distance of the first
// key before the first query.
func (d *distances) of(i, queries, before, n int) []float32 {
	if from, all := before+queries-1, n+queries-1; d.from != from || d.n != all {
		d.from, d.n = from, all
		for j := range d.last[:all] {
			d.last[j] = float32(max(from-j, j-from))
		}
	}
	return d.last[queries-1-i:][:n]
}

// edit finishes the scores of one query, which is row row of the worker and row at of the block: it
// adds the terms and sets hidden keys to -Inf. key is the first key.
func (pl *Plan) edit(w *worker, k *block, row, at, key int) {
	p, a, e, b := &pl.p, pl.a, &w.edits, k.b
	h, i := pl.query(k, at)
	s, f, c, loops, vec := &p.Score, &pl.factors, &e.call, &pl.loops.Edit, pl.loops.Shape.Vec
	n, scores := w.weigh.N, w.weigh.P[at*w.weigh.Stride:]
	if s.Terms&attn.TermRelative != 0 {
		pl.addRelative(w, b, h, i, scores, key)
	}
	if s.Softcap != 0 {
		c.Scale = f.Cap
		e.change(loops.Cap, vec, scores, nil, n)
	}
	if s.Terms&attn.TermBias != 0 {
		bias := &a.Terms.Bias
		c.Scale, c.Factor, c.Bounded = f.Add, f.Beta, true
		if off, step := bias.Offset(b, i, h); step == 0 { // all keys share one number
			for j, x := range scores[:n] {
				scores[j] = c.Biased(x, bias.Data[off])
			}
		} else {
			e.change(loops.Add, vec, scores, bias.Data[off+key:], n)
		}
	}
	if s.Terms&attn.TermALiBi != 0 {
		c.Scale, c.Factor, c.Bounded = f.Tilt, -float64(a.Terms.Slopes[h])*f.Beta, false
		e.change(loops.Add, vec, scores, e.apart.of(i, a.Queries(p, b), a.Pos(p, b)-key, n), n)
	}
	scores = scores[:n]
	hide(scores, 0, w.visible.lo[at]-key)
	hide(scores, w.visible.hi[at]-key, len(scores))
	if p.Mask.Bitmap != attn.NoBitmap {
		pl.hideBitmap(b, h, i, scores, key)
	}
	if p.Want&(attn.WantMax|attn.WantArgMax) != 0 {
		for j, s := range scores {
			if s > w.states.max[row] {
				w.states.max[row], w.states.first[row] = s, int32(key+j)
			}
		}
	}
}

// addRelative adds the products of a query with the rows of the table for its keys. They are
// consecutive rows, except that clipped distances share one row.
func (pl *Plan) addRelative(w *worker, b, h, i int, scores []float32, key int) {
	p, a, e, c, n, table := &pl.p, pl.a, &w.edits, &w.edits.relative, w.weigh.N, &pl.a.Terms.Relative
	first, last := a.Relative(p, b, i, key), a.Relative(p, b, i, key+n-1)
	different := last - first + 1
	c.N, c.Rows = different, asm.Rows{Data: w.row.Raw(a, b, i, h), Stride: p.QDim()}
	c.Cache.Rows = operand.Rows(table, 0, first, h%table.H)
	pl.loops.Decode.Dot(c)
	products := e.products[:n]
	if different < n {
		// near is the number of keys at the clipped distance before the query.
		near := min(max(a.Pos(p, b)+i-a.Terms.RelativeClip-key, 0), n-different)
		low, high := products[0], products[different-1]
		copy(products[near:], products[:different])
		fill(products[:near], low)
		fill(products[near+different:], high)
	}
	e.call.Scale, e.call.Factor, e.call.Bounded = 1, 1, false
	e.change(pl.loops.Edit.Add, pl.loops.Shape.Vec, scores, products, n)
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// hide hides scores first..end-1.
func hide(scores []float32, first, end int) {
	for j := max(first, 0); j < min(end, len(scores)); j++ {
		scores[j] = float32(math.Inf(-1))
	}
}

// hideBitmap hides the keys that the bitmap hides from query i. key is the first key of scores.
func (pl *Plan) hideBitmap(b, h, i int, scores []float32, key int) {
	if pl.p.Mask.Bitmap == attn.BlockBitmap {
		i /= pl.p.Mask.Block
	}
	at, step := pl.a.Allowed.Offset(b, i, h)
	for from := 0; from < len(scores); from += 32 {
		n := min(32, len(scores)-from)
		hidden := ^tile.Shown(&pl.p, pl.a, at, step, key+from, n) << (32 - n) >> (32 - n)
		for ; hidden != 0; hidden &= hidden - 1 {
			scores[from+bits.TrailingZeros32(hidden)] = float32(math.Inf(-1))
		}
	}
}
