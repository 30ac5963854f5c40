package attn_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
)

// ruleSizes are sizes with 4 query heads, 2 key heads and 4 value heads.
func ruleSizes() attn.Problem {
	return attn.Problem{Batch: 2, SeqQ: 5, SeqKV: 5, HeadsQ: 4, HeadsKV: 2, Dim: 3, DimV: 6, Linear: attn.Linear{HeadsV: 4}}
}

// ruleCall allocates the operands of a linear problem with a rule, in sequences of SeqQ rows.
func ruleCall(p *attn.Problem) *attn.Args {
	batch, n := p.Batch, p.SeqQ
	if p.Ragged {
		batch, n = 1, p.Batch*p.SeqQ
	}
	tensor := func(h, d int) attn.Tensor { return attn.New(attn.BSHD, batch, n, h, d) }
	a := &attn.Args{Q: tensor(p.HeadsQ, p.Dim), K: tensor(p.HeadsKV, p.Dim), V: tensor(p.ValueHeads(), p.DimV), Out: tensor(p.OutHeads(), p.DimV)}
	if p.Ragged {
		for b := range p.Batch + 1 {
			a.QStart = append(a.QStart, int32(b*p.SeqQ))
		}
		a.KStart = a.QStart
	}
	switch p.Linear.Gate {
	case attn.HeadGate:
		a.Terms.Decay = tensor(p.ValueHeads(), 1)
	case attn.KeyGate:
		a.Terms.Decay = tensor(p.ValueHeads(), p.Dim)
	}
	if p.Linear.Delta {
		a.Terms.Beta = tensor(p.ValueHeads(), 1)
	}
	a.StateIn, a.StateOut = make([]float32, p.StateLen()), make([]float32, p.SnapshotLen())
	return a
}

// ruleGrads allocates all gradients of such a call.
func ruleGrads(p *attn.Problem, a *attn.Args) *attn.Grads {
	like := func(t *attn.Tensor) attn.Tensor {
		if t.Data == nil {
			return attn.Tensor{}
		}
		return attn.New(attn.BSHD, t.B, t.S, t.H, t.D)
	}
	g := &attn.Grads{Out: like(&a.Out), Q: like(&a.Q), K: like(&a.K), V: like(&a.V)}
	g.Terms.Decay, g.Terms.Beta = like(&a.Terms.Decay), like(&a.Terms.Beta)
	g.StateIn, g.StateOut = make([]float32, p.StateLen()), make([]float32, p.StateLen())
	return g
}

