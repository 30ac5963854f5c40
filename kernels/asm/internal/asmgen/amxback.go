package asmgen

import "fmt"

// The backward pass has two products besides those of Score and Mix. DScore is Score of values and
// the gradients of outputs, multiplied into weights.
//
// Outer sums over lanes. An AMX tile holds the terms of two vectors of lanes side by side. If only
// one vector is left, half of each sum would be empty, so the tile holds two terms of that vector
// instead. A row of 16 lanes of weights has two terms of each number, and a tile of rows of Y has
// the terms to multiply them by. Then one product of AMX tiles computes two of the six products:
//
//	(0, 1) (1, 0)    a0 b1 + a1 b0
//	(0, 1) (0, 1)    a0 b0 + a1 b1
//	(0, 2) (2, 0)    a0 b2 + a2 b0
//
// T0 to T3 are sums of 16 rows of weights and up to 64 columns, T4 holds terms of weights, and T5
// to T7 alternately hold terms of Y.

// tileDScore emits Ops.DScore. The sums of a group of rows are finished amid the first products of
// the next group.
func (g *gen) tileDScore(vecs int) {
	x := g.isa.(x86)
	const sums, config, sumAt = apart, panel, elemAt4
	const sub = vec(8)
	g.function(fmt.Sprint("DScore", vecs), "(dot, v *uint16, p, sub *float32, rows, steps int, config *tileConfig)", tileRows*g.row()+64, 56, fmt.Sprintf(`
for j := range rows { // %[1]d at a time
	for lane := range %[2]d {
		p[j*%[3]d+lane] *= Σ v[j][c] * dot[c][lane] - sub[lane] // over %[4]d*steps columns, by terms
	}
}`, tileRows, vecs*g.vec, g.vecs*g.vec, tileDepth))
	g.take(panel, lanes, elem, elemAt, elemAt4, stride, out, count, steps, aux, apart, outStride)
	g.vectors(span{"sums", 0, vecs}, span{"sub", sub, vecs})
	g.arg(elem, "dot", 0)
	g.arg(lanes, "v", 8)
	g.arg(aux, "p", 16)
	g.arg(steps, "sub", 24)
	g.arg(count, "rows", 32)
	g.arg(config, "config", 48)
	x.tileConfig(config)
	g.set(stride, line)
	g.set(outStride, g.row())
	g.scratch(sums)
	for v := range vecs {
		g.load(sub+vec(v), mem{base: steps, vectors: v})
	}
	multiply := func(from reg, row int) {
		for v := range vecs {
			off := row*g.row() + v*g.bytes()
			g.load(vec(v), mem{base: from, off: off})
			g.sub(vec(v), vec(v), sub+vec(v))
			g.mul(vec(v), vec(v), mem{base: out, off: off})
			g.store(mem{base: out, off: off}, vec(v))
		}
	}
	g.note("the first time there are no sums to finish: write to the scratch for them")
	g.move(out, sums)
	g.label("group")
	g.move(elemAt, elem)
	g.arg(steps, "steps", 40)
	for v := range vecs {
		x.tileZero(v)
	}
	g.scoreStep(vecs, termCounts[0], g.lines(func() {
		for r := range tileRows {
			multiply(sums, r)
		}
	}))
	g.increase(steps, -1)
	g.jumpBelow(steps, 1, "stepped")
	g.label("step")
	g.scoreStep(vecs, termCounts[0], nil)
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "step")
	g.label("stepped")
	for v := range vecs {
		x.tileStore(v, mem{base: sums, index: outStride, times: 1, vectors: v})
	}
	g.move(out, aux)
	g.increase(aux, tileRows*g.row())
	g.increase(count, -tileRows)
	g.jumpAtLeast(count, 1, "group")
	g.increase(count, tileRows)
	g.move(sumAt, sums)
	g.label("row")
	multiply(sumAt, 0)
	g.increase(sumAt, g.row())
	g.increase(out, g.row())
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	x.tileRelease()
	g.ret()
}

// outerSteps returns the products that Outer sums for vecs vectors, each as the index of an AMX
// tile of weights and of one of Y, and the number of AMX tiles of weights. If vecs is odd, the
// products of the single vector come first, then those of pairs. Each vector has three AMX tiles of
// Y.
func outerSteps(vecs int) (steps [][2]int, weights int) {
	if vecs%2 == 1 {
		steps, weights = [][2]int{{0, 0}, {0, 1}, {1, 2}}, 2
	}
	for v := vecs % 2; v < vecs; v += 2 {
		for a := range 3 {
			for b := range 3 - a {
				steps = append(steps, [2]int{weights + a, 3*v + b})
			}
		}
		weights += 3
	}
	return steps, weights
}

