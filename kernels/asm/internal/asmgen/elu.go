package asmgen

import (
	"fmt"
	"math"
	"slices"
)

// elu emits Ops.Elu, x+1 above 0 and e^x below, as max(x, 0) + e^min(x, 0): e^0 is exactly 1. With
// n the integer nearest to x/ln 2,
//
//	e^x = 2^n * e^r    with r = x - n*ln 2, |r| <= (ln 2)/2
//
// Adding 1.5*2^23 rounds and leaves n in the low bits, which are shifted into the exponent. 126 is
// added with it, so that n = -126, where x is clamped, gets the exponent of 0; the polynomial
// includes the missing 1 of 127. It has degree 6, which is off by 3e-9. ln 2 as a float32 is off by
// 2e-9, times n. So the result is within 1.1 ulp, and 0.04 ulp more for each 1 that x is below 0
// (TestElu).
//
// A rest of less than a vector is computed one element at a time. With 32 registers the constants
// stay in registers: loading them for each vector would delay the prefetches of rows from memory.
// Tuning: docs/tuning.md#elu-constants
func (g *gen) elu() {
	g.function("Elu", "(to, from *float32, n int, ahead uintptr)", 8, 32, fmt.Sprintf(`
for i := range n { // %d at a time
	to[i] = max(from[i], 0) + exp(min(from[i], 0))
}`, g.vec))
	g.take(lanes, out, count, lead)
	g.arg(out, "to", 0)
	g.arg(lanes, "from", 8)
	g.arg(count, "n", 16)
	g.arg(lead, "ahead", 24)
	g.subtract(lead, lanes)
	g.vectors(span{"zero", 0, 1}, span{"constants", 1, len(g.eluHeld())}, span{"temps", vec(1 + len(g.eluHeld())), eluTemps * g.wide})
	g.zero(0)
	for i, c := range g.eluHeld() {
		g.load(vec(1+i), c)
	}
	for _, t := range []tile{{gen: g, vecs: g.wide}, {gen: g, vecs: 1}, {gen: g, vecs: 1, single: true}} {
		n := t.vecs * g.vec
		if t.single {
			n = 1
		}
		g.jumpBelow(count, n, fmt.Sprint("end", n))
		g.align()
		g.label(fmt.Sprint("numbers", n))
		t.eluVectors()
		g.increase(lanes, 4*n)
		g.increase(out, 4*n)
		g.increase(count, -n)
		g.jumpAtLeast(count, n, fmt.Sprint("numbers", n))
		g.label(fmt.Sprint("end", n))
	}
	g.ret()
}

// eluVectors emits the computation of the vectors, or the element, at lanes. It interleaves their
// instructions, since their dependency chains are too long for a CPU to overlap by itself.
func (t tile) eluVectors() {
	const zero, round, least = vec(0), vec(1), vec(2)
	held := t.eluHeld()
	at := func(c constant) operand {
		if i := slices.Index(held, c); i >= 0 {
			return vec(1 + i)
		}
		return c
	}
	each := func(do func(x, n, e, r, above vec, off int)) {
		for v := range t.vecs {
			first := vec(1 + len(held) + eluTemps*v)
			do(first, first+1, first+2, first+3, first+4, v*t.bytes())
		}
	}
	each(func(x, _, _, _, _ vec, off int) { t.loadLanes(x, mem{base: lanes, off: off}) })
	each(func(x, _, _, _, above vec, _ int) { t.max(above, zero, x) })
	each(func(x, _, _, _, _ vec, _ int) { t.min(x, x, zero) })
	each(func(x, _, _, _, _ vec, _ int) { t.max(x, x, least) })
	each(func(x, n, _, _, _ vec, _ int) {
		t.load(n, round)
		t.fma(n, x, at(eluLog))
	})
	each(func(_, n, _, r, _ vec, _ int) { t.sub(r, n, round) })
	each(func(x, _, _, r, _ vec, _ int) { t.fma(x, r, at(eluLn)) })
	each(func(_, n, e, _, _ vec, _ int) {
		t.shiftLeft(n, n, fraction)
		t.load(e, at(eluCoefficient(eluDegree)))
	})
	for i := eluDegree - 1; i >= 0; i-- {
		each(func(x, _, e, r, _ vec, _ int) {
			if (eluDegree-i)%2 == 0 {
				e, r = r, e
			}
			t.load(r, at(eluCoefficient(i)))
			t.fma(r, e, x)
		})
	}
	each(func(_, n, e, _, above vec, off int) { // the degree is even
		t.mul(e, e, n)
		t.add(e, e, above)
		t.storeLanes(mem{base: out, off: off}, e)
	})
	if !t.single {
		for off := 0; off < t.vecs*t.bytes(); off += line {
			t.prefetchNear(mem{base: lanes, index: lead, times: 1, off: off})
		}
	}
}

// eluTemps is the number of registers that a vector needs.
const eluTemps = 5

// eluHeld returns the constants that stay in registers, starting with register 1.
func (g *gen) eluHeld() []constant {
	held := []constant{eluRound, eluLeast}
	all := append(held, eluLog, eluLn)
	for i := range eluDegree + 1 {
		all = append(all, eluCoefficient(i))
	}
	if 1+len(all)+eluTemps*g.wide <= g.regs {
		return all
	}
	return held
}

const (
	eluLeast constant = "eluLeast"
	eluRound constant = "eluRound"
	eluLog   constant = "eluLog"
	eluLn    constant = "eluLn"
)

const (
	eluDegree     = 6
	leastExponent = -126 // powers of 2 that round to 2^leastExponent are 0
)

func eluCoefficient(power int) constant { return constant(fmt.Sprint("eluCoefficient", power)) }

func (g *gen) eluConstants() {
	g.constant(eluLeast, "lowest x that counts", same(leastExponent*math.Ln2))
	g.constant(eluRound, "rounds to a whole number above the least", same(1.5*(1<<fraction)-leastExponent))
	g.constant(eluLog, "1/ln 2", same(math.Log2E))
	g.constant(eluLn, "-ln 2", same(-math.Ln2))
	for i, c := range minimax(-.5, .5, eluDegree) {
		g.constant(eluCoefficient(i), fmt.Sprintf("of r^%d in e^r", i), same(math.Ldexp(c*math.Pow(math.Log2E, float64(i)), 127+leastExponent)))
	}
}
