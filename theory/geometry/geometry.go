// Package geometry is the geometry that scores live in: metrics that change from place to place,
// the derivative and the straight lines that belong to one, and the metric of a family of
// probabilities, Fisher's information, with the gradient that belongs to it. All in float64, from
// the equations.
//
// # Metrics
//
// A metric g_ab measures small steps dx. Indices that occur twice, once up and once down, are
// summed. What a metric that is the same everywhere measures, lengths and angles of vectors, is in
// package bilinear; from place to place there are besides
//
//	ds^2    = g_ab dx^a dx^b                         ArcLength adds ds up along a curve
//	dV      = sqrt(det g) dx^1 ... dx^n              Volume. That of g = 1/sqrt(d) in d dimensions is d^(-d/4): 1e-29 at d = 64
//
// Attention's own metric, 1/sqrt(d_k), is the same everywhere; a Field is one that is not. It says
// how its metric changes, too, and there are three ways to say it: by hand (Analytic), by dual
// numbers (Dual), which make the derivative of a program beside its value and just as exactly, and
// by finite differences (Differences) of a function that can only be called.
//
// # The derivative that belongs to a metric
//
//	G^c_ab    = 1/2 g^cd (d_a g_bd + d_b g_ad - d_d g_ab)            Christoffel; symmetric in a and b, and 0 where the metric is constant
//	D_a v^b   = d_a v^b + G^b_ac v^c                                 VectorDerivative
//	D_a u_b   = d_a u_b - G^c_ab u_c                                 CovectorDerivative
//	D_c g_ab  = d_c g_ab - G^d_ca g_db - G^d_cb g_ad = 0             MetricDerivative: the symbols are those for which it vanishes
//	du^c/dt   = - G^c_ab u^a u^b,  u = dx/dt                         Geodesic: no acceleration, and so constant speed
//
// In polar coordinates those lines are straight; in the half-plane dx^2 + dy^2 over y^2 they are
// circles that meet the x axis at right angles, and upright lines.
//
// # Information
//
// Probabilities p(y; theta) have a metric of their own, Fisher's: how well nearby parameters can be
// told apart.
//
//	F_ij       = E[d_i log p d_j log p]                              Expected; KL(theta || theta+d) = 1/2 d^i F_ij d^j + O(d^3)
//	           = (diag p - p p^T) / T^2                              Categorical: p = softmax(logits/T)
//	           = diag(1/sigma^2, 2/sigma^2)                          Gaussians, of (mu, sigma): a half-plane, up to a factor
//	F_phi      = J^T F_theta J,  J = d theta / d phi                 Pull: how a metric looks in other coordinates
//	d theta    = - eta F^-1 dL/d theta                               Natural: the gradient with its index raised
//
// The information of softmax about its logits is singular: a shift of all logits changes nothing, F
// 1 = 0. So it is not a metric of the logits but of the directions that change the weights, F^-1 is
// not there, and Natural takes the pseudo-inverse, or adds a damping to the diagonal (E-10).
//
// At T = 1 it is also the Jacobian of softmax, dp/ds: every backward pass through attention is a
// multiplication by Fisher's information.
//
// What the natural gradient gives does not depend on how theta is written, exactly so if that
// changes linearly, theta = B phi. Otherwise it holds for infinitesimal steps only: finite ones
// differ by the square of their size (E-10). With a singular information the steps of two ways of
// writing may differ by what changes no probability; with a damping they differ.
//
// Where scores follow linearly from their parameters, as those of attention do from its queries, or
// from a metric between queries and keys, the information is the second derivative of the loss, and
// the natural gradient is Newton's method: LogLinear.
package geometry

import (
	"fmt"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"
)

// A Field is a metric that changes from place to place.
type Field interface {
	At(x []float64) *mat.SymDense         // g_ab
	Partials(x []float64) []*mat.SymDense // d_c g_ab, a matrix for each coordinate c
}

// Analytic is a field whose derivatives were found by hand.
type Analytic struct {
	G  func(x []float64) *mat.SymDense
	DG func(x []float64) []*mat.SymDense
}

// At is G.
func (f Analytic) At(x []float64) *mat.SymDense { return f.G(x) }

// Partials is DG.
func (f Analytic) Partials(x []float64) []*mat.SymDense { return f.DG(x) }

// Constant is the field that is g everywhere.
func Constant(g mat.Symmetric) Field {
	n := g.SymmetricDim()
	return Analytic{
		G: func([]float64) *mat.SymDense {
			to := mat.NewSymDense(n, nil)
			to.CopySym(g)
			return to
		},
		DG: func([]float64) []*mat.SymDense {
			to := make([]*mat.SymDense, n)
			for c := range to {
				to[c] = mat.NewSymDense(n, nil)
			}
			return to
		},
	}
}

