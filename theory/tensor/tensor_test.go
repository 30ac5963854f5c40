package tensor_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/tensor"
)

// TestTensor checks shapes and elements, and which methods share the numbers.
func TestTensor(t *testing.T) {
	x := tensor.Of([]float64{1, 2, 3, 4, 5, 6}, 1, 2, 3)
	if x.Rank() != 3 || !slices.Equal(x.Shape(), []int{1, 2, 3}) || x.At(0, 1, 2) != 6 || x.String() != "[[[1 2 3] [4 5 6]]]" {
		t.Errorf("%v of shape %v, rank %d, last element %v", x, x.Shape(), x.Rank(), x.At(0, 1, 2))
	}
	x.Shape()[0] = 9 // a copy
	if x.Sub(0).Set(7, 1, 0); x.At(0, 1, 0) != 7 {
		t.Errorf("a part does not share the numbers: %v", x)
	}
	d := x.Sub(0).Dense()
	if d.Set(0, 0, -1); x.At(0, 0, 0) != 1 {
		t.Errorf("Dense shares the numbers: %v", x)
	}
	m := mat.NewDense(2, 2, []float64{1, 2, 3, 4})
	if s := tensor.Stack(m, m.T()); s.String() != "[[[1 2] [3 4]] [[1 3] [2 4]]]" {
		t.Errorf("stack %v", s)
	}
	if n := tensor.Number(2.5); n.Rank() != 0 || n.Value() != 2.5 || n.At() != 2.5 || n.String() != "2.5" {
		t.Errorf("number %v", n)
	}
	if e := tensor.New(2, 0); len(e.Data()) != 0 || e.String() != "[[] []]" {
		t.Errorf("empty %v", e)
	}
}

// TestEmpty checks that a sum over no elements is 0.
func TestEmpty(t *testing.T) {
	y := einsum(t, "ij->i", tensor.New(2, 0))
	if y.String() != "[0 0]" {
		t.Errorf("sums of nothing: %v", y)
	}
	if y := einsum(t, "ij,jk->ik", tensor.New(0, 2), tensor.New(2, 3)); !slices.Equal(y.Shape(), []int{0, 3}) {
		t.Errorf("shape %v", y.Shape())
	}
	if y := tensor.BatchedAttentionScores(tensor.New(1, 2, 0), tensor.New(1, 1, 0), 0); y.String() != "[[[0] [0]]]" {
		t.Errorf("scores of no components: %v", y)
	}
	moved, err := tensor.New(2, 0).Mark(tensor.Up, tensor.Label).Lower(0, mat.NewDiagDense(2, []float64{1, 1}))
	if err != nil || !slices.Equal(moved.Shape(), []int{2, 0}) {
		t.Errorf("%v, %v", moved, err)
	}
}

// TestPanics checks that bad shapes and indices cause a panic that names them.
func TestPanics(t *testing.T) {
	m := tensor.New(2, 3)
	for says, call := range map[string]func(){
		"5 numbers for shape [2 3], want 6":           func() { tensor.Of(make([]float64, 5), 2, 3) },
		"negative extent":                             func() { tensor.New(2, -1) },
		"no matrix":                                   func() { tensor.Stack() },
		"matrix 2 is 1 by 2 and the first one 2 by 1": func() { tensor.Stack(mat.NewDense(2, 1, nil), mat.NewDense(1, 2, nil)) },
		"index [1 3] outside shape [2 3]":             func() { m.At(1, 3) },
		"index [-1 0] outside shape [2 3]":            func() { m.Set(1, -1, 0) },
		"1 indices [1] for shape [2 3]":               func() { m.At(1) },
		"Value of shape [2 3]":                        func() { m.Value() },
		"Dense of shape [3]":                          func() { m.Sub(0).Dense() },
		"part 2 of shape [2 3]":                       func() { m.Sub(2) },
		"[upper lower label] for shape [2 3]":         func() { m.Mark(tensor.Up, tensor.Down, tensor.Label) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, says) {
					t.Errorf("panic %q, want %q in it", s, says)
				}
			}()
			call()
		}()
	}
}

