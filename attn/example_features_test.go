package attn_test

import (
	"bytes"
	"fmt"
	"math"

	"attnlab/attn"
	"attnlab/kernels/naive"
)

// column returns one head of rows of one number.
func column(x ...float32) attn.Tensor { return attn.Wrap(attn.BHSD, x, 1, len(x), 1, 1) }

// one returns a problem of one head, with nq queries and nk keys of one number each.
func one(nq, nk int) attn.Problem {
	return attn.Problem{Batch: 1, SeqQ: nq, SeqKV: nk, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1}
}

// answer plans and runs a problem on the plainest kernel. It allocates Out.
func answer(p attn.Problem, a *attn.Args) []float32 {
	plan, err := naive.New().Plan(p, nil)
	if err != nil {
		panic(err)
	}
	if a.Out.Size() == 0 {
		a.Out = attn.New(attn.BHSD, a.Q.B, a.Q.S, p.HeadsQ, p.DimV)
	}
	plan.Forward(a)
	return a.Out.Data
}

// Three masks, drawn.
func ExampleProblem_Picture() {
	for _, m := range []attn.Mask{attn.Causal(), attn.Window(1, 0), attn.CausalTopLeft()} {
		p := one(2, 4)
		p.Mask = m
		a := &attn.Args{Q: column(0, 0), K: column(0, 0, 0, 0)}
		fmt.Printf("%v\n%s", m, p.Picture(a, 0, 0))
	}
	// Output:
	// causal
	// ###.
	// ####
	// window:1:0
	// .##.
	// ..##
	// causal-topleft
	// #...
	// ##..
}

// Key lengths and positions: the first chunk of a prompt when three keys are in use, and a later
// chunk that begins at position 2.
func Example_positions() {
	p := one(2, 4)
	p.Mask, p.Lengths = attn.Causal(), true
	a := &attn.Args{Q: column(0, 0), K: column(0, 0, 0, 0), V: column(3, 6, 9, 0), KLen: []int32{3}, QPos: []int32{0}}
	fmt.Println(answer(p, a))
	a.QPos[0] = 2
	fmt.Println(answer(p, a))
	// Output:
	// [3 4.5]
	// [6 6]
}

// A boolean mask and a causal band together show the keys that both show.
func ExamplePadding() {
	p := one(3, 3)
	p.Mask = attn.Causal().With(attn.BoolBitmap)
	allowed, err := attn.Padding([][]bool{{false, true, true}}) // padded on the left
	if err != nil {
		panic(err)
	}
	a := &attn.Args{Q: column(0, 0, 0), K: column(0, 0, 0), V: column(9, 4, 2), Allowed: allowed}
	fmt.Println(answer(p, a)) // the first query sees no key
	fmt.Print(p.Picture(a, 0, 0))
	// Output:
	// [0 4 3]
	// ...
	// .#.
	// .##
}

// A packed bitmap has one bit for each pair. Here every query sees the first key, and the first
// query sees every key.
func ExampleGlobalLocal() {
	p := one(5, 5)
	p.Mask = attn.Full().With(attn.PackedBitmap)
	a := &attn.Args{Q: column(0, 0, 0, 0, 0), K: column(0, 0, 0, 0, 0), Allowed: attn.GlobalLocal(5, 1, 2)}
	fmt.Print(p.Picture(a, 0, 0))
	fmt.Println(p.Count(a).Pairs)
	// Output:
	// #####
	// ###..
	// ####.
	// #.###
	// #..##
	// 19
}

// A block bitmap has one bit for each pair of blocks, so a kernel skips the hidden blocks.
func ExampleBlockSparse() {
	p := one(4, 6)
	p.Mask = attn.Full().WithBlocks(2)
	a := &attn.Args{Q: column(0, 0, 0, 0), K: column(0, 0, 0, 0, 0, 0)}
	a.Allowed = attn.BlockSparse(4, 6, 2, func(i, j int) bool { return j == 0 || i+1 == j })
	fmt.Print(p.Picture(a, 0, 0))
	// Output:
	// ####..
	// ####..
	// ##..##
	// ##..##
}

