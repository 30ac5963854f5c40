package calculus

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/theory/gibbs"
	"attnlab/theory/scorers"
)

// normal returns a matrix of random numbers, which the seed and the size determine.
func normal(seed uint64, rows, cols int) *mat.Dense {
	r := rand.New(rand.NewPCG(seed, uint64(rows*cols)))
	m := mat.NewDense(rows, cols, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return r.NormFloat64() }, m)
	return m
}

// near fails the test if two matrices differ by more than a bound, or if either has a NaN.
func near(t interface{ Errorf(string, ...any) }, what string, got, want mat.Matrix, bound float64) {
	r, c := want.Dims()
	if rows, cols := got.Dims(); rows != r || cols != c {
		t.Errorf("%s: %d by %d, want %d by %d", what, rows, cols, r, c)
		return
	}
	for i := range r {
		for j := range c {
			if !(math.Abs(got.At(i, j)-want.At(i, j)) <= bound) {
				t.Errorf("%s: element %d, %d is %v, want %v within %.1g", what, i, j, got.At(i, j), want.At(i, j), bound)
				return
			}
		}
	}
}

// TestJacobiansAgainstDifferences checks every Jacobian against central differences.
func TestJacobiansAgainstDifferences(t *testing.T) {
	const nq, nk, d, dv = 3, 4, 2, 5
	q, k, v, s, m := normal(1, nq, d), normal(2, nk, d), normal(3, nk, dv), normal(4, nq, nk), normal(5, d, d)
	a := gibbs.SoftmaxRows(s, 1)
	for name, c := range map[string]struct {
		jac *Jacobian
		y   func(x *mat.Dense) mat.Matrix
		at  mat.Matrix
	}{
		"dO/dA":        {OutputByWeights(nq, v), func(x *mat.Dense) mat.Matrix { return scorers.Output(x, v) }, a},
		"dO/dV":        {OutputByValues(a, dv), func(x *mat.Dense) mat.Matrix { return scorers.Output(a, x) }, v},
		"dA/dS":        {WeightsByScores(a, 0), func(x *mat.Dense) mat.Matrix { return gibbs.SoftmaxRows(x, 1) }, s},
		"dA/dS, T = 3": {WeightsByScores(gibbs.SoftmaxRows(s, 3), 3), func(x *mat.Dense) mat.Matrix { return gibbs.SoftmaxRows(x, 3) }, s},
		"dS/dQ":        {ScoresByQueries(nq, k, 0), func(x *mat.Dense) mat.Matrix { return scorers.Dot{}.Scores(x, k) }, q},
		"dS/dK":        {ScoresByKeys(q, nk, 2), func(x *mat.Dense) mat.Matrix { return scorers.Dot{Scale: 2}.Scores(q, x) }, k},
		"dS/dM":        {ScoresByMetric(q, k, 0), func(x *mat.Dense) mat.Matrix { return scorers.Bilinear{M: x}.Scores(q, k) }, m},
	} {
		numerical := NumericalJacobian(c.y, c.at, 0)
		near(t, name, c.jac.Matrix, numerical.Matrix, 1e-8)
		if c.jac.At(2, 1, 1, 0) != c.jac.Matrix.At(2*c.jac.OfCols+1, 1*c.jac.ByCols) {
			t.Errorf("%s: At does not count row by row", name)
		}
		if c.jac.OfRows != numerical.OfRows || c.jac.ByCols != numerical.ByCols {
			t.Errorf("%s: shape %+v, want that of %+v", name, c.jac, numerical)
		}
	}
}

// TestPullAndPushAreAdjoint checks that a pulled-back gradient along a change equals the gradient
// along the pushed change.
func TestPullAndPushAreAdjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4)
		ofR, ofC, byR, byC := size.Draw(t, "rows"), size.Draw(t, "cols"), size.Draw(t, "by rows"), size.Draw(t, "by cols")
		seed := rapid.Uint64().Draw(t, "seed")
		from := normal(seed, ofR*ofC, byR*byC)
		j := NewJacobian(ofR, ofC, byR, byC, func(i, b, m, n int) float64 { return from.At(i*ofC+b, m*byC+n) })
		g, x := normal(seed+1, ofR, ofC), normal(seed+2, byR, byC)
		if back, on := floats.Dot(flat(j.Pull(g)), flat(x)), floats.Dot(flat(g), flat(j.Push(x))); math.Abs(back-on) > 1e-12 {
			t.Errorf("%v taken back, %v taken on", back, on)
		}
	})
}

