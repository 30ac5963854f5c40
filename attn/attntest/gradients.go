package attntest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// differentiated returns a case with its gradients wanted, and reports whether to test it. That is
// so if the claims cover it and it is a case of family pairs or one in four of the others. The
// forward pass of every case is tested elsewhere.
func (s *Subject) differentiated(c cases.Case) (cases.Case, bool) {
	taken := c.Family == "pairs" || c.Seed()%4 == 0
	d, ok := s.gradientOf(c)
	return d, taken && ok
}

// gradientOf returns a case with its gradients wanted, and reports whether the claims cover it.
func (s *Subject) gradientOf(c cases.Case) (cases.Case, bool) {
	d, ok := c.Differentiated(s.Claims.Wants())
	return d, ok && d.Problem.Needs()&^s.Claims == 0
}

// A backward is a call with its gradients.
type backward struct {
	c    cases.Case
	plan attn.Differentiable
	a    *attn.Args
	g    *attn.Grads
	slab []float32 // the memory of g
}

// backward makes a plan and operands for a case with gradients, runs Forward and fills the incoming
// gradients. Outgoing ones hold Poison.
func (s *Subject) backward(c cases.Case, team *attn.Team) (*backward, error) {
	a, _, err := c.Args()
	if err != nil {
		return nil, err
	}
	// the case leaves its by-products out
	if t := &a.Stats.LSE; t.Data == nil && c.Problem.ReadsLSE() {
		*t = attn.New(attn.BHSD, a.Q.B, a.Q.S, a.Q.H, 1)
	}
	x, err := s.backwardOf(c.Problem, a, team)
	if err != nil {
		return nil, err
	}
	x.c = c
	x.slab = make([]float32, cases.GradsLen(c.Problem, a, c.Layout))
	if x.g, err = cases.NewGrads(c.Problem, a, c.Layout, x.slab); err != nil {
		return nil, err
	}
	cases.FillGrads(x.g, c.Seed())
	x.some()
	return x, nil
}

// backwardOf runs Forward on a call through a new plan.
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