// Scores of 0 and log 3 have weights 1:3. At half the temperature the weights are 1:9. In the
// limits the larger score takes all the weight, or both take half.
func Example_temperature() {
	for _, temp := range []float64{1, 0.5, attn.Frozen, math.Inf(1)} {
		p := one(1, 2)
		p.Score.Temp = temp
		a := &attn.Args{Q: column(1), K: column(0, float32(math.Log(3))), V: column(0, 1)}
		fmt.Printf("%.2f ", answer(p, a))
	}
	// Output: [0.75] [0.90] [1.00] [0.50]
}

// A softcap limits the magnitude of scores. A bias is added afterwards.
func Example_softcap() {
	p := one(1, 2)
	p.Score = attn.Score{Softcap: 2, Terms: attn.TermBias}
	p.Want = attn.WantScores
	a := &attn.Args{Q: column(1), K: column(1, 100), V: column(0, 1)}
	a.Terms.Bias = column(0, 5)
	a.Terms.Bias.S, a.Terms.Bias.D = 1, 2 // [batch, query, head, key]
	a.Stats.Scores = attn.New(attn.BHSD, 1, 1, 1, 2)
	answer(p, a)
	fmt.Printf("%.3f\n", a.Stats.Scores.Data) // 2 tanh(1/2) and 2 + 5
	// Output: [0.924 7.000]
}

// The dimensions of a bias are the last ones of [batch, head, query, key]. It broadcasts over the
// missing ones.
func ExampleBiasTensor() {
	// hides the second key from all queries
	bias, err := attn.BiasTensor([]float32{0, float32(math.Inf(-1)), 0}, 3)
	if err != nil {
		panic(err)
	}
	p := one(2, 3)
	p.Score.Terms = attn.TermBias
	fmt.Println(answer(p, &attn.Args{Q: column(0, 0), K: column(0, 0, 0), V: column(2, 100, 4), Terms: attn.Operands{Bias: bias}}))
	// Output: [3 3]
}

// Attention with linear biases: of keys with equal scores, each key further away has less weight by
// a constant factor.
func ExampleALiBiSlopes() {
	fmt.Println(attn.ALiBiSlopes(2))
	p := one(1, 3)
	p.Mask, p.Want, p.Score.Terms = attn.Causal(), attn.WantWeights, attn.TermALiBi
	a := &attn.Args{Q: column(0), K: column(0, 0, 0), V: column(0, 0, 0)}
	a.Terms.Slopes = []float32{math.Ln2}
	a.Stats.Weights = attn.New(attn.BHSD, 1, 1, 1, 3)
	answer(p, a)
	fmt.Printf("%.4f\n", a.Stats.Weights.Data) // 1 : 2 : 4
	// Output:
	// [0.0625 0.00390625]
	// [0.1429 0.2857 0.5714]
}

// A sink takes weight and has no value. Beside two keys of the same score it takes a third.
func Example_sinks() {
	p := one(1, 2)
	p.Score.Terms, p.Want = attn.TermSinks, attn.WantLSE
	a := &attn.Args{Q: column(0), K: column(0, 0), V: column(3, 6), Terms: attn.Operands{Sinks: []float32{0}}}
	a.Stats.LSE = column(0)
	fmt.Printf("%.3f, LSE %.4f = log 3\n", answer(p, a), a.Stats.LSE.Data[0])
	// Output: [3.000], LSE 1.0986 = log 3
}

