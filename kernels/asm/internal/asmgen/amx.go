package asmgen

import "fmt"

// AMX has eight registers, T0 to T7, each an AMX tile of 16 rows of 64 bytes. TDPBF16PS adds the
// products of 32 pairs of bf16 numbers to each of 16 x 16 float32 sums. It multiplies a row of one
// AMX tile by a column of another, which stores two rows of numbers in each of its rows:
//
//	C[i][l] += Σ_k A[i][k] B[k/2][2l+k%2]    k < 32
//
// A float32 number is split into the sum of three bf16 terms. A product of two numbers is the sum
// of six products of terms; the other three are together at most some 2^-22 of it. For 16 keys, 48
// lanes and d = 64 these are 36 products of AMX tiles, of 16 cycles each: 576 cycles. The 3072
// multiply-adds of AVX-512, two a cycle, take 1536.
//
// Terms are stored as AMX tiles: three consecutive ones for the terms of each tile of numbers. Keys
// are A in Score, 16 keys by 32 columns; values are A in Mix, 16 columns by 32 keys. Queries, 32
// columns by 16 lanes, and weights, 32 keys by 16 lanes, are B. Of 32 columns of keys and queries,
// column c is stored beside column c+16, so two vectors of a row are joined as they are loaded.
//
//	Score   T0 to T2 sums of one group of keys and all vectors of lanes, T3 to T5 terms of keys,
//	        T6 and T7 alternately terms of queries
//	Mix     T0 to T3 sums of up to 64 columns and one vector of lanes, T4 each term of values,
//	        T5 to T7 terms of weights
//
// The other units split the weights of the next keys into terms while AMX tiles are multiplied.
// Rows of bf16 have one term a number, and loops of their own with half of the products.
var amx = func() *target {
	t := *avx512
	t.name = "amx"
	return &t
}()

const (
	tileRows   = 16
	tileBytes  = tileRows * line
	termsBytes = 3 * tileBytes
	tileDepth  = 32 // products in one sum
)

func (g *gen) tileLoops() {
	g.power = g.powers[len(g.powers)-1] // the last, with the fewest instructions
	g.limitConstants()
	g.hiddenConstants()
	g.power.constants(g)
	for vecs := 1; vecs <= g.vecs; vecs++ {
		for _, rows := range termCounts {
			g.tileScore(vecs, rows)
			g.tileFlash(vecs, rows)
		}
		g.hideOutside(vecs)
		g.tileDScore(vecs)
		for _, tiles := range outerTiles {
			g.tileOuter(vecs, tiles)
		}
	}
	for tiles := 1; tiles <= 4; tiles++ {
		for _, rows := range termCounts {
			g.tileMix(tiles, rows)
		}
	}
	g.constant(fullTiles, "16 rows of 64 bytes, all eight", func(i int) uint32 {
		switch {
		case i == 0:
			return 1 // the palette, of which there is one
		case i/4 == 1:
			return line<<16 | line
		case i/2 == 6:
			return tileRows * 0x01010101
		}
		return 0
	})
	g.tilePeak()
	for _, rows := range termCounts {
		g.packRows(rows)
		g.packColumns(rows)
	}
	g.packLanes()
	g.packLines()
}

// termCount is the number of terms of a number in rows of keys and values: three, or one in rows of
// bf16. With one, three of the six products are left.
type termCount struct {
	name  string // suffix of the loops' names
	count int
}

var termCounts = []termCount{{"", 3}, {"Single", 1}}

// products returns the number of products of the terms of rows with those of queries or weights.
func (p termCount) products() (n int) {
	for b := range 3 {
		n += min(3-b, p.count)
	}
	return n
}

// tileScore emits the products of keys and queries.
func (g *gen) tileScore(vecs int, rows termCount) {
	x := g.isa.(x86)
	g.function(fmt.Sprint("Score", rows.name, vecs), "(q, k *uint16, p *float32, groups, steps int, config *tileConfig)", 0, 48, fmt.Sprintf(`
for i := range %[1]d * groups { // %[1]d at a time, or the number of rows in config
	for lane := range %[2]d {
		p[i*%[3]d+lane] = Σ k[i][c] * q[c][lane] // over %[4]d*steps columns, by terms
	}
}`, tileRows, vecs*g.vec, g.vecs*g.vec, tileDepth))
	g.take(panel, lanes, elem, elemAt, stride, out, count, steps, outStride)
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
		x.tileStore(v, mem{base: out, index: outStride, times: 1, vectors: v})
	}
	g.increase(out, tileRows*g.row())
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "group")
	x.tileRelease()
	g.ret()
}

