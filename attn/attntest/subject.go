// Package attntest is the conformance suite that every kernel runs, with one call in the kernel's
// own test:
//
//	func TestKernel(t *testing.T) {
//		hold := attntest.Options{Hold: 0.25, HoldNarrow: 0.5}
//		attntest.Run(t, flash.New(), claims, hold)
//	}
//
// # Values
//
// Cases of package cases that the claims cover are compared with the float64 oracle, in units of
// the tolerance that float32 arithmetic is entitled to: the core and a third of the others, or all
// of them with -whole. Outputs, padding and scratch hold NaN beforehand, and only the outputs may
// change. Far from 0 that tolerance accepts anything, so scores there are compared with the
// tolerance of the same scores near 0.
//
// # Claims
//
// A kernel must accept a problem exactly when its claims cover it.
//
// # Laws
//
// A law holds without knowledge of the answer. Some examples:
//
//   - The bits are the same on any number of threads.
//   - The results over two halves of the keys Merge to the result over all.
//   - A paged cache gives the same as a contiguous one, and slopes the same as a bias.
//
// The code that judges a kernel does not need package testing. It also judges the mutants of
// package mutants.
package attntest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// Options define how strictly a kernel is judged.
type Options struct {
	// The largest allowed error as a share of the tolerance. 0 means 1, as for by-products.
	Hold       float64 // for Out, if Dim is 8 or more
	HoldNarrow float64 // for Out, if Dim is below 8; 0 means Hold
	HoldGrad   float64 // for gradients

	Core bool // only the core cases and fewer laws, as with -short
	Peer bool // the kernel is a peer's: do not require same bits or a number of allocations
}

// A Subject is a kernel to judge.
type Subject struct {
	Kernel  attn.Kernel
	Claims  attn.Needs
	Options Options
	Short   bool // only the core cases and fewer laws

	Backward bool // Examine judges only the backward pass
}

// hold returns the largest allowed error of Out as a share of the tolerance. In family pairs it is
// twice Hold: few keys and extreme scores meet there more often, and a row with a handful of
// roundings may have larger errors. Plain Go exceeds Hold there, too.
func (s *Subject) hold(c *cases.Case) float64 {
	p := &c.Problem
	h := s.Options.Hold
	if c.Family == "pairs" {
		h *= 2
	}
	if p.Out != attn.F32 {
		return 1 // rounding to 16 bits takes nearly all of the tolerance
	}
	if p.Dim < 8 && s.Options.HoldNarrow > 0 {
		h = s.Options.HoldNarrow
	}
	if h == 0 {
		return 1
	}
	return h
}

// Covers returns the case with only the by-products that the claims cover, and reports whether they
// cover everything else that it needs. It excludes cases with gradients, which Gradient judges.
func (s *Subject) Covers(c cases.Case) (cases.Case, bool) {
	if c.Backward() {
		return c, false
	}
	c = c.Only(s.Claims.Wants())
	return c, c.Problem.Needs()&^s.Claims == 0
}

// Value judges a kernel on one case that the claims cover. It compares the answer with the oracle's
// and checks that only the outputs were written. It also checks that no bit depends on the previous
// contents of outputs or scratch.
func (s *Subject) Value(c cases.Case) (v oracle.Verdict, err error) {
	defer catch(&err)
	a, slab, err := c.Args()
	if err != nil {
		return v, err
	}
	poison(a)
	before := take(a, slab)
	plan, err := s.plan(c.Problem, nil)
	if err != nil {
		return v, err
	}
	defer done(plan)
	plan.Forward(a)
	if v, err = judge(&c, a); err != nil {
		return v, err
	}
	if h := s.hold(&c); !(v.Worst <= 1) || !(v.Out <= h) {
		return v, fmt.Errorf("error is %.3g of the tolerance, want 1, and %.3g for Out, want %v; %s", v.Worst, v.Out, h, v.Where)
	}
	if err := written(&c.Problem, a); err != nil {
		return v, err
	}
	first := collect(a, nil)
	poison(a)
	if err := before.unchanged(a, slab); err != nil || !repeats(c) {
		return v, err
	}

	// Repeat the call after one whose operands are all NaN, so that everything it left in scratch
	// is NaN.
	dirty, err := cases.NewArgs(c.Problem, "bhsd", nil)
	if err != nil {
		return v, err
	}
	cases.Inputs(dirty, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = cases.Poison
			}
		})
	})
	fillWith(dirty.StateIn, cases.Poison)
	plan.Forward(dirty)
	plan.Forward(a)
	if err := same(first, collect(a, nil)); err != nil {
		return v, fmt.Errorf("the answer depends on what the plan did before: %w", err)
	}
	return v, nil
}

