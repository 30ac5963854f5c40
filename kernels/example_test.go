package kernels_test

import (
	"fmt"

	"attnlab/attn"
	"attnlab/kernels"
)

// ExampleBest computes attention with the fastest kernel for a problem on this machine.
func ExampleBest() {
	p := attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Mask: attn.Causal()}
	k, err := kernels.Best(p)
	if err != nil {
		panic(err)
	}
	plan, err := k.Plan(p, nil)
	if err != nil {
		panic(err)
	}
	a := &attn.Args{
		Q: attn.New(attn.BHSD, 1, 2, 1, 1), K: attn.New(attn.BHSD, 1, 2, 1, 1),
		V: attn.Wrap(attn.BHSD, []float32{2, 4}, 1, 2, 1, 1), Out: attn.New(attn.BHSD, 1, 2, 1, 1),
	}
	plan.Forward(a)
	algo, _ := k.Name()
	fmt.Println(algo, a.Out.Data)
	// Output: flash [2 3]
}

// Linear attention carries a state of constant size from call to call: here the sum of k v, which
// every query is multiplied by.
func Example_recurrent() {
	p := attn.Problem{Op: attn.OpLinear, Batch: 1, SeqQ: 1, SeqKV: 1, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Mask: attn.Causal()}
	p.Linear = attn.Linear{Feature: attn.Identity, Unnormalised: true}
	k, err := kernels.ByName("linear", "go")
	if err != nil {
		panic(err)
	}
	plan, err := k.Plan(p, nil)
	if err != nil {
		panic(err)
	}
	state := make([]float32, p.StateLen())
	number := func(x float32) attn.Tensor { return attn.Wrap(attn.BHSD, []float32{x}, 1, 1, 1, 1) }
	for _, v := range []float32{1, 2, 3} {
		a := &attn.Args{Q: number(10), K: number(1), V: number(v), Out: number(0), StateIn: state, StateOut: state}
		plan.Forward(a)
		fmt.Println(a.Out.Data, state)
	}
	// Output:
	// [10] [1]
	// [30] [3]
	// [60] [6]
}
