package gibbs

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// Functional returns Phi(a) = -sum_j a_j s_j - t H(a), the energy of the weights a minus t times
// their entropy. Its minimum is at the Gibbs distribution, and FreeEnergy is its value there.
func Functional(a, s []float64, t float64) float64 {
	return ExpectedEnergy(a, s) - times(t, Entropy(a))
}

// Slope returns the gradient of Functional, dPhi/da_j = -s_j + t (log a_j + 1), for t below +Inf.
// On the simplex the functional is stationary where all elements are equal; their value is then
// minus the multiplier of sum a = 1. The element of a hidden state is +Inf.
func Slope(a, s []float64, t float64) []float64 {
	sameLength(a, s)
	logs := make([]float64, len(a))
	for j, x := range a {
		logs[j] = math.Log(x)
	}
	return slope(logs, s, t)
}

// slope computes Slope from the logarithms of the weights.
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

// Divergence returns KL(a || Softmax(s, t)) = sum_j a_j (log a_j - log p_j). It is 0 at a = p,
// positive elsewhere, and +Inf where a has weight on a hidden state. Functional(a, s, t) -
// FreeEnergy(s, t) is t times it.
func Divergence(a, s []float64, t float64) float64 {
	sameLength(a, s)
	kl := 0.0
	for j, logP := range LogSoftmax(s, t) { // finite where weights underflow
		if a[j] != 0 {
			kl += a[j] * (math.Log(a[j]) - logP)
		}
	}
	return kl
}

// A Descent sets how Minimize descends. The zero value uses the defaults below.
type Descent struct {
	// From is the starting weights, positive exactly where a score is visible. Nil starts from
	// equal weights on all visible states.
	From []float64
	// Rate is the size of a step, below 2/t. 0 means 1/(2t).
	Rate float64
	// Gap ends the descent: the functional is then at most Gap above its least value. 0 means 1e-13
	// times the largest of 1, t and the absolute scores.
	Gap float64
	// Steps is the largest number of steps. 0 means 10000.
	Steps int
}

// A Minimum is the end point of a descent.
type Minimum struct {
	Weights []float64
	Value   float64 // the functional at Weights
	Gap     float64 // upper bound on its distance from the least value
	Steps   int
}

// Minimize finds the weights that minimise Functional over the simplex. It does not use the fact
// that they are a softmax; it descends by mirror descent,
//
//	a_j <- a_j exp(-rate dPhi/da_j) / sum_k a_k exp(-rate dPhi/da_k)
//
// which never leaves the simplex. It stops by the gap sum_j a_j g_j - min_j g_j, g being the slope.
// The functional is convex, so it never falls below its tangent plane, and the gap bounds the
// distance from the minimum. In logarithms of a, a step goes to a mean of the present point and
// s/t. The distance shrinks by |1 - rate t| in each step, and a rate of 1/t arrives in one step.
//
// The temperature must be positive and finite; scores must be finite or, where hidden, -Inf.
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
			return m, fmt.Errorf("gibbs: still %.3g above the minimum after %d steps, raise Steps or Gap", m.Gap, steps)
		}
		floats.AddScaled(logs, -d.Rate, g) // a hidden state stays at -Inf
		logs = LogSoftmax(logs, 1)         // back to a sum of 1
	}
}

// begin fills in the defaults of a descent and returns the logarithms of its starting weights.
func (d *Descent) begin(s []float64, t float64) ([]float64, error) {
	if !(t > 0) || math.IsInf(t, 1) {
		return nil, fmt.Errorf("gibbs: got temperature %v, want a positive and finite one, use Softmax for the limits", t)
	}
	if d.Rate == 0 {
		d.Rate = 1 / (2 * t)
	}
	if !(d.Rate > 0 && d.Rate*t < 2) {
		return nil, fmt.Errorf("gibbs: got a rate of %v at temperature %v, want one above 0 and below 2/t = %v so that the descent converges", d.Rate, t, 2/t)
	}
	if d.Steps == 0 {
		d.Steps = 10000
	}
	visible, largest := 0, max(1, t)
	for _, x := range s {
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return nil, fmt.Errorf("gibbs: got a score of %v, want finite scores, or -Inf where hidden", x)
		}
		if !math.IsInf(x, -1) {
			visible++
			largest = max(largest, math.Abs(x))
		}
	}
	if visible == 0 {
		return nil, errors.New("gibbs: got no visible score, want at least one finite score")
	}
	if d.Gap == 0 {
		d.Gap = 1e-13 * largest
	}
	if d.From == nil {
		return LogSoftmax(s, math.Inf(1)), nil
	}
	if len(d.From) != len(s) {
		return nil, fmt.Errorf("gibbs: got From with %d weights over %d scores, want one weight for each score", len(d.From), len(s))
	}
	logs := make([]float64, len(s))
	for j, a := range d.From {
		if (a > 0) == math.IsInf(s[j], -1) {
			return nil, fmt.Errorf("gibbs: got weight %v of state %d, whose score is %v, want a positive weight where the score is visible and 0 elsewhere",
				a, j, s[j])
		}
		logs[j] = math.Log(a)
	}
	return LogSoftmax(logs, 1), nil
}

// minimum returns the Minimum at a point, given the logarithms of its weights and the slope there.
func (d *Descent) minimum(logs, g, s []float64, t float64, steps int) Minimum {
	m := Minimum{Weights: make([]float64, len(s)), Steps: steps}
	least := floats.Min(g) // the slope of a hidden state is +Inf
	for j, x := range logs {
		if m.Weights[j] = math.Exp(x); m.Weights[j] > 0 {
			m.Gap += m.Weights[j] * (g[j] - least)
		}
	}
	m.Value = Functional(m.Weights, s, t)
	return m
}
