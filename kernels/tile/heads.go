package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// Where several heads of queries share a key head, their queries may stand in the lanes of one tile: query after query, each of all heads. Few queries then fill
// as many lanes as they can, and those that see the fewest keys stand first, as in a tile of one head. Such a tile copies its queries, and its output.

// Mixes is whether tiles may have several heads: whatever belongs to a head must then be told lane by lane, and no more than sinks are.
func Mixes(p *attn.Problem) bool {
	return p.Group() > 1 && p.Score.Terms&^attn.TermSinks == 0 && p.Mask.Bitmap == attn.NoBitmap
}

// MixingPays is whether n queries of each head are answered faster so. A tile costs something besides its vectors of lanes: of one vector it takes some .47 of
// the time of three, and of two .73 (a Xeon, family 6, model 167, AVX-512 with 16, 32 and 48 queries, 1024 keys; AVX2's two and three vectors the same).
func MixingPays(p *attn.Problem, ops *asm.Ops, n int) bool {
	cost := func(n int) int { return 4*((n+ops.Vec-1)/ops.Vec) + 3*tiles(ops, n) }
	return Mixes(p) && 10*cost(p.Group()*n) < 9*p.Group()*cost(n)
}

// MixedFloats is the number of float32 numbers in the rows of a tile of several heads, which a worker's tiles share.
func MixedFloats(p *attn.Problem, ops *asm.Ops) int {
	if !Mixes(p) {
		return 0
	}
	return ops.Lanes * max(p.QDim(), p.DimV)
}

// AtAll makes the tile one of those that the queries of all heads fill that share key head kv of batch entry b.
func (t *Tile) AtAll(a *attn.Args, b, kv, tile int) {
	t.put(a, b, kv*t.p.Group(), t.p.Group(), tile)
}

// Query is the head and the number of the query in a lane.
func (t *Tile) Query(lane int) (h, i int) {
	if t.heads == 1 {
		return t.h, t.i + lane
	}
	return t.h + (t.i+lane)%t.heads, (t.i + lane) / t.heads
}

// mixed are the rows of the worker's tiles that have several heads.
func (t *Tile) mixed(d int) asm.Rows { return asm.Rows{Data: t.stage.mixed, Stride: d} }

// collect copies the queries into rows.
func (t *Tile) collect(rows asm.Rows, d int) {
	batch, first := t.a.QRow(t.p, t.b, 0)
	for lane := range t.rows {
		h, i := t.Query(lane)
		row := rows.Row(lane, d)
		copy(row, t.a.Q.Read(row, batch, first+i, h))
	}
}

// spread copies rows of the output to where they go.
func (t *Tile) spread(rows asm.Rows) {
	if t.C == 0 {
		return
	}
	batch, first := t.a.QRow(t.p, t.b, 0)
	for lane := range t.rows {
		h, i := t.Query(lane)
		if t.a.Out.Type == attn.F32 {
			copy(t.a.Out.Row(batch, first+i, h), rows.Row(lane, t.C))
			continue
		}
		out := operand.Cells(&t.a.Out, batch, first+i, h)
		t.ops.Narrow(out.Half[:t.C], rows.Row(lane, t.C), out.Type)
	}
}

// Within leaves the tile, once it has its place, a part of the keys: so many from one on, in whole blocks. Such a tile is asked by Left what it knows, and does not
// finish. With care, it begins its second round.
func (t *Tile) Within(part, first, n int, careful bool) {
	t.Part, t.careful = part, careful
	if t.lo, t.hi = max(t.lo, first), min(t.hi, first+n); t.lo >= t.hi {
		t.lo, t.hi = first+n, 0
	}
}

// Rows is how many lanes have a query, of batch entry Batch.
func (t *Tile) Rows() int  { return t.rows }
func (t *Tile) Batch() int { return t.b }

// Sums returns the tile's sums of values as rows, which are there until another of the worker's tiles needs them.
func (t *Tile) Sums() asm.Rows {
	if t.Fresh {
		clear(t.O)
		t.Fresh = false
	}
	rows := t.mixed(t.C)
	t.moving(t.O, rows, t.C).Scale = t.ones
	t.ops.Store(&t.move)
	return rows
}

// Left is what the tile knows of a lane's query beside its sum of values: the reference, the sums of weights and of weights times scores, the largest score and its
// key, and whether it is to be answered by definition.
func (t *Tile) Left(lane int) (m, l, s, top float32, key int32, bad bool) {
	if t.S != nil {
		s = t.S[lane]
	}
	return t.M[lane], t.L[lane], s, t.edits.max[lane], t.edits.first[lane], t.hidden[lane]
}
