package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// Where several query heads share a key head, the lanes of one tile may hold queries of all of
// them: query after query, each with all heads. So a small number of queries fills more of a tile's
// lanes. The queries that see the fewest keys are first, as in a tile of one head. Such a tile
// copies its queries and its output.

// JoinsHeads reports whether tiles may have the queries of several heads. Operands that belong to
// one head must then be read lane by lane, which is implemented for sinks alone.
func JoinsHeads(p *attn.Problem) bool {
	return p.Group() > 1 && p.Score.Terms&^attn.TermSinks == 0 && p.Mask.Bitmap == attn.NoBitmap
}

// JoiningPays reports whether joining heads is faster for n queries of each head. It takes fewer
// vectors of lanes, and fewer tiles, each of which costs some time besides its vectors.
// Tuning: docs/tuning.md#joined-heads
func JoiningPays(p *attn.Problem, ops *asm.Ops, n int) bool {
	cost := func(n int) int { return 4*cover(n, ops.Shape.Vec) + 3*cover(n, ops.Shape.Lanes) }
	return JoinsHeads(p) && 10*cost(p.Group()*n) < 9*p.Group()*cost(n)
}

// joinedFloats returns the number of float32 numbers in the rows of a joined tile, which a worker's
// tiles share.
func joinedFloats(p *attn.Problem, ops *asm.Ops) int {
	if !JoinsHeads(p) {
		return 0
	}
	return ops.Shape.Lanes * max(p.QDim(), p.DimV)
}

// AtAll places the tile: it becomes tile number tile of the queries of all heads that share key
// head kv of batch entry b.
func (t *Tile) AtAll(a *attn.Args, b, kv, tile int) {
	t.put(a, b, kv*t.p.Group(), t.p.Group(), tile)
}

// joined returns the rows that the worker's joined tiles share.
func (t *Tile) joined(d int) asm.Rows { return asm.Rows{Data: t.stage.joined, Stride: d} }

// copyQueries copies the tile's queries into rows.
func (t *Tile) copyQueries(rows asm.Rows, d int) {
	batch, first := t.a.QRow(t.p, t.place.b, 0)
	for lane := range t.place.rows {
		h, i := t.Query(lane)
		row := rows.Row(lane, d)
		copy(row, t.a.Q.Read(row, batch, first+i, h))
	}
}

// copyOut copies rows of the output into the caller's tensor.
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
// block size. Read its partial state with Sums and Partial; do not call Finish. careful begins a
// careful round.
func (t *Tile) Restrict(split, first, n int, careful bool) {
	t.Split, t.careful = split, careful
	t.place.restrict(first, n)
}

// Rows returns the number of lanes that have a query.
func (t *Tile) Rows() int { return t.place.rows }

// Batch returns the batch entry of the queries.
func (t *Tile) Batch() int { return t.place.b }

// Sums returns the tile's output as rows, not yet divided by the sums of weights. They are valid
// until another of the worker's tiles is loaded.
func (t *Tile) Sums() asm.Rows {
	t.settle()
	rows := t.joined(t.p.DimV)
	fill(t.moves.scale, 1)
	t.store(rows, t.mix.O, t.p.DimV)
	return rows
}

// Partial returns the partial state of a lane's query, except its output: the reference, the sum of
// weights and that of weights times scores, the largest score and its key. It also returns whether
// the row must be computed by definition.
func (t *Tile) Partial(lane int) (m, l, s, top float32, key int32, bad bool) {
	sums := &t.sums
	if sums.S != nil {
		s = sums.S[lane]
	}
	return sums.M[lane], sums.L[lane], s, sums.max[lane], sums.first[lane], sums.hidden[lane]
}
