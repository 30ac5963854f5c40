package kernels_test

import (
	"math"

	"attnlab/attn"
)

// This file defines linear attention with a rule or a state, token by token. Like the rest of the
// definition it is written from the doc of package attn alone.
//
// The delta rule feeds the state's error back into the state. Elementwise bounds of such a loop
// grow exponentially, although the map I - beta k k^T does not lengthen a vector. So the error of a
// column of the state is bounded by the length of its error vector.

// gateRounding bounds the relative error of one gate: the exponential, and its part in products of
// gates.
const gateRounding = 8 * rounding

// A column is one column of a state or of its gradient.
type column struct {
	x    []float64
	size []float64 // sums of the sizes of the terms of x
	err  float64   // bound of the length of the error of x
}

func (c column) clone() column {
	return column{append([]float64(nil), c.x...), append([]float64(nil), c.size...), c.err}
}

// clones returns copies of columns.
func clones(all []column) []column {
	to := make([]column, len(all))
	for j, c := range all {
		to[j] = c.clone()
	}
	return to
}

// number returns an element of a column.
func (c column) number(i int) number { return number{c.x[i], c.err, c.size[i]} }

// A vector is a row of features, with the lengths of itself and of its error.
type vector struct {
	row           []number
	length, error float64
}

func vectorOf(row []number) vector {
	v := vector{row: row}
	for _, x := range row {
		v.length, v.error = v.length+x.x*x.x, v.error+x.err*x.err
	}
	v.length, v.error = math.Sqrt(v.length), math.Sqrt(v.error)
	return v
}

func lengthOf(x []float64) float64 {
	sum := 0.0
	for _, y := range x {
		sum += y * y
	}
	return math.Sqrt(sum)
}

// dot returns the product with a column, a sum that a kernel may add up over n numbers. local
// leaves out the error of the column.
func (v vector) dot(c column, n int) (all, local number) {
	for i, x := range v.row {
		local.x += x.x * c.x[i]
		local.size += math.Abs(x.x) * c.size[i]
	}
	local.err = v.error*lengthOf(c.size) + growth(n)*rounding*local.size
	all = local
	all.err += v.length * c.err
	return all, local
}

// gated multiplies rows of a column by gates.
func (c *column) gated(alpha []float64) {
	most := 0.0
	for i, a := range alpha {
		c.x[i], c.size[i], most = c.x[i]*a, c.size[i]*a, max(most, a)
	}
	c.err = c.err*most + gateRounding*lengthOf(c.size)
}

// add adds v y. The error of y that came from the column itself is not in y.err.
func (c *column) add(v vector, y number) {
	for i, x := range v.row {
		c.x[i] += x.x * y.x
		c.size[i] += math.Abs(x.x * y.x)
	}
	c.err += v.length*y.err + v.error*math.Abs(y.x) + 3*rounding*lengthOf(c.size)
}

// contract multiplies the error by the largest factor of I - beta k k^T.
func (c *column) contract(beta float64, k vector) {
	c.err *= max(1, math.Abs(1-beta*k.length*k.length))
}

// A token is one step of a recurrence. Columns of normalised problems end with that of z.
type token struct {
	k, v    vector // features of K; values, followed by 1 for z
	alpha   []float64
	beta    number
	decayed []column // the state after the gate
	after   []column // the state after the write
	w, u    []number // v - S^T k, or v without the delta rule; beta w
}

// A recurrence is a state head.
type recurrence struct {
	*reference
	b, s, kv, vh int
	n            int // rows that a sum may have
	columns      int
	tokens       []token
}

// recurs reports whether the call is defined token by token.
func (r *reference) recurs() bool {
	l, a := r.p.Linear, r.a
	return r.p.Op == attn.OpLinear &&
		(l.Gate != attn.NoGate || l.Delta || a.StateIn != nil || a.StateOut != nil || r.g != nil && (r.g.StateIn != nil || r.g.StateOut != nil))
}

