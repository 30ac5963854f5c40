package bilinear_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"attnlab/theory/bilinear"
	"attnlab/theory/tensor"
)

// vector returns standard normal numbers.
func vector(r *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	return v
}

func matrix(r *rand.Rand, rows, columns int) *mat.Dense {
	return mat.NewDense(rows, columns, vector(r, rows*columns))
}

// metric returns a random metric that is not close to a singular one.
func metric(t interface{ Fatal(...any) }, r *rand.Rand, d int) *bilinear.Metric {
	g := bilinear.Learned{W: matrix(r, d+2, d)}.Form()
	for i := range d {
		g.SetSym(i, i, g.At(i, i)+.5)
	}
	m, err := bilinear.New(g)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tol) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

// TestForms checks every form against its contraction, for rectangular matrices too.
func TestForms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	u, v, m := vector(r, 2), vector(r, 3), matrix(r, 2, 3)
	us, vs, four := matrix(r, 4, 2), matrix(r, 5, 3), matrix(r, 4, 3)
	square := matrix(r, 3, 3)
	near(t, "Pair", []float64{bilinear.Pair(v, four.RawRowView(0))}, []float64{tensor.Dot(v, four.RawRowView(0))}, 1e-14)
	near(t, "Form", []float64{bilinear.Form(u, m, v)}, []float64{tensor.BilinearForm(u, m, v)}, 1e-14)
	near(t, "Quadratic", []float64{bilinear.Quadratic(v, square)}, []float64{tensor.BilinearForm(v, square, v)}, 1e-14)
	near(t, "Forms", bilinear.Forms(us, m, vs).RawMatrix().Data, tensor.BatchBilinearForm(us, m, vs).RawMatrix().Data, 1e-14)
	y, err := tensor.Einsum("ia,ab,ib->i", tensor.Matrix(us), tensor.Matrix(m), tensor.Matrix(four))
	if err != nil {
		t.Fatal(err)
	}
	near(t, "RowForms", bilinear.RowForms(us, m, four), y.Data(), 1e-14)

	var even mat.Dense
	even.Add(square, square.T())
	even.Scale(.5, &even)
	near(t, "the symmetric part", []float64{bilinear.Quadratic(v, &even)}, []float64{bilinear.Quadratic(v, square)}, 1e-14)
	if x := bilinear.Form([]float64{1, 2}, mat.NewDense(2, 2, []float64{1, 2, 3, 4}), []float64{3, 4}); x != 61 {
		t.Errorf("form %v, want 61", x)
	}
}

// TestMetric checks a metric's methods against their equations, that raising undoes lowering, and
// that angles agree with cosines.
func TestMetric(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for d := 1; d <= 6; d++ {
		m := metric(t, r, d)
		u, v := vector(r, d), vector(r, d)
		g := m.Matrix()
		inner := tensor.BilinearForm(u, g, v)
		near(t, "Inner", []float64{m.Inner(u, v), m.Inner(v, u)}, []float64{inner, inner}, 1e-12)
		near(t, "Norm", []float64{m.Norm(u) * m.Norm(u)}, []float64{tensor.BilinearForm(u, g, u)}, 1e-12)
		near(t, "Lower", m.Lower(v), tensor.MatMul(g, mat.NewVecDense(d, v)).RawMatrix().Data, 1e-12)
		near(t, "Raise", m.Raise(m.Lower(v)), v, 1e-12)
		near(t, "Pair with the lowered", []float64{bilinear.Pair(m.Lower(u), v)}, []float64{inner}, 1e-12)
		near(t, "Inverse", tensor.MatMul(m.Inverse(), g).RawMatrix().Data, tensor.Delta(d).Data(), 1e-12)

		rows := matrix(r, 4, d)
		low, high := m.LowerRows(rows), m.RaiseRows(rows)
		for i := range 4 {
			near(t, "LowerRows", low.RawRowView(i), m.Lower(rows.RawRowView(i)), 1e-12)
			near(t, "RaiseRows", high.RawRowView(i), m.Raise(rows.RawRowView(i)), 1e-12)
		}

		square := m.Inner(u, u) - 2*inner + m.Inner(v, v)
		near(t, "Distance", []float64{m.Distance(u, v)}, []float64{math.Sqrt(square)}, 1e-11)
		near(t, "Cosine", []float64{m.Cosine(u, v)}, []float64{inner / math.Sqrt(m.Inner(u, u)*m.Inner(v, v))}, 1e-12)
		near(t, "Angle", []float64{m.Angle(u, v)}, []float64{math.Acos(m.Cosine(u, v))}, 1e-7)

		a, b := m.Dims()
		if a != d || b != d || m.SymmetricDim() != d || m.At(0, d-1) != g.At(0, d-1) || m.T() != mat.Matrix(m) {
			t.Errorf("as a matrix it is %d by %d", a, b)
		}
		if g.SetSym(0, 0, 99); m.At(0, 0) == 99 {
			t.Error("Matrix is not a copy")
		}
	}
}

