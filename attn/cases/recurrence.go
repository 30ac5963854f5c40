package cases

import (
	"fmt"
	"math"
	"strings"

	"attnlab/attn"
)

// The families of recurrences. No step enlarges a state by much, so that float32 arithmetic has an
// answer: keys of the delta rule have length 1, and beta is at most 2.

// A rule turns a problem into one with a recurrence.
type rule struct {
	name string
	of   func(attn.Problem) attn.Problem
}

// A decay fills the gates of a call.
type decay struct {
	name string
	gate func(t, channel int, r rnd) float64 // of token t
}

var decays = []decay{
	{"sigmoid", nil}, // as Fill does
	{"slow", func(_, _ int, r rnd) float64 { return -math.Log1p(math.Exp(-r.NormFloat64())) / 16 }},
	{"wide", func(_, _ int, r rnd) float64 { return -1e-4 - r.Float64()*(20-1e-4) }},
	{"spikes", func(t, channel int, r rnd) float64 {
		if t%16 == 5 && channel%2 == 0 {
			return -70
		}
		return -0.1 * r.Float64()
	}},
	{"resets", func(t, channel int, r rnd) float64 {
		switch t % 9 {
		case 2:
			return math.Inf(-1)
		case 6:
			return -200
		}
		return -r.Float64()
	}},
	{"positive", func(t, channel int, r rnd) float64 { return 0.2*r.Float64() - 0.1 }},
	{"none", func(t, channel int, r rnd) float64 { return 0 }},
}

// fill fills the gates of a call.
func (d decay) fill(_ *attn.Problem, a *attn.Args, r rnd) {
	if d.gate == nil {
		return
	}
	Rows(&a.Terms.Decay, func(_, t, _ int, row []float32) {
		for c := range row {
			row[c] = float32(d.gate(t, c, r))
		}
	})
}

// constant gives every value head one gate for all tokens, by a stride of 0.
func constant(p *attn.Problem, a *attn.Args, _ rnd) {
	t := &a.Terms.Decay
	*t = attn.ConstantDecay(attn.RetNetDecay(p.ValueHeads()), t.B, t.S)
}

// lengths of calls: around the chunks that kernels may have.
var tokens = []int{1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 200}

// gates has the rules without the delta rule, under every kind of gate.
func gates(l *list) {
	for i, rule := range []rule{{"head", attn.RetNet}, {"key", attn.GLA}, {"sums", sums}} {
		for _, d := range decays {
			l.add(rule.name+"-"+d.name, rule.of(head(70, 70, 8, 12))).core(d.name != "positive" || i == 1).with(d.fill)
		}
		for _, n := range tokens {
			l.add(fmt.Sprintf("%s-%d", rule.name, n), rule.of(problem(1, n, n, 2, 2, 8, 8))).core(n == 1 || n == 33)
		}
		for _, d := range [][2]int{{1, 1}, {3, 5}, {59, 64}, {128, 128}, {64, 59}} {
			l.add(fmt.Sprintf("%s-dim-%d-%d", rule.name, d[0], d[1]), rule.of(head(40, 40, d[0], d[1]))).core(d[0] == 59)
		}
		ragged := rule.of(problem(3, 40, 40, 2, 1, 8, 12))
		ragged.Ragged = true
		l.add(rule.name+"-ragged", ragged).core(i < 2).with(unevenTokens)
		l.add(rule.name+"-padded", rule.of(problem(2, 40, 40, 2, 1, 8, 12))).in("padded").core(i == 1)
		l.add(rule.name+"-below-capacity", rule.of(problem(2, 50, 50, 2, 2, 8, 8))).
			with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, 21, 21) })
	}
	l.add("constant", attn.RetNet(problem(2, 70, 70, 4, 2, 8, 12))).core(true).with(constant)
	l.add("wide-512", attn.GLA(head(34, 34, 512, 16)))
	for _, f := range []attn.Feature{attn.EluPlusOne, attn.ReluPlusOne} {
		p := attn.GLA(head(40, 40, 8, 8))
		p.Linear.Feature = f
		l.add(fmt.Sprintf("key-%v", f), p)
		p = sums(head(40, 40, 8, 8))
		p.Linear.Feature, p.Linear.Eps = f, 0.5
		l.add(fmt.Sprintf("sums-%v", f), p)
	}
}

// unevenTokens makes the sequences of a ragged batch unequal, the second one empty, and leaves rows
// between them that belong to none.
func unevenTokens(p *attn.Problem, a *attn.Args, _ rnd) {
	n := int32(p.SeqQ)
	a.QStart = []int32{0, n - 3, n - 3, 2*n - 10}
	a.KStart = []int32{0, n - 3, n - 3, 2*n - 10}
}