// drawn returns a random setting with operands.
func drawn(t *rapid.T) (s Setting, q, k, v *mat.Dense) {
	size := rapid.IntRange(1, 5)
	nq, nk, d, dv := size.Draw(t, "queries"), size.Draw(t, "keys"), size.Draw(t, "d"), size.Draw(t, "dv")
	seed := rapid.Uint64().Draw(t, "seed")
	s.Temp = rapid.SampledFrom([]float64{0, 0.5, 1, 2, 10}).Draw(t, "T")
	s.Scale = rapid.SampledFrom([]float64{0, 1, -0.3}).Draw(t, "scale")
	switch rapid.IntRange(0, 2).Draw(t, "mask") {
	case 1:
		// The first rows see no key if there are more queries than keys.
		s.Mask = func(i, j int) bool { return j <= i+nk-nq }
	case 2:
		bits := rapid.Uint32().Draw(t, "bits")
		s.Mask = func(i, j int) bool { return bits>>(i*5+j)&1 != 0 }
	}
	if rapid.Bool().Draw(t, "linear") {
		s.Loss.Weights = normal(seed+3, nq, dv)
	}
	return s, normal(seed, nq, d), normal(seed+1, nk, d), normal(seed+2, nk, dv)
}

// TestBackwardIsRight checks that Verify finds no error in Backward.
func TestBackwardIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, q, k, v := drawn(t)
		verdict, err := s.Verify(Backward, q, k, v)
		if err != nil {
			t.Fatal(err)
		}
		if !verdict.AllRight {
			t.Errorf("%+v", verdict)
		}
	})
}

// TestChainIsBackward checks that the product of the Jacobians is the backward pass.
func TestChainIsBackward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, q, k, v := drawn(t)
		d := s.attend(q, k, v)
		dO := s.Loss.Grad(d.Output)
		st := Backward(d, q, k, v, s.Scale, dO)
		nq, _ := q.Dims()
		nk, dv := v.Dims()
		toScores := OutputByWeights(nq, v).Through(WeightsByScores(d.Weights, s.Temp))
		near(t, "dS", toScores.Pull(dO), st.DS, 1e-12)
		near(t, "dQ", toScores.Through(ScoresByQueries(nq, k, s.Scale)).Pull(dO), st.DQ, 1e-12)
		near(t, "dK", toScores.Through(ScoresByKeys(q, nk, s.Scale)).Pull(dO), st.DK, 1e-12)
		near(t, "dV", OutputByValues(d.Weights, dv).Pull(dO), st.DV, 1e-12)
		near(t, "dS from the weights", GradSoftmax(d.Weights, st.DA, s.Temp), st.DS, 1e-12)
		for i, sum := range RowSums(d.Weights, st.DA) {
			if math.Abs(sum-st.D[i]) > 1e-12 {
				t.Errorf("D of query %d: %v from the weights, %v from the output", i, sum, st.D[i])
			}
		}
	})
}

// TestByProducts checks that the gradients of LSE and entropy flow back like those of the output.
func TestByProducts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, q, k, v := drawn(t)
		dO := normal(9, s.attend(q, k, v).Output.RawMatrix().Rows, v.RawMatrix().Cols)
		nq, _ := q.Dims()
		in := Incoming{DO: dO, DLSE: flat(normal(10, nq, 1)), DEntropy: flat(normal(11, nq, 1))}
		loss := func(q, k, v mat.Matrix) float64 {
			d := s.attend(q, k, v)
			total := floats.Dot(flat(dO), flat(d.Output))
			for i, lse := range d.LogPartition {
				if !math.IsInf(lse, -1) {
					total += in.DLSE[i] * lse
				}
				total += in.DEntropy[i] * gibbs.Entropy(d.Weights.RawRowView(i))
			}
			return total
		}
		st := in.Backward(s.attend(q, k, v), q, k, v, s.Scale)
		near(t, "dQ", st.DQ, NumericalGradient(func(x *mat.Dense) float64 { return loss(x, k, v) }, q, 0), 1e-7)
		near(t, "dK", st.DK, NumericalGradient(func(x *mat.Dense) float64 { return loss(q, x, v) }, k, 0), 1e-7)
		near(t, "dV", st.DV, NumericalGradient(func(x *mat.Dense) float64 { return loss(q, k, x) }, v, 0), 1e-7)
		none := Incoming{}.Backward(s.attend(q, k, v), q, k, v, s.Scale)
		near(t, "no gradient comes in: dQ", none.DQ, mat.NewDense(q.RawMatrix().Rows, q.RawMatrix().Cols, nil), 0)
	})
}

