package asmgen

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// AMX multiplies tiles: eight registers of 16 rows of 64 bytes, T0 to T7. TDPBF16PS adds to each of 16 x 16 float32 sums the products of 32 pairs of bfloat16, a
// row of one tile with a column of another, whose pairs of rows lie in one:
//
//	C[i][l] += Σ_k A[i][k] B[k/2][2l+k%2]    k < 32
//
// A float32 number is the sum of three of bfloat16, its parts, and a product of two numbers that of six products of parts; the other three are less than 2^-22 of
// it together. For 16 keys, 48 lanes and d = 64 these are 36 products of tiles, of 16 cycles each, 576; and 3072 multiply-adds of AVX-512, two a cycle, are 1536.
//
// Parts lie as tiles do: those of keys are A of Score, with 16 keys and 32 columns in each, and those of values, with 16 columns and 32 keys, A of Mix. Those of
// queries, with 32 columns and 16 lanes, and of weights, with 32 keys, are B. The three parts of a tile follow one another.
//
//	Score   T0 to T2 sums of one group of keys and all vectors of lanes, T3 to T5 parts of keys, T6 and T7 by turns those of queries
//	Mix     T0 to T3 sums of up to 64 columns and one vector of lanes, T4 by turns those of values, T5 to T7 those of weights
//
// The other units cut the weights of the next keys into parts while tiles multiply. Rows of bfloat16 have one part each, and loops of their own, with half of the
// products.
var amx = func() *target {
	t := *avx512
	t.name = "amx"
	return &t
}()

const (
	tileRows   = 16
	tileBytes  = tileRows * line
	partsBytes = 3 * tileBytes
	tileDepth  = 32 // products of one sum
)

func (g *gen) tileLoops() {
	g.power = g.powers[len(g.powers)-1] // Intel's
	g.limitConstants()
	g.hiddenConstants()
	g.power.constants(g)
	for vecs := 1; vecs <= g.vecs; vecs++ {
		for _, rows := range partsOfRows {
			g.tileScore(vecs, rows)
			g.tileFlash(vecs, rows)
		}
		g.hideOutside(vecs)
	}
	for tiles := 1; tiles <= 4; tiles++ {
		for _, rows := range partsOfRows {
			g.tileMix(tiles, rows)
		}
	}
	g.constant(fullTiles, "16 rows of 64 bytes, all eight", func(i int) uint32 {
		switch {
		case i == 0:
			return 1 // the only kind there is
		case i/4 == 1:
			return line<<16 | line
		case i/2 == 6:
			return tileRows * 0x01010101
		}
		return 0
	})
	g.tilePeak()
	g.chain()
	g.slots()
	for _, rows := range partsOfRows {
		g.cutRows(rows)
		g.cutColumns(rows)
	}
	g.cutPairs()
}

// partsOf says how many parts of rows of keys and values there are: all, or one, as rows of bfloat16 have. Then half of the six products are left.
type partsOf struct {
	name  string // behind those of the loops
	count int
}

var partsOfRows = []partsOf{{"", 3}, {"Half", 1}}

// products is how many products of a part of rows and one of queries or weights there are.
func (p partsOf) products() (n int) {
	for b := range 3 {
		n += min(3-b, p.count)
	}
	return n
}

// tileScore emits the products of keys and queries.
func (g *gen) tileScore(vecs int, rows partsOf) {
	x := g.isa.(x86)
	g.function(fmt.Sprint("Score", rows.name, vecs), "(q, k *uint16, p *float32, groups, steps int, config *tileConfig)", 0, 48, fmt.Sprintf(`
for i := range %[1]d * groups { // %[1]d at a time, or the rows that config says
	for lane := range %[2]d {
		p[i*%[3]d+lane] = Σ k[i][c] * q[c][lane] // over %[4]d*steps columns, by parts
	}
}`, tileRows, vecs*g.vec, g.vecs*g.vec, tileDepth))
	g.arg(elem, "q", 0)
	g.arg(lanes, "k", 8)
	g.arg(out, "p", 16)
	g.arg(count, "groups", 24)
	g.arg(panel, "config", 40)
	x.tileConfig(panel)
	g.set(stride, line)
	g.set(outStride, g.row())
	g.label("group")
	g.move(elemAt, elem)
	g.arg(steps, "steps", 32)
	for v := range vecs {
		x.tileZero(v)
	}
	g.label("step")
	g.scoreStep(vecs, rows, nil)
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "step")
	for v := range vecs {
		x.tileStore(v, mem{base: out, index: outStride, times: 1, off: v * g.bytes()})
	}
	g.increase(out, tileRows*g.row())
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "group")
	x.tileRelease()
	g.ret()
}

