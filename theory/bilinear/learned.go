package bilinear

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// A Learned form is g = WᵀW, made by a matrix W that has a column for each dimension and any number
// of rows. It is symmetric, and no vector has a negative square; it is a metric only where W has
// rank d.
type Learned struct{ W *mat.Dense }

// Form is g_ab = sum_c W_ca W_cb.
func (l Learned) Form() *mat.SymDense {
	var g mat.SymDense
	g.SymOuterK(1, l.W.T())
	return &g
}

// Rank is the number of independent rows of W, and of g: singular values that are no more than
// rounding leaves of zero are zero.
func (l Learned) Rank() int {
	var svd mat.SVD
	if !svd.Factorize(l.W, mat.SVDNone) {
		panic("bilinear: Learned.Rank: no singular values are found; W has to be finite")
	}
	r, d := l.W.Dims()
	return svd.Rank(float64(max(r, d)) * eps)
}

// Metric is g as a metric, or ErrSingular where W has not enough independent rows.
func (l Learned) Metric() (*Metric, error) { return New(l.Form()) }

// Inner is <u, v>_g as (W u) . (W v): both vectors are projected, and a plain dot product is taken
// there.
func (l Learned) Inner(u, v []float64) float64 { return Pair(l.Project(u), l.Project(v)) }

// Project is W v.
func (l Learned) Project(v []float64) []float64 {
	if _, d := l.W.Dims(); len(v) != d {
		panic(fmt.Sprintf("bilinear: Learned.Project of a vector with %d components, and W has %d columns", len(v), d))
	}
	var to mat.VecDense
	to.MulVec(l.W, vector(v))
	return to.RawVector().Data
}

// Grad takes the gradient G of a loss by g back to W:
//
//	dL/dW_ca = sum_b W_cb (G_ba + G_ab)
//
// W enters g twice, which is why G comes with its transpose. G need not be symmetric.
func (l Learned) Grad(dg mat.Matrix) *mat.Dense {
	var both, dw mat.Dense
	both.Add(dg, dg.T())
	dw.Mul(l.W, &both)
	return &dw
}
