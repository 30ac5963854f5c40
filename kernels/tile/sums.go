package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// Sums are the running sums of a tile's lanes, which it keeps from one block to the next.
type Sums struct {
	asm.Sums
	best   []float32 // at temperature 0 the largest score, at +Inf the sum of scores
	max    []float32 // the largest score so far, where the call wants it
	first  []int32   // the first key that has it
	hidden []bool    // the lane's row is computed by definition
}

// SumsPerLane is the number of float32 numbers that Sums keep for a lane, rounded up.
const SumsPerLane = 7

// NewSums allocates the sums of one tile.
func NewSums(ops *asm.Ops) Sums {
	n := ops.Shape.Lanes
	f := make([]float32, 5*n)
	part := func(i int) []float32 { return f[i*n : (i+1)*n : (i+1)*n] }
	return Sums{asm.Sums{M: part(0), L: part(1), S: part(2)}, part(3), part(4), make([]int32, n), make([]bool, n)}
}

// empty makes the sums those of no key, as far as a call with these wants reads them.
func (s *Sums) empty(temp float64, want attn.Want) {
	fill(s.M, asm.Unset)
	clear(s.L)
	clear(s.S)
	clear(s.hidden)
	if want&(attn.WantMax|attn.WantArgMax) != 0 {
		fill(s.max, -inf)
		for lane := range s.first {
			s.first[lane] = -1
		}
	}
	clear(s.best)
	if temp == attn.Frozen {
		fill(s.best, asm.Unset)
	}
}

// limit rewrites scores for the limits of temperature, to scores that give the same weights at T =
// 1: 0 for the keys that share the weight, -Inf for others. Where a larger score than before is
// found at temperature 0, the lane's earlier sums no longer count: L and keep become 0.
func (s *Sums) limit(p *asm.Panel, keep []float32, temp float64) {
	rows := p.P[:p.N*p.Lanes]
	for lane := range p.Width {
		top := maximum(rows, lane, p.Lanes)
		if top-top != 0 { // NaN or an infinity: the weights are the same at any temperature
			continue
		}
		if temp == attn.Frozen {
			s.freeze(rows, lane, p.Lanes, top, keep)
			continue
		}
		sum := 0.0 // in float64: in float32, equal scores would be rounded the same way each time
		for at := lane; at < len(rows); at += p.Lanes {
			if x := rows[at]; x != -inf {
				sum += float64(x)
				rows[at] = 0
			}
		}
		s.best[lane] = float32(float64(s.best[lane]) + sum)
	}
}

// freeze implements limit for a lane at temperature 0, whose largest score in the block is top.
func (s *Sums) freeze(rows []float32, lane, lanes int, top float32, keep []float32) {
	if top > s.best[lane] {
		s.best[lane], s.M[lane] = top, asm.Unset
		s.L[lane] *= 0 // NaN stays
		keep[lane] = 0
	}
	for at := lane; at < len(rows); at += lanes {
		switch {
		case rows[at] == -inf:
		case rows[at] == s.best[lane]:
			rows[at] = 0
		default:
			rows[at] = -inf
		}
	}
}

// maximum returns the largest number of a lane, or NaN if there is one.
func maximum(rows []float32, lane, lanes int) float32 {
	top := -inf
	for at := lane; at < len(rows); at += lanes {
		top = max(top, rows[at])
	}
	return top
}

// largest updates first after a panel of scores, which max includes already. was is max before
// these rows, and key is the key of the first row.
func (s *Sums) largest(was, p []float32, lanes, rows, key int) {
	for lane := range rows {
		if top := s.max[lane]; top > was[lane] {
			j := 0
			for p[j*lanes+lane] != top {
				j++
			}
			s.first[lane] = int32(key + j)
		}
	}
}

// numbers returns M, L and S of a lane; S is 0 if it is not wanted.
func (s *Sums) numbers(lane int) (m, l, sum float64) {
	if s.S != nil {
		sum = float64(s.S[lane])
	}
	return float64(s.M[lane]), float64(s.L[lane]), sum
}

var inf = float32(math.Inf(1))

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}
