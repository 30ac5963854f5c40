package calculus

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/scorers"
)

// Staged is a backward pass with all that it went through.
type Staged struct {
	DV, DA, DS, DQ, DK *mat.Dense
	DM                 *mat.Dense // of a bilinear score, nil otherwise
	D                  []float64  // D_i = sum_b dO_ib O_ib
}

// Backward takes the gradient by the output back to queries, keys and values, of scores that are
// dot products.
func Backward(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *Staged {
	return Incoming{DO: dO}.Backward(d, q, k, v, scale)
}

// BackwardBilinear is Backward of scores S_ij = scale sum_ab Q_ia M_ab K_jb. It finds the gradient
// by M too.
func BackwardBilinear(d *scorers.Decomposition, q, k, v, m mat.Matrix, scale float64, dO mat.Matrix) *Staged {
	return Incoming{DO: dO}.BackwardBilinear(d, q, k, v, m, scale)
}

// Incoming is the gradients of a loss by what attention gave: its output, and by-products of its
// rows. What is nil counts as 0.
type Incoming struct {
	DO             mat.Matrix
	DLSE, DEntropy []float64 // by LogPartition, and by the entropy of the weights
}

// Backward takes them back to queries, keys and values.
func (in Incoming) Backward(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64) *Staged {
	s := in.throughWeights(d, v)
	s.DQ, s.DK = GradQ(s.DS, k, scale), GradK(s.DS, q, scale)
	return s
}

// BackwardBilinear takes them back through a bilinear score. A query q meets keys k M^T, and a key
// meets queries q M; from there on it is a dot product.
func (in Incoming) BackwardBilinear(d *scorers.Decomposition, q, k, v, m mat.Matrix, scale float64) *Staged {
	_, dq := q.Dims()
	_, dk := k.Dims()
	demand("M", m, dq, dk)
	scale = bilinearScale(scale)
	s := in.throughWeights(d, v)
	var metK, metQ mat.Dense
	metK.Mul(k, m.T())
	metQ.Mul(q, m)
	s.DQ, s.DK, s.DM = GradQ(s.DS, &metK, scale), GradK(s.DS, &metQ, scale), GradMetric(s.DS, q, k, scale)
	return s
}

// throughWeights goes back as far as the scores, which is the same however they were made.
func (in Incoming) throughWeights(d *scorers.Decomposition, v mat.Matrix) *Staged {
	nq, nk := d.Weights.Dims()
	_, dv := v.Dims()
	demand("V", v, nk, dv)
	demandRows("dLSE", in.DLSE, nq)
	demandRows("dEntropy", in.DEntropy, nq)
	if !given(in.DO) {
		in.DO = mat.NewDense(nq, dv, nil)
	}
	s := &Staged{DV: GradV(d.Weights, in.DO), DA: GradA(in.DO, v), D: RowSums(in.DO, d.Output)}
	s.DS = gradSoftmax(d.Weights, s.DA, s.D, d.Temp)
	for i := range nq {
		row, p := s.DS.RawRowView(i), d.Weights.RawRowView(i)
		if in.DLSE != nil {
			addScaled(row, in.DLSE[i], GradLogPartition(p, d.Temp))
		}
		if in.DEntropy != nil {
			addScaled(row, in.DEntropy[i], GradEntropy(p, d.Temp))
		}
	}
	return s
}

// demandRows panics unless a number a query is there, or none at all.
func demandRows(name string, x []float64, nq int) {
	if x != nil && len(x) != nq {
		panic(fmt.Sprintf("calculus: %s has %d numbers for %d queries", name, len(x), nq))
	}
}

// addScaled adds f x to a row, where x is not 0: an infinite f is no concern of keys without a
// weight.
func addScaled(to []float64, f float64, x []float64) {
	for j, y := range x {
		if y != 0 {
			to[j] += f * y
		}
	}
}

// GradV is dV = A^T dO: each value gathers the gradients of the outputs it went into, by its weight
// in them.
func GradV(a, dO mat.Matrix) *mat.Dense {
	nq, _ := a.Dims()
	_, dv := dO.Dims()
	demand("dO", dO, nq, dv)
	return weighted(a.T(), dO)
}

// GradA is dA = dO V^T: a weight is worth what its value would add along dO. Pairs that the mask
// hides have a number here too, which nothing uses.
func GradA(dO, v mat.Matrix) *mat.Dense {
	nq, _ := dO.Dims()
	_, dv := v.Dims()
	demand("dO", dO, nq, dv)
	var to mat.Dense
	to.Mul(dO, v.T())
	return &to
}

// GradSoftmax is dS_ij = A_ij (dA_ij - sum_k A_ik dA_ik) / T: a score gains by how much better its
// weight is than the average under the weights.
func GradSoftmax(a, dA mat.Matrix, t float64) *mat.Dense {
	return gradSoftmax(a, dA, RowSums(a, dA), t)
}

// GradSoftmaxFrom is GradSoftmax with the averages D_i given, as by RowSums(dO, O).
func GradSoftmaxFrom(a, dA mat.Matrix, d []float64, t float64) *mat.Dense {
	nq, _ := a.Dims()
	demandRows("D", d, nq)
	return gradSoftmax(a, dA, d, t)
}

func gradSoftmax(a, dA mat.Matrix, d []float64, t float64) *mat.Dense {
	nq, nk := a.Dims()
	demand("dA", dA, nq, nk)
	to := mat.NewDense(nq, nk, nil)
	to.Apply(func(i, j int, w float64) float64 {
		switch {
		case w == 0, t == attn.Frozen && w == 1:
			return 0
		case t == attn.Frozen:
			return math.NaN() // one of several keys that tie
		}
		return w * (dA.At(i, j) - d[i]) / temperature(t)
	}, a)
	return to
}

// RowSums is sum_j x_ij y_ij for each row, over the pairs where x is not 0: RowSums(A, dA) and
// RowSums(dO, O) are the two forms of D.
func RowSums(x, y mat.Matrix) []float64 {
	rows, cols := x.Dims()
	demand("the second factor", y, rows, cols)
	to := make([]float64, rows)
	for i := range to {
		for j := range cols {
			if a := x.At(i, j); a != 0 {
				to[i] += a * y.At(i, j)
			}
		}
	}
	return to
}

// GradQ is dQ = scale dS K.
func GradQ(dS, k mat.Matrix, scale float64) *mat.Dense {
	_, nk := dS.Dims()
	_, d := k.Dims()
	demand("K", k, nk, d)
	to := weighted(dS, k)
	to.Scale(dotScale(scale, d), to)
	return to
}

// GradK is dK = scale dS^T Q.
func GradK(dS, q mat.Matrix, scale float64) *mat.Dense {
	nq, _ := dS.Dims()
	_, d := q.Dims()
	demand("Q", q, nq, d)
	to := weighted(dS.T(), q)
	to.Scale(dotScale(scale, d), to)
	return to
}

// GradMetric is dM = scale Q^T dS K, of a bilinear score.
func GradMetric(dS, q, k mat.Matrix, scale float64) *mat.Dense {
	nq, nk := dS.Dims()
	_, dq := q.Dims()
	_, dk := k.Dims()
	demand("Q", q, nq, dq)
	demand("K", k, nk, dk)
	var to mat.Dense
	to.Scale(bilinearScale(scale), weighted(weighted(dS, k).T(), q).T()) // in this order a query that sees no key takes no part
	return &to
}
