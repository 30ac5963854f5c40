package calculus

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// A Jacobian is dY_ib/dX_mn for all elements of two matrices. It is stored as a matrix with a row
// for each pair (i, b) and a column for each pair (m, n), both in row-major order. The chain rule
// is then a product of matrices.
type Jacobian struct {
	OfRows, OfCols int // the shape of Y
	ByRows, ByCols int // the shape of X
	Matrix         *mat.Dense
}

// NewJacobian fills a Jacobian with f(i, b, m, n).
func NewJacobian(ofRows, ofCols, byRows, byCols int, f func(i, b, m, n int) float64) *Jacobian {
	j := &Jacobian{ofRows, ofCols, byRows, byCols, mat.NewDense(ofRows*ofCols, byRows*byCols, nil)}
	j.Matrix.Apply(func(y, x int, _ float64) float64 { return f(y/ofCols, y%ofCols, x/byCols, x%byCols) }, j.Matrix)
	return j
}

// At returns dY_ib/dX_mn.
func (j *Jacobian) At(i, b, m, n int) float64 { return j.Matrix.At(i*j.OfCols+b, m*j.ByCols+n) }

// Pull takes the gradient by Y back to X: dL/dX_mn = sum_ib dL/dY_ib dY_ib/dX_mn. This is one step
// of the backward pass.
func (j *Jacobian) Pull(dY mat.Matrix) *mat.Dense {
	demand("the incoming gradient", dY, j.OfRows, j.OfCols)
	to := mat.NewDense(1, j.ByRows*j.ByCols, nil)
	to.Mul(mat.NewDense(1, j.OfRows*j.OfCols, flat(dY)), j.Matrix)
	return mat.NewDense(j.ByRows, j.ByCols, flat(to))
}

// Push carries a small change x of X forward to Y: sum_mn dY_ib/dX_mn x_mn. This is one step of
// forward differentiation.
func (j *Jacobian) Push(x mat.Matrix) *mat.Dense {
	demand("the change", x, j.ByRows, j.ByCols)
	to := mat.NewDense(j.OfRows*j.OfCols, 1, nil)
	to.Mul(j.Matrix, mat.NewDense(j.ByRows*j.ByCols, 1, flat(x)))
	return mat.NewDense(j.OfRows, j.OfCols, flat(to))
}

// Through applies the chain rule. For j = dZ/dY and inner = dY/dX it returns dZ/dX: dZ_ic/dX_mn =
// sum_kl dZ_ic/dY_kl dY_kl/dX_mn.
func (j *Jacobian) Through(inner *Jacobian) *Jacobian {
	if j.ByRows != inner.OfRows || j.ByCols != inner.OfCols {
		panic(fmt.Sprintf("calculus: the outer Jacobian is by a %d by %d matrix, the inner one of a %d by %d matrix, want equal shapes", j.ByRows, j.ByCols, inner.OfRows, inner.OfCols))
	}
	to := &Jacobian{j.OfRows, j.OfCols, inner.ByRows, inner.ByCols, new(mat.Dense)}
	to.Matrix.Mul(j.Matrix, inner.Matrix)
	return to
}

// OutputByWeights returns dO_ib/dA_mn = [i=m] V_nb for nq queries.
func OutputByWeights(nq int, v mat.Matrix) *Jacobian {
	nk, dv := v.Dims()
	return NewJacobian(nq, dv, nq, nk, func(i, b, m, n int) float64 { return delta(i, m) * v.At(n, b) })
}

// OutputByValues returns dO_ib/dV_mn = A_im [b=n] for values of dv numbers.
func OutputByValues(a mat.Matrix, dv int) *Jacobian {
	nq, nk := a.Dims()
	return NewJacobian(nq, dv, nk, dv, func(i, b, m, n int) float64 { return a.At(i, m) * delta(b, n) })
}

// WeightsByScores returns dA_ij/dS_mn = [i=m] A_ij ([j=n] - A_in) / T.
func WeightsByScores(a mat.Matrix, t float64) *Jacobian {
	nq, nk := a.Dims()
	t = temperature(t)
	return NewJacobian(nq, nk, nq, nk, func(i, j, m, n int) float64 {
		x := delta(i, m) * a.At(i, j) * (delta(j, n) - a.At(i, n))
		if x == 0 {
			return 0 // also at T = 0
		}
		return x / t
	})
}

// ScoresByQueries returns dS_ij/dQ_mn = scale [i=m] K_jn for nq queries.
func ScoresByQueries(nq int, k mat.Matrix, scale float64) *Jacobian {
	nk, d := k.Dims()
	scale = dotScale(scale, d)
	return NewJacobian(nq, nk, nq, d, func(i, j, m, n int) float64 { return scale * delta(i, m) * k.At(j, n) })
}

// ScoresByKeys returns dS_ij/dK_mn = scale Q_in [j=m] for nk keys.
func ScoresByKeys(q mat.Matrix, nk int, scale float64) *Jacobian {
	nq, d := q.Dims()
	scale = dotScale(scale, d)
	return NewJacobian(nq, nk, nk, d, func(i, j, m, n int) float64 { return scale * q.At(i, n) * delta(j, m) })
}

// ScoresByMetric returns dS_ij/dM_mn = scale Q_im K_jn of a bilinear score. It does not depend on
// M, because the scores are linear in M.
func ScoresByMetric(q, k mat.Matrix, scale float64) *Jacobian {
	nq, dq := q.Dims()
	nk, d := k.Dims()
	scale = bilinearScale(scale)
	return NewJacobian(nq, nk, dq, d, func(i, j, m, n int) float64 { return scale * q.At(i, m) * k.At(j, n) })
}

// delta returns [x=y].
func delta(x, y int) float64 {
	if x == y {
		return 1
	}
	return 0
}
