package scorers

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Additive is a network with one hidden layer that computes a score from a query and a key. U has a
// row for each hidden unit and a column for each column of q, and W likewise for k. V has a number
// for each hidden unit. Queries and keys may differ in length.
type Additive struct {
	U, W mat.Matrix
	V    []float64
}

// Scores returns s_ij = sum_h v_h tanh(sum_a U_ha q_ia + sum_b W_hb k_jb).
func (s Additive) Scores(q, k mat.Matrix) *mat.Dense {
	layer := s.layer(q, k)
	nq, _ := q.Dims()
	nk, _ := k.Dims()
	to := mat.NewDense(nq, nk, nil)
	to.Apply(func(i, j int, _ float64) float64 { return floats.Dot(s.V, layer.tanh(i, j)) }, to)
	return to
}

// AdditiveGradients holds the gradients of a loss by the operands and parameters of an Additive.
type AdditiveGradients struct {
	Q, K, U, W *mat.Dense
	V          []float64
}

// Gradients returns the gradients of a loss, given dS, its gradient by the scores. With the hidden
// units t_ijh and their gradients g_ijh = dS_ij v_h (1 - t_ijh^2),
//
//	dV_h  = sum_ij dS_ij t_ijh
//	dU_ha = sum_ij g_ijh q_ia    dQ_ia = sum_jh g_ijh U_ha
//	dW_hb = sum_ij g_ijh k_jb    dK_jb = sum_ih g_ijh W_hb
//
// g is not stored, only its sums over the keys and over the queries.
func (s Additive) Gradients(q, k, dS mat.Matrix) AdditiveGradients {
	pairs(q, k, dS)
	layer := s.layer(q, k)
	nq, _ := q.Dims()
	nk, _ := k.Dims()
	byQuery, byKey, dV := mat.NewDense(nq, len(s.V), nil), mat.NewDense(nk, len(s.V), nil), make([]float64, len(s.V))
	for i := range nq {
		for j := range nk {
			for h, t := range layer.tanh(i, j) {
				dV[h] += dS.At(i, j) * t
				g := dS.At(i, j) * s.V[h] * (1 - t*t)
				byQuery.Set(i, h, byQuery.At(i, h)+g)
				byKey.Set(j, h, byKey.At(j, h)+g)
			}
		}
	}
	return AdditiveGradients{
		Q: times(1, byQuery, s.U), U: times(1, byQuery.T(), q),
		K: times(1, byKey, s.W), W: times(1, byKey.T(), k),
		V: dV,
	}
}

// A layer holds the contributions of each query and each key to the hidden units, before they are
// added.
type layer struct {
	q, k *mat.Dense // one row each, one column for each hidden unit
	t    []float64
}

func (s Additive) layer(q, k mat.Matrix) layer {
	for _, o := range [...]struct {
		name, meets string
		of, by      mat.Matrix
	}{{"U", "Q", s.U, q}, {"W", "K", s.W, k}} {
		r, c := o.of.Dims()
		if _, d := o.by.Dims(); r != len(s.V) || c != d {
			panic(fmt.Sprintf("scorers: %s is %d by %d, and V has %d numbers, %s %d columns: want %d by %d", o.name, r, c, len(s.V), o.meets, d, len(s.V), d))
		}
	}
	return layer{q: times(1, q, s.U.T()), k: times(1, k, s.W.T()), t: make([]float64, len(s.V))}
}

// tanh returns the hidden units of a pair. They are valid until the next call.
func (l layer) tanh(i, j int) []float64 {
	floats.AddTo(l.t, l.q.RawRowView(i), l.k.RawRowView(j))
	for h, x := range l.t {
		l.t[h] = math.Tanh(x)
	}
	return l.t
}
