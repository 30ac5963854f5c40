package tile

import (
	"testing"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// TestShares checks that shares cover the columns of K and then of V, two lines each, and end
// there.
func TestShares(t *testing.T) {
	type share struct {
		ofV    bool
		column int
	}
	for _, c := range []struct {
		d, dv int
		want  []share
	}{
		{64, 64, []share{{false, 0}, {false, 32}, {true, 0}, {true, 32}}},
		{32, 33, []share{{false, 0}, {true, 0}, {true, 32}}},
		{33, 32, []share{{false, 0}, {false, 32}, {true, 0}}},
		{0, 8, []share{{true, 0}}},
		{8, 0, []share{{false, 0}}},
	} {
		f := prefetcher{d: c.d, dv: c.dv}
		for i := range len(c.want) + 2 {
			ofV, column, ok := f.share(i)
			if ok != (i < len(c.want)) || ok && (share{ofV, column}) != c.want[i] {
				t.Errorf("d = %d and %d: share %d is of V: %v, column %d, there is one: %v", c.d, c.dv, i, ofV, column, ok)
			}
		}
	}
}

// TestPrefetch checks which rows Flash and Mix prefetch, at which addresses, and when they do not
// prefetch.
func TestPrefetch(t *testing.T) {
	base := attn.Problem{Batch: 2, SeqQ: 16, SeqKV: 100, HeadsQ: 4, HeadsKV: 2, Dim: 40, DimV: 24}
	edited, sums, half := base, base, base
	edited.Score.Softcap = 3
	sums.Want = attn.WantMean
	half.KV = attn.F16
	at := func(x *attn.Tensor, row, kv, column int) asm.Prefetch {
		return asm.Prefetch{At: uintptr(unsafe.Pointer(&x.Row(1, row, kv)[column])), By: 4 * x.SS}
	}
	for _, c := range []struct {
		name               string
		p                  attn.Problem
		copiesRows, copies bool
		flash              bool // Flash prefetches rows that are copied
		own                bool // Flash prefetches the block's own values
		mix                bool // Mix prefetches values of the next block
	}{
		{"in place", base, false, false, false, false, true},
		{"in place, and Flash prefetches", base, true, false, false, true, true},
		{"copied", base, true, true, true, false, false},
		{"copied, and Flash does not prefetch", base, false, true, false, false, true},
		{"edited", edited, true, true, false, false, true},
		{"with sums of scores", sums, true, true, false, false, true},
		{"half", half, true, true, false, false, false},
	} {
		a, ops := stageCall(t, c.p), asm.Portable(8, 1, 8, 1, 1)
		ops.Tuning.CopiesRows = c.copiesRows
		tile := New(&c.p, ops, NewStage(&c.p, ops, Config{Block: 32, Copies: true}))
		tile.At(a, 1, 3, 1)
		tile.CopyRows(c.copies)
		begin := func() {
			if !tile.Block(32, 32) {
				t.Fatalf("%s: no block", c.name)
			}
		}
		want := func(what string, does bool, got, want func() asm.Prefetch) {
			t.Helper()
			rows := asm.Prefetch{}
			if does {
				rows = want()
			}
			if got := got(); got != rows {
				t.Errorf("%s: %s: %+v, want %+v", c.name, what, got, rows)
			}
		}
		flash, mix := func() asm.Prefetch { return tile.flash.Prefetch }, func() asm.Prefetch { return tile.mix.Next }
		begin()
		want("before a request", false, flash, nil)
		tile.PrefetchCopied(64, 1)
		want("share 1", c.flash, flash, func() asm.Prefetch { return at(&a.K, 64, 1, 32) })
		tile.PrefetchCopied(64, 2)
		want("share 2", c.flash, flash, func() asm.Prefetch { return at(&a.V, 64, 1, 0) })
		tile.PrefetchCopied(64, 3)
		want("a share that is none", c.flash, flash, func() asm.Prefetch { return at(&a.V, 64, 1, 0) })
		begin()
		tile.PrefetchOwnValues()
		want("own values", c.own, flash, func() asm.Prefetch { return at(&a.V, 32, 1, 0) })
		tile.PrefetchValues(72, 72)
		want("values at the end", false, mix, nil)
		tile.PrefetchValues(72, 73)
		want("values", c.mix, mix, func() asm.Prefetch { return at(&a.V, 72, 1, 0) })

		other := New(&c.p, ops, tile.stage)
		other.At(a, 1, 2, 0)
		tile.PrefetchQueries(other)
		want("queries", true, mix, func() asm.Prefetch { return at(&a.Q, 0, 2, 0) })
		tile.PrefetchOut()
		want("outputs", true, mix, func() asm.Prefetch { return at(&a.Out, 8, 3, 0) })
		want("the request before", true, func() asm.Prefetch { return tile.mix.Then }, func() asm.Prefetch { return at(&a.Q, 0, 2, 0) })
	}
}
