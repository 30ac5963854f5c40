package hopfield

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/theory/bridge"
)

func modern(t interface{ Fatal(...any) }, keys, values mat.Matrix, beta float64) *Modern {
	m, err := NewModern(keys, values, beta)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func normal(rng *rand.Rand, r, c int) *mat.Dense {
	m := mat.NewDense(r, c, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return rng.NormFloat64() }, m)
	return m
}

// memory returns a random network and a random state.
func memory(t *rapid.T) (*Modern, []float64) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	n, d := rapid.IntRange(1, 6).Draw(t, "patterns"), rapid.IntRange(1, 5).Draw(t, "d")
	beta := rapid.SampledFrom([]float64{0, 1e-3, .5, 1, 4, 50, math.Inf(1)}).Draw(t, "beta")
	x := normal(rng, 1, d).RawRowView(0)
	floats.Scale(rapid.SampledFrom([]float64{0, .1, 1, 10}).Draw(t, "size"), x)
	return modern(t, normal(rng, n, d), nil, beta), x
}

// TestNewModernRefuses checks that bad patterns, values and temperatures are refused.
func TestNewModernRefuses(t *testing.T) {
	two := mat.NewDense(2, 1, []float64{1, 2})
	for _, c := range []struct {
		keys, values mat.Matrix
		beta         float64
		says         string
	}{
		{new(mat.Dense), nil, 1, "at least one pattern"},
		{two, nil, -1, "beta is -1; want a positive number"},
		{two, nil, math.NaN(), "beta is NaN"},
		{two, mat.NewDense(3, 1, nil), 1, "2 patterns and 3 values"},
	} {
		if _, err := NewModern(c.keys, c.values, c.beta); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want one that says %q", err, c.says)
		}
	}
	if m := modern(t, mat.NewDense(1, 16, nil), nil, 0); m.Beta != .25 {
		t.Errorf("beta is %v in 16 dimensions, want 1/4", m.Beta)
	}
}

// TestUpdateDescends checks that an update lowers the energy by at least half the squared step.
func TestUpdateDescends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, x := memory(t)
		next := m.Update(x)
		step := floats.Distance(next, x, 2)
		before, after := m.Energy(x), m.Energy(next)
		if rounding := 1e-13 * (1 + math.Abs(before) + 1/m.Beta); !(before-after >= step*step/2-rounding) {
			t.Fatalf("energy from %v to %v in a step of %v", before, after, step)
		}
		if e := before + m.Constant(); !(e >= -1e-12*(1+m.Constant())) {
			t.Fatalf("%v with the constant, want 0 or more", e)
		}
	})
}

// TestGradientIsTheDerivative checks the gradient of the energy against differences.
func TestGradientIsTheDerivative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, x := memory(t)
		if math.IsInf(m.Beta, 1) {
			return // the energy has kinks
		}
		want := fd.Gradient(nil, m.Energy, x, &fd.Settings{Formula: fd.Central})
		// The third derivative grows with beta^2.
		if d := floats.Distance(m.Gradient(x), want, math.Inf(1)); !(d <= 3e-7*(1+m.Beta*m.Beta)*(1+floats.Norm(x, 2))) {
			t.Fatalf("off by %v", d)
		}
	})
}

// TestKernelsUpdateAndRead checks that every kernel computes the update within its tolerance, for
// many states at once, and reads values of another width.
func TestKernelsUpdateAndRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	keys, values, states := bridge.Float32(normal(rng, 7, 4)), bridge.Float32(normal(rng, 7, 3)), bridge.Float32(normal(rng, 5, 4))
	for _, beta := range []float64{.5, 2, math.Inf(1)} {
		m := modern(t, keys, values, beta)
		answered := 0
		for _, k := range append(kernels.All(), nil) {
			a := bridge.Attention{}
			if k != nil {
				a = bridge.Through(k)
			}
			for _, c := range []struct {
				by    func(bridge.Attention, mat.Matrix) (bridge.Values, error)
				exact func([]float64) []float64
			}{{m.UpdateBy, m.Update}, {m.ReadBy, m.Read}} {
				got, err := c.by(a, states)
				if errors.Is(err, attn.ErrUnsupported) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				answered++
				for i := range 5 {
					for j, want := range c.exact(states.RawRowView(i)) {
						if d := math.Abs(got.X.At(i, j) - want); !(d <= got.Tol.At(i, j)) {
							t.Errorf("%s, beta %v: row %d column %d is off by %v, tolerance %v", a.Name(), beta, i, j, d, got.Tol.At(i, j))
						}
					}
				}
			}
		}
		if answered < 4 {
			t.Errorf("beta %v: %d answers, want those of a kernel and the definition at least", beta, answered)
		}
	}
}