const fullTiles constant = "fullTiles"

// tilesOfNothing makes all tiles 0.
func (g *gen) tilesOfNothing() {
	x := g.isa.(x86)
	x.emit("LEAQ", x.o(fullTiles), x86Regs[panel])
	x.tileConfig(panel)
	for t := range 8 {
		x.tileZero(t)
	}
}

// tilePeak emits the probe of products: six of parts for each of numbers, with sums that nothing joins.
func (g *gen) tilePeak() {
	x := g.isa.(x86)
	g.function("Peak", "(rounds int)", 0, 8, fmt.Sprintf(`
for range rounds {
	for t := range 6 {
		sum[t] += a * b // tiles of %d x %d x %d products
	}
}`, tileRows, g.vec, tileDepth))
	g.arg(count, "rounds", 0)
	g.tilesOfNothing()
	g.label("round")
	for t := range 6 {
		x.tileProduct(t, 6, 7)
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "round")
	x.tileRelease()
	g.ret()
}

// scoreStep emits a step of the sums of a group, and amid its products other instructions.
func (g *gen) scoreStep(vecs int, rows partsOf, strewn []string) {
	x := g.isa.(x86)
	for part := range rows.count {
		x.tileLoad(3+part, lineBy(lanes, part*tileBytes))
	}
	strew := g.strew(vecs*rows.products(), strewn)
	for v := range vecs {
		for b := range 3 {
			t := 6 + (3*v+b)%2
			x.tileLoad(t, lineBy(elemAt, v*partsBytes+b*tileBytes))
			for a := range min(3-b, rows.count) {
				x.tileProduct(v, 3+a, t)
				strew()
			}
		}
	}
	g.increase(lanes, partsBytes)
	g.increase(elemAt, g.vecs*partsBytes)
}