// TestBilinear checks the gradients through a bilinear score against central differences.
func TestBilinear(t *testing.T) {
	const nq, nk, dq, dk, dv = 3, 4, 2, 3, 2
	q, k, v, m, dO := normal(1, nq, dq), normal(2, nk, dk), normal(3, nk, dv), normal(4, dq, dk), normal(5, nq, dv)
	for _, scale := range []float64{0, 0.7} {
		loss := func(q, k, v, m mat.Matrix) float64 {
			d := scorers.Attend(scorers.Bilinear{M: m, Scale: scale}, q, k, v, scorers.Options{Temp: 2})
			return floats.Dot(flat(dO), flat(d.Output))
		}
		d := scorers.Attend(scorers.Bilinear{M: m, Scale: scale}, q, k, v, scorers.Options{Temp: 2})
		st := BackwardBilinear(d, q, k, v, m, scale, dO)
		near(t, "dQ", st.DQ, NumericalGradient(func(x *mat.Dense) float64 { return loss(x, k, v, m) }, q, 0), 1e-8)
		near(t, "dK", st.DK, NumericalGradient(func(x *mat.Dense) float64 { return loss(q, x, v, m) }, k, 0), 1e-8)
		near(t, "dV", st.DV, NumericalGradient(func(x *mat.Dense) float64 { return loss(q, k, x, m) }, v, 0), 1e-8)
		near(t, "dM", st.DM, NumericalGradient(func(x *mat.Dense) float64 { return loss(q, k, v, x) }, m, 0), 1e-8)
		near(t, "dM through the Jacobian", ScoresByMetric(q, k, scale).Pull(st.DS), st.DM, 1e-14)
		by := scorers.Bilinear{M: m, Scale: scale}.Gradients(q, k, st.DS)
		near(t, "dQ as package scorers has it", st.DQ, by.Q, 1e-14)
		near(t, "dK as package scorers has it", st.DK, by.K, 1e-14)
		near(t, "dM as package scorers has it", st.DM, by.M, 1e-14)
	}
	// The dot product is the metric 1/sqrt(d) times the identity.
	q = normal(6, nq, dk)
	metric := mat.NewDense(dk, dk, nil)
	for i := range dk {
		metric.Set(i, i, 1/math.Sqrt(dk))
	}
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	plain, bent := Backward(d, q, k, v, 0, dO), BackwardBilinear(d, q, k, v, metric, 0, dO)
	near(t, "dQ of the scaled unit", bent.DQ, plain.DQ, 1e-15)
	near(t, "dK of the scaled unit", bent.DK, plain.DK, 1e-15)
}

