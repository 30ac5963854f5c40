package attn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"pgregory.net/rapid"
)

// A part is the attention of one query over some keys: its output and LSE.
type part struct{ o, lse attn.Tensor }

func partOf(lse float32, o ...float32) part {
	return part{attn.Wrap(attn.BHSD, slices.Clone(o), 1, 1, 1, len(o)), attn.Wrap(attn.BHSD, []float32{lse}, 1, 1, 1, 1)}
}

// merged leaves its arguments as they are.
func merged(x, y part) part {
	m := partOf(x.lse.Data[0], x.o.Data...)
	attn.Merge(m.o, m.lse, y.o, y.lse)
	return m
}

func (p part) bits() []uint32 {
	var b []uint32
	for _, x := range append(slices.Clone(p.o.Data), p.lse.Data[0]) {
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
		nothing := partOf(float32(math.Inf(-1)), nan, nan, nan) // whatever its output holds
		if !slices.Equal(merged(x, nothing).bits(), x.bits()) || !slices.Equal(merged(nothing, x).bits(), x.bits()) {
			t.Fatalf("a part without keys changes %v", x)
		}
		if a, b := merged(x, y), merged(y, x); !slices.Equal(a.bits(), b.bits()) {
			t.Fatalf("x+y = %v, y+x = %v", a, b)
		}
		a, b := merged(merged(x, y), z), merged(x, merged(y, z))
		// Each merge rounds an output once; the rounding of an intermediate LSE moves weights by as much.
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
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
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
		{"scores that exp cannot hold", partOf(1e30, 1), partOf(1e30, 3), partOf(1e30, 2)},
		{"nor can it hold their difference", partOf(1e30, 1), partOf(-1e30, 3), partOf(1e30, 1)},
	} {
		if got := merged(c.x, c.y); !slices.Equal(got.bits(), c.want.bits()) {
			t.Errorf("%s: %v %v, want %v %v", c.name, got.o.Data, got.lse.Data, c.want.o.Data, c.want.lse.Data)
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
