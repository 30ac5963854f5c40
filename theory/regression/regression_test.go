package regression

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/theory/bridge"
)

var inf = math.Inf(1)

// draw returns a matrix of numbers from -2 to 2.
func draw(t *rapid.T, name string, r, k int) *mat.Dense {
	return mat.NewDense(r, k, rapid.SliceOfN(rapid.Float64Range(-2, 2), r*k, r*k).Draw(t, name))
}

// A failer is a testing.T or a rapid.T.
type failer interface {
	Helper()
	Errorf(string, ...any)
}

func near(t failer, what string, got, want, bound float64) {
	t.Helper()
	if got != want && !(math.Abs(got-want) <= bound) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func nearAll(t failer, what string, got, want mat.Matrix, bound float64) {
	t.Helper()
	if !mat.EqualApprox(got, want, bound) {
		t.Errorf("%s: %v, want %v", what, mat.Formatted(got), mat.Formatted(want))
	}
}

// TestKernels checks weights at known distances, and at the edge of kernels with bounded support.
func TestKernels(t *testing.T) {
	q := []float64{1, 2}
	at := func(r float64) []float64 { return []float64{1, 2 + r} }
	for _, test := range []struct {
		name   string
		kernel Kernel
		r      float64
		want   float64
	}{
		{"Gaussian", Gaussian(2), 4, math.Exp(-2)},
		{"Laplace", Laplace(2), 3, math.Exp(-1.5)},
		{"Cauchy", Cauchy(2), 4, 1. / 5},
		{"Epanechnikov", Epanechnikov(2), 1, .75},
		{"Triangle", Triangle(2), 1, .5},
		{"Box", Box(2), 1.9, 1},
		{"Gaussian, here", Gaussian(2), 0, 1},
		{"Epanechnikov, the edge", Epanechnikov(2), 2, 0},
		{"Triangle, the edge", Triangle(2), 2, 0},
		{"Box, the edge", Box(2), 2, 0},
		{"Box, far", Box(2), 50, 0},
	} {
		near(t, test.name, math.Exp(test.kernel(q, at(test.r))), test.want, 1e-15)
		near(t, test.name+", turned", test.kernel(at(test.r), q), test.kernel(q, at(test.r)), 1e-15)
	}
	near(t, "exp-dot", ExpDot(0)(q, at(1)), (1+6)/math.Sqrt2, 1e-15)
	near(t, "exp-dot with a scale", ExpDot(3)(q, at(1)), 21, 0)
	for _, h := range []float64{0, -1, math.NaN()} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "bandwidth") {
					t.Errorf("bandwidth %v: %q", h, text)
				}
			}()
			Gaussian(h)
		}()
	}
}

// TestRegress checks that any kernel's regression is a mean of values weighted by K, and that a
// Gaussian's is attention with a bias.
func TestRegress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nq, nk := rapid.IntRange(1, 4).Draw(t, "nq"), rapid.IntRange(1, 5).Draw(t, "nk")
		q, k, v := draw(t, "Q", nq, 3), draw(t, "K", nk, 3), draw(t, "V", nk, 2)
		h := rapid.Float64Range(.5, 4).Draw(t, "h")
		for name, f := range map[string]Kernel{"exp-dot": ExpDot(0), "Gaussian": Gaussian(h), "Cauchy": Cauchy(h), "Box": Box(h), "Triangle": Triangle(h)} {
			want := mat.NewDense(nq, 2, nil)
			for i := range nq {
				sum := 0.0
				for j := range nk {
					w := math.Exp(f(q.RawRowView(i), k.RawRowView(j)))
					sum += w
					floats.AddScaled(want.RawRowView(i), w, v.RawRowView(j))
				}
				if sum > 0 {
					floats.Scale(1/sum, want.RawRowView(i))
				}
			}
			nearAll(t, name, f.Regress(q, k, v), want, 1e-11)
		}
		bias := GaussianBias(k, h)
		biased := Kernel(func(q, key []float64) float64 {
			j := slices.IndexFunc(rowsOf(k), func(row []float64) bool { return floats.Equal(row, key) })
			return floats.Dot(q, key)/(h*h) + bias[j]
		})
		nearAll(t, "attention with a bias", biased.Regress(q, k, v), Gaussian(h).Regress(q, k, v), 1e-12)
	})
}

