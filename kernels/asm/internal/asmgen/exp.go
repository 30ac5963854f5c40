package asmgen

import (
	"fmt"
	"math"
	"math/bits"
)

// A power is a way to compute 2^x.
type power struct {
	way       string // as package asm names it
	name      string // behind those of the loops that do it so
	ulps      string // how far off its results are at most
	emit      func(g *gen, t [4]vec, z mem, m operand)
	constants func(g *gen)
	asks      bool // whether Flash asks memory for Panel.Next meanwhile
}

// exp2 emits 2^(z-m) for one vector, in the way at hand. The result is in t[2]. NaN stays NaN.
func (g *gen) exp2(t [4]vec, z mem, m operand) { g.power.emit(g, t, z, m) }

// exp2Table and exp2Tables are exp2 where looking up costs products little or nothing. Let K be the length of a table that fits one or two vector registers, and n
// the multiple of 1/K nearest to x = z-m:
//
//	2^x = 2^⌊n⌋ * table[K*(n-⌊n⌋)] * 2^r    with r = x-n, |r| <= 1/2K
//
// Adding 1.5*2^23/K rounds x to a multiple of 1/K and leaves K*n in the low bits. Their lowest choose the table's entry; all of them, shifted
// so that the whole part meets the exponent, are added to its bits, and the table has made up for what the lowest add to the fraction.
// 2^r = 1 + r*q(r). With 8 entries q is of degree 2, off by 2e-8; with 32 it is of degree 1, off by 5e-8. The entry
// and the last multiply-add are rounded: together they are off by 1.25 and 1.75 ulp at most. Whole x are exact.
//
// Results up to 2^-100 are 0: times a value they would be subnormal, and a multiply-add that ends up so takes some CPUs a hundred cycles:
// without, rows of scores with a standard deviation of 30 took four times as long on a Xeon (family 6, model 207). So x is -100 at least, and 2^-100 is taken
// off at the end, which only results below 2^-75 notice. That takes no comparison, whose result AVX-512 has in a mask: on a Zen 4 each costs a multiply-add.
//
// What these instructions take from the loop around them is more than their products: the same ones in another order made Flash up to 2 % slower on a Zen 4, at
// d = 64. Of some hundred orders tried at random these were the best within what repeats.

// exp2Table has one vector of entries. q(r) is c*((r+a)²+b), where c is looked up along with the entry, by which it has been multiplied: so the products are
// three, and would be four with coefficients.
func (g *gen) exp2Table(t [4]vec, z mem, m operand) {
	isa := g.isa.(tabled)
	x, n, e, r := t[0], t[1], t[2], t[3]
	g.load(x, z)
	g.sub(x, x, m)
	g.load(n, least)
	g.max(x, n, x)
	g.add(n, x, round)
	isa.lookup(e, n, table)
	g.sub(r, n, round)
	g.sub(r, x, r)
	c := x
	isa.lookup(c, n, leads)
	g.shiftLeft(n, n, g.toExponent())
	g.addInt(e, e, n)
	g.addInt(c, c, n)
	g.mul(c, c, r)
	g.add(r, r, vertex)
	isa.muladd(r, r, rise)
	g.fma(e, c, r)
	g.sub(e, e, lightest)
}

// exp2Tables has two vectors of entries.
func (g *gen) exp2Tables(t [4]vec, z mem, m operand) {
	isa := g.isa.(tabled)
	x, n, e, r := t[0], t[1], t[2], t[3]
	g.load(n, least)
	g.load(x, z)
	g.sub(x, x, m)
	g.max(x, n, x)
	g.add(n, x, round)
	isa.lookupTwo(e, n, table, table2, r)
	g.sub(r, n, round)
	g.sub(r, x, r)
	g.shiftLeft(n, n, g.toExponent())
	g.addInt(e, e, n)
	g.load(n, square)
	isa.muladd(n, r, linear)
	g.mul(r, r, e)
	g.fma(e, r, n)
	g.sub(e, e, lightest)
}