// Relative positions: the query is multiplied by the table row of its distance to the key, here at
// most 1 on either side.
func Example_relative() {
	p := one(3, 3)
	p.Score.Terms, p.Want = attn.TermRelative, attn.WantScores
	a := &attn.Args{Q: column(1, 1, 1), K: column(0, 0, 0), V: column(0, 0, 0)}
	// before the query, at it, after it
	a.Terms.Relative, a.Terms.RelativeClip = column(-5, 0, 7), 1
	a.Stats.Scores = attn.New(attn.BHSD, 1, 3, 1, 3)
	answer(p, a)
	for i := range 3 {
		fmt.Println(a.Stats.Scores.Row(0, i, 0))
	}
	// Output:
	// [0 7 7]
	// [-5 0 7]
	// [-5 -5 0]
}

// T5's buckets of distances are a bias. Buckets hold one distance near the query and more further
// away.
func ExampleT5Bias() {
	table := []float32{0, 0.1, 0.2, 0.3} // one number for each bucket
	bias, err := attn.T5Bias(table, 1, 4, 8, false, 5, 1, 6)
	if err != nil {
		panic(err)
	}
	fmt.Println(bias.Row(0, 0, 0)) // for the query at position 5
	// Output: [0.3 0.3 0.2 0.2 0.1 0]
}

// A metric replaces the plain inner product. It need be neither symmetric nor square: here queries
// have three numbers and keys two.
func Example_metric() {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimQ: 3, DimV: 1, Want: attn.WantScores}
	p.Score = attn.Score{Scale: 1, Terms: attn.TermMetric}
	a := &attn.Args{
		Q: attn.Wrap(attn.BHSD, []float32{1, 2, 3}, 1, 1, 1, 3),
		K: attn.Wrap(attn.BHSD, []float32{1, 0, 0, 1}, 1, 2, 1, 2),
		V: column(0, 0),
	}
	a.Terms.Metric = attn.Wrap(attn.BHSD, []float32{1, 0, 0, 1, 0, 10}, 1, 3, 1, 2)
	a.Stats.Scores = attn.New(attn.BHSD, 1, 1, 1, 2)
	answer(p, a)
	fmt.Println(a.Stats.Scores.Data)
	// Output: [1 32]
}

// With RoPE in the problem, the kernel rotates Q and K. Keys that Rotate rotated beforehand, in a
// problem without RoPE, give the same result.
func ExampleRotate() {
	cos, sin := attn.RopeTables(10000, 3, 2)
	q, k := attn.Wrap(attn.BHSD, []float32{1, 2}, 1, 1, 1, 2), attn.Wrap(attn.BHSD, []float32{1, 0, 0, 1, 1, 1}, 1, 3, 1, 2)
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 3, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 1}
	p.Score.Rope = attn.RopeHalves
	a := &attn.Args{Q: q, K: k, V: column(1, 2, 3), Terms: attn.Operands{Cos: cos, Sin: sin}}
	fmt.Printf("%.4f\n", answer(p, a))

	for _, x := range []attn.Tensor{q, k} {
		positions := []int32{0, 1, 2}[3-x.S:] // the query is at the position of the last key
		if err := attn.Rotate(attn.RopeHalves, x, x, cos, sin, positions); err != nil {
			panic(err)
		}
	}
	p.Score.Rope = attn.NoRope
	fmt.Printf("%.4f\n", answer(p, &attn.Args{Q: q, K: k, V: column(1, 2, 3)}))
	// Output:
	// [2.6540]
	// [2.6540]
}

// Two sequences, of three tokens and of one, follow each other without padding. The sizes of the
// problem are those of the longer one.
func Example_ragged() {
	p := one(3, 3)
	p.Batch, p.Ragged, p.Mask = 2, true, attn.Causal()
	a := &attn.Args{Q: column(0, 0, 0, 0), K: column(0, 0, 0, 0), V: column(2, 4, 6, 8)}
	a.QStart = []int32{0, 3, 4}
	a.KStart = a.QStart
	fmt.Println(answer(p, a))
	// Output: [2 3 4 8]
}