// TestAngle checks that small angles keep their digits, and that a zero vector has no angle.
func TestAngle(t *testing.T) {
	m := bilinear.Euclidean(2)
	u := []float64{1, 0}
	for _, angle := range []float64{0, 1e-12, 1e-5, .5, math.Pi / 2, 3, math.Pi} {
		v := []float64{2 * math.Cos(angle), 2 * math.Sin(angle)}
		if got := m.Angle(u, v); !(math.Abs(got-angle) <= 1e-15*(1+angle)) {
			t.Errorf("angle %g, want %g", got, angle)
		}
	}
	if zero := []float64{0, 0}; !math.IsNaN(m.Angle(u, zero)) || !math.IsNaN(m.Cosine(zero, u)) {
		t.Errorf("angle %v and cosine %v with a vector that is 0", m.Angle(u, zero), m.Cosine(zero, u))
	}
	if c := m.Cosine([]float64{.1, .3}, []float64{.3, .9}); c > 1 {
		t.Errorf("cosine %v", c)
	}
}

// TestConstructors checks the named metrics.
func TestConstructors(t *testing.T) {
	custom, err := bilinear.ScaledBy(2, .25)
	if err != nil {
		t.Fatal(err)
	}
	weights := []float64{1, 2, 3}
	diagonal, err := bilinear.Diagonal(weights...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m *bilinear.Metric
		// The inner products of a vector of ones with itself and with the first basis vector.
		want []float64
	}{
		{bilinear.Euclidean(3), []float64{3, 1}},
		{bilinear.Scaled(4), []float64{2, .5}},
		{custom, []float64{.5, .25}},
		{diagonal, []float64{6, 1}},
	} {
		d := c.m.SymmetricDim()
		ones, first := slices.Repeat([]float64{1}, d), make([]float64, d)
		first[0] = 1
		near(t, "inner products", []float64{c.m.Inner(ones, ones), c.m.Inner(first, ones)}, c.want, 0)
	}
	if weights[0] = 9; diagonal.At(0, 0) != 1 {
		t.Error("the metric keeps the caller's weights")
	}
	for _, c := range []struct {
		make func() (*bilinear.Metric, error)
		want error
	}{
		{func() (*bilinear.Metric, error) { return bilinear.ScaledBy(2, 0) }, bilinear.ErrSingular},
		{func() (*bilinear.Metric, error) { return bilinear.ScaledBy(2, -1) }, bilinear.ErrIndefinite},
		{func() (*bilinear.Metric, error) { return bilinear.ScaledBy(0, 1) }, bilinear.ErrShape},
		{func() (*bilinear.Metric, error) { return bilinear.Diagonal() }, bilinear.ErrShape},
		{func() (*bilinear.Metric, error) { return bilinear.Diagonal(1, 0) }, bilinear.ErrSingular},
		{func() (*bilinear.Metric, error) { return bilinear.Diagonal(1, math.NaN()) }, bilinear.ErrNotFinite},
	} {
		if m, err := c.make(); m != nil || !errors.Is(err, c.want) {
			t.Errorf("%v, %v; want %v", m, err, c.want)
		}
	}
}

