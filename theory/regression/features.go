package regression

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// A FeatureMap maps a query or key to its features.
type FeatureMap interface {
	Features(x []float64) []float64
}

// Elementwise maps each number to one feature.
type Elementwise func(x float64) float64

// Features returns f applied to each number.
func (f Elementwise) Features(x []float64) []float64 {
	to := make([]float64, len(x))
	for i, v := range x {
		to[i] = f(v)
	}
	return to
}

// EluPlusOne returns x+1 for x > 0, else exp(x). It is positive and has a continuous derivative.
func EluPlusOne(x float64) float64 {
	if x > 0 {
		return x + 1
	}
	return math.Exp(x)
}

// ReluPlusOne returns max(x, 0)+1, which the lesson's listing computes for elu+1. It maps every
// negative number to 1.
func ReluPlusOne(x float64) float64 { return math.Max(x, 0) + 1 }

// Relu returns max(x, 0) + eps. Without eps all features of a query may be 0, and its row is then
// 0/0.
func Relu(eps float64) Elementwise {
	return func(x float64) float64 { return math.Max(x, 0) + eps }
}

// Softplus returns log(1 + exp(x)).
func Softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// Square returns x^2.
func Square(x float64) float64 { return x * x }

// Exp returns exp(x).
func Exp(x float64) float64 { return math.Exp(x) }

// Identity returns x. Its products are no weights, because they may be negative: an output divided
// by their sum may be any number.
func Identity(x float64) float64 { return x }

// Apply returns the features of every row.
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
