package gibbs

import "gonum.org/v1/gonum/mat"

// Jacobian returns dp_i/ds_j = (p_i delta_ij - p_i p_j)/t for weights p = Softmax(s, t). It is
// symmetric, and each row adds up to 0 because the weights keep their sum. If p is part of a row
// (beside a sink, say), the result is the block of the Jacobian for that part. At t = 0 it is 0
// where one weight is 1. It is infinite where states tie, because a small change of one score then
// moves whole weights.
func Jacobian(p []float64, t float64) *mat.SymDense {
	if len(p) == 0 {
		return new(mat.SymDense)
	}
	jac := mat.NewSymDense(len(p), nil)
	for i, a := range p {
		jac.SetSym(i, i, over(a*(1-a), t))
		for j, b := range p[:i] {
			jac.SetSym(i, j, over(-a*b, t))
		}
	}
	return jac
}

// Susceptibility returns the Jacobian at scores s: how the weights respond to a small change of
// each score. It is beta times the covariance of the indicators of the states, an instance of the
// fluctuation-response relation of physics.
func Susceptibility(s []float64, t float64) *mat.SymDense { return Jacobian(Softmax(s, t), t) }

// over returns x/t, or 0 where x = 0, even at t = 0.
func over(x, t float64) float64 {
	if x == 0 {
		return 0
	}
	return x / t
}
