//go:build (amd64 || arm64) && !purego

package asm

import "testing"

// TestPrefetchShares checks that the micro-tiles of any number of queries prefetch each of four
// rows once, and that none prefetches more than its share.
func TestPrefetchShares(t *testing.T) {
	for _, tiles := range [][]int{{4, 2, 1}, {2, 1}, {6, 2, 1}} {
		all := prefetchShares(tiles)
		for queries := 1; queries <= 100; queries++ {
			bits, most, seen := all[min(queries, len(all)-1)], 0, uint64(0)
			n := 0
			for left, i := queries, 0; left > 0; n++ {
				for tiles[i] > left {
					i++
				}
				left -= tiles[i]
			}
			for i := range 16 {
				tile, rows := bits>>(4*i)&15, 0
				for row := range 4 {
					rows += int(tile >> row & 1)
				}
				if seen&tile != 0 || rows > 0 && i >= n {
					t.Errorf("%d queries by %v: micro-tile %d of %d prefetches rows %04b, after %04b", queries, tiles, i, n, tile, seen)
				}
				seen, most = seen|tile, max(most, rows)
			}
			if seen != 15 || most > (4+n-1)/n {
				t.Errorf("%d queries by %v: %d micro-tiles prefetch rows %04b, one of them %d rows", queries, tiles, n, seen, most)
			}
		}
	}
}
