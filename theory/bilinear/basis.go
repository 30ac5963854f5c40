package bilinear

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// A Basis is a change of basis: an invertible matrix B, with v' = B v for the components of
// vectors. Covectors and forms change so that their values on vectors stay the same.
type Basis struct {
	b  *mat.Dense
	lu mat.LU
}

// NewBasis returns the change of basis by a matrix. It returns an error if the matrix is not square
// and invertible.
func NewBasis(b mat.Matrix) (*Basis, error) {
	r, c := b.Dims()
	if r != c || r == 0 {
		return nil, fmt.Errorf("bilinear: got a change of basis %d by %d: %w", r, c, ErrShape)
	}
	t := &Basis{b: mat.DenseCopyOf(b)}
	t.lu.Factorize(b)
	if cond := t.lu.Cond(); !(cond <= mat.ConditionTolerance) {
		return nil, fmt.Errorf("bilinear: got a change of basis with condition number %.3g, want an invertible matrix", cond)
	}
	return t, nil
}

// Vector returns v'^a = B^a_b v^b.
func (t *Basis) Vector(v []float64) []float64 {
	fits("Basis.Vector", "a column of the new basis", rows(t.b), t.b, "v", len(v))
	var to mat.VecDense
	to.MulVec(t.b, vector(v))
	return to.RawVector().Data
}

// Covector returns u'_a = u_b (B^-1)^b_a, which leaves Pair unchanged. It solves Bᵀu' = u.
func (t *Basis) Covector(u []float64) []float64 {
	fits("Basis.Covector", "u", len(u), t.b, "a row of the new basis", rows(t.b))
	var to mat.VecDense
	must(t.lu.SolveVecTo(&to, true, vector(u)))
	return to.RawVector().Data
}

// Form returns M' = B^-T M B^-1, which leaves the form of two vectors unchanged.
func (t *Basis) Form(m mat.Matrix) *mat.Dense {
	d := rows(t.b)
	fits("Basis.Form", "an old vector", d, m, "an old vector", d)
	var left, both mat.Dense
	must(t.lu.SolveTo(&left, true, m))        // B^-T M
	must(t.lu.SolveTo(&both, true, left.T())) // B^-T (B^-T M)ᵀ = (B^-T M B^-1)ᵀ
	return mat.DenseCopyOf(both.T())
}

// Metric returns the metric in the new basis. It returns an error if rounding has made it singular.
func (t *Basis) Metric(g *Metric) (*Metric, error) {
	m := t.Form(g)
	var sym mat.Dense
	// Averaging removes the asymmetry of rounding, which grows with the condition of B.
	sym.Add(m, m.T())
	sym.Scale(.5, &sym)
	return New(&sym)
}

// must panics with an error that NewBasis has excluded.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("bilinear: %v", err))
	}
}

// rows returns the number of rows of a matrix.
func rows(m mat.Matrix) int {
	r, _ := m.Dims()
	return r
}
