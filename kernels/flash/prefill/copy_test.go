package prefill

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash/flashtest"
	"attnlab/kernels/operand"
	"attnlab/kernels/tile"
)

// counted returns the kernel of a level, and a counter of the copies that it makes.
func counted(l asm.Level) (Kernel, *atomic.Int64) {
	copies, ops := new(atomic.Int64), *l.Ops
	ops.Vector.Widen = func(to []float32, from *asm.Cells, n, d int) {
		copies.Add(1)
		l.Ops.Vector.Widen(to, from, n, d)
	}
	return Kernel{Ops: &ops, L2: 256 << 10}, copies
}

// packs reports whether a problem's operands are packed.
func packs(p *attn.Problem, ops *asm.Ops) bool {
	pack := tile.Packing(p, ops, asm.Forward)
	_, packs := packedBytes(&pack)
	return packs
}

// TestCopiesKeepBits checks when rows are copied: rows of V that are far apart, if enough tiles
// share them, and rows of K too where the tuning copies them, unless they are packed. Copies must
// give the bits of contiguous rows, also where one is not finite.
func TestCopiesKeepBits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	for _, l := range asmtest.Levels(t) {
		k, copies := counted(l)
		masks := []attn.Mask{attn.Causal(), {}, attn.Window(70, 20)}
		if testing.Short() {
			masks = masks[:1]
		}
		for _, mask := range masks {
			p := attn.Problem{Batch: 2, SeqQ: 300, SeqKV: 300, HeadsQ: 16, HeadsKV: 16, Dim: 8, DimV: 16, Mask: mask, Lengths: true}
			between := flashtest.NewArgs(t, p, "bshd")
			apart := flashtest.NewArgs(t, p, "bhsd")
			cases.Fill("normal", p, between, 1)
			between.KLen[1] = 170
			apart.Q, apart.KLen = between.Q, between.KLen
			call := func(team *attn.Team, a *attn.Args) int64 {
				pl := k.Plan(p, team)
				copies.Store(0)
				pl.Run(a)
				return copies.Load()
			}
			for _, x := range []float32{0, flashtest.Inf} {
				between.V.Row(0, 150, 11)[3] = x
				flashtest.FillPages(&p, apart, between)
				if n := call(nil, apart); n != 0 {
					t.Errorf("%s, %v: %d copies of contiguous rows", l.ISA, mask, n)
				}
				for _, team := range []*attn.Team{nil, team} {
					var values int64
					for _, copies := range []bool{false, true} {
						k.Ops.Tuning.CopiesRows = copies
						n := call(team, between)
						switch {
						case packs(&p, k.Ops):
							if n != 0 {
								t.Errorf("%s, %v: %d copies of rows that are packed", l.ISA, mask, n)
							}
						case !copies && n == 0:
							t.Errorf("%s, %v: no copies", l.ISA, mask)
						case copies && n != 2*values:
							t.Errorf("%s, %v: %d copies of K and V, %d of V alone", l.ISA, mask, n, values)
						}
						values = n
						flashtest.SameRows(t, fmt.Sprintf("%s, %v", l.ISA, mask), &between.Out, &apart.Out)
					}
				}
			}
		}
	}
}

// TestCopiesArePrefetched checks that, where the tuning copies rows, Flash prefetches every 32
// columns of K and V of every block but the first, once in each bundle.
func TestCopiesArePrefetched(t *testing.T) {
	const columns = 32
	p := attn.Problem{Batch: 1, SeqQ: 500, SeqKV: 700, HeadsQ: 2, HeadsKV: 2, Dim: 2 * columns, DimV: columns + 8}
	a := flashtest.NewArgs(t, p, "bshd")
	cases.Fill("normal", p, a, 1)
	for _, l := range asmtest.Levels(t) {
		k, _ := counted(l)
		if asmtest.Packs(k.Ops) { // packing copies rows instead
			continue
		}
		k.Ops.Tuning.CopiesRows, k.L2 = true, 1<<20
		asked := map[uintptr]int{}
		pl := prefetching(t, k, p, a, func(next uintptr) { asked[next]++ })
		bundles, all := cover(tile.Count(&p, k.Ops, p.SeqQ), pl.size), 0
		for kv := range p.HeadsKV {
			for key := pl.layout.Block; key < p.SeqKV; key += pl.layout.Block {
				for _, x := range []*attn.Tensor{&a.K, &a.V} {
					for c := 0; c < x.D; c += columns {
						all++
						if n := asked[operand.Rows(x, 0, key, kv).Prefetch().At+uintptr(4*c)]; n != bundles {
							t.Errorf("%s: key %d of head %d, column %d: prefetched %d times in %d bundles", l.ISA, key, kv, c, n, bundles)
						}
					}
				}
			}
		}
		if all == 0 || len(asked) != all {
			t.Errorf("%s: %d pieces prefetched, want %d", l.ISA, len(asked), all)
		}
	}
}

