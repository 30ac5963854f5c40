package linear

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// chunkRows are the operands of a chunk's products.
type chunkRows struct {
	i, n     int       // loaded tokens i to i+n-1
	k, other asm.Rows  // keys as queries of the state, and as keys: k, k or P o k, k / P
	v, u     asm.Rows  // values, and what is written
	s        state     // before the chunk; with a gate for each key channel, after its first gate
	keep     []float32 // [n]: P of a gate for each head
	ends     []float32 // [d]: the state's factors; nil is 1
}

// operands returns those of loaded tokens i to i+n-1, which cutBack has found. The state before
// them is s. U is not known yet.
func (w *worker) operands(s state, i, n int) chunkRows {
	d, dv, r := w.p.Dim, w.p.DimV, &w.back.reverse
	c := chunkRows{i: i, n: n, k: from(w.k, i), other: from(w.k, i), v: from(w.v, i), s: s}
	c.u = c.v
	switch w.p.Linear.Gate {
	case attn.HeadGate:
		c.keep, c.ends = w.keep(i, n)
		last := float32(1)
		for j := n - 1; j >= 0; j-- {
			r.last[j] = last
			last *= w.alpha[i+j]
		}
	case attn.KeyGate:
		p := asm.Rows{Data: w.products, Stride: d}
		k, over := asm.Rows{Data: w.faded.k, Stride: d}, asm.Rows{Data: w.faded.over, Stride: d}
		w.ops.Vector.Times(k, c.k, p, n, d)
		w.ops.Vector.Over(over, c.k, p, n, d)
		c.k, c.other, c.ends = k, over, w.products[(n-1)*d:][:d]
		c.s = r.stateAt(w.p, r.extra, 0)
		w.ops.Vector.Scale(asm.Rows{Data: c.s.x, Stride: dv}, asm.Rows{Data: s.x, Stride: dv}, r.fold, dv)
	}
	w.move = asm.Move{Lanes: lanes, Width: w.wide(n), Rows: n, D: d, Tile: w.keyLanes, Outside: c.other}
	w.ops.Vector.Load(&w.move)
	if w.p.Linear.Delta {
		w.triangleOf(w.w, c.k, n, d, w.keyLanes)
		w.fadeBy(w.w, i, n, true)
		w.writes(&c)
	}
	return c
}

// writes computes U from E, what it is before the factor beta. It computes E unless that is known.
func (w *worker) writes(c *chunkRows) {
	r, n, dv := &w.back.reverse, c.n, w.p.DimV
	beta := w.beta[c.i:][:n]
	e, u := asm.Rows{Data: r.e[c.i*dv:], Stride: dv}, asm.Rows{Data: r.u, Stride: dv}
	if c.i >= r.known {
		for i := range n {
			for j, x := range w.w[i*lanes:][:i] {
				r.system[i*lanes+j] = x * beta[j]
			}
		}
		o := w.outerOf(e.Data, dv, n, dv, c.k.Data, c.k.Stride, w.p.Dim, asm.Rows{Data: c.s.x, Stride: dv})
		o.Fresh = true
		w.ops.Back.Outer(o)
		s := &w.solve
		*s = asm.Solve{Panel: asm.Panel{Lanes: lanes, N: n, P: r.system}, C: dv, X: e.Data, XStride: dv, V: c.v, Keep: c.keep}
		w.ops.Recur.Solve(s)
	}
	w.ops.Vector.Scale(u, e, beta, dv)
	c.u = u
}

// advance computes the state after loaded tokens i to i+n-1 from the one before them.
func (w *worker) advance(s, to state, i, n int) {
	if w.p.DimV == 0 || !w.advanceChunk(s, to, i, n) {
		for j := range n {
			w.tokenState(s, to, i+j)
			s = to
		}
	}
}