// outerTiles lists the numbers of AMX tiles of columns that a loop of Outer computes at once: as
// many as there are registers for sums, half of them, or one.
var outerTiles = []int{4, 2, 1}

// tileOuter emits Ops.Outer for tiles AMX tiles of columns. Amid the products it adds earlier sums
// to x, and splits the next rows of weights into terms, in two buffers alternately.
func (g *gen) tileOuter(vecs, tiles int) {
	x := g.isa.(x86)
	const sums, xby, other, cursor, xAt, addAt, addBy = stride3, panel, nextRow, pause, elemAt4, elemAt, lanesAt
	const factor, firstColumn, mask = packFactor, vec(4), "K1"
	all, weights := outerSteps(vecs)
	g.function(fmt.Sprint("Outer", tiles, "x", vecs), "(p *float32, y *uint16, x *float32, rows, xby, mask int, config *tileConfig, factor float32)", (2*weights+tiles)*tileBytes+64, 60, fmt.Sprintf(`
for r := range rows { // %[1]d at a time
	for c := range %[2]d { // of the last %[1]d columns, those in mask
		x[r*xby/4+c] += factor * Σ p[r*%[4]d+lane] * y[lane][c] // over %[3]d lanes, by terms
	}
}`, tileRows, tiles*g.vec, vecs*g.vec, g.vecs*g.vec))
	g.take(panel, lanes, lanesAt, elem, elemAt, elemAt4, stride, stride3, count, steps, nextRow, products, pause)
	g.takeTerms()
	g.vectors(span{"columns", firstColumn, tiles}, span{"factor", factor, 1})
	g.arg(xby, "config", 48)
	x.tileConfig(xby)
	g.arg(elem, "p", 0)
	g.arg(lanes, "y", 8)
	g.arg(xAt, "x", 16)
	g.arg(count, "rows", 24)
	g.arg(xby, "xby", 32)
	g.arg(steps, "mask", 40)
	x.emit("KMOVW", x.register(steps), mask)
	g.argFloat(factor, "factor", 56)
	g.set(stride, line)
	g.scratch(sums)
	g.move(products, sums)
	g.increase(products, tiles*tileBytes)
	g.move(other, products)
	g.increase(other, weights*tileBytes)
	x.termBits()
	split := func(to reg, from, off int) {
		row := func(v int) mem { return mem{base: elem, off: from*g.row() + v*g.bytes()} }
		if vecs%2 == 1 {
			x.twoTerms(row(0), func(second int, word vec) { g.store(mem{base: to, off: second*tileBytes + off}, word) })
		}
		for v := vecs % 2; v < vecs; v += 2 {
			g.load(evenRow, row(v))
			g.load(oddRow, row(v+1))
			x.joinTerms(evenRow, oddRow, 3, func(term int, word vec) { g.store(mem{base: to, off: (vecs%2*2+term)*tileBytes + off}, word) })
		}
	}
	add := func(from reg, r int) {
		for c := range tiles {
			sum, at, of := firstColumn+vec(c), mem{base: addAt, off: c * line}, mem{base: from, off: c*tileBytes + r*line}
			if c < tiles-1 {
				g.load(sum, at)
				g.fma(sum, factor, of)
				g.store(at, sum)
			} else {
				x.loadMasked(sum, at, mask)
				g.fma(sum, factor, of)
				x.emit("VMOVUPS", x.v(sum), mask, x.m(at))
			}
		}
		g.plus(addAt, addBy)
	}
	product := func(strewn ...string) {
		strew := g.strew(tiles*len(all), strewn)
		for t := range tiles {
			x.tileZero(t)
		}
		for i, step := range all {
			if i == 0 || step[0] != all[i-1][0] {
				x.tileLoad(4, lineBy(products, step[0]*tileBytes))
			}
			for c := range tiles {
				y := 5 + (i*tiles+c)%3
				x.tileLoad(y, lineBy(lanes, c*g.vecs*termsBytes+step[1]*tileBytes))
				x.tileProduct(c, 4, y)
				strew()
			}
		}
		for t := range tiles {
			x.tileStore(t, lineBy(sums, t*tileBytes))
		}
	}
	rolled := func(name string, row func()) { // repeats row steps times
		g.label(name)
		row()
		g.increase(steps, -1)
		g.jumpAtLeast(steps, 1, name)
	}
	atHand := func(name string) {
		g.move(steps, count)
		g.jumpBelow(steps, tileRows+1, name)
		g.set(steps, tileRows)
	}
	next := func() {
		g.down(xAt, xby, tileRows)
		g.increase(count, -tileRows)
	}
	g.label("split")
	g.move(addAt, products)
	g.move(cursor, elem)
	atHand("row")
	rolled("row", func() {
		split(addAt, 0, 0)
		g.increase(elem, g.row())
		g.increase(addAt, line)
	})
	g.move(elem, cursor)
	g.note("the first time there are no sums to add: write to the scratch for them")
	g.move(addAt, sums)
	g.move(addBy, stride)
	g.label("rows")
	g.increase(elem, tileRows*g.row())
	g.jumpBelow(count, 2*tileRows, "last")
	product(g.lines(func() {
		for r := range tileRows {
			split(other, r, r*line)
			add(sums, r)
		}
	})...)
	g.move(addAt, xAt)
	g.move(addBy, xby)
	x.swap(products, other)
	next()
	g.jump("rows")
	g.label("last")
	addRow := func() {
		add(cursor, 0)
		g.increase(cursor, line)
	}
	g.move(cursor, sums)
	g.set(steps, tileRows)
	rolled("before", addRow)
	product()
	g.move(addAt, xAt)
	g.move(addBy, xby)
	g.move(cursor, sums)
	atHand("add")
	rolled("add", addRow)
	next()
	g.jumpAtLeast(count, 1, "split")
	x.tileRelease()
	g.ret()
}

