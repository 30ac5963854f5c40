package tensor_test

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/tensor"
)

// The scores, weights and outputs of the first worked example, two queries and three keys, in index
// notation.
func ExampleEinsum() {
	q := tensor.Matrix(mat.NewDense(2, 2, []float64{1, 0, 0, 1}))
	k := tensor.Matrix(mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1}))
	v := tensor.Matrix(mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1}))
	einsum := func(spec string, operands ...*tensor.Tensor) *tensor.Tensor {
		y, err := tensor.Einsum(spec, operands...)
		if err != nil {
			panic(err)
		}
		return y
	}
	s := einsum(",ia,ja->ij", tensor.Number(1/math.Sqrt2), q, k) // S^ij = Q^ia K^ja / √d
	for n, x := range s.Data() {
		s.Data()[n] = math.Exp(x)
	}
	z := einsum("ij->i", s) // Z^i = sum_j exp(S^ij)
	for n, x := range z.Data() {
		z.Data()[n] = 1 / x
	}
	a := einsum("ij,i->ij", s, z)  // A^ij = exp(S^ij) / Z^i
	o := einsum("ij,jb->ib", a, v) // O^ib = A^ij V^jb
	fmt.Printf("%.4f\n", a.Dense().RawRowView(0))
	fmt.Printf("%.4f\n", o.Dense().RawRowView(0))
	// Output:
	// [0.4011 0.1978 0.4011]
	// [1.2033 0.7967]
}

// Two vectors do not pair. With a metric, one of them becomes a covector, and then they pair.
func ExampleTensor_Lower() {
	u := tensor.Vector([]float64{1, 1, 1}).Mark(tensor.Up)
	v := tensor.Vector([]float64{1, 2, 3}).Mark(tensor.Up)
	_, err := tensor.Einsum("a,a->", u, v)
	fmt.Println(errors.Is(err, tensor.ErrVariance))

	g := mat.NewSymDense(3, []float64{1, .5, 0, .5, 1, .5, 0, .5, 1})
	low, err := v.Lower(0, g)
	if err != nil {
		panic(err)
	}
	y, err := tensor.Einsum("a,a->", u, low)
	fmt.Println(low, y, err)
	// Output:
	// true
	// [2 4 4] 10 <nil>
}

func ExampleExplain() {
	text, err := tensor.Explain("ib,hba->hia")
	if err != nil {
		panic(err)
	}
	fmt.Println(text)

	if text, err = tensor.Explain("^a,_ab,^bc"); err != nil {
		panic(err)
	}
	fmt.Println(text)

	if text, err = tensor.Explain("ii->"); err != nil {
		panic(err)
	}
	fmt.Print(text)
	// Output:
	// y[h,i,a] = sum_b x1[i,b] x2[h,b,a]
	// inputs: x1[i,b] x2[h,b,a]
	// output: y[h,i,a]
	// free:   h i a
	// summed: b
	//
	// y[^c] = sum_ab x1[^a] x2[_a,_b] x3[^b,^c]
	// inputs: x1[^a] x2[_a,_b] x3[^b,^c]
	// output: y[^c], the indices that occur once, in alphabetical order
	// free:   c
	// summed: a b
	//
	// y = sum_i x1[i,i]
	// inputs: x1[i,i]
	// output: y
	// free:   none
	// summed: i
}

func ExampleParse() {
	c, err := tensor.Parse("ij,jk")
	if err != nil {
		panic(err)
	}
	fmt.Println(c)
	fmt.Println(c.Free, c.Summed, c.Implicit)

	_, err = tensor.Parse("^m_n,^ib->^ab")
	fmt.Println(err)
	// Output:
	// y[i,k] = sum_j x1[i,j] x2[j,k]
	// ik j true
	// einsum "^m_n,^ib->^ab": index a of the output is in no operand, so it has no extent
}
