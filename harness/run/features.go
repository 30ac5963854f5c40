package run

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
)

// A feature is one entry of a point's list of features and what it changes in a problem.
type feature struct {
	name  string // with an argument, it ends in a colon
	slot  string // of several features for one slot a list holds one
	ops   [2]bool
	apply func(q *attn.Problem, arg string) error
	arg   string
}

// String is the feature as it is written, with its argument.
func (f *feature) String() string { return f.name + f.arg }

// mapSlot is that of the feature map of a linear point, which is never empty.
const mapSlot = "feature map"

var (
	softmaxOnly = [2]bool{attn.OpSoftmax: true}
	linearOnly  = [2]bool{attn.OpLinear: true}
	anyOp       = [2]bool{true, true}
)

// features are in the order in which a point lists them.
var features = [...]feature{
	{name: "elu+1", slot: mapSlot, ops: linearOnly, apply: featureMap(attn.EluPlusOne)},
	{name: "relu+1", slot: mapSlot, ops: linearOnly, apply: featureMap(attn.ReluPlusOne)},
	{name: "identity", slot: mapSlot, ops: linearOnly, apply: featureMap(attn.Identity)},
	{name: "projection", slot: mapSlot, ops: linearOnly, apply: featureMap(attn.Projection)},
	{name: "unnormalised", ops: linearOnly, apply: func(q *attn.Problem, _ string) error { q.Linear.Unnormalised = true; return nil }},
	{name: "gated", slot: "rule", ops: linearOnly, apply: rule(attn.Gated)},
	{name: "delta", slot: "rule", ops: linearOnly, apply: rule(attn.Delta)},
	{name: "gated-delta", slot: "rule", ops: linearOnly, apply: rule(attn.GatedDelta)},
	{name: "eps:", ops: linearOnly, apply: func(q *attn.Problem, arg string) error { return positive(&q.Linear.Eps, arg) }},
	{name: "temp:", ops: softmaxOnly, apply: temperature},
	{name: "softcap:", ops: softmaxOnly, apply: func(q *attn.Problem, arg string) error { return positive(&q.Score.Softcap, arg) }},
	{name: "bias", ops: softmaxOnly, apply: term(attn.TermBias)},
	{name: "alibi", ops: softmaxOnly, apply: term(attn.TermALiBi)},
	{name: "sinks", ops: softmaxOnly, apply: term(attn.TermSinks)},
	{name: "relative", ops: softmaxOnly, apply: term(attn.TermRelative)},
	{name: "metric", ops: softmaxOnly, apply: term(attn.TermMetric)},
	{name: "rope", slot: "rope", ops: softmaxOnly, apply: rope(attn.RopeInterleaved)},
	{name: "rope-halves", slot: "rope", ops: softmaxOnly, apply: rope(attn.RopeHalves)},
	{name: "bool", ops: anyOp, apply: func(q *attn.Problem, _ string) error { q.Mask = q.Mask.With(attn.BoolBitmap); return nil }},
	{name: "lengths", ops: anyOp, apply: func(q *attn.Problem, _ string) error { q.Lengths = true; return nil }},
	{name: "lse", ops: softmaxOnly, apply: want(attn.WantLSE)},
	{name: "mean", ops: softmaxOnly, apply: want(attn.WantMean)},
	{name: "entropy", ops: softmaxOnly, apply: want(attn.WantEntropy)},
	{name: "max", ops: softmaxOnly, apply: want(attn.WantMax)},
	{name: "argmax", ops: softmaxOnly, apply: want(attn.WantArgMax)},
	{name: "weights", ops: softmaxOnly, apply: want(attn.WantWeights)},
	{name: "scores", ops: softmaxOnly, apply: want(attn.WantScores)},
}

func featureMap(f attn.Feature) func(*attn.Problem, string) error {
	return func(q *attn.Problem, _ string) error { q.Linear.Feature = f; return nil }
}

func rule(r attn.Rule) func(*attn.Problem, string) error {
	return func(q *attn.Problem, _ string) error { q.Linear.Rule = r; return nil }
}

func term(t attn.Terms) func(*attn.Problem, string) error {
	return func(q *attn.Problem, _ string) error { q.Score.Terms |= t; return nil }
}

func rope(r attn.Rope) func(*attn.Problem, string) error {
	return func(q *attn.Problem, _ string) error { q.Score.Rope = r; return nil }
}

func want(w attn.Want) func(*attn.Problem, string) error {
	return func(q *attn.Problem, _ string) error { q.Want |= w; return nil }
}

func positive(to *float64, arg string) error {
	x, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return fmt.Errorf("%q is not a positive number", arg)
	}
	*to = x
	return nil
}

func temperature(q *attn.Problem, arg string) error {
	switch arg {
	case "inf":
		q.Score.Temp = math.Inf(1)
		return nil
	case "frozen":
		q.Score.Temp = attn.Frozen
		return nil
	}
	return positive(&q.Score.Temp, arg)
}

// splitFeatures reads a list of features, in any order, and returns it in the order of the table. Names may hold a + of their own.
func splitFeatures(op, s string) ([]feature, error) {
	var list []feature
	o := 0
	if op == attn.OpLinear.String() {
		o = int(attn.OpLinear)
	}
	for rest := s; rest != ""; {
		var f *feature
		var tail string
		for i := range features {
			t, ok := strings.CutPrefix(rest, features[i].name)
			if !ok {
				continue
			}
			arg := ""
			if strings.HasSuffix(features[i].name, ":") {
				arg, t, ok = strings.Cut(t, "+")
				if ok {
					t = "+" + t
				}
			}
			if t == "" || t[0] == '+' {
				c := features[i]
				c.arg, f, tail = arg, &c, t
			}
		}
		if f == nil || tail == "+" {
			return nil, fmt.Errorf("features %q: %q is not known; op %s has %s", s, rest, op, featureNames(o))
		}
		if !f.ops[o] {
			return nil, fmt.Errorf("features %q: op %s has no %s; it has %s", s, op, f.name, featureNames(o))
		}
		for _, g := range list {
			if g.name == f.name || g.slot != "" && g.slot == f.slot {
				return nil, fmt.Errorf("features %q: %s and %s exclude each other", s, g.String(), f.String())
			}
		}
		list = append(list, *f)
		rest = strings.TrimPrefix(tail, "+")
	}
	slices.SortStableFunc(list, func(a, b feature) int { return featureIndex(a.name) - featureIndex(b.name) })
	return list, nil
}

func featureIndex(name string) int {
	return slices.IndexFunc(features[:], func(f feature) bool { return f.name == name })
}

func featureNames(op int) string {
	var s []string
	for _, f := range features {
		if f.ops[op] {
			s = append(s, f.name)
		}
	}
	return strings.Join(s, " ")
}

// orderFeatures is the one spelling of a list. A linear point names its feature map, elu+1 if nothing else.
func orderFeatures(op, s string) (string, error) {
	list, err := splitFeatures(op, s)
	if err != nil {
		return "", err
	}
	if op == attn.OpLinear.String() && !slices.ContainsFunc(list, func(f feature) bool { return f.slot == mapSlot }) {
		list = slices.Insert(list, 0, features[0])
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].String()
	}
	return strings.Join(names, "+"), nil
}