// TestHidden checks that a masked key or value does not reach a gradient, even if it is NaN.
func TestHidden(t *testing.T) {
	nan := math.NaN()
	q := mat.NewDense(3, 2, []float64{1, 2, nan, nan, -1, 1}) // query 1 sees no key
	k := mat.NewDense(4, 2, []float64{1, 0, 0, 1, nan, 1, 1, nan})
	v := mat.NewDense(4, 2, []float64{2, 0, 0, 2, nan, nan, 1, nan})
	dO := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 5, 6})
	show := func(i, j int) bool { return i != 1 && j < 2 }
	m := mat.NewDense(2, 2, []float64{1, 0.5, 0.25, 1})
	clean := func(x *mat.Dense) *mat.Dense {
		to := mat.DenseCopyOf(x)
		to.Apply(func(_, _ int, x float64) float64 {
			if math.IsNaN(x) {
				return 0
			}
			return x
		}, to)
		return to
	}
	q0, k0, v0 := clean(q), clean(k), clean(v)
	o := scorers.Options{Mask: show}
	got := Incoming{DO: dO, DLSE: []float64{1, 2, 3}, DEntropy: []float64{1, 2, 3}}.BackwardBilinear(scorers.Attend(scorers.Bilinear{M: m}, q, k, v, o), q, k, v, m, 0)
	want := Incoming{DO: dO, DLSE: []float64{1, 2, 3}, DEntropy: []float64{1, 2, 3}}.BackwardBilinear(scorers.Attend(scorers.Bilinear{M: m}, q0, k0, v0, o), q0, k0, v0, m, 0)
	for _, x := range []struct {
		name      string
		got, want *mat.Dense
	}{{"dQ", got.DQ, want.DQ}, {"dK", got.DK, want.DK}, {"dV", got.DV, want.DV}, {"dS", got.DS, want.DS}, {"dM", got.DM, want.DM}} {
		near(t, x.name, x.got, x.want, 0)
	}
	for c := range 2 {
		if got.DQ.At(1, c) != 0 || got.DK.At(2, c) != 0 || got.DV.At(3, c) != 0 {
			t.Errorf("a query that sees nothing and keys that nothing sees have gradients %v, %v, %v", got.DQ.RawRowView(1), got.DK.RawRowView(2), got.DV.RawRowView(3))
		}
	}
	// A visible NaN stays in the row that sees it.
	leak := Backward(scorers.Attend(scorers.Dot{}, q, k0, v0, scorers.Options{}), q, k0, v0, 0, dO)
	if !math.IsNaN(leak.DQ.At(1, 0)) || math.IsNaN(leak.DQ.At(0, 0)) || !math.IsNaN(leak.DK.At(0, 0)) {
		t.Errorf("a query of NaN: dQ %v, dK %v", mat.Formatted(leak.DQ), mat.Formatted(leak.DK))
	}
}

// TestLimitsOfTemperature checks the gradients in both limits of the temperature.
func TestLimitsOfTemperature(t *testing.T) {
	q := mat.NewDense(2, 1, []float64{1, 0}) // scores 3 1 2, and three tied scores
	k := mat.NewDense(3, 1, []float64{3, 1, 2})
	v := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 5, 7})
	dO := mat.NewDense(2, 2, []float64{1, -1, 2, 0.5})
	hot := Backward(scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Temp: math.Inf(1)}), q, k, v, 0, dO)
	near(t, "T = +Inf: dS", hot.DS, mat.NewDense(2, 3, nil), 0)
	near(t, "T = +Inf: dV", hot.DV.Slice(0, 1, 0, 2), mat.NewDense(1, 2, []float64{1, -1.0 / 6}), 1e-15)
	cold := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Temp: attn.Frozen})
	st := Incoming{DO: dO, DEntropy: []float64{1, 1}}.Backward(cold, q, k, v, 0)
	for j := range 3 {
		if st.DS.At(0, j) != 0 || !math.IsNaN(st.DS.At(1, j)) {
			t.Errorf("T -> 0: dS %v", mat.Formatted(st.DS))
		}
	}
	if g := GradLogPartition(cold.Weights.RawRowView(0), attn.Frozen); !math.IsInf(g[0], 1) || g[1] != 0 {
		t.Errorf("T -> 0: dLSE/dS %v", g)
	}
	// The limits are where finite temperatures lead.
	near1 := Backward(scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Temp: 1e-3}), q, k, v, 0, dO)
	near(t, "T = 0.001: dS of the row with one largest score", near1.DS.Slice(0, 1, 0, 3), mat.NewDense(1, 3, nil), 1e-300)
	warm := Backward(scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Temp: 1e9}), q, k, v, 0, dO)
	near(t, "T = 1e9: dS", warm.DS, hot.DS, 1e-8)
}