// tileFlash emits Ops.Flash for whole groups: weights of one group amid the products of the next, half a group, as many rows as Exp
// takes, in each step. Those that steps leave, and the last group's, go alone. With each half two lines of as many rows elsewhere are asked for, from next on.
func (g *gen) tileFlash(vecs int, rows partsOf) {
	x := g.isa.(x86)
	const weights, sums, next, by = lanesAt, elemAt4, nextRow, stride3
	half := g.rows * g.row()
	g.function(fmt.Sprint("Flash", rows.name, vecs), "(q, k *uint16, p, m, l *float32, groups, steps int, config *tileConfig, next uintptr, by int, lo, hi *int32, key, hidden int) (done int)", 8, 120, fmt.Sprintf(`
for j := 0; j < %[1]d*groups; j += %[2]d {
	if j%%%[1]d == 0 {
		Score of %[1]d rows, and HideOutside in the last hidden groups
	}
	if any p[i*%[4]d+lane] > m[lane]+Limit { // j <= i < j+%[2]d
		return j
	}
	for lane := range %[3]d {
		l[lane] += Σ e // over the rows, with e = 2^(p[i*%[4]d+lane] - m[lane])
		p[i*%[4]d+lane] = e
	}
}
return %[1]d*groups`, tileRows, g.rows, vecs*g.vec, g.vecs*g.vec))
	g.arg(elem, "q", 0)
	g.arg(lanes, "k", 8)
	g.arg(out, "p", 16)
	g.arg(refs, "m", 24)
	g.arg(sums, "l", 32)
	g.arg(count, "groups", 40)
	g.arg(panel, "config", 56)
	g.arg(next, "next", 64)
	g.arg(by, "by", 72)
	g.jumpAtLeast(by, 1, "next")
	g.move(next, elem)
	g.label("next")
	x.tileConfig(panel)
	g.set(stride, line)
	g.set(outStride, g.row())
	begin := func() {
		g.move(elemAt, elem)
		g.arg(steps, "steps", 48)
		for v := range vecs {
			x.tileZero(v)
		}
	}
	check := func() {
		const top, highest, score = vec(0), vec(1), vec(2)
		for v := range vecs {
			g.load(top, mem{base: refs, off: v * g.bytes()})
			g.add(highest, top, limit)
			for r := range g.rows {
				g.load(score, mem{base: weights, off: r*g.row() + v*g.bytes()})
				g.larger(top, score, top)
			}
			g.jumpAbove(top, highest, "over")
		}
	}
	strewn := g.lines(func() {
		const ref, sum, e = vec(0), vec(1), vec(4)
		for v := range vecs {
			g.load(ref, mem{base: refs, off: v * g.bytes()})
			g.zero(sum)
			for r := range g.rows {
				at := mem{base: weights, off: r*g.row() + v*g.bytes()}
				g.exp2([4]vec{2, 3, e, 5}, at, ref)
				g.store(at, e)
				g.add(sum, sum, e)
				if v == 0 {
					g.prefetch(mem{base: next})
					g.prefetch(mem{base: next, off: line})
					g.plus(next, by)
				}
			}
			at := mem{base: sums, off: v * g.bytes()}
			g.add(sum, sum, at)
			g.store(at, sum)
		}
	})
	g.move(weights, out)
	begin()
	g.jump("plain")
	g.align()
	g.label("group")
	begin()
	g.label("mixed")
	check()
	g.scoreStep(vecs, rows, strewn)
	g.increase(weights, half)
	g.increase(steps, -1)
	g.jumpBelow(steps, 1, "stepped")
	g.jumpLess(weights, out, "mixed")
	g.label("plain")
	g.scoreStep(vecs, rows, nil)
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "plain")
	g.label("stepped")
	g.jumpLess(weights, out, "alone")
	g.jump("scored")
	g.label("alone")
	check()
	for _, line := range strewn {
		g.text.WriteString(line)
	}
	g.increase(weights, half)
	g.jumpLess(weights, out, "alone")
	g.jumpBelow(count, 1, "over")
	g.label("scored")
	for v := range vecs {
		x.tileStore(v, mem{base: out, index: outStride, times: 1, off: v * g.bytes()})
	}
	g.arg(steps, "hidden", 104)
	g.jumpLess(steps, count, "shown")
	g.arg(steps, "groups", 40)
	g.subtract(steps, count)
	g.scale(steps, tileRows)
	g.arg(elemAt, "key", 96)
	g.plus(elemAt, steps)
	g.broadcastInt(keyOfRow, elemAt)
	g.arg(steps, "lo", 80)
	g.arg(elemAt, "hi", 88)
	g.bounds(vecs, steps, elemAt)
	g.move(elemAt, out)
	g.set(steps, tileRows)
	g.hideRows(vecs, elemAt, steps)
	g.label("shown")
	g.increase(out, tileRows*g.row())
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "group")
	g.jump("alone")
	g.label("over")
	g.arg(out, "p", 16)
	g.subtract(weights, out)
	g.result("done", 112, weights)
	x.tileRelease()
	g.ret()
}

// hideOutside emits the mask of Flash, for a whole row at a time.
func (g *gen) hideOutside(vecs int) {
	g.function(fmt.Sprint("HideOutside", vecs), "(p *float32, lo, hi *int32, key, rows int)", 0, 40, fmt.Sprintf(`
for i := range rows {
	p[i*%[2]d+lane] = -Inf where !(lo[lane] <= key+i && key+i < hi[lane]) // lane < %[1]d
}`, vecs*g.vec, g.vecs*g.vec))
	g.arg(elemAt, "key", 24)
	g.broadcastInt(keyOfRow, elemAt)
	g.arg(steps, "lo", 8)
	g.arg(elemAt, "hi", 16)
	g.bounds(vecs, steps, elemAt)
	g.arg(elemAt, "p", 0)
	g.arg(steps, "rows", 32)
	g.hideRows(vecs, elemAt, steps)
	g.ret()
}

// Registers of a mask: the key of the row at hand, and from where and up to where lanes see keys.
const (
	keyOfRow, oneMore, hiddenScore = vec(0), vec(1), vec(2)
	firstLo, firstHi               = vec(4), vec(8)
)