// advanceChunk is advance by products. It reports whether the state is finite.
func (w *worker) advanceChunk(s, to state, i, n int) bool {
	d, dv, r := w.p.Dim, w.p.DimV, &w.back.reverse
	c := w.operands(s, i, n)
	to.copyFrom(c.s)
	u := c.u
	if w.p.Linear.Gate == attn.HeadGate {
		u = asm.Rows{Data: r.dN, Stride: dv}
		w.ops.Vector.Scale(u, c.u, r.last[:n], dv)
	}
	if to.z != nil {
		factor := w.ones
		if c.ends != nil {
			factor = r.last
			to.scaleZ(c.ends[0])
		}
		w.ops.Back.Outer(w.outerOf(to.z, d, 1, d, factor, n, n, c.k))
	}
	o := w.outerOf(to.x, dv, d, dv, c.other.Data, c.other.Stride, n, u)
	if w.p.Linear.Gate == attn.KeyGate {
		o.Scale = c.ends
	} else {
		o.Keep = c.ends
	}
	w.ops.Back.OuterT(o)
	return w.ops.Vector.Finite(to.x) && w.ops.Vector.Finite(to.z)
}

func (s state) scaleZ(by float32) {
	for c := range s.z {
		s.z[c] *= by
	}
}

// chunkBack computes the gradients of loaded tokens i to i+n-1, and of the state s before them. It
// reports whether all are finite.
func (w *worker) chunkBack(s state, i, n int) bool {
	p, r, gate := w.p, &w.back.reverse, w.p.Linear.Gate
	d, dv := p.Dim, p.DimV
	c := w.operands(s, i, n)
	after, next := r.g[0], r.g[1]
	w.move = asm.Move{Lanes: lanes, Width: w.wide(n), Rows: n, D: dv, Tile: r.uLanes, Outside: c.u}
	w.ops.Vector.Load(&w.move)

	// What the state after the chunk has of the tokens and of the state before it.
	if c.ends != nil {
		w.ops.Vector.Scale(asm.Rows{Data: next.x, Stride: dv}, asm.Rows{Data: after.x, Stride: dv}, c.ends, dv)
		copy(next.z, after.z)
		next.scaleZ(c.ends[0])
	} else {
		next.copyFrom(after)
	}
	through := after // gradient of what a key adds to the state
	if gate == attn.KeyGate {
		through = next
	}
	o := w.outerOf(r.dU, dv, n, dv, c.other.Data, c.other.Stride, d, asm.Rows{Data: through.x, Stride: dv})
	if o.Fresh = true; gate == attn.HeadGate {
		o.Scale = r.last
	}
	w.ops.Back.Outer(o)
	w.dotTo(r.dK, d, c.u.Data, c.u.Stride, n, through.x, dv, d, dv)
	if through.z != nil {
		w.sum(r.dK, d, n, d, w.ones, 1, 1, asm.Rows{Data: through.z, Stride: d})
	}
	dK := asm.Rows{Data: r.dK, Stride: d}
	switch gate {
	case attn.HeadGate:
		w.ops.Vector.Scale(dK, dK, r.last[:n], d)
		w.ops.Back.Inner(r.ends[:n], dK, c.k, d)
		clear(r.fromState[:n])
		clear(r.cross)
		w.ops.Back.Inner(r.dots[:d], asm.Rows{Data: next.x, Stride: dv}, asm.Rows{Data: c.s.x, Stride: dv}, dv)
		w.gatesOfEnd(&c, next)
	case attn.KeyGate:
		w.ops.Back.Inner(r.dots[:d], asm.Rows{Data: next.x, Stride: dv}, asm.Rows{Data: c.s.x, Stride: dv}, dv)
		for j := range n {
			copy(r.dAlpha[j*d:], r.dots[:d])
		}
		rows := asm.Rows{Data: r.rows, Stride: d}
		w.ops.Vector.Times(rows, dK, c.other, n, d)
		w.sum(r.dAlpha, d, n, d, r.lower, lanes, n, rows)
	}

	for h := range w.q {
		w.readsBack(&c, h)
	}
	if p.Linear.Delta {
		w.deltaBack(&c)
	}
	return w.finishChunk(&c)
}

// gatesOfEnd starts the gradients of gates for each head with the part of the state after the
// chunk. r.dots holds the products of rows of both states.
func (w *worker) gatesOfEnd(c *chunkRows, next state) {
	r := &w.back.reverse
	sum := float32(0)
	for _, x := range r.dots[:w.p.Dim] {
		sum += x
	}
	for i, x := range next.z {
		sum += float32(x * c.s.z[i])
	}
	for j, x := range r.ends[:c.n] {
		r.dAlpha[j] = sum
		sum += x
	}
}

