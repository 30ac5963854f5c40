package hopfield

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
)

// A Modern network stores real vectors.
type Modern struct {
	// Keys holds the patterns that a state is compared with, one in each row.
	Keys *mat.Dense
	// Values holds the read-out for each pattern. It is the same matrix as Keys if each pattern
	// stands for itself.
	Values *mat.Dense
	// Beta is the inverse temperature. +Inf selects the pattern with the largest overlap alone.
	Beta float64
}

// NewModern stores patterns, one in each row. Nil values mean the patterns themselves. A beta of 0
// means 1/sqrt(d), the scale of attention.
func NewModern(keys, values mat.Matrix, beta float64) (*Modern, error) {
	n, d := keys.Dims()
	switch {
	case n == 0 || d == 0:
		return nil, fmt.Errorf("hopfield: %d patterns of %d numbers; store at least one pattern of one number", n, d)
	case math.IsNaN(beta) || beta < 0:
		return nil, fmt.Errorf("hopfield: beta is %v; want a positive number, +Inf for the best pattern alone, or 0 for 1/sqrt(%d)", beta, d)
	case beta == 0:
		beta = 1 / math.Sqrt(float64(d))
	}
	m := &Modern{Keys: mat.DenseCopyOf(keys), Beta: beta}
	m.Values = m.Keys
	if values != nil {
		if rows, _ := values.Dims(); rows != n {
			return nil, fmt.Errorf("hopfield: %d patterns and %d values; there is one value a pattern", n, rows)
		}
		m.Values = mat.DenseCopyOf(values)
	}
	return m, nil
}

// Dims returns the number of patterns and their length.
func (m *Modern) Dims() (patterns, d int) { return m.Keys.Dims() }

// Overlaps returns K x: k_j.x for every pattern.
func (m *Modern) Overlaps(x []float64) []float64 {
	if _, d := m.Dims(); len(x) != d {
		panic(fmt.Sprintf("hopfield: a state of %d numbers, and patterns of %d", len(x), d))
	}
	var s mat.VecDense
	s.MulVec(m.Keys, mat.NewVecDense(len(x), x))
	return s.RawVector().Data
}

// Weights returns softmax(beta K x), the share of each pattern in the next state.
func (m *Modern) Weights(x []float64) []float64 { return gibbs.Softmax(m.Overlaps(x), 1/m.Beta) }

// Update returns the next state, K^T softmax(beta K x), in float64.
func (m *Modern) Update(x []float64) []float64 { return mean(m.Weights(x), m.Keys) }

// Read returns the read-out for a state, V^T softmax(beta K x), in float64. It equals Update if the
// values are the keys.
func (m *Modern) Read(x []float64) []float64 { return mean(m.Weights(x), m.Values) }

// mean returns the weighted mean of the rows, rows^T p.
func mean(p []float64, rows *mat.Dense) []float64 {
	var to mat.VecDense
	to.MulVec(rows.T(), mat.NewVecDense(len(p), p))
	return to.RawVector().Data
}

// Energy returns E(x) = -1/beta log sum_j exp(beta k_j.x) + |x|^2/2, without the constant. The
// first term is the free energy of the patterns at temperature 1/beta; the second penalises long
// states. The energy does not depend on the values.
func (m *Modern) Energy(x []float64) float64 {
	return gibbs.FreeEnergy(m.Overlaps(x), 1/m.Beta) + floats.Dot(x, x)/2
}

// Constant returns log(M)/beta + max_j |k_j|^2/2. Adding it makes the energy nonnegative
// everywhere.
func (m *Modern) Constant() float64 {
	n, _ := m.Dims()
	r := m.radius()
	return math.Log(float64(n))/m.Beta + r*r/2
}

// radius returns the largest norm of a pattern.
func (m *Modern) radius() float64 {
	n, _ := m.Dims()
	r := 0.0
	for j := range n {
		r = max(r, floats.Norm(m.Keys.RawRowView(j), 2))
	}
	return r
}

// Gradient returns dE/dx = x - K^T softmax(beta K x).
func (m *Modern) Gradient(x []float64) []float64 {
	return floats.SubTo(make([]float64, len(x)), x, m.Update(x))
}

// UpdateBy updates states, one in each row, in one call of attention.
func (m *Modern) UpdateBy(a bridge.Attention, states mat.Matrix) (bridge.Values, error) {
	return m.attend(a, states, m.Keys)
}

// ReadBy returns the read-outs for states, one in each row, in one call of attention.
func (m *Modern) ReadBy(a bridge.Attention, states mat.Matrix) (bridge.Values, error) {
	return m.attend(a, states, m.Values)
}

// attend calls attention once, with the states as queries.
func (m *Modern) attend(a bridge.Attention, states mat.Matrix, values *mat.Dense) (bridge.Values, error) {
	if _, d := m.Dims(); d != columns(states) {
		return bridge.Values{}, fmt.Errorf("hopfield: states of %d numbers, and patterns of %d; give one state a row", columns(states), d)
	}
	score := attn.Score{Scale: m.Beta}
	if math.IsInf(m.Beta, 1) {
		score = attn.Score{Scale: 1, Temp: attn.Frozen}
	}
	ans, err := a.Attend(bridge.Call{Q: mat.DenseCopyOf(states), K: m.Keys, V: values, Problem: attn.Problem{Score: score}})
	if err != nil {
		return bridge.Values{}, fmt.Errorf("hopfield: %w", err)
	}
	return ans.O, nil
}

func columns(m mat.Matrix) int {
	_, c := m.Dims()
	return c
}