// bounds fetches what hideRows compares with.
func (g *gen) bounds(vecs int, lo, hi reg) {
	for v := range vecs {
		g.load(firstLo+vec(v), mem{base: lo, off: v * g.bytes()})
		g.load(firstHi+vec(v), mem{base: hi, off: v * g.bytes()})
	}
	g.load(oneMore, next)
	g.load(hiddenScore, hidden)
}

// hideRows emits a loop over rows.
func (g *gen) hideRows(vecs int, at, rows reg) {
	x := g.isa.(x86)
	g.label("hide")
	for v := range vecs {
		x.emit("VPCMPGTD", x.v(keyOfRow), x.v(firstLo+vec(v)), "K1")
		x.emit("VPCMPD", imm(2), x.v(keyOfRow), x.v(firstHi+vec(v)), "K2")
		x.emit("KORW", "K1", "K2", "K1")
		x.emit("VMOVUPS", x.v(hiddenScore), "K1", x.m(mem{base: at, off: v * g.bytes()}))
	}
	g.addInt(keyOfRow, keyOfRow, oneMore)
	g.increase(at, g.row())
	g.increase(rows, -1)
	g.jumpAtLeast(rows, 1, "hide")
}

// tileMix emits the products of weights and values, for one vector of lanes and so many tiles of columns. Weights are cut to one of two places by turns, amid
// the products of those in the other one. What was there is added after the products, as a sum in a tile counts as 0 below 2^-126.
func (g *gen) tileMix(tiles int, parts partsOf) {
	x := g.isa.(x86)
	const width, by, next, from, to = stride3, aux, elemAt4, elem, elemAt
	g.function(fmt.Sprint("Mix", parts.name, tiles), "(v *uint16, p, o, keep *float32, rows, by, columns, fresh int, config *tileConfig)", 2*partsBytes+64, 72, fmt.Sprintf(`
for c := range columns { // up to %[1]d
	for lane := range %[2]d {
		sum := Σ v[j][c] * p[j*%[3]d+lane] // over the rows, by parts: those of v are by bytes apart for %[4]d rows
		if fresh == 0 {
			sum = fma(o[c*%[3]d+lane], keep[lane], sum)
		}
		o[c*%[3]d+lane] = sum
	}
}`, tiles*tileRows, g.vec, g.vecs*g.vec, tileDepth))
	g.scratch(products)
	g.move(next, products)
	g.increase(next, partsBytes)
	g.arg(lanes, "v", 0)
	g.arg(out, "o", 16)
	g.arg(by, "by", 40)
	g.arg(panel, "config", 64)
	x.tileConfig(panel)
	g.set(stride, line)
	g.set(width, g.row())
	for t := range tiles {
		x.tileZero(t)
	}
	g.arg(from, "p", 8)
	g.arg(count, "rows", 32)
	x.partBits()
	g.jumpBelow(count, 1, "sums")
	g.move(to, products)
	g.joinedRows("first", false)
	step := func(strewn []string) {
		strew := g.strew(tiles*parts.products(), strewn)
		ahead := g.strew(tiles*parts.products(), g.lines(func() {
			g.offset(elemAt, lanes, by, 1)
			for off := 0; off < tiles*partsBytes; off += line {
				if off%partsBytes < parts.count*tileBytes {
					g.prefetchNear(mem{base: elemAt, off: off})
				}
			}
		}))
		for part := range 3 {
			x.tileLoad(5+part, lineBy(products, part*tileBytes))
		}
		for t := range tiles {
			for a := range parts.count {
				x.tileLoad(4, lineBy(lanes, t*partsBytes+a*tileBytes))
				for b := range 3 - a {
					x.tileProduct(t, 4, 5+b)
					strew()
					ahead()
				}
			}
		}
		g.plus(lanes, by)
		x.swap(products, next)
	}
	g.jumpBelow(count, tileDepth, "rest")
	g.align()
	g.label("rows")
	step(g.lines(func() {
		for i := range tileDepth / 2 {
			const even, odd = vec(0), vec(2)
			g.load(even, mem{base: from, off: 2 * i * g.row()})
			g.load(odd, mem{base: from, off: (2*i + 1) * g.row()})
			x.joinParts(even, odd, func(part int, word vec) { g.store(mem{base: next, off: part*tileBytes + i*line}, word) })
		}
	}))
	g.increase(from, tileDepth*g.row())
	g.increase(count, -tileDepth)
	g.jumpAtLeast(count, tileDepth, "rows")
	g.label("rest")
	step(nil)
	g.jumpBelow(count, 1, "sums")
	g.move(to, products)
	g.joinedRows("last", false)
	step(nil)
	g.label("sums")
	g.arg(steps, "fresh", 56)
	g.jumpBelow(steps, 1, "add")
	for t := range tiles {
		x.tileStore(t, mem{base: out, index: width, times: 1, off: t * tileRows * g.row()})
	}
	x.tileRelease()
	g.ret()
	g.label("add")
	g.scratch(products)
	for t := range tiles {
		x.tileStore(t, lineBy(products, t*tileBytes))
	}
	g.arg(from, "keep", 24)
	g.load(0, mem{base: from})
	g.arg(count, "columns", 48)
	g.label("column")
	g.load(1, mem{base: products})
	g.fma(1, 0, mem{base: out})
	g.store(mem{base: out}, 1)
	g.increase(products, line)
	g.increase(out, g.row())
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "column")
	x.tileRelease()
	g.ret()
}

