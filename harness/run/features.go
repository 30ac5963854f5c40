package run

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
)

// A feature is one entry of a point's list of features.
type feature struct {
	name  string                // ends in a colon if the feature has an argument
	takes string                // the argument, in messages
	slot  string                // a list holds one feature of each slot
	of    func(op attn.Op) bool // reports whether an operation has the feature
	apply func(q *attn.Problem, arg string) (arrangement, error)
	arg   string
}

// An arrangement changes the operands of a call as a feature demands. Most features need none: the
// problem says all of them.
type arrangement func(q *attn.Problem, a *attn.Args)

// String returns the feature as it is written, with its argument.
func (f *feature) String() string { return f.name + f.arg }

// Slots that several features share. If the op has feature maps, every list holds one of them.
const (
	mapSlot    = "feature map"
	bitmapSlot = "bitmap"
	raggedSlot = "ragged"
)

// taken returns a function that reports whether a problem of an operation may need an ability.
func taken(need attn.Needs) func(attn.Op) bool {
	return func(op attn.Op) bool { return op.Takes()&need != 0 }
}

// ofLinear reports whether an operation has the features that set fields of attn.Linear.
func ofLinear(op attn.Op) bool { return op == attn.OpLinear }

// features is in the order in which a point lists them.
var features = [...]feature{
	{name: "elu+1", slot: mapSlot, of: ofLinear, apply: featureMap(attn.EluPlusOne)},
	{name: "relu+1", slot: mapSlot, of: ofLinear, apply: featureMap(attn.ReluPlusOne)},
	{name: "identity", slot: mapSlot, of: ofLinear, apply: featureMap(attn.Identity)},
	{name: "unnormalised", of: ofLinear, apply: plain(func(q *attn.Problem) { q.Linear.Unnormalised = true })},
	{name: "eps:", takes: "X", of: ofLinear, apply: positive(func(q *attn.Problem) *float64 { return &q.Linear.Eps })},
	{name: "temp:", takes: "T", of: taken(attn.NeedTemp), apply: temperature},
	{name: "softcap:", takes: "X", of: taken(attn.NeedSoftcap), apply: positive(func(q *attn.Problem) *float64 { return &q.Score.Softcap })},
	{name: "bias", of: taken(attn.NeedBias), apply: term(attn.TermBias)},
	{name: "alibi", of: taken(attn.NeedALiBi), apply: term(attn.TermALiBi)},
	{name: "sinks", of: taken(attn.NeedSinks), apply: term(attn.TermSinks)},
	{name: "relative", slot: "relative", of: taken(attn.NeedRelative), apply: term(attn.TermRelative)},
	{name: "relative-clipped:", takes: "N", slot: "relative", of: taken(attn.NeedRelative), apply: clipped},
	{name: "metric", slot: "metric", of: taken(attn.NeedMetric), apply: term(attn.TermMetric)},
	{name: "metric-rect:", takes: "D", slot: "metric", of: taken(attn.NeedMetric), apply: rectangular},
	{name: "rope", slot: "rope", of: taken(attn.NeedRope), apply: rope(attn.RopeInterleaved)},
	{name: "rope-halves", slot: "rope", of: taken(attn.NeedRope), apply: rope(attn.RopeHalves)},
	{name: "bool", slot: bitmapSlot, of: taken(attn.NeedBool), apply: scattered(attn.BoolBitmap)},
	{name: "bool:", takes: "SHARE", slot: bitmapSlot, of: taken(attn.NeedBool), apply: scattered(attn.BoolBitmap)},
	{name: "packed", slot: bitmapSlot, of: taken(attn.NeedPacked), apply: scattered(attn.PackedBitmap)},
	{name: "packed:", takes: "SHARE", slot: bitmapSlot, of: taken(attn.NeedPacked), apply: scattered(attn.PackedBitmap)},
	{name: "block:", takes: "SIDE:SHARE", slot: bitmapSlot, of: taken(attn.NeedBlock), apply: blocks},
	{name: "ragged", slot: raggedSlot, of: taken(attn.NeedRagged), apply: ragged},
	{name: "ragged:", takes: "LEAST", slot: raggedSlot, of: taken(attn.NeedRagged), apply: ragged},
	{name: alone, slot: raggedSlot, of: taken(attn.NeedRagged), apply: ragged},
	{name: alone + ":", takes: "LEAST", slot: raggedSlot, of: taken(attn.NeedRagged), apply: ragged},
	{name: "lengths", of: taken(attn.NeedLengths), apply: lengths},
	{name: "lse", of: taken(attn.NeedLSE), apply: want(attn.WantLSE)},
	{name: "mean", of: taken(attn.NeedMean), apply: want(attn.WantMean)},
	{name: "entropy", of: taken(attn.NeedEntropy), apply: want(attn.WantEntropy)},
	{name: "max", of: taken(attn.NeedMax), apply: want(attn.WantMax)},
	{name: "argmax", of: taken(attn.NeedArgMax), apply: want(attn.WantArgMax)},
	{name: "weights", of: taken(attn.NeedWeights), apply: want(attn.WantWeights)},
	{name: "scores", of: taken(attn.NeedScores), apply: want(attn.WantScores)},
}