// valueHeads returns the number of heads of V.
func (r *reference) valueHeads() int {
	if n := r.p.Linear.HeadsV; n != 0 {
		return n
	}
	return r.p.HeadsKV
}

// outHeads returns the number of heads of Out.
func (r *reference) outHeads() int { return max(r.p.HeadsQ, r.p.Linear.HeadsV) }

// stateHeads returns the number of pairs of a key head and a value head.
func (r *reference) stateHeads() int { return max(r.p.HeadsKV, r.valueHeads()) }

// stateAt returns the index of an element of a state head in a state of the whole batch.
func (c *recurrence) stateAt(i, j int) int {
	p := c.p
	head := (c.b*c.stateHeads()+c.s)*p.Dim + i
	if j < p.DimV {
		return head*p.DimV + j
	}
	return p.Batch*c.stateHeads()*p.Dim*p.DimV + head
}

// stateLen returns the length of a state.
func (r *reference) stateLen() int {
	n := r.p.DimV
	if !r.p.Linear.Unnormalised {
		n++
	}
	return r.p.Batch * r.stateHeads() * r.p.Dim * n
}

// state returns the columns of a state of the whole batch, or zeros.
func (c *recurrence) state(from []float32) []column {
	to := make([]column, c.columns)
	for j := range to {
		to[j] = column{x: make([]float64, c.p.Dim), size: make([]float64, c.p.Dim)}
		for i := range to[j].x {
			if from != nil {
				x := float64(from[c.stateAt(i, j)])
				to[j].x[i], to[j].size[i] = x, math.Abs(x)
			}
		}
	}
	return to
}

// keep writes columns to state number slot of an output.
func (c *recurrence) keep(o *output, slot int, from []column) {
	if o == nil {
		return
	}
	for j := range from {
		for i := range from[j].x {
			o.numbers[slot*c.stateLen()+c.stateAt(i, j)] = from[j].number(i)
		}
	}
}

// recur computes one state head of a batch entry.
func (r *reference) recur(b, s int) {
	p := r.p
	c := &recurrence{reference: r, b: b, s: s, kv: s * p.HeadsKV / r.stateHeads(), vh: s * r.valueHeads() / r.stateHeads(), columns: p.DimV}
	if !p.Linear.Unnormalised {
		c.columns++
	}
	tokens := r.keys(b)
	c.n = p.Dim + tokens
	states := [][]column{c.state(r.a.StateIn)}
	for t := range tokens {
		states = append(states, c.forward(t, clones(states[t])))
	}
	for slot := range max(1, p.Linear.Snapshots) {
		c.keep(r.stateOut, slot, states[max(tokens-slot, 0)])
	}
	if r.g != nil {
		c.backward(c.state(r.g.StateOut))
	}
}

// forward computes a token and returns the state after it.
func (c *recurrence) forward(t int, state []column) []column {
	p, a := c.p, c.a
	batch, row := c.keyPlace(c.b, t)
	x := token{k: vectorOf(c.features(numbersOf(&a.K, batch, row, c.kv))), beta: number{x: 1, size: 1}}
	values := numbersOf(&a.V, batch, row, c.vh)
	if !p.Linear.Unnormalised {
		values = append(values, number{x: 1, size: 1})
	}
	x.v = vectorOf(values)
	if p.Linear.Gate != attn.NoGate {
		x.alpha = make([]float64, p.Dim)
		for i := range x.alpha {
			x.alpha[i] = math.Exp(float64(a.Terms.Decay.Row(batch, row, c.vh)[broadcast(i, a.Terms.Decay.D)]))
		}
	}
	if p.Linear.Delta {
		x.beta = operand(a.Terms.Beta.Row(batch, row, broadcast(c.vh, a.Terms.Beta.H))[0])
	}
	for j := range state {
		if x.alpha != nil {
			state[j].gated(x.alpha)
		}
		x.decayed = append(x.decayed, state[j].clone())
		w, local := x.v.row[j], x.v.row[j]
		if p.Linear.Delta {
			back, own := x.k.dot(state[j], c.n)
			w, local = w.minus(back), local.minus(own)
			state[j].contract(x.beta.x, x.k)
		}
		state[j].add(x.k, x.beta.times(local))
		x.w, x.u = append(x.w, w), append(x.u, x.beta.times(w))
	}
	x.after = clones(state)
	c.tokens = append(c.tokens, x)
	c.eachOut(func(h, _ int) {
		batch, row := c.place(c.b, t)
		out, _ := c.read(t, h)
		copy(c.out.row(batch, row, h), out)
	})
	return state
}

