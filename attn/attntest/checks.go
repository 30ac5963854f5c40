package attntest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// A Check is one property that a kernel must have.
type Check struct {
	Name string
	Ours bool // required of the lab's own kernels, not of peers
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
		{"laws/parts", false, parts},
		{"laws/alibi", false, alibi},
		{"laws/turn", false, turn},
		{"laws/neutral", false, neutral},
		{"laws/weights", false, weights},
		{"laws/far", false, farForward},
		{"laws/far-parts", false, farParts},
		{"laws/int8", false, dequantised},
		{"laws/decode", false, decode},
		{"laws/steps", false, steps},
		{"laws/snapshots", false, snapshots},
		{"laws/recurrence", false, exactRecurrences},
		{"bits/threads", true, threads},
		{"bits/layouts", true, layouts},
		{"bits/batch", true, batchMates},
		{"bits/heads", true, headsAlone},
		{"bits/neighbours", true, neighbours},
		{"bits/rows", true, rowsAlone},
		{"bits/hidden", true, hiddenKeys},
		{"bits/capacity", true, capacity},
		{"bits/bitmaps", true, bitmaps},
		{"bits/rounding", true, rounding},
		{"bits/ragged", true, raggedAlone},
		{"bits/pages", true, pages},
		{"bits/ring", true, ring},
		{"bits/chunks", true, chunks},
		{"gradients/operands", false, gradientOperands},
		{"gradients/threads", true, gradientThreads},
		{"gradients/layouts", true, gradientLayouts},
		{"gradients/batch", true, gradientBatch},
		{"gradients/leaks", false, gradientLeaks},
		{"gradients/columns", false, gradientColumns},
		{"gradients/far", false, farGradients},
		{"gradients/parts", true, gradientParts},
		{"gradients/allocations", true, gradientAllocations},
		{"concurrent", false, concurrent},
		{"allocations", true, allocations},
	}
}

// calls returns the calls for laws: many queries and one, with and without bounds, shared heads and
// batches, terms, bitmaps, ragged batches and caches. They have every by-product that the claims
// cover. The short suite uses some of them, in smaller batches; these still take every path.
func (s *Subject) calls() []cases.Case {
	var all []cases.Case
	for _, c := range callTable {
		batch := 3
		if s.Short {
			batch = 2
		}
		if s.Short && !c.short {
			continue
		}
		for _, op := range s.ops() {
			p := attn.Problem{Op: op, Batch: batch, SeqQ: c.nq, SeqKV: c.nk, HeadsQ: 4, HeadsKV: 2, Dim: 16, DimV: 20, Mask: c.mask}
			p.Want = (s.Claims & op.Takes()).Wants() &^ (attn.WantScores | attn.WantGrad)
			if c.set != nil {
				c.set(&p)
			}
			if p.Validate() == nil && p.Needs()&^s.Claims == 0 {
				call := cases.Case{Family: "laws", Name: fmt.Sprintf("%v-%s", op, c.name), Problem: p, Layout: "bhsd", Data: c.data}
				all = append(all, call.With(c.edit))
			}
		}
	}
	return all
}

