package attntest

import (
	"fmt"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// A Check is one thing that must hold for a kernel.
type Check struct {
	Name string
	Ours bool // asked of the lab's own kernels only, not of peers
	Run  func(s *Subject) error
}

// Checks lists everything but the values.
func Checks() []Check {
	return []Check{
		{"claims/abilities", false, abilities},
		{"claims/cases", false, claimedCases},
		{"claims/malformed", false, malformed},
		{"claims/thrift", false, thrift},
		{"operands", false, operands},
		{"laws/shift", false, shift},
		{"laws/permute", false, permute},
		{"laws/average", false, average},
		{"laws/merge", false, merge},
		{"laws/steps", false, steps},
		{"laws/state", false, state},
		{"bits/threads", true, threads},
		{"bits/layouts", true, layouts},
		{"bits/batch", true, batchMates},
		{"bits/heads", true, headsAlone},
		{"bits/neighbours", true, neighbours},
		{"bits/rows", true, rowsAlone},
		{"bits/hidden", true, hiddenKeys},
		{"bits/capacity", true, capacity},
		{"concurrent", false, concurrent},
		{"allocations", true, allocations},
	}
}

// calls are the problems on which laws are tried: many queries and one, with and without bounds, shared heads and batches. They have
// every by-product that the claims cover. The short suite takes three of them, which between them have every path, in smaller batches.
func (s *Subject) calls() []cases.Case {
	var all []cases.Case
	for _, c := range []struct {
		name   string
		nq, nk int
		mask   attn.Mask
		data   string
		short  bool
	}{
		{"full", 37, 101, attn.Full(), "normal", true},
		{"causal", 70, 70, attn.Causal(), "std30", true},
		{"causal-rising", 37, 300, attn.Causal(), "rising", false},
		{"topleft", 37, 37, attn.CausalTopLeft(), "normal", false},
		{"window", 37, 150, attn.Window(20, 3), "sparse", false},
		{"decode", 1, 300, attn.Causal(), "normal", true},
		{"decode-long", 1, 1100, attn.Full(), "std30", false},
	} {
		batch := 3
		if s.Short {
			batch = 2
		}
		if s.Short && !c.short {
			continue
		}
		for _, op := range s.ops() {
			p := attn.Problem{Op: op, Batch: batch, SeqQ: c.nq, SeqKV: c.nk, HeadsQ: 4, HeadsKV: 2, Dim: 16, DimV: 20, Mask: c.mask}
			if op == attn.OpSoftmax {
				p.Want = s.wants() & (attn.WantLSE | attn.WantMean | attn.WantEntropy | attn.WantWeights)
			}
			if p.Needs()&^s.Claims == 0 {
				all = append(all, cases.Case{Family: "laws", Name: fmt.Sprintf("%v-%s", op, c.name), Problem: p, Layout: "bhsd", Data: c.data})
			}
		}
	}
	return all
}

func (s *Subject) ops() []attn.Op {
	var ops []attn.Op
	if s.Claims&attn.NeedSoftmax != 0 {
		ops = append(ops, attn.OpSoftmax)
	}
	if s.Claims&attn.NeedLinear != 0 {
		ops = append(ops, attn.OpLinear)
	}
	return ops
}

// each runs f on every call and names the one that fails.
func (s *Subject) each(f func(c cases.Case) error) error {
	for _, c := range s.calls() {
		if err := guarded(c, f); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

func guarded(c cases.Case, f func(c cases.Case) error) (err error) {
	defer catch(&err)
	return f(c)
}

// answer runs a case through a plan of its own and returns its operands with the outputs written.
func (s *Subject) answer(c cases.Case, team *attn.Team) (*attn.Args, error) {
	a, _, err := c.Args()
	if err != nil {
		return nil, err
	}
	return a, s.forward(c.Problem, a, team)
}

// clone copies operands into memory of their own, contiguous.
func clone(p attn.Problem, a *attn.Args) *attn.Args {
	p.SeqQ, p.SeqKV = a.Q.S, a.K.S
	c, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		panic(err) // a has these sizes
	}
	for _, t := range [][2]*attn.Tensor{{&c.Q, &a.Q}, {&c.K, &a.K}, {&c.V, &a.V}, {&c.Terms.Bias, &a.Terms.Bias}} {
		cases.Rows(t[0], func(b, i, h int, row []float32) { copy(row, t[1].Row(b, i, h)) })
	}
	c.KLen, c.QPos = slices.Clone(a.KLen), slices.Clone(a.QPos)
	return c
}
