package asmgen

import (
	"fmt"
	"math"
	"slices"
)

// powersOfE emits Ops.Elu or, as Natural, Vector.Exp. Elu is x+1 above 0 and e^x below, as
// max(x, 0) + e^min(x, 0): e^0 is exactly 1. With n the integer nearest to x/ln 2,
//
//	e^x = 2^n * e^r    with r = x - n*ln 2, |r| <= (ln 2)/2
//
// Adding 1.5*2^23 rounds and leaves n in the low bits, which are shifted into the exponent. 126 is
// added with it, so that n = -126, where x is clamped, gets the exponent of 0; the polynomial
// includes the missing 1 of 127. It has degree 6, which is off by 3e-9. So n = 128, where Natural
// clamps x, still has an exponent, and the last product overflows.
//
// ln 2 as a float32 is off by 2e-9, times n. So Elu is within 1.1 ulp, and 0.04 ulp more for each 1
// that x is below 0 (TestElu). Natural subtracts n times that error too.
//
// A rest of less than a vector is computed one element at a time. With 32 registers the constants
// stay in registers: loading them for each vector would delay the prefetches of rows from memory.
// Tuning: docs/tuning.md#elu-constants
func (g *gen) powersOfE(elu bool) {
	p := powersOfE{gen: g, elu: elu}
	if elu {
		g.function("Elu", "(to, from *float32, n int, ahead uintptr)", 8, 32, fmt.Sprintf(`
for i := range n { // %d at a time
	to[i] = max(from[i], 0) + exp(min(from[i], 0))
}`, g.vec))
	} else {
		g.function("Natural", "(to, from *float32, n int)", 0, 24, fmt.Sprintf(`
for i := range n { // %d at a time
	to[i] = exp(from[i])
}`, g.vec))
	}
	g.take(lanes, out, count)
	g.arg(out, "to", 0)
	g.arg(lanes, "from", 8)
	g.arg(count, "n", 16)
	if elu {
		g.take(lead)
		g.arg(lead, "ahead", 24)
		g.subtract(lead, lanes)
	}
	held := p.held()
	g.vectors(span{"most", 0, 1}, span{"constants", 1, len(held)}, span{"temps", vec(1 + len(held)), p.temps() * g.wide})
	if elu {
		g.zero(0)
	} else {
		g.load(vec(0), naturalMost)
	}
	for i, c := range held {
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
		p.vectorsOf(t)
		g.increase(lanes, 4*n)
		g.increase(out, 4*n)
		g.increase(count, -n)
		g.jumpAtLeast(count, n, fmt.Sprint("numbers", n))
		g.label(fmt.Sprint("end", n))
	}
	g.ret()
}

// powersOfE is one of two functions of e^x.
type powersOfE struct {
	*gen
	elu bool
}

// vectorsOf emits the computation of the vectors, or the element, at lanes. It interleaves their
// instructions, since their dependency chains are too long for a CPU to overlap by itself.
func (p powersOfE) vectorsOf(t tile) {
	const most, round, least = vec(0), vec(1), vec(2)
	held, temps := p.held(), p.temps()
	at := func(c constant) operand {
		if i := slices.Index(held, c); i >= 0 {
			return vec(1 + i)
		}
		return c
	}
	each := func(do func(x, n, e, r, above vec, off int)) {
		for v := range t.vecs {
			first := vec(1 + len(held) + temps*v)
			do(first, first+1, first+2, first+3, first+4, v*t.bytes())
		}
	}
	each(func(x, _, _, _, _ vec, off int) { t.loadLanes(x, mem{base: lanes, off: off}) })
	if p.elu {
		each(func(x, _, _, _, above vec, _ int) { t.max(above, most, x) })
		each(func(x, _, _, _, _ vec, _ int) { t.min(x, x, most) })
		each(func(x, _, _, _, _ vec, _ int) { t.max(x, x, least) })
	} else { // NaN stays NaN
		each(func(x, _, _, _, _ vec, _ int) { t.min(x, most, x) })
		each(func(x, _, _, _, _ vec, _ int) { t.max(x, least, x) })
	}
	each(func(x, n, _, _, _ vec, _ int) {
		t.load(n, round)
		t.fma(n, x, at(eluLog))
	})
	each(func(_, n, _, r, _ vec, _ int) { t.sub(r, n, round) })
	each(func(x, _, _, r, _ vec, _ int) { t.fma(x, r, at(eluLn)) })
	if !p.elu {
		each(func(x, _, _, r, _ vec, _ int) { t.fma(x, r, at(naturalRest)) })
	}
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
		if p.elu {
			t.add(e, e, above)
		}
		t.storeLanes(mem{base: out, off: off}, e)
	})
	for off := 0; off < t.vecs*t.bytes() && p.elu && !t.single; off += line {
		t.prefetchNear(mem{base: lanes, index: lead, times: 1, off: off})
	}
}

// temps returns the number of registers that a vector needs.
func (p powersOfE) temps() int {
	if p.elu {
		return 5
	}
	return 4
}

// held returns the constants that stay in registers, starting with register 1.
func (p powersOfE) held() []constant {
	held := []constant{eluRound, eluLeast}
	all := append(held, eluLog, eluLn)
	if !p.elu {
		all = append(all, naturalRest)
	}
	for i := range eluDegree + 1 {
		all = append(all, eluCoefficient(i))
	}
	if 1+len(all)+p.temps()*p.wide <= p.regs {
		return all
	}
	return held
}

const (
	eluLeast constant = "eluLeast"
	eluRound constant = "eluRound"
	eluLog   constant = "eluLog"
	eluLn    constant = "eluLn"

	naturalMost constant = "naturalMost"
	naturalRest constant = "naturalRest"
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
	g.constant(naturalRest, "its rounding error", same(float64(float32(math.Ln2))-math.Ln2))
	g.constant(naturalMost, "has an infinite e^x", same(89))
	for i, c := range minimax(-.5, .5, eluDegree) {
		g.constant(eluCoefficient(i), fmt.Sprintf("of r^%d in e^r", i), same(math.Ldexp(c*math.Pow(math.Log2E, float64(i)), 127+leastExponent)))
	}
}
