package tensor

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// The contractions below have names in the source documents. Each is one spec. They panic
// with Einsum's error if shapes do not fit. A scale of 0 means 1/√d, as in package attn, where d is
// the number of components of queries and keys.

// Dot returns the scalar product of two vectors, a,a->.
func Dot(u, v []float64) float64 { return must("a,a->", Vector(u), Vector(v)).Value() }

// Outer returns the outer product of two vectors, a,b->ab.
func Outer(u, v []float64) *mat.Dense { return must("a,b->ab", Vector(u), Vector(v)).Dense() }

// Transpose returns a copy of a matrix with rows for columns, ij->ji.
func Transpose(m mat.Matrix) *mat.Dense { return must("ij->ji", Matrix(m)).Dense() }

// Trace returns the sum of the diagonal of a square matrix, ii->.
func Trace(m mat.Matrix) float64 { return must("ii->", Matrix(m)).Value() }

// MatMul returns the product of two matrices, ij,jk->ik.
func MatMul(a, b mat.Matrix) *mat.Dense { return must("ij,jk->ik", Matrix(a), Matrix(b)).Dense() }

// BatchMatMul returns the product of each matrix of a stack with the matching one of another,
// nij,njk->nik.
func BatchMatMul(a, b *Tensor) *Tensor { return must("nij,njk->nik", a, b) }

// FrobeniusSquared returns the sum of the squares of a matrix's elements, ij,ij->.
func FrobeniusSquared(m mat.Matrix) float64 {
	t := Matrix(m)
	return must("ij,ij->", t, t).Value()
}

// Hadamard returns the product of two matrices element by element, ij,ij->ij.
func Hadamard(a, b mat.Matrix) *mat.Dense { return must("ij,ij->ij", Matrix(a), Matrix(b)).Dense() }

// BilinearForm returns u^a M_ab v^b, a,ab,b->. M need be neither square nor symmetric.
func BilinearForm(u []float64, m mat.Matrix, v []float64) float64 {
	return must("a,ab,b->", Vector(u), Matrix(m), Vector(v)).Value()
}

// BatchBilinearForm returns the form of every row of u with every row of v, ia,ab,jb->ij: the
// scores of queries u and keys v with metric M.
func BatchBilinearForm(u, m, v mat.Matrix) *mat.Dense {
	return must("ia,ab,jb->ij", Matrix(u), Matrix(m), Matrix(v)).Dense()
}

// AttentionScores returns the score of every query and key, scale times ia,ja->ij.
func AttentionScores(q, k mat.Matrix, scale float64) *mat.Dense {
	return scaled(must("ia,ja->ij", Matrix(q), Matrix(k)), scale, columns(q)).Dense()
}

// AttentionOutput returns the weighted mean of the values for each query, ij,jb->ib.
func AttentionOutput(weights, v mat.Matrix) *mat.Dense {
	return must("ij,jb->ib", Matrix(weights), Matrix(v)).Dense()
}

// BatchedAttentionScores returns AttentionScores of each batch entry n, nia,nja->nij.
func BatchedAttentionScores(q, k *Tensor, scale float64) *Tensor {
	return scaled(must("nia,nja->nij", q, k), scale, last(q))
}

// BatchedAttentionOutput returns AttentionOutput of each batch entry n, nij,njb->nib.
func BatchedAttentionOutput(weights, v *Tensor) *Tensor { return must("nij,njb->nib", weights, v) }

// MultiHeadProject returns the projection of the rows of x to each head h, ib,hba->hia.
func MultiHeadProject(x mat.Matrix, w *Tensor) *Tensor { return must("ib,hba->hia", Matrix(x), w) }

// MultiHeadScores returns AttentionScores of each head h, hia,hja->hij.
func MultiHeadScores(q, k *Tensor, scale float64) *Tensor {
	return scaled(must("hia,hja->hij", q, k), scale, last(q))
}

// MultiHeadOutput returns AttentionOutput of each head h, hij,hjb->hib.
func MultiHeadOutput(weights, v *Tensor) *Tensor { return must("hij,hjb->hib", weights, v) }

// MultiHeadCombine projects the outputs of all heads back to the model, hic,hca->ia. It sums over
// heads and their components, which equals the product of the concatenated outputs with the stacked
// matrices.
func MultiHeadCombine(o, w *Tensor) *mat.Dense { return must("hic,hca->ia", o, w).Dense() }

// BatchedMultiHeadProject returns MultiHeadProject of each batch entry n, nib,hba->nhia.
func BatchedMultiHeadProject(x, w *Tensor) *Tensor { return must("nib,hba->nhia", x, w) }

// BatchedMultiHeadScores returns MultiHeadScores of each batch entry n, nhia,nhja->nhij.
func BatchedMultiHeadScores(q, k *Tensor, scale float64) *Tensor {
	return scaled(must("nhia,nhja->nhij", q, k), scale, last(q))
}

// must evaluates a spec that is known to be right, and panics if the operands do not fit.
func must(spec string, operands ...*Tensor) *Tensor {
	t, err := Einsum(spec, operands...)
	if err != nil {
		panic("tensor: " + err.Error())
	}
	return t
}

// scaled multiplies scores, which are sums of d products, by the scale.
func scaled(s *Tensor, scale float64, d int) *Tensor {
	switch {
	case scale == 0 && d == 0:
		return s // empty sums
	case scale == 0:
		scale = 1 / math.Sqrt(float64(d))
	}
	for n := range s.data {
		s.data[n] *= scale
	}
	return s
}

// columns returns the number of columns of a matrix.
func columns(m mat.Matrix) int {
	_, c := m.Dims()
	return c
}

// last returns the extent of the last axis.
func last(t *Tensor) int { return t.shape[t.Rank()-1] }