// TestGradEntropy checks the gradients of entropy and LSE against central differences.
func TestGradEntropy(t *testing.T) {
	for _, temp := range []float64{0, 0.5, 2} {
		s := flat(normal(3, 1, 6))
		at := temperature(temp)
		got := GradEntropy(gibbs.Softmax(s, at), temp)
		want := fd.Gradient(nil, func(s []float64) float64 { return gibbs.Entropy(gibbs.Softmax(s, at)) }, s, &fd.Settings{Formula: fd.Central})
		if d := floats.Distance(got, want, math.Inf(1)); !(d <= 1e-9) {
			t.Errorf("T = %v: dH/dS is off by %v", temp, d)
		}
		want = fd.Gradient(nil, func(s []float64) float64 { return gibbs.LogPartition(s, at) }, s, &fd.Settings{Formula: fd.Central})
		if d := floats.Distance(GradLogPartition(gibbs.Softmax(s, at), temp), want, math.Inf(1)); !(d <= 1e-9) {
			t.Errorf("T = %v: dLSE/dS is off by %v", temp, d)
		}
	}
	for name, p := range map[string][]float64{"one-hot": {0, 1, 0}, "even": {0.25, 0.25, 0.25, 0.25}, "nothing": {0, 0}} {
		for _, x := range GradEntropy(p, 1) {
			if math.Abs(x) > 1e-16 {
				t.Errorf("%s: %v, want zeros", name, GradEntropy(p, 1))
			}
		}
	}
	if g := GradEntropy([]float64{0.9, 0.1}, 1); !(g[0] < 0 && g[1] > 0) {
		t.Errorf("entropy rises with the light score and falls with the heavy one: %v", g)
	}
}

