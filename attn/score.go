package attn

import "math"

// A Scorer is the definition of a score in float32, one query and one key at a time, with nothing that makes it fast: what naive fills its matrix
// with, and what a kernel that works in blocks answers rows with whose numbers are not finite.
//
//	q' = (R_i q_i) g                                           rotation and metric, where the problem has them
//	s_j = softcap(scale * q' . (R_j k_j) + scale * q_i . r_ij) - slope |pos_i-j| + bias_ij
type Scorer struct {
	p           *Problem
	a           *Args
	b, i, h, kv int
	pos         int
	scale       float32
	lowest      float32
	raw         []float32 // the query as it is
	q           []float32 // as it meets a key
	own         struct{ raw, q, bent, k, v []float32 }
}

// ScorerFloats is the number of float32 numbers in a Scorer.
func ScorerFloats(p *Problem) int { return 2*(p.QDim()+p.Dim) + p.DimV }

// NewScorer allocates a Scorer for calls of a problem, which must stay where it is.
func NewScorer(p *Problem) *Scorer {
	s := &Scorer{p: p, scale: float32(p.Scale()), lowest: p.Lowest()}
	for _, r := range [...]struct {
		row *[]float32
		n   int
	}{{&s.own.raw, p.QDim()}, {&s.own.q, p.QDim()}, {&s.own.bent, p.Dim}, {&s.own.k, p.Dim}, {&s.own.v, p.DimV}} {
		*r.row = make([]float32, r.n)
	}
	return s
}

// Query goes to query i of head h in batch entry b.
func (s *Scorer) Query(a *Args, b, i, h int) {
	p, t := s.p, &a.Terms
	s.a, s.b, s.i, s.h, s.kv = a, b, i, h, h/p.Group()
	s.pos = a.Pos(p, b) + i
	s.raw = s.Raw(a, b, i, h)
	s.q = s.raw
	if p.Score.Rope != NoRope {
		copy(s.own.q, s.raw)
		s.q = s.own.q
		s.turn(s.q, s.pos)
	}
	if p.Score.Terms&TermMetric != 0 {
		bent := s.own.bent
		clear(bent)
		for x, q := range s.q {
			for y, g := range t.Metric.Row(0, x, h%t.Metric.H) {
				bent[y] += float32(q * g)
			}
		}
		s.q = bent
	}
}

// Prepared goes to a query and returns it as it meets a key. It is the Scorer's until its next query.
func (s *Scorer) Prepared(a *Args, b, i, h int) []float32 {
	s.Query(a, b, i, h)
	return s.q
}

// Raw is a query as it is. It is the Scorer's until its next one.
func (s *Scorer) Raw(a *Args, b, i, h int) []float32 {
	at, row := a.QRow(s.p, b, i)
	return a.Q.Read(s.own.raw, at, row, h)
}

// turn rotates a row to a position.
func (s *Scorer) turn(x []float32, pos int) {
	cos, sin := &s.a.Terms.Cos, &s.a.Terms.Sin
	s.p.Score.Rope.Turn(x, cos.Row(s.b%cos.B, pos, 0), sin.Row(s.b%sin.B, pos, 0))
}

// Visible is the interval of keys that the band shows to the query.
func (s *Scorer) Visible() (lo, hi int) { return s.p.Mask.Keys(s.pos, s.a.Keys(s.p, s.b)) }

// Score is the finished score of key j of those, -Inf where the bitmap hides it.
func (s *Scorer) Score(j int) float32 {
	p, a, t := s.p, s.a, &s.a.Terms
	if !a.Shows(p, s.b, s.i, s.h, j) {
		return float32(math.Inf(-1))
	}
	x := s.product(j, s.key(j))
	if limit := float32(p.Score.Softcap); limit != 0 {
		x = limit * float32(math.Tanh(float64(x/limit)))
	}
	if p.Score.Terms&TermALiBi != 0 {
		x -= float32(t.Slopes[s.h] * float32(max(s.pos-j, j-s.pos)))
	}
	if p.Score.Terms&TermBias != 0 {
		off, step := t.Bias.Offset(s.b, s.i, s.h)
		x = biased(x, t.Bias.Data[off+j*step], s.lowest)
	}
	return x
}

// Lowest is the lowest finite score that a bias leaves: -2.36e38 T, or -MaxFloat32 if that is
// larger, as it is in the limits of temperature. Kernels hold z = s/T as a base-2 logarithm, in
// which no lower one is finite. Scores below count as equal to it, so that a row that is filled
// with the lowest float32, as a mask often is, has the mean of its values for an answer.
func (p *Problem) Lowest() float32 {
	lowest := -math.MaxFloat32
	if t := p.Temperature(); t > 0 && !math.IsInf(t, 1) {
		lowest = max(lowest, lowest*math.Ln2*t)
	}
	return float32(lowest)
}

// biased adds a bias to a score. Two finite numbers have no sum below lowest.
func biased(x, bias, lowest float32) float32 {
	if sum := x + bias; sum >= lowest || min(x, bias) < -math.MaxFloat32 || sum != sum {
		return sum
	}
	return lowest
}

// product is what enters the score first, before anything bends it or is added.
func (s *Scorer) product(j int, k []float32) float32 {
	x := s.scale * dot(s.q, k)
	if s.p.Score.Terms&TermRelative != 0 {
		t := &s.a.Terms.Relative
		x += s.scale * dot(s.raw, t.Row(0, s.a.Relative(s.p, s.b, s.i, j), s.h%t.H))
	}
	return x
}

// key is a row of K turned to its position.
func (s *Scorer) key(j int) []float32 {
	at, row := s.a.KRow(s.p, s.b, j)
	k := s.a.K.Read(s.own.k, at, row, s.kv)
	if s.p.Score.Rope == NoRope {
		return k
	}
	copy(s.own.k, k)
	s.turn(s.own.k, j)
	return s.own.k
}

// Value is the row of V that goes with key j.
func (s *Scorer) Value(j int) []float32 {
	at, row := s.a.KRow(s.p, s.b, j)
	return s.a.V.Read(s.own.v, at, row, s.kv)
}

// Sink is the z of the sink of the query's head, -Inf without one.
func (s *Scorer) Sink() float32 { return s.a.Sink(s.p, s.h) }

// Sink is the z of the sink of a query head, -Inf without one.
func (a *Args) Sink(p *Problem, h int) float32 {
	if p.Score.Terms&TermSinks == 0 {
		return float32(math.Inf(-1))
	}
	return a.Terms.Sinks[h]
}

func dot(x, y []float32) float32 {
	sum := float32(0)
	for i, a := range x {
		sum += float32(a * y[i])
	}
	return sum
}
