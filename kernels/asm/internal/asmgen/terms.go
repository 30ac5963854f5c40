package asmgen

import "fmt"

// packRows emits the split of up to 16 rows and 32 columns into terms. Columns that are not in the
// mask count as 0. Column c is stored beside column c+16.
func (g *gen) packRows(terms termCount) {
	x := g.isa.(x86)
	g.function("PackRows"+terms.name, "(to *uint16, from *float32, rows, stride, mask int, factor float32)", 0, 44, `
for j := range rows {
	for c := range 32 {
		at := j*32 + c%16*2 + c/16
		to[at], to[at+512], to[at+1024] = terms(from[j*stride+c] * factor)
	}
}`)
	g.take(elem, stride, out, count, steps)
	const left, right = vec(0), vec(2)
	g.takeTerms()
	g.vectors(span{"factor", packFactor, 1})
	g.packArgs()
	g.argFloat(packFactor, "factor", 40)
	g.lower(steps, 16)
	x.emit("KMOVW", x.register(steps), "K2")
	g.label("row")
	x.loadTimes(left, mem{base: elem}, "K1")
	x.loadTimes(right, mem{base: elem, off: line}, "K2")
	x.joinTerms(left, right, terms.count, func(term int, word vec) { g.store(mem{base: out, off: term * tileBytes}, word) })
	g.offset(elem, elem, stride, 4)
	g.increase(out, line)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	g.ret()
}

// packColumns emits the split of up to 32 rows and 16 columns into terms, transposed into the rows
// of an AMX tile: it joins pairs of rows, and transposes all 16 pairs. Missing rows and columns
// count as 0. The result small is not 0 if there are numbers below 2^leastTermPower.
func (g *gen) packColumns(terms termCount) {
	x := g.isa.(x86)
	g.function("PackColumns"+terms.name, "(to *uint16, from *float32, rows, stride, mask int) (small int)", 2*tileBytes+64, 48, `
for c := range 16 {
	for j := range 32 {
		to[c*32+j], to[c*32+j+512], to[c*32+j+1024] = terms(from[j*stride+c]) // 0 for j >= rows
	}
}`)
	g.take(elem, stride, out, count, steps, products)
	const even, odd, magnitude, lowest, sign, one = vec(16), vec(18), vec(20), vec(21), vec(22), vec(23)
	g.vectors(span{"pairs", 0, 16}, span{"even", even, 2}, span{"odd", odd, 2}, span{"magnitude", magnitude, 1}, span{"lowest", lowest, 1}, span{"sign", sign, 1}, span{"one", one, 1}, span{"bits", half16, 2})
	g.packArgs()
	x.emit("VPSLLD", imm(15), x.v(upper16), x.v(sign))
	x.emit("VPSRLD", imm(15), x.v(half16), x.v(one))
	x.emit("VPTERNLOGD", imm(0xff), x.v(lowest), x.v(lowest), x.v(lowest))
	load := func(v vec, m mem) {
		x.loadMasked(v, m, "K1")
		x.emit("VPANDND", x.v(v), x.v(sign), x.v(magnitude))
		x.subInt(magnitude, magnitude, one)
		x.emit("VPMINUD", x.v(magnitude), x.v(lowest), x.v(lowest))
	}
	g.scratch(products)
	kept := func(term, i int) mem { return mem{base: products, off: (term-1)*tileBytes + i*line} }
	for i := range 16 {
		none := fmt.Sprint("none", i)
		g.zero(even)
		g.zero(odd)
		g.jumpBelow(count, 2*i+1, none)
		load(even, mem{base: elem})
		g.jumpBelow(count, 2*i+2, none)
		load(odd, mem{base: elem, index: stride, times: 4})
		g.label(none)
		x.joinTerms(even, odd, terms.count, func(term int, word vec) {
			if term == 0 {
				g.load(vec(i), word)
			} else {
				g.store(kept(term, i), word)
			}
		})
		g.offset(elem, elem, stride, 8)
	}
	g.set(steps, (127+leastTermPower)<<fraction-1)
	x.emit("VPBROADCASTD", x.register(steps), x.v(magnitude))
	x.emit("VPCMPUD", imm(1), x.v(magnitude), x.v(lowest), "K1")
	x.emit("KMOVW", "K1", x.register(steps))
	g.result("small", 40, steps)
	g.freeVectors()
	g.vectors(span{"square", 0, 16}, span{"room", 16, 16})
	for term := range terms.count {
		for i := 0; i < 16 && term > 0; i++ {
			g.load(vec(i), kept(term, i))
		}
		g.transpose()
		for i := range 16 {
			g.store(mem{base: out, off: term*tileBytes + i*line}, vec(i))
		}
	}
	g.ret()
}

