package attn_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
)

// cached returns a call of two batch entries, whose cache holds keys[b] keys of entry b.
func cached(typ attn.DType, page int, keys ...int32) (attn.Problem, *attn.Args) {
	p := attn.Problem{
		Batch: 2, SeqQ: 1, SeqKV: 12, HeadsQ: 2, HeadsKV: 2, Dim: 3, DimV: 2, KV: typ, Page: page, Lengths: true, Mask: attn.Causal(),
	}
	a := call(p)
	a.KLen = keys
	return p, a
}

// rows returns n new keys or values, no two of whose numbers are equal.
func rows(n, d int, first float32) *attn.Tensor {
	x := attn.New(attn.BSHD, 2, n, 2, d)
	for i := range x.Data {
		x.Data[i] = first + float32(i)
	}
	return &x
}

func TestAppend(t *testing.T) {
	for _, page := range []int{0, 8} {
		for _, typ := range []attn.DType{attn.F32, attn.F16, attn.BF16, attn.I8} {
			t.Run(fmt.Sprintf("%v/page=%d", typ, page), func(t *testing.T) {
				p, a := cached(typ, page, 6, 0)
				k, v := rows(5, 3, 1), rows(5, 2, -40)
				if err := p.Append(a, k, v); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(a.KLen, []int32{11, 5}) {
					t.Errorf("keys in use: %v", a.KLen)
				}
				for _, o := range []struct{ from, in *attn.Tensor }{{k, &a.K}, {v, &a.V}} {
					buf := make([]float32, o.from.D)
					top := 0.0
					for _, x := range o.from.Data {
						top = max(top, math.Abs(float64(x)))
					}
					// The largest rounding errors: half a step for int8, the last digit for bf16.
					lost := map[attn.DType]float64{attn.F16: 0, attn.BF16: top / 256, attn.I8: top * (0.5 + 1e-5) / 127}[typ]
					for b, first := range []int{6, 0} {
						for s := range 5 {
							for h := range 2 {
								at, row := a.KRow(&p, b, first+s)
								for c, got := range o.in.Read(buf, at, row, h) {
									if want := o.from.Row(b, s, h)[c]; !(math.Abs(float64(got-want)) <= lost) {
										t.Errorf("entry %d, key %d, head %d: %v, want %v", b, first+s, h, got, want)
									}
								}
							}
						}
					}
					written := 0 // Append writes nothing else
					cell := make([]float32, o.in.D)
					for at := range o.in.B {
						for row := range o.in.S {
							for h := range o.in.H {
								if x := o.in.Read(cell, at, row, h); slices.ContainsFunc(x, func(x float32) bool { return x != 0 }) {
									written++
								}
							}
						}
					}
					if written != 2*5*2 {
						t.Errorf("%d rows are written, want 20", written)
					}
				}
			})
		}
	}
}

// TestAppendThenDecode checks that keys appended one by one give the same bits as keys that were
// there from the start.
func TestAppendThenDecode(t *testing.T) {
	for _, page := range []int{0, 8} {
		p, whole := cached(attn.F16, page, 9, 9)
		k, v := rows(9, 3, 0.5), rows(9, 2, -7)
		whole.KLen = []int32{0, 0}
		if err := p.Append(whole, k, v); err != nil {
			t.Fatal(err)
		}
		_, grown := cached(attn.F16, page, 0, 0)
		for s := range 9 {
			one := func(x *attn.Tensor) *attn.Tensor {
				y := *x
				y.Data, y.S = y.Data[s*y.SS:], 1
				return &y
			}
			if err := p.Append(grown, one(k), one(v)); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range []*attn.Args{whole, grown} {
			for i := range a.Q.Data {
				a.Q.Data[i] = 0.1 * float32(i)
			}
			forward(t, p, a)
		}
		if !slices.Equal(whole.Out.Data, grown.Out.Data) {
			t.Errorf("page %d: %v, want %v", page, grown.Out.Data, whole.Out.Data)
		}
	}
}

// TestAppendRefuses checks that Append returns an error for bad operands and then changes nothing.
func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct {
		says  string
		page  int
		spoil func(p *attn.Problem, a *attn.Args, k, v *attn.Tensor)
	}{
		{"3 rows behind 10 keys in use do not fit the 12 of batch entry 1", 0, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.KLen[1] = 10 }},
		{"3 rows behind 10 keys in use do not fit the 12 of batch entry 1", 8, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.KLen[1] = 10 }},
		{"9223372036854775807 rows behind 1 keys in use do not fit the 12 of batch entry 0", 8, func(_ *attn.Problem, a *attn.Args, k, v *attn.Tensor) {
			a.KLen[0], a.KLen[1] = 1, 1
			k.S, k.SS, v.S, v.SS = math.MaxInt, 0, math.MaxInt, 0
		}},
		{"the cache has no KLen", 0, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.KLen = nil }},
		{"set Lengths in the problem", 0, func(p *attn.Problem, _ *attn.Args, _, _ *attn.Tensor) { p.Lengths = false }},
		{"KLen[0]: -1", 0, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.KLen[0] = -1 }},
		{"append: k: shape", 0, func(_ *attn.Problem, _ *attn.Args, k, _ *attn.Tensor) { k.D-- }},
		{"append: v: shape", 0, func(_ *attn.Problem, _ *attn.Args, _, v *attn.Tensor) { v.S-- }},
		{"append: k: elements are", 0, func(_ *attn.Problem, _ *attn.Args, k, _ *attn.Tensor) {
			*k = attn.NewTyped(attn.F16, attn.BSHD, 2, 3, 2, 3)
		}},
		{"the cache of v: elements are", 0, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.V.Type = attn.BF16 }},
		{"the cache of k: strides", 0, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.K.SS = 0 }},
		{"Pages: 0 entries, want 4", 8, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.Pages = nil }},
		{"Pages: 3 entries, want 4", 8, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.Pages = a.Pages[:3] }},
		{"KStart: 0 offsets", 0, func(p *attn.Problem, _ *attn.Args, _, _ *attn.Tensor) { p.Ragged = true }},
		{"QPos[1]: position 1073741825", 0, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.QPos = []int32{0, 1<<30 + 1} }},
		{"in row 2 of page 9, which a pool of 4 pages", 8, func(_ *attn.Problem, a *attn.Args, _, _ *attn.Tensor) { a.Pages[2] = 9 }},
	} {
		p, a := cached(attn.F16, c.page, 4, 2)
		k, v := rows(3, 3, 1), rows(3, 2, 1)
		c.spoil(&p, a, k, v)
		before := fmt.Sprint(a.K.Bits, a.V.Bits, a.KLen)
		err := p.Append(a, k, v)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want an error that says %q", err, c.says)
		}
		if after := fmt.Sprint(a.K.Bits, a.V.Bits, a.KLen); after != before {
			t.Errorf("%s: the cache has changed", c.says)
		}
	}
	p, a := cached(attn.F32, 0, 0, 0)
	if err := p.Append(a, rows(3, 3, 1), nil); err == nil || err.Error() != "append: k, v: nil" {
		t.Errorf("no rows: %v", err)
	}
}

// TestAppendAllocatesNothing checks that Append allocates nothing: a decoder calls it in every
// step.
func TestAppendAllocatesNothing(t *testing.T) {
	for _, typ := range []attn.DType{attn.F32, attn.BF16, attn.I8} {
		p, a := cached(typ, 8, 0, 0)
		k, v := rows(2, 3, 1), rows(2, 2, -4)
		n := testing.AllocsPerRun(3, func() {
			clear(a.KLen)
			if err := p.Append(a, k, v); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations", typ, n)
		}
	}
}
