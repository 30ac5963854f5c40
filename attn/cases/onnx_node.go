package cases

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"attnlab/attn"
)

type onnxTest struct {
	Case  string
	Opset map[string]int
	Node  struct {
		Op              string
		Inputs, Outputs []string
		Attrs           map[string]any
	}
	Inputs, Outputs []onnxTensor
}

type onnxTensor struct {
	Name, DType string
	Shape       []int
	B64         []byte
}

// floats, bools and ints decode a tensor of that type. A double is rounded to the nearest float32.
func (t *onnxTensor) floats() ([]float32, error) {
	size := map[string]int{"f32": 4, "f64": 8, "f16": 2, "bf16": 2}[t.DType]
	if size == 0 {
		return nil, fmt.Errorf("tensor %s: dtype %s, want floats", t.Name, t.DType)
	}
	x := make([]float32, len(t.B64)/size)
	for i := range x {
		switch raw := t.B64[size*i:]; t.DType {
		case "f32":
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw))
		case "f64":
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(raw)))
		case "f16":
			x[i] = attn.FromF16(binary.LittleEndian.Uint16(raw))
		case "bf16":
			x[i] = attn.FromBF16(binary.LittleEndian.Uint16(raw))
		}
	}
	return x, nil
}

func (t *onnxTensor) bools() []bool {
	x := make([]bool, len(t.B64))
	for i, b := range t.B64 {
		x[i] = b != 0
	}
	return x
}

func (t *onnxTensor) ints() ([]int32, error) {
	if t.DType != "i64" {
		return nil, fmt.Errorf("tensor %s: dtype %s, want i64", t.Name, t.DType)
	}
	x := make([]int32, len(t.B64)/8)
	for i := range x {
		n := int64(binary.LittleEndian.Uint64(t.B64[8*i:]))
		if x[i] = int32(n); int64(x[i]) != n {
			return nil, fmt.Errorf("tensor %s: %d does not fit 32 bits", t.Name, n)
		}
	}
	return x, nil
}

func (t *onnxTensor) check() error {
	size, ok := map[string]int{"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "i64": 8, "i32": 4, "bool": 1}[t.DType]
	if !ok {
		return fmt.Errorf("tensor %s: unknown dtype %q", t.Name, t.DType)
	}
	n, most := size, size
	for _, d := range t.Shape {
		if most *= max(d, 1); d < 0 || d > 1<<20 || most > 1<<32 {
			return fmt.Errorf("tensor %s: shape %v is not plausible", t.Name, t.Shape)
		}
		n *= d
	}
	if len(t.B64) != n {
		return fmt.Errorf("tensor %s: %d bytes, shape %v of %s has %d", t.Name, len(t.B64), t.Shape, t.DType, n)
	}
	return nil
}

// A lack is the name of a feature that attnlab lacks. It ends the reading of a case.
type lack string

func (l lack) Error() string { return string(l) }

func (n *onnxTest) outside() (o Outside, err error) {
	for _, t := range slices.Concat(n.Inputs, n.Outputs) {
		if err := t.check(); err != nil {
			return o, err
		}
	}
	switch n.Node.Op {
	case "Attention":
		err = n.attention(&o)
	case "LinearAttention":
		err = n.linear(&o)
	case "RotaryEmbedding":
		err = n.rotary(&o)
	case "Softmax", "LogSoftmax":
		err = n.softmax(&o)
	case "LayerNormalization", "RMSNormalization":
		o.Norm, err = n.norm()
	default:
		err = lack("operator " + n.Node.Op)
	}
	var l lack
	if errors.As(err, &l) {
		return Outside{Lacks: string(l)}, nil
	}
	return o, err
}

// at returns the tensor at a position of the node, or nil.
func at(names []string, tensors []onnxTensor, i int) *onnxTensor {
	if i >= len(names) || names[i] == "" {
		return nil
	}
	for t := range tensors {
		if tensors[t].Name == names[i] {
			return &tensors[t]
		}
	}
	return nil
}

func (n *onnxTest) input(i int) *onnxTensor { return at(n.Node.Inputs, n.Inputs, i) }

func (n *onnxTest) output(i int) *onnxTensor { return at(n.Node.Outputs, n.Outputs, i) }

// attrs returns an error if a node has any attribute other than the known ones, so that none is
// ignored.
func (n *onnxTest) attrs(known ...string) error {
	for a := range n.Node.Attrs {
		if !slices.Contains(known, a) {
			return lack("attribute " + a)
		}
	}
	return nil
}

func (n *onnxTest) number(attr string, otherwise float64) (float64, error) {
	switch x := n.Node.Attrs[attr].(type) {
	case nil:
		return otherwise, nil
	case float64:
		return x, nil
	default:
		return 0, fmt.Errorf("attribute %s is %v, want a number", attr, x)
	}
}

func (n *onnxTest) integer(attr string, otherwise int) (int, error) {
	x, err := n.number(attr, float64(otherwise))
	if err == nil && x != math.Trunc(x) {
		err = fmt.Errorf("attribute %s is %v, want an integer", attr, x)
	}
	return int(x), err
}

// scale returns the attribute scale, or 0 for the default.
func (n *onnxTest) scale(q *attn.Tensor) (float64, error) {
	x, err := n.number("scale", math.NaN())
	switch {
	case err != nil || math.IsNaN(x):
		return 0, err
	case x == 0: // a Problem's scale of 0 means the default; queries of 0 give the scores of 0
		Rows(q, func(_, _, _ int, row []float32) {
			for c := range row {
				row[c] *= 0
			}
		})
		return 1, nil
	}
	return x, nil
}

// operand returns a float tensor as [batch, sequence, head, dim]. Rank 4 is [batch, head, sequence,
// dim], rank 3 is [batch, sequence, head*dim]. Elements of 16 bits stay as they are.
func operand(t *onnxTensor, name string, heads int) (attn.Tensor, error) {
	if t == nil {
		return attn.Tensor{}, fmt.Errorf("%s is missing", name)
	}
	x, err := t.floats()
	if err != nil {
		return attn.Tensor{}, err
	}
	var view attn.Tensor
	switch s := t.Shape; {
	case len(s) == 4:
		view = attn.Wrap(attn.BHSD, x, s[0], s[2], s[1], s[3])
	case len(s) == 3 && heads > 0 && s[2]%heads == 0:
		view = attn.Wrap(attn.BSHD, x, s[0], s[1], heads, s[2]/heads)
	default:
		return attn.Tensor{}, fmt.Errorf("%s: shape %v with %d heads, want [batch, head, seq, dim] or [batch, seq, head*dim]", name, s, heads)
	}
	switch t.DType {
	case "f16":
		view.Type = attn.F16
	case "bf16":
		view.Type = attn.BF16
	default:
		return view, nil
	}
	view.Data, view.Bits = nil, make([]uint16, len(x))
	for i := range view.Bits {
		view.Bits[i] = binary.LittleEndian.Uint16(t.B64[2*i:])
	}
	return view, nil
}

// float32s returns a copy of a tensor in float32.
func float32s(t attn.Tensor) attn.Tensor {
	to := attn.New(attn.BHSD, t.B, t.S, t.H, t.D)
	Rows(&t, func(b, s, h int, row []float32) { copy(to.Row(b, s, h), row) })
	return to
}

// poisoned returns a new tensor of the same shape, layout and type that holds Poison.
func poisoned(like attn.Tensor) attn.Tensor {
	like.Data, like.Bits = slices.Clone(like.Data), slices.Clone(like.Bits)
	Rows(&like, func(_, _, _ int, row []float32) { fill(row, Poison) })
	return like
}
