// Package regression treats attention as statistics does: as a kernel regression, whose kernel
// weighs each key by its query. If the kernel is a product of features, the regression is linear
// attention. Everything is float64, straight from the equations.
//
// # Kernel regression
//
//	o_i = sum_j K(q_i, k_j) v_j / sum_j K(q_i, k_j)      Nadaraya and Watson: Kernel.Regress
//
// K is any nonnegative weight. A Kernel is the logarithm of K. A regression is then attention with
// the scores log K: its weights are their softmax, which cannot overflow. Where K is 0 the score is
// -Inf and the key is hidden, so kernels of bounded support act as masks that depend on the keys. A
// query without a near key has a zero row, like any row that sees no key.
//
//	exp(q.k / sqrt(d))            ExpDot        this is attention, exactly
//	exp(-|q-k|^2 / 2h^2)          Gaussian      attention if h^2 = sqrt(d) and keys have one norm
//	exp(-|q-k| / h)               Laplace
//	1 / (1 + |q-k|^2/h^2)         Cauchy
//	1 - |q-k|^2/h^2, or 0         Epanechnikov
//	1 - |q-k|/h, or 0             Triangle
//	1 within h, or 0              Box
//
// So attention is a kernel regression whose kernel is not a function of q-k, and has no bandwidth
// to choose (E-13). The Gaussian differs by a penalty on long keys:
//
//	-|q-k|^2/2h^2 = q.k/h^2 - |k|^2/2h^2 - |q|^2/2h^2
//
// The last term is constant over the keys of a query. Attention with the second term as a bias is
// therefore the Gaussian's regression, for any keys: GaussianBias.
//
// # Gram matrices
//
// A kernel is positive if the matrix G_ij = K(x_i, x_j) has no negative eigenvalue, for any x:
// Gram, Spectrum. ExpDot, Gaussian, Laplace and Cauchy are positive. Triangle is positive on a line
// only; Epanechnikov and Box are not positive. From Q = K, attention computes G with its rows
// divided by their sums. That matrix A is not symmetric, and x.Ax can be negative. So exp(S) is a
// kernel matrix, but the matrix of weights is not (E-22).
//
// # Linear attention
//
// A positive kernel is a product of features, K(q, k) = f(q).f(k). If there are finitely many
// features, keys and values can be summed before any query arrives:
//
//	o_i = f(q_i)^T X / (f(q_i).z + eps)            Linear.Attend
//	    = sum_j w_ij v_j / (sum_j w_ij + eps)      Linear.Pairwise
//
//	X = sum_j f(k_j) v_j^T     z = sum_j f(k_j)     w_ij = f(q_i).f(k_j)
//
// The first takes (n_q + n_k) d_f (d_v + 1) products, the second n_q n_k (d_f + d_v + 1): Products.
// So it is linear in n, but O(n d_f d_v), not O(n) and not O(n d) (E-09b, E-37). Under a causal
// mask X and z are running sums: a State absorbs a key and answers a query in constant memory
// (Linear.Causal).
//
// Linear attention is the regression of another kernel, not an approximation of softmax. The
// exception is random features whose products are exp(q.k) on average: Random. A feature map works
// on single numbers, such as elu(x)+1 (Katharopoulos et al., 2020), or on the whole row. The
// lesson's listing is called elu+1, is credited to the Performer, and computes max(0, x)+1 (E-09).
// ByName has both.
package regression

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/gibbs"
)

// A Kernel is the logarithm of the weight that a query gives a key; it is -Inf where the weight is
// 0.
type Kernel func(q, k []float64) float64

// ExpDot returns exp(scale q.k), the kernel of attention. A scale of 0 means 1/sqrt(d).
func ExpDot(scale float64) Kernel {
	return func(q, k []float64) float64 {
		c := scale
		if c == 0 {
			c = 1 / math.Sqrt(float64(len(q)))
		}
		return c * floats.Dot(q, k)
	}
}

// Gaussian returns exp(-|q-k|^2 / 2h^2).
func Gaussian(h float64) Kernel {
	return radial(h, func(r float64) float64 { return -r * r / 2 })
}

// Laplace returns exp(-|q-k|/h).
func Laplace(h float64) Kernel {
	return radial(h, func(r float64) float64 { return -r })
}

// Cauchy returns 1/(1 + |q-k|^2/h^2), which gives far keys more weight than the other kernels.
func Cauchy(h float64) Kernel {
	return radial(h, func(r float64) float64 { return -math.Log1p(r * r) })
}

// Epanechnikov returns 1 - |q-k|^2/h^2 within distance h, and 0 beyond.
func Epanechnikov(h float64) Kernel {
	return within(h, func(r float64) float64 { return math.Log1p(-r * r) })
}

// Triangle returns 1 - |q-k|/h within distance h, and 0 beyond.
func Triangle(h float64) Kernel {
	return within(h, func(r float64) float64 { return math.Log1p(-r) })
}

// Box returns 1 within distance h, and 0 beyond: its regression is the mean of the near values.
func Box(h float64) Kernel {
	return within(h, func(float64) float64 { return 0 })
}

// radial returns a kernel that depends on the distance in bandwidths.
func radial(h float64, log func(r float64) float64) Kernel {
	if !(h > 0) {
		panic(fmt.Sprintf("regression: got a bandwidth of %v, want a positive number", h))
	}
	return func(q, k []float64) float64 { return log(floats.Distance(q, k, 2) / h) }
}

// within returns a radial kernel that is 0 from one bandwidth on.
func within(h float64, log func(r float64) float64) Kernel {
	return radial(h, func(r float64) float64 {
		if r >= 1 {
			return math.Inf(-1)
		}
		return log(r)
	})
}

// Scores returns log K for every query and key.
func (f Kernel) Scores(q, k mat.Matrix) *mat.Dense {
	nq, d := q.Dims()
	nk, dk := k.Dims()
	if d != dk {
		panic(fmt.Sprintf("regression: got queries of %d numbers and keys of %d, want equal lengths", d, dk))
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

// Weights returns K divided by its row sum, computed from log K.
func (f Kernel) Weights(q, k mat.Matrix) *mat.Dense { return gibbs.SoftmaxRows(f.Scores(q, k), 1) }

// Regress returns the regression of Nadaraya and Watson at the queries, from values at the keys.
func (f Kernel) Regress(q, k, v mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Mul(f.Weights(q, k), v)
	return &to
}

// GaussianBias returns -|k_j|^2/2h^2 for each key, which a Gaussian's regression adds to the score
// q.k/h^2.
func GaussianBias(k mat.Matrix, h float64) []float64 {
	keys := rowsOf(k)
	to := make([]float64, len(keys))
	for j, x := range keys {
		to[j] = -floats.Dot(x, x) / (2 * h * h)
	}
	return to
}

// rowsOf returns the rows of a matrix.
func rowsOf(m mat.Matrix) [][]float64 {
	n, _ := m.Dims()
	to := make([][]float64, n)
	for i := range to {
		to[i] = mat.Row(nil, i, m)
	}
	return to
}
