package linear

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// backward is the scratch of the backward pass. Without a rule, o_i = f(q_i)^T X_i / Z_i, where
// X_i and Z_i are the state at query i. Let dN_i = dO_i / Z_i and dZ_i = -dO_i.o_i / Z_i, or dN_i =
// scale dO_i and dZ_i = 0 if outputs are not normalised. The pass goes over the keys twice. First
// to last, X and z sum keys as in the forward pass:
//
//	df(q_i) = X_i dN_i + z_i dZ_i
//
// Last to first, G = Σ f(q_i) dN_i^T and g = Σ f(q_i) dZ_i sum the queries that see key j, and the
// incoming gradient of the state after the last key:
//
//	df(k_j) = G_j V_j + g_j    dV_j = G_j^T f(k_j)
//
// Both walks are in chunks, with the pairs inside a chunk weighed one by one. A query belongs to
// the chunk that holds the last key it sees. G and g before the first query are the gradient of the
// incoming state.
type backward struct {
	dN   []float32 // [block][d_v]
	dZ   []float32 // [block]
	rows []float32 // [block][d] gradients of features
	dW   []float32 // [chunk][chunk]
	g    []float32 // [d][d_v] G, the state of queries
	gz   []float32 // [d] g
	over []float32 // [output head][n_q] factors of rows, 1 / Z or scale

	squares, along []float32  // [block] products of rows with themselves and with gradients
	moved          attn.Grads // gradients of a ragged call, moved to a sequence
	reverse                   // of the tokens of a rule
}

func (b *backward) layout(p *attn.Problem, take func(n int) []float32) {
	heads := outsOf(p)
	b.squares, b.along = take(block), take(block)
	if p.Rule() {
		b.reverse.layout(p, heads, take)
		return
	}
	b.dN, b.dZ = take(block*p.DimV), take(block)
	b.rows, b.dW = take(block*p.Dim), take(chunk*chunk)
	b.g, b.gz = take(p.Dim*p.DimV), take(p.Dim)
	b.over = take(heads * p.SeqQ)
}

// Backward computes the gradients of a problem that wants them.
func (pl *plan) Backward(a *attn.Args, g *attn.Grads) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.MustGrads(pl.name, a, g)
	g.Begin()
	pl.a, pl.g = a, g
	pl.groups = groupsOf(&pl.p, a)
	pl.team.Run(pl.p.Batch*pl.groups, pl.reverse)
}

