package verify

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// Rows is the greatest number of rows of a call that are compared with the oracle.
const Rows = 64

// Try runs one case on a kernel and compares the answer with the oracle: the gradients, if it is a
// case of the backward pass. By-products that the kernel does not write are left out.
func Try(k attn.Kernel, c cases.Case) Finding {
	f := Finding{Family: c.Family, Case: c.Name}
	f.Kernel, f.ISA = k.Name()
	have := Powers(k)
	c = c.Only(have.Wants() | attn.WantGrad)
	p := c.Problem
	plan, refused, err := plan(k, p, have)
	switch {
	case err != nil:
		return f.Broken(err)
	case refused != nil:
		f.Refused, f.Note = true, refused.Error()
		return f
	}
	if held, ok := plan.(io.Closer); ok {
		defer held.Close()
	}
	a, _, err := c.Args()
	if err != nil {
		return f.wrong("%v", err)
	}
	if c.Backward() {
		return tryBackward(f, plan, c, a)
	}
	plan.Forward(a)
	o, err := oracle.New(p, a)
	if err != nil {
		return f.wrong("%v", err)
	}
	rows := oracle.Sample(&p, a, Rows, c.Seed())
	v := o.Judge(rows)
	if c.Far() {
		near, err := nearOracle(c, a)
		if err != nil {
			return f.wrong("%v", err)
		}
		v.Join(near.Judge(rows))
	}
	f.Worst, f.Note = v.Worst, v.Where
	return f
}

// nearOracle returns an oracle for a case whose scores are far from 0. It computes with the same
// scores near 0, which have narrower tolerances.
func nearOracle(c cases.Case, a *attn.Args) (*oracle.Oracle, error) {
	near, err := c.Near(a)
	if err != nil {
		return nil, err
	}
	return oracle.New(c.Problem, near)
}

// tryBackward is Try for the backward pass of a planned case.
func tryBackward(f Finding, plan attn.Plan, c cases.Case, a *attn.Args) Finding {
	d, ok := plan.(attn.Differentiable)
	if !ok {
		return f.wrong("the plan of a problem that wants gradients has no Backward")
	}
	p := &c.Problem
	if t := &a.Stats.LSE; t.Data == nil && p.ReadsLSE() { // the case itself wants no LSE
		*t = attn.New(attn.BHSD, a.Q.B, a.Q.S, a.Q.H, 1)
	}
	d.Forward(a)
	g, err := cases.NewGrads(*p, a, c.Layout, nil)
	if err != nil {
		return f.wrong("%v", err)
	}
	cases.FillGrads(g, c.Seed())
	if _, ok := plan.(attn.RemoteBackward); ok {
		g.LSE = attn.Tensor{} // it takes the gradient of Out alone
	}
	oracle.Thin(p, a, g, oracle.Sample(p, a, Rows, c.Seed()))
	d.Backward(a, g)
	o, err := oracle.New(*p, a)
	if err != nil {
		return f.wrong("%v", err)
	}
	v, err := o.JudgeGrads(g)
	if err != nil {
		return f.wrong("%v", err)
	}
	if c.Far() {
		if o, err = nearOracle(c, a); err != nil {
			return f.wrong("%v", err)
		}
		near, err := o.JudgeGrads(cases.NearGrads(g))
		if err != nil {
			return f.wrong("%v", err)
		}
		v.Join(near)
	}
	f.Worst, f.Note = v.Worst, v.Where
	return f
}

// native reports whether a kernel is another program's, which may refuse any problem.
func native(k attn.Kernel) bool {
	_, isa := k.Name()
	return isa == attn.Native
}

// plan plans a valid problem. It returns an exact refusal as refused, and claims that are not exact
// as err.
func plan(k attn.Kernel, p attn.Problem, have attn.Needs) (pl attn.Plan, refused, err error) {
	_, checked := k.Check(p, 1)
	if errors.As(checked, new(*attn.RemoteError)) {
		return nil, nil, checked
	}
	pl, planned := k.Plan(p, nil)
	lack := p.Needs() &^ have
	switch {
	case errors.As(planned, new(*attn.RemoteError)):
		return nil, nil, planned
	case (checked == nil) != (planned == nil):
		return nil, nil, fmt.Errorf("got %v from Check and %v from Plan: they must agree", checked, planned)
	case checked == nil && lack != 0:
		return nil, nil, fmt.Errorf("accepts a problem that needs %v, which it refuses alone", lack)
	case checked != nil && lack == 0 && !native(k):
		return nil, nil, fmt.Errorf("refuses (%w) a problem that needs %v, each of which it accepts alone", checked, p.Needs())
	case checked != nil && !errors.Is(checked, attn.ErrUnsupported):
		return nil, nil, fmt.Errorf("refuses a valid problem as malformed: %w", checked)
	}
	return pl, checked, nil
}

// TryOutside runs an outside case, whose outputs another program computed, on a kernel. It compares
// with these outputs at the case's tolerance, and with the oracle. The kernel may refuse the case.
// If it refuses only to write some outputs, Excused names these.
func TryOutside(k attn.Kernel, o *cases.Outside) Finding {
	f := Finding{Family: o.File, Case: o.Name}
	f.Kernel, f.ISA = k.Name()
	r, err := o.Run(k)
	switch {
	case errors.Is(err, attn.ErrUnsupported):
		f.Refused, f.Note = true, err.Error()
		return f
	case err != nil:
		return f.Broken(err)
	}
	f.Worst, f.Note, f.Excused = r.Ratio, r.Where, strings.Join(r.Skipped, ", ")
	for _, c := range r.Calls {
		judge, err := oracle.New(c.Problem, c.Args)
		if err != nil {
			return f.wrong("%v", err)
		}
		if v := judge.Judge(oracle.All(&c.Problem, c.Args)); !(v.Worst <= f.Worst) {
			f.Worst, f.Note = v.Worst, v.Where
		}
	}
	return f
}
