package scalar_test

import (
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/kernels/scalar"
)

// inner adds from the last product to the first, as no loop of the package does.
func inner(x, y []float32) float32 {
	sum := float32(0)
	for i := len(x) - 1; i >= 0; i-- {
		sum += float32(x[i] * y[i])
	}
	return sum
}

// differentiate computes all gradients of a call by definition, and judges them by the oracle.
func differentiate(t *testing.T, p attn.Problem, a *attn.Args, edits ...func(g *attn.Grads)) (*attn.Grads, oracle.Verdict) {
	t.Helper()
	answer(t, p, a)
	g, err := cases.NewGrads(p, a, "bshd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.FillGrads(g, 5)
	for _, edit := range edits {
		edit(g)
	}
	g.Begin()
	r := scalar.NewRowGradient(&p, inner)
	for _, at := range oracle.All(&p, a) {
		b, row := a.QRow(&p, at.B, at.I)
		r.At(a, g, at.B, at.I, at.H, inner(g.Out.Row(b, row, at.H), a.Out.Row(b, row, at.H)))
		r.AddAll()
	}
	for b := range p.Batch {
		for kv := range p.HeadsKV {
			r.RotateBack(a, g, b, kv)
		}
	}
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.JudgeGrads(g)
	if err != nil {
		t.Fatal(err)
	}
	return g, v
}

// TestRowGradient checks the gradients of all operands against the oracle.
func TestRowGradient(t *testing.T) {
	const want = attn.WantGrad | attn.WantLSE | attn.WantEntropy
	for _, f := range forms {
		p := base()
		f.add(&p)
		p.Want = want
		if _, v := differentiate(t, p, call(t, p)); !(v.Worst <= 1) || v.Judged == 0 {
			t.Errorf("%s: error is %.3g of the tolerance, %d numbers judged; %s", f.name, v.Worst, v.Judged, v.Where)
		}
	}
	for i, x := range extremes {
		if x.temp != 0 {
			continue // these have no gradients
		}
		p, a := extreme(t, i, want)
		if _, v := differentiate(t, p, a); !(v.Worst <= 1) {
			t.Errorf("%s: error is %.3g of the tolerance; %s", x.name, v.Worst, v.Where)
		}
	}
}

// TestWholeWeight checks that the gradient of the only score of a row is exactly 0. Products that
// are summed in another order than dO . O would leave a rounding error.
func TestWholeWeight(t *testing.T) {
	p := base()
	p.SeqQ, p.SeqKV, p.DimV, p.Want = 1, 1, 50, attn.WantGrad|attn.WantLSE
	g, _ := differentiate(t, p, call(t, p), func(g *attn.Grads) { g.LSE = attn.Tensor{} })
	for _, x := range [...]*attn.Tensor{&g.Q, &g.K} {
		cases.Rows(x, func(b, s, h int, row []float32) {
			if slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
				t.Errorf("batch %d row %d head %d: gradient %v, want 0", b, s, h, row)
			}
		})
	}
}

// TestSomeGradients checks that gradients that a call does not want are neither computed nor
// needed.
func TestSomeGradients(t *testing.T) {
	p := base()
	forms[slices.IndexFunc(forms, func(f form) bool { return f.name == "all" })].add(&p)
	p.Want = attn.WantGrad | attn.WantLSE | attn.WantEntropy
	for name, leave := range map[string]func(g *attn.Grads){
		"Q":       func(g *attn.Grads) { g.Q = attn.Tensor{} },
		"K":       func(g *attn.Grads) { g.K = attn.Tensor{} },
		"V":       func(g *attn.Grads) { g.V = attn.Tensor{} },
		"terms":   func(g *attn.Grads) { g.Terms = attn.Operands{} },
		"LSE":     func(g *attn.Grads) { g.LSE = attn.Tensor{} },
		"Entropy": func(g *attn.Grads) { g.Entropy = attn.Tensor{} },
		"outgoing ones": func(g *attn.Grads) {
			g.Q, g.K, g.V, g.Terms = attn.Tensor{}, attn.Tensor{}, attn.Tensor{}, attn.Operands{}
		},
	} {
		if _, v := differentiate(t, p, call(t, p), leave); !(v.Worst <= 1) {
			t.Errorf("without %s: error is %.3g of the tolerance; %s", name, v.Worst, v.Where)
		}
	}
}