// TestRetrieveManyIsRetrieveEach checks that rows settle independently: many probes in one call are
// retrieved as each one alone.
func TestRetrieveManyIsRetrieveEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	m := modern(t, normal(rng, 6, 4), nil, 3)
	probes := normal(rng, 9, 4)
	all, err := m.Retrieve(bridge.Attention{}, probes, Limit{Iterations: 30})
	if err != nil {
		t.Fatal(err)
	}
	iterations := map[int]bool{}
	for i, r := range all {
		one, err := m.Retrieve(bridge.Attention{}, probes.Slice(i, i+1, 0, 4), Limit{Iterations: 30})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.State, one[0].State) || r.Iterations != one[0].Iterations || r.Settled != one[0].Settled {
			t.Errorf("probe %d: %+v among others, %+v alone", i, r, one[0])
		}
		if len(r.Path) != r.Iterations+1 || !slices.Equal(r.Path[0], mat.Row(nil, i, probes)) || !slices.Equal(r.Path[r.Iterations], r.State) {
			t.Errorf("probe %d: a path of %d states for %d iterations", i, len(r.Path), r.Iterations)
		}
		exact := m.Settle(probes.RawRowView(i), Limit{Iterations: 30})
		if d := floats.Distance(exact.State, r.State, math.Inf(1)); r.Settled && !(d <= 1e-4) {
			t.Errorf("probe %d: %v away from what float64 retrieves", i, d)
		}
		iterations[r.Iterations] = true
	}
	if len(iterations) < 2 {
		t.Error("all probes took as many iterations, so nothing was seen of how they leave")
	}
}

// TestLimit checks the limits on iterations and tolerance.
func TestLimit(t *testing.T) {
	m := modern(t, mat.NewDense(2, 1, []float64{1, -1}), nil, 1) // from 1 towards 0, ever slower
	if r := m.Settle([]float64{1}, Limit{Iterations: 3, Tolerance: 1e-12}); r.Settled || r.Iterations != 3 {
		t.Errorf("%d iterations of 3, settled %v", r.Iterations, r.Settled)
	}
	if r := m.Settle([]float64{1}, Limit{Tolerance: .5}); !r.Settled || r.Iterations != 1 {
		t.Errorf("%d iterations with a tolerance of .5, settled %v", r.Iterations, r.Settled)
	}
	if r := m.Settle([]float64{0}, Limit{}); !r.Settled || r.Iterations != 1 || r.State[0] != 0 {
		t.Errorf("from a fixed point: %+v", r)
	}
	if _, err := m.Retrieve(bridge.Attention{}, mat.NewDense(1, 2, nil), Limit{}); err == nil {
		t.Error("a probe of two numbers among patterns of one")
	}
}

// TestSeparation checks that each pattern has at least the weight that its margin promises.
func TestSeparation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, _ := memory(t)
		s := m.Separation()
		n, _ := m.Dims()
		if len(s.Margins) != n {
			t.Fatalf("%d margins of %d patterns", len(s.Margins), n)
		}
		for i, w := range s.Weights {
			if !(w >= s.AtLeast[i]-1e-12) {
				t.Fatalf("pattern %d has weight %v, and %v was promised", i, w, s.AtLeast[i])
			}
		}
		if (n == 1) != math.IsInf(s.Ratio, 1) {
			t.Fatalf("ratio %v of %d patterns", s.Ratio, n)
		}
	})
	square := modern(t, mat.NewDense(4, 2, []float64{1, 1, 1, -1, -1, 1, -1, -1}), nil, 1).Separation()
	if want := math.Sqrt2; math.Abs(square.Ratio-want) > 1e-15 || !slices.Equal(square.Margins, []float64{2, 2, 2, 2}) {
		t.Errorf("the corners of a square: %+v, want margins of 2 and a side of √2 radii", square)
	}
}

// TestBasin checks the share of noisy copies that return to their pattern.
func TestBasin(t *testing.T) {
	m := modern(t, mat.NewDense(2, 2, []float64{1, 0, -1, 0}), nil, 8)
	var shares []float64
	for _, deviation := range []float64{0, .1, 10} {
		s, err := m.Basin(bridge.Attention{}, rand.New(rand.NewPCG(4, 0)), 0, deviation, 400, Limit{})
		if err != nil {
			t.Fatal(err)
		}
		shares = append(shares, s)
	}
	// The basin is the half plane x > 0. Noise of 0.1 leaves it once in 10^23; noise of 10 ends on
	// either side.
	if shares[0] != 1 || shares[1] != 1 || math.Abs(shares[2]-.54) > .1 {
		t.Errorf("shares %v, want 1, 1 and Phi(1/10) = .54", shares)
	}
}

// TestLandscape checks that the energy along a line has its valleys at the patterns.
func TestLandscape(t *testing.T) {
	m := modern(t, mat.NewDense(2, 2, []float64{1, 0, -1, 0}), nil, 8)
	at := floats.Span(make([]float64, 81), -2, 2)
	e := m.Landscape([]float64{0, 0}, []float64{1, 0}, at)
	for i, t0 := range at {
		if want := m.Energy([]float64{t0, 0}); math.Abs(e[i]-want) > 1e-14 {
			t.Fatalf("energy %v at %v, want %v", e[i], t0, want)
		}
	}
	if low := math.Abs(at[floats.MinIdx(e)]); math.Abs(low-1) > .051 {
		t.Errorf("lowest at %v, want the patterns at -1 and 1", low)
	}
	if !(e[40] > e[20] && math.Abs(e[20]-e[60]) < 1e-14) {
		t.Errorf("energies %v, %v, %v at -1, 0, 1: want a hill between two equal valleys", e[20], e[40], e[60])
	}
}
