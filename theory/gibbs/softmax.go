package gibbs

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// gaps returns z_j = (s_j - top)/t, the logarithms of the weights up to a constant, where top is
// the largest score. They are at most 0, so their exponentials neither overflow nor all vanish,
// however large the scores are; and the limits of the temperature are plain in them: 0 for the
// states that share the weight, -Inf for the others. Hidden states have -Inf. All is NaN where
// there is no distribution.
func gaps(s []float64, t float64) (z []float64, top float64) {
	z, top = make([]float64, len(s)), math.Inf(-1)
	infinite := 0
	for _, x := range s {
		top = max(top, x) // NaN, if there is one
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
			z[j] = 2 * ((x/2 - top/2) / t) // the difference of two numbers near the ends of float64 is not one
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

// LogSoftmax returns log p_j = s_j/t - LogPartition(s, t), -Inf for states of weight 0. Where a
// weight is too small for a float64 its logarithm is not.
func LogSoftmax(s []float64, t float64) []float64 {
	z, top := gaps(s, t)
	if !math.IsInf(top, -1) {
		floats.AddConst(-floats.LogSumExp(z), z)
	}
	return z
}

// LogPartition returns log Z, Z = sum_j exp(s_j/t). It grows as (max s)/t where t goes to 0: the
// limit is an infinity with the sign of max s, and where that is 0 the logarithm of how many states
// have it.
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

// Gibbs returns p_j = exp(-e_j/t) / Z for energies: low ones weigh most, and +Inf is one that
// cannot be.
func Gibbs(e []float64, t float64) []float64 {
	return Softmax(floats.ScaleTo(make([]float64, len(e)), -1, e), t)
}