// readsBack computes the gradients of a chunk's queries of an output head, and adds what their
// outputs have of the others.
func (w *worker) readsBack(c *chunkRows, h int) {
	p, r, gate, n := w.p, &w.back.reverse, w.p.Linear.Gate, c.n
	d, dv := p.Dim, p.DimV
	dQ := r.dQ[h*tokens*d:][:tokens*d]
	if w.grads.Out.Data == nil {
		clear(dQ[:n*d])
		return
	}
	q := from(w.q[h], c.i)
	if gate == attn.KeyGate {
		own := asm.Rows{Data: w.faded.q[h*tokens*d:], Stride: d}
		w.ops.Vector.Times(own, q, asm.Rows{Data: w.products, Stride: d}, n, d)
		q = own
	}
	m, factor := w.m[h*tokens*lanes:][:tokens*lanes], w.factor[h*tokens:][:n]
	w.triangleOf(m, q, n, d, w.keyLanes)
	w.fadeBy(m, c.i, n, false)
	dOut, dN := operand.Rows(&w.grads.Out, w.b, w.t+c.i, w.h+h), asm.Rows{Data: r.dN, Stride: dv}
	if c.s.z != nil {
		w.overs(c, factor, m, q)
		w.ops.Back.Inner(r.dZ[:n], dOut, operand.Rows(&w.a.Out, w.b, w.t+c.i, w.h+h), dv)
		for i := range n {
			r.dZ[i] *= -factor[i]
		}
	}
	w.ops.Vector.Scale(dN, dOut, factor, dv)
	w.sumLower(r.dU, dv, n, dv, m, dN)
	w.weightsBack(c, dN, m, c.s.z != nil, false)

	w.dotTo(dQ, d, r.dN, dv, n, c.s.x, dv, d, dv)
	if c.s.z != nil {
		w.sum(dQ, d, n, d, r.dZ, 1, 1, asm.Rows{Data: c.s.z, Stride: d})
	}
	w.rowsOfState(c, dQ, q)
	w.gateRows(c, q, false)
	w.sumLowerT(dQ, d, n, d, c.other, c.keep)
	w.sumLower(r.dK, d, n, d, r.fading, q)
	w.addToState(c, q, dN, c.s.z != nil)
}

// overs computes the factors of output rows of queries q with weights m.
func (w *worker) overs(c *chunkRows, factor, m []float32, q asm.Rows) {
	r, n := &w.back.reverse, c.n
	before, inside := r.dots[:n], r.fadedZ[:n]
	w.ops.Back.Inner(inside, asm.Rows{Data: m, Stride: lanes}, asm.Rows{Data: w.ones}, n)
	w.ops.Back.Inner(before, q, asm.Rows{Data: c.s.z}, w.p.Dim)
	for i := range factor {
		if c.keep != nil {
			before[i] *= c.keep[i]
		}
		factor[i] = 1 / (float32(w.p.Linear.Eps) + before[i] + inside[i])
	}
}

// weightsBack computes the gradients of a triangle of weights, before and after the gates between
// two tokens, from those of the rows that it weighs.
func (w *worker) weightsBack(c *chunkRows, rows asm.Rows, weights []float32, normalised, strict bool) {
	r, n := &w.back.reverse, c.n
	w.triangleOf(r.dm, rows, n, w.p.DimV, r.uLanes)
	for i := 0; i < n && normalised; i++ {
		row := r.dm[i*lanes:][:i+1]
		for j := range row {
			row[j] += r.dZ[i]
		}
	}
	wide := w.wide(n)
	f := &w.fade
	f.Panel = asm.Panel{Lanes: lanes, Width: wide, N: n, P: r.fading}
	f.From, f.Strict, f.Alpha, f.Last = asm.Rows{Data: r.dm, Stride: lanes}, strict, nil, nil
	if w.p.Linear.Gate == attn.HeadGate {
		f.Alpha = w.alpha[c.i:][:n]
		product := asm.Rows{Data: r.pairs, Stride: lanes}
		w.hide(r.dm, n)
		w.hide(weights, n) // Fade leaves NaN where a call before left NaN
		w.ops.Vector.Times(product, asm.Rows{Data: weights, Stride: lanes}, asm.Rows{Data: r.dm, Stride: lanes}, n, n)
		w.sum(r.cross, lanes, n, n, r.upper, lanes, n, product)
	}
	w.ops.Recur.Fade(f)
}

