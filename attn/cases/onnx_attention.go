package cases

import (
	"errors"
	"fmt"
	"slices"

	"attnlab/attn"
)

func (n *onnxTest) attention(o *Outside) error {
	if err := n.attrs("is_causal", "scale", "softcap", "qk_matmul_output_mode", "softmax_precision", "left_window_size", "right_window_size",
		"q_num_heads", "kv_num_heads"); err != nil {
		return err
	}
	var causal, mode, left, right, hq, hkv int
	for _, a := range []struct {
		to        *int
		name      string
		otherwise int
	}{
		{&causal, "is_causal", 0},
		{&mode, "qk_matmul_output_mode", 0},
		{&left, "left_window_size", -1},
		{&right, "right_window_size", -1},
		{&hq, "q_num_heads", 0},
		{&hkv, "kv_num_heads", 0},
	} {
		var err error
		if *a.to, err = n.integer(a.name, a.otherwise); err != nil {
			return err
		}
	}
	a := new(attn.Args)
	for i, t := range []*attn.Tensor{&a.Q, &a.K, &a.V} {
		var err error
		if *t, err = operand(n.input(i), "QKV"[i:i+1], []int{hq, hkv, hkv}[i]); err != nil {
			return err
		}
	}
	if a.K.Type != a.V.Type {
		a.K, a.V = float32s(a.K), float32s(a.V)
	}
	switch precision, err := n.integer("softmax_precision", 1); {
	case err != nil:
		return err
	// 1 is float32, which is also within the tolerance of float16 (10) and float64 (11).
	case precision != 1 && precision != 10 && precision != 11:
		return lack(fmt.Sprintf("softmax_precision %d", precision))
	}
	past := 0
	if n.input(4) != nil {
		var err error
		if past, err = n.prepend(a, hkv); err != nil {
			return err
		}
	}
	p := &o.Problem
	*p = attn.Problem{Batch: a.Q.B, SeqQ: a.Q.S, SeqKV: a.K.S, HeadsQ: a.Q.H, HeadsKV: a.K.H, Dim: a.Q.D, DimV: a.V.D}
	var err error
	if p.Score.Scale, err = n.scale(&a.Q); err != nil {
		return err
	}
	if p.Score.Softcap, err = n.number("softcap", 0); err != nil {
		return err
	}
	if causal != 0 {
		right = 0
	}
	if left >= 0 || right >= 0 {
		p.Mask = attn.Window(max(left, attn.Unbounded), max(right, attn.Unbounded))
	}
	if err := n.positions(p, a, past); err != nil {
		return err
	}
	if err := n.mask(p, a); err != nil {
		return err
	}
	y, err := operand(n.output(0), "Y", a.Q.H)
	if err != nil {
		return err
	}
	p.Q, p.KV, p.Out = a.Q.Type, a.K.Type, y.Type
	a.Out = poisoned(y)
	o.Args = a
	o.expects("Y", y, func(g answer) *attn.Tensor { return &g.a.Out })
	for i, of := range []func(g answer) *attn.Tensor{
		func(g answer) *attn.Tensor { return &g.a.K },
		func(g answer) *attn.Tensor { return &g.a.V },
	} {
		if present := n.output(1 + i); present != nil {
			want, err := operand(present, present.Name, a.K.H)
			if err != nil {
				return err
			}
			o.expects(present.Name, want, of)
		}
	}
	if qk := n.output(3); qk != nil {
		want, err := operand(qk, qk.Name, 0)
		if err != nil {
			return err
		}
		if err := o.matrix(mode, qk.Name, want); err != nil {
			return err
		}
	}
	return errors.Join(p.Validate(), p.Check(a))
}

func (o *Outside) expects(name string, want attn.Tensor, got func(g answer) *attn.Tensor) {
	o.expect = append(o.expect, expected{name, &want, got})
}