// TestRulesRefused checks that rules which are not defined are refused with what to do instead.
func TestRulesRefused(t *testing.T) {
	const order = "problem: a gate, the delta rule or snapshots read tokens in order: want a causal mask, and no bitmap, Lengths or pages"
	for _, c := range []struct {
		want string
		edit func(p *attn.Problem)
	}{
		{"problem: heads_v is -1, want 0 or more", func(p *attn.Problem) { p.Linear.HeadsV = -1 }},
		{"problem: snapshots is -1, want 0 or more", func(p *attn.Problem) { p.Linear.Snapshots = -1 }},
		{"problem: 4 value heads with 0 query heads and 2 key heads: want 1 or more of each, or heads_v 0", func(p *attn.Problem) { p.HeadsQ = 0 }},
		{
			"problem: 4 output heads (the larger of query heads and value heads), but 3 query heads, 2 key heads and 4 value heads: each must divide them",
			func(p *attn.Problem) { p.HeadsQ = 3 },
		},
		{
			"problem: 12 output heads (the larger of query heads and value heads), but 12 query heads, 2 key heads and 5 value heads: each must divide them",
			func(p *attn.Problem) { p.HeadsQ, p.Linear.HeadsV = 12, 5 },
		},
		{
			"problem: 2 key heads and 3 value heads: one must divide the other, as a state has one head of each",
			func(p *attn.Problem) { p.HeadsQ, p.Linear.HeadsV = 12, 3 },
		},
		{"problem: unknown element type, feature map, gate or norm", func(p *attn.Problem) { p.Linear.Gate = attn.KeyGate + 1 }},
		{"problem: unknown element type, feature map, gate or norm", func(p *attn.Problem) { p.Linear.Norm = attn.NormMax + 1 }},
		{"problem: norm eps -1, want a small number, 0 or more", func(p *attn.Problem) { p.Linear.NormEps = -1 }},
		{"problem: norm eps NaN, want a small number, 0 or more", func(p *attn.Problem) { p.Linear.NormEps = math.NaN() }},
		{
			"problem: norm eps 0.5 without a norm: set Linear.Norm, or leave NormEps 0",
			func(p *attn.Problem) { p.Linear.Norm, p.Linear.NormEps = attn.NoNorm, 0.5 },
		},
		{"problem: the delta rule with a normalised output: set Linear.Unnormalised", func(p *attn.Problem) { p.Linear.Unnormalised = false }},
		{
			"problem: a gate per key channel with a normalised output: set Linear.Unnormalised, or take a gate per head",
			func(p *attn.Problem) {
				p.Linear.Unnormalised, p.Linear.Delta, p.Linear.Gate = false, false, attn.KeyGate
			},
		},
		{"problem: dim_q is 3, but op is linear, which has no metric: leave it 0", func(p *attn.Problem) { p.DimQ = 3 }},
		{order, func(p *attn.Problem) { p.Mask = attn.Full() }},
		{order, func(p *attn.Problem) { p.Mask = attn.Window(4, 0) }},
		{order, func(p *attn.Problem) { p.Mask = p.Mask.With(attn.BoolBitmap) }},
		{order, func(p *attn.Problem) { p.Lengths = true }},
		{order, func(p *attn.Problem) { p.Page = 8 }},
		{order, func(p *attn.Problem) { p.Mask, p.Linear = attn.Full(), attn.Linear{Snapshots: 2} }},
		{
			"problem: gradients of 2 snapshots: a backward pass has one state, leave Snapshots 0",
			func(p *attn.Problem) { p.Linear.Snapshots, p.Want = 2, attn.WantGrad },
		},
		{
			"problem: 4611686018427387904 states of batch 2, 4 heads and 3 by 6 numbers are more than any machine can hold",
			func(p *attn.Problem) { p.Linear.Snapshots = 1 << 62 },
		},
		{
			"problem: op softmax has no gate per head, delta rule, norm of Q and K, value heads: leave it out",
			func(p *attn.Problem) { p.Op = attn.OpSoftmax },
		},
	} {
		p := attn.GatedDelta(ruleSizes())
		c.edit(&p)
		if err := p.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("error %q, want %q", err, c.want)
		} else if errors.Is(err, attn.ErrUnsupported) {
			t.Errorf("%v: malformed is not unsupported", err)
		}
	}
}

