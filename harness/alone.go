package harness

import (
	"errors"
	"fmt"
	"io"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/run"
)

// alone is a plan that computes the sequences of a ragged call one by one, each by a plan of its
// own length. It is what a ragged batch is compared with.
type alone struct {
	plans []attn.Plan
	calls []*attn.Args
}

// checkAlone returns the scratch of all plans of an alone, or why there is none.
func checkAlone(k attn.Kernel, p attn.Problem, at run.Point) (scratch int64, err error) {
	if p.Want&(attn.WantWeights|attn.WantScores) != 0 {
		return 0, errors.New("ragged-alone: rows of weights and scores are as long as the capacity, which one sequence does not fill; leave weights and scores out, or use ragged")
	}
	if at.Pass != "forward" {
		return 0, fmt.Errorf("ragged-alone: the %s pass of sequences one by one is not measured; use --pass forward", at.Pass)
	}
	for _, n := range at.Alone() {
		s, err := k.Check(sequence(p, n.Q, n.KV), at.Threads)
		if err != nil {
			return 0, err
		}
		scratch += s
	}
	return scratch, nil
}

// planAlone plans each sequence of a ragged call.
func planAlone(k attn.Kernel, p attn.Problem, at run.Point, a *attn.Args, team *attn.Team) (attn.Plan, error) {
	s := new(alone)
	for b, n := range at.Alone() {
		one := sequence(p, n.Q, n.KV)
		plan, err := k.Plan(one, team)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.plans = append(s.plans, plan)
		if _, ok := plan.(attn.Remote); ok {
			return nil, errors.Join(fmt.Errorf("%w: sequences one by one, elsewhere", attn.ErrUnsupported), s.Close())
		}
		s.calls = append(s.calls, sequenceArgs(&p, a, b, &one))
	}
	return s, nil
}

// Forward computes the call that the plan was made for.
func (s *alone) Forward(*attn.Args) {
	for i, p := range s.plans {
		p.Forward(s.calls[i])
	}
}

func (s *alone) Scratch() (n int64) {
	for _, p := range s.plans {
		n += p.Scratch()
	}
	return n
}

func (s *alone) Close() (err error) {
	for _, p := range s.plans {
		if c, ok := p.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// sequence returns the problem of one sequence of a ragged batch.
func sequence(p attn.Problem, nq, nk int) attn.Problem {
	p.Ragged, p.Batch, p.SeqQ, p.SeqKV = false, 1, nq, nk
	return p
}

// sequenceArgs returns sequence b of a ragged call, as a call of problem one.
func sequenceArgs(p *attn.Problem, a *attn.Args, b int, one *attn.Problem) *attn.Args {
	c := *a
	first := int(a.QStart[b])
	fromRow(&c.Q, first)
	cases.Outputs(&c, func(_ string, t *attn.Tensor) { fromRow(t, first) })
	if c.Stats.ArgMax != nil {
		c.Stats.ArgMax = c.Stats.ArgMax[first*a.Q.H:]
	}
	if p.Page == 0 {
		for _, t := range []*attn.Tensor{&c.K, &c.V, &c.Terms.Decay, &c.Terms.Beta} {
			if t.Size() > 0 {
				fromRow(t, int(a.KStart[b]))
			}
		}
	}
	c.QStart, c.KStart = nil, nil
	for _, x := range []*[]int32{&c.KLen, &c.QPos} {
		if *x != nil {
			*x = (*x)[b : b+1]
		}
	}
	cases.Trim(&c, one.SeqQ, one.SeqKV)
	if p.Page != 0 {
		c.K, c.V = a.K, a.V
		c.Pages = a.Pages[b*p.PagesEach():][:one.PagesEach()]
	}
	if side := p.Mask.Block; side > 0 {
		c.Allowed.S, c.Allowed.D = (one.SeqQ+side-1)/side, (one.SeqKV+side-1)/side
	}
	return &c
}

// fromRow makes a tensor begin at one of its rows.
func fromRow(t *attn.Tensor, row int) {
	n := row * t.SS
	switch t.Type {
	case attn.F32:
		t.Data = t.Data[n:]
	case attn.I8:
		t.Int8, t.Scale = t.Int8[n:], t.Scale[n/t.D:]
	default:
		t.Bits = t.Bits[n:]
	}
	t.S -= row
}
