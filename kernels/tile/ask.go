package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// AskQueries has Mix ask memory, while it multiplies, for the queries of the tile that is loaded next. Mix asks for two of the things that it is told to, the
// later ones.
func (t *Tile) AskQueries(next *Tile) { t.askRows(&t.a.Q, next) }

// AskOut has Mix ask for the rows of the tile's own output.
func (t *Tile) AskOut() { t.askRows(&t.a.Out, t) }

// flashAsks is whether Flash asks memory for rows: that of some sets does, if nothing is to be done between its two steps.
func (t *Tile) flashAsks() bool {
	return (t.ops.Gathers || t.ops.CutKeys != nil) && operand.InPlace(t.p) && !t.edits.any && t.S == nil
}

// brings is whether the stage brings rows together or cuts them.
func (t *Tile) brings() bool { return t.stage.gather && t.ops.Gathers || t.stage.cuts() }

// AskGathered has Flash ask memory, while it multiplies, for a share of the rows that the stage brings together next, from a key on: 32 columns of K, or of V
// when all of K are taken, the share 0 the first.
//
// On a Xeon (family 6, model 167), AVX-512 with 2048 keys took .9 to 1.3 % less time so, in bshd and in the packed layout, d = 64 and 128, than where Mix
// asked for rows of V and nobody for those of K: the medians of three comparisons each, which lie between 3.4 less and 1.3 more.
func (t *Tile) AskGathered(key, share int) {
	const columns = 32
	if !t.brings() || !t.flashAsks() {
		return
	}
	x, ofK := &t.a.K, (t.p.Dim+columns-1)/columns
	if share >= ofK {
		x, share = &t.a.V, share-ofK
	}
	if share*columns < x.D {
		batch, row := t.a.KRow(t.p, t.b, key)
		rows := operand.Rows(x, batch, row, t.kv)
		t.Next, t.NextBy = rows.Ahead(0)+uintptr(4*columns*share), 4*rows.Stride
	}
}

// AskOwnValues has Flash ask for the values of its block, 32 columns of them, for a tile that goes alone: none before it has asked for them, and Mix, which begins
// with some columns of all rows, cannot in time.
//
// On a Xeon (family 6, model 167), AVX-512, 16 queries of 8 heads took 15 % less time so with 32768 keys of d = 64, and 48 17 %; with 1024, whose values are
// in the second cache, 10 to 20 % less.
func (t *Tile) AskOwnValues() {
	if !t.brings() && t.flashAsks() {
		batch, row := t.a.KRow(t.p, t.b, t.Key())
		rows := operand.Rows(&t.a.V, batch, row, t.kv)
		t.Next, t.NextBy = rows.Ahead(0), 4*rows.Stride
	}
}

// AskValues has Mix ask for rows of V from a key on, if that is before the end, a quarter as many as it multiplies. It does not where Flash does.
func (t *Tile) AskValues(key, end int) {
	if key < end && operand.InPlace(t.p) && !(t.brings() && t.flashAsks()) {
		batch, row := t.a.KRow(t.p, t.b, key)
		t.ask(operand.Rows(&t.a.V, batch, row, t.kv))
	}
}

func (t *Tile) askRows(x *attn.Tensor, of *Tile) {
	if x.Type == attn.F32 && t.heads == 1 {
		batch, first := t.a.QRow(t.p, t.b, of.i)
		t.ask(operand.Rows(x, batch, first, of.h))
	}
}

func (t *Tile) ask(rows asm.Rows) {
	t.Then, t.ThenBy = t.Ahead, t.AheadBy
	t.Ahead, t.AheadBy = rows.Ahead(0), 4*rows.Stride
}
