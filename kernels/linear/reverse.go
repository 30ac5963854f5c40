package linear

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// reverse is the scratch of the backward pass of tokens in order. It takes chunks from the last to
// the first, and each needs the state before it. A state is kept for each segment, of about as many
// blocks of tokens as there are segments. The states before the blocks of one segment are computed
// again from that.
//
//	segment 0          segment 1          segment 2
//	S . . . . . . . .  S . . . . . . . .  S  S  S  S  S  S
//	kept               kept               before each block of the last segment
//
// A chunk's formulas are those of its outputs (chunk.go), differentiated. dN is the gradient of an
// output before its factor, and dS that of the state after the chunk.
//
//	dU = M^T dN + (D_n o K) dS            dM = tril(dN U^T)
//	Z  = dU - W^T (beta o Z)              dW = -stril(beta o Z U^T)
//	dV = beta o Z                         dbeta = Z.(U / beta)
//	dq_i = P_i S dN_i + Σ_j D_ij dM_ij k_j
//	dk_i = -P_i S dV_i + Σ_j D_ij dW_ij k_j  + Σ_j (D_ji dM_ji q_j + D_ji dW_ji k_j) + D_ni dS U_i
//	dS  <- P_n dS + Q^T (P o dN) - K^T (P o dV)
//
// The gradient of a gate's logarithm sums what crosses the gate: the pairs of a token before it and
// one that is not, and what the state before the chunk and the one after it have of the others. All
// of that is small if the gate is. A difference of running sums would not be.
type reverse struct {
	length int       // blocks in a segment
	starts []float32 // [segment] states before segments
	blocks []float32 // [length] states before the blocks of a segment
	tokens []float32 // [tokens] states before tokens of a block
	extra  []float32 // one state: after the first gate of a chunk
	g      [2]state  // gradient of the state after a chunk, and of the one before it
	size   int       // numbers in a state

	uLanes       []float32    // [d_v][lanes]
	lower, upper []float32    // [tokens][lanes]: ones below the diagonal; on it and above
	system, back []float32    // [tokens][lanes]: the triangles that E and Z solve
	dm, fading   []float32    // [tokens][lanes]: gradients of weights; times gates
	pairs, cross []float32    // [tokens][lanes]: weights times their gradients; sums over rows
	last, ends   []float32    // [tokens]
	dZ, fadedZ   []float32    // [tokens]
	fromState    []float32    // [tokens]
	dots         []float32    // [max(d, tokens)]
	misses       []float32    // [length][tokens][d_v]: E of the blocks of a segment
	e            []float32    // [tokens][d_v]: the part of the loaded block
	known        int          // tokens of the block whose E is known
	u, dU        []float32    // [tokens][d_v]
	dN, z        []float32    // [tokens][d_v]
	dQ           []float32    // [output head][tokens][d]
	dK, dR, rows []float32    // [tokens][d]: gradients of keys as keys, and as those of retrievals
	later        []float32    // [tokens][d]: weighed sums of earlier keys
	dAlpha       []float32    // [tokens] or [tokens][d]: gradients of logarithms of gates
	dBeta        []float32    // [tokens]
	fold         []float32    // [d]: first gates of a chunk
	token        [3][]float32 // [d_v]: rows of the form that computes one token
}

// blocksOf returns the number of blocks of the longest sequence.
func blocksOf(p *attn.Problem) int { return (min(p.SeqQ, p.SeqKV) + tokens - 1) / tokens }

// root returns the square root of n, rounded up.
func root(n int) int {
	r := 0
	for r*r < n {
		r++
	}
	return r
}

