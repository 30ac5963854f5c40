package flash

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/operand"
	"attnlab/kernels/tile"
)

// counted is the kernel of a level, and how often it copied rows.
func counted(l asm.Level) (kernel, *atomic.Int64) {
	copies, ops := new(atomic.Int64), *l.Ops
	ops.Widen = func(to []float32, from *asm.Cells, n, d int) {
		copies.Add(1)
		l.Ops.Widen(to, from, n, d)
	}
	return kernel{ops: &ops, name: "flash/" + l.ISA, cache: 256 << 10}, copies
}

// Rows of V that lie apart are copied for tiles enough to share them, and as many of K where loops gather, unless they are cut into parts. They give the bits of rows that lie together, also where
// one is not finite.
func TestGatherKeepsBits(t *testing.T) {
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
			between := newArgs(t, p, "bshd")
			apart := newArgs(t, p, "bhsd")
			cases.Fill("normal", p, between, 1)
			between.KLen[1] = 170
			apart.Q, apart.KLen = between.Q, between.KLen
			call := func(team *attn.Team, a *attn.Args) int64 {
				pl, err := k.Plan(p, team)
				if err != nil {
					t.Fatal(err)
				}
				copies.Store(0)
				pl.Forward(a)
				return copies.Load()
			}
			for _, x := range []float32{0, inf} {
				between.V.Row(0, 150, 11)[3] = x
				fillPages(&p, apart, between)
				if n := call(nil, apart); n != 0 {
					t.Errorf("%s, %v: %d copies of rows that lie together", l.ISA, mask, n)
				}
				for _, team := range []*attn.Team{nil, team} {
					var values int64
					for _, gathers := range []bool{false, true} {
						k.ops.Gathers = gathers
						n := call(team, between)
						switch {
						case tile.UsesParts(&p, k.ops):
							if n != 0 {
								t.Errorf("%s, %v: %d copies of rows that are cut", l.ISA, mask, n)
							}
						case !gathers && n == 0:
							t.Errorf("%s, %v: no copies", l.ISA, mask)
						case gathers && n != 2*values:
							t.Errorf("%s, %v: %d copies of K and V, %d of V alone", l.ISA, mask, n, values)
						}
						values = n
						sameRows(t, fmt.Sprintf("%s, %v", l.ISA, mask), &between.Out, &apart.Out)
					}
				}
			}
		}
	}
}

// Where loops gather, Flash is told once in each bundle to ask for every 32 columns of K and V of every block but its first.
func TestGatherAsks(t *testing.T) {
	const columns = 32
	p := attn.Problem{Batch: 1, SeqQ: 500, SeqKV: 700, HeadsQ: 2, HeadsKV: 2, Dim: 2 * columns, DimV: columns + 8}
	a := newArgs(t, p, "bshd")
	cases.Fill("normal", p, a, 1)
	for _, l := range asmtest.Levels(t) {
		k, _ := counted(l)
		if k.ops.CutKeys != nil { // it gathers nothing
			continue
		}
		k.ops.Gathers, k.cache = true, 1<<20
		asked := map[uintptr]int{}
		pl := forwardAsking(t, k, p, a, func(next uintptr) { asked[next]++ })
		bundles, all := cover(tile.Count(&p, k.ops, p.SeqQ), pl.size), 0
		for kv := range p.HeadsKV {
			for key := pl.block; key < p.SeqKV; key += pl.block {
				for _, x := range []*attn.Tensor{&a.K, &a.V} {
					for c := 0; c < x.D; c += columns {
						all++
						if n := asked[operand.Rows(x, 0, key, kv).Ahead(0)+uintptr(4*c)]; n != bundles {
							t.Errorf("%s: key %d of head %d, column %d: asked for %d times in %d bundles", l.ISA, key, kv, c, n, bundles)
						}
					}
				}
			}
		}
		if all == 0 || len(asked) != all {
			t.Errorf("%s: %d pieces asked for, want %d", l.ISA, len(asked), all)
		}
	}
}

