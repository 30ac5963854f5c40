package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// A Reverse is the backward pass by definition, a query and a key at a time: for queries whose numbers are not finite, and what comes after all others.
// It visits only keys that a query may see. It stands on one query at a time.
type Reverse struct {
	p     *attn.Problem
	ops   *asm.Ops
	r     *attn.Reverse
	sines []float32 // of angles that turn back
	scale []float32 // of rows of dK
	panel asm.Panel
	one   [1]float32

	a                 *attn.Args
	g                 *attn.Grads
	b, h, i           int
	batch, row        int
	dout              []float32 // nil: 0
	LSE               float32
	Entropy, DEntropy float32 // 0, if there is no such gradient
	Less              float64 // dO . O - dLSE
}

// angles is the most that the tables of a problem can have.
func angles(p *attn.Problem) int {
	if p.Score.Rope == attn.NoRope {
		return 0
	}
	return min(p.QDim(), p.Dim) / 2
}

// ReverseFloats is the number of float32 numbers in a Reverse.
func ReverseFloats(p *attn.Problem) int { return attn.ReverseFloats(p) + angles(p) + finishAtOnce }

// finishAtOnce is the number of rows of dK that Finish scales, and looks at, before it goes on to the next.
const finishAtOnce = 64

// NewReverse allocates a Reverse of a plan of problem p, which must stay where it is.
func NewReverse(p *attn.Problem, ops *asm.Ops) *Reverse {
	return &Reverse{p: p, ops: ops, r: attn.NewReverse(p), sines: make([]float32, angles(p)), scale: make([]float32, finishAtOnce)}
}

// At goes to query i of head h in batch entry b.
func (r *Reverse) At(a *attn.Args, g *attn.Grads, b, h, i int) *Reverse {
	r.Incoming(r.one[:], a, g, b, h, i)
	return r.with(r.one[0], a, g, b, h, i)
}

// Incoming fills dO . O of queries from i on: 0, if the rows have no gradient.
func (r *Reverse) Incoming(to []float32, a *attn.Args, g *attn.Grads, b, h, i int) {
	clear(to)
	if batch, row := a.QRow(r.p, b, i); g.Out.Data != nil {
		r.ops.Inner(to, From(&g.Out, batch, row, h), From(&a.Out, batch, row, h), r.p.DimV)
	}
}

// with is At for a query whose dO . O is known.
func (r *Reverse) with(incoming float32, a *attn.Args, g *attn.Grads, b, h, i int) *Reverse {
	r.a, r.g, r.b, r.h, r.i = a, g, b, h, i
	r.batch, r.row = a.QRow(r.p, b, i)
	r.dout, r.LSE, r.Entropy, r.DEntropy = nil, float32(a.Stats.LSE.LogSum(r.batch, r.row, h).Value()), 0, 0
	r.Less = float64(incoming) - float64(r.number(&g.LSE))
	if g.Out.Data != nil {
		r.dout = g.Out.Row(r.batch, r.row, h)
	}
	if g.Entropy.Data != nil {
		r.Entropy, r.DEntropy = r.number(&a.Stats.Entropy), r.number(&g.Entropy)
	}
	return r
}

// number is the query's in a tensor that has one a row.
func (r *Reverse) number(t *attn.Tensor) float32 {
	if t.Data == nil {
		return 0
	}
	return t.Row(r.batch, r.row, r.h)[0]
}

// Sound is whether all numbers of the query are finite, but for the LSE of one that sees no key,
// and no score is too large for a base-2 logarithm. Its own row is looked at if it is not known to
// be; a gradient that is not finite shows in dO . O.
func (r *Reverse) Sound(row bool) bool {
	less, h := float32(r.Less), r.Entropy+r.DEntropy
	return r.LSE <= 0x1p127 && less-less == 0 && h-h == 0 && (row || r.ops.Finite(r.a.Q.Row(r.batch, r.row, r.h)))
}

