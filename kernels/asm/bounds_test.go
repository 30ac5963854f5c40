//go:build (amd64 || arm64) && !purego

package asm_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash"
	"attnlab/kernels/linear"
	"attnlab/kernels/tiled"
	"attnlab/nn"
)

// calls records the calls of the loops of one instruction set.
type calls struct {
	sync.Mutex
	worst map[string]asm.Call // by loop, the call that is nearest to a bound and not Least
	over  map[string]string   // by loop, a call that is over a bound
	while string
}

func (c *calls) see(call asm.Call) {
	c.Lock()
	defer c.Unlock()
	share := func(call asm.Call) float64 {
		return max(float64(call.Products)/asm.MostProducts, float64(call.Bytes)/asm.MostBytes)
	}
	switch worst, ok := c.worst[call.Loop]; {
	case call.Least:
		if !ok {
			c.worst[call.Loop] = asm.Call{Loop: call.Loop}
		}
	case share(call) > 1:
		c.over[call.Loop] = fmt.Sprintf("%d multiply-adds and %d bytes: %s", call.Products, call.Bytes, c.while)
	case !ok || share(call) > share(worst):
		c.worst[call.Loop] = call
	}
}

// TestBounds checks that no call of assembly computes more than 2^21 multiply-adds or touches more
// than a MiB, since a garbage collection waits for it. It runs every kernel, layer and set, up to
// the widest rows that a problem may have. One group of rows, the least that a call computes, may
// exceed the bounds.
func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: long calls of every kernel")
	}
	c := &calls{}
	run := map[string]bool{}
	for _, o := range asm.Counted(c.see) {
		c.worst, c.over = map[string]asm.Call{}, map[string]string{}
		t.Run(o.ISA, func(t *testing.T) {
			work(t, c, o)
			for _, loop := range slices.Sorted(maps.Keys(c.over)) {
				t.Errorf("%s: %s", loop, c.over[loop])
			}
			for _, loop := range slices.Sorted(maps.Keys(c.worst)) {
				t.Logf("%-18s at most %8d multiply-adds, %8d bytes", loop, c.worst[loop].Products, c.worst[loop].Bytes)
			}
			want := []string{
				"Add", "Cap", "DScore", "Dot", "Elu", "Exp", "Fade", "Finite", "Flash", "Hide", "Inner", "Inverse", "Load", "Mix", "Narrow", "Natural", "Outer", "OuterT",
				"Over", "Products", "Raise", "Rotate", "Scale", "ScaleKeys", "Score", "Slope", "Solve", "Step", "Store", "Sum", "Times", "Top", "Update", "Weigh", "Widen",
			}
			if packs(o) { // then it packs wherever it can
				want = slices.DeleteFunc(want, func(loop string) bool { return loop == "DScore" })
				want = append(want, "packed Score", "packed Flash", "packed Mix", "packed DScore", "packed Outer")
			}
			for _, loop := range want {
				if _, ok := c.worst[loop]; !ok {
					t.Errorf("nothing called %s: add what does", loop)
				}
			}
		})
		run[o.ISA] = true
	}
	if len(run) == 0 {
		t.Skip("SKIPPED: this build, or machine, has no loops in assembly")
	}
}

// packs reports whether a set packs blocks.
func packs(o *asm.Ops) bool {
	always := o.Pack.Always()
	return always.Worth(asm.Forward, 1, 1, 1)
}

