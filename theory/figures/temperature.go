package figures

import (
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"attnlab/theory/gibbs"
)

// column returns column j of a matrix.
func column(m mat.Matrix, j int) []float64 { return mat.Col(nil, j, m) }

// level adds a dashed horizontal line.
func (p *Panel) level(name string, x []float64, y float64) {
	p.line(name, []float64{x[0], x[len(x)-1]}, []float64{y, y}, dashed(grey))
}

// TemperatureSweep draws the weights of a row of scores, and their entropy, against the
// temperature.
func TemperatureSweep(scores []float64) Figure {
	at := floats.LogSpan(make([]float64, 121), .05, 20)
	table := gibbs.Sweep(scores, at...)
	weights := table.Weights()

	w := curves("weights", "temperature T", "p").logX()
	for j, s := range scores {
		w.line(fmt.Sprintf("score %g", s), at, column(weights, j), solid(hue(j)))
	}
	w.level(fmt.Sprintf("1/%d", len(scores)), at, 1/float64(len(scores)))
	w.Y.Min, w.Y.Max = 0, 1

	entropy, heat := make([]float64, len(at)), make([]float64, len(at))
	for i, s := range table {
		entropy[i], heat[i] = s.Entropy, s.HeatCapacity
	}
	h := curves("entropy and heat capacity", "temperature T", "nats").logX()
	h.line("H", at, entropy, solid(hue(0)))
	h.line("C = d<E>/dT", at, heat, solid(hue(1)))
	h.level(fmt.Sprintf("log %d", len(scores)), at, gibbs.MaxEntropy(len(scores)))
	h.Y.Min = 0
	return Figure{
		Name: "temperature", Width: 20 * vg.Centimeter, Height: 1.4 * strip, Rows: [][]*Panel{{w, h}},
		Caption: "Softmax as the Gibbs distribution: cold, the largest score takes all the weight; hot, all share it evenly. The heat capacity, Var(E)/T², has its peak " +
			"where the weight moves.",
	}
}

// EntropyDistribution draws the distribution of the entropies of rows of weights over the given
// number of keys, with one curve for each name.
func EntropyDistribution(names []string, entropies [][]float64, keys int) Figure {
	const bins = 50
	p := curves("", "entropy of a row (nats)", "share of the rows")
	top := gibbs.MaxEntropy(keys)
	if keys < 2 {
		p.fail("entropies", fmt.Errorf("got %d keys, want two or more to share the weight", keys))
		return Figure{Name: "entropy", Width: 16 * vg.Centimeter, Height: 1.4 * strip, Rows: [][]*Panel{{p}}}
	}
	edges := floats.Span(make([]float64, bins+1), 0, top*(1+1e-9))
	middles := make([]float64, bins)
	for i := range middles {
		middles[i] = (edges[i] + edges[i+1]) / 2
	}
	highest := 0.0
	for g, h := range entropies {
		inside := make([]float64, 0, len(h))
		for _, x := range h {
			inside = append(inside, min(max(x, 0), top))
		}
		name := fmt.Sprintf("group %d", g)
		if g < len(names) {
			name = names[g]
		}
		if len(inside) == 0 {
			p.fail(name, errors.New("no entropies"))
			continue
		}
		slices.Sort(inside)
		shares := stat.Histogram(nil, edges, inside, nil)
		floats.Scale(1/float64(len(inside)), shares)
		highest = max(highest, floats.Max(shares))
		if l := p.line(name, middles, shares, solid(hue(g))); l != nil {
			l.StepStyle = plotter.MidStep
		}
	}
	p.line(fmt.Sprintf("log %d", keys), []float64{top, top}, []float64{0, highest}, dashed(grey))
	p.X.Min = 0
	return Figure{
		Name: "entropy", Width: 16 * vg.Centimeter, Height: 1.4 * strip, Rows: [][]*Panel{{p}},
		Caption: fmt.Sprintf("How evenly rows share their weight among %d keys: entropy 0 is one key alone, log %d all alike.", keys, keys),
	}
}

// SoftmaxAndArgmax draws the weight of a score of 3 against another score, and the expected index
// of [1, 2, 3, 4, 1], at several temperatures.
func SoftmaxAndArgmax() Figure {
	other := floats.Span(make([]float64, 241), -2, 8)
	w := curves("weight of 3 against another score", "the other score", "p")
	for i, t := range []float64{.5, 1, 2, 4} {
		rows := gibbs.Curve(other, func(x float64) []float64 { return []float64{3, x} }, t)
		w.line(fmt.Sprintf("T = %g", t), other, column(rows, 0), solid(hue(i)))
	}
	w.line("argmax", []float64{-2, 3, 3, 8}, []float64{1, 1, 0, 0}, dashed(grey))

	at := floats.LogSpan(make([]float64, 121), .05, 20)
	soft := make([]float64, len(at))
	scores := []float64{1, 2, 3, 4, 1}
	for i, t := range at {
		soft[i] = gibbs.SoftArgmax(scores, t)
	}
	a := curves("mean index of 1, 2, 3, 4, 1", "temperature T", "index").logX()
	a.line("Σ i p", at, soft, solid(hue(0)))
	a.level("argmax", at, float64(floats.MaxIdx(scores)))
	a.line("all alike", []float64{at[0], at[len(at)-1]}, []float64{2, 2}, dashed(hue(1)))
	return Figure{
		Name: "softmax", Width: 20 * vg.Centimeter, Height: 1.4 * strip, Rows: [][]*Panel{{w, a}},
		Caption: "Softmax is a smooth argmax, and steeper when colder. With rising temperature the mean index moves from the largest score to the middle.",
	}
}
