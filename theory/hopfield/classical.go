package hopfield

import (
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A Classical network is N spins of +1 or -1, coupled by W = Sums/N. It stores Sums, not W, because
// Sums are whole numbers: a field that should be 0 is exactly 0, without a rounding error of 1/N.
type Classical struct {
	Sums *mat.SymDense // sum_mu k_mui k_muj
}

// Hebb stores patterns of +1 and -1, one in each row, with the diagonal W_ii = M/N.
func Hebb(patterns mat.Matrix) (*Classical, error) {
	m, n := patterns.Dims()
	if m == 0 || n == 0 {
		return nil, fmt.Errorf("hebb: %d patterns of %d spins; store at least one pattern of one spin", m, n)
	}
	for mu := range m {
		for i := range n {
			if x := patterns.At(mu, i); x != 1 && x != -1 {
				return nil, fmt.Errorf("hebb: spin %d of pattern %d is %v; spins are +1 or -1, a modern network stores other numbers", i, mu, x)
			}
		}
	}
	c := &Classical{new(mat.SymDense)}
	c.Sums.SymOuterK(1, patterns.T())
	return c, nil
}

// WithoutDiagonal returns the same network with W_ii = 0: no spin votes for itself.
func (c *Classical) WithoutDiagonal() *Classical {
	sums := mat.NewSymDense(c.Size(), nil)
	sums.CopySym(c.Sums)
	for i := range c.Size() {
		sums.SetSym(i, i, 0)
	}
	return &Classical{sums}
}

// Size returns N, the number of spins.
func (c *Classical) Size() int { return c.Sums.SymmetricDim() }

// W returns the couplings Sums/N.
func (c *Classical) W() *mat.SymDense {
	var w mat.SymDense
	w.ScaleSym(1/float64(c.Size()), c.Sums)
	return &w
}

// Energy returns E(x) = -1/2 x^T W x.
func (c *Classical) Energy(x []float64) float64 {
	v := c.vector(x)
	return -mat.Inner(v, c.Sums, v) / float64(2*c.Size())
}

// fields returns N W x.
func (c *Classical) fields(x []float64) []float64 {
	var h mat.VecDense
	h.MulVec(c.Sums, c.vector(x))
	return h.RawVector().Data
}

func (c *Classical) vector(x []float64) *mat.VecDense {
	if len(x) != c.Size() {
		panic(fmt.Sprintf("hopfield: a state of %d spins, in a network of %d", len(x), c.Size()))
	}
	return mat.NewVecDense(len(x), x)
}

// towards returns sign(field), or spin where the field is 0.
func towards(field, spin float64) float64 {
	switch {
	case field > 0:
		return 1
	case field < 0:
		return -1
	}
	return spin
}

// Synchronous updates all spins at once, from the same state.
func (c *Classical) Synchronous(x []float64) []float64 {
	next := c.fields(x)
	for i, h := range next {
		next[i] = towards(h, x[i])
	}
	return next
}

// Sweep updates spins one after another in the given order; each update sees the earlier ones. A
// nil order is every spin once, from first to last. It also returns the number of spins that
// changed.
func (c *Classical) Sweep(x []float64, order []int) (next []float64, changed int) {
	h := c.fields(x)
	next = append(next, x...)
	visit := func(i int) {
		to := towards(h[i], next[i])
		step := to - next[i]
		if step == 0 {
			return
		}
		next[i] = to
		changed++
		// Update every field by the change instead of summing it again.
		for j := range h {
			h[j] += c.Sums.At(j, i) * step
		}
	}
	if order == nil {
		for i := range next {
			visit(i)
		}
	}
	for _, i := range order {
		visit(i)
	}
	return next, changed
}

// A Rest is the state in which a classical network ended.
type Rest struct {
	State  []float64
	Sweeps int
	Stable bool // the last sweep changed nothing
}

// Settle sweeps until nothing changes, at most the given number of times. Each sweep takes a new
// random order, or goes from first to last if rng is nil.
func (c *Classical) Settle(x []float64, maxSweeps int, rng *rand.Rand) Rest {
	r := Rest{State: x}
	for !r.Stable && r.Sweeps < maxSweeps {
		var order []int
		if rng != nil {
			order = rng.Perm(c.Size())
		}
		next, changed := c.Sweep(r.State, order)
		r.State, r.Stable = next, changed == 0
		r.Sweeps++
	}
	return r
}

// Overlap returns x.y/N: 1 for equal spins, -1 for opposite spins, near 0 for unrelated ones.
func Overlap(x, y []float64) float64 { return floats.Dot(x, y) / float64(len(x)) }

// Spins returns m random patterns of n spins, one in each row.
func Spins(rng *rand.Rand, m, n int) *mat.Dense {
	p := mat.NewDense(m, n, nil)
	p.Apply(func(_, _ int, _ float64) float64 { return float64(2*rng.IntN(2) - 1) }, p)
	return p
}
