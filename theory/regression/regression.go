// Package regression is attention as statistics has it: a kernel regression, whose kernel weighs
// each key by its query, and linear attention, which is what becomes of it when the kernel is a
// product of features. All in float64, from the equations.
//
// # Kernel regression
//
//	o_i = sum_j K(q_i, k_j) v_j / sum_j K(q_i, k_j)                  Nadaraya and Watson: Kernel.Regress
//
// K is any weight that is not negative. A Kernel here is its logarithm, because then a regression
// is attention as it stands, and as safe from overflow: the weights are the softmax of the scores
// log K. Where K is 0 the score is -Inf, a key hidden: kernels of bounded support are masks that
// the keys themselves draw. A query that no key is near has a zero row, as any row has that sees no
// key.
//
//	exp(q.k / sqrt(d))            ExpDot        this is attention, exactly
//	exp(-|q-k|^2 / 2h^2)          Gaussian      is attention where all keys have one norm, with h^2 = sqrt(d)
//	exp(-|q-k| / h)               Laplace
//	1 / (1 + |q-k|^2/h^2)         Cauchy
//	1 - |q-k|^2/h^2, or 0         Epanechnikov
//	1 - |q-k|/h, or 0             Triangle
//	1 within h, or 0              Box
//
// So attention is a kernel regression, with a kernel that is not a function of q-k and has no
// bandwidth to choose (E-13). What the Gaussian does differently is to hold their length against
// keys: -|q-k|^2/2h^2 = q.k/h^2 - |k|^2/2h^2 - |q|^2/2h^2, of which the last term is the same for
// all keys. Attention with the second one for a bias is the Gaussian's regression, for any keys:
// GaussianBias.
//
// # Gram matrices
//
// A kernel is positive if the matrix G_ij = K(x_i, x_j) has no negative eigenvalue, for any x:
// Gram, Spectrum. ExpDot, Gaussian, Laplace and Cauchy are, Epanechnikov and Box are not, Triangle
// on a line only. What attention computes from Q = K is G with its rows divided by their sums,
// which is no longer symmetric, and there can be x with x.Ax < 0: the matrix of weights is not a
// kernel matrix, exp(S) is (E-22).
//
// # Linear attention
//
// A positive kernel is a product of features, K(q, k) = f(q).f(k). If they are finitely many, keys
// and values can be summed before any query comes:
//
//	o_i = f(q_i)^T X / (f(q_i).z + eps)     X = sum_j f(k_j) v_j^T     z = sum_j f(k_j)        Linear.Attend
//	    = sum_j w_ij v_j / (sum_j w_ij + eps)     w_ij = f(q_i).f(k_j)                         Linear.Pairwise
//
// The first takes (n_q + n_k) d_f (d_v + 1) products, the second n_q n_k (d_f + d_v + 1): Products.
// So it is linear in n, but O(n d_f d_v), not O(n) and not O(n d) (E-09b, E-37). Under a causal
// mask X and z run along, which is a State that takes in a key and answers a query in constant
// memory: Linear.Causal.
//
// What it computes is the regression of another kernel, not an approximation of softmax, unless the
// features are random ones of which the products are exp(q.k) on average: Random. Features are maps
// of one number, such as elu(x)+1 (Katharopoulos and others, 2020), or of the whole row. The
// lesson's listing says elu+1, credits it to the Performer, and computes max(0, x)+1 (E-09): both
// are here, by name.
package regression

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/gibbs"
)

// A Kernel is the logarithm of the weight that a query gives a key, -Inf where that is 0.
type Kernel func(q, k []float64) float64

// ExpDot is exp(scale q.k), the kernel that makes a regression attention. 0 means 1/sqrt(d).
func ExpDot(scale float64) Kernel {
	return func(q, k []float64) float64 {
		c := scale
		if c == 0 {
			c = 1 / math.Sqrt(float64(len(q)))
		}
		return c * floats.Dot(q, k)
	}
}

// Gaussian is exp(-|q-k|^2 / 2h^2).
func Gaussian(h float64) Kernel {
	return radial(h, func(r float64) float64 { return -r * r / 2 })
}

// Laplace is exp(-|q-k|/h).
func Laplace(h float64) Kernel {
	return radial(h, func(r float64) float64 { return -r })
}

// Cauchy is 1/(1 + |q-k|^2/h^2): far keys count more than with any of the others.
func Cauchy(h float64) Kernel {
	return radial(h, func(r float64) float64 { return -math.Log1p(r * r) })
}

// Epanechnikov is 1 - |q-k|^2/h^2, and 0 from h on.
func Epanechnikov(h float64) Kernel {
	return within(h, func(r float64) float64 { return math.Log1p(-r * r) })
}

// Triangle is 1 - |q-k|/h, and 0 from h on.
func Triangle(h float64) Kernel {
	return within(h, func(r float64) float64 { return math.Log1p(-r) })
}

// Box is 1 nearer than h, and 0 from there on: the mean of the near ones.
func Box(h float64) Kernel {
	return within(h, func(float64) float64 { return 0 })
}

// radial is a kernel of the distance in bandwidths.
func radial(h float64, log func(r float64) float64) Kernel {
	if !(h > 0) {
		panic(fmt.Sprintf("regression: a bandwidth of %v, want a positive number", h))
	}
	return func(q, k []float64) float64 { return log(floats.Distance(q, k, 2) / h) }
}

// within is a kernel that is 0 from one bandwidth on.
func within(h float64, log func(r float64) float64) Kernel {
	return radial(h, func(r float64) float64 {
		if r >= 1 {
			return math.Inf(-1)
		}
		return log(r)
	})
}

// Scores is log K of every query and key.
func (f Kernel) Scores(q, k mat.Matrix) *mat.Dense {
	nq, d := q.Dims()
	nk, dk := k.Dims()
	if d != dk {
		panic(fmt.Sprintf("regression: queries of %d numbers and keys of %d", d, dk))
	}
	to := mat.NewDense(nq, nk, nil)
	keys := rowsOf(k)
	for i, x := range rowsOf(q) {
		for j, y := range keys {
			to.Set(i, j, f(x, y))
		}
	}
	return to
}

// Weights is K over the sum of its row, computed without K itself.
func (f Kernel) Weights(q, k mat.Matrix) *mat.Dense { return gibbs.SoftmaxRows(f.Scores(q, k), 1) }

// Regress is what Nadaraya and Watson's regression makes of values at the keys, asked for at the
// queries.
func (f Kernel) Regress(q, k, v mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Mul(f.Weights(q, k), v)
	return &to
}

// GaussianBias is what a Gaussian's regression adds to the score q.k/h^2 of each key,
// -|k_j|^2/2h^2.
func GaussianBias(k mat.Matrix, h float64) []float64 {
	keys := rowsOf(k)
	to := make([]float64, len(keys))
	for j, x := range keys {
		to[j] = -floats.Dot(x, x) / (2 * h * h)
	}
	return to
}

// rowsOf is the rows of a matrix.
func rowsOf(m mat.Matrix) [][]float64 {
	n, _ := m.Dims()
	to := make([][]float64, n)
	for i := range to {
		to[i] = mat.Row(nil, i, m)
	}
	return to
}
