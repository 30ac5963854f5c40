package asmgen

import "fmt"

// Load and Store move squares, or halves of squares, vec columns wide: they load rows or lanes,
// transpose in registers, and store. Package asm moves the edges. A factor of Load is the sum of
// two float32 numbers, so that it costs one rounding.

// moveIn emits Ops.Load for vec lanes.
func (g *gen) moveIn() {
	g.function("Load", "(tile *float32, row int, rows *float32, stride, squares int, factor, rest float32)", 0, 48, fmt.Sprintf(`
for c := range %[1]d * squares { // %[1]d at a time
	for lane := range %[1]d {
		tile[c*row+lane] = fma(rows[lane*stride+c], factor, rows[lane*stride+c]*rest)
	}
}`, g.vec))
	t := g.moves(g.vec)
	g.vectors(span{"square", 0, g.vec}, span{"room", vec(g.vec), g.vec})
	for c := range g.vec {
		g.load(vec(c), t.at(c, 0))
	}
	g.transpose()
	factor, rest, x := vec(g.vec), vec(g.vec+1), vec(g.vec+2)
	g.freeVectors("room")
	g.vectors(span{"factor", factor, 1}, span{"rest", rest, 1}, span{"x", x, 1})
	g.argFloat(factor, "factor", 40)
	g.argFloat(rest, "rest", 44)
	for c := range vec(g.vec) {
		g.mul(x, c, rest)
		g.fma(x, c, factor)
		g.store(mem{base: out}, x)
		g.offset(out, out, aux, 1)
	}
	g.endMoves(t)
	g.ret()
}

// moveOut emits Ops.Store for storeLanes lanes and vec columns. AVX-512 stores half as many lanes
// as a vector has elements. Rows of a tensor are often a power of two apart, so one line of each of
// 16 rows could exceed the ways of one set of a cache.
func (g *gen) moveOut() {
	frame := 0
	if g.checksApart() {
		frame = 64 + g.bytes()
	}
	g.function("Store", "(tile *float32, row int, rows *float32, stride, squares int, scale *float32) (bad int)", frame, 56, fmt.Sprintf(`
for c := range %[1]d * squares { // %[1]d at a time
	for lane := range %[2]d {
		x := tile[c*row+lane] * scale[lane]
		rows[lane*stride+c] = x
		if x*0 != 0 {
			bad = 1
		}
	}
}
return bad`, g.vec, g.storeLanes))
	g.take(weightsAt)
	g.arg(weightsAt, "scale", 40)
	nothing, sum, sum2 := g.checks()
	checks := span{"checks", nothing, 3}
	g.vectors(checks)
	g.zero(sum)
	if g.checksApart() {
		g.take(products)
		g.scratch(products)
		g.store(mem{base: products}, sum)
	} else {
		g.zero(nothing)
		g.zero(sum2)
	}
	t := g.moves(g.storeLanes)
	g.vectors(span{"square", 0, g.storeLanes}, span{"scale", vec(g.vec), 1})
	if g.storeLanes < g.vec {
		g.halves()
	} else {
		g.load(vec(g.vec), mem{base: weightsAt})
		for c := range g.vec {
			g.mul(vec(c), vec(g.vec), mem{base: out})
			g.offset(out, out, aux, 1)
		}
		g.checkProducts()
		g.transposed(g.transpose)
	}
	for lane := range t.rows {
		g.store(t.at(lane, 0), vec(lane))
	}
	g.endMoves(t)
	g.freeVectors()
	g.vectors(checks, span{"tmp", 0, 1})
	if g.checksApart() {
		g.load(sum, mem{base: products})
		g.zero(nothing)
	} else {
		g.add(sum, sum, sum2)
	}
	g.bad(48, sum, nothing, sum2, 0)
	g.ret()
}

// checks returns the registers of a zero and of two sums of products with it, which are 0 or NaN.
// They are after those of the transposition.
func (t *target) checks() (nothing, sum, sum2 vec) {
	first := vec(2*t.storeLanes + 1)
	if t.checksApart() {
		first = vec(t.storeLanes + 1)
	}
	return first, first + 1, first + 2
}

// checksApart reports whether no registers are left for the checks, so that their sum is in memory
// between squares.
func (t *target) checksApart() bool { return t.regs < 2*t.storeLanes+4 }

// checkProducts adds 0 times each of Store's products, which are in its first registers, to the
// sums.
func (g *gen) checkProducts() {
	nothing, sum, sum2 := g.checks()
	if g.checksApart() {
		g.zero(nothing)
		g.load(sum, mem{base: products})
		g.zero(sum2)
	}
	for i := 0; i < g.storeLanes; i += 2 {
		g.fma(sum, nothing, vec(i))
		g.fma(sum2, nothing, vec(i+1))
	}
	if g.checksApart() {
		g.add(sum, sum, sum2)
		g.store(mem{base: products}, sum)
	}
}

// halves emits loads of columns that are half a vector, their products, and the transposition.
func (g *gen) halves() {
	h, scale := g.isa.(halved), vec(g.vec)
	for c := 0; c < g.vec; c += 2 { // two columns a step, as each step waits for the one before
		h.loadHalf(vec(c/8*4+c%4), c/4%2, mem{base: out})
		h.loadHalf(vec(c/8*4+c%4+1), c/4%2, mem{base: out, index: aux, times: 1})
		g.offset(out, out, aux, 2)
	}
	h.loadHalf(scale, 0, mem{base: weightsAt})
	h.loadHalf(scale, 1, mem{base: weightsAt})
	for r := range vec(g.storeLanes) {
		g.mul(r, r, scale)
	}
	g.checkProducts()
	g.transposed(h.transposeHalves)
}

// transposed emits the transposition of Store's first registers. Its scratch registers may be those
// of the checks.
func (g *gen) transposed(transpose func()) {
	g.freeVectors("scale")
	if g.checksApart() {
		g.freeVectors("checks")
	}
	g.vectors(span{"room", vec(g.storeLanes), g.storeLanes})
	transpose()
	g.freeVectors("room")
}

// moves begins the loop over squares. Rows are addressed as those of a micro-tile.
func (g *gen) moves(lanes int) tile {
	t := tile{gen: g, vecs: 1, rows: lanes, along: true}
	g.take(stride, stride3, out, count, aux)
	g.take(t.cursors()...)
	g.arg(out, "tile", 0)
	g.arg(aux, "row", 8)
	g.arg(elemAt, "rows", 16)
	g.arg(stride, "stride", 24)
	g.arg(count, "squares", 32)
	g.scale(aux, 4)
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	for i := 4; i < t.rows; i += 4 {
		g.offset(cursors[i/4], cursors[i/4-1], stride, 4)
	}
	g.align()
	g.label("square")
	return t
}

// cursors returns the cursors of a move, one for every four rows.
func (t tile) cursors() []reg { return cursors[:t.rows/4] }

func (g *gen) endMoves(t tile) {
	for _, at := range t.cursors() {
		g.step(at, 1)
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "square")
	g.free(t.cursors()...)
}
