package asmgen

import (
	"fmt"
	"math"
)

// exp2Series is exp2 for sets on which every vector instruction competes with the products, so that
// the number of instructions counts. Let n be the integer nearest to x = z-m:
//
//	2^x = 2^n * 2^r    with r = x-n, |r| <= 1/2
//
// Adding 1.5*2^23 rounds x and leaves n in the low bits, which are shifted into the exponent. 100
// is added with it, so that n = -100, where x is clamped, gets the exponent of 0: results up to
// 2^-99.5 are 0. The polynomial includes the missing 27 of 127. It has degree 6, which is off by
// 3e-9; with rounding, results are off by 1 ulp at most. It is 1 at 0: whole x are exact.
//
// These are 13 vector instructions. A table of four entries would save two of the polynomial's, but
// its look-up would take more than two, as VTBL takes byte indices.
func (g *gen) exp2Series(t [4]vec, z mem, m operand) {
	x, n, p, r := t[0], t[1], t[2], t[3]
	g.load(x, z)
	g.sub(x, x, m)
	g.max(x, x, least)
	g.load(p, round)
	g.add(n, x, p)
	g.sub(p, n, p)
	g.sub(r, x, p)
	g.shiftLeft(n, n, fraction)
	g.load(p, coefficient(g.degree))
	for i := g.degree - 1; i >= 0; i-- {
		g.load(x, coefficient(i))
		g.fma(x, p, r)
		x, p = p, x
	}
	g.mul(t[2], p, n)
}

func coefficient(power int) constant { return constant(fmt.Sprint("coefficient", power)) }

func (g *gen) seriesConstants() {
	g.constant(least, "results that round to 2 to it are 0", same(leastPower))
	g.constant(round, "rounds to a whole number above it", same(1.5*(1<<fraction)-leastPower))
	for i, c := range minimax(-.5, .5, g.degree) {
		g.constant(coefficient(i), fmt.Sprintf("of r^%d in 2^r", i), same(math.Ldexp(c, 127+leastPower)))
	}
}

// minimax returns a polynomial of the given degree that agrees with 2^r at the Chebyshev points of
// an interval, one of which is 0. It is close to the polynomial that is 1 at 0 and has the least
// maximum error.
func minimax(from, to float64, degree int) []float64 {
	var at, q []float64 // points other than 0, and (2^r-1)/r there; then Newton's differences
	for i := range degree + 1 {
		if r := (from+to)/2 + (to-from)/2*math.Cos(math.Pi*(float64(i)+.5)/float64(degree+1)); math.Abs(r) > 1e-9 {
			at, q = append(at, r), append(q, math.Expm1(r*math.Ln2)/r)
		}
	}
	for order := 1; order < degree; order++ {
		for i := degree - 1; i >= order; i-- {
			q[i] = (q[i] - q[i-1]) / (at[i] - at[i-order])
		}
	}
	c := make([]float64, degree+1) // by multiplying out
	for i := degree - 1; i >= 0; i-- {
		for power := degree; power > 1; power-- {
			c[power] = c[power-1] - at[i]*c[power]
		}
		c[1] = q[i] - at[i]*c[1]
	}
	c[0] = 1
	return c
}