// TestValidate checks which matrices are metrics, and the reasons for the others.
func TestValidate(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		rows, columns int
		g             []float64
		want          error
	}{
		{2, 2, []float64{2, .5, .5, 1}, nil},
		{1, 1, []float64{1e-300}, nil},
		{2, 2, []float64{1e30, 0, 0, 1e-30}, nil},        // different units
		{2, 2, []float64{1e30, .5, .5, 1e-30}, nil},      // and a cosine of 1/2
		{2, 2, []float64{1, 1 - 1e-9, 1 - 1e-9, 1}, nil}, // nearly singular is not singular
		{2, 2, []float64{1, .1 + .2, .3, 1}, nil},        // symmetric up to rounding
		{2, 2, []float64{1, 0, 0, -1}, bilinear.ErrIndefinite},
		{2, 2, []float64{1, 2, 2, 1}, bilinear.ErrIndefinite}, // but no negative element
		{2, 2, []float64{0, 1, 1, 0}, bilinear.ErrIndefinite},
		{2, 2, []float64{0, 1e-20, 1e-20, 1}, bilinear.ErrIndefinite}, // by very little
		{2, 2, []float64{-1, 0, 0, -1}, bilinear.ErrIndefinite},
		{3, 3, []float64{0, 0, 0, 0, 1, 2, 0, 2, 1}, bilinear.ErrIndefinite}, // and singular too
		{2, 2, []float64{0, 0, 0, 0}, bilinear.ErrSingular},
		{2, 2, []float64{1, 2, 2, 4}, bilinear.ErrSingular},
		{2, 2, []float64{1e-30, 2e-30, 2e-30, 4e-30}, bilinear.ErrSingular},
		{2, 2, []float64{1, 0, 0, 0}, bilinear.ErrSingular},
		{3, 3, []float64{2, 1, 3, 1, 1, 2, 3, 2, 5}, bilinear.ErrSingular}, // the last is a sum
		{2, 2, []float64{1, .5, .3, 1}, bilinear.ErrAsymmetric},
		{2, 2, []float64{1, 1e-9, 0, 1}, bilinear.ErrAsymmetric},
		{2, 2, []float64{1, math.NaN(), 0, 1}, bilinear.ErrNotFinite},
		{2, 2, []float64{inf, 0, 0, 1}, bilinear.ErrNotFinite},
		{1, 2, []float64{1, 0}, bilinear.ErrShape},
	} {
		g := mat.NewDense(c.rows, c.columns, c.g)
		if err := bilinear.Validate(g); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v: %v, want %v", c.g, err, c.want)
		}
		m, err := bilinear.New(g)
		if (m == nil) != (c.want != nil) || !errors.Is(err, c.want) {
			t.Errorf("%v: New gives %v, %v", c.g, m, err)
		}
	}
	if err := bilinear.Validate(new(mat.Dense)); !errors.Is(err, bilinear.ErrShape) {
		t.Errorf("a matrix of nothing: %v", err)
	}
}

// TestValidateProperties checks matrices made with eigenvalues of known signs: the signs decide, in
// any basis and units.
func TestValidateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		d := rapid.IntRange(1, 6).Draw(t, "d")
		signs := rapid.SliceOfN(rapid.SampledFrom([]float64{1, 1, 1, 0, -1}), d, d).Draw(t, "signs")
		// g = bᵀ diag(signs) b; skip b if one column is nearly one of the others.
		b := matrix(r, d, d)
		if mat.Cond(b, 2) > 100 {
			t.Skip("nearly singular")
		}
		var g mat.Dense
		g.Product(b.T(), mat.NewDiagDense(d, signs), b)
		unit := make([]float64, d)
		for i := range unit {
			unit[i] = math.Ldexp(1, rapid.IntRange(-30, 30).Draw(t, "unit"))
		}
		rounded := mat.DenseCopyOf(&g)
		g.Apply(func(i, j int, x float64) float64 { return unit[i] * unit[j] * (x + rounded.At(j, i)) / 2 }, rounded)
		var want error
		switch {
		case slices.Contains(signs, -1):
			want = bilinear.ErrIndefinite
		case slices.Contains(signs, 0):
			want = bilinear.ErrSingular
		}
		if err := bilinear.Validate(&g); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Fatalf("signs %v, units %v: %v, want %v", signs, unit, err, want)
		}
	})
}

