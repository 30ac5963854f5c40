package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// on returns what the examples run on. The first kernel is the simplest, and the portable loops
// print the same numbers on every machine.
func on() nn.On {
	return nn.On{Kernel: kernels.All()[0], Products: nn.NewMultiplier(asm.Levels()[0].Ops, nil)}
}

// normal returns a matrix of standard normal numbers.
func normal(rows, cols int, r *rand.Rand) nn.Mat {
	m := nn.NewMat(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

// The lesson's multi-head attention: rows of 64 numbers, 8 heads, a sequence of 10. Any kernel may
// compute it, and any mask be set; here each row sees itself and those before it. Afterwards
// Decompose shows what each head has computed.
func Example_multiHeadAttention() {
	r := rand.New(rand.NewPCG(42, 0))
	layer, err := nn.NewAttention("attention", 64, 8, 8, false, r)
	if err != nil {
		panic(err)
	}
	layer.Mask = attn.Causal()
	pass, _, err := layer.Plan(on(), nn.Shape{Batch: 1, Seq: 10, Dim: 64})
	if err != nil {
		panic(err)
	}
	y := pass.Forward(normal(10, 64, r))
	fmt.Println("output", y)
	fmt.Println("parameters", nn.Count(layer.Params()))

	heads, err := pass.(*nn.AttentionPass).Decompose(0)
	if err != nil {
		panic(err)
	}
	var patterns []*mat.Dense
	for _, h := range heads {
		patterns = append(patterns, h.Weights)
	}
	fmt.Println("queries of a head", heads[0].Q)
	fmt.Printf("weights of the first row: %.0f ...\n", mat.Row(nil, 0, heads[0].Weights)[:3])
	fmt.Printf("diversity of the heads %.2f, mean entropy of the first %.2f\n", nn.Diversity(patterns), nn.HeadEntropies(patterns)[0])

	dx := pass.Backward(normal(10, 64, r))
	fmt.Println("gradient by the input", dx)
	// Output:
	// output 10 x 64
	// parameters 16384
	// queries of a head 10 x 8
	// weights of the first row: [1 0 0] ...
	// diversity of the heads 0.29, mean entropy of the first 1.23
	// gradient by the input 10 x 64
}

// Queries of one sequence, keys and values of another: 6 rows of a decoder attend to 10 rows of an
// encoder, with 4 heads.
func ExampleAttention_cross() {
	r := rand.New(rand.NewPCG(42, 1))
	layer, err := nn.NewAttention("cross", 32, 4, 4, true, r)
	if err != nil {
		panic(err)
	}
	layer.Cross = true
	encoder := nn.NewParam("encoder", 10, 32).Normal(r, 1)
	run := on()
	run.Memory = encoder
	pass, _, err := layer.Plan(run, nn.Shape{Batch: 1, Seq: 6, Dim: 32})
	if err != nil {
		panic(err)
	}
	fmt.Println("output", pass.Forward(normal(6, 32, r)))
	heads, err := pass.(*nn.AttentionPass).Decompose(0)
	if err != nil {
		panic(err)
	}
	rows, keys := heads[0].Weights.Dims()
	fmt.Println("weights of a head", rows, "x", keys)
	pass.Backward(normal(6, 32, r))
	fmt.Println("gradient by the encoder's rows", encoder.Grad)
	// Output:
	// output 6 x 32
	// weights of a head 6 x 10
	// gradient by the encoder's rows 10 x 32
}

// Heads are views of a matrix. Splitting a matrix into heads and joining them copies no number.
func ExampleSplit() {
	m := nn.NewMat(6, 8) // two sequences of three rows
	heads, err := nn.Split(m, 2, 4)
	if err != nil {
		panic(err)
	}
	fmt.Println(heads.Shape())
	heads.Row(1, 0, 3)[1] = 5 // the last number of the last head, first row of sequence 1
	fmt.Println(m.Row(3))
	joined, err := nn.Combine(heads)
	if err != nil {
		panic(err)
	}
	fmt.Println(joined, &joined.Data[0] == &m.Data[0])
	// Output:
	// [batch 2, seq 3, head 4, dim 2]
	// [0 0 0 0 0 0 0 5]
	// 6 x 8 true
}

// Decoding with a cache: the model reads a beginning in chunks and keeps the keys and values of all
// rows. Each further token then costs one row. Without the cache every token would cost a pass over
// all rows. The tokens are the same.
func ExampleModel_Generate() {
	r := rand.New(rand.NewPCG(42, 2))
	m, err := nn.NewModel(20, 32, 20, false, nn.Config{Layers: 2, Dim: 32, Heads: 4, KVHeads: 2, Act: nn.GELU, Mask: attn.Causal()}, r)
	if err != nil {
		panic(err)
	}
	for _, p := range m.Params() {
		p.Normal(r, 0.3) // nothing was trained
	}
	run := on()
	g, err := m.Generate(run, 32, 8, attn.F32, 16)
	if err != nil {
		panic(err)
	}
	tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	if err := g.Read(tokens); err != nil {
		panic(err)
	}
	same := true
	for range 12 {
		whole, err := m.Plan(run, 1, len(tokens))
		if err != nil {
			panic(err)
		}
		logits := whole.Forward(tokens).Row(len(tokens) - 1)
		best := 0
		for i, x := range logits {
			if x > logits[best] {
				best = i
			}
		}
		next, err := g.Next(&nn.Sampler{}) // greedy
		if err != nil {
			panic(err)
		}
		same = same && int(next) == best
		tokens = append(tokens, next)
	}
	fmt.Println(g.Len(), "tokens; with the cache as without it:", same)
	// Output:
	// 23 tokens; with the cache as without it: true
}

// The lesson's gate. Three of four experts are equally good for x = (1, -1). The two of lowest
// index are chosen.
func ExampleExperts() {
	r := rand.New(rand.NewPCG(42, 3))
	e, err := nn.NewExperts("mixture", 2, 4, 2, func(i int) nn.Layer { return nn.NewLinear(fmt.Sprint("expert", i), 2, 2, true, r) }, r)
	if err != nil {
		panic(err)
	}
	copy(e.Gate.W.W.Data, []float32{0.5, 1, -1, 0, 0, 0.5, 1, -0.5})
	p, _, err := e.Plan(on(), nn.Shape{Batch: 1, Seq: 1, Dim: 2})
	if err != nil {
		panic(err)
	}
	pass := p.(*nn.ExpertsPass)
	pass.Forward(nn.Mat{Data: []float32{1, -1}, Rows: 1, Cols: 2, Stride: 2})
	fmt.Println("rows by expert", pass.Load)

	all, chosen, weights := make([]float64, 4), make([]int, 2), make([]float64, 2)
	e.Route([]float32{0.5, 0.5, -2, 0.5}, all, chosen, weights)
	fmt.Printf("G %.4f, chosen %d with %.4f\n", all, chosen, weights)
	e.Renormalise = true
	e.Route([]float32{0.5, 0.5, -2, 0.5}, all, chosen, weights)
	fmt.Printf("renormalised %.4f\n", weights)
	// Output:
	// rows by expert [1 1 0 0]
	// G [0.3245 0.3245 0.0266 0.3245], chosen [0 1] with [0.3245 0.3245]
	// renormalised [0.5000 0.5000]
}

// The lesson's encoder block: attention and a feed-forward layer with ReLU, each followed by a sum
// and a layer norm. It learns which of two tokens occurs more often in a sequence.
func Example_encoderBlock() {
	const batch, seq = 32, 7
	r := rand.New(rand.NewPCG(42, 4))
	m, err := nn.NewModel(2, seq, 2, true, nn.Config{Layers: 1, Dim: 16, Heads: 4, Hidden: 32, PostNorm: true, Act: nn.ReLU, Bias: true}, r)
	if err != nil {
		panic(err)
	}
	run := on()
	pass, err := m.Plan(run, batch, seq)
	if err != nil {
		panic(err)
	}
	params, criterion := m.Params(), nn.NewCrossEntropy(run, batch, 2)
	adam := nn.NewAdam(params, 0)
	schedule := nn.Schedule{Rate: 0.01, Warmup: 10, Steps: 100}
	tokens, more := make([]int32, batch*seq), make([]int32, batch)
	draw := func() {
		for b := range more {
			ones := int32(0)
			for i := range seq {
				tokens[b*seq+i] = int32(r.IntN(2))
				ones += tokens[b*seq+i]
			}
			more[b] = 2 * ones / (seq + 1)
		}
	}
	first, last := math.NaN(), 0.0
	for step := range schedule.Steps {
		draw()
		nn.ClearGrads(params)
		loss, _, dlogits := criterion.Loss(pass.Forward(tokens), more)
		pass.Backward(dlogits)
		nn.ClipGrads(params, 1)
		adam.Step(schedule.At(step))
		if last = loss; step == 0 {
			first = loss
		}
	}
	draw()
	_, right, _ := criterion.Loss(pass.Forward(tokens), more)
	fmt.Println(nn.Count(params), "parameters")
	fmt.Println("the loss began near log 2:", math.Abs(first-math.Ln2) < 0.3)
	fmt.Println("it fell:", last < first/2)
	fmt.Printf("right: at least 30 of %d: %v\n", batch, right >= 30)
	// Output:
	// 2402 parameters
	// the loss began near log 2: true
	// it fell: true
	// right: at least 30 of 32: true
}

// A decoder beside an encoder. The decoder's blocks also attend to the encoder's rows, whose
// gradient goes back through the encoder. The two learn to write a word backwards, each letter from
// the letters before it. Then they write one letter at a time, through the cache.
func Example_encoderDecoder() {
	const batch, length, letters, begin = 16, 5, 6, 6 // begin is the token before a word
	r := rand.New(rand.NewPCG(42, 5))
	config := nn.Config{Layers: 1, Dim: 32, Heads: 2, Hidden: 64, Act: nn.GELU, Bias: true}
	embed := nn.NewEmbedding("encoder.embed", letters, length, config.Dim, r)
	encoder, err := nn.NewStack("encoder", config, r)
	if err != nil {
		panic(err)
	}
	config.Mask, config.Cross = attn.Causal(), true
	decoder, err := nn.NewModel(letters+1, length, letters, false, config, r)
	if err != nil {
		panic(err)
	}

	run, words := on(), nn.Shape{Batch: batch, Seq: length, Dim: config.Dim}
	reads, err := embed.Plan(batch, length)
	if err != nil {
		panic(err)
	}
	encodes, _, err := encoder.Plan(run, words)
	if err != nil {
		panic(err)
	}
	run.Memory = nn.NewParam("memory", words.Rows(), config.Dim)
	decodes, err := decoder.Plan(run, batch, length)
	if err != nil {
		panic(err)
	}

	params := append(append(embed.Params(), encoder.Params()...), decoder.Params()...)
	adam, criterion, schedule := nn.NewAdam(params, 0), nn.NewCrossEntropy(run, batch*length, letters), nn.Schedule{Rate: 0.005, Warmup: 20, Steps: 120}
	word, before, backwards := make([]int32, batch*length), make([]int32, batch*length), make([]int32, batch*length)
	for step := range schedule.Steps {
		for b := range batch {
			for i := range length {
				word[b*length+i] = int32(r.IntN(letters))
			}
			before[b*length] = begin
			for i := range length {
				backwards[b*length+i] = word[(b+1)*length-1-i]
			}
			copy(before[b*length+1:][:length-1], backwards[b*length:])
		}
		run.Memory.W = encodes.Forward(reads.Forward(word))
		_, _, dlogits := criterion.Loss(decodes.Forward(before), backwards)
		nn.ClearGrads(append(params, run.Memory))
		decodes.Backward(dlogits)
		reads.Backward(encodes.Backward(run.Memory.Grad))
		nn.ClipGrads(params, 1)
		adam.Step(schedule.At(step))
	}

	run.Memory.W = encodes.Forward(reads.Forward(word)).First(length) // the first word
	generator, err := decoder.Generate(run, length, 1, attn.F32, 0)
	if err != nil {
		panic(err)
	}
	if err := generator.Read([]int32{begin}); err != nil {
		panic(err)
	}
	var written []int32
	for range length - 1 {
		letter, err := generator.Next(&nn.Sampler{})
		if err != nil {
			panic(err)
		}
		written = append(written, letter)
	}
	written = append(written, new(nn.Sampler).Choose(generator.Logits()))
	fmt.Println(word[:length], "backwards is", written)
	// Output:
	// [3 3 1 0 0] backwards is [0 0 1 3 3]
}

// Decoding with linear attention: a state sums up what has been read, and is as large after a
// million tokens as after a hundred. The tokens are those of one pass over all rows.
func Example_linearAttention() {
	r := rand.New(rand.NewPCG(42, 6))
	m, err := nn.NewModel(20, 0, 20, false, nn.Config{Layers: 2, Dim: 32, Heads: 4, Act: nn.GELU, Mask: attn.Causal(), Linear: &attn.Linear{Feature: attn.EluPlusOne}}, r)
	if err != nil {
		panic(err)
	}
	for _, p := range m.Params() {
		p.Normal(r, 0.3) // nothing was trained
	}
	run := on()
	if run.Kernel, err = kernels.ByName("linear", "go"); err != nil {
		panic(err)
	}
	for _, capacity := range []int{100, 1000000} {
		caches := &nn.Caches{Capacity: capacity}
		if _, err := m.Plan(nn.On{Kernel: run.Kernel, Products: run.Products, Caches: caches}, 1, 8); err != nil {
			panic(err)
		}
		fmt.Println("bytes for", capacity, "tokens:", caches.Bytes())
	}
	g, err := m.Generate(run, 1000000, 8, attn.F32, 0)
	if err != nil {
		panic(err)
	}
	tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	if err := g.Read(tokens); err != nil {
		panic(err)
	}
	whole, err := m.Plan(run, 1, len(tokens)+12)
	if err != nil {
		panic(err)
	}
	same := true
	for range 12 {
		want := new(nn.Sampler).Choose(whole.Forward(tokens).Row(len(tokens) - 1))
		next, err := g.Next(&nn.Sampler{})
		if err != nil {
			panic(err)
		}
		same = same && next == want
		tokens = append(tokens, next)
	}
	fmt.Println(g.Len(), "tokens; from the state as from all:", same)
	// Output:
	// bytes for 100 tokens: 2304
	// bytes for 1000000 tokens: 2304
	// 23 tokens; from the state as from all: true
}

// The natural gradient of a layer that separates two classes by two numbers, one a hundred times as
// large as the other. Before each step it observes the information of each row, here of the row's
// own target.
func ExampleNatural() {
	const rows = 100
	r := rand.New(rand.NewPCG(42, 7))
	x, classes := nn.NewMat(rows, 2), make([]int32, rows)
	for i := range rows {
		a, b := r.NormFloat64(), r.NormFloat64()
		x.Row(i)[0], x.Row(i)[1] = float32(a), float32(b/100)
		if a+b+r.NormFloat64() > 0 {
			classes[i] = 1
		}
	}
	layer := nn.NewLinear("l", 2, 2, false, r)
	run := on()
	all, _, err := layer.Plan(run, nn.Shape{Batch: 1, Seq: rows, Dim: 2})
	if err != nil {
		panic(err)
	}
	one, _, err := layer.Plan(run, nn.Shape{Batch: 1, Seq: 1, Dim: 2})
	if err != nil {
		panic(err)
	}
	params, criterion := layer.Params(), nn.NewCrossEntropy(run, rows, 2)
	gradient := func(pass nn.Pass, x nn.Mat, classes []int32) float64 {
		nn.ClearGrads(params)
		loss, _, d := criterion.Loss(pass.Forward(x), classes)
		pass.Backward(d)
		return loss
	}

	natural, err := nn.NewNatural(params, 1e-6)
	if err != nil {
		panic(err)
	}
	layer.W.W.Clear()
	for range 10 {
		for i := range rows {
			gradient(one, x.Part(i, 1, 0, 2), classes[i:i+1])
			natural.Observe(1. / rows)
		}
		gradient(all, x, classes)
		natural.Step(1)
	}
	fmt.Printf("loss after 10 steps of the natural gradient: %.2f\n", gradient(all, x, classes))

	plain := nn.NewSGD(params, 0)
	layer.W.W.Clear()
	for range 1000 {
		gradient(all, x, classes)
		plain.Step(1)
	}
	fmt.Printf("after 1000 of the gradient: %.2f\n", gradient(all, x, classes))
	// Output:
	// loss after 10 steps of the natural gradient: 0.43
	// after 1000 of the gradient: 0.57
}
