package gibbs

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

// survival returns the probability of at least the observed chi-squared of the draws, under the
// weights p.
func survival(draws int, p []float64, draw func() int) float64 {
	counts, want := make([]float64, len(p)), slices.Clone(p)
	for range draws {
		counts[draw()]++
	}
	floats.Scale(float64(draws), want)
	kinds := -1.0
	for _, x := range p {
		if x > 0 {
			kinds++
		}
	}
	// Chi-squared is +Inf, and the result 0, if a state of weight 0 was drawn.
	return distuv.ChiSquared{K: kinds}.Survival(stat.ChiSquare(counts, want))
}

// TestGumbelMax checks that draws have the weights as their distribution, at any temperature and in
// its limits. It also checks that the test would notice the weights of another temperature.
func TestGumbelMax(t *testing.T) {
	s := []float64{1, 2, hidden, 3, 4, 4}
	for i, temp := range []float64{0, .5, 1, 2, inf} {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		draw := func() int { return GumbelMax(s, temp, r) }
		if p := survival(20000, Softmax(s, temp), draw); !(p > 1e-3) {
			t.Errorf("T = %v: chi-squared has a chance of %g", temp, p)
		}
		if other := temp + .2; temp < inf {
			if p := survival(20000, Softmax(s, other), draw); !(p < 1e-6) {
				t.Errorf("T = %v: draws pass for those of T = %v, with a chance of %g", temp, other, p)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][]float64{nil, {hidden, hidden}, {1, nan}, {inf, inf}} {
		if j := GumbelMax(s, 1, r); j != -1 {
			t.Errorf("from %v came %d, want -1", s, j)
		}
	}
}

// TestGumbelSoftmax checks that the relaxed draw favours the state that GumbelMax draws from the
// same random numbers, and becomes one-hot at tau = 0.
func TestGumbelSoftmax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp, seed := someScores(t), someTemperature(t), rapid.Uint64().Draw(t, "seed")
		again := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
		j := GumbelMax(s, temp, again())
		for _, tau := range []float64{0, .1, 1} {
			p := GumbelSoftmax(s, temp, tau, again())
			one(t, "sum", floats.Sum(p), 1, 1e-14)
			if floats.MaxIdx(p) != j {
				t.Fatalf("tau = %v: the largest weight of %v is not that of state %d", tau, p, j)
			}
			if tau == 0 && p[j] != 1 {
				t.Fatalf("tau = 0: state %d has weight %v", j, p[j])
			}
			for i, x := range s {
				if x == hidden && p[i] != 0 {
					t.Fatalf("hidden state %d has weight %v", i, p[i])
				}
			}
		}
	})
}

// TestSoftArgmax checks the expected index, also in both limits and without a distribution.
func TestSoftArgmax(t *testing.T) {
	s := []float64{1, 2, 3, 4, 1}
	one(t, "lesson", SoftArgmax(s, 1), 2.539475, 5e-7)
	one(t, "cold", SoftArgmax(s, 0), 3, 0)
	one(t, "hot", SoftArgmax(s, inf), 2, 1e-15)
	one(t, "tie", SoftArgmax([]float64{5, 1, 5}, 0), 1, 0)
	one(t, "nothing visible", SoftArgmax([]float64{hidden}, 1), nan, 0)
	one(t, "NaN", SoftArgmax([]float64{nan, 1}, 1), nan, 0)
	if x := SoftArgmax(nil, 1); !math.IsNaN(x) {
		t.Errorf("of no state: %v", x)
	}
}
