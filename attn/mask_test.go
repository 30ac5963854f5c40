package attn_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attnlab/attn"
)

// TestBroadcastFromTheRight checks that the dimensions of a mask or bias are the last ones of
// [batch, head, query, key], and that it broadcasts over the missing ones.
func TestBroadcastFromTheRight(t *testing.T) {
	const B, H, Q, K = 2, 3, 4, 5
	data := make([]float32, B*H*Q*K)
	for i := range data {
		data[i] = float32(i)
	}
	for _, c := range []struct {
		dims []int
		want func(b, h, i, j int) int
	}{
		{[]int{K}, func(_, _, _, j int) int { return j }},
		{[]int{1}, func(_, _, _, _ int) int { return 0 }},
		{[]int{Q, K}, func(_, _, i, j int) int { return i*K + j }},
		{[]int{Q, 1}, func(_, _, i, _ int) int { return i }},
		{[]int{H, Q, K}, func(_, h, i, j int) int { return (h*Q+i)*K + j }},
		{[]int{H, 1, K}, func(_, h, _, j int) int { return h*K + j }},
		{[]int{B, H, Q, K}, func(b, h, i, j int) int { return ((b*H+h)*Q+i)*K + j }},
		{[]int{B, 1, 1, K}, func(b, _, _, j int) int { return b*K + j }},
	} {
		bias, err := attn.BiasTensor(data, c.dims...)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, len(data))
		for b := range B {
			for h := range H {
				for i := range Q {
					for j := range K {
						off, step := bias.Offset(b, i, h)
						if got, want := int(bias.Data[off+j*step]), c.want(b, h, i, j); got != want {
							t.Fatalf("bias %v: element (%d, %d, %d, %d) is number %d, want %d", c.dims, b, h, i, j, got, want)
						}
						clear(seen)
						seen[c.want(b, h, i, j)] = true
						mask, err := attn.BoolMask(seen, c.dims...)
						if err != nil {
							t.Fatal(err)
						}
						if off, step = mask.Offset(b, i, h); !mask.Bool[off+j*step] {
							t.Fatalf("mask %v: element (%d, %d, %d, %d) is another one", c.dims, b, h, i, j)
						}
					}
				}
			}
		}
	}
}

func TestBroadcastRefuses(t *testing.T) {
	for _, c := range []struct {
		says string
		dims []int
	}{
		{"rank 0", nil},
		{"rank 5", []int{1, 1, 1, 1, 1}},
		{"for shape [3 5]", []int{3, 5}},
		{"for shape [-1 -1]", []int{-1, -1}},
		{"for shape", []int{1 << 40, 1 << 40}},
	} {
		if _, err := attn.BiasTensor(make([]float32, 14), c.dims...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("bias %v: %v", c.dims, err)
		}
		if _, err := attn.BoolMask(make([]bool, 14), c.dims...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("mask %v: %v", c.dims, err)
		}
	}
}

func TestEachIsKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.SampledFrom([]int{attn.Unbounded, 0, 1, 7, 40, math.MaxInt32})
		m := attn.Mask{Band: rapid.Bool().Draw(t, "band"), Left: side.Draw(t, "left"), Right: side.Draw(t, "right")}
		pos, nk := rapid.IntRange(-20, 60).Draw(t, "pos"), rapid.IntRange(0, 50).Draw(t, "nk")
		n := rapid.IntRange(0, 48).Draw(t, "n")
		los, his := make([]int32, n), make([]int32, n)
		m.Each(pos, nk, los, his)
		for i := range n {
			if lo, hi := m.Keys(pos+i, nk); int(los[i]) != lo || int(his[i]) != hi {
				t.Fatalf("%v at %d of %d keys: [%d, %d), want [%d, %d)", m, pos+i, nk, los[i], his[i], lo, hi)
			}
			if i > 0 && (los[i] < los[i-1] || his[i] < his[i-1]) {
				t.Fatalf("%v at %d of %d keys: bounds decrease", m, pos+i, nk)
			}
		}
	})
}
