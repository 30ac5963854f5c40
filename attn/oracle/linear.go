package oracle

import (
	"math"
	"slices"

	"attnlab/attn"
)

// feature defines the feature maps.
func feature(f attn.Feature, x float64) float64 {
	switch f {
	case attn.EluPlusOne:
		if x > 0 {
			return x + 1
		}
		return math.Exp(x)
	case attn.ReluPlusOne:
		return math.Max(x, 0) + 1 // math.Max, unlike max on a constant, keeps NaN
	default:
		return x
	}
}

// linear computes a row of a linear problem.
func (o *Oracle) linear(at Index) {
	p, a, r := &o.p, o.a, &o.row
	if len(o.keys) == 0 {
		return
	}
	q := o.rawQuery(at)
	errQ := mapped(&p.Linear, q)
	kHead, vHead := p.HeadOf(at.H, p.HeadsKV), p.HeadOf(at.H, p.ValueHeads())
	den, tolDen := p.Linear.Eps, 0.0
	roots := math.Sqrt(float64(p.Dim)) + math.Sqrt(float64(len(o.keys)))
	for _, j := range o.keys {
		w, abs := 0.0, 0.0
		row := o.key(o.k.x, &a.K, at.B, j, kHead)
		grow := u * (roots + 8 + errQ + mapped(&p.Linear, row))
		for x, k := range row {
			t := q[x] * k
			w += t
			abs += math.Abs(t)
		}
		den += w
		tolDen += grow * abs
		for b, v := range o.key(o.v, &a.V, at.B, j, vHead) {
			r.Out[b] += w * v
			r.TolOut[b] += grow * abs * math.Abs(v)
			r.SizeOut[b] += abs * math.Abs(v)
		}
	}
	for b := range r.Out {
		if p.Linear.Unnormalised {
			r.Out[b] *= p.Scale()
			r.TolOut[b] *= math.Abs(p.Scale())
			r.SizeOut[b] *= math.Abs(p.Scale())
		} else {
			r.Out[b] /= den
			r.SizeOut[b] /= math.Abs(den)
			r.TolOut[b] = (r.TolOut[b] + math.Abs(r.Out[b])*tolDen) / math.Abs(den)
		}
		r.TolOut[b] += 2 * u * math.Abs(r.Out[b])
		r.rounded(b, 6*subnormal)
	}
}

// linearRow adds a row's contributions to the gradients of keys and values, and returns the
// gradient of its query. With numerator N and denominator Z of o = N / Z, the gradient of the
// weight W_j is (dO.V_j - dO.o) / Z. It is scale dO.V_j in an unnormalised problem.
//
// Kernels sum features with values before a query multiplies them. The error therefore counts the
// size of every product, not of their sum.
func (j *gradients) linearRow(at Index) estimates {
	p, a := &j.p, j.a
	kHead, vHead := p.HeadOf(at.H, p.HeadsKV), p.HeadOf(at.H, p.ValueHeads())
	r := j.Row(at) // fills j.keys with the visible keys
	j.q.clear()
	q := slices.Clone(j.rawQuery(at))
	f, absF := slices.Clone(q), make([]float64, p.Dim)
	errQ := mapped(&p.Linear, f)
	for c, x := range f {
		absF[c] = math.Abs(x)
	}
	root := func(n int) float64 { return math.Sqrt(float64(n)) }
	grow := root(p.Dim) + root(p.DimV) + root(len(j.keys)) + root(j.queries(at.B)) + 10 + 2*errQ
	den, absDen := p.Linear.Eps, 0.0
	weight := func(key int) (w, abs float64, k, absK []float64) {
		k, absK = slices.Clone(j.key(j.Oracle.k.x[:p.Dim], &a.K, at.B, key, kHead)), make([]float64, p.Dim)
		mapped(&p.Linear, k)
		for c, x := range k {
			absK[c] = math.Abs(x)
			w += f[c] * x
			abs += absF[c] * absK[c]
		}
		return w, abs, k, absK
	}
	for _, key := range j.keys {
		w, abs, _, _ := weight(key)
		den += w
		absDen += abs
	}
	by, eBy := p.Scale(), 1.0 // the factor of a product, and its relative error
	d := bounded{}
	if !p.Linear.Unnormalised {
		by, eBy = 1/den, grow*absDen/math.Abs(den)
		for c, g := range j.dout {
			d.x += g * r.Out[c] * by
			d.err += math.Abs(g*by) * (math.Abs(r.Out[c])*(eBy+grow) + r.TolOut[c]/u)
			d.size += math.Abs(g * r.Out[c] * by)
		}
	}
	size := math.Abs(by)
	for _, key := range j.keys {
		w, absW, k, absK := weight(key)
		j.v.add(j.firstV+key, bounded{w * by, absW * size * (eBy + grow), absW * size}, j.dout, j.absDout)
		dw := bounded{-d.x, d.err, d.size}
		for c, v := range j.key(j.Oracle.v, &a.V, at.B, key, vHead) {
			dw.x += j.dout[c] * v * by
			dw.err += math.Abs(j.dout[c]*v) * size * (eBy + grow)
			dw.size += math.Abs(j.dout[c]*v) * size
		}
		j.q.add(0, dw, k, absK)
		j.k.add(j.firstK+key, dw, f, absF)
	}
	dq := j.q.row(0)
	j.through(dq, q)
	return dq
}

// linearKey converts the gradient of a key's features to the gradient of the key.
func (j *gradients) linearKey(at Index, dk estimates) {
	j.through(dk, j.key(j.Oracle.k.x[:j.p.Dim], &j.a.K, at.B, at.I, at.H))
}

// through converts the gradient of a row's features to the gradient of the row.
func (j *gradients) through(g estimates, row []float64) {
	l := &j.p.Linear
	if l.Norm == attn.NoNorm {
		j.throughFeature(g, row)
		return
	}
	by, err := length(l, row)
	unit := make([]float64, len(row))
	for c, x := range row {
		unit[c] = x / by
	}
	j.throughFeature(g, unit)
	// With y = x / N, dx = (dy - y (y.dy)) / N. N is constant for the short rows of NormMax.
	sum := bounded{}
	if l.Norm == attn.NormSum || by > l.NormEps {
		for c, y := range unit {
			sum.x += y * g.x[c]
			sum.err += math.Abs(y) * g.tol[c]
			sum.size += math.Abs(y) * g.size[c]
		}
	}
	grow := u * (2*err + math.Sqrt(float64(len(row))) + 6)
	for c, y := range unit {
		g.tol[c] = (g.tol[c] + grow*math.Abs(g.x[c]) + math.Abs(y)*(sum.err+grow*sum.size)) / by
		g.size[c] = (g.size[c] + math.Abs(y)*sum.size) / by
		g.x[c] = (g.x[c] - y*sum.x) / by
	}
}

// throughFeature converts the gradient of a row's features to that of what the feature map takes.
func (j *gradients) throughFeature(g estimates, row []float64) {
	for c, y := range row {
		slope := 1.0
		switch f := j.p.Linear.Feature; {
		case f == attn.EluPlusOne && y <= 0:
			slope = math.Exp(y)
		case f == attn.ReluPlusOne && y <= 0:
			slope = 0
		}
		lost := 0.0 // error of a slope near the bottom of float32
		if slope < 1 {
			lost = flush * math.Abs(g.x[c])
		}
		g.x[c] *= slope
		g.tol[c] = g.tol[c]*slope + 2*u*math.Abs(g.x[c]) + lost + subnormal
		g.size[c] = g.size[c]*slope + absolute(lost+subnormal)
	}
}
