package gibbs

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"
)

// somewhere draws random weights that are 0 where a score is hidden.
func somewhere(t *rapid.T, s []float64) []float64 {
	a := make([]float64, len(s))
	for j, x := range s {
		if x != hidden {
			a[j] = rapid.Float64Range(1e-3, 1).Draw(t, "weight")
		}
	}
	floats.Scale(1/floats.Sum(a), a)
	return a
}

// TestFunctional checks that no weights have a lower functional than the Gibbs distribution, and
// that the excess is T times KL.
func TestFunctional(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		a, f := somewhere(t, s), FreeEnergy(s, temp)
		phi, kl := Functional(a, s, temp), Divergence(a, s, temp)
		if !(kl >= -1e-13) {
			t.Fatalf("KL is %v", kl)
		}
		one(t, "Phi - F", phi-f, temp*kl, 1e-11)
		p := Softmax(s, temp)
		one(t, "at the Gibbs distribution", Functional(p, s, temp), f, 1e-12)
		one(t, "its divergence from itself", Divergence(p, s, temp), 0, 1e-12)
		one(t, "cold", Functional(a, s, 0), ExpectedEnergy(a, s), 0)
	})
	one(t, "weight on a hidden state", Divergence([]float64{.5, .5}, []float64{1, hidden}, 1), inf, 0)
	one(t, "its functional", Functional([]float64{.5, .5}, []float64{1, hidden}, 1), inf, 0)
	one(t, "a weight below float64", Divergence([]float64{0, 1}, []float64{1e5, 0}, 1), 1e5, 0)
	one(t, "hot, one state", Functional([]float64{1, 0}, []float64{3, 1}, inf), -3, 0)
	one(t, "hot, two states", Functional([]float64{.5, .5}, []float64{3, 1}, inf), -inf, 0)
}

// TestSlope checks the gradient of the functional against differences, and that it is constant at
// the Gibbs distribution.
func TestSlope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 6).Draw(t, "scores"), someTemperature(t)
		a := make([]float64, len(s))
		for j := range a {
			a[j] = rapid.Float64Range(.1, 1).Draw(t, "weight")
		}
		g := fd.Gradient(nil, func(a []float64) float64 { return Functional(a, s, temp) }, a, &fd.Settings{Formula: fd.Central, Step: 1e-5})
		same(t, "by differences", Slope(a, s, temp), g, 1e-6)
		for _, x := range Slope(Softmax(s, temp), s, temp) {
			one(t, "where it is stationary", x, FreeEnergy(s, temp)+temp, 1e-12)
		}
	})
	same(t, "at the edge", Slope([]float64{0, 1, 0}, []float64{3, 2, hidden}, 1), []float64{-inf, -1, inf}, 0)
	same(t, "cold", Slope([]float64{0, 1}, []float64{3, 2}, 0), []float64{-3, -2}, 0)
}

// TestMinimize checks that the descent finds the softmax from any start and never goes up.
func TestMinimize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		a, share := somewhere(t, s), rapid.Float64Range(.2, 1.5).Draw(t, "rate times temperature")
		m, err := Minimize(s, temp, Descent{From: a, Rate: share / temp})
		if err != nil {
			t.Fatal(err)
		}
		f := FreeEnergy(s, temp)
		// A gap of g in the functional is a gap of up to sqrt(2g/T) in the weights.
		same(t, "weights", m.Weights, Softmax(s, temp), 1e-5)
		one(t, "least value", m.Value, f, m.Gap+1e-11)
		if share > 1 {
			// Beyond 1/T a step overshoots: it ends nearer, but the functional may be higher.
			return
		}
		before := Functional(a, s, temp)
		for steps := 1; steps <= 5; steps++ {
			d, _ := Minimize(s, temp, Descent{From: a, Rate: share / temp, Steps: steps})
			if !(d.Value <= before+1e-12) {
				t.Fatalf("step %d went up from %v to %v", steps, before, d.Value)
			}
			if !(d.Value-f <= d.Gap+1e-11) {
				t.Fatalf("step %d is %v above the minimum, and said %v", steps, d.Value-f, d.Gap)
			}
			before = d.Value
		}
	})
	m, err := Minimize([]float64{2, 1, 0}, .5, Descent{From: []float64{.1, .1, .8}, Rate: 2})
	if err != nil || m.Steps != 1 {
		t.Errorf("at the rate 1/T: %d steps, %v; want 1", m.Steps, err)
	}
	m, err = Minimize([]float64{5000, 0, hidden}, 1, Descent{})
	if err != nil {
		t.Error(err)
	}
	same(t, "weights below float64", m.Weights, []float64{1, 0, 0}, 0)
}

// TestMinimizeRefuses checks that bad input is refused with an error that names it.
func TestMinimizeRefuses(t *testing.T) {
	for _, c := range []struct {
		s    []float64
		t    float64
		d    Descent
		text string
	}{
		{[]float64{1, 2}, 0, Descent{}, "temperature 0"},
		{[]float64{1, 2}, inf, Descent{}, "temperature +Inf"},
		{[]float64{1, 2}, nan, Descent{}, "temperature NaN"},
		{[]float64{1, 2}, 1, Descent{Rate: 2}, "rate of 2"},
		{[]float64{1, 2}, 1, Descent{Rate: -1}, "rate of -1"},
		{[]float64{1, nan}, 1, Descent{}, "score of NaN"},
		{[]float64{1, inf}, 1, Descent{}, "score of +Inf"},
		{[]float64{hidden}, 1, Descent{}, "no visible score"},
		{nil, 1, Descent{}, "no visible score"},
		{[]float64{1, 2}, 1, Descent{From: []float64{1}}, "1 weights over 2 scores"},
		{[]float64{1, 2}, 1, Descent{From: []float64{1, 0}}, "weight 0 of state 1"},
		{[]float64{1, hidden}, 1, Descent{From: []float64{.5, .5}}, "weight 0.5 of state 1"},
		{[]float64{1, 2}, 1, Descent{Rate: .01, Steps: 3}, "after 3 steps"},
	} {
		if _, err := Minimize(c.s, c.t, c.d); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v at %v, %+v: %v; want %q", c.s, c.t, c.d, err, c.text)
		}
	}
	if g := Slope([]float64{1}, []float64{math.Pi}, 0)[0]; g != -math.Pi {
		t.Errorf("a slope of %v", g)
	}
}
