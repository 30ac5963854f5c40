package equations

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/nn"
)

// A twin computes the layers of a transformer in float64, as their equations are written, each with
// its backward pass. It names weights as the parameters of package nn, and adds up gradients under
// the same names.
type twin struct {
	forward, back *Check // whose ingredients are marked on the backward forward, and back
	w, grad       map[string]*mat.Dense
}

// A backward is the backward pass of a layer: it returns the gradient by the input, given the
// gradient by the output.
type backward func(dy *mat.Dense) *mat.Dense

// newTwin returns the twin of a layer with these parameters. A nil check marks no ingredients.
func newTwin(forward, back *Check, params []*nn.Param) *twin {
	t := &twin{forward: forward, back: back, w: map[string]*mat.Dense{}, grad: map[string]*mat.Dense{}}
	for _, c := range []**Check{&t.forward, &t.back} {
		if *c == nil {
			*c = newCheck("", Env{})
		}
	}
	for _, p := range params {
		t.w[p.Name] = dense(p.W)
	}
	return t
}

// dense returns a matrix as float64.
func dense(m nn.Mat) *mat.Dense {
	to := mat.NewDense(m.Rows, m.Cols, nil)
	to.Apply(func(i, j int, _ float64) float64 { return float64(m.Row(i)[j]) }, to)
	return to
}

// single returns a matrix as float32.
func single(m mat.Matrix) nn.Mat {
	r, k := m.Dims()
	to := nn.NewMat(r, k)
	for i := range r {
		for j := range to.Row(i) {
			to.Row(i)[j] = float32(m.At(i, j))
		}
	}
	return to
}

// times returns the product of two matrices.
func times(a, b mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Mul(a, b)
	return &to
}

// plus returns the sum of matrices.
func plus(first mat.Matrix, others ...mat.Matrix) *mat.Dense {
	to := mat.DenseCopyOf(first)
	for _, m := range others {
		to.Add(to, m)
	}
	return to
}

// add adds to the gradient of a parameter.
func (t *twin) add(name string, g *mat.Dense) {
	if old := t.grad[name]; old != nil {
		g = plus(old, g)
	}
	t.grad[name] = g
}

// linear returns y_ij = sum_k x_ik W_kj + b_j. Its backward pass computes
//
//	dW = x^T dy    db_j = sum_i dy_ij    dx = dy W^T
func (t *twin) linear(name string, x *mat.Dense) (*mat.Dense, backward) {
	w, b := t.w[name+".w"], t.w[name+".b"]
	y := times(x, w)
	if b != nil {
		y.Apply(func(_, j int, v float64) float64 { return v + b.At(0, j) }, y)
	}
	return y, func(dy *mat.Dense) *mat.Dense {
		t.add(name+".w", times(x.T(), dy))
		rows, cols := dy.Dims()
		if b != nil && !t.back.Flip("a bias has no gradient") {
			db := mat.NewDense(1, cols, nil)
			for i := range rows {
				for j := range cols {
					db.Set(0, j, db.At(0, j)+dy.At(i, j))
				}
			}
			t.add(name+".b", db)
		}
		if in, out := w.Dims(); in == out && t.back.Flip("transpose of W") {
			return times(dy, w)
		}
		return times(dy, w.T())
	}
}

// rectified returns max(x, 0). Its backward pass returns dx = dy where x > 0, else 0.
func (t *twin) rectified(x *mat.Dense) (*mat.Dense, backward) {
	var y mat.Dense
	y.Apply(func(_, _ int, v float64) float64 { return math.Max(v, 0) }, x)
	return &y, func(dy *mat.Dense) *mat.Dense {
		var dx mat.Dense
		dx.Apply(func(i, j int, g float64) float64 {
			if x.At(i, j) > 0 || t.back.Flip("what ReLU stops") {
				return g
			}
			return 0
		}, dy)
		return &dx
	}
}

