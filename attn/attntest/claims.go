package attntest

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// abilities checks each ability by itself: a claimed one must be accepted, any other refused by
// name with ErrUnsupported.
func abilities(s *Subject) error {
	if len(s.ops()) == 0 {
		return fmt.Errorf("the claims cover no operation: want one of %v", attn.Ops())
	}
	for need := attn.Needs(1); need&attn.AllNeeds != 0; need <<= 1 {
		p := needing(need, s.ops()[0])
		if p.Needs()&need == 0 {
			return fmt.Errorf("no problem needs %v: add one to function needing", need)
		}
		if err := p.Validate(); err != nil {
			return fmt.Errorf("%v: %w", need, err)
		}
		if err := s.accepts(p); err != nil {
			return fmt.Errorf("%v: %w", need, err)
		}
	}
	return nil
}

// needing returns a small problem that needs one ability besides its operation. The operation is
// op, or the first that takes the ability.
func needing(need attn.Needs, op attn.Op) attn.Problem {
	for _, other := range attn.Ops() {
		if need == other.Need() || need&^op.Takes() != 0 && need&other.Takes() != 0 {
			op = other
			break
		}
	}
	p := attn.Problem{Op: op, Batch: 2, SeqQ: 4, SeqKV: 6, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 8}
	if need&attn.AllRules != 0 {
		p.SeqQ, p.Mask, p.Linear.Unnormalised = p.SeqKV, attn.Causal(), true
	}
	p.Want = need.Wants()
	switch need {
	case attn.NeedHeadGate:
		p.Linear.Gate = attn.HeadGate
	case attn.NeedKeyGate:
		p.Linear.Gate = attn.KeyGate
	case attn.NeedDelta:
		p.Linear.Delta = true
	case attn.NeedNorm:
		p.Linear.Norm = attn.NormSum
	case attn.NeedHeadsV:
		p.Linear.HeadsV = 4
	case attn.NeedSnapshots:
		p.Linear.Snapshots = 2
	case attn.NeedWindow:
		p.Mask = attn.Window(1, 1)
	case attn.NeedBool:
		p.Mask.Bitmap = attn.BoolBitmap
	case attn.NeedPacked:
		p.Mask.Bitmap = attn.PackedBitmap
	case attn.NeedBlock:
		p.Mask = p.Mask.WithBlocks(2)
	case attn.NeedTypes:
		p.Q, p.KV, p.Out = attn.F16, attn.F16, attn.F16
	case attn.NeedLengths:
		p.Lengths = true
	case attn.NeedRagged:
		p.Ragged = true
	case attn.NeedPages:
		p.Page = 16
	case attn.NeedTemp, attn.NeedSoftcap, attn.NeedBias, attn.NeedALiBi, attn.NeedSinks, attn.NeedRelative, attn.NeedMetric, attn.NeedRope:
		switch need {
		case attn.NeedTemp:
			p.Score.Temp = 2
		case attn.NeedSoftcap:
			p.Score.Softcap = 30
		case attn.NeedRope:
			p.Score.Rope = attn.RopeHalves
		default:
			p.Score.Terms = attn.TermBias << (log2(need) - log2(attn.NeedBias))
		}
	}
	return p
}

func log2(n attn.Needs) int { return int(math.Log2(float64(n))) }

// accepts returns an error unless Check and Plan accept a problem exactly when the claims cover it.
func (s *Subject) accepts(p attn.Problem) (err error) {
	defer catch(&err)
	lack := p.Needs() &^ s.Claims
	_, refusal := s.Kernel.Check(p, 1)
	plan, planRefusal := s.Kernel.Plan(p, nil)
	defer done(plan)
	switch {
	case (refusal == nil) != (planRefusal == nil):
		return fmt.Errorf("Check says %v and Plan says %v", refusal, planRefusal)
	case lack == 0 && refusal != nil:
		return fmt.Errorf("claimed, but refused: %w", refusal)
	case lack != 0 && refusal == nil:
		return errors.New("accepted, but not claimed")
	case lack != 0 && !errors.Is(refusal, attn.ErrUnsupported):
		return fmt.Errorf("the refusal is not ErrUnsupported: %w", refusal)
	}
	for n := attn.Needs(1); n <= lack && lack != 0; n <<= 1 {
		if lack&n != 0 && !strings.Contains(refusal.Error(), n.String()) {
			return fmt.Errorf("the refusal does not name %v: %w", n, refusal)
		}
	}
	return nil
}

// claimedCases checks every case with all its by-products, whether the claims cover them or not.
func claimedCases(s *Subject) error {
	for _, c := range cases.All() {
		if err := s.accepts(c.Problem); err != nil {
			return fmt.Errorf("%v: %w", &c, err)
		}
	}
	return nil
}

