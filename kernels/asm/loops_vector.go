//go:build (amd64 || arm64) && !purego

package asm

import "fmt"

// vectorLoops are the assembly loops that move, convert and check rows.
type vectorLoops struct {
	load        []loadBlock  // small blocks first
	store       []storeBlock // small blocks first
	finite      func(x *float32, rounds int) (bad int)
	perFinite   int // elements of a round of finite
	inverse     func(to, from *float32, vectors int) (bad int)
	elu         func(to, from *float32, n int, ahead uintptr)
	natural     func(to, from *float32, n int)
	scale       func(to, x, by *float32, toStride, xStride, n, d int)
	times, over func(to, x, y *float32, toStride, xStride, yStride, n, d int)
	rotate      func(x, cos, sin *float32, n int) // pairs are x[c] and x[c+n]
	rotatePairs func(x, cos, sin *float32, n int)
	widen       []func(to *float32, from *Cells, n, d int)
	narrow      []func(to *uint16, from *float32, vectors int) // to F16, to BF16
}

// setVector replaces the portable loops by the set's own, with checks before them.
func (l *loops) setVector(o *Ops) {
	for _, b := range l.vector.load {
		rest := o.Vector.Load
		o.Vector.Load = func(m *Move) {
			l.checkMove(m)
			factor := float32(m.factor())
			left := float32(m.factor() - float64(factor))
			if left == 0 {
				// 0 times an infinity would be NaN; this value can only break ties.
				left = factor * 0x1p-60
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
	for _, b := range l.vector.store {
		rest := o.Vector.Store
		o.Vector.Store = func(m *Move) bool {
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
	if l.vector.finite != nil {
		o.Vector.Finite = l.finite
	}
	if l.vector.inverse != nil {
		o.Vector.Inverse = l.inverse
	}
	if l.vector.elu != nil {
		o.Vector.Elu = l.elu
	}
	if l.vector.natural != nil {
		o.Vector.Exp = l.natural
	}
	if l.vector.scale != nil {
		o.Vector.Scale = l.scale
	}
	if l.vector.times != nil {
		o.Vector.Times = l.times
	}
	if l.vector.over != nil {
		o.Vector.Over = l.over
	}
	if l.vector.rotate != nil {
		o.Vector.Rotate = l.rotate
	}
	if l.vector.widen != nil {
		o.Vector.Widen = l.widen
	}
	if l.vector.narrow != nil {
		o.Vector.Narrow = l.narrow
	}
}

func (l *loops) finite(x []float32) bool {
	for len(x) >= l.vector.perFinite {
		rounds := min(len(x), readAtOnce) / l.vector.perFinite
		if l.vector.finite(&x[0], rounds) != 0 {
			return false
		}
		x = x[rounds*l.vector.perFinite:]
	}
	return finite(x)
}

func (l *loops) inverse(to, from []float32) bool {
	reach("to", len(to), 1, len(from), 0)
	bad := 0
	for len(from) >= l.vec {
		n := l.vectors(min(len(from), mostBytes/8))
		bad |= l.vector.inverse(&to[0], &from[0], n)
		to, from = to[n*l.vec:], from[n*l.vec:]
	}
	return inverse(to, from) && bad == 0
}

func (l *loops) elu(to, from []float32, ahead uintptr) {
	reach("to", len(to), 1, len(from), 0)
	const step = mostBytes / 8
	for i := 0; i < len(from); i += step {
		l.vector.elu(&to[i], &from[i], min(step, len(from)-i), ahead+uintptr(4*i))
	}
}

func (l *loops) natural(to, from []float32) {
	reach("to", len(to), 1, len(from), 0)
	const step = mostBytes / 8
	for i := 0; i < len(from); i += step {
		l.vector.natural(&to[i], &from[i], min(step, len(from)-i))
	}
}

func (l *loops) scale(to, x Rows, by []float32, d int) {
	n := len(by)
	checkRows(to, x, x, n, d)
	if n <= 0 || d <= 0 {
		return
	}
	step := atOnce(n, 1, d, 8*d, 0)
	for i := 0; i < n; i += step {
		l.vector.scale(&to.Data[i*to.Stride], &x.Data[i*x.Stride], &by[i], to.Stride, x.Stride, min(step, n-i), d)
	}
}

func (l *loops) times(to, x, y Rows, n, d int) { eachRows(l.vector.times, to, x, y, n, d) }

func (l *loops) over(to, x, y Rows, n, d int) { eachRows(l.vector.over, to, x, y, n, d) }

// eachRows calls a loop of Times or Over for some rows after others.
func eachRows(run func(to, x, y *float32, toStride, xStride, yStride, n, d int), to, x, y Rows, n, d int) {
	checkRows(to, x, y, n, d)
	if n <= 0 || d <= 0 {
		return
	}
	step := atOnce(n, 1, d, 12*d, 0)
	for i := 0; i < n; i += step {
		run(&to.Data[i*to.Stride], &x.Data[i*x.Stride], &y.Data[i*y.Stride], to.Stride, x.Stride, y.Stride, min(step, n-i), d)
	}
}

func (l *loops) rotate(x, cos, sin []float32, pairs bool) {
	n := len(cos)
	reach("sin", len(sin), 1, n, 0)
	reach("x", len(x), 2, n, n)
	switch {
	case n == 0:
	case pairs:
		l.vector.rotatePairs(&x[0], &cos[0], &sin[0], n)
	default:
		l.vector.rotate(&x[0], &cos[0], &sin[0], n)
	}
}

func (l *loops) widen(to []float32, from *Cells, n, d int) {
	from.check("from", "from.Scale", n, d, 0, 0)
	reach("to", len(to), n, d, d)
	if n <= 0 || d <= 0 {
		return
	}
	step := atOnce(n, 1, d, d*(4+from.Type.size()), 0)
	if step >= n {
		l.vector.widen[from.Type](&to[0], from, n, d)
		return
	}
	all := *from
	for j := 0; j < n; j += step {
		*from = all.From(j)
		l.vector.widen[from.Type](&to[j*d], from, min(step, n-j), d)
	}
	*from = all
}

func (l *loops) narrow(to []uint16, from []float32, t Type) {
	if t != F16 && t != BF16 {
		panic(fmt.Errorf("asm: Narrow: type %d: it must be F16 or BF16", t))
	}
	reach("to", len(to), 1, len(from), 0)
	for len(from) >= l.vec {
		vectors := min(len(from), mostBytes/8) / l.vec
		l.vector.narrow[t-F16](&to[0], &from[0], vectors)
		to, from = to[vectors*l.vec:], from[vectors*l.vec:]
	}
	narrow(to, from, t)
}

// A loadBlock or storeBlock is a loop that moves lanes lanes by cols columns at once, one such
// block of columns after another.
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

// blocks returns the number of lanes that blocks can move, and the number of blocks of columns. If
// the lanes are not a multiple of a block's, the last block moves some of them again.
func (m *Move) blocks(lanes, cols int) (all, n int) {
	if n = m.D / cols; n == 0 || m.Rows < lanes {
		return 0, 0
	}
	return m.Rows, n
}

// rest calls move for everything outside the first lanes and columns.
func (m *Move) rest(lanes, cols int, move func(*Move)) {
	if lanes == m.Width && cols == m.D {
		return
	}
	whole := *m // move gets m itself, as a copy would escape

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

// checkMove panics if slices are too short for what Load or Store touches. A move may have any
// width.
func (l *loops) checkMove(m *Move) {
	if m.Rows < 0 || m.Rows > m.Width || m.Width > m.Lanes {
		panic(fmt.Errorf("asm/%s: %d rows in %d of %d lanes: there must be a lane for each", l.isa, m.Rows, m.Width, m.Lanes))
	}
	reach("Tile", len(m.Tile), m.D, m.Width, m.Lanes)
	reach("Outside", len(m.Outside.Data), m.Rows, m.D, m.Outside.Stride)
}

// size returns the bytes of an element.
func (t Type) size() int { return [...]int{F32: 4, F16: 2, BF16: 2, I8: 1}[t] }

// check panics if rows of cols columns, starting at element, exceed the cells, or if scales are
// missing. name and scale name the operands in the message.
func (c *Cells) check(name, scale string, rows, cols, element, firstScale int) {
	switch c.Type {
	case F32:
		reach(name, len(c.Data)-element, rows, cols, c.Stride)
	case F16, BF16:
		reach(name, len(c.Half)-element, rows, cols, c.Stride)
	case I8:
		reach(name, len(c.Byte)-element, rows, cols, c.Stride)
		reach(scale, len(c.Scale)-firstScale, rows, 1, c.ScaleStride)
	default:
		panic(fmt.Errorf("asm: %s: type %d: want F32, F16, BF16 or I8", name, c.Type))
	}
}