// cutRows emits the parts of up to 16 rows and columns, those of half a tile. Columns that the mask lacks count as 0.
func (g *gen) cutRows(parts partsOf) {
	x := g.isa.(x86)
	g.function("CutRows"+parts.name, "(to *uint16, from *float32, rows, stride, mask int)", 0, 40, `
for j := range rows {
	for c := range 16 {
		to[j*32+c], to[j*32+c+512], to[j*32+c+1024] = parts(from[j*stride+c])
	}
}`)
	g.cutArgs()
	g.label("row")
	x.loadMasked(0, mem{base: elem})
	for part := range parts.count {
		x.part(0, 1, part == 0)
		x.emit("VPSRLD", imm(16), x.v(1), x.v(1))
		x.emit("VPMOVDW", x.v(1), x.m(mem{base: out, off: part * tileBytes}))
	}
	g.offset(elem, elem, stride, 4)
	g.increase(out, line)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	g.ret()
}

// cutColumns emits the parts of up to 32 rows and 16 columns, which become a tile's rows: pairs of rows are joined, and all 16 pairs transposed. Others count as 0.
// Small is not 0 if there are numbers below 2^leastCut.
func (g *gen) cutColumns(parts partsOf) {
	x := g.isa.(x86)
	g.function("CutColumns"+parts.name, "(to *uint16, from *float32, rows, stride, mask int) (small int)", 2*tileBytes+64, 48, `
for c := range 16 {
	for j := range 32 {
		to[c*32+j], to[c*32+j+512], to[c*32+j+1024] = parts(from[j*stride+c]) // or of 0, from rows on
	}
}`)
	const even, odd, magnitude, lowest, sign, one = vec(16), vec(18), vec(20), vec(21), vec(22), vec(23)
	g.cutArgs()
	x.emit("VPSLLD", imm(15), x.v(upper16), x.v(sign))
	x.emit("VPSRLD", imm(15), x.v(half16), x.v(one))
	x.emit("VPTERNLOGD", imm(0xff), x.v(lowest), x.v(lowest), x.v(lowest))
	load := func(v vec, m mem) {
		x.loadMasked(v, m)
		x.emit("VPANDND", x.v(v), x.v(sign), x.v(magnitude))
		x.subInt(magnitude, magnitude, one)
		x.emit("VPMINUD", x.v(magnitude), x.v(lowest), x.v(lowest))
	}
	g.scratch(products)
	kept := func(part, i int) mem { return mem{base: products, off: (part-1)*tileBytes + i*line} }
	for i := range 16 {
		none := fmt.Sprint("none", i)
		g.zero(even)
		g.zero(odd)
		g.jumpBelow(count, 2*i+1, none)
		load(even, mem{base: elem})
		g.jumpBelow(count, 2*i+2, none)
		load(odd, mem{base: elem, index: stride, times: 4})
		g.label(none)
		x.joinParts(even, odd, func(part int, word vec) {
			if part == 0 {
				g.load(vec(i), word)
			} else if part < parts.count {
				g.store(kept(part, i), word)
			}
		})
		g.offset(elem, elem, stride, 8)
	}
	g.set(steps, (127+leastCut)<<fraction-1)
	x.emit("VPBROADCASTD", x86Regs[steps], x.v(magnitude))
	x.emit("VPCMPUD", imm(1), x.v(magnitude), x.v(lowest), "K1")
	x.emit("KMOVW", "K1", x86Regs[steps])
	g.result("small", 40, steps)
	for part := range parts.count {
		for i := 0; i < 16 && part > 0; i++ {
			g.load(vec(i), kept(part, i))
		}
		g.transpose()
		for i := range 16 {
			g.store(mem{base: out, off: part*tileBytes + i*line}, vec(i))
		}
	}
	g.ret()
}

