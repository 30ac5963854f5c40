package naive_test

import (
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/naive"
)

// TestStages checks the stages of the backward pass by their equations: the weights of a row sum to
// 1, the gradients of its scores to 0, and dQ and dV are products of stages.
func TestStages(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 5, SeqKV: 7, HeadsQ: 4, HeadsKV: 2, Dim: 6, DimV: 3, Mask: attn.Causal(), Want: attn.WantGrad}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", p, a, 1); err != nil {
		t.Fatal(err)
	}
	g, err := cases.NewGrads(p, a, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.FillGrads(g, 2)
	g.LSE = attn.Tensor{}
	made, err := naive.New().Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := made.(naive.Staged)
	// near allows for some dozens of roundings.
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 0x1p-18*(1+math.Abs(want))) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	heads := 0
	dq := attn.New(attn.BHSD, p.Batch, p.SeqQ, p.HeadsQ, p.Dim)
	dv := attn.New(attn.BHSD, p.Batch, p.SeqKV, p.HeadsKV, p.DimV)
	plan.Watch(func(s naive.Stages) {
		heads++
		if s.Queries != p.SeqQ || s.Keys != p.SeqKV {
			t.Fatalf("a head of %d queries and %d keys", s.Queries, s.Keys)
		}
		for i := range s.Queries {
			row := func(m []float32) []float32 { return m[i*s.Keys:][:s.Keys] }
			sumA, sumS := 0.0, 0.0
			for j, w := range row(s.A) {
				if lo, hi := a.Visible(&p, s.B, i); j < lo || j >= hi {
					if w != 0 || row(s.DA)[j] != 0 || row(s.DS)[j] != 0 {
						t.Fatalf("query %d does not see key %d, whose stages are %v, %v, %v", i, j, w, row(s.DA)[j], row(s.DS)[j])
					}
					continue
				}
				sumA += float64(w)
				sumS += float64(row(s.DS)[j])
				along := 0.0
				for c, x := range g.Out.Row(s.B, i, s.H) {
					along += float64(x) * float64(a.V.Row(s.B, j, s.H/p.Group())[c])
					dv.Row(s.B, j, s.H/p.Group())[c] += w * x
				}
				near("dA", float64(row(s.DA)[j]), along)
				for c, k := range a.K.Row(s.B, j, s.H/p.Group()) {
					dq.Row(s.B, i, s.H)[c] += float32(p.Scale()) * row(s.DS)[j] * k
				}
			}
			near("the sum of weights", sumA, 1)
			near("the sum of dS", sumS, 0)
		}
	})
	plan.Forward(a)
	plan.Backward(a, g)
	if heads != p.Batch*p.HeadsQ {
		t.Errorf("%d heads were shown, want %d", heads, p.Batch*p.HeadsQ)
	}
	for i, x := range dq.Data {
		near("dQ", float64(g.Q.Data[i]), float64(x))
	}
	for i, x := range dv.Data {
		near("dV", float64(g.V.Data[i]), float64(x))
	}
	plan.Watch(nil)
	if plan.Backward(a, g); heads != p.Batch*p.HeadsQ {
		t.Error("a head was shown after Watch(nil)")
	}
}
