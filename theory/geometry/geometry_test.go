package geometry

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"
	"pgregory.net/rapid"

	"attnlab/theory/bilinear"
	"attnlab/theory/gibbs"
)

// drawVector returns n numbers from -2 to 2.
func drawVector(t *rapid.T, n int, name string) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(-2, 2), n, n).Draw(t, name)
}

// drawMetric returns W^T W + 1.
func drawMetric(t *rapid.T, n int, name string) *mat.SymDense {
	var g mat.SymDense
	g.SymOuterK(1, mat.NewDense(n, n, drawVector(t, n*n, name)))
	for a := range n {
		g.SetSym(a, a, g.At(a, a)+1)
	}
	return &g
}

// A failer is a testing.T or a rapid.T.
type failer interface {
	Helper()
	Errorf(string, ...any)
}

func near(t failer, what string, got, want, bound float64) {
	t.Helper()
	if !(math.Abs(got-want) <= bound) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestDerivatives checks that dual numbers and finite differences agree on a field and its symbols.
func TestDerivatives(t *testing.T) {
	for name, f := range map[string]Dual{"polar": Polar(), "half-plane": HalfPlane(), "sphere": Sphere(), "gaussians": Gaussians()} {
		rapid.Check(t, func(t *rapid.T) {
			x := []float64{rapid.Float64Range(.4, 2.5).Draw(t, "x"), rapid.Float64Range(.4, 2.5).Draw(t, "y")}
			other := Differences{G: f.At}
			for c, slope := range f.Partials(x) {
				if !mat.EqualApprox(other.Partials(x)[c], slope, 1e-7) {
					t.Errorf("%s at %v, derivative %d: %v by differences, %v by dual numbers", name, x, c, other.Partials(x)[c], slope)
				}
			}
			s, err := Christoffel(f, x)
			if err != nil {
				t.Fatal(err)
			}
			by, err := Christoffel(other, x)
			if err != nil {
				t.Fatal(err)
			}
			for c := range s {
				if !mat.EqualApprox(by[c], s[c], 1e-7) {
					t.Errorf("%s at %v, symbols %d: %v by differences, %v by dual numbers", name, x, c, by[c], s[c])
				}
			}
			for _, d := range MetricDerivative(s, f.At(x), f.Partials(x)) {
				near(t, name+": D g", mat.Norm(d, 2), 0, 1e-11)
			}
		})
	}
}

// TestChristoffel checks symbols against their closed forms.
func TestChristoffel(t *testing.T) {
	const theta, sigma = .8, 1.6
	for _, test := range []struct {
		name        string
		field       Field
		at          []float64
		upper, a, b int
		want        float64
	}{
		{"sphere", Sphere(), []float64{theta, 1}, 0, 1, 1, -math.Sin(theta) * math.Cos(theta)},
		{"sphere", Sphere(), []float64{theta, 1}, 1, 0, 1, 1 / math.Tan(theta)},
		{"sphere", Sphere(), []float64{theta, 1}, 0, 0, 1, 0},
		{"gaussians", Gaussians(), []float64{3, sigma}, 0, 0, 1, -1 / sigma},
		{"gaussians", Gaussians(), []float64{3, sigma}, 1, 0, 0, 1 / (2 * sigma)},
		{"gaussians", Gaussians(), []float64{3, sigma}, 1, 1, 1, -1 / sigma},
		{"constant", Constant(mat.NewSymDense(2, []float64{2, .5, .5, 1})), []float64{3, 4}, 1, 0, 1, 0},
	} {
		s, err := Christoffel(test.field, test.at)
		if err != nil {
			t.Fatal(err)
		}
		near(t, test.name, s[test.upper].At(test.a, test.b), test.want, 1e-14)
	}
}

// TestNoMetric checks that a field that is not positive definite at a point is refused there.
func TestNoMetric(t *testing.T) {
	for name, g := range map[string]*mat.SymDense{
		"zero":       mat.NewSymDense(2, nil),
		"indefinite": mat.NewSymDense(2, []float64{1, 0, 0, -1}),
		"rank 1":     mat.NewSymDense(2, []float64{1, 2, 2, 4}),
		"NaN":        mat.NewSymDense(2, []float64{1, 0, 0, math.NaN()}),
	} {
		if volume, err := Volume(g); err == nil || !math.IsNaN(volume) {
			t.Errorf("%s has the volume %v, %v", name, volume, err)
		}
		if _, err := Christoffel(Constant(g), []float64{1, 2}); err == nil || !strings.Contains(err.Error(), "at [1 2]: bilinear: metric") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Geodesic(Dual(func(x []dual.Number) [][]dual.Number { // it ends at x = 1
		return diagonal(dual.Number{Real: 1}, dual.Sub(dual.Number{Real: 1}, x[0]))
	}), Motion{[]float64{0, 0}, []float64{1, 0}}, 3, 30)
	if err == nil || !strings.Contains(err.Error(), "at [1") {
		t.Errorf("a geodesic out of the field: %v", err)
	}
	if _, err := Geodesic(Polar(), Motion{[]float64{1, 0}, []float64{1, 0}}, 1, 0); err == nil {
		t.Error("a geodesic of no steps")
	}
}

// TestShapesAreNamed checks that a panic names the operand that does not fit.
func TestShapesAreNamed(t *testing.T) {
	g := mat.NewSymDense(2, []float64{1, 0, 0, 1})
	for what, f := range map[string]func(){
		"v has 1 numbers":             func() { VectorDerivative(Symbols{g, g}, make([]float64, 1), mat.NewDense(2, 2, nil)) },
		"u has 3 numbers":             func() { CovectorDerivative(Symbols{g, g}, make([]float64, 3), mat.NewDense(2, 2, nil)) },
		"dg has 1 numbers":            func() { MetricDerivative(Symbols{g, g}, g, []*mat.SymDense{g}) },
		"U has 1 numbers":             func() { _, _ = Geodesic(Polar(), Motion{[]float64{1, 0}, []float64{1}}, 1, 1) },
		"J has 3 rows":                func() { Pull(g, mat.NewDense(3, 2, nil)) },
		"the gradient has 3 numbers":  func() { _, _ = Natural(g, make([]float64, 3), 0) },
		"2 probabilities for 3 score": func() { Expected([]float64{.5, .5}, mat.NewDense(3, 2, nil)) },
		"3 parameters, want 2":        func() { OfQueries(g, 1, 1).Loss(make([]float64, 3), g) },
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

// TestVolume checks that in other coordinates, x = J y, the unit cube measures |det J| times as
// much. It also checks that the logarithm stays finite where the volume underflows.
func TestVolume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, j := drawMetric(t, 3, "g"), mat.NewDense(3, 3, drawVector(t, 9, "J"))
		for i := range 3 {
			j.Set(i, i, j.At(i, i)+7)
		}
		before, err := Volume(g)
		if err != nil {
			t.Fatal(err)
		}
		after, err := Volume(Pull(g, j))
		if err != nil {
			t.Fatal(err)
		}
		near(t, "volume", after/before/math.Abs(mat.Det(j)), 1, 1e-10)
	})
	const d = 512
	g := mat.NewSymDense(d, nil)
	for a := range d {
		g.SetSym(a, a, 1/math.Sqrt(d))
	}
	volume, err := Volume(g)
	if volume != 0 || err != nil {
		t.Errorf("the volume in %d dimensions is %v, %v", d, volume, err)
	}
	volume, err = LogVolume(g)
	near(t, "log volume", volume, -d/4*math.Log(d), 1e-9)
	if err != nil {
		t.Error(err)
	}
}

// TestGeodesicOrder checks that twice the steps leave a sixteenth of the error, and that a great
// circle returns to its start.
func TestGeodesicOrder(t *testing.T) {
	start := Motion{[]float64{math.Pi / 2, 0}, []float64{.6, .8}}
	err := func(steps int) float64 {
		path, err := Geodesic(Sphere(), start, 1, steps)
		if err != nil {
			t.Fatal(err)
		}
		// The circle through the equator, in space: cos t e_x + sin t (0.8 e_y - 0.6 e_z).
		x := path[steps].X
		s, c := math.Sincos(1)
		return math.Abs(math.Sin(x[0])*math.Cos(x[1])-c) + math.Abs(math.Sin(x[0])*math.Sin(x[1])-.8*s) + math.Abs(math.Cos(x[0])+.6*s)
	}
	if ratio := err(10) / err(20); ratio < 12 || ratio > 20 {
		t.Errorf("10 steps have %v times the error of 20", ratio)
	}
	path, _ := Geodesic(Sphere(), start, 2*math.Pi, 400)
	if back := path[400]; !floats.EqualApprox(back.X, []float64{math.Pi / 2, 2 * math.Pi}, 1e-7) || !floats.EqualApprox(back.U, start.U, 1e-7) {
		t.Errorf("once around: %v", back)
	}
	if !floats.Equal(path[0].X, start.X) {
		t.Error("the path does not begin at the start")
	}
}

// TestGeodesicIsShortest checks that a geodesic is shorter than a nearby curve between the same
// points, and has the known length in the half-plane.
func TestGeodesicIsShortest(t *testing.T) {
	f := HalfPlane()
	circle := func(t float64) []float64 { return []float64{math.Tanh(t), 1 / math.Cosh(t)} }
	least := ArcLength(f, circle, -1, 1, 20)
	near(t, "length", least, 2, 1e-10)
	a, b := circle(-1), circle(1)
	near(t, "distance", math.Acosh(1+math.Pow(floats.Distance(a, b, 2), 2)/(2*a[1]*b[1])), least, 1e-10)
	for _, off := range []float64{-.3, -.01, .01, .3} {
		beside := func(t float64) []float64 {
			x := circle(t)
			x[1] += off * (1 - t*t)
			return x
		}
		if l := ArcLength(f, beside, -1, 1, 20); l <= least+1e-6 {
			t.Errorf("%v beside it the length is %v, along it %v", off, l, least)
		}
	}
}

// TestLeibniz checks the product rule d_a(u_b v^b) = (D_a u_b) v^b + u_b D_a v^b.
func TestLeibniz(t *testing.T) {
	u := func(x []dual.Number) []dual.Number { return []dual.Number{dual.Mul(x[0], x[1]), dual.Sin(x[0])} }
	v := func(x []dual.Number) []dual.Number { return []dual.Number{dual.Exp(x[1]), dual.Mul(x[0], x[0])} }
	at := []float64{.7, 1.3}
	s, err := Christoffel(HalfPlane(), at)
	if err != nil {
		t.Fatal(err)
	}
	cov, du := DualPartials(u, at)
	vec, dv := DualPartials(v, at)
	cu, cv := CovectorDerivative(s, cov, du), VectorDerivative(s, vec, dv)
	for a := range 2 {
		plain, both := 0.0, 0.0
		for b := range 2 {
			plain += du.At(a, b)*vec[b] + cov[b]*dv.At(a, b)
			both += cu.At(a, b)*vec[b] + cov[b]*cv.At(a, b)
		}
		near(t, "d(u.v)", both, plain, 1e-14)
	}
	if mat.EqualApprox(cv, dv, 1e-3) {
		t.Error("the derivative of v is the plain one")
	}
	plain := Partials(func(x []float64) []float64 { y, _ := DualPartials(v, x); return y }, at)
	if !mat.EqualApprox(plain, dv, 1e-10) {
		t.Errorf("partial derivatives %v by differences, %v by dual numbers", plain, dv)
	}
}

// TestCategorical checks that the information of softmax is the second derivative of the
// divergence, and agrees with the definition.
func TestCategorical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "n")
		logits, temp := drawVector(t, n, "logits"), rapid.Float64Range(.5, 3).Draw(t, "T")
		p, f := gibbs.Softmax(logits, temp), Categorical(logits, temp)
		scores := Partials(func(x []float64) []float64 { return gibbs.LogSoftmax(x, temp) }, logits)
		if by := Expected(p, scores.T()); !mat.EqualApprox(f, by, 1e-9) {
			t.Errorf("information %v, by its definition %v", f, by)
		}
		var second mat.SymDense
		fd.Hessian(&second, func(x []float64) float64 {
			sum := 0.0
			for j, l := range gibbs.LogSoftmax(x, temp) {
				sum -= p[j] * l
			}
			return sum
		}, logits, &fd.Settings{Formula: fd.Central, Step: 1e-4})
		if !mat.EqualApprox(f, &second, 1e-5) {
			t.Errorf("information %v, second derivative of the divergence %v", f, second)
		}
		shift := drawVector(t, 1, "shift")[0]
		if !mat.EqualApprox(f, Categorical(floats.AddTo(make([]float64, n), logits, slicesOf(n, shift)), temp), 1e-12) {
			t.Error("a shift of the logits changes it")
		}
	})
}

