package tile

import (
	"fmt"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// TestQueriesOf checks which queries are in each tile, and the number of tiles that Count returns.
func TestQueriesOf(t *testing.T) {
	for _, c := range []struct {
		lanes, vec, n int
		side          int // side of a bitmap's blocks
		tiles         [][2]int
	}{
		{48, 16, 1, 0, [][2]int{{0, 1}}},
		{48, 16, 48, 0, [][2]int{{0, 48}}},
		{48, 16, 49, 0, [][2]int{{0, 17}, {17, 32}}},
		{48, 16, 64, 0, [][2]int{{0, 32}, {32, 32}}},
		{48, 16, 65, 0, [][2]int{{0, 17}, {17, 48}}},
		{48, 16, 112, 0, [][2]int{{0, 32}, {32, 32}, {64, 48}}},
		{8, 1, 17, 0, [][2]int{{0, 1}, {1, 8}, {9, 8}}},
		{24, 8, 160, 64, [][2]int{{0, 16}, {16, 24}, {40, 24}, {64, 16}, {80, 24}, {104, 24}, {128, 16}, {144, 16}}},
		{24, 8, 70, 64, [][2]int{{0, 16}, {16, 24}, {40, 24}, {64, 6}}},
		{24, 8, 40, 16, [][2]int{{0, 16}, {16, 24}}}, // a tile does not fit in a block
		{24, 8, 40, 64, [][2]int{{0, 16}, {16, 24}}},
	} {
		p := attn.Problem{}
		if c.side > 0 {
			p.Mask = attn.Full().WithBlocks(c.side)
		}
		ops := asm.Portable(c.lanes, c.vec, 8, 1, 1)
		if n := Count(&p, ops, c.n); n != len(c.tiles) {
			t.Errorf("%d lanes, %d queries, blocks of %d: %d tiles, want %d", c.lanes, c.n, c.side, n, len(c.tiles))
		}
		for i, want := range c.tiles {
			if first, rows := queriesOf(&p, &ops.Shape, c.n, i); first != want[0] || rows != want[1] {
				t.Errorf("%d lanes, %d queries, blocks of %d: tile %d has %d from %d on, want %d from %d on",
					c.lanes, c.n, c.side, i, rows, first, want[1], want[0])
			}
		}
	}
	if n := Count(&attn.Problem{}, asm.Go(), 0); n != 0 {
		t.Errorf("%d tiles without queries", n)
	}
}

// masks have edges that cross blocks in all ways.
var masks = []attn.Mask{
	attn.Full(), attn.Causal(), attn.Window(0, 0), attn.Window(3, 0), attn.Window(9, 4), attn.Window(40, 30),
	{Band: true, Left: 5, Right: attn.Unbounded},
	{Band: true, Left: attn.Unbounded, Right: 7},
}

// seen returns a place of 24 lanes at a spot.
func seen(mask attn.Mask, at spot) place {
	l := newPlace(24)
	l.rows, l.width, l.heads = at.rows, up(at.rows, 8), at.heads
	l.see(&mask, at)
	l.keys = l.visible
	return l
}

// spots returns spots among 60 keys: before the first, at the first, in the middle, and after the
// last.
func spots() (all []spot) {
	for _, pos := range []int{-30, -3, 0, 7, 31, 55, 64, 100} {
		for _, rows := range []int{1, 8, 9, 17, 24} {
			for _, heads := range []int{1, 3} {
				all = append(all, spot{pos, 60, rows, heads, heads / 2})
			}
		}
	}
	return append(all, spot{pos: 0, keys: 0, rows: 5, heads: 1})
}

// TestPlaceSees checks the keys that each lane sees, that any lane sees and that all see, against
// the mask's answer for each query.
func TestPlaceSees(t *testing.T) {
	for _, mask := range masks {
		for _, at := range spots() {
			l := seen(mask, at)
			visible, common := span{at.keys, 0}, span{0, at.keys}
			for lane := range l.width {
				query := min(lane, at.rows-1)
				lo, hi := mask.Keys(at.pos+(at.firstHead+query)/at.heads, at.keys)
				if lo < hi {
					visible = span{min(visible.lo, lo), max(visible.hi, hi)}
				}
				common = span{max(common.lo, lo), min(common.hi, hi)}
				for key := range at.keys {
					if l.sees(lane, key) != (lo <= key && key < hi) {
						t.Fatalf("%v at %+v: lane %d sees key %d: %v", mask, at, lane, key, l.sees(lane, key))
					}
				}
			}
			if l.visible != visible || l.common != common && !(l.common.empty() && common.empty()) {
				t.Errorf("%v at %+v: %v visible and %v to all, want %v and %v", mask, at, l.visible, l.common, visible, common)
			}
		}
	}
}

// TestPlaceBlocks checks where the blocks that a place sees start and end, also when the place is
// restricted to some of its keys.
func TestPlaceBlocks(t *testing.T) {
	const size, group = 32, 8
	for _, c := range []struct {
		visible  span
		first, n int // keys that the place is restricted to, if n is not 0
		start    int
		blocks   []span
		begins   []int // starts of blocks that begin the place
	}{
		{span{0, 60}, 0, 0, 0, []span{{0, 32}, {32, 60}}, []int{0}},
		{span{0, 64}, 0, 0, 0, []span{{0, 32}, {32, 64}}, []int{0}},
		{span{7, 33}, 0, 0, 0, []span{{0, 32}, {32, 33}}, []int{0}},
		{span{8, 9}, 0, 0, 0, []span{{8, 9}}, []int{0}},
		{span{31, 40}, 0, 0, 0, []span{{24, 32}, {32, 40}}, []int{0}},
		{span{32, 40}, 0, 0, 32, []span{{32, 40}}, []int{32}},
		{span{33, 128}, 64, 32, 64, []span{{64, 96}}, []int{64}},
		{span{33, 128}, 32, 64, 32, []span{{32, 64}, {64, 96}}, []int{32}},
		{span{33, 70}, 64, 64, 64, []span{{64, 70}}, []int{64}},
		{span{60, 0}, 0, 0, 32, nil, []int{}},
		{span{0, 20}, 32, 32, 64, nil, []int{}},
		{span{70, 80}, 32, 32, 64, nil, []int{}},
	} {
		l := place{keys: c.visible}
		if c.n > 0 {
			l.restrict(c.first, c.n)
		}
		if l.start(size) != c.start {
			t.Errorf("%+v: starts at %d", c, l.start(size))
		}
		var blocks []span
		begins := []int{}
		for key := 0; key < 128; key += size {
			if s := l.block(key, size, group); !s.empty() {
				blocks = append(blocks, s)
			}
			if l.begins(key, size) {
				begins = append(begins, key)
			}
		}
		if !slices.Equal(blocks, c.blocks) || !slices.Equal(begins, c.begins) {
			t.Errorf("%+v: blocks %v, begins with those at %v", c, blocks, begins)
		}
	}
}

// TestPlaceQueries checks the head and the query of each lane, and that a place that moves to
// another head keeps its band.
func TestPlaceQueries(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 40, SeqKV: 50, HeadsQ: 6, HeadsKV: 2, Mask: attn.Causal()}
	a := attn.Args{Q: attn.Tensor{B: 1, S: 40, H: 6}, K: attn.Tensor{B: 1, S: 50, H: 2}}
	shape := &asm.Portable(24, 8, 8, 1, 1).Shape
	for _, c := range []struct{ h, heads, tile, lane, head, query int }{
		{4, 1, 0, 0, 4, 0},
		{4, 1, 1, 3, 4, 19},
		{3, 3, 0, 0, 3, 0},
		{3, 3, 0, 5, 5, 1},
		{3, 3, 1, 0, 3, 8},
		{3, 3, 2, 1, 4, 16},
		{3, 3, 2, 2, 5, 16},
	} {
		l := newPlace(24)
		l.put(&p, shape, &a, 0, c.h, c.heads, c.tile)
		if h, i := l.query(c.lane); h != c.head || i != c.query || l.kv != c.head/3 {
			t.Errorf("%+v: query %d of head %d, which shares key head %d", c, i, h, l.kv)
		}
		if _, hi := p.Mask.Keys(10+c.query, 50); int(l.hi[c.lane]) != hi {
			t.Errorf("%+v: sees keys up to %d, want %d", c, l.hi[c.lane], hi)
		}
	}
	// Only the keys in use differ, or only the first query's index among the heads.
	p.Lengths, p.Batch, a.KLen, a.QPos = true, 2, []int32{50, 14}, []int32{10, 10}
	l := newPlace(24)
	for _, at := range [][4]int{{0, 0, 1, 0}, {1, 0, 1, 0}, {0, 0, 1, 0}, {0, 3, 3, 0}, {0, 0, 1, 1}, {1, 3, 3, 1}} {
		fresh := newPlace(24)
		for _, l := range []*place{&l, &fresh} {
			l.put(&p, shape, &a, at[0], at[1], at[2], at[3])
		}
		if fmt.Sprint(l) != fmt.Sprint(fresh) {
			t.Errorf("moved to %v: %+v, want %+v", at, l, fresh)
		}
	}
	l, other := newPlace(24), newPlace(24)
	for tile := range Count(&p, asm.Portable(24, 8, 8, 1, 1), 40) {
		for h := range 2 {
			l.put(&p, shape, &a, 0, h, 1, tile)
			other.put(&p, shape, &a, 0, 5, 1, tile)
			l.restrict(8, 8)
			if fmt.Sprint(l.lo, l.hi, l.visible, l.common) != fmt.Sprint(other.lo, other.hi, other.visible, other.common) {
				t.Errorf("tile %d of head %d: sees %v, another place %v", tile, h, l.visible, other.visible)
			}
		}
	}
}