// odd has a number that is not finite in one token of one of two heads.
func odd(l *list) {
	at := func(t func(a *attn.Args) *attn.Tensor, column int, x float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(_ *attn.Problem, a *attn.Args, _ rnd) { t(a).Row(0, 20, 0)[column] = x }
	}
	q, k, v := func(a *attn.Args) *attn.Tensor { return &a.Q }, func(a *attn.Args) *attn.Tensor { return &a.K }, func(a *attn.Args) *attn.Tensor { return &a.V }
	gate, beta := func(a *attn.Args) *attn.Tensor { return &a.Terms.Decay }, func(a *attn.Args) *attn.Tensor { return &a.Terms.Beta }
	for i, rule := range []rule{{"retnet", attn.RetNet}, {"gla", attn.GLA}, {"sums", sums}, {"gated-delta", attn.GatedDelta}, {"kda", attn.KDA}, {"delta", attn.DeltaNet}} {
		for _, bad := range []struct {
			name string
			core bool
			edit func(*attn.Problem, *attn.Args, rnd)
		}{
			{"nan-q", i == 3, at(q, 1, nan)},
			{"nan-k", i == 3, at(k, 1, nan)},
			{"nan-v", i > 2, at(v, 1, nan)},
			{"inf-k", i == 0, at(k, 1, inf)},
			{"nan-gate", i > 2, at(gate, 0, nan)},
			{"inf-gate", true, at(gate, 0, inf)},
			{"nan-beta", i > 3, at(beta, 0, nan)},
		} {
			p := rule.of(problem(1, 40, 40, 2, 2, 8, 8))
			if p.Linear.Gate == attn.NoGate && strings.HasSuffix(bad.name, "gate") || !p.Linear.Delta && strings.HasSuffix(bad.name, "beta") {
				continue
			}
			l.add(rule.name+"-"+bad.name, p).core(bad.core).with(bad.edit)
		}
	}
}

// sums is the rule with normalised outputs and a gate per head.
func sums(p attn.Problem) attn.Problem {
	p.Mask, p.Linear.Gate = attn.Causal(), attn.HeadGate
	return p
}

// delta has the delta rule without a gate, with a gate per head and with a gate per key channel.
func delta(l *list) {
	bare := func(of func(attn.Problem) attn.Problem) func(attn.Problem) attn.Problem {
		return func(p attn.Problem) attn.Problem { // Fill gives keys of length 1
			p = of(p)
			p.Linear.Norm, p.Linear.NormEps = attn.NoNorm, 0
			return p
		}
	}
	for i, rule := range []rule{{"plain", bare(attn.DeltaNet)}, {"gated", bare(attn.GatedDelta)}, {"key", bare(attn.KDA)}} {
		for _, n := range tokens {
			l.add(fmt.Sprintf("%s-%d", rule.name, n), rule.of(problem(1, n, n, 2, 2, 8, 8))).core(n == 1 || n == 33)
		}
		for _, d := range [][2]int{{1, 1}, {3, 5}, {59, 64}, {128, 128}, {64, 59}} {
			l.add(fmt.Sprintf("%s-dim-%d-%d", rule.name, d[0], d[1]), rule.of(head(40, 40, d[0], d[1]))).core(d[0] == 59 && i == 1)
		}
		for _, d := range decays {
			if i > 0 {
				l.add(rule.name+"-"+d.name, rule.of(head(70, 70, 8, 12))).core(true).with(d.fill)
			}
		}
		for _, b := range []struct {
			name string
			beta func(r rnd) float64
		}{{"0", func(rnd) float64 { return 0 }}, {"1", func(rnd) float64 { return 1 }}, {"2", func(rnd) float64 { return 2 }}, {"to-2", func(r rnd) float64 { return 2 * r.Float64() }}} {
			l.add(rule.name+"-beta-"+b.name, rule.of(head(40, 40, 8, 12))).core(b.name == "to-2").
				with(func(_ *attn.Problem, a *attn.Args, r rnd) {
					Rows(&a.Terms.Beta, func(_, _, _ int, row []float32) { row[0] = float32(b.beta(r)) })
				})
		}
		l.add(rule.name+"-shared-beta", rule.of(problem(2, 40, 40, 4, 2, 8, 12))).core(i == 1).
			with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Terms.Beta.H = 1 })
		ragged := rule.of(problem(3, 40, 40, 2, 1, 8, 12))
		ragged.Ragged = true
		l.add(rule.name+"-ragged", ragged).core(i == 1).with(unevenTokens)
		l.add(rule.name+"-padded", rule.of(problem(2, 40, 40, 2, 1, 8, 12))).in("padded").core(i == 2)
	}
	l.add("orthogonal", bare(attn.DeltaNet)(head(8, 8, 8, 12))).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Rows(&a.K, func(_, t, _ int, row []float32) {
			clear(row)
			row[t] = 1
		})
	})
}

