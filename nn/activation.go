package nn

import (
	"math"

	"attnlab/kernels/asm"
)

// An Activation is a function of each element.
type Activation uint8

// Activations.
const (
	ReLU Activation = iota // max(x, 0)
	GELU                   // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
	SiLU                   // x / (1 + exp(-x)) = x (1 + tanh(x/2)) / 2
)

// Params returns nil.
func (Activation) Params() []*Param { return nil }

// Plan allocates.
func (f Activation) Plan(on On, in Shape) (Pass, int, error) {
	p := &activationPass{rowwise: newRowwise(on, in), f: f}
	for range on.Products.workers {
		p.tanh = append(p.tanh, newTanh(on.Products.ops, in.Dim))
	}
	p.forward, p.backward = p.forwardRows, p.backwardRows
	return p, in.Dim, nil
}

type activationPass struct {
	rowwise
	f    Activation
	tanh []tanh
}

// The argument of GELU's tanh is slope (x + cubic x^3).
const cubic = 0.044715

var slope = math.Sqrt(2 / math.Pi)

// argument returns the argument of the tanh as a function of x, and its derivative.
func (f Activation) argument(x float32) (z, dz float32) {
	if f == SiLU {
		return x / 2, 0.5
	}
	square := x * x
	return float32(slope) * (x + float32(cubic*square*x)), float32(slope) * (1 + float32(3*cubic*square))
}

func (p *activationPass) forwardRows(worker, task int) {
	for i, last := span(task, p.x.Rows); i < last; i++ {
		x, y := p.x.Row(i), p.y.Row(i)
		if p.f == ReLU {
			for c, x := range x {
				y[c] = max(x, 0)
			}
			continue
		}
		t := p.tanhs(worker, x)
		for c, x := range x {
			y[c] = 0.5 * x * (1 + t[c])
		}
	}
}

func (p *activationPass) backwardRows(worker, task int) {
	for i, last := span(task, p.x.Rows); i < last; i++ {
		x, dy, dx := p.x.Row(i), p.dy.Row(i), p.dx.Row(i)
		if p.f == ReLU {
			for c, x := range x {
				if dx[c] = 0; x > 0 {
					dx[c] = dy[c]
				}
			}
			continue
		}
		t := p.tanhs(worker, x)
		for c, x := range x {
			_, dz := p.f.argument(x)
			dx[c] = dy[c] * (0.5*(1+t[c]) + 0.5*x*dz*(1-t[c]*t[c]))
		}
	}
}

// tanhs returns the hyperbolic tangents of the arguments of a row.
func (p *activationPass) tanhs(worker int, x []float32) []float32 {
	t := &p.tanh[worker]
	for c, x := range x {
		t.edit.P[c], _ = p.f.argument(x)
	}
	t.ops.Edit.Cap(&t.edit)
	return t.edit.P[:len(x)]
}

// tanh computes the hyperbolic tangents of a row with the loop that softcaps scores.
type tanh struct {
	ops  *asm.Ops
	edit asm.Edit
}

func newTanh(ops *asm.Ops, n int) tanh {
	lanes := ops.Shape.Lanes
	rows := (n + lanes - 1) / lanes
	panel := asm.Panel{Lanes: lanes, Width: lanes, N: rows, P: make([]float32, rows*lanes)}
	return tanh{ops, asm.Edit{Panel: panel, Scale: 1}}
}

// Gated multiplies the outputs of two layers element by element: y = a(x) b(x). SwiGLU is
// Gated{Chain{w1, SiLU}, w2}.
type Gated struct{ A, B Layer }

// Params returns the parameters of both.
func (g Gated) Params() []*Param { return append(g.A.Params(), g.B.Params()...) }

// Plan plans both.
func (g Gated) Plan(on On, in Shape) (Pass, int, error) {
	a, dim, err := g.A.Plan(on, in)
	if err != nil {
		return nil, 0, err
	}
	b, other, err := g.B.Plan(on, in)
	if err != nil {
		return nil, 0, err
	}
	if err := expect("a gate", Shape{in.Batch, in.Seq, other}, dim); err != nil {
		return nil, 0, err
	}
	p := &gatedPass{adder: newAdder(on), a: a, b: b, y: NewMat(in.Rows(), dim), da: NewMat(in.Rows(), dim), db: NewMat(in.Rows(), dim), dx: NewMat(in.Rows(), in.Dim)}
	p.forward, p.backward = p.forwardRows, p.backwardRows
	return p, dim, nil
}

type gatedPass struct {
	*adder
	a, b              Pass
	ya, yb, y         Mat
	dy, da, db, dx    Mat
	forward, backward func(worker, task int)
}

func (p *gatedPass) Forward(x Mat) Mat {
	p.ya, p.yb = p.a.Forward(x), p.b.Forward(x)
	p.on.Products.eachRow(x.Rows, p.forward)
	return p.y.First(x.Rows)
}

func (p *gatedPass) Backward(dy Mat) Mat {
	p.dy = dy
	p.on.Products.eachRow(dy.Rows, p.backward)
	return p.add(p.dx.First(dy.Rows), p.a.Backward(p.da.First(dy.Rows)), p.b.Backward(p.db.First(dy.Rows)))
}

func (p *gatedPass) forwardRows(_, task int) {
	for i, last := span(task, p.ya.Rows); i < last; i++ {
		a, b, y := p.ya.Row(i), p.yb.Row(i), p.y.Row(i)
		for c := range y {
			y[c] = a[c] * b[c]
		}
	}
}

func (p *gatedPass) backwardRows(_, task int) {
	for i, last := span(task, p.dy.Rows); i < last; i++ {
		a, b, dy, da, db := p.ya.Row(i), p.yb.Row(i), p.dy.Row(i), p.da.Row(i), p.db.Row(i)
		for c, g := range dy {
			da[c], db[c] = g*b[c], g*a[c]
		}
	}
}
