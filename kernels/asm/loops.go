//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// loops are the assembly loops of one instruction set, as the generator declares them. They check nothing and allocate nothing; ops puts
// the checks before them. Indexed by the number of vectors in use, less one. Where a set has no loop, which is nil then, it uses the portable one.
type loops struct {
	isa         string
	lanes       int // of a tile
	vec, keys   int // floats in a vector; rows that Score and Mix take at once: powers of two
	score       []func(p *Panel, from, to int)
	mix         []func(p *Panel, keep *float32)
	raise       func(p *Panel, rows int)
	top         func(p *Panel, from, to int)
	finite      func(x *float32, rounds int) (bad int)
	inverse     func(to, from *float32, vectors int) (bad int)
	few         fewLoops
	powers      []powerLoops  // by how they compute 2^x
	asking      []askingLoops // by the way they ask
	elu         func(to, from *float32, n int, ahead uintptr)
	edits       editLoops
	cells       cellLoops
	rotate      func(x, cos, sin *float32, n int) // in halves
	rotatePairs func(x, cos, sin *float32, n int)
	dscore      []func(p *Panel)
	load        []loadBlock  // small ones first
	store       []storeBlock // small ones first
	peak        func(rounds int, x *float32)
	perRound    int // operations of a round of peak
	chain       func(rounds int)
	perChain    int // additions of a round of chain
	slots       func(rounds int)
	perSlots    int // instructions of a round of slots
	perRead     int // elements of a round of asking.read, and of finite

	tiles *tileLoops // those that multiply tiles, if it has them

	dotTiles, sumTiles []int // queries in the tiles of dot and sum, the largest first
}

// askingLoops are those that ask memory for what is read once.
type askingLoops struct {
	dot, sum []func(f *Few)
	read     func(x *float32, rounds, ahead int, sum *float32)
}

// powerLoops are those that compute 2^x, those with S apart.
type powerLoops struct {
	ulps             float64                                           // as Ops has it
	flash            []func(p *Panel, from, to, scored int) (done int) // whole groups, without S
	exp, expSums     func(p *Panel, from, to int) (done int)
	weigh, weighSums []func(f *Few, from, vectors int) (done int) // by the way they ask
}

// native returns the loops of an instruction set by how they compute 2^x, and then by the way they ask memory for what is read once; none if this build
// has none.
func native(isa string) (variants [][]*Ops) {
	for _, l := range sets {
		if l.isa != isa {
			continue
		}
		for i := range l.powers {
			var ways []*Ops
			for way := range l.asking {
				ways = append(ways, l.ops(&l.powers[i], way))
			}
			variants = append(variants, ways)
		}
	}
	return variants
}

// The runtime cannot stop a goroutine inside assembly, and a garbage collection waits until all of
// them stop. So one call does at most mostProducts multiply-adds and touches at most mostBytes;
// a loop that is given more makes several calls, with the same bits. A call takes at least one
// group of rows, which is within the bounds up to some 5000 columns.
const (
	mostProducts = 1 << 21
	mostBytes    = 1 << 20
)

// These are what one call of a loop does whose work has no other bound.
const (
	expAtOnce   = 1024 // rows of a tile, a multiple of every set's keys: the two-pass softmax has all keys in one panel
	raiseAtOnce = 4096 // rows of a tile
	peakAtOnce  = 10_000
	chainAtOnce = 2000
	readAtOnce  = mostBytes / 4
)

// within reports whether n rows are little enough for one call: each row is so many products and
// bytes, and all of them share some bytes.
func within(n, products, bytes, shared int) bool {
	return n*products <= mostProducts && n*bytes+shared <= mostBytes
}

// most returns how many rows are within the bounds of one call, as a multiple of unit, or 0.
func most(unit, products, bytes, shared int) int {
	n := min(mostProducts/max(products, 1), max(mostBytes-shared, 0)/max(bytes, 1))
	return n - n%unit
}