// valueHeads has heads that share keys, queries or values. Every head differs, so that h div r and
// h mod n are different answers.
func valueHeads(l *list) {
	for i, h := range []struct {
		name    string
		q, k, v int
	}{
		{"gqa", 4, 2, 0},
		{"gva-2", 2, 2, 4},
		{"gva-4", 1, 1, 4},
		{"gva-of-groups", 4, 2, 4},
		{"one-value", 4, 4, 1},
		{"one-query", 1, 4, 4},
		{"all-alike", 3, 3, 3},
		{"shared-values", 4, 4, 2},
	} {
		for _, rule := range []rule{{"plain", func(p attn.Problem) attn.Problem { p.Mask = attn.Causal(); return p }}, {"ssd", attn.SSD}, {"gated-delta", attn.GatedDelta}, {"kda", attn.KDA}} {
			p := problem(2, 35, 35, h.q, h.k, 8, 12)
			p.Linear.HeadsV = h.v
			l.add(rule.name+"-"+h.name, rule.of(p)).core(i < 3 && rule.name != "plain" || i == 4 && rule.name == "gated-delta")
		}
	}
	p := problem(1, 20, 30, 2, 2, 8, 8)
	p.Linear.HeadsV = 4
	l.add("full", p)
}

// norms has rows of Q and K that are normalised: both kinds, rows of zeros and short rows.
func norms(l *list) {
	for _, n := range []struct {
		norm attn.Norm
		eps  float64
	}{{attn.NormSum, 1e-6}, {attn.NormMax, 1e-6}, {attn.NormSum, 0.5}, {attn.NormMax, 2}} {
		for _, rule := range []rule{{"retnet", attn.RetNet}, {"gated-delta", attn.GatedDelta}, {"kda", attn.KDA}} {
			p := rule.of(head(40, 40, 8, 12))
			p.Linear.Norm, p.Linear.NormEps = n.norm, n.eps
			l.add(fmt.Sprintf("%s-%v-%v", rule.name, n.norm, n.eps), p).core(rule.name == "gated-delta").with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
				for _, t := range []*attn.Tensor{&a.Q, &a.K} {
					clear(t.Row(0, 7, 0))
					clear(t.Row(0, 8, 0))
					t.Row(0, 8, 0)[2] = 1e-4
					scaleBy(t.Row(0, 9, 0), 1e3)
				}
			})
		}
	}
	p := problem(1, 40, 40, 1, 1, 8, 12)
	p.Mask, p.Linear = attn.Causal(), attn.Linear{Norm: attn.NormSum, NormEps: 1e-6}
	l.add("elu", p)
}

// states has states that are not given or not wanted, snapshots, and padding.
func states(l *list) {
	none := func(_ *attn.Problem, a *attn.Args, _ rnd) { a.StateIn = nil }
	unwanted := func(_ *attn.Problem, a *attn.Args, _ rnd) { a.StateOut = nil }
	for i, rule := range []rule{{"retnet", attn.RetNet}, {"sums", sums}, {"gated-delta", attn.GatedDelta}, {"kda", attn.KDA}} {
		p := rule.of(problem(2, 40, 40, 2, 1, 8, 12))
		l.add(rule.name+"-from-zero", p).core(i == 2).with(none)
		l.add(rule.name+"-unwanted", p).core(i == 0).with(unwanted)
		for _, k := range []int{2, 5} {
			for _, n := range []int{1, 4, 40} {
				p := rule.of(problem(2, n, n, 2, 1, 8, 12))
				p.Linear.Snapshots = k
				l.add(fmt.Sprintf("%s-%d-snapshots-of-%d", rule.name, k, n), p).core(k == 5 && n != 1 && i > 0)
			}
		}
		l.add(rule.name+"-padding", p).core(i > 1).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			pad(a, 0, 3)
			pad(a, 30, 40)
		})
		l.add(rule.name+"-padding-alone", p).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { pad(a, 0, 40) })
		ragged := rule.of(problem(3, 40, 40, 2, 1, 8, 12))
		ragged.Ragged, ragged.Linear.Snapshots = true, 4
		l.add(rule.name+"-ragged-snapshots", ragged).core(i == 2).with(unevenTokens)
	}
	for _, lin := range []attn.Linear{{}, {Feature: attn.Identity, Unnormalised: true}} {
		p := problem(2, 40, 40, 2, 1, 8, 12)
		p.Mask, p.Linear = attn.Causal(), lin
		l.add(fmt.Sprintf("plain-%v", lin.Feature), p).core(true).with(func(p *attn.Problem, a *attn.Args, r rnd) {
			a.StateIn, a.StateOut = make([]float32, p.StateLen()), make([]float32, p.StateLen())
			for i := range a.StateIn {
				a.StateIn[i] = float32(math.Abs(r.NormFloat64()))
			}
			fill(a.StateOut, Poison)
		})
	}
}

// pad turns tokens from..to into padding, which changes no state.
func pad(a *attn.Args, from, to int) {
	for _, t := range []*attn.Tensor{&a.K, &a.V, &a.Terms.Decay, &a.Terms.Beta} {
		Rows(t, func(_, s, _ int, row []float32) {
			if from <= s && s < to {
				clear(row)
			}
		})
	}
}
