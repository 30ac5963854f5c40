package equations

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Attention as the source documents write it: one loop for each sum, exponentials without a shift.
// It uses nothing of the theory packages. The ingredients that are easily mistaken are marked.

// writtenScores returns S_ij = sum_a q_ia k_ja / sqrt(d_k).
func writtenScores(c *Check, q, k *mat.Dense) *mat.Dense {
	nq, d := q.Dims()
	nk, _ := k.Dims()
	scale := c.Factor("1/sqrt(d_k)", 1/math.Sqrt(float64(d)))
	s := mat.NewDense(nq, nk, nil)
	for i := range nq {
		for j := range nk {
			sum := 0.0
			for a := range d {
				sum += q.At(i, a) * k.At(j, c.Index("a", a, d))
			}
			s.Set(i, j, scale*sum)
		}
	}
	return s
}

// writtenForm returns S_ij = sum_ab q_ia g_ab k_jb.
func writtenForm(c *Check, q *mat.Dense, g mat.Matrix, k *mat.Dense) *mat.Dense {
	nq, dq := q.Dims()
	nk, dk := k.Dims()
	s := mat.NewDense(nq, nk, nil)
	for i := range nq {
		for j := range nk {
			sum := 0.0
			for a := range dq {
				for b := range dk {
					sum += q.At(i, a) * g.At(a, b) * k.At(j, c.Index("b", b, dk))
				}
			}
			s.Set(i, j, sum)
		}
	}
	return s
}

// writtenSoftmax returns A_ij = exp(S_ij) / Z_i and Z_i = sum_j exp(S_ij) over the keys that the
// mask shows; a nil mask shows all. A query that sees no key has zero weights.
func writtenSoftmax(c *Check, s *mat.Dense, show func(i, j int) bool) (a *mat.Dense, z []float64) {
	nq, nk := s.Dims()
	a, z = mat.NewDense(nq, nk, nil), make([]float64, nq)
	for i := range nq {
		for j := range nk {
			if show == nil || show(i, j) {
				a.Set(i, j, math.Exp(s.At(i, j)))
				z[i] += a.At(i, j)
			}
		}
		for j := range nk {
			if e := a.At(i, j); e > 0 {
				a.Set(i, j, e/c.Factor("Z", z[i]))
			}
		}
	}
	return a, z
}

// writtenOutput returns O_ib = sum_j A_ij v_jb.
func writtenOutput(c *Check, a, v *mat.Dense) *mat.Dense {
	nq, nk := a.Dims()
	_, dv := v.Dims()
	o := mat.NewDense(nq, dv, nil)
	for i := range nq {
		for b := range dv {
			sum := 0.0
			for j := range nk {
				sum += a.At(i, j) * v.At(c.Index("j", j, nk), b)
			}
			o.Set(i, b, sum)
		}
	}
	return o
}

// written returns the scores, the weights, and softmax(Q K^T / sqrt(d_k)) V over the keys that the
// mask shows.
func written(c *Check, q, k, v *mat.Dense, show func(i, j int) bool) (s, a, o *mat.Dense) {
	s = writtenScores(c, q, k)
	a, _ = writtenSoftmax(c, s, show)
	return s, a, writtenOutput(c, a, v)
}

// writtenScoreGradient returns dA_ij = sum_b dO_ib v_jb and dS_ij = A_ij (dA_ij - sum_k A_ik
// dA_ik).
func writtenScoreGradient(c *Check, a, v, dO *mat.Dense) (dA, dS *mat.Dense) {
	nq, nk := a.Dims()
	_, dv := v.Dims()
	dA, dS = mat.NewDense(nq, nk, nil), mat.NewDense(nq, nk, nil)
	for i := range nq {
		mean := 0.0
		for j := range nk {
			sum := 0.0
			for b := range dv {
				sum += dO.At(i, b) * v.At(j, b)
			}
			dA.Set(i, j, sum)
			if c.Flip("A in the row sum") {
				mean += sum
			} else {
				mean += a.At(i, j) * sum
			}
		}
		for j := range nk {
			dS.Set(i, j, a.At(i, j)*(dA.At(i, j)-c.Sign("row sum", mean)))
		}
	}
	return dA, dS
}

// entropyOf returns -sum_j A_ij log A_ij of each row as a column.
func entropyOf(a *mat.Dense) *mat.Dense {
	nq, nk := a.Dims()
	h := mat.NewDense(nq, 1, nil)
	for i := range nq {
		for j := range nk {
			if p := a.At(i, j); p > 0 {
				h.Set(i, 0, h.At(i, 0)-p*math.Log(p))
			}
		}
	}
	return h
}