// atOnce returns how many of n rows one call takes: all of them if they are within the bounds, or
// else a multiple of unit.
func atOnce(n, unit, products, bytes, shared int) int {
	if within(n, products, bytes, shared) {
		return max(n, 1)
	}
	return max(most(unit, products, bytes, shared), unit)
}

// ops returns loops that begin as the portable ones, in the geometry of the set.
func (l *loops) ops(power *powerLoops, way int) *Ops {
	lanes, asking := l.lanes, &l.asking[way]
	o := Portable(lanes, l.vec, l.keys, l.keys, 6)
	o.ISA = l.isa
	for _, b := range l.load {
		rest := o.Load
		o.Load = func(m *Move) {
			l.checkMove(m)
			factor := float32(m.factor())
			left := float32(m.factor() - float64(factor))
			if left == 0 {
				left = factor * 0x1p-60 // 0 times an infinity would be NaN; this does no more than break ties
			}
			lanes, n := m.blocks(b.lanes, b.cols)
			step := mostBytes / (8 * b.lanes * b.cols)
			for lane := 0; lane < lanes; lane += b.lanes {
				at := min(lane, lanes-b.lanes)
				for i := 0; i < n; i += step {
					tile, rows := &m.Tile[i*b.cols*m.Lanes+at], &m.Outside.Data[at*m.Outside.Stride+i*b.cols]
					b.move(tile, m.Lanes, rows, m.Outside.Stride, min(step, n-i), factor, left)
				}
			}
			m.rest(lanes, n*b.cols, rest)
		}
	}
	for _, b := range l.store {
		rest := o.Store
		o.Store = func(m *Move) bool {
			l.checkMove(m)
			reach("Scale", len(m.Scale), 1, m.Rows, 0)
			lanes, n := m.blocks(b.lanes, b.cols)
			bad, step := 0, mostBytes/(8*b.lanes*b.cols)
			for lane := 0; lane < lanes; lane += b.lanes {
				at := min(lane, lanes-b.lanes)
				for i := 0; i < n; i += step {
					tile, rows := &m.Tile[i*b.cols*m.Lanes+at], &m.Outside.Data[at*m.Outside.Stride+i*b.cols]
					bad |= b.move(tile, m.Lanes, rows, m.Outside.Stride, min(step, n-i), &m.Scale[at])
				}
			}
			m.rest(lanes, n*b.cols, func(m *Move) {
				if !rest(m) {
					bad = 1
				}
			})
			return bad == 0
		}
	}
	if l.score != nil {
		o.Score = func(p *Panel) { l.scores(p, 0) }
	}
	if power.exp != nil {
		o.ulps = power.ulps
		o.Exp = func(p *Panel) {
			l.checkExp(p)
			l.weights(power, p, p.From)
		}
	}
	if power.flash != nil && power.exp != nil && l.score != nil {
		o.FactorFirst = true
		o.Flash = func(p *Panel) {
			l.checkExp(p)
			l.checkScore(p)
			whole := p.N &^ (l.keys - 1)
			if p.Plain < p.N {
				l.checkMask(p)
			}
			if p.Until != nil && p.Width > 0 {
				l.checkLeaving(p, l.vectors(o.Unit()))
			}
			if p.Width == 0 || p.From == whole || !Normal(p.Factor) {
				whole = p.From
			} else if l.flash(power, p, whole); p.Done < whole {
				p.Scored = false
				return
			}
			p.Scored = false
			if whole < p.N {
				l.scores(p, whole)
				mask(p, max(whole, p.Plain), p.N)
			}
			l.weights(power, p, whole)
		}
	}
	if l.raise != nil {
		o.Raise = func(p *Panel) {
			l.checkRaise(p)
			switch rows := min(l.keys, p.N-p.Done); {
			case rows <= 0 || p.Width == 0:
			case p.Done > raiseAtOnce:
				raise(p, l.keys)
			default:
				l.raise(p, rows)
			}
			p.From, p.Scored = p.Done, true
		}
	}
	if l.top != nil {
		o.Top = func(p *Panel) {
			l.checkWeights(p)
			reach("M", len(p.M), 1, p.Width, 0)
			for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
				l.top(p, from, min(from+expAtOnce, p.N))
			}
		}
	}
	if l.finite != nil {
		o.Finite = func(x []float32) bool {
			for len(x) >= l.perRead {
				rounds := min(len(x), readAtOnce) / l.perRead
				if l.finite(&x[0], rounds) != 0 {
					return false
				}
				x = x[rounds*l.perRead:]
			}
			return finite(x)
		}
	}
	if l.inverse != nil {
		o.Inverse = func(to, from []float32) bool {
			reach("to", len(to), 1, len(from), 0)
			bad := 0
			for len(from) >= l.vec {
				n := l.vectors(min(len(from), mostBytes/8))
				bad |= l.inverse(&to[0], &from[0], n)
				to, from = to[n*l.vec:], from[n*l.vec:]
			}
			return inverse(to, from) && bad == 0
		}
	}
	if l.mix != nil {
		o.Mix = func(p *Panel) {
			width, keep := l.checkMix(p), &ones[0]
			if p.Keep != nil {
				keep = unsafe.SliceData(p.Keep)
			}
			if width > 0 {
				l.columns(p, l.mix[width-1], keep)
			}
		}
	}
	l.rows(o, asking)
	if power.weigh != nil {
		o.Weigh = func(f *Few) {
			if f.S != nil {
				l.weigh(f, power.weighSums[way])
			} else {
				l.weigh(f, power.weigh[way])
			}
		}
	}
	l.editing(o)
	if l.rotate != nil {
		o.Rotate = func(x, cos, sin []float32, pairs bool) {
			n := len(cos)
			reach("sin", len(sin), 1, n, 0)
			reach("x", len(x), 2, n, n)
			switch {
			case n == 0:
			case pairs:
				l.rotatePairs(&x[0], &cos[0], &sin[0], n)
			default:
				l.rotate(&x[0], &cos[0], &sin[0], n)
			}
		}
	}
	l.widening(o)
	if l.peak != nil {
		o.Peak = func(rounds int) int64 {
			for left := rounds; left > 0; left -= peakAtOnce {
				l.peak(min(left, peakAtOnce), &probe[0])
			}
			return int64(max(rounds, 0)) * int64(l.perRound)
		}
	}
	if l.chain != nil {
		o.Chain = func(rounds int) int64 {
			for left := rounds; left > 0; left -= chainAtOnce {
				l.chain(min(left, chainAtOnce))
			}
			return int64(max(rounds, 0)) * int64(l.perChain)
		}
	}
	if l.slots != nil {
		o.Slots = func(rounds int) int64 {
			for left := rounds; left > 0; left -= chainAtOnce {
				l.slots(min(left, chainAtOnce))
			}
			return int64(max(rounds, 0)) * int64(l.perSlots)
		}
	}
	if asking.read != nil {
		o.Read = func(x []float32) float32 {
			var sums [16]float32
			for len(x) >= l.perRead {
				rounds := min(len(x), readAtOnce) / l.perRead
				asking.read(&x[0], rounds, o.Ahead, &sums[0])
				x = x[rounds*l.perRead:]
			}
			sum := read(x)
			for _, s := range sums {
				sum += s
			}
			return sum
		}
	}
	if l.tiles != nil {
		l.byTiles(o, power)
	}
	return o
}

