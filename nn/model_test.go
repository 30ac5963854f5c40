package nn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
)

// TestBlocks checks that every parameter of a block has the gradient of its twin's differences. The
// blocks are an encoder's and a decoder's, which also attends to an encoder's rows, with norms
// before or behind the layers.
func TestBlocks(t *testing.T) {
	causal := attn.Causal()
	for _, c := range []Config{
		{},
		{PostNorm: true},
		{Mask: causal},
		{Mask: causal, PostNorm: true, Fused: true},
		{Mask: causal, Cross: true},
		{Mask: causal, Cross: true, PostNorm: true},
		{Mask: causal, Cross: true, Gated: true, RMS: true, KVHeads: 1, Linear: products},
	} {
		r := rand.New(rand.NewPCG(21, 1))
		c.Layers, c.Dim, c.Heads, c.Hidden, c.Act, c.Bias = 1, 6, 2, 7, GELU, true
		stack, err := NewStack("b", c, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range stack.Params() {
			if strings.HasSuffix(p.Name, ".b") || strings.HasSuffix(p.Name, ".bias") {
				p.Normal(r, 0.3)
			}
		}
		in, memory := Shape{2, 4, 6}, NewParam("memory", 2*3, 6).Normal(r, 1)
		var l Layer = stack
		if c.Cross {
			l = withMemory{l, memory}
		}
		if c.Linear != nil {
			l = linearly{l}
		}
		checkLayer(t, l, in, twinOf(stack, in, memory))
	}
	for _, c := range []Config{{Heads: 4}, {Heads: 2, Dropout: 0.1}, {Heads: 2, Dropout: 1, Noise: new(Noise)}} {
		c.Layers, c.Dim = 1, 6
		if _, err := NewStack("b", c, rand.New(rand.NewPCG(1, 1))); err == nil {
			t.Errorf("%d heads in rows of 6, dropout %v: no error", c.Heads, c.Dropout)
		}
	}
}

// expertsTwin returns a mixture of linear experts with the choices of the pass, because a choice
// has no derivative.
func expertsTwin(e *Experts) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		logits := linearTwin(e.Gate)(w, x)
		var made [][][]float64
		for _, l := range e.Layers {
			made = append(made, linearTwin(l.(*Linear))(w, x))
		}
		y := make([][]float64, len(x))
		for r := range x {
			sum := 0.0
			for _, v := range logits[r] {
				sum += math.Exp(v)
			}
			order := make([]int, len(e.Layers))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return -compare(logits[r][a], logits[r][b]) })
			kept := 0.0
			for _, i := range order[:e.Top] {
				kept += math.Exp(logits[r][i])
			}
			y[r] = make([]float64, len(made[0][r]))
			for _, i := range order[:e.Top] {
				g := math.Exp(logits[r][i]) / sum
				if e.Renormalise {
					g = math.Exp(logits[r][i]) / kept
				}
				for c := range y[r] {
					y[r][c] += g * made[i][r][c]
				}
			}
		}
		return y
	}
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestExperts(t *testing.T) {
	for _, renormalise := range []bool{false, true} {
		for _, top := range []int{1, 2, 4} {
			r := rand.New(rand.NewPCG(22, uint64(top)))
			e, err := NewExperts("e", 5, 4, top, func(i int) Layer { return NewLinear(fmt.Sprint("e", i), 5, 3, true, r) }, r)
			if err != nil {
				t.Fatal(err)
			}
			e.Renormalise = renormalise
			e.Gate.W.Normal(r, 2)
			checkLayer(t, e, Shape{2, 9, 5}, expertsTwin(e))
		}
	}
	for _, n := range [][2]int{{3, 0}, {3, 4}, {0, 0}} {
		if _, err := NewExperts("e", 5, n[0], n[1], func(int) Layer { return Chain{} }, rand.New(rand.NewPCG(1, 1))); err == nil {
			t.Errorf("the %d best of %d: no error", n[1], n[0])
		}
	}
}