// TestVerifyFindsMistakes checks that each mistake shows in the gradients it affects and in no
// other.
func TestVerifyFindsMistakes(t *testing.T) {
	q, k, v := normal(1, 3, 2), normal(2, 4, 2), normal(3, 4, 3)
	for name, c := range map[string]struct {
		change     func(s *Staged)
		dq, dk, dv bool
	}{
		"none":               {func(*Staged) {}, true, true, true},
		"dQ negated":         {func(s *Staged) { s.DQ.Scale(-1, s.DQ) }, false, true, true},
		"dK off by 1e-6":     {func(s *Staged) { s.DK.Scale(1+1e-6, s.DK) }, true, false, true},
		"dV has a NaN":       {func(s *Staged) { s.DV.Set(0, 0, math.NaN()) }, true, true, false},
		"dV is missing":      {func(s *Staged) { s.DV = nil }, true, true, false},
		"dV of another size": {func(s *Staged) { s.DV = mat.DenseCopyOf(s.DV.T()) }, true, true, false},
		"all are zero": {func(s *Staged) {
			s.DQ.Zero()
			s.DK.Zero()
			s.DV.Zero()
		}, false, false, false},
	} {
		for _, loss := range []Loss{{}, {Squares: 1}, {Weights: normal(4, 3, 3)}, {Squares: -2, Weights: normal(5, 3, 3)}} {
			got, err := Setting{Loss: loss}.Verify(func(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *Staged {
				s := Backward(d, q, k, v, scale, dO)
				c.change(s)
				return s
			}, q, k, v)
			if err != nil {
				t.Fatal(err)
			}
			if got.DQ.Right != c.dq || got.DK.Right != c.dk || got.DV.Right != c.dv || got.AllRight != (c.dq && c.dk && c.dv) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	// A gradient of 0 everywhere is no mistake.
	zero := mat.NewDense(4, 3, nil)
	if got, err := VerifyGradients(q, k, zero); err != nil || !got.AllRight || got.Size != 0 {
		t.Errorf("values of zero: %+v, %v", got, err)
	}
}

// TestVerifyErrors checks that Verify refuses operands and settings without a gradient, and says
// why.
func TestVerifyErrors(t *testing.T) {
	m := func(r, c int) mat.Matrix { return mat.NewDense(r, c, nil) }
	var none *mat.Dense
	for want, c := range map[string]struct {
		s       Setting
		q, k, v mat.Matrix
	}{
		"got a nil operand":                     {Setting{}, m(2, 3), nil, m(4, 1)},
		"want all three":                        {Setting{}, none, m(4, 3), m(4, 1)},
		"got an empty operand":                  {Setting{}, new(mat.Dense), m(4, 3), m(4, 1)},
		"Q has 3 columns and K has 2":           {Setting{}, m(2, 3), m(4, 2), m(4, 1)},
		"K has 4 rows and V has 5":              {Setting{}, m(2, 3), m(4, 3), m(5, 1)},
		"Loss.Weights is 1 by 1":                {Setting{Loss: Loss{Weights: m(1, 1)}}, m(2, 3), m(4, 3), m(4, 1)},
		"a limit of the temperature":            {Setting{Temp: attn.Frozen}, m(2, 3), m(4, 3), m(4, 1)},
		"want a positive, finite":               {Setting{Temp: math.Inf(1)}, m(2, 3), m(4, 3), m(4, 1)},
		"temperature -2, want a positive":       {Setting{Temp: -2}, m(2, 3), m(4, 3), m(4, 1)},
		"temperature NaN, want a positive":      {Setting{Temp: math.NaN()}, m(2, 3), m(4, 3), m(4, 1)},
		"verify gradients: Q has 3 columns and": {Setting{}, m(1, 3), m(1, 1), m(1, 1)},
	} {
		_, verify := c.s.Verify(Backward, c.q, c.k, c.v)
		_, dual := c.s.Dual(c.q, c.k, c.v)
		_, step := c.s.ComplexStep(c.q, c.k, c.v)
		_, difference := c.s.Differences(c.q, c.k, c.v, 0)
		for _, err := range []error{verify, dual, step, difference} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one that says %q", err, want)
			}
		}
	}
}

// TestPanicsNameTheOperand checks that functions panic and name the operand if shapes do not fit.
func TestPanicsNameTheOperand(t *testing.T) {
	m := func(r, c int) *mat.Dense { return mat.NewDense(r, c, nil) }
	d := scorers.Attend(scorers.Dot{}, m(2, 3), m(4, 3), m(4, 5), scorers.Options{})
	for want, f := range map[string]func(){
		"dO is 3 by 5, want 2 by 5":                 func() { GradV(m(2, 4), m(3, 5)) },
		"dO is 2 by 5, want 2 by 6":                 func() { GradA(m(2, 5), m(4, 6)) },
		"dA is 2 by 3":                              func() { GradSoftmaxFrom(m(2, 4), m(2, 3), make([]float64, 2), 1) },
		"the second factor is 2 by 3":               func() { GradSoftmax(m(2, 4), m(2, 3), 1) },
		"D has 3 numbers for 2 queries":             func() { GradSoftmaxFrom(m(2, 4), m(2, 4), make([]float64, 3), 1) },
		"K is 3 by 2, want 4 by 2":                  func() { GradQ(m(2, 4), m(3, 2), 0) },
		"Q is 4 by 2, want 2 by 2":                  func() { GradK(m(2, 4), m(4, 2), 0) },
		"Q is 3 by 2, want 2 by 2":                  func() { GradMetric(m(2, 4), m(3, 2), m(4, 2), 0) },
		"K is 5 by 2, want 4 by 2":                  func() { GradMetric(m(2, 4), m(2, 2), m(5, 2), 0) },
		"V is 3 by 5, want 4 by 5":                  func() { Backward(d, m(2, 3), m(4, 3), m(3, 5), 0, m(2, 5)) },
		"M is 2 by 2, want 3 by 3":                  func() { BackwardBilinear(d, m(2, 3), m(4, 3), m(4, 5), m(2, 2), 0, m(2, 5)) },
		"dLSE has 1 numbers for 2 queries":          func() { Incoming{DLSE: []float64{1}}.Backward(d, m(2, 3), m(4, 3), m(4, 5), 0) },
		"dEntropy has 3 numbers for 2 queries":      func() { Incoming{DEntropy: make([]float64, 3)}.Backward(d, m(2, 3), m(4, 3), m(4, 5), 0) },
		"the incoming gradient is 1 by 1":           func() { OutputByWeights(2, m(4, 5)).Pull(m(1, 1)) },
		"the change is 1 by 1":                      func() { OutputByWeights(2, m(4, 5)).Push(m(1, 1)) },
		"Jacobian is by a 2 by 4 matrix, the inner": func() { OutputByWeights(2, m(4, 5)).Through(WeightsByScores(m(2, 3), 1)) },
		"K is 4 by 2, want 4 by 3":                  func() { Float32DifferenceError(m(2, 3), m(4, 2), m(4, 1), 1e-3) },
		`got norm "X", want`:                        func() { GradientFlow(d, m(2, 3), m(4, 3), m(4, 5), 0, m(2, 5)).Norm("X") },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.Contains(text, want) {
					t.Errorf("panic %q, want one that says %q", text, want)
				}
			}()
			f()
		}()
	}
}