// repeats reports whether a case is run again after a call that left NaN in scratch, which costs
// more than all else: every fourth one is, or all with -whole.
func repeats(c cases.Case) bool { return *whole || c.Seed()>>8%4 == 0 }

// judgedProducts limits the oracle's multiplications for one case. If a case needs more, a sample
// of its rows is judged.
const judgedProducts = 1 << 20

func judge(c *cases.Case, a *attn.Args) (oracle.Verdict, error) {
	row := a.K.S*(c.Problem.Dim+c.Problem.DimV) + 1
	return compared(c.Problem, a, max(24, judgedProducts/row), c.Seed())
}

// plan returns a plan, and checks it against Check and Scratch.
func (s *Subject) plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := s.Kernel.Check(p, team.Workers())
	if err != nil {
		return nil, fmt.Errorf("Check refuses what the claims cover: %w", err)
	}
	plan, err := s.Kernel.Plan(p, team)
	if err != nil {
		return nil, fmt.Errorf("Plan fails where Check does not: %w", err)
	}
	if got := plan.Scratch(); got != scratch {
		done(plan)
		return nil, fmt.Errorf("the plan holds %d bytes of scratch, want %d as Check returned", got, scratch)
	}
	return plan, nil
}

// done closes a plan that holds more than memory.
func done(plan attn.Plan) {
	if c, ok := plan.(io.Closer); ok {
		c.Close()
	}
}

// forward runs one call through a new plan.
func (s *Subject) forward(p attn.Problem, a *attn.Args, team *attn.Team) error {
	plan, err := s.plan(p, team)
	if err != nil {
		return err
	}
	defer done(plan)
	plan.Forward(a)
	return nil
}

func catch(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

// collect copies the outputs of a call: all rows and states, or the rows for which keep is true.
func collect(a *attn.Args, keep func(b, s, h int) bool) []float32 {
	n := len(a.Stats.ArgMax) + len(a.StateOut)
	cases.Outputs(a, func(_ string, t *attn.Tensor) { n += t.Size() })
	all := make([]float32, 0, n)
	cases.Outputs(a, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(b, s, h int, row []float32) {
			if keep == nil || keep(b, s, h) {
				all = append(all, row...)
			}
		})
	})
	for at, j := range a.Stats.ArgMax {
		if h, row := at%a.Q.H, at/a.Q.H; keep == nil || keep(row/a.Q.S, row%a.Q.S, h) {
			all = append(all, float32(j))
		}
	}
	if keep == nil {
		all = append(all, a.StateOut...)
	}
	return all
}

// everyRow makes collect leave out the states.
func everyRow(_, _, _ int) bool { return true }

// unnamed is the content of ArgMax before a call.
const unnamed = -7

