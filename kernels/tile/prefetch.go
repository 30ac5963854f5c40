package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// A prefetcher chooses the rows that the loops of a tile prefetch while they compute. Rows of K and
// V are prefetched only where they are read in place.
type prefetcher struct {
	inPlace bool // K and V are read in place
	byFlash bool // Flash prefetches
	d, dv   int
}

// newPrefetcher returns the prefetcher of a problem's tiles. Only Flash without sums of scores
// prefetches; unfused tiles do not use it.
func newPrefetcher(p *attn.Problem, ops *asm.Ops, unfused bool) prefetcher {
	packs := ops.Pack.Size(asm.Keys, ops.Shape.Group, 1) > 0 // then Flash prefetches
	return prefetcher{
		inPlace: operand.InPlace(p), byFlash: operand.InPlace(p) && !unfused && (ops.Tuning.CopiesRows || packs),
		d: p.Dim, dv: p.DimV,
	}
}

// shareColumns is the number of columns that one tile prefetches of each row of the next block: two
// lines.
const shareColumns = 32

// share returns the columns that make share i of a block: 32 columns of K for each share, and then
// of V. It reports false if the block has no share i.
func (f *prefetcher) share(i int) (ofV bool, column int, ok bool) {
	ofK, d := cover(f.d, shareColumns), f.d
	if i >= ofK {
		i, d, ofV = i-ofK, f.dv, true
	}
	return ofV, i * shareColumns, i*shareColumns < d
}

// PrefetchQueries makes Mix prefetch the queries of the tile that is loaded next. Mix serves the
// last two requests.
func (t *Tile) PrefetchQueries(next *Tile) { t.prefetchRows(&t.a.Q, next) }

// PrefetchOut makes Mix prefetch the rows of the tile's own output.
func (t *Tile) PrefetchOut() { t.prefetchRows(&t.a.Out, t) }

func (t *Tile) prefetchRows(x *attn.Tensor, of *Tile) {
	if x.Type == attn.F32 && t.place.heads == 1 {
		batch, first := t.a.QRow(t.p, t.place.b, of.place.first)
		t.mix.AddPrefetch(operand.Rows(x, batch, first, of.place.head).Prefetch())
	}
}

// PrefetchCopied makes Flash prefetch a share of the rows that the stage copies or packs next: rows
// of the block that starts at key. Where Flash does not prefetch, it has no effect.
// Tuning: docs/tuning.md#prefetch-copied
func (t *Tile) PrefetchCopied(key, share int) {
	ofV, column, ok := t.prefetch.share(share)
	if !ok || !t.makesRows() || !t.prefetch.byFlash {
		return
	}
	x := &t.a.K
	if ofV {
		x = &t.a.V
	}
	t.flash.Prefetch = t.rowsFrom(x, key).Shift(4 * column)
}

// PrefetchOwnValues makes Flash prefetch the first columns of its block's values. It is for a tile
// that goes over the keys alone. No tile before it has read them, and Mix, which begins with some
// columns of all rows, would wait for them.
// Tuning: docs/tuning.md#prefetch-own
func (t *Tile) PrefetchOwnValues() {
	if !t.makesRows() && t.prefetch.byFlash {
		t.flash.Prefetch = t.rowsFrom(&t.a.V, t.Key())
	}
}

// PrefetchValues makes Mix prefetch rows of V starting at key, a quarter of the number that it
// multiplies, if key is before end. It has no effect where Flash prefetches them.
func (t *Tile) PrefetchValues(key, end int) {
	if key < end && t.prefetch.inPlace && !(t.makesRows() && t.prefetch.byFlash) {
		t.mix.AddPrefetch(t.rowsFrom(&t.a.V, key))
	}
}

// makesRows reports whether the stage copies or packs the rows that Flash can prefetch.
func (t *Tile) makesRows() bool {
	return t.stage.copies && t.ops.Tuning.CopiesRows || t.stage.packs()
}

// rowsFrom returns the request for rows of K or V starting at key.
func (t *Tile) rowsFrom(x *attn.Tensor, key int) asm.Prefetch {
	batch, row := t.a.KRow(t.p, t.place.b, key)
	return operand.Rows(x, batch, row, t.place.kv).Prefetch()
}