// prefetching runs a call of a plan, and calls prefetched with the address that Flash prefetches
// when it begins a block.
func prefetching(t *testing.T, k Kernel, p attn.Problem, a *attn.Args, prefetched func(at uintptr)) *Plan {
	t.Helper()
	flash := k.Ops.Panel.Flash
	k.Ops.Panel.Flash = func(f *asm.Flash) {
		if f.At != 0 && f.From == 0 && !f.Scored {
			prefetched(f.At)
		}
		flash(f)
	}
	pl := k.Plan(p, nil)
	pl.Run(a)
	return pl
}

// TestLoneTilePrefetches checks that a tile that walks alone makes Flash prefetch the values of
// each of its blocks, where the set's loops prefetch.
func TestLoneTilePrefetches(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 12, SeqKV: 700, HeadsQ: 2, HeadsKV: 2, Dim: 16, DimV: 40}
	a := flashtest.NewArgs(t, p, "bhsd")
	cases.Fill("normal", p, a, 1)
	for _, l := range asmtest.Levels(t) {
		for _, copies := range []bool{false, true} {
			k, _ := counted(l)
			if k.Ops.Tuning.CopiesRows = copies; asmtest.Packs(k.Ops) && !copies || k.Ops.Shape.Lanes < p.SeqQ {
				continue // sets that pack always prefetch; or there are two tiles
			}
			var asked, want []uintptr
			pl := prefetching(t, k, p, a, func(next uintptr) { asked = append(asked, next) })
			for kv := 0; kv < p.HeadsKV && copies; kv++ {
				for key := 0; key < p.SeqKV; key += pl.layout.Block {
					want = append(want, operand.Rows(&a.V, 0, key, kv).Prefetch().At)
				}
			}
			slices.Sort(asked)
			slices.Sort(want)
			if !slices.Equal(asked, want) {
				t.Errorf("%s, copies %v: %d blocks of values prefetched, want %d", l.ISA, copies, len(asked), len(want))
			}
		}
	}
}

// TestCopiesAreForgotten checks that rows copied for one call are not used in the next, although
// its only block is the last of the first call and the first of the second.
func TestCopiesAreForgotten(t *testing.T) {
	all := attn.Problem{Batch: 1, SeqQ: 390, SeqKV: 100, HeadsQ: 16, HeadsKV: 16, Dim: 8, DimV: 16}
	a := flashtest.NewArgs(t, all, "bshd")
	cases.Fill("normal", all, a, 1)
	p := all
	p.HeadsQ, p.HeadsKV = 1, 1
	for _, x := range []*attn.Tensor{&a.Q, &a.K, &a.V, &a.Out} {
		x.H = 1 // the first head: its rows are between the rows of other heads
	}
	for _, l := range asmtest.Levels(t) {
		k, copies := counted(l)
		pl := k.Plan(p, nil)
		var first [][]float32
		pl.Run(a)
		for i := range p.SeqQ {
			first = append(first, slices.Clone(a.Out.Row(0, i, 0)))
		}
		if copies.Load() == 0 && !asmtest.Packs(k.Ops) {
			t.Errorf("%s: no copies", l.ISA)
		}
		for j := range p.SeqKV {
			for c := range a.V.Row(0, j, 0) {
				a.V.Row(0, j, 0)[c] *= 2
			}
		}
		pl.Run(a)
		for i, row := range first {
			for c, x := range row {
				if y := a.Out.Row(0, i, 0)[c]; !flashtest.Same(y, 2*x) {
					t.Fatalf("%s: query %d, column %d is %v of values twice as large, and was %v", l.ISA, i, c, y, x)
				}
			}
		}
	}
}