// TestGradient checks the contributions of one pair, in numbers that float32 holds exactly.
func TestGradient(t *testing.T) {
	type operands struct {
		relative, metric []float32
		rope             attn.Rope
		softcap          float64
	}
	for _, c := range []struct {
		name               string
		with               operands
		dq, dk, drel, dmet []float32
	}{
		// q = (1, 2) at position 1, k = (3, 5) at 0, scale 1/2, ds = 4
		{name: "product", dq: []float32{6, 10}, dk: []float32{2, 4}},
		{name: "metric", with: operands{metric: []float32{1, 2, 3, 4}}, dq: []float32{26, 58}, dk: []float32{14, 20}, dmet: []float32{6, 10, 12, 20}},
		{name: "relative", with: operands{relative: []float32{7, 9}}, dq: []float32{6 + 14, 10 + 18}, dk: []float32{2, 4}, drel: []float32{2, 4}},
		// The query turns by a quarter to (-2, 1), and its gradient turns by a quarter back.
		{name: "rotation", with: operands{rope: attn.RopeHalves}, dq: []float32{10, -6}, dk: []float32{-4, 2}},
		// The product 6.5 is far beyond a cap of 1/8, where tanh is 1.
		{name: "softcap", with: operands{softcap: 0.125}, dq: []float32{0, 0}, dk: []float32{0, 0}},
	} {
		p := attn.Problem{
			Batch: 1, SeqQ: 1, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 1, Want: attn.WantGrad | attn.WantLSE,
			Score: attn.Score{Scale: 0.5, Terms: attn.TermBias | attn.TermALiBi, Rope: c.with.rope, Softcap: c.with.softcap},
		}
		if c.with.relative != nil {
			p.Score.Terms |= attn.TermRelative
		}
		if c.with.metric != nil {
			p.Score.Terms |= attn.TermMetric
		}
		a := call(t, p)
		copy(a.Q.Row(0, 0, 0), []float32{1, 2})
		copy(a.K.Row(0, 0, 0), []float32{3, 5})
		if c.with.relative != nil {
			copy(a.Terms.Relative.Row(0, 0, 0), c.with.relative)
		}
		for i := range 2 {
			if c.with.metric != nil {
				copy(a.Terms.Metric.Row(0, i, 0), c.with.metric[2*i:])
			}
			if c.with.rope != attn.NoRope { // a quarter turn for each position
				a.Terms.Cos.Row(0, i, 0)[0], a.Terms.Sin.Row(0, i, 0)[0] = float32(1-i), float32(i)
			}
		}
		g, err := cases.NewGrads(p, a, "bshd", nil)
		if err != nil {
			t.Fatal(err)
		}
		g.Begin()
		r := scalar.NewGradient(&p)
		r.Query(a, g, 0, 0, 0)
		r.AddScore(0, 4)
		r.AddValue(0, 3, []float32{7})
		r.Done()
		r.RotateBack(a, g, 0, 0)
		for _, x := range []struct {
			name      string
			got, want []float32
		}{
			{"dQ", g.Q.Row(0, 0, 0), c.dq},
			{"dK of the key", g.K.Row(0, 0, 0), c.dk},
			{"dK of another key", g.K.Row(0, 1, 0), []float32{0, 0}},
			{"dV", []float32{g.V.Row(0, 0, 0)[0], g.V.Row(0, 1, 0)[0]}, []float32{21, 0}},
			{"dBias", g.Terms.Bias.Row(0, 0, 0), []float32{4, 0}},
			{"dSlope", g.Terms.Slopes, []float32{-4}},
			{"dRelative", flat(&g.Terms.Relative), padded(c.drel, &a.Terms.Relative)},
			{"dMetric", flat(&g.Terms.Metric), padded(c.dmet, &a.Terms.Metric)},
		} {
			if !slices.Equal(x.got, x.want) {
				t.Errorf("%s: %s is %v, want %v", c.name, x.name, x.got, x.want)
			}
		}
	}
}