// eachOut calls f for the heads of Out that read the state head, with their heads of Q.
func (c *recurrence) eachOut(f func(h, q int)) {
	group := c.outHeads() / c.stateHeads()
	for h := c.s * group; h < (c.s+1)*group; h++ {
		f(h, h*c.p.HeadsQ/c.outHeads())
	}
}

// query returns the features of a row of Q.
func (c *recurrence) query(t, q int) vector {
	batch, row := c.place(c.b, t)
	return vectorOf(c.features(numbersOf(&c.a.Q, batch, row, q)))
}

// read returns a row of head h of Out after token t, and the factor of the sums over the state: the
// scale, or 1 over the normaliser.
func (c *recurrence) read(t, h int) (out []number, factor number) {
	p := c.p
	q := c.query(t, h*p.HeadsQ/c.outHeads())
	sums := make([]number, c.columns)
	for j, s := range c.tokens[t].after {
		sums[j], _ = q.dot(s, c.n)
	}
	factor = rounded(c.scale())
	if !p.Linear.Unnormalised {
		factor = (number{x: 1, size: 1}).over(sums[p.DimV].plus(rounded(p.Linear.Eps)))
	}
	for _, x := range sums[:p.DimV] {
		out = append(out, x.times(factor))
	}
	return out, factor
}

// products returns sum_j x_j y_j of two rows, where y may be columns' elements.
func products(n int, x, y []number) number {
	var t number
	for j := range x {
		z := x[j].times(y[j])
		t.x, t.err, t.size = t.x+z.x, t.err+z.err, t.size+z.size
	}
	t.err += growth(n+len(x)) * rounding * t.size
	return t
}

// rowOf returns row i of columns.
func rowOf(columns []column, i int) []number {
	to := make([]number, len(columns))
	for j, c := range columns {
		to[j] = c.number(i)
	}
	return to
}

// backward walks the tokens from the last to the first. g is the gradient of the state after the
// last one.
func (c *recurrence) backward(g []column) {
	p, r := c.p, c.reference
	// A kernel may compute a decay's gradient as a sum over later tokens, of terms that cancel.
	cancelled := make([]float64, p.Dim)
	for t := len(c.tokens) - 1; t >= 0; t-- {
		x := &c.tokens[t]
		if t == len(c.tokens)-1 {
			for i := range cancelled {
				y := products(c.n, rowOf(g, i), rowOf(x.after, i))
				cancelled[i] = y.err + growth(c.n)*rounding*y.size
			}
		}
		c.eachOut(func(h, q int) { c.queryBack(t, h, q, g, cancelled) })
		batch, row := c.keyPlace(c.b, t)
		dV, dW := make([]number, c.columns), make([]number, c.columns)
		var dBeta number
		for j := range g {
			du, local := x.k.dot(g[j], c.n)
			dV[j], dW[j] = x.beta.times(du), x.beta.times(local)
			y := du.times(x.w[j])
			dBeta.x, dBeta.err, dBeta.size = dBeta.x+y.x, dBeta.err+y.err+growth(c.n)*rounding*y.size, dBeta.size+y.size
			if j < p.DimV {
				r.dV.add(batch, row, c.vh, j, dV[j])
			}
		}
		dF := make([]number, p.Dim)
		for i := range dF {
			dF[i] = products(c.n, rowOf(g, i), x.u)
			if p.Linear.Delta {
				dF[i] = dF[i].minus(products(c.n, rowOf(x.decayed, i), dV))
			}
			k := x.k.row[i]
			cancelled[i] += math.Abs(k.x)*dF[i].err + (k.err+growth(c.n)*rounding*math.Abs(k.x))*dF[i].size
		}
		for d, y := range c.featureBack(numbersOf(&c.a.K, batch, row, c.kv), dF) {
			r.dK.add(batch, row, c.kv, d, y)
		}
		if p.Linear.Delta {
			r.dBeta.add(batch, row, broadcast(c.vh, c.a.Terms.Beta.H), 0, dBeta)
			for j := range g {
				g[j].contract(x.beta.x, x.k)
				g[j].add(x.k, number{-dW[j].x, dW[j].err, dW[j].size})
			}
		}
		if x.alpha == nil {
			continue
		}
		for i := range p.Dim {
			y := products(c.n, rowOf(g, i), rowOf(x.decayed, i))
			y.err += cancelled[i] + gateRounding*y.size
			r.dDecay.add(batch, row, c.vh, broadcast(i, c.a.Terms.Decay.D), y)
		}
		for j := range g {
			g[j].gated(x.alpha)
		}
	}
	c.keep(r.dStateIn, 0, g)
}

