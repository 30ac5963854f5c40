package geometry

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/gibbs"
)

// LogLinear is a set of rows of attention weights whose scores are linear in parameters, s_i = J_i
// theta and A_i = softmax(s_i). It is fitted to a pattern of rows t_i, each of which adds up to 1.
// Its loss, gradient and information are
//
//	L  = sum_i KL(t_i || A_i)
//	dL = sum_i J_i^T (A_i - t_i)
//	F  = sum_i J_i^T (diag A_i - A_i A_i^T) J_i
//
// F is exactly the second derivative of L, and does not depend on t. So L is convex, and a natural
// step of rate 1 is a Newton step.
type LogLinear struct{ J []mat.Matrix }

// OfQueries returns attention of given keys with the queries as parameters, row by row: s_ij =
// scale sum_a q_ia k_ja.
func OfQueries(k mat.Matrix, queries int, scale float64) LogLinear {
	nk, d := k.Dims()
	m := LogLinear{make([]mat.Matrix, queries)}
	for i := range m.J {
		j := mat.NewDense(nk, queries*d, nil)
		j.Slice(0, nk, i*d, (i+1)*d).(*mat.Dense).Scale(scale, k)
		m.J[i] = j
	}
	return m
}

// OfMetric returns attention of given queries and keys with the metric M between them as
// parameters, row by row: s_ij = scale sum_ab q_ia M_ab k_jb.
func OfMetric(q, k mat.Matrix, scale float64) LogLinear {
	nq, dq := q.Dims()
	nk, d := k.Dims()
	m := LogLinear{make([]mat.Matrix, nq)}
	for i := range m.J {
		j := mat.NewDense(nk, dq*d, nil)
		for a := range dq {
			j.Slice(0, nk, a*d, (a+1)*d).(*mat.Dense).Scale(scale*q.At(i, a), k)
		}
		m.J[i] = j
	}
	return m
}

// Through returns the same attention with other parameters phi, theta = B phi.
func (m LogLinear) Through(b mat.Matrix) LogLinear {
	to := LogLinear{make([]mat.Matrix, len(m.J))}
	for i, j := range m.J {
		var p mat.Dense
		p.Mul(j, b)
		to.J[i] = &p
	}
	return to
}

// Scores returns s, with one row for each query.
func (m LogLinear) Scores(theta []float64) *mat.Dense {
	nk, n := m.J[0].Dims()
	if len(theta) != n {
		panic(fmt.Sprintf("geometry: got %d parameters, want %d", len(theta), n))
	}
	to := mat.NewDense(len(m.J), nk, nil)
	for i, j := range m.J {
		to.RowView(i).(*mat.VecDense).MulVec(j, mat.NewVecDense(n, theta))
	}
	return to
}

// Weights returns A.
func (m LogLinear) Weights(theta []float64) *mat.Dense { return gibbs.SoftmaxRows(m.Scores(theta), 1) }

// Loss returns sum_i KL(t_i || A_i). It uses logarithms of weights, so it stays finite where
// weights underflow.
func (m LogLinear) Loss(theta []float64, pattern mat.Matrix) float64 {
	s, loss := m.Scores(theta), 0.0
	for i := range m.J {
		l := gibbs.LogSoftmax(s.RawRowView(i), 1)
		for j, x := range l {
			if t := pattern.At(i, j); t != 0 {
				loss += t * (math.Log(t) - x)
			}
		}
	}
	return loss
}

// Gradient returns dL.
func (m LogLinear) Gradient(theta []float64, pattern mat.Matrix) []float64 {
	off := m.Weights(theta)
	off.Sub(off, pattern)
	to, part := mat.NewVecDense(len(theta), nil), mat.NewVecDense(len(theta), nil)
	for i, j := range m.J {
		part.MulVec(j.T(), off.RowView(i))
		to.AddVec(to, part)
	}
	return to.RawVector().Data
}

// Fisher returns F.
func (m LogLinear) Fisher(theta []float64) *mat.SymDense {
	a, to := m.Weights(theta), mat.NewSymDense(len(theta), nil)
	for i, j := range m.J {
		to.AddSym(to, Pull(gibbs.Jacobian(a.RawRowView(i), 1), j))
	}
	return to
}

// A Descent sets how Descend descends.
type Descent struct {
	Natural bool    // follow the natural gradient instead of the plain one
	Rate    float64 // eta
	Damping float64 // of the natural gradient
	Steps   int
}

// A Step is one point of a descent.
type Step struct{ Theta, Gradient []float64 }

// Descend descends from theta and returns all points, the start first.
func (m LogLinear) Descend(theta []float64, pattern mat.Matrix, d Descent) ([]Step, error) {
	x := slices.Clone(theta)
	path := []Step{{x, m.Gradient(x, pattern)}}
	for range d.Steps {
		g := path[len(path)-1].Gradient
		if d.Natural {
			var err error
			if g, err = Natural(m.Fisher(x), g, d.Damping); err != nil {
				return nil, err
			}
		}
		x = floats.AddScaledTo(make([]float64, len(x)), x, -d.Rate, g)
		path = append(path, Step{x, m.Gradient(x, pattern)})
	}
	return path, nil
}