// norm returns y = gain x' + bias with x' = (x - mean) / sqrt(mean of (x - mean)^2 + eps), by row.
// Its backward pass computes, with g = dy gain,
//
//	dx = (g - mean(g) - x' mean(g x')) / sqrt(...)    dgain = sum_i dy x'    dbias = sum_i dy
func (t *twin) norm(name string, x *mat.Dense) (*mat.Dense, backward) {
	const eps = 1e-5
	gain, bias := t.w[name+".gain"], t.w[name+".bias"]
	rows, n := x.Dims()
	unit, inverse, y := mat.NewDense(rows, n, nil), make([]float64, rows), mat.NewDense(rows, n, nil)
	for i := range rows {
		mean, square := 0.0, 0.0
		for c := range n {
			mean += x.At(i, c) / float64(n)
		}
		if t.forward.Flip("the mean of a row") {
			mean = 0
		}
		for c := range n {
			square += (x.At(i, c) - mean) * (x.At(i, c) - mean) / float64(n)
		}
		inverse[i] = 1 / math.Sqrt(square+eps)
		for c := range n {
			unit.Set(i, c, (x.At(i, c)-mean)*inverse[i])
			y.Set(i, c, gain.At(0, c)*unit.At(i, c)+bias.At(0, c))
		}
	}
	return y, func(dy *mat.Dense) *mat.Dense {
		dx, dgain, dbias := mat.NewDense(rows, n, nil), mat.NewDense(1, n, nil), mat.NewDense(1, n, nil)
		for i := range rows {
			sum, along := 0.0, 0.0
			for c := range n {
				g := dy.At(i, c) * gain.At(0, c)
				sum += g / float64(n)
				along += g * unit.At(i, c) / float64(n)
				dgain.Set(0, c, dgain.At(0, c)+dy.At(i, c)*unit.At(i, c))
				dbias.Set(0, c, dbias.At(0, c)+dy.At(i, c))
			}
			for c := range n {
				g := dy.At(i, c) * gain.At(0, c)
				dx.Set(i, c, inverse[i]*(g-t.back.Factor("mean(g)", sum)-unit.At(i, c)*t.back.Factor("mean(g x')", along)))
			}
		}
		t.add(name+".gain", dgain)
		t.add(name+".bias", dbias)
		return dx
	}
}

// A heading describes how rows divide into sequences and heads, and which keys a query sees. A nil
// show shows all.
type heading struct {
	heads, keyHeads, batch int
	show                   func(i, j int) bool
}

// cut returns the rows of sequence b and the columns of head h.
func cut(m *mat.Dense, b, batch, h, heads int) *mat.Dense {
	rows, cols := m.Dims()
	return m.Slice(b*rows/batch, (b+1)*rows/batch, h*cols/heads, (h+1)*cols/heads).(*mat.Dense)
}

// keyHeadOf returns the key head of query head h.
func (d heading) keyHeadOf(c *Check, h int) int {
	g := h / (d.heads / d.keyHeads)
	if d.keyHeads == 1 {
		return g
	}
	return c.Index("key head", g, d.keyHeads)
}