// TestRoute checks the lesson's gate: three experts are equally good, and the lower indices are
// chosen.
func TestRoute(t *testing.T) {
	e := &Experts{Top: 2}
	all, chosen, weights := make([]float64, 4), make([]int, 2), make([]float64, 2)
	e.Route([]float32{0.5, 0.5, -2, 0.5}, all, chosen, weights)
	for i, want := range []float64{0.32445569, 0.32445569, 0.02663294, 0.32445569} {
		if math.Abs(all[i]-want) > 5e-9 {
			t.Errorf("weight of expert %d is %v, want %v", i, all[i], want)
		}
	}
	if chosen[0] != 0 || chosen[1] != 1 || weights[0] != all[0] {
		t.Errorf("chosen %v with %v, want 0 and 1 with their weights", chosen, weights)
	}
	e.Renormalise = true
	if e.Route([]float32{0.5, 0.5, -2, 0.5}, all, chosen, weights); math.Abs(weights[0]-0.5) > 1e-15 {
		t.Errorf("renormalised %v, want 0.5", weights)
	}
	e.StraightThrough = true
	if e.Route([]float32{9, 1, -2, 0.5}, all, chosen, weights); weights[0] != 0.5 || weights[1] != 0.5 {
		t.Errorf("straight through %v, want 0.5", weights)
	}
}

// TestBalance checks that the loss of balance is 1 when all experts are chosen equally often, and
// that its gradient equals differences.
func TestBalance(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 1))
	e, err := NewExperts("e", 3, 3, 1, func(i int) Layer { return NewLinear(fmt.Sprint("e", i), 3, 3, false, r) }, r)
	if err != nil {
		t.Fatal(err)
	}
	e.Balance = 0.7
	pass, _, err := e.Plan(On{Kernel: kernels.All()[0], Products: NewMultiplier(asm.Levels()[0].Ops, nil)}, Shape{1, 12, 3})
	if err != nil {
		t.Fatal(err)
	}
	x := random(r, 12, 3, 0)
	pass.Forward(x)
	p := pass.(*ExpertsPass)
	zero := NewMat(12, 3)
	pass.Backward(zero)
	w := wide(e.Gate.W.W)
	own := func(*Param) [][]float64 { return w }
	want := differences(w, func() float64 {
		logits := linearTwin(e.Gate)(own, wide(x))
		sum := 0.0
		for _, row := range logits {
			z := 0.0
			for _, v := range row {
				z += math.Exp(v)
			}
			for i, v := range row {
				sum += 3 * float64(p.Load[i]) / 12 * math.Exp(v) / z / 12
			}
		}
		return 0.7 * sum
	})
	near(t, "gradient of the gate", e.Gate.W.Grad, want, 0)
	if p.BalanceLoss < 0.5 || p.BalanceLoss > 3 {
		t.Errorf("loss of balance %v of 3 experts, which lies between 0.5 and 3", p.BalanceLoss)
	}
}