// twoTerms splits a vector into terms. It calls do with the first term beside the second, and with
// the first beside the third.
func (x x86) twoTerms(from mem, do func(second int, word vec)) {
	const rest, first, second, low = vec(0), vec(1), vec(2), vec(3)
	x.load(rest, from)
	x.term(rest, first, true)
	x.term(rest, second, false)
	x.shiftRight(low, first, 16)
	x.emit("VPORD", x.v(second), x.v(low), x.v(second))
	do(0, second)
	x.emit("VPTERNLOGD", imm(0xf8), x.v(rest), x.v(upper16), x.v(low)) // low |= upper16 & rest
	do(1, low)
}

// packLines emits the split of Y into terms for Outer, of up to 16 columns that a mask selects. The
// rows are up to 16, one for each lane of a vector, or up to 32, for a pair of vectors.
func (g *gen) packLines() {
	x := g.isa.(x86)
	const args = "(to *uint16, from *float32, rows, stride, mask int, factor float32)"
	const end = lanesAt
	const rest, first, second, low = vec(0), vec(1), vec(2), vec(3)
	begin := func() {
		g.takeTerms()
		g.vectors(span{"factor", packFactor, 1})
		g.packArgs()
		g.argFloat(packFactor, "factor", 40)
		g.move(elemAt, out)
		g.move(end, elemAt)
		g.increase(end, tileBytes)
	}
	g.function("PackLines", args, 0, 44, `
for j := range 16 {
	for c := range 16 {
		at := j*32 + 2*c
		b0, b1, b2 := terms(from[j*stride+c] * factor) // 0 for j >= rows
		to[at], to[at+1] = b1, b0
		to[at+512], to[at+513] = b0, b1
		to[at+1024], to[at+1025] = b2, b0
	}
}`)
	g.take(lanesAt, elem, elemAt, stride, out, count, steps)
	begin()
	g.label("row")
	x.loadTimes(rest, mem{base: elem}, "K1")
	x.term(rest, first, true)
	x.term(rest, second, false)
	for term, pair := range [][2]vec{{second, first}, {first, second}, {rest, first}} {
		x.shiftRight(low, pair[0], 16)
		x.emit("VPORD", x.v(pair[1]), x.v(low), x.v(low))
		g.store(mem{base: elemAt, off: term * tileBytes}, low)
	}
	g.increase(elemAt, line)
	g.offset(elem, elem, stride, 4)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	g.emptyRows("empty", end)
	g.ret()
	g.function("PackLinePairs", args, 0, 44, `
for j := range 32 {
	for c := range 16 {
		at := j%16*32 + 2*c + j/16
		to[at], to[at+512], to[at+1024] = terms(from[j*stride+c] * factor) // 0 for j >= rows
	}
}`)
	g.take(lanes, lanesAt, elem, elemAt, stride, out, count, steps)
	begin()
	g.move(lanes, stride)
	g.scale(lanes, 4*16)
	pair := func(two bool) {
		x.loadTimes(evenRow, mem{base: elem}, "K1")
		if two {
			x.loadTimes(oddRow, mem{base: elem, index: lanes, times: 1}, "K1")
		} else {
			g.zero(oddRow)
		}
		g.joined()
		g.offset(elem, elem, stride, 4)
		g.increase(count, -1)
	}
	g.pairsOfRows(pair, end)
}
