package scalar

import (
	"math"

	"attnlab/attn"
)

// A Scorer computes the score of a query and a key by definition.
//
//	q' = (R_i q_i) g    with rotation R and metric g, where the problem has them
//	s_j = softcap(scale * q' . (R_j k_j) + scale * q_i . r_ij) - slope |pos_i-j| + bias_ij
type Scorer struct {
	p           *attn.Problem
	a           *attn.Args
	b, i, h, kv int
	pos         int
	scale       float32
	lowest      float32
	raw         []float32 // the query before rotation and metric
	q           []float32 // the query after rotation and metric
	own         struct{ raw, q, prepared, k, v []float32 }
}

// ScorerFloats returns the number of float32 numbers in a Scorer.
func ScorerFloats(p *attn.Problem) int { return 2*(p.QDim()+p.Dim) + p.DimV }

// NewScorer allocates a Scorer for calls of problem p, to which it keeps a pointer.
func NewScorer(p *attn.Problem) *Scorer {
	s := &Scorer{p: p, scale: float32(p.Scale()), lowest: p.Lowest()}
	for _, r := range [...]struct {
		row *[]float32
		n   int
	}{{&s.own.raw, p.QDim()}, {&s.own.q, p.QDim()}, {&s.own.prepared, p.Dim}, {&s.own.k, p.Dim}, {&s.own.v, p.DimV}} {
		*r.row = make([]float32, r.n)
	}
	return s
}

// Query moves to query i of head h in batch entry b.
func (s *Scorer) Query(a *attn.Args, b, i, h int) {
	p, t := s.p, &a.Terms
	s.a, s.b, s.i, s.h, s.kv = a, b, i, h, h/p.Group()
	s.pos = a.Pos(p, b) + i
	s.raw = s.Raw(a, b, i, h)
	s.q = s.raw
	if p.Score.Rope != attn.NoRope {
		copy(s.own.q, s.raw)
		s.q = s.own.q
		s.rotate(s.q, s.pos)
	}
	if p.Score.Terms&attn.TermMetric != 0 {
		prepared := s.own.prepared
		clear(prepared)
		for x, q := range s.q {
			for y, g := range t.Metric.Row(0, x, h%t.Metric.H) {
				prepared[y] += float32(q * g)
			}
		}
		s.q = prepared
	}
}

// Prepared moves to a query and returns it after rotation and metric, as it is multiplied by keys.
func (s *Scorer) Prepared(a *attn.Args, b, i, h int) []float32 {
	s.Query(a, b, i, h)
	return s.q
}

// Raw returns a query in float32, before rotation and metric.
func (s *Scorer) Raw(a *attn.Args, b, i, h int) []float32 {
	at, row := a.QRow(s.p, b, i)
	return a.Q.Read(s.own.raw, at, row, h)
}

// rotate rotates a row to a position.
func (s *Scorer) rotate(x []float32, pos int) {
	cos, sin := &s.a.Terms.Cos, &s.a.Terms.Sin
	s.p.Score.Rope.Turn(x, cos.Row(s.b%cos.B, pos, 0), sin.Row(s.b%sin.B, pos, 0))
}

// Visible returns the interval lo <= j < hi of keys that the band shows to the query.
func (s *Scorer) Visible() (lo, hi int) { return s.p.Mask.Keys(s.pos, s.a.Keys(s.p, s.b)) }

// Score returns the finished score of a key that the band shows, or -Inf if the bitmap hides it.
func (s *Scorer) Score(j int) float32 {
	p, a, t := s.p, s.a, &s.a.Terms
	if !a.Shows(p, s.b, s.i, s.h, j) {
		return -inf
	}
	x := s.product(j, s.key(j))
	if limit := float32(p.Score.Softcap); limit != 0 {
		x = limit * float32(math.Tanh(float64(x/limit)))
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		x -= float32(t.Slopes[s.h] * float32(max(s.pos-j, j-s.pos)))
	}
	if p.Score.Terms&attn.TermBias != 0 {
		off, step := t.Bias.Offset(s.b, s.i, s.h)
		x = biased(x, t.Bias.Data[off+j*step], s.lowest)
	}
	return x
}

// biased returns the sum of a score and a bias, or lowest if both are finite and the sum is lower.
func biased(x, bias, lowest float32) float32 {
	if sum := x + bias; sum >= lowest || min(x, bias) < -math.MaxFloat32 || sum != sum {
		return sum
	}
	return lowest
}

// product returns the score of a key before softcap, ALiBi and bias.
func (s *Scorer) product(j int, k []float32) float32 {
	x := s.scale * dot(s.q, k)
	if s.p.Score.Terms&attn.TermRelative != 0 {
		t := &s.a.Terms.Relative
		x += s.scale * dot(s.raw, t.Row(0, s.a.Relative(s.p, s.b, s.i, j), s.h%t.H))
	}
	return x
}

// key returns row j of K, rotated to its position.
func (s *Scorer) key(j int) []float32 {
	at, row := s.a.KRow(s.p, s.b, j)
	k := s.a.K.Read(s.own.k, at, row, s.kv)
	if s.p.Score.Rope == attn.NoRope {
		return k
	}
	copy(s.own.k, k)
	s.rotate(s.own.k, j)
	return s.own.k
}

// Value returns row j of V.
func (s *Scorer) Value(j int) []float32 {
	at, row := s.a.KRow(s.p, s.b, j)
	return s.a.V.Read(s.own.v, at, row, s.kv)
}

// Sink returns the sink of the query's head, or -Inf without one.
func (s *Scorer) Sink() float32 { return s.a.Sink(s.p, s.h) }
