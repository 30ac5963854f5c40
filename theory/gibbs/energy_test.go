package gibbs

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// TestFreeEnergy checks that F = -T log Z = <E> - T H, and the values of the source documents.
func TestFreeEnergy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		p, f := Softmax(s, temp), FreeEnergy(s, temp)
		one(t, "from log Z", f, -temp*LogPartition(s, temp), 1e-12)
		one(t, "energy less entropy", f, ExpectedEnergy(p, s)-temp*Entropy(p), 1e-12)
	})
	for _, c := range []struct {
		name string
		s    []float64
		t    float64
		want float64
	}{
		{"tutorial", []float64{2, 1, 0}, 1, -2.40760596},
		{"tutorial, colder", []float64{2, 1, 0}, .5, -2.071466},
		{"tutorial, hotter", []float64{2, 1, 0}, 2, -3.360539},
		{"limit of cold", []float64{2, 1, 2}, 0, -2},
		{"limit of hot", []float64{2, 1, 2}, inf, -inf},
		{"limit of hot, one state", []float64{2, hidden}, inf, -2},
		{"nothing visible", []float64{hidden}, 1, inf},
		{"nothing visible, cold", []float64{hidden}, 0, inf},
		{"no state", nil, 1, inf},
		{"one takes all", []float64{2, inf}, 1, -inf},
		{"NaN", []float64{nan}, 1, nan},
	} {
		t.Run(c.name, func(t *testing.T) { one(t, "F", FreeEnergy(c.s, c.t), c.want, 5e-7) })
	}
}

// TestExpectedEnergy checks that a hidden state adds no energy, and that lengths must agree.
func TestExpectedEnergy(t *testing.T) {
	one(t, "hidden states", ExpectedEnergy([]float64{.5, .5, 0}, []float64{1, 2, hidden}), -1.5, 0)
	if !panics(func() { ExpectedEnergy([]float64{1}, []float64{1, 2}) }) {
		t.Error("1 weight for 2 scores was taken")
	}
}

// TestHeatCapacity checks the derivatives dF/dT = -H, dF/ds = -p and d<E>/dT = C against
// differences.
func TestHeatCapacity(t *testing.T) {
	central := &fd.Settings{Formula: fd.Central, Step: 1e-5}
	rapid.Check(t, func(t *rapid.T) {
		s, temp := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 6).Draw(t, "scores"), rapid.Float64Range(.5, 5).Draw(t, "temperature")
		p := Softmax(s, temp)
		free := func(x float64) float64 { return FreeEnergy(s, x) }
		energy := func(x float64) float64 { return ExpectedEnergy(Softmax(s, x), s) }
		one(t, "-dF/dT", -fd.Derivative(free, temp, central), Entropy(p), 1e-7)
		one(t, "d<E>/dT", fd.Derivative(energy, temp, central), HeatCapacity(s, temp), 1e-7)
		g := fd.Gradient(nil, func(s []float64) float64 { return -FreeEnergy(s, temp) }, s, central)
		same(t, "-dF/ds", g, p, 1e-7)
	})
	s := []float64{2, 1, hidden, 0}
	for _, limit := range []float64{0, inf} {
		one(t, "in the limits", HeatCapacity(s, limit), 0, 0)
	}
	p := Softmax([]float64{1, 0}, .5)
	one(t, "two states", HeatCapacity([]float64{1, 0}, .5), p[0]*p[1]/(.5*.5), 1e-15)
	one(t, "nothing visible", HeatCapacity([]float64{hidden}, 1), 0, 0)
	one(t, "NaN", HeatCapacity([]float64{nan}, 1), nan, 0)
}

// TestJacobian checks the Jacobian against differences, in both limits and for part of a row.
func TestJacobian(t *testing.T) {
	want := mat.NewSymDense(3, []float64{.08192507, -.02203304, -.05989202, 0, .18483645, -.1628034, 0, 0, .22269543})
	if got := Susceptibility([]float64{1, 2, 3}, 1); !mat.EqualApprox(got, want, 5e-9) {
		t.Errorf("of [1 2 3]: %v", mat.Formatted(got))
	}
	rapid.Check(t, func(t *rapid.T) {
		s, temp := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 6).Draw(t, "scores"), rapid.Float64Range(.5, 5).Draw(t, "temperature")
		jac, numeric := Susceptibility(s, temp), mat.NewDense(len(s), len(s), nil)
		fd.Jacobian(numeric, func(y, x []float64) { copy(y, Softmax(x, temp)) }, s, &fd.JacobianSettings{Formula: fd.Central, Step: 1e-5})
		if !mat.EqualApprox(jac, numeric, 1e-8) {
			t.Fatalf("Jacobian %v, by differences %v", mat.Formatted(jac), mat.Formatted(numeric))
		}
		for i := range s {
			one(t, "sum of a row", floats.Sum(mat.Row(nil, i, jac)), 0, 1e-15)
		}
	})
	for _, c := range []struct {
		name string
		p    []float64
		t    float64
		want []float64
	}{
		{"one hot, cold", []float64{0, 1}, 0, []float64{0, 0, 0, 0}},
		{"ties, cold", []float64{.5, .5, 0}, 0, []float64{inf, -inf, 0, -inf, inf, 0, 0, 0, 0}},
		{"hot", []float64{.5, .5}, inf, []float64{0, 0, 0, 0}},
		{"beside a sink", []float64{.5, .25}, 1, []float64{.25, -.125, -.125, .1875}},
	} {
		var got []float64
		jac := Jacobian(c.p, c.t)
		for i := range c.p {
			got = append(got, mat.Row(nil, i, jac)...)
		}
		same(t, c.name, got, c.want, 0)
	}
	if !Jacobian(nil, 1).IsEmpty() {
		t.Error("the Jacobian of no weights is not empty")
	}
	one(t, "by temperature", Jacobian([]float64{.5, .5}, math.Pi).At(0, 1), -.25/math.Pi, 1e-16)
}
