package gibbs

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// SoftmaxRows applies Softmax to every row: attention's A_ij = exp(S_ij/t) / Z_i.
func SoftmaxRows(s mat.Matrix, t float64) *mat.Dense {
	return rowsOf(s, func(_ int, row []float64) []float64 { return Softmax(row, t) })
}

// LogSoftmaxRows applies LogSoftmax to every row.
func LogSoftmaxRows(s mat.Matrix, t float64) *mat.Dense {
	return rowsOf(s, func(_ int, row []float64) []float64 { return LogSoftmax(row, t) })
}

// GibbsRows applies Gibbs to every row.
func GibbsRows(e mat.Matrix, t float64) *mat.Dense {
	return rowsOf(e, func(_ int, row []float64) []float64 { return Gibbs(row, t) })
}

// MaskRows applies Mask to every row; show reports whether query i sees key j.
func MaskRows(s mat.Matrix, show func(i, j int) bool) *mat.Dense {
	return rowsOf(s, func(i int, row []float64) []float64 {
		return Mask(row, func(j int) bool { return show(i, j) })
	})
}

// LogPartitionRows returns LogPartition of every row.
func LogPartitionRows(s mat.Matrix, t float64) []float64 {
	return eachRow(s, func(_ int, row []float64) float64 { return LogPartition(row, t) })
}

// FreeEnergyRows returns FreeEnergy of every row.
func FreeEnergyRows(s mat.Matrix, t float64) []float64 {
	return eachRow(s, func(_ int, row []float64) float64 { return FreeEnergy(row, t) })
}

// ExpectedEnergyRows returns ExpectedEnergy of every row of weights and the same row of scores.
func ExpectedEnergyRows(p, s mat.Matrix) []float64 {
	if height(p) != height(s) {
		panic(fmt.Sprintf("gibbs: %d rows of weights for %d rows of scores", height(p), height(s)))
	}
	return eachRow(p, func(i int, row []float64) float64 { return ExpectedEnergy(row, mat.Row(nil, i, s)) })
}

// EntropyRows returns Entropy of every row of weights: the entropy of attention for each query.
func EntropyRows(p mat.Matrix) []float64 {
	return eachRow(p, func(_ int, row []float64) float64 { return Entropy(row) })
}

// NormalizedEntropyRows returns NormalizedEntropy of every row of weights.
func NormalizedEntropyRows(p mat.Matrix) []float64 {
	return eachRow(p, func(_ int, row []float64) float64 { return NormalizedEntropy(row) })
}

// EffectiveStatesRows returns EffectiveStates of every row of weights.
func EffectiveStatesRows(p mat.Matrix) []float64 {
	return eachRow(p, func(_ int, row []float64) float64 { return EffectiveStates(row) })
}

// Jacobians returns Jacobian of every row of weights: element (j, k) of the i-th is dA_ij/dS_ik.
// Weights of different rows do not depend on each other.
func Jacobians(p mat.Matrix, t float64) []*mat.SymDense {
	to := make([]*mat.SymDense, height(p))
	for i := range to {
		to[i] = Jacobian(mat.Row(nil, i, p), t)
	}
	return to
}

// rowsOf returns the matrix whose rows are f of the rows of m.
func rowsOf(m mat.Matrix, f func(i int, row []float64) []float64) *mat.Dense {
	to := mat.DenseCopyOf(m)
	for i := range height(m) {
		to.SetRow(i, f(i, mat.Row(nil, i, m)))
	}
	return to
}

// eachRow returns f of every row.
func eachRow(m mat.Matrix, f func(i int, row []float64) float64) []float64 {
	to := make([]float64, height(m))
	for i := range to {
		to[i] = f(i, mat.Row(nil, i, m))
	}
	return to
}

func height(m mat.Matrix) int {
	rows, _ := m.Dims()
	return rows
}
