package attn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"pgregory.net/rapid"
)

// A part is the attention of one query over some keys: its output, and its LSE as one number or
// two.
type part struct{ o, lse attn.Tensor }

func partOf(lse float32, o ...float32) part { return partOver([]float32{lse}, o...) }

// partOver returns a part with the given LSE row and output.
func partOver(lse []float32, o ...float32) part {
	return part{attn.Wrap(attn.BHSD, slices.Clone(o), 1, 1, 1, len(o)), attn.Wrap(attn.BHSD, slices.Clone(lse), 1, 1, 1, len(lse))}
}

// merged returns the merge of x and y without changing them.
func merged(x, y part) part {
	m := partOver(x.lse.Data, x.o.Data...)
	attn.Merge(m.o, m.lse, y.o, y.lse)
	return m
}

func (p part) bits() []uint32 {
	var b []uint32
	for _, x := range slices.Concat(p.o.Data, p.lse.Data) {
		if x != x {
			x = float32(math.NaN())
		}
		b = append(b, math.Float32bits(x))
	}
	return b
}

func drawPart(t *rapid.T, name string) part {
	return partOf(rapid.Float32Range(-200, 200).Draw(t, name+" lse"),
		rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), 3, 3).Draw(t, name)...)
}

func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := drawPart(t, "x"), drawPart(t, "y"), drawPart(t, "z")
		nan := float32(math.NaN())
		nothing := partOf(float32(math.Inf(-1)), nan, nan, nan) // its output must not matter
		if !slices.Equal(merged(x, nothing).bits(), x.bits()) || !slices.Equal(merged(nothing, x).bits(), x.bits()) {
			t.Fatalf("a part without keys changes %v", x)
		}
		if a, b := merged(x, y), merged(y, x); !slices.Equal(a.bits(), b.bits()) {
			t.Fatalf("x+y = %v, y+x = %v", a, b)
		}
		a, b := merged(merged(x, y), z), merged(x, merged(y, z))
		// Each merge rounds an output once. Rounding an intermediate LSE changes the weights by as
		// much.
		const u = 1.0 / (1 << 24)
		l := math.Max(math.Abs(float64(x.lse.Data[0])), math.Max(math.Abs(float64(y.lse.Data[0])), math.Abs(float64(z.lse.Data[0])))) + 2
		for c := range a.o.Data {
			top := math.Max(math.Abs(float64(x.o.Data[c])), math.Max(math.Abs(float64(y.o.Data[c])), math.Abs(float64(z.o.Data[c]))))
			if err := math.Abs(float64(a.o.Data[c]) - float64(b.o.Data[c])); !(err <= u*(4+4*l)*top) {
				t.Fatalf("(x+y)+z = %v, x+(y+z) = %v, tolerance %v", a.o.Data, b.o.Data, u*(4+4*l)*top)
			}
		}
		if err := math.Abs(float64(a.lse.Data[0]) - float64(b.lse.Data[0])); !(err <= 4*u*l) {
			t.Fatalf("LSE of (x+y)+z = %v, of x+(y+z) = %v", a.lse.Data, b.lse.Data)
		}
		// The definition, by weights.
		wx, wy := math.Exp(float64(x.lse.Data[0])), math.Exp(float64(y.lse.Data[0]))
		m := merged(x, y)
		if want := math.Log(wx + wy); !(math.Abs(float64(m.lse.Data[0])-want) <= 2*u*(math.Abs(want)+1)) {
			t.Fatalf("LSE %v, want %v", m.lse.Data[0], want)
		}
		for c := range m.o.Data {
			vx, vy := float64(x.o.Data[c]), float64(y.o.Data[c])
			want := (wx*vx + wy*vy) / (wx + wy)
			if err := math.Abs(float64(m.o.Data[c]) - want); !(err <= 2*u*(math.Abs(vx)+math.Abs(vy))) {
				t.Fatalf("%v, want %v", m.o.Data[c], want)
			}
		}
	})
}

