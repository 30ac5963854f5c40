package cases

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"attnlab/attn"
)

// onnxMost is how many numbers may be made of a row of Softmax or an operand of RotaryEmbedding,
// which takes the product of their size and the length of a row: 256 MiB.
const onnxMost = 1 << 26

// softmax asks for Softmax and LogSoftmax through attention. The numbers are the bias of queries
// whose products are 0, and with the identity for values an output row is its weights:
//
//	s_j = x_j    o_i = sum_j softmax(s)_j [i = j]
//
// so every kernel with a bias can answer. The rows of all other axes are queries, those of the axes
// behind are heads.
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

// axes says how many rows a softmax over the axis of a shape has, how long they are, and how far
// apart their numbers lie. Before opset 13 a row took in all axes from that one on.
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
		return 0, 0, 0, errors.Join(err, fmt.Errorf("axis %d of shape %v", axis, shape))
	}
	rows, length, inner = product(shape[:axis]), shape[axis], product(shape[axis+1:])
	if old {
		length, inner = length*inner, 1
	}
	return rows, length, inner, nil
}

// product is the number of elements of a shape.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// logWeights is the logarithm of the weights. It is taken of them where it can be: score - LSE has
// lost what scores of 10000 have no digits for. Weights that vanish are left to that difference.
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

// identity is an identity matrix in a tensor: the row at (s, h) has its 1 at s if there are many
// rows, at h if there is one row and many heads.
func identity(b, s, h, d int) attn.Tensor {
	t := attn.New(attn.BHSD, 1, s, h, d)
	Rows(&t, func(_, s, h int, row []float32) { row[max(s, h)] = 1 })
	t.B = b
	t.SB = 0
	return t
}

// rotary asks for RotaryEmbedding through the rotation that a kernel does to Q and K. LSE over a
// single key is its score; with a row of the identity for that key, at a position that turns
// nothing, and a head for each element,
//
//	LSE_c = R q . e_c = (R q)_c
//
// Key 0 stands at position 0, query s at 1+s, so that the table of angles begins with those of no
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
		return fmt.Errorf("X has shape %s, Y %s", x.Shape(), y.Shape())
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

// angles reads the cosines or sines of input i, for the rows of X: [batch, row, angle], or
// [position, angle] where there are position_ids. The row before them is that of no rotation.
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
		return attn.Tensor{}, fmt.Errorf("%s: %d angles turn %d elements, not %d", t.Name, c, 2*c, turned)
	case positions == nil && !slices.Equal(t.Shape, []int{x.B, x.S, c}), positions != nil && (rank != 2 || len(positions) != x.B*x.S):
		return attn.Tensor{}, fmt.Errorf("%s: shape %v with %d position_ids for %s", t.Name, t.Shape, len(positions), x.Shape())
	}
	table := attn.New(attn.BHSD, x.B, 1+x.S, 1, c)
	for b := range x.B {
		fill(table.Row(b, 0, 0), none)
		for s := range x.S {
			at := b*x.S + s
			if positions != nil {
				if at = int(positions[at]); at < 0 || at >= t.Shape[0] {
					return attn.Tensor{}, fmt.Errorf("position %d of a table of %d", at, t.Shape[0])
				}
			}
			copy(table.Row(b, 1+s, 0), from[at*c:])
		}
	}
	return table, nil
}
