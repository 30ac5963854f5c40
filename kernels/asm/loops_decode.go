//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// decodeLoops are the assembly loops of decode that do not prefetch, and the sizes of the
// micro-tiles of the others.
type decodeLoops struct {
	scale              func(p *Walk, scale *float32, apart int)
	dotTiles, sumTiles []int // queries in the micro-tiles of dot and sum, the largest first
}

// dotKeys is the number of keys that Dot and Sum compute at once.
const dotKeys = 4

// setDecode replaces the portable loops by the set's own, with checks before them.
func (l *loops) setDecode(o *Ops, power *powerLoops, hint Hint) {
	reading, scale := &l.reading[hint], l.decode.scale
	dotShares, sumShares := prefetchShares(l.decode.dotTiles), prefetchShares(l.decode.sumTiles)
	if reading.dot != nil {
		o.Decode.Dot = func(p *Dot) {
			whole := p.begin()
			if p.D == 0 || !Normal(p.Factor) {
				dot(p)
			} else if p.R > 0 && p.N > 0 {
				p.shares = dotShares[min(p.R, len(dotShares)-1)]
				loop := reading.dot[p.Cache.Type]
				p.inCalls(whole, func() {
					loop(p)
					if p.Cache.Type == I8 { // multiplies scores by their keys' scales
						scale(&p.Walk, &p.Cache.Scale[0], p.Cache.ScaleStride)
					}
				})
			}
			p.end(whole)
		}
	}
	if reading.sum != nil {
		o.Decode.Sum = func(p *Walk) {
			whole := p.begin()
			if p.R > 0 && p.N > 0 && p.D > 0 {
				p.shares = sumShares[min(p.R, len(sumShares)-1)]
				loop := reading.sum[p.Cache.Type]
				p.inCalls(whole, func() {
					if p.Cache.Type == I8 { // multiplies weights by their values' scales
						scale(p, &p.Cache.Scale[0], p.Cache.ScaleStride)
					}
					loop(p)
				})
			}
			p.end(whole)
		}
	}
	if power.weigh != nil {
		o.Decode.Weigh = func(p *Weigh) {
			if p.S != nil {
				l.weigh(p, power.weighSums[hint])
			} else {
				l.weigh(p, power.weigh[hint])
			}
		}
	}
}

// weigh computes whole vectors. It first sets the scores after the last key to -Inf, so that their
// weights are 0.
func (l *loops) weigh(p *Weigh, weigh func(p *Weigh, from, vectors int) (done int)) {
	reach("P", len(p.P), p.R, p.N, p.Stride)
	whole := (p.N + l.vec - 1) / l.vec * l.vec
	reach("P", len(p.P), p.R, whole, p.Stride)
	reach("M", len(p.M), 1, p.R, 0)
	reach("L", len(p.L), 1, p.R, 0)
	if p.S != nil {
		reach("S", len(p.S), 1, p.R, 0)
	}
	if p.From < 0 || p.From > p.R {
		panic(fmt.Errorf("asm/%s: From is %d: it must be one of the %d rows", l.isa, p.From, p.R))
	}
	if p.N == 0 {
		p.Done = p.R
		return
	}
	for r := p.From; r < p.R; r++ {
		rest := p.P[r*p.Stride:][p.N:whole]
		for j := range rest {
			rest[j] = negInf
		}
	}
	if p.Done = weigh(p, p.From, whole/l.vec); p.Done < p.R {
		p.Top = slices.Max(p.tops[:l.vec])
	}
}

// prefetchShares returns, for each number of queries, which of every four later rows each
// micro-tile prefetches: a bit for a row and four bits for a micro-tile, the first one's lowest.
// Each row is prefetched by one micro-tile. Larger numbers of queries use the last entry.
func prefetchShares(tiles []int) []uint64 {
	const most = 16 // micro-tiles that have bits
	all := make([]uint64, most*tiles[0]+1)
	for queries := range all {
		n, left := 0, queries
		for _, tile := range tiles {
			n += left / tile
			left %= tile
		}
		n = min(n, most)
		for i := range n {
			for row := 4 * i / n; row < 4*(i+1)/n; row++ {
				all[queries] |= 1 << (4*i + row)
			}
		}
	}
	return all
}