// TestRuleOperandsRefused checks that wrong operands of a rule or a state are named, with what to
// do.
func TestRuleOperandsRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		edit func(p *attn.Problem, a *attn.Args)
	}{
		{
			"Decay: shape [batch 2, seq 5, head 2, dim 1], the problem needs [batch 2, seq 5, head 4, dim 1]",
			func(p *attn.Problem, a *attn.Args) { a.Terms.Decay = attn.New(attn.BSHD, 2, 5, 2, 1) },
		},
		{
			"Decay: shape [batch 2, seq 5, head 4, dim 1], the problem needs [batch 2, seq 5, head 4, dim 3]",
			func(p *attn.Problem, a *attn.Args) { p.Linear.Gate = attn.KeyGate },
		},
		{
			"Decay: shape [batch 0, seq 0, head 0, dim 0], the problem needs [batch 2, seq 5, head 4, dim 1]",
			func(p *attn.Problem, a *attn.Args) { a.Terms.Decay = attn.Tensor{} },
		},
		{"Decay: elements are f16, the problem needs f32", func(p *attn.Problem, a *attn.Args) { a.Terms.Decay.Type = attn.F16 }},
		{"Decay: given, but the problem has no Gate", func(p *attn.Problem, a *attn.Args) { p.Linear.Gate = attn.NoGate }},
		{"Beta: given, but the problem has no Delta", func(p *attn.Problem, a *attn.Args) { p.Linear.Delta = false }},
		{
			"Beta: shape [batch 2, seq 5, head 2, dim 1], the problem needs [batch 2, seq 5, head 4, dim 1]",
			func(p *attn.Problem, a *attn.Args) { a.Terms.Beta = attn.New(attn.BSHD, 2, 5, 2, 1) },
		},
		{
			"V: shape [batch 2, seq 5, head 2, dim 6], the problem needs [batch 2, seq 5, head 4, dim 6]",
			func(p *attn.Problem, a *attn.Args) { a.V = attn.New(attn.BSHD, 2, 5, 2, 6) },
		},
		{
			"Out: shape [batch 2, seq 5, head 2, dim 6], the problem needs [batch 2, seq 5, head 4, dim 6]",
			func(p *attn.Problem, a *attn.Args) { a.Out = attn.New(attn.BSHD, 2, 5, 2, 6) },
		},
		{
			"Q, K: 4 queries and 5 keys in batch entry 0: a rule or a state wants one query for each key",
			func(p *attn.Problem, a *attn.Args) { a.Q.S, a.Out.S = 4, 4 },
		},
		{
			"Q, K: 4 queries and 5 keys in batch entry 0: a rule or a state wants one query for each key",
			func(p *attn.Problem, a *attn.Args) {
				p.Linear = attn.Linear{HeadsV: 4}
				a.Terms, a.StateIn, a.Q.S, a.Out.S = attn.Operands{}, nil, 4, 4
				a.StateOut = make([]float32, p.SnapshotLen())
			},
		},
		{"StateIn: 143 numbers, want 144: allocate StateLen of the problem", func(p *attn.Problem, a *attn.Args) { a.StateIn = a.StateIn[1:] }},
		{"StateOut: 144 numbers, want 432: allocate SnapshotLen of the problem", func(p *attn.Problem, a *attn.Args) { p.Linear.Snapshots = 3 }},
		{"StateOut: overlaps StateIn in memory", func(p *attn.Problem, a *attn.Args) {
			both := make([]float32, 145)
			a.StateIn, a.StateOut = both[1:], both[:144]
		}},
		{"StateOut: overlaps V in memory", func(p *attn.Problem, a *attn.Args) { a.StateOut = a.V.Data[:144] }},
		{"StateOut: overlaps Out in memory", func(p *attn.Problem, a *attn.Args) { a.StateOut = a.Out.Data[:144] }},
		{"StateOut: overlaps Out in memory", func(p *attn.Problem, a *attn.Args) { a.StateIn, a.StateOut = nil, a.Out.Data[:144] }},
		{"Out: overlaps StateIn in memory", func(p *attn.Problem, a *attn.Args) { a.StateIn = a.Out.Data[:144] }},
		{"Out: overlaps Decay in memory", func(p *attn.Problem, a *attn.Args) { a.Terms.Decay.Data = a.Out.Data }},
		{"Out: overlaps Beta in memory", func(p *attn.Problem, a *attn.Args) { a.Terms.Beta.Data = a.Out.Data }},
		{
			"StateIn, StateOut: given, but the problem carries no state: want op linear, a causal mask, and no bitmap, Lengths or pages; got op linear, mask full",
			func(p *attn.Problem, a *attn.Args) {
				p.Mask, p.Linear, a.Terms = attn.Full(), attn.Linear{HeadsV: 4}, attn.Operands{}
			},
		},
	} {
		p := attn.GatedDelta(ruleSizes())
		a := ruleCall(&p)
		if err := p.Check(a); err != nil {
			t.Fatal(err)
		}
		c.edit(&p, a)
		if err := p.Check(a); err == nil || err.Error() != c.want {
			t.Errorf("error %q, want %q", err, c.want)
		}
	}
}

