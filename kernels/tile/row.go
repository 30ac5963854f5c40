package tile

import (
	"math"

	"attnlab/attn"
)

// byRow answers one row by the definition, a key at a time: for rows with scores that are not numbers, and for those that the blocked
// loops could not keep finite. It visits only keys that the row may see.
func (t *Tile) byRow(lane int, out []float32) {
	a, i := t.a, t.i+lane
	q, kv := a.Q.Row(t.b, i, t.h), t.h/t.p.Group()
	clear(out)
	inf := float32(math.Inf(1))
	top, infinite := -inf, 0
	lo, hi := a.Visible(t.p, t.b, i)
	for j := lo; j < hi; j++ {
		s := t.score(q, i, j, kv)
		if s == inf {
			infinite++
			copy(out, a.V.Row(t.b, j, kv))
		}
		top = max(top, s) // NaN if one is
	}
	switch nan := math.NaN(); {
	case top == -inf:
		t.stats(lane, math.Inf(-1), 0, 0)
		return
	case top != top || infinite > 1:
		for c := range out {
			out[c] = float32(nan)
		}
		t.stats(lane, nan, nan, nan)
		return
	case infinite == 1:
		t.stats(lane, math.Inf(1), math.Inf(1), 0)
		return
	}
	beta := 1 / t.temp
	if t.temp == attn.Frozen {
		beta = math.Inf(1)
	}
	sum, mean, meanZ := 0.0, 0.0, 0.0
	each := func(do func(e, z, s float64, j int)) {
		for j := lo; j < hi; j++ {
			s := t.score(q, i, j, kv)
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
		for c, v := range a.V.Row(t.b, j, kv) {
			out[c] += float32(w * v)
		}
	})
	lse := math.Log(sum)
	entropy := lse - meanZ/sum
	if t.temp != attn.Frozen {
		lse += float64(top) * beta
	}
	t.stats(lane, lse, mean/sum, entropy)
}

// score is the finished score of query i and key j, -Inf where the bitmap hides the key.
func (t *Tile) score(q []float32, i, j, kv int) float32 {
	a := t.a
	if t.p.Mask.Bitmap == attn.BoolBitmap {
		if at, step := a.Allowed.Offset(t.b, i, t.h); !a.Allowed.Bool[at+j*step] {
			return float32(math.Inf(-1))
		}
	}
	dot := float32(0)
	for c, k := range a.K.Row(t.b, j, kv) {
		dot += float32(q[c] * k)
	}
	s := float32(t.p.Scale()) * dot
	if t.p.Score.Terms&attn.TermBias != 0 {
		at, step := a.Terms.Bias.Offset(t.b, i, t.h)
		s += a.Terms.Bias.Data[at+j*step]
	}
	return s
}
