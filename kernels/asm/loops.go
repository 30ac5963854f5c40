//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math/bits"
	"slices"
)

// loops are the assembly loops of one instruction set, as the generator declares them. They check
// nothing and allocate nothing; ops puts the checks before them. Where a loop is nil, ops keeps the
// portable one. Slices are indexed by the number of vectors in use, less one.
type loops struct {
	isa       string
	vec, keys int // floats in a vector; rows that Score computes at once: powers of two
	vecs      int // vectors in a row of lanes
	panel     panelLoops
	powers    []powerLoops   // by Path.Exp
	reading   []readingLoops // by Reading.Hint
	back      backLoops
	recur     recurLoops
	decode    decodeLoops
	edits     editLoops
	vector    vectorLoops
	probe     probeLoops
	tiles     *tileLoops // loops that multiply AMX tiles; nil: none
}

// powerLoops are the loops that compute 2^x. Loops that also sum S are separate.
type powerLoops struct {
	way              Exp
	ulps             float64                                           // Ops.ulps
	flash            []func(p *Flash, from, to, scored int) (done int) // whole groups, no S
	exp, expSums     func(p *Softmax, from, to int) (done int)
	weigh, weighSums []func(p *Weigh, from, vectors int) (done int) // by Reading.Hint
}

// readingLoops are the loops that prefetch rows that are read once.
type readingLoops struct {
	dot  []func(*Dot)  // by type of cells
	sum  []func(*Walk) // by type of cells
	read func(x *float32, rounds, ahead int, sum *float32)
	// update multiplies by 1 in place.
	update func(x *float32, rounds, ahead int)
}

// native returns the set that makes the loops of an instruction set, or nil if this build has none.
func native(isa string) set {
	for _, l := range sets {
		if l.isa == isa {
			return l.ops
		}
	}
	return nil
}

// The runtime cannot stop a goroutine inside assembly, and a garbage collection waits until all
// goroutines stop. So one call computes at most mostProducts multiply-adds and touches at most
// mostBytes. A loop that is given more makes several calls, with the same bits. A call computes at
// least one group of rows, which is within the bounds up to some 5000 columns.
const (
	mostProducts = 1 << 21
	mostBytes    = 1 << 20
)

// Bounds of one call of the loops that mostProducts and mostBytes do not bound.
const (
	expAtOnce   = 1024 // rows of a tile, a multiple of every set's keys
	raiseAtOnce = 4096 // rows of a tile
	peakAtOnce  = 10_000
	chainAtOnce = 2000
	readAtOnce  = mostBytes / 4
)

// within reports whether n rows are within the bounds of one call. Each row takes products
// multiply-adds and bytes bytes, and all rows share shared bytes.
func within(n, products, bytes, shared int) bool {
	return n*products <= mostProducts && n*bytes+shared <= mostBytes
}

// most returns the largest number of rows within the bounds of one call that is a multiple of unit,
// or 0.
func most(unit, products, bytes, shared int) int {
	n := min(mostProducts/max(products, 1), max(mostBytes-shared, 0)/max(bytes, 1))
	return n - n%unit
}

// atOnce returns the number of rows, of n, that one call computes: all if they are within the
// bounds, or else a multiple of unit.
func atOnce(n, unit, products, bytes, shared int) int {
	if within(n, products, bytes, shared) {
		return max(n, 1)
	}
	return max(most(unit, products, bytes, shared), unit)
}

// ops returns the set's loops made for a tuning, with the portable loop for each that the set
// lacks. If the set lacks the tuning's way to compute 2^x or its hint, it uses its first.
func (l *loops) ops(t Tuning) *Ops {
	power := &l.powers[max(slices.IndexFunc(l.powers, func(p powerLoops) bool { return p.way == t.Exp }), 0)]
	t.Exp, t.Hint, t.Stream.Hint = power.way, l.hint(t.Reading), l.hint(t.Stream)
	if l.tiles == nil {
		t.PackFrom = 0
	}
	o := l.tuned(t, power, t.Reading)
	if o.Streamed = o; t.Reading != t.Stream {
		o.Streamed = l.tuned(t, power, t.Stream)
		o.Streamed.Streamed = o.Streamed
	}
	return o
}

// hint returns the reading's hint, or the first if the set lacks it.
func (l *loops) hint(r Reading) Hint {
	if int(r.Hint) < len(l.reading) {
		return r.Hint
	}
	return NonTemporal
}

// tuned returns the loops that prefetch by reading r.
func (l *loops) tuned(t Tuning, power *powerLoops, r Reading) *Ops {
	o := Portable(l.lanes(), l.vec, l.keys, l.keys, 6)
	t.Reading = r
	o.ISA, o.Tuning = l.isa, t
	l.setPanel(o, power)
	l.setEdit(o)
	l.setBack(o)
	l.setRecur(o)
	l.setDecode(o, power, r.Hint)
	l.setVector(o)
	l.setProbe(o, r.Hint)
	if l.tiles != nil {
		l.setTiles(o, power)
	}
	return o
}

// lanes returns the length of a row of lanes.
func (l *loops) lanes() int { return l.vecs * l.vec }

// checkPanel panics if the loops do not support the panel's lanes, or if P is too short for its
// rows. It returns the vectors in use.
func (l *loops) checkPanel(p *Panel) int {
	width := l.checkWidth(p)
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	return width
}

func (l *loops) checkWidth(p *Panel) int {
	if p.Lanes != l.lanes() || p.Width < 0 || p.Width > p.Lanes || p.Width&(l.vec-1) != 0 {
		panic(fmt.Errorf("asm/%s: %d of %d lanes: this set takes multiples of %d, in rows of %d", l.isa, p.Width, p.Lanes, l.vec, l.lanes()))
	}
	return l.vectors(p.Width)
}

func indicator(b bool) int {
	if b {
		return 1
	}
	return 0
}

// vectors returns the number of vectors in a number of lanes. It shifts, as it is called several
// times for each tile and a division is slow.
func (l *loops) vectors(lanes int) int {
	return lanes >> (bits.TrailingZeros(uint(l.vec)) & 63)
}

// reach panics if rows rows of cols columns, stride apart, exceed a slice of the given length. It
// must not overflow, whatever the numbers.
func reach(name string, length, rows, cols, stride int) {
	if rows < 0 || cols < 0 || stride < 0 {
		panic(fmt.Errorf("asm: %s: %d rows of %d at stride %d: none may be negative", name, rows, cols, stride))
	}
	if rows == 0 || cols == 0 {
		return
	}
	if over, last := bits.Mul64(uint64(rows-1), uint64(stride)); cols > length || over != 0 || last > uint64(length-cols) {
		panic(fmt.Errorf("asm: %s: %d elements, and %d rows of %d at stride %d reach past them", name, length, rows, cols, stride))
	}
}
