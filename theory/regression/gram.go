package regression

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Gram is the matrix K(x_i, x_j) over the rows of x. Its error is that the kernel takes them
// differently from (x_j, x_i), beyond rounding: then there is no question of positivity.
func Gram(f Kernel, x mat.Matrix) (*mat.SymDense, error) {
	rows := rowsOf(x)
	to := mat.NewSymDense(len(rows), nil)
	for i, a := range rows {
		for j, b := range rows[:i+1] {
			k, turned := math.Exp(f(a, b)), math.Exp(f(b, a))
			if math.Abs(k-turned) > 1e-12*max(k, turned) {
				return nil, fmt.Errorf("regression: the kernel is not symmetric: K(x_%d, x_%d) is %v and K(x_%d, x_%d) is %v", i, j, k, j, i, turned)
			}
			to.SetSym(i, j, k)
		}
	}
	return to, nil
}

// Spectrum is the eigenvalues of a symmetric matrix, the least first. A Gram matrix of a positive
// kernel has none below 0, but for a rounding error of the size of the last one.
func Spectrum(g mat.Symmetric) ([]float64, error) {
	var e mat.EigenSym
	if !e.Factorize(g, false) || floats.HasNaN(e.Values(nil)) {
		return nil, errors.New("regression: the matrix has no eigenvalues; is there a NaN or infinity in it?")
	}
	return e.Values(nil), nil
}