// malformed checks that invalid problems are refused, and not as unsupported: no kernel could
// compute them.
func malformed(s *Subject) error {
	for _, bad := range []struct {
		name string
		edit func(p *attn.Problem)
	}{
		{"negative batch", func(p *attn.Problem) { p.Batch = -1 }},
		{"negative length", func(p *attn.Problem) { p.SeqKV = -5 }},
		{"heads that do not divide", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV = 3, 2 }},
		{"no key heads", func(p *attn.Problem) { p.HeadsKV = 0 }},
		{"NaN scale", func(p *attn.Problem) { p.Score.Scale = math.NaN() }},
		{"infinite scale", func(p *attn.Problem) { p.Score.Scale = math.Inf(1) }},
		{"window of -2", func(p *attn.Problem) { p.Mask = attn.Window(-2, 0) }},
		{"window without band", func(p *attn.Problem) { p.Mask.Left = 3 }},
		{"sizes past the address space", func(p *attn.Problem) { p.SeqQ, p.SeqKV, p.Batch = 1<<40, 1<<40, 1<<40 }},
		{"unknown op", func(p *attn.Problem) { p.Op = 9 }},
		{"unknown type", func(p *attn.Problem) { p.Q = 9 }},
		{"int8 queries", func(p *attn.Problem) { p.Q = attn.I8 }},
		{"int8 output", func(p *attn.Problem) { p.Out = attn.I8 }},
		{"pages of 12", func(p *attn.Problem) { p.Page = 12 }},
		{"rows of 8193", func(p *attn.Problem) { p.DimV = attn.MaxDim + 1 }},
		{"pages of 2^31", func(p *attn.Problem) { p.Page = 1 << 31 }},
		{"blocks of 2^31", func(p *attn.Problem) { p.Mask = p.Mask.WithBlocks(1 << 31) }},
		{"pages of 4", func(p *attn.Problem) { p.Page = 4 }},
		{"blocks without side", func(p *attn.Problem) { p.Mask.Bitmap = attn.BlockBitmap }},
		{"side without blocks", func(p *attn.Problem) { p.Mask.Bitmap, p.Mask.Block = attn.PackedBitmap, 16 }},
		{"negative temperature", func(p *attn.Problem) { p.Score.Temp = -2 }},
		{"negative softcap", func(p *attn.Problem) { p.Score.Softcap = -1 }},
		{"LSE at temperature 0", func(p *attn.Problem) { p.Score.Temp, p.Want = attn.Frozen, attn.WantLSE }},
		{"sinks at temperature 0", func(p *attn.Problem) { p.Score.Temp, p.Score.Terms = attn.Frozen, attn.TermSinks }},
		{"sinks at infinite temperature", func(p *attn.Problem) { p.Score.Temp, p.Score.Terms = math.Inf(1), attn.TermSinks }},
		{"wide queries without metric", func(p *attn.Problem) { p.DimQ = p.Dim + 1 }},
		{"unknown term", func(p *attn.Problem) { p.Score.Terms = attn.TermMetric << 1 }},
		{"unknown by-product", func(p *attn.Problem) { p.Want = attn.WantGrad << 1 }},
	} {
		p := needing(0, s.ops()[0])
		bad.edit(&p)
		_, err := s.Kernel.Check(p, 1)
		_, planErr := s.Kernel.Plan(p, nil)
		if err == nil || planErr == nil || errors.Is(err, attn.ErrUnsupported) {
			return fmt.Errorf("%s: Check says %v and Plan says %v, want an error that is not ErrUnsupported", bad.name, err, planErr)
		}
	}
	return nil
}

// thrift checks that Check returns what a plan would allocate without allocating it: a harness may
// check lengths that no memory holds.
func thrift(s *Subject) error {
	p := needing(0, s.ops()[0])
	p.SeqQ, p.SeqKV, p.Dim, p.DimV = 1<<17, 1<<17, 128, 128
	// The limit allows for error texts, and for allocations of the rest of the program.
	const calls, most = 16, 64 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if _, err := s.Kernel.Check(p, 4); errors.Is(err, attn.ErrUnsupported) {
			return fmt.Errorf("refused for its length: %w", err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > calls*most {
		return fmt.Errorf("Check allocates %d bytes for %d keys", took/calls, p.SeqKV)
	}
	return nil
}

// operands checks wrong operands, one at a time. Forward must panic with an error that names the
// operand, before it writes anything.
func operands(s *Subject) error {
	for _, op := range s.ops() {
		for _, bad := range cases.BadCalls(op) {
			if bad.Problem.Needs()&^s.Claims != 0 {
				continue
			}
			n, err := cases.SlabLen(bad.Problem, "bhsd")
			if err != nil {
				return err
			}
			slab := make([]float32, n)
			a, err := cases.NewArgs(bad.Problem, "bhsd", slab)
			if err != nil {
				return err
			}
			plan, err := s.plan(bad.Problem, nil)
			if err != nil {
				return err
			}
			plan.Forward(a)
			poison(a)
			before := slices.Clone(slab)
			bad.Break(a)
			err = named(bad.Operand, func() { plan.Forward(a) })
			done(plan)
			if err != nil {
				return fmt.Errorf("%v %s: %w", op, bad.Name, err)
			}
			if err := same(before, slab); err != nil {
				return fmt.Errorf("%v %s: Forward wrote before it panicked: %w", op, bad.Name, err)
			}
		}
		p := needing(0, op)
		plan, err := s.plan(p, nil)
		if err != nil {
			return err
		}
		err = named("args", func() { plan.Forward(nil) })
		done(plan)
		if err != nil {
			return err
		}
	}
	return nil
}

func named(operand string, call func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
			err = fmt.Errorf("the plan accepted it, want a panic that names %s", operand)
		case error:
			if !strings.Contains(r.Error(), operand) {
				err = fmt.Errorf("the panic does not name %s: %w", operand, r)
			}
		default:
			err = fmt.Errorf("the panic is not an error: %v", r)
		}
	}()
	call()
	return nil
}
