package gibbs

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"
)

// TestEntropy checks entropy, its normalised form and the effective number of states.
func TestEntropy(t *testing.T) {
	eight := make([]float64, 8)
	floats.AddConst(1.0/8, eight)
	x := math.Exp(math.Sqrt2 / 2)
	z := 2*x + 1
	for _, c := range []struct {
		name                  string
		p                     []float64
		h, normalised, states float64
		tol                   float64
	}{
		{"uniform", eight, 2.07944154, 1, 8, 5e-9},
		{"one hot", []float64{0, 1, 0}, 0, 0, 1, 0}, // exactly
		{"nearly", []float64{.99, .005, .005}, .0629330, .0572841, math.Exp(.0629330), 1e-7},
		{"example of the tutorial", []float64{x / z, 1 / z, x / z}, 1.053363, 1.053363 / math.Log(3), math.Exp(1.053363), 2e-6},
		{"one state", []float64{1}, 0, 0, 1, 0},
		{"part of a row", []float64{.5}, .5 * math.Ln2, 0, math.Sqrt2, 1e-15},
		{"no weight", []float64{0, 0}, 0, 0, 1, 0},
		{"nothing", nil, 0, 0, 1, 0},
		{"NaN", []float64{nan}, nan, nan, nan, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			one(t, "entropy", Entropy(c.p), c.h, c.tol)
			one(t, "normalised entropy", NormalizedEntropy(c.p), c.normalised, c.tol)
			one(t, "effective states", EffectiveStates(c.p), c.states, 4*c.tol)
		})
	}
	for n, want := range []float64{0, 0, math.Ln2, math.Log(3)} {
		one(t, "most", MaxEntropy(n), want, 1e-15)
	}
}

// TestEntropyProperties checks that 0 <= H <= log n, and that the entropy from scores equals the
// entropy from weights.
func TestEntropyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		p := Softmax(s, temp)
		h, n := Entropy(p), 0
		for _, x := range s {
			if x != hidden {
				n++
			}
		}
		if !(h >= 0 && h <= MaxEntropy(n)+1e-14) {
			t.Fatalf("entropy %v of %d states", h, n)
		}
		one(t, "from scores", EntropyAt(s, temp), h, 1e-13)
		for _, limit := range []float64{0, inf} {
			one(t, "in the limits", EntropyAt(s, limit), Entropy(Softmax(s, limit)), 1e-14)
		}
	})
	one(t, "nothing visible", EntropyAt([]float64{hidden}, 1), 0, 0)
	one(t, "one takes all", EntropyAt([]float64{inf, 1}, 1), 0, 0)
	one(t, "NaN", EntropyAt([]float64{nan, 1}, 1), nan, 0)
	one(t, "large", EntropyAt([]float64{1e300, 1e300, -1e300}, 1), math.Ln2, 1e-15)
}
