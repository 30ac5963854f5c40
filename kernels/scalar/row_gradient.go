package scalar

import (
	"math"

	"attnlab/attn"
)

// A RowGradient computes the gradients of one query and all its keys by definition. It reads only
// keys that the query may see. At moves it to a query and sets its exported fields.
type RowGradient struct {
	p     *attn.Problem
	inner func(x, y []float32) float32
	pair  *Gradient

	a          *attn.Args
	g          *attn.Grads
	b, i, h    int
	batch, row int       // the query's batch entry and row in Q
	dout       []float32 // nil: 0

	LSE               float32
	Entropy, DEntropy float32 // 0 without a gradient of the entropy
	Delta             float64 // dO . O - dLSE
}

// NewRowGradient allocates a RowGradient for calls of problem p, to which it keeps a pointer. inner
// returns x . y. It must add in the order in which the caller computes dO . O, so that the gradient
// of a score that has all the weight comes out as 0.
func NewRowGradient(p *attn.Problem, inner func(x, y []float32) float32) *RowGradient {
	return &RowGradient{p: p, inner: inner, pair: NewGradient(p)}
}

// RowGradientFloats returns the number of float32 numbers in a RowGradient.
func RowGradientFloats(p *attn.Problem) int { return GradientFloats(p) }

// At moves to query i of head h in batch entry b, whose dO . O is incoming.
func (r *RowGradient) At(a *attn.Args, g *attn.Grads, b, i, h int, incoming float32) {
	r.a, r.g, r.b, r.i, r.h = a, g, b, i, h
	r.batch, r.row = a.QRow(r.p, b, i)
	r.dout, r.LSE, r.Entropy, r.DEntropy = nil, float32(a.Stats.LSE.LogSum(r.batch, r.row, h).Value()), 0, 0
	r.Delta = float64(incoming) - float64(r.number(&g.LSE))
	if g.Out.Data != nil {
		r.dout = g.Out.Row(r.batch, r.row, h)
	}
	if g.Entropy.Data != nil {
		r.Entropy, r.DEntropy = r.number(&a.Stats.Entropy), r.number(&g.Entropy)
	}
}

// number returns the query's number of a tensor that has one for each query, or 0 without a tensor.
func (r *RowGradient) number(t *attn.Tensor) float32 {
	if t.Data == nil {
		return 0
	}
	return t.Row(r.batch, r.row, r.h)[0]
}

// Sound reports whether blocked loops can compute the query. All its numbers must be finite, except
// the LSE of a query that sees no key, and no score may be too large for a base-2 logarithm. A
// gradient that is not finite shows in dO . O. Set known if the query itself is known to be finite;
// else Sound reads it.
func (r *RowGradient) Sound(known bool) bool {
	delta, h := float32(r.Delta), r.Entropy+r.DEntropy
	return r.LSE <= 0x1p127 && delta-delta == 0 && h-h == 0 && (known || finite(r.a.Q.Row(r.batch, r.row, r.h)))
}

// AddAll adds the query's contributions to all gradients. It visits its keys three times: for the
// largest score, for the sum of weights, and for the gradients. It computes the sum again because
// the LSE is rounded: where float32 holds no fractions of the scores, weights computed from it
// would be 0 or 1.
func (r *RowGradient) AddAll() {
	pair := r.pair
	pair.Query(r.a, r.g, r.b, r.i, r.h)
	lo, hi := pair.Visible()
	z := func(j int) float64 { return float64(pair.Score(j)) / r.p.Temperature() }
	sink := float64(pair.Sink())
	top, sum := sink, 0.0
	for j := lo; j < hi; j++ {
		top = max(top, z(j)) // NaN if one is
	}
	weight := func(z float64) float64 {
		if z == top {
			return 1 - (top - top) // NaN at an infinity
		}
		return math.Exp(z - top)
	}
	if !math.IsInf(top, -1) {
		sum = weight(sink)
		for j := lo; j < hi; j++ {
			sum += weight(z(j))
		}
	}
	slope := func(w, z, d float64) float64 { // dZ
		d -= r.Delta
		if r.DEntropy != 0 && w != 0 {
			d -= float64(r.DEntropy) * (z - top - math.Log(sum) + float64(r.Entropy))
		}
		return w * d
	}
	for j := lo; j < hi; j++ {
		z, d := z(j), 0.0
		if math.IsInf(z, -1) {
			continue
		}
		w := weight(z) / sum
		if r.dout != nil {
			d = float64(r.inner(r.dout, pair.Value(j)))
			pair.AddValue(j, float32(w), r.dout)
		}
		pair.AddScore(j, float32(slope(w, z, d)/r.p.Temperature()))
	}
	if r.g.Terms.Sinks != nil && sum != 0 {
		if w := weight(sink) / sum; w != 0 {
			r.g.Terms.Sinks[r.h] += float32(slope(w, sink, 0))
		}
	}
	pair.Done()
}

// RotateBack turns dK of a key head from gradients of rotated keys into gradients of the stored
// keys. Call it when all queries are done.
func (r *RowGradient) RotateBack(a *attn.Args, g *attn.Grads, b, kv int) {
	r.pair.RotateBack(a, g, b, kv)
}
