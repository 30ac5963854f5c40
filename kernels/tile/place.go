package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// A span is the integers lo <= i < hi: keys, or rows of a block.
type span struct{ lo, hi int }

func (s span) empty() bool { return s.lo >= s.hi }

// holds reports whether all of t is in s.
func (s span) holds(t span) bool { return s.lo <= t.lo && t.hi <= s.hi }

// A place says which queries are in the lanes of a tile, and which keys each of them sees. Queries
// of several heads are counted query after query, each of all heads: lane 0 has number first of
// them. Lanes without a query see what the last query sees.
type place struct {
	b, kv       int // batch entry and key head
	head, heads int // the first head of the queries, and how many there are
	first       int // number of the query in lane 0
	rows        int // lanes that have a query
	width       int // lanes in use, in whole vectors
	spot        spot
	lo, hi      []int32 // [Lanes]: the band shows keys lo <= key < hi to a lane; neither decreases from lane to lane
	visible     span    // the keys that some query sees; {keys in use, 0} if there are none
	common      span    // the keys that the band shows to every query
	keys        span    // visible, or the part of it that the tile is restricted to
}

// A spot is what the keys that lanes see depend on, for one mask.
type spot struct {
	pos, keys, rows, heads int // position of the first query, keys in use, lanes that have a query, heads
	firstHead              int // the first query's among the heads
}

func newPlace(lanes int) place {
	return place{lo: make([]int32, lanes), hi: make([]int32, lanes)}
}

// put moves the place to a tile of the queries of heads heads, h the first.
func (l *place) put(p *attn.Problem, shape *asm.Shape, a *attn.Args, b, h, heads, tile int) {
	l.first, l.rows = queriesOf(p, shape, a.Queries(p, b)*heads, tile)
	l.b, l.head, l.heads, l.kv = b, h, heads, h/p.Group()
	l.width = up(l.rows, shape.Vec)
	at := spot{a.Pos(p, b) + l.first/heads, a.Keys(p, b), l.rows, heads, l.first % heads}
	if at != l.spot { // else the tile was there for another head
		l.see(&p.Mask, at)
	}
	l.keys = l.visible
}

// see finds which keys the lanes see at a spot.
func (l *place) see(mask *attn.Mask, at spot) {
	l.spot = at
	los, his := l.lo[:l.width], l.hi[:l.width]
	if at.heads == 1 {
		mask.Each(at.pos, at.keys, los[:at.rows], his[:at.rows])
	} else {
		for lane := range at.rows {
			mask.Each(at.pos+(at.firstHead+lane)/at.heads, at.keys, los[lane:lane+1], his[lane:lane+1])
		}
	}
	last := at.rows - 1
	for lane := at.rows; lane < l.width; lane++ {
		los[lane], his[lane] = los[last], his[last]
	}
	l.common = span{int(los[last]), int(his[0])}
	l.visible = span{int(los[0]), int(his[last])} // lanes that see nothing are at key 0, or at the last
	if l.visible.empty() {
		l.visible = span{at.keys, 0}
	}
}

// query returns the head and the number of the query in a lane.
func (l *place) query(lane int) (h, i int) {
	if l.heads == 1 {
		return l.head, l.first + lane
	}
	return l.head + (l.first+lane)%l.heads, (l.first + lane) / l.heads
}

// restrict leaves the place n keys starting at first.
func (l *place) restrict(first, n int) {
	l.keys = span{max(l.keys.lo, first), min(l.keys.hi, first+n)}
	if l.keys.empty() {
		l.keys = span{first + n, 0}
	}
}

// start returns the first key of the first block of size keys that the place sees. Blocks start at
// multiples of their size.
func (l *place) start(size int) int { return l.keys.lo - l.keys.lo%size }

// begins reports whether the block of size keys at key is the first one that the place sees.
func (l *place) begins(key, size int) bool {
	return l.keys.hi > 0 && key <= l.keys.lo && l.keys.lo < key+size
}

// block returns which keys of the block of size keys at key the tile works on. The first block
// starts with the group of keys that holds the first one seen, and the last one ends after the last
// seen.
func (l *place) block(key, size, group int) span {
	s := span{key, min(key+size, l.keys.hi)}
	if l.keys.lo > key {
		s.lo = max(key, l.start(group))
	}
	return s
}

// sees reports whether the band shows a key to a lane.
func (l *place) sees(lane, key int) bool { return int(l.lo[lane]) <= key && key < int(l.hi[lane]) }

// runOf returns how many queries tiles are laid out in, one run after the other: all n, unless a
// bitmap has blocks that a tile fits in. A tile of such a problem is in one row of the bitmap's
// blocks, which shows it all of a block of keys or nothing.
func runOf(p *attn.Problem, shape *asm.Shape, n int) int {
	if p.Mask.Bitmap == attn.BlockBitmap && p.Mask.Block >= shape.Lanes {
		return min(p.Mask.Block, max(n, 1))
	}
	return max(n, 1)
}

// Count returns the number of tiles that n queries of a problem fill.
func Count(p *attn.Problem, ops *asm.Ops, n int) int {
	run, lanes := runOf(p, &ops.Shape, n), ops.Shape.Lanes
	if run >= n {
		return cover(n, lanes)
	}
	return n/run*cover(run, lanes) + cover(n%run, lanes)
}

// queriesOf returns the first query of a tile of n queries, and how many it has. The first tile of
// a run takes the rest that does not fill one: under a causal mask it sees the fewest keys. A rest
// of one vector gets another from the second tile, since products of one vector wait for one
// another.
//
// Tuning: docs/tuning.md#first-tile
func queriesOf(p *attn.Problem, shape *asm.Shape, n, tile int) (first, rows int) {
	run, lanes := runOf(p, shape, n), shape.Lanes
	each := cover(run, lanes)
	if tile >= each {
		first, tile = tile/each*run, tile%each
	}
	length := run
	if length > n-first {
		length = n - first
		each = cover(length, lanes)
	}
	rest, more := length-(each-1)*lanes, 0
	if rest <= shape.Vec && rest < length && shape.Vec > 1 {
		more = shape.Vec
	}
	switch tile {
	case 0:
		return first, rest + more
	case 1:
		return first + rest + more, lanes - more
	}
	return first + rest + (tile-1)*lanes, lanes
}

// cover returns how many pieces of a size n takes.
func cover(n, size int) int { return (n + size - 1) / size }

// up rounds n up to a multiple of a power of two, and down rounds it down.
func up(n, power int) int   { return down(n+power-1, power) }
func down(n, power int) int { return n &^ (power - 1) }
