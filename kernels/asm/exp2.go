package asm

import "math"

var negInf = float32(math.Inf(-1))

// exp2 is 2^x for x <= Limit, within 1.3 ulp, exactly 1 at 0 and exactly 0 below -126.5: subnormal results are flushed. With n the integer
// nearest to x, 2^x is 2^n * p(x-n); p is the polynomial of degree 6 with p(0) = 1 and the least maximum relative error on [-1/2, 1/2],
// which is 2.0e-9. Adding 1.5*2^23 rounds to an integer and leaves it in the low bits.
func exp2(x float32) float32 {
	const round = 3 << 22
	if x < -127 {
		x = -127 // its n makes the exponent field 0
	}
	t := x + round
	r := x - (t - round)
	p := float32(1.5353366e-4)
	p = float32(p*r) + 1.3398877e-3
	p = float32(p*r) + 9.618437e-3
	p = float32(p*r) + 5.5503324e-2
	p = float32(p*r) + 0.24022648
	p = float32(p*r) + 0.6931472
	p = float32(p*r) + 1
	return p * math.Float32frombits((math.Float32bits(t)+127)<<23)
}
