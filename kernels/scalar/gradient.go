package scalar

import (
	"math"

	"attnlab/attn"
)

// A Gradient passes the gradient of a score on to the operands of the score, one query and one key
// at a time. It is the backward pass of Scorer. For each query call Query, then AddScore and
// AddValue for its keys, then Done. When all queries of a key head are done, call RotateBack.
type Gradient struct {
	*Scorer
	g     *attn.Grads
	dq    []float32 // gradient of the query after rotation and metric
	dqRot []float32 // gradient of the query after rotation, before the metric
	draw  []float32 // gradient of the stored query, from its relative positions
	sines []float32 // -sin of a position
}

// GradientFloats returns the number of float32 numbers in a Gradient, including its Scorer's.
func GradientFloats(p *attn.Problem) int { return ScorerFloats(p) + p.Dim + 2*p.QDim() + angles(p) }

// angles returns the largest number of angles that the rotation tables of a problem can have.
func angles(p *attn.Problem) int { return min(p.Dim, p.QDim()) / 2 }

// NewGradient allocates a Gradient for calls of problem p, to which it keeps a pointer.
func NewGradient(p *attn.Problem) *Gradient {
	return &Gradient{
		Scorer: NewScorer(p), dq: make([]float32, p.Dim), dqRot: make([]float32, p.QDim()), draw: make([]float32, p.QDim()),
		sines: make([]float32, angles(p)),
	}
}

// Query moves to query i of head h in batch entry b, whose gradient starts at 0.
func (r *Gradient) Query(a *attn.Args, g *attn.Grads, b, i, h int) {
	r.Scorer.Query(a, b, i, h)
	r.g = g
	clear(r.dq)
	clear(r.draw)
}

// AddScore adds the contributions of ds to all gradients. ds is the gradient of the finished score
// of key j, which the query sees.
func (r *Gradient) AddScore(j int, ds float32) {
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
	if p.Score.Terms&attn.TermRelative != 0 {
		row := a.Relative(p, r.b, r.i, j)
		add(r.draw, ds, a.Terms.Relative.Row(0, row, r.h%a.Terms.Relative.H))
		if t.Relative.Data != nil {
			add(t.Relative.Row(0, row, r.h%t.Relative.H), ds, r.raw)
		}
	}
}

// AddValue adds w times a row to dV of key j.
func (r *Gradient) AddValue(j int, w float32, row []float32) {
	if dv := r.keyRow(&r.g.V, j); dv != nil {
		add(dv, w, row)
	}
}

// keyRow returns the row of dK or dV of key j, or nil if the call does not want it.
func (r *Gradient) keyRow(t *attn.Tensor, j int) []float32 {
	if t.Data == nil {
		return nil
	}
	at, row := r.a.KRow(r.p, r.b, j)
	return t.Row(at, row, r.kv)
}

// Done writes the gradient of the query and adds its contribution to that of the metric.
func (r *Gradient) Done() {
	p, a, dq := r.p, r.a, r.dq
	if p.Score.Terms&attn.TermMetric != 0 {
		rotated := r.own.q // the query before the metric
		copy(rotated, r.raw)
		if p.Score.Rope != attn.NoRope {
			r.rotate(rotated, r.pos)
		}
		g, dg := &a.Terms.Metric, &r.g.Terms.Metric
		for x := range r.dqRot {
			r.dqRot[x] = dot(dq, g.Row(0, x, r.h%g.H))
			if dg.Data != nil {
				add(dg.Row(0, x, r.h%dg.H), rotated[x], dq)
			}
		}
		dq = r.dqRot
	}
	if r.g.Q.Data == nil {
		return
	}
	if p.Score.Rope != attn.NoRope {
		r.rotateBack(dq, r.pos)
	}
	at, row := a.QRow(p, r.b, r.i)
	to := r.g.Q.Row(at, row, r.h)
	for x := range to {
		to[x] = dq[x] + r.draw[x]
	}
}

// rotateBack undoes the rotation of a row to a position.
func (r *Gradient) rotateBack(x []float32, pos int) {
	cos, sin := &r.a.Terms.Cos, &r.a.Terms.Sin
	sines := r.sines[:cos.D]
	for c, s := range sin.Row(r.b%sin.B, pos, 0) {
		sines[c] = -s
	}
	r.p.Score.Rope.Turn(x, cos.Row(r.b%cos.B, pos, 0), sines)
}

// RotateBack turns dK of a key head from gradients of rotated keys into gradients of the stored
// keys.
func (r *Gradient) RotateBack(a *attn.Args, g *attn.Grads, b, kv int) {
	r.a, r.g, r.b, r.kv = a, g, b, kv
	if r.p.Score.Rope == attn.NoRope || g.K.Data == nil {
		return
	}
	for j := range a.Keys(r.p, b) {
		r.rotateBack(r.keyRow(&g.K, j), j)
	}
}