// TestRuleGradientsRefused checks that wrong gradients of a rule or a state are named, with what to
// do.
func TestRuleGradientsRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		edit func(p *attn.Problem, a *attn.Args, g *attn.Grads)
	}{
		{
			"StateOut: the same slice as StateIn, which the backward pass reads: give StateOut its own",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) { a.StateOut = a.StateIn },
		},
		{
			"dStateOut: 143 numbers, want 144: allocate StateLen of the problem",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.StateOut = g.StateOut[1:] },
		},
		{
			"dStateIn: 143 numbers, want 144: allocate StateLen of the problem",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.StateIn = g.StateIn[1:] },
		},
		{"dStateIn: overlaps StateIn in memory", func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.StateIn = a.StateIn }},
		{"dStateIn: overlaps dStateOut in memory", func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.StateIn = g.StateOut }},
		{"dStateIn: overlaps dV in memory", func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.StateIn = g.V.Data[:144] }},
		{
			"dDecay: shape [batch 2, seq 5, head 4, dim 3], the problem needs [batch 2, seq 5, head 4, dim 1]",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.Terms.Decay = attn.New(attn.BSHD, 2, 5, 4, 3) },
		},
		{
			"dDecay: strides (4, 0, 1) make rows of an output overlap",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) {
				g.Terms.Decay = attn.ConstantDecay(make([]float32, 8), 2, 5)
				g.Terms.Decay.H, g.Terms.Decay.SB = 4, 4
			},
		},
		{"dBeta: overlaps Beta in memory", func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.Terms.Beta = a.Terms.Beta }},
		{
			"dBeta: shape [batch 2, seq 5, head 4, dim 1], the problem needs [batch 2, seq 5, head 1, dim 1]",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) { a.Terms.Beta = attn.New(attn.BSHD, 2, 5, 1, 1) },
		},
		{
			"dStateOut, dStateIn: given, but the problem carries no state: want op linear, a causal mask, and no bitmap, Lengths or pages; got op linear, mask full",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) {
				p.Mask, p.Linear = attn.Full(), attn.Linear{HeadsV: 4}
				a.Terms, a.StateIn, a.StateOut, g.Terms = attn.Operands{}, nil, nil, attn.Operands{}
			},
		},
		{
			"dOut: shape [batch 2, seq 5, head 2, dim 6], the problem needs [batch 2, seq 5, head 4, dim 6]",
			func(p *attn.Problem, a *attn.Args, g *attn.Grads) { g.Out = attn.New(attn.BSHD, 2, 5, 2, 6) },
		},
	} {
		p := attn.GatedDelta(ruleSizes())
		p.Want = attn.WantGrad
		a := ruleCall(&p)
		g := ruleGrads(&p, a)
		if err := p.CheckGrads(a, g); err != nil {
			t.Fatal(err)
		}
		c.edit(&p, a, g)
		if err := p.CheckGrads(a, g); err == nil || err.Error() != c.want {
			t.Errorf("error %q, want %q", err, c.want)
		}
	}
}

// TestRuleOperandsTaken checks that right operands of every rule pass the checks, which then
// allocate nothing.
func TestRuleOperandsTaken(t *testing.T) {
	for name, edit := range map[string]func(p *attn.Problem, a *attn.Args){
		"all":         func(p *attn.Problem, a *attn.Args) {},
		"no states":   func(p *attn.Problem, a *attn.Args) { a.StateIn, a.StateOut = nil, nil },
		"zero state":  func(p *attn.Problem, a *attn.Args) { a.StateIn = nil },
		"fewer rows":  func(p *attn.Problem, a *attn.Args) { shorten(a, 2) },
		"no rows":     func(p *attn.Problem, a *attn.Args) { shorten(a, 0) },
		"shared beta": func(p *attn.Problem, a *attn.Args) { a.Terms.Beta.H = min(a.Terms.Beta.H, 1) },
	} {
		for _, r := range rules() {
			for _, ragged := range []bool{false, true} {
				p := r.of(ruleSizes())
				p.Want, p.Ragged = attn.WantGrad, ragged
				a := ruleCall(&p)
				edit(&p, a)
				if ragged && a.Q.S < p.Batch*p.SeqQ {
					continue // fewer rows are other starts
				}
				g := ruleGrads(&p, a)
				if n := testing.AllocsPerRun(1, func() {
					if err := p.CheckGrads(a, g); err != nil {
						t.Errorf("%s, %s: %v", r.name, name, err)
					}
				}); n != 0 {
					t.Errorf("%s, %s: %v allocations", r.name, name, n)
				}
			}
		}
	}
	p := attn.SSD(ruleSizes())
	a := ruleCall(&p)
	a.StateOut = a.StateIn
	a.Terms.Decay = attn.ConstantDecay(attn.RetNetDecay(4), 2, 5)
	if err := p.Check(a); err != nil {
		t.Errorf("a state in place and a constant decay: %v", err)
	}
	p.Linear.Snapshots = 3
	a.StateOut = make([]float32, p.SnapshotLen())
	a.StateIn = a.StateOut[:p.StateLen()]
	if err := p.Check(a); err != nil {
		t.Errorf("the first of three states in place: %v", err)
	}
}

