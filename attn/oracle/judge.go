package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"

	"attnlab/attn"
)

// A Verdict is the outcome of a comparison.
type Verdict struct {
	Rows  int     // compared
	Worst float64 // largest |error| / tolerance; +Inf where a NaN, an infinity or an exact value differs. Right means Worst <= 1
	Where string  // the number with the largest ratio: operand, index, got, want, tolerance
	Out   float64 // the largest ratio in a.Out, without by-products
}

// Judge compares a.Out, and every member of a.Stats that is set, with the definition in the given rows.
func (o *Oracle) Judge(rows []Index) Verdict {
	v := Verdict{Rows: len(rows)}
	s := &o.a.Stats
	for _, at := range rows {
		r := o.Row(at)
		v.Out = max(v.Out, v.vector("Out", at, o.a.Out.Row(at.B, at.I, at.H), r.Out, r.TolOut))
		v.value("LSE", at, &s.LSE, r.LSE, r.TolLSE)
		v.value("Mean", at, &s.Mean, r.Mean, r.TolMean)
		v.value("Entropy", at, &s.Entropy, r.Entropy, r.TolEntropy)
		if s.Weights.Data != nil {
			v.vector("Weights", at, s.Weights.Row(at.B, at.I, at.H), r.Weights, r.TolWeights)
		}
	}
	return v
}

func (v *Verdict) value(name string, at Index, t *attn.Tensor, want, tol float64) {
	if t.Data != nil {
		v.vector(name, at, t.Row(at.B, at.I, at.H), []float64{want}, []float64{tol})
	}
}

func (v *Verdict) vector(name string, at Index, got []float32, want, tol []float64) (worst float64) {
	for c := range want {
		r := Ratio(float64(got[c]), want[c], tol[c])
		worst = max(worst, r)
		if !(r <= v.Worst) {
			v.Worst = r
			v.Where = fmt.Sprintf("%s[batch %d, head %d, query %d, %d]: got %v, want %v, tolerance %.3g", name, at.B, at.H, at.I, c, got[c], want[c], tol[c])
		}
	}
	return worst
}

// Ratio is |got-want|/tol, 0 where both are equal or both NaN, +Inf where one of them is NaN or infinite and the other is not the same, and
// where they differ though tol is 0. It is never NaN.
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
	rows := make([]Index, 0, p.Batch*p.HeadsQ*a.Q.S)
	for b := range p.Batch {
		for h := range p.HeadsQ {
			for i := range a.Q.S {
				rows = append(rows, Index{b, h, i})
			}
		}
	}
	return rows
}

// Sample picks n rows, spread over the call: the first and the last query of random heads, and random rows from seed. All rows are
// returned when there are no more than n.
func Sample(p *attn.Problem, a *attn.Args, n int, seed uint64) []Index {
	if total := p.Batch * p.HeadsQ * a.Q.S; total <= n {
		return All(p, a)
	}
	rng := rand.New(rand.NewPCG(seed, 0x0a77))
	seen := make(map[Index]bool, n)
	rows := make([]Index, 0, n)
	for len(rows) < n {
		at := Index{rng.IntN(p.Batch), rng.IntN(p.HeadsQ), rng.IntN(a.Q.S)}
		switch len(rows) {
		case 0:
			at.I = 0
		case 1:
			at.I = a.Q.S - 1
		}
		if !seen[at] {
			seen[at] = true
			rows = append(rows, at)
		}
	}
	return rows
}
