package gibbs

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// gaps returns z_j = (s_j - top)/t, the logarithms of the weights up to a constant, where top is
// the largest score. They are at most 0, so their exponentials neither overflow nor all vanish,
// however large the scores are. In the limits of the temperature z_j is 0 for the states that share
// the weight and -Inf for the others. It is -Inf for hidden states. Everything is NaN where there
// is no distribution.
func gaps(s []float64, t float64) (z []float64, top float64) {
	z, top = make([]float64, len(s)), math.Inf(-1)
	infinite := 0
	for _, x := range s {
		top = max(top, x) // NaN if any score is NaN
		if math.IsInf(x, 1) {
			infinite++
		}
	}
	if len(s) > 0 && !(t >= 0) || infinite > 1 {
		top = math.NaN()
	}
	for j, x := range s {
		switch {
		case math.IsNaN(top):
			z[j] = top
		case math.IsInf(x, -1):
			z[j] = x
		case x == top:
			z[j] = 0
		case t == 0 || math.IsInf(top, 1):
			z[j] = math.Inf(-1)
		default:
			// The halves keep x - top from overflowing where both are near the ends of float64.
			z[j] = 2 * ((x/2 - top/2) / t)
		}
	}
	return z, top
}

// Softmax returns p_j = exp(s_j/t) / sum_k exp(s_k/t).
func Softmax(s []float64, t float64) []float64 {
	p, top := gaps(s, t)
	if math.IsInf(top, -1) {
		clear(p)
		return p
	}
	for j, z := range p {
		p[j] = math.Exp(z)
	}
	sum := floats.Sum(p)
	for j := range p {
		p[j] /= sum
	}
	return p
}

// LogSoftmax returns log p_j = s_j/t - LogPartition(s, t), -Inf for states of weight 0. It is
// finite even where the weight itself underflows.
func LogSoftmax(s []float64, t float64) []float64 {
	z, top := gaps(s, t)
	if !math.IsInf(top, -1) {
		floats.AddConst(-floats.LogSumExp(z), z)
	}
	return z
}

// LogPartition returns log Z, Z = sum_j exp(s_j/t). As t goes to 0 it grows like (max s)/t, so at t
// = 0 it is an infinity with the sign of max s. If max s is 0, it is the logarithm of the number of
// states with that score.
func LogPartition(s []float64, t float64) float64 {
	z, top := gaps(s, t)
	switch {
	case math.IsInf(top, 0):
		return top
	case top == 0:
		return floats.LogSumExp(z)
	}
	return top/t + floats.LogSumExp(z)
}

// Gibbs returns p_j = exp(-e_j/t) / Z for energies: low energies weigh most, and a state of energy
// +Inf has weight 0.
func Gibbs(e []float64, t float64) []float64 {
	return Softmax(floats.ScaleTo(make([]float64, len(e)), -1, e), t)
}
