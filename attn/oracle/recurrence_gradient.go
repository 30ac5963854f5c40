package oracle

import (
	"math"
	"slices"

	"attnlab/attn"
)

// A step is one token of a sequence as the backward pass uses it.
type step struct {
	token   token
	decayed state     // S~, the state that the token writes to
	norm    []float64 // norms of the columns of the state after the token
	err     []float64 // errors of these columns
}

// A backward is the backward pass of a recurrence, token by token. The gradient of the state goes
// from the last token to the first. Its errors follow the recursion of the state's: the transpose
// of a step has the same norm.
type backward struct {
	*recurrence
	j     *gradients
	grad  state   // gradient of the state
	root  float64 // for sums over the columns of a state
	steps []step  // of the current segment
	marks []state // the state before each segment
	after []float64

	// Gradients of the current token with their errors in units of u: of the products of the state
	// with the query, with the key, and of S~^T k.
	dout, errOut, du, errDu, absDu, dmiss, errDmiss []float64
	errU                                            []float64 // error of what was written
	errGrad, normGrad                               []float64 // of the gradient of S~

	// The set of output heads that share operands: its first heads of Q, K and V, and gradients by
	// head. Those of Q and K are of features.
	firstQ, firstK, firstV int
	q, k, v, decay, beta   []estimates
	window                 []window
	top                    float64 // the largest finite number of the set
}

// A window holds what a kernel may add and subtract for the gradients of gates, by token and
// channel: products of queries and of keys with their gradients.
type window struct{ err, size []float64 }

func newBackward(j *gradients) *backward {
	p, a, r := &j.p, j.a, newRecurrence(j.Oracle)
	f := func() []float64 { return make([]float64, r.width) }
	b := &backward{
		recurrence: r, j: j, grad: newState(p.Dim, r.width), root: math.Sqrt(float64(r.width)) + 4, after: make([]float64, p.Dim*r.width),
		dout: f(), errOut: f(), du: f(), errDu: f(), absDu: f(), dmiss: f(), errDmiss: f(), errU: f(), errGrad: f(), normGrad: f(),
	}
	longest := 0
	for e := range p.Batch {
		longest = max(longest, a.Keys(p, e))
	}
	b.steps = make([]step, int(math.Ceil(math.Sqrt(float64(longest)))))
	for i := range b.steps {
		b.steps[i] = step{newToken(p.Dim, r.width), newState(p.Dim, r.width), f(), f()}
	}
	return b
}

// recurrences judges the gradients of a problem with a rule or a state.
func (j *gradients) recurrences() {
	p, a, b := &j.p, j.a, newBackward(j)
	each := headsEach(p)
	for e := range p.Batch {
		n := a.Keys(p, e)
		b.beta = zeros(a.Terms.Beta.H, n)
		for h := 0; h < p.OutHeads(); h += each {
			b.set(e, h, h+each)
		}
		for h, beta := range b.beta {
			b.emit("dBeta", &j.g.Terms.Beta, a.KRow, e, h, beta, 1)
		}
		for i := range n {
			batch, row := a.QRow(p, e, i)
			j.seenQ[batch*a.Q.S+row] = true
			batch, row = a.KRow(p, e, i)
			j.seenK[batch*a.K.S+row] = true
		}
	}
}

// zeros returns estimates of n numbers for each head.
func zeros(heads, n int) []estimates {
	e := make([]estimates, heads)
	for h := range e {
		e[h] = newEstimates(n)
	}
	return e
}

// part returns n of the estimates.
func (e estimates) part(from, n int) estimates {
	return estimates{e.x[from:][:n], e.tol[from:][:n], e.size[from:][:n]}
}

