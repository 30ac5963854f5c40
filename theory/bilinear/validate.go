package bilinear

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// The reasons for which a matrix is no metric.
var (
	ErrShape      = errors.New("want a square matrix of one row or more")
	ErrNotFinite  = errors.New("not finite")
	ErrAsymmetric = errors.New("not symmetric")
	ErrIndefinite = errors.New("not positive: some vector has a negative square")
	ErrSingular   = errors.New("singular: some vector other than 0 is orthogonal to all")
)

// eps is the distance from 1 to the next float64.
const eps = 0x1p-52

// Validate returns nil for a metric, and otherwise an error that wraps one of the reasons above.
func Validate(g mat.Matrix) error {
	_, err := symmetric(g)
	return err
}

// symmetric returns a matrix as a metric tensor, or the error of Validate.
func symmetric(g mat.Matrix) (*mat.SymDense, error) {
	d, columns := g.Dims()
	if d != columns || d == 0 {
		return nil, fmt.Errorf("bilinear: metric %d by %d: %w", d, columns, ErrShape)
	}
	sym := mat.NewSymDense(d, nil)
	for i := range d {
		for j := range d {
			if x := g.At(i, j); math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("bilinear: metric with %v at (%d, %d): %w", x, i, j, ErrNotFinite)
			}
		}
	}
	for i := range d {
		for j := i; j < d; j++ {
			x, y := g.At(i, j), g.At(j, i)
			unit := math.Sqrt(math.Abs(g.At(i, i))) * math.Sqrt(math.Abs(g.At(j, j)))
			if math.Abs(x-y) > float64(d)*eps*max(unit, math.Abs(x), math.Abs(y)) {
				return nil, fmt.Errorf("bilinear: metric with %v at (%d, %d) and %v at (%d, %d): %w", x, i, j, y, j, i, ErrAsymmetric)
			}
			sym.SetSym(i, j, x+(y-x)/2)
		}
	}
	if err := positive(sym); err != nil {
		return nil, err
	}
	return sym, nil
}

// positive returns an error if a symmetric matrix is not positive definite. It scales each basis
// vector to length 1: g_ab / √(g_aa g_bb) has eigenvalues of the same signs (Sylvester's law of
// inertia), and a known bound on their rounding errors.
func positive(g *mat.SymDense) error {
	d := g.SymmetricDim()
	unit := make([]float64, d)
	for i := range d {
		switch x := g.At(i, i); {
		case x < 0:
			return fmt.Errorf("bilinear: metric with %v at (%d, %d): %w", x, i, i, ErrIndefinite)
		case x > 0:
			unit[i] = math.Sqrt(x)
		default:
			// If v has square 0, v + t w has the square 2t <v, w> + t² <w, w>. This is negative for
			// some small t unless <v, w> = 0.
			for j := range d {
				if y := g.At(i, j); y != 0 {
					return fmt.Errorf("bilinear: metric with 0 at (%d, %d) and %v at (%d, %d): %w", i, i, y, i, j, ErrIndefinite)
				}
			}
			unit[i] = 1
		}
	}
	scaled := mat.NewSymDense(d, nil)
	for i := range d {
		for j := i; j < d; j++ {
			scaled.SetSym(i, j, g.At(i, j)/unit[i]/unit[j])
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(scaled, false) {
		return errors.New("bilinear: the eigenvalues of the metric do not converge")
	}
	zero := 8 * float64(d) * eps
	switch least := eigen.Values(nil)[0]; {
	case least < -zero:
		return fmt.Errorf("bilinear: metric with eigenvalue %.3g, in units of its diagonal: %w", least, ErrIndefinite)
	case least <= zero:
		return fmt.Errorf("bilinear: metric with eigenvalue 0, or %.3g in units of its diagonal: %w", least, ErrSingular)
	}
	return nil
}
