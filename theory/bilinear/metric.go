package bilinear

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// A Metric is a constant metric tensor g_ab: symmetric and positive definite. It is a
// mat.Symmetric, so it can be used as a matrix.
type Metric struct {
	g    *mat.SymDense
	chol mat.Cholesky // g = UᵀU
}

var _ mat.Symmetric = (*Metric)(nil)

// New returns the metric with the given matrix. If the matrix is no metric, it returns the error of
// Validate. Elements on both sides of the diagonal must agree up to rounding, and their mean is
// used.
func New(g mat.Matrix) (*Metric, error) {
	sym, err := symmetric(g)
	if err != nil {
		return nil, err
	}
	m := &Metric{g: sym}
	if !m.chol.Factorize(sym) {
		return nil, fmt.Errorf("bilinear: metric without a Cholesky factor: %w", ErrSingular)
	}
	return m, nil
}

// Diagonal returns the metric diag(w). The weights must be positive.
func Diagonal(w ...float64) (*Metric, error) {
	if len(w) == 0 {
		return nil, fmt.Errorf("bilinear: metric without a dimension: %w", ErrShape)
	}
	return New(mat.NewDiagDense(len(w), slices.Clone(w)))
}

// ScaledBy returns the metric scale times δ in d dimensions. The scale must be positive.
func ScaledBy(d int, scale float64) (*Metric, error) {
	return Diagonal(slices.Repeat([]float64{scale}, max(d, 0))...)
}

// Euclidean returns the metric δ in d dimensions, whose inner products are dot products. It panics
// if d < 1.
func Euclidean(d int) *Metric { return certain(ScaledBy(d, 1)) }

// Scaled returns the metric δ/√d in d dimensions, whose inner products are the scores of attention.
// It panics if d < 1.
func Scaled(d int) *Metric { return certain(ScaledBy(d, 1/math.Sqrt(float64(d)))) }

// certain returns a metric that exists in every dimension above 0, and panics otherwise.
func certain(m *Metric, err error) *Metric {
	if err != nil {
		panic(err)
	}
	return m
}

// Dims returns the dimension as both numbers.
func (m *Metric) Dims() (r, c int) { return m.g.Dims() }

// At returns g_ab.
func (m *Metric) At(a, b int) float64 { return m.g.At(a, b) }

// T returns the metric itself.
func (m *Metric) T() mat.Matrix { return m }

// SymmetricDim returns the dimension.
func (m *Metric) SymmetricDim() int { return m.g.SymmetricDim() }

// Matrix returns a copy of g_ab.
func (m *Metric) Matrix() *mat.SymDense {
	g := mat.NewSymDense(m.SymmetricDim(), nil)
	g.CopySym(m.g)
	return g
}

// Inverse returns the inverse metric g^ab.
func (m *Metric) Inverse() *mat.SymDense {
	var inverse mat.SymDense
	solved(m.chol.InverseTo(&inverse))
	return &inverse
}

// Lower returns the covector v_a = g_ab v^b.
func (m *Metric) Lower(v []float64) []float64 {
	m.fits("Lower", len(v))
	var to mat.VecDense
	to.MulVec(m.g, vector(v))
	return to.RawVector().Data
}

// Raise returns the vector u^a = g^ab u_b. It solves g_ab u^b = u_a without computing the inverse.
func (m *Metric) Raise(u []float64) []float64 {
	m.fits("Raise", len(u))
	var to mat.VecDense
	solved(m.chol.SolveVecTo(&to, vector(u)))
	return to.RawVector().Data
}

// LowerRows returns V g, which lowers every row.
func (m *Metric) LowerRows(v mat.Matrix) *mat.Dense {
	_, d := v.Dims()
	m.fits("LowerRows", d)
	var to mat.Dense
	to.Mul(v, m.g)
	return &to
}

// RaiseRows returns U g^-1, which raises every row.
func (m *Metric) RaiseRows(u mat.Matrix) *mat.Dense {
	_, d := u.Dims()
	m.fits("RaiseRows", d)
	var to mat.Dense
	solved(m.chol.SolveTo(&to, u.T()))
	return mat.DenseCopyOf(to.T())
}

// Inner returns <u, v>_g = u^a g_ab v^b.
func (m *Metric) Inner(u, v []float64) float64 {
	m.fits("Inner", len(u))
	m.fits("Inner", len(v))
	return mat.Inner(vector(u), m.g, vector(v))
}

// Norm returns the length √<v, v>_g.
func (m *Metric) Norm(v []float64) float64 {
	m.fits("Norm", len(v))
	// The length is that of U v, whose square rounding cannot make negative.
	var to mat.VecDense
	to.MulVec(m.chol.RawU(), vector(v))
	return mat.Norm(&to, 2)
}

// Distance returns |u - v|.
func (m *Metric) Distance(u, v []float64) float64 {
	m.fits("Distance", len(u))
	m.fits("Distance", len(v))
	return m.Norm(combine(1, u, -1, v))
}

// Cosine returns <u, v>_g / (|u| |v|), or NaN if either vector is 0. It does not depend on the
// scale of the metric.
func (m *Metric) Cosine(u, v []float64) float64 {
	c := m.Inner(u, v) / m.Norm(u) / m.Norm(v)
	return math.Max(-1, math.Min(1, c))
}

// Angle returns the angle between two vectors, from 0 to π, or NaN if either vector is 0. It keeps
// the digits of small angles, which the inverse of Cosine loses.
func (m *Metric) Angle(u, v []float64) float64 {
	nu, nv := m.Norm(u), m.Norm(v)
	return 2 * math.Atan2(m.Norm(combine(1/nu, u, -1/nv, v)), m.Norm(combine(1/nu, u, 1/nv, v)))
}

// fits panics unless a vector has the metric's dimension.
func (m *Metric) fits(call string, n int) {
	if d := m.SymmetricDim(); n != d {
		panic(fmt.Sprintf("bilinear: Metric.%s: got a vector with %d components, want %d, the dimension of the metric", call, n, d))
	}
}

// combine returns s u + t v.
func combine(s float64, u []float64, t float64, v []float64) []float64 {
	to := make([]float64, len(u))
	for a := range to {
		to[a] = s*u[a] + t*v[a]
	}
	return to
}

// solved panics on the error of a solution, but accepts a large condition number. The metric is
// positive definite in its own units, where Cholesky's solution is accurate; a large condition
// number then comes from the units.
func solved(err error) {
	if _, condition := err.(mat.Condition); err != nil && !condition {
		panic(err)
	}
}
