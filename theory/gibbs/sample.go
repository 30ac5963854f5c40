package gibbs

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"
)

// GumbelMax draws a state j with the probability p_j of Softmax(s, t). It returns the index of the
// largest s_j/t + g_j, where the g_j are independent draws from Gumbel's distribution
// exp(-exp(-g)). In the limits of the temperature it draws evenly from the states that share the
// weight. It returns -1 if no state is visible or a score is NaN. Every call takes one random
// number for each state, hidden or not.
func GumbelMax(s []float64, t float64, r *rand.Rand) int {
	z, top := gaps(s, t)
	perturb(z, r)
	if math.IsNaN(top) || math.IsInf(top, -1) {
		return -1
	}
	return floats.MaxIdx(z)
}

// GumbelSoftmax draws nearly one-hot weights, Softmax(s_j/t + g_j, tau). They are a smooth function
// of the scores, so a gradient passes through the draw. As tau goes to 0 all the weight goes to the
// state that GumbelMax draws from the same random numbers; at tau = 0 that state has weight 1.
func GumbelSoftmax(s []float64, t, tau float64, r *rand.Rand) []float64 {
	z, _ := gaps(s, t)
	perturb(z, r)
	return Softmax(z, tau)
}

// perturb adds Gumbel noise to each number.
func perturb(z []float64, r *rand.Rand) {
	noise := distuv.GumbelRight{Beta: 1, Src: r}
	for j := range z {
		z[j] += noise.Rand()
	}
}

// SoftArgmax returns sum_j j p_j, the expected index, counted from 0. It is a smooth stand-in for
// the index of the largest score, and equals it at t = 0 if the largest score is unique. It is NaN
// if no state is visible.
func SoftArgmax(s []float64, t float64) float64 {
	p := Softmax(s, t)
	if floats.Sum(p) == 0 {
		return math.NaN()
	}
	mean := 0.0
	for j, w := range p {
		mean += float64(j) * w
	}
	return mean
}
