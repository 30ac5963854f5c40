package hopfield

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// A Separation shows how well the patterns of a network can be told apart. Each slice has one
// element for each pattern.
type Separation struct {
	// Margins holds Delta_i = k_i.k_i - max_j k_i.k_j over the other patterns; +Inf if there are
	// none.
	Margins []float64
	// Weights holds the weight of pattern i at the state x = k_i.
	Weights []float64
	// AtLeast holds the lower bound of that weight that the margin gives: see Promise.
	AtLeast []float64
	// Ratio is the smallest distance of two patterns, in units of their mean norm; +Inf if there is
	// only one pattern.
	Ratio float64
}

// Separation measures every pattern.
func (m *Modern) Separation() Separation {
	n, _ := m.Dims()
	s := Separation{Ratio: math.Inf(1)}
	norms := 0.0
	for i := range n {
		x := m.Keys.RawRowView(i)
		overlaps := m.Overlaps(x)
		margin := Margin(overlaps, i)
		s.Margins = append(s.Margins, margin)
		s.Weights = append(s.Weights, m.Weights(x)[i])
		s.AtLeast = append(s.AtLeast, Promise(m.Beta, margin, n))
		norms += math.Sqrt(overlaps[i])
		for j := range i {
			s.Ratio = min(s.Ratio, floats.Distance(x, m.Keys.RawRowView(j), 2))
		}
	}
	s.Ratio /= norms / float64(n)
	return s
}

// Margin returns overlap i minus the largest of the others; +Inf if there are none.
func Margin(overlaps []float64, i int) float64 {
	next := math.Inf(-1)
	for j, s := range overlaps {
		if j != i {
			next = max(next, s)
		}
	}
	return overlaps[i] - next
}

// Promise returns a lower bound of the weight of a pattern whose overlap exceeds all others by the
// margin. With M = patterns,
//
//	p_i >= 1 / (1 + (M-1) exp(-beta margin))
//
// with equality if all the others are exactly the margin below. The paper prints the numerator
// alone: 1 for p_i and exp(-beta margin_j) for the others, which add up to more than 1 (E-21).
func Promise(beta, margin float64, patterns int) float64 {
	switch {
	case patterns == 1:
		return 1
	case margin == 0: // for every beta, +Inf included
		return 1 / float64(patterns)
	}
	return 1 / (1 + float64(patterns-1)*math.Exp(-beta*margin))
}
