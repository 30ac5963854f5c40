package tiled

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// NewBLAS returns the kernel tiled/blas: the portable loops with both products done by gonum's Gemm. In panel layout they are plain matrix
// products, P = K Qt and O += V^T P.
//
// A Gemm that covers four or more 64 x 64 blocks of its result starts goroutines and allocates. Sixty-four lanes by at most 128 rows are two.
func NewBLAS() attn.Kernel {
	ops := asm.Portable(lanes, 1, 8, 1, 1)
	ops.ISA = "blas"
	score, mix := ops.Score, ops.Mix // for rows that overlap, as broadcast ones do: Gemm refuses them
	ops.Score = func(p *asm.Panel) {
		if p.K.Stride < p.D || p.D == 0 {
			score(p)
			return
		}
		k, qt := general(p.N, p.D, p.K), general(p.D, p.Width, asm.Rows{Data: p.Qt, Stride: p.Lanes})
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, k, qt, 0, general(p.N, p.Width, asm.Rows{Data: p.P, Stride: p.Lanes}))
		// Gemm leaves out elements of K that are 0, and with them what 0 makes of a query that is not finite.
		var lost [lanes]float32
		for x := range p.D {
			for lane, q := range p.Qt[x*p.Lanes:][:p.Width] {
				lost[lane] += q * 0
			}
		}
		factor := p.FactorLeft()
		for j := range p.N {
			row := p.P[j*p.Lanes:][:p.Width]
			for lane, s := range row {
				row[lane] = float32(float64(s)*factor) + lost[lane]
			}
		}
	}
	ops.Mix = func(p *asm.Panel) {
		if p.V.Stride < p.C {
			mix(p)
			return
		}
		old := float32(1)
		if p.Fresh {
			old = 0
		}
		w := general(p.N, p.Width, asm.Rows{Data: p.P, Stride: p.Lanes})
		for c := 0; c < p.C; c += columns {
			n := min(columns, p.C-c)
			v := general(p.N, n, asm.Rows{Data: p.V.Data[c:], Stride: p.V.Stride})
			blas32.Gemm(blas.Trans, blas.NoTrans, 1, v, w, old, general(n, p.Width, asm.Rows{Data: p.O[c*p.Lanes:], Stride: p.Lanes}))
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
