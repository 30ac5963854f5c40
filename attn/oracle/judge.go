package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
)

// A Verdict is the outcome of a comparison.
//
// Each number has a tolerance and a size, the sum of the sizes of its terms. If the tolerance is at
// most 2^-8 of the size, the number is judged. If it is wider, the comparison shows little: the
// number must still be within the tolerance, but it counts as not judged. Beyond a quarter of the
// size a first-order tolerance means nothing, and the number need only be finite where the
// definition is. Absolute tolerances, for numbers near the bottom of float32, do not count here.
type Verdict struct {
	Rows    int // rows compared
	Numbers int // numbers compared
	Judged  int // numbers whose tolerance is narrow

	// Worst is the largest |error| / tolerance. It is +Inf if a NaN, an infinity or an exact value
	// differs. The answer is right if Worst <= 1.
	Worst float64
	Where string  // the number with the largest ratio: operand, index, got, want, tolerance
	Out   float64 // the largest ratio in a.Out alone
}

// Join adds another comparison to the verdict.
func (v *Verdict) Join(w Verdict) {
	v.Rows, v.Numbers, v.Judged, v.Out = v.Rows+w.Rows, v.Numbers+w.Numbers, v.Judged+w.Judged, max(v.Out, w.Out)
	if !(w.Worst <= v.Worst) {
		v.Worst, v.Where = w.Worst, w.Where
	}
}

// A number is not judged if its tolerance exceeds wide times its size. Any finite number is
// accepted if the tolerance exceeds void times its size.
const wide, void = 0x1p-8, 0x1p-2

// Judge compares the given rows of a.Out, and of every member of a.Stats that is set, with the
// definition.
func (o *Oracle) Judge(rows []Index) Verdict {
	v := Verdict{Rows: len(rows)}
	buf := make([]float32, o.p.DimV)
	for _, at := range rows {
		v.row(&o.p, o.a, at, o.Row(at), buf)
	}
	return v
}

// Answers are an oracle's answers for rows of a call. They apply to every call of the same problem
// with the same inputs.
type Answers struct {
	p     attn.Problem
	rows  []Index
	right []Row
}

// Answers returns the answers for rows. It keeps only what Judge compares with the outputs that the
// call has.
func (o *Oracle) Answers(rows []Index) *Answers {
	k := &Answers{p: o.p, rows: rows, right: make([]Row, len(rows))}
	kept := func(x []float64, yes bool) []float64 {
		if yes {
			return slices.Clone(x)
		}
		return nil
	}
	s := &o.a.Stats
	weights, scores := s.Weights.Data != nil, s.Scores.Data != nil || s.ArgMax != nil
	for i, at := range rows {
		r := o.Row(at)
		k.right[i] = *r
		to := &k.right[i]
		to.Out, to.TolOut, to.SizeOut = kept(r.Out, true), kept(r.TolOut, true), kept(r.SizeOut, true)
		to.Weights, to.TolWeights, to.SizeWeights = kept(r.Weights, weights), kept(r.TolWeights, weights), kept(r.SizeWeights, weights)
		to.Scores, to.TolScores = kept(r.Scores, scores), kept(r.TolScores, scores)
	}
	return k
}

// Len returns the number of numbers that are kept.
func (k *Answers) Len() int {
	n := 0
	for i := range k.right {
		r := &k.right[i]
		n += 3*(len(r.Out)+len(r.Weights)) + 2*len(r.Scores) + 36
	}
	return n
}

// Judge is Oracle.Judge for a call with the same inputs, and with the outputs that the oracle's
// call had.
func (k *Answers) Judge(a *attn.Args) Verdict {
	v := Verdict{Rows: len(k.rows)}
	buf := make([]float32, k.p.DimV)
	for i, at := range k.rows {
		v.row(&k.p, a, at, &k.right[i], buf)
	}
	return v
}

