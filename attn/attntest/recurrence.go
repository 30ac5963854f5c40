package attntest

import (
	"errors"
	"fmt"
	"math"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// recurrences runs f on linear calls whose plans have Step.
func (s *Subject) recurrences(f func(c cases.Case, a *attn.Args) error) error {
	if s.Claims&attn.NeedLinear == 0 {
		return nil
	}
	for _, n := range []int{1, 40, 131} {
		for i, lin := range []attn.Linear{
			{Feature: attn.EluPlusOne},
			{Feature: attn.ReluPlusOne, Eps: 0.25},
			{Feature: attn.Identity, Unnormalised: true},
		} {
			p := attn.Problem{Op: attn.OpLinear, Batch: 2, SeqQ: n, SeqKV: n, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 12, Mask: attn.Causal(), Linear: lin}
			c := cases.Case{Family: "recurrence", Name: fmt.Sprintf("%v-%d-%d", lin.Feature, n, i), Problem: p, Layout: "bshd", Data: "normal"}
			err := guarded(c, func(c cases.Case) error {
				a, _, err := c.Args()
				if err != nil {
					return err
				}
				return f(c, a)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	return nil
}

func (s *Subject) recurrent(p attn.Problem) (attn.Recurrent, error) {
	plan, err := s.plan(p, nil)
	if err != nil {
		return nil, err
	}
	r, ok := plan.(attn.Recurrent)
	if !ok {
		return nil, errors.New("a linear plan must be attn.Recurrent")
	}
	return r, nil
}

// span returns rows lo to hi of a call as a call.
func span(a *attn.Args, lo, hi int) *attn.Args {
	part := *a
	for _, t := range []*attn.Tensor{&part.Q, &part.K, &part.V, &part.Out} {
		t.Data, t.S = t.Data[lo*t.SS:], hi-lo
	}
	return &part
}

// steps checks that a prefill equals the sum of its steps. Any division into chunks, through the
// same plan or a one-row plan, gives the result of one pass. Forward starts from the zero state,
// also after steps.
func steps(s *Subject) error {
	return s.recurrences(func(c cases.Case, whole *attn.Args) error {
		p, n := c.Problem, c.Problem.SeqQ
		plan, err := s.recurrent(p)
		if err != nil {
			return err
		}
		defer done(plan)
		plan.Forward(whole)
		first := collect(whole, nil)
		m, err := margins(p, whole)
		if err != nil {
			return err
		}
		one := p
		one.SeqQ, one.SeqKV = 1, 1
		row, err := s.recurrent(one)
		if err != nil {
			return err
		}
		defer done(row)
		for _, d := range []struct {
			name   string
			plan   attn.Recurrent
			chunks []int
		}{
			{"all at once", plan, []int{n}},
			{"in uneven chunks", plan, []int{7, 1, 31, 1, 2, 64}},
			{"row by row through the wide plan", plan, []int{1}},
			{"row by row", row, []int{1}},
		} {
			a := clone(whole)
			state := make([]float32, d.plan.StateLen())
			for lo, i := 0, 0; lo < n; i++ {
				hi := min(n, lo+d.chunks[i%len(d.chunks)])
				d.plan.Step(span(a, lo, hi), state)
				lo = hi
			}
			if err := near(whole, a, m, m, 0); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			if err := stateIs(&p, a, state); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
		poison(whole)
		plan.Forward(whole)
		if err := same(first, collect(whole, nil)); err != nil {
			return fmt.Errorf("Forward after steps: %w", err)
		}
		return nil
	})
}

// state checks that the state has the right length and the right sums for each batch entry and key
// head, however the rows are divided into steps.
func state(s *Subject) error {
	return s.recurrences(func(c cases.Case, a *attn.Args) error {
		p := c.Problem
		plan, err := s.recurrent(p)
		if err != nil {
			return err
		}
		defer done(plan)
		want := p.Batch * p.HeadsKV * p.Dim * p.DimV
		if !p.Linear.Unnormalised {
			want += p.Batch * p.HeadsKV * p.Dim
		}
		if got := plan.StateLen(); got != want {
			return fmt.Errorf("the state has %d numbers, want %d", got, want)
		}
		st := make([]float32, want)
		plan.Step(a, st)
		return stateIs(&p, a, st)
	})
}

// stateIs compares a state that began at zero with Σ_j f(k_j) v_j^T and Σ_j f(k_j) over the keys of
// a.
func stateIs(p *attn.Problem, a *attn.Args, state []float32) error {
	// Each product and each feature is rounded twice, and n terms are added in any order.
	share := (math.Sqrt(float64(a.K.S)) + 8) / (1 << 24)
	sums := p.Batch * p.HeadsKV * p.Dim * p.DimV
	for b := range p.Batch {
		for h := range p.HeadsKV {
			for x := range p.Dim {
				at := (b*p.HeadsKV+h)*p.Dim + x
				for y := range p.DimV + 1 {
					want, abs := 0.0, 0.0
					for j := range a.K.S {
						t := feature(p.Linear.Feature, float64(a.K.Row(b, j, h)[x]))
						if y < p.DimV {
							t *= float64(a.V.Row(b, j, h)[y])
						}
						want += t
						abs += math.Abs(t)
					}
					var got float32
					switch {
					case y < p.DimV:
						got = state[at*p.DimV+y]
					case p.Linear.Unnormalised:
						continue
					default:
						got = state[sums+at]
					}
					if err := math.Abs(float64(got) - want); !(err <= share*abs) {
						return fmt.Errorf("state[batch %d, head %d, %d, %d] is %v, want %v, tolerance %.3g", b, h, x, y, got, want, share*abs)
					}
				}
			}
		}
	}
	return nil
}

func feature(f attn.Feature, x float64) float64 {
	switch {
	case f == attn.Identity:
		return x
	case x > 0:
		return x + 1
	case f == attn.EluPlusOne:
		return math.Exp(x)
	}
	return 1
}