// heads returns o_h = softmax(q_h k_g^T / sqrt(d)) v_g, with the heads side by side, and its
// backward pass to q, k and v.
func (t *twin) heads(q, k, v *mat.Dense, d heading) (o *mat.Dense, back func(do *mat.Dense) (dq, dk, dv *mat.Dense)) {
	rows, dim := q.Dims()
	_, values := v.Dims()
	o = mat.NewDense(rows, values/d.keyHeads*d.heads, nil)
	weights := map[[2]int]*mat.Dense{}
	for b := range d.batch {
		for h := range d.heads {
			g := d.keyHeadOf(t.forward, h)
			qh, kg, vg := cut(q, b, d.batch, h, d.heads), cut(k, b, d.batch, g, d.keyHeads), cut(v, b, d.batch, g, d.keyHeads)
			a, _ := writtenSoftmax(t.forward, writtenScores(t.forward, qh, kg), d.show)
			weights[[2]int{b, h}] = a
			cut(o, b, d.batch, h, d.heads).Copy(writtenOutput(t.forward, a, vg))
		}
	}
	return o, func(do *mat.Dense) (dq, dk, dv *mat.Dense) {
		dq, dk, dv = zeros(q), zeros(k), zeros(v)
		scale := t.back.Factor("1/sqrt(d) in the backward pass", 1/math.Sqrt(float64(dim/d.heads)))
		for b := range d.batch {
			for h := range d.heads {
				g := h / (d.heads / d.keyHeads)
				qh, kg, vg := cut(q, b, d.batch, h, d.heads), cut(k, b, d.batch, g, d.keyHeads), cut(v, b, d.batch, g, d.keyHeads)
				a, doh := weights[[2]int{b, h}], cut(do, b, d.batch, h, d.heads)
				_, ds := writtenScoreGradient(t.back, a, vg, doh)
				ds.Scale(scale, ds)
				for _, s := range []struct {
					to *mat.Dense
					by *mat.Dense
				}{
					{cut(dq, b, d.batch, h, d.heads), times(ds, kg)},
					{cut(dk, b, d.batch, g, d.keyHeads), times(ds.T(), qh)},
					{cut(dv, b, d.batch, g, d.keyHeads), times(a.T(), doh)},
				} {
					s.to.Add(s.to, s.by)
				}
			}
		}
		return dq, dk, dv
	}
}

// zeros returns a zero matrix of the shape of m.
func zeros(m *mat.Dense) *mat.Dense {
	r, k := m.Dims()
	return mat.NewDense(r, k, nil)
}

// attention returns y = concat(o_h) W_O with q = x W_Q, k = m W_K, v = m W_V, and its backward pass
// to x and m.
func (t *twin) attention(name string, x, m *mat.Dense, d heading) (*mat.Dense, func(dy *mat.Dense) (dx, dm *mat.Dense)) {
	q, backQ := t.linear(name+".q", x)
	k, backK := t.linear(name+".k", m)
	v, backV := t.linear(name+".v", m)
	o, backO := t.heads(q, k, v, d)
	y, backY := t.linear(name+".o", o)
	return y, func(dy *mat.Dense) (dx, dm *mat.Dense) {
		dq, dk, dv := backO(backY(dy))
		return backQ(dq), plus(backK(dk), backV(dv))
	}
}

// selfAttention returns the attention of x to itself. Its gradient by x adds the parts through
// queries, keys and values.
func (t *twin) selfAttention(name string, x *mat.Dense, d heading) (*mat.Dense, backward) {
	y, back := t.attention(name, x, x, d)
	return y, func(dy *mat.Dense) *mat.Dense {
		dx, dm := back(dy)
		if t.back.Flip("x as keys and values") {
			return dx
		}
		return plus(dx, dm)
	}
}

// encoder returns the block of the original transformer: z = norm(x + attention(x)), y = norm(z +
// W_2 max(W_1 z, 0)).
func (t *twin) encoder(name string, x *mat.Dense, d heading) (*mat.Dense, backward) {
	attended, backA := t.selfAttention(name+".attention", x, d)
	z, back0 := t.norm(name+".norm0", plus(x, attended))
	up, backUp := t.linear(name+".up", z)
	bent, backBent := t.rectified(up)
	down, backDown := t.linear(name+".down", bent)
	y, back1 := t.norm(name+".norm1", plus(z, down))
	return y, func(dy *mat.Dense) *mat.Dense {
		d1 := back1(dy)
		dz := backUp(backBent(backDown(d1)))
		if !t.back.Flip("past the layer of a residual") {
			dz = plus(dz, d1)
		}
		d0 := back0(dz)
		return plus(d0, backA(d0))
	}
}
