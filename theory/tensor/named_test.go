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

// normal returns a tensor of standard normal numbers.
func normal(r *rand.Rand, shape ...int) *tensor.Tensor {
	t := tensor.New(shape...)
	for i := range t.Data() {
		t.Data()[i] = r.NormFloat64()
	}
	return t
}

// product returns a matrix product by gonum.
func product(factors ...mat.Matrix) *mat.Dense {
	var m mat.Dense
	m.Product(factors...)
	return &m
}

// far returns the largest difference between the elements of two tensors.
func far(t *testing.T, got, want *tensor.Tensor) float64 {
	t.Helper()
	if !slices.Equal(got.Shape(), want.Shape()) {
		t.Fatalf("shape %v, want %v", got.Shape(), want.Shape())
	}
	worst := 0.0
	for i, x := range got.Data() {
		worst = max(worst, math.Abs(x-want.Data()[i]))
	}
	return worst
}

// each returns the stack of f applied to each matrix of some stacks.
func each(f func(m ...mat.Matrix) mat.Matrix, stacks ...*tensor.Tensor) *tensor.Tensor {
	var out []mat.Matrix
	for i := range stacks[0].Shape()[0] {
		var in []mat.Matrix
		for _, s := range stacks {
			in = append(in, s.Sub(i).Dense())
		}
		out = append(out, f(in...))
	}
	return tensor.Stack(out...)
}

// TestNamed checks every named contraction against gonum on the same matrices.
func TestNamed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matrix := func(rows, columns int) *mat.Dense { return normal(r, rows, columns).Dense() }
	u, v, w := normal(r, 3).Data(), normal(r, 3).Data(), normal(r, 4).Data()
	a, b, m, square := matrix(2, 3), matrix(2, 3), matrix(3, 4), matrix(3, 3)
	q, k, val, weights := matrix(4, 3), matrix(5, 3), matrix(5, 2), matrix(4, 5)
	column := func(x []float64) *mat.VecDense { return mat.NewVecDense(len(x), x) }
	scaled := func(scale float64, x mat.Matrix) *mat.Dense {
		var s mat.Dense
		s.Scale(scale, x)
		return &s
	}
	hadamard := new(mat.Dense)
	hadamard.MulElem(a, b)
	root := 1 / math.Sqrt(3)
	multiply := func(m ...mat.Matrix) mat.Matrix { return product(m...) }
	scores := func(scale float64) func(m ...mat.Matrix) mat.Matrix {
		return func(m ...mat.Matrix) mat.Matrix { return scaled(scale, product(m[0], m[1].T())) }
	}

	a3, b3, q3, k3, w3 := normal(r, 2, 4, 3), normal(r, 2, 3, 5), normal(r, 2, 4, 3), normal(r, 2, 5, 3), normal(r, 2, 4, 5)
	v3, x, wq, wo := normal(r, 2, 5, 3), matrix(4, 6), normal(r, 2, 6, 3), normal(r, 2, 3, 6)
	x3, q4, k4 := normal(r, 2, 4, 6), normal(r, 2, 2, 4, 3), normal(r, 2, 2, 5, 3)

	project := func(x mat.Matrix) *tensor.Tensor {
		return each(func(m ...mat.Matrix) mat.Matrix { return product(x, m[0]) }, wq)
	}
	joined := product(a3.Sub(0).Dense(), wo.Sub(0).Dense())
	joined.Add(joined, product(a3.Sub(1).Dense(), wo.Sub(1).Dense()))
	batched := func(f func(n int) *tensor.Tensor) *tensor.Tensor {
		first, second := f(0), f(1)
		return tensor.Of(slices.Concat(first.Data(), second.Data()), append([]int{2}, first.Shape()...)...)
	}

	for _, c := range []struct {
		name      string
		got, want *tensor.Tensor
	}{
		{"Dot", tensor.Number(tensor.Dot(u, v)), tensor.Number(mat.Dot(column(u), column(v)))},
		{"Outer", tensor.Matrix(tensor.Outer(u, w)), tensor.Matrix(product(column(u), column(w).T()))},
		{"Transpose", tensor.Matrix(tensor.Transpose(m)), tensor.Matrix(m.T())},
		{"Trace", tensor.Number(tensor.Trace(square)), tensor.Number(mat.Trace(square))},
		{"MatMul", tensor.Matrix(tensor.MatMul(a, m)), tensor.Matrix(product(a, m))},
		{"BatchMatMul", tensor.BatchMatMul(a3, b3), each(multiply, a3, b3)},
		{"FrobeniusSquared", tensor.Number(tensor.FrobeniusSquared(m)), tensor.Number(math.Pow(mat.Norm(m, 2), 2))},
		{"Hadamard", tensor.Matrix(tensor.Hadamard(a, b)), tensor.Matrix(hadamard)},
		{"BilinearForm", tensor.Number(tensor.BilinearForm(u, m, w)), tensor.Number(mat.Inner(column(u), m, column(w)))},
		{"BatchBilinearForm", tensor.Matrix(tensor.BatchBilinearForm(q, square, k)), tensor.Matrix(product(q, square, k.T()))},
		{"AttentionScores", tensor.Matrix(tensor.AttentionScores(q, k, .3)), tensor.Matrix(scaled(.3, product(q, k.T())))},
		{"AttentionScores, scale 0", tensor.Matrix(tensor.AttentionScores(q, k, 0)), tensor.Matrix(scaled(root, product(q, k.T())))},
		{"AttentionOutput", tensor.Matrix(tensor.AttentionOutput(weights, val)), tensor.Matrix(product(weights, val))},
		{"BatchedAttentionScores", tensor.BatchedAttentionScores(q3, k3, 0), each(scores(root), q3, k3)},
		{"BatchedAttentionOutput", tensor.BatchedAttentionOutput(w3, v3), each(multiply, w3, v3)},
		{"MultiHeadProject", tensor.MultiHeadProject(x, wq), project(x)},
		{"MultiHeadScores", tensor.MultiHeadScores(q3, k3, .7), each(scores(.7), q3, k3)},
		{"MultiHeadOutput", tensor.MultiHeadOutput(w3, v3), each(multiply, w3, v3)},
		{"MultiHeadCombine", tensor.Matrix(tensor.MultiHeadCombine(a3, wo)), tensor.Matrix(joined)},
		{"BatchedMultiHeadProject", tensor.BatchedMultiHeadProject(x3, wq), batched(func(n int) *tensor.Tensor { return project(x3.Sub(n).Dense()) })},
		{"BatchedMultiHeadScores", tensor.BatchedMultiHeadScores(q4, k4, 0), batched(func(n int) *tensor.Tensor { return each(scores(root), q4.Sub(n), k4.Sub(n)) })},
	} {
		if d := far(t, c.got, c.want); !(d <= 1e-13) {
			t.Errorf("%s: off by %g", c.name, d)
		}
	}
}