// A block is so many lanes by so many columns, which a loop moves at once, one block of columns after the other.
type (
	loadBlock struct {
		lanes, cols int
		move        func(tile *float32, row int, rows *float32, stride, blocks int, factor, rest float32)
	}
	storeBlock struct {
		lanes, cols int
		move        func(tile *float32, row int, rows *float32, stride, blocks int, scale *float32) (bad int)
	}
)

// blocks are the lanes that blocks can take, and how many of these each has, one beside the other. If the lanes are no multiple of a block's, the last block
// takes some once more.
func (m *Move) blocks(lanes, cols int) (all, n int) {
	if n = m.D / cols; n == 0 || m.Rows < lanes {
		return 0, 0
	}
	return m.Rows, n
}

// rest has move do what is not among the first lanes and columns.
func (m *Move) rest(lanes, cols int, move func(*Move)) {
	if lanes == m.Width && cols == m.D {
		return
	}
	whole := *m // what is left goes through m itself: a copy passed on would escape

	if lanes > 0 && cols < m.D { // columns to the right of the blocks
		m.Width, m.Rows, m.D = lanes, lanes, m.D-cols
		m.Tile, m.Outside.Data = m.Tile[cols*m.Lanes:], m.Outside.Data[cols:]
		move(m)
		*m = whole
	}
	if lanes < m.Width { // lanes below them
		if m.Width, m.Rows = m.Width-lanes, m.Rows-lanes; m.D > 0 {
			m.Tile, m.Scale = m.Tile[lanes:], m.Scale[min(lanes, len(m.Scale)):]
			if m.Rows > 0 {
				m.Outside = m.Outside.From(lanes)
			}
		}
		move(m)
		*m = whole
	}
}

