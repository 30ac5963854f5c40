package nn

// A Chain runs layers one after another.
type Chain []Layer

// Params returns the parameters of all layers.
func (c Chain) Params() (all []*Param) {
	for _, l := range c {
		all = append(all, l.Params()...)
	}
	return all
}

// Plan plans each layer for the output of the one before it.
func (c Chain) Plan(on On, in Shape) (Pass, int, error) {
	var p chainPass
	for _, l := range c {
		next, dim, err := l.Plan(on, in)
		if err != nil {
			return nil, 0, err
		}
		p, in.Dim = append(p, next), dim
	}
	return p, in.Dim, nil
}

type chainPass []Pass

func (p chainPass) Forward(x Mat) Mat {
	for _, next := range p {
		x = next.Forward(x)
	}
	return x
}

func (p chainPass) Backward(dy Mat) Mat {
	for i := len(p) - 1; i >= 0; i-- {
		dy = p[i].Backward(dy)
	}
	return dy
}

// A Residual adds a layer's output to its input: y = x + f(x).
type Residual struct{ Layer }

// Plan plans the layer, whose output must be as wide as its input.
func (r Residual) Plan(on On, in Shape) (Pass, int, error) {
	inner, dim, err := r.Layer.Plan(on, in)
	if err == nil {
		in.Dim, dim = dim, in.Dim
		err = expect("a residual's sum", in, dim)
	}
	if err != nil {
		return nil, 0, err
	}
	return &residualPass{inner, newAdder(on), NewMat(in.Rows(), dim), NewMat(in.Rows(), dim)}, dim, nil
}

type residualPass struct {
	inner Pass
	*adder
	y, dx Mat
}

func (p *residualPass) Forward(x Mat) Mat { return p.add(p.y.First(x.Rows), x, p.inner.Forward(x)) }

func (p *residualPass) Backward(dy Mat) Mat {
	return p.add(p.dx.First(dy.Rows), dy, p.inner.Backward(dy))
}

// An adder adds matrices.
type adder struct {
	on       On
	to, a, b Mat
	job      func(worker, task int)
}

func newAdder(on On) *adder {
	s := &adder{on: on}
	s.job = s.rows
	return s
}

// add computes to = a + b. to may be a or b.
func (s *adder) add(to, a, b Mat) Mat {
	s.to, s.a, s.b = to, a, b
	s.on.Products.eachRow(to.Rows, s.job)
	return to
}

func (s *adder) rows(_, task int) {
	for i, last := span(task, s.to.Rows); i < last; i++ {
		to, a, b := s.to.Row(i), s.a.Row(i), s.b.Row(i)
		for j := range to {
			to[j] = a[j] + b[j]
		}
	}
}
