package hopfield

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

func hebb(t interface{ Fatal(...any) }, patterns mat.Matrix) *Classical {
	c, err := Hebb(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// network returns a random network of a few spins, with or without its diagonal, and a random
// state.
func network(t *rapid.T) (c *Classical, x []float64, rng *rand.Rand) {
	rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	m, n := rapid.IntRange(1, 5).Draw(t, "patterns"), rapid.IntRange(1, 9).Draw(t, "spins")
	c = hebb(t, Spins(rng, m, n))
	if rapid.Bool().Draw(t, "without diagonal") {
		c = c.WithoutDiagonal()
	}
	return c, Spins(rng, 1, n).RawRowView(0), rng
}

// TestHebbRefuses checks that patterns other than +1 and -1 are refused.
func TestHebbRefuses(t *testing.T) {
	for _, c := range []struct {
		patterns mat.Matrix
		says     string
	}{
		{new(mat.Dense), "at least one pattern"},
		{mat.NewDense(2, 2, []float64{1, -1, 1, 0}), "spin 1 of pattern 1 is 0"},
		{mat.NewDense(1, 2, []float64{.5, 1}), "spin 0 of pattern 0 is 0.5"},
	} {
		if _, err := Hebb(c.patterns); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want one that says %q", err, c.says)
		}
	}
}

// TestSweepIsTheRuleAndDescends checks that a sweep applies the rule to one spin after another, and
// that the energy falls at every spin that turns.
func TestSweepIsTheRuleAndDescends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, x, rng := network(t)
		order := rng.Perm(c.Size())
		got, changed := c.Sweep(x, order)
		want, turned := slices.Clone(x), 0
		for _, i := range order {
			before := c.Energy(want)
			field := 0.0
			for j := range want {
				field += c.Sums.At(i, j) * want[j]
			}
			if field*want[i] < 0 {
				want[i] = -want[i]
				turned++
				if after := c.Energy(want); !(after < before) {
					t.Fatalf("spin %d turned, and the energy went from %v to %v", i, before, after)
				}
			}
		}
		if !slices.Equal(got, want) || changed != turned {
			t.Fatalf("%v with %d changes, want %v with %d", got, changed, want, turned)
		}
	})
}

// TestSettleEndsWhereNothingMoves checks that Settle ends in a stable state of no higher energy.
func TestSettleEndsWhereNothingMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, x, rng := network(t)
		if rapid.Bool().Draw(t, "in order") {
			rng = nil
		}
		r := c.Settle(x, 1000, rng)
		if !r.Stable {
			t.Fatal("not stable after 1000 sweeps, and every sweep but the last lowers the energy of one of at most 512 states")
		}
		if _, changed := c.Sweep(r.State, nil); changed != 0 || !slices.Equal(c.Synchronous(r.State), r.State) {
			t.Fatalf("%v is not stable", r.State)
		}
		if c.Energy(r.State) > c.Energy(x) {
			t.Fatal("the energy rose")
		}
	})
	two := hebb(t, mat.NewDense(1, 2, []float64{1, 1})).WithoutDiagonal()
	if r := two.Settle([]float64{1, -1}, 0, nil); r.Sweeps != 0 || r.Stable {
		t.Errorf("no sweeps allowed: %+v", r)
	}
}

// TestSynchronousDescendsOnlyWithTheDiagonal checks that updates of all spins at once descend if
// Hebb's matrix has its diagonal, which makes it positive semi-definite. It also checks that the
// energy can rise without the diagonal.
func TestSynchronousDescendsOnlyWithTheDiagonal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	rises, cycles := 0, 0
	for range 2000 {
		c := hebb(t, Spins(rng, 3, 8))
		x := Spins(rng, 1, 8).RawRowView(0)
		next := c.Synchronous(x)
		if !slices.Equal(next, x) && !(c.Energy(next) < c.Energy(x)) {
			t.Fatalf("with the diagonal: %v to %v", c.Energy(x), c.Energy(next))
		}
		bare := c.WithoutDiagonal()
		next = bare.Synchronous(x)
		if bare.Energy(next) > bare.Energy(x) {
			rises++
		}
		if !slices.Equal(next, x) && slices.Equal(bare.Synchronous(next), x) {
			cycles++
		}
	}
	if rises == 0 || cycles == 0 {
		t.Errorf("without the diagonal: %d rises and %d cycles, want some of both", rises, cycles)
	}
}

// TestZeroFieldKeepsTheSpin checks that a field that should be 0 is exactly 0. Three times 1/10 is
// a rounded number, so sums of couplings W would leave a rounding error.
func TestZeroFieldKeepsTheSpin(t *testing.T) {
	ones := mat.NewDense(3, 10, nil)
	ones.Apply(func(_, _ int, _ float64) float64 { return 1 }, ones)
	c := hebb(t, ones)
	x := []float64{1, 1, 1, 1, 1, -1, -1, -1, -1, -1}
	if next := c.Synchronous(x); !slices.Equal(next, x) {
		t.Errorf("all at once: %v, want the state as it was", next)
	}
	if next, changed := c.Sweep(x, nil); changed != 0 || !slices.Equal(next, x) {
		t.Errorf("one after another: %v, want the state as it was", next)
	}
}

// TestStatesOfOtherSizesPanic checks that a state of the wrong size causes a panic.
func TestStatesOfOtherSizesPanic(t *testing.T) {
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "a state of 3 spins, in a network of 2") {
			t.Errorf("panic %q", s)
		}
	}()
	hebb(t, mat.NewDense(1, 2, []float64{1, 1})).Energy([]float64{1, 1, 1})
}
