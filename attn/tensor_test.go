package attn_test

import (
	"math"
	"strings"
	"testing"

	"attnlab/attn"
)

func TestLayouts(t *testing.T) {
	const b, s, h, d = 2, 3, 4, 5
	data := make([]float32, b*s*h*d)
	for i := range data {
		data[i] = float32(i)
	}
	bhsd, bshd := attn.Wrap(attn.BHSD, data, b, s, h, d), attn.Wrap(attn.BSHD, data, b, s, h, d)
	for x := range b {
		for y := range s {
			for z := range h {
				if got, want := bhsd.Row(x, y, z)[0], float32(((x*h+z)*s+y)*d); got != want {
					t.Errorf("bhsd row (%d, %d, %d) starts at %v, want %v", x, y, z, got, want)
				}
				if got, want := bshd.Row(x, y, z)[0], float32(((x*s+y)*h+z)*d); got != want {
					t.Errorf("bshd row (%d, %d, %d) starts at %v, want %v", x, y, z, got, want)
				}
			}
		}
	}
	if row := bhsd.Row(0, 0, 0); len(row) != d || cap(row) != d {
		t.Errorf("a row has length %d and capacity %d, want %d", len(row), cap(row), d)
	}
}

func TestPacked(t *testing.T) {
	const b, s, hq, hkv, d, dv = 2, 3, 4, 2, 5, 6
	row := hq*d + hkv*(d+dv)
	data := make([]float32, b*s*row)
	for i := range data {
		data[i] = float32(i)
	}
	q, k, v := attn.Packed(data, b, s, hq, hkv, d, dv)
	at := (1*s + 2) * row // batch 1, row 2
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"q", q.Row(1, 2, 3)[4], float32(at + 3*d + 4)},
		{"k", k.Row(1, 2, 1)[4], float32(at + hq*d + d + 4)},
		{"v", v.Row(1, 2, 1)[5], float32(at + hq*d + hkv*d + dv + 5)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if got := int(v.Row(b-1, s-1, hkv-1)[dv-1]); got != len(data)-1 {
		t.Errorf("the last value is element %d of %d", got, len(data))
	}
}

func TestWrapTooShort(t *testing.T) {
	for name, f := range map[string]func(){
		"Wrap":   func() { attn.Wrap(attn.BHSD, make([]float32, 23), 1, 2, 3, 4) },
		"Packed": func() { attn.Packed(make([]float32, 23), 1, 2, 1, 1, 4, 4) },
		"layout": func() { attn.Wrap(9, make([]float32, 24), 1, 2, 3, 4) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(r.(string), "attn.") {
					t.Errorf("%s: panic %v", name, r)
				}
			}()
			f()
		}()
	}
}

// TestReach checks that a view is refused if its offsets exceed 2^31 or 2^63: they do not wrap
// around to look small. It allocates no such memory.
func TestReach(t *testing.T) {
	p := attn.Problem{Batch: 3, SeqQ: 4, SeqKV: 4, HeadsQ: 2, HeadsKV: 2, Dim: 8, DimV: 8}
	for _, c := range []struct {
		name       string
		sb, ss, sh int
	}{
		{"past 2^31 elements", 1 << 31, 8, 32},
		{"rows past 2^31", 64, 1 << 31, 8},
		{"past 2^62", 1 << 62, 8, 32},
		{"past 2^63", 1<<63 - 1, 1<<63 - 1, 1<<63 - 1},
		{"wraps to 0 in 64 bits", 1 << 63 >> 1, 8, 32},
		{"one too many", 64, 8, 33},
	} {
		a := call(p)
		a.Q.SB, a.Q.SS, a.Q.SH = c.sb, c.ss, c.sh
		if err := p.Check(a); err == nil || !strings.HasPrefix(err.Error(), "Q: ") || !strings.Contains(err.Error(), "reaches past") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestReachOfNothing checks that a view whose extents are 0 reaches nothing, whatever its strides.
func TestReachOfNothing(t *testing.T) {
	p := attn.Problem{Batch: 3, SeqQ: 0, SeqKV: 4, HeadsQ: 2, HeadsKV: 2, Dim: 8, DimV: 8}
	a := call(p)
	a.Q.SB, a.Out.SS = 1<<62, 1<<62
	if err := p.Check(a); err != nil {
		t.Error(err)
	}
}

func TestProblemTooLarge(t *testing.T) {
	p := attn.Problem{Batch: 1 << 20, SeqQ: 1 << 20, SeqKV: 1 << 20, HeadsQ: 1 << 11, HeadsKV: 1 << 11, Dim: 1 << 13, DimV: 64}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "more than any machine") {
		t.Error(err)
	}
	p.Batch = 1
	if err := p.Validate(); err != nil {
		t.Errorf("2^44 elements fit: %v", err)
	}
	q := p
	q.SeqKV, q.HeadsQ, q.HeadsKV = 1<<31, 1, 1
	if err := q.Validate(); err == nil || !strings.Contains(err.Error(), "seq 2147483648, want at most 2147483647") {
		t.Error(err)
	}
	if c := p.Count(nil); c.Pairs != 1<<51 || c.Flop != math.MaxInt64 {
		t.Errorf("2^51 pairs and 2^65 operations are counted as %d and %d", c.Pairs, c.Flop)
	}
	if n, err := attn.Floats(1<<30, 1<<30); err == nil {
		t.Errorf("2^60 floats are %d bytes", n)
	}
	if n, err := attn.Floats(1<<16, 1<<16, 0, 1<<62); n != 0 || err != nil {
		t.Errorf("no floats are %d bytes, %v", n, err)
	}
}