// exp2Floored is exp2 where every instruction on vectors competes with the products, and where there is one that takes off whole numbers, and one that multiplies
// by 2 to a power that is rounded down. These are 10 for the 12 of exp2Tables. Let r be x-⌊x⌋:
//
//	2^x = 2^⌊x⌋ * 2^r    with 0 <= r < 1
//
// The polynomial has degree 6, which is off by 8e-9; with what is rounded, r among it, results are off by 1.6 ulp at most. It is 1 at 0: whole x are exact.
// Results up to 2^-100 are 0, and others lose nothing.
//
// A table of 32 entries took as many instructions. With it a call took .5 % longer on a Xeon (family 6, model 167), and as much longer with constants read as
// whole vectors, which costs power: AVX-512, d = 64, 512 keys, 1 head, 476 rounds by turns. With 2048 keys of 8 heads it was .3 % for the table.
func (g *gen) exp2Floored(t [4]vec, z mem, m operand) {
	isa := g.isa.(flooring)
	x, r, p := t[0], t[1], t[2]
	g.load(x, z)
	g.sub(x, x, m)
	isa.aboveFloor(r, x)
	isa.keepAbove(x, every(least))
	g.load(p, every(floored(flooredDegree)))
	for i := flooredDegree - 1; i >= 0; i-- {
		isa.muladd(p, r, every(floored(i)))
	}
	isa.scaleKept(p, x)
}

// toExponent is how far K*n is shifted.
func (g *gen) toExponent() int { return fraction - bits.Len(uint(g.entries)) + 1 }

const (
	fraction   = 23   // bits of a float32
	leastPower = -100 // weights up to 2 to this are 0
)

// The constants of exp2 and of the check before it.
const (
	least  constant = "least"  // -100
	round  constant = "round"  // adding it rounds
	table  constant = "table"  // 2^(i/K), less what i adds to the fraction
	table2 constant = "table2" // its second half, if it takes two vectors
	leads  constant = "leads"  // table times c of exp2Table
	vertex constant = "vertex" // a
	rise   constant = "rise"   // and b
	linear constant = "linear" // coefficients of exp2Tables
	square constant = "square"

	limit  constant = "limit" // Limit of package asm
	lowest constant = "lowest"

	whole    constant = "whole" // of Raise: adding it rounds to a whole number, which its low bits hold
	far      constant = "far"
	lightest constant = "lightest"
	one      constant = "one"

	hidden   constant = "hidden" // of masks
	next     constant = "next"
	previous constant = "previous"
)

func (g *gen) constants() {
	for _, p := range g.powers {
		p.constants(g)
	}
	g.limitConstants()
	g.constant(lowest, "lowest finite number", same(-math.MaxFloat32))
	g.constant(whole, "rounds to a whole number", same(1.5*(1<<fraction)))
	g.constant(far, "the most that a sum is scaled down by, as a power of two", same(126))
	g.constant(lightest, "taken off weights; Raise leaves none that is less, but 0", same(math.Ldexp(1, leastPower)))
	g.constant(one, "", same(1))
	g.hiddenConstants()
	g.constant(previous, "-1", func(int) uint32 { return math.MaxUint32 })
}

// limitConstants are those of Flash and of its weights, however they are computed.
func (g *gen) limitConstants() {
	g.constant(limit, "Limit", same(40))
	if g.entries > 0 {
		g.constant(least, "highest x whose result is 0", same(leastPower))
	}
}

// hiddenConstants are those of masks.
func (g *gen) hiddenConstants() {
	g.constant(hidden, "score of a hidden key", same(math.Inf(-1)))
	g.constant(next, "1, an integer", func(int) uint32 { return 1 })
}