// shorten leaves the first n tokens of a call.
func shorten(a *attn.Args, n int) {
	for _, t := range []*attn.Tensor{&a.Q, &a.K, &a.V, &a.Out, &a.Terms.Decay, &a.Terms.Beta} {
		t.S = min(t.S, n)
	}
}

// A namedRule is a constructor of a rule's problem and what it must set.
type namedRule struct {
	name  string
	of    func(attn.Problem) attn.Problem
	want  attn.Linear
	scale float64
	needs attn.Needs
}

func rules() []namedRule {
	const heads = attn.NeedHeadsV
	unit := attn.Linear{Feature: attn.Identity, Unnormalised: true, HeadsV: 4}
	with := func(gate attn.Gate, delta bool) attn.Linear {
		l := unit
		if l.Gate, l.Delta = gate, delta; delta {
			l.Norm, l.NormEps = attn.NormSum, 1e-6
		}
		return l
	}
	return []namedRule{
		{"gated delta", attn.GatedDelta, with(attn.HeadGate, true), 0, attn.NeedHeadGate | attn.NeedDelta | attn.NeedNorm | heads},
		{"KDA", attn.KDA, with(attn.KeyGate, true), 0, attn.NeedKeyGate | attn.NeedDelta | attn.NeedNorm | heads},
		{"delta", attn.DeltaNet, with(attn.NoGate, true), 0, attn.NeedDelta | attn.NeedNorm | heads},
		{"GLA", attn.GLA, with(attn.KeyGate, false), 0, attn.NeedKeyGate | heads},
		{"SSD", attn.SSD, with(attn.HeadGate, false), 1, attn.NeedHeadGate | heads},
		{"RetNet", attn.RetNet, with(attn.HeadGate, false), 0, attn.NeedHeadGate | heads},
		{"lightning", attn.Lightning, with(attn.HeadGate, false), 0, attn.NeedHeadGate | heads},
	}
}

