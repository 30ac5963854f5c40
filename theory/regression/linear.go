package regression

import (
	"fmt"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A Linear is linear attention with the given features. Eps is added to the sum of weights that
// divides the output.
type Linear struct {
	Feature FeatureMap
	Eps     float64
}

// named lists linear attention by name. It is never modified.
var named = []struct {
	name string
	l    Linear
}{
	{"elu+1", Linear{Feature: Elementwise(EluPlusOne)}},
	{"relu+1", Linear{Feature: Elementwise(ReluPlusOne)}},
	// The lesson calls it elu+1.
	{"lesson", Linear{Feature: Elementwise(ReluPlusOne), Eps: 1e-6}},
	{"relu", Linear{Feature: Relu(1e-6)}},
	{"softplus", Linear{Feature: Elementwise(Softplus)}},
	{"square", Linear{Feature: Elementwise(Square)}},
	{"exp", Linear{Feature: Elementwise(Exp)}},
	{"identity", Linear{Feature: Elementwise(Identity)}},
}

// Names returns the names that ByName knows.
func Names() []string {
	to := make([]string, len(named))
	for i, n := range named {
		to[i] = n.name
	}
	return to
}

// ByName returns linear attention with the named features, which include all names of package attn.
// "lesson" follows the lesson's listing: relu+1, with an eps of 1e-6.
func ByName(name string) (Linear, error) {
	for _, n := range named {
		if n.name == name {
			return n.l, nil
		}
	}
	return Linear{}, fmt.Errorf("regression: got features %q, want one of %s", name, strings.Join(Names(), ", "))
}

// Weights returns w_ij / (sum_j w_ij + eps), w_ij = f(q_i).f(k_j). The other methods never form
// this matrix.
func (l Linear) Weights(q, k mat.Matrix) *mat.Dense {
	var w mat.Dense
	w.Mul(Apply(l.Feature, q), Apply(l.Feature, k).T())
	n, _ := w.Dims()
	for i := range n {
		row := w.RawRowView(i)
		floats.Scale(1/(floats.Sum(row)+l.Eps), row)
	}
	return &w
}

// Pairwise returns the output computed pair by pair, (f(Q) f(K)^T) V over the row sums, at the cost
// of softmax attention.
func (l Linear) Pairwise(q, k, v mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Mul(l.Weights(q, k), v)
	return &to
}

// Attend returns the output with keys summed first, f(Q) (f(K)^T V) over f(Q) (f(K)^T 1).
func (l Linear) Attend(q, k, v mat.Matrix) *mat.Dense {
	s := l.Start(k, v)
	values := rowsOf(v)
	for j, key := range rowsOf(k) {
		s.Absorb(key, values[j])
	}
	return s.answers(q)
}

// Causal returns the output under a causal mask, using a running state. As in package attn, the
// last query sees the last key. A query before the first key has a zero row.
func (l Linear) Causal(q, k, v mat.Matrix) *mat.Dense {
	s, keys, values, queries := l.Start(k, v), rowsOf(k), rowsOf(v), rowsOf(q)
	_, dv := v.Dims()
	to, seen := mat.NewDense(len(queries), dv, nil), 0
	for i, x := range queries {
		for ; seen <= len(keys)-len(queries)+i; seen++ {
			s.Absorb(keys[seen], values[seen])
		}
		to.SetRow(i, s.Answer(x))
	}
	return to
}

// A State is all that linear attention keeps of the keys that it has seen. Its size does not depend
// on their number.
type State struct {
	KV   *mat.Dense // sum_j f(k_j) v_j^T
	KSum []float64  // sum_j f(k_j)
	Keys int        // number of keys seen
	l    Linear
}

// Start returns the state that has seen no key, for keys and values shaped like k and v.
func (l Linear) Start(k, v mat.Matrix) *State {
	nk, d := k.Dims()
	nv, dv := v.Dims()
	if nk != nv {
		panic(fmt.Sprintf("regression: got %d keys and %d values, want one value for each key", nk, nv))
	}
	features := len(l.Feature.Features(make([]float64, d)))
	return &State{KV: mat.NewDense(features, dv, nil), KSum: make([]float64, features), l: l}
}

// Absorb adds a key and its value.
func (s *State) Absorb(k, v []float64) {
	f := s.l.Feature.Features(k)
	s.KV.RankOne(s.KV, 1, mat.NewVecDense(len(f), f), mat.NewVecDense(len(v), v))
	floats.Add(s.KSum, f)
	s.Keys++
}

// Merge adds all keys that another state has seen, wherever it saw them.
func (s *State) Merge(other *State) {
	s.KV.Add(s.KV, other.KV)
	floats.Add(s.KSum, other.KSum)
	s.Keys += other.Keys
}

// Answer returns the output of a query that sees the keys absorbed so far.
func (s *State) Answer(q []float64) []float64 {
	_, dv := s.KV.Dims()
	to := mat.NewVecDense(dv, nil)
	if s.Keys == 0 {
		return to.RawVector().Data
	}
	f := s.l.Feature.Features(q)
	to.MulVec(s.KV.T(), mat.NewVecDense(len(f), f))
	to.ScaleVec(1/(floats.Dot(f, s.KSum)+s.l.Eps), to)
	return to.RawVector().Data
}

func (s *State) answers(q mat.Matrix) *mat.Dense {
	queries := rowsOf(q)
	_, dv := s.KV.Dims()
	to := mat.NewDense(len(queries), dv, nil)
	for i, x := range queries {
		to.SetRow(i, s.Answer(x))
	}
	return to
}

// Products returns the number of multiply-adds of the two orders: pair by pair, and with keys
// summed first.
func Products(nq, nk, features, dimV int) (pairwise, summed int) {
	return nq * nk * (features + dimV + 1), (nq + nk) * features * (dimV + 1)
}