var callTable = []struct {
	name   string
	nq, nk int
	mask   attn.Mask
	data   string
	short  bool
	set    func(p *attn.Problem)
	edit   func(p *attn.Problem, a *attn.Args, r *rand.Rand)
}{
	{"full", 37, 101, attn.Full(), "normal", true, nil, nil},
	{"causal", 70, 70, attn.Causal(), "std30", true, nil, nil},
	{"causal-rising", 37, 300, attn.Causal(), "rising", false, nil, nil},
	{"topleft", 37, 37, attn.CausalTopLeft(), "normal", false, nil, nil},
	{"window", 37, 150, attn.Window(20, 3), "sparse", false, nil, nil},
	{"decode", 1, 300, attn.Causal(), "normal", true, nil, nil},
	{"decode-long", 1, 1100, attn.Full(), "std30", false, nil, nil},
	{"terms", 37, 101, attn.Causal(), "normal", true, func(p *attn.Problem) {
		p.Score = attn.Score{Terms: attn.TermALiBi | attn.TermSinks, Softcap: 2, Temp: 0.7}
	}, nil},
	{"turned", 37, 150, attn.Window(20, 0), "normal", false, func(p *attn.Problem) {
		p.Score = attn.Score{Terms: attn.TermMetric | attn.TermBias, Rope: attn.RopeHalves}
	}, nil},
	{"relative", 37, 101, attn.Causal(), "normal", false, func(p *attn.Problem) {
		p.Score = attn.Score{Terms: attn.TermRelative, Rope: attn.RopeInterleaved}
	}, nil},
	{"terms-decode", 1, 300, attn.Causal(), "normal", false, func(p *attn.Problem) {
		p.Score = attn.Score{Terms: attn.TermALiBi | attn.TermSinks | attn.TermMetric, Softcap: 2, Rope: attn.RopeHalves}
	}, nil},
	{"packed", 37, 150, attn.Causal(), "normal", false, func(p *attn.Problem) { p.Mask.Bitmap = attn.PackedBitmap }, sparsely},
	{"blocks", 37, 150, attn.Full(), "normal", false, func(p *attn.Problem) { p.Mask = p.Mask.WithBlocks(16) }, sparsely},
	{"ragged", 37, 101, attn.Causal(), "normal", true, func(p *attn.Problem) { p.Ragged = true }, unevenly},
	{"ragged-terms", 37, 101, attn.Window(20, 3), "normal", false, func(p *attn.Problem) {
		p.Ragged = true
		p.Score.Terms = attn.TermALiBi | attn.TermSinks
	}, unevenly},
	{"pages", 37, 150, attn.Causal(), "normal", false, func(p *attn.Problem) {
		p.Page, p.Lengths, p.Q, p.KV, p.Out = 16, true, attn.F16, attn.F16, attn.F16
	}, halfFull},
	{"pages-decode", 1, 300, attn.Causal(), "normal", true, func(p *attn.Problem) { p.Page, p.Lengths, p.KV = 16, true, attn.I8 }, halfFull},
	{"gated-delta", 70, 70, attn.Causal(), "normal", true, rule(attn.GatedDelta), nil},
	{"key-gates", 70, 70, attn.Causal(), "normal", true, rule(attn.KDA), steep},
	{"state-space", 70, 70, attn.Causal(), "normal", false, func(p *attn.Problem) {
		p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 2, 2, 4
		rule(attn.SSD)(p)
	}, nil},
	{"decayed-sums", 70, 70, attn.CausalTopLeft(), "normal", false, func(p *attn.Problem) {
		p.Linear.Gate = attn.HeadGate
		p.Linear.Snapshots = 3
	}, nil},
	{"delta-ragged", 40, 40, attn.Causal(), "normal", true, func(p *attn.Problem) {
		p.Ragged = true
		rule(attn.DeltaNet)(p)
	}, unevenly},
	{"gated-delta-step", 1, 1, attn.Causal(), "normal", true, rule(attn.GatedDelta), nil},
	{"ragged-pages", 3, 300, attn.Window(40, 0), "normal", false, func(p *attn.Problem) {
		p.Ragged, p.Page, p.Lengths, p.KV = true, 16, true, attn.BF16
		p.Score.Rope = attn.RopeHalves
	}, func(p *attn.Problem, a *attn.Args, r *rand.Rand) {
		unevenly(p, a, r)
		halfFull(p, a, r)
	}},
}

// rule sets the rule of a linear problem. It makes a problem of another operation invalid, so that
// there is no such call.
func rule(of func(attn.Problem) attn.Problem) func(p *attn.Problem) {
	return func(p *attn.Problem) {
		op, want := p.Op, p.Want
		*p = of(*p)
		p.Op, p.Want = op, want
	}
}

// steep closes half of the gates of every eleventh token.
func steep(_ *attn.Problem, a *attn.Args, _ *rand.Rand) {
	cases.Rows(&a.Terms.Decay, func(_, t, _ int, g []float32) {
		for i := 0; i < len(g) && t%11 == 5; i += 2 {
			g[i] = -70
		}
	})
}

// some returns all, or in the short suite the first one.
func some[T any](s *Subject, all ...T) []T {
	if s.Short {
		return all[:1]
	}
	return all
}

// sparsely shows two of three keys or blocks.
func sparsely(p *attn.Problem, a *attn.Args, r *rand.Rand) {
	show := func(_, _ int) bool { return r.IntN(3) > 0 }
	if p.Mask.Bitmap == attn.BlockBitmap {
		a.Allowed = attn.BlockSparse(p.SeqQ, p.SeqKV, p.Mask.Block, show)
	} else {
		a.Allowed = attn.Pack(p.SeqQ, p.SeqKV, show)
	}
}

// unevenly makes each sequence of a ragged batch shorter than the one before it.
func unevenly(p *attn.Problem, a *attn.Args, _ *rand.Rand) {
	for b := range p.Batch {
		a.QStart[b+1] = a.QStart[b] + int32(p.SeqQ/(b+1))
		if p.Page == 0 {
			a.KStart[b+1] = a.KStart[b] + int32(p.SeqKV/(b+1))
		}
	}
}

// halfFull puts some of the cache in use, more in each batch entry.
func halfFull(p *attn.Problem, a *attn.Args, _ *rand.Rand) {
	for b := range a.KLen {
		a.KLen[b] = int32(p.SeqKV * (b + 3) / (p.Batch + 2))
	}
}

// ops returns the operations that the claims cover.
func (s *Subject) ops() []attn.Op {
	return slices.DeleteFunc(attn.Ops(), func(op attn.Op) bool { return s.Claims&op.Need() == 0 })
}

// each runs f on every call and names the call that fails.
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

// answer runs a case through a new plan and returns its operands, with the outputs written.
func (s *Subject) answer(c cases.Case, team *attn.Team) (*attn.Args, error) {
	a, _, err := c.Args()
	if err != nil {
		return nil, err
	}
	poison(a)
	return a, s.forward(c.Problem, a, team)
}
