package attn_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
)

// A format defines a 16-bit type by its number of binary digits: multiples of 2^least below 2^top.
type format struct {
	name               string
	digits, least, top int
	value              func(uint16) float32
	round              func(float32) uint16
}

var formats = []format{
	{"f16", 11, -24, 16, attn.FromF16, attn.ToF16},
	{"bf16", 8, -133, 128, attn.FromBF16, attn.ToBF16},
}

// nearest defines rounding: to the nearest number of the format, ties to even, and to infinity past
// the last number.
func (f *format) nearest(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	_, e := math.Frexp(x) // |x| < 2^e
	apart := math.Ldexp(1, max(e-f.digits, f.least))
	r := math.RoundToEven(x/apart) * apart
	if math.Abs(r) >= math.Ldexp(1, f.top) {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return math.Copysign(r, x)
}

func TestSixteenBitsRoundTrip(t *testing.T) {
	for _, f := range formats {
		for x := range 1 << 16 {
			v := f.value(uint16(x))
			got := f.round(v)
			if v != v { // a signalling NaN becomes quiet
				if back := f.value(got); back == back || got>>15 != uint16(x)>>15 {
					t.Fatalf("%s %#04x is NaN and comes back as %#04x", f.name, x, got)
				}
				continue
			}
			if int(got) != x {
				t.Fatalf("%s %#04x is %v and comes back as %#04x", f.name, x, v, got)
			}
		}
	}
}

func TestSixteenBitsRound(t *testing.T) {
	for _, f := range formats {
		try := func(x float32) {
			got, want := float64(f.value(f.round(x))), f.nearest(float64(x))
			if math.IsNaN(got) != math.IsNaN(want) || want == want && math.Float64bits(got) != math.Float64bits(want) {
				t.Fatalf("%s: %v (%#08x) is rounded to %v, want %v", f.name, x, math.Float32bits(x), got, want)
			}
		}
		// Every number, the midpoint to the next number, and the neighbours of the midpoint.
		for x := range uint16(0x7fff) {
			low, high := f.value(x), f.value(x+1)
			half := float32((float64(low) + float64(high)) / 2)
			for _, v := range []float32{low, half, math.Nextafter32(half, 0), math.Nextafter32(half, high)} {
				try(v)
				try(-v)
			}
		}
		r := rand.New(rand.NewPCG(1, 16))
		for range 1 << 18 {
			try(math.Float32frombits(r.Uint32()))
		}
	}
}

// TestSixteenBitsByHand checks conversions that a reader can verify by hand.
func TestSixteenBitsByHand(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		x        float32
		f16, b16 uint16
	}{
		{1, 0x3c00, 0x3f80},
		{-2, 0xc000, 0xc000},
		{65504, 0x7bff, 0x4780}, // the largest f16
		{65519, 0x7bff, 0x4780},
		{65520, 0x7c00, 0x4780},     // half way to 65536
		{0x1p-24, 0x0001, 0x3380},   // the smallest f16
		{0x1p-25, 0x0000, 0x3300},   // half of it: ties to even
		{0x1.8p-24, 0x0002, 0x33c0}, // half way to the second
		{0x1p-14, 0x0400, 0x3880},   // the smallest normal f16
		{inf, 0x7c00, 0x7f80},
		{-inf, 0xfc00, 0xff80},
		{math.MaxFloat32, 0x7c00, 0x7f80}, // too many digits for bf16
		{0x1p-133, 0x0000, 0x0001},        // the smallest bf16
		{0x1p-134, 0x0000, 0x0000},
	} {
		if f, b := attn.ToF16(c.x), attn.ToBF16(c.x); f != c.f16 || b != c.b16 {
			t.Errorf("%v: f16 %#04x, want %#04x; bf16 %#04x, want %#04x", c.x, f, c.f16, b, c.b16)
		}
	}
}

// TestInt8 checks the error of an int8 row: at most half a step, and for the largest number only
// the rounding of its product.
func TestInt8(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 8))
	x := attn.NewTyped(attn.I8, attn.BSHD, 2, 3, 2, 33)
	row, got := make([]float32, 33), make([]float32, 33)
	for _, size := range []float32{1, 1e-30, 1e30} {
		top := float32(0)
		for c := range row {
			row[c] = size * float32(r.NormFloat64())
			top = max(top, row[c], -row[c])
		}
		x.Write(row, 1, 2, 1)
		x.Read(got, 1, 2, 1)
		step := float64(top) / 127
		for c, v := range row {
			if err := math.Abs(float64(v) - float64(got[c])); !(err <= step*(0.5+1e-5)) {
				t.Errorf("%v comes back as %v: a step is %v", v, got[c], step)
			}
			if max(v, -v) == top && !(math.Abs(float64(v)-float64(got[c])) <= 1e-7*float64(top)) {
				t.Errorf("the largest, %v, comes back as %v", v, got[c])
			}
		}
	}
	for c := range row {
		row[c] = 0
	}
	x.Write(row, 0, 0, 0)
	if got = x.Read(got, 0, 0, 0); got[0] != 0 || got[32] != 0 {
		t.Errorf("zeros come back as %v", got)
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		row[5] = bad
		x.Write(row, 0, 1, 0)
		if got = x.Read(got, 0, 1, 0); got[0] == got[0] || got[5] == got[5] {
			t.Errorf("a row with %v comes back as %v, want NaN", bad, got)
		}
	}
}

// TestReadWrite checks that rows of every type are stored where the strides say, and that Write
// changes no other row.
func TestReadWrite(t *testing.T) {
	for _, typ := range []attn.DType{attn.F32, attn.F16, attn.BF16, attn.I8} {
		for _, layout := range []attn.Layout{attn.BHSD, attn.BSHD} {
			x := attn.NewTyped(typ, layout, 2, 3, 2, 4)
			number := func(b, s, h int) float32 { return float32(100*b + 10*s + h + 1) }
			row := make([]float32, 4)
			each := func(f func(b, s, h int)) {
				for b := range 2 {
					for s := range 3 {
						for h := range 2 {
							f(b, s, h)
						}
					}
				}
			}
			each(func(b, s, h int) {
				for c := range row {
					row[c] = number(b, s, h)
				}
				x.Write(row, b, s, h)
			})
			each(func(b, s, h int) {
				for _, got := range x.Read(row, b, s, h) {
					if want := number(b, s, h); math.Abs(float64(got-want)) > 1e-6*float64(want) {
						t.Fatalf("%v: row (%d, %d, %d) holds %v, want %v", typ, b, s, h, got, want)
					}
				}
			})
		}
	}
}