// leastTermPower is the exponent of the least number that is split into terms. Products of its
// terms with those of a weight are not 0 while the weight is at least 2^-50. AMX takes operands
// below 2^-126 as 0, and sets such results to 0.
const leastTermPower = -60

// packLanes emits the split of up to 32 rows of a vector of lanes into terms. Missing rows count as
// 0. Row j is stored beside row j+16.
func (g *gen) packLanes() {
	x := g.isa.(x86)
	g.function("PackLanes", "(to *uint16, from *float32, rows int, factor float32)", 0, 28, fmt.Sprintf(`
for j := range 32 {
	for lane := range 16 {
		at := j%%16*32 + 2*lane + j/16
		to[at], to[at+512], to[at+1024] = terms(from[j*%d+lane] * factor) // 0 for j >= rows
	}
}`, g.vecs*g.vec))
	g.take(lanesAt, elem, elemAt, count)
	const end = lanesAt
	g.takeTerms()
	g.vectors(span{"factor", packFactor, 1})
	g.arg(elemAt, "to", 0)
	g.arg(elem, "from", 8)
	g.arg(count, "rows", 16)
	g.argFloat(packFactor, "factor", 24)
	x.termBits()
	g.move(end, elemAt)
	g.increase(end, tileBytes)
	pair := func(two bool) {
		g.mul(evenRow, packFactor, mem{base: elem})
		if two {
			g.mul(oddRow, packFactor, mem{base: elem, off: 16 * g.row()})
		} else {
			g.zero(oddRow)
		}
		g.joined()
		g.increase(elem, g.row())
		g.increase(count, -1)
	}
	g.pairsOfRows(pair, end)
}

// pairsOfRows emits a loop over up to 32 rows. Each of the first 16 goes with the row 16 later, if
// there is one. Rows of zeros follow up to end.
func (g *gen) pairsOfRows(pair func(two bool), end reg) {
	g.label("pair")
	g.jumpBelow(count, 17, "one")
	pair(true)
	g.jumpLess(elemAt, end, "pair")
	g.label("one")
	g.jumpBelow(count, 1, "rest")
	g.jumpLess(elemAt, end, "more")
	g.ret()
	g.label("more")
	pair(false)
	g.jump("one")
	g.label("rest")
	g.emptyRows("empty", end)
	g.ret()
}

// packArgs loads the arguments that packRows, packColumns and packLines share.
func (g *gen) packArgs() {
	x := g.isa.(x86)
	g.arg(out, "to", 0)
	g.arg(elem, "from", 8)
	g.arg(count, "rows", 16)
	g.arg(stride, "stride", 24)
	g.arg(steps, "mask", 32)
	x.emit("KMOVW", x.register(steps), "K1")
	x.termBits()
}

// evenRow and oddRow are the registers of two rows of lanes that are joined.
const evenRow, oddRow = vec(0), vec(2)

// takeTerms takes the registers of the terms of two rows, and of the bits that term uses.
func (g *gen) takeTerms() {
	g.vectors(span{"even", evenRow, 2}, span{"odd", oddRow, 2}, span{"bits", half16, 2})
}