// leastCut is the exponent of the least number that is cut: products of its parts with those of a weight are not 0 while the weight is 2^-50. What products of tiles
// would be below 2^-126 is 0 there, and so is an operand.
const leastCut = -60

// cutPairs emits the parts of up to 32 rows of a vector of lanes, the rows after them counting as 0.
func (g *gen) cutPairs() {
	x := g.isa.(x86)
	g.function("CutPairs", "(to *uint16, from *float32, rows int, factor float32)", 0, 28, fmt.Sprintf(`
for j := range 32 {
	for lane := range 16 {
		at := j/2*32 + 2*lane + j%%2
		to[at], to[at+512], to[at+1024] = parts(from[j*%d+lane] * factor) // or of 0, from rows on
	}
}`, g.vecs*g.vec))
	g.arg(elemAt, "to", 0)
	g.arg(elem, "from", 8)
	g.arg(count, "rows", 16)
	g.argFloat(factor, "factor", 24)
	x.partBits()
	g.joinedRows("rows", true)
	g.ret()
}

// factor is the register of what cutPairs multiplies by.
const factor = vec(29)

// cutArgs fetches the arguments of cutRows and cutColumns.
func (g *gen) cutArgs() {
	x := g.isa.(x86)
	g.arg(out, "to", 0)
	g.arg(elem, "from", 8)
	g.arg(count, "rows", 16)
	g.arg(stride, "stride", 24)
	g.arg(steps, "mask", 32)
	x.emit("KMOVW", x86Regs[steps], "K1")
	x.partBits()
}

// joinedRows emits the parts of up to 32 of count rows at elem, which it moves on, joined by pairs, to the tiles at elemAt; queries are multiplied by the factor and
// rounded, as each of them counts for all keys.
func (g *gen) joinedRows(name string, queries bool) {
	x := g.isa.(x86)
	const even, odd, end = vec(0), vec(2), lanesAt
	join := func() {
		x.joinParts(even, odd, func(part int, word vec) { g.store(mem{base: elemAt, off: part * tileBytes}, word) })
		g.increase(elemAt, line)
	}
	load := func(to vec, row int) {
		at := mem{base: elem, off: row * g.row()}
		if queries {
			g.mul(to, factor, at)
		} else {
			g.load(to, at)
		}
	}
	g.move(end, elemAt)
	g.increase(end, tileBytes)
	g.jumpBelow(count, 2, name+"Odd")
	g.label(name + "Pair")
	load(even, 0)
	load(odd, 1)
	join()
	g.increase(elem, 2*g.row())
	g.increase(count, -2)
	g.jumpLess(elemAt, end, name+"More")
	g.jump(name + "Done")
	g.label(name + "More")
	g.jumpAtLeast(count, 2, name+"Pair")
	g.label(name + "Odd")
	g.jumpBelow(count, 1, name+"Rest")
	load(even, 0)
	g.zero(odd)
	join()
	g.increase(count, -1)
	g.label(name + "Rest")
	g.zero(even)
	g.jump(name + "Full")
	g.label(name + "Empty")
	for part := range 3 {
		g.store(mem{base: elemAt, off: part * tileBytes}, even)
	}
	g.increase(elemAt, line)
	g.label(name + "Full")
	g.jumpLess(elemAt, end, name+"Empty")
	g.label(name + "Done")
}

const (
	upper16 = vec(31) // the bits of a bfloat16,
	half16  = vec(30) // and half of what the last of them is worth
)

// partBits sets the registers that part uses.
func (x x86) partBits() {
	x.emit("VPTERNLOGD", imm(0xff), x.v(upper16), x.v(upper16), x.v(upper16))
	x.emit("VPSRLD", imm(31), x.v(upper16), x.v(half16))
	x.emit("VPSLLD", imm(15), x.v(half16), x.v(half16))
	x.emit("VPSLLD", imm(16), x.v(upper16), x.v(upper16))
}