// groupsOf returns the number of groups of heads that share no gradient, in one batch entry.
func groupsOf(p *attn.Problem, a *attn.Args) int {
	if p.Linear.Delta && a.Terms.Beta.H == 1 {
		return min(1, p.OutHeads())
	}
	return gcd(p.HeadsQ, gcd(p.HeadsKV, p.ValueHeads()))
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// groupBack computes the backward pass of a group of heads, one state after the other.
func (pl *plan) groupBack(id, task int) {
	w, p := pl.workers[id], &pl.p
	b, heads := task/pl.groups, p.StateHeads()
	each := heads / pl.groups
	first := task % pl.groups * each
	for s := first; s < first+each; s++ {
		w.enter(pl.a, b, s)
		w.enterGrads(pl.a, pl.g, b)
		w.stateBack(pl.a, b, b*heads+s)
	}
}

// enterGrads moves the worker to the gradients of batch entry b.
func (w *worker) enterGrads(a *attn.Args, g *attn.Grads, b int) {
	w.grads = g
	if !w.p.Ragged {
		return
	}
	m := &w.back.moved
	*m = *g
	q, k := int(a.QStart[b]), int(a.KStart[b])
	for _, o := range [...]struct {
		t   *attn.Tensor
		row int
	}{{&m.Out, q}, {&m.Q, q}, {&m.K, k}, {&m.V, k}, {&m.Terms.Decay, k}, {&m.Terms.Beta, k}} {
		o.t.Data = o.t.Data[min(o.row*o.t.SS, len(o.t.Data)):]
	}
	w.grads = m
}

// stateBack computes the backward pass of all outputs that read one state of batch entry b.
func (w *worker) stateBack(a *attn.Args, b, task int) {
	p := w.p
	if p.Rule() {
		w.inReverse(a, task)
		return
	}
	keys, nq := a.Keys(p, b), a.Queries(p, b)
	w.state = w.own
	w.copyFrom(stateOf(p, a.StateIn, task))
	queries := state{x: w.back.g, z: w.back.gz}
	queries.copyFrom(stateOf(p, w.grads.StateOut, task))
	switch {
	case keys == 0 || nq == 0:
	case !p.Mask.Band:
		w.fullBack(keys, nq)
	default:
		w.causalBack(a.Pos(p, b), keys, nq)
	}
	if w.grads.StateIn != nil {
		to := stateOf(p, w.grads.StateIn, task)
		copy(to.x, queries.x)
		copy(to.z, queries.z)
	}
}

// fullBack computes the parallel form: all keys, then all queries, then all keys again.
func (w *worker) fullBack(keys, nq int) {
	for key := 0; key < keys; key += block {
		n := min(block, keys-key)
		w.features(w.keys, operand.Rows(&w.a.K, w.b, key, w.kv), n, false)
		w.absorb(key, n)
	}
	w.chunk.bad = w.chunk.bad[:0]
	for i := 0; i < nq; i += block {
		n := min(block, nq-i)
		w.eachHead(func(h int) {
			w.queryBack(i, n, h, 0, 0, everything)
			w.absorbQueries(n)
		})
	}
	for key := 0; key < keys; key += block {
		n := min(block, keys-key)
		w.features(w.keys, operand.Rows(&w.a.K, w.b, key, w.kv), n, true)
		w.keyBack(key, n)
		w.finishKeys(key, n)
	}
}

// causalBack computes the chunked form.
func (w *worker) causalBack(pos, keys, nq int) {
	blind := min(max(-pos, 0), nq)
	keys = min(keys, max(pos+nq, 0)) // no query sees later keys
	if keys == 0 {
		return
	}
	span := func(key, n int) (from, to int) { // queries of the chunk of n keys at key
		from, to = min(max(key-pos, blind), nq), nq
		if key+n < keys {
			to = min(max(key+n-pos, blind), nq)
		}
		return from, to
	}
	for key := 0; key < keys; key += chunk {
		n := min(chunk, keys-key)
		w.load(key, n)
		from, to := span(key, n)
		for i := from; i < to; i += chunk {
			w.eachHead(func(h int) { w.queryBack(i, min(chunk, to-i), h, key, n, pos) })
		}
		w.absorb(key, n)
	}
	for key := (keys - 1) / chunk * chunk; key >= 0; key -= chunk {
		n := min(chunk, keys-key)
		w.load(key, n)
		w.keyBack(key, n)
		from, to := span(key, n)
		for i := from; i < to; i += chunk {
			rows := min(chunk, to-i)
			w.eachHead(func(h int) {
				w.pairsBack(i, rows, h, key, n, pos)
				w.absorbQueries(rows)
			})
		}
		w.finishKeys(key, n)
	}
}

// eachHead calls f for each output head of the state.
func (w *worker) eachHead(f func(h int)) {
	for h := range w.n {
		f(h)
	}
}

// incoming fills dN and dZ of queries i to i+n-1 of a head.
func (w *worker) incoming(i, n, h int) {
	b, dv := w.back, w.p.DimV
	over := w.over(i, n, h)
	if w.grads.Out.Data == nil {
		clear(b.dN[:n*dv])
		clear(b.dZ[:n])
		return
	}
	w.ops.Back.Inner(b.dZ[:n], operand.Rows(&w.grads.Out, w.b, i, w.h+h), operand.Rows(&w.a.Out, w.b, i, w.h+h), dv)
	for r := range n {
		for c, x := range w.grads.Out.Row(w.b, i+r, w.h+h) {
			b.dN[r*dv+c] = x * over[r]
		}
		if b.dZ[r] *= -over[r]; w.z == nil {
			b.dZ[r] = 0
		}
	}
}

// over returns the factors of rows i to i+n-1 of a head.
func (w *worker) over(i, n, h int) []float32 {
	return w.back.over[h*w.p.SeqQ+i:][:n]
}

// queryBack writes the gradients of queries i to i+n-1, which see the state and some of the loaded
// keys. It leaves their features, dN and dZ in the scratch.
func (w *worker) queryBack(i, n, h, key, keys, pos int) {
	d, dv, b := w.p.Dim, w.p.DimV, w.back
	w.features(w.queries, operand.Rows(&w.a.Q, w.b, i, w.queryHead(h)), n, true)
	first := pos + i - key + 1
	for r := 0; r < n && keys > 0; r += step {
		w.weigh(r, min(step, n-r), first, keys)
	}
	w.scales(n, keys)
	copy(w.over(i, n, h), w.scale)
	w.incoming(i, n, h)
	if w.grads.Q.Data == nil {
		return
	}
	w.dotTo(b.rows, d, b.dN, dv, n, w.x, dv, d, dv)
	if w.z != nil {
		w.sum(b.rows, d, n, d, b.dZ, 1, 1, asm.Rows{Data: w.z, Stride: d})
	}
	values, loaded, every := operand.Rows(&w.a.V, w.b, key, w.vh), asm.Rows{Data: w.keys, Stride: d}, step
	if keys > 0 && !w.finite(n, keys) {
		every = 1
	}
	for r := 0; r < n && keys > 0; r += every {
		m := min(every, n-r)
		some := seen(first+r+m-1, keys)
		w.pairs(r, m, first, some, values)
		w.sum(b.rows[r*d:], d, m, d, b.dW[r*chunk:], chunk, some, loaded)
	}
	w.rowsBack(&w.grads.Q, &w.a.Q, i, w.queryHead(h), b.rows, asm.Rows{Data: w.queries, Stride: d}, n, false)
}

// finite reports whether all numbers of n queries and of the loaded keys are finite. If not, they
// must not be multiplied by the weight 0 of keys that only a neighbour sees. Sums then take one row
// at a time, and begin or end with the first or last visible pair. A sum only leaves out products
// with 0, so the bits are the same.
func (w *worker) finite(n, keys int) bool {
	d, dv, b := w.p.Dim, w.p.DimV, w.back
	return len(w.chunk.bad) == 0 && w.ops.Vector.Finite(w.keys[:keys*d]) && w.ops.Vector.Finite(w.queries[:n*d]) && w.ops.Vector.Finite(b.dN[:n*dv]) && w.ops.Vector.Finite(b.dZ[:n])
}

// pairs fills dW of queries r to r+m-1 and the loaded keys. Query r sees the first first+r of the
// keys.
func (w *worker) pairs(r, m, first, keys int, values asm.Rows) {
	b, dv := w.back, w.p.DimV
	w.dotTo(b.dW[r*chunk:], chunk, b.dN[r*dv:], dv, m, values.Data, values.Stride, keys, dv)
	for k := range m {
		row := b.dW[(r+k)*chunk:][:chunk]
		mine := seen(first+r+k, keys)
		for j := range mine {
			row[j] += b.dZ[r+k]
		}
		clear(row[mine:])
	}
}

// pairsBack adds the contributions of queries i to i+n-1 to the gradients of the loaded keys that
// they see. It leaves their features, dN and dZ in the scratch.
func (w *worker) pairsBack(i, n, h, key, keys, pos int) {
	w.features(w.queries, operand.Rows(&w.a.Q, w.b, i, w.queryHead(h)), n, true)
	w.incoming(i, n, h)
	first := pos + i - key + 1
	values, finite := operand.Rows(&w.a.V, w.b, key, w.vh), w.finite(n, keys)
	for r := 0; r < n; r += step {
		m := min(step, n-r)
		some := seen(first+r+m-1, keys)
		if some == 0 {
			continue
		}
		w.weigh(r, m, first, keys)
		w.pairs(r, m, first, some, values)
		if finite {
			w.keyPairs(r, m, key, 0, some)
			continue
		}
		for j := range some {
			blind := max(j+1-first-r, 0) // queries that do not see it
			w.keyPairs(r+blind, m-blind, key, j, 1)
		}
	}
}

// keyPairs adds the contributions of queries r to r+m-1 to the gradients of loaded keys j to j+n-1.
func (w *worker) keyPairs(r, m, key, j, n int) {
	d, dv, b := w.p.Dim, w.p.DimV, w.back
	if w.grads.V.Data != nil {
		to := operand.Rows(&w.grads.V, w.b, key+j, w.vh)
		w.sumT(to.Data, to.Stride, n, dv, w.weights[r*chunk+j:], chunk, m, asm.Rows{Data: b.dN[r*dv:], Stride: dv})
	}
	w.sumT(b.rows[j*d:], d, n, d, b.dW[r*chunk+j:], chunk, m, asm.Rows{Data: w.queries[r*d:], Stride: d})
}

// absorbQueries adds n queries to the state of queries.
func (w *worker) absorbQueries(n int) {
	d, dv, b := w.p.Dim, w.p.DimV, w.back
	w.sumT(b.g, dv, d, dv, w.queries, d, n, asm.Rows{Data: b.dN, Stride: dv})
	if w.z != nil {
		w.sum(b.gz, d, 1, d, b.dZ, n, n, asm.Rows{Data: w.queries, Stride: d})
	}
}

// keyBack starts the gradients of n loaded keys with the contributions of the state of queries.
func (w *worker) keyBack(key, n int) {
	d, dv, b := w.p.Dim, w.p.DimV, w.back
	if w.grads.V.Data != nil {
		to := operand.Rows(&w.grads.V, w.b, key, w.vh)
		w.sum(to.Data, to.Stride, n, dv, w.keys, d, d, asm.Rows{Data: b.g, Stride: dv})
	}
	v := operand.Rows(&w.a.V, w.b, key, w.vh)
	w.dotTo(b.rows, d, v.Data, v.Stride, n, b.g, dv, d, dv)
	if w.z != nil {
		w.sum(b.rows, d, n, d, w.ones, 1, 1, asm.Rows{Data: b.gz, Stride: d})
	}
}

// finishKeys writes the gradients of n loaded keys.
func (w *worker) finishKeys(key, n int) {
	if w.grads.K.Data != nil {
		w.rowsBack(&w.grads.K, &w.a.K, key, w.kv, w.back.rows, asm.Rows{Data: w.keys, Stride: w.p.Dim}, n, false)
	}
}

// rowsBack adds the gradients of n rows of Q or K, which is x, to to. by are those of their
// features, and are not kept. If first is set, to holds nothing yet.
func (w *worker) rowsBack(to, x *attn.Tensor, t, head int, by []float32, features asm.Rows, n int, first bool) {
	d, l := w.p.Dim, &w.p.Linear
	for j := range n {
		w.throughFeature(by[j*d:][:d], x.Row(w.b, t+j, head), features.Row(j, d))
	}
	if l.Norm != attn.NoNorm {
		w.throughNorm(by, operand.Rows(x, w.b, t, head), n)
	}
	put(to, w.b, t, head, by, d, n, first)
}

// throughFeature turns the gradient of a row's features into that of the row, which may have been
// multiplied by a positive number first.
func (w *worker) throughFeature(by, row, features []float32) {
	switch w.p.Linear.Feature {
	case attn.EluPlusOne:
		features = features[:len(by)]
		for c := range by {
			by[c] *= min(features[c], 1) // 1 above 0, and e^x, the feature itself, below
		}
	case attn.ReluPlusOne:
		for c, x := range row {
			if x <= 0 {
				by[c] *= 0 // NaN stays
			}
		}
	}
}

// throughNorm turns the gradients dy of n rows y = x / N into dx = (dy - y (y.dy)) / N. N is a
// constant for the short rows of NormMax.
func (w *worker) throughNorm(by []float32, x asm.Rows, n int) {
	d, b := w.p.Dim, w.back
	if d == 0 {
		return
	}
	squares, along := b.squares[:n], b.along[:n]
	w.ops.Back.Inner(squares, x, x, d)
	w.ops.Back.Inner(along, x, asm.Rows{Data: by, Stride: d}, d)
	for j, s := range squares {
		row, dy := x.Row(j, d), by[j*d:][:d]
		if !(s >= leastSquares && s <= mostSquares) {
			w.throughNormOne(dy, row)
			continue
		}
		over := 1 / w.length(float64(s))
		factor, back := float32(over), float32(0)
		if w.normBends(over) {
			back = float32(float64(along[j]) * over * over * over)
		}
		for c, y := range row {
			dy[c] = float32(dy[c]*factor) - float32(y*back)
		}
	}
}

// normBends reports whether the divisor of a row, given as its inverse, depends on the row.
func (w *worker) normBends(over float64) bool {
	return w.p.Linear.Norm == attn.NormSum || !(over >= 1/w.p.Linear.NormEps)
}

// throughNormOne is throughNorm of a row in float64.
func (w *worker) throughNormOne(dy, x []float32) {
	squares, along := 0.0, 0.0
	for c, y := range x {
		squares += float64(y) * float64(y)
		along += float64(y) * float64(dy[c])
	}
	length := w.length(squares)
	if !w.normBends(1 / length) {
		along = 0
	}
	along /= length
	for c, y := range x {
		dy[c] = float32((float64(dy[c]) - float64(y)/length*along) / length)
	}
}

// dotTo writes the products of n rows of q with rows rows of k, each of terms numbers.
func (w *worker) dotTo(to []float32, stride int, q []float32, qStride, n int, k []float32, kStride, rows, terms int) {
	c := &w.dot
	c.R, c.N, c.D, c.P, c.Stride = n, rows, terms, to, stride
	c.Rows, c.Cache.Rows = asm.Rows{Data: q, Stride: qStride}, asm.Rows{Data: k, Stride: kStride}
	w.ops.Decode.Dot(c)
}

// sum adds rows of y to n rows, weighed by rows of weights; sumT weighs by columns of them.
func (w *worker) sum(to []float32, stride, n, cols int, weights []float32, wStride, terms int, y asm.Rows) {
	w.ops.Back.Outer(w.outerOf(to, stride, n, cols, weights, wStride, terms, y))
}

func (w *worker) sumT(to []float32, stride, n, cols int, weights []float32, wStride, terms int, y asm.Rows) {
	w.ops.Back.OuterT(w.outerOf(to, stride, n, cols, weights, wStride, terms, y))
}

// outerOf returns the worker's call of Outer or OuterT for n rows, each a sum of terms rows of y.
func (w *worker) outerOf(to []float32, stride, n, cols int, weights []float32, wStride, terms int, y asm.Rows) *asm.Outer {
	o := &w.outer
	o.Fresh, o.Keep, o.Scale = false, nil, nil
	o.N, o.C, o.Width, o.P, o.Lanes = n, cols, terms, weights, wStride
	o.X, o.XStride, o.Y = to, stride, asm.LineRows(y)
	return o
}
