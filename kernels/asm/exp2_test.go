package asm

import (
	"math"
	"slices"
	"testing"
)

// ulps returns the error of got in units of the spacing of float32 numbers at want.
func ulps(got float32, want float64) float64 { return spacings(float64(got)-want, want) }

// spacings returns an error in units of the spacing of float32 numbers at want.
func spacings(err, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(err) / math.Ldexp(1, max(e-24, -149))
}

// TestExp2 checks that the portable exp2 is within half an ulp and a little, exact at 0, and
// exactly 0 below -150.
func TestExp2(t *testing.T) {
	worst, at := 0.0, float32(0)
	step := float32(2e-6)
	if testing.Short() {
		step = 2e-4
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

// numbers returns float32 numbers from -126 to Limit, dense near 0.
func numbers(step float32) (all []float32) {
	for x := float32(-126); x < -1e-30; x *= 1 - step {
		all = append(all, x)
	}
	for x := float32(1e-30); x <= Limit; x *= 1 + 10*step {
		all = append(all, x)
	}
	return all
}

// expUlpsOff returns the error of a weight in ulp, not counting the 2^-99 that it may be too small.
func expUlpsOff(got float32, x float64) float64 {
	want := math.Exp2(x)
	return spacings(max(math.Abs(float64(got)-want)-0x1p-99, 0), want)
}

// TestExpOfSets checks that the weights of each set are within its ulps.
func TestExpOfSets(t *testing.T) {
	step := float32(6e-6)
	if testing.Short() {
		step = 2e-4
	}
	all := numbers(step)
	for _, o := range assembled() {
		lanes, keys := o.Shape.Lanes, o.Shape.Keys
		p := &Softmax{
			Panel: Panel{Lanes: lanes, Width: lanes, N: keys, P: make([]float32, keys*lanes)},
			Sums:  Sums{M: make([]float32, lanes), L: make([]float32, lanes)},
		}
		worst, at := 0.0, float32(0)
		for xs := all[slices.IndexFunc(all, func(x float32) bool { return x > -99.5 }):]; len(xs) >= len(p.P); xs = xs[len(p.P):] {
			copy(p.P, xs)
			if o.Panel.Exp(p); p.Done != p.N {
				t.Fatalf("%s: left at row %d", o.ISA, p.Done)
			}
			for i, got := range p.P {
				if u := expUlpsOff(got, float64(xs[i])); !(u <= worst) {
					worst, at = u, xs[i]
				}
			}
		}
		t.Logf("%s: largest error %.3f ulp, at %v", o.ISA, worst, at)
		if !(worst <= o.ulps) {
			t.Errorf("%s: 2^%v is %.3f ulp off", o.ISA, at, worst)
		}
	}
}

// TestExpSpecialValues checks Exp of special values one at a time, in every lane and every row of a
// group.
func TestExpSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, o := range assembled() {
		if !isAssembly(o.Panel.Exp) { // the portable loop is exact where assembly gives 0
			continue
		}
		lanes, keys := o.Shape.Lanes, o.Shape.Keys
		run := func(x, m float32, row, lane int, s bool) (*Softmax, float32) {
			p := &Softmax{
				Panel: Panel{Lanes: lanes, Width: lanes, N: keys, P: make([]float32, keys*lanes)},
				Sums:  Sums{M: make([]float32, lanes), L: make([]float32, lanes)},
			}
			if s {
				p.S = make([]float32, lanes)
			}
			for i := range p.P {
				p.P[i] = negInf
			}
			at := row*lanes + lane
			p.P[at], p.M[lane] = x, m
			o.Panel.Exp(p)
			return p, p.P[at]
		}
		for lane := range lanes {
			for row := range keys {
				for _, c := range []struct{ x, m, want float32 }{
					{0, 0, 1},
					{float32(math.Copysign(0, -1)), 0, 1},
					{1, 0, 2},
					{Limit, 0, 1 << Limit},
					{-1, 0, .5},
					{-75, 0, 0x1p-75},
					{-100, 0, 0},
					{-126, 0, 0},
					{-127, 0, 0},
					{-1e30, 0, 0},
					{negInf, 0, 0},
					{negInf, Unset, 0},
					{Unset, 0, 0},
					{0x1p-149, 0, 1},
					{1e8, 1e8, 1},
					{Unset, Unset, 1},
					{nan, 0, nan},
					{-nan, 0, nan},
					{math.Float32frombits(0xffc00000), 0, nan},
					{math.Float32frombits(0x7f800001), 0, nan},
					{nan, Unset, nan},
					{inf, inf, nan},
				} {
					p, got := run(c.x, c.m, row, lane, true)
					if c.want != c.want && got != got && p.L[lane] != p.L[lane] && p.Done == p.N {
						continue
					}
					if got != c.want || p.L[lane] != c.want || p.Done != p.N {
						t.Fatalf("%s: row %d, lane %d: 2^(%v-%v) = %v, sum %v, done %d; want %v", o.ISA, row, lane, c.x, c.m, got, p.L[lane], p.Done, c.want)
					}
					if want := c.want * c.x; c.want > 0 && p.S[lane] != want || c.want == 0 && p.S[lane] != 0 {
						t.Fatalf("%s: row %d, lane %d: S of 2^(%v-%v) = %v, want %v", o.ISA, row, lane, c.x, c.m, p.S[lane], want)
					}
				}
				over := math.Nextafter32(Limit, 2*Limit)
				for _, c := range []struct{ x, m float32 }{
					{over, 0},
					{inf, 0},
					{0, Unset},
					{math.MaxFloat32, Unset},
					{inf, Unset},
					{-1e38, Unset},
				} {
					p, got := run(c.x, c.m, row, lane, false)
					if p.Done != 0 || math.Float32bits(got) != math.Float32bits(c.x) || p.L[lane] != 0 {
						t.Fatalf("%s: row %d, lane %d: %v over %v: done %d, P %v, sum %v; must leave at once", o.ISA, row, lane, c.x, c.m, p.Done, got, p.L[lane])
					}
				}
			}
		}
	}
}

// TestElu checks Elu over the whole range, at every place of a vector and in the rest after the
// last vector.
func TestElu(t *testing.T) {
	step := float32(2e-5)
	if testing.Short() {
		step = 4e-4
	}
	const least = -86.9 // e^-87 is below 2^-125
	all := []float32{0, float32(math.Copysign(0, -1))}
	for x := float32(least); x < -1e-30; x *= 1 - step {
		all = append(all, x, -x)
	}
	inf := float32(math.Inf(1))
	for _, o := range append(assembled(), Go()) {
		to := make([]float32, len(all))
		o.Vector.Elu(to, all, 0)
		worst, at := 0.0, float32(0)
		for i, x := range all {
			want := math.Exp(float64(x))
			if x > 0 {
				want = float64(x + 1)
			}
			u := ulps(to[i], want)
			if !(u <= eluUlps-eluUlpsOfX*float64(min(x, 0))) {
				t.Fatalf("%s: elu(%v)+1 is %.3f ulp off", o.ISA, x, u)
			}
			if u > worst {
				worst, at = u, x
			}
		}
		t.Logf("%s: largest error %.3f ulp, at %v", o.ISA, worst, at)
		for n := range 40 {
			for _, c := range []struct{ x, want float32 }{{negInf, 0}, {inf, inf}, {nan, nan}, {0, 1}, {-1e30, 0}, {1, 2}, {math.MaxFloat32, math.MaxFloat32}} {
				from, to := make([]float32, n), make([]float32, n+1)
				for i := range from {
					clear(from)
					from[i], to[n] = c.x, 7
					o.Vector.Elu(to, from, Rows{Data: from, Stride: n}.Prefetch().At+uintptr(4*n))
					for j, got := range to[:n] {
						if want := c.want; j == i && got != want && (got == got || want == want) || j != i && got != 1 {
							t.Fatalf("%s: number %d of %d: elu(%v)+1 = %v, want %v", o.ISA, j, n, from[j], got, want)
						}
					}
					if to[n] != 7 {
						t.Fatalf("%s: Elu of %d numbers writes another", o.ISA, n)
					}
				}
			}
		}
	}
}

// The error of Elu is at most eluUlps, plus eluUlpsOfX times -x where x is negative.
const (
	eluUlps    = 1.1
	eluUlpsOfX = .04
)
