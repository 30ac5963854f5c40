package asmgen

import (
	"fmt"
	"math"
	"math/bits"
)

// exp2 emits 2^(z-m) for one vector. Let K be the length of a table that fits a vector register, and n the multiple of 1/K nearest to
// t = z-m:
//
//	2^t = 2^⌊n⌋ * table[K*(n-⌊n⌋)] * 2^r    with r = t-n, |r| <= 1/2K
//
// Adding 1.5*2^23/K rounds t to a multiple of 1/K and leaves K*n in the low bits: the lowest of them choose the table's entry, the others go
// to the exponent. 2^r = 1 + r*q(r), with q of degree 2, is good to 2e-8 with 8 entries and to 1e-9 with 16; the entry and the last
// multiply-add are rounded: together they are off by 1.25 ulp at most. Whole t are exact.
//
// The whole part is added to the exponent's bits, in the result and not in the table's entry, so that the products of small weights are not
// subnormal. For the same reason, results up to 2^-100 are 0: times a value they would be, and a multiply-add that ends up subnormal takes some
// CPUs a hundred cycles: without, rows of scores with a standard deviation of 30 took four times as long on a Xeon (family 6, model 207).
//
// No step has a case for -Inf: t is clamped at -100, where the result is exactly the 2^-100 that becomes 0.
//
// Only multiplications and multiply-adds, four of them, compete with those of the products.
//
// t are four registers; the result is in t[2].
func (g *gen) exp2(t [4]vec, z mem, m operand) {
	r, n, p, q := t[0], t[1], t[2], t[3]
	g.load(r, z)
	g.sub(r, r, m)
	g.max(r, r, least)
	g.add(n, r, round)
	g.permute(p, n, table)
	g.sub(q, n, round)
	g.sub(r, r, q)
	g.load(q, cubic)
	g.muladd(q, r, square)
	g.muladd(q, r, linear)
	g.mul(r, r, p)
	g.fma(p, r, q)
	g.shiftRight(n, n, bits.Len(uint(g.vec))-1)
	g.shiftLeft(n, n, 23)
	g.addInt(p, p, n)
	g.addInt(n, p, flush)
	g.signs(n, n)
	g.clear(p, n)
}

// The constants of exp2 and of the check before it.
const (
	least  constant = "least"  // -100
	round  constant = "round"  // adding it rounds
	table  constant = "table"  // 2^(i/K)
	linear constant = "linear" // coefficients of q, in the order of the powers of 2^r that they make
	square constant = "square"
	cubic  constant = "cubic"
	flush  constant = "flush" // adding it leaves the bits of numbers up to 2^-100 negative, and no others
	limit  constant = "limit" // Limit of package asm
	lowest constant = "lowest"

	infinity constant = "infinity" // of jumpOver
	sign     constant = "sign"
	aboveInf constant = "aboveInf"
)

const leastPower = -100

func (g *gen) constants() {
	g.constant(least, "highest t whose result is 0", same(leastPower))
	g.constant(round, "rounds to a multiple of one over the table's length", same(1.5*(1<<23)/float64(g.vec)))
	g.constant(table, "2^(i/length)", func(i int) uint32 { return float(math.Exp2(float64(i) / float64(g.vec))) })
	c := powerSeries(1 / (2 * float64(g.vec)))
	g.constant(linear, "2^r = 1 + linear r + square r² + cubic r³", same(c[0]))
	g.constant(square, "", same(c[1]))
	g.constant(cubic, "", same(c[2]))
	g.constant(flush, "-(bits of 2^least) - 1", func(int) uint32 { return ^float(math.Ldexp(1, leastPower)) })
	g.constant(limit, "Limit", same(8))
	g.constant(lowest, "lowest finite number", same(-math.MaxFloat32))
	if g.name == "avx512" {
		g.constant(infinity, "+Inf", same(math.Inf(1)))
	} else {
		g.constant(sign, "sign bit", func(int) uint32 { return 1 << 31 })
		g.constant(aboveInf, "adding it to bits above those of +Inf gives 2^31 and more", func(int) uint32 { return 1<<31 - 0x7f800001 })
	}
}

func float(x float64) uint32 { return math.Float32bits(float32(x)) }

