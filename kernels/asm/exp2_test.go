package asm

import (
	"math"
	"testing"
)

// ulps is the error of got in units of the spacing of float32 numbers at want.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

func TestExp2(t *testing.T) {
	worst, at := 0.0, float32(0)
	step := float32(2e-6)
	if testing.Short() {
		step = 4e-5
	}
	for x := float32(-126); x <= Limit; {
		if u := ulps(exp2(float64(x)), math.Exp2(float64(x))); u > worst {
			worst, at = u, x
		}
		if x == 0 {
			x = 1e-30
		} else if x < 0 {
			x = min(x*(1-step)+1e-38, 0)
		} else {
			x *= 1 + 10*step
		}
	}
	t.Logf("largest error %.3f ulp, at %v", worst, at)
	if !(worst <= .54) {
		t.Errorf("exp2(%v) is %.3f ulp off", at, worst)
	}
	for _, c := range []struct{ x, want float32 }{
		{0, 1}, {float32(math.Copysign(0, -1)), 1}, {1, 2}, {-1, .5}, {-126, 0x1p-126}, {-127, 0x1p-127}, {-151, 0}, {-1e30, 0}, {negInf, 0}, {Unset, 0}, {8, 256},
	} {
		if got := exp2(float64(c.x)); got != c.want {
			t.Errorf("exp2(%v) = %v, want %v", c.x, got, c.want)
		}
	}
}