// row compares one row of a call with the definition.
func (v *Verdict) row(p *attn.Problem, a *attn.Args, at Index, r *Row, buf []float32) {
	s := &a.Stats
	b, row := a.QRow(p, at.B, at.I)
	v.Out = max(v.Out, v.vector("Out", at, a.Out.Read(buf, b, row, at.H), estimates{r.Out, r.TolOut, r.SizeOut}))
	if s.LSE.Data != nil {
		v.number("LSE", at, 0, s.LSE.LogSum(b, row, at.H).Value(), r.LSE, r.TolLSE, math.Abs(r.LSE)+1)
	}
	for _, n := range [...]struct {
		name            string
		t               *attn.Tensor
		want, tol, size float64
	}{
		{"Mean", &s.Mean, r.Mean, r.TolMean, r.SizeMean},
		{"Entropy", &s.Entropy, r.Entropy, r.TolEntropy, math.Abs(r.Entropy) + 1},
		{"Max", &s.Max, r.Max, r.TolMax, math.Inf(1)},
	} {
		if n.t.Data != nil {
			v.number(n.name, at, 0, float64(n.t.Row(b, row, at.H)[0]), n.want, n.tol, n.size)
		}
	}
	if s.Weights.Data != nil {
		v.vector("Weights", at, s.Weights.Row(b, row, at.H), estimates{r.Weights, r.TolWeights, r.SizeWeights})
	}
	if s.Scores.Data != nil {
		for j, got := range s.Scores.Row(b, row, at.H) {
			v.number("Scores", at, j, float64(got), r.Scores[j], r.TolScores[j], math.Inf(1))
		}
	}
	if s.ArgMax != nil {
		if j := int(s.ArgMax[(b*a.Q.S+row)*p.HeadsQ+at.H]); !r.MayBeFirst(j) && !math.IsInf(v.Worst, 1) {
			v.Worst = math.Inf(1)
			v.Where = fmt.Sprintf("ArgMax[batch %d, head %d, query %d]: key %d, and the largest score is %v", at.B, at.H, at.I, j, r.Max)
		}
	}
}

// vector compares the numbers of a row and returns the largest error over the tolerance.
func (v *Verdict) vector(name string, at Index, got []float32, want estimates) (worst float64) {
	for c := range want.x {
		worst = max(worst, v.number(name, at, c, float64(got[c]), want.x[c], want.tol[c], want.size[c]))
	}
	return worst
}

// number compares one number and returns its error over the tolerance. size is the sum of the sizes
// of the number's terms, or +Inf if the number is always judged.
func (v *Verdict) number(name string, at Index, c int, got, want, tol, size float64) (ratio float64) {
	ratio = Ratio(got, want, tol)
	v.Numbers++
	switch {
	case !(tol > wide*size): // also true if tol or size is NaN
		v.Judged++
	case tol > void*size && !math.IsInf(ratio, 1):
		ratio = 0
	}
	if !(ratio <= v.Worst) {
		v.Worst = ratio
		v.Where = fmt.Sprintf("%s[batch %d, head %d, query %d, %d]: got %v, want %v, tolerance %.3g", name, at.B, at.H, at.I, c, got, want, tol)
	}
	return ratio
}

// Ratio returns |got-want|/tol. It is 0 if both are equal or both are NaN. It is +Inf if they
// differ and tol is 0, or if one is NaN or infinite and the other is not the same. It is never NaN.
func Ratio(got, want, tol float64) float64 {
	switch {
	case got == want, math.IsNaN(got) && math.IsNaN(want):
		return 0
	case math.IsNaN(got), math.IsNaN(want), math.IsInf(got, 0), math.IsInf(want, 0), !(tol > 0):
		return math.Inf(1)
	}
	return math.Abs(got-want) / tol
}

// All lists every row of a call.
func All(p *attn.Problem, a *attn.Args) []Index {
	var rows []Index
	for b := range p.Batch {
		for h := range p.HeadsQ {
			for i := range a.Queries(p, b) {
				rows = append(rows, Index{b, h, i})
			}
		}
	}
	return rows
}

// Sample returns n rows of a call: the first and the last query of random heads, then random rows
// from seed. It returns all rows if there are no more than n.
func Sample(p *attn.Problem, a *attn.Args, n int, seed uint64) []Index {
	total := 0
	for b := range p.Batch {
		total += p.HeadsQ * a.Queries(p, b)
	}
	if total <= n {
		return All(p, a)
	}
	rng := rand.New(rand.NewPCG(seed, 0x0a77))
	seen := make(map[Index]bool, n)
	rows := make([]Index, 0, n)
	for len(rows) < n {
		at := Index{B: rng.IntN(p.Batch), H: rng.IntN(p.HeadsQ)}
		queries := a.Queries(p, at.B)
		if queries == 0 {
			continue
		}
		switch at.I = rng.IntN(queries); len(rows) {
		case 0:
			at.I = 0
		case 1:
			at.I = queries - 1
		}
		if !seen[at] {
			seen[at] = true
			rows = append(rows, at)
		}
	}
	return rows
}