func slicesOf(n int, x float64) []float64 {
	to := make([]float64, n)
	floats.AddConst(x, to)
	return to
}

// TestGaussians checks the information against integrals over outcomes, with derivatives by
// differences.
func TestGaussians(t *testing.T) {
	const mu, sigma = -.7, .6
	logP := func(x []float64, y float64) float64 { return -math.Pow((y-x[0])/x[1], 2)/2 - math.Log(x[1]) }
	f := Gaussians().At([]float64{mu, sigma})
	for i := range 2 {
		for j := range 2 {
			got := quad.Fixed(func(y float64) float64 {
				g := fd.Gradient(nil, func(x []float64) float64 { return logP(x, y) }, []float64{mu, sigma}, &fd.Settings{Formula: fourPoints})
				return math.Exp(logP([]float64{mu, sigma}, y)) / math.Sqrt(2*math.Pi) * g[i] * g[j]
			}, mu-9*sigma, mu+9*sigma, 80, quad.Legendre{}, 0)
			near(t, "information", got, f.At(i, j), 1e-7)
		}
	}
}

// TestPull checks that pulled-back metrics give the inner products of the mapped vectors.
func TestPull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, j := drawMetric(t, 3, "g"), mat.NewDense(3, 2, drawVector(t, 6, "J"))
		u, v := drawVector(t, 2, "u"), drawVector(t, 2, "v")
		through := func(x []float64) []float64 {
			var y mat.VecDense
			y.MulVec(j, mat.NewVecDense(2, x))
			return y.RawVector().Data
		}
		near(t, "u.v", bilinear.Form(u, Pull(g, j), v), bilinear.Form(through(u), g, through(v)), 1e-10)
	})
}

