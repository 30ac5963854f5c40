package calculus

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/scorers"
)

// NumericalJacobian is the Jacobian of y at x by central differences of step h; 0 is the default of
// package fd, 6e-6. What y is given is its own.
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

// NumericalGradient is the gradient of f at x by central differences of step h; 0 is the default of
// package fd, 6e-6. f must leave x as it is.
func NumericalGradient(f func(x *mat.Dense) float64, x mat.Matrix, h float64) *mat.Dense {
	rows, cols := x.Dims()
	to := fd.Gradient(nil, func(x []float64) float64 { return f(mat.NewDense(rows, cols, x)) }, flat(x), &fd.Settings{Formula: fd.Central, Step: h})
	return mat.NewDense(rows, cols, to)
}

// BestStep is the step of a central difference in arithmetic whose rounding unit is u, for numbers
// and derivatives of the order of 1. Truncation leaves an error of h^2/6 times the third
// derivative, rounding one of about u/h; their sum is least near the cube root of u. That is 0.004
// for float32 (u = 2^-24) and 5e-6 for float64 (u = 2^-53). A step of 1e-5 suits float64, and in
// float32 it leaves the rounding of the last place magnified by 1e5 (erratum E-16).
func BestStep(u float64) float64 { return math.Cbrt(u) }

// Float32DifferenceError is how far central differences of step h are from the gradient, where the
// loss, half the squared norm of the output, is computed with every operation rounded to float32:
// the largest error in dQ, dK and dV. The gradient is that of the same float32 numbers, in float64.
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

// loss32 is half the squared norm of the output in float32, without fused operations.
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

// single is the elements of a matrix in float32.
func single(m mat.Matrix) []float32 {
	x := flat(m)
	to := make([]float32, len(x))
	for i, f := range x {
		to[i] = float32(f)
	}
	return to
}

// double is a matrix of the shape of m with float32 elements.
func double(m mat.Matrix, x []float32) *mat.Dense {
	rows, cols := m.Dims()
	to := mat.NewDense(rows, cols, nil)
	to.Apply(func(i, j int, _ float64) float64 { return float64(x[i*cols+j]) }, to)
	return to
}

// Differences is the gradients of the loss by central differences of step h, 0 being that of
// package fd, of the forward pass as package scorers has it.
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

// attend is the forward pass.
func (s Setting) attend(q, k, v mat.Matrix) *scorers.Decomposition {
	return scorers.Attend(scorers.Dot{Scale: s.Scale}, q, k, v, scorers.Options{Mask: s.Mask, Temp: s.Temp})
}
