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
// A tolerance that exceeds 2^-8 of the sum of the sizes of a number's terms is so wide that the
// comparison has shown little: float32 arithmetic is entitled to the error, but a number that is
// within it has not been judged. It must be within it all the same, up to a quarter of that sum.
// Wider tolerances, which are of the first order, mean nothing: such a number is only to be finite
// where the definition is. What tolerances have in absolute terms, for numbers near the bottom of
// float32, counts for nothing here.
type Verdict struct {
	Rows    int     // compared
	Numbers int     // compared
	Judged  int     // of these, numbers whose tolerance is narrow
	Worst   float64 // largest |error| / tolerance; +Inf where a NaN, an infinity or an exact value differs. Right means Worst <= 1
	Where   string  // the number with the largest ratio: operand, index, got, want, tolerance
	Out     float64 // the largest ratio in a.Out, without by-products
}

// Join adds another comparison to the verdict.
func (v *Verdict) Join(w Verdict) {
	v.Rows, v.Numbers, v.Judged, v.Out = v.Rows+w.Rows, v.Numbers+w.Numbers, v.Judged+w.Judged, max(v.Out, w.Out)
	if !(w.Worst <= v.Worst) {
		v.Worst, v.Where = w.Worst, w.Where
	}
}

// wide is the tolerance of a number, over the sum of the sizes of its terms, from which on the
// number is not judged, and void that from which on any finite number will do.
const wide, void = 0x1p-8, 0x1p-2

// Judge compares a.Out, and every member of a.Stats that is set, with the definition in the given
// rows.
func (o *Oracle) Judge(rows []Index) Verdict {
	v := Verdict{Rows: len(rows)}
	buf := make([]float32, o.p.DimV)
	for _, at := range rows {
		v.row(&o.p, o.a, at, o.Row(at), buf)
	}
	return v
}

// Answers are what an oracle said of rows of a call, kept: they are the answers to every call of
// the same problem with the same inputs.
type Answers struct {
	p    attn.Problem
	rows []Index
	said []Row
}

// Answers answers for rows, and keeps what Judge compares of the outputs that the call has.
func (o *Oracle) Answers(rows []Index) *Answers {
	k := &Answers{p: o.p, rows: rows, said: make([]Row, len(rows))}
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
		k.said[i] = *r
		to := &k.said[i]
		to.Out, to.TolOut, to.SizeOut = kept(r.Out, true), kept(r.TolOut, true), kept(r.SizeOut, true)
		to.Weights, to.TolWeights, to.SizeWeights = kept(r.Weights, weights), kept(r.TolWeights, weights), kept(r.SizeWeights, weights)
		to.Scores, to.TolScores = kept(r.Scores, scores), kept(r.TolScores, scores)
	}
	return k
}

// Len is how many numbers are kept.
func (k *Answers) Len() int {
	n := 0
	for i := range k.said {
		r := &k.said[i]
		n += 3*(len(r.Out)+len(r.Weights)) + 2*len(r.Scores) + 36
	}
	return n
}

// Judge is Oracle.Judge for a call with the inputs that the oracle saw, and outputs as that call
// had them.
func (k *Answers) Judge(a *attn.Args) Verdict {
	v := Verdict{Rows: len(k.rows)}
	buf := make([]float32, k.p.DimV)
	for i, at := range k.rows {
		v.row(&k.p, a, at, &k.said[i], buf)
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

func (v *Verdict) vector(name string, at Index, got []float32, want estimates) (worst float64) {
	for c := range want.x {
		worst = max(worst, v.number(name, at, c, float64(got[c]), want.x[c], want.tol[c], want.size[c]))
	}
	return worst
}

// number compares one number, whose terms have sizes that sum to size: +Inf where the tolerance is
// always narrow. It returns the error over the tolerance.
func (v *Verdict) number(name string, at Index, c int, got, want, tol, size float64) (ratio float64) {
	ratio = Ratio(got, want, tol)
	v.Numbers++
	switch {
	case !(tol > wide*size): // also where there is no number to be near to
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

// Ratio is |got-want|/tol, 0 where both are equal or both NaN, +Inf where one of them is NaN or
// infinite and the other is not the same, and where they differ though tol is 0. It is never NaN.
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

// Sample picks n rows, spread over the call: the first and the last query of random heads, and
// random rows from seed. All rows are returned when there are no more than n.
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
