package run

import (
	"testing"

	"pgregory.net/rapid"
)

func genPoint(t *rapid.T) Point {
	op := rapid.SampledFrom([]string{"softmax", "linear"}).Draw(t, "op")
	features := []string{"", "temp:0.5", "softcap:30+bias", "lse+entropy", "bool", "rope-halves+lengths"}
	if op == "linear" {
		features = []string{"", "elu+1", "relu+1", "relu+1+unnormalised", "identity+unnormalised+delta", "eps:1e-06", "elu+1+bool"}
	}
	group := rapid.IntRange(1, 4).Draw(t, "group")
	heads := rapid.IntRange(1, 8).Draw(t, "kvheads")
	seq := rapid.IntRange(1, 4096).Draw(t, "seq")
	p := Point{
		Kernel: rapid.SampledFrom([]string{"naive", "flash", "linear"}).Draw(t, "kernel"),
		ISA:    rapid.SampledFrom([]string{"go", "avx2", "blas"}).Draw(t, "isa"),
		Op:     op,
		Pass:   rapid.SampledFrom([]string{"", "forward", "backward", "both"}).Draw(t, "pass"),
		Mask:   rapid.SampledFrom([]string{"", "full", "causal", "causal-topleft", "window:3:0", "window:inf:2", "window:1:1:topleft"}).Draw(t, "mask"),
		Batch:  rapid.IntRange(0, 3).Draw(t, "batch"),
		HeadsQ: group * heads, HeadsKV: heads,
		SeqQ: rapid.SampledFrom([]int{0, 1, seq}).Draw(t, "seqq"), SeqKV: seq,
		Dim: rapid.IntRange(1, 256).Draw(t, "dim"), DimV: rapid.IntRange(0, 256).Draw(t, "dimv"),
		Layout:   rapid.SampledFrom([]string{"", "bhsd", "bshd"}).Draw(t, "layout"),
		Data:     rapid.SampledFrom([]string{"", "normal", "std30"}).Draw(t, "data"),
		Features: rapid.SampledFrom(features).Draw(t, "features"),
		Store:    rapid.SampledFrom([]string{"", "f32", "bf16"}).Draw(t, "store"),
		Page:     rapid.SampledFrom([]int{0, 16}).Draw(t, "page"),
		Threads:  rapid.IntRange(0, 8).Draw(t, "threads"),
	}
	return p.WithDefaults()
}

func TestNameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPoint(t)
		for _, name := range []string{p.Name(), "Benchmark" + p.Name() + "-2"} {
			q, err := ParseName(name)
			if err != nil {
				t.Fatal(err)
			}
			if q != p {
				t.Fatalf("%s\n got %+v\nwant %+v", name, q, p)
			}
		}
	})
}

func TestName(t *testing.T) {
	p := Point{Kernel: "flash", ISA: "avx512", Mask: "causal", HeadsQ: 8, SeqKV: 2048, Dim: 128}.WithDefaults()
	if got, want := p.Name(), "Attention/kernel=flash/isa=avx512/pass=forward/mask=causal/heads=8/seq=2048/dim=128/threads=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := p.Group(), "Attention/pass=forward/mask=causal/heads=8/seq=2048/dim=128/threads=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