// TestNatural checks natural gradients with singular information, and with damping.
func TestNatural(t *testing.T) {
	g := []float64{1, -2}
	for _, test := range []struct {
		name    string
		f       *mat.SymDense
		damping float64
		want    []float64
	}{
		{"the identity", mat.NewSymDense(2, []float64{1, 0, 0, 1}), 0, []float64{1, -2}},
		{"lengths", mat.NewSymDense(2, []float64{2, 0, 0, 8}), 0, []float64{.5, -.25}},
		{"damped", mat.NewSymDense(2, []float64{2, 0, 0, 7}), 1, []float64{1. / 3, -.25}},
		{"one direction", mat.NewSymDense(2, []float64{4, 0, 0, 0}), 0, []float64{.25, 0}},
		{"one direction, damped", mat.NewSymDense(2, []float64{3, 0, 0, 0}), 1, []float64{.25, -2}},
		{"no information", mat.NewSymDense(2, nil), 0, []float64{0, 0}},
		{"across", mat.NewSymDense(2, []float64{1, -1, -1, 1}), 0, []float64{.75, -.75}},
	} {
		got, err := Natural(test.f, g, test.damping)
		if err != nil || !floats.EqualApprox(got, test.want, 1e-14) {
			t.Errorf("%s: %v, %v, want %v", test.name, got, err, test.want)
		}
	}
	f := mat.NewSymDense(2, []float64{1, 0, 0, -1})
	for _, damping := range []float64{-1, math.NaN(), .5} {
		if got, err := Natural(f, g, damping); err == nil {
			t.Errorf("damping %v: %v", damping, got)
		}
	}
	if got, err := Natural(mat.NewSymDense(2, []float64{math.NaN(), 0, 0, 1}), g, 0); err == nil {
		t.Errorf("NaN: %v", got)
	}
	if !floats.Equal(g, []float64{1, -2}) {
		t.Error("the gradient was changed")
	}
}

