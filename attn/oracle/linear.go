package oracle

import (
	"math"

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
	q, kv := o.rawQuery(at), at.H/p.Group()
	den, tolDen := p.Linear.Eps, 0.0
	grow := u * (math.Sqrt(float64(p.Dim)) + math.Sqrt(float64(len(o.keys))) + 8)
	for _, j := range o.keys {
		w, abs := 0.0, 0.0
		for x, k := range o.key(o.k.x, &a.K, at.B, j, kv) {
			t := feature(p.Linear.Feature, q[x]) * feature(p.Linear.Feature, k)
			w += t
			abs += math.Abs(t)
		}
		den += w
		tolDen += grow * abs
		for b, v := range o.key(o.v, &a.V, at.B, j, kv) {
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
	p, a, kv := &j.p, j.a, at.H/j.p.Group()
	r := j.Row(at) // fills j.keys with the visible keys
	j.q.clear()
	q := append([]float64(nil), j.Oracle.q.x[:p.Dim]...)
	f, absF := make([]float64, p.Dim), make([]float64, p.Dim)
	for c, x := range q {
		f[c] = feature(p.Linear.Feature, x)
		absF[c] = math.Abs(f[c])
	}
	root := func(n int) float64 { return math.Sqrt(float64(n)) }
	grow := root(p.Dim) + root(p.DimV) + root(len(j.keys)) + root(j.queries(at.B)) + 10
	den, absDen := p.Linear.Eps, 0.0
	weight := func(key int) (w, abs float64, k, absK []float64) {
		k, absK = make([]float64, p.Dim), make([]float64, p.Dim)
		for c, x := range j.key(j.Oracle.k.x[:p.Dim], &a.K, at.B, key, kv) {
			k[c] = feature(p.Linear.Feature, x)
			absK[c] = math.Abs(k[c])
			w += f[c] * k[c]
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
		j.v.add(key, bounded{w * by, absW * size * (eBy + grow), absW * size}, j.dout, j.absDout)
		dw := bounded{-d.x, d.err, d.size}
		for c, v := range j.key(j.Oracle.v, &a.V, at.B, key, kv) {
			dw.x += j.dout[c] * v * by
			dw.err += math.Abs(j.dout[c]*v) * size * (eBy + grow)
			dw.size += math.Abs(j.dout[c]*v) * size
		}
		j.q.add(0, dw, k, absK)
		j.k.add(key, dw, f, absF)
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