// TestRegressAtLimits checks that a small bandwidth returns the nearest value and a large one the
// mean of all. A query without a near key has a zero row, and large scores do not overflow.
func TestRegressAtLimits(t *testing.T) {
	q := mat.NewDense(2, 1, []float64{.2, 9})
	k, v := mat.NewDense(3, 1, []float64{0, 1, 2}), mat.NewDense(3, 1, []float64{3, 6, 12})
	for _, test := range []struct {
		name   string
		kernel Kernel
		want   []float64
	}{
		{"nearest", Gaussian(1e-3), []float64{3, 12}},
		{"mean", Gaussian(1e6), []float64{7, 7}},
		{"box", Box(1.5), []float64{4.5, 0}},
		{"nothing near", Triangle(.1), []float64{0, 0}},
		{"large scores", ExpDot(1e4), []float64{12, 12}},
	} {
		nearAll(t, test.name, test.kernel.Regress(q, k, v), mat.NewDense(2, 1, test.want), 1e-9)
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "queries of 1 numbers and keys of 2") {
			t.Errorf("panic %q", text)
		}
	}()
	Box(1).Regress(q, mat.NewDense(3, 2, nil), v)
}

// TestGram checks that Gram matrices of positive kernels have no negative eigenvalue at any points.
func TestGram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := draw(t, "x", rapid.IntRange(1, 7).Draw(t, "n"), 2)
		for name, f := range map[string]Kernel{"exp-dot": ExpDot(0), "Gaussian": Gaussian(.9), "Laplace": Laplace(.9), "Cauchy": Cauchy(.9)} {
			g, err := Gram(f, x)
			if err != nil {
				t.Fatal(err)
			}
			values, err := Spectrum(g)
			if err != nil {
				t.Fatal(err)
			}
			if least, most := values[0], values[len(values)-1]; least < -1e-12*most {
				t.Errorf("%s: eigenvalues from %v to %v", name, least, most)
			}
		}
	})
	// Three points of which only neighbours are near: 1 - sqrt(2) times the weight of neighbours.
	x := mat.NewDense(3, 1, []float64{0, .5, 1})
	for name, test := range map[string]struct {
		kernel Kernel
		least  float64
	}{"Box": {Box(1), 1 - math.Sqrt2}, "Epanechnikov": {Epanechnikov(1), 1 - .75*math.Sqrt2}, "Triangle": {Triangle(1), 1 - .5*math.Sqrt2}} {
		g, _ := Gram(test.kernel, x)
		values, err := Spectrum(g)
		if err != nil {
			t.Fatal(err)
		}
		near(t, name, values[0], test.least, 1e-14)
	}
	if _, err := Gram(func(q, k []float64) float64 { return q[0] }, x); err == nil || !strings.Contains(err.Error(), "not symmetric") {
		t.Errorf("a kernel that is not symmetric: %v", err)
	}
	if _, err := Spectrum(mat.NewSymDense(2, []float64{1, math.NaN(), math.NaN(), 1})); err == nil {
		t.Error("a matrix with a NaN has eigenvalues")
	}
}

// TestFeatures checks the named features at known numbers.
func TestFeatures(t *testing.T) {
	for _, test := range []struct {
		name string
		x, y float64
	}{
		{"elu+1", 2, 3},
		{"elu+1", 0, 1},
		{"elu+1", -1, math.Exp(-1)},
		{"relu+1", 2, 3},
		{"relu+1", -2, 1},
		{"lesson", -2, 1},
		{"relu", 2, 2 + 1e-6},
		{"relu", -2, 1e-6},
		{"softplus", 0, math.Ln2},
		{"softplus", 800, 800},
		{"softplus", -800, 0},
		{"square", -3, 9},
		{"exp", -1, math.Exp(-1)},
		{"identity", -3, -3},
	} {
		l, err := ByName(test.name)
		if err != nil {
			t.Fatal(err)
		}
		near(t, test.name, l.Feature.Features([]float64{7, test.x})[1], test.y, 1e-15)
	}
	if _, err := ByName("gelu"); err == nil || !strings.Contains(err.Error(), "elu+1, relu+1, lesson") {
		t.Errorf("unknown features: %v", err)
	}
	if lesson, _ := ByName("lesson"); lesson.Eps != 1e-6 {
		t.Errorf("the lesson adds %v", lesson.Eps)
	}
}

