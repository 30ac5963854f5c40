package gibbs

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// Entropy returns H = -sum_j p_j log p_j in nats. 0 log 0 is 0, its limit. No small number is added
// to the logarithm, so a one-hot row has entropy 0 and not slightly less.
func Entropy(p []float64) float64 { return stat.Entropy(p) }

// EntropyAt returns the entropy of Softmax(s, t), computed from the scores: H = log Z - sum_j p_j
// s_j/t. A single pass over the keys can accumulate it.
func EntropyAt(s []float64, t float64) float64 {
	z, top := gaps(s, t)
	if math.IsInf(top, -1) {
		return 0
	}
	// Scores are taken less the largest one, which changes both terms by the same amount.
	logZ := floats.LogSumExp(z)
	mean := 0.0
	for _, z := range z {
		if p := math.Exp(z - logZ); p > 0 {
			mean += p * z
		}
	}
	return logZ - mean
}

// MaxEntropy returns log n, the entropy of n equal weights. It is 0 for n < 2.
func MaxEntropy(n int) float64 { return math.Log(float64(max(n, 1))) }

// NormalizedEntropy returns H / log n, from 0 (one state has all the weight) to 1 (all weigh the
// same). For a single state it is 0.
func NormalizedEntropy(p []float64) float64 {
	h := Entropy(p)
	if len(p) < 2 {
		return 0 * h // NaN stays
	}
	return h / MaxEntropy(len(p))
}

// EffectiveStates returns exp(H), the number of equally weighted states with this entropy. It is
// also called the perplexity.
func EffectiveStates(p []float64) float64 { return math.Exp(Entropy(p)) }
