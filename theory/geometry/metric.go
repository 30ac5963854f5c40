package geometry

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bilinear"
)

// Volume returns sqrt(det g), the volume of the unit cube of the coordinates.
func Volume(g mat.Symmetric) (float64, error) {
	v, err := LogVolume(g)
	return math.Exp(v), err
}

// LogVolume returns the logarithm of Volume. It stays finite in high dimensions, where the volume
// underflows: for 1/sqrt(d) it is d^(-d/4), which is no float64 at d = 512.
func LogVolume(g mat.Symmetric) (float64, error) {
	m, err := bilinear.New(g)
	if err != nil {
		return math.NaN(), err
	}
	var c mat.Cholesky
	c.Factorize(m) // a metric always has a factor
	return c.LogDet() / 2, nil
}

// ArcLength returns the length of a curve x(t) between two values of t: the integral of sqrt(g_ab
// u^a u^b), u = dx/dt, by Gauss-Legendre quadrature over the given points. It does not depend on
// the speed along the curve.
func ArcLength(f Field, curve func(t float64) []float64, from, to float64, points int) float64 {
	speed := func(t float64) float64 {
		x := curve(t)
		return Motion{x, velocity(curve, t, len(x))}.Speed(f)
	}
	return quad.Fixed(speed, from, to, points, quad.Legendre{}, 0)
}

// velocity returns dx/dt.
func velocity(curve func(t float64) []float64, t float64, n int) []float64 {
	d := mat.NewDense(n, 1, nil)
	fd.Jacobian(d, func(y, t []float64) { copy(y, curve(t[0])) }, []float64{t}, &fd.JacobianSettings{Formula: fourPoints})
	return mat.Col(nil, 0, d)
}