// TestFeaturesOfAttn checks that the features of package attn exist here under the same names and
// agree, full and causal.
func TestFeaturesOfAttn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nk := rapid.IntRange(1, 6).Draw(t, "nk")
		nq := rapid.IntRange(1, nk).Draw(t, "nq")
		q, k, v := bridge.Float32(draw(t, "Q", nq, 2)), bridge.Float32(draw(t, "K", nk, 2)), bridge.Float32(draw(t, "V", nk, 3))
		for f := attn.EluPlusOne; f < attn.Identity; f++ {
			l, err := ByName(f.String())
			if err != nil {
				t.Fatal(err)
			}
			l.Eps = 1e-3
			for mask, got := range map[attn.Mask]*mat.Dense{attn.Full(): l.Attend(q, k, v), attn.Causal(): l.Causal(q, k, v)} {
				p := attn.Problem{Op: attn.OpLinear, Linear: attn.Linear{Feature: f, Eps: 1e-3}, Mask: mask}
				want, err := bridge.Attention{}.Attend(bridge.Call{Q: q, K: k, V: v, Problem: p})
				if err != nil {
					t.Fatal(err)
				}
				nearAll(t, f.String()+", "+mask.String(), got, want.O.X, 1e-12)
			}
		}
	})
	if l, err := ByName(attn.Identity.String()); err != nil || l.Feature.Features([]float64{-2})[0] != -2 {
		t.Errorf("identity: %v", err)
	}
}

// TestLinear checks that both orders of summation agree, and that states of parts of the keys merge
// into the state of all keys.
func TestLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nq, nk := rapid.IntRange(1, 4).Draw(t, "nq"), rapid.IntRange(1, 6).Draw(t, "nk")
		q, k, v := draw(t, "Q", nq, 3), draw(t, "K", nk, 3), draw(t, "V", nk, 2)
		l := Linear{Elementwise(Softplus), rapid.SampledFrom([]float64{0, .5}).Draw(t, "eps")}
		pairs := l.Pairwise(q, k, v)
		nearAll(t, "keys summed first", l.Attend(q, k, v), pairs, 1e-12)
		cut := rapid.IntRange(0, nk).Draw(t, "cut")
		first, second := l.Start(k, v), l.Start(k, v)
		for j := range nk {
			part := first
			if j >= cut {
				part = second
			}
			part.Absorb(k.RawRowView(j), v.RawRowView(j))
		}
		first.Merge(second)
		if first.Keys != nk {
			t.Errorf("%d keys of %d", first.Keys, nk)
		}
		nearAll(t, "merged", mat.NewDense(1, 2, first.Answer(q.RawRowView(0))), pairs.Slice(0, 1, 0, 2), 1e-12)
	})
}

// TestCausal checks linear attention under a causal mask, also for a query before all keys.
func TestCausal(t *testing.T) {
	l, _ := ByName("elu+1")
	k, v := mat.NewDense(2, 1, []float64{0, 1}), mat.NewDense(2, 1, []float64{3, 6})
	// Three queries of two keys: the first query is before both keys.
	got := l.Causal(mat.NewDense(3, 1, nil), k, v)
	nearAll(t, "causal", got, mat.NewDense(3, 1, []float64{0, 3, (3 + 2*6) / 3.}), 1e-15)
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "2 keys and 3 values") {
			t.Errorf("panic %q", text)
		}
	}()
	l.Attend(k, k, mat.NewDense(3, 1, nil))
}

// TestProducts checks the counts against loops of the two orders.
func TestProducts(t *testing.T) {
	const nq, nk, f, dv = 3, 5, 2, 4
	pairwise, summed := 0, 0
	for range nq * nk {
		pairwise += f + dv + 1 // a weight, its value and its sum
	}
	for range nk {
		summed += f*dv + f // into X, and into z
	}
	for range nq {
		summed += f*dv + f // out of both
	}
	if p, s := Products(nq, nk, f, dv); p != pairwise || s != summed {
		t.Errorf("%d and %d, want %d and %d", p, s, pairwise, summed)
	}
}

