package scorers

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// A Scorer computes scores, with a row for each row of q and a column for each row of k. It panics
// if operands do not fit, and names them.
type Scorer interface {
	Scores(q, k mat.Matrix) *mat.Dense
}

// Dot is the dot product of a query and a key, times Scale.
type Dot struct {
	Scale float64 // 0 means 1/sqrt(d), d being the columns of q and k
}

// Scores returns s_ij = scale sum_a q_ia k_ja.
func (s Dot) Scores(q, k mat.Matrix) *mat.Dense {
	_, d := q.Dims()
	if _, dk := k.Dims(); dk != d {
		panic(fmt.Sprintf("scorers: Q has %d columns and K has %d: want equal numbers for Dot, use Bilinear with an M of %d by %d otherwise", d, dk, d, dk))
	}
	scale := s.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	return times(scale, q, k.T())
}

// Bilinear is a bilinear form of a query and a key. M has a row for each column of q and a column
// for each column of k.
type Bilinear struct {
	M     mat.Matrix
	Scale float64 // 0 means 1
}

// Scores returns s_ij = scale sum_ab q_ia M_ab k_jb.
func (s Bilinear) Scores(q, k mat.Matrix) *mat.Dense {
	s.fits(q, k)
	return times(s.scale(), q, s.M, k.T())
}

func (s Bilinear) scale() float64 {
	if s.Scale == 0 {
		return 1
	}
	return s.Scale
}

func (s Bilinear) fits(q, k mat.Matrix) {
	_, dq := q.Dims()
	_, dk := k.Dims()
	if r, c := s.M.Dims(); r != dq || c != dk {
		panic(fmt.Sprintf("scorers: M is %d by %d, and Q has %d columns, K %d: want %d by %d", r, c, dq, dk, dq, dk))
	}
}

// BilinearGradients holds the gradients of a loss by the operands and the matrix of a Bilinear.
type BilinearGradients struct{ Q, K, M *mat.Dense }

// Gradients returns the gradients of a loss, given dS, its gradient by the scores:
//
//	dQ = scale dS K M^T    dK = scale dS^T Q M    dM = scale Q^T dS K
//
// Only Scale multiplies dM: if scores are divided by sqrt(d), the factor is either part of M or it
// is Scale.
func (s Bilinear) Gradients(q, k, dS mat.Matrix) BilinearGradients {
	s.fits(q, k)
	pairs(q, k, dS)
	c := s.scale()
	return BilinearGradients{Q: times(c, dS, k, s.M.T()), K: times(c, dS.T(), q, s.M), M: times(c, q.T(), dS, k)}
}

// times returns c times a product of matrices.
func times(c float64, factors ...mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Product(factors...)
	to.Scale(c, &to)
	return &to
}

// pairs panics unless dS has a number for each pair of a query and a key.
func pairs(q, k, dS mat.Matrix) {
	nq, _ := q.Dims()
	nk, _ := k.Dims()
	if r, c := dS.Dims(); r != nq || c != nk {
		panic(fmt.Sprintf("scorers: dS is %d by %d, want a row for each of %d queries and a column for each of %d keys", r, c, nq, nk))
	}
}
