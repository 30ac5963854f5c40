package calculus

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/scorers"
)

// Staged holds the gradients of every stage of a backward pass.
type Staged struct {
	DV, DA, DS, DQ, DK *mat.Dense
	DM                 *mat.Dense // of a bilinear score, nil otherwise
	D                  []float64  // D_i = sum_b dO_ib O_ib
}

// Backward returns the gradients by queries, keys and values, given dO, the gradient by the output.
// Scores are dot products.
func Backward(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *Staged {
	return Incoming{DO: dO}.Backward(d, q, k, v, scale)
}

// BackwardBilinear returns the gradients of Backward, and dM, for scores S_ij = scale sum_ab Q_ia
// M_ab K_jb.
func BackwardBilinear(d *scorers.Decomposition, q, k, v, m mat.Matrix, scale float64, dO mat.Matrix) *Staged {
	return Incoming{DO: dO}.BackwardBilinear(d, q, k, v, m, scale)
}

// Incoming holds the gradients of a loss by the results of attention: the output, and the LSE and
// entropy of each row. A nil field counts as 0.
type Incoming struct {
	DO             mat.Matrix
	DLSE, DEntropy []float64 // by LogPartition and by the entropy of the weights
}

// Backward returns the gradients by queries, keys and values.
func (in Incoming) Backward(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64) *Staged {
	s := in.throughWeights(d, v)
	s.DQ, s.DK = GradQ(s.DS, k, scale), GradK(s.DS, q, scale)
	return s
}

// BackwardBilinear returns the gradients through a bilinear score. The score is a dot product of a
// query with a row of K M^T, and of a key with a row of Q M.
func (in Incoming) BackwardBilinear(d *scorers.Decomposition, q, k, v, m mat.Matrix, scale float64) *Staged {
	_, dq := q.Dims()
	_, dk := k.Dims()
	demand("M", m, dq, dk)
	scale = bilinearScale(scale)
	s := in.throughWeights(d, v)
	var projectedK, projectedQ mat.Dense
	projectedK.Mul(k, m.T())
	projectedQ.Mul(q, m)
	s.DQ, s.DK, s.DM = GradQ(s.DS, &projectedK, scale), GradK(s.DS, &projectedQ, scale), GradMetric(s.DS, q, k, scale)
	return s
}

// throughWeights runs the backward pass from the output to the scores. It does not depend on how
// the scores were computed.
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

// demandRows panics unless x is nil or has one number for each query.
func demandRows(name string, x []float64, nq int) {
	if x != nil && len(x) != nq {
		panic(fmt.Sprintf("calculus: %s has %d numbers for %d queries, want one for each query", name, len(x), nq))
	}
}

// addScaled adds f x to a row, skipping zeros of x: an infinite f must not reach keys of weight 0.
func addScaled(to []float64, f float64, x []float64) {
	for j, y := range x {
		if y != 0 {
			to[j] += f * y
		}
	}
}

// GradV returns dV = A^T dO: each value sums the gradients of the outputs, weighted by its share in
// them.
func GradV(a, dO mat.Matrix) *mat.Dense {
	nq, _ := a.Dims()
	_, dv := dO.Dims()
	demand("dO", dO, nq, dv)
	return weighted(a.T(), dO)
}

// GradA returns dA = dO V^T: the gradient of a weight is the product of its value with dO. Masked
// pairs get a number too, which is never used.
func GradA(dO, v mat.Matrix) *mat.Dense {
	nq, _ := dO.Dims()
	_, dv := v.Dims()
	demand("dO", dO, nq, dv)
	var to mat.Dense
	to.Mul(dO, v.T())
	return &to
}

// GradSoftmax returns dS_ij = A_ij (dA_ij - sum_k A_ik dA_ik) / T: a score gains by the
// excess of its weight's gradient over the weighted average of the row.
func GradSoftmax(a, dA mat.Matrix, t float64) *mat.Dense {
	return gradSoftmax(a, dA, RowSums(a, dA), t)
}

// GradSoftmaxFrom returns GradSoftmax, given the averages D_i, for example from RowSums(dO, O).
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
			return math.NaN() // one of several tied keys
		}
		return w * (dA.At(i, j) - d[i]) / temperature(t)
	}, a)
	return to
}

// RowSums returns sum_j x_ij y_ij for each row, over the pairs where x is not 0. RowSums(A, dA) and
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

// GradQ returns dQ = scale dS K.
func GradQ(dS, k mat.Matrix, scale float64) *mat.Dense {
	_, nk := dS.Dims()
	_, d := k.Dims()
	demand("K", k, nk, d)
	to := weighted(dS, k)
	to.Scale(dotScale(scale, d), to)
	return to
}

// GradK returns dK = scale dS^T Q.
func GradK(dS, q mat.Matrix, scale float64) *mat.Dense {
	nq, _ := dS.Dims()
	_, d := q.Dims()
	demand("Q", q, nq, d)
	to := weighted(dS.T(), q)
	to.Scale(dotScale(scale, d), to)
	return to
}

// GradMetric returns dM = scale Q^T dS K, of a bilinear score.
func GradMetric(dS, q, k mat.Matrix, scale float64) *mat.Dense {
	nq, nk := dS.Dims()
	_, dq := q.Dims()
	_, dk := k.Dims()
	demand("Q", q, nq, dq)
	demand("K", k, nk, dk)
	var to mat.Dense
	// Multiplying dS by K first leaves out queries that see no key.
	to.Scale(bilinearScale(scale), weighted(weighted(dS, k).T(), q).T())
	return &to
}
