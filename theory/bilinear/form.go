package bilinear

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Pair returns u_a v^a of a covector and a vector.
func Pair(u, v []float64) float64 {
	if len(u) != len(v) {
		panic(fmt.Sprintf("bilinear.Pair: u has %d components and v has %d, want equal numbers", len(u), len(v)))
	}
	return floats.Dot(u, v)
}

// Form returns u^a M_ab v^b. M need be neither square nor symmetric.
func Form(u []float64, m mat.Matrix, v []float64) float64 {
	fits("Form", "u", len(u), m, "v", len(v))
	return mat.Inner(vector(u), m, vector(v))
}

// Quadratic returns v^a M_ab v^b.
func Quadratic(v []float64, m mat.Matrix) float64 {
	fits("Quadratic", "v", len(v), m, "v", len(v))
	return mat.Inner(vector(v), m, vector(v))
}

// Forms returns the form of every row of u with every row of v: S = U M Vᵀ. For queries and keys
// these are the scores.
func Forms(u, m, v mat.Matrix) *mat.Dense {
	_, cu := u.Dims()
	_, cv := v.Dims()
	fits("Forms", "a row of u", cu, m, "a row of v", cv)
	var um, s mat.Dense
	um.Mul(u, m)
	s.Mul(&um, v.T())
	return &s
}

// RowForms returns the form of each row of u with the same row of v.
func RowForms(u, m, v mat.Matrix) []float64 {
	ru, cu := u.Dims()
	rv, cv := v.Dims()
	fits("RowForms", "a row of u", cu, m, "a row of v", cv)
	if ru != rv {
		panic(fmt.Sprintf("bilinear.RowForms: u has %d rows and v has %d, want equal numbers", ru, rv))
	}
	forms := make([]float64, ru)
	for i := range forms {
		forms[i] = Form(mat.Row(nil, i, u), m, mat.Row(nil, i, v))
	}
	return forms
}

// fits panics unless the vectors fit the sides of the matrix.
func fits(call, left string, nl int, m mat.Matrix, right string, nr int) {
	if r, c := m.Dims(); nl != r || nr != c {
		panic(fmt.Sprintf("bilinear.%s: %s has %d components, %s has %d, and the matrix is %d by %d", call, left, nl, right, nr, r, c))
	}
}

// vector returns a gonum vector that shares the numbers.
func vector(v []float64) *mat.VecDense { return mat.NewVecDense(len(v), v) }