func (r *reverse) layout(p *attn.Problem, heads int, take func(n int) []float32) {
	d, dv, l := p.Dim, p.DimV, &p.Linear
	r.size = d * dv
	if !l.Unnormalised {
		r.size += d
	}
	all := blocksOf(p)
	r.length = root(all)
	segments := 0
	if all > 0 {
		segments = (all + r.length - 1) / r.length
	}
	r.starts, r.blocks = take(segments*r.size), take(r.length*r.size)
	r.tokens, r.extra = take(min(tokens, p.SeqQ)*r.size), take(r.size)
	for i := range r.g {
		r.g[i] = r.stateAt(p, take(r.size), 0)
	}
	panel := func() []float32 { return take(tokens * lanes) }
	r.uLanes = take(dv * lanes)
	r.dm, r.fading = panel(), panel()
	r.dU, r.dN = take(tokens*dv), take(tokens*dv)
	if l.Delta {
		r.system, r.back = panel(), panel()
		r.misses = take(r.length * tokens * dv)
		r.u, r.z, r.dR, r.dBeta = take(tokens*dv), take(tokens*dv), take(tokens*d), take(tokens)
	}
	for i := range r.token {
		r.token[i] = take(dv)
	}
	r.dots = take(max(d, tokens))
	r.dQ, r.dK = take(heads*tokens*d), take(tokens*d)
	r.rows = take(tokens * d)
	r.dZ, r.fadedZ = take(tokens), take(tokens)
	switch l.Gate {
	case attn.HeadGate:
		r.upper, r.pairs, r.cross = panel(), panel(), panel()
		r.last, r.ends, r.fromState, r.dAlpha = take(tokens), take(tokens), take(tokens), take(tokens)
	case attn.KeyGate:
		r.lower, r.upper = panel(), panel()
		r.later, r.dAlpha, r.fold = take(tokens*d), take(tokens*d), take(d)
	}
	for i := range tokens {
		for j := range tokens {
			if r.lower != nil && j < i {
				r.lower[i*lanes+j] = 1
			}
			if r.upper != nil && j >= i {
				r.upper[i*lanes+j] = 1
			}
		}
	}
}

// stateAt returns state i of some.
func (r *reverse) stateAt(p *attn.Problem, some []float32, i int) state {
	if len(some) == 0 {
		return state{}
	}
	one := some[i*r.size:][:r.size]
	s := state{x: one[:p.Dim*p.DimV]}
	if !p.Linear.Unnormalised {
		s.z = one[p.Dim*p.DimV:]
	}
	return s
}

// inReverse computes the backward pass of a sequence of tokens in order.
func (w *worker) inReverse(a *attn.Args, task int) {
	p, r := w.p, &w.back.reverse
	n := w.a.K.S
	w.pos = 0
	r.g[0].copyFrom(stateOf(p, w.grads.StateOut, task))
	if n > 0 && p.Dim > 0 {
		w.segments(stateOf(p, a.StateIn, task), n)
	}
	if w.grads.StateIn != nil {
		to := stateOf(p, w.grads.StateIn, task)
		copy(to.x, r.g[0].x)
		copy(to.z, r.g[0].z)
	}
}

// segments goes over n tokens, whose first state is given.
func (w *worker) segments(first state, n int) {
	p, r := w.p, &w.back.reverse
	blocks := (n + tokens - 1) / tokens
	all := (blocks + r.length - 1) / r.length
	r.stateAt(p, r.starts, 0).copyFrom(first)
	for s := range all {
		at, end := s*r.length, min((s+1)*r.length, blocks)
		if s+1 < all {
			w.forwards(s, at, end, r.stateAt(p, r.starts, s+1))
		}
	}
	for s := all - 1; s >= 0; s-- {
		at, end := s*r.length, min((s+1)*r.length, blocks)
		if s+1 < all || end-at > 1 {
			w.forwards(s, at, end-1, r.stateAt(p, r.blocks, end-1-at))
		}
		for b := end - 1; b >= at; b-- {
			known := tokens
			if b == end-1 {
				known = 0
			}
			r.enter(p, b, known)
			w.blockBack(r.before(w, s, b), b*tokens, min(tokens, n-b*tokens))
		}
	}
}

// enter moves to block b, of which E of some tokens is known.
func (r *reverse) enter(p *attn.Problem, b, known int) {
	if r.known = known; p.Linear.Delta {
		each := tokens * p.DimV
		r.e = r.misses[b%r.length*each:][:each]
	}
}

// before returns the state before block b of segment s.
func (r *reverse) before(w *worker, s, b int) state {
	if b == s*r.length {
		return r.stateAt(w.p, r.starts, s)
	}
	return r.stateAt(w.p, r.blocks, b-s*r.length)
}

// forwards computes the states before the blocks after at of segment s, and writes the one before
// block end to last.
func (w *worker) forwards(s, at, end int, last state) {
	r := &w.back.reverse
	for b := at; b < end; b++ {
		to := last
		if b+1 < end {
			to = r.before(w, s, b+1)
		}
		w.nq = 0 // queries are not needed
		w.loadTokens(b*tokens, tokens)
		r.enter(w.p, b, 0)
		w.block(r.before(w, s, b), to, 0, tokens)
	}
}

