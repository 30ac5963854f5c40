package flash

import (
	"fmt"
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash/flashtest"
	"attnlab/kernels/tile"
)

// gradients returns the gradients that Backward writes for random operands, in bundles of size
// tiles. The kernel has a small cache, so that keys are several blocks.
func gradients(t *testing.T, p attn.Problem, workers, size int, edit func(a *attn.Args)) map[string][]float32 {
	t.Helper()
	a := flashtest.NewArgs(t, p, "bhsd")
	if err := cases.Fill("normal", p, a, 1); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(a)
	}
	g, err := cases.NewGrads(p, a, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.FillGrads(g, 1)
	team := attn.NewTeam(workers)
	defer team.Close()
	k := newKernel(0, 16<<10, 0)(asm.Go())
	made, err := k.Plan(p, team)
	if err != nil {
		t.Fatal(err)
	}
	pl := made.(*plan)
	blocking := k.prefill.Blocking(&p)
	blocking.Tiles = min(blocking.Tiles, size)
	pl.back = tile.NewBackward(p, k.prefill.Ops, blocking, team)
	pl.Forward(a)
	pl.Backward(a, g)
	all := map[string][]float32{}
	cases.Outgoing(g, func(name string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) { all[name] = append(all[name], row...) })
	})
	return all
}

func sameBits(t *testing.T, name string, want, got []float32) {
	t.Helper()
	for i, w := range want {
		if math.Float32bits(w) != math.Float32bits(got[i]) && (w == w || got[i] == got[i]) {
			t.Fatalf("%s: number %d was %v and is %v", name, i, w, got[i])
		}
	}
}

// TestBackwardBundles checks that sums over queries do not depend on the size of bundles or on
// which worker runs one, and that sums over key heads and batch entries do not depend on the
// workers.
func TestBackwardBundles(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 90, SeqKV: 100, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 8, Mask: attn.Causal(), Want: attn.WantGrad}
	want := gradients(t, p, 1, 3, nil)
	for _, workers := range []int{1, 2, 5} {
		for _, size := range []int{1, 2, 3} {
			for name, x := range gradients(t, p, workers, size, nil) {
				sameBits(t, fmt.Sprintf("%d workers, %d tiles: %s", workers, size, name), want[name], x)
			}
		}
	}
	p.Score.Terms = attn.TermBias | attn.TermALiBi | attn.TermSinks | attn.TermRelative | attn.TermMetric
	want = gradients(t, p, 1, 2, nil)
	for _, workers := range []int{2, 5} {
		for name, x := range gradients(t, p, workers, 2, nil) {
			sameBits(t, fmt.Sprintf("%d workers, all terms: %s", workers, name), want[name], x)
		}
	}
}

// TestBackwardOutOfOrder checks what TestBackwardBundles checks, for queries that are NaN. Their
// gradients are computed at the end of their key head, while other heads are still in progress.
func TestBackwardOutOfOrder(t *testing.T) {
	p := attn.Problem{Batch: 3, SeqQ: 90, SeqKV: 100, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 8, Mask: attn.Causal(), Want: attn.WantGrad}
	spoil := func(a *attn.Args) {
		for b, i := range []int{89, 88, 3} {
			a.Q.Row(b, i, 1)[0] = float32(math.NaN())
		}
	}
	for terms := attn.TermBias; terms <= attn.TermMetric; terms <<= 1 {
		p.Score.Terms = terms
		want := gradients(t, p, 1, 2, spoil)
		for name, x := range gradients(t, p, 5, 2, spoil) {
			sameBits(t, fmt.Sprintf("terms %#x: %s", terms, name), want[name], x)
		}
	}
}

// TestBackwardTable checks that a query that is NaN spoils the rows of the table that it is
// multiplied by, and no others.
func TestBackwardTable(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 20, SeqKV: 30, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 8, Want: attn.WantGrad}
	p.Score.Terms = attn.TermRelative
	all := gradients(t, p, 1, 1, func(a *attn.Args) { a.Q.Row(0, 19, 0)[3] = float32(math.NaN()) })
	for r := range p.SeqQ + p.SeqKV - 1 {
		for c, x := range all["dRelative"][r*8:][:8] {
			if used := r < p.SeqKV; used != (x != x) { // query 19 and key j use row j
				t.Fatalf("row %d, column %d is %v", r, c, x)
			}
		}
	}
}

// TestBackwardScratch checks that the backward pass adds to a plan's scratch only a few numbers for
// each bundle.
func TestBackwardScratch(t *testing.T) {
	k := New(asm.Go())
	extra := func(n int) int64 {
		p := attn.Problem{Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 8, HeadsKV: 8, Dim: 64, DimV: 64}
		without, err := k.Check(p, 2)
		if err != nil {
			t.Fatal(err)
		}
		p.Want = attn.WantGrad
		with, err := k.Check(p, 2)
		if err != nil {
			t.Fatal(err)
		}
		return with - without
	}
	short, long := extra(1<<10), extra(1<<15)
	if short > 4<<20 || long-short > 8*(1<<15)*8 {
		t.Errorf("%d bytes for 1024 rows, %d for 32768", short, long)
	}
}

// TestBackwardAgain checks that a second call uses nothing from the first: neither what a tile sees
// of a block, nor the place of its rows. The last block is shorter than the others.
func TestBackwardAgain(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		k := newKernel(0, 1<<20, 0)(l.Ops)
		for _, mask := range []attn.Mask{{}, attn.Causal(), attn.Window(100, 50)} {
			p := attn.Problem{Batch: 1, SeqQ: 470, SeqKV: 470, HeadsQ: 2, HeadsKV: 2, Dim: 16, DimV: 16, Mask: mask, Want: attn.WantLSE | attn.WantGrad}
			if block := k.prefill.Blocking(&p).Block; p.SeqKV <= 2*block || p.SeqKV%block > 100 {
				t.Fatalf("%s: blocks of %d keys", l.ISA, block)
			}
			a := flashtest.NewArgs(t, p, "bhsd")
			if err := cases.Fill("normal", p, a, 1); err != nil {
				t.Fatal(err)
			}
			g, err := cases.NewGrads(p, a, "bhsd", nil)
			if err != nil {
				t.Fatal(err)
			}
			cases.FillGrads(g, 1)
			pl, err := k.Plan(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			pl.Forward(a)
			var calls [3]map[string][]float32
			for i := range calls {
				pl.(attn.Differentiable).Backward(a, g)
				calls[i] = map[string][]float32{}
				cases.Outgoing(g, func(name string, x *attn.Tensor) {
					cases.Rows(x, func(_, _, _ int, row []float32) { calls[i][name] = append(calls[i][name], row...) })
				})
			}
			for _, again := range calls[1:] {
				for name, want := range calls[0] {
					sameBits(t, fmt.Sprintf("%s, %v, %s", l.ISA, mask, name), want, again[name])
				}
			}
		}
	}
}
