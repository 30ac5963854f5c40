package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// stored returns rows as cells of a type, at the same stride. Numbers from a normal distribution
// become integers up to 127. Their scales are powers of two, apart elements from one to the next.
func stored(r Rows, n, d int, typ Type, apart int) Cells {
	c := Cells{Type: typ, Rows: Rows{Stride: r.Stride}, ScaleStride: apart}
	switch typ {
	case F32:
		c.Rows = r
	case F16, BF16:
		c.Half = make([]uint16, len(r.Data))
		narrow(c.Half, r.Data, typ)
	case I8:
		for _, x := range r.Data {
			c.Byte = append(c.Byte, int8(min(max(x*64, -128), 127)))
		}
		for j := range n * apart {
			c.Scale = append(c.Scale, float32(math.Ldexp(1, j%5-7)))
		}
	}
	return c
}

// widened returns cells as rows of float32.
func widened(c Cells, n, d int) Cells {
	to := make([]float32, n*d)
	widen(to, &c, n, d)
	return Cells{Rows: Rows{Data: to, Stride: d}}
}

// rounded returns x rounded to a number of bits, the last of which is worth at least 2^least, by
// definition.
func rounded(x float64, bits, least int) float64 {
	if x == 0 || math.IsInf(x, 0) || x != x {
		return x
	}
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e-bits, least))
	return math.RoundToEven(x/unit) * unit
}

// TestHalves checks that every number of 16 bits survives conversion to float32 and back, and that
// numbers in between are rounded as the definition says.
func TestHalves(t *testing.T) {
	types := []struct {
		name         string
		to           func(float32) uint16
		from         func(uint16) float32
		bits, least  int
		largest, max float64 // largest finite number; largest that does not round to infinity
	}{
		{"f16", toF16, fromF16, 11, -24, 65504, 65520},
		{"bf16", toBF16, fromBF16, 8, -133, 0x1.fep127, 0x1.ffp127},
	}
	for _, typ := range types {
		for h := range 1 << 16 {
			x := typ.from(uint16(h))
			if back := typ.to(x); back != uint16(h) && x == x {
				t.Fatalf("%s: %#x is %v, which is %#x", typ.name, h, x, back)
			}
			if x == x && float64(x) != rounded(float64(x), typ.bits, typ.least) {
				t.Fatalf("%s: %#x is %v, which has too many bits", typ.name, h, x)
			}
		}
		each := func(x float32) {
			want := rounded(float64(x), typ.bits, typ.least)
			if math.Abs(float64(x)) >= typ.max {
				want = math.Copysign(math.Inf(1), float64(x))
			}
			got := typ.from(typ.to(x))
			if x != x && got == got || x == x && (float64(got) != want || math.Signbit(float64(got)) != math.Signbit(float64(x))) {
				t.Fatalf("%s: %v becomes %v, want %v", typ.name, x, got, want)
			}
		}
		for h := range uint16(0x7c00) { // the middle of two neighbours, and the numbers next to it
			middle := (typ.from(h) + typ.from(h+1)) / 2
			for _, x := range []float32{middle, math.Nextafter32(middle, 0), math.Nextafter32(middle, 1e38)} {
				each(x)
				each(-x)
			}
		}
		for _, x := range []float64{typ.largest, typ.max, math.Inf(1), math.NaN(), 0x1p-149, 0x1.fffffep-127} {
			each(float32(x))
			each(-float32(x))
		}
		rng := rand.New(rand.NewPCG(5, 6))
		for range 100_000 {
			each(math.Float32frombits(rng.Uint32()))
		}
	}
}

// TestWidenAndNarrow checks that Widen converts every number of every type, and that Narrow rounds
// as the portable conversions do, except for the bits of NaN.
func TestWidenAndNarrow(t *testing.T) {
	const n = 1 << 16
	all, bytes, rows := make([]uint16, n), make([]int8, 256), make([]float32, n)
	for i := range all {
		all[i] = uint16(i)
	}
	for i := range bytes {
		bytes[i] = int8(i)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for _, o := range append(assembled(), Go()) {
		for _, typ := range []Type{F16, BF16} {
			o.Vector.Widen(rows, &Cells{Type: typ, Half: all}, 1, n)
			for i, x := range rows {
				want := fromF16(uint16(i))
				if typ == BF16 {
					want = fromBF16(uint16(i))
				}
				if math.Float32bits(x) != math.Float32bits(want) && (x == x || want == want) {
					t.Fatalf("%s: type %d: %#x is %v, want %v", o.ISA, typ, i, x, want)
				}
			}
			from, half := make([]float32, n), make([]uint16, n)
			for i := range from {
				from[i] = math.Float32frombits(rng.Uint32())
				if i%2 == 0 { // near and at the middle of two numbers of F16
					from[i] = math.Float32frombits(uint32(i)<<16&0x80000000 | 0x33000000 + uint32(i)<<12 + rng.Uint32N(3) - 1)
				}
			}
			o.Vector.Narrow(half, from, typ)
			one := Cells{Type: typ, Half: half}
			o.Vector.Widen(rows, &one, 1, n)
			want := make([]uint16, n)
			narrow(want, from, typ)
			for i, x := range from {
				if half[i] != want[i] && !(x != x && rows[i] != rows[i]) {
					t.Fatalf("%s: type %d: %v (%#x) becomes %#x, want %#x", o.ISA, typ, x, math.Float32bits(x), half[i], want[i])
				}
			}
		}
		for _, scale := range []float32{1, .3, 0x1p-149, float32(math.Inf(1)), nan} {
			o.Vector.Widen(rows, &Cells{Type: I8, Byte: bytes, Scale: []float32{scale}}, 1, len(bytes))
			for i, b := range bytes {
				if want := float32(b) * scale; rows[i] != want && want == want {
					t.Fatalf("%s: %d times %v is %v, want %v", o.ISA, b, scale, rows[i], want)
				}
			}
		}
	}
}

// TestScaledCells checks that the scale of a row multiplies its score and its weight, for any
// scale.
func TestScaledCells(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, o := range append(assembled(), Go()) {
		for _, s := range shapes {
			for r := 1; r < 8; r++ {
				f := randomFew(r, s[0], s[1], s[2])
				k, v := stored(f.K.Rows, f.N, f.D, I8, 1), stored(f.V.Rows, f.N, f.C, I8, 2)
				for i := range k.Scale {
					k.Scale[i] = rng.Float32()
				}
				for i := range v.Scale {
					v.Scale[i] = rng.Float32()
				}
				f.K, f.V = k, v
				o.Decode.Dot(f.dot())
				for r := range f.R {
					for j := range f.N {
						terms := []float64{0}
						for x, q := range f.Q.Row(r, f.D) {
							terms = append(terms, f.Factor*float64(q)*float64(k.Byte[j*k.Stride+x])*float64(k.Scale[j]))
						}
						check(t, fmt.Sprintf("%s: P[%d][%d]", o.ISA, r, j), f.P[r*f.Stride+j], terms...)
					}
				}
				weights, old := append([]float32(nil), f.P...), append([]float32(nil), f.O.Data...)
				o.Decode.Sum(f.sum())
				for r := range f.R {
					for c := range f.C {
						terms := []float64{float64(old[r*f.O.Stride+c])}
						for j := range f.N {
							terms = append(terms, float64(weights[r*f.Stride+j])*float64(v.Byte[j*v.Stride+c])*float64(v.Scale[2*j]))
						}
						check(t, fmt.Sprintf("%s: O[%d][%d]", o.ISA, r, c), f.O.Row(r, f.C)[c], terms...)
					}
				}
			}
		}
	}
}