// TestDirections checks the moments of the directions, and that the seed determines them.
func TestDirections(t *testing.T) {
	const m, d = 4000, 5
	for name, draw := range map[string]func(m, d int, seed uint64) *mat.Dense{"independent": Directions, "orthogonal": Orthogonal} {
		w := draw(m, d, 3)
		if !mat.Equal(w, draw(m, d, 3)) || mat.Equal(w, draw(m, d, 4)) {
			t.Errorf("%s: the seed does not decide the directions", name)
		}
		for a := range d {
			mean, variance := stat.MeanVariance(mat.Col(nil, a, w), nil)
			near(t, name+": mean", mean, 0, 5/math.Sqrt(m))
			near(t, name+": variance", variance, 1, 5*math.Sqrt(2./m))
			near(t, name+": fourth moment", stat.MomentAbout(4, mat.Col(nil, a, w), 0, nil), 3, 5*math.Sqrt(96./m))
		}
	}
	w := Orthogonal(8, 3, 1) // blocks of 3, 3 and 2
	for i := range 8 {
		for j := range i {
			dot := floats.Dot(w.RawRowView(i), w.RawRowView(j))
			if i/3 == j/3 && math.Abs(dot) > 1e-13 {
				t.Errorf("directions %d and %d have the product %v", i, j, dot)
			}
			if i/3 != j/3 && math.Abs(dot) < 1e-9 {
				t.Errorf("directions %d and %d are orthogonal", i, j)
			}
		}
	}
}

// TestPairMoment checks Kummer's series against closed forms.
func TestPairMoment(t *testing.T) {
	for _, x := range []float64{-2, -.3, 0, .3, 2, 12} {
		near(t, "d = 2", pairMoment(2, x)/math.Exp(x), 1+x, 1e-12*math.Exp(2*math.Abs(min(x, 0)))*(1+math.Abs(x)))
		near(t, "d = 4", pairMoment(4, x)/math.Exp(x), 1+x+x*x/6, 1e-12*math.Exp(2*math.Abs(min(x, 0)))*(1+x*x))
	}
}

// TestRandom checks that the estimators are exact on average with the error that Variance predicts,
// and that orthogonal directions reduce it.
func TestRandom(t *testing.T) {
	const draws = 6000
	x, y := []float64{.4, -.3, .5}, []float64{.2, .6, -.4}
	for _, kind := range []Estimator{Trig, Positive, Hyperbolic} {
		for name, draw := range map[string]func(m, d int, seed uint64) *mat.Dense{"independent": Directions, "orthogonal": Orthogonal} {
			e := make([]float64, draws)
			for i := range e {
				f := Random{Kind: kind, W: draw(4, 3, uint64(i)), Scale: 0}
				e[i] = floats.Dot(f.Features(x), f.Features(y))
			}
			mean, variance := stat.MeanVariance(e, nil)
			want := kind.Variance(x, y, 4, name == "orthogonal")
			near(t, kind.String()+", "+name+": mean", mean, math.Exp(floats.Dot(x, y)), 5*math.Sqrt(want/draws))
			spread := math.Sqrt((stat.MomentAbout(4, e, mean, nil) - variance*variance) / draws)
			near(t, kind.String()+", "+name+": variance", variance, want, 5*spread)
		}
	}
	// The points where the estimate is exact.
	opposite := floats.ScaleTo(make([]float64, 3), -1, x)
	near(t, "trig, x = y", Trig.Variance(x, x, 1, false), 0, 0)
	near(t, "positive, x = -y", Positive.Variance(x, opposite, 6, true), 0, 1e-16)
	near(t, "hyperbolic, x = -y", Hyperbolic.Variance(x, opposite, 1, false), 0, 0)
}

// TestRandomAttention checks that random features approximate softmax attention, with Scale as the
// scale of the scores.
func TestRandomAttention(t *testing.T) {
	q, k, v := Directions(3, 4, 1), Directions(5, 4, 2), Directions(5, 2, 3)
	exact := ExpDot(0).Regress(q, k, v)
	off := func(m int) float64 {
		l := Linear{Feature: Random{Kind: Positive, W: Orthogonal(m, 4, 9), Scale: .5}}
		var d mat.Dense
		d.Sub(l.Attend(q, k, v), exact)
		return mat.Norm(&d, inf)
	}
	if few, many := off(16), off(40000); many > .05 || many > few/4 {
		t.Errorf("16 features are %v off, 40000 are %v off", few, many)
	}
}

// TestRandomRefuses checks that directions of another dimension and unknown estimators cause a
// panic.
func TestRandomRefuses(t *testing.T) {
	for what, f := range map[string]func(){
		"directions in 2 dimensions": func() { Random{W: Directions(3, 2, 1)}.Features(make([]float64, 3)) },
		"estimator(7)":               func() { Random{Kind: 7, W: Directions(1, 1, 1)}.Features(make([]float64, 1)) },
		"unknown estimator(7)":       func() { Estimator(7).Variance([]float64{1}, []float64{1}, 1, false) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, what) {
					t.Errorf("panic %q, want %q in it", text, what)
				}
			}()
			f()
		}()
	}
}
