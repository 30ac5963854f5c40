package cases

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"attnlab/attn"
)

// onnxMost is the largest number of elements, 256 MiB, that a row of Softmax or an operand of
// RotaryEmbedding may become. It is the product of their size and the length of a row.
const onnxMost = 1 << 26

// softmax converts Softmax and LogSoftmax to attention. The input is the bias of queries whose
// products are 0. The values are the identity, so an output row is the weights:
//
//	s_j = x_j    o_i = sum_j softmax(s)_j [i = j]
//
// Every kernel with a bias can therefore compute it. Rows over the axes before the softmax's axis
// are queries, and the axes behind it are heads.
func (n *onnxTest) softmax(o *Outside) error {
	if err := n.attrs("axis"); err != nil {
		return err
	}
	in, out := n.input(0), n.output(0)
	if in == nil || out == nil || !slices.Equal(in.Shape, out.Shape) || len(in.Shape) == 0 {
		return errors.New("want an input, and an output of its shape")
	}
	rows, length, inner, err := n.axes(in.Shape)
	if err != nil {
		return err
	}
	if length*length > onnxMost {
		return lack(fmt.Sprintf("%s over %d numbers at once", n.Node.Op, length))
	}
	lay := func(t *onnxTensor) (attn.Tensor, error) {
		x, err := t.floats()
		if err != nil {
			return attn.Tensor{}, err
		}
		to := attn.New(attn.BHSD, 1, rows, inner, length)
		Rows(&to, func(_, s, h int, row []float32) {
			for j := range row {
				row[j] = x[(s*length+j)*inner+h]
			}
		})
		return to, nil
	}
	bias, err := lay(in)
	if err != nil {
		return err
	}
	want, err := lay(out)
	if err != nil {
		return err
	}
	o.Problem = attn.Problem{
		Batch: 1, SeqQ: rows, SeqKV: length, HeadsQ: inner, HeadsKV: 1, Dim: 1, DimV: length,
		Score: attn.Score{Terms: attn.TermBias},
	}
	o.Args = &attn.Args{
		Q: attn.New(attn.BHSD, 1, rows, inner, 1), K: attn.New(attn.BHSD, 1, length, 1, 1), V: identity(1, length, 1, length),
		Out: poisoned(want), Terms: attn.Operands{Bias: bias},
	}
	if n.Node.Op == "Softmax" {
		o.expects(out.Name, want, func(g answer) *attn.Tensor { return &g.a.Out })
	} else {
		o.Problem.Want = attn.WantLSE
		o.Args.Stats.LSE = poisoned(attn.New(attn.BHSD, 1, rows, inner, 1))
		o.expects(out.Name, want, logWeights)
	}
	return errors.Join(o.Problem.Validate(), o.Problem.Check(o.Args))
}

// axes returns the number of rows of a softmax over an axis, their length, and the distance of
// their elements. Before opset 13 a row spanned that axis and all behind it.
func (n *onnxTest) axes(shape []int) (rows, length, inner int, err error) {
	old := n.Opset[""] > 0 && n.Opset[""] < 13
	otherwise := -1
	if old {
		otherwise = 1
	}
	axis, err := n.integer("axis", otherwise)
	if axis < 0 {
		axis += len(shape)
	}
	if err != nil || axis < 0 || axis >= len(shape) {
		return 0, 0, 0, errors.Join(err, fmt.Errorf("axis %d of shape %v: there is no such axis", axis, shape))
	}
	rows, length, inner = product(shape[:axis]), shape[axis], product(shape[axis+1:])
	if old {
		length, inner = length*inner, 1
	}
	return rows, length, inner, nil
}

// product returns the number of elements of a shape.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// logWeights returns the logarithm of the weights. It is computed from the weights where they are
// not too small, because score - LSE loses digits at scores of 10000. For weights that vanish it is
// that difference.
func logWeights(g answer) *attn.Tensor {
	log := attn.New(attn.BHSD, 1, g.a.Out.S, g.a.Out.H, g.a.Out.D)
	Rows(&g.a.Out, func(b, s, h int, row []float32) {
		to := log.Row(b, s, h)
		for j, p := range row {
			if to[j] = float32(math.Log(float64(p))); p < 0x1p-100 {
				to[j] = g.a.Terms.Bias.Row(b, s, h)[j] - g.a.Stats.LSE.Row(b, s, h)[0]
			}
		}
	})
	return &log
}

// identity returns an identity matrix as a tensor. The row at (s, h) has its 1 at s if there are
// many rows, or at h if there is one row and many heads.
func identity(b, s, h, d int) attn.Tensor {
	t := attn.New(attn.BHSD, 1, s, h, d)
	Rows(&t, func(_, s, h int, row []float32) { row[max(s, h)] = 1 })
	t.B = b
	t.SB = 0
	return t
}

