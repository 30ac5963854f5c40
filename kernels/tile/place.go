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

// A place holds the queries of a tile's lanes, and the keys that each of them sees. Where a tile
// has queries of several heads, these are numbered query after query, each with all its heads; lane
// 0 has number first. Lanes without a query see what the last query sees.
type place struct {
	b, kv       int // batch entry and key head
	head, heads int // the first head of the queries, and how many there are
	first       int // number of the query in lane 0
	rows        int // lanes that have a query
	width       int // lanes in use, in whole vectors
	spot        spot
	// [Lanes]: the band shows keys lo <= key < hi to a lane. Neither decreases with the lane.
	lo, hi  []int32
	visible span // the keys that any query sees; {keys in use, 0} if there are none
	common  span // the keys that the band shows to every query
	keys    span // visible, or what Restrict leaves of it
}

// A spot holds everything that the band of a tile depends on, besides the mask.
type spot struct {
	pos       int // position of the first query
	keys      int // keys in use
	rows      int // lanes that have a query
	heads     int
	firstHead int // index of the first query's head among the heads
}

func newPlace(lanes int) place {
	return place{lo: make([]int32, lanes), hi: make([]int32, lanes)}
}

// put moves the place to a tile of the queries of heads heads, the first of which is h.
func (l *place) put(p *attn.Problem, shape *asm.Shape, a *attn.Args, b, h, heads, tile int) {
	l.first, l.rows = queriesOf(p, shape, a.Queries(p, b)*heads, tile)
	l.b, l.head, l.heads, l.kv = b, h, heads, h/p.Group()
	l.width = up(l.rows, shape.Vec)
	at := spot{a.Pos(p, b) + l.first/heads, a.Keys(p, b), l.rows, heads, l.first % heads}
	if at != l.spot { // a tile that only changed its head keeps its band
		l.see(&p.Mask, at)
	}
	l.keys = l.visible
}

// see finds the keys that the lanes see at a spot.
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
	// Lanes that see nothing have their bounds at key 0 or at the last key.
	l.visible = span{int(los[0]), int(his[last])}
	if l.visible.empty() {
		l.visible = span{at.keys, 0}
	}
}

// query returns the head and the index of the query in a lane.
func (l *place) query(lane int) (h, i int) {
	if l.heads == 1 {
		return l.head, l.first + lane
	}
	return l.head + (l.first+lane)%l.heads, (l.first + lane) / l.heads
}

// restrict limits the place to n keys starting at first.
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

// block returns the keys that the tile works on in the block of size keys at key. The first block
// starts with the group of keys that holds the first visible key, and the last one ends after the
// last visible key.
func (l *place) block(key, size, group int) span {
	s := span{key, min(key+size, l.keys.hi)}
	if l.keys.lo > key {
		s.lo = max(key, l.start(group))
	}
	return s
}

// sees reports whether the band shows a key to a lane.
func (l *place) sees(lane, key int) bool { return int(l.lo[lane]) <= key && key < int(l.hi[lane]) }

// segmentOf returns the length of the segments of n queries that tiles divide separately. It is n,
// unless the mask has a bitmap whose blocks a tile fits in. Then a segment is one row of the
// bitmap's blocks, which shows a tile either all of a block of keys or none.
func segmentOf(p *attn.Problem, shape *asm.Shape, n int) int {
	if p.Mask.Bitmap == attn.BlockBitmap && p.Mask.Block >= shape.Lanes {
		return min(p.Mask.Block, max(n, 1))
	}
	return max(n, 1)
}

// Count returns the number of tiles that n queries of a problem fill.
func Count(p *attn.Problem, ops *asm.Ops, n int) int {
	segment, lanes := segmentOf(p, &ops.Shape, n), ops.Shape.Lanes
	if segment >= n {
		return cover(n, lanes)
	}
	return n/segment*cover(segment, lanes) + cover(n%segment, lanes)
}

// queriesOf returns the first query of a tile of n queries, and the number of its queries. The
// first tile of a segment takes the rest that does not fill one: under a causal mask it sees the
// fewest keys. A rest of one vector gets another from the second tile, since products of one vector
// wait for one another.
// Tuning: docs/tuning.md#first-tile
func queriesOf(p *attn.Problem, shape *asm.Shape, n, tile int) (first, rows int) {
	segment, lanes := segmentOf(p, shape, n), shape.Lanes
	each := cover(segment, lanes)
	if tile >= each {
		first, tile = tile/each*segment, tile%each
	}
	length := segment
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

// cover returns the number of pieces of a size that cover n.
func cover(n, size int) int { return (n + size - 1) / size }

// up rounds n up to a multiple of a power of two, and down rounds it down.
func up(n, power int) int   { return down(n+power-1, power) }
func down(n, power int) int { return n &^ (power - 1) }
