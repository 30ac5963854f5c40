package attn

import (
	"fmt"
	"strings"
)

// Pack makes a packed bitmap [1, n_q, 1, n_k] of what show says. Rows begin at whole words.
func Pack(nq, nk int, show func(i, j int) bool) Bits {
	words := (nk + 63) / 64
	m := Bits{Words: make([]uint64, nq*words), B: 1, S: nq, H: 1, D: nk, SS: 64 * words}
	for i := range nq {
		for j := range nk {
			if show(i, j) {
				m.Words[i*words+j/64] |= 1 << (j % 64)
			}
		}
	}
	return m
}

// Local shows the keys at most width/2 before or after the query: i and j with |i-j| <= width/2.
// The band Window(width/2, width/2) is the same without a bitmap, and faster.
func Local(n, width int) Bits {
	return Pack(n, n, func(i, j int) bool { return max(i-j, j-i) <= width/2 })
}

// Strided shows the keys that are a multiple of stride away.
func Strided(n, stride int) Bits {
	return Pack(n, n, func(i, j int) bool { return (i-j)%stride == 0 })
}

// GlobalLocal shows the first global keys to every query and every key to the first global queries,
// and to the others the keys at most width/2 away.
func GlobalLocal(n, global, width int) Bits {
	return Pack(n, n, func(i, j int) bool { return i < global || j < global || max(i-j, j-i) <= width/2 })
}

// BlockDiagonal is a block bitmap that shows each query the keys of its own block of side:
// n_blocks*side^2 pairs, if side divides n.
func BlockDiagonal(n, side int) Bits {
	blocks := (n + side - 1) / side
	return Pack(blocks, blocks, func(i, j int) bool { return i == j })
}

// BlockSparse is a block bitmap that shows each block of queries the blocks of keys that show says.
func BlockSparse(nq, nk, side int, show func(i, j int) bool) Bits {
	return Pack((nq+side-1)/side, (nk+side-1)/side, show)
}

// Padding shows keys that are no padding: keep has a row for each batch entry. It suits any mask;
// where the kept keys come first, KLen says the same at no cost.
func Padding(keep [][]bool) (Bits, error) {
	if len(keep) == 0 {
		return Bits{}, nil
	}
	n := len(keep[0])
	all := make([]bool, 0, len(keep)*n)
	for b, row := range keep {
		if len(row) != n {
			return Bits{}, fmt.Errorf("padding: batch entry %d has %d keys, the first one %d", b, len(row), n)
		}
		all = append(all, row...)
	}
	return BoolMask(all, len(keep), 1, 1, n)
}

// Picture draws what a call shows to the queries of one head: a line a query, '#' for a key it sees
// and '.' for one it does not.
func (p *Problem) Picture(a *Args, b, h int) string {
	var s strings.Builder
	for i := range a.Queries(p, b) {
		lo, hi := a.Visible(p, b, i)
		for j := range a.Keys(p, b) {
			if lo <= j && j < hi && a.Shows(p, b, i, h, j) {
				s.WriteByte('#')
			} else {
				s.WriteByte('.')
			}
		}
		s.WriteByte('\n')
	}
	return s.String()
}