// TestNamedPanics checks that operands that do not fit cause a panic that names operand and index.
func TestNamedPanics(t *testing.T) {
	two, three := mat.NewDense(2, 2, nil), mat.NewDense(3, 3, nil)
	for _, c := range []struct {
		name, says string
		call       func()
	}{
		{"Dot", "index a has extent 1 in operand 1 (axis 0) and 2 in operand 2 (axis 0)", func() { tensor.Dot([]float64{1}, []float64{1, 2}) }},
		{"Trace", "index i has extent 2 in operand 1 (axis 0) and 3 in operand 1 (axis 1)", func() { tensor.Trace(mat.NewDense(2, 3, nil)) }},
		{"MatMul", "index j has extent 2", func() { tensor.MatMul(two, three) }},
		{"BilinearForm", "index b has extent 2 in operand 2 (axis 1) and 3 in operand 3", func() { tensor.BilinearForm([]float64{1, 2}, two, []float64{1, 2, 3}) }},
		{"AttentionScores", "index a", func() { tensor.AttentionScores(two, three, 0) }},
		{"BatchMatMul", "operand 1 has shape [2 2], and the spec names 3 indices [n,i,j]", func() { tensor.BatchMatMul(tensor.Matrix(two), tensor.Stack(two)) }},
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, c.says) {
					t.Errorf("%s panics with %q, want %q in it", c.name, s, c.says)
				}
			}()
			c.call()
		}()
	}
}

// TestExamples checks the list of examples. Names and specs are unique, and every spec of a named
// contraction is among them. Each result has the stated shape and agrees with a second evaluation.
func TestExamples(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	names, specs := map[string]bool{}, map[string]bool{}
	for _, e := range tensor.Examples() {
		if names[e.Name] || specs[e.Spec] || e.Meaning == "" {
			t.Errorf("%s, %s: told twice, or without a meaning", e.Name, e.Spec)
		}
		names[e.Name], specs[e.Spec] = true, true
		var operands []*tensor.Tensor
		for _, shape := range e.Shapes {
			operands = append(operands, normal(r, shape...))
		}
		got, err := tensor.Einsum(e.Spec, operands...)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		if !slices.Equal(got.Shape(), e.Result) {
			t.Errorf("%s: shape %v, want %v", e.Name, got.Shape(), e.Result)
		}
		plain := strings.NewReplacer("^", "", "_", "").Replace(e.Spec)
		if d := far(t, got, scatter(plain, operands...)); !(d <= 1e-13) {
			t.Errorf("%s: off by %g", e.Name, d)
		}
	}
	if len(names) < 26 {
		t.Errorf("%d examples, want 26 or more", len(names))
	}
	for _, spec := range strings.Fields(`a,a-> a,b->ab ij->ji ii-> ij,jk->ik nij,njk->nik ij,ij-> ij,ij->ij a,ab,b-> ia,ab,jb->ij ia,ja->ij ij,jb->ib
		nia,nja->nij nij,njb->nib ib,hba->hia hia,hja->hij hij,hjb->hib hic,hca->ia nib,hba->nhia nhia,nhja->nhij`) {
		if !specs[spec] {
			t.Errorf("%s, of a named contraction, is not among the examples", spec)
		}
	}
}