// TestInnerProperties checks that the inner product is symmetric, linear and positive, and
// satisfies the inequalities of Cauchy and Schwarz and of the triangle.
func TestInnerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 6))
		d := rapid.IntRange(1, 8).Draw(t, "d")
		m := metric(t, r, d)
		u, v, w := vector(r, d), vector(r, d), vector(r, d)
		if !(m.Inner(u, u) > 0) || !(math.Abs(m.Inner(u, v)) <= m.Norm(u)*m.Norm(v)*(1+1e-14)) {
			t.Fatalf("<u, u> = %g, <u, v> = %g, lengths %g and %g", m.Inner(u, u), m.Inner(u, v), m.Norm(u), m.Norm(v))
		}
		if direct, round := m.Distance(u, w), m.Distance(u, v)+m.Distance(v, w); !(direct <= round*(1+1e-14)) {
			t.Fatalf("the way from u to w is %g, by way of v %g", direct, round)
		}
		if x := m.Distance(u, u); x != 0 {
			t.Fatalf("u is %g from itself", x)
		}
	})
}

// TestBasis checks that no measured value depends on the basis.
func TestBasis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		d := rapid.IntRange(1, 6).Draw(t, "d")
		b := matrix(r, d, d)
		cond := mat.Cond(b, 2)
		if cond > 100 {
			t.Skip("nearly singular")
		}
		basis, err := bilinear.NewBasis(b)
		if err != nil {
			t.Fatal(err)
		}
		m, form := metric(t, r, d), matrix(r, d, d)
		turned, err := basis.Metric(m)
		if err != nil {
			t.Fatal(err)
		}
		u, v := vector(r, d), vector(r, d)
		bu, bv := basis.Vector(u), basis.Vector(v)
		tol := 1e-13 * cond * cond * (1 + m.Norm(u)*m.Norm(v))
		for _, c := range []struct {
			what      string
			got, want float64
		}{
			{"pairing", bilinear.Pair(basis.Covector(u), bv), bilinear.Pair(u, v)},
			{"form", bilinear.Form(bu, basis.Form(form), bv), bilinear.Form(u, form, v)},
			{"inner product", turned.Inner(bu, bv), m.Inner(u, v)},
			{"angle", turned.Angle(bu, bv), m.Angle(u, v)},
			{"distance", turned.Distance(bu, bv), m.Distance(u, v)},
			{"lowered, then turned", turned.Lower(bv)[0], basis.Covector(m.Lower(v))[0]},
		} {
			if !(math.Abs(c.got-c.want) <= tol*(1+math.Abs(c.want))) {
				t.Fatalf("%s: %g, was %g", c.what, c.got, c.want)
			}
		}
	})
	for _, c := range []struct {
		b    *mat.Dense
		says string
	}{
		{mat.NewDense(1, 2, nil), "1 by 2"},
		{mat.NewDense(2, 2, []float64{1, 2, 2, 4}), "condition number"},
		{mat.NewDense(2, 2, nil), "condition number +Inf"},
	} {
		if basis, err := bilinear.NewBasis(c.b); basis != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, %v; want %q", basis, err, c.says)
		}
	}
}