// written returns an error unless the call wrote every number of every row of a sequence, and none
// of the rows between sequences.
func written(p *attn.Problem, a *attn.Args) (err error) {
	own := owners(p, a)
	answers := func(b, s int) bool { _, ok := own[[2]int{b, s}]; return ok }
	fail := func(name string, b, s, h int, missing bool) {
		if err == nil {
			err = fmt.Errorf("%s[batch %d, row %d, head %d] was %s", name, b, s, h, map[bool]string{true: "not written", false: "written, but belongs to no sequence"}[missing])
		}
	}
	cases.Outputs(a, func(name string, t *attn.Tensor) {
		cases.Rows(t, func(b, s, h int, row []float32) {
			want := answers(b, s)
			for _, x := range row {
				if cases.IsPoison(x) == want {
					fail(name, b, s, h, cases.IsPoison(x))
				}
			}
		})
	})
	for at, j := range a.Stats.ArgMax {
		if b, s := at/a.Q.H/a.Q.S, at/a.Q.H%a.Q.S; (j == unnamed) == answers(b, s) {
			fail("ArgMax", b, s, at%a.Q.H, j == unnamed)
		}
	}
	if i := slices.IndexFunc(a.StateOut, cases.IsPoison); err == nil && i >= 0 {
		err = fmt.Errorf("StateOut[%d] was not written", i)
	}
	return err
}

func poison(a *attn.Args) {
	cases.Outputs(a, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = cases.Poison
			}
		})
	})
	for i := range a.Stats.ArgMax {
		a.Stats.ArgMax[i] = unnamed
	}
	fillWith(a.StateOut, cases.Poison)
}

func fillWith(x []float32, by float32) {
	for i := range x {
		x[i] = by
	}
}

// same returns an error unless all bits are equal. All NaN are equal: which NaN an operation
// returns depends on the order of its operands.
func same(want, got []float32) error {
	if len(want) != len(got) {
		return fmt.Errorf("got %d numbers, want %d", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
			return fmt.Errorf("number %d of %d: got %v (%#08x), want %v (%#08x)", i, len(want), g, math.Float32bits(g), w, math.Float32bits(w))
		}
	}
	return nil
}

// A memory is a copy of everything that a call must not change: its slab with poisoned outputs, and
// the operands outside the slab.
type memory struct {
	slab   []float32
	inputs map[string][]float32
	seen   []bool
	words  []uint64
	ints   []int32
	state  []float32
}

// ints returns the lengths, offsets and pages of a call.
func ints(a *attn.Args) []int32 { return slices.Concat(a.KLen, a.QPos, a.QStart, a.KStart, a.Pages) }

func take(a *attn.Args, slab []float32) memory {
	m := memory{slab: append([]float32(nil), slab...), inputs: map[string][]float32{}, state: slices.Clone(a.StateIn)}
	cases.Inputs(a, func(name string, t *attn.Tensor) { m.inputs[name] = append([]float32(nil), t.Data...) })
	m.seen = append(m.seen, a.Allowed.Bool...)
	m.words = slices.Clone(a.Allowed.Words)
	m.ints = ints(a)
	return m
}

// unchanged returns an error if anything differs from the copy. The outputs must have been poisoned
// again.
func (m *memory) unchanged(a *attn.Args, slab []float32) error {
	var err error
	cases.Inputs(a, func(name string, t *attn.Tensor) {
		was := m.inputs[name]
		for i, x := range t.Data {
			if err == nil && math.Float32bits(x) != math.Float32bits(was[i]) {
				err = fmt.Errorf("the call changed %s: element %d was %v and is %v", name, i, was[i], x)
			}
		}
	})
	for i, x := range slab {
		if err == nil && math.Float32bits(x) != math.Float32bits(m.slab[i]) {
			err = fmt.Errorf("the call wrote outside its outputs: float %d of the slab was %v and is %v", i, m.slab[i], x)
		}
	}
	for i, x := range a.StateIn {
		if err == nil && math.Float32bits(x) != math.Float32bits(m.state[i]) {
			err = fmt.Errorf("the call changed StateIn[%d]: it was %v and is %v", i, m.state[i], x)
		}
	}
	for i, x := range a.Allowed.Bool {
		if err == nil && x != m.seen[i] {
			err = fmt.Errorf("the call changed Allowed[%d]", i)
		}
	}
	if err == nil && !slices.Equal(a.Allowed.Words, m.words) {
		err = errors.New("the call changed Allowed")
	}
	if now := ints(a); err == nil && !slices.Equal(now, m.ints) {
		err = fmt.Errorf("the call changed KLen, QPos, QStart, KStart or Pages: they were %v and are %v", m.ints, now)
	}
	return err
}
