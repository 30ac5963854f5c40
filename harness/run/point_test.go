package run

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attnlab/attn"
)

// genPoint draws a point that is valid.
func genPoint(t *rapid.T) Point {
	op := rapid.SampledFrom([]string{"softmax", "linear"}).Draw(t, "op")
	features := []string{"", "temp:0.5", "softcap:30+bias", "lse+entropy", "bool", "rope-halves+lengths", "metric-rect:7+packed:0.5", "block:16:0.25+ragged-alone:1+lengths"}
	if op == "linear" {
		features = []string{"", "elu+1", "relu+1", "relu+1+unnormalised", "identity+unnormalised", "eps:1e-06", "elu+1+bool"}
	}
	masks := []string{"", "full", "causal", "causal-topleft", "window:3:0", "window:inf:2", "window:1:1:topleft"}
	group := rapid.IntRange(1, 4).Draw(t, "group")
	heads := rapid.IntRange(1, 8).Draw(t, "kvheads")
	seq := rapid.IntRange(1, 4096).Draw(t, "seq")
	p := Point{
		Kernel: rapid.SampledFrom([]string{"naive", "flash", "linear"}).Draw(t, "kernel"),
		ISA:    rapid.SampledFrom([]string{"go", "avx2", "blas"}).Draw(t, "isa"),
		Op:     op,
		Pass:   rapid.SampledFrom([]string{"", "forward", "backward", "both"}).Draw(t, "pass"),
		Mask:   rapid.SampledFrom(masks).Draw(t, "mask"),
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
	if op == "linear" {
		p.HeadsV = rapid.SampledFrom([]int{0, 0, heads, p.HeadsQ, 2 * p.HeadsQ}).Draw(t, "vheads")
		if rule := rapid.SampledFrom([]string{"", "plain", "gated", "gated-delta", "kda", "retnet"}).Draw(t, "rule"); rule != "" {
			p.Rule = rule
		}
		if p.Rule != "" && p.Rule != "plain" {
			p.Mask, p.SeqQ, p.Page = "causal", p.SeqKV, 0
			p.Features = rapid.SampledFrom([]string{"", "relu+1+unnormalised", "identity+unnormalised", "elu+1+unnormalised"}).Draw(t, "map")
		}
	}
	if p.Pass == "backward" || p.Pass == "both" { // the operands of a backward pass
		p.Store, p.Page = "", 0
	}
	if layer := rapid.SampledFrom([]string{"", "", "", "mha", "block", "decode"}).Draw(t, "layer"); layer != "" && op == "softmax" {
		p.Kernel, p.Layer, p.Features, p.DimV, p.Layout, p.Data = "flash", layer, "", 0, "", ""
		if p.SeqQ = 1; layer == "decode" {
			p.Pass, p.Mask = "", "causal"
		} else {
			p.SeqQ, p.Pass, p.Store, p.Page = seq, rapid.SampledFrom([]string{"", "both"}).Draw(t, "layer's pass"), "", 0
		}
	}
	return p.WithDefaults()
}

// TestNameRoundTrip checks that the point read from a name is the point that was named.
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

// TestName checks names and groups.
func TestName(t *testing.T) {
	p := Point{Kernel: "flash", ISA: "avx512", Mask: "causal", HeadsQ: 8, SeqKV: 2048, Dim: 128}.WithDefaults()
	if got, want := p.Name(), "Attention/kernel=flash/isa=avx512/pass=forward/mask=causal/heads=8/seq=2048/dim=128/threads=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	l := Point{Kernel: "linear", ISA: "go", Op: "linear", SeqQ: 1, SeqKV: 64, Dim: 8, Features: "eps:0.1"}.WithDefaults()
	const linear = "Attention/kernel=linear/isa=go/pass=forward/mask=full/heads=1/seqq=1/seq=64/dim=8"
	if got, want := l.Name(), linear+"/features=elu+1+eps:0.1/threads=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	l.Features = "elu+1"
	if got, want := l.Name(), linear+"/threads=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := p.Group(), "Attention/pass=forward/mask=causal/heads=8/seq=2048/dim=128/threads=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestParseNameErrors checks that a bad name is an error that says what is wrong.
func TestParseNameErrors(t *testing.T) {
	const good = "Attention/kernel=flash/isa=go/pass=forward/mask=full/heads=1/seq=64/dim=8/threads=1"
	if _, err := ParseName(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"Attention", "Softmax", "not one of"},
		{"/threads=1", "", "threads= is missing"},
		{"/heads=1", "", "heads= is due"},
		{"/heads=1", "/heads=1/heads=1", "seq= is due"},
		{"/heads=1", "/heads=1/batch=2", "seq= is due"},
		{"/heads=1", "/batch=1/heads=1", "is spelled"},
		{"/heads=1", "/heads=01", "is spelled"},
		{"/heads=1", "/heads=one", "not a whole number"},
		{"/heads=1", "/heads=0", "is spelled"},
		{"/heads=1", "/heads=-1", "want 1 or more"},
		{"/heads=1", "/heads=3/kvheads=2", "do not divide"},
		{"/heads=1", "/heads", "not key=value"},
		{"/threads=1", "/colour=red/threads=1", "threads= is due"},
		{"/threads=1", "/page=-1/threads=1", `page "-1": want a power of two`},
		{"/threads=1", "/data=zeros/threads=1", `data "zeros": one of normal`},
		{"/isa=go", "/isa=-", `isa "-": want letters`},
		{"mask=full", "mask=half", "one of full"},
		{"mask=full", "mask=window:0x1:0", "one of full"},
		{"mask=full", "mask=window:inf:0", "its name is \"causal\""},
		{"pass=forward", "pass=sideways", "one of forward"},
		{"/pass", "/op=cubic/pass", "one of softmax"},
		{"/threads=1", "/layout=dhsb/threads=1", "one of bhsd"},
		{"/threads=1", "/features=magic/threads=1", "not known"},
		{"/threads=1", "/features=elu+1/threads=1", "op softmax has no elu+1"},
		{"/threads=1", "/features=rope+rope-halves/threads=1", "exclude each other"},
		{"/threads=1", "/features=lse+lse/threads=1", "exclude each other"},
		{"/threads=1", "/features=lse+/threads=1", "not known"},
		{"/threads=1", "/features=temp:-1/threads=1", "not a positive number"},
		{"/threads=1", "/features=temp:frozen+lse/threads=1", "LSE has no limit"},
		{"/threads=1", "/features=bool+packed:0.5/threads=1", "exclude each other"},
		{"/threads=1", "/features=bool:0/threads=1", "not a share"},
		{"/threads=1", "/features=bool:/threads=1", "not known"},
		{"/threads=1", "/features=ragged:+lse/threads=1", "not known"},
		{"/threads=1", "/features=block:8/threads=1", "not a share"},
		{"/threads=1", "/features=block:0:0.5/threads=1", "not SIDE:SHARE"},
		{"/threads=1", "/features=ragged:65/threads=1", "not a length from 1 to 64"},
		{"/threads=1", "/features=relative-clipped:64/threads=1", "not a distance from 1 to 63"},
		{"/threads=1", "/features=metric-rect:0/threads=1", "not a number of columns"},
		{"/threads=1", "/page=12/threads=1", "power of two"},
		{"/threads=1", "/store=f64/threads=1", "one of f32"},
		{"/threads=1", "/threads=1/colour=red", "unknown, doubled or out of order"},
		{"/threads=1", "/threads=1/layer=mlp", "one of mha, block, decode"},
		{"/threads=1", "/layer=mha/threads=1", "threads= is due"},
		{"/threads=1", "/threads=1/rule=plain", "is spelled"},
		{"/threads=1", "/threads=1/rule=kda", "op softmax has no rule kda"},
		{"/threads=1", "/threads=1/rule=magic", `rule "magic": one of plain, gated`},
		{"/threads=1", "/threads=1/vheads=2/rule=kda", "unknown, doubled or out of order"},
	} {
		_, err := ParseName(strings.Replace(good, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: got %v, want %q", c.new, c.old, err, c.want)
		}
	}
	if err := (Point{Kernel: "flash", ISA: "go", SeqQ: 8, SeqKV: 64, Dim: 8, Layout: "packed"}).WithDefaults().Validate(); err == nil {
		t.Error("packed rows of two lengths")
	}
	if err := (Point{Kernel: "a b", ISA: "go", SeqKV: 64, Dim: 8}).WithDefaults().Validate(); err == nil {
		t.Error("a space in a name")
	}
	if err := (Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8}).Validate(); err == nil {
		t.Error("a point without its defaults")
	}
}

// TestProblem checks the problems of a softmax point and of a linear point.
func TestProblem(t *testing.T) {
	p := Point{
		Kernel: "flash", ISA: "go", Mask: "window:3:1", HeadsQ: 4, HeadsKV: 2, SeqQ: 5, SeqKV: 7, Dim: 8, DimV: 9, Features: "lse+temp:0.5+bool", Store: "bf16",
	}.WithDefaults()
	if p.Features != "temp:0.5+bool+lse" {
		t.Errorf("features in order: %q", p.Features)
	}
	got, err := p.Problem()
	if err != nil {
		t.Fatal(err)
	}
	want := attn.Problem{
		Batch: 1, SeqQ: 5, SeqKV: 7, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 9, Mask: attn.Window(3, 1).With(attn.BoolBitmap),
		Score: attn.Score{Temp: 0.5}, KV: attn.BF16, Want: attn.WantLSE,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	l := Point{
		Kernel: "linear", ISA: "go", Op: "linear", Pass: "both", Mask: "causal", SeqKV: 7, Dim: 8, Features: "unnormalised+identity",
	}
	got, err = l.WithDefaults().Problem()
	if err != nil {
		t.Fatal(err)
	}
	want = attn.Problem{
		Op: attn.OpLinear, Batch: 1, SeqQ: 7, SeqKV: 7, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 8, Mask: attn.Causal(),
		Linear: attn.Linear{Feature: attn.Identity, Unnormalised: true}, Want: attn.WantGrad,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestLayers checks that a layer is refused by name with what it cannot be timed with.
func TestLayers(t *testing.T) {
	plain := Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8, HeadsQ: 2}
	for _, layer := range Layers() {
		p := plain
		if p.Layer = layer; layer == LayerDecode {
			p.SeqQ = 1
		}
		if err := p.WithDefaults().Validate(); err != nil {
			t.Error(err)
		}
	}
	inside := plain
	inside.Layer = LayerMHA
	if got, want := inside.WithDefaults().Name(), plain.WithDefaults().Name()+"/layer=mha"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for want, change := range map[string]func(p *Point){
		"forward or both ways":         func(p *Point) { p.Pass = "backward" },
		"seq_q is 32, seq_kv 64":       func(p *Point) { p.SeqQ = 32 },
		"store as bf16":                func(p *Point) { p.Store = "bf16" },
		"in pages of 16":               func(p *Point) { p.Page = 16 },
		"values are as wide":           func(p *Point) { p.DimV = 9 },
		"has no features":              func(p *Point) { p.Features = "lse" },
		"its inputs are normal":        func(p *Point) { p.Data = "std30" },
		"in its own layout":            func(p *Point) { p.Layout = "bshd" },
		"op linear has no layer mha":   func(p *Point) { p.Kernel, p.Op = "linear", "linear" },
		"one row of each sequence":     func(p *Point) { p.Layer = LayerDecode },
		"forward: seq_q is 1, the pas": func(p *Point) { p.Layer, p.SeqQ, p.Pass = LayerDecode, 1, "both" },
		"from the first key on":        func(p *Point) { p.Layer, p.SeqQ, p.Mask = LayerDecode, 1, "causal-topleft" },
	} {
		p := plain
		p.Layer = LayerMHA
		change(&p)
		if err := p.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLayerWork checks the work of layers against counts by hand. Rows have 6 numbers, in 3 heads
// of 2, with one head of keys. A row is multiplied by 6*6 weights of queries, 2*6*2 of keys and
// values, 6*6 of the output, and in a block by 2*6*24 more.
func TestLayerWork(t *testing.T) {
	const mha, block = 6*6 + 2*6*2 + 6*6, 6*6 + 2*6*2 + 6*6 + 2*6*24
	for _, c := range []struct {
		layer, pass, store string
		seqQ               int
		flop, bytes        int64
	}{
		{LayerMHA, "forward", "", 5, 2*2*5*mha + 2*3*5*5*8, 4 * (mha + 2*2*5*6)},
		{LayerMHA, "both", "", 5, 3*2*2*5*mha + 2*3*5*5*8/2*7, 3 * 4 * (mha + 2*2*5*6)},
		{LayerBlock, "forward", "", 5, 2*2*5*block + 2*3*5*5*8, 4 * (block + 2*2*5*6)},
		{LayerDecode, "forward", "f16", 1, 2*2*block + 2*3*5*8, 4*(block+2*2*6) + 2*(2*6*4+5*2*2*2)},
	} {
		p := Point{Kernel: "flash", ISA: "go", Layer: c.layer, Pass: c.pass, Store: c.store, Batch: 2, HeadsQ: 3, HeadsKV: 1, Dim: 2, SeqQ: c.seqQ, SeqKV: 5}.WithDefaults()
		n, err := p.LayerWork()
		if err != nil || n.Flop != c.flop || n.Bytes != c.bytes {
			t.Errorf("%s: %+v, %v; want %d operations and %d bytes", p.Name(), n, err, c.flop, c.bytes)
		}
	}
	if _, err := (Point{Kernel: "flash", ISA: "go", SeqKV: 5, Dim: 2}).WithDefaults().LayerWork(); err == nil {
		t.Error("the work of a layer that is none")
	}
}