// scores computes the scores of rows from..N.
func (l *loops) scores(p *Panel, from int) {
	width := l.checkScore(p)
	if !Normal(p.Factor) {
		scoreRows(p, from, p.N)
		return
	}
	for step := l.scoresAtOnce(p, p.N-from); from < p.N && width > 0; from += step {
		l.score[width-1](p, from, min(from+step, p.N))
	}
}

// scoresAtOnce returns how many of n rows of scores one call computes.
func (l *loops) scoresAtOnce(p *Panel, n int) int {
	return atOnce(n, l.keys, p.D*p.Width, 4*(p.D+p.Width), 4*p.D*p.Width)
}

// flash takes a panel's whole groups through Flash.
func (l *loops) flash(power *powerLoops, p *Panel, whole int) {
	if p.S != nil {
		l.flashSums(power, p, whole)
		return
	}
	flash, vectors, to := power.flash, l.vectors(p.Width), whole
	if p.Until != nil {
		to = p.Until[0]
	}
	step := l.scoresAtOnce(p, whole-p.From)
	if p.From+step >= whole {
		p.Done = flash[vectors-1](p, p.From, to, set(p.Scored))
		return
	}
	all, from := *p, p.From
	var until [16]int // of each vector
	copy(until[:], p.Until)
	for p.Done = from; p.Done < whole; from = p.Done {
		end, first := min(from+step, whole), 0
		if to = end; all.Until != nil {
			for until[first] <= from { // these have left
				first++
			}
			for i := range vectors - first {
				all.Until[i] = min(until[first+i], end)
			}
			to = all.Until[0]
			p.lanesFrom(&all, first*l.vec)
		}
		p.Next = all.Next + uintptr((from-all.From)*p.NextBy)
		if p.Done = flash[vectors-first-1](p, from, to, set(p.Scored)); p.Done < end {
			break
		}
		p.Scored = false
	}
	copy(all.Until, until[:])
	all.Done = p.Done
	*p = all
}

// sumsAtOnce is the number of rows that flashSums scores before it computes their weights: few, so that leaving early wastes few scores.
const sumsAtOnce = 64

// flashSums does the same with S, which the fused loop does not sum: Score, mask and Exp of some rows after one another, with the same bits.
func (l *loops) flashSums(power *powerLoops, p *Panel, whole int) {
	all, first := *p, 0 // vector
	step := min(sumsAtOnce, l.scoresAtOnce(p, whole-p.From))
	scored := p.From
	if p.Scored {
		scored += l.keys
	}
	for p.Done = p.From; p.Done < whole; {
		for all.Until != nil && all.Until[first] <= p.Done { // these have left
			first++
		}
		from, to := p.Done, min(p.Done+step, whole)
		if all.Until != nil {
			to = min(to, all.Until[first])
		}
		p.lanesFrom(&all, first*l.vec)
		if scored < to {
			l.score[l.vectors(p.Width)-1](p, scored, to)
			mask(p, max(scored, p.Plain), to)
			scored = to
		}
		if p.Done = power.expSums(p, from, to); p.Done == to {
			continue
		}
		group := p.Done
		seed(p, 0, group, group+l.keys)
		if p.Done = power.expSums(p, group, group+l.keys); p.Done == group {
			break
		}
	}
	all.Done = p.Done
	*p = all
}

