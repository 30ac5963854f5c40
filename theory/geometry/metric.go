package geometry

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bilinear"
)

// Volume is sqrt(det g), what the coordinates' unit cube measures.
func Volume(g mat.Symmetric) (float64, error) {
	v, err := LogVolume(g)
	return math.Exp(v), err
}

// LogVolume is its logarithm, which stays a number where high dimensions make the volume none:
// 1/sqrt(d) has d^(-d/4), which no float64 holds at d = 512.
func LogVolume(g mat.Symmetric) (float64, error) {
	m, err := bilinear.New(g)
	if err != nil {
		return math.NaN(), err
	}
	var c mat.Cholesky
	c.Factorize(m) // which a metric has
	return c.LogDet() / 2, nil
}

// ArcLength is the length of a curve x(t) between two values of t: the integral of sqrt(g_ab u^a
// u^b), u = dx/dt, by Gauss-Legendre over so many points. It does not depend on how fast the curve
// is run through.
func ArcLength(f Field, curve func(t float64) []float64, from, to float64, points int) float64 {
	speed := func(t float64) float64 {
		x := curve(t)
		return Motion{x, velocity(curve, t, len(x))}.Speed(f)
	}
	return quad.Fixed(speed, from, to, points, quad.Legendre{}, 0)
}

// velocity is dx/dt.
func velocity(curve func(t float64) []float64, t float64, n int) []float64 {
	d := mat.NewDense(n, 1, nil)
	fd.Jacobian(d, func(y, t []float64) { copy(y, curve(t[0])) }, []float64{t}, &fd.JacobianSettings{Formula: fourPoints})
	return mat.Col(nil, 0, d)
}
