package attntest

import (
	"fmt"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// differentiated returns a case as one of gradients, and whether the claims cover it.
func (s *Subject) differentiated(c cases.Case) (cases.Case, bool) {
	d, ok := c.Differentiated(s.wants())
	return d, ok && d.Problem.Needs()&^s.Claims == 0
}

// A backward is a call with its gradients.
type backward struct {
	c    cases.Case
	plan attn.Differentiable
	a    *attn.Args
	g    *attn.Grads
	slab []float32 // of g
}

// backward makes a plan and operands for a case of gradients, has Forward run, and fills the incoming gradients. Outgoing ones hold Poison.
func (s *Subject) backward(c cases.Case, team *attn.Team) (*backward, error) {
	a, _, err := c.Args()
	if err != nil {
		return nil, err
	}
	if t := &a.Stats.LSE; t.Data == nil && c.Problem.Op == attn.OpSoftmax { // a case that takes none of its by-products
		*t = attn.New(attn.BHSD, a.Q.B, a.Q.S, a.Q.H, 1)
	}
	x, err := s.backwardOf(c.Problem, a, team)
	if err != nil {
		return nil, err
	}
	x.c = c
	x.g, x.slab = cases.NewGrads(c.Problem, a, c.Layout)
	cases.FillGrads(x.g, c.Seed())
	x.some()
	return x, nil
}

// backwardOf runs Forward on a call through a plan of its own.
func (s *Subject) backwardOf(p attn.Problem, a *attn.Args, team *attn.Team) (*backward, error) {
	plan, err := s.plan(p, team)
	if err != nil {
		return nil, err
	}
	d, ok := plan.(attn.Differentiable)
	if !ok {
		done(plan)
		return nil, fmt.Errorf("the plan of a problem that wants gradients has no Backward")
	}
	plan.Forward(a)
	return &backward{plan: d, a: a}, nil
}

// some leaves the incoming gradients of a large call be 0 but in some rows, as many as the oracle can judge in a few milliseconds.
func (x *backward) some() {
	p := &x.c.Problem
	rows := max(24, judgedProducts/4/(x.a.K.S*(p.Dim+p.DimV)+1))
	all := oracle.All(p, x.a)
	if len(all) <= rows {
		return
	}
	Sparse(x.g, p, x.a, oracle.Sample(p, x.a, rows, x.c.Seed()))
}

// Sparse sets the incoming gradients to 0 except in some rows.
func Sparse(g *attn.Grads, p *attn.Problem, a *attn.Args, rows []oracle.Index) {
	keep := map[[3]int]bool{}
	for _, at := range rows {
		b, row := a.QRow(p, at.B, at.I)
		keep[[3]int{b, row, at.H}] = true
	}
	cases.Incoming(g, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(b, s, h int, row []float32) {
			if !keep[[3]int{b, s, h}] {
				clear(row)
			}
		})
	})
}

// poisonGrads fills outgoing gradients with Poison.
func poisonGrads(g *attn.Grads) {
	cases.Outgoing(g, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = cases.Poison
			}
		})
	})
}

// collectGrads copies the outgoing gradients.
func collectGrads(g *attn.Grads) []float32 {
	var all []float32
	cases.Outgoing(g, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) { all = append(all, row...) })
	})
	return all
}

// Gradient judges the backward pass of a kernel on a case, as Value does the forward one.
func (s *Subject) Gradient(c cases.Case) (ratio float64, err error) {
	defer catch(&err)
	x, err := s.backward(c, nil)
	if err != nil {
		return 0, err
	}
	defer done(x.plan)
	before := take(x.a, x.slab)
	outputs := collect(x.a, nil)
	x.plan.Backward(x.a, x.g)
	o, err := oracle.New(c.Problem, x.a)
	if err != nil {
		return 0, err
	}
	v, err := o.JudgeGrads(x.g)
	if err != nil {
		return 0, err
	}
	h := s.Options.HoldGrad
	if h == 0 {
		h = 1
	}
	if !(v.Worst <= h) {
		return v.Worst, fmt.Errorf("error is %.3g of the tolerance, want %v; %s", v.Worst, h, v.Where)
	}
	first := collectGrads(x.g)
	poisonGrads(x.g)
	if err := before.unchanged(x.a, x.slab); err != nil {
		return v.Worst, err
	}
	if err := same(outputs, collect(x.a, nil)); err != nil {
		return v.Worst, fmt.Errorf("the backward pass writes an output of the forward one: %w", err)
	}
	if err := s.afterNaN(x); err != nil {
		return v.Worst, err
	}
	x.plan.Backward(x.a, x.g)
	if err := same(first, collectGrads(x.g)); err != nil {
		return v.Worst, fmt.Errorf("the gradients depend on what the plan did before: %w", err)
	}
	return v.Worst, nil
}

// afterNaN has the plan do a call whose numbers are NaN throughout, so that whatever it leaves in scratch is NaN.
func (s *Subject) afterNaN(x *backward) error {
	dirty, err := cases.NewArgs(x.c.Problem, "bhsd", nil)
	if err != nil {
		return err
	}
	g, _ := cases.NewGrads(x.c.Problem, dirty, "bhsd")
	spoilAll := func(_ string, t *attn.Tensor) { cases.Rows(t, func(_, _, _ int, row []float32) { spoil(row) }) }
	cases.Inputs(dirty, spoilAll)
	cases.Incoming(g, spoilAll)
	x.plan.Forward(dirty)
	x.plan.Backward(dirty, g)
	return nil
}