// set judges the gradients of the operands of output heads h to end-1.
func (b *backward) set(entry, h, end int) {
	p, a, g := &b.o.p, b.o.a, b.j.g
	n, outs, gate := a.Keys(p, entry), p.OutHeads(), a.Terms.Decay.D
	count := func(heads int) int { return (end - h) * heads / outs }
	b.firstQ, b.firstK, b.firstV = p.HeadOf(h, p.HeadsQ), p.HeadOf(h, p.HeadsKV), p.HeadOf(h, p.ValueHeads())
	b.q, b.k, b.v = zeros(count(p.HeadsQ), n*p.Dim), zeros(count(p.HeadsKV), n*p.Dim), zeros(count(p.ValueHeads()), n*p.DimV)
	b.decay, b.window, b.top = zeros(count(a.Terms.Decay.H), n*gate), nil, 1
	for range b.decay {
		b.window = append(b.window, window{make([]float64, n*gate), make([]float64, n*gate)})
	}
	for s := range count(p.StateHeads()) {
		b.head(entry, stateHead(p, h)+s)
	}
	b.j.rows += (end - h) * n
	for x, e := range b.q {
		for i := range n {
			b.j.through(e.part(i*p.Dim, p.Dim), b.o.rawQuery(Index{entry, (b.firstQ + x) * (outs / p.HeadsQ), i}))
		}
		b.emit("dQ", &g.Q, a.QRow, entry, b.firstQ+x, e, p.Dim)
	}
	for x, e := range b.k {
		for i := range n {
			b.j.through(e.part(i*p.Dim, p.Dim), b.o.key(b.o.k.x[:p.Dim], &a.K, entry, i, b.firstK+x))
		}
		b.emit("dK", &g.K, a.KRow, entry, b.firstK+x, e, p.Dim)
	}
	for x, e := range b.v {
		b.emit("dV", &g.V, a.KRow, entry, b.firstV+x, e, p.DimV)
	}
	for x, e := range b.decay {
		b.window[x].widen(e, gate)
		b.emit("dDecay", &g.Terms.Decay, a.KRow, entry, b.firstV+x, e, gate)
	}
}

// emit judges the gradients of a head, if they are set: rows of width numbers, by token.
func (b *backward) emit(name string, t *attn.Tensor, at func(p *attn.Problem, b, i int) (batch, row int), entry, h int, e estimates, width int) {
	if t.Data == nil {
		return
	}
	b.finish(e, len(e.x)/max(1, width))
	for i := range len(e.x) / max(1, width) {
		batch, row := at(&b.o.p, entry, i)
		b.j.each(name, Index{entry, h, i}, t.Row(batch, row, h), e.part(i*width, width))
	}
}

// finish adds the absolute errors of n tokens to estimates: of numbers that are too small for
// float32.
func (b *backward) finish(e estimates, n int) {
	lost := (math.Sqrt(float64(n)) + 6) * (math.Sqrt(float64(b.o.p.Dim)) + 2) * b.top * b.top
	if b.o.p.Linear.Gate != attn.NoGate {
		lost *= flush
	} else {
		lost *= subnormal
	}
	for c := range e.x {
		if e.tol[c] != 0 {
			e.tol[c], e.size[c] = certain(e.tol[c]+lost), e.size[c]+absolute(lost)
			e.size[c] = holding(e.tol[c], e.size[c])
		}
	}
}

// remember keeps the largest finite number of the set.
func (b *backward) remember(x float64) {
	if x = math.Abs(x); x <= math.MaxFloat32 && x > b.top {
		b.top = x
	}
}

// widen adds to the gradients of gates the errors of a difference of sums over a chunk: of a token
// and those after it. Errors of different tokens add up like random numbers.
func (w *window) widen(e estimates, gate int) {
	for i, x := range w.err {
		w.err[i] = x * x
	}
	squares, sizes := ahead(w.err, gate), ahead(w.size, gate)
	for i := range e.x {
		e.tol[i] += u * math.Sqrt(squares[i])
		e.size[i] += sizes[i]
	}
}

// ahead returns the sum of each number in rows of the given width and of the same one in the
// chunk-1 rows after it. The rest of a block of chunk rows and the first ones of the next block
// make it up, so that no sum is a difference.
func ahead(x []float64, width int) []float64 {
	sums, first := slices.Clone(x), slices.Clone(x) // first sums from the first row of a block
	for i := width; i < len(x); i++ {
		if i/width%chunk != 0 {
			first[i] += first[i-width]
		}
	}
	for i := len(x) - width - 1; i >= 0; i-- {
		if i/width%chunk != chunk-1 {
			sums[i] += sums[i+width]
		}
	}
	for i := range sums {
		row := i / width
		if next := min((row+chunk-1)*width, len(x)-width) + i%width; row%chunk != 0 && next/width/chunk > row/chunk {
			sums[i] += first[next]
		}
	}
	return sums
}