func (g *gen) tableConstants() {
	g.constant(round, "rounds to a multiple of one over the table's length", same(1.5*(1<<fraction)/float64(g.entries)))
	power := func(times float64, i int) uint32 {
		return float(times*math.Exp2(float64(i)/float64(g.entries))) - uint32(i<<fraction/g.entries)
	}
	g.constant(table, "2^(i/length), less i/length in the fraction", func(i int) uint32 { return power(1, i) })
	if g.entries > g.vec {
		g.constant(table2, "its second half", func(i int) uint32 { return power(1, g.vec+i) })
	}
	c := series(1/(2*float64(g.entries)), g.degree)
	if g.degree == 2 {
		g.constant(linear, "of r in 2^r", same(c[0]))
		g.constant(square, "of r^2", same(c[1]))
		return
	}
	a := c[1] / (2 * c[2])
	g.constant(vertex, "a of q(r) = c*((r+a)²+b)", same(a))
	g.constant(rise, "b", same(c[0]/c[2]-a*a))
	g.constant(leads, "c*2^(i/length), less i/length in the fraction", func(i int) uint32 { return power(c[2], i) })
}

const flooredDegree = 6

func floored(power int) constant { return constant(fmt.Sprint("floored", power)) }

// flooredConstants lays down those that exp2Floored does not share with exp2Tables. Each coefficient takes over what rounding took from the one before,
// which at r = 1 comes to nothing.
func (g *gen) flooredConstants() {
	from := 1 - 2/(1+math.Cos(math.Pi/2/(flooredDegree+1))) // to 1, whose lowest Chebyshev point is 0
	lost := 0.
	for i, c := range minimax(from, 1, flooredDegree) {
		c += lost
		g.constant(floored(i), fmt.Sprintf("of r^%d in 2^r, 0 <= r < 1", i), same(c))
		lost = c - float64(float32(c))
	}
}

func float(x float64) uint32 { return math.Float32bits(float32(x)) }

func same(x float64) func(int) uint32 { return func(int) uint32 { return float(x) } }

// series returns the coefficients of r, r^2, ... of a polynomial of degree 2 or 3, with constant 1, that approximates 2^r on [-h, h]: the one
// that agrees with it at 0 and the points ±h*√3/2, and with its slope at 0 if the degree is 3, which is all but the one with the least
// maximum error.
func series(h float64, degree int) []float64 {
	x := h * math.Sqrt(3) / 2
	up, down := math.Expm1(x*math.Ln2)/x, math.Expm1(-x*math.Ln2)/-x
	if degree == 2 {
		return []float64{(up + down) / 2, (up - down) / (2 * x)}
	}
	return []float64{math.Ln2, (up - down) / (2 * x), (up + down - 2*math.Ln2) / (2 * x * x)}
}