// queryBack adds the part of head h of Out to the gradients of Q and of the state after token t.
func (c *recurrence) queryBack(t, h, q int, g []column, cancelled []float64) {
	p := c.p
	batch, row := c.place(c.b, t)
	out, factor := c.read(t, h)
	dOut := incoming(&c.g.Out, batch, row, h, p.DimV)
	dN := make([]number, c.columns)
	for j, y := range dOut {
		dN[j] = y.times(factor)
	}
	if !p.Linear.Unnormalised {
		y := dot(dOut, out).times(factor)
		dN[p.DimV] = number{-y.x, y.err, y.size}
	}
	x, f := &c.tokens[t], c.query(t, q)
	dF := make([]number, p.Dim)
	for i := range dF {
		dF[i] = products(c.n, rowOf(x.after, i), dN)
		y := f.row[i]
		cancelled[i] += math.Abs(y.x)*dF[i].err + (y.err+growth(c.n)*rounding*math.Abs(y.x))*dF[i].size
	}
	for d, y := range c.featureBack(numbersOf(&c.a.Q, batch, row, q), dF) {
		c.dQ.add(batch, row, q, d, y)
	}
	for j := range g {
		g[j].add(f, dN[j])
	}
}

// rule draws a linear problem with a rule or a state.
func (d drawer) rule() trial {
	p := attn.Problem{Op: attn.OpLinear, Batch: 1 + d.IntN(2), SeqQ: d.size(100), Dim: d.size(40), DimV: d.size(40), Mask: pick(d, attn.Causal(), attn.CausalTopLeft())}
	p.SeqKV, p.Ragged = p.SeqQ, d.oneIn(4)
	heads := pick(d, [3]int{1, 1, 0}, [3]int{4, 2, 0}, [3]int{2, 2, 2}, [3]int{2, 2, 4}, [3]int{1, 1, 3}, [3]int{4, 2, 4}, [3]int{4, 4, 2}, [3]int{2, 1, 2})
	p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = heads[0], heads[1], heads[2]
	l := &p.Linear
	l.Gate, l.Delta = pick(d, attn.NoGate, attn.HeadGate, attn.KeyGate), d.oneIn(2)
	l.Norm = pick(d, attn.NoNorm, attn.NormSum, attn.NormMax)
	if l.Norm != attn.NoNorm {
		l.NormEps = pick(d, 0, 1e-6, 0.5, 3)
	}
	l.Feature = pick(d, attn.Identity, attn.EluPlusOne, attn.ReluPlusOne)
	switch l.Unnormalised = true; {
	case l.Delta: // the square of the length of a key's features times beta must stay below 2
		l.Feature = attn.Identity
	case l.Gate != attn.KeyGate && l.Feature != attn.Identity:
		l.Unnormalised = d.oneIn(2)
	}
	if l.Snapshots = pick(d, 0, 2, 3, 5); d.oneIn(2) {
		l.Snapshots, p.Want = 0, attn.WantGrad
	}
	p.Score.Scale = pick(d, 0, 0, 1, -0.3)
	x := trial{p: p, a: d.ruleArgs(&p)}
	d.grads(&x)
	return x
}