// A cache in pages of 8 rows. The pool may also hold pages of other sequences; the keys of this one
// are in page 2, then in page 0.
func Example_pages() {
	p := one(1, 16)
	p.Page, p.Lengths, p.Mask = 8, true, attn.Window(1, 0) // a query's own key and the one before
	a := &attn.Args{Q: column(0), K: attn.New(attn.BHSD, 3, 8, 1, 1), V: attn.New(attn.BHSD, 3, 8, 1, 1), Pages: []int32{2, 0}, KLen: []int32{9}}
	a.V.Row(2, 7, 0)[0], a.V.Row(0, 0, 0)[0] = 4, 10 // keys 7 and 8
	fmt.Println(answer(p, a))
	// Output: [7]
}

// A cache of int8 rows. Append rounds what it stores, and a kernel reads the rows without a copy.
// The largest number of the last row is 2, so 1.27 is rounded to a multiple of 2/127, which is
// 1.276.
func ExampleProblem_Append() {
	p := one(1, 8)
	p.DimV, p.KV, p.Lengths, p.Mask = 2, attn.I8, true, attn.Causal()
	a := &attn.Args{
		Q: column(0), K: attn.NewTyped(attn.I8, attn.BSHD, 1, 8, 1, 1), V: attn.NewTyped(attn.I8, attn.BSHD, 1, 8, 1, 2),
		KLen: []int32{0},
	}
	for step := range 3 {
		k, v := column(1), attn.Wrap(attn.BSHD, []float32{float32(step), 1.27}, 1, 1, 1, 2)
		if err := p.Append(a, &k, &v); err != nil {
			panic(err)
		}
		fmt.Printf("%d keys: %.3f\n", a.KLen[0], answer(p, a))
	}
	// Output:
	// 1 keys: [0.000 1.270]
	// 2 keys: [0.500 1.270]
	// 3 keys: [1.000 1.272]
}

// Operands and results of 16 bits. In bf16 one third has eight binary digits.
func Example_types() {
	p := one(1, 3)
	p.KV, p.Out = attn.F16, attn.BF16
	a := &attn.Args{
		Q: column(0), K: attn.NewTyped(attn.F16, attn.BHSD, 1, 3, 1, 1), V: attn.NewTyped(attn.F16, attn.BHSD, 1, 3, 1, 1),
		Out: attn.NewTyped(attn.BF16, attn.BHSD, 1, 1, 1, 1),
	}
	a.V.Write([]float32{1}, 0, 2, 0)
	answer(p, a)
	fmt.Println(a.Out.Read(make([]float32, 1), 0, 0, 0))
	// Output: [0.33398438]
}

// Statistics of a row's weights, from the by-products of one call.
func Example_statistics() {
	p := one(1, 4)
	p.Want = attn.WantLSE | attn.WantMean | attn.WantEntropy | attn.WantMax | attn.WantArgMax | attn.WantWeights
	a := &attn.Args{Q: column(1), K: column(0, 0, math.Ln2, 0), V: column(0, 0, 1, 0)}
	s := &a.Stats
	s.LSE, s.Mean, s.Entropy, s.Max, s.ArgMax = column(0), column(0), column(0), column(0), make([]int32, 1)
	s.Weights = attn.New(attn.BHSD, 1, 1, 1, 4)
	answer(p, a)
	fmt.Printf("weights %.1f\n", s.Weights.Data)
	// log 5
	fmt.Printf("LSE %.4f, free energy %.4f\n", s.LSE.Data[0], attn.FreeEnergy(s.LSE.Data[0], 1))
	fmt.Printf("mean score %.4f, largest %.4f at key %d\n", s.Mean.Data[0], s.Max.Data[0], s.ArgMax[0])
	fmt.Printf("entropy %.4f, as that of %.2f keys\n", s.Entropy.Data[0], attn.EffectiveKeys(s.Entropy.Data[0]))
	// Output:
	// weights [0.2 0.2 0.4 0.2]
	// LSE 1.6094, free energy -1.6094
	// mean score 0.2773, largest 0.6931 at key 2
	// entropy 1.3322, as that of 3.79 keys
}

