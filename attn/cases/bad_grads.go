package cases

import (
	"slices"

	"attnlab/attn"
)

// A BadGrad is a backward pass with one wrong operand.
type BadGrad struct {
	Name, Operand string
	Problem       attn.Problem
	Break         func(a *attn.Args, g *attn.Grads)
}

// BadGrads lists backward passes of an operation with one wrong operand each, of the operands that
// the operation has. All others are those of NewArgs and NewGrads in layout bhsd.
func BadGrads(op attn.Op) []BadGrad {
	base := problem(2, 5, 6, 4, 2, 8, 7)
	base.Op, base.Want = op, attn.WantGrad
	row := attn.New(attn.BHSD, 2, 5, 4, 1)
	bad := []BadGrad{
		{"k-missing", "K", base, func(a *attn.Args, _ *attn.Grads) { a.K = attn.Tensor{} }},
		{"dout-wrong-length", "dOut", base, func(_ *attn.Args, g *attn.Grads) { g.Out.S = 4 }},
		{"dout-wrong-dim", "dOut", base, func(_ *attn.Args, g *attn.Grads) { g.Out = attn.New(attn.BHSD, 2, 5, 4, 8) }},
		{"dout-too-short", "dOut", base, func(_ *attn.Args, g *attn.Grads) { g.Out.Data = g.Out.Data[1:] }},
		{"dout-half-precision", "dOut", base, func(_ *attn.Args, g *attn.Grads) { g.Out.Type = attn.F16 }},
		{"dq-key-heads", "dQ", base, func(_ *attn.Args, g *attn.Grads) { g.Q = attn.New(attn.BHSD, 2, 5, 2, 8) }},
		{"dq-broadcast", "dQ", base, func(_ *attn.Args, g *attn.Grads) { g.Q.SB = 0 }},
		{"dq-in-q", "dQ", base, func(a *attn.Args, g *attn.Grads) { g.Q.Data = a.Q.Data }},
		{"dk-query-heads", "dK", base, func(_ *attn.Args, g *attn.Grads) { g.K = attn.New(attn.BHSD, 2, 6, 4, 8) }},
		{"dk-too-short", "dK", base, func(_ *attn.Args, g *attn.Grads) { g.K.Data = g.K.Data[1:] }},
		{"dk-rows-overlap", "dK", base, func(_ *attn.Args, g *attn.Grads) { g.K.SS = 7 }},
		{"dv-wrong-dim", "dV", base, func(_ *attn.Args, g *attn.Grads) { g.V = attn.New(attn.BHSD, 2, 6, 2, 8) }},
		{"dv-in-dk", "dV", base, func(_ *attn.Args, g *attn.Grads) {
			slab := make([]float32, 1000)
			g.K.Data, g.V.Data = slab, slab[len(g.K.Data)-1:]
		}},
		{"dk-in-dq-of-the-next-batch", "dK", base, func(_ *attn.Args, g *attn.Grads) {
			slab := make([]float32, 1000)
			for i, t := range []*attn.Tensor{&g.Q, &g.K} {
				t.Data, t.SB, t.SS, t.SH = slab[32*i:], 410, 80, 8
			}
		}},
		{"dv-in-dout", "dV", base, func(_ *attn.Args, g *attn.Grads) { g.V.Data = g.Out.Data }},
		{"dbias-unasked", "dBias", base, func(_ *attn.Args, g *attn.Grads) { g.Terms.Bias = attn.New(attn.BHSD, 1, 5, 4, 6) }},
		{"dsinks-unasked", "dSinks", base, func(_ *attn.Args, g *attn.Grads) { g.Terms.Sinks = make([]float32, 4) }},
		{"dcos", "dCos", base, func(_ *attn.Args, g *attn.Grads) { g.Terms.Cos = row }},
	}
	if op.HasLSE() {
		bad = append(bad, []BadGrad{
			{"lse-missing", "Stats.LSE", base, func(a *attn.Args, _ *attn.Grads) { a.Stats.LSE = attn.Tensor{} }},
			{"dlse-wrong-heads", "dLSE", base, func(_ *attn.Args, g *attn.Grads) { g.LSE.H = 2 }},
			{"dentropy-without", "dEntropy", base, func(_ *attn.Args, g *attn.Grads) { g.Entropy = row }},
		}...)
	} else {
		bad = append(bad, BadGrad{"dlse-without", "dLSE", base, func(_ *attn.Args, g *attn.Grads) { g.LSE = row }})
	}
	terms, entropy := base, base
	terms.Score.Terms = attn.TermBias | attn.TermALiBi | attn.TermSinks
	entropy.Want |= attn.WantEntropy
	bad = append(bad, []BadGrad{
		{"dentropy-wrong-dim", "dEntropy", entropy, func(_ *attn.Args, g *attn.Grads) { g.Entropy.D = 2 }},
		{"dbias-wrong-shape", "dBias", terms, func(_ *attn.Args, g *attn.Grads) { g.Terms.Bias.H = 1 }},
		{"dslopes-too-few", "dSlopes", terms, func(_ *attn.Args, g *attn.Grads) { g.Terms.Slopes = g.Terms.Slopes[:3] }},
		{"dslopes-in-slopes", "dSlopes", terms, func(a *attn.Args, g *attn.Grads) { g.Terms.Slopes = a.Terms.Slopes }},
		{"dsinks-too-many", "dSinks", terms, func(_ *attn.Args, g *attn.Grads) { g.Terms.Sinks = make([]float32, 5) }},
	}...)
	rule := base
	if rule.SeqQ = rule.SeqKV; op == attn.OpLinear {
		rule = attn.KDA(rule)
		rule.Want = base.Want
	} else {
		rule.Linear.Delta = true // which makes it invalid
	}
	bad = append(bad, []BadGrad{
		{"ddecay-unasked", "dDecay", base, func(_ *attn.Args, g *attn.Grads) { g.Terms.Decay = attn.New(attn.BHSD, 2, 6, 2, 1) }},
		{"dstate-unasked", "dStateIn", base, func(_ *attn.Args, g *attn.Grads) { g.StateIn = make([]float32, 224) }},
		{"ddecay-per-head", "dDecay", rule, func(_ *attn.Args, g *attn.Grads) { g.Terms.Decay = attn.New(attn.BHSD, 2, 6, 2, 1) }},
		{"dbeta-wrong-heads", "dBeta", rule, func(_ *attn.Args, g *attn.Grads) { g.Terms.Beta = attn.New(attn.BHSD, 2, 6, 4, 1) }},
		{"dstate-out-too-short", "dStateOut", rule, func(_ *attn.Args, g *attn.Grads) { g.StateOut = g.StateOut[1:] }},
		{"dstate-in-too-long", "dStateIn", rule, func(_ *attn.Args, g *attn.Grads) { g.StateIn = make([]float32, 225) }},
		{"dstate-in-in-state-in", "dStateIn", rule, func(a *attn.Args, g *attn.Grads) { g.StateIn = a.StateIn }},
		{"dstate-in-in-dstate-out", "dStateIn", rule, func(_ *attn.Args, g *attn.Grads) { g.StateIn = g.StateOut }},
		{"state-in-place", "StateOut", rule, func(a *attn.Args, _ *attn.Grads) { a.StateOut = a.StateIn }},
	}...)
	return slices.DeleteFunc(bad, func(b BadGrad) bool { return b.Problem.Validate() != nil })
}