// ruleArgs draws the operands of a problem with a rule or a state.
func (d drawer) ruleArgs(p *attn.Problem) *attn.Args {
	a := &attn.Args{}
	batch, n := p.Batch, p.SeqQ
	if d.oneIn(4) {
		n = 1 + d.IntN(n)
	}
	if p.Ragged {
		batch, a.QStart = 1, d.starts(p.Batch, p.SeqQ)
		a.KStart, n = a.QStart, int(a.QStart[p.Batch])+d.IntN(3)
	}
	r := &reference{p: p, a: a}
	// Rows that belong to no sequence are NaN.
	fill := func(to *attn.Tensor, h, width int, draw func(row []float32)) {
		*to = d.typed(attn.F32, batch, n, h, width)
		for b := range p.Batch {
			rows := n
			if p.Ragged {
				rows = int(a.QStart[b+1] - a.QStart[b])
			}
			for i := range rows {
				at, row := r.place(b, i)
				for h := range h {
					draw(to.Row(at, row, h))
				}
			}
		}
	}
	normal := func(row []float32) { d.normal(row) }
	key, draw := normal, func(of func() float64) func([]float32) {
		return func(row []float32) {
			for i := range row {
				row[i] = float32(of())
			}
		}
	}
	if p.Linear.Delta && p.Linear.Norm == attn.NoNorm {
		key = func(row []float32) {
			sum := 0.0
			for _, x := range d.normal(row) {
				sum += float64(x) * float64(x)
			}
			for i := range row {
				row[i] /= float32(math.Sqrt(sum))
			}
		}
	}
	fill(&a.Q, p.HeadsQ, p.Dim, normal)
	fill(&a.K, p.HeadsKV, p.Dim, key)
	fill(&a.V, r.valueHeads(), p.DimV, normal)
	a.Out = attn.New(d.layout(), batch, n, r.outHeads(), p.DimV)
	most := pick(d, 0.05, 1, 20)
	gate := draw(func() float64 { return -most * d.Float64() })
	switch {
	case p.Linear.Gate == attn.HeadGate && d.oneIn(4):
		g := make([]float32, r.valueHeads())
		gate(g)
		a.Terms.Decay = attn.ConstantDecay(g, batch, n)
	case p.Linear.Gate == attn.HeadGate:
		fill(&a.Terms.Decay, r.valueHeads(), 1, gate)
	case p.Linear.Gate == attn.KeyGate:
		fill(&a.Terms.Decay, r.valueHeads(), p.Dim, gate)
	}
	if p.Linear.Delta {
		to := pick(d, 1.0, 2.0)
		fill(&a.Terms.Beta, pick(d, 1, r.valueHeads()), 1, draw(func() float64 { return to / (1 + math.Exp(d.NormFloat64())) }))
	}
	rule := p.Linear.Gate != attn.NoGate || p.Linear.Delta
	if d.oneIn(2) {
		a.StateIn = d.normal(make([]float32, r.stateLen()))
		for i := p.Batch * r.stateHeads() * p.Dim * p.DimV; i < len(a.StateIn); i++ { // z
			a.StateIn[i] = float32(math.Abs(float64(a.StateIn[i])))
		}
	}
	if !rule || p.Linear.Snapshots > 1 || !d.oneIn(3) {
		a.StateOut = make([]float32, max(1, p.Linear.Snapshots)*r.stateLen())
	}
	return a
}
