package kernels_test

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/num/dual"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels"
)

// A stack is two layers of self-attention: the output of the first is query, key and value of the
// second. Query heads of the first layer share key heads, so that its output can be all three in
// the second.
type stack struct{ first, second attn.Problem }

func newStack() stack {
	const n, heads, d = 7, 4, 4
	p := attn.Problem{Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: heads, HeadsKV: 2, Dim: d, DimV: d, Mask: attn.Causal(), Want: attn.WantGrad}
	first, second := p, p
	first.Score.Softcap = 3
	second.HeadsKV = heads
	second.Score.Temp = 0.8
	return stack{first, second}
}

// dualStack returns the number w . O of the second layer, in dual numbers.
func (s stack) dualStack(q, k, v []dual.Number, w []float32) dual.Number {
	o := dualAttention(&s.first, q, k, v)
	var sum dual.Number
	for i, x := range dualAttention(&s.second, o, o, o) {
		sum = dual.Add(sum, dual.Scale(float64(w[i]), x))
	}
	return sum
}

// dualAttention computes causal attention over numbers stored as [head][row][column].
func dualAttention(p *attn.Problem, q, k, v []dual.Number) []dual.Number {
	n, d := p.SeqQ, p.Dim
	out := make([]dual.Number, p.HeadsQ*n*d)
	for h := range p.HeadsQ {
		kv := h / p.Group()
		for i := range n {
			var sum dual.Number
			row := out[(h*n+i)*d:][:d]
			for j := range i + 1 {
				var s dual.Number
				for c := range d {
					s = dual.Add(s, dual.Mul(q[(h*n+i)*d+c], k[(kv*n+j)*d+c]))
				}
				s = dual.Scale(p.Scale(), s)
				if limit := p.Score.Softcap; limit != 0 {
					s = dual.Scale(limit, dual.Tanh(dual.Scale(1/limit, s)))
				}
				e := dual.Exp(dual.Scale(1/p.Temperature(), s))
				sum = dual.Add(sum, e)
				for c := range row {
					row[c] = dual.Add(row[c], dual.Mul(e, v[(kv*n+j)*d+c]))
				}
			}
			for c := range row {
				row[c] = dual.Mul(row[c], dual.Inv(sum))
			}
		}
	}
	return out
}

// TestStack checks that the gradients of a stack of two layers, computed layer by layer, are the
// derivatives that dual numbers give end to end.
//
// The tolerance allows for a handful of roundings in each sum. Relative to the largest number of a
// gradient, it is 2^-24 times the square root of the number of terms of every sum, for the four
// products of each layer.
func TestStack(t *testing.T) {
	s := newStack()
	a, err := cases.NewArgs(s.first, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.Fill("normal", s.first, a, 3)
	b, err := cases.NewArgs(s.second, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Q, b.K, b.V = a.Out, a.Out, a.Out
	ga, err := cases.NewGrads(s.first, a, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	gb, err := cases.NewGrads(s.second, b, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.FillGrads(gb, 5)
	ga.LSE, gb.LSE = attn.Tensor{}, attn.Tensor{}

	// The derivative by each number of Q, K and V.
	inputs := [3][]float32{a.Q.Data, a.K.Data, a.V.Data}
	var want [3][]float64
	for which, x := range inputs {
		for at := range x {
			var in [3][]dual.Number
			for o, numbers := range inputs {
				for i, x := range numbers {
					in[o] = append(in[o], dual.Number{Real: float64(x)})
					if o == which && i == at {
						in[o][i].Emag = 1
					}
				}
			}
			want[which] = append(want[which], s.dualStack(in[0], in[1], in[2], gb.Out.Data).Emag)
		}
	}
	roundings := 8 * (math.Sqrt(float64(s.first.Dim)) + math.Sqrt(float64(s.first.SeqKV)) + 6)
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		first, err := k.Plan(s.first, nil)
		if err != nil {
			continue // linear attention is another function
		}
		t.Run(algo+"/"+isa, func(t *testing.T) {
			second, err := k.Plan(s.second, nil)
			if err != nil {
				t.Fatal(err)
			}
			first.Forward(a)
			second.Forward(b)
			second.(attn.Differentiable).Backward(b, gb)
			for i := range ga.Out.Data { // the output was used three times
				ga.Out.Data[i] = gb.Q.Data[i] + gb.K.Data[i] + gb.V.Data[i]
			}
			first.(attn.Differentiable).Backward(a, ga)
			for which, got := range [3][]float32{ga.Q.Data, ga.K.Data, ga.V.Data} {
				largest, worst := 0.0, 0.0
				for _, w := range want[which] {
					largest = max(largest, math.Abs(w))
				}
				for i, w := range want[which] {
					worst = max(worst, math.Abs(float64(got[i])-w))
				}
				if tol := 0x1p-24 * roundings * largest; !(worst <= tol) {
					t.Errorf("d%c is off by %.3g, tolerance %.3g", "QKV"[which], worst, tol)
				} else {
					t.Logf("d%c: %.2f of the tolerance", "QKV"[which], worst/tol)
				}
			}
		})
	}
}