// TestFlowString checks the table of norms for the worked example of the source documents.
func TestFlowString(t *testing.T) {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	v := mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	got := GradientFlow(d, q, k, v, 0, d.Output).String()
	want := `of        norm    largest    zeros
Q     1.414214   1.000000      2/4
K     2.000000   1.000000      2/6
V     3.162278   2.000000      2/6
S     1.414214   0.707107      2/6
A     0.849585   0.401112      0/6
O     2.040927   1.203336      0/4
dO    2.040927   1.203336      0/4
dV    1.651857   0.802224      0/6
dA    4.966038   2.406673      0/6
dS    0.233902   0.129953      0/6
dQ    0.162034   0.091891      0/4
dK    0.165394   0.091891      0/6
gain of the softmax, by query: [0.047100 0.047100]
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestGradientFlow checks that no gain exceeds 1/(2T), and that the norms are right.
func TestGradientFlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, q, k, v := drawn(t)
		d := s.attend(q, k, v)
		f := GradientFlow(d, q, k, v, s.Scale, s.Loss.Grad(d.Output))
		for i, g := range f.Gain {
			if !(g <= 1/(2*d.Temp)*(1+1e-9)) {
				t.Errorf("gain of query %d is %v, and no softmax at T = %v has more than %v", i, g, d.Temp, 1/(2*d.Temp))
			}
		}
		if n := f.Norm("dQ"); math.Abs(n.Frobenius-mat.Norm(f.DQ, 2)) > 1e-12 || n.Max != max(mat.Max(f.DQ), -mat.Min(f.DQ)) || n.Elements != len(flat(q)) {
			t.Errorf("dQ: %+v", n)
		}
		hidden := 0
		for _, x := range flat(d.Scores) {
			if math.IsInf(x, -1) {
				hidden++
			}
		}
		if s := f.Norm("S"); s.Elements != len(flat(d.Scores))-hidden || math.IsInf(s.Max, 0) {
			t.Errorf("%d scores are hidden: %+v", hidden, s)
		}
		if z := f.Norm("dS"); z.Zeros < hidden {
			t.Errorf("%d scores are hidden and %d have no gradient", hidden, z.Zeros)
		}
	})
	// Widely spread scores let almost no gradient through.
	q, k, v := normal(1, 100, 512), normal(2, 8, 512), normal(3, 8, 4)
	scaled, raw := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}), scorers.Attend(scorers.Dot{Scale: 1}, q, k, v, scorers.Options{})
	dO := normal(4, 100, 4)
	a, b := GradientFlow(scaled, q, k, v, 0, dO).Gain, GradientFlow(raw, q, k, v, 1, dO).Gain
	if with, without := stat.Mean(a, nil), stat.Mean(b, nil); with < 3*without {
		t.Errorf("mean gain %v with scores divided by sqrt d, %v without", with, without)
	}
}

// TestSteps checks that central differences are best with steps near 4e-3 in float32 and 5e-6 in
// float64.
func TestSteps(t *testing.T) {
	if got := BestStep(1.0 / (1 << 24)); got != 1.0/256 {
		t.Errorf("best step in float32: %v", got)
	}
	q, k, v := normal(1, 4, 3), normal(2, 6, 3), normal(3, 6, 3)
	tiny, best, large := Float32DifferenceError(q, k, v, 1e-5), Float32DifferenceError(q, k, v, 1.0/256), Float32DifferenceError(q, k, v, 0.5)
	if !(tiny > 30*best && large > 30*best && best < 1e-3) {
		t.Errorf("errors %v by 1e-5, %v by 2^-8, %v by 1/2", tiny, best, large)
	}
	d, err := Setting{}.Differences(q, k, v, 1e-11)
	if err != nil {
		t.Fatal(err)
	}
	good, err := Setting{}.Differences(q, k, v, BestStep(1.0/(1<<53)))
	if err != nil {
		t.Fatal(err)
	}
	exact := Setting{}.by(Backward, q, k, v)
	if noisy, fine := apart(d.DQ, exact.DQ, 1), apart(good.DQ, exact.DQ, 1); !(noisy > 1e3*fine && fine < 1e-9) {
		t.Errorf("float64: error %v by 1e-11, %v by the cube root", noisy, fine)
	}
}