// part takes the bfloat16 nearest to v off it, or the nearest one towards 0. A NaN stays one, in some part: of what is left of it none is rounded.
func (x x86) part(v, part vec, rounded bool) {
	if rounded {
		x.addInt(part, v, half16)
		x.emit("VPANDD", x.v(part), x.v(upper16), x.v(part))
	} else {
		x.emit("VPANDD", x.v(v), x.v(upper16), x.v(part))
	}
	x.sub(v, v, part)
}

// joinParts has do take the three parts of two vectors, those of even in the lower halves of its elements and those of odd in the upper ones. It destroys both,
// and the registers after them.
func (x x86) joinParts(even, odd vec, do func(part int, word vec)) {
	for part := range 3 {
		word, high := even+1, odd+1
		if part < 2 {
			x.part(even, word, part == 0)
			x.part(odd, high, part == 0)
		} else {
			word, high = even, odd
			x.emit("VPANDD", x.v(odd), x.v(upper16), x.v(odd))
		}
		x.shiftRight(word, word, 16)
		x.emit("VPORD", x.v(high), x.v(word), x.v(word))
		do(part, word)
	}
}

func (x x86) loadMasked(dst vec, m mem) { x.emit("VMOVUPS.Z", x.m(m), "K1", x.v(dst)) }

// lineBy is an operand of a tile: rows that follow one another.
func lineBy(base reg, off int) mem { return mem{base: base, index: stride, times: 1, off: off} }

// Go's assembler does not know tiles: their instructions are bytes. All begin with a VEX prefix of three, whose second says which of a register's
// upper eight the operands are, and the third the tile B and what is a prefix elsewhere.
const (
	vexNone = 0x78 + iota // no prefix
	_
	vexF3
	vexF2
)

func (x x86) bytes(instruction string, code ...byte) {
	s := make([]string, len(code))
	for i, b := range code {
		s[i] = fmt.Sprintf("BYTE $%#02x", b)
	}
	fmt.Fprintf(x.text, "\t%s // %s\n", strings.Join(s, "; "), instruction)
}

// places are the numbers of integer registers.
var places = map[string]byte{"AX": 0, "CX": 1, "DX": 2, "BX": 3, "BP": 5, "SI": 6, "DI": 7, "R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15}

// tileMemory is an instruction with an address, whose displacement has four bytes.
func (x x86) tileMemory(format string, prefix byte, t int, m mem) {
	base, index := places[x86Regs[m.base]], places[x86Regs[m.index]]
	code := []byte{0xc4, 0xe2 &^ (index >> 3 << 6) &^ (base >> 3 << 5), prefix, 0x4b, 0x84 | byte(t)<<3, index&7<<3 | base&7}
	x.bytes(fmt.Sprintf(format, x.m(m), t), binary.LittleEndian.AppendUint32(code, uint32(m.off))...)
}

func (x x86) tileLoad(t int, m mem) { x.tileMemory("TILELOADD %s, T%d", vexF2, t, m) }

func (x x86) tileStore(t int, m mem) { x.tileMemory("TILESTORED T%[2]d, %[1]s", vexF3, t, m) }

func (x x86) tileZero(t int) {
	x.bytes(fmt.Sprintf("TILEZERO T%d", t), 0xc4, 0xe2, vexF2, 0x49, 0xc0|byte(t)<<3)
}

// tileProduct is C += A*B.
func (x x86) tileProduct(c, a, b int) {
	x.bytes(fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", b, a, c), 0xc4, 0xe2, vexF3&^(byte(b)<<3), 0x5c, 0xc0|byte(c)<<3|byte(a))
}

func (x x86) tileConfig(at reg) {
	x.bytes(fmt.Sprintf("LDTILECFG (%s)", x86Regs[at]), 0xc4, 0xe2, vexNone, 0x49, places[x86Regs[at]])
}

func (x x86) tileRelease() { x.bytes("TILERELEASE", 0xc4, 0xe2, vexNone, 0x49, 0xc0) }

func (x x86) swap(a, b reg) { x.emit("XCHGQ", x86Regs[a], x86Regs[b]) }