// exp emits Ops.Exp for rows from to to, with or without S. It takes any width, a vector at a time; the chains of the rows overlap.
func (g *gen) exp(sums bool) {
	name, s := "Exp", ""
	if sums {
		name, s = "ExpSums", "\n\t\t\tp.S[lane] += Σ e*p.P[i*lanes+lane]"
	}
	g.function(name+g.power.name, "(p *Softmax, from, to int) (done int)", 0, 32, fmt.Sprintf(`
for j := from; j < to; j += %d {
	rows := min(%[1]d, to-j)
	if any p.P[i*%[2]d+lane] > p.M[lane]+Limit { // j <= i < j+rows
		return j
	}
	for lane := range p.Width { // %[3]d at a time
		p.L[lane] += Σ e // over the rows, with e = 2^(p.P[i*%[2]d+lane] - p.M[lane])%[4]s
		p.P[i*%[2]d+lane] = e
	}
}
return to`, g.rows, g.vecs*g.vec, g.vec, s))
	g.take(panel, lanes, lanesAt, elem, elemAt, stride, stride3, out, count, steps, aux)
	const (
		refs, weights, sumsOf = aux, lanes, elem               // M, L, S
		rows, at              = elemAt, lanesAt                // of the group; the vector of a row that it has come to
		off, width            = stride3, stride                // bytes from the first lane; of all lanes
		top, highest          = vec(0), vec(1)                 // of the check
		ref, sum, sumZ, z     = vec(0), vec(1), vec(2), vec(3) // of weighted
	)
	vector := func(base reg) mem { return mem{base: base, index: off, times: 1} }

	g.arg(panel, "p", 0)
	g.arg(aux, "from", 8)
	g.arg(count, "to", 16)
	g.subtract(count, aux)
	g.scale(aux, g.row())
	g.get(out, g.of("P"))
	g.offset(out, out, aux, 1)
	g.get(refs, g.of("M"))
	g.get(weights, g.of("L"))
	if sums {
		g.get(sumsOf, g.of("S"))
	}
	g.get(width, g.of("Width"))
	g.scale(width, 4)
	g.jumpBelow(count, 1, "done")

	g.label("group")
	g.set(rows, g.rows)
	g.jumpAtLeast(count, g.rows, "check")
	g.move(rows, count)

	g.label("check")
	g.vectors(span{"top", top, 1}, span{"highest", highest, 1}, span{"score", z, 1})
	g.set(off, 0)
	g.label("checkVector")
	g.load(top, vector(refs))
	g.add(highest, top, limit)
	g.offset(at, out, off, 1)
	g.move(steps, rows)
	g.largest(top, z, at, g.row(), "checkRow", func() {})
	g.jumpAbove(top, highest, "over")
	g.step(off, 1)
	g.jumpLess(off, width, "checkVector")
	g.freeVectors()

	g.takeWeighted()
	g.set(off, 0)
	g.label("vector")
	g.load(ref, vector(refs))
	g.zero(sum)
	if sums {
		g.zero(sumZ)
	}
	g.offset(at, out, off, 1)
	g.move(steps, rows)
	g.align()
	g.weighted(at, g.row(), "row", sums, func() {})
	g.add(sum, sum, vector(weights))
	g.store(vector(weights), sum)
	if sums {
		g.add(sumZ, sumZ, vector(sumsOf))
		g.store(vector(sumsOf), sumZ)
	}
	g.step(off, 1)
	g.jumpLess(off, width, "vector")

	g.increase(out, g.rows*g.row())
	g.increase(count, -g.rows)
	g.jumpAtLeast(count, 1, "group")
	g.set(count, 0)

	g.label("done")
	g.label("over")
	g.arg(aux, "to", 16)
	g.subtract(aux, count)
	g.result("done", 24, aux)
	g.ret()
}

// largest emits a loop over so many vectors as steps says, by bytes apart, that makes top the largest element of each lane. top is no NaN. A
// vector's turn begins with what meanwhile emits.
func (g *gen) largest(top, x vec, at reg, by int, label string, meanwhile func()) {
	g.label(label)
	meanwhile()
	g.load(x, mem{base: at})
	g.larger(top, x, top)
	g.increase(at, by)
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, label)
}

// takeWeighted takes the registers of weighted.
func (g *gen) takeWeighted() {
	g.vectors(span{"ref", 0, 1}, span{"sum", 1, 1}, span{"sumZ", 2, 1}, span{"score", 3, 1}, span{"temps", 4, 4})
}

// weighted emits a loop over as many vectors, whose scores it turns into weights. Their reference is in register 0, sums of weights and, if
// asked for, of weights times scores in 1 and 2. A vector's turn begins as in largest.
func (g *gen) weighted(at reg, by int, label string, sums bool, meanwhile func()) {
	const ref, sum, sumZ, z, e = vec(0), vec(1), vec(2), vec(3), vec(6)
	g.label(label)
	meanwhile()
	g.exp2([4]vec{4, 5, e, 7}, mem{base: at}, ref)
	if sums {
		g.load(z, mem{base: at})
		g.addProduct(sumZ, e, z)
	}
	g.store(mem{base: at}, e)
	g.add(sum, sum, e)
	g.increase(at, by)
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, label)
}

// addProduct adds a weight times its score.
func (g *gen) addProduct(sum, e, z vec) {
	g.note("0 times a score of -Inf is 0 here")
	g.max(z, z, lowest)
	g.fma(sum, e, z)
}
