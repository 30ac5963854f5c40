package scalar

import (
	"math"

	"attnlab/attn"
)

// A Row writes the results of one query, either computed by definition or from sums that a kernel
// has computed. It is the scratch of one worker.
type Row struct {
	p       *attn.Problem
	a       *attn.Args
	b, i, h int
	scorer  *Scorer
	out     []float32 // the output, before it is rounded to the type of Out
}

// NewRow allocates a Row for calls of problem p, to which it keeps a pointer.
func NewRow(p *attn.Problem) Row {
	return Row{p: p, scorer: NewScorer(p), out: make([]float32, p.DimV)}
}

// RowFloats returns the number of float32 numbers in a Row.
func RowFloats(p *attn.Problem) int { return ScorerFloats(p) + p.DimV }

// At moves the row to query i of head h in batch entry b.
func (r *Row) At(a *attn.Args, b, i, h int) { r.a, r.b, r.i, r.h = a, b, i, h }

// Prepared returns any query after rotation and metric, as Scorer.Prepared does.
func (r *Row) Prepared(a *attn.Args, b, i, h int) []float32 { return r.scorer.Prepared(a, b, i, h) }

// Raw returns any query in float32, before rotation and metric.
func (r *Row) Raw(a *attn.Args, b, i, h int) []float32 { return r.scorer.Raw(a, b, i, h) }

// ByDefinition computes the row one key at a time. Blocked kernels call it for rows with scores
// that are not finite, and for rows whose sums overflowed. It reads only keys that the row may see.
func (r *Row) ByDefinition() {
	sc, out := r.scorer, r.out
	sc.Query(r.a, r.b, r.i, r.h)
	temp := r.p.Temperature()
	clear(out)
	nan := math.NaN()
	top, first, infinite := -inf, -1, 0
	lo, hi := sc.Visible()
	for j := lo; j < hi; j++ {
		s := sc.Score(j)
		if s == inf {
			infinite++
			copy(out, sc.Value(j))
		}
		if s > top {
			first = j
		}
		top = max(top, s) // NaN if one is
	}
	sink := float64(sc.Sink())
	if sink == math.Inf(1) {
		infinite++
	}
	r.scores(lo, hi)
	switch {
	case top != top || sink != sink || infinite > 1:
		for c := range out {
			out[c] = float32(nan)
		}
		r.weights(lo, hi, func(s float32) float64 { return nan })
		r.Write(out)
		r.Stats(attn.LogSum{Ref: nan}, nan, nan)
		r.Largest(nan, -1)
		return
	case infinite == 1:
		r.weights(lo, hi, func(s float32) float64 {
			if s == inf {
				return 1
			}
			return 0
		})
		r.Write(out)
		r.Stats(attn.LogSum{Ref: math.Inf(1)}, math.Inf(1), 0)
		r.Largest(float64(top), first)
		return
	case top == -inf && sink == math.Inf(-1):
		r.weights(lo, hi, nil)
		r.Write(out)
		r.Stats(attn.LogSum{Ref: math.Inf(-1)}, 0, 0)
		r.Largest(float64(top), -1)
		return
	}
	beta := 1 / temp
	if temp == attn.Frozen {
		beta = math.Inf(1)
	}
	high := float64(top) // the largest score, including the sink's
	if sink > math.Inf(-1) {
		high = max(high, sink*temp)
	}
	z := func(s float32) float64 {
		if float64(s) == high {
			return 0 // also where beta is infinite
		}
		return (float64(s) - high) * beta
	}
	sum, mean, meanZ := 0.0, 0.0, 0.0
	if sink > math.Inf(-1) {
		d := sink - high*beta
		sum = math.Exp(d)
		mean, meanZ = sum*sink*temp, sum*d
	}
	for j := lo; j < hi; j++ {
		if s := sc.Score(j); s > -inf {
			d := z(s)
			e := math.Exp(d)
			sum += e
			if e > 0 {
				mean += e * float64(s)
				meanZ += e * d
			}
		}
	}
	for j := lo; j < hi; j++ {
		if s := sc.Score(j); s > -inf {
			w := float32(math.Exp(z(s)) / sum)
			for c, v := range sc.Value(j) {
				out[c] += float32(w * v)
			}
		}
	}
	r.weights(lo, hi, func(s float32) float64 { return math.Exp(z(s)) / sum })
	r.Write(out)
	lse := attn.LogSum{Log: math.Log(sum)}
	entropy := lse.Log - meanZ/sum
	if temp != attn.Frozen {
		lse.Ref = high * beta
	}
	r.Stats(lse, mean/sum, entropy)
	r.Largest(float64(top), first)
}

// scores writes the row's scores, if the call wants them.
func (r *Row) scores(lo, hi int) {
	to := r.pairs(&r.a.Stats.Scores)
	for j := range to {
		to[j] = -inf
		if lo <= j && j < hi {
			to[j] = r.scorer.Score(j)
		}
	}
}

