package asm

import "math"

var negInf = float32(math.Inf(-1))

// exp2 returns 2^x for x <= Limit, within 0.502 ulp (TestExp2 logs it). It is exactly 1 at 0, and
// exactly 0 below -150. With n the multiple of 1/32 nearest to x, 2^x is 2^n * p(x-n). The fraction
// of n selects a table entry, and its whole part is added to the exponent. p is the polynomial of
// degree 3 with p(0) = 1 and the least maximum error on [-1/64, 1/64], 1.0e-10. Adding 1.5*2^47
// rounds to a multiple of 1/32 and leaves 32n in the low bits.
//
// It computes in float64, which costs a scalar loop no more than float32 and leaves only the last
// rounding. x is a difference of float32 numbers, which may need more bits than a float32 has.
func exp2(x float64) float32 {
	const (
		round = 3 << 46
		c1    = 0.6931471805270186
		c2    = 0.24022845272879956
		c3    = 0.05550456905949713
	)
	if x < -150 {
		return 0
	}
	t := x + round
	n := math.Float64bits(t)
	r := x - (t - round)
	p := float64((float64((float64(c3*r)+c2)*r)+c1)*r) + 1
	return float32(p * math.Float64frombits(powers[n%32]+n>>5<<52))
}

// powers holds the bits of 2^(i/32).
var powers = func() (p [32]uint64) {
	for i := range p {
		p[i] = math.Float64bits(math.Exp2(float64(i) / 32))
	}
	return p
}()
