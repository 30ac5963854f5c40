package regression

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// A FeatureMap takes a query or key to its features.
type FeatureMap interface {
	Features(x []float64) []float64
}

// Elementwise is a feature of each number.
type Elementwise func(x float64) float64

// Features is f of each number.
func (f Elementwise) Features(x []float64) []float64 {
	to := make([]float64, len(x))
	for i, v := range x {
		to[i] = f(v)
	}
	return to
}

// EluPlusOne is x+1 for x > 0, else exp(x): positive, and smooth to the first derivative.
func EluPlusOne(x float64) float64 {
	if x > 0 {
		return x + 1
	}
	return math.Exp(x)
}

// ReluPlusOne is max(x, 0)+1: what the lesson's listing computes for elu+1. All negative numbers
// are one to it.
func ReluPlusOne(x float64) float64 { return math.Max(x, 0) + 1 }

// Relu is max(x, 0) + eps. Without eps a query may have no feature at all, and a row of 0/0.
func Relu(eps float64) Elementwise {
	return func(x float64) float64 { return math.Max(x, 0) + eps }
}

// Softplus is log(1 + exp(x)).
func Softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// Square is x^2.
func Square(x float64) float64 { return x * x }

// Exp is exp(x).
func Exp(x float64) float64 { return math.Exp(x) }

// Identity is x. Its products are no weights, as they may be negative: what is normalised by their
// sum may be anything.
func Identity(x float64) float64 { return x }

// Apply is the features of every row.
func Apply(f FeatureMap, x mat.Matrix) *mat.Dense {
	var to *mat.Dense
	for i, row := range rowsOf(x) {
		y := f.Features(row)
		if to == nil {
			n, _ := x.Dims()
			to = mat.NewDense(n, len(y), nil)
		}
		to.SetRow(i, y)
	}
	return to
}
