// Package geometry computes with metrics that vary from point to point: their covariant derivative,
// their geodesics, and Fisher's information, the metric of a family of probabilities, with its
// natural gradient. Everything is float64, straight from the equations.
//
// # Metrics
//
// A metric g_ab measures small steps dx. Indices that occur twice, once up and once down, are
// summed. Package bilinear has the lengths and angles of a constant metric. A varying metric also
// has
//
//	ds^2    = g_ab dx^a dx^b                  ArcLength integrates ds along a curve
//	dV      = sqrt(det g) dx^1 ... dx^n       Volume
//
// The volume element of g = 1/sqrt(d) in d dimensions is d^(-d/4): 1e-29 at d = 64.
//
// Attention's own metric, 1/sqrt(d_k), is constant; a Field varies. A Field also returns the
// derivatives of its metric, in one of three ways: by hand (Analytic); by dual numbers (Dual),
// which compute an exact derivative along with each value; or by finite differences of any function
// (Differences).
//
// # The covariant derivative
//
//	G^c_ab    = 1/2 g^cd (d_a g_bd + d_b g_ad - d_d g_ab)      Christoffel
//	D_a v^b   = d_a v^b + G^b_ac v^c                           VectorDerivative
//	D_a u_b   = d_a u_b - G^c_ab u_c                           CovectorDerivative
//	D_c g_ab  = d_c g_ab - G^d_ca g_db - G^d_cb g_ad = 0       MetricDerivative
//	du^c/dt   = - G^c_ab u^a u^b,  u = dx/dt                   Geodesic
//
// The symbols G^c_ab are symmetric in a and b, and 0 where the metric is constant. They are the
// symbols for which the derivative of the metric vanishes. A geodesic has no acceleration, and
// therefore constant speed. In polar coordinates geodesics are straight lines. In the half-plane
// dx^2 + dy^2 over y^2 they are vertical lines and circles that meet the x axis at right angles.
//
// # Information
//
// Probabilities p(y; theta) have a metric of their own, Fisher's information. It measures how well
// nearby parameters can be told apart: KL(theta || theta+d) = 1/2 d^i F_ij d^j + O(d^3).
//
//	F_ij       = E[d_i log p d_j log p]             Expected
//	           = (diag p - p p^T) / T^2             Categorical: p = softmax(logits/T)
//	           = diag(1/sigma^2, 2/sigma^2)         Gaussians, by (mu, sigma)
//	F_phi      = J^T F_theta J,  J = d theta/d phi  Pull: a metric in other coordinates
//	d theta    = - eta F^-1 dL/d theta              Natural: the gradient with its index raised
//
// The information of Gaussians is a half-plane, up to a factor. The information of softmax about
// its logits is singular: shifting all logits changes nothing, F 1 = 0. It is a metric only of the
// directions that change the weights, and F^-1 does not exist. Natural therefore takes the
// pseudo-inverse, or adds a damping to the diagonal (E-10).
//
// At T = 1 it is also the Jacobian of softmax, dp/ds: every backward pass through attention
// multiplies by Fisher's information.
//
// The result of a natural step does not depend on the parameters that describe theta. This is exact
// for a linear change theta = B phi. For other changes it holds for infinitesimal steps only;
// finite steps differ by the square of their size (E-10). If the information is singular, the steps
// may differ by directions that change no probability. With a damping they differ.
//
// If scores are linear in their parameters, the information is the second derivative of the loss,
// and the natural gradient is Newton's method: LogLinear. The scores of attention are linear in its
// queries, and in a metric between queries and keys.
package geometry

import (
	"fmt"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"
)

// A Field is a metric that varies from point to point.
type Field interface {
	At(x []float64) *mat.SymDense         // g_ab
	Partials(x []float64) []*mat.SymDense // d_c g_ab, one matrix for each coordinate c
}

// Analytic is a field with derivatives found by hand.
type Analytic struct {
	G  func(x []float64) *mat.SymDense
	DG func(x []float64) []*mat.SymDense
}

// At returns G.
func (f Analytic) At(x []float64) *mat.SymDense { return f.G(x) }

// Partials returns DG.
func (f Analytic) Partials(x []float64) []*mat.SymDense { return f.DG(x) }

// Constant returns the field that equals g everywhere.
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

// Dual is a field written in dual numbers: for x with x^c + e at coordinate c, where e^2 = 0, it
// returns g + e d_c g. Only the upper triangle is read.
type Dual func(x []dual.Number) [][]dual.Number

// At returns the metric at x.
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

// along returns the metric, and its derivative along coordinate c.
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

// lifted returns x in dual numbers, with e added at coordinate c if c >= 0.
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

// Differences is a field given by a function of x alone. Its derivatives are finite differences
// over four points.
type Differences struct {
	G    func(x []float64) *mat.SymDense
	Step float64 // between the points; 0 means 1e-3, for coordinates and curvatures near 1
}

// At returns G.
func (f Differences) At(x []float64) *mat.SymDense { return f.G(x) }

// Partials returns the derivatives with an error of about Step^4/30 times the fifth derivative plus
// 1e-16/Step times the metric.
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

// Polar returns the plane in coordinates (r, theta): ds^2 = dr^2 + r^2 dtheta^2. The metric varies,
// although the plane is flat.
func Polar() Dual {
	return func(x []dual.Number) [][]dual.Number {
		return diagonal(dual.Number{Real: 1}, dual.Mul(x[0], x[0]))
	}
}

// HalfPlane returns the hyperbolic plane in coordinates (x, y), y > 0: ds^2 = (dx^2 + dy^2) / y^2.
func HalfPlane() Dual {
	return func(x []dual.Number) [][]dual.Number {
		g := dual.Inv(dual.Mul(x[1], x[1]))
		return diagonal(g, g)
	}
}

// Sphere returns the unit sphere in coordinates (theta, phi), theta being the angle from the pole:
// ds^2 = dtheta^2 + sin^2 theta dphi^2.
func Sphere() Dual {
	return func(x []dual.Number) [][]dual.Number {
		s := dual.Sin(x[0])
		return diagonal(dual.Number{Real: 1}, dual.Mul(s, s))
	}
}

// diagonal returns a diagonal matrix of dual numbers.
func diagonal(d ...dual.Number) [][]dual.Number {
	to := make([][]dual.Number, len(d))
	for a, x := range d {
		to[a] = make([]dual.Number, len(d))
		to[a][a] = x
	}
	return to
}

// same panics unless the operand called what has n numbers.
func same(what string, got, n int) {
	if got != n {
		panic(fmt.Sprintf("geometry: %s has %d numbers, want %d, the dimension of the metric", what, got, n))
	}
}