// some sets the incoming gradients of a large call to 0 except in a sample of rows, so that the
// oracle has no more to do than judgedProducts allows.
func (x *backward) some() {
	p := &x.c.Problem
	rows := max(24, judgedProducts/4/(x.a.K.S*(p.Dim+p.DimV)+1))
	all := oracle.All(p, x.a)
	if len(all) <= rows {
		return
	}
	oracle.Thin(p, x.a, x.g, oracle.Sample(p, x.a, rows, x.c.Seed()))
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

// Gradient judges the backward pass of a kernel on a case, as Value judges the forward pass.
func (s *Subject) Gradient(c cases.Case) (v oracle.Verdict, err error) {
	defer catch(&err)
	x, err := s.backward(c, nil)
	if err != nil {
		return v, err
	}
	defer done(x.plan)
	before := take(x.a, x.slab)
	outputs := collect(x.a, nil)
	x.plan.Backward(x.a, x.g)
	o, err := oracle.New(c.Problem, x.a)
	if err != nil {
		return v, err
	}
	if v, err = o.JudgeGrads(x.g); err != nil {
		return v, err
	}
	h := s.Options.HoldGrad
	if h == 0 {
		h = 1
	}
	if !(v.Worst <= h) {
		return v, fmt.Errorf("error is %.3g of the tolerance, want %v; %s", v.Worst, h, v.Where)
	}
	first := collectGrads(x.g)
	poisonGrads(x.g)
	if err := before.unchanged(x.a, x.slab); err != nil {
		return v, err
	}
	if err := same(outputs, collect(x.a, nil)); err != nil {
		return v, fmt.Errorf("the backward pass changed an output of the forward pass: %w", err)
	}
	if !repeats(c) {
		return v, nil
	}
	if err := s.afterNaN(x); err != nil {
		return v, err
	}
	x.plan.Backward(x.a, x.g)
	if err := same(first, collectGrads(x.g)); err != nil {
		return v, fmt.Errorf("the gradients depend on what the plan did before: %w", err)
	}
	return v, nil
}

// afterNaN runs a call whose numbers are all NaN, so that everything it leaves in scratch is NaN.
func (s *Subject) afterNaN(x *backward) error {
	dirty, err := cases.NewArgs(x.c.Problem, "bhsd", nil)
	if err != nil {
		return err
	}
	g, err := cases.NewGrads(x.c.Problem, dirty, "bhsd", nil)
	if err != nil {
		return err
	}
	spoilAll := func(_ string, t *attn.Tensor) { cases.Rows(t, func(_, _, _ int, row []float32) { spoil(row) }) }
	cases.Inputs(dirty, spoilAll)
	cases.Incoming(g, spoilAll)
	spoil(dirty.StateIn)
	x.plan.Forward(dirty)
	x.plan.Backward(dirty, g)
	return nil
}

// Laws of the backward pass.

// eachGrad runs f on every call that has gradients.
func (s *Subject) eachGrad(f func(c cases.Case) error) error {
	return s.each(func(c cases.Case) error {
		if c, ok := s.gradientOf(c); ok {
			return f(c)
		}
		return nil
	})
}

// gradients runs Backward on a case and returns the call.
func (s *Subject) gradients(c cases.Case, team *attn.Team) (*backward, error) {
	x, err := s.backward(c, team)
	if err != nil {
		return nil, err
	}
	defer done(x.plan)
	x.plan.Backward(x.a, x.g)
	return x, nil
}

// gradientThreads checks that the bits are the same with any team.
func gradientThreads(s *Subject) error {
	for _, workers := range some(s, 3, 2, 8) {
		team := attn.NewTeam(workers)
		err := s.eachGrad(func(c cases.Case) error {
			alone, err := s.gradients(c, nil)
			if err != nil {
				return err
			}
			together, err := s.gradients(c, team)
			if err != nil {
				return err
			}
			return same(collectGrads(alone.g), collectGrads(together.g))
		})
		team.Close()
		if err != nil {
			return fmt.Errorf("%d workers: %w", workers, err)
		}
	}
	return nil
}

// gradientLayouts checks the same operands and gradients with other strides and addresses.
func gradientLayouts(s *Subject) error {
	return s.eachGrad(func(c cases.Case) error {
		want, err := s.gradients(c, nil)
		if err != nil {
			return err
		}
		for _, layout := range []string{"bshd", "padded", "packed"} {
			if _, err := cases.SlabLen(c.Problem, layout); layout == "packed" && err != nil {
				continue
			}
			got, err := s.gradients(c.In(layout), nil)
			if err != nil {
				return err
			}
			if err := same(collectGrads(want.g), collectGrads(got.g)); err != nil {
				return fmt.Errorf("layout %s: %w", layout, err)
			}
		}
		return nil
	})
}

// gradientRows calls f for each row of the incoming gradients, dQ, dK, dV, dDecay and dBeta that
// belongs to a batch entry. Incoming gradients and dQ count as rows of queries.
func gradientRows(p *attn.Problem, a *attn.Args, g *attn.Grads, f func(b int, key bool, index int, row []float32)) {
	for b := range p.Batch {
		for _, t := range []*attn.Tensor{&g.Out, &g.LSE, &g.Entropy, &g.Q} {
			for i := 0; t.Data != nil && i < a.Queries(p, b); i++ {
				at, row := a.QRow(p, b, i)
				for h := range t.H {
					f(b, false, i, t.Row(at, row, h))
				}
			}
		}
		for _, t := range []*attn.Tensor{&g.K, &g.V, &g.Terms.Decay, &g.Terms.Beta} {
			for j := 0; t.Data != nil && j < a.Keys(p, b); j++ {
				at, row := a.KRow(p, b, j)
				for h := range t.H {
					f(b, true, j, t.Row(at, row, h))
				}
			}
		}
	}
}

// collectSome copies the rows for which keep is true.
func collectSome(x *backward, p *attn.Problem, keep func(b int, key bool, index int) bool) []float32 {
	var all []float32
	gradientRows(p, x.a, x.g, func(b int, key bool, index int, row []float32) {
		if keep(b, key, index) {
			all = append(all, row...)
		}
	})
	return all
}

// gradientBatch checks that a batch entry alone has the same gradients. Gradients of terms are
// excluded: they are sums over the batch.
func gradientBatch(s *Subject) error {
	return s.eachGrad(func(c cases.Case) error {
		whole, err := s.gradients(c, nil)
		if err != nil {
			return err
		}
		for b := range c.Problem.Batch {
			want := collectSome(whole, &c.Problem, func(e int, _ bool, _ int) bool { return e == b })
			p, a := entry(c.Problem, clone(whole.a), b)
			alone, err := s.backwardOf(p, a, nil)
			if err != nil {
				return err
			}
			if alone.g, err = cases.NewGrads(p, a, "bhsd", nil); err != nil {
				return err
			}
			cases.FillGrads(alone.g, 0) // for rows of no sequence
			if g := whole.g.StateOut; g != nil {
				alone.g.StateOut = stateOf(&c.Problem, g, b, 0, p.StateHeads())
			}
			in := 0
			gradientRows(&p, a, alone.g, func(_ int, _ bool, _ int, row []float32) { in += copy(row, want[in:]) })
			poisonGrads(alone.g)
			alone.plan.Backward(a, alone.g)
			done(alone.plan)
			if err := same(want, collectSome(alone, &p, func(int, bool, int) bool { return true })); err != nil {
				return fmt.Errorf("batch entry %d alone: %w", b, err)
			}
		}
		return nil
	})
}

// gradientLeaks checks that a spoiled query or key changes only the gradients of the keys and
// queries that see it.
func gradientLeaks(s *Subject) error {
	return s.eachGrad(func(c cases.Case) error {
		p := &c.Problem
		whole, err := s.gradients(c, nil)
		if err != nil {
			return err
		}
		sees := func(b, i, j int) bool {
			lo, hi := whole.a.Visible(p, b, i)
			return lo <= j && j < hi && whole.a.Shows(p, b, i, 0, j)
		}
		for b := range p.Batch {
			nq, nk := whole.a.Queries(p, b), whole.a.Keys(p, b)
			for _, bad := range []struct {
				query, key int // -1: none
			}{{0, -1}, {nq / 2, -1}, {-1, nk - 1}, {-1, nk / 2}} {
				if bad.query >= nq || bad.key >= nk || nq == 0 || nk == 0 {
					continue
				}
				// A bad query spoils the keys that it sees. A bad key spoils the queries that see
				// it, and through them the keys that those see.
				query := make([]bool, nq)
				key := make([]bool, nk)
				for i := range query {
					query[i] = i == bad.query || bad.key >= 0 && sees(b, i, bad.key)
					for j := range key {
						key[j] = key[j] || query[i] && sees(b, i, j)
					}
				}
				clean := func(e int, isKey bool, index int) bool {
					return e != b || isKey && !key[index] && index != bad.key || !isKey && !query[index]
				}
				x := &backward{a: clone(whole.a)}
				if bad.key >= 0 {
					hide(p, x.a, b, func(j int) bool { return j == bad.key })
				}
				if x, err = s.backwardOf(*p, x.a, nil); err != nil {
					return err
				}
				x.c = c
				if x.g, err = cases.NewGrads(*p, x.a, "bhsd", nil); err != nil {
					return err
				}
				cases.FillGrads(x.g, c.Seed())
				x.some()
				if bad.query >= 0 {
					at, row := x.a.QRow(p, b, bad.query)
					for h := range x.g.Out.H {
						spoil(x.g.Out.Row(at, row, h))
					}
				}
				x.plan.Backward(x.a, x.g)
				done(x.plan)
				agree := same
				if p.Rule() {
					agree = alike
				}
				if err := agree(collectSome(whole, p, clean), collectSome(x, p, clean)); err != nil {
					return fmt.Errorf("batch entry %d, query %d or key %d bad: %w", b, bad.query, bad.key, err)
				}
			}
		}
		return nil
	})
}

// alike returns an error unless all numbers differ by less than 2^-16 of the largest. A kernel may
// compute the tokens beside a bad one in another way, which changes bits.
func alike(want, got []float32) error {
	most := 0.0
	for _, x := range want {
		most = max(most, math.Abs(float64(x)))
	}
	for i, x := range want {
		if d := math.Abs(float64(x) - float64(got[i])); !(d <= 0x1p-16*most) {
			return fmt.Errorf("number %d of %d: got %v, want %v, within %.3g", i, len(want), got[i], x, 0x1p-16*most)
		}
	}
	return nil
}

// gradientParts checks that leaving out an outgoing gradient changes no bit of the others, and that
// an incoming gradient that is not given counts as 0.
func gradientParts(s *Subject) error {
	return s.eachGrad(func(c cases.Case) error {
		x, err := s.backward(c, nil)
		if err != nil {
			return err
		}
		defer done(x.plan)
		for _, t := range []*attn.Tensor{&x.g.Out, &x.g.LSE, &x.g.Entropy} {
			cases.Rows(t, func(_, _, _ int, row []float32) { clear(row) })
			given := *x.g
			x.plan.Backward(x.a, x.g)
			want := collectGrads(x.g)
			*t = attn.Tensor{}
			poisonGrads(x.g)
			x.plan.Backward(x.a, x.g)
			if err := same(positive(want), positive(collectGrads(x.g))); err != nil {
				return fmt.Errorf("an incoming gradient that is 0, and one that is not given: %w", err)
			}
			*x.g = given
			cases.FillGrads(x.g, c.Seed())
			x.some()
		}
		x.plan.Backward(x.a, x.g)
		whole := map[string][]float32{}
		cases.Outgoing(x.g, func(name string, t *attn.Tensor) {
			cases.Rows(t, func(_, _, _ int, row []float32) { whole[name] = append(whole[name], row...) })
		})
		for name := range whole {
			g := attn.Grads{Out: x.g.Out, LSE: x.g.LSE, Entropy: x.g.Entropy, StateOut: x.g.StateOut}
			keepOnly(&g, x.g, name)
			poisonGrads(x.g)
			x.plan.Backward(x.a, &g)
			if err := same(whole[name], collectGrads(&g)); err != nil {
				return fmt.Errorf("%s alone: %w", name, err)
			}
		}
		return nil
	})
}

// positive removes the sign of zeros.
func positive(x []float32) []float32 {
	for i := range x {
		x[i] += 0
	}
	return x
}

// keepOnly sets the named outgoing gradient of g to that of from.
func keepOnly(g, from *attn.Grads, name string) {
	switch name {
	case "dQ":
		g.Q = from.Q
	case "dK":
		g.K = from.K
	case "dV":
		g.V = from.V
	case "dBias":
		g.Terms.Bias = from.Terms.Bias
	case "dRelative":
		g.Terms.Relative = from.Terms.Relative
	case "dMetric":
		g.Terms.Metric = from.Terms.Metric
	case "dSlopes":
		g.Terms.Slopes = from.Terms.Slopes
	case "dSinks":
		g.Terms.Sinks = from.Terms.Sinks
	case "dDecay":
		g.Terms.Decay = from.Terms.Decay
	case "dBeta":
		g.Terms.Beta = from.Terms.Beta
	case "dStateIn":
		g.StateIn = from.StateIn
	}
}

// gradientOperands checks that Backward panics and names a wrong operand before it writes anything.
func gradientOperands(s *Subject) error {
	for _, op := range s.ops() {
		for _, bad := range cases.BadGrads(op) {
			if bad.Problem.Needs()&^s.Claims != 0 {
				continue
			}
			c := cases.Case{Family: "operands", Name: bad.Name, Problem: bad.Problem, Layout: "bhsd", Data: "normal"}
			x, err := s.backward(c, nil)
			if err != nil {
				return err
			}
			before := slices.Clone(x.slab)
			bad.Break(x.a, x.g)
			err = named(bad.Operand, func() { x.plan.Backward(x.a, x.g) })
			done(x.plan)
			if err != nil {
				return fmt.Errorf("%v %s: %w", op, bad.Name, err)
			}
			if err := same(before, x.slab); err != nil {
				return fmt.Errorf("%v %s: Backward wrote before it panicked: %w", op, bad.Name, err)
			}
		}
	}
	return nil
}

// gradientAllocations checks that Backward allocates nothing after the first call, with any team.
func gradientAllocations(s *Subject) error {
	for _, workers := range []int{1, 2} {
		team := attn.NewTeam(workers)
		err := s.eachGrad(func(c cases.Case) error {
			x, err := s.backward(c, team)
			if err != nil {
				return err
			}
			defer done(x.plan)
			if n := testing.AllocsPerRun(4, func() { x.plan.Backward(x.a, x.g) }); n != 0 {
				return fmt.Errorf("%v allocations a call", n)
			}
			return nil
		})
		team.Close()
		if err != nil {
			return fmt.Errorf("%d workers: %w", workers, err)
		}
	}
	return nil
}
