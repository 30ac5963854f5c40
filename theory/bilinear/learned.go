package bilinear

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// A Learned form is g = WᵀW, with a column of W for each dimension and any number of rows. It is
// symmetric, and no vector has a negative square. It is a metric only if W has rank d.
type Learned struct{ W *mat.Dense }

// Form returns g_ab = sum_c W_ca W_cb.
func (l Learned) Form() *mat.SymDense {
	var g mat.SymDense
	g.SymOuterK(1, l.W.T())
	return &g
}

// Rank returns the number of independent rows of W, which is the rank of g. Singular values within
// rounding of zero count as zero.
func (l Learned) Rank() int {
	var svd mat.SVD
	if !svd.Factorize(l.W, mat.SVDNone) {
		panic("bilinear: Learned.Rank: W has no singular values, want finite numbers")
	}
	r, d := l.W.Dims()
	return svd.Rank(float64(max(r, d)) * eps)
}

// Metric returns g as a metric. The error is ErrSingular if W has too few independent rows.
func (l Learned) Metric() (*Metric, error) { return New(l.Form()) }

// Inner returns <u, v>_g as (W u) . (W v), the dot product of the projected vectors.
func (l Learned) Inner(u, v []float64) float64 { return Pair(l.Project(u), l.Project(v)) }

// Project returns W v.
func (l Learned) Project(v []float64) []float64 {
	if _, d := l.W.Dims(); len(v) != d {
		panic(fmt.Sprintf("bilinear: Learned.Project: v has %d components, want %d, the columns of W", len(v), d))
	}
	var to mat.VecDense
	to.MulVec(l.W, vector(v))
	return to.RawVector().Data
}

// Grad returns the gradient of a loss by W, given dg = G, its gradient by g:
//
//	dL/dW_ca = sum_b W_cb (G_ba + G_ab)
//
// W enters g twice, so G is added to its transpose. G need not be symmetric.
func (l Learned) Grad(dg mat.Matrix) *mat.Dense {
	var both, dw mat.Dense
	both.Add(dg, dg.T())
	dw.Mul(l.W, &both)
	return &dw
}
