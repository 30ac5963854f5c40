package run

import (
	"errors"
	"fmt"
	"slices"

	"attnlab/attn"
)

// plainRule is the name of linear attention without a rule.
const plainRule = "plain"

// A rule is a recurrence of linear attention: which gates the state has, and what a token writes.
type rule struct {
	name string
	// of sets the rule of a problem.
	of func(attn.Problem) attn.Problem
	// features are those of a point that names no feature map.
	features string
	// constant returns gates that do not depend on the token, one for each value head. If it is
	// nil, gates are random.
	constant func(heads int) []float32
}

// raw are the features of rules that map no rows.
const raw = "identity+unnormalised"

// rules is the table of rules. Their formulas are in the docs of package attn's constructors.
var rules = [...]rule{
	{name: "gated", of: gated, features: "elu+1"},
	{name: "delta", of: attn.DeltaNet, features: raw},
	{name: "gated-delta", of: attn.GatedDelta, features: raw},
	{name: "kda", of: attn.KDA, features: raw},
	{name: "gla", of: attn.GLA, features: raw},
	{name: "ssd", of: attn.SSD, features: raw},
	{name: "retnet", of: attn.RetNet, features: raw, constant: attn.RetNetDecay},
	{name: "lightning", of: attn.Lightning, features: raw, constant: firstLightning},
}

// gated returns p with a gate per head and nothing else.
func gated(p attn.Problem) attn.Problem {
	p.Linear.Gate = attn.HeadGate
	return p
}

// firstLightning returns the gates of a model's first layer, which are the steepest.
func firstLightning(heads int) []float32 { return attn.LightningDecay(heads, 0, 1) }

// Rules returns the names of rules. The first is that of linear attention without one.
func Rules() []string {
	names := []string{plainRule}
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// ruleOf returns the rule of a name.
func ruleOf(name string) (*rule, bool) {
	i := slices.IndexFunc(rules[:], func(r rule) bool { return r.name == name })
	if i < 0 {
		return nil, false
	}
	return &rules[i], true
}

// An OrderError reports a mask under which tokens are not read in order, as a rule demands.
type OrderError struct{ Rule, Mask string }

func (e *OrderError) Error() string {
	return fmt.Sprintf("rule %s reads tokens in order: mask is %s, want causal", e.Rule, e.Mask)
}

// setRule sets the rule and the value heads of a point's problem, which already has a mask. The
// features of the point choose the feature map and the normalisation.
func (p *Point) setRule(q *attn.Problem) error {
	switch {
	case q.Op == attn.OpLinear:
	case p.Rule != "":
		return &OtherOpError{Op: p.Op, Feature: "rule " + p.Rule}
	case p.HeadsV != 0:
		return &OtherOpError{Op: p.Op, Feature: "value heads"}
	}
	q.Linear.HeadsV = p.HeadsV
	if p.Rule == "" {
		return nil
	}
	r, ok := ruleOf(p.Rule)
	switch causal := q.Mask; {
	case !ok:
		return fmt.Errorf("rule %q: %w", p.Rule, oneOf(Rules()...)(p.Rule))
	case !q.Carries() && q.Page == 0:
		return &OrderError{p.Rule, p.Mask}
	case p.SeqQ != p.SeqKV:
		return fmt.Errorf("rule %s has one query for each key: seq_q is %d, seq_kv %d; for decoding use --seq 1 alone, as the state stands for all tokens before", p.Rule, p.SeqQ, p.SeqKV)
	default:
		*q = r.of(*q)
		q.Mask = causal
		q.Linear.Feature, q.Linear.Unnormalised = 0, false
	}
	return nil
}

// Decodes reports whether a call of the point reads one token of each sequence, by a rule. Such a
// call updates the state in place.
func (p Point) Decodes() bool { return p.Rule != "" && p.SeqQ == 1 && p.Pass == "forward" }

// gateShare divides the logarithms of random gates, so that a state keeps what it read tens of
// tokens ago, as that of a trained model does.
const gateShare = 16

// SetGates changes the gates of operands that cases.Fill has filled. Those of a rule with constant
// gates become these, without one for each token. Others become a share of themselves.
func (p Point) SetGates(q *attn.Problem, a *attn.Args) error {
	g := &a.Terms.Decay
	r, ok := ruleOf(p.Rule)
	switch {
	case !ok || q.Linear.Gate == attn.NoGate:
		return nil
	case g.Data == nil:
		return errors.New("rule " + p.Rule + ": the operands have no gates")
	case r.constant != nil:
		*g = attn.ConstantDecay(r.constant(g.H), g.B, g.S)
		return nil
	}
	for b := range g.B {
		for s := range g.S {
			for h := range g.H {
				for i, row := 0, g.Row(b, s, h); i < len(row); i++ {
					row[i] /= gateShare
				}
			}
		}
	}
	return nil
}
