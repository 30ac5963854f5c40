package calculus

import (
	"math"

	"attnlab/attn"
	"attnlab/theory/gibbs"
)

// GradEntropy is dH/dS_j = -p_j (log p_j + H) / T of a row of weights with entropy H. It is 0 for
// even weights and for a single one, adds up to 0, and is positive for weights below exp(-H): more
// entropy is had by lifting what is light. As a penalty in a loss it keeps attention from settling
// on one key.
func GradEntropy(p []float64, t float64) []float64 {
	h := gibbs.Entropy(p)
	to := make([]float64, len(p))
	for j, x := range p {
		switch {
		case x == 0, t == attn.Frozen && x == 1:
		case t == attn.Frozen:
			to[j] = math.NaN() // one of several keys that tie
		default:
			to[j] = -x * (math.Log(x) + h) / temperature(t)
		}
	}
	return to
}

// GradLogPartition is dLSE/dS_j = p_j / T, LSE being the logarithm of the sum of exp(S_j/T). It
// grows without limit as T goes to 0, and so does LSE.
func GradLogPartition(p []float64, t float64) []float64 {
	to := make([]float64, len(p))
	for j, x := range p {
		if x != 0 {
			to[j] = x / temperature(t)
		}
	}
	return to
}
