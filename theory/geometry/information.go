package geometry

import (
	"errors"
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"

	"attnlab/theory/gibbs"
)

// Expected returns Fisher's information by its definition, sum_y p_y s_yi s_yj, for outcomes of
// probabilities p. Row y of scores is the score vector s_yi = d_i log p_y.
func Expected(p []float64, scores mat.Matrix) *mat.SymDense {
	outcomes, n := scores.Dims()
	if outcomes != len(p) {
		panic(fmt.Sprintf("geometry: got %d probabilities for %d score vectors, want equal numbers", len(p), outcomes))
	}
	to := mat.NewSymDense(n, nil)
	for y, w := range p {
		to.SymRankOne(to, w, mat.NewVecDense(n, mat.Row(nil, y, scores)))
	}
	return to
}

// Categorical returns the information of p = softmax(logits/t) about its logits, (diag p - p
// p^T)/t^2. It is singular: shifting all logits changes nothing.
func Categorical(logits []float64, t float64) *mat.SymDense {
	f := gibbs.Jacobian(gibbs.Softmax(logits, t), t) // dp/dlogits, which divides by t once
	f.ScaleSym(1/t, f)
	return f
}

// Gaussians returns the information of the normal distributions about (mu, sigma), diag(1/sigma^2,
// 2/sigma^2), as a field over (mu, sigma).
func Gaussians() Dual {
	return func(x []dual.Number) [][]dual.Number {
		f := dual.Inv(dual.Mul(x[1], x[1]))
		return diagonal(f, dual.Scale(2, f))
	}
}

// Pull returns J^T F J, the metric in other coordinates. J holds the derivatives of the old
// coordinates (rows) by the new ones (columns).
func Pull(f mat.Symmetric, j mat.Matrix) *mat.SymDense {
	rows, n := j.Dims()
	if rows != f.SymmetricDim() {
		panic(fmt.Sprintf("geometry: J has %d rows, want %d, the dimension of the metric", rows, f.SymmetricDim()))
	}
	var right, both mat.Dense
	right.Mul(f, j)
	both.Mul(j.T(), &right)
	to := mat.NewSymDense(n, nil)
	for a := range n {
		for b := a; b < n; b++ {
			to.SetSym(a, b, (both.At(a, b)+both.At(b, a))/2) // equal up to rounding
		}
	}
	return to
}

// Natural returns the natural gradient, F^-1 times the gradient. A step of descent is -eta times
// it.
//
// Without damping it is the pseudo-inverse of F times the gradient; singular values below n 2^-52
// of the largest count as 0. That is the shortest vector that F takes to the gradient, or to its
// part in the range of F. With damping it is (F + damping 1)^-1 times the gradient, which is
// shorter, and depends on the choice of parameters.
func Natural(f mat.Symmetric, gradient []float64, damping float64) ([]float64, error) {
	n := f.SymmetricDim()
	same("the gradient", len(gradient), n)
	g, to := mat.NewVecDense(n, gradient), mat.NewVecDense(n, nil)
	switch {
	case !(damping >= 0):
		return nil, fmt.Errorf("geometry: got a damping of %v, want 0 or more", damping)
	case damping > 0:
		return damped(f, g, damping)
	}
	var svd mat.SVD
	if !svd.Factorize(f, mat.SVDThin) || floats.HasNaN(svd.Values(nil)) {
		return nil, errors.New("geometry: the information has no singular values, check it for NaN and infinities")
	}
	if rank := svd.Rank(float64(n) * 0x1p-52); rank > 0 { // without any information the step is 0
		svd.SolveVecTo(to, g, rank)
	}
	return to.RawVector().Data, nil
}

// damped solves (F + damping 1) x = g.
func damped(f mat.Symmetric, g *mat.VecDense, damping float64) ([]float64, error) {
	n := f.SymmetricDim()
	sum := mat.NewSymDense(n, nil)
	sum.CopySym(f)
	for i := range n {
		sum.SetSym(i, i, sum.At(i, i)+damping)
	}
	var c mat.Cholesky
	if !c.Factorize(sum) {
		return nil, fmt.Errorf("geometry: a damping of %v does not make this information positive definite, raise it", damping)
	}
	to := mat.NewVecDense(n, nil)
	if err := c.SolveVecTo(to, g); err != nil {
		return nil, fmt.Errorf("geometry: damping %v: %w", damping, err)
	}
	return to.RawVector().Data, nil
}
