package streaming

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A State summarises the keys that a query has seen: their largest score, and sums of exponentials
// relative to it.
type State struct {
	Max float64   // m, -Inf before any key
	Sum float64   // l
	Acc []float64 // acc, one number for each column of V
}

// NewState returns the state of no keys. Merging it into another state changes no bit.
func NewState(dv int) State { return State{Max: math.Inf(-1), Acc: make([]float64, dv)} }

// Push adds a block of keys: scores, with -Inf for hidden keys, and a row of values for each score.
func (x *State) Push(scores []float64, values mat.Matrix) {
	*x = Merge(*x, block(scores, values))
}

// block returns the state of one block of keys.
func block(scores []float64, values mat.Matrix) State {
	rows, dv := values.Dims()
	if rows != len(scores) {
		panic(fmt.Sprintf("streaming: got %d scores and values of %d rows, want one row for each score", len(scores), rows))
	}
	x := NewState(dv)
	for _, s := range scores {
		x.Max = max(x.Max, s)
	}
	v := make([]float64, dv)
	for j, s := range scores {
		if weightless(s, x.Max) {
			continue // has no effect, even if its values are NaN
		}
		w := relative(s, x.Max)
		x.Sum += w
		floats.AddScaled(x.Acc, w, mat.Row(v, j, values))
	}
	return x
}

// Merge returns the state of the keys of both states, which must not have keys in common.
func Merge(a, b State) State {
	if len(a.Acc) != len(b.Acc) {
		panic(fmt.Sprintf("streaming: got states of %d and of %d columns, want equal numbers", len(a.Acc), len(b.Acc)))
	}
	to := NewState(len(a.Acc))
	to.Max = max(a.Max, b.Max)
	for _, part := range [...]State{a, b} {
		if weightless(part.Max, to.Max) {
			continue
		}
		w := relative(part.Max, to.Max)
		// The conversions round each product. A fused multiply-add would make the bits depend on
		// the order of the parts.
		to.Sum += float64(w * part.Sum)
		for c, x := range part.Acc {
			to.Acc[c] += float64(w * x)
		}
	}
	return to
}

// weightless reports whether a score, or a part with that largest score, has no weight beside the
// score top. That is so if it is hidden, or if only top is infinite.
func weightless(s, top float64) bool { return math.IsInf(s, -1) || math.IsInf(top, 1) && s < top }

// relative returns exp(s - m), or 1 if both are the same infinity.
func relative(s, m float64) float64 {
	if s == m {
		return 1
	}
	return math.Exp(s - m)
}

// undefined reports whether more than one score was +Inf, so that their shares of the weight are
// undefined.
func (x *State) undefined() bool { return math.IsInf(x.Max, 1) && x.Sum > 1 }

// Output returns acc / l: the weighted mean of the rows of V. It is 0 if no key was visible.
func (x *State) Output() []float64 {
	out := slices.Clone(x.Acc)
	switch {
	case x.undefined():
		floats.AddConst(math.NaN(), out)
	case x.Sum != 0: // NaN is not 0
		for b := range out {
			out[b] /= x.Sum
		}
	}
	return out
}

// LSE returns log sum_j exp(s_j), or -Inf if no key was visible.
func (x *State) LSE() float64 {
	if x.undefined() {
		return math.NaN()
	}
	return x.Max + math.Log(x.Sum)
}