// triangleOf computes the products of n rows with columns of lanes, each of terms numbers, up to
// the row's own lane.
func (w *worker) triangleOf(to []float32, r asm.Rows, n, terms int, columns []float32) {
	for i := 0; i < n; i += rows {
		m := min(rows, n-i)
		o := w.outerOf(to[i*lanes:], lanes, m, w.wide(i+m), r.From(i).Data, r.Stride, terms, asm.Rows{Data: columns, Stride: lanes})
		o.Fresh = true
		w.ops.Back.Outer(o)
	}
}

// hide clears the lanes of later tokens, which no call has computed.
func (w *worker) hide(panel []float32, n int) {
	for i := range n {
		clear(panel[i*lanes+i+1:][:n-i-1])
	}
}

// rowsOfState adds to the gradients of gates what rows of queries have of the state before the
// chunk, given the gradients of the rows before they decay.
func (w *worker) rowsOfState(c *chunkRows, by []float32, q asm.Rows) {
	r, n, d := &w.back.reverse, c.n, w.p.Dim
	rows := asm.Rows{Data: by, Stride: d}
	switch w.p.Linear.Gate {
	case attn.HeadGate:
		w.ops.Back.Inner(r.dots[:n], q, rows, d)
		for i, x := range r.dots[:n] {
			r.fromState[i] += float32(x * c.keep[i])
		}
	case attn.KeyGate:
		product := asm.Rows{Data: r.rows, Stride: d}
		w.ops.Vector.Times(product, rows, q, n, d)
		w.sum(r.dAlpha, d, n, d, r.upper, lanes, n, product)
	}
}

// gateRows adds to the gradients of gates for each key channel what the pairs of a query and an
// earlier key have of them.
func (w *worker) gateRows(c *chunkRows, q asm.Rows, strict bool) {
	if w.p.Linear.Gate != attn.KeyGate {
		return
	}
	r, n, d := &w.back.reverse, c.n, w.p.Dim
	clear(r.later[:n*d])
	for t := 1; t < n; t++ {
		w.sum(r.later[t*d:], d, n-t, d, r.fading[t*lanes+t-1:], lanes, 1, c.other.From(t-1))
		product := asm.Rows{Data: r.rows, Stride: d}
		w.ops.Vector.Times(product, asm.Rows{Data: r.later[t*d:], Stride: d}, q.From(t), n-t, d)
		w.sum(r.dAlpha[t*d:], d, 1, d, w.ones, lanes, n-t, product)
	}
}

// sumLower adds rows of y, weighed by columns of a triangle, to n rows of earlier tokens.
func (w *worker) sumLower(to []float32, stride, n, cols int, weights []float32, y asm.Rows) {
	for j := 0; j < n; j += rows {
		m := min(rows, n-j)
		w.sumT(to[j*stride:], stride, m, cols, weights[j*lanes+j:], lanes, n-j, y.From(j))
	}
}

// sumLowerT adds rows of y, weighed by rows of the triangle of faded gradients, to n rows of later
// tokens. The old rows are multiplied by keep.
func (w *worker) sumLowerT(to []float32, stride, n, cols int, y asm.Rows, keep []float32) {
	r := &w.back.reverse
	for i := 0; i < n; i += rows {
		m := min(rows, n-i)
		o := w.outerOf(to[i*stride:], stride, m, cols, r.fading[i*lanes:], lanes, i+m, y)
		if keep != nil {
			o.Keep = keep[i:]
		}
		w.ops.Back.Outer(o)
	}
}

