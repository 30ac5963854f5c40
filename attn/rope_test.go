package attn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
)

// turned returns a row rotated to a position. At a negative position the rotation is reversed.
func turned(r attn.Rope, pos int, row ...float32) []float32 {
	cos, sin := attn.RopeTables(10000, max(pos, -pos)+1, len(row))
	x, s := slices.Clone(row), slices.Clone(sin.Row(0, max(pos, -pos), 0))
	if pos < 0 {
		for c := range s {
			s[c] = -s[c]
		}
	}
	r.Turn(x, cos.Row(0, max(pos, -pos), 0), s)
	return x
}

func product(x, y []float32) (sum float64) {
	for i := range x {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}

func TestRopeByHand(t *testing.T) {
	for _, c := range []struct {
		rope attn.Rope
		x    []float32
		want []float64
	}{ // position 2 rotates the first pair by 2, the second by 2/100
		{attn.RopeInterleaved, []float32{1, 0, 1, 0}, []float64{-0.41614684, 0.90929743, 0.99980001, 0.01999867}},
		{attn.RopeHalves, []float32{1, 1, 0, 0}, []float64{-0.41614684, 0.99980001, 0.90929743, 0.01999867}},
	} {
		for i, got := range turned(c.rope, 2, c.x...) {
			if !(math.Abs(float64(got)-c.want[i]) <= 6e-8) {
				t.Errorf("rope %d: element %d is %v, want %v", c.rope, i, got, c.want[i])
			}
		}
	}
}

// TestRopeIsRelative checks that a product depends on the distance of two rows, not on their
// positions.
func TestRopeIsRelative(t *testing.T) {
	for _, at := range [][2]int{{3, 1}, {7, 5}, {0, -2}} {
		got := product(turned(attn.RopeInterleaved, at[0], 1, 2, 3, 4), turned(attn.RopeInterleaved, at[1], 4, 3, 2, 1))
		if !(math.Abs(got-1.19005123) <= 1e-6*30) { // 30 is the product of the norms
			t.Errorf("at %v: %.8f, want 1.19005123", at, got)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	q, k := make([]float32, 64), make([]float32, 64)
	for c := range q {
		q[c], k[c] = float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	norms := math.Sqrt(product(q, q) * product(k, k))
	for _, rope := range []attn.Rope{attn.RopeInterleaved, attn.RopeHalves} {
		for _, apart := range []int{0, 1, 17} {
			first := product(turned(rope, apart, q...), turned(rope, 0, k...))
			for _, shift := range []int{1, 100, 1000} {
				got := product(turned(rope, shift+apart, q...), turned(rope, shift, k...))
				if !(math.Abs(got-first) <= 1e-6*norms) {
					t.Errorf("rope %d, %d apart: %v at 0 and %v at %d", rope, apart, first, got, shift)
				}
			}
			if x := turned(rope, apart, q...); !(math.Abs(product(x, x)-product(q, q)) <= 1e-6*product(q, q)) {
				t.Errorf("rope %d: a turn changes the norm", rope)
			}
		}
	}
}

func TestRotate(t *testing.T) {
	const b, s, h, d = 2, 3, 2, 6
	from := attn.New(attn.BSHD, b, s, h, d)
	for i := range from.Data {
		from.Data[i] = float32(i%11) - 5
	}
	cos, sin := attn.RopeTables(100, 9, 4) // two angles: elements 4 and 5 are not rotated
	for _, rope := range []attn.Rope{attn.RopeInterleaved, attn.RopeHalves} {
		for _, positions := range [][]int32{nil, {0, 8, 3, 3, 2, 1}} {
			to := attn.New(attn.BHSD, b, s, h, d)
			half := attn.NewTyped(attn.F16, attn.BHSD, b, s, h, d)
			in := attn.Wrap(attn.BSHD, slices.Clone(from.Data), b, s, h, d)
			for _, o := range []attn.Tensor{to, half, in} {
				source := from
				if o.Type == attn.F32 && &o.Data[0] == &in.Data[0] {
					source = in
				}
				if err := attn.Rotate(rope, o, source, cos, sin, positions); err != nil {
					t.Fatal(err)
				}
			}
			for y := range b * s * h {
				i, j, k := y/(s*h), y/h%s, y%h
				pos := j
				if positions != nil {
					pos = int(positions[i*s+j])
				}
				want := slices.Clone(from.Row(i, j, k))
				rope.Turn(want, cos.Row(0, pos, 0), sin.Row(0, pos, 0))
				if !slices.Equal(want[4:], from.Row(i, j, k)[4:]) {
					t.Errorf("rope %d turns more than it has angles for: %v", rope, want)
				}
				if got := to.Row(i, j, k); !slices.Equal(got, want) {
					t.Errorf("rope %d, row (%d, %d, %d): %v, want %v", rope, i, j, k, got, want)
				}
				if got := in.Row(i, j, k); !slices.Equal(got, want) {
					t.Errorf("rope %d, in place, row (%d, %d, %d): %v, want %v", rope, i, j, k, got, want)
				}
				for c, got := range half.Read(make([]float32, d), i, j, k) {
					if w := attn.FromF16(attn.ToF16(want[c])); got != w {
						t.Errorf("rope %d, to f16: %v, want %v", rope, got, w)
					}
				}
			}
		}
	}
}

func TestRotateRefuses(t *testing.T) {
	x := attn.New(attn.BHSD, 2, 3, 1, 4)
	cos, sin := attn.RopeTables(10000, 3, 4)
	wide, _ := attn.RopeTables(10000, 3, 6)
	one := x
	one.SS = 0
	short := x
	short.Data = short.Data[:7]
	half := attn.NewTyped(attn.F16, attn.BHSD, 1, 3, 1, 2)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	before := slices.Clone(x.Data)
	for says, err := range map[string]error{
		"want RopeInterleaved": attn.Rotate(attn.NoRope, x, x, cos, sin, nil),
		"to has shape":         attn.Rotate(attn.RopeHalves, attn.New(attn.BHSD, 2, 3, 1, 5), x, cos, sin, nil),
		"sin has shape":        attn.Rotate(attn.RopeHalves, x, x, cos, wide, nil),
		"up to half of 4":      attn.Rotate(attn.RopeHalves, x, x, wide, wide, nil),
		"5 positions for 6":    attn.Rotate(attn.RopeHalves, x, x, cos, sin, make([]int32, 5)),
		"is at position 3":     attn.Rotate(attn.RopeHalves, x, x, cos, sin, []int32{0, 1, 2, 3, 0, 0}),
		"is at position -1":    attn.Rotate(attn.RopeHalves, x, x, cos, sin, []int32{-1, 1, 2, 0, 0, 0}),
		"rows of an output":    attn.Rotate(attn.RopeHalves, one, x, cos, sin, nil),
		"rotate: from":         attn.Rotate(attn.RopeHalves, x, short, cos, sin, nil),
		"must be f32":          attn.Rotate(attn.RopeHalves, x, x, half, half, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
	if !slices.Equal(x.Data, before) {
		t.Errorf("what could not be turned has changed: %v", x.Data)
	}
}