// Dual is a field written in dual numbers: given x^c + e for the coordinate c, with e^2 = 0, it
// answers g + e d_c g. Only the upper triangle is read.
type Dual func(x []dual.Number) [][]dual.Number

// At is the field without any e.
func (f Dual) At(x []float64) *mat.SymDense {
	g, _ := f.along(x, -1)
	return g
}

// Partials evaluates the field once for each coordinate.
func (f Dual) Partials(x []float64) []*mat.SymDense {
	to := make([]*mat.SymDense, len(x))
	for c := range x {
		_, to[c] = f.along(x, c)
	}
	return to
}

// along is the metric, and its derivative along coordinate c.
func (f Dual) along(x []float64, c int) (value, slope *mat.SymDense) {
	g, n := f(lifted(x, c)), len(x)
	value, slope = mat.NewSymDense(n, nil), mat.NewSymDense(n, nil)
	for a := range n {
		for b := a; b < n; b++ {
			value.SetSym(a, b, g[a][b].Real)
			slope.SetSym(a, b, g[a][b].Emag)
		}
	}
	return value, slope
}

// lifted is x in dual numbers, with e at coordinate c if there is one.
func lifted(x []float64, c int) []dual.Number {
	to := make([]dual.Number, len(x))
	for i, v := range x {
		to[i].Real = v
	}
	if c >= 0 {
		to[c].Emag = 1
	}
	return to
}

// Differences is a field that can only be called: its derivatives are finite differences over four
// points.
type Differences struct {
	G    func(x []float64) *mat.SymDense
	Step float64 // between the points; 0 means 1e-3, which suits coordinates and curvatures around 1
}

// At is G.
func (f Differences) At(x []float64) *mat.SymDense { return f.G(x) }

// Partials is off by about Step^4/30 of the fifth derivative and 1e-16/Step of the metric.
func (f Differences) Partials(x []float64) []*mat.SymDense {
	n := len(x)
	d := mat.NewDense(n*n, n, nil)
	fd.Jacobian(d, func(y, x []float64) {
		g := f.G(x)
		for a := range n {
			for b := range n {
				y[a*n+b] = g.At(a, b)
			}
		}
	}, x, &fd.JacobianSettings{Formula: fourPoints, Step: f.Step})
	to := make([]*mat.SymDense, n)
	for c := range to {
		to[c] = mat.NewSymDense(n, mat.Col(nil, c, d))
	}
	return to
}

// fourPoints is the central difference of fourth order.
var fourPoints = fd.Formula{
	Stencil: []fd.Point{
		{Loc: 1, Coeff: 2.0 / 3},
		{Loc: -1, Coeff: -2.0 / 3},
		{Loc: 2, Coeff: -1.0 / 12},
		{Loc: -2, Coeff: 1.0 / 12},
	},
	Derivative: 1,
	Step:       1e-3,
}

// Polar is the plane in coordinates (r, theta): ds^2 = dr^2 + r^2 dtheta^2, a field that changes
// where nothing is curved.
func Polar() Dual {
	return func(x []dual.Number) [][]dual.Number {
		return diagonal(dual.Number{Real: 1}, dual.Mul(x[0], x[0]))
	}
}

// HalfPlane is the hyperbolic plane in coordinates (x, y), y > 0: ds^2 = (dx^2 + dy^2) / y^2.
func HalfPlane() Dual {
	return func(x []dual.Number) [][]dual.Number {
		g := dual.Inv(dual.Mul(x[1], x[1]))
		return diagonal(g, g)
	}
}

// Sphere is the unit sphere in coordinates (theta, phi), theta from the pole: ds^2 = dtheta^2 +
// sin^2 theta dphi^2.
func Sphere() Dual {
	return func(x []dual.Number) [][]dual.Number {
		s := dual.Sin(x[0])
		return diagonal(dual.Number{Real: 1}, dual.Mul(s, s))
	}
}

// diagonal is a diagonal matrix of dual numbers.
func diagonal(d ...dual.Number) [][]dual.Number {
	to := make([][]dual.Number, len(d))
	for a, x := range d {
		to[a] = make([]dual.Number, len(d))
		to[a][a] = x
	}
	return to
}

// same panics unless what is named has n numbers.
func same(what string, got, n int) {
	if got != n {
		panic(fmt.Sprintf("geometry: %s has %d numbers, the metric %d dimensions", what, got, n))
	}
}
