package nn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"attnlab/attn"
)

// A Param is a matrix that training changes, with the gradient of the loss with respect to it.
// Backward adds to the gradient.
type Param struct {
	Name    string
	W, Grad Mat
}

// NewParam returns a parameter of zeros.
func NewParam(name string, rows, cols int) *Param {
	return &Param{name, NewMat(rows, cols), NewMat(rows, cols)}
}

// Normal fills the parameter with normal numbers of the given standard deviation.
func (p *Param) Normal(r *rand.Rand, deviation float64) *Param {
	for i := range p.W.Rows {
		for j := range p.W.Row(i) {
			p.W.Row(i)[j] = float32(r.NormFloat64() * deviation)
		}
	}
	return p
}

// Ones fills the parameter with ones.
func (p *Param) Ones() *Param {
	for i := range p.W.Rows {
		for j := range p.W.Row(i) {
			p.W.Row(i)[j] = 1
		}
	}
	return p
}

// Glorot returns the standard deviation of weights that keeps the variance of activations and of
// gradients about the same on both sides of a layer.
func Glorot(in, out int) float64 { return math.Sqrt(2 / float64(in+out)) }

// Count returns the number of elements of parameters.
func Count(params []*Param) (n int) {
	for _, p := range params {
		n += p.W.Rows * p.W.Cols
	}
	return n
}

// On holds what layers run on.
type On struct {
	Kernel   attn.Kernel // for attention
	Products *Multiplier // for matrix products; all layers run on its team
	Caches   *Caches     // nil: attention sees only the rows of one call

	// Memory holds the rows that cross-attention attends to, such as an encoder's output, and
	// receives their gradient.
	Memory *Param
}

// A Shape is the shape of a layer's input: Batch sequences of Seq rows, one sequence after the
// other, with Dim numbers in each row.
type Shape struct{ Batch, Seq, Dim int }

// Rows returns the number of rows.
func (s Shape) Rows() int { return s.Batch * s.Seq }

func (s Shape) String() string { return fmt.Sprintf("%d x %d rows of %d", s.Batch, s.Seq, s.Dim) }

// A Layer has parameters and maps rows to rows.
type Layer interface {
	Params() []*Param
	// Plan makes the decisions and allocations for inputs of one shape. A pass returns as many rows
	// as it gets, with dim numbers each.
	Plan(on On, in Shape) (p Pass, dim int, err error)
}

// A Pass runs a layer on as many rows as it was planned for, or on fewer, with the same number of
// rows in every sequence. Its methods allocate nothing. A matrix that a method returns belongs to
// the pass and is valid until the next call of that method. One goroutine at a time may use a pass,
// and all passes on one Multiplier.
type Pass interface {
	Forward(x Mat) Mat
	// Backward takes the gradient of the loss with respect to the last output. It adds to the
	// gradients of the parameters and returns the gradient with respect to the input, which must be
	// unchanged since Forward.
	Backward(dy Mat) Mat
}

// ErrShape is wrapped by the errors of Plan about inputs that do not fit.
var ErrShape = errors.New("nn: the input does not fit")

// expect returns an error unless the rows of a shape have dim numbers.
func expect(layer string, in Shape, dim int) error {
	if in.Batch < 0 || in.Seq < 0 || in.Dim != dim {
		return fmt.Errorf("%w: %s gets %v, want rows of %d", ErrShape, layer, in, dim)
	}
	return nil
}

// rowsAtOnce is the number of rows in one task of an element-wise loop.
const rowsAtOnce = 32

// eachRow runs job for tasks of rowsAtOnce rows.
func (m *Multiplier) eachRow(rows int, job func(worker, task int)) {
	m.team.Run((rows+rowsAtOnce-1)/rowsAtOnce, job)
}

// span returns the rows of a task.
func span(task, rows int) (from, to int) {
	return task * rowsAtOnce, min((task+1)*rowsAtOnce, rows)
}

// A rowwise is a pass whose output row depends only on the same row of its input, and so do its
// gradients.
type rowwise struct {
	on                On
	x, y, dy, dx      Mat
	forward, backward func(worker, task int)
}

func newRowwise(on On, in Shape) rowwise {
	return rowwise{on: on, y: NewMat(in.Rows(), in.Dim), dx: NewMat(in.Rows(), in.Dim)}
}

// Forward computes all rows.
func (p *rowwise) Forward(x Mat) Mat {
	p.x = x
	p.on.Products.eachRow(x.Rows, p.forward)
	return p.y.First(x.Rows)
}

// Backward computes the gradients of all rows.
func (p *rowwise) Backward(dy Mat) Mat {
	p.dy = dy
	p.on.Products.eachRow(dy.Rows, p.backward)
	return p.dx.First(dy.Rows)
}
