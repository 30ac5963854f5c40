package calculus

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
)

// demand panics unless an operand has the given numbers of rows and columns.
func demand(name string, m mat.Matrix, rows, cols int) {
	if r, c := m.Dims(); r != rows || c != cols {
		panic(fmt.Sprintf("calculus: %s is %d by %d, want %d by %d to fit the other operands", name, r, c, rows, cols))
	}
}

// given reports whether an optional operand is given. A nil pointer in an interface is not.
func given(m mat.Matrix) bool {
	d, dense := m.(*mat.Dense)
	return m != nil && !(dense && d == nil)
}

// flat returns a copy of the elements of a matrix, row by row.
func flat(m mat.Matrix) []float64 { return mat.DenseCopyOf(m).RawMatrix().Data }

// dotScale returns the scale of a dot product of d terms.
func dotScale(scale float64, d int) float64 {
	if scale == 0 {
		return 1 / math.Sqrt(float64(d))
	}
	return scale
}

// bilinearScale returns the scale of a bilinear score.
func bilinearScale(scale float64) float64 {
	if scale == 0 {
		return 1
	}
	return scale
}

// temperature returns the T of a formula: 0 for attn.Frozen, 1 for 0.
func temperature(t float64) float64 {
	switch t {
	case 0:
		return 1
	case attn.Frozen:
		return 0
	}
	return t
}

// weighted returns sum_j w_ij x_jc over the pairs where w is not 0. It is a matrix product in which
// weight 0 hides NaN and infinities.
func weighted(w, x mat.Matrix) *mat.Dense {
	rows, n := w.Dims()
	_, cols := x.Dims()
	to := mat.NewDense(rows, cols, nil)
	for i := range rows {
		row := to.RawRowView(i)
		for j := range n {
			if a := w.At(i, j); a != 0 {
				for c := range row {
					row[c] += a * x.At(j, c)
				}
			}
		}
	}
	return to
}
