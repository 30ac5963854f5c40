package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// Where several heads of queries share a key head, their queries may be in the lanes of one tile:
// query after query, each of all heads. So a few queries fill more of a tile's lanes, and those
// that see the fewest keys are first, as in a tile of one head. Such a tile copies its queries, and
// its output.

// JoinsHeads reports whether tiles may have the queries of several heads: whatever belongs to a
// head must then be looked up lane by lane, which is done for sinks alone.
func JoinsHeads(p *attn.Problem) bool {
	return p.Group() > 1 && p.Score.Terms&^attn.TermSinks == 0 && p.Mask.Bitmap == attn.NoBitmap
}

// JoiningPays reports whether n queries of each head are answered faster so: by fewer vectors of
// lanes, and fewer tiles, each of which takes as long as some part of a vector besides.
//
// Tuning: docs/tuning.md#joined-heads
func JoiningPays(p *attn.Problem, ops *asm.Ops, n int) bool {
	cost := func(n int) int { return 4*cover(n, ops.Shape.Vec) + 3*cover(n, ops.Shape.Lanes) }
	return JoinsHeads(p) && 10*cost(p.Group()*n) < 9*p.Group()*cost(n)
}

// joinedFloats returns the number of float32 numbers in the rows of a tile of several heads, which
// a worker's tiles share.
func joinedFloats(p *attn.Problem, ops *asm.Ops) int {
	if !JoinsHeads(p) {
		return 0
	}
	return ops.Shape.Lanes * max(p.QDim(), p.DimV)
}

// AtAll makes the tile one of those that the queries of all heads fill that share key head kv of
// batch entry b.
func (t *Tile) AtAll(a *attn.Args, b, kv, tile int) {
	t.put(a, b, kv*t.p.Group(), t.p.Group(), tile)
}

// joined returns the rows of the worker's tiles that have several heads.
func (t *Tile) joined(d int) asm.Rows { return asm.Rows{Data: t.stage.joined, Stride: d} }

// copyQueries copies the queries into rows.
func (t *Tile) copyQueries(rows asm.Rows, d int) {
	batch, first := t.a.QRow(t.p, t.place.b, 0)
	for lane := range t.place.rows {
		h, i := t.Query(lane)
		row := rows.Row(lane, d)
		copy(row, t.a.Q.Read(row, batch, first+i, h))
	}
}

// copyOut copies rows of the output to where they are stored.
func (t *Tile) copyOut(rows asm.Rows) {
	d := t.p.DimV
	if d == 0 {
		return
	}
	batch, first := t.a.QRow(t.p, t.place.b, 0)
	for lane := range t.place.rows {
		h, i := t.Query(lane)
		if t.a.Out.Type == attn.F32 {
			copy(t.a.Out.Row(batch, first+i, h), rows.Row(lane, d))
			continue
		}
		out := operand.Cells(&t.a.Out, batch, first+i, h)
		t.ops.Vector.Narrow(out.Half[:d], rows.Row(lane, d), out.Type)
	}
}

// Restrict limits a placed tile to KV split split: n keys starting at first, a multiple of the
// block size. Collect its partial state with Sums and Partial; do not call Finish. With care, the
// tile is in its second round.
func (t *Tile) Restrict(split, first, n int, careful bool) {
	t.Split, t.careful = split, careful
	t.place.restrict(first, n)
}

// Rows returns how many lanes have a query.
func (t *Tile) Rows() int { return t.place.rows }

// Batch returns the batch entry of the queries.
func (t *Tile) Batch() int { return t.place.b }

// Sums returns the tile's sums of values as rows, which are valid until another of the worker's
// tiles is loaded.
func (t *Tile) Sums() asm.Rows {
	t.settle()
	rows := t.joined(t.p.DimV)
	fill(t.moves.scale, 1)
	t.store(rows, t.mix.O, t.p.DimV)
	return rows
}

// Partial returns what the tile knows of a lane's query besides its sum of values: the reference,
// the sums of weights and of weights times scores, the largest score and its key, and whether the
// query is to be answered by definition.
func (t *Tile) Partial(lane int) (m, l, s, top float32, key int32, bad bool) {
	sums := &t.sums
	if sums.S != nil {
		s = sums.S[lane]
	}
	return sums.M[lane], sums.L[lane], s, sums.max[lane], sums.first[lane], sums.hidden[lane]
}
