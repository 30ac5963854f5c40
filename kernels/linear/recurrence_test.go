package linear_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/linear"
)

// rules are problems that together have every switch of a recurrence.
var rules = []struct {
	name string
	set  func(p *attn.Problem)
}{
	{"plain", func(p *attn.Problem) { p.Linear = attn.Linear{Feature: attn.Identity, Unnormalised: true} }},
	{"normalised", func(p *attn.Problem) { p.Linear = attn.Linear{Eps: .25} }},
	{"relu", func(p *attn.Problem) {
		p.Linear = attn.Linear{Feature: attn.ReluPlusOne, Norm: attn.NormMax, NormEps: .5}
	}},
	{"head gate", func(p *attn.Problem) { *p = attn.RetNet(*p) }},
	{"head gate, normalised", func(p *attn.Problem) { p.Linear = attn.Linear{Gate: attn.HeadGate} }},
	{"key gate", func(p *attn.Problem) { *p = attn.GLA(*p) }},
	{"delta", func(p *attn.Problem) { *p = attn.DeltaNet(*p) }},
	{"gated delta", func(p *attn.Problem) { *p = attn.GatedDelta(*p) }},
	{"kda", func(p *attn.Problem) { *p = attn.KDA(*p) }},
	{"value heads", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 2, 2, 4; *p = attn.GatedDelta(*p) }},
	{"few query heads", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 1, 2, 4; *p = attn.KDA(*p) }},
	{"one value head", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 4, 2, 1; *p = attn.KDA(*p) }},
	{"ragged", func(p *attn.Problem) { *p = attn.KDA(*p); p.Ragged = true }},
	{"ragged, plain", func(p *attn.Problem) { p.Linear = attn.Linear{}; p.Ragged = true }},
	{"snapshots", func(p *attn.Problem) { *p = attn.GatedDelta(*p); p.Linear.Snapshots = 7 }},
}

// ruled returns a problem with a rule, and a call of it with random operands and a state.
func ruled(rule, n, d, dv int) (attn.Problem, *attn.Args) {
	p := attn.Problem{Op: attn.OpLinear, Batch: 2, SeqQ: n, SeqKV: n, HeadsQ: 4, HeadsKV: 2, Dim: d, DimV: dv, Mask: attn.Causal()}
	rules[rule].set(&p)
	r := rand.New(rand.NewPCG(uint64(rule), uint64(n)))
	batch, rows := p.Batch, n
	a := &attn.Args{}
	if p.Ragged {
		batch, rows = 1, n+n/2
		a.QStart = []int32{0, int32(n), int32(rows)}
		a.KStart = a.QStart
	}
	normal := func(h, d int) attn.Tensor {
		t := attn.New(attn.BSHD, batch, rows, h, d)
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		return t
	}
	a.Q, a.K, a.V = normal(p.HeadsQ, d), normal(p.HeadsKV, d), normal(p.ValueHeads(), dv)
	a.Out = attn.New(attn.BHSD, batch, rows, p.OutHeads(), dv)
	if p.Linear.Gate != attn.NoGate {
		width := 1
		if p.Linear.Gate == attn.KeyGate {
			width = d
		}
		a.Terms.Decay = normal(p.ValueHeads(), width)
		for i, x := range a.Terms.Decay.Data {
			a.Terms.Decay.Data[i] = -float32(math.Log1p(math.Exp(-2 - float64(x))))
		}
	}
	if p.Linear.Delta {
		a.Terms.Beta = normal(p.ValueHeads(), 1)
		for i, x := range a.Terms.Beta.Data {
			a.Terms.Beta.Data[i] = float32(1 / (1 + math.Exp(-float64(x))))
		}
	}
	a.StateIn, a.StateOut = make([]float32, p.StateLen()), make([]float32, p.SnapshotLen())
	for i := range a.StateIn {
		// z is a sum of positive features.
		if a.StateIn[i] = float32(r.NormFloat64()); !p.Linear.Unnormalised {
			a.StateIn[i] = float32(math.Abs(float64(a.StateIn[i])))
		}
	}
	return p, a
}

// judge computes a call and compares it with the definition.
func judge(t *testing.T, ops *asm.Ops, p attn.Problem, a *attn.Args) {
	t.Helper()
	plan, err := linear.New(ops).Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan.Forward(a)
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	if v := o.Judge(oracle.All(&p, a)); !(v.Worst <= 1) {
		t.Errorf("%.3g of the tolerance: %s", v.Worst, v.Where)
	} else {
		t.Logf("%.3g of the tolerance; %d of %d numbers judged", v.Worst, v.Judged, v.Numbers)
	}
}

// TestRules checks every rule, over numbers of tokens that cross chunks and that are too few for
// one.
func TestRules(t *testing.T) {
	for _, l := range asmtest.All(t) {
		for rule := range rules {
			for _, n := range []int{1, 3, 4, 31, 32, 37, 67} {
				t.Run(fmt.Sprintf("%s/%s/n=%d", l.Name, rules[rule].name, n), func(t *testing.T) {
					p, a := ruled(rule, n, 17, 70)
					judge(t, l.Ops, p, a)
				})
			}
		}
	}
}
