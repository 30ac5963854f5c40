package nn

import "math/rand/v2"

// Linear is y = x W + b.
type Linear struct {
	W *Param // [in][out]
	B *Param // [1][out], or nil
}

// NewLinear returns a linear layer with Glorot's weights, and with a bias of zeros if bias is true.
func NewLinear(name string, in, out int, bias bool, r *rand.Rand) *Linear {
	l := &Linear{W: NewParam(name+".w", in, out).Normal(r, Glorot(in, out))}
	if bias {
		l.B = NewParam(name+".b", 1, out)
	}
	return l
}

// Params returns W and b.
func (l *Linear) Params() []*Param {
	if l.B == nil {
		return []*Param{l.W}
	}
	return []*Param{l.W, l.B}
}

// Plan plans the products.
func (l *Linear) Plan(on On, in Shape) (Pass, int, error) {
	out := l.W.W.Cols
	if err := expect(l.W.Name, in, l.W.W.Rows); err != nil {
		return nil, 0, err
	}
	p := &linearPass{layer: l, on: on, y: NewMat(in.Rows(), out), dx: NewMat(in.Rows(), in.Dim)}
	p.ones = NewParam("", in.Rows(), 1).Ones().W
	return p, out, nil
}

type linearPass struct {
	layer    *Linear
	on       On
	x, y, dx Mat
	ones     Mat // [rows][1]; the product with b adds b to every row
}

func (p *linearPass) Forward(x Mat) Mat {
	p.x = x
	y := p.y.First(x.Rows)
	if b := p.layer.B; b != nil {
		p.on.Products.Do(Product{C: y, A: p.ones.First(x.Rows), B: b.W})
	}
	p.on.Products.Do(Product{C: y, A: x, B: p.layer.W.W, Add: p.layer.B != nil})
	return y
}

// Backward computes dW += x^T dy, db += 1^T dy and dx = dy W^T.
func (p *linearPass) Backward(dy Mat) Mat {
	p.on.Products.Do(Product{C: p.layer.W.Grad, A: p.x, AT: true, B: dy, Add: true})
	if b := p.layer.B; b != nil {
		p.on.Products.Do(Product{C: b.Grad, A: p.ones.First(dy.Rows), AT: true, B: dy, Add: true})
	}
	dx := p.dx.First(dy.Rows)
	p.on.Products.Do(Product{C: dx, A: dy, B: p.layer.W.W, BT: true})
	return dx
}
