package tiled

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// NewBLAS returns the kernel tiled/blas: the portable loops, with both products computed by gonum's
// Gemm. In panel layout they are plain matrix products, P = K Qt and O += V^T P.
//
// A Gemm that covers four or more 64 x 64 blocks of its result starts goroutines and allocates.
// Sixty-four lanes by at most 128 rows are two such blocks.
func NewBLAS() attn.Kernel {
	ops := asm.Portable(lanes, 1, 8, 1, 1)
	ops.ISA = "blas"
	score, mix := ops.Panel.Score, ops.Panel.Mix // for overlapping rows, which Gemm refuses
	ops.Panel.Score = func(s *asm.Scores) {
		keys, queries := s.Keys.Rows(), s.Queries.Lanes()
		if keys.Stride < s.D || s.D == 0 {
			score(s)
			return
		}
		k, q := general(s.N, s.D, keys), general(s.D, s.Width, asm.Rows{Data: queries, Stride: s.Lanes})
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, k, q, 0, panel(&s.Panel))
		// Gemm skips elements of K that are 0, so it misses that 0 times an infinity or NaN is NaN.
		var lost [lanes]float32
		for x := range s.D {
			for lane, q := range queries[x*s.Lanes:][:s.Width] {
				lost[lane] += q * 0
			}
		}
		for j := range s.N {
			row := s.P[j*s.Lanes:][:s.Width]
			for lane, sum := range row {
				row[lane] = float32(float64(sum)*s.Factor) + lost[lane]
			}
		}
	}
	ops.Panel.Mix = func(m *asm.Mix) {
		values := m.Values.Rows()
		if values.Stride < m.C {
			mix(m)
			return
		}
		old := float32(1)
		if m.Fresh {
			old = 0
		}
		for c := 0; c < m.C; c += columns {
			n := min(columns, m.C-c)
			v := general(m.N, n, asm.Rows{Data: values.Data[c:], Stride: values.Stride})
			blas32.Gemm(blas.Trans, blas.NoTrans, 1, v, panel(&m.Panel), old, general(n, m.Width, asm.Rows{Data: m.O[c*m.Lanes:], Stride: m.Lanes}))
		}
	}
	return New(ops)
}

// lanes is the number of queries in a tile.
const lanes = 64

// columns is the number of columns of V in one Gemm.
const columns = 128

func general(rows, cols int, r asm.Rows) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: r.Stride, Data: r.Data}
}

// panel returns the scores or weights as a matrix.
func panel(p *asm.Panel) blas32.General {
	return general(p.N, p.Width, asm.Rows{Data: p.P, Stride: p.Lanes})
}
