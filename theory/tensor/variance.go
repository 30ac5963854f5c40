package tensor

import (
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// A Variance says how the components along an axis change with the basis: not at all, like a
// vector's, or like a covector's.
type Variance uint8

// Kinds of indices.
const (
	Label Variance = iota // a token, a head, or a component of unstated kind
	Up                    // x^a, of vectors: x' = B x
	Down                  // u_a, of covectors: u' = B^-T u
)

// ErrVariance is wrapped by errors about sums that join two upper or two lower indices, and about
// indices that would be both.
var ErrVariance = errors.New("upper and lower indices do not pair")

// String returns the name used in errors.
func (v Variance) String() string {
	switch v {
	case Up:
		return "upper"
	case Down:
		return "lower"
	}
	return "label"
}

// mark returns the mark used in specs.
func (v Variance) mark() string {
	switch v {
	case Up:
		return "^"
	case Down:
		return "_"
	}
	return ""
}

// Delta returns Kronecker's δ^a_b in n dimensions. Contracting an index with it only renames the
// index.
func Delta(n int) *Tensor {
	t := New(n, n)
	for i := range n {
		t.data[i*n+i] = 1
	}
	return t.Mark(Up, Down)
}

// Mark returns the tensor with a stated kind for each index. It shares the numbers.
func (t *Tensor) Mark(kinds ...Variance) *Tensor {
	if len(kinds) != t.Rank() {
		panic(fmt.Sprintf("tensor: %d kinds of indices %v for shape %v", len(kinds), kinds, t.shape))
	}
	return &Tensor{t.shape, slices.Clone(kinds), t.data}
}

// Variance returns the kind of each index.
func (t *Tensor) Variance() []Variance { return slices.Clone(t.variance) }

// Lower lowers an upper index with a metric g:
//
//	t_..a.. = sum_b g_ab t^..b..
func (t *Tensor) Lower(axis int, g mat.Symmetric) (*Tensor, error) {
	if err := t.movable(axis, Up, g); err != nil {
		return nil, fmt.Errorf("tensor: lower: %w", err)
	}
	return t.move(axis, Down, func(to, from *mat.Dense) error {
		to.Mul(g, from)
		return nil
	})
}

// Raise raises a lower index with the inverse of a metric g, which must be positive definite:
//
//	t^..a.. = sum_b g^ab t_..b..    that is, g_ab t^..b.. = t_..a..
func (t *Tensor) Raise(axis int, g mat.Symmetric) (*Tensor, error) {
	if err := t.movable(axis, Down, g); err != nil {
		return nil, fmt.Errorf("tensor: raise: %w", err)
	}
	var chol mat.Cholesky
	if !chol.Factorize(g) {
		return nil, errors.New("tensor: raise: the metric is not positive definite, so it may have no inverse")
	}
	return t.move(axis, Up, func(to, from *mat.Dense) error { return chol.SolveTo(to, from) })
}

// movable returns an error if an index cannot be lowered or raised.
func (t *Tensor) movable(axis int, from Variance, g mat.Symmetric) error {
	switch n := g.SymmetricDim(); {
	case axis < 0 || axis >= t.Rank():
		return fmt.Errorf("axis %d of shape %v", axis, t.shape)
	case t.variance[axis] == Label:
		return fmt.Errorf("axis %d is a label, want it %v, state the kind with Mark", axis, from)
	case t.variance[axis] != from:
		return fmt.Errorf("axis %d is %v already", axis, t.variance[axis])
	case n != t.shape[axis]:
		return fmt.Errorf("axis %d has extent %d and the metric is %d by %d", axis, t.shape[axis], n, n)
	}
	return nil
}

// move returns a tensor with another kind at one axis. For each index before that axis, the rest of
// the tensor is a matrix with a row for each component, and f computes the new matrix from the old
// one.
func (t *Tensor) move(axis int, kind Variance, f func(to, from *mat.Dense) error) (*Tensor, error) {
	moved := New(t.shape...).Mark(t.variance...)
	moved.variance[axis] = kind
	if len(t.data) == 0 {
		return moved, nil
	}
	rows, columns := t.shape[axis], count(t.shape[axis+1:])
	for at := 0; at < len(t.data); at += rows * columns {
		from := mat.NewDense(rows, columns, t.data[at:at+rows*columns])
		to := mat.NewDense(rows, columns, moved.data[at:at+rows*columns])
		if err := f(to, from); err != nil {
			return nil, fmt.Errorf("tensor: %w", err)
		}
	}
	return moved, nil
}
