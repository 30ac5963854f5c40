package attn_test

import (
	"fmt"

	"attnlab/attn"
	"attnlab/kernels/naive"
)

// A kernel plans a problem once and runs it on any operands.
func Example() {
	p := attn.Problem{Batch: 1, SeqQ: 3, SeqKV: 3, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 1, Mask: attn.Causal(), Want: attn.WantLSE}
	plan, err := naive.New().Plan(p, nil)
	if err != nil {
		panic(err)
	}
	a := &attn.Args{
		Q:   attn.New(attn.BHSD, 1, 3, 1, 2), // zeros: all visible keys have equal weight
		K:   attn.New(attn.BHSD, 1, 3, 1, 2),
		V:   attn.Wrap(attn.BHSD, []float32{2, 4, 9}, 1, 3, 1, 1),
		Out: attn.New(attn.BHSD, 1, 3, 1, 1),
	}
	a.Stats.LSE = attn.New(attn.BHSD, 1, 3, 1, 1)
	plan.Forward(a)
	fmt.Println(a.Out.Data)
	fmt.Printf("%.4f\n", a.Stats.LSE.Data) // the logarithms of 1, 2 and 3
	// Output:
	// [2 3 5]
	// [0.0000 0.6931 1.0986]
}

// A decoder plans once for the longest cache. Each call gives the number of keys in use.
func Example_decode() {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 4, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Mask: attn.Causal(), Lengths: true}
	plan, err := naive.New().Plan(p, nil)
	if err != nil {
		panic(err)
	}
	a := &attn.Args{
		Q: attn.New(attn.BHSD, 1, 1, 1, 1), K: attn.New(attn.BHSD, 1, 4, 1, 1), V: attn.New(attn.BHSD, 1, 4, 1, 1),
		Out: attn.New(attn.BHSD, 1, 1, 1, 1), KLen: []int32{0},
	}
	k, v := attn.New(attn.BHSD, 1, 1, 1, 1), attn.New(attn.BHSD, 1, 1, 1, 1) // of one token
	for _, v.Data[0] = range []float32{6, 2, 4, 8} {
		if err := p.Append(a, &k, &v); err != nil {
			panic(err)
		}
		plan.Forward(a)
		fmt.Print(a.Out.Data[0], " ")
	}
	// Output: 6 4 4 5
}

// A window is an interval of keys for each query, so loops skip the hidden keys.
func ExampleMask_Keys() {
	m := attn.Window(1, 0) // a query's own key and the one before it
	for pos := range 4 {
		lo, hi := m.Keys(pos, 3)
		fmt.Printf("[%d,%d) ", lo, hi)
	}
	// Output: [0,1) [0,2) [1,3) [2,3)
}

// Three views of one slab, the output of a fused projection.
func ExamplePacked() {
	slab := []float32{
		1, 2, 10, 100, // two query heads, a key head, a value head
		3, 4, 30, 300,
	}
	q, k, v := attn.Packed(slab, 1, 2, 2, 1, 1, 1)
	fmt.Println(q.Row(0, 1, 0), q.Row(0, 1, 1), k.Row(0, 1, 0), v.Row(0, 1, 0))
	// Output: [3] [4] [30] [300]
}

// A causal mask hides about half of the pairs, and hidden pairs cost nothing.
func ExampleProblem_Count() {
	p := attn.Problem{Batch: 1, SeqQ: 4, SeqKV: 4, HeadsQ: 2, HeadsKV: 1, Dim: 64, DimV: 64, Mask: attn.Causal()}
	c := p.Count(nil)
	fmt.Println(c.Pairs, c.Flop, c.Bytes)
	// Output: 20 5120 6144
}

// Merging the attention over two sets of keys gives attention over both. Three keys weigh three
// times as much as one key of the same score.
func ExampleMerge() {
	o, lse := attn.Wrap(attn.BHSD, []float32{8}, 1, 1, 1, 1), attn.Wrap(attn.BHSD, []float32{1.0986123}, 1, 1, 1, 1)
	o2, lse2 := attn.Wrap(attn.BHSD, []float32{4}, 1, 1, 1, 1), attn.New(attn.BHSD, 1, 1, 1, 1)
	attn.Merge(o, lse, o2, lse2)
	fmt.Printf("%.3f, LSE %.4f = log 4\n", o.Data[0], lse.Data[0])
	// Output: 7.000, LSE 1.3863 = log 4
}

// A refusal names what the kernel lacks.
func ExampleProblem_Require() {
	p := attn.Problem{Score: attn.Score{Softcap: 30, Terms: attn.TermALiBi}}
	fmt.Println(p.Require("naive/go", attn.NeedSoftmax|attn.NeedBias))
	// Output: unsupported: naive/go does not do: softcap, ALiBi
}
