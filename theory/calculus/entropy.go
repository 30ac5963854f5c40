package calculus

import (
	"math"

	"attnlab/attn"
	"attnlab/theory/gibbs"
)

// GradEntropy returns dH/dS_j = -p_j (log p_j + H) / T for a row of weights with entropy H. It adds
// up to 0, and is 0 for even weights and for a single one. It is positive for weights below
// exp(-H): raising a small weight raises the entropy. As a penalty in a loss it keeps attention
// from settling on one key.
func GradEntropy(p []float64, t float64) []float64 {
	h := gibbs.Entropy(p)
	to := make([]float64, len(p))
	for j, x := range p {
		switch {
		case x == 0, t == attn.Frozen && x == 1:
		case t == attn.Frozen:
			to[j] = math.NaN() // one of several tied keys
		default:
			to[j] = -x * (math.Log(x) + h) / temperature(t)
		}
	}
	return to
}

// GradLogPartition returns dLSE/dS_j = p_j / T, where LSE is the logarithm of the sum of
// exp(S_j/T). It grows without limit as T goes to 0, as LSE does.
func GradLogPartition(p []float64, t float64) []float64 {
	to := make([]float64, len(p))
	for j, x := range p {
		if x != 0 {
			to[j] = x / temperature(t)
		}
	}
	return to
}
