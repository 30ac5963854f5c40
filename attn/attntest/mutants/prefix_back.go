package mutants

import (
	"math"

	"attnlab/attn"
)

// A lapse is a switch of PrefixBack.
type lapse uint8

const (
	awake lapse = iota
	normaliserConstant
	slopeForgotten
	scaleForgotten
	epsForgotten
	lastQueryHead
	keysAsQueries
	causeReversed
)

func prefixBackMutants() []Mutant {
	var all []Mutant
	for _, m := range []struct {
		lapse     lapse
		name, why string
	}{
		{normaliserConstant, "back_normaliser_constant", "the sum of weights is taken as a constant"},
		{slopeForgotten, "back_slope_forgotten", "the slope of the feature map is taken as 1"},
		{scaleForgotten, "back_scale_forgotten", "the gradient of an unnormalised output is not scaled"},
		{epsForgotten, "back_eps_forgotten", "eps is not in the denominator"},
		{lastQueryHead, "back_last_query_head", "keys and values have the gradient from the last query head that shares them"},
		{keysAsQueries, "back_keys_as_queries", "the gradient of a key goes through the slope at the query"},
		{causeReversed, "back_cause_reversed", "keys get their gradients from the queries before them"},
	} {
		all = append(all, Mutant{Name: m.name, Why: m.why, Kernel: prefixBack{prefix{m.name, none}, m.lapse}, Claims: prefixBackClaims, Backward: true})
	}
	return all
}

const prefixBackClaims = prefixClaims | attn.NeedGrad

// PrefixBack returns the healthy linear kernel with a backward pass, and its claims. Its forward
// pass is Prefix's.
func PrefixBack() (attn.Kernel, attn.Needs) {
	return prefixBack{prefix{"prefix_back", none}, awake}, prefixBackClaims
}

type prefixBack struct {
	prefix
	lapse lapse
}

func (k prefixBack) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, prefixBackClaims); err != nil {
		return 0, err
	}
	p.Want &^= attn.WantGrad
	return k.prefix.Check(p, workers)
}

func (k prefixBack) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if _, err := k.Check(p, team.Workers()); err != nil {
		return nil, err
	}
	bare := p
	bare.Want &^= attn.WantGrad
	forward, err := k.prefix.Plan(bare, team)
	if err != nil || p.Want&attn.WantGrad == 0 {
		return forward, err
	}
	return &prefixBackPlan{forward.(*prefixPlan), p, k.lapse}, nil
}

// A prefixBackPlan computes the weight of every pair, without a state.
type prefixBackPlan struct {
	*prefixPlan
	p     attn.Problem
	lapse lapse
}

func (pl *prefixBackPlan) Backward(a *attn.Args, g *attn.Grads) {
	p := &pl.p
	p.MustGrads(pl.name, a, g)
	g.Begin()
	for b := range p.Batch {
		for h := range p.HeadsQ {
			if pl.lapse == lastQueryHead && h%p.Group() == p.Group()-1 && g.K.Data != nil {
				for j := range a.K.S {
					clear(g.K.Row(b, j, h/p.Group()))
				}
			}
			for i := range a.Q.S {
				pl.row(a, g, b, i, h)
			}
		}
	}
}

func (pl *prefixBackPlan) row(a *attn.Args, g *attn.Grads, b, i, h int) {
	p, kv := &pl.p, h/pl.p.Group()
	lo, hi := a.Visible(p, b, i)
	if lo >= hi || g.Out.Data == nil {
		return
	}
	q, dout, out := a.Q.Row(b, i, h), g.Out.Row(b, i, h), a.Out.Row(b, i, h)
	by, sum := p.Scale(), 0.0
	if pl.lapse == scaleForgotten {
		by = 1
	}
	if !p.Linear.Unnormalised {
		z := p.Linear.Eps
		if pl.lapse == epsForgotten {
			z = 0
		}
		for j := lo; j < hi; j++ {
			for c, k := range a.K.Row(b, j, kv) {
				z += float64(pl.feature(q[c])) * float64(pl.feature(k))
			}
		}
		by = 1 / z
		if pl.lapse != normaliserConstant {
			sum = along(dout, out)
		}
	}
	for j := lo; j < hi; j++ {
		k, v := a.K.Row(b, j, kv), a.V.Row(b, j, kv)
		dw, w := (along(dout, v)-sum)*by, 0.0
		for c := range k {
			fq, fk := float64(pl.feature(q[c])), float64(pl.feature(k[c]))
			w += fq * fk
			if g.Q.Data != nil {
				g.Q.Row(b, i, h)[c] += float32(dw * fk * pl.slope(q[c]))
			}
			at := k[c]
			if pl.lapse == keysAsQueries {
				at = q[c]
			}
			if g.K.Data != nil {
				row := j
				if pl.lapse == causeReversed && p.Mask.Band {
					row = hi - 1 - j
				}
				g.K.Row(b, row, kv)[c] += float32(dw * fq * pl.slope(at))
			}
		}
		if g.V.Data != nil {
			dv := g.V.Row(b, j, kv)
			for c, x := range dout {
				dv[c] += float32(w * by * float64(x))
			}
		}
	}
}

func (pl *prefixBackPlan) slope(x float32) float64 {
	switch f := pl.p.Linear.Feature; {
	case pl.lapse == slopeForgotten || f == attn.Identity || x > 0:
		return 1
	case f == attn.EluPlusOne:
		return math.Exp(float64(x))
	}
	return 0
}
