package linear

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

const (
	// tokens is the number of tokens in a chunk. A token costs up to 3 d d_v multiply-adds with the
	// state and tokens (d + d_v) with the others of its chunk. In a short chunk, the products with
	// the state have few rows.
	// Tuning: docs/tuning.md#recurrence-tokens
	tokens = 32
	// rows is the number of rows of a chunk's triangle in one call, with the columns that the last
	// of them uses. More rows compute more of the other triangle; fewer make more calls.
	// Tuning: docs/tuning.md#recurrence-rows
	rows = 16
	// columns is the number of columns of the state that products take at once. They read that part
	// of the state from the first-level cache.
	// Tuning: docs/tuning.md#recurrence-columns
	columns = 128
	// fewest is the number of tokens below which a run is computed token by token.
	// Tuning: docs/tuning.md#recurrence-fewest
	fewest = 4

	lanes = (tokens + 15) / 16 * 16 // length of a row of a triangle, in whole vectors
)

// recurrence is the scratch of the forms that take tokens in order.
//
// A chunk of n tokens starts at state S. P_i is the product of the gates of tokens 0..i, and D_ij
// that of tokens j+1..i.
//
//	   j          d_v         d          d_v
//	┌──────┐   ┌───────┐   ┌──────┐   ┌───────┐
//	│ W, M │ i │ U, O  │ i │ k, q │ i │   S   │ d
//	└──────┘   └───────┘   └──────┘   └───────┘
//
//	W_ij = D_ij k_i.k_j  for j < i     U = beta o (V - P o (k S) - W U)
//	M_ij = D_ij q_i.k_j  for j <= i    O = scale (P o (q S) + M U)
//	                                   S = P_n o S + (D_n o k)^T U
//
// Without the delta rule, U is V. With a gate for each key channel, P o k and P o q take the place
// of k and q, k / P takes that of the other factor, and D is left out. A chunk then ends before P
// leaves asm.Least..asm.Most.
//
// A column of V, U, O and S depends on no other column, so the products take some columns at a
// time.
//
// A weight of 0 that meets a value that is not finite gives NaN. So a row of O that is not finite
// is computed again: from the tokens that it sees alone, with the bits that finite values would
// leave, and then token by token. A finite number of O or S met nothing else.
type recurrence struct {
	pos, nq int        // token of the first query, and the number of queries
	few     int        // runs of fewer tokens are computed token by token
	t       int        // the first loaded token
	q0, q1  int        // loaded tokens with a query
	k, v    asm.Rows   // features of the loaded keys, and their values
	q       []asm.Rows // features of queries q0 to q1-1, for each output head
	kRow    []float32  // [tokens][d]; nil if features are the rows themselves
	qRow    []float32  // [output head][tokens][d], likewise

	gates
	faded struct { // rows of a chunk with a gate for each key channel
		k, over []float32 // [tokens][d]: P o k, k / P
		q       []float32 // [output head][tokens][d]: P o q
	}
	keyLanes []float32 // [d][lanes]
	w        []float32 // [tokens][lanes]
	m        []float32 // [output head][tokens][lanes]
	u        []float32 // [tokens][d_v]
	factor   []float32 // [output head][tokens]: factors of output rows
	rowSums  []float32 // [2][tokens]
	wrong    []float32 // [output head][tokens]: not 0 where an output row is not finite
	again    []float32 // [d][columns]: the state where a chunk is computed again
	zeros    []float32 // [columns]
	zs       []float32 // [2][d]: z before a chunk, and where a chunk is computed again
	move     asm.Move
	solve    asm.Solve
	fade     asm.Fade
	one      oneToken
}

func (r *recurrence) layout(p *attn.Problem, take func(n int) []float32) {
	d, heads := p.Dim, outsOf(p)
	r.q = make([]asm.Rows, heads)
	if !plainRows(p) {
		r.kRow, r.qRow = take(tokens*d), take(heads*tokens*d)
	}
	r.gates.layout(p, take)
	if p.Linear.Gate == attn.KeyGate {
		r.faded.k, r.faded.over, r.faded.q = take(tokens*d), take(tokens*d), take(heads*tokens*d)
	}
	r.keyLanes, r.m = take(d*lanes), take(heads*tokens*lanes)
	if p.Linear.Delta {
		r.w = take(tokens * lanes)
	}
	if p.Linear.Delta || p.Linear.Gate == attn.HeadGate {
		r.u = take(tokens * p.DimV)
	}
	r.factor, r.rowSums, r.zeros = take(heads*tokens), take(2*tokens), take(columns)
	r.wrong, r.again = take(heads*tokens), take(d*columns)
	if !p.Linear.Unnormalised {
		r.zs = take(2 * d)
	}
	for i := range r.factor {
		r.factor[i] = float32(p.Scale())
	}
	r.one.layout(p, heads, take)
}

