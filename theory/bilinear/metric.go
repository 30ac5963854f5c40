package bilinear

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// A Metric is a metric tensor g_ab: symmetric and positive definite, and the same everywhere. It is
// a mat.Symmetric, and can stand wherever a matrix can.
type Metric struct {
	g    *mat.SymDense
	chol mat.Cholesky // g = UᵀU
}

var _ mat.Symmetric = (*Metric)(nil)

// New is the metric with the given matrix, or says as Validate does why it is none. Both sides of
// the diagonal must agree up to rounding, and the mean is taken.
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

// Diagonal is the metric diag(w). The weights must be positive.
func Diagonal(w ...float64) (*Metric, error) {
	if len(w) == 0 {
		return nil, fmt.Errorf("bilinear: metric without a dimension: %w", ErrShape)
	}
	return New(mat.NewDiagDense(len(w), slices.Clone(w)))
}

// ScaledBy is the metric scale times δ in d dimensions. The scale must be positive.
func ScaledBy(d int, scale float64) (*Metric, error) {
	return Diagonal(slices.Repeat([]float64{scale}, max(d, 0))...)
}

// Euclidean is the metric δ in d dimensions, of which there must be one: inner products are dot
// products.
func Euclidean(d int) *Metric { return certain(ScaledBy(d, 1)) }

// Scaled is the metric δ/√d in d dimensions, of which there must be one: inner products are the
// scores of attention.
func Scaled(d int) *Metric { return certain(ScaledBy(d, 1/math.Sqrt(float64(d)))) }

// certain is a metric that can only fail for want of dimensions.
func certain(m *Metric, err error) *Metric {
	if err != nil {
		panic(err)
	}
	return m
}

// Dims is the dimension, twice.
func (m *Metric) Dims() (r, c int) { return m.g.Dims() }

// At is g_ab.
func (m *Metric) At(a, b int) float64 { return m.g.At(a, b) }

// T is the metric itself.
func (m *Metric) T() mat.Matrix { return m }

// SymmetricDim is the dimension.
func (m *Metric) SymmetricDim() int { return m.g.SymmetricDim() }

// Matrix is a copy of g_ab.
func (m *Metric) Matrix() *mat.SymDense {
	g := mat.NewSymDense(m.SymmetricDim(), nil)
	g.CopySym(m.g)
	return g
}

// Inverse is the inverse metric g^ab.
func (m *Metric) Inverse() *mat.SymDense {
	var inverse mat.SymDense
	solved(m.chol.InverseTo(&inverse))
	return &inverse
}

// Lower is the covector v_a = g_ab v^b.
func (m *Metric) Lower(v []float64) []float64 {
	m.fits("Lower", len(v))
	var to mat.VecDense
	to.MulVec(m.g, vector(v))
	return to.RawVector().Data
}

// Raise is the vector u^a = g^ab u_b. It solves g_ab u^b = u_a, and does not make the inverse.
func (m *Metric) Raise(u []float64) []float64 {
	m.fits("Raise", len(u))
	var to mat.VecDense
	solved(m.chol.SolveVecTo(&to, vector(u)))
	return to.RawVector().Data
}

// LowerRows lowers every row: V g.
func (m *Metric) LowerRows(v mat.Matrix) *mat.Dense {
	_, d := v.Dims()
	m.fits("LowerRows", d)
	var to mat.Dense
	to.Mul(v, m.g)
	return &to
}

// RaiseRows raises every row: U g^-1.
func (m *Metric) RaiseRows(u mat.Matrix) *mat.Dense {
	_, d := u.Dims()
	m.fits("RaiseRows", d)
	var to mat.Dense
	solved(m.chol.SolveTo(&to, u.T()))
	return mat.DenseCopyOf(to.T())
}

// Inner is <u, v>_g = u^a g_ab v^b.
func (m *Metric) Inner(u, v []float64) float64 {
	m.fits("Inner", len(u))
	m.fits("Inner", len(v))
	return mat.Inner(vector(u), m.g, vector(v))
}

// Norm is the length √<v, v>_g.
func (m *Metric) Norm(v []float64) float64 {
	m.fits("Norm", len(v))
	var to mat.VecDense // U v, whose plain length it is: no rounding can make its square negative
	to.MulVec(m.chol.RawU(), vector(v))
	return mat.Norm(&to, 2)
}

// Distance is |u - v|.
func (m *Metric) Distance(u, v []float64) float64 {
	m.fits("Distance", len(u))
	m.fits("Distance", len(v))
	return m.Norm(combine(1, u, -1, v))
}

// Cosine is <u, v>_g / (|u| |v|), NaN where one of them is 0. A factor that multiplies the whole
// metric does not change it.
func (m *Metric) Cosine(u, v []float64) float64 {
	c := m.Inner(u, v) / m.Norm(u) / m.Norm(v)
	return math.Max(-1, math.Min(1, c))
}

// Angle is the angle between two vectors, from 0 to π, NaN where one of them is 0. Its cosine is
// Cosine, and small angles keep their digits, which the inverse of a cosine loses.
func (m *Metric) Angle(u, v []float64) float64 {
	nu, nv := m.Norm(u), m.Norm(v)
	return 2 * math.Atan2(m.Norm(combine(1/nu, u, -1/nv, v)), m.Norm(combine(1/nu, u, 1/nv, v)))
}

// fits panics where a vector does not have the metric's dimension.
func (m *Metric) fits(call string, n int) {
	if d := m.SymmetricDim(); n != d {
		panic(fmt.Sprintf("bilinear: Metric.%s of a vector with %d components, and the metric has dimension %d", call, n, d))
	}
}

// combine is s u + t v.
func combine(s float64, u []float64, t float64, v []float64) []float64 {
	to := make([]float64, len(u))
	for a := range to {
		to[a] = s*u[a] + t*v[a]
	}
	return to
}

// solved looks at the error of a solution. A metric has been found positive definite in its own
// units, where Cholesky's solution is as good; a large condition number is then one of units, and
// no error.
func solved(err error) {
	if _, condition := err.(mat.Condition); err != nil && !condition {
		panic(err)
	}
}
