package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/calculus"
	"attnlab/theory/scorers"
)

// GradientFlow draws the stages of the backward pass of a decomposition, from the gradient by the
// output to the gradients by queries, keys and values. Hidden keys are grey.
func GradientFlow(d *scorers.Decomposition, s *calculus.Staged, dO mat.Matrix) Figure {
	seen := func(m mat.Matrix) mat.Matrix {
		var to mat.Dense
		to.Apply(func(i, j int, x float64) float64 {
			if math.IsInf(d.Scores.At(i, j), -1) {
				return math.NaN()
			}
			return x
		}, m)
		return &to
	}
	var panels []*Panel
	for _, g := range []struct {
		name, x, y string
		m          mat.Matrix
	}{
		{"dO", "column", "query", dO},
		{"dA = dO Vᵀ", "key", "query", seen(s.DA)},
		{"dS = A*(dA - rowsum(A*dA))", "key", "query", seen(s.DS)},
		{"dV = Aᵀ dO", "column", "key", s.DV},
		{"dQ = dS K / √d", "column", "query", s.DQ},
		{"dK = dSᵀ Q / √d", "column", "key", s.DK},
	} {
		colors := signs(largest(g.m))
		p := matrix(fmt.Sprintf("%s, norm %.3g", g.name, norm(g.m)), g.x, g.y, g.m, colors, nil, nil, nil)
		p.bar = colors
		panels = append(panels, p)
	}
	return Figure{
		Name: "gradients", Width: 3.3 * side, Height: 2 * side, Rows: grid(3, panels),
		Caption: "A backward pass, stage by stage, each on a scale of its own. Rows of dS sum to 0: raising all scores alike changes nothing. Little gradient passes the softmax where " +
			"one key of a query has nearly all the weight.",
	}
}

// norm returns the root of the sum of squares of the visible elements.
func norm(m mat.Matrix) float64 {
	sum := 0.0
	r, c := m.Dims()
	for i := range r {
		for j := range c {
			if x := m.At(i, j); !math.IsNaN(x) {
				sum += x * x
			}
		}
	}
	return math.Sqrt(sum)
}
