package asm

import (
	"math"
	"slices"
	"testing"
)

// capUlps bounds the error of tanh in EditOps.Cap; the largest error found is 3.33 ulp.
const capUlps = 3.4

// TestCap checks Cap over the whole range, in every lane and row. Scale is a power of two, so that
// the error is that of tanh.
func TestCap(t *testing.T) {
	step := float32(2e-6)
	if testing.Short() {
		step = 1e-4
	}
	var all []float32
	for x := float32(1e-37); x < 12; x *= 1 + step {
		if all = append(all, x, -x); x < 1e-4 {
			x *= 1 + 100*step
		}
	}
	for _, o := range append(assembled(), Go()) {
		lanes := o.Shape.Lanes
		p := &Edit{Panel: Panel{Lanes: lanes, Width: lanes, N: 64, P: make([]float32, 64*lanes)}, Scale: 32}
		worst, at := 0.0, float32(0)
		for xs := all; len(xs) >= len(p.P); xs = xs[len(p.P):] {
			copy(p.P, xs)
			o.Edit.Cap(p)
			for i, got := range p.P {
				if u := ulps(got, 32*math.Tanh(float64(xs[i]))); !(u <= worst) {
					worst, at = u, xs[i]
				}
			}
		}
		t.Logf("%s: largest error %.3f ulp, at %v", o.ISA, worst, at)
		if !(worst <= capUlps) {
			t.Errorf("%s: tanh %v is %.3f ulp off", o.ISA, at, worst)
		}
	}
}

// TestCapSpecialValues checks Cap of special scores and factors.
func TestCapSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, o := range append(assembled(), Go()) {
		for _, c := range []struct {
			x, want float32
			scale   float64
		}{
			{inf, 30, 30},
			{negInf, -30, 30},
			{nan, nan, 30},
			{-nan, nan, 30},
			{0, 0, 30},
			{float32(math.Copysign(0, -1)), 0, 30},
			{9.02, 30, 30},
			{-9.02, -30, 30},
			{10, 30, 30},
			{-10, -30, 30},
			{math.MaxFloat32, 30, 30},
			{-math.MaxFloat32, -30, 30},
			{0x1p-100, 0x1p-99, 2},
			{0x1p-140, 0x1p-139, 2},
			{-0x1p-149, -0x1p-148, 2},
			{0x1.23456p-13, 0x1.23456p-12, 2},
			{1, 0, 0},
			{inf, inf, 1e300},
			{inf, 0x1p-130, 0x1p-130},
		} {
			lanes := o.Shape.Lanes
			p := &Edit{Panel: Panel{Lanes: lanes, Width: lanes, N: 5, P: make([]float32, 5*lanes)}, Scale: c.scale}
			for i := range p.P {
				clear(p.P)
				p.P[i] = c.x
				o.Edit.Cap(p)
				for j, got := range p.P {
					want := float32(0)
					if j == i {
						want = c.want
					}
					if got != want && (got == got || want == want) {
						t.Fatalf("%s: %v tanh %v = %v, want %v", o.ISA, c.scale, c.x, got, want)
					}
				}
			}
		}
	}
}

// TestAdd checks that Add rounds twice: the score's product, relative to its size, and the sum. The
// product with the bias must not be rounded.
func TestAdd(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		for i := range p.P {
			p.Edit.Bias[i] *= float32(math.Ldexp(1, i%40))
		}
		p.Edit.Scale = 1.5
		old := slices.Clone(p.P)
		o.Edit.Add(p.edit())
		eachScore(&p.Panel, func(j, l int) {
			at := j*p.Lanes + l
			a, b := 1.5*float64(old[at]), p.Edit.Factor*float64(p.Edit.Bias[at])
			if got := float64(p.P[at]); !(math.Abs(got-(a+b)) <= 0x1p-24*(math.Abs(a)+math.Abs(a+b))*1.001) {
				t.Fatalf("P[%d][%d] = %v, want %v and %v", j, l, got, a, b)
			}
		})
	})
}

// TestAddSpecialValues checks Add of any bias and any factor. Their product is an infinity where a
// float32 cannot hold it. If Bounded, finite numbers give at least -MaxFloat32, and a score or a
// bias of -Inf still gives -Inf.
func TestAddSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	scores := []float32{0, 1, -3, inf, -inf, nan, 0x1p-149, 0x1p-126, 1e30}
	biases := append(scores, -math.MaxFloat32, math.MaxFloat32)
	factors := []float64{1, math.Log2E, -math.Log2E, 1e-30, 3e38, 0, 1e40, 1e-42}
	for _, o := range append(assembled(), Go()) {
		lanes := o.Shape.Lanes
		p := &Edit{Panel: Panel{Lanes: lanes, Width: lanes, N: 4, P: make([]float32, 4*lanes)}, Bias: make([]float32, 4*lanes)}
		for _, x := range scores {
			for _, b := range biases {
				for n, f := range append(factors, factors...) {
					for i := range p.P {
						p.P[i], p.Bias[i] = x, b
					}
					p.Scale, p.Factor, p.Bounded = 1, f, n >= len(factors)
					o.Edit.Add(p)
					want := float32(float64(x) + float64(b)*f)
					if p.Bounded && want == -inf && x > -inf && b > -inf {
						want = -math.MaxFloat32
					}
					if math.IsInf(float64(x), 0) && math.IsInf(float64(float32(float64(b)*f)), 0) {
						continue
					}
					for i, got := range p.P {
						if got != want && (got == got || want == want) && !(math.Abs(float64(got)-float64(want)) <= 0x1p-24*math.Abs(float64(want))*2.1+0x1p-148) {
							t.Fatalf("%s, bounded %v: %v + %v*%v = %v in place %d, want %v", o.ISA, p.Bounded, x, b, f, got, i, want)
						}
					}
				}
			}
		}
	}
}

