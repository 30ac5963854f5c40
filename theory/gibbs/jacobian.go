package gibbs

import "gonum.org/v1/gonum/mat"

// Jacobian returns dp_i/ds_j = (p_i delta_ij - p_i p_j)/t for weights p = Softmax(s, t). It is
// symmetric and each of its rows adds up to 0, since weights keep their sum whatever the scores do.
// Of weights that share a row with others (a sink's, say) it is the block that belongs to them. At
// t = 0 it is 0 where one weight is 1, and infinite where states tie: there a push on one score
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

// Susceptibility returns the Jacobian at scores: how the weights answer to a small push on each
// score. It is beta times the covariance of the indicators of the states, as a fluctuation and the
// response to it are elsewhere in physics.
func Susceptibility(s []float64, t float64) *mat.SymDense { return Jacobian(Softmax(s, t), t) }

// over is x/t, with 0 at x = 0 for every t.
func over(x, t float64) float64 {
	if x == 0 {
		return 0
	}
	return x / t
}