// lanesFrom makes the panel what Flash needs of the lanes of another one, starting at a lane.
func (p *Panel) lanesFrom(all *Panel, lane int) {
	p.Width = all.Width - lane
	p.Qt, p.P, p.M, p.L = all.Qt[min(lane, len(all.Qt)):], all.P[lane:], all.M[lane:], all.L[lane:]
	if all.S != nil {
		p.S = all.S[lane:]
	}
	p.Edit.Lo, p.Edit.Hi = all.Edit.Lo[min(lane, len(all.Edit.Lo)):], all.Edit.Hi[min(lane, len(all.Edit.Hi)):]
}

// columns computes a panel's O, some columns in each call.
func (l *loops) columns(p *Panel, mix func(p *Panel, keep *float32), keep *float32) {
	all := p.C
	step := atOnce(all, l.keys, p.N*p.Width, 4*(p.N+2*p.Width), 4*p.N*p.Width)
	if step >= all {
		mix(p, keep)
		return
	}
	v, o := p.V.Data, p.O
	for c := 0; c < all; c += step {
		p.C, p.V.Data, p.O = min(step, all-c), v[min(c, len(v)):], o[c*p.Lanes:]
		mix(p, keep)
		p.shift(4 * p.C)
	}
	p.shift(-4 * all)
	p.C, p.V.Data, p.O = all, v, o
}

// shift moves what Mix asks memory for by some bytes.
func (p *Panel) shift(bytes int) {
	for _, at := range [...]*uintptr{&p.Ahead, &p.Then} {
		if *at != 0 {
			*at += uintptr(bytes)
		}
	}
}

// weights exponentiates rows from..N.
func (l *loops) weights(power *powerLoops, p *Panel, from int) {
	if p.Width == 0 {
		p.Done = p.N
		return
	}
	exp := power.exp
	if p.S != nil {
		exp = power.expSums
	}
	for p.Done = from; p.Done < p.N; {
		to := min(p.Done+expAtOnce, p.N)
		if p.Done = exp(p, p.Done, to); p.Done < to {
			return
		}
	}
}

// ones are what Mix keeps of O where nobody says: all.
var ones = func() (x [64]float32) {
	for i := range x {
		x[i] = 1
	}
	return x
}()

func set(b bool) int {
	if b {
		return 1
	}
	return 0
}

// checkScore panics if the panel's slices are too short for what Score touches, and returns the vectors in use, 0 if there is nothing to do.
func (l *loops) checkScore(p *Panel) int {
	width := l.checkWidth(p)
	reach("Qt", len(p.Qt), p.D, p.Width, p.Lanes)
	reach("K", len(p.K.Data), p.N, p.D, p.K.Stride)
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	if p.N == 0 {
		return 0
	}
	return width
}

// checkMove is the same for Load and Store. A move may be of any width.
func (l *loops) checkMove(m *Move) {
	if m.Rows < 0 || m.Rows > m.Width || m.Width > m.Lanes {
		panic(fmt.Errorf("asm/%s: %d rows in %d of %d lanes: there must be a lane for each", l.isa, m.Rows, m.Width, m.Lanes))
	}
	reach("Tile", len(m.Tile), m.D, m.Width, m.Lanes)
	reach("Outside", len(m.Outside.Data), m.Rows, m.D, m.Outside.Stride)
}

// checkExp is the same for Exp; the rows to do must begin with a group of the block.
func (l *loops) checkExp(p *Panel) {
	l.checkWidth(p)
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	reach("M", len(p.M), 1, p.Width, 0)
	reach("L", len(p.L), 1, p.Width, 0)
	if p.S != nil {
		reach("S", len(p.S), 1, p.Width, 0)
	}
	if p.From < 0 || p.From > p.N || p.From&(l.keys-1) != 0 {
		panic(fmt.Errorf("asm/%s: From is %d: it must be a multiple of %d within the %d rows", l.isa, p.From, l.keys, p.N))
	}
}