const fullTiles constant = "fullTiles"

// tilePeak emits the probe of products: six products of terms for each product of numbers, with
// independent sums.
func (g *gen) tilePeak() {
	x := g.isa.(x86)
	g.function("Peak", "(rounds int)", 0, 8, fmt.Sprintf(`
for range rounds {
	for t := range 6 {
		sum[t] += a * b // AMX tiles: %d x %d x %d products
	}
}`, tileRows, g.vec, tileDepth))
	g.take(panel, count)
	g.arg(count, "rounds", 0)
	x.emit("LEAQ", x.o(fullTiles), x.register(panel))
	x.tileConfig(panel)
	for t := range 8 {
		x.tileZero(t)
	}
	g.label("round")
	for t := range 6 {
		x.tileProduct(t, 6, 7)
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "round")
	x.tileRelease()
	g.ret()
}

// scoreStep emits a step of the sums of a group, with other instructions strewn among its products.
func (g *gen) scoreStep(vecs int, rows termCount, strewn []string) {
	x := g.isa.(x86)
	for term := range rows.count {
		x.tileLoad(3+term, lineBy(lanes, term*tileBytes))
	}
	strew := g.strew(vecs*rows.products(), strewn)
	for v := range vecs {
		for b := range 3 {
			t := 6 + (3*v+b)%2
			x.tileLoad(t, lineBy(elemAt, v*termsBytes+b*tileBytes))
			for a := range min(3-b, rows.count) {
				x.tileProduct(v, 3+a, t)
				strew()
			}
		}
	}
	g.increase(lanes, termsBytes)
	g.increase(elemAt, g.vecs*termsBytes)
}