// outsOf returns the number of output heads that read one state.
func outsOf(p *attn.Problem) int {
	if p.StateHeads() == 0 {
		return 0
	}
	return p.OutHeads() / p.StateHeads()
}

// inOrder computes a sequence token after token, with the state of the caller or its own.
func (w *worker) inOrder(a *attn.Args, task int) {
	n, each := w.a.K.S, w.p.StateLen()
	w.pos, w.nq, w.few = 0, n, fewest
	from := stateOf(w.p, a.StateIn, task)
	if a.StateOut == nil {
		w.state = w.own
		w.copyFrom(from)
		w.run(0, n)
		return
	}
	// All tokens but the last few leave the oldest state. Older slots hold the incoming state.
	slots := max(1, w.p.Linear.Snapshots)
	oldest := min(n, slots-1)
	for i := slots - 1; i >= oldest; i-- {
		w.state = stateOf(w.p, a.StateOut[i*each:][:each], task)
		w.copyFrom(from)
	}
	w.run(0, n-oldest)
	for i := oldest - 1; i >= 0; i-- {
		before := w.state
		w.state = stateOf(w.p, a.StateOut[i*each:][:each], task)
		w.copyFrom(before)
		w.run(n-1-i, 1)
	}
}

// run computes n tokens starting at token t.
func (w *worker) run(t, n int) {
	for end := t + n; t < end; t += tokens {
		w.loadTokens(t, min(tokens, end-t))
		w.loaded(min(tokens, end-t))
	}
}

// loadTokens computes the features and gates of n tokens starting at token t.
func (w *worker) loadTokens(t, n int) {
	d := w.p.Dim
	w.t = t
	w.v = operand.Rows(&w.a.V, w.b, t, w.vh)
	w.k = operand.Rows(&w.a.K, w.b, t, w.kv)
	if w.kRow != nil {
		w.features(w.kRow, w.k, n, false)
		w.k = asm.Rows{Data: w.kRow, Stride: d}
	}
	w.q0 = min(max(w.pos-t, 0), n)
	w.q1 = min(max(w.pos+w.nq-t, w.q0), n)
	for h := 0; h < len(w.q) && w.q0 < w.q1; h++ {
		q := operand.Rows(&w.a.Q, w.b, t+w.q0-w.pos, w.queryHead(h))
		if w.qRow != nil {
			own := w.qRow[h*tokens*d:][:tokens*d]
			w.features(own, q, w.q1-w.q0, false)
			q = asm.Rows{Data: own, Stride: d}
		}
		w.q[h] = q
	}
	w.loadGates(t, n)
}

// loaded computes n loaded tokens.
func (w *worker) loaded(n int) {
	for i := 0; i < n; {
		m := n - i
		if w.p.Linear.Gate == attn.KeyGate {
			m = w.cut(i, m)
		}
		if m < w.few {
			w.steps(i, m)
		} else {
			w.inChunk(i, m)
		}
		i += m
	}
}

