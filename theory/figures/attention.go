package figures

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot/vg"

	"attnlab/theory/gibbs"
	"attnlab/theory/scorers"
)

const (
	side  = 6 * vg.Centimeter // width and height of a panel with a matrix
	strip = 5 * vg.Centimeter // height of a panel with lines
)

// AttentionWeights draws the scores, weights and output of a decomposition. The names of queries
// and keys may be nil. Small matrices have numbers in their cells.
func AttentionWeights(d *scorers.Decomposition, queries, keys []string) Figure {
	write := func(m mat.Matrix) func(float64) string {
		if r, c := m.Dims(); r > 12 || c > 12 {
			return nil
		}
		return two
	}
	scores := hide(d.Scores)
	s := matrix("scores S", "key", "query", scores, signs(largest(scores)), keys, queries, write(scores))
	s.bar = signs(largest(scores))
	a := matrix("weights A", "key", "query", d.Weights, blues(1), keys, queries, write(d.Weights))
	a.bar = blues(1)
	o := matrix("output O = A V", "column", "query", d.Output, signs(largest(d.Output)), nil, queries, write(d.Output))
	o.bar = signs(largest(d.Output))
	return Figure{
		Name: "attention", Width: 3 * side, Height: side, Rows: [][]*Panel{{s, a, o}},
		Caption: "Attention step by step. Each row of the scores becomes a row of weights, which are positive and sum to 1, and the output is the mean of the values " +
			"with those weights.",
	}
}

// hide replaces the scores of hidden keys by NaN, which is drawn grey.
func hide(scores mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Apply(func(_, _ int, s float64) float64 {
		if math.IsInf(s, -1) {
			return math.NaN()
		}
		return s
	}, scores)
	return &to
}

// Heads draws the weights of several heads side by side on one colour scale. Each title has the
// mean over the queries of exp(H), the number of keys that the head looks at.
func Heads(names []string, weights []*mat.Dense) Figure {
	top := 0.0
	for _, w := range weights {
		top = max(top, largest(w))
	}
	colors := blues(top)
	// The weights of a row of many keys are small.
	colors.root = true
	var panels []*Panel
	for h, w := range weights {
		keys := 0.0
		effective := gibbs.EffectiveStatesRows(w)
		for _, x := range effective {
			keys += x / float64(len(effective))
		}
		name := fmt.Sprintf("head %d", h)
		if h < len(names) {
			name = names[h]
		}
		p := matrix(fmt.Sprintf("%s: %.1f keys", name, keys), "key", "query", w, colors, nil, nil, nil)
		p.bar = colors
		panels = append(panels, p)
	}
	rows := grid(min(4, max(len(panels), 1)), panels)
	return Figure{
		Name: "heads", Width: vg.Length(len(rows[0])) * side, Height: vg.Length(len(rows)) * side, Rows: rows,
		Caption: "The weights of several heads. Each title has the mean number of keys that a query looks at, exp(H).",
	}
}

// A Metric is a named bilinear form.
type Metric struct {
	Name string
	M    mat.Matrix
}

// Metrics draws the weights of the same queries and keys under different metrics.
func Metrics(q, k mat.Matrix, metrics []Metric) Figure {
	var panels []*Panel
	for _, g := range metrics {
		a := gibbs.SoftmaxRows(scorers.Bilinear{M: g.M}.Scores(q, k), 1)
		p := matrix(g.Name, "key", "query", a, blues(1), nil, nil, nil)
		p.bar = blues(1)
		panels = append(panels, p)
	}
	rows := grid(min(4, max(len(panels), 1)), panels)
	return Figure{
		Name: "metrics", Width: vg.Length(len(rows[0])) * side, Height: vg.Length(len(rows)) * side, Rows: rows,
		Caption: "The same queries and keys, compared by different bilinear forms. A form that is not symmetric compares queries with keys " +
			"differently from keys with queries.",
	}
}

// A Mask shows which keys each query sees. Picture has a line for each query, with '#' for a
// visible key, as attn's Problem.Picture draws it.
type Mask struct{ Name, Picture string }

// Masks draws masks side by side, with visible keys dark. Each title has the share of visible
// pairs.
func Masks(masks []Mask) Figure {
	var panels []*Panel
	for _, m := range masks {
		lines := strings.Fields(m.Picture)
		if len(lines) == 0 {
			p := newPanel(m.Name, "", "")
			p.fail("mask", errors.New("an empty picture"))
			panels = append(panels, p)
			continue
		}
		seen := 0.0
		cells := mat.NewDense(len(lines), len(lines[0]), nil)
		cells.Apply(func(i, j int, _ float64) float64 {
			if j < len(lines[i]) && lines[i][j] == '#' {
				seen++
				return .8
			}
			return 0
		}, cells)
		share := seen / float64(len(lines)*len(lines[0]))
		panels = append(panels, matrix(fmt.Sprintf("%s, %.0f%%", m.Name, 100*share), "key", "query", cells, blues(1), nil, nil, nil))
	}
	rows := grid(min(4, max(len(panels), 1)), panels)
	return Figure{
		Name: "masks", Width: vg.Length(len(rows[0])) * side * .85, Height: vg.Length(len(rows)) * side * .95, Rows: rows,
		Caption: "The keys that each query sees: a dark cell is a key that has a weight. Each title has the share of the pairs to compute.",
	}
}