// TestNaturalIsInvariant checks that a linear change of parameters changes no step, if the
// information is positive definite.
func TestNaturalIsInvariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		f, g := drawMetric(t, n, "F"), drawVector(t, n, "g")
		b := mat.NewDense(n, n, drawVector(t, n*n, "B"))
		for i := range n {
			b.Set(i, i, b.At(i, i)+7) // well away from singular
		}
		direct, err := Natural(f, g, 0)
		if err != nil {
			t.Fatal(err)
		}
		var gradient, back mat.VecDense
		gradient.MulVec(b.T(), mat.NewVecDense(n, g))
		phi, err := Natural(Pull(f, b), gradient.RawVector().Data, 0)
		if err != nil {
			t.Fatal(err)
		}
		back.MulVec(b, mat.NewVecDense(n, phi))
		if !floats.EqualApprox(back.RawVector().Data, direct, 1e-10) {
			t.Errorf("%v through other parameters, %v directly", back.RawVector().Data, direct)
		}
	})
}

// TestLogLinear checks that gradient and information are the first two derivatives of the loss.
func TestLogLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nq, nk, d = 2, 3, 2
		q, k := mat.NewDense(nq, d, drawVector(t, nq*d, "Q")), mat.NewDense(nk, d, drawVector(t, nk*d, "K"))
		theta, other := drawVector(t, nq*d, "theta"), drawVector(t, nq*d, "target")
		for name, m := range map[string]LogLinear{"queries": OfQueries(k, nq, .7), "metric": OfMetric(q, k, .7)} {
			var pattern mat.Dense
			pattern.CloneFrom(m.Weights(other))
			near(t, name+": the loss at the target", m.Loss(other, &pattern), 0, 1e-13)
			if l := m.Loss(theta, &pattern); l < -1e-13 {
				t.Errorf("%s: the loss is %v", name, l)
			}
			first := Partials(func(x []float64) []float64 { return []float64{m.Loss(x, &pattern)} }, theta)
			if g := m.Gradient(theta, &pattern); !floats.EqualApprox(g, mat.Col(nil, 0, first), 1e-7) {
				t.Errorf("%s: gradient %v, by differences %v", name, g, first)
			}
			second := Partials(func(x []float64) []float64 { return m.Gradient(x, &pattern) }, theta)
			if f := m.Fisher(theta); !mat.EqualApprox(f, second, 1e-7) {
				t.Errorf("%s: information %v, second derivative by differences %v", name, f, second)
			}
		}
		b := mat.NewDense(4, 3, drawVector(t, 12, "B"))
		phi := drawVector(t, 3, "phi")
		var through mat.VecDense
		through.MulVec(b, mat.NewVecDense(3, phi))
		m := OfMetric(q, k, .7)
		if direct := m.Scores(through.RawVector().Data); !mat.EqualApprox(m.Through(b).Scores(phi), direct, 1e-12) {
			t.Errorf("through other parameters: %v, want %v", m.Through(b).Scores(phi), direct)
		}

		// Compare the scores with their definitions.
		queries := OfQueries(k, nq, .7).Scores(theta)
		metric := OfMetric(q, k, .7).Scores(theta)
		for i := range nq {
			for j := range nk {
				dot, form := 0.0, 0.0
				for a := range d {
					dot += .7 * theta[i*d+a] * k.At(j, a)
					for b := range d {
						form += .7 * q.At(i, a) * theta[a*d+b] * k.At(j, b)
					}
				}
				near(t, "q.k", queries.At(i, j), dot, 1e-12)
				near(t, "q.M.k", metric.At(i, j), form, 1e-12)
			}
		}
	})
}

// TestLogLinearFarAway checks that the loss stays finite for a pattern of zeros and ones, where
// weights underflow.
func TestLogLinearFarAway(t *testing.T) {
	m := OfQueries(mat.NewDense(2, 1, []float64{1, -1}), 1, 1)
	pattern := mat.NewDense(1, 2, []float64{0, 1})
	near(t, "loss", m.Loss([]float64{500}, pattern), 1000, 1e-9)
	path, err := m.Descend([]float64{0}, pattern, Descent{Rate: 1, Steps: 3})
	if err != nil || len(path) != 4 || path[0].Theta[0] != 0 {
		t.Fatalf("%v, %v", path, err)
	}
	for i := 1; i < len(path); i++ {
		if m.Loss(path[i].Theta, pattern) >= m.Loss(path[i-1].Theta, pattern) {
			t.Errorf("step %d does not go down", i)
		}
	}
	if _, err := m.Descend([]float64{0}, pattern, Descent{Natural: true, Damping: -1, Steps: 1}); err == nil {
		t.Error("a negative damping is taken")
	}
}