// head adds the gradients of one state head to those of its set.
func (b *backward) head(entry, s int) {
	p, a, g := &b.o.p, b.o.a, b.j.g
	n := a.Keys(p, entry)
	clear(b.grad.x)
	clear(b.grad.drift)
	clear(b.grad.noise)
	if g.StateOut != nil {
		b.unpack(b.grad.x, g.StateOut, entry, s)
	}
	b.grad.measure()
	if b.grad.most != 0 || !b.silent(entry, s) {
		each := max(1, len(b.steps))
		b.begin(entry, s)
		for i := 0; i*each < n; i++ {
			if i == len(b.marks) {
				b.marks = append(b.marks, newState(p.Dim, b.width))
			}
			b.state.copyTo(&b.marks[i])
			b.reach(entry, s, min(n, (i+1)*each))
		}
		for i := (n + each - 1) / each; i > 0; i-- {
			first := (i - 1) * each
			b.marks[i-1].copyTo(&b.state)
			steps := b.steps[:min(n-first, each)]
			for x := range steps {
				b.forward(first+x, &steps[x])
			}
			for x := len(steps) - 1; x >= 0; x-- {
				b.back(first+x, &steps[x])
			}
		}
		b.s = -1 // b.state is not that after b.tokens
	}
	if g.StateIn == nil {
		return
	}
	e := newEstimates(p.Dim * b.width)
	b.pack(&b.grad, e)
	b.finish(e, n)
	eachRow(p, "dStateIn", place{b: entry, s: s}, g.StateIn, e, b.j.each)
}

// silent reports whether only zeros come in for a state head, and its operands are finite.
func (b *backward) silent(entry, s int) bool {
	p, a := &b.o.p, b.o.a
	group := p.OutHeads() / p.StateHeads()
	b.begin(entry, s)
	if !finite(b.state.x) {
		return false
	}
	for i := range a.Keys(p, entry) {
		for h := s * group; h < (s+1)*group; h++ {
			if at := (Index{entry, h, i}); b.readOut(at) || !finite(b.o.rawQuery(at)) {
				return false
			}
		}
		b.load(i)
		if at := &b.at; !finite(at.k) || !finite(at.v) || !finite(at.alpha) || math.IsNaN(at.beta) || math.IsInf(at.beta, 0) {
			return false
		}
	}
	return true
}