// TestRules checks that each constructor returns a valid problem of the sizes given and sets what
// its rule is, whatever op, mask and score were before.
func TestRules(t *testing.T) {
	for _, r := range rules() {
		sizes := ruleSizes()
		dirty := sizes
		dirty.Op, dirty.Mask, dirty.Score = attn.OpSoftmax, attn.Window(3, 3), attn.Score{Softcap: 3, Terms: attn.TermBias}
		dirty.Linear.Feature, dirty.Linear.Eps, dirty.Linear.Gate, dirty.Linear.Delta = attn.ReluPlusOne, 1, attn.KeyGate, true
		want := sizes
		want.Op, want.Mask, want.Linear, want.Score.Scale = attn.OpLinear, attn.Causal(), r.want, r.scale
		for _, p := range []attn.Problem{r.of(sizes), r.of(dirty)} {
			if p != want {
				t.Errorf("%s: %+v, want %+v", r.name, p, want)
			}
			if err := p.Validate(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
			if got, want := p.Needs(), attn.NeedLinear|r.needs; got != want {
				t.Errorf("%s needs %v, want %v", r.name, got, want)
			}
			if !p.Rule() || !p.Carries() {
				t.Errorf("%s: rule %v, carries %v, want both", r.name, p.Rule(), p.Carries())
			}
		}
		sizes.Linear.Snapshots = 3
		if p := r.of(sizes); p.Linear.Snapshots != 3 || p.Needs()&attn.NeedSnapshots == 0 {
			t.Errorf("%s: %d snapshots, want 3", r.name, p.Linear.Snapshots)
		}
	}
	if both := attn.AllRules & attn.AllSoftmax; both != 0 {
		t.Errorf("softmax takes %v", both)
	}
	if attn.AllNeeds.Wants() != attn.WantGrad<<1-1 {
		t.Errorf("abilities of rules count as by-products: %#x", attn.AllNeeds.Wants())
	}
	if got, want := attn.AllRules.String(), "gate per head, gate per key channel, delta rule, norm of Q and K, value heads, snapshots"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSwitchesCombine checks the table of the package doc, in every combination: which masks,
// outputs and gradients each switch of linear attention needs.
func TestSwitchesCombine(t *testing.T) {
	masks := []struct {
		inOrder bool
		edit    func(p *attn.Problem)
	}{
		{true, func(p *attn.Problem) { p.Mask = attn.Causal() }},
		{true, func(p *attn.Problem) { p.Mask, p.Ragged = attn.CausalTopLeft(), true }},
		{false, func(p *attn.Problem) { p.Mask = attn.Full() }},
		{false, func(p *attn.Problem) { p.Mask = attn.Window(2, 0) }},
		{false, func(p *attn.Problem) { p.Mask = attn.Causal().With(attn.PackedBitmap) }},
		{false, func(p *attn.Problem) { p.Mask, p.Lengths = attn.Causal(), true }},
		{false, func(p *attn.Problem) { p.Mask, p.Page = attn.Causal(), 8 }},
	}
	for _, m := range masks {
		for bits := range 1 << 7 {
			on := func(bit int) bool { return bits>>bit&1 != 0 }
			for gate := attn.NoGate; gate <= attn.KeyGate; gate++ {
				p := ruleSizes()
				p.Op, p.Linear = attn.OpLinear, attn.Linear{Gate: gate, Delta: on(0), Unnormalised: on(1)}
				if m.edit(&p); on(2) {
					p.Linear.Snapshots = 2
				}
				if on(3) {
					p.Linear.Norm = attn.NormMax
				}
				if on(4) {
					p.Linear.HeadsV = 4
				}
				if on(5) {
					p.Want = attn.WantGrad
				}
				if on(6) {
					p.Linear.Feature, p.Linear.Eps = attn.ReluPlusOne, 0.1
				}
				ordered := m.inOrder || gate == attn.NoGate && !on(0) && !on(2)
				output := on(1) || gate != attn.KeyGate && !on(0)
				gradients := !on(5) || !on(2) && p.Page == 0
				good := ordered && output && gradients
				if err := p.Validate(); (err == nil) != good {
					t.Errorf("mask %v, lengths %v, page %d, %+v, gradients %v: %v, want valid %v", p.Mask, p.Lengths, p.Page, p.Linear, on(5), err, good)
				}
			}
		}
	}
}

// TestCarries checks which problems may carry a state.
func TestCarries(t *testing.T) {
	for _, c := range []struct {
		want bool
		edit func(p *attn.Problem)
	}{
		{true, func(p *attn.Problem) {}},
		{true, func(p *attn.Problem) { p.Ragged = true }},
		{true, func(p *attn.Problem) { p.Mask = attn.CausalTopLeft() }},
		{true, func(p *attn.Problem) { p.Linear.Norm = attn.NormMax }},
		{false, func(p *attn.Problem) { p.Op = attn.OpSoftmax }},
		{false, func(p *attn.Problem) { p.Mask = attn.Full() }},
		{false, func(p *attn.Problem) { p.Mask = attn.Window(9, 0) }},
		{false, func(p *attn.Problem) { p.Mask = attn.Window(attn.Unbounded, 1) }},
		{false, func(p *attn.Problem) { p.Mask = p.Mask.WithBlocks(2) }},
		{false, func(p *attn.Problem) { p.Lengths = true }},
		{false, func(p *attn.Problem) { p.Page = 8 }},
	} {
		p := attn.Problem{Op: attn.OpLinear, Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 2, Mask: attn.Causal()}
		if c.edit(&p); p.Carries() != c.want {
			t.Errorf("mask %v, lengths %v, page %d, op %v: carries %v, want %v", p.Mask, p.Lengths, p.Page, p.Op, p.Carries(), c.want)
		}
	}
}

// TestHeads checks, for all small numbers of heads, which are valid, and that an operand's heads
// are read in equal runs of consecutive heads of Out and of the state.
func TestHeads(t *testing.T) {
	valid := 0
	for q := range 9 {
		for k := range 9 {
			for v := range 9 {
				p := attn.Problem{Op: attn.OpLinear, Batch: 1, SeqQ: 1, SeqKV: 1, HeadsQ: q, HeadsKV: k, Dim: 1, DimV: 1, Mask: attn.Causal()}
				p.Linear.HeadsV = v
				values := v
				if v == 0 {
					values = k
				}
				out, states := max(q, values), max(k, values)
				good := q > 0 && k > 0 && out%q == 0 && out%k == 0 && out%values == 0 && (k%values == 0 || values%k == 0)
				if v == 0 {
					good = q == 0 || k > 0 && q%k == 0
					out = q
				}
				if err := p.Validate(); (err == nil) != good {
					t.Errorf("%d query heads, %d key heads, %d value heads: %v, want valid %v", q, k, v, err, good)
				}
				if !good || q == 0 {
					continue
				}
				valid++
				if p.ValueHeads() != values || p.OutHeads() != out || p.StateHeads() != states {
					t.Errorf("%d, %d, %d heads: %d of values, %d of Out, %d of the state; want %d, %d, %d", q, k, v, p.ValueHeads(), p.OutHeads(), p.StateHeads(), values, out, states)
				}
				for _, n := range []int{q, k, values, states} {
					runs(t, fmt.Sprintf("%d, %d, %d heads: head of Out", q, k, v), out, n, p.HeadOf)
				}
				for _, n := range []int{k, values} {
					runs(t, fmt.Sprintf("%d, %d, %d heads: state head", q, k, v), states, n, p.StateHeadOf)
				}
				// A head of Out reads the key head and the value head of its state head.
				for h := range out {
					s := p.HeadOf(h, states)
					if p.StateHeadOf(s, k) != p.HeadOf(h, k) || p.StateHeadOf(s, values) != p.HeadOf(h, values) {
						t.Errorf("%d, %d, %d heads: head %d of Out and its state head %d read other heads", q, k, v, h, s)
					}
				}
			}
		}
	}
	if valid < 80 {
		t.Errorf("%d numbers of heads are valid, want 80 or more", valid)
	}
}

// runs checks that of maps 0..heads-1 to 0..n-1 in runs of equal length.
func runs(t *testing.T, what string, heads, n int, of func(h, n int) int) {
	t.Helper()
	var got, want []int
	for i := range n {
		want = append(want, slices.Repeat([]int{i}, heads/n)...)
	}
	for h := range heads {
		got = append(got, of(h, n))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s of %d: %v, want %v", what, n, got, want)
	}
}

// TestStateLen checks the sizes of states.
func TestStateLen(t *testing.T) {
	p := attn.Problem{Op: attn.OpLinear, Batch: 2, HeadsQ: 4, HeadsKV: 2, Dim: 3, DimV: 6, Mask: attn.Causal()}
	for _, c := range []struct {
		linear          attn.Linear
		state, snapshot int
	}{
		{attn.Linear{Unnormalised: true}, 2 * 2 * 3 * 6, 2 * 2 * 3 * 6},
		{attn.Linear{}, 2 * 2 * 3 * 7, 2 * 2 * 3 * 7},
		{attn.Linear{Unnormalised: true, HeadsV: 4, Snapshots: 5}, 2 * 4 * 3 * 6, 5 * 2 * 4 * 3 * 6},
		{attn.Linear{HeadsV: 1, Snapshots: 1}, 2 * 2 * 3 * 7, 2 * 2 * 3 * 7},
	} {
		p.Linear = c.linear
		if p.StateLen() != c.state || p.SnapshotLen() != c.snapshot {
			t.Errorf("%+v: %d and %d numbers, want %d and %d", c.linear, p.StateLen(), p.SnapshotLen(), c.state, c.snapshot)
		}
	}
}

// TestCountOfRules checks the work of rules: 5 tokens of 2 sequences, 4 query heads, 2 key heads, 4
// value heads, rows of 3 and 6.
func TestCountOfRules(t *testing.T) {
	const tokens, product = 2 * 5, 2 * 3 * 6
	const write, read = tokens * 4 * product, tokens * 4 * product
	for _, r := range rules() {
		p := r.of(ruleSizes())
		want := int64(write + read)
		if p.Linear.Delta {
			want += write
		}
		c := p.Count(nil)
		if c.Flop != want || c.Back != want*5/2 || c.Keys != tokens*4 || c.Pairs != 2*4*15 {
			t.Errorf("%s: %+v, want %d operations, %d backward, %d keys, %d pairs", r.name, c, want, want*5/2, tokens*4, 2*4*15)
		}
		a := ruleCall(&p)
		bytes := 4 * int64(a.Q.Size()+a.K.Size()+a.V.Size()+a.Out.Size()+a.Terms.Decay.Size()+a.Terms.Beta.Size()+2*p.StateLen())
		if c := p.Count(a); c.Bytes != bytes || c.Flop != want {
			t.Errorf("%s: %d bytes and %d operations, want %d and %d", r.name, c.Bytes, c.Flop, bytes, want)
		}
	}
	p := attn.RetNet(ruleSizes())
	a := ruleCall(&p)
	all := p.Count(a).Bytes
	a.Terms.Decay = attn.ConstantDecay(attn.RetNetDecay(4), 2, 5)
	if got, want := p.Count(a).Bytes, all-4*(tokens-1)*4; got != want {
		t.Errorf("%d bytes with a constant decay, want %d", got, want)
	}
	p.Linear.Unnormalised = false
	if got, want := p.Count(nil).Flop, int64(2*tokens*4*2*3*7); got != want {
		t.Errorf("normalised: %d operations, want %d", got, want)
	}
	p.KV = attn.I8
	if got, want := p.Count(nil).Bytes, int64(4*tokens*4*(3+6)+tokens*(2*3+4*6)+4*tokens*(2+4)); got != want {
		t.Errorf("int8: %d bytes, want %d", got, want)
	}
}

// TestConstantDecays checks the gates of RetNet and lightning attention, and that a constant decay
// gives every token and batch entry the gates of its heads.
func TestConstantDecays(t *testing.T) {
	g := attn.RetNetDecay(3)
	for h, gamma := range []float64{31. / 32, 63. / 64, 127. / 128} {
		if got := math.Exp(float64(g[h])); !(math.Abs(got-gamma) <= 1e-8) {
			t.Errorf("RetNet, head %d: gamma %v, want %v", h, got, gamma)
		}
	}
	// -(8/4) (1 - 1/2) h
	if got, want := attn.LightningDecay(4, 5, 10), []float32{0, -1, -2, -3}; !slices.Equal(got, want) {
		t.Errorf("lightning: %v, want %v", got, want)
	}
	if got := attn.LightningDecay(4, 0, 10)[3]; got != -6 {
		t.Errorf("lightning, first layer: %v, want -6", got)
	}
	if a, b := attn.RetNetDecay(-1), attn.LightningDecay(-1, 0, 1); len(a)+len(b) != 0 {
		t.Errorf("gates of -1 heads: %v, %v", a, b)
	}
	d := attn.ConstantDecay(g, 2, 7)
	if got, want := d.Shape(), "[batch 2, seq 7, head 3, dim 1]"; got != want {
		t.Errorf("shape %s, want %s", got, want)
	}
	for b := range 2 {
		for s := range 7 {
			for h := range 3 {
				if d.Row(b, s, h)[0] != g[h] {
					t.Errorf("batch %d, token %d, head %d: %v, want %v", b, s, h, d.Row(b, s, h)[0], g[h])
				}
			}
		}
	}
}

// TestBeginClearsRules checks that a backward pass clears the gradients of rules and states first.
func TestBeginClearsRules(t *testing.T) {
	p := attn.KDA(ruleSizes())
	g := ruleGrads(&p, ruleCall(&p))
	cleared := map[string][]float32{"dDecay": g.Terms.Decay.Data, "dBeta": g.Terms.Beta.Data, "dStateIn": g.StateIn}
	for _, x := range append(slices.Collect(maps.Values(cleared)), g.StateOut) {
		for i := range x {
			x[i] = 1
		}
	}
	g.Begin()
	for name, x := range cleared {
		if slices.Max(x) != 0 {
			t.Errorf("%s is not cleared", name)
		}
	}
	if slices.Min(g.StateOut) != 1 {
		t.Error("dStateOut, which comes in, is cleared")
	}
}

// TestRequireNamesRules checks that a kernel without rules refuses them by name.
func TestRequireNamesRules(t *testing.T) {
	p := attn.GatedDelta(ruleSizes())
	err := p.Require("linear/go", attn.NeedLinear|attn.NeedHeadGate)
	if !errors.Is(err, attn.ErrUnsupported) || !strings.HasSuffix(err.Error(), "linear/go does not do: delta rule, norm of Q and K, value heads") {
		t.Errorf("%v", err)
	}
}
