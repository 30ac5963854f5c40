package docs_test

import (
	"fmt"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/theory/gibbs"
)

// must returns x, and panics on an error.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// Example_attention computes a causal attention with grouped heads. The README shows it.
func Example_attention() {
	p := attn.Problem{Batch: 1, SeqQ: 512, SeqKV: 512, HeadsQ: 8, HeadsKV: 2, Dim: 64, DimV: 64}
	p.Mask = attn.Causal()
	kernel := must(kernels.Best(p))   // the fastest for p here; must panics on an error
	plan := must(kernel.Plan(p, nil)) // allocates; attn.NewTeam(2) in place of nil: two threads
	q, out := attn.New(attn.BSHD, 1, 512, 8, 64), attn.New(attn.BSHD, 1, 512, 8, 64)
	k, v := attn.New(attn.BSHD, 1, 512, 2, 64), attn.New(attn.BSHD, 1, 512, 2, 64)
	args := &attn.Args{Q: q, K: k, V: v, Out: out}
	plan.Forward(args) // allocates nothing

	for i := range v.Data { // a weighted mean of equal rows is such a row
		v.Data[i] = 2
	}
	plan.Forward(args)
	fmt.Printf("%.4f %.4f\n", out.Data[0], out.Data[len(out.Data)-1])
	// Output: 2.0000 2.0000
}

// Example_freeEnergy shows that softmax minimises energy minus temperature times entropy. The
// README shows it.
func Example_freeEnergy() {
	scores, temp := []float64{2, 1, 0}, 0.5
	least, err := gibbs.Minimize(scores, temp, gibbs.Descent{From: []float64{0.1, 0.1, 0.8}})
	fmt.Printf("%.6f at %.6f, %v\n", least.Weights, least.Value, err)
	fmt.Printf("%.6f at %.6f\n", gibbs.Softmax(scores, temp), gibbs.FreeEnergy(scores, temp))
	// both lines: [0.866813 0.117310 0.015876] at -2.071466

	// Output:
	// [0.866813 0.117310 0.015876] at -2.071466, <nil>
	// [0.866813 0.117310 0.015876] at -2.071466
}
