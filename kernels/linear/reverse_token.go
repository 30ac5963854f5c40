package linear

import "attnlab/attn"

// tokenState computes the state after loaded token i. to may be s. x is the state after the gate.
func (w *worker) tokenState(s, to state, i int) {
	d, dv := w.p.Dim, w.p.DimV
	k, u := w.k.Row(i, d), w.back.reverse.token[1]
	w.decayed(s, to, i)
	w.written(u, to, i)
	for c := range d {
		x := to.x[c*dv:][:dv]
		for j := range x {
			x[j] += float32(k[c] * u[j])
		}
	}
	for c := range to.z {
		to.z[c] += k[c]
	}
}

// decayed computes a state after the gate of loaded token i.
func (w *worker) decayed(s, to state, i int) {
	d, dv := w.p.Dim, w.p.DimV
	for c := range d {
		x, old := to.x[c*dv:][:dv], s.x[c*dv:][:dv]
		a := w.gateOf(i, c)
		for j := range x {
			x[j] = a * old[j]
		}
		if s.z != nil {
			to.z[c] = a * s.z[c]
		}
	}
}

// gateOf returns the gate of row c of the state at loaded token i.
func (w *worker) gateOf(i, c int) float32 {
	switch w.p.Linear.Gate {
	case attn.HeadGate:
		return w.alpha[i]
	case attn.KeyGate:
		return w.alpha[i*w.p.Dim+c]
	}
	return 1
}

// written computes what loaded token i writes to the state s, which has decayed.
func (w *worker) written(u []float32, s state, i int) {
	w.missing(u, s, i)
	if w.p.Linear.Delta {
		for j := range u {
			u[j] *= w.beta[i]
		}
	}
}

// missing computes the value of loaded token i, less what the delta rule retrieves from s.
func (w *worker) missing(u []float32, s state, i int) {
	dv := w.p.DimV
	copy(u, w.v.Row(i, dv))
	if !w.p.Linear.Delta {
		return
	}
	for c, x := range w.k.Row(i, w.p.Dim) {
		for j, y := range s.x[c*dv:][:dv] {
			u[j] -= float32(x * y)
		}
	}
}

// tokensBack computes the backward pass of loaded tokens i to i+n-1 by the definition. The state
// before them is first.
func (w *worker) tokensBack(first state, i, n int) {
	p, r := w.p, &w.back.reverse
	s := first
	for j := 1; j < n; j++ {
		to := r.stateAt(p, r.tokens, i+j)
		w.tokenState(s, to, i+j-1)
		s = to
	}
	g := r.g[1]
	g.copyFrom(r.g[0])
	for j := n - 1; j >= 0; j-- {
		if s = first; j > 0 {
			s = r.stateAt(p, r.tokens, i+j)
		}
		w.tokenBack(s, g, i, j)
	}
}

// tokenBack computes the gradients of token j of a chunk that starts at loaded token i. The state
// before the token is s. g is the gradient of the state after it, and then that of s.
func (w *worker) tokenBack(s, g state, i, j int) {
	p, r := w.p, &w.back.reverse
	d, dv, at := p.Dim, p.DimV, i+j
	k, e, u, dU := w.k.Row(at, d), r.token[0], r.token[1], r.dU[j*dv:][:dv]
	held := r.stateAt(p, r.extra, 0)
	w.decayed(s, held, at)
	w.missing(e, held, at)
	w.written(u, held, at)
	for h := range w.q {
		w.readBack(held, g, u, h, i, j)
	}

	dK := r.dK[j*d:][:d]
	clear(dU)
	for c := range d {
		sum := float32(0)
		for x, y := range g.x[c*dv:][:dv] {
			dU[x] += float32(y * k[c])
			sum += float32(y * u[x])
		}
		if g.z != nil {
			sum += g.z[c]
		}
		dK[c] = sum
	}
	if p.Linear.Delta {
		sum := float32(0)
		for x, y := range dU {
			sum += float32(y * e[x])
			dU[x] = y * w.beta[at]
		}
		r.dBeta[j] = sum
		for c := range d {
			dS, held := g.x[c*dv:][:dv], held.x[c*dv:][:dv]
			for x, y := range dU {
				dK[c] -= float32(held[x] * y)
				dS[x] -= float32(k[c] * y)
			}
		}
	}
	w.gateBack(held, g, at, j)
}

// readBack computes the gradient of a query, and adds that of its output to g. The token writes u
// to the state s.
func (w *worker) readBack(s, g state, u []float32, h, i, j int) {
	p, r := w.p, &w.back.reverse
	d, dv, at := p.Dim, p.DimV, i+j
	dQ := r.dQ[(h*tokens+j)*d:][:d]
	clear(dQ)
	if w.grads.Out.Data == nil {
		return
	}
	q, k := w.q[h].Row(at, d), w.k.Row(at, d)
	factor, dZ := float32(p.Scale()), float32(0)
	dOut, out := w.grads.Out.Row(w.b, w.t+at, w.h+h), w.a.Out.Row(w.b, w.t+at, w.h+h)
	if s.z != nil {
		sum := float32(p.Linear.Eps)
		for c, x := range q {
			sum += float32(x * (s.z[c] + k[c]))
		}
		factor = 1 / sum
		for x, y := range dOut {
			dZ -= float32(y * out[x])
		}
		dZ *= factor
	}
	dN := r.token[2]
	for x, y := range dOut {
		dN[x] = y * factor
	}
	for c, x := range q {
		dS, old := g.x[c*dv:][:dv], s.x[c*dv:][:dv]
		sum := float32(0)
		for m, y := range dN {
			sum += float32((old[m] + float32(k[c]*u[m])) * y)
			dS[m] += float32(x * y)
		}
		if s.z != nil {
			sum += float32((s.z[c] + k[c]) * dZ)
			g.z[c] += float32(x * dZ)
		}
		dQ[c] = sum
	}
}

// gateBack computes the gradient of a gate, and multiplies g by the gate. The state after the gate
// is s.
func (w *worker) gateBack(s, g state, at, j int) {
	p, r := w.p, &w.back.reverse
	d, dv := p.Dim, p.DimV
	if p.Linear.Gate == attn.NoGate {
		return
	}
	all := float32(0)
	for c := range d {
		a, sum := w.gateOf(at, c), float32(0)
		dS := g.x[c*dv:][:dv]
		for x, y := range s.x[c*dv:][:dv] {
			sum += float32(dS[x] * y)
			dS[x] *= a
		}
		if s.z != nil {
			sum += float32(g.z[c] * s.z[c])
			g.z[c] *= a
		}
		if all += sum; p.Linear.Gate == attn.KeyGate {
			r.dAlpha[j*d+c] = sum
		}
	}
	if p.Linear.Gate == attn.HeadGate {
		r.dAlpha[j] = all
	}
}