// addToState adds the products of queries and the gradients of what they read to the gradient of
// the state before the chunk. It multiplies the rows by P.
func (w *worker) addToState(c *chunkRows, q, by asm.Rows, normalised bool) {
	r, n, d, dv := &w.back.reverse, c.n, w.p.Dim, w.p.DimV
	if c.keep != nil {
		w.ops.Vector.Scale(by, by, c.keep, dv)
	}
	w.sumT(r.g[1].x, dv, d, dv, q.Data, q.Stride, n, by)
	if !normalised {
		return
	}
	copy(r.fadedZ, r.dZ[:n])
	for i, x := range c.keep {
		r.fadedZ[i] *= x
	}
	w.sum(r.g[1].z, d, 1, d, r.fadedZ, n, n, q)
}

// deltaBack computes the gradients of values, of beta and of retrievals.
func (w *worker) deltaBack(c *chunkRows) {
	r, n, d, dv := &w.back.reverse, c.n, w.p.Dim, w.p.DimV
	beta := w.beta[c.i:][:n]
	for i := range n {
		for j, x := range w.w[i*lanes:][:i] {
			r.back[(n-1-j)*lanes+n-1-i] = x * beta[i]
		}
	}
	s := &w.solve
	z, dU := asm.Rows{Data: r.z, Stride: dv}, asm.Rows{Data: r.dU, Stride: dv}
	*s = asm.Solve{Panel: asm.Panel{Lanes: lanes, N: n, P: r.back}, C: dv, X: r.z, XStride: dv, V: dU, Fresh: true, Reverse: true}
	w.ops.Recur.Solve(s)
	w.ops.Back.Inner(r.dBeta[:n], z, asm.Rows{Data: r.e[c.i*dv:], Stride: dv}, dv)
	w.ops.Vector.Scale(dU, z, beta, dv)
	for i := range n {
		r.dots[i] = -1
	}
	w.ops.Vector.Scale(z, dU, r.dots[:n], dv)

	w.weightsBack(c, z, w.w, false, true)
	w.dotTo(r.dR, d, r.z, dv, n, c.s.x, dv, d, dv)
	w.rowsOfState(c, r.dR, c.k)
	w.gateRows(c, c.k, true)
	w.sumLowerT(r.dR, d, n, d, c.other, c.keep)
	w.sumLower(r.dK, d, n, d, r.fading, c.k)
	w.addToState(c, c.k, z, false)
}

// finishChunk computes what the gradients of rows are before their gates, and sums those of gates.
// It reports whether all gradients are finite.
func (w *worker) finishChunk(c *chunkRows) bool {
	r, n, d, dv := &w.back.reverse, c.n, w.p.Dim, w.p.DimV
	next, dK, dR := r.g[1], asm.Rows{Data: r.dK, Stride: d}, asm.Rows{Data: r.dR, Stride: d}
	wide := 0
	switch w.p.Linear.Gate {
	case attn.HeadGate:
		wide = 1
		later := float32(0)
		for t := n - 1; t >= 0; t-- {
			later += r.fromState[t]
			sum := later
			for _, x := range r.cross[t*lanes:][:t] {
				sum += x
			}
			r.dAlpha[t] += sum
		}
	case attn.KeyGate:
		wide = d
		p := asm.Rows{Data: w.products, Stride: d}
		for h := range w.q {
			dQ := asm.Rows{Data: r.dQ[h*tokens*d:], Stride: d}
			w.ops.Vector.Times(dQ, dQ, p, n, d)
		}
		w.ops.Vector.Over(dK, dK, p, n, d)
		if r.dR != nil {
			w.ops.Vector.Times(dR, dR, p, n, d)
		}
		x := asm.Rows{Data: next.x, Stride: dv}
		w.ops.Vector.Scale(x, x, r.fold, dv)
	}
	if r.dR != nil {
		add(r.dK[:n*d], r.dR)
	}
	finite := w.ops.Vector.Finite
	ok := finite(next.x) && finite(next.z) && finite(r.dK[:n*d]) && finite(r.dU[:n*dv]) && finite(r.dAlpha[:wide*n])
	for h := range w.q {
		ok = ok && finite(r.dQ[h*tokens*d:][:n*d])
	}
	return ok && (r.dBeta == nil || finite(r.dBeta[:n]))
}