// The backward pass computes the gradients of the operands from the gradient of the output. Both
// keys have weight 1/2. Raising the score of the second key moves the output towards the second
// value.
func ExampleGrads() {
	p := one(1, 2)
	p.Want = attn.WantGrad
	a := &attn.Args{Q: column(0), K: column(1, 3), V: column(2, 4), Out: column(0)}
	a.Stats.LSE = column(0) // the backward pass computes the weights from it
	plan, err := naive.New().Plan(p, nil)
	if err != nil {
		panic(err)
	}
	plan.Forward(a)
	g := &attn.Grads{Out: column(1), Q: column(0), K: column(0, 0), V: column(0, 0)}
	plan.(attn.Differentiable).Backward(a, g)
	fmt.Println("out", a.Out.Data, "dV", g.V.Data, "dQ", g.Q.Data, "dK", g.K.Data)
	// Output: out [3] dV [0.5 0.5] dQ [1] dK [0 0]
}

// Query heads 0 and 1 share the first key head, query heads 2 and 3 the second.
func Example_groupedHeads() {
	p := one(1, 1)
	p.HeadsQ, p.HeadsKV = 4, 2
	a := &attn.Args{
		Q: attn.New(attn.BHSD, 1, 1, 4, 1), K: attn.New(attn.BHSD, 1, 1, 2, 1),
		V: attn.Wrap(attn.BHSD, []float32{10, 20}, 1, 1, 2, 1),
	}
	fmt.Println(answer(p, a))
	// Output: [10 10 20 20]
}

// Two machines hold two keys each. Each sends a Partial, and merging both gives attention over all
// four keys.
func ExamplePartial() {
	part := func(v ...float32) *bytes.Buffer {
		p := one(1, 2)
		p.Want = attn.WantLSE
		s := attn.NewPartial(1, 1, 1, 1)
		a := &attn.Args{Q: column(0), K: column(0, 0), V: column(v...), Out: s.Out}
		a.Stats.LSE = s.LSE
		answer(p, a)
		var sent bytes.Buffer
		if _, err := s.WriteTo(&sent); err != nil {
			panic(err)
		}
		return &sent
	}
	all := attn.NewPartial(1, 1, 1, 1) // of no keys
	for _, sent := range []*bytes.Buffer{part(1, 2), part(3, 6)} {
		var s attn.Partial
		if _, err := s.ReadFrom(sent); err != nil {
			panic(err)
		}
		all.Merge(s)
	}
	fmt.Printf("%.2f, LSE %.4f = log 4\n", all.Out.Data, all.LSE.LogSum(0, 0, 0).Value())
	// Output: [3.00], LSE 1.3863 = log 4
}

// The gated delta rule of Qwen3-Next: 32 value heads, of which two share a key head. The state of
// a sequence does not grow, however long the sequence is.
func ExampleGatedDelta() {
	p := attn.GatedDelta(attn.Problem{
		Batch: 1, SeqQ: 1, SeqKV: 1, HeadsQ: 16, HeadsKV: 16, Dim: 128, DimV: 128, Linear: attn.Linear{HeadsV: 32},
	})
	fmt.Println(p.Needs())
	fmt.Println(p.OutHeads(), "heads of Out, a state of", p.StateLen()/p.StateHeads(), "numbers for each")
	// Output:
	// linear, gate per head, delta rule, norm of Q and K, value heads
	// 32 heads of Out, a state of 16384 numbers for each
}

// The gates of retention are constant. A stride of 0 repeats them for every token.
func ExampleConstantDecay() {
	decay := attn.ConstantDecay(attn.RetNetDecay(2), 1, 1000)
	for h := range 2 {
		fmt.Printf("%.6f ", math.Exp(float64(decay.Row(0, 999, h)[0]))) // 31/32 and 63/64
	}
	fmt.Println(decay.Shape(), len(decay.Data), "numbers")
	// Output: 0.968750 0.984375 [batch 1, seq 1000, head 2, dim 1] 2 numbers
}