func finite(x []float64) bool {
	for _, x := range x {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// readOut fills b.dout with the incoming gradient of a row, and reports whether it is not 0.
func (b *backward) readOut(at Index) (some bool) {
	clear(b.dout)
	if t := &b.j.g.Out; t.Data != nil {
		batch, row := b.o.a.QRow(&b.o.p, at.B, at.I)
		for c, x := range t.Row(batch, row, at.H) {
			b.dout[c] = float64(x)
			some = some || x != 0
		}
	}
	return some
}

// forward computes token i and keeps what the backward pass uses.
func (b *backward) forward(i int, to *step) {
	b.load(i)
	b.recurrence.decay()
	b.state.copyTo(&to.decayed)
	b.write()
	b.at.copyTo(&to.token)
	copy(to.norm, b.state.norm)
	for c := range to.err {
		to.err[c] = b.state.err(c)
	}
	b.remember(b.state.top)
}

// back adds the gradients of token i, and takes the gradient of the state to before it.
func (b *backward) back(i int, st *step) {
	p, at := &b.o.p, &st.token
	for x, k := range at.k {
		row, after := st.decayed.x[x*b.width:][:b.width], b.after[x*b.width:][:b.width]
		for c, x := range row {
			after[c] = x + k*at.u[c]
		}
	}
	group := p.OutHeads() / p.StateHeads()
	for h := b.s * group; h < (b.s+1)*group; h++ {
		b.read(Index{b.b, h, i}, st)
	}
	b.wrote(i, st)
	b.decayed(at)
}

// A gate is where the gradients of a token's gates are: channel c of its state head is number
// first+c*each. No gate has a nil window.
type gate struct {
	*window
	to          estimates
	first, each int
}

func (b *backward) gateOf(i int) gate {
	p, width := &b.o.p, b.o.a.Terms.Decay.D
	if p.Linear.Gate == attn.NoGate {
		return gate{}
	}
	v := p.StateHeadOf(b.s, p.ValueHeads()) - b.firstV
	return gate{&b.window[v], b.decay[v], i * width, min(1, width-1)}
}

// read adds the gradients of an output row, to its query and to the state.
func (b *backward) read(at Index, st *step) {
	p := &b.o.p
	some := b.readOut(at)
	errQ, normQ := b.query(at)
	if !some && finite(b.recurrence.q) && finite(st.norm) {
		return
	}
	if p.Linear.Unnormalised {
		for c, x := range b.dout {
			b.dout[c] = x * p.Scale()
			b.errOut[c] = 2 * math.Abs(b.dout[c])
		}
	} else {
		b.quotient(st, errQ, normQ)
	}
	common, size := 0.0, 0.0 // error and size of every number of dQ
	for c, x := range b.dout {
		common += st.err[c] * math.Abs(x)
		size += st.norm[c] * math.Abs(x)
		b.remember(x)
	}
	w := b.gateOf(at.I)
	if w.window != nil && w.each == 0 {
		w.err[w.first] += normQ * common
	}
	dq := b.q[p.HeadOf(at.H, p.HeadsQ)-b.firstQ].part(at.I*p.Dim, p.Dim)
	norm := b.grad.norm
	clear(norm)
	for i, q := range b.recurrence.q {
		after, grad := b.after[i*b.width:][:b.width], b.grad.x[i*b.width:][:b.width]
		sum, err, abs := 0.0, 0.0, 0.0
		for c, s := range after {
			o, absS := b.dout[c], math.Abs(s)
			sum += s * o
			err += absS * (b.errOut[c] + b.root*math.Abs(o))
			abs += absS * math.Abs(o)
			x := grad[c] + q*o
			grad[c] = x
			norm[c] += x * x
		}
		dq.x[i] += sum
		dq.tol[i] += u * (common + err)
		dq.size[i] += size
		b.remember(q)
		if w.window != nil {
			w.err[w.first+w.each*i] += math.Abs(q) * (err + float64(w.each)*common)
			w.size[w.first+w.each*i] += math.Abs(q) * abs
		}
	}
	roots(norm)
	for c, x := range b.dout {
		if x != 0 {
			b.grad.noise[c] = math.Hypot(b.grad.noise[c], 2*norm[c]+normQ*(b.errOut[c]+(4+errQ)*math.Abs(x)))
		}
	}
}

// quotient takes b.dout from the outputs of a normalised problem to the numerators and the
// denominator.
func (b *backward) quotient(st *step, errQ, normQ float64) {
	products(b.dot, b.abs, b.after, b.recurrence.q)
	err := func(c int) float64 { return normQ*st.err[c] + (b.c+errQ)*b.abs[c] }
	z := b.o.p.DimV
	den := b.dot[z] + b.o.p.Linear.Eps
	errDen := err(z) / math.Abs(den)
	b.dout[z], b.errOut[z] = 0, 0
	for c, x := range b.dout[:z] {
		o, by := b.dot[c]/den, x/den
		b.dout[c], b.errOut[c] = by, math.Abs(by)*(errDen+3)
		b.dout[z] -= by * o
		b.errOut[z] += math.Abs(by) * (math.Abs(o)*(2*errDen+b.root) + err(c)/math.Abs(den))
	}
}

// wrote adds the gradients of what token i wrote, and takes the gradient of the state to S~.
func (b *backward) wrote(i int, st *step) {
	p, at, delta, grad := &b.o.p, &st.token, b.o.p.Linear.Delta, &b.grad
	products(b.du, b.absDu, grad.x, at.k)
	dv := b.v[p.StateHeadOf(b.s, p.ValueHeads())-b.firstV].part(i*p.DimV, p.DimV)
	beta := newEstimates(1)
	common, size := 0.0, 0.0 // error and size of every number of dK
	for c, du := range b.du {
		err := at.normK*grad.err(c) + (b.c+at.errK)*b.absDu[c]
		b.dmiss[c], b.errDmiss[c], b.errU[c] = 0, 0, 0
		toV, errV := du, err
		if delta {
			errMiss := at.normK*st.decayed.err(c) + (b.c+at.errK)*at.abs[c] + math.Abs(at.v[c])
			b.errU[c] = math.Abs(at.beta)*errMiss + 2*math.Abs(at.u[c])
			toV = at.beta * du
			errV = math.Abs(at.beta)*err + 2*math.Abs(toV)
			b.dmiss[c], b.errDmiss[c] = toV, errV
			beta.x[0] += du * at.miss[c]
			beta.tol[0] += u * (err*math.Abs(at.miss[c]) + math.Abs(du)*(errMiss+b.root*math.Abs(at.miss[c])))
			beta.size[0] += at.normK * grad.norm[c] * (math.Abs(at.v[c]) + at.normK*st.decayed.norm[c])
		}
		if c < p.DimV {
			dv.x[c] += toV
			dv.tol[c] += u * (errV + math.Abs(toV))
			dv.size[c] += math.Abs(at.beta) * at.normK * grad.norm[c]
		}
		miss, w := math.Abs(b.dmiss[c]), math.Abs(at.u[c])
		common += grad.err(c) * w
		size += grad.norm[c] * w
		if delta {
			common += st.decayed.err(c) * miss
			size += st.decayed.norm[c] * miss
		}
		b.remember(du)
		b.remember(w)

		if b.normGrad[c] = grad.norm[c]; delta {
			b.normGrad[c] += at.normK * miss
		}
		grad.drift[c] *= at.grow
		if grad.noise[c] *= at.grow; delta && at.writes {
			grad.noise[c] = math.Hypot(grad.noise[c], 2*b.normGrad[c]+at.normK*(math.Abs(at.beta)*(b.c+at.errK)*b.absDu[c]+(4+at.errK)*miss))
		}
		b.errGrad[c] = grad.err(c)
	}
	if delta {
		to := b.beta[p.StateHeadOf(b.s, len(b.beta))].part(i, 1)
		to.add(beta)
	}
	w := b.gateOf(i)
	if w.window != nil && w.each == 0 {
		w.err[w.first] += at.normK * common
		for c, norm := range b.normGrad {
			w.to.tol[w.first] += u * (b.errGrad[c]*st.decayed.norm[c] + st.decayed.err(c)*norm)
			w.to.size[w.first] += 2 * norm * st.decayed.norm[c]
		}
	}
	dk := b.k[p.StateHeadOf(b.s, p.HeadsKV)-b.firstK].part(i*p.Dim, p.Dim)
	for x, k := range at.k {
		row, before := grad.x[x*b.width:][:b.width], st.decayed.x[x*b.width:][:b.width]
		sum, err, abs := 0.0, 0.0, 0.0
		for c, y := range row {
			u, absY := at.u[c], math.Abs(y)
			sum += y * u
			err += absY * (b.errU[c] + b.root*math.Abs(u))
			abs += absY * math.Abs(u)
			if !delta {
				continue // nothing is retrieved, and 0 times what is not finite would be NaN
			}
			s, miss := before[c], b.dmiss[c]
			absS := math.Abs(s)
			sum -= s * miss
			err += absS * (b.errDmiss[c] + b.root*math.Abs(miss))
			abs += absS * math.Abs(miss)
			row[c] = y - k*miss
		}
		dk.x[x] += sum
		dk.tol[x] += u * (common + err)
		dk.size[x] += size
		b.remember(k)
		if w.window != nil {
			w.err[w.first+w.each*x] += math.Abs(k) * (err + float64(w.each)*common)
			w.size[w.first+w.each*x] += math.Abs(k) * abs
			b.gated(w, w.first+w.each*x, row, before, st)
		}
	}
}

// gated adds the gradient of a gate in one row of the state: the product of S~ with its gradient.
func (b *backward) gated(w gate, to int, row, before []float64, st *step) {
	root := b.root
	if w.each == 0 {
		root += math.Sqrt(float64(b.o.p.Dim))
	}
	sum, abs, err, size := 0.0, 0.0, 0.0, 0.0
	for c, y := range row {
		s := before[c]
		absY, absS := math.Abs(y), math.Abs(s)
		sum += y * s
		abs += absY * absS
		err += b.errGrad[c]*absS + st.decayed.err(c)*absY
		size += b.normGrad[c]*absS + st.decayed.norm[c]*absY
	}
	w.to.x[to] += sum
	w.to.tol[to] += u * root * abs
	if w.each != 0 { // else the norms of the whole columns count
		w.to.tol[to] += u * err
		w.to.size[to] += size
	}
}

// decayed takes the gradient of the state from S~ to the state before the token.
func (b *backward) decayed(at *token) {
	norm := b.grad.norm
	clear(norm)
	for x := range at.k {
		alpha := 1.0
		if at.decays {
			alpha = at.alpha[x]
		}
		row := b.grad.x[x*b.width:][:b.width]
		for c := range row {
			y := alpha * row[c]
			row[c] = y
			norm[c] += y * y
		}
	}
	roots(norm)
	if !at.decays {
		return
	}
	for c, norm := range norm {
		b.grad.drift[c] = scaled(b.grad.drift[c], at.most) + 2*norm
		b.grad.noise[c] = scaled(b.grad.noise[c], at.most)
	}
}