// begin panics if slices are too short for what Dot and Sum touch. If Run is 0 it makes all keys
// one run, which end undoes.
func (p *Walk) begin() (whole bool) {
	if p.Heads < 0 || p.Heads > 1 && p.Run == 0 {
		panic(fmt.Errorf("asm: Heads is %d, and Run %d: the keys of several heads must be in runs", p.Heads, p.Run))
	}
	heads := p.heads()
	if p.R > math.MaxInt/heads {
		panic(fmt.Errorf("asm: P: %d elements for %d heads of %d queries", len(p.P), heads, p.R))
	}
	reach("P", len(p.P), heads*p.R, p.N, p.Stride)
	p.checkHeads(heads)
	if p.Run != 0 {
		p.checkRuns(heads)
		return false
	}
	p.Cache.check("Cache", "Cache.Scale", p.N, p.D, 0, 0)
	p.Run, p.At, p.Scales, p.ahead[0] = max(p.N, 1), origin[:], origin[:], p.Cache.Address(0)
	p.Ahead, p.Far, p.FarScale = p.ahead[:], p.ahead[:], p.ahead[:]
	return true
}

// origin is the place of a run of all keys.
var origin [1]int

func (p *Walk) end(whole bool) {
	if whole {
		p.Run = 0
	}
}

// checkHeads panics if the heads' rows of queries or outputs exceed Rows.
func (p *Walk) checkHeads(heads int) {
	first := 0
	if last := heads - 1; last > 0 && p.R > 0 && p.D > 0 {
		over, at := bits.Mul64(uint64(last), uint64(p.HeadStep))
		if p.HeadStep < 0 || over != 0 || at > uint64(len(p.Rows.Data)) {
			panic(fmt.Errorf("asm: Rows: %d elements, and %d heads %d apart reach past them", len(p.Rows.Data), heads, p.HeadStep))
		}
		first = int(at)
	}
	reach("Rows", len(p.Rows.Data)-first, p.R, p.D, p.Rows.Stride)
}

// checkRuns panics if runs of keys exceed the cache.
func (p *Walk) checkRuns(heads int) {
	if p.Run < 0 || p.N < 0 {
		panic(fmt.Errorf("asm: %d keys, and Run is %d: neither may be negative", p.N, p.Run))
	}
	rest := p.N % p.Run
	whole := p.N / p.Run * heads
	all := whole + indicator(rest > 0)*heads
	reach("Ahead", len(p.Ahead), 1, all, 0)
	reach("Far", len(p.Far), 1, all, 0)
	if p.Cache.Type == I8 {
		reach("FarScale", len(p.FarScale), 1, all, 0)
	}
	p.checkRun(0, whole, p.Run*indicator(whole > 0))
	p.checkRun(whole, all, rest)
}

// checkRun panics if runs from..to, of rows rows each, exceed the cache.
func (p *Walk) checkRun(from, to, rows int) {
	at, scales := furthest("At", p.At, from, to), 0
	if p.Cache.Type == I8 {
		scales = furthest("Scales", p.Scales, from, to)
	}
	p.Cache.check("Cache", "Cache.Scale", rows, p.D, at, scales)
}

// furthest returns the largest of at[from:to]. It panics if one of them is negative.
func furthest(name string, at []int, from, to int) int {
	if to > len(at) {
		panic(fmt.Errorf("asm: %s: %d places for %d runs", name, len(at), to))
	}
	last := uint(0)
	for _, x := range at[from:to] {
		last = max(last, uint(x))
	}
	if last > math.MaxInt {
		panic(fmt.Errorf("asm: %s: %v: none may be negative", name, at[from:to]))
	}
	return int(last)
}

// inCalls calls call with p limited to some keys at a time: whole runs of all heads, or pieces of
// the only run.
func (p *Walk) inCalls(whole bool, call func()) {
	heads := p.heads()
	unit, queries, size := p.Run, heads*p.R, heads*p.D*p.Cache.Type.size()
	if whole {
		unit = dotKeys
	}
	step := atOnce(p.N, unit, queries*p.D, size+4*queries, 4*queries*p.D)
	if step >= p.N {
		call()
		return
	}
	all := *p
	for at := 0; at < all.N; at += step {
		p.N, p.P = min(step, all.N-at), all.P[at:]
		if whole {
			p.Cache = all.Cache.From(at)
			p.Run, p.ahead[0] = p.N, p.Cache.Address(0)
		} else {
			run := at / p.Run * heads
			p.At, p.Ahead, p.Far = all.At[run:], all.Ahead[run:], all.Far[run:]
			if p.Cache.Type == I8 {
				p.Scales, p.FarScale = all.Scales[run:], all.FarScale[run:]
			}
		}
		call()
	}
	*p = all
}
