package linear

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// oneToken is the scratch of the form that computes one token.
//
//	r = S^T (alpha o k)    u = v, or beta (v - r) with the delta rule
//	y = S^T (alpha o q)    o = scale (y + (q.k) u)
//	                       S = alpha o S + k u^T
//
// A part of the state is read from memory once and written once. Without the delta rule, u does not
// depend on the state and one loop does both. With it, r and y are computed together, and the part
// then stays in the cache.
type oneToken struct {
	rows   []float32 // [1 + output head][d]: alpha o k, alpha o q
	sums   []float32 // [1 + output head][columns]: r, or u, and y
	qk     []float32 // [output head]: q.k
	factor []float32 // [output head]
	keep   []float32 // [d]: alpha; nil: 1
	call   asm.Step
}

func (o *oneToken) layout(p *attn.Problem, heads int, take func(n int) []float32) {
	o.rows, o.sums = take((1+heads)*p.Dim), take((1+heads)*columns)
	o.qk, o.factor = take(heads), take(heads)
	if p.Linear.Gate != attn.NoGate {
		o.keep = take(p.Dim)
	}
	for i := range o.factor {
		o.factor[i] = float32(p.Scale())
	}
}

// steps computes loaded tokens i to i+n-1, one after the other.
func (w *worker) steps(i, n int) {
	dv := w.p.DimV
	for ; n > 0; n-- {
		w.begin(i, w.z)
		for c := 0; c < dv; c += columns {
			p := part{c, min(columns, dv-c), asm.Rows{Data: w.x[c:], Stride: dv}}
			w.step(i, p)
			for h := range w.q {
				out := w.out(i, h, p)
				copy(out.Row(0, p.cols), w.one.sums[(1+h)*columns:])
			}
		}
		i++
	}
}

// stepsAgain computes some columns of a chunk of n tokens from the state before it, which it leaves
// as it is. It replaces outputs that are not finite.
func (w *worker) stepsAgain(i, n int, p part) {
	z := w.zs[len(w.z):]
	copy(z, w.zs[:len(w.z)])
	x := asm.Rows{Data: w.again, Stride: columns}
	for r := range w.p.Dim {
		copy(x.Row(r, p.cols), p.x.Row(r, p.cols))
	}
	p.x = x
	for r := range n {
		w.begin(i+r, z)
		w.step(i+r, p)
		for h := range w.q {
			if t := i + r; t >= w.q0 && t < w.q1 && w.wrong[h*tokens+r] != 0 {
				out := w.out(i+r, h, p)
				replace(out.Row(0, p.cols), w.one.sums[(1+h)*columns:])
			}
		}
	}
}

// replace copies numbers to where to is not finite.
func replace(to, from []float32) {
	for c, x := range to {
		if x-x != 0 {
			to[c] = from[c]
		}
	}
}

// begin computes what all columns of loaded token i share, and adds its key to z.
func (w *worker) begin(i int, z []float32) {
	d, o := w.p.Dim, &w.one
	k := w.k.Row(i, d)
	switch w.p.Linear.Gate {
	case attn.HeadGate:
		for c := range o.keep {
			o.keep[c] = w.alpha[i]
		}
	case attn.KeyGate:
		copy(o.keep, w.alpha[i*d:])
	}
	w.gated(o.rows, w.k, i)
	for c, x := range z {
		if o.keep != nil {
			x *= o.keep[c]
		}
		z[c] = x + k[c]
	}
	if i < w.q0 || i >= w.q1 {
		return
	}
	for h, q := range w.q {
		q = from(q, i-w.q0)
		w.gated(o.rows[(1+h)*d:], q, 0)
		one := o.qk[h:][:1]
		w.ops.Back.Inner(one, q, from(w.k, i), d)
		if z != nil {
			f := o.factor[h:][:1]
			w.ops.Back.Inner(f, q, asm.Rows{Data: z}, d)
			f[0] = 1 / (f[0] + float32(w.p.Linear.Eps))
		}
	}
}

// gated copies a row, multiplied by the gates of its token.
func (w *worker) gated(to []float32, r asm.Rows, i int) {
	d := w.p.Dim
	if w.one.keep == nil {
		copy(to[:d], r.Row(i, d))
		return
	}
	w.ops.Vector.Times(asm.Rows{Data: to, Stride: d}, from(r, i), asm.Rows{Data: w.one.keep}, 1, d)
}

// step computes some columns of the outputs of loaded token i, and of the state after it.
func (w *worker) step(i int, p part) {
	d, o, heads := w.p.Dim, &w.one, len(w.q)
	u := asm.Rows{Data: w.v.Row(i, w.p.DimV)[p.c:]}
	first := 1 // row of sums
	if w.p.Linear.Delta {
		first = 0
	}
	if !w.p.Linear.Delta && heads == 1 { // in one pass
		s := &o.call
		s.N, s.C, s.X, s.XStride = d, p.cols, p.x.Data, p.x.Stride
		s.W, s.K, s.Keep, s.U, s.Y = o.rows[d:], w.k.Row(i, d), o.keep, u.Data, o.sums[columns:]
		w.ops.Recur.Step(s)
		w.add(heads, p, u)
		return
	}
	read := w.outerOf(o.sums[first*columns:], columns, 1+heads-first, p.cols, o.rows[first*d:], d, d, p.x)
	read.Fresh = true
	w.ops.Back.Outer(read)
	if w.p.Linear.Delta {
		s := &w.solve
		s.Panel = asm.Panel{N: 1}
		s.C, s.X, s.XStride, s.V, s.Keep, s.Beta = p.cols, o.sums, columns, u, nil, w.beta[i:][:1]
		w.ops.Recur.Solve(s)
		u = asm.Rows{Data: o.sums}
	}
	w.add(heads, p, u)
	write := w.outerOf(p.x.Data, p.x.Stride, d, p.cols, from(w.k, i).Data, d, 1, u)
	write.Keep = o.keep
	w.ops.Back.OuterT(write)
}

// add adds the contribution of a token's own key to its outputs, and scales them.
func (w *worker) add(heads int, p part, u asm.Rows) {
	o := w.outerOf(w.one.sums[columns:], columns, heads, p.cols, w.one.qk, 1, 1, u)
	o.Scale = w.one.factor
	w.ops.Back.Outer(o)
}