// matrix adds the output qk_matmul_output of a mode. Modes 0 and 1 are scores before masks and
// bias, which need a call of their own. Mode 2 is the finished scores, mode 3 the weights.
func (o *Outside) matrix(mode int, name string, want attn.Tensor) error {
	place := poisoned(float32s(want))
	given := func(t *attn.Tensor) *attn.Tensor {
		if t.Data == nil {
			return nil
		}
		return t
	}
	switch mode {
	case 0, 1:
		p := o.Problem
		p.Mask, p.Lengths, p.Want = attn.Mask{}, false, attn.WantScores
		p.Score = attn.Score{Scale: p.Score.Scale, Softcap: float64(mode) * p.Score.Softcap}
		o.Raw = &Call{p, &attn.Args{Q: o.Args.Q, K: o.Args.K, V: o.Args.V, Out: poisoned(o.Args.Out), Stats: attn.Stats{Scores: place}}}
		o.expects(name, want, func(g answer) *attn.Tensor {
			if g.raw == nil {
				return nil
			}
			return &g.raw.Stats.Scores
		})
		return o.Raw.Problem.Check(o.Raw.Args)
	case 2:
		o.Problem.Want |= attn.WantScores
		o.Args.Stats.Scores = place
		o.expects(name, want, func(g answer) *attn.Tensor { return given(&g.a.Stats.Scores) })
	case 3:
		o.Problem.Want |= attn.WantWeights
		o.Args.Stats.Weights = place
		o.expects(name, want, func(g answer) *attn.Tensor { return given(&g.a.Stats.Weights) })
	default:
		return fmt.Errorf("qk_matmul_output_mode %d, want 0 to 3", mode)
	}
	return nil
}

// prepend puts the rows of the cache before the new rows of K and V. It returns the number of rows
// of the cache.
func (n *onnxTest) prepend(a *attn.Args, heads int) (int, error) {
	rows := 0
	for i, t := range []*attn.Tensor{&a.K, &a.V} {
		past, err := operand(n.input(4+i), "past", heads)
		if err != nil {
			return 0, err
		}
		if past.B != t.B || past.H != t.H || past.D != t.D || i > 0 && past.S != rows {
			return 0, fmt.Errorf("past %s does not fit %s: want the same batch, head and dim", past.Shape(), t.Shape())
		}
		rows = past.S
		whole := attn.NewTyped(t.Type, attn.BHSD, t.B, rows+t.S, t.H, t.D)
		Rows(&past, func(b, s, h int, row []float32) { whole.Write(row, b, s, h) })
		Rows(t, func(b, s, h int, row []float32) { whole.Write(row, b, rows+s, h) })
		*t = whole
	}
	return rows, nil
}

// positions sets the positions of the queries. They follow the cache, or end at the last key in
// use, which may put the first ones before key 0. With neither, query i is at the position of key
// i.
func (n *onnxTest) positions(p *attn.Problem, a *attn.Args, past int) error {
	used := n.input(6)
	switch {
	case used != nil && past > 0:
		return lack("past_key together with nonpad_kv_seqlen")
	case used != nil:
		var err error
		p.Lengths = true
		if a.KLen, err = used.ints(); err != nil {
			return err
		}
	case past > 0 && p.Mask.Band:
		p.Lengths, a.QPos = true, slices.Repeat([]int32{int32(past)}, p.Batch)
	default:
		p.Mask.Align = attn.TopLeft
	}
	return nil
}

// mask converts attn_mask to an element mask or a bias. A mask with fewer keys hides the remaining
// ones.
func (n *onnxTest) mask(p *attn.Problem, a *attn.Args) error {
	m := n.input(3)
	if m == nil {
		return nil
	}
	dims := slices.Clone(m.Shape)
	if len(dims) == 0 {
		return errors.New("attn_mask has no dimension, want 1 to 4")
	}
	last := dims[len(dims)-1]
	dims[len(dims)-1] = max(last, p.SeqKV)
	var err error
	if m.DType == "bool" {
		p.Mask.Bitmap = attn.BoolBitmap
		a.Allowed, err = attn.BoolMask(widened(m.bools(), last, p.SeqKV, false), dims...)
		return err
	}
	bias, err := m.floats()
	if err != nil {
		return err
	}
	p.Score.Terms |= attn.TermBias
	a.Terms.Bias, err = attn.BiasTensor(widened(bias, last, p.SeqKV, -inf), dims...)
	return err
}

// widened appends pad to each row until it is width long.
func widened[T any](x []T, row, width int, pad T) []T {
	if row >= width {
		return x
	}
	var wide []T
	for len(x) > 0 && row > 0 {
		wide = append(append(wide, x[:row]...), slices.Repeat([]T{pad}, width-row)...)
		x = x[row:]
	}
	return wide
}