// forwardAsking has a plan answer a call, and tells what Flash is told to ask for when it begins a block.
func forwardAsking(t *testing.T, k kernel, p attn.Problem, a *attn.Args, asks func(next uintptr)) *plan {
	t.Helper()
	flash := k.ops.Flash
	k.ops.Flash = func(p *asm.Panel) {
		if p.Next != 0 && p.From == 0 && !p.Scored {
			asks(p.Next)
		}
		flash(p)
	}
	made, err := k.Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.Forward(a)
	return made.(*plan)
}

// A tile that goes alone has Flash ask for the values of each of its blocks, where the set's loops ask.
func TestLoneTileAsks(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 12, SeqKV: 700, HeadsQ: 2, HeadsKV: 2, Dim: 16, DimV: 40}
	a := newArgs(t, p, "bhsd")
	cases.Fill("normal", p, a, 1)
	for _, l := range asmtest.Levels(t) {
		for _, asks := range []bool{false, true} {
			k, _ := counted(l)
			if k.ops.Gathers = asks; k.ops.CutKeys != nil && !asks || k.ops.Lanes < p.SeqQ { // it asks in any case; there are two tiles
				continue
			}
			var asked, want []uintptr
			pl := forwardAsking(t, k, p, a, func(next uintptr) { asked = append(asked, next) })
			for kv := 0; kv < p.HeadsKV && asks; kv++ {
				for key := 0; key < p.SeqKV; key += pl.block {
					want = append(want, operand.Rows(&a.V, 0, key, kv).Ahead(0))
				}
			}
			slices.Sort(asked)
			slices.Sort(want)
			if !slices.Equal(asked, want) {
				t.Errorf("%s, asks %v: %d blocks of values asked for, want %d", l.ISA, asks, len(asked), len(want))
			}
		}
	}
}

// sameRows holds that each row of one tensor has the bits of another's.
func sameRows(t *testing.T, what string, got, want *attn.Tensor) {
	t.Helper()
	for b := range got.B {
		for i := range got.S {
			for h := range got.H {
				x, y := got.Read(make([]float32, got.D), b, i, h), want.Read(make([]float32, want.D), b, i, h)
				if !slices.EqualFunc(x, y, same) {
					t.Fatalf("%s: row %d of head %d is %v, want %v", what, i, h, x, y)
				}
			}
		}
	}
}

// What was copied for one call is not taken for the next, although a plan whose only block is the last and the first has it in hand.
func TestGatherForgets(t *testing.T) {
	all := attn.Problem{Batch: 1, SeqQ: 390, SeqKV: 100, HeadsQ: 16, HeadsKV: 16, Dim: 8, DimV: 16}
	a := newArgs(t, all, "bshd")
	cases.Fill("normal", all, a, 1)
	p := all
	p.HeadsQ, p.HeadsKV = 1, 1
	for _, x := range []*attn.Tensor{&a.Q, &a.K, &a.V, &a.Out} {
		x.H = 1 // the first head, whose rows lie between those of others
	}
	for _, l := range asmtest.Levels(t) {
		k, copies := counted(l)
		pl, err := k.Plan(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		var first [][]float32
		pl.Forward(a)
		for i := range p.SeqQ {
			first = append(first, slices.Clone(a.Out.Row(0, i, 0)))
		}
		if copies.Load() == 0 && k.ops.CutKeys == nil {
			t.Errorf("%s: no copies", l.ISA)
		}
		for j := range p.SeqKV {
			for c := range a.V.Row(0, j, 0) {
				a.V.Row(0, j, 0)[c] *= 2
			}
		}
		pl.Forward(a)
		for i, row := range first {
			for c, x := range row {
				if y := a.Out.Row(0, i, 0)[c]; !same(y, 2*x) {
					t.Fatalf("%s: query %d, column %d is %v of values twice as large, and was %v", l.ISA, i, c, y, x)
				}
			}
		}
	}
}