// tileFlash emits Ops.Flash for whole groups: the weights of one group amid the products of the
// next. Each step computes half a group of weights, as many rows as Exp computes at once. The
// weights of the last group, and weights for which there are too few steps, are computed alone.
// With each half it prefetches two lines of each of as many rows elsewhere, starting at next.
func (g *gen) tileFlash(vecs int, rows termCount) {
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
	g.take(panel, lanes, lanesAt, elem, elemAt, elemAt4, stride, stride3, out, count, steps, refs, nextRow, outStride)
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
		g.vectors(span{"top", top, 1}, span{"highest", highest, 1}, span{"score", score, 1})
		defer g.freeVectors()
		for v := range vecs {
			g.load(top, mem{base: refs, vectors: v})
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
		g.vectors(span{"ref", ref, 1}, span{"sum", sum, 1}, span{"temps", 2, 4})
		defer g.freeVectors()
		for v := range vecs {
			g.load(ref, mem{base: refs, vectors: v})
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
			at := mem{base: sums, vectors: v}
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
		x.tileStore(v, mem{base: out, index: outStride, times: 1, vectors: v})
	}
	g.arg(steps, "hidden", 104)
	g.jumpLess(steps, count, "shown")
	g.arg(steps, "groups", 40)
	g.subtract(steps, count)
	g.scale(steps, tileRows)
	g.takeMask(vecs)
	g.arg(elemAt, "key", 96)
	g.plus(elemAt, steps)
	g.broadcastInt(keyOfRow, elemAt)
	g.arg(steps, "lo", 80)
	g.arg(elemAt, "hi", 88)
	g.bounds(vecs, steps, elemAt)
	g.move(elemAt, out)
	g.set(steps, tileRows)
	g.hideRows(vecs, elemAt, steps)
	g.freeVectors()
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

// hideOutside emits the mask of Flash, a whole row at a time.
func (g *gen) hideOutside(vecs int) {
	g.function(fmt.Sprint("HideOutside", vecs), "(p *float32, lo, hi *int32, key, rows int)", 0, 40, fmt.Sprintf(`
for i := range rows {
	p[i*%[2]d+lane] = -Inf where !(lo[lane] <= key+i && key+i < hi[lane]) // lane < %[1]d
}`, vecs*g.vec, g.vecs*g.vec))
	g.take(elemAt, steps)
	g.takeMask(vecs)
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

// Registers of a mask: the current row's key, one, the score of a hidden key, and for each vector
// of lanes the first visible key and the end of the visible keys.
const (
	keyOfRow, oneMore, hiddenScore = vec(0), vec(1), vec(2)
	firstLo, firstHi               = vec(4), vec(8)
)

// takeMask takes the registers of the mask.
func (g *gen) takeMask(vecs int) {
	g.vectors(span{"keyOfRow", keyOfRow, 1}, span{"oneMore", oneMore, 1}, span{"hiddenScore", hiddenScore, 1}, span{"lo", firstLo, vecs}, span{"hi", firstHi, vecs})
}

// bounds loads the bounds that hideRows compares with.
func (g *gen) bounds(vecs int, lo, hi reg) {
	for v := range vecs {
		g.load(firstLo+vec(v), mem{base: lo, vectors: v})
		g.load(firstHi+vec(v), mem{base: hi, vectors: v})
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
		x.emit("VMOVUPS", x.v(hiddenScore), "K1", x.m(mem{base: at, vectors: v}))
	}
	g.addInt(keyOfRow, keyOfRow, oneMore)
	g.increase(at, g.row())
	g.increase(rows, -1)
	g.jumpAtLeast(rows, 1, "hide")
}

// tileMix emits the products of weights and values, for one vector of lanes and tiles AMX tiles of
// columns. Weights are split into terms in one of two buffers while the terms in the other are
// multiplied. The old output is added after the products, because an AMX tile takes a sum below
// 2^-126 as 0.
func (g *gen) tileMix(tiles int, terms termCount) {
	x := g.isa.(x86)
	const width, by, next, from, to = stride3, aux, elemAt4, elem, elemAt
	g.function(fmt.Sprint("Mix", terms.name, tiles), "(v *uint16, p, o, keep *float32, rows, by, columns, fresh int, config *tileConfig)", 2*termsBytes+64, 72, fmt.Sprintf(`
for c := range columns { // up to %[1]d
	for lane := range %[2]d {
		sum := Σ v[j][c] * p[j*%[3]d+lane] // over the rows, by terms; by is the bytes of %[4]d rows of v
		if fresh == 0 {
			sum = fma(o[c*%[3]d+lane], keep[lane], sum)
		}
		o[c*%[3]d+lane] = sum
	}
}`, tiles*tileRows, g.vec, g.vecs*g.vec, tileDepth))
	g.take(panel, lanes, lanesAt, elem, elemAt, elemAt4, stride, stride3, out, count, steps, aux, products)
	g.takeTerms()
	g.scratch(products)
	g.move(next, products)
	g.increase(next, termsBytes)
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
	x.termBits()
	g.jumpBelow(count, 1, "sums")
	g.move(to, products)
	g.joinedRows("first")
	step := func(strewn []string) {
		strew := g.strew(tiles*terms.products(), strewn)
		for term := range 3 {
			x.tileLoad(5+term, lineBy(products, term*tileBytes))
		}
		for t := range tiles {
			for a := range terms.count {
				x.tileLoad(4, lineBy(lanes, t*termsBytes+a*tileBytes))
				for b := range 3 - a {
					x.tileProduct(t, 4, 5+b)
					strew()
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
			g.load(evenRow, mem{base: from, off: 2 * i * g.row()})
			g.load(oddRow, mem{base: from, off: (2*i + 1) * g.row()})
			x.joinTerms(evenRow, oddRow, 3, func(term int, word vec) { g.store(mem{base: next, off: term*tileBytes + i*line}, word) })
		}
	}))
	g.increase(from, tileDepth*g.row())
	g.increase(count, -tileDepth)
	g.jumpAtLeast(count, tileDepth, "rows")
	g.label("rest")
	step(nil)
	g.jumpBelow(count, 1, "sums")
	g.move(to, products)
	g.joinedRows("last")
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
	const kept, sum = vec(0), vec(1)
	g.freeVectors()
	g.vectors(span{"kept", kept, 1}, span{"sum", sum, 1})
	g.scratch(products)
	for t := range tiles {
		x.tileStore(t, lineBy(products, t*tileBytes))
	}
	g.arg(from, "keep", 24)
	g.load(kept, mem{base: from})
	g.arg(count, "columns", 48)
	g.label("column")
	g.load(sum, mem{base: products})
	g.fma(sum, kept, mem{base: out})
	g.store(mem{base: out}, sum)
	g.increase(products, line)
	g.increase(out, g.row())
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "column")
	x.tileRelease()
	g.ret()
}

// lineBy returns an operand of an AMX tile whose rows are contiguous.
func lineBy(base reg, off int) mem { return mem{base: base, index: stride, times: 1, off: off} }
