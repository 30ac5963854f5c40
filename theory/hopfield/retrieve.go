package hopfield

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bridge"
)

// A Limit sets when a retrieval ends.
type Limit struct {
	Iterations int // the largest number of updates; 0: 100
	// Tolerance is the largest change of a number in an update after which a state counts as
	// settled; 0 means 1e-6.
	Tolerance float64
}

func (l Limit) orDefault() Limit {
	if l.Iterations == 0 {
		l.Iterations = 100
	}
	if l.Tolerance == 0 {
		l.Tolerance = 1e-6
	}
	return l
}

// A Retrieval is the result of retrieving from one probe.
type Retrieval struct {
	State      []float64 // the last state
	Iterations int       // updates made, including the one that showed that it had settled
	Settled    bool
	Path       [][]float64 // all states, from the probe to the last
}

// Retrieve updates probes, one in each row, until they settle. Each iteration is one call of
// attention for all probes that have not settled.
func (m *Modern) Retrieve(a bridge.Attention, probes mat.Matrix, l Limit) ([]Retrieval, error) {
	return settle(probes, l, func(x *mat.Dense) (*mat.Dense, error) {
		next, err := m.UpdateBy(a, x)
		return next.X, err
	})
}

// Settle retrieves from one probe, in float64 throughout.
func (m *Modern) Settle(probe []float64, l Limit) Retrieval {
	all, err := settle(mat.NewDense(1, len(probe), append([]float64(nil), probe...)), l, func(x *mat.Dense) (*mat.Dense, error) {
		return mat.NewDense(1, len(probe), m.Update(x.RawRowView(0))), nil
	})
	if err != nil {
		panic(err) // cannot happen: an update in float64 returns no error
	}
	return all[0]
}

// settle iterates an update of states, one in each row.
func settle(probes mat.Matrix, l Limit, update func(*mat.Dense) (*mat.Dense, error)) ([]Retrieval, error) {
	l = l.orDefault()
	n, d := probes.Dims()
	found, moving := make([]Retrieval, n), make([]int, n)
	for i := range found {
		x := mat.Row(nil, i, probes)
		found[i] = Retrieval{State: x, Path: [][]float64{x}}
		moving[i] = i
	}
	for k := 0; k < l.Iterations && len(moving) > 0; k++ {
		x := mat.NewDense(len(moving), d, nil)
		for r, i := range moving {
			x.SetRow(r, found[i].State)
		}
		next, err := update(x)
		if err != nil {
			return nil, err
		}
		still := moving[:0]
		for r, i := range moving {
			f, to := &found[i], mat.Row(nil, r, next)
			f.Settled = floats.Distance(to, f.State, math.Inf(1)) <= l.Tolerance
			f.State, f.Path = to, append(f.Path, to)
			f.Iterations++
			if !f.Settled {
				still = append(still, i)
			}
		}
		moving = still
	}
	return found, nil
}

// Nearest returns the pattern nearest to a state, and its distance.
func (m *Modern) Nearest(x []float64) (pattern int, distance float64) {
	n, _ := m.Dims()
	distance = math.Inf(1)
	for j := range n {
		if r := floats.Distance(x, m.Keys.RawRowView(j), 2); r < distance {
			pattern, distance = j, r
		}
	}
	return pattern, distance
}

// Basin returns the share of noisy copies of a pattern from which retrieval ends nearest to that
// pattern. The noise is normal, with the given standard deviation in every number.
func (m *Modern) Basin(a bridge.Attention, rng *rand.Rand, pattern int, deviation float64, samples int, l Limit) (float64, error) {
	n, d := m.Dims()
	if pattern < 0 || pattern >= n || samples < 1 {
		return 0, fmt.Errorf("basin: %d samples of pattern %d of %d; want one sample or more, of a pattern from 0 to %d", samples, pattern, n, n-1)
	}
	probes := mat.NewDense(samples, d, nil)
	probes.Apply(func(_, c int, _ float64) float64 { return m.Keys.At(pattern, c) + deviation*rng.NormFloat64() }, probes)
	all, err := m.Retrieve(a, probes, l)
	if err != nil {
		return 0, err
	}
	back := 0
	for _, r := range all {
		if j, _ := m.Nearest(r.State); j == pattern {
			back++
		}
	}
	return share(back, samples), nil
}

// Landscape returns the energy at origin + t direction for every t of at.
func (m *Modern) Landscape(origin, direction, at []float64) []float64 {
	e, x := make([]float64, len(at)), make([]float64, len(origin))
	for i, t := range at {
		e[i] = m.Energy(floats.AddScaledTo(x, origin, t, direction))
	}
	return e
}
