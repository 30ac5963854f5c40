// Package attntest is the conformance suite that every kernel runs: one line in the kernel's own
// test.
//
//	func TestKernel(t *testing.T) { attntest.Run(t, flash.New(), claims, attntest.Options{Hold: 0.25, HoldNarrow: 0.5}) }
//
// The suite has three parts. Values: every case of package cases that the claims cover, against the
// float64 oracle, in units of the tolerance that float32 arithmetic is entitled to; outputs,
// padding and scratch hold NaN beforehand, and nothing but the outputs may change. Scores far from
// 0, where that tolerance forgives anything, are held to the tolerance of the same scores near 0.
// Claims: a problem is accepted exactly when the claims cover it. Laws: what must hold without
// knowing the answer, such as the same bits on any number of threads, two halves of the keys that
// Merge to the whole, or two ways to say the same: a paged cache and a contiguous one, slopes and a
// bias.
//
// Nothing in it that judges a kernel needs package testing, so the mutants (package mutants) are
// judged by the same code.
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

// Options say how strictly a kernel is held.
type Options struct {
	Hold       float64 // the part of the tolerance that an error of Out may take at d >= 8; 0 means all of it, as for by-products
	HoldNarrow float64 // the same below; 0 means Hold
	HoldGrad   float64 // the part that an error of a gradient may take; 0 means all of it
	Core       bool    // the core cases and fewer laws, as with -short
	Peer       bool    // somebody else's kernel: values and claims only, no same bits, no allocation counts
}

// A Subject is a kernel under examination.
type Subject struct {
	Kernel  attn.Kernel
	Claims  attn.Needs
	Options Options
	Short   bool // fewer laws

	Backward bool // Examine looks at the backward pass only
}

// hold is how much of the tolerance an error of Out may take. A pair of features puts few keys and
// extreme scores together more often than other cases do: the worst of so many rows, in which a
// handful of roundings is all there is, has reached .32 in plain Go too.
func (s *Subject) hold(c *cases.Case) float64 {
	p := &c.Problem
	h := s.Options.Hold
	if c.Family == "pairs" {
		h *= 2
	}
	if p.Out != attn.F32 {
		return 1 // rounding to 16 bits takes nearly all of it
	}
	if p.Dim < 8 && s.Options.HoldNarrow > 0 {
		h = s.Options.HoldNarrow
	}
	if h == 0 {
		return 1
	}
	return h
}

// Covers returns the case with the by-products that the claims cover, and whether they cover all
// else that it needs.
func (s *Subject) Covers(c cases.Case) (cases.Case, bool) {
	if c.Backward() { // it has its place among the gradients
		return c, false
	}
	c = c.Only(s.Claims.Wants())
	return c, c.Problem.Needs()&^s.Claims == 0
}

// Value judges a kernel on one case that the claims cover: the answer, by the oracle; that nothing
// but the outputs was written; and that neither the answer nor its bits depend on what outputs and
// scratch held before.
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
	if err := before.unchanged(a, slab); err != nil {
		return v, err
	}

	// The same call again, after one whose operands were NaN throughout, so that whatever it left
	// in scratch is NaN.
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
	plan.Forward(dirty)
	plan.Forward(a)
	if err := same(first, collect(a, nil)); err != nil {
		return v, fmt.Errorf("the answer depends on what the plan did before: %w", err)
	}
	return v, nil
}

// judgedProducts bounds the work of the oracle on one case: multiplications of float64, a few
// milliseconds. A case that has more is judged on sampled rows.
const judgedProducts = 1 << 20

func judge(c *cases.Case, a *attn.Args) (oracle.Verdict, error) {
	row := a.K.S*(c.Problem.Dim+c.Problem.DimV) + 1
	return compared(c.Problem, a, max(24, judgedProducts/row), c.Seed())
}

// plan makes a plan and holds Check and Scratch to it.
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
		return nil, fmt.Errorf("the plan holds %d bytes of scratch, Check said %d", got, scratch)
	}
	return plan, nil
}

// done closes a plan that holds more than memory.
func done(plan attn.Plan) {
	if c, ok := plan.(io.Closer); ok {
		c.Close()
	}
}

// forward runs one call through a plan of its own.
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

// collect copies the outputs of a call, of all rows or of those that keep picks.
func collect(a *attn.Args, keep func(b, s, h int) bool) []float32 {
	n := len(a.Stats.ArgMax)
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
	return all
}

// unnamed is what ArgMax holds before a call.
const unnamed = -7

// written demands that a call wrote every number of the rows that it answers, and none of the
// others that a ragged batch may have between them.
func written(p *attn.Problem, a *attn.Args) (err error) {
	own := owners(p, a)
	answers := func(b, s int) bool { _, ok := own[[2]int{b, s}]; return ok }
	fail := func(name string, b, s, h int, missing bool) {
		if err == nil {
			err = fmt.Errorf("%s[batch %d, row %d, head %d] was %s", name, b, s, h, map[bool]string{true: "not written", false: "written, and is no row of a sequence"}[missing])
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
}

// same compares bits. Any NaN equals any other: which one arithmetic makes depends on the order of
// its operands.
func same(want, got []float32) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d numbers and %d", len(want), len(got))
	}
	for i, w := range want {
		if g := got[i]; math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
			return fmt.Errorf("number %d of %d was %v (%#08x) and is %v (%#08x)", i, len(want), w, math.Float32bits(w), g, math.Float32bits(g))
		}
	}
	return nil
}

// A memory is what a call may not change: its slab with the outputs poisoned, and what lies outside
// the slab.
type memory struct {
	slab   []float32
	inputs map[string][]float32
	seen   []bool
	words  []uint64
	ints   []int32
}

// ints are the lengths, offsets and pages of a call.
func ints(a *attn.Args) []int32 { return slices.Concat(a.KLen, a.QPos, a.QStart, a.KStart, a.Pages) }

func take(a *attn.Args, slab []float32) memory {
	m := memory{slab: append([]float32(nil), slab...), inputs: map[string][]float32{}}
	cases.Inputs(a, func(name string, t *attn.Tensor) { m.inputs[name] = append([]float32(nil), t.Data...) })
	m.seen = append(m.seen, a.Allowed.Bool...)
	m.words = slices.Clone(a.Allowed.Words)
	m.ints = ints(a)
	return m
}

// unchanged compares with the present, after the outputs have been poisoned again.
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
