package asmgen

import (
	"fmt"
	"math"
	"math/bits"
)

// A power is a way to compute 2^x.
type power struct {
	way       string // name of the way in package asm
	name      string // suffix of the names of the loops that use it
	ulps      string // largest error of its results
	emit      func(g *gen, t [4]vec, z mem, m operand)
	constants func(g *gen)
	// Flash prefetches the rows at Flash.Prefetch while it computes these weights.
	prefetches bool
}

// exp2 emits 2^(z-m) for one vector, by the current power. The result is in t[2]. NaN stays NaN.
func (g *gen) exp2(t [4]vec, z mem, m operand) { g.power.emit(g, t, z, m) }

// exp2Table and exp2Tables are exp2 for CPUs on which a table look-up delays products little or
// not at all. Let K be the length of a table that fits one or two vector registers, and n the
// multiple of 1/K nearest to x = z-m:
//
//	2^x = 2^⌊n⌋ * table[K*(n-⌊n⌋)] * 2^r    with r = x-n, |r| <= 1/2K
//
// Adding 1.5*2^23/K rounds x to a multiple of 1/K and leaves K*n in the low bits. The lowest of
// these select the table's entry. All of them, shifted so that the whole part is at the exponent,
// are added to the entry's bits; from each entry, what its own index adds to the fraction is
// subtracted in advance. 2^r = 1 + r*q(r). With 8 entries q is of degree 2, off by 2e-8; with 32 it
// is of degree 1, off by 5e-8. The entry and the last multiply-add are rounded: together they are
// off by 1.25 and 1.75 ulp at most. Whole x are exact.
//
// Results up to 2^-100 are 0. Times a value they would be subnormal, and multiply-adds with
// subnormal results are slow on some CPUs. So x is clamped to -100, and 2^-100 is subtracted at the
// end, which changes only results below 2^-75. That saves a comparison, which costs a multiply-add
// where its result is a mask.
// Tuning: docs/tuning.md#subnormal-weights
//
// These instructions delay the loop around them by more than their own products, and their order
// matters.
// Tuning: docs/tuning.md#weights-order

// exp2Table computes exp2 with one vector of entries. q(r) is c*((r+a)²+b), and c, multiplied by
// the entry, is looked up too. That takes three products, where separate coefficients would take
// four.
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

// exp2Tables computes exp2 with two vectors of entries.
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

// exp2Floored is exp2 for CPUs on which every vector instruction competes with the products. It
// needs an instruction that subtracts the whole part, and one that multiplies by 2 to the power
// ⌊x⌋. It has 10 instructions; exp2Tables has 12. Let r be x-⌊x⌋:
//
//	2^x = 2^⌊x⌋ * 2^r    with 0 <= r < 1
//
// The polynomial has degree 6, which is off by 8e-9. With rounding, including that of r, results
// are off by 1.6 ulp at most. It is 1 at 0: whole x are exact. Results up to 2^-100 are 0, and
// others lose nothing.
//
// A table of 32 entries takes as many instructions. Constants are broadcast from one element each,
// since reading whole vectors takes more power and can lower the clock.
// Tuning: docs/tuning.md#floored-weights
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

// toExponent returns the number of bits by which K*n is shifted.
func (g *gen) toExponent() int { return fraction - bits.Len(uint(g.entries)) + 1 }

const (
	fraction   = 23   // bits of a float32
	leastPower = -100 // weights up to 2^leastPower are 0
)

// The constants of exp2 and of the check before it.
const (
	least  constant = "least"  // -100
	round  constant = "round"  // adding it rounds
	table  constant = "table"  // 2^(i/K), less what i adds to the fraction
	table2 constant = "table2" // second half of the table, if it takes two vectors
	leads  constant = "leads"  // exp2Table: table times c
	vertex constant = "vertex" // exp2Table: a
	rise   constant = "rise"   // exp2Table: b
	linear constant = "linear" // coefficients of exp2Tables
	square constant = "square"

	limit  constant = "limit" // Limit of package asm
	lowest constant = "lowest"

	whole    constant = "whole" // Raise: adding it leaves a whole number in the low bits
	far      constant = "far"
	lightest constant = "lightest"
	one      constant = "one"

	hidden   constant = "hidden" // score of a hidden key
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
	g.constant(far, "largest exponent of a power of two that sums are divided by", same(126))
	g.constant(lightest, "subtracted from weights; Raise sets smaller weights to 0", same(math.Ldexp(1, leastPower)))
	g.constant(one, "", same(1))
	g.hiddenConstants()
	g.constant(previous, "-1", func(int) uint32 { return math.MaxUint32 })
}

// limitConstants emits the constants of Flash that every power shares.
func (g *gen) limitConstants() {
	g.constant(limit, "Limit", same(40))
	if g.entries > 0 {
		g.constant(least, "highest x whose result is 0", same(leastPower))
	}
}

// hiddenConstants emits the constants of masks.
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

// flooredConstants emits the constants that exp2Floored does not share with exp2Tables. Each
// coefficient includes the rounding error of the one before, which cancels it at r = 1.
func (g *gen) flooredConstants() {
	// The lowest Chebyshev point of from..1 is 0.
	from := 1 - 2/(1+math.Cos(math.Pi/2/(flooredDegree+1)))
	lost := 0.
	for i, c := range minimax(from, 1, flooredDegree) {
		c += lost
		g.constant(floored(i), fmt.Sprintf("of r^%d in 2^r, 0 <= r < 1", i), same(c))
		lost = c - float64(float32(c))
	}
}

func float(x float64) uint32 { return math.Float32bits(float32(x)) }

func same(x float64) func(int) uint32 { return func(int) uint32 { return float(x) } }

// series returns the coefficients of r, r^2, ... of a polynomial of degree 2 or 3, with constant 1,
// that approximates 2^r on [-h, h]. It agrees with 2^r at 0 and the points ±h*√3/2 and, if the
// degree is 3, its slope at 0 agrees too. That is close to the polynomial with the least maximum
// error.
func series(h float64, degree int) []float64 {
	x := h * math.Sqrt(3) / 2
	up, down := math.Expm1(x*math.Ln2)/x, math.Expm1(-x*math.Ln2)/-x
	if degree == 2 {
		return []float64{(up + down) / 2, (up - down) / (2 * x)}
	}
	return []float64{math.Ln2, (up - down) / (2 * x), (up + down - 2*math.Ln2) / (2 * x * x)}
}

// exp emits Ops.Exp for rows from..to, with or without S. It computes any width, a vector at a
// time. The dependency chains of the rows overlap.
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
		rows, at              = elemAt, lanesAt                // rows of a group; a vector of a row
		off, width            = stride3, stride                // bytes before and of all lanes
		top, highest          = vec(0), vec(1)                 // used by the check
		ref, sum, sumZ, z     = vec(0), vec(1), vec(2), vec(3) // used by weighted
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

// largest emits a loop over steps vectors, by bytes apart, that makes top the largest element of
// each lane. top must not be NaN. Each iteration begins with the instructions that meanwhile emits.
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

// weighted emits a loop over steps vectors that replaces scores by weights. Register 0 holds their
// reference and 1 the sum of weights; with sums, 2 holds the sum of weights times scores. Each
// iteration begins with the instructions that meanwhile emits.
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

// addProduct adds a weight times its score to a sum.
func (g *gen) addProduct(sum, e, z vec) {
	g.note("makes 0 times a score of -Inf 0")
	g.max(z, z, lowest)
	g.fma(sum, e, z)
}