// flat returns the numbers of a tensor.
func flat(t *attn.Tensor) (all []float32) {
	cases.Rows(t, func(_, _, _ int, row []float32) { all = append(all, row...) })
	return all
}

// padded appends zeros up to the size of a tensor.
func padded(x []float32, t *attn.Tensor) []float32 {
	return append(slices.Clip(x), make([]float32, t.Size()-len(x))...)
}

// TestSound checks which queries blocked loops cannot compute.
func TestSound(t *testing.T) {
	p := base()
	p.Want = attn.WantGrad | attn.WantLSE | attn.WantEntropy
	const b, i, h = 1, 2, 3
	for _, c := range []struct {
		name     string
		edit     func(a *attn.Args, g *attn.Grads)
		incoming float32
		known    bool
		sound    bool
	}{
		{"finite", func(*attn.Args, *attn.Grads) {}, 1, false, true},
		{"no key", func(a *attn.Args, _ *attn.Grads) { a.Stats.LSE.Row(b, i, h)[0] = -inf }, 1, false, true},
		{"LSE NaN", func(a *attn.Args, _ *attn.Grads) { a.Stats.LSE.Row(b, i, h)[0] = nan }, 1, true, false},
		{"LSE infinite", func(a *attn.Args, _ *attn.Grads) { a.Stats.LSE.Row(b, i, h)[0] = inf }, 1, true, false},
		{"LSE beyond base 2", func(a *attn.Args, _ *attn.Grads) { a.Stats.LSE.Row(b, i, h)[0] = 3e38 }, 1, true, false},
		{"dO . O NaN", func(*attn.Args, *attn.Grads) {}, nan, true, false},
		{"dO . O infinite", func(*attn.Args, *attn.Grads) {}, -inf, true, false},
		{"dLSE NaN", func(_ *attn.Args, g *attn.Grads) { g.LSE.Row(b, i, h)[0] = nan }, 1, true, false},
		{"dEntropy infinite", func(_ *attn.Args, g *attn.Grads) { g.Entropy.Row(b, i, h)[0] = inf }, 1, true, false},
		{"entropy NaN", func(a *attn.Args, _ *attn.Grads) { a.Stats.Entropy.Row(b, i, h)[0] = nan }, 1, true, false},
		{"query NaN", func(a *attn.Args, _ *attn.Grads) { a.Q.Row(b, i, h)[p.Dim-1] = nan }, 1, false, false},
		{"query infinite", func(a *attn.Args, _ *attn.Grads) { a.Q.Row(b, i, h)[0] = inf }, 1, false, false},
		{"query said to be finite", func(a *attn.Args, _ *attn.Grads) { a.Q.Row(b, i, h)[0] = inf }, 1, true, true},
		{"another query NaN", func(a *attn.Args, _ *attn.Grads) { a.Q.Row(b, i-1, h)[0] = nan }, 1, false, true},
	} {
		a := call(t, p)
		for _, x := range [...]*attn.Tensor{&a.Stats.LSE, &a.Stats.Entropy} {
			x.Row(b, i, h)[0] = 1
		}
		g, err := cases.NewGrads(p, a, "bshd", nil)
		if err != nil {
			t.Fatal(err)
		}
		cases.FillGrads(g, 5)
		c.edit(a, g)
		r := scalar.NewRowGradient(&p, inner)
		r.At(a, g, b, i, h, c.incoming)
		if got := r.Sound(c.known); got != c.sound {
			t.Errorf("%s: sound is %v, want %v", c.name, got, c.sound)
		}
	}
}
