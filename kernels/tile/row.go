package tile

import (
	"math"

	"attnlab/attn"
)

// A Row is one query of a call.
type Row struct {
	P       *attn.Problem
	A       *attn.Args
	B, H, I int
}

// ByDefinition answers the row a key at a time: for rows with scores that are not numbers, and for those that the blocked loops could not
// keep finite. It visits only keys that the row may see.
func (r Row) ByDefinition() {
	a, out := r.A, r.A.Out.Row(r.B, r.I, r.H)
	q, kv := a.Q.Row(r.B, r.I, r.H), r.H/r.P.Group()
	temp := r.P.Temperature()
	clear(out)
	inf := float32(math.Inf(1))
	top, infinite := -inf, 0
	lo, hi := a.Visible(r.P, r.B, r.I)
	for j := lo; j < hi; j++ {
		s := r.score(q, j, kv)
		if s == inf {
			infinite++
			copy(out, a.V.Row(r.B, j, kv))
		}
		top = max(top, s) // NaN if one is
	}
	switch nan := math.NaN(); {
	case top == -inf:
		r.Stats(math.Inf(-1), 0, 0)
		return
	case top != top || infinite > 1:
		for c := range out {
			out[c] = float32(nan)
		}
		r.Stats(nan, nan, nan)
		return
	case infinite == 1:
		r.Stats(math.Inf(1), math.Inf(1), 0)
		return
	}
	beta := 1 / temp
	if temp == attn.Frozen {
		beta = math.Inf(1)
	}
	sum, mean, meanZ := 0.0, 0.0, 0.0
	each := func(do func(e, z, s float64, j int)) {
		for j := lo; j < hi; j++ {
			s := r.score(q, j, kv)
			if s == -inf {
				continue
			}
			z := (float64(s) - float64(top)) * beta
			if s == top {
				z = 0 // also where beta is infinite
			}
			do(math.Exp(z), z, float64(s), j)
		}
	}
	each(func(e, z, s float64, _ int) {
		sum += e
		if e > 0 {
			mean += e * s
			meanZ += e * z
		}
	})
	each(func(e, _, _ float64, j int) {
		w := float32(e / sum)
		for c, v := range a.V.Row(r.B, j, kv) {
			out[c] += float32(w * v)
		}
	})
	lse := math.Log(sum)
	entropy := lse - meanZ/sum
	if temp != attn.Frozen {
		lse += float64(top) * beta
	}
	r.Stats(lse, mean/sum, entropy)
}

// FromSums writes the by-products of a row from its reference m, its sum of weights l > 0, and its sum s of weights times scores, in base-2
// logarithms.
func (r Row) FromSums(m, l, s float64) {
	lse, z := math.Log(l), s/l
	r.Stats(lse+m*math.Ln2, z*math.Ln2*r.P.Temperature(), max(lse+(m-z)*math.Ln2, 0))
}

// Stats writes the by-products that the call asks for.
func (r Row) Stats(lse, mean, entropy float64) {
	put := func(s *attn.Tensor, x float64) {
		if s.Data != nil {
			s.Row(r.B, r.I, r.H)[0] = float32(x)
		}
	}
	s := &r.A.Stats
	put(&s.LSE, lse)
	put(&s.Mean, mean)
	put(&s.Entropy, entropy)
}

// score is the finished score of key j, -Inf where the bitmap hides the key.
func (r Row) score(q []float32, j, kv int) float32 {
	a := r.A
	if r.P.Mask.Bitmap == attn.BoolBitmap {
		if at, step := a.Allowed.Offset(r.B, r.I, r.H); !a.Allowed.Bool[at+j*step] {
			return float32(math.Inf(-1))
		}
	}
	dot := float32(0)
	for c, k := range a.K.Row(r.B, j, kv) {
		dot += float32(q[c] * k)
	}
	s := float32(r.P.Scale()) * dot
	if r.P.Score.Terms&attn.TermBias != 0 {
		at, step := a.Terms.Bias.Offset(r.B, r.I, r.H)
		s += a.Terms.Bias.Data[at+j*step]
	}
	return s
}
