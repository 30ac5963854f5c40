package nn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"attnlab/attn"
)

// A Param is a matrix that training changes, and the gradient of the loss by it, which Backward
// adds to.
type Param struct {
	Name    string
	W, Grad Mat
}

// NewParam is a parameter of zeros.
func NewParam(name string, rows, cols int) *Param {
	return &Param{name, NewMat(rows, cols), NewMat(rows, cols)}
}

// Normal fills the parameter with normal numbers of the given deviation.
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

// Glorot is the deviation that keeps the variance of activations and of gradients about the same on
// both sides of a layer.
func Glorot(in, out int) float64 { return math.Sqrt(2 / float64(in+out)) }

// Count is the number of elements of parameters.
func Count(params []*Param) (n int) {
	for _, p := range params {
		n += p.W.Rows * p.W.Cols
	}
	return n
}

// On is what layers run on.
type On struct {
	Kernel   attn.Kernel // for attention
	Products *Multiplier // for the rest, whose team is that of all
	Caches   *Caches     // nil: attention sees the rows of one call
	Memory   *Param      // for cross-attention: the rows that it looks at, such as an encoder's output, and the gradient by them
}

// A Shape is what comes to a layer: so many sequences of so many rows, one after the other, of Dim
// numbers each.
type Shape struct{ Batch, Seq, Dim int }

// Rows is the number of rows.
func (s Shape) Rows() int { return s.Batch * s.Seq }

func (s Shape) String() string { return fmt.Sprintf("%d x %d rows of %d", s.Batch, s.Seq, s.Dim) }

// A Layer is parameters, and how they turn rows into rows.
type Layer interface {
	Params() []*Param
	// Plan decides and allocates for inputs of one shape. The rows that come out are as many as go
	// in, of the Dim it returns.
	Plan(on On, in Shape) (p Pass, dim int, err error)
}

// A Pass runs a layer, on as many rows as it was planned for, or fewer: the same number of every
// sequence. Its methods allocate nothing, and what they return belongs to the pass and holds until
// the same method is called again. It is used by one goroutine at a time, and so are all passes on
// one Multiplier.
type Pass interface {
	Forward(x Mat) Mat
	// Backward takes the gradient of the loss by the last output, adds to that of the parameters,
	// and returns that by the input, which must still be as Forward found it.
	Backward(dy Mat) Mat
}

// ErrShape is in the errors of Plan about inputs that do not fit.
var ErrShape = errors.New("nn: the input does not fit")

// expect is nil if rows of a shape are of so many numbers.
func expect(layer string, in Shape, dim int) error {
	if in.Batch < 0 || in.Seq < 0 || in.Dim != dim {
		return fmt.Errorf("%w: %s takes rows of %d, not %v", ErrShape, layer, dim, in)
	}
	return nil
}

// rowsAtOnce is the number of rows in a task of loops over elements.
const rowsAtOnce = 32

// eachRow runs job for tasks of rowsAtOnce rows.
func (m *Multiplier) eachRow(rows int, job func(worker, task int)) {
	m.team.Run((rows+rowsAtOnce-1)/rowsAtOnce, job)
}

// span is the rows of a task.
func span(task, rows int) (from, to int) {
	return task * rowsAtOnce, min((task+1)*rowsAtOnce, rows)
}

// A rowwise is a pass that makes each row of its output from the same row of its input, and so its
// gradients.
type rowwise struct {
	on                On
	x, y, dy, dx      Mat
	forward, backward func(worker, task int)
}

func newRowwise(on On, in Shape) rowwise {
	return rowwise{on: on, y: NewMat(in.Rows(), in.Dim), dx: NewMat(in.Rows(), in.Dim)}
}

// Forward makes all rows.
func (p *rowwise) Forward(x Mat) Mat {
	p.x = x
	p.on.Products.eachRow(x.Rows, p.forward)
	return p.y.First(x.Rows)
}

// Backward makes the gradients of all rows.
func (p *rowwise) Backward(dy Mat) Mat {
	p.dy = dy
	p.on.Products.eachRow(dy.Rows, p.backward)
	return p.dx.First(dy.Rows)
}