// TestLowerRaise checks that Lower and Raise at every axis are contractions with the metric and its
// inverse, and undo each other.
func TestLowerRaise(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	w := normal(r, 3, 3).Dense()
	var g mat.SymDense
	g.SymOuterK(1, w)
	x := normal(r, 3, 3, 3).Mark(tensor.Up, tensor.Up, tensor.Up)
	metric := tensor.Matrix(&g).Mark(tensor.Down, tensor.Down)
	for axis, spec := range []string{"ad,dbc->abc", "bd,adc->abc", "cd,abd->abc"} {
		low, err := x.Lower(axis, &g)
		if err != nil {
			t.Fatal(err)
		}
		want := einsum(t, spec, metric, x)
		if d := far(t, low, want); !(d <= 1e-13) || !slices.Equal(low.Variance(), want.Variance()) {
			t.Errorf("axis %d: lowered, it is off by %g and %v; want %v", axis, d, low.Variance(), want.Variance())
		}
		back, err := low.Raise(axis, &g)
		if err != nil {
			t.Fatal(err)
		}
		if d := far(t, back, x); !(d <= 1e-14*mat.Cond(&g, 2)) || !slices.Equal(back.Variance(), x.Variance()) {
			t.Errorf("axis %d: lowered and raised, it is off by %g, and %v", axis, d, back.Variance())
		}
	}
}

// TestLowerRaiseErrors checks that indices that cannot be moved are refused.
func TestLowerRaiseErrors(t *testing.T) {
	one := mat.NewDiagDense(2, []float64{1, 1})
	up, label := tensor.New(2).Mark(tensor.Up), tensor.New(2)
	down := tensor.New(2).Mark(tensor.Down)
	for _, c := range []struct {
		move func(int, mat.Symmetric) (*tensor.Tensor, error)
		axis int
		g    mat.Symmetric
		says string
	}{
		{label.Lower, 0, one, "axis 0 is a label, want it upper, state the kind with Mark"},
		{down.Lower, 0, one, "axis 0 is lower already"},
		{up.Raise, 0, one, "axis 0 is upper already"},
		{up.Lower, 1, one, "axis 1 of shape [2]"},
		{up.Lower, 0, mat.NewDiagDense(3, []float64{1, 1, 1}), "axis 0 has extent 2 and the metric is 3 by 3"},
		{down.Raise, 0, mat.NewDiagDense(2, []float64{1, -1}), "not positive definite"},
		{down.Raise, 0, mat.NewDiagDense(2, []float64{1, 1e-20}), "condition number"},
	} {
		if y, err := c.move(c.axis, c.g); y != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, %v; want %q", y, err, c.says)
		}
	}
}

// TestDelta checks that contracting any axis with δ changes no bit.
func TestDelta(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	x := normal(r, 2, 3, 4).Mark(tensor.Up, tensor.Up, tensor.Down)
	for axis, spec := range []string{"ad,dbc->abc", "bd,adc->abc", "dc,abd->abc"} {
		y := einsum(t, spec, tensor.Delta(x.Shape()[axis]), x)
		if !slices.Equal(y.Data(), x.Data()) || !slices.Equal(y.Variance(), x.Variance()) {
			t.Errorf("axis %d: %v and %v, want %v", axis, y, y.Variance(), x)
		}
	}
	if n := einsum(t, "aa", tensor.Delta(5)).Value(); n != 5 {
		t.Errorf("δ^a_a is %v in 5 dimensions", n)
	}
	if y := einsum(t, "a,a->", tensor.Vector([]float64{0, 1}), tensor.Vector([]float64{math.NaN(), 1})).Value(); !math.IsNaN(y) {
		t.Errorf("0 times NaN is lost: %v", y)
	}
}
