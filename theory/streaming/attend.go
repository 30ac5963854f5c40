package streaming

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Options sets how attention runs in blocks. The zero value is valid.
type Options struct {
	Scale float64             // scale of q.k; 0 means 1/sqrt(d)
	Block int                 // queries, and keys, in a block; 0 means 64
	Mask  func(i, j int) bool // reports whether query i sees key j; nil shows all keys
}

// Attend returns softmax attention, and log sum_j exp(s_j) of each query, computed in blocks. For
// each block of queries it runs over all blocks of keys.
func Attend(q, k, v mat.Matrix, o Options) (out *mat.Dense, lse []float64) {
	w := newWalk(q, k, v, o)
	nq, _ := w.q.Dims()
	_, dv := w.v.Dims()
	out, lse = mat.NewDense(nq, dv, nil), make([]float64, nq)
	states := make([]State, w.block)
	w.queries(func(i0 int, qb *mat.Dense) {
		rows, _ := qb.Dims()
		for i := range rows {
			states[i] = NewState(dv)
		}
		w.keys(i0, qb, func(_ int, s, _, vb *mat.Dense) {
			for i := range rows {
				states[i].Push(s.RawRowView(i), vb)
			}
		})
		for i := range rows {
			out.SetRow(i0+i, states[i].Output())
			lse[i0+i] = states[i].LSE()
		}
	})
	return out, lse
}

// Backward returns the gradients of a loss by Q, K and V, given dOut, its gradient by the output,
// and the results of Attend. It recomputes the weights, block by block.
func Backward(q, k, v, out mat.Matrix, lse []float64, dOut mat.Matrix, o Options) (dq, dk, dv *mat.Dense) {
	w := newWalk(q, k, v, o)
	like := func(m *mat.Dense) *mat.Dense { r, c := m.Dims(); return mat.NewDense(r, c, nil) }
	dq, dk, dv = like(w.q), like(w.k), like(w.v)
	outs, dOuts := mat.DenseCopyOf(out), mat.DenseCopyOf(dOut)
	if nq, _ := w.q.Dims(); len(lse) != nq {
		panic(fmt.Sprintf("streaming: LSE has %d rows and Q has %d, want equal numbers", len(lse), nq))
	}
	w.queries(func(i0 int, qb *mat.Dense) {
		w.keys(i0, qb, func(j0 int, s, kb, vb *mat.Dense) {
			rows, keys := s.Dims()
			for r := range rows {
				i := i0 + r
				do, d := dOuts.RawRowView(i), floats.Dot(dOuts.RawRowView(i), outs.RawRowView(i))
				for c := range keys {
					if math.IsInf(s.At(r, c), -1) {
						continue // hidden: has no effect, even if it is NaN
					}
					j, p := j0+c, math.Exp(s.At(r, c)-lse[i])
					ds := p * (floats.Dot(do, vb.RawRowView(c)) - d)
					floats.AddScaled(dv.RawRowView(j), p, do)
					floats.AddScaled(dq.RawRowView(i), w.scale*ds, kb.RawRowView(c))
					floats.AddScaled(dk.RawRowView(j), w.scale*ds, qb.RawRowView(r))
				}
			}
		})
	})
	return dq, dk, dv
}

// A walk runs over a problem in blocks.
type walk struct {
	q, k, v *mat.Dense
	scale   float64
	block   int
	mask    func(i, j int) bool
}

func newWalk(q, k, v mat.Matrix, o Options) *walk {
	_, d := q.Dims()
	nk, dk := k.Dims()
	rows, _ := v.Dims()
	if dk != d {
		panic(fmt.Sprintf("streaming: K has %d columns and Q has %d, want equal numbers", dk, d))
	}
	if rows != nk {
		panic(fmt.Sprintf("streaming: V has %d rows and K has %d, want one value for each key", rows, nk))
	}
	w := &walk{q: mat.DenseCopyOf(q), k: mat.DenseCopyOf(k), v: mat.DenseCopyOf(v), scale: o.Scale, block: o.Block, mask: o.Mask}
	if w.scale == 0 {
		w.scale = 1 / math.Sqrt(float64(d))
	}
	if w.block <= 0 {
		w.block = 64
	}
	return w
}

// part returns a block of rows of a matrix, which may be shorter at the end. It shares memory with
// the matrix.
func part(m *mat.Dense, from, block int) *mat.Dense {
	rows, columns := m.Dims()
	return m.Slice(from, min(from+block, rows), 0, columns).(*mat.Dense)
}

// queries calls f for each block of queries, with i0 the index of its first row.
func (w *walk) queries(f func(i0 int, qb *mat.Dense)) {
	rows, _ := w.q.Dims()
	for i0 := 0; i0 < rows; i0 += w.block {
		f(i0, part(w.q, i0, w.block))
	}
}

// keys calls f for each block of keys, with j0 the index of its first row and the scores of the
// block of queries, -Inf for hidden keys. f may overwrite the scores.
func (w *walk) keys(i0 int, qb *mat.Dense, f func(j0 int, s, kb, vb *mat.Dense)) {
	rows, _ := w.k.Dims()
	for j0 := 0; j0 < rows; j0 += w.block {
		kb := part(w.k, j0, w.block)
		var s mat.Dense
		s.Mul(qb, kb.T())
		s.Apply(func(i, j int, x float64) float64 {
			if w.mask != nil && !w.mask(i0+i, j0+j) {
				return math.Inf(-1)
			}
			return w.scale * x
		}, &s)
		f(j0, &s, kb, part(w.v, j0, w.block))
	}
}
