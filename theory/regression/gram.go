package regression

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Gram returns the matrix K(x_i, x_j) over the rows of x. It returns an error if the kernel is not
// symmetric up to rounding; only symmetric matrices can be positive.
func Gram(f Kernel, x mat.Matrix) (*mat.SymDense, error) {
	rows := rowsOf(x)
	to := mat.NewSymDense(len(rows), nil)
	for i, a := range rows {
		for j, b := range rows[:i+1] {
			k, swapped := math.Exp(f(a, b)), math.Exp(f(b, a))
			if math.Abs(k-swapped) > 1e-12*max(k, swapped) {
				return nil, fmt.Errorf("regression: the kernel is not symmetric: K(x_%d, x_%d) is %v and K(x_%d, x_%d) is %v", i, j, k, j, i, swapped)
			}
			to.SetSym(i, j, k)
		}
	}
	return to, nil
}

// Spectrum returns the eigenvalues of a symmetric matrix, the least first. For a Gram matrix of a
// positive kernel none is below 0, up to a rounding error of the size of the largest.
func Spectrum(g mat.Symmetric) ([]float64, error) {
	var e mat.EigenSym
	if !e.Factorize(g, false) || floats.HasNaN(e.Values(nil)) {
		return nil, errors.New("regression: the matrix has no eigenvalues, check it for NaN and infinities")
	}
	return e.Values(nil), nil
}