// joined stores the terms of two joined rows to the row at elemAt of three AMX tiles, and advances
// elemAt.
func (g *gen) joined() {
	g.isa.(x86).joinTerms(evenRow, oddRow, 3, func(term int, word vec) { g.store(mem{base: elemAt, off: term * tileBytes}, word) })
	g.increase(elemAt, line)
}

// joinedRows emits the split of up to 32 rows of weights into terms, from count rows at elem. Pairs
// of neighbours are joined in the AMX tiles at elemAt. It advances elem.
func (g *gen) joinedRows(name string) {
	const end = lanesAt
	g.move(end, elemAt)
	g.increase(end, tileBytes)
	g.jumpBelow(count, 2, name+"Odd")
	g.label(name + "Pair")
	g.load(evenRow, mem{base: elem})
	g.load(oddRow, mem{base: elem, off: g.row()})
	g.joined()
	g.increase(elem, 2*g.row())
	g.increase(count, -2)
	g.jumpLess(elemAt, end, name+"More")
	g.jump(name + "Done")
	g.label(name + "More")
	g.jumpAtLeast(count, 2, name+"Pair")
	g.label(name + "Odd")
	g.jumpBelow(count, 1, name+"Rest")
	g.load(evenRow, mem{base: elem})
	g.zero(oddRow)
	g.joined()
	g.increase(count, -1)
	g.label(name + "Rest")
	g.emptyRows(name+"Empty", end)
	g.label(name + "Done")
}

// emptyRows emits rows of zeros of three AMX tiles, from elemAt to end.
func (g *gen) emptyRows(name string, end reg) {
	g.zero(evenRow)
	g.jump(name + "More")
	g.label(name)
	for term := range 3 {
		g.store(mem{base: elemAt, off: term * tileBytes}, evenRow)
	}
	g.increase(elemAt, line)
	g.label(name + "More")
	g.jumpLess(elemAt, end, name)
}

const (
	upper16    = vec(31) // the bits of a bf16 number
	half16     = vec(30) // half a unit in the last place of a bf16 number
	packFactor = vec(29) // factor of all numbers
)

// termBits sets the registers that term uses.
func (x x86) termBits() {
	x.emit("VPTERNLOGD", imm(0xff), x.v(upper16), x.v(upper16), x.v(upper16))
	x.emit("VPSRLD", imm(31), x.v(upper16), x.v(half16))
	x.emit("VPSLLD", imm(15), x.v(half16), x.v(half16))
	x.emit("VPSLLD", imm(16), x.v(upper16), x.v(upper16))
}

// term stores in term the bf16 number nearest to v, or the nearest one towards 0, and subtracts it
// from v. A NaN stays NaN in some term, as the last term is not rounded.
func (x x86) term(v, term vec, rounded bool) {
	if rounded {
		x.addInt(term, v, half16)
		x.emit("VPANDD", x.v(term), x.v(upper16), x.v(term))
	} else {
		x.emit("VPANDD", x.v(v), x.v(upper16), x.v(term))
	}
	x.sub(v, v, term)
}

// joinTerms calls do with each of the first count terms of two vectors: those of even in the lower
// halves of the elements, those of odd in the upper halves. It destroys both vectors and the
// registers after them.
func (x x86) joinTerms(even, odd vec, count int, do func(term int, word vec)) {
	for term := range count {
		word, high := even+1, odd+1
		if term < 2 {
			x.term(even, word, term == 0)
			x.term(odd, high, term == 0)
		} else {
			word, high = even, odd
			x.emit("VPANDD", x.v(odd), x.v(upper16), x.v(odd))
		}
		x.shiftRight(word, word, 16)
		x.emit("VPORD", x.v(high), x.v(word), x.v(word))
		do(term, word)
	}
}

func (x x86) loadMasked(dst vec, m mem, mask string) { x.emit("VMOVUPS.Z", x.m(m), mask, x.v(dst)) }

// loadTimes loads the masked elements, multiplied by the factor.
func (x x86) loadTimes(dst vec, m mem, mask string) {
	x.emit("VMULPS.Z", x.m(m), x.v(packFactor), mask, x.v(dst))
}
