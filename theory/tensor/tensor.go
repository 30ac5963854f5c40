package tensor

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
)

// A Tensor is an array of float64 with any number of axes. A tensor of rank 0 is a number. Axes may
// have extent 0.
type Tensor struct {
	shape    []int
	variance []Variance // of each axis
	data     []float64  // in order, the last index running fastest
}

// New returns a tensor of zeros.
func New(shape ...int) *Tensor { return Of(make([]float64, count(shape)), shape...) }

// Of returns a tensor over the given numbers, the last index running fastest. It panics unless the
// shape has as many elements as there are numbers.
func Of(data []float64, shape ...int) *Tensor {
	if n := count(shape); len(data) != n {
		panic(fmt.Sprintf("tensor.Of: %d numbers for shape %v, want %d numbers", len(data), shape, n))
	}
	return &Tensor{slices.Clone(shape), make([]Variance, len(shape)), data}
}

// Number returns a tensor of rank 0.
func Number(x float64) *Tensor { return Of([]float64{x}) }

// Vector returns a tensor of rank 1 over the given numbers.
func Vector(v []float64) *Tensor { return Of(v, len(v)) }

// Matrix returns a tensor of rank 2 with a copy of the elements of m.
func Matrix(m mat.Matrix) *Tensor {
	r, c := m.Dims()
	t := New(r, c)
	for i := range r {
		for j := range c {
			t.data[i*c+j] = m.At(i, j)
		}
	}
	return t
}

// Stack returns a tensor of rank 3 with a copy of each matrix, one for each index of its first
// axis. It panics if there is no matrix or if shapes differ.
func Stack(ms ...mat.Matrix) *Tensor {
	if len(ms) == 0 {
		panic("tensor.Stack: no matrix, so there is no shape")
	}
	r, c := ms[0].Dims()
	t := New(len(ms), r, c)
	for i, m := range ms {
		if r2, c2 := m.Dims(); r2 != r || c2 != c {
			panic(fmt.Sprintf("tensor.Stack: matrix %d is %d by %d and the first one %d by %d", i+1, r2, c2, r, c))
		}
		copy(t.Sub(i).data, Matrix(m).data)
	}
	return t
}

// Rank returns the number of axes.
func (t *Tensor) Rank() int { return len(t.shape) }

// Shape returns the extents of the axes.
func (t *Tensor) Shape() []int { return slices.Clone(t.shape) }

// Data returns the tensor's own numbers, the last index running fastest.
func (t *Tensor) Data() []float64 { return t.data }

// At returns the element at the given indices, one for each axis.
func (t *Tensor) At(index ...int) float64 { return t.data[t.offset(index)] }

// Set sets the element at the given indices, one for each axis.
func (t *Tensor) Set(x float64, index ...int) { t.data[t.offset(index)] = x }

// Value returns the number of a tensor of rank 0.
func (t *Tensor) Value() float64 {
	if t.Rank() != 0 {
		panic(fmt.Sprintf("tensor: Value of shape %v, want rank 0", t.shape))
	}
	return t.data[0]
}

// Dense returns a copy of a tensor of rank 2 as a matrix. gonum's matrices need at least one
// element.
func (t *Tensor) Dense() *mat.Dense {
	if t.Rank() != 2 {
		panic(fmt.Sprintf("tensor: Dense of shape %v, want rank 2", t.shape))
	}
	return mat.NewDense(t.shape[0], t.shape[1], slices.Clone(t.data))
}

// Sub returns the part of the tensor whose first index is i: a matrix of a stack, or a row of a
// matrix. It shares the numbers.
func (t *Tensor) Sub(i int) *Tensor {
	if t.Rank() == 0 || i < 0 || i >= t.shape[0] {
		panic(fmt.Sprintf("tensor: part %d of shape %v", i, t.shape))
	}
	each := count(t.shape[1:])
	return &Tensor{t.shape[1:], t.variance[1:], t.data[i*each : (i+1)*each]}
}

// String formats the numbers with a pair of brackets for each axis.
func (t *Tensor) String() string {
	if t.Rank() == 0 {
		return fmt.Sprint(t.data[0])
	}
	parts := make([]string, t.shape[0])
	for i := range parts {
		parts[i] = t.Sub(i).String()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// offset returns the position of an element in data.
func (t *Tensor) offset(index []int) int {
	if len(index) != t.Rank() {
		panic(fmt.Sprintf("tensor: %d indices %v for shape %v", len(index), index, t.shape))
	}
	at := 0
	for axis, i := range index {
		if i < 0 || i >= t.shape[axis] {
			panic(fmt.Sprintf("tensor: index %v outside shape %v", index, t.shape))
		}
		at = at*t.shape[axis] + i
	}
	return at
}

// count returns the number of elements of a shape.
func count(shape []int) int {
	n := 1
	for _, extent := range shape {
		if extent < 0 {
			panic(fmt.Sprintf("tensor: shape %v has a negative extent", shape))
		}
		n *= extent
	}
	return n
}
