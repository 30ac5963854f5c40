package tile

import (
	"math"

	"attnlab/attn"
)

// A Row is one query of a call, answered by definition or from its sums. It lives in a worker's scratch.
type Row struct {
	P       *attn.Problem
	A       *attn.Args
	B, H, I int
	scorer  *attn.Scorer
	out     []float32 // the answer, before it is rounded to the type of Out
}

// NewRow allocates a row of a plan of problem p, which must stay where it is.
func NewRow(p *attn.Problem) Row {
	return Row{P: p, scorer: attn.NewScorer(p), out: make([]float32, p.DimV)}
}

// RowFloats is the number of float32 numbers in a Row.
func RowFloats(p *attn.Problem) int { return attn.ScorerFloats(p) + p.DimV }

// At puts the row on query i of head h in batch entry b.
func (r *Row) At(a *attn.Args, b, h, i int) { r.A, r.B, r.H, r.I = a, b, h, i }

// Query is query i of head h in batch entry b as it meets the keys, and Raw as it is. Both are the row's until its next query.
func (r *Row) Query(a *attn.Args, b, h, i int) []float32 { return r.scorer.Prepared(a, b, i, h) }

// Raw is the query as it is.
func (r *Row) Raw(a *attn.Args, b, h, i int) []float32 { return r.scorer.Raw(a, b, i, h) }

// ByDefinition answers the row a key at a time: for rows with scores that are not numbers, and for those that the blocked loops could not
// keep finite. It visits only keys that the row may see.
func (r *Row) ByDefinition() {
	sc, out := r.scorer, r.out
	sc.Query(r.A, r.B, r.I, r.H)
	temp := r.P.Temperature()
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
	high := float64(top) // the largest score, that of the sink included
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

// scores writes the row's scores, if the call asks for them.
func (r *Row) scores(lo, hi int) {
	to := r.pairs(&r.A.Stats.Scores)
	for j := range to {
		to[j] = -inf
		if lo <= j && j < hi {
			to[j] = r.scorer.Score(j)
		}
	}
}

// weights writes the row's weights, if the call asks for them: of(score) for each key that is not hidden.
func (r *Row) weights(lo, hi int, of func(s float32) float64) {
	to := r.pairs(&r.A.Stats.Weights)
	for j := range to {
		to[j] = 0
		if lo <= j && j < hi {
			if s := r.scorer.Score(j); !(s == -inf) {
				to[j] = float32(of(s))
			}
		}
	}
}

// pairs is the row's part of a tensor that has a number for each key, nil if there is none.
func (r *Row) pairs(t *attn.Tensor) []float32 {
	if t.Data == nil {
		return nil
	}
	at, row := r.A.QRow(r.P, r.B, r.I)
	return t.Row(at, row, r.H)
}

// Write stores the row's answer.
func (r *Row) Write(out []float32) {
	at, row := r.A.QRow(r.P, r.B, r.I)
	r.A.Out.Write(out, at, row, r.H)
}

// FromSums writes the by-products of a row from its reference m, its sum of weights l > 0, and its
// sum s of weights times scores, in base-2 logarithms. The last is not good for a Far row.
func (r *Row) FromSums(m, l, s float64) {
	lse, z := attn.LogSum{Ref: m * math.Ln2, Log: math.Log(l)}, s/l
	r.Stats(lse, z*math.Ln2*r.P.Temperature(), max(lse.Log+(m-z)*math.Ln2, 0))
}

// farLSE is the magnitude of an LSE from which on one float32 no longer holds the log of its sum:
// its last place is 2^-13 below.
const farLSE = 1 << 10

// Far reports whether an LSE, or a z, is so far from 0 that a float32 loses what matters of it. So
// do the sums that Mean and Entropy are made of in base-2 logarithms. Such rows have other ways.
func Far(z float64) bool { return math.Abs(z) > farLSE && !math.IsInf(z, 0) }

// FarSums reports whether the by-products of a row with reference m, and sum s of weights times
// scores, cannot be made from them: ByDefinition makes them. The sum of far scores may have
// overflowed, also where a nearer one has taken all the weight since.
func (r *Row) FarSums(m, s float64) bool {
	return r.P.Want&(attn.WantMean|attn.WantEntropy) != 0 && (Far(m*math.Ln2) || s-s != 0)
}

// Sunk adds the sink of a query head, a key without value, to the sums of a row: the reference is the larger one, and what was summed below the
// other, output included, is to be multiplied by keep.
func Sunk(p *attn.Problem, a *attn.Args, h int, m, l, s float64) (m2, l2, s2, keep float64) {
	switch sink := sinkOf(p, a, h); {
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

// sinkOf returns the sink of a query head in base-2 logarithms, -Inf without one. A far one is
// rounded as a score is, so that a score that equals it has the same weight.
func sinkOf(p *attn.Problem, a *attn.Args, h int) float64 {
	sink := float64(a.Sink(p, h))
	base2 := sink * math.Log2E
	if Far(sink) {
		base2 = max(float64(float32(base2)), -math.MaxFloat32)
	}
	return base2
}

// Stats writes the by-products of a softmax that the call asks for.
func (r *Row) Stats(lse attn.LogSum, mean, entropy float64) {
	s := &r.A.Stats
	if s.LSE.Data != nil {
		at, row := r.A.QRow(r.P, r.B, r.I)
		lse.Write(s.LSE.Row(at, row, r.H))
	}
	r.put(&s.Mean, mean)
	r.put(&s.Entropy, entropy)
}

// Largest writes the largest score and its key, if the call asks for them. What was a base-2
// logarithm may be just beyond the largest float32: it is finite all the same.
func (r *Row) Largest(top float64, key int) {
	if !math.IsInf(top, 0) {
		top = max(min(top, math.MaxFloat32), -math.MaxFloat32)
	}
	r.put(&r.A.Stats.Max, top)
	if list := r.A.Stats.ArgMax; list != nil {
		at, row := r.A.QRow(r.P, r.B, r.I)
		list[(at*r.A.Q.S+row)*r.P.HeadsQ+r.H] = int32(key)
	}
}

func (r *Row) put(t *attn.Tensor, x float64) {
	if t.Data != nil {
		at, row := r.A.QRow(r.P, r.B, r.I)
		t.Row(at, row, r.H)[0] = float32(x)
	}
}
