package geometry

import (
	"fmt"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"

	"attnlab/theory/bilinear"
)

// Symbols holds the Christoffel symbols of a field at a point: G^c_ab is s[c].At(a, b).
type Symbols []*mat.SymDense

// Christoffel returns 1/2 g^cd (d_a g_bd + d_b g_ad - d_d g_ab). If the field is not a metric at x,
// it returns the error of bilinear.New.
func Christoffel(f Field, x []float64) (Symbols, error) {
	g, err := bilinear.New(f.At(x))
	if err != nil {
		return nil, fmt.Errorf("geometry: at %v: %w", x, err)
	}
	n, inverse, dg := len(x), g.Inverse(), f.Partials(x)
	lower := make(Symbols, n) // with the first index lowered
	for d := range n {
		lower[d] = mat.NewSymDense(n, nil)
		for a := range n {
			for b := a; b < n; b++ {
				lower[d].SetSym(a, b, (dg[a].At(b, d)+dg[b].At(a, d)-dg[d].At(a, b))/2)
			}
		}
	}
	s := make(Symbols, n)
	for c := range n {
		s[c] = mat.NewSymDense(n, nil)
		for d := range n {
			for a := range n {
				for b := a; b < n; b++ {
					s[c].SetSym(a, b, s[c].At(a, b)+inverse.At(c, d)*lower[d].At(a, b))
				}
			}
		}
	}
	return s, nil
}

// VectorDerivative returns D_a v^b = d_a v^b + G^b_ac v^c, with a row for each a, from a vector
// field and its partial derivatives d_a v^b.
func VectorDerivative(s Symbols, v []float64, dv mat.Matrix) *mat.Dense {
	same("v", len(v), len(s))
	to := mat.DenseCopyOf(dv)
	for a := range s {
		for b := range s {
			sum := to.At(a, b)
			for c, x := range v {
				sum += s[b].At(a, c) * x
			}
			to.Set(a, b, sum)
		}
	}
	return to
}

// CovectorDerivative returns D_a u_b = d_a u_b - G^c_ab u_c, with a row for each a, from a covector
// field and its partial derivatives d_a u_b.
func CovectorDerivative(s Symbols, u []float64, du mat.Matrix) *mat.Dense {
	same("u", len(u), len(s))
	to := mat.DenseCopyOf(du)
	for a := range s {
		for b := range s {
			sum := to.At(a, b)
			for c, x := range u {
				sum -= s[c].At(a, b) * x
			}
			to.Set(a, b, sum)
		}
	}
	return to
}

// MetricDerivative returns D_c g_ab = d_c g_ab - G^d_ca g_db - G^d_cb g_ad, one matrix for each c.
// It is 0 if the symbols belong to the metric.
func MetricDerivative(s Symbols, g mat.Symmetric, dg []*mat.SymDense) []*mat.SymDense {
	same("dg", len(dg), len(s))
	to := make([]*mat.SymDense, len(s))
	for c := range s {
		to[c] = mat.NewSymDense(len(s), nil)
		for a := range s {
			for b := a; b < len(s); b++ {
				sum := dg[c].At(a, b)
				for d := range s {
					sum -= s[d].At(c, a)*g.At(d, b) + s[d].At(c, b)*g.At(a, d)
				}
				to[c].SetSym(a, b, sum)
			}
		}
	}
	return to
}

// Partials returns the partial derivatives d_a v^b of the components of a field, with a row for
// each a, by finite differences.
func Partials(v func(x []float64) []float64, x []float64) *mat.Dense {
	d := mat.NewDense(len(v(x)), len(x), nil)
	fd.Jacobian(d, func(y, x []float64) { copy(y, v(x)) }, x, &fd.JacobianSettings{Formula: fourPoints})
	return mat.DenseCopyOf(d.T())
}

// DualPartials returns the components of a field and their partial derivatives d_a v^b, with a row
// for each a, by dual numbers.
func DualPartials(v func(x []dual.Number) []dual.Number, x []float64) (value []float64, d *mat.Dense) {
	for a := range x {
		y := v(lifted(x, a))
		if a == 0 {
			value, d = make([]float64, len(y)), mat.NewDense(len(x), len(y), nil)
		}
		for b, z := range y {
			value[b] = z.Real
			d.Set(a, b, z.Emag)
		}
	}
	return value, d
}
