package linear

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// features computes the features of n rows of Q or K, and prefetches the next n. Contiguous rows
// are prefetched only if prefetch is set.
func (w *worker) features(to []float32, from asm.Rows, n int, prefetch bool) {
	d, ahead, l := w.p.Dim, n, &w.p.Linear
	if l.Norm != attn.NoNorm {
		w.norm(to, from, n)
		if l.Feature == attn.Identity {
			return
		}
		from = asm.Rows{Data: to, Stride: d}
	}
	if from.Stride == d { // as if they were one
		d, n, from.Stride = n*d, 1, n*d
		if ahead = 1; !prefetch {
			ahead = 0
		}
	}
	for j := range n {
		to, from, next := to[j*d:][:d], from.Row(j, d), after(from, j+ahead)
		switch l.Feature {
		case attn.EluPlusOne:
			w.ops.Vector.Elu(to, from, next)
		case attn.ReluPlusOne:
			for i, x := range from {
				to[i] = max(x, 0) + 1
			}
		default:
			copy(to, from)
		}
	}
}

// after returns the address after n rows, where the next row begins. It need not exist.
func after(r asm.Rows, n int) uintptr {
	p := r.Prefetch()
	return p.At + uintptr(n*p.By)
}

// plainRows reports whether the features of rows are the rows themselves.
func plainRows(p *attn.Problem) bool {
	return p.Linear.Feature == attn.Identity && p.Linear.Norm == attn.NoNorm
}

// Sums of squares that round as they should.
const leastSquares, mostSquares = 0x1p-80, 0x1p100

// norm divides n rows by their norms. to and from must not overlap.
func (w *worker) norm(to []float32, from asm.Rows, n int) {
	d := w.p.Dim
	if d == 0 {
		return
	}
	norms := w.norms[:n]
	w.ops.Back.Inner(norms, from, from, d)
	for i, s := range norms {
		if norms[i] = 0; s >= leastSquares && s <= mostSquares {
			norms[i] = float32(1 / w.length(float64(s)))
		}
	}
	w.ops.Vector.Scale(asm.Rows{Data: to, Stride: d}, from, norms, d)
	for i, f := range norms {
		if f == 0 {
			w.normOne(to[i*d:][:d], from.Row(i, d))
		}
	}
}

// normOne divides a row by its norm, in float64.
func (w *worker) normOne(to, from []float32) {
	squares := 0.0
	for _, x := range from {
		squares += float64(x) * float64(x)
	}
	length := w.length(squares)
	for c, x := range from {
		to[c] = float32(float64(x) / length)
	}
}

// length returns the number that a row is divided by, given the sum of its squares.
func (w *worker) length(squares float64) float64 {
	if w.p.Linear.Norm == attn.NormSum {
		return math.Sqrt(squares + w.p.Linear.NormEps)
	}
	return max(math.Sqrt(squares), w.p.Linear.NormEps)
}