// TestDropout checks that a dropout keeps about its share, scales the kept elements, and passes
// gradients where it passed numbers. Its choice is the same on any team and differs at another
// step.
func TestDropout(t *testing.T) {
	noise := &Noise{Seed: 5, Train: true}
	d := &Dropout{Rate: 0.25, Layer: 3, Noise: noise}
	ops := asm.Levels()[0].Ops
	in := Shape{1, 200, 50}
	pass, _, err := d.Plan(On{Products: NewMultiplier(ops, nil)}, in)
	if err != nil {
		t.Fatal(err)
	}
	x := NewParam("", 200, 50).Ones().W
	first := slices.Clone(pass.Forward(x).Data)
	zeros := 0
	for _, y := range first {
		switch y {
		case 0:
			zeros++
		case float32(1 / 0.75):
		default:
			t.Fatalf("an element is %v, want 0 or %v", y, 1/0.75)
		}
	}
	if math.Abs(float64(zeros)-2500) > 4*math.Sqrt(10000*0.25*0.75) {
		t.Errorf("%d of 10000 are 0, want about 2500", zeros)
	}
	if dx := pass.Backward(x); !slices.Equal(dx.Data, first) {
		t.Error("the gradient of ones is not the output of ones")
	}
	team := attn.NewTeam(3)
	defer team.Close()
	other, _, err := d.Plan(On{Products: NewMultiplier(ops, team)}, in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(other.Forward(x).Data, first) {
		t.Error("other elements on three workers")
	}
	noise.Step++
	if slices.Equal(pass.Forward(x).Data, first) {
		t.Error("the same elements at another step")
	}
	noise.Train = false
	if y := pass.Forward(x); !slices.Equal(y.Data, x.Data) || !slices.Equal(pass.Backward(x).Data, x.Data) {
		t.Error("not the identity when it does not train")
	}
}

// language returns a small language model.
func language(t *testing.T, r *rand.Rand, c Config) *Model {
	t.Helper()
	c.Layers, c.Dim, c.Heads, c.Act, c.Bias, c.Mask = 2, 16, 4, GELU, true, attn.Causal()
	positions := 64
	if c.Score.Rope != attn.NoRope || c.Score.Terms != 0 {
		positions = 0
	}
	m, err := NewModel(11, positions, 11, false, c, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params() {
		if strings.HasPrefix(p.Name, "embed") {
			p.Normal(r, 1)
		}
	}
	return m
}

// TestGeneratorIsOnePass checks that reading through caches of any kind, in chunks and token by
// token, gives the logits of one pass over all rows.
func TestGeneratorIsOnePass(t *testing.T) {
	cos, sin := attn.RopeTables(10000, 64, 4)
	configs := map[string]Config{
		"learned": {}, "grouped": {KVHeads: 2}, "rope": {Score: attn.Score{Rope: attn.RopeHalves}, Terms: attn.Operands{Cos: cos, Sin: sin}},
		"alibi": {Score: attn.Score{Terms: attn.TermALiBi}, Terms: attn.Operands{Slopes: attn.ALiBiSlopes(4)}}, "gated": {Gated: true, RMS: true}, "experts": {Experts: 3, Top: 2},
		"fused": {Fused: true, KVHeads: 1}, "decoder": {Cross: true}, "decoder, norms behind": {Cross: true, PostNorm: true},
		"linear": {Linear: &attn.Linear{}, KVHeads: 2}, "linear decoder": {Linear: &attn.Linear{Feature: attn.ReluPlusOne, Eps: 1e-6}, Cross: true, Fused: true},
	}
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		for name, c := range configs {
			for _, page := range []int{0, 8} {
				r := rand.New(rand.NewPCG(31, 1))
				m := language(t, r, c)
				on := On{Products: NewMultiplier(ops, nil), Memory: NewParam("memory", 9, 16).Normal(r, 1)}
				algo, err := "flash", error(nil)
				if c.Linear != nil {
					algo = "linear"
				}
				if on.Kernel, err = kernels.ByName(algo, ops.ISA); err != nil {
					t.Fatal(err)
				}
				tokens := make([]int32, 37)
				for i := range tokens {
					tokens[i] = int32(r.IntN(11))
				}
				whole, err := m.Plan(on, 1, len(tokens))
				if err != nil {
					t.Fatal(err)
				}
				want := whole.Forward(tokens)
				g, err := m.Generate(on, 40, 10, attn.F32, page)
				if err != nil {
					t.Fatal(err)
				}
				for from := 0; from < len(tokens); {
					n := min(1+from%13, len(tokens)-from)
					if err := g.Read(tokens[from : from+n]); err != nil {
						t.Fatal(err)
					}
					from += n
					for c, x := range g.Logits() {
						if d := math.Abs(float64(x - want.Row(from - 1)[c])); !(d <= 1e-4) {
							t.Fatalf("%s, pages of %d: logit %d after %d tokens is off by %v", name, page, c, from, d)
						}
					}
				}
				if g.Len() != len(tokens) {
					t.Errorf("%s: %d tokens taken in, want %d", name, g.Len(), len(tokens))
				}
				if err := g.Read(tokens[:4]); !errors.Is(err, ErrFull) {
					t.Errorf("%s: 41 tokens in room for 40: %v", name, err)
				}
				if n := testing.AllocsPerRun(2, func() { _ = g.Read(tokens[:1]) }); n != 0 {
					t.Errorf("%s: %v allocations a token", name, n)
				}
			}
		}
	})
}

// TestGenerate checks that greedy generation through the cache gives the tokens of greedy
// generation by full passes, and that random tokens follow their weights.
func TestGenerate(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 1))
	m := language(t, r, Config{})
	on := On{Kernel: kernels.All()[0], Products: NewMultiplier(asm.Levels()[0].Ops, nil)}
	g, err := m.Generate(on, 30, 4, attn.F32, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Next(&Sampler{}); err == nil {
		t.Error("a token after nothing: no error")
	}
	tokens := []int32{3, 1, 4, 1, 5}
	if err := g.Read(tokens); err != nil {
		t.Fatal(err)
	}
	for len(tokens) < 30 {
		whole, err := m.Plan(on, 1, len(tokens))
		if err != nil {
			t.Fatal(err)
		}
		want := largest(whole.Forward(tokens).Row(len(tokens) - 1))
		got, err := g.Next(&Sampler{})
		if err != nil {
			t.Fatal(err)
		}
		if int(got) != want {
			t.Fatalf("token %d is %d, want %d", len(tokens), got, want)
		}
		tokens = append(tokens, got)
	}
	if _, err := g.Next(&Sampler{}); !errors.Is(err, ErrFull) {
		t.Errorf("no room: %v", err)
	}
	if _, err := m.Generate(on, 65, 4, attn.F32, 0); !errors.Is(err, ErrShape) {
		t.Errorf("more room than positions: %v", err)
	}
}

