package harness

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/harness/run"
)

// CheckRows is how many rows of a call are compared with the oracle, if it has more.
const CheckRows = 64

// checkWork bounds the products that the oracle makes for one point, to about a second of float64
// arithmetic: a row costs it as much as a whole call of linear attention.
const checkWork = 1 << 27

// rowsToCheck is how many rows of a point are compared.
func rowsToCheck(at run.Point) int {
	return max(8, min(CheckRows, checkWork/(at.SeqKV*(at.Dim+at.DimV))))
}

// A Finding is what came of one case tried on one kernel.
type Finding struct {
	Kernel, ISA, Family, Case string
	Refused                   bool    // the kernel does not do this, and says so
	Worst                     float64 // error over tolerance; +Inf when something other than a number is wrong
	Note                      string  // where the worst is, what is refused, or what else is wrong
	Excused                   string  // outputs of an outside case that the kernel does not write
	Late                      bool    // there was no answer in time: the kernel may take as long for every other case
}

// Right says that the kernel answered within tolerance, or refused as its other refusals say it
// must.
func (f Finding) Right() bool { return f.Worst <= 1 }

// broken is the finding of an error.
func (f Finding) broken(err error) Finding {
	if e := new(attn.RemoteError); errors.As(err, &e) {
		f.Late = e.Late
	}
	return f.wrong("%v", err)
}

func (f Finding) wrong(format string, a ...any) Finding {
	f.Worst, f.Note = math.Inf(1), fmt.Sprintf(format, a...)
	return f
}

// Try runs one case on a kernel and compares the answer with the oracle: the gradients, if it is a
// case of the backward pass. By-products that the kernel does not give are left out. The claims
// must be exact: a problem is accepted when each of its abilities is accepted alone, and refused,
// as unsupported, otherwise.
func Try(k attn.Kernel, c cases.Case) Finding {
	f := Finding{Family: c.Family, Case: c.Name}
	f.Kernel, f.ISA = k.Name()
	have := Powers(k)
	c = c.Only(have.Wants() | attn.WantGrad)
	p := c.Problem
	plan, refused, err := plan(k, p, have)
	switch {
	case err != nil:
		return f.broken(err)
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
		return tryBack(f, plan, c, a)
	}
	plan.Forward(a)
	o, err := oracle.New(p, a)
	if err != nil {
		return f.wrong("%v", err)
	}
	rows := oracle.Sample(&p, a, CheckRows, c.Seed())
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

// nearOracle answers for a case of scores far from 0 by the same scores near 0, which have narrower
// tolerances.
func nearOracle(c cases.Case, a *attn.Args) (*oracle.Oracle, error) {
	near, err := c.Near(a)
	if err != nil {
		return nil, err
	}
	return oracle.New(c.Problem, near)
}

// tryBack is Try for the backward pass.
func tryBack(f Finding, plan attn.Plan, c cases.Case, a *attn.Args) Finding {
	d, ok := plan.(attn.Differentiable)
	if !ok {
		return f.wrong("the plan of a problem that wants gradients has no Backward")
	}
	p := &c.Problem
	if t := &a.Stats.LSE; t.Data == nil && p.ReadsLSE() { // a case that takes none of its by-products
		*t = attn.New(attn.BHSD, a.Q.B, a.Q.S, a.Q.H, 1)
	}
	d.Forward(a)
	g, err := cases.NewGrads(*p, a, c.Layout, nil)
	if err != nil {
		return f.wrong("%v", err)
	}
	cases.FillGrads(g, c.Seed())
	if _, ok := plan.(attn.RemoteBackward); ok {
		g.LSE = attn.Tensor{} // theirs have one gradient that comes in
	}
	oracle.Thin(p, a, g, oracle.Sample(p, a, CheckRows, c.Seed()))
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

// native says that a kernel is not ours.
func native(k attn.Kernel) bool {
	_, isa := k.Name()
	return isa == attn.Native
}

// plan plans a valid problem, and says whether the kernel refuses it rightly, or what is inexact
// about its claims.
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
		return nil, nil, fmt.Errorf("Check says %v, Plan says %v: they must agree", checked, planned)
	case checked == nil && lack != 0:
		return nil, nil, fmt.Errorf("accepts a problem that needs %v, which it refuses alone", lack)
	case checked != nil && lack == 0 && !native(k):
		return nil, nil, fmt.Errorf("refuses (%w) a problem that needs %v, each of which it accepts alone", checked, p.Needs())
	case checked != nil && !errors.Is(checked, attn.ErrUnsupported):
		return nil, nil, fmt.Errorf("refuses a valid problem as malformed: %w", checked)
	}
	return pl, checked, nil
}

// Broken is the finding of a case that came to no answer: a crash, or none in time.
func (f Finding) Broken(err error) Finding {
	f.Late = errors.Is(err, ErrTimeout)
	return f.wrong("%v", err)
}

// String is one line about the finding.
func (f Finding) String() string {
	s := fmt.Sprintf("%s/%s on %s/%s: ", f.Kernel, f.ISA, f.Family, f.Case)
	switch {
	case f.Refused:
		return s + "refused: " + f.Note
	case math.IsInf(f.Worst, 1):
		return s + f.Note
	}
	return s + fmt.Sprintf("%.3g times the tolerance: %s", f.Worst, f.Note)
}

// TryOutside runs a case that somebody else computed on a kernel, and compares with their outputs,
// at their tolerance, and with the oracle. The kernel may refuse it; Excused then names outputs it
// cannot write, if these were all it refused.
func TryOutside(k attn.Kernel, o *cases.Outside) Finding {
	f := Finding{Family: o.File, Case: o.Name}
	f.Kernel, f.ISA = k.Name()
	r, err := o.Run(k)
	switch {
	case errors.Is(err, attn.ErrUnsupported):
		f.Refused, f.Note = true, err.Error()
		return f
	case err != nil:
		return f.broken(err)
	}
	f.Worst, f.Note, f.Excused = r.Ratio, r.Where, strings.Join(r.Skipped, ", ")
	if o.State != nil {
		return f // the oracle starts from nothing
	}
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
