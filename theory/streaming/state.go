package streaming

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A State is what a query knows of the keys it has seen: their largest score, and sums of
// exponentials relative to it.
type State struct {
	Max float64   // m, -Inf before any key
	Sum float64   // l
	Acc []float64 // acc, one number for each column of V
}

// NewState is that of no keys. Merging it into another changes no bit.
func NewState(dv int) State { return State{Max: math.Inf(-1), Acc: make([]float64, dv)} }

// Push takes in a block: scores, of which -Inf is a hidden key, and a row of values for each.
func (x *State) Push(scores []float64, values mat.Matrix) {
	*x = Merge(*x, block(scores, values))
}

// block is the state of one block of keys.
func block(scores []float64, values mat.Matrix) State {
	rows, dv := values.Dims()
	if rows != len(scores) {
		panic(fmt.Sprintf("streaming: %d scores, and values have %d rows: one for each key", len(scores), rows))
	}
	x := NewState(dv)
	for _, s := range scores {
		x.Max = max(x.Max, s)
	}
	v := make([]float64, dv)
	for j, s := range scores {
		if none(s, x.Max) {
			continue // whatever its values are
		}
		w := relative(s, x.Max)
		x.Sum += w
		floats.AddScaled(x.Acc, w, mat.Row(v, j, values))
	}
	return x
}

// Merge is the state of the keys of both, which must not have any in common.
func Merge(a, b State) State {
	if len(a.Acc) != len(b.Acc) {
		panic(fmt.Sprintf("streaming: states of %d and of %d columns", len(a.Acc), len(b.Acc)))
	}
	to := NewState(len(a.Acc))
	to.Max = max(a.Max, b.Max)
	for _, part := range [...]State{a, b} {
		if none(part.Max, to.Max) {
			continue
		}
		w := relative(part.Max, to.Max)
		to.Sum += float64(w * part.Sum) // rounded apart: where products and sums are fused, the part that comes first would have other bits
		for c, x := range part.Acc {
			to.Acc[c] += float64(w * x)
		}
	}
	return to
}

// none is whether a score, or a part with that largest score, has no weight beside the largest: it
// is hidden, or the other is infinite.
func none(s, most float64) bool { return math.IsInf(s, -1) || math.IsInf(most, 1) && s < most }

// relative is exp(s - m), 1 where both are the same infinity.
func relative(s, m float64) float64 {
	if s == m {
		return 1
	}
	return math.Exp(s - m)
}

// torn is whether more than one score was +Inf: there is no saying how they share the weight.
func (x *State) torn() bool { return math.IsInf(x.Max, 1) && x.Sum > 1 }

// Output is acc / l: the rows of V, each by its weight. It is 0 where no key was visible.
func (x *State) Output() []float64 {
	out := slices.Clone(x.Acc)
	switch {
	case x.torn():
		floats.AddConst(math.NaN(), out)
	case x.Sum != 0: // NaN is not 0
		for b := range out {
			out[b] /= x.Sum
		}
	}
	return out
}

// LSE is log sum_j exp(s_j): -Inf where no key was visible.
func (x *State) LSE() float64 {
	if x.torn() {
		return math.NaN()
	}
	return x.Max + math.Log(x.Sum)
}