// work runs some of the largest calls of every user of the loops.
func work(t *testing.T, c *calls, o *asm.Ops) {
	attention := func(k attn.Kernel, p attn.Problem) {
		t.Helper()
		algo, _ := k.Name()
		c.while = fmt.Sprintf("%s of %+v", algo, p)
		plan, err := k.Plan(p, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.while, err)
		}
		a, err := cases.NewArgs(p, "bshd", nil)
		if err != nil {
			t.Fatal(err)
		}
		plan.Forward(a) // zeros take the loops through all their rows
		if p.Want&attn.WantGrad == 0 {
			return
		}
		g, err := cases.NewGrads(p, a, "bshd", nil)
		if err != nil {
			t.Fatal(err)
		}
		cases.FillGrads(g, 1)
		plan.(attn.Differentiable).Backward(a, g)
	}
	// Too few queries for packing keys.
	attention(flash.New(o), attn.Problem{Batch: 1, SeqQ: 40, SeqKV: 40, HeadsQ: 1, HeadsKV: 1, Dim: 64, DimV: 64})
	always := *o
	always.Pack = o.Pack.Always()
	o = &always
	softmax := func(nq, nk, d int, change ...func(*attn.Problem)) {
		t.Helper()
		p := attn.Problem{Batch: 1, SeqQ: nq, SeqKV: nk, HeadsQ: 2, HeadsKV: 1, Dim: d, DimV: d}
		for _, change := range change {
			change(&p)
		}
		attention(flash.New(o), p)
		attention(tiled.New(o), p)
	}
	causal := func(p *attn.Problem) { p.Mask = attn.Causal() }
	grads := func(p *attn.Problem) { p.Want = attn.WantGrad }
	edited := func(p *attn.Problem) {
		p.Score.Softcap, p.Score.Terms = 9, attn.TermBias|attn.TermALiBi|attn.TermRelative
		p.Score.Rope = attn.RopeHalves
	}
	typed := func(typ attn.DType) func(p *attn.Problem) {
		return func(p *attn.Problem) { p.KV, p.Q, p.Out, p.Page = typ, attn.F16, attn.BF16, 16 }
	}

	widths, numbers, long := []int{64, 8192}, 1<<17, 70_000
	for _, d := range widths {
		n, cached := min(600, numbers/d), min(9000, numbers*32/d)
		changes := [][]func(*attn.Problem){{causal, grads}, {typed(attn.I8)}, {edited, grads}, {grads}}
		for _, change := range changes {
			softmax(n, n, d, change...)
			softmax(3, cached, d, change...)
		}
		softmax(n, n, d, func(p *attn.Problem) {
			p.Score.Terms, p.Want = attn.TermMetric, attn.WantLSE|attn.WantMean|attn.WantEntropy
		})
		for _, heads := range []int{1, 16} {
			softmax(1, cached, d, func(p *attn.Problem) { p.HeadsQ, p.HeadsKV = heads, heads })
		}
	}
	softmax(17, long, 8, grads)
	softmax(17, long, 8, edited, grads)
	attention(tiled.New(o), attn.Problem{Batch: 1, SeqQ: 17, SeqKV: long, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 8, Want: attn.WantWeights | attn.WantScores})

	for _, d := range [][2]int{{64, 64}, {8192, 128}, {128, 8192}} {
		for _, mask := range []attn.Mask{attn.Full(), attn.Causal()} {
			p := attn.Problem{Op: attn.OpLinear, Batch: 1, SeqQ: 40, SeqKV: 40, HeadsQ: 1, HeadsKV: 1, Dim: d[0], DimV: d[1], Mask: mask, Want: attn.WantGrad}
			attention(linear.New(o), p)
		}
	}

	m := nn.NewMultiplier(o, nil)
	const terms, columns = 1100, 100
	for _, rows := range []int{1, 12, 400} {
		for form := range 4 {
			p := nn.Product{A: nn.NewMat(rows, terms), B: nn.NewMat(terms, columns), C: nn.NewMat(rows, columns), AT: form&1 != 0, BT: form&2 != 0}
			if p.AT {
				p.A = nn.NewMat(terms, rows)
			}
			if p.BT {
				p.B = nn.NewMat(columns, terms)
			}
			c.while = fmt.Sprintf("product of %v and %v", p.A, p.B)
			m.Do(p)
		}
	}
	c.while = "Finite of many"
	o.Vector.Finite(make([]float32, 1<<22))
	c.while = "Inverse of many"
	o.Vector.Inverse(make([]float32, 1<<20), make([]float32, 1<<20))
	c.while = "many powers of e"
	o.Vector.Exp(make([]float32, 1<<20), make([]float32, 1<<20))
	c.while = "Update of many"
	o.Probe.Update(make([]float32, 1<<20))
	for _, cols := range []int{128, 100_000} {
		c.while = fmt.Sprintf("a chunk of %d columns", cols)
		const n = 64
		x := asm.Rows{Data: make([]float32, n*cols), Stride: cols}
		weights, y := make([]float32, n*n), make([]float32, n)
		o.Recur.Solve(&asm.Solve{Panel: asm.Panel{Lanes: n, N: n, P: weights}, C: cols, X: x.Data, XStride: cols, V: x})
		o.Recur.Step(&asm.Step{N: n, C: cols, X: x.Data, XStride: cols, W: y, K: y, U: make([]float32, cols), Y: make([]float32, cols)})
		o.Recur.Fade(&asm.Fade{Panel: asm.Panel{Lanes: n, Width: n, N: n, P: weights}, From: asm.Rows{Data: weights, Stride: n}})
		o.Recur.Products(x, x, n, cols)
		o.Vector.Scale(x, x, y, cols)
		o.Vector.Times(x, x, x, n, cols)
		o.Vector.Over(x, x, x, n, cols)
	}
}