// inChunk computes loaded tokens i to i+n-1.
func (w *worker) inChunk(i, n int) {
	d, dv, l := w.p.Dim, w.p.DimV, &w.p.Linear
	k, other, v := from(w.k, i), from(w.k, i), from(w.v, i)
	var keep, ends []float32 // P of the rows; the state's factors
	switch l.Gate {
	case attn.HeadGate:
		keep, ends = w.keep(i, n)
	case attn.KeyGate:
		p := asm.Rows{Data: w.products, Stride: d}
		w.ops.Vector.Times(asm.Rows{Data: w.faded.k, Stride: d}, k, p, n, d)
		w.ops.Vector.Over(asm.Rows{Data: w.faded.over, Stride: d}, k, p, n, d)
		k, other = asm.Rows{Data: w.faded.k, Stride: d}, asm.Rows{Data: w.faded.over, Stride: d}
		ends = w.products[(n-1)*d:][:d]
	}
	w.move = asm.Move{Lanes: lanes, Width: w.wide(n), Rows: n, D: d, Tile: w.keyLanes, Outside: other}
	w.ops.Vector.Load(&w.move)
	if l.Delta {
		w.triangle(w.w, k, 0, n)
		if l.Gate == attn.HeadGate {
			w.fadeBy(w.w, i, n, true)
		}
	}
	first := min(max(w.q0-i, 0), n) // rows with a query
	end := min(max(w.q1-i, first), n)
	for h := 0; h < len(w.q) && first < end; h++ {
		if l.Gate == attn.KeyGate {
			w.ops.Vector.Times(w.query(i, h, 0), w.q[h].From(i), asm.Rows{Data: w.products, Stride: d}, n, d)
		}
		m := w.m[h*tokens*lanes:][:tokens*lanes]
		w.triangle(m, w.query(i, h, first), first, end)
		w.fadeBy(m, i, n, false)
		if w.z != nil {
			w.denominators(i, h, first, end, w.z, keep)
		}
	}
	last := w.ones
	if l.Gate == attn.HeadGate {
		last = w.last
	}
	if w.z != nil {
		copy(w.zs, w.z)
		o := w.outerOf(w.z, d, 1, d, last, lanes, n, k)
		if keep != nil {
			o.Keep = keep[n-1:]
		}
		w.ops.Back.Outer(o)
	}
	finite := true
	for c := 0; c < dv; c += columns {
		p := part{c, min(columns, dv-c), asm.Rows{Data: w.x[c:], Stride: dv}}
		u := asm.Rows{Data: v.Data[c:], Stride: v.Stride}
		if l.Delta {
			u = w.substitute(k, u, i, n, p, keep)
		}
		wrong := false
		for h := 0; h < len(w.q) && first < end; h++ {
			w.outputs(i, h, first, end, p, u, keep)
			if !w.check(i, h, first, end, p) {
				finite = false
				wrong = w.outputsAgain(i, h, first, end, p, u, keep) || wrong
			}
		}
		if wrong {
			w.stepsAgain(i, n, p)
		}
		if l.Gate == attn.HeadGate {
			own := asm.Rows{Data: w.u[c:], Stride: dv}
			w.ops.Vector.Scale(own, u, last[:n], p.cols)
			u = own
		}
		o := w.outerOf(p.x.Data, dv, d, p.cols, other.Data, other.Stride, n, u)
		if l.Gate == attn.KeyGate {
			o.Scale = ends
		} else {
			o.Keep = ends
		}
		w.ops.Back.OuterT(o)
		if wrong {
			w.repair(p)
		}
	}
	if !finite { // later chunks must not meet what is not finite
		clear(w.m)
		if !w.ops.Vector.Finite(w.z) {
			copy(w.z, w.zs[len(w.z):])
		}
	}
}

// A part is some columns of the state: cols columns starting at c.
type part struct {
	c, cols int
	x       asm.Rows
}

// from returns the rows starting at row i, which exists unless rows have no columns.
func from(r asm.Rows, i int) asm.Rows {
	if len(r.Data) == 0 {
		return r
	}
	return r.From(i)
}

// wide returns the number of lanes of n tokens, in whole vectors.
func (w *worker) wide(n int) int { return (n + w.ops.Shape.Vec - 1) &^ (w.ops.Shape.Vec - 1) }

// triangle computes the products of rows first..end with the keys in lanes, as far as a row's own
// key. r begins at row first.
func (w *worker) triangle(to []float32, r asm.Rows, first, end int) {
	d := w.p.Dim
	keys := asm.Rows{Data: w.keyLanes, Stride: lanes}
	for i := first; i < end; i += rows {
		m := min(rows, end-i)
		o := w.outerOf(to[i*lanes:], lanes, m, w.wide(i+m), from(r, i-first).Data, r.Stride, d, keys)
		o.Fresh = true
		w.ops.Back.Outer(o)
	}
}

// fadeBy multiplies weights by the gates between tokens, and hides keys from earlier rows.
func (w *worker) fadeBy(weights []float32, i, n int, strict bool) {
	f := &w.fade
	f.Panel = asm.Panel{Lanes: lanes, Width: lanes, N: n, P: weights}
	f.From, f.Strict, f.Alpha, f.Last = asm.Rows{Data: weights, Stride: lanes}, strict, nil, nil
	if w.p.Linear.Gate == attn.HeadGate {
		f.Alpha, f.Last = w.alpha[i:][:n], w.last
	}
	w.ops.Recur.Fade(f)
}