// TestSlope checks Slope at any allowed distance: from inside the block to positions that a float32
// cannot hold.
func TestSlope(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		old := slices.Clone(p.P)
		p.Edit.Scale = 1.375 // exact, and so are products with it in float64
		for l := range p.Width {
			slope := -math.Log2E * math.Exp2(-8*float64(l+1)/float64(p.Width))
			p.Edit.SlopeHi[l] = float32(slope)
			p.Edit.SlopeLo[l] = float32(slope - float64(p.Edit.SlopeHi[l]))
			p.Edit.Pos[l] = []int32{int32(l), int32(p.N), -5, 1 << 20, 1<<24 - 1, int32(p.N) - 1<<24}[l%6]
		}
		o.Edit.Slope(p.edit())
		eachScore(&p.Panel, func(j, l int) {
			at := j*p.Lanes + l
			slope := float64(p.Edit.SlopeHi[l]) + float64(p.Edit.SlopeLo[l])
			x, term := p.Edit.Scale*float64(old[at]), slope*math.Abs(float64(int(p.Edit.Pos[l])-j))
			tol := 0x1p-24*(math.Abs(term)+math.Abs(x+term))*1.001 + 0x1p-44*math.Abs(term)
			if got := float64(p.P[at]); !(math.Abs(got-(x+term)) <= tol) {
				t.Fatalf("P[%d][%d] at position %d is %v, want %v and %v", j, l, p.Edit.Pos[l], got, x, term)
			}
		})
	})
}

// TestHide checks that Hide sets hidden scores to -Inf and leaves all other scores unchanged,
// whatever they are.
func TestHide(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		for i := range p.P {
			if i%5 == 0 {
				p.P[i] = nan
			}
		}
		want := slices.Clone(p.P)
		eachScore(&p.Panel, func(j, l int) {
			if p.Edit.Bits[j/32*p.Lanes+l]>>(j%32)&1 == 0 {
				want[j*p.Lanes+l] = negInf
			}
		})
		o.Edit.Hide(p.edit())
		for i, got := range p.P {
			if math.Float32bits(got) != math.Float32bits(want[i]) {
				t.Fatalf("P[%d][%d] = %v, want %v", i/p.Lanes, i%p.Lanes, got, want[i])
			}
		}
	})
}

// TestEditsByPart checks that an edited score depends on its lane and its row alone, and not on
// other rows and lanes of the call.
func TestEditsByPart(t *testing.T) {
	for _, o := range append(assembled(), Go()) {
		lanes, vec := o.Shape.Lanes, o.Shape.Vec
		for name, run := range map[string]func(*Edit){"Cap": o.Edit.Cap, "Add": o.Edit.Add, "Slope": o.Edit.Slope, "Hide": o.Edit.Hide} {
			whole := random(o, lanes, 2125, 0, 0).edit() // more rows than one call of assembly
			all := slices.Clone(whole.P)
			run(whole)
			for _, rows := range []int{32, 96} {
				for width := vec; width <= lanes; width += vec {
					for from := 0; from < whole.N; from += rows {
						p := *whole
						p.P, p.N, p.Width = slices.Clone(all[from*lanes:]), min(rows, whole.N-from), width
						p.Bias, p.Bits, p.Pos = p.Bias[from*lanes:], p.Bits[from/32*lanes:], slices.Clone(p.Pos)
						for l := range p.Pos {
							p.Pos[l] -= int32(from)
						}
						run(&p)
						eachScore(&p.Panel, func(j, l int) {
							got, want := p.P[j*lanes+l], whole.P[(from+j)*lanes+l]
							if math.Float32bits(got) != math.Float32bits(want) {
								t.Fatalf("%s/%s: row %d, lane %d is %v in a part of %d rows, %v in the whole", o.ISA, name, from+j, l, got, rows, want)
							}
						})
					}
				}
			}
		}
	}
}

func eachScore(p *Panel, do func(j, l int)) {
	for j := range p.N {
		for l := range p.Width {
			do(j, l)
		}
	}
}
