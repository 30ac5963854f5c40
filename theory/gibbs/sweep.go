package gibbs

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/mat"
)

// A State describes one row of scores at one temperature.
type State struct {
	T            float64
	Weights      []float64
	Entropy      float64 // H
	Normalized   float64 // H / log n
	Effective    float64 // exp(H)
	Free         float64 // F
	Energy       float64 // <E>
	HeatCapacity float64
}

// At describes the scores at a temperature.
// At returns the State of scores s at temperature t.
func At(s []float64, t float64) State {
	p := Softmax(s, t)
	return State{
		T: t, Weights: p, Entropy: Entropy(p), Normalized: NormalizedEntropy(p), Effective: EffectiveStates(p),
		Free: FreeEnergy(s, t), Energy: ExpectedEnergy(p, s), HeatCapacity: HeatCapacity(s, t),
	}
}

// A Table lists the states of one row of scores at several temperatures.
type Table []State

// Sweep returns the state of the scores at each temperature.
func Sweep(s []float64, temperatures ...float64) Table {
	t := make(Table, len(temperatures))
	for i, x := range temperatures {
		t[i] = At(s, x)
	}
	return t
}

// Weights returns the weights of the table, one row for each temperature.
func (t Table) Weights() *mat.Dense {
	if len(t) == 0 || len(t[0].Weights) == 0 {
		return new(mat.Dense)
	}
	m := mat.NewDense(len(t), len(t[0].Weights), nil)
	for i, s := range t {
		m.SetRow(i, s.Weights)
	}
	return m
}

// String formats the table, one line for each temperature.
func (t Table) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', tabwriter.AlignRight)
	if len(t) > 0 {
		fmt.Fprint(w, "T\t")
		for j := range t[0].Weights {
			fmt.Fprintf(w, "p%d\t", j)
		}
		fmt.Fprint(w, "H\tH/log n\tn_eff\tF\t<E>\tC\t\n")
	}
	for _, s := range t {
		fmt.Fprintf(w, "%.4g\t", s.T)
		for _, p := range s.Weights {
			fmt.Fprintf(w, "%.6f\t", p)
		}
		fmt.Fprintf(w, "%.6f\t%.6f\t%.6f\t%.6f\t%.6f\t%.6f\t\n", s.Entropy, s.Normalized, s.Effective, s.Free, s.Energy, s.HeatCapacity)
	}
	w.Flush()
	return text.String()
}

// Curve returns the weights of a family of scores at temperature t, one row for each x. scores(x)
// must always return the same number of scores.
func Curve(xs []float64, scores func(x float64) []float64, t float64) *mat.Dense {
	rows := make([]float64, 0, len(xs))
	for _, x := range xs {
		rows = append(rows, Softmax(scores(x), t)...)
	}
	if len(rows) == 0 {
		return new(mat.Dense)
	}
	return mat.NewDense(len(xs), len(rows)/len(xs), rows)
}
