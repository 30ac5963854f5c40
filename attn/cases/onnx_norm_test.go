package cases_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/naive"
)

// normalised computes a case by its equations, in float64.
func normalised(n *cases.Norm) (y []float32, mean, inverse []float64) {
	for i := range n.Rows {
		row, m, square := n.X[i*n.Dim:][:n.Dim], 0.0, 0.0
		for _, x := range row {
			if n.Centred {
				m += float64(x) / float64(n.Dim)
			}
		}
		for _, x := range row {
			square += (float64(x) - m) * (float64(x) - m) / float64(n.Dim)
		}
		mean, inverse = append(mean, m), append(inverse, 1/math.Sqrt(square+n.Eps))
		for c, x := range row {
			z := float64(n.Gain[c]) * (float64(x) - m) * inverse[i]
			if n.Bias != nil {
				z += float64(n.Bias[c])
			}
			y = append(y, float32(z))
		}
	}
	return y, mean, inverse
}

// TestReadONNXNorm checks cases that a reader can verify. The rows 1, 3 and 5, 7 have means 2 and 6
// and variance 1. An epsilon of 3 halves the deviations, and halves the row 1, 1, whose mean square
// is 1.
func TestReadONNXNorm(t *testing.T) {
	f := func(name string, shape []int, x ...float32) object { return tensor(name, "f32", shape, x) }
	for _, c := range []struct {
		name, op string
		attrs    object
		in, out  []object
	}{
		{
			"last axis", "LayerNormalization",
			object{"epsilon": 3},
			[]object{f("X", []int{2, 2}, 1, 3, 5, 7), f("W", []int{2}, 1, 10), f("B", []int{2}, 0, 100)},
			[]object{f("Y", []int{2, 2}, -0.5, 105, -0.5, 105), f("M", []int{2, 1}, 2, 6), f("I", []int{2, 1}, 0.5, 0.5)},
		},
		{
			"a middle axis, which takes in the last", "LayerNormalization",
			object{"epsilon": 3, "axis": 1},
			[]object{f("X", []int{1, 1, 2}, 1, 3), f("W", []int{1, 2}, 1, 10), f("B", []int{1, 2}, 0, 100)},
			[]object{f("Y", []int{1, 1, 2}, -0.5, 105), f("M", []int{1, 1, 1}, 2), f("I", []int{1, 1, 1}, 0.5)},
		},
		{
			"all axes, counted from behind, without a bias", "LayerNormalization",
			object{"epsilon": 3, "axis": -2},
			[]object{f("X", []int{2, 2}, 1, 3, 3, 1), f("W", []int{2, 2}, 1, 10, 100, 1000)},
			[]object{f("Y", []int{2, 2}, -0.5, 5, 50, -500), f("M", []int{1, 1}, 2), f("I", []int{1, 1}, 0.5)},
		},
		{
			"one scale for a column, one for all", "LayerNormalization",
			object{"epsilon": 3, "axis": 0},
			[]object{f("X", []int{2, 2}, 1, 3, 3, 1), f("W", []int{2, 1}, 1, 10), f("B", []int{1, 1, 1}, 100)},
			[]object{f("Y", []int{2, 2}, 99.5, 100.5, 105, 95)},
		},
		{
			"not centred", "RMSNormalization",
			object{"epsilon": 3},
			[]object{f("X", []int{2, 2}, 1, 1, 1, -1), f("W", []int{2}, 1, 10)},
			[]object{f("Y", []int{2, 2}, 0.5, 5, 0.5, -5)},
		},
		{
			"the epsilon of ONNX", "RMSNormalization",
			object{},
			[]object{f("X", []int{1, 1}, 0.003), f("W", []int{1}, 1)},
			[]object{f("Y", []int{1, 1}, float32(0.003/math.Sqrt(9e-6+1e-5)))},
		},
	} {
		names := []string{"X", "W", "B"}[:len(c.in)]
		outputs := []string{"Y", "M", "I"}[:len(c.out)]
		test := object{"case": c.name, "node": node(c.op, c.attrs, outputs, names...), "inputs": c.in, "outputs": c.out}
		o := read(t, test)[0]
		if o.Lacks != "" || o.Norm == nil {
			t.Errorf("%s: %q", c.name, o.Lacks)
			continue
		}
		y, mean, inverse := normalised(o.Norm)
		if r := o.Norm.Judge(y, mean, inverse); !(r.Ratio <= 1) {
			t.Errorf("%s: %+v", c.name, r)
		}
		// A change of any number of any output must be noticed.
		for i := range y {
			was := y[i]
			y[i] = float32(math.NaN())
			if r := o.Norm.Judge(y, mean, inverse); r.Ratio <= 1 || !strings.HasPrefix(r.Where, "Y[") {
				t.Errorf("%s: number %d is NaN: %+v", c.name, i, r)
			}
			y[i] = was
		}
		for i := range o.Norm.Rows {
			if len(c.out) == 1 {
				break
			}
			mean[i]++
			if r := o.Norm.Judge(y, mean, inverse); r.Ratio <= 1 || !strings.HasPrefix(r.Where, "M[") {
				t.Errorf("%s: the mean of row %d is off by one: %+v", c.name, i, r)
			}
			mean[i]--
			inverse[i] *= 1.01
			if r := o.Norm.Judge(y, mean, inverse); r.Ratio <= 1 || !strings.HasPrefix(r.Where, "I[") {
				t.Errorf("%s: the inverse of row %d is off by a hundredth: %+v", c.name, i, r)
			}
			inverse[i] /= 1.01
		}
		// No kernel can compute it.
		if _, err := o.Run(naive.New()); !errors.Is(err, attn.ErrUnsupported) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestReadONNXNormErrors(t *testing.T) {
	f := func(name string, shape ...int) object {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return tensor(name, "f32", shape, make([]float32, n))
	}
	for want, c := range map[string]struct {
		attrs   object
		in, out []object
	}{
		"axis 2 of shape [2 3]":                              {object{"axis": 2}, []object{f("X", 2, 3), f("W", 3)}, []object{f("Y", 2, 3)}},
		"axis -3 of shape [2 3]":                             {object{"axis": -3}, []object{f("X", 2, 3), f("W", 3)}, []object{f("Y", 2, 3)}},
		"scale is missing":                                   {object{}, []object{f("X", 2, 3)}, []object{f("Y", 2, 3)}},
		"scale: shape [2] does not broadcast to rows of [3]": {object{}, []object{f("X", 2, 3), f("W", 2)}, []object{f("Y", 2, 3)}},
		"output Y: shape [3 2], want [2 3]":                  {object{}, []object{f("X", 2, 3), f("W", 3)}, []object{f("Y", 3, 2)}},
		"output M: shape [2], want [2 1]":                    {object{}, []object{f("X", 2, 3), f("W", 3)}, []object{f("Y", 2, 3), f("M", 2)}},
		"want an output Y":                                   {object{}, []object{f("X", 2, 3), f("W", 3)}, []object{f("M", 2, 1)}},
		"want an input X":                                    {object{}, []object{f("W", 3)}, []object{f("Y", 2, 3)}},
		"attribute epsilon is small, want a nu":              {object{"epsilon": "small"}, []object{f("X", 2, 3), f("W", 3)}, []object{f("Y", 2, 3)}},
	} {
		test := object{"case": "x", "node": node("LayerNormalization", c.attrs, []string{"Y", "M"}, "X", "W"), "inputs": c.in, "outputs": c.out}
		if _, err := tryRead(t, test); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestONNXNorms checks that the equations and ONNX agree on every case of a normalisation.
func TestONNXNorms(t *testing.T) {
	const file = "../../../shared/conformance/onnx_norm_softmax.json"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the ONNX cases are not here (%v): nothing was compared", err)
	}
	all, err := cases.ReadONNX(file)
	if err != nil {
		t.Fatal(err)
	}
	done, worst := 0, 0.0
	for _, o := range all {
		if o.Norm == nil {
			continue
		}
		done++
		r := o.Norm.Judge(normalised(o.Norm))
		if !(r.Ratio <= 1) {
			t.Errorf("%s: %+v", o.Name, r)
		}
		worst = max(worst, r.Ratio)
	}
	if t.Logf("%d cases compared, worst %.3f of their tolerance", done, worst); done < 8 {
		t.Errorf("only %d cases could be read", done)
	}
}
