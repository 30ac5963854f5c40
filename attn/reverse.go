package attn

import "math"

// A Reverse is the definition of a score taken backwards in float32, one query and one key at a time: it hands the gradient of a score on to what
// the score is made of. It is to the backward pass what Scorer is to the forward one.
//
//	Begin    empties the gradients of a call that are sums
//	Query    goes to a query, whose own gradient starts at 0
//	Score    takes in the gradient of the score of a key
//	Done     writes the query's
//	TurnBack comes when all queries are done, and turns dK back
type Reverse struct {
	*Scorer
	g     *Grads
	dq    []float32 // of the query as it meets a key
	bent  []float32 // and before the metric
	draw  []float32 // by its relative positions
	turns []float32 // -sin of a position
}

// ReverseFloats is the number of float32 numbers in a Reverse, its Scorer's included.
func ReverseFloats(p *Problem) int { return ScorerFloats(p) + p.Dim + 2*p.QDim() + turns(p) }

// turns is the most angles that the tables of a problem can have.
func turns(p *Problem) int { return min(p.Dim, p.QDim()) / 2 }

// NewReverse allocates a Reverse for calls of a problem, which must stay where it is.
func NewReverse(p *Problem) *Reverse {
	return &Reverse{
		Scorer: NewScorer(p), dq: make([]float32, p.Dim), bent: make([]float32, p.QDim()), draw: make([]float32, p.QDim()),
		turns: make([]float32, turns(p)),
	}
}

// Begin sets every outgoing gradient that is set to 0.
func (g *Grads) Begin() {
	t := &g.Terms
	for _, o := range [...]*Tensor{&g.Q, &g.K, &g.V, &t.Bias, &t.Relative, &t.Metric} {
		if o.Data == nil {
			continue
		}
		for b := range o.B {
			for s := range o.S {
				for h := range o.H {
					clear(o.Row(b, s, h))
				}
			}
		}
	}
	clear(t.Slopes)
	clear(t.Sinks)
}

// Query goes to query i of head h in batch entry b.
func (r *Reverse) Query(a *Args, g *Grads, b, i, h int) {
	r.Scorer.Query(a, b, i, h)
	r.g = g
	clear(r.dq)
	clear(r.draw)
}

// Score takes in the gradient ds of the finished score of a key that the query sees.
func (r *Reverse) Score(j int, ds float32) {
	p, a, t := r.p, r.a, &r.g.Terms
	if t.Bias.Data != nil {
		off, step := t.Bias.Offset(r.b, r.i, r.h)
		t.Bias.Data[off+j*step] += ds
	}
	if t.Slopes != nil {
		t.Slopes[r.h] -= float32(ds * float32(max(r.pos-j, j-r.pos)))
	}
	k := r.key(j)
	if limit := float32(p.Score.Softcap); limit != 0 {
		x := float32(math.Tanh(float64(r.product(j, k) / limit)))
		ds *= 1 - float32(x*x)
	}
	ds *= r.scale
	add(r.dq, ds, k)
	if dk := r.keyRow(&r.g.K, j); dk != nil {
		add(dk, ds, r.q)
	}
	if p.Score.Terms&TermRelative != 0 {
		row := a.Relative(p, r.b, r.i, j)
		add(r.draw, ds, a.Terms.Relative.Row(0, row, r.h%a.Terms.Relative.H))
		if t.Relative.Data != nil {
			add(t.Relative.Row(0, row, r.h%t.Relative.H), ds, r.raw)
		}
	}
}

// Value adds a multiple of a row to dV of a key.
func (r *Reverse) Value(j int, w float32, row []float32) {
	if dv := r.keyRow(&r.g.V, j); dv != nil {
		add(dv, w, row)
	}
}

// keyRow is the row of a gradient that goes with a key, nil if nobody asks for it.
func (r *Reverse) keyRow(t *Tensor, j int) []float32 {
	if t.Data == nil {
		return nil
	}
	at, row := r.a.KRow(r.p, r.b, j)
	return t.Row(at, row, r.kv)
}

// Done writes the gradient of the query and adds its part to that of the metric.
func (r *Reverse) Done() {
	p, a, dq := r.p, r.a, r.dq
	if p.Score.Terms&TermMetric != 0 {
		turned := r.own.q // the query, turned, before the metric
		copy(turned, r.raw)
		if p.Score.Rope != NoRope {
			r.turn(turned, r.pos)
		}
		g, dg := &a.Terms.Metric, &r.g.Terms.Metric
		for x := range r.bent {
			r.bent[x] = dot(dq, g.Row(0, x, r.h%g.H))
			if dg.Data != nil {
				add(dg.Row(0, x, r.h%dg.H), turned[x], dq)
			}
		}
		dq = r.bent
	}
	if r.g.Q.Data == nil {
		return
	}
	if p.Score.Rope != NoRope {
		r.back(dq, r.pos)
	}
	at, row := a.QRow(p, r.b, r.i)
	to := r.g.Q.Row(at, row, r.h)
	for x := range to {
		to[x] = dq[x] + r.draw[x]
	}
}

// back turns a row back from a position.
func (r *Reverse) back(x []float32, pos int) {
	cos, sin := &r.a.Terms.Cos, &r.a.Terms.Sin
	turns := r.turns[:cos.D]
	for c, s := range sin.Row(r.b%sin.B, pos, 0) {
		turns[c] = -s
	}
	r.p.Score.Rope.Turn(x, cos.Row(r.b%cos.B, pos, 0), turns)
}

// TurnBack turns the gradients of the keys of a key head back, when every query has been done.
func (r *Reverse) TurnBack(a *Args, g *Grads, b, kv int) {
	r.a, r.g, r.b, r.kv = a, g, b, kv
	if r.p.Score.Rope == NoRope || g.K.Data == nil {
		return
	}
	for j := range a.Keys(r.p, b) {
		r.back(r.keyRow(&g.K, j), j)
	}
}

// add is to += w from.
func add(to []float32, w float32, from []float32) {
	for i, x := range from {
		to[i] += float32(w * x)
	}
}