// TestLearned checks WᵀW, its rank, and its gradient against differences.
func TestLearned(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	l := bilinear.Learned{W: mat.NewDense(2, 2, []float64{1, 2, 3, 4})}
	if g := l.Form(); !mat.Equal(g, mat.NewDense(2, 2, []float64{10, 14, 14, 20})) {
		t.Errorf("form %v", mat.Formatted(g))
	}
	for _, c := range []struct {
		w      *mat.Dense
		rank   int
		metric error
	}{
		{matrix(r, 3, 3), 3, nil},
		{matrix(r, 5, 3), 3, nil},
		{matrix(r, 2, 3), 2, bilinear.ErrSingular},
		{mat.NewDense(3, 2, []float64{1, 2, 2, 4, 3, 6}), 1, bilinear.ErrSingular},
		{mat.NewDense(2, 2, nil), 0, bilinear.ErrSingular},
	} {
		l := bilinear.Learned{W: c.w}
		if l.Rank() != c.rank {
			t.Errorf("rank %d, want %d", l.Rank(), c.rank)
		}
		if _, err := l.Metric(); !errors.Is(err, c.metric) || (err == nil) != (c.metric == nil) {
			t.Errorf("rank %d: %v, want %v", c.rank, err, c.metric)
		}
		_, d := c.w.Dims()
		u, v := vector(r, d), vector(r, d)
		near(t, "Inner", []float64{l.Inner(u, v)}, []float64{bilinear.Form(u, l.Form(), v)}, 1e-12)
	}

	// The loss is sum_ab weights_ab sin g_ab, whose gradient is not symmetric.
	weights := matrix(r, 3, 3)
	loss := func(w []float64) float64 {
		g, sum := bilinear.Learned{W: mat.NewDense(2, 3, w)}.Form(), 0.0
		for a := range 3 {
			for b := range 3 {
				sum += weights.At(a, b) * math.Sin(g.At(a, b))
			}
		}
		return sum
	}
	w := matrix(r, 2, 3)
	l = bilinear.Learned{W: w}
	g := l.Form()
	var dg mat.Dense
	dg.Apply(func(a, b int, x float64) float64 { return x * math.Cos(g.At(a, b)) }, weights)
	want := fd.Gradient(nil, loss, w.RawMatrix().Data, &fd.Settings{Formula: fd.Central})
	near(t, "Grad", l.Grad(&dg).RawMatrix().Data, want, 1e-8)
}

// TestPanics checks that operands that do not fit cause a panic that says why.
func TestPanics(t *testing.T) {
	m := bilinear.Euclidean(2)
	two, three := []float64{1, 2}, []float64{1, 2, 3}
	square, wide := mat.NewDense(2, 2, nil), mat.NewDense(2, 3, nil)
	for says, call := range map[string]func(){
		"Pair: u has 2 components and v has 3":                                           func() { bilinear.Pair(two, three) },
		"Form: u has 2 components, v has 3, and the matrix is 2 by 2":                    func() { bilinear.Form(two, square, three) },
		"Quadratic: v has 2 components, v has 2, and the matrix is 2 by 3":               func() { bilinear.Quadratic(two, wide) },
		"Forms: a row of u has 3 components, a row of v has 2, and the matrix is 2 by 2": func() { bilinear.Forms(wide, square, square) },
		"RowForms: u has 2 rows and v has 1":                                             func() { bilinear.RowForms(square, square, mat.NewDense(1, 2, nil)) },
		"Metric.Lower: got a vector with 3 components, want 2":                           func() { m.Lower(three) },
		"Metric.Raise":     func() { m.Raise(three) },
		"Metric.Inner":     func() { m.Inner(two, three) },
		"Metric.Norm":      func() { m.Angle(three, two) },
		"Metric.Distance":  func() { m.Distance(two, three) },
		"Metric.LowerRows": func() { m.LowerRows(wide) },
		"Metric.RaiseRows": func() { m.RaiseRows(wide) },
		"Learned.Project: v has 2 components, want 3": func() { bilinear.Learned{W: wide}.Inner(three, two) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, says) {
					t.Errorf("panic %q, want %q in it", s, says)
				}
			}()
			call()
		}()
	}
}
