package attn

import (
	"fmt"
	"strings"
)

// Pack returns a packed bitmap [1, n_q, 1, n_k] that shows key j to query i where show(i, j) is
// true. Each row begins at a whole word.
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

// Local shows the keys at most width/2 before or after the query: |i-j| <= width/2. The band
// Window(width/2, width/2) shows the same keys without a bitmap, and is faster.
func Local(n, width int) Bits {
	return Pack(n, n, func(i, j int) bool { return max(i-j, j-i) <= width/2 })
}

// Strided shows the keys whose distance from the query is a multiple of stride.
func Strided(n, stride int) Bits {
	return Pack(n, n, func(i, j int) bool { return (i-j)%stride == 0 })
}

// GlobalLocal shows every key to the first global queries. To the others it shows the first global
// keys and the keys at most width/2 away.
func GlobalLocal(n, global, width int) Bits {
	return Pack(n, n, func(i, j int) bool { return i < global || j < global || max(i-j, j-i) <= width/2 })
}

// BlockDiagonal returns a block bitmap that shows each query the keys of its own block. The blocks
// have side queries and side keys, so n_blocks*side^2 pairs are visible if side divides n.
func BlockDiagonal(n, side int) Bits {
	blocks := (n + side - 1) / side
	return Pack(blocks, blocks, func(i, j int) bool { return i == j })
}

// BlockSparse returns a block bitmap that shows block j of keys to block i of queries where show(i,
// j) is true.
func BlockSparse(nq, nk, side int, show func(i, j int) bool) Bits {
	return Pack((nq+side-1)/side, (nk+side-1)/side, show)
}

// Padding returns a mask that hides padding. keep has one row for each batch entry, which is true
// for the keys to show. If these come first in every row, KLen hides the padding at no cost.
func Padding(keep [][]bool) (Bits, error) {
	if len(keep) == 0 {
		return Bits{}, nil
	}
	n := len(keep[0])
	all := make([]bool, 0, len(keep)*n)
	for b, row := range keep {
		if len(row) != n {
			return Bits{}, fmt.Errorf("padding: batch entry %d has %d keys and entry 0 has %d, want the same number for all", b, len(row), n)
		}
		all = append(all, row...)
	}
	return BoolMask(all, len(keep), 1, 1, n)
}

// Picture draws the keys that the queries of one head see: one line for each query, '#' for a
// visible key and '.' for a hidden one.
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
