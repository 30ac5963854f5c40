package mutants

import (
	"fmt"
	"math"

	"attnlab/attn"
)

// A slip is a switch of Prefix.
type slip uint8

const (
	none slip = iota
	reluForElu
	reluWithoutOne
	featureOfKeysOnly
	noNormaliser
	noEps
	noScale
	scaleTwice
	ownKeyHidden
	stateNotZeroed
	stateNotWritten
	stepForgets
	normaliserForgets
	stateByQueryHead
)

func prefixMutants() []Mutant {
	var all []Mutant
	for _, m := range []struct {
		slip      slip
		name, why string
	}{
		{reluForElu, "relu_for_elu", "the feature of a negative number is 1, not exp"},
		{reluWithoutOne, "relu_without_one", "relu+1 leaves out the 1"},
		{featureOfKeysOnly, "feature_of_keys_only", "the feature map is not applied to queries"},
		{noNormaliser, "no_normaliser", "the output is not divided by the sum of weights"},
		{noEps, "no_eps", "eps is not added to the normaliser"},
		{noScale, "no_scale", "an unnormalised output is not scaled"},
		{scaleTwice, "scale_twice", "an unnormalised output is scaled twice"},
		{ownKeyHidden, "own_key_hidden", "an output is computed before the query's own key is added to the state"},
		{stateNotZeroed, "state_not_zeroed", "Forward starts from what the plan's state held"},
		{stateNotWritten, "state_not_written", "Step leaves the state as it found it"},
		{stepForgets, "step_forgets", "Step starts from zero, not from the state"},
		{normaliserForgets, "normaliser_forgets", "Step carries the sum of products, but not that of features"},
		{stateByQueryHead, "state_by_query_head", "the state of a key head adds its keys once for every query head"},
	} {
		all = append(all, Mutant{Name: m.name, Why: m.why, Kernel: prefix{m.name, m.slip}, Claims: prefixClaims})
	}
	return all
}

const prefixClaims = attn.NeedLinear | attn.NeedLengths

// Prefix returns the healthy linear kernel and its claims.
func Prefix() (attn.Kernel, attn.Needs) { return prefix{"prefix", none}, prefixClaims }

type prefix struct {
	name string
	slip slip
}

func (k prefix) Name() (algo, is string) { return k.name, isa }

func (k prefix) Check(p attn.Problem, _ int) (int64, error) {
	if err := p.Require(k.name, prefixClaims); err != nil {
		return 0, err
	}
	return attn.Floats(p.Batch, p.HeadsKV, p.Dim, p.DimV+1)
}

func (k prefix) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &prefixPlan{prefix: k, p: p, team: team, state: make([]float32, scratch/4)}
	pl.task = pl.head
	return pl, nil
}

// A prefixPlan keeps two sums over the keys so far for every batch entry and key head: f(k) v^T,
// [Dim][DimV], and f(k), [Dim].
type prefixPlan struct {
	prefix
	p     attn.Problem
	team  *attn.Team
	state []float32
	a     *attn.Args
	task  func(worker, task int)
}

func (pl *prefixPlan) Scratch() int64 { return 4 * int64(len(pl.state)) }

func (pl *prefixPlan) Forward(a *attn.Args) {
	pl.p.Must(pl.name, a)
	if pl.slip != stateNotZeroed {
		clear(pl.state)
	}
	pl.run(a)
}

func (pl *prefixPlan) StateLen() int {
	if pl.p.Linear.Unnormalised {
		return pl.p.Batch * pl.p.HeadsKV * pl.p.Dim * pl.p.DimV
	}
	return len(pl.state)
}

func (pl *prefixPlan) Step(a *attn.Args, state []float32) {
	pl.p.Must(pl.name, a)
	if n := pl.StateLen(); len(state) != n {
		panic(fmt.Errorf("%s: state: %d numbers, the plan has %d", pl.name, len(state), n))
	}
	clear(pl.state)
	switch pl.slip {
	case stepForgets:
	case normaliserForgets:
		copy(pl.state[:len(pl.state)-pl.p.Batch*pl.p.HeadsKV*pl.p.Dim], state)
	default:
		copy(pl.state, state)
	}
	pl.run(a)
	if pl.slip != stateNotWritten {
		copy(state, pl.state)
	}
}

func (pl *prefixPlan) run(a *attn.Args) {
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.HeadsKV, pl.task)
	pl.a = nil
}

// head computes the queries of one key head in order, and adds keys as they become visible.
func (pl *prefixPlan) head(_, task int) {
	p, a := &pl.p, pl.a
	b, kv := task/p.HeadsKV, task%p.HeadsKV
	sums := p.Batch * p.HeadsKV * p.Dim * p.DimV
	x, z := pl.state[task*p.Dim*p.DimV:][:p.Dim*p.DimV], pl.state[sums+task*p.Dim:][:p.Dim]
	seen := 0
	for i := range a.Q.S {
		_, hi := a.Visible(p, b, i)
		if pl.slip == ownKeyHidden && p.Mask.Band {
			hi = max(hi-1, 0)
		}
		for ; seen < hi; seen++ {
			pl.add(x, z, b, kv, seen)
			if pl.slip == stateByQueryHead {
				for range p.Group() - 1 {
					pl.add(x, z, b, kv, seen)
				}
			}
		}
		for g := range p.Group() {
			pl.answer(x, z, b, i, kv*p.Group()+g, hi)
		}
	}
}

func (pl *prefixPlan) add(x, z []float32, b, kv, j int) {
	v := pl.a.V.Row(b, j, kv)
	for r, k := range pl.a.K.Row(b, j, kv) {
		f := pl.feature(k)
		z[r] += f
		row := x[r*pl.p.DimV:][:pl.p.DimV]
		for c := range row {
			row[c] += float32(f * v[c])
		}
	}
}

func (pl *prefixPlan) answer(x, z []float32, b, i, h, visible int) {
	p := &pl.p
	dst := pl.a.Out.Row(b, i, h)
	clear(dst)
	if visible == 0 {
		return
	}
	den := float32(0)
	for r, q := range pl.a.Q.Row(b, i, h) {
		f := q
		if pl.slip != featureOfKeysOnly {
			f = pl.feature(q)
		}
		den += float32(f * z[r])
		for c := range dst {
			dst[c] += float32(f * x[r*p.DimV+c])
		}
	}
	if pl.slip != noEps {
		den += float32(p.Linear.Eps)
	}
	factor := 1 / den
	switch {
	case p.Linear.Unnormalised && pl.slip == noScale, !p.Linear.Unnormalised && pl.slip == noNormaliser:
		factor = 1
	case p.Linear.Unnormalised && pl.slip == scaleTwice:
		factor = float32(p.Scale() * p.Scale())
	case p.Linear.Unnormalised:
		factor = float32(p.Scale())
	}
	for c := range dst {
		dst[c] *= factor
	}
}

func (pl *prefixPlan) feature(x float32) float32 {
	f := pl.p.Linear.Feature
	switch {
	case f == attn.Identity:
		return x
	case f == attn.ReluPlusOne && pl.slip == reluWithoutOne:
		return max(x, 0)
	case x > 0:
		return x + 1
	case f == attn.EluPlusOne && pl.slip != reluForElu:
		return float32(math.Exp(float64(x)))
	case x != x:
		return x
	}
	return 1
}