func TestMergeInfinities(t *testing.T) {
	inf, nan, lowest := float32(math.Inf(1)), float32(math.NaN()), float32(-math.MaxFloat32)
	for _, c := range []struct {
		name       string
		x, y, want part
	}{
		{"an infinite score takes all", partOf(inf, 1), partOf(3, 2), partOf(inf, 1)},
		{"on either side", partOf(3, 2), partOf(inf, 1), partOf(inf, 1)},
		{"and hides what is not a number", partOf(inf, 1), partOf(3, nan), partOf(inf, 1)},
		{"two are not a number", partOf(inf, 1), partOf(inf, 2), partOf(nan, nan)},
		{"NaN stays", partOf(nan, nan), partOf(3, 2), partOf(nan, nan)},
		{"from either side", partOf(3, 2), partOf(nan, nan), partOf(nan, nan)},
		{"no keys and no keys", partOf(-inf, 0), partOf(-inf, 0), partOf(-inf, 0)},
		{"scores that exp cannot hold", partOf(4000, 1), partOf(4000, 3), partOf(float32(4000+math.Ln2), 2)},
		{"nor can it hold their difference", partOf(4000, 1), partOf(-4000, 3), partOf(4000, 1)},
		{"far scores", partOver([]float32{1e30, 0}, 1), partOver([]float32{1e30, 0}, 3), partOver([]float32{1e30, math.Ln2}, 2)},
		{"far apart", partOver([]float32{1e30, 1}, 1), partOver([]float32{-1e30, 2}, 3), partOver([]float32{1e30, 1}, 1)},
		{"the lowest float32", partOver([]float32{lowest, 0}, 1), partOver([]float32{lowest, float32(math.Log(3))}, 5), partOver([]float32{lowest, float32(math.Log(4))}, 4)},
		{"two references", partOver([]float32{-1e9, 64}, 2), partOver([]float32{-1e9 + 64, 0}, 4), partOver([]float32{-1e9 + 64, math.Ln2}, 3)},
		{"one number and two", partOf(3, 1), partOver([]float32{1, 2}, 3), partOf(float32(3+math.Ln2), 2)},
		{"no keys, two numbers", partOver([]float32{-inf, 0}, 7), partOver([]float32{-1e9, 2}, 1), partOver([]float32{-1e9, 2}, 1)},
		{"two infinite scores, two numbers", partOver([]float32{inf, 0}, 1), partOver([]float32{inf, 0}, 2), partOver([]float32{nan, nan}, nan)},
	} {
		if got := merged(c.x, c.y); !slices.Equal(got.bits(), c.want.bits()) {
			t.Errorf("%s: %v %v, want %v %v", c.name, got.o.Data, got.lse.Data, c.want.o.Data, c.want.lse.Data)
		}
	}
}

// TestMergeFar checks that parts of 1 and 127 keys at -1e9 merge to the mean of all 128. It also
// checks that such rows with an LSE of one number are refused by name before anything is written.
func TestMergeFar(t *testing.T) {
	x, y := partOver([]float32{-1e9, 0}, 0), partOver([]float32{-1e9, float32(math.Log(127))}, 64)
	if got := merged(x, y).o.Data[0]; math.Abs(float64(got)-63.5) > 64*0x1p-22 {
		t.Errorf("the mean of 0 to 127 is %v", got)
	}
	for _, c := range []struct {
		x, y part
		says string
	}{
		{partOf(-1e9, 0), partOf(-1e9, 64), "lse[batch 0, query 0, head 0]: LSE -1e+09"},
		{partOf(3, 0), partOf(4097, 64), "lse2[batch 0, query 0, head 0]: LSE 4097"},
		{partOver([]float32{-1e9, 0}, 0), partOf(-1e9, 64), "lse2[batch 0, query 0, head 0]: LSE -1e+09"},
		{partOf(3, 0), partOver([]float32{-1e9, 4}, 64), "lse2[batch 0, query 0, head 0]"},
	} {
		before := c.x.bits()
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "want LSE tensors with D = 2") {
					t.Errorf("panic %v, want one that says %q", err, c.says)
				}
			}()
			attn.Merge(c.x.o, c.x.lse, c.y.o, c.y.lse)
		}()
		if !slices.Equal(before, c.x.bits()) {
			t.Error("Merge wrote before it refused")
		}
	}
}

func TestMergeChecks(t *testing.T) {
	o, lse := attn.New(attn.BHSD, 1, 2, 3, 4), attn.New(attn.BHSD, 1, 2, 3, 1)
	for want, f := range map[string]func(){
		"lse:":  func() { attn.Merge(o, attn.New(attn.BHSD, 1, 2, 2, 1), o, lse) },
		"o2:":   func() { attn.Merge(o, lse, attn.New(attn.BHSD, 1, 2, 3, 5), lse) },
		"lse2:": func() { attn.Merge(o, lse, o, attn.Tensor{}) },
		"overlap": func() {
			flat := o
			flat.SS = 0
			attn.Merge(flat, lse, o, lse)
		},
	} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), want) {
					t.Errorf("panic %v, want one that says %q", err, want)
				}
			}()
			f()
		}()
	}
}
