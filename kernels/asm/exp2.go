package asm

import "math"

var negInf = float32(math.Inf(-1))

// exp2 is 2^x for x <= Limit, correctly rounded but for one result in a hundred, exactly 1 at 0, exactly 0 below -150. With n the integer
// nearest to x, 2^x is 2^n * p(x-n); p is the polynomial of degree 6 with p(0) = 1 and the least maximum relative error on [-1/2, 1/2],
// 2.0e-9. Adding 1.5*2^52 rounds to an integer and leaves it in the low bits. It is done in float64, which costs a scalar loop no more than
// float32 does: in float32 the rounding errors of the same steps add up to 1.2 ulp.
func exp2(x float32) float32 {
	const round = 3 << 51
	if x < -150 {
		return 0
	}
	y := float64(x)
	t := y + round
	r := y - (t - round)
	p := 0.00015353365739270632
	p = float64(p*r) + 0.0013398877043272162
	p = float64(p*r) + 0.009618437367717893
	p = float64(p*r) + 0.05550332464952672
	p = float64(p*r) + 0.24022647913366937
	p = float64(p*r) + 0.6931472028575866
	p = float64(p*r) + 1
	return float32(p * math.Float64frombits((math.Float64bits(t)+1023)<<52))
}