// denominators computes the factors of rows first..end of output head h, for a chunk that starts at
// loaded token i with z. Weights are summed over all lanes, so that the order does not depend on n.
func (w *worker) denominators(i, h, first, end int, z, keep []float32) {
	n, eps := end-first, float32(w.p.Linear.Eps)
	inside, before := w.rowSums[:n], w.rowSums[tokens:][:n]
	w.ops.Back.Inner(inside, asm.Rows{Data: w.m[(h*tokens+first)*lanes:], Stride: lanes}, asm.Rows{Data: w.ones}, lanes)
	w.ops.Back.Inner(before, from(w.q[h], i+first-w.q0), asm.Rows{Data: z}, w.p.Dim)
	for r := range n {
		if keep != nil {
			before[r] *= keep[first+r]
		}
		w.factor[h*tokens+first+r] = 1 / (eps + before[r] + inside[r])
	}
}

// query returns row r, and those after it, of the queries of a chunk that starts at loaded token i.
func (w *worker) query(i, h, r int) asm.Rows {
	if d := w.p.Dim; w.p.Linear.Gate == attn.KeyGate {
		return asm.Rows{Data: w.faded.q[h*tokens*d+r*d:], Stride: d}
	}
	return from(w.q[h], i+r-w.q0)
}

// substitute computes U of n rows of keys and values, in some columns.
func (w *worker) substitute(k, v asm.Rows, i, n int, p part, keep []float32) asm.Rows {
	u := asm.Rows{Data: w.u[p.c:], Stride: w.p.DimV}
	o := w.outerOf(u.Data, u.Stride, n, p.cols, k.Data, k.Stride, w.p.Dim, p.x)
	o.Fresh = true
	w.ops.Back.Outer(o)
	s := &w.solve
	s.Panel = asm.Panel{Lanes: lanes, N: n, P: w.w}
	s.C, s.X, s.XStride, s.V, s.Keep, s.Beta = p.cols, u.Data, u.Stride, v, keep, w.beta[i:][:n]
	w.ops.Recur.Solve(s)
	return u
}

// outputs computes rows first..end of output head h, in some columns, for a chunk that starts at
// loaded token i.
func (w *worker) outputs(i, h, first, end int, p part, u asm.Rows, keep []float32) {
	q, out := w.query(i, h, first), w.out(i+first, h, p)
	o := w.outerOf(out.Data, out.Stride, end-first, p.cols, q.Data, q.Stride, w.p.Dim, p.x)
	o.Fresh = true
	w.ops.Back.Outer(o)
	m, factor := w.m[h*tokens*lanes:][:tokens*lanes], w.factor[h*tokens:][:tokens]
	for r := first; r < end; r += rows {
		n := min(rows, end-r)
		o := w.outerOf(out.From(r-first).Data, out.Stride, n, p.cols, m[r*lanes:], lanes, r+n, u)
		if o.Scale = factor[r:]; keep != nil {
			o.Keep = keep[r:]
		}
		w.ops.Back.Outer(o)
	}
}

// out returns some columns of the rows of output head h, starting at that of loaded token i.
func (w *worker) out(i, h int, p part) asm.Rows {
	out := operand.Rows(&w.a.Out, w.b, w.t+i-w.pos, w.h+h)
	out.Data = out.Data[p.c:]
	return out
}

// check reports whether rows first..end of output head h are finite, and sets w.wrong. It
// multiplies them by 0.
func (w *worker) check(i, h, first, end int, p part) bool {
	wrong := w.wrong[h*tokens:][first:end]
	w.ops.Back.Inner(wrong, w.out(i+first, h, p), asm.Rows{Data: w.zeros}, p.cols)
	for _, x := range wrong {
		if x != 0 {
			return false
		}
	}
	return true
}

// outputsAgain computes the wrong rows of first..end again, from the tokens that they see alone. It
// reports whether some still are wrong.
func (w *worker) outputsAgain(i, h, first, end int, p part, u asm.Rows, keep []float32) (some bool) {
	for r := first; r < end; r++ {
		if w.wrong[h*tokens+r] == 0 {
			continue
		}
		clear(w.m[(h*tokens+r)*lanes:][r+1 : lanes])
		if w.z != nil {
			w.denominators(i, h, r, r+1, w.zs, keep)
		}
		w.outputs(i, h, r, r+1, p, u, keep)
		some = !w.check(i, h, r, r+1, p) || some
	}
	return some
}

// repair takes numbers of the state that are not finite from the form that computes one token.
func (w *worker) repair(p part) {
	for r := range w.p.Dim {
		if row := p.x.Row(r, p.cols); !w.ops.Vector.Finite(row) {
			replace(row, w.again[r*columns:])
		}
	}
}