// rotary converts RotaryEmbedding to attention with a Rope. The LSE over a single key is its score.
// The key is a row of the identity at a position without rotation, with one head for each element,
// so
//
//	LSE_c = R q . e_c = (R q)_c
//
// Key 0 is at position 0 and query s at 1+s: the table of angles begins with a row without
// rotation.
func (n *onnxTest) rotary(o *Outside) error {
	if err := n.attrs("interleaved", "num_heads", "rotary_embedding_dim"); err != nil {
		return err
	}
	heads, err := n.integer("num_heads", 0)
	if err != nil {
		return err
	}
	x, err := operand(n.input(0), "X", heads)
	if err != nil {
		return err
	}
	y, err := operand(n.output(0), "Y", heads)
	if err != nil {
		return err
	}
	if x.Shape() != y.Shape() {
		return fmt.Errorf("X has shape %s and Y %s, want the same", x.Shape(), y.Shape())
	}
	if max(x.Size(), x.D)*x.D > onnxMost {
		return lack("RotaryEmbedding of shape " + x.Shape())
	}
	rope := attn.RopeHalves
	if interleaved, err := n.integer("interleaved", 0); err != nil {
		return err
	} else if interleaved != 0 {
		rope = attn.RopeInterleaved
	}
	cos, err := n.angles(1, &x, 1)
	if err != nil {
		return err
	}
	sin, err := n.angles(2, &x, 0)
	if err != nil {
		return err
	}
	many := x.H * x.D // heads: element c of head h of X is head c*x.H+h
	q := attn.NewTyped(x.Type, attn.BHSD, x.B, x.S, many, x.D)
	Rows(&x, func(b, s, h int, row []float32) {
		for c := range row {
			q.Write(row, b, s, c*x.H+h)
		}
	})
	want := attn.NewTyped(y.Type, attn.BHSD, y.B, y.S, many, 1)
	Rows(&y, func(b, s, h int, row []float32) {
		for c := range row {
			want.Write(row[c:], b, s, c*x.H+h)
		}
	})
	ones := attn.New(attn.BHSD, x.B, x.S, many, 1)
	fill(ones.Data, 1)
	o.Problem = attn.Problem{
		Batch: x.B, SeqQ: x.S, SeqKV: 1, HeadsQ: many, HeadsKV: x.D, Dim: x.D, DimV: 1, Q: x.Type, Lengths: true, Want: attn.WantLSE,
		Score: attn.Score{Scale: 1, Rope: rope},
	}
	o.Args = &attn.Args{
		Q: q, K: identity(x.B, 1, x.D, x.D), V: attn.Tensor{Data: []float32{1}, B: x.B, S: 1, H: x.D, D: 1},
		Out: poisoned(ones), QPos: slices.Repeat([]int32{1}, x.B),
		Terms: attn.Operands{Cos: cos, Sin: sin},
		Stats: attn.Stats{LSE: poisoned(ones)},
	}
	o.expects(n.Node.Outputs[0], want, func(g answer) *attn.Tensor { return &g.a.Stats.LSE })
	o.expects("the weight of a single key", ones, func(g answer) *attn.Tensor { return &g.a.Out })
	return errors.Join(o.Problem.Validate(), o.Problem.Check(o.Args))
}

// angles reads the cosines or sines of input i for the rows of X: [batch, row, angle], or
// [position, angle] with position_ids. It adds a first row without rotation, which holds none.
func (n *onnxTest) angles(i int, x *attn.Tensor, none float32) (attn.Tensor, error) {
	t := n.input(i)
	if t == nil || len(t.Shape) < 2 {
		return attn.Tensor{}, errors.New("want cos_cache and sin_cache, of rank 2 or 3")
	}
	rank := len(t.Shape)
	c := t.Shape[rank-1]
	turned, err := n.integer("rotary_embedding_dim", 0)
	if err != nil {
		return attn.Tensor{}, err
	}
	if turned == 0 {
		turned = x.D
	}
	from, err := t.floats()
	if err != nil {
		return attn.Tensor{}, err
	}
	var positions []int32
	if ids := n.input(3); ids != nil {
		if positions, err = ids.ints(); err != nil {
			return attn.Tensor{}, err
		}
	}
	switch {
	case 2*c != turned:
		return attn.Tensor{}, fmt.Errorf("%s: %d angles rotate %d elements, want %d", t.Name, c, 2*c, turned)
	case positions == nil && !slices.Equal(t.Shape, []int{x.B, x.S, c}), positions != nil && (rank != 2 || len(positions) != x.B*x.S):
		return attn.Tensor{}, fmt.Errorf("%s: shape %v with %d position_ids does not fit X of %s", t.Name, t.Shape, len(positions), x.Shape())
	}
	table := attn.New(attn.BHSD, x.B, 1+x.S, 1, c)
	for b := range x.B {
		fill(table.Row(b, 0, 0), none)
		for s := range x.S {
			at := b*x.S + s
			if positions != nil {
				if at = int(positions[at]); at < 0 || at >= t.Shape[0] {
					return attn.Tensor{}, fmt.Errorf("position %d, and the table has %d", at, t.Shape[0])
				}
			}
			copy(table.Row(b, 1+s, 0), from[at*c:])
		}
	}
	return table, nil
}