// weights writes of(score) as the weight of each key that is not hidden, if the call wants weights.
func (r *Row) weights(lo, hi int, of func(s float32) float64) {
	to := r.pairs(&r.a.Stats.Weights)
	for j := range to {
		to[j] = 0
		if lo <= j && j < hi {
			if s := r.scorer.Score(j); !(s == -inf) {
				to[j] = float32(of(s))
			}
		}
	}
}

// pairs returns the row of a tensor that has a number for each query and key, or nil without a
// tensor.
func (r *Row) pairs(t *attn.Tensor) []float32 {
	if t.Data == nil {
		return nil
	}
	at, row := r.a.QRow(r.p, r.b, r.i)
	return t.Row(at, row, r.h)
}

// Write stores the row's output.
func (r *Row) Write(out []float32) {
	at, row := r.a.QRow(r.p, r.b, r.i)
	r.a.Out.Write(out, at, row, r.h)
}

// FromSums writes the by-products of a row from its reference m, its sum of weights l > 0, and its
// sum s of weights times scores, in base-2 logarithms. Check FarSums first.
func (r *Row) FromSums(m, l, s float64) {
	lse, z := attn.LogSum{Ref: m * math.Ln2, Log: math.Log(l)}, s/l
	r.Stats(lse, z*math.Ln2*r.p.Temperature(), max(lse.Log+(m-z)*math.Ln2, 0))
}

// farLSE is the magnitude of an LSE above which one float32 no longer holds the logarithm of its
// sum: just below it, the last place is 2^-14.
const farLSE = 1 << 10

// Far reports whether an LSE, or a score over T, is so far from 0 that a float32 loses the
// logarithm of the sum in it. Sums of base-2 logarithms then lose Mean and Entropy too. Kernels
// treat such rows separately.
func Far(z float64) bool { return math.Abs(z) > farLSE && !math.IsInf(z, 0) }

// FarSums reports whether a row with reference m, and sum s of weights times scores, needs
// ByDefinition because FromSums would lose its by-products. The sum of far scores may have
// overflowed, even where a nearer score has since taken all the weight.
func (r *Row) FarSums(m, s float64) bool {
	return r.p.Want&(attn.WantMean|attn.WantEntropy) != 0 && (Far(m*math.Ln2) || s-s != 0)
}

// AddSink adds the sink of a query head, a key without value, to the sums of a row: its reference
// m, its sum of weights l and its sum s of weights times scores, in base-2 logarithms. The new
// reference is the larger of m and the sink. Multiply the output's sum by keep.
func AddSink(p *attn.Problem, a *attn.Args, h int, m, l, s float64) (m2, l2, s2, keep float64) {
	switch sink := Sink(p, a, h); {
	case math.IsInf(sink, -1):
		return m, l, s, 1
	case l == 0 || sink > m:
		keep = 0
		if l > 0 {
			keep = math.Exp2(m - sink)
		}
		return sink, l*keep + 1, s*keep + sink, keep
	default:
		w := math.Exp2(sink - m)
		return m, l + w, s + w*sink, 1
	}
}

// Sink returns the sink of a query head as a base-2 logarithm, or -Inf without one. A far sink is
// rounded as a score is, so that a score equal to it has the same weight.
func Sink(p *attn.Problem, a *attn.Args, h int) float64 {
	sink := float64(a.Sink(p, h))
	base2 := sink * math.Log2E
	if Far(sink) {
		base2 = max(float64(float32(base2)), -math.MaxFloat32)
	}
	return base2
}

// Stats writes LSE, mean and entropy, if the call wants them.
func (r *Row) Stats(lse attn.LogSum, mean, entropy float64) {
	s := &r.a.Stats
	if s.LSE.Data != nil {
		at, row := r.a.QRow(r.p, r.b, r.i)
		lse.Write(s.LSE.Row(at, row, r.h))
	}
	r.put(&s.Mean, mean)
	r.put(&s.Entropy, entropy)
}

// Largest writes the largest score and its key, if the call wants them. A score that was a base-2
// logarithm can come out just beyond the largest float32, and is written as that.
func (r *Row) Largest(top float64, key int) {
	if !math.IsInf(top, 0) {
		top = max(min(top, math.MaxFloat32), -math.MaxFloat32)
	}
	r.put(&r.a.Stats.Max, top)
	if list := r.a.Stats.ArgMax; list != nil {
		at, row := r.a.QRow(r.p, r.b, r.i)
		list[(at*r.a.Q.S+row)*r.p.HeadsQ+r.h] = int32(key)
	}
}

// put writes a number of the row, if the call has a tensor for it.
func (r *Row) put(t *attn.Tensor, x float64) {
	if t.Data != nil {
		at, row := r.a.QRow(r.p, r.b, r.i)
		t.Row(at, row, r.h)[0] = float32(x)
	}
}