func same(x float64) func(int) uint32 { return func(int) uint32 { return float(x) } }

// powerSeries returns the polynomial of degree 2 that agrees with (2^r-1)/r at the three Chebyshev points of [-h, h], which is all but the
// one with the least maximum error.
func powerSeries(h float64) (c [3]float64) {
	x := h * math.Sqrt(3) / 2 // and 0, where the value is ln 2
	up, down := math.Expm1(x*math.Ln2)/x, math.Expm1(-x*math.Ln2)/-x
	return [3]float64{math.Ln2, (up - down) / (2 * x), (up + down - 2*math.Ln2) / (2 * x * x)}
}

// exp emits Ops.Exp for rows from to to, with or without S. It takes any width, a vector at a time; the chains of the rows overlap.
func (g *gen) exp(sums bool) {
	name, s := "Exp", ""
	if sums {
		name, s = "ExpSums", "\n\t\t\tp.S[lane] += Σ e*p.P[i*lanes+lane]"
	}
	g.function(name, "(p *Panel, from, to int) (done int)", 0, 32, fmt.Sprintf(`
for j := from; j < to; j += %d {
	rows := min(%[1]d, to-j)
	if any !(p.P[i*%[2]d+lane] <= p.M[lane]+Limit) { // j <= i < j+rows
		return j
	}
	for lane := range p.Width { // %[3]d at a time
		p.L[lane] += Σ e // over the rows, with e = 2^(p.P[i*%[2]d+lane] - p.M[lane])%[4]s
		p.P[i*%[2]d+lane] = e
	}
}
return to`, g.rows, g.vecs*g.vec, g.vec, s))
	const (
		refs, weights, sumsOf = aux, lanes, elem               // M, L, S
		rows, at              = elemAt, lanesAt                // of the group; the vector of a row that it has come to
		off, width            = stride3, stride                // bytes from the first lane; of all lanes
		over, max             = vec(0), vec(1)                 // of the check
		ref, sum, sumZ, z     = vec(0), vec(1), vec(2), vec(3) // of the weights, and
	)
	chain := [4]vec{4, 5, 6, 7}
	field := func(f string) mem { return mem{base: panel, field: "Panel_" + f} }
	vector := func(base reg) mem { return mem{base: base, index: off, times: 1} }

	g.arg(panel, "p", 0)
	g.arg(aux, "from", 8)
	g.arg(count, "to", 16)
	g.subtract(count, aux)
	g.scale(aux, g.row())
	g.get(out, field("P"))
	g.offset(out, out, aux, 1)
	g.get(refs, field("M"))
	g.get(weights, field("L"))
	if sums {
		g.get(sumsOf, field("S"))
	}
	g.get(width, field("Width"))
	g.scale(width, 4)
	g.jumpBelow(count, 1, "done")

	g.label("group")
	g.set(rows, g.rows)
	g.jumpAtLeast(count, g.rows, "check")
	g.move(rows, count)

	g.label("check")
	g.zero(over)
	g.set(off, 0)
	g.label("checkVector")
	g.load(max, vector(refs))
	g.add(max, max, limit)
	g.offset(at, out, off, 1)
	g.move(steps, rows)
	g.label("checkRow")
	g.sub(z, max, mem{base: at})
	g.worse(over, over, z)
	g.increase(at, g.row())
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "checkRow")
	g.increase(off, g.bytes())
	g.jumpLess(off, width, "checkVector")
	g.jumpOver(over, "over")

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
	g.label("row")
	g.exp2(chain, mem{base: at}, ref)
	e := chain[2]
	if sums {
		g.note("0 times a score of -Inf is 0 here")
		g.load(z, mem{base: at})
		g.max(z, z, lowest)
		g.fma(sumZ, e, z)
	}
	g.store(mem{base: at}, e)
	g.add(sum, sum, e)
	g.increase(at, g.row())
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "row")
	g.add(sum, sum, vector(weights))
	g.store(vector(weights), sum)
	if sums {
		g.add(sumZ, sumZ, vector(sumsOf))
		g.store(vector(sumsOf), sumZ)
	}
	g.increase(off, g.bytes())
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