// checkMask is the same for the mask of Flash.
func (l *loops) checkMask(p *Panel) {
	if n := min(len(p.Edit.Lo), len(p.Edit.Hi)); n < p.Width {
		panic(fmt.Errorf("asm/%s: Edit.Lo, Edit.Hi: %d elements for %d lanes", l.isa, n, p.Width))
	}
}

// checkLeaving is the same for vectors that leave Flash before others, so many together.
func (l *loops) checkLeaving(p *Panel, unit int) {
	if !Normal(p.Factor) {
		panic(fmt.Errorf("asm/%s: Factor is %v: with it no vector leaves before others", l.isa, p.Factor))
	}
	before, width := p.From, l.vectors(p.Width)
	ok := len(p.Until) >= width && p.Until[width-1] == p.N
	for v := 0; v < width && ok; v++ {
		to := p.Until[v]
		together := v&(unit-1) != 0 || v > 0 && before == p.N
		ok = to&(l.keys-1) == 0 && to >= before && (to == before) == together
		before = to
	}
	if !ok {
		panic(fmt.Errorf("asm/%s: Until is %v: it must have a multiple of %d for each of %d vectors, ascending every %d from %d to %d", l.isa, p.Until, l.keys, width, unit, p.From, p.N))
	}
}

// checkRaise is the same for Raise; there must be a group at Done, where Exp left.
func (l *loops) checkRaise(p *Panel) {
	l.checkExp(p)
	reach("Keep", len(p.Keep), 1, p.Width, 0)
	if p.Done < 0 || p.Done >= p.N || p.Done&(l.keys-1) != 0 {
		panic(fmt.Errorf("asm/%s: Done is %d: it must be a multiple of %d within the %d rows", l.isa, p.Done, l.keys, p.N))
	}
}

func (l *loops) checkMix(p *Panel) int {
	width := l.checkWidth(p)
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	reach("V", len(p.V.Data), p.N, p.C, p.V.Stride)
	reach("O", len(p.O), p.C, p.Width, p.Lanes)
	if p.Keep != nil {
		reach("Keep", len(p.Keep), 1, p.Width, 0)
	}
	if p.Until != nil && width > 0 {
		l.checkStairs("Since", p.Since, width, 0, p.Until[0])
		l.checkStairs("Until", p.Until, width, p.Since[width-1], p.N)
		if p.Since[0] != 0 {
			panic(fmt.Errorf("asm/%s: Since begins with %d: it must be 0", l.isa, p.Since[0]))
		}
	}
	if p.C == 0 {
		return 0
	}
	return width
}

// checkStairs panics if rows are not one for each vector, in ascending order from one to another.
func (l *loops) checkStairs(name string, rows []int, width, from, to int) {
	for i := range width {
		if len(rows) < width || rows[i] < from || rows[i] > to {
			panic(fmt.Errorf("asm/%s: %s is %v: it must have a row for each of %d vectors, in ascending order from %d to %d", l.isa, name, rows, width, from, to))
		}
		from = rows[i]
	}
}

func (l *loops) checkWidth(p *Panel) int {
	if p.Lanes != l.lanes || p.Width < 0 || p.Width > p.Lanes || p.Width&(l.vec-1) != 0 {
		panic(fmt.Errorf("asm/%s: %d of %d lanes: this set takes multiples of %d, in rows of %d", l.isa, p.Width, p.Lanes, l.vec, l.lanes))
	}
	return l.vectors(p.Width)
}

// vectors is how many vectors so many lanes are, without a division, of which a tile would do several.
func (l *loops) vectors(lanes int) int {
	return lanes >> (bits.TrailingZeros(uint(l.vec)) & 63)
}

// reach panics if rows of so many columns, so far apart, do not lie within a slice. It must not overflow, whatever the numbers.
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
