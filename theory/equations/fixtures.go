package equations

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// ex1Scale is 1/sqrt(d_k) of the first worked example.
const ex1Scale = 1 / math.Sqrt2

// ex1 returns the first worked example of the source documents: two queries, three keys, two
// dimensions. Each call returns new matrices.
func ex1() (q, k, v *mat.Dense) {
	q = Rows([]float64{1, 0}, []float64{0, 1})
	k = Rows([]float64{1, 0}, []float64{0, 1}, []float64{1, 1})
	v = Rows([]float64{2, 0}, []float64{0, 2}, []float64{1, 1})
	return q, k, v
}

// tt returns the scores of the temperature table in the sources.
func tt() []float64 { return []float64{2, 1, 0} }