func TestSampler(t *testing.T) {
	logits := []float32{1, 3, 2, 3, float32(math.Inf(-1))}
	for _, s := range []Sampler{{Temperature: 1}, {Temperature: -1, Rand: rand.New(rand.NewPCG(33, 1))}} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "want 0, or a positive one and a Rand") {
					t.Errorf("temperature %v, a source of random numbers %v: %v", s.Temperature, s.Rand != nil, r)
				}
			}()
			s.Choose(logits)
		}()
	}
	if got := (&Sampler{}).Choose(logits); got != 1 {
		t.Errorf("greedy chose %d, want 1", got)
	}
	for _, test := range []struct {
		s    Sampler
		want []float64 // weights
	}{
		{Sampler{Temperature: 1}, []float64{math.Exp(1), math.Exp(3), math.Exp(2), math.Exp(3), 0}},
		{Sampler{Temperature: 0.5}, []float64{math.Exp(2), math.Exp(6), math.Exp(4), math.Exp(6), 0}},
		{Sampler{Temperature: 1, TopK: 2}, []float64{0, 1, 0, 1, 0}},
		{Sampler{Temperature: 1, TopP: 0.5}, []float64{0, 1, 0, 1, 0}},
		{Sampler{Temperature: 1, TopP: 0.39}, []float64{0, 1, 0, 0, 0}},
		{Sampler{Temperature: 1, TopP: 1}, []float64{math.Exp(1), math.Exp(3), math.Exp(2), math.Exp(3), 0}},
	} {
		test.s.Rand = rand.New(rand.NewPCG(33, 1))
		const n = 20000
		counts, sum := make([]int, len(logits)), 0.0
		for range n {
			counts[test.s.Choose(logits)]++
		}
		for _, w := range test.want {
			sum += w
		}
		for i, w := range test.want {
			p := w / sum
			if d := math.Abs(float64(counts[i]) - n*p); d > 4.5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%+v: token %d came %d times of %d, want %.0f", test.s, i, counts[i], n, n*p)
			}
		}
	}
}

// TestLearns checks that a small encoder learns which token is the most frequent, with the same
// bits on one worker and on two, and that a step allocates nothing.
func TestLearns(t *testing.T) {
	train := func(workers, steps int) (loss float64, params []*Param) {
		r := rand.New(rand.NewPCG(41, 1))
		m, err := NewModel(3, 16, 3, true, Config{Layers: 1, Dim: 16, Heads: 2, Act: GELU, Bias: true}, r)
		if err != nil {
			t.Fatal(err)
		}
		team := attn.NewTeam(workers)
		defer team.Close()
		levels := asm.Levels()
		ops := levels[0].Ops
		for _, l := range levels {
			if l.Available {
				ops = l.Ops
			}
		}
		kernel, err := kernels.ByName("flash", ops.ISA)
		if err != nil {
			t.Fatal(err)
		}
		on := On{Kernel: kernel, Products: NewMultiplier(ops, team)}
		pass, err := m.Plan(on, 16, 9)
		if err != nil {
			t.Fatal(err)
		}
		criterion := NewCrossEntropy(on, 16, 3)
		params = m.Params()
		adam := NewAdam(params, 0)
		tokens, targets := make([]int32, 16*9), make([]int32, 16)
		step := func() {
			for b := range targets {
				var counts [3]int
				for i := range 9 {
					tokens[b*9+i] = int32(r.IntN(3))
					counts[tokens[b*9+i]]++
				}
				targets[b] = 0
				for k := range counts {
					if counts[k] > counts[targets[b]] {
						targets[b] = int32(k)
					}
				}
			}
			ClearGrads(params)
			var dlogits Mat
			loss, _, dlogits = criterion.Loss(pass.Forward(tokens), targets)
			pass.Backward(dlogits)
			ClipGrads(params, 1)
			adam.Step(0.01)
		}
		for range steps {
			step()
		}
		if n := testing.AllocsPerRun(2, step); n != 0 {
			t.Errorf("%d workers: %v allocations a step", workers, n)
		}
		return loss, params
	}
	loss, one := train(1, 150)
	if loss > 0.5 {
		t.Errorf("the loss came to %v, want at most 0.5 of 1.1", loss)
	}
	_, two := train(2, 150)
	for i := range one {
		if !slices.Equal(one[i].W.Data, two[i].W.Data) {
			t.Fatalf("%s differs between one worker and two", one[i].Name)
		}
	}
}