// plain returns the apply of a feature that needs no arrangement.
func plain(set func(q *attn.Problem)) func(*attn.Problem, string) (arrangement, error) {
	return func(q *attn.Problem, _ string) (arrangement, error) { set(q); return nil, nil }
}

func featureMap(f attn.Feature) func(*attn.Problem, string) (arrangement, error) {
	return plain(func(q *attn.Problem) { q.Linear.Feature = f })
}

func term(t attn.Terms) func(*attn.Problem, string) (arrangement, error) {
	return plain(func(q *attn.Problem) { q.Score.Terms |= t })
}

func rope(r attn.Rope) func(*attn.Problem, string) (arrangement, error) {
	return plain(func(q *attn.Problem) { q.Score.Rope = r })
}

func want(w attn.Want) func(*attn.Problem, string) (arrangement, error) {
	return plain(func(q *attn.Problem) { q.Want |= w })
}

func positive(field func(q *attn.Problem) *float64) func(*attn.Problem, string) (arrangement, error) {
	return func(q *attn.Problem, arg string) (arrangement, error) {
		x, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(x > 0) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%q is not a positive number", arg)
		}
		*field(q) = x
		return nil, nil
	}
}

func temperature(q *attn.Problem, arg string) (arrangement, error) {
	switch arg {
	case "inf":
		q.Score.Temp = math.Inf(1)
		return nil, nil
	case "frozen":
		q.Score.Temp = attn.Frozen
		return nil, nil
	}
	return positive(func(q *attn.Problem) *float64 { return &q.Score.Temp })(q, arg)
}

// An OtherOpError reports a feature that the point's kind of attention lacks and another kind has.
type OtherOpError struct{ Features, Op, Feature, has string }

func (e *OtherOpError) Error() string {
	if e.has == "" {
		return fmt.Sprintf("op %s has no %s", e.Op, e.Feature)
	}
	return fmt.Sprintf("features %q: op %s has no %s; it has %s", e.Features, e.Op, e.Feature, e.has)
}

// splitFeatures reads a list of features in any order, and returns it in the order of the table. A
// name may contain a +, as elu+1 does.
func splitFeatures(op, s string) ([]feature, error) {
	o, err := attn.OpByName(op)
	if err != nil {
		return nil, err
	}
	var list []feature
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
				if arg == "" {
					continue
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
		if !f.of(o) {
			return nil, &OtherOpError{Features: s, Op: op, Feature: f.String(), has: featureNames(o)}
		}
		for _, g := range list {
			if g.name == f.name || g.slot != "" && g.slot == f.slot {
				return nil, fmt.Errorf("features %q: %s and %s exclude each other", s, g.String(), f.String())
			}
		}
		list = append(list, *f)
		rest = strings.TrimPrefix(tail, "+")
	}
	sortFeatures(list)
	return list, nil
}

// sortFeatures sorts a list into the order of the table.
func sortFeatures(list []feature) {
	slices.SortStableFunc(list, func(a, b feature) int { return featureIndex(a.name) - featureIndex(b.name) })
}

func featureIndex(name string) int {
	return slices.IndexFunc(features[:], func(f feature) bool { return f.name == name })
}

func featureNames(op attn.Op) string {
	var s []string
	for _, f := range features {
		if f.of(op) {
			s = append(s, f.name+f.takes)
		}
	}
	return strings.Join(s, " ")
}

// orderFeatures returns the one spelling of a list. If the op has feature maps and the list has
// none, those of the rule are added: elu+1 without a rule.
func orderFeatures(op, rule, s string) (string, error) {
	list, err := splitFeatures(op, s)
	if err != nil {
		return "", err
	}
	o, _ := attn.OpByName(op)
	if first := features[0]; first.of(o) && !slices.ContainsFunc(list, func(f feature) bool { return f.slot == first.slot }) {
		added := first.name
		if r, ok := ruleOf(rule); ok {
			added = r.features
		}
		more, err := splitFeatures(op, added)
		if err != nil {
			return "", err
		}
		for _, f := range more {
			if !slices.ContainsFunc(list, func(g feature) bool { return g.name == f.name }) {
				list = append(list, f)
			}
		}
		sortFeatures(list)
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].String()
	}
	return strings.Join(names, "+"), nil
}
