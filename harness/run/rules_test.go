package run

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
)

// linearPoint returns a causal point of linear attention under a rule.
func linearPoint(rule string) Point {
	return Point{Kernel: "linear", ISA: "go", Op: "linear", Mask: "causal", HeadsQ: 4, HeadsKV: 2, SeqKV: 8, Dim: 4, DimV: 6, Rule: rule}
}

// TestRules checks that the problem of a rule's point is that of its constructor in package attn,
// with the point's own sizes.
func TestRules(t *testing.T) {
	sizes := attn.Problem{Op: attn.OpLinear, Batch: 1, SeqQ: 8, SeqKV: 8, HeadsQ: 4, HeadsKV: 2, Dim: 4, DimV: 6, Mask: attn.Causal()}
	gate := sizes
	gate.Linear.Gate = attn.HeadGate
	want := map[string]attn.Problem{
		"plain": sizes, "gated": gate, "delta": attn.DeltaNet(sizes), "gated-delta": attn.GatedDelta(sizes), "kda": attn.KDA(sizes),
		"gla": attn.GLA(sizes), "ssd": attn.SSD(sizes), "retnet": attn.RetNet(sizes), "lightning": attn.Lightning(sizes),
	}
	if len(want) != len(Rules()) {
		t.Errorf("%d rules, want %d", len(Rules()), len(want))
	}
	for _, rule := range Rules() {
		for _, heads := range []int{0, 4} {
			p := linearPoint(rule)
			p.HeadsV = heads
			p = p.WithDefaults()
			got, err := p.Problem()
			w := want[rule]
			w.Linear.HeadsV = heads
			if err != nil || got != w {
				t.Errorf("%s, %d value heads: got %+v, %v\nwant %+v", rule, heads, got, err, w)
			}
			if q, err := ParseName(p.Name()); err != nil || q != p {
				t.Errorf("%s: got %+v, %v", p.Name(), q, err)
			}
		}
	}
}

// TestRuleNames checks that names show a rule, and show value heads and features where they are not
// the default. A plain point has the name and the JSON that it had before there were rules.
func TestRuleNames(t *testing.T) {
	const head = "Attention/kernel=linear/isa=go/pass=forward/mask=causal/heads=4/kvheads=2/seq=8/dim=4/dimv=6"
	for _, c := range []struct {
		rule, features string
		heads          int
		want           string
	}{
		{"", "", 0, "/threads=1"},
		{"plain", "", 2, "/threads=1"},
		{"kda", "", 0, "/threads=1/rule=kda"},
		{"kda", "relu+1+unnormalised", 4, "/features=relu+1+unnormalised/threads=1/rule=kda/vheads=4"},
		{"gated", "elu+1", 0, "/threads=1/rule=gated"},
		{"ssd", "unnormalised+identity", 0, "/threads=1/rule=ssd"},
		{"ssd", "unnormalised", 0, "/threads=1/rule=ssd"},
		{"ssd", "elu+1", 0, "/features=elu+1/threads=1/rule=ssd"},
	} {
		p := linearPoint(c.rule)
		p.Features, p.HeadsV = c.features, c.heads
		if got := p.WithDefaults().Name(); got != head+c.want {
			t.Errorf("rule %q with %q:\n got %s\nwant %s", c.rule, c.features, got, head+c.want)
		}
	}
}

// TestRuleErrors checks what a rule and value heads are refused with.
func TestRuleErrors(t *testing.T) {
	for want, change := range map[string]func(p *Point){
		"op softmax has no rule kda":             func(p *Point) { p.Kernel, p.Op = "flash", "softmax" },
		"op softmax has no value heads":          func(p *Point) { p.Kernel, p.Op, p.Rule, p.HeadsV = "flash", "softmax", "", 4 },
		"tokens in order: mask is full":          func(p *Point) { p.Mask = "full" },
		"tokens in order: mask is window:3:0":    func(p *Point) { p.Mask = "window:3:0" },
		"seq_q is 1, seq_kv 8":                   func(p *Point) { p.SeqQ = 1 },
		"read tokens in order":                   func(p *Point) { p.Page = 16 },
		`rule "magic": one of plain, gated,`:     func(p *Point) { p.Rule = "magic" },
		"the delta rule with a normalised":       func(p *Point) { p.Features = "relu+1" },
		`heads_v "-1": want 1 or more, or 0 for`: func(p *Point) { p.HeadsV = -1 },
		"3 value heads: each must divide":        func(p *Point) { p.HeadsV = 3 },
	} {
		p := linearPoint("kda")
		change(&p)
		err := p.WithDefaults().Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if order := new(OrderError); errors.As(err, &order) != strings.HasPrefix(want, "tokens in order") {
			t.Errorf("%v: got the type %T", err, err)
		}
	}
	topLeft := linearPoint("kda")
	topLeft.Mask = "causal-topleft"
	if err := topLeft.WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
}

// TestDecodes checks which points update a state.
func TestDecodes(t *testing.T) {
	for _, c := range []struct {
		rule, pass string
		seq        int
		want       bool
	}{
		{"kda", "forward", 1, true},
		{"kda", "forward", 2, false},
		{"kda", "backward", 1, false},
		{"plain", "forward", 1, false},
	} {
		p := linearPoint(c.rule)
		p.Pass, p.SeqKV = c.pass, c.seq
		if got := p.WithDefaults().Decodes(); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestSetGates checks that random gates are divided, and that constant gates are one number for
// each value head.
func TestSetGates(t *testing.T) {
	for rule, want := range map[string]func(g attn.Tensor) bool{
		"plain": func(g attn.Tensor) bool { return g.Data == nil },
		"delta": func(g attn.Tensor) bool { return g.Data == nil },
		"gated": func(g attn.Tensor) bool { return g.Row(0, 5, 3)[0] == -0.5 },
		"kda":   func(g attn.Tensor) bool { return slices.Equal(g.Row(0, 5, 3), []float32{-0.5, -0.5, -0.5, -0.5}) },
		"retnet": func(g attn.Tensor) bool {
			return len(g.Data) == 4 && g.Row(0, 5, 0)[0] == float32(math.Log(31.0/32)) && g.Row(0, 0, 3)[0] == float32(math.Log1p(-1.0/256))
		},
		"lightning": func(g attn.Tensor) bool { return g.Row(0, 5, 0)[0] == 0 && g.Row(0, 0, 3)[0] == -6 },
	} {
		p := linearPoint(rule)
		p.HeadsV = 4
		p = p.WithDefaults()
		q, err := p.Problem()
		if err != nil {
			t.Fatal(err)
		}
		a := new(attn.Args)
		switch q.Linear.Gate {
		case attn.HeadGate:
			a.Terms.Decay = attn.New(attn.BHSD, 1, 8, 4, 1)
		case attn.KeyGate:
			a.Terms.Decay = attn.New(attn.BHSD, 1, 8, 4, 4)
		}
		for i := range a.Terms.Decay.Data {
			a.Terms.Decay.Data[i] = -8
		}
		if err := p.SetGates(&q, a); err != nil || !want(a.Terms.Decay) {
			t.Errorf("%s: got %v, %v", rule, a.Terms.Decay, err)
		}
	}
	p := linearPoint("kda").WithDefaults()
	q, err := p.Problem()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetGates(&q, new(attn.Args)); err == nil {
		t.Error("operands without gates: got no error")
	}
}
