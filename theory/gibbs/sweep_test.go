package gibbs

import (
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestSweep checks the corrected figures of the tables in the tutorial and the paper.
func TestSweep(t *testing.T) {
	table := Sweep([]float64{2, 1, 0}, .25, .5, 1, 2, inf)
	want := mat.NewDense(5, 3, []float64{
		.981690, .017980, .000329,
		.866813, .117310, .015876,
		.665241, .244728, .090031,
		.506480, .307196, .186324,
		1. / 3, 1. / 3, 1. / 3,
	})
	if w := table.Weights(); !mat.EqualApprox(w, want, 6e-7) {
		t.Errorf("weights\n%v", mat.Formatted(w))
	}
	for i, h := range []float64{.093035, .441057, .832396, 1.020191, 1.098612} {
		s := table[i]
		one(t, "entropy", s.Entropy, h, 6e-7)
		one(t, "normalised", s.Normalized*MaxEntropy(3), s.Entropy, 1e-15)
		if s.T != inf {
			one(t, "F = <E> - T H", s.Free, s.Energy-s.T*s.Entropy, 1e-14)
		}
	}
	hot := table[4]
	same(t, "hot", []float64{hot.Free, hot.Energy, hot.Effective, hot.HeatCapacity}, []float64{-inf, -1, 3, 0}, 1e-14)
	cold := At([]float64{2, 1, 0}, 0)
	same(t, "cold", []float64{cold.Free, cold.Energy, cold.Effective, cold.HeatCapacity, cold.Entropy}, []float64{-2, -2, 1, 0, 0}, 0)
	if w := Sweep(nil).Weights(); !w.IsEmpty() {
		t.Errorf("a table of nothing has weights %v", w)
	}
	if s := (Table{}).String(); s != "" {
		t.Errorf("a table of nothing is %q", s)
	}
	if lines := strings.Count(table.String(), "\n"); lines != 6 {
		t.Errorf("a table of 5 temperatures has %d lines, want 6", lines)
	}
}

// TestCurve checks the weights of the lesson's curves.
func TestCurve(t *testing.T) {
	pair := func(x float64) []float64 { return []float64{3, x} }
	others := []float64{-2, 0, 2}
	for _, c := range []struct {
		t    float64
		want []float64
	}{
		{.5, []float64{.9999546, .99752738, .88079708}},
		{1, []float64{.99330715, .95257413, .73105858}},
		{2, []float64{.92414182, .81757448, .62245933}},
	} {
		same(t, "the larger of two", mat.Col(nil, 0, Curve(others, pair, c.t)), c.want, 6e-9)
	}
	if c := Curve(nil, pair, 1); !c.IsEmpty() {
		t.Errorf("a curve over nothing: %v", c)
	}
}
