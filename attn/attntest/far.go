package attntest

import (
	"fmt"
	"math"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// Cases of family far have scores far from 0 and the same answer near 0, which judges them.

// eachFar runs f on the cases of scores far from 0 that form accepts.
func (s *Subject) eachFar(form func(cases.Case) (cases.Case, bool), f func(c cases.Case) error) error {
	for _, c := range s.cases() {
		c, ok := form(c)
		if !ok || !c.Far() {
			continue
		}
		if err := guarded(c, f); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// within returns an error if a verdict is not right, or if it has judged no number.
func within(v oracle.Verdict) error {
	switch {
	case !(v.Worst <= 1):
		return fmt.Errorf("error is %.3g of the tolerance near 0; %s", v.Worst, v.Where)
	case v.Judged == 0:
		return fmt.Errorf("none of %d numbers has a tolerance that is narrow enough to judge by", v.Numbers)
	}
	return nil
}

// farForward checks that Out, weights and entropy of scores far from 0 equal those of the same
// scores near 0.
func farForward(s *Subject) error {
	return s.eachFar(s.Covers, func(c cases.Case) error {
		a, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		n, err := c.Near(a)
		if err != nil {
			return err
		}
		o, err := oracle.New(c.Problem, n)
		if err != nil {
			return err
		}
		if err := within(o.Judge(oracle.All(&c.Problem, n))); err != nil {
			return err
		}
		return sumToOne(&c.Problem, a)
	})
}

// farParts checks that partial results over unequal splits of far keys merge to the answer near 0.
func farParts(s *Subject) error {
	if s.Claims.Wants()&attn.WantLSE == 0 {
		return nil
	}
	return s.eachFar(s.Covers, func(c cases.Case) error {
		p := c.Problem
		// positions differ in a split
		if p.Mask.Band || p.Lengths || p.Score.Terms&attn.TermSinks != 0 {
			return nil
		}
		p.Want = attn.WantLSE
		a, _, err := c.Args()
		if err != nil {
			return err
		}
		whole := attn.NewPartial(p.Batch, p.SeqQ, p.HeadsQ, p.DimV)
		for from, to := 0, 1; from < a.K.S; from, to = to, min(4*to, a.K.S) {
			part := attn.NewPartial(p.Batch, p.SeqQ, p.HeadsQ, p.DimV)
			x := *a
			for _, t := range []*attn.Tensor{&x.K, &x.V} {
				skip(t, from*t.SS)
				t.S = to - from
			}
			skip(&x.Terms.Bias, from)
			x.Terms.Bias.D = to - from
			x.Out, x.Stats = part.Out, attn.Stats{LSE: part.LSE}
			if err := s.forward(p, &x, nil); err != nil {
				return err
			}
			whole.Merge(part)
		}
		a.Out, a.Stats = whole.Out, attn.Stats{}
		n, err := c.Near(a)
		if err != nil {
			return err
		}
		o, err := oracle.New(p, n)
		if err != nil {
			return err
		}
		return within(o.Judge(oracle.All(&p, n)))
	})
}

// farGradients checks that the gradients of scores far from 0 equal those of the same scores near
// 0.
func farGradients(s *Subject) error {
	return s.eachFar(s.gradientOf, func(c cases.Case) error {
		x, err := s.gradients(c, nil)
		if err != nil {
			return err
		}
		n, err := c.Near(x.a)
		if err != nil {
			return err
		}
		o, err := oracle.New(c.Problem, n)
		if err != nil {
			return err
		}
		v, err := o.JudgeGrads(cases.NearGrads(x.g))
		if err != nil {
			return err
		}
		if err := within(v); err != nil {
			return err
		}
		return valuesFlow(&c.Problem, x.a, x.g)
	})
}

// farLSE is the magnitude above which an LSE is far. Kernels then compute the sum of a row's
// weights from its scores.
const farLSE = 1 << 10

// weights checks that the weights of a row and the weight of its sink sum to 1.
func weights(s *Subject) error {
	return s.exponential(func(c cases.Case) error {
		if s.Claims.Wants()&attn.WantWeights == 0 || c.Problem.Out != attn.F32 {
			return nil
		}
		c.Problem.Want |= attn.WantWeights
		a, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		return sumToOne(&c.Problem, a)
	})
}

// sumToOne returns an error unless the weights of each row that sees a key, and the weight of its
// sink, sum to 1.
func sumToOne(p *attn.Problem, a *attn.Args) error {
	if a.Stats.Weights.Data == nil || a.Stats.LSE.Data == nil {
		return nil
	}
	m, err := margins(*p, a)
	if err != nil {
		return err
	}
	at := -1
	cases.Rows(&a.Out, func(b, i, h int, _ []float32) {
		at++
		lse := a.Stats.LSE.LogSum(b, i, h)
		if m[at].seen == 0 || math.IsInf(lse.Value(), 0) || math.IsNaN(lse.Value()) {
			return
		}
		sum, tol := 0.0, u*(2*math.Sqrt(float64(m[at].seen))+16)
		for _, w := range a.Stats.Weights.Row(b, i, h) {
			sum += float64(w)
		}
		if p.Score.Terms&attn.TermSinks != 0 {
			if math.Abs(lse.Value()) > farLSE {
				return // the sink's weight does not follow from a far LSE
			}
			sum += math.Exp(float64(a.Terms.Sinks[h]) - lse.Value())
			tol += 2 * m[at].lse
		}
		if r := oracle.Ratio(sum, 1, tol); !(r <= 1) && err == nil {
			err = fmt.Errorf("Weights[batch %d, head %d, row %d] and the sink sum to %v, want 1, tolerance %.3g", b, h, i, sum, tol)
		}
	})
	return err
}

// u is half a unit in the last place of 1.
const u = 0x1p-24

// gradientColumns checks that every row distributes its dOut over the values, in shares that sum to
// 1.
func gradientColumns(s *Subject) error {
	return s.eachGrad(func(c cases.Case) error {
		if !c.Problem.Op.HasLSE() {
			return nil
		}
		x, err := s.gradients(c, nil)
		if err != nil {
			return err
		}
		return valuesFlow(&c.Problem, x.a, x.g)
	})
}

// valuesFlow returns an error unless each column of dV sums to that of dOut over the rows that see
// a key. It accepts everything if there is a sink, whose share follows only from its own weight.
func valuesFlow(p *attn.Problem, a *attn.Args, g *attn.Grads) error {
	if p.Score.Terms&attn.TermSinks != 0 || g.V.Data == nil {
		return nil
	}
	m, err := margins(*p, a)
	if err != nil {
		return err
	}
	place := map[[3]int]int{}
	at := -1
	cases.Rows(&a.Out, func(b, i, h int, _ []float32) {
		at++
		place[[3]int{b, i, h}] = at
	})
	for b := range p.Batch {
		nq, nk := a.Queries(p, b), a.Keys(p, b)
		for kv := range p.HeadsKV {
			want, tol := make([]float64, p.DimV), make([]float64, p.DimV)
			grow := math.Sqrt(float64(nq*p.Group())) + math.Sqrt(float64(nk)) + 64
			for h := kv * p.Group(); h < (kv+1)*p.Group(); h++ {
				for i := range nq {
					batch, row := a.QRow(p, b, i)
					lse := a.Stats.LSE.LogSum(batch, row, h).Value()
					if math.IsInf(lse, -1) {
						continue
					}
					off := u * grow
					if !(math.Abs(lse) > farLSE) { // the two passes may round scores differently
						off += 4 * m[place[[3]int{batch, row, h}]].lse
					}
					for c, x := range g.Out.Row(batch, row, h) {
						want[c] += float64(x)
						tol[c] += off * math.Abs(float64(x))
					}
				}
			}
			for j := range nk {
				batch, row := a.KRow(p, b, j)
				for c, x := range g.V.Row(batch, row, kv) {
					want[c] -= float64(x)
				}
			}
			for c, left := range want {
				if !(math.Abs(left) <= tol[c]) {
					return fmt.Errorf("dV[batch %d, head %d], column %d, sums to %.6g less than dOut over the rows that see a key, tolerance %.3g", b, kv, c, left, tol[c])
				}
			}
		}
	}
	return nil
}
