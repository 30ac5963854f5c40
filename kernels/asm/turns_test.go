//go:build (amd64 || arm64) && !purego

package asm

import "testing"

// TestTurns checks that the tiles of any number of queries prefetch each of four rows once, and
// none of them more than its share.
func TestTurns(t *testing.T) {
	for _, tiles := range [][]int{{4, 2, 1}, {2, 1}, {6, 2, 1}} {
		all := turns(tiles)
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
				tile, asks := bits>>(4*i)&15, 0
				for row := range 4 {
					asks += int(tile >> row & 1)
				}
				if seen&tile != 0 || asks > 0 && i >= n {
					t.Errorf("%d queries by %v: tile %d of %d asks for %04b, after %04b", queries, tiles, i, n, tile, seen)
				}
				seen, most = seen|tile, max(most, asks)
			}
			if seen != 15 || most > (4+n-1)/n {
				t.Errorf("%d queries by %v: %d tiles ask for %04b, one of them for %d rows", queries, tiles, n, seen, most)
			}
		}
	}
}
