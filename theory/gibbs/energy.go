package gibbs

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// ExpectedEnergy returns <E> = -sum_j p_j s_j. A state of weight 0 adds nothing, whatever its
// score.
func ExpectedEnergy(p, s []float64) float64 {
	sameLength(p, s)
	e := 0.0
	for j, w := range p {
		if w != 0 {
			e -= w * s[j]
		}
	}
	return e
}

// FreeEnergy returns F = -t log Z. It does not divide by t as LogPartition does, so it is finite at
// t = 0: -max s. At t = +Inf it is -Inf, unless there is only one state.
func FreeEnergy(s []float64, t float64) float64 {
	z, top := gaps(s, t)
	if math.IsInf(top, 0) {
		return -top
	}
	return -top - times(t, floats.LogSumExp(z))
}

// HeatCapacity returns C = d<E>/dt = Var(E)/t^2, which is 0 in both limits of the temperature. It
// peaks where weight moves from some states to others.
func HeatCapacity(s []float64, t float64) float64 {
	z, top := gaps(s, t)
	if math.IsNaN(top) {
		return top
	}
	var x, p []float64 // s/t up to a constant, for the states that have weight
	for j, w := range Softmax(s, t) {
		if w > 0 {
			x, p = append(x, z[j]), append(p, w)
		}
	}
	if len(p) == 0 {
		return 0
	}
	return stat.PopVariance(x, p)
}

// times returns t x, or 0 where x = 0, even at t = +Inf.
func times(t, x float64) float64 {
	if x == 0 {
		return 0
	}
	return t * x
}

func sameLength(p, s []float64) {
	if len(p) != len(s) {
		panic(fmt.Sprintf("gibbs: %d weights for %d scores", len(p), len(s)))
	}
}
