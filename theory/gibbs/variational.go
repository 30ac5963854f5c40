package gibbs

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// Functional returns Phi(a) = -sum_j a_j s_j - t H(a), the energy of the weights a less their
// entropy. The Gibbs distribution is where it is least, and FreeEnergy is how much it is there.
func Functional(a, s []float64, t float64) float64 {
	return ExpectedEnergy(a, s) - times(t, Entropy(a))
}

// Slope returns the gradient of Functional, dPhi/da_j = -s_j + t (log a_j + 1), for t below +Inf.
// On the simplex the functional is stationary where all its elements are the same, which are then
// the multiplier of sum a = 1 with the sign turned. That of a hidden state is +Inf.
func Slope(a, s []float64, t float64) []float64 {
	sameLength(a, s)
	logs := make([]float64, len(a))
	for j, x := range a {
		logs[j] = math.Log(x)
	}
	return slope(logs, s, t)
}

// slope is Slope from the logarithms of the weights.
func slope(logs, s []float64, t float64) []float64 {
	g := make([]float64, len(s))
	for j := range g {
		g[j] = -s[j]
		if t != 0 && !math.IsInf(s[j], -1) {
			g[j] += t * (logs[j] + 1)
		}
	}
	return g
}

// Divergence returns KL(a || Softmax(s, t)) = sum_j a_j (log a_j - log p_j). It is at least 0, and
// only 0 at a = p; +Inf where a has weight on a hidden state. Functional(a, s, t) - FreeEnergy(s,
// t) is t times it.
func Divergence(a, s []float64, t float64) float64 {
	sameLength(a, s)
	kl := 0.0
	for j, logP := range LogSoftmax(s, t) { // also of weights too small for a float64
		if a[j] != 0 {
			kl += a[j] * (math.Log(a[j]) - logP)
		}
	}
	return kl
}

// A Descent says how Minimize goes downhill. Its zero value is a good way.
type Descent struct {
	From  []float64 // weights to begin at, positive where a score is visible; nil: all visible ones the same
	Rate  float64   // of a step, below 2/t; 0: 1/(2t)
	Gap   float64   // stop when the functional is at most this far above its least value; 0: 1e-13 of the largest of 1, t and the scores
	Steps int       // give up after so many; 0: 10000
}

// A Minimum is where a descent ended.
type Minimum struct {
	Weights []float64
	Value   float64 // the functional there
	Gap     float64 // how far above the least value it can be at most
	Steps   int
}

// Minimize finds the weights that minimise Functional over the simplex without being told that they
// are a softmax: by mirror descent,
//
//	a_j <- a_j exp(-rate dPhi/da_j) / sum_k a_k exp(-rate dPhi/da_k)
//
// which stays in the simplex by itself. It knows that it is there by the gap sum_j a_j g_j - min_j
// g_j, g being the slope: the functional is convex, so it nowhere falls below its tangent plane. In
// logarithms of a, a step goes to a mean of where it is and of s/t, so the distance shrinks by |1 -
// rate t| each time, and a rate of 1/t is there in one step.
//
// The temperature must be positive and finite, and the scores too, hidden ones excepted.
func Minimize(s []float64, t float64, d Descent) (Minimum, error) {
	logs, err := d.begin(s, t)
	if err != nil {
		return Minimum{}, err
	}
	for steps := 0; ; steps++ {
		g := slope(logs, s, t)
		if m := d.minimum(logs, g, s, t, steps); m.Gap <= d.Gap {
			return m, nil
		} else if steps == d.Steps {
			return m, fmt.Errorf("gibbs: still %.3g above the minimum after %d steps: allow more of them, or a larger gap", m.Gap, steps)
		}
		floats.AddScaled(logs, -d.Rate, g) // a hidden state stays at -Inf
		logs = LogSoftmax(logs, 1)         // back to a sum of 1
	}
}

// begin says what the zero values of a descent mean, and where it begins, in logarithms of weights.
func (d *Descent) begin(s []float64, t float64) ([]float64, error) {
	if !(t > 0) || math.IsInf(t, 1) {
		return nil, fmt.Errorf("gibbs: a descent at temperature %v, want a positive and finite one; Softmax has the limits", t)
	}
	if d.Rate == 0 {
		d.Rate = 1 / (2 * t)
	}
	if !(d.Rate > 0 && d.Rate*t < 2) {
		return nil, fmt.Errorf("gibbs: a rate of %v at temperature %v, want one above 0 and below 2/t = %v, or it does not converge", d.Rate, t, 2/t)
	}
	if d.Steps == 0 {
		d.Steps = 10000
	}
	visible, largest := 0, max(1, t)
	for _, x := range s {
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return nil, fmt.Errorf("gibbs: a descent over a score of %v, want finite ones, and -Inf where hidden", x)
		}
		if !math.IsInf(x, -1) {
			visible++
			largest = max(largest, math.Abs(x))
		}
	}
	if visible == 0 {
		return nil, errors.New("gibbs: a descent over no visible score: there are no weights to find")
	}
	if d.Gap == 0 {
		d.Gap = 1e-13 * largest
	}
	if d.From == nil {
		return LogSoftmax(s, math.Inf(1)), nil
	}
	if len(d.From) != len(s) {
		return nil, fmt.Errorf("gibbs: a descent from %d weights over %d scores", len(d.From), len(s))
	}
	logs := make([]float64, len(s))
	for j, a := range d.From {
		if (a > 0) == math.IsInf(s[j], -1) {
			return nil, fmt.Errorf("gibbs: a descent from weight %v of state %d, whose score is %v: begin with a positive one where a score is visible, else with 0",
				a, j, s[j])
		}
		logs[j] = math.Log(a)
	}
	return LogSoftmax(logs, 1), nil
}

// minimum describes a point by the logarithms of its weights and the slope there.
func (d *Descent) minimum(logs, g, s []float64, t float64, steps int) Minimum {
	m := Minimum{Weights: make([]float64, len(s)), Steps: steps}
	least := floats.Min(g) // that of a hidden state is +Inf
	for j, x := range logs {
		if m.Weights[j] = math.Exp(x); m.Weights[j] > 0 {
			m.Gap += m.Weights[j] * (g[j] - least)
		}
	}
	m.Value = Functional(m.Weights, s, t)
	return m
}