// Finite is whether n rows of a tensor that has float32 numbers, or none at all, are finite.
func Finite(ops *asm.Ops, t *attn.Tensor, batch, row, h, n int) bool {
	if t.Data == nil || n == 0 || t.D == 0 {
		return true
	}
	if x := t.Data[batch*t.SB+row*t.SS+h*t.SH:]; t.SS == t.D {
		return ops.Finite(x[:n*t.D])
	}
	for i := range n {
		if !ops.Finite(t.Row(batch, row+i, h)) {
			return false
		}
	}
	return true
}

// Finish makes the rows of dK of a key head what they are to be, once all tiles are done: it multiplies them by what the loops have left out, adds what
// unsound queries give, if there are any, and turns them back. It is false if the loops have left numbers that are not finite.
func (r *Reverse) Finish(a *attn.Args, g *attn.Grads, b, kv int, queries bool) (sound bool) {
	p, group, factor := r.p, r.p.Group(), float32(r.p.Scale()/r.p.Temperature())
	n := a.Keys(p, b)
	at, row := a.KRow(p, b, 0)
	sound = Finite(r.ops, &g.V, at, row, kv, n)
	fill(r.scale, factor)
	for j := 0; j < n && g.K.Data != nil; j += len(r.scale) {
		x, rows := From(&g.K, at, row+j, kv), min(len(r.scale), n-j)
		r.panel = asm.Panel{N: rows, C: g.K.D, X: x.Data, XStr: x.Stride, Scale: r.scale}
		r.ops.Outer(&r.panel)
		sound = Finite(r.ops, &g.K, at, row+j, kv, rows) && sound
	}
	for h := kv * group; h < (kv+1)*group && !queries; h++ {
		for i := range a.Queries(p, b) {
			if !r.At(a, g, b, h, i).Sound(false) {
				r.byDefinition()
			}
		}
	}
	r.r.TurnBack(a, g, b, kv)
	return sound
}

// ByDefinition adds what all queries of a key head give.
func (r *Reverse) ByDefinition(a *attn.Args, g *attn.Grads, b, kv int) {
	group := r.p.Group()
	for h := kv * group; h < (kv+1)*group; h++ {
		for i := range a.Queries(r.p, b) {
			r.At(a, g, b, h, i).byDefinition()
		}
	}
	r.r.TurnBack(a, g, b, kv)
}

// byDefinition goes through the keys of the query three times: for the largest score, for the sum of weights, and for the gradients. It does without the
// LSE, which is rounded: where scores are so large that float32 holds no fractions of them, weights would be all or nothing.
func (r *Reverse) byDefinition() {
	r.r.Query(r.a, r.g, r.b, r.i, r.h)
	lo, hi := r.r.Visible()
	z := func(j int) float64 { return float64(r.r.Scorer.Score(j)) / r.p.Temperature() }
	sink := float64(r.a.Sink(r.p, r.h))
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
		d -= r.Less
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
			r.ops.Inner(r.one[:], asm.Rows{Data: r.dout}, asm.Rows{Data: r.r.Scorer.Value(j)}, len(r.dout))
			d = float64(r.one[0])
			r.r.Value(j, float32(w), r.dout)
		}
		r.r.Score(j, float32(slope(w, z, d)/r.p.Temperature()))
	}
	if r.g.Terms.Sinks != nil && sum != 0 {
		if w := weight(sink) / sum; w != 0 {
			r.g.Terms.Sinks[r.h] += float32(slope(w, sink, 0))
		}
	}
	r.r.Done()
}

// turnBack undoes the rotation of a row to a position of the batch entry at hand.
func (r *Reverse) turnBack(row []float32, pos int) {
	cos, sin := &r.a.Terms.Cos, &r.a.Terms.Sin
	back := r.sines[:sin.D]
	for i, x := range sin.Row(r.b%sin.B, pos, 0) {
		back[i] = -x
	}
	r.ops.Rotate(row, cos.Row(r.b%cos.B, pos, 0), back, r.p.Score.Rope == attn.RopeInterleaved)
}
