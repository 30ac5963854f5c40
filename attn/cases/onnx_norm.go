package cases

import (
	"errors"
	"fmt"
	"slices"

	"attnlab/attn"
)

// A Norm is an outside case of LayerNormalization or RMSNormalization: the input of a layer that
// normalises rows, and its expected output. The axes of X from the operator's axis on form a row.
// The axes before it count the rows:
//
//	mean_i    = mean of row i                                     0 if not Centred
//	inverse_i = 1 / sqrt(mean of (x_i - mean_i)^2 + Eps)
//	y_ic      = Gain_c (x_ic - mean_i) inverse_i + Bias_c
type Norm struct {
	Centred   bool // true for LayerNormalization
	Eps       float64
	Rows, Dim int
	X         []float32 // [Rows][Dim]
	Gain      []float32 // [Dim]
	Bias      []float32 // [Dim], or nil

	y, mean, inverse normOutput
}

// A normOutput is an output that a case may expect.
type normOutput struct {
	name string
	want []float32 // nil: not expected
	typ  attn.DType
}

// Judge compares an answer with every output that the case expects, at the tolerance of Result. y
// is [Rows][Dim]; mean and inverse have one number for each row.
func (n *Norm) Judge(y []float32, mean, inverse []float64) (r Result) {
	compare := func(o *normOutput, width int, got func(i int) float32) {
		for i, want := range o.want {
			if x := onnxRatio(got(i), want, o.typ); !(x <= r.Ratio) {
				r.Ratio, r.Where = x, fmt.Sprintf("%s[row %d, %d]: got %v, want %v", o.name, i/width, i%width, got(i), want)
			}
		}
	}
	compare(&n.y, n.Dim, func(i int) float32 { return y[i] })
	compare(&n.mean, 1, func(i int) float32 { return float32(mean[i]) })
	compare(&n.inverse, 1, func(i int) float32 { return float32(inverse[i]) })
	return r
}

// norm reads a case of LayerNormalization or RMSNormalization.
func (n *onnxTest) norm() (*Norm, error) {
	if err := n.attrs("axis", "epsilon", "stash_type"); err != nil {
		return nil, err
	}
	if stash, err := n.integer("stash_type", 1); err != nil {
		return nil, err
	} else if stash != 1 { // the type that ONNX numbers 1 is float32
		return nil, lack(fmt.Sprintf("stash_type %d", stash))
	}
	to := &Norm{Centred: n.Node.Op == "LayerNormalization"}
	var err error
	if to.Eps, err = n.number("epsilon", 1e-5); err != nil {
		return nil, err
	}
	x := n.input(0)
	if x == nil {
		return nil, errors.New("want an input X")
	}
	first, err := n.integer("axis", -1)
	axis := first
	if axis < 0 {
		axis += len(x.Shape)
	}
	if err != nil || axis < 0 || axis >= len(x.Shape) {
		return nil, errors.Join(err, fmt.Errorf("axis %d of shape %v: there is no such axis", first, x.Shape))
	}
	to.Rows, to.Dim = product(x.Shape[:axis]), product(x.Shape[axis:])
	if to.Dim == 0 {
		return nil, lack(n.Node.Op + " of rows without numbers")
	}
	if to.X, err = x.floats(); err != nil {
		return nil, err
	}
	if to.Gain, err = n.columns(1, "scale", x.Shape[axis:]); err != nil {
		return nil, err
	}
	if to.Centred && n.input(2) != nil {
		if to.Bias, err = n.columns(2, "bias", x.Shape[axis:]); err != nil {
			return nil, err
		}
	}
	outputs := []*normOutput{&to.y, &to.mean, &to.inverse}
	if !to.Centred {
		outputs = outputs[:1]
	}
	for i, o := range outputs {
		if err := n.normOutput(i, o, x.Shape, axis); err != nil {
			return nil, err
		}
	}
	if to.y.want == nil {
		return nil, errors.New("want an output Y")
	}
	return to, nil
}

// columns reads an input with one number for each column of a row, whose axes are those of shape.
// An axis of extent 1 broadcasts.
func (n *onnxTest) columns(i int, name string, shape []int) ([]float32, error) {
	t := n.input(i)
	if t == nil {
		return nil, fmt.Errorf("%s is missing", name)
	}
	x, err := t.floats()
	if err != nil {
		return nil, err
	}
	own := t.Shape
	for len(own) > len(shape) && own[0] == 1 {
		own = own[1:]
	}
	if len(own) > len(shape) {
		return nil, lack(fmt.Sprintf("a %s of shape %v for rows of %v", name, t.Shape, shape))
	}
	own = append(slices.Repeat([]int{1}, len(shape)-len(own)), own...)
	for c := range shape {
		if own[c] != shape[c] && own[c] != 1 {
			return nil, fmt.Errorf("%s: shape %v does not broadcast to rows of %v", name, t.Shape, shape)
		}
	}
	all := make([]float32, product(shape))
	for i := range all {
		at, step, rest := 0, 1, i
		for c := len(shape) - 1; c >= 0; c-- {
			if own[c] > 1 {
				at += rest % shape[c] * step
			}
			step, rest = step*own[c], rest/shape[c]
		}
		all[i] = x[at]
	}
	return all, nil
}

// normOutput reads output i. Y has the shape of X. Mean and InvStdDev have extents of 1 from the
// axis on.
func (n *onnxTest) normOutput(i int, o *normOutput, shape []int, axis int) (err error) {
	t := n.output(i)
	if t == nil {
		return nil
	}
	want := slices.Clone(shape)
	if i > 0 {
		for c := axis; c < len(want); c++ {
			want[c] = 1
		}
	}
	if !slices.Equal(t.Shape, want) {
		return fmt.Errorf("output %s: shape %v, want %v", t.Name, t.Shape, want)
	}
	if t.DType == "bf16" {
		o.typ = attn.BF16
	}
	o.name = t.Name
	o.want, err = t.floats()
	return err
}
