package cases

import (
	"errors"

	"attnlab/attn"
)

func (n *onnxTest) linear(o *Outside) error {
	rule, ok := n.Node.Attrs["update_rule"].(string)
	if !ok {
		rule = "gated_delta" // the default of ONNX
	}
	if rule != "linear" {
		return lack("update rule " + rule)
	}
	if err := n.attrs("update_rule", "scale", "q_num_heads", "kv_num_heads", "chunk_size"); err != nil {
		return err
	}
	if n.input(4) != nil || n.input(5) != nil {
		return errors.New("update rule linear takes no decay and no beta")
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
		Mask: attn.Causal(), Linear: attn.Linear{Feature: attn.Identity, Unnormalised: true}, Q: a.Q.Type, KV: a.K.Type, Out: y.Type,
	}
	if p.Score.Scale, err = n.scale(&a.Q); err != nil {
		return err
	}
	if past := n.input(3); past != nil {
		if o.State, err = past.floats(); err != nil {
			return err
		}
	}
	if present := n.output(1); present != nil {
		want, err := operand(present, present.Name, 0)
		if err != nil {
			return err
		}
		o.expects(present.Name, want, func(g answer) *attn.Tensor {
			if g.state == nil {
				return nil
			}
			got := attn.Wrap(attn.BHSD, g.state, p.Batch, p.Dim, p.HeadsKV, p.DimV)
			return &got
		})
	}
	o.Args = a
	return errors.Join(p.Validate(), p.Check(a))
}