// block computes the state after loaded tokens i to n-1 from the state s before them. It keeps the
// states before chunks in r.tokens.
func (w *worker) block(s, to state, i, n int) {
	r := &w.back.reverse
	for i < n {
		m := w.cutBack(i, n-i)
		next := to
		if i+m < n {
			next = r.stateAt(w.p, r.tokens, i+m)
		}
		w.advance(s, next, i, m)
		s = next
		i += m
	}
}

// cutBack returns the number of loaded tokens starting at i, at most n, that form a chunk. With a
// gate for each key channel, the first of them multiplies the state, and P is the product of the
// gates after it.
func (w *worker) cutBack(i, n int) int {
	if w.p.Linear.Gate != attn.KeyGate {
		return n
	}
	d, r := w.p.Dim, &w.back.reverse
	first := w.alpha[i*d:][:d]
	copy(r.fold, first)
	for c := range first {
		first[c] = 1
	}
	n = w.ops.Recur.Products(asm.Rows{Data: w.products, Stride: d}, asm.Rows{Data: w.alpha[i*d:], Stride: d}, n, d)
	copy(first, r.fold)
	return n
}

// blockBack computes the backward pass of n tokens at t. The state before them is s.
func (w *worker) blockBack(s state, t, n int) {
	r := &w.back.reverse
	w.nq = w.a.K.S
	w.loadTokens(t, n)
	var starts [tokens]int
	parts := 0
	for i := 0; i < n; i += w.cutBack(i, n-i) {
		starts[parts] = i
		parts++
	}
	if parts > 1 {
		last := starts[parts-1]
		w.block(s, r.stateAt(w.p, r.tokens, last), 0, last)
		r.known = max(r.known, last)
	}
	for end := n; parts > 0; parts-- {
		i := starts[parts-1]
		before := s
		if i > 0 {
			before = r.stateAt(w.p, r.tokens, i)
		}
		w.cutBack(i, end-i)
		if w.p.DimV == 0 || !w.chunkBack(before, i, end-i) {
			w.tokensBack(before, i, end-i)
		}
		w.write(i, end-i)
		r.g[0], r.g[1] = r.g[1], r.g[0]
		end = i
	}
}

// write adds the gradients of loaded tokens i to i+n-1 to those of the operands.
func (w *worker) write(i, n int) {
	p, r, g := w.p, &w.back.reverse, w.grads
	d, dv, t := p.Dim, p.DimV, w.t+i
	if g.Q.Data != nil {
		for h := range w.q {
			first := (w.h+h)%(p.OutHeads()/p.HeadsQ) == 0
			w.rowsBack(&g.Q, &w.a.Q, t, w.queryHead(h), r.dQ[h*tokens*d:], from(w.q[h], i), n, first)
		}
	}
	state := w.h / w.n
	if g.K.Data != nil {
		w.rowsBack(&g.K, &w.a.K, t, w.kv, r.dK, from(w.k, i), n, state%(p.StateHeads()/p.HeadsKV) == 0)
	}
	first := state%(p.StateHeads()/p.ValueHeads()) == 0 // to read this value head
	if g.V.Data != nil {
		put(&g.V, w.b, t, w.vh, r.dU, dv, n, first)
	}
	if g.Terms.Decay.Data != nil && p.Linear.Gate != attn.NoGate {
		put(&g.Terms.Decay, w.b, t, w.vh, r.dAlpha, g.Terms.Decay.D, n, first)
	}
	if beta := &g.Terms.Beta; beta.Data != nil && p.Linear.Delta {
		put(beta, w.b, t, w.vh%beta.H, r.dBeta, 1, n, false)
	}
}

// put adds n rows of d numbers to a gradient, in which they are the first if first is set.
func put(to *attn.Tensor, b, t, head int, by []float32, d, n int, first bool) {
	for j := range n {
		if row := to.Row(b, t+j, head); first {
			copy(row, by[j*d:])
		} else {
			add(row, by[j*d:])
		}
	}
}

func add(to, x []float32) {
	x = x[:len(to)]
	for c := range to {
		to[c] += x[c]
	}
}
