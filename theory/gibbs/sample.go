package gibbs

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"
)

// GumbelMax draws a state j with the probability p_j of Softmax(s, t): the largest s_j/t + g_j,
// where the g are independent numbers of Gumbel's distribution exp(-exp(-g)). It is -1 where no
// state is visible, or one is NaN. In the limits of the temperature it draws evenly from the states
// that share the weight. Every call takes as many random numbers as there are states, hidden or
// not.
func GumbelMax(s []float64, t float64, r *rand.Rand) int {
	z, top := gaps(s, t)
	perturb(z, r)
	if math.IsNaN(top) || math.IsInf(top, -1) {
		return -1
	}
	return floats.MaxIdx(z)
}

// GumbelSoftmax draws weights that are nearly those of one state, Softmax(s_j/t + g_j, tau), and
// follow the scores smoothly, so that there is a gradient through the draw. As tau goes to 0 they
// become all of the weight for the state that GumbelMax draws with the same random numbers, and at
// 0 are that.
func GumbelSoftmax(s []float64, t, tau float64, r *rand.Rand) []float64 {
	z, _ := gaps(s, t)
	perturb(z, r)
	return Softmax(z, tau)
}

// perturb adds Gumbel's noise.
func perturb(z []float64, r *rand.Rand) {
	noise := distuv.GumbelRight{Beta: 1, Src: r}
	for j := range z {
		z[j] += noise.Rand()
	}
}

// SoftArgmax returns sum_j j p_j, the expected index, counted from 0: a smooth stand-in for the
// index of the largest score, which it is at t = 0 if only one score is the largest. It is NaN
// where no state is visible.
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
