package calculus

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/scorers"
)

// NumericalJacobian returns the Jacobian of y at x by central differences of step h; 0 means 6e-6,
// the default of package fd. y gets a matrix of its own, which it may change.
func NumericalJacobian(y func(x *mat.Dense) mat.Matrix, x mat.Matrix, h float64) *Jacobian {
	byRows, byCols := x.Dims()
	at := flat(x)
	ofRows, ofCols := y(mat.NewDense(byRows, byCols, flat(x))).Dims()
	j := &Jacobian{ofRows, ofCols, byRows, byCols, mat.NewDense(ofRows*ofCols, byRows*byCols, nil)}
	fd.Jacobian(j.Matrix, func(to, x []float64) {
		copy(to, flat(y(mat.NewDense(byRows, byCols, append([]float64(nil), x...)))))
	}, at, &fd.JacobianSettings{Formula: fd.Central, Step: h})
	return j
}

// NumericalGradient returns the gradient of f at x by central differences of step h; 0 means 6e-6,
// the default of package fd. f must not change x.
func NumericalGradient(f func(x *mat.Dense) float64, x mat.Matrix, h float64) *mat.Dense {
	rows, cols := x.Dims()
	to := fd.Gradient(nil, func(x []float64) float64 { return f(mat.NewDense(rows, cols, x)) }, flat(x), &fd.Settings{Formula: fd.Central, Step: h})
	return mat.NewDense(rows, cols, to)
}

// BestStep returns the best step of a central difference in arithmetic with unit roundoff u, for
// values and derivatives near 1. Truncation leaves an error of h^2/6 times the third derivative,
// rounding one of about u/h. Their sum is least near the cube root of u: 0.004 for float32 (u =
// 2^-24) and 5e-6 for float64 (u = 2^-53). A step of 1e-5 suits float64. In float32 it magnifies
// the rounding of the last place by 1e5 (erratum E-16).
func BestStep(u float64) float64 { return math.Cbrt(u) }

// Float32DifferenceError returns the largest error in dQ, dK and dV of central differences of step
// h in float32. The loss is half the squared norm of the output, with every operation rounded to
// float32. The reference is the float64 gradient at the same float32 operands.
func Float32DifferenceError(q, k, v mat.Matrix, h float64) float64 {
	x := [3][]float32{single(q), single(k), single(v)}
	z := shapeOf(q, k, v)
	want := Setting{}.by(Backward, double(q, x[0]), double(k, x[1]), double(v, x[2]))
	worst := 0.0
	for w, grad := range [][]float64{flat(want.DQ), flat(want.DK), flat(want.DV)} {
		for e, at := range x[w] {
			x[w][e] = at + float32(h)
			up := loss32(z, x)
			x[w][e] = at - float32(h)
			down := loss32(z, x)
			x[w][e] = at
			worst = max(worst, math.Abs(float64((up-down)/float32(2*h))-grad[e]))
		}
	}
	return worst
}

// loss32 returns half the squared norm of the output in float32, without fused operations.
func loss32(z shape, x [3][]float32) float32 {
	q, k, v := x[0], x[1], x[2]
	scale := float32(dotScale(0, z.d))
	total := float32(0)
	for i := range z.nq {
		s, top := make([]float32, z.nk), float32(math.Inf(-1))
		for j := range s {
			for a := range z.d {
				s[j] += float32(q[i*z.d+a] * k[j*z.d+a])
			}
			s[j] *= scale
			top = max(top, s[j])
		}
		sum := float32(0)
		for j := range s {
			s[j] = float32(math.Exp(float64(s[j] - top)))
			sum += s[j]
		}
		for b := range z.dv {
			o := float32(0)
			for j, w := range s {
				o += float32(float32(w/sum) * v[j*z.dv+b])
			}
			total += float32(o * o)
		}
	}
	return total / 2
}

// single returns the elements of a matrix, rounded to float32.
func single(m mat.Matrix) []float32 {
	x := flat(m)
	to := make([]float32, len(x))
	for i, f := range x {
		to[i] = float32(f)
	}
	return to
}

// double returns a matrix of the shape of m with the float32 elements x.
func double(m mat.Matrix, x []float32) *mat.Dense {
	rows, cols := m.Dims()
	to := mat.NewDense(rows, cols, nil)
	to.Apply(func(i, j int, _ float64) float64 { return float64(x[i*cols+j]) }, to)
	return to
}

// Differences returns the gradients of the loss by central differences of step h, using the forward
// pass of package scorers. 0 means the default step of package fd.
func (s Setting) Differences(q, k, v mat.Matrix, h float64) (Gradients, error) {
	if err := s.check(q, k, v); err != nil {
		return Gradients{}, err
	}
	value := func(q, k, v mat.Matrix) float64 { return s.Loss.Of(s.attend(q, k, v).Output) }
	return Gradients{
		DQ: NumericalGradient(func(x *mat.Dense) float64 { return value(x, k, v) }, q, h),
		DK: NumericalGradient(func(x *mat.Dense) float64 { return value(q, x, v) }, k, h),
		DV: NumericalGradient(func(x *mat.Dense) float64 { return value(q, k, x) }, v, h),
	}, nil
}

// attend runs the forward pass.
func (s Setting) attend(q, k, v mat.Matrix) *scorers.Decomposition {
	return scorers.Attend(scorers.Dot{Scale: s.Scale}, q, k, v, scorers.Options{Mask: s.Mask, Temp: s.Temp})
}
