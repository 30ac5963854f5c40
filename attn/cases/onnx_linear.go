package cases

import (
	"errors"
	"fmt"
	"strings"

	"attnlab/attn"
)

func (n *onnxTest) linear(o *Outside) error {
	rule, ok := n.Node.Attrs["update_rule"].(string)
	if !ok {
		rule = "gated_delta" // the default of ONNX
	}
	delta, gated := strings.HasSuffix(rule, "delta"), strings.HasPrefix(rule, "gated")
	if !delta && !gated && rule != "linear" {
		return lack("update rule " + rule)
	}
	if err := n.attrs("update_rule", "scale", "q_num_heads", "kv_num_heads", "chunk_size"); err != nil {
		return err
	}
	decay, beta := n.input(4), n.input(5)
	for _, x := range []struct {
		name, rules   string
		given, wanted bool
	}{{"decay", "gated and gated_delta", decay != nil, gated}, {"beta", "delta and gated_delta", beta != nil, delta}} {
		switch {
		case x.wanted && !x.given:
			return fmt.Errorf("update rule %s: got no %s; give one, or choose a rule other than %s", rule, x.name, x.rules)
		case x.given && !x.wanted:
			return fmt.Errorf("update rule %s: got a %s, want none; leave it out, or choose %s", rule, x.name, strings.Replace(x.rules, " and ", " or ", 1))
		}
	}
	hq, err := n.integer("q_num_heads", 0)
	if err != nil {
		return err
	}
	hkv, err := n.integer("kv_num_heads", 0)
	if err != nil {
		return err
	}
	a := new(attn.Args)
	for i, t := range []*attn.Tensor{&a.Q, &a.K, &a.V} {
		if *t, err = operand(n.input(i), []string{"query", "key", "value"}[i], []int{hq, hkv, hkv}[i]); err != nil {
			return err
		}
	}
	y, err := operand(n.output(0), "output", hq)
	if err != nil {
		return err
	}
	a.Out = poisoned(y)
	o.expects("output", y, func(g answer) *attn.Tensor { return &g.a.Out })
	p := &o.Problem
	*p = attn.Problem{
		Op: attn.OpLinear, Batch: a.Q.B, SeqQ: a.Q.S, SeqKV: a.K.S, HeadsQ: a.Q.H, HeadsKV: a.K.H, Dim: a.Q.D, DimV: a.V.D,
		Mask: attn.Causal(), Linear: attn.Linear{Feature: attn.Identity, Unnormalised: true, Delta: delta}, Q: a.Q.Type, KV: a.K.Type, Out: y.Type,
	}
	if p.Score.Scale, err = n.scale(&a.Q); err != nil {
		return err
	}
	if gated {
		p.Linear.Gate = attn.HeadGate
		if a.Terms.Decay, err = operand(decay, "decay", hkv); err != nil {
			return err
		}
		if a.Terms.Decay = float32s(a.Terms.Decay); a.Terms.Decay.D != 1 {
			p.Linear.Gate = attn.KeyGate
		}
	}
	if delta {
		heads := hkv
		if len(beta.Shape) == 3 && beta.Shape[2] == 1 {
			heads = 1
		}
		if a.Terms.Beta, err = operand(beta, "beta", heads); err != nil {
			return err
		}
		a.Terms.Beta = float32s(a.Terms.Beta)
	}
	if past := n.input(3); past != nil {
		if a.StateIn, err = past.floats(); err != nil {
			return err
		}
	}
	if present := n.output(1); present != nil {
		want, err := operand(present, present.Name, 0)
		if err != nil {
			return err
		}
		if err := p.Validate(); err != nil {
			return err
		}
		a.StateOut = make([]float32, p.StateLen())
		fill(a.StateOut, Poison)
		o.expects(present.Name, want, func(g answer) *attn.Tensor {
			got := attn.Wrap(attn.BHSD, g.a.StateOut, p.Batch, p.Dim, p.HeadsKV, p.DimV)
			return &got
		})
	}
	o.Args = a
	return errors.Join(p.Validate(), p.Check(a))
}
