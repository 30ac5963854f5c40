package geometry

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/gibbs"
)

// LogLinear is rows of attention weights whose scores follow linearly from parameters, s_i = J_i
// theta and A_i = softmax(s_i), to be taught a pattern: rows t_i that add up to 1. Its loss,
// gradient and information are
//
//	L = sum_i KL(t_i || A_i)          dL = sum_i J_i^T (A_i - t_i)          F = sum_i J_i^T (diag A_i - A_i A_i^T) J_i
//
// F is also the second derivative of L: there is no t in it, and nothing that it leaves out. So L
// is convex, and one natural step of rate 1 is one of Newton's.
type LogLinear struct{ J []mat.Matrix }

// OfQueries is attention of given keys whose parameters are the queries, row after row: s_ij =
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

// OfMetric is attention of given queries and keys whose parameters are what joins them, M row after
// row: s_ij = scale sum_ab q_ia M_ab k_jb.
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

// Through is the same attention by other parameters, theta = B phi.
func (m LogLinear) Through(b mat.Matrix) LogLinear {
	to := LogLinear{make([]mat.Matrix, len(m.J))}
	for i, j := range m.J {
		var p mat.Dense
		p.Mul(j, b)
		to.J[i] = &p
	}
	return to
}

// Scores is s, a row for each query.
func (m LogLinear) Scores(theta []float64) *mat.Dense {
	nk, n := m.J[0].Dims()
	if len(theta) != n {
		panic(fmt.Sprintf("geometry: %d parameters, this attention has %d", len(theta), n))
	}
	to := mat.NewDense(len(m.J), nk, nil)
	for i, j := range m.J {
		to.RowView(i).(*mat.VecDense).MulVec(j, mat.NewVecDense(n, theta))
	}
	return to
}

// Weights is A.
func (m LogLinear) Weights(theta []float64) *mat.Dense { return gibbs.SoftmaxRows(m.Scores(theta), 1) }

// Loss is sum_i KL(t_i || A_i), from logarithms of weights, so that it stays finite where a weight
// does not show in float64.
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

// Gradient is dL.
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

// Fisher is F.
func (m LogLinear) Fisher(theta []float64) *mat.SymDense {
	a, to := m.Weights(theta), mat.NewSymDense(len(theta), nil)
	for i, j := range m.J {
		to.AddSym(to, Pull(gibbs.Jacobian(a.RawRowView(i), 1), j))
	}
	return to
}

// A Descent says how to go down.
type Descent struct {
	Natural bool    // along the natural gradient, not the gradient as it comes
	Rate    float64 // eta
	Damping float64 // of the natural gradient
	Steps   int
}

// A Step is where a descent is.
type Step struct{ Theta, Gradient []float64 }

// Descend goes down from theta and returns every step, the start first.
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
