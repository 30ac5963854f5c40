package hopfield

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"attnlab/theory/bridge"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestWrightOmega checks that w + log w = x over the range of float64.
func TestWrightOmega(t *testing.T) {
	near(t, "omega(0)", WrightOmega(0), 0.56714329040978387, 1e-15)
	near(t, "omega(1)", WrightOmega(1), 1, 1e-15)
	for _, x := range []float64{-700, -100, -3, -1, -1e-9, .5, .999, 1.001, 2, 30, 800, 1e9, 1e300} {
		w := WrightOmega(x)
		if r := math.Abs(w+math.Log(w)-x) / (1 + math.Abs(x)); !(r <= 4e-16) {
			t.Errorf("omega(%v) = %v leaves %v", x, w, r)
		}
	}
	if x := WrightOmega(-800); x != 0 {
		t.Errorf("omega(-800) = %v, want e^-800, which is 0", x)
	}
	if x := WrightOmega(math.Inf(1)); !math.IsInf(x, 1) {
		t.Errorf("omega(+Inf) = %v", x)
	}
	if x := WrightOmega(math.NaN()); !math.IsNaN(x) {
		t.Errorf("omega(NaN) = %v", x)
	}
}

// TestStorageBound checks the examples of the theorem's authors.
func TestStorageBound(t *testing.T) {
	for _, c := range []struct {
		beta, k     float64
		d           int
		p, c, count float64
	}{
		{1, 3, 20, .001, 3.1546, 7.41},
		{1, 1, 75, .001, 1.3719, 10.97},
	} {
		b, err := StorageBound(c.beta, c.k, c.d, c.p)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "c", b.C, c.c, 5e-5)
		near(t, "the bound", b.Patterns, c.count, 5e-3)
		near(t, "W0 of the right side", b.B/b.C*math.Exp(b.B/b.C), math.Exp(b.A)*b.B, 1e-12)
		if !b.Proven {
			t.Errorf("%+v is not covered, and the authors give it as an example", b)
		}
	}
	if b, err := StorageBound(1, 1, 10, .001); err != nil || b.Proven || b.Patterns >= 2 {
		t.Errorf("%+v, %v: want a bound below two patterns, which the theorem leaves out", b, err)
	}
	for _, bad := range [][4]float64{{0, 1, 20, .1}, {1, 0, 20, .1}, {1, 1, 1, .1}, {1, 1, 20, 0}, {1, 1, 20, 2}, {math.NaN(), 1, 20, .1}} {
		if _, err := StorageBound(bad[0], bad[1], int(bad[2]), bad[3]); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// TestClassicalCapacity checks the capacities at known sizes.
func TestClassicalCapacity(t *testing.T) {
	c := ClassicalCapacity(64)
	near(t, "with some wrong bits", c.SomeWrong, 8.8, .05)
	near(t, "most exact", c.MostExact, 7.7, .05)
	near(t, "all exact", c.AllExact, 3.8, .05)
	near(t, "2^(d/2)", BinaryExponential(20), 1024, 0)
}

// TestBinaryTrial checks the share of wrong bits against WrongBit, and full recall of a single
// pattern.
func TestBinaryTrial(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	var trials []BinaryRecall
	for _, m := range []int{1, 5, 20, 60} {
		r, err := BinaryTrial{Spins: 100, Probes: 10}.Run(rng, m)
		if err != nil {
			t.Fatal(err)
		}
		p := WrongBit(m, 100)
		near(t, "share of wrong bits", r.WrongBits, p, 6*math.Sqrt(p*(1-p)/float64(100*m))+1e-12)
		trials = append(trials, r)
	}
	if r := trials[0]; r.WrongBits != 0 || r.NotFixed != 0 || r.Recalled != 1 || r.Overlap != 1 || r.Load != .01 {
		t.Errorf("one pattern: %+v", r)
	}
	if r := trials[3]; r.Recalled > .2 || r.NotFixed != 1 || r.Overlap > .8 {
		t.Errorf("60 patterns in 100 spins: %+v", r)
	}
	if k := Knee(trials); !(k > .01 && k < .6) {
		t.Errorf("the knee is at %v", k)
	}
}

// TestKnee checks the interpolated knee, and that there is none if more than half are always
// recalled.
func TestKnee(t *testing.T) {
	at := func(load, recalled float64) BinaryRecall { return BinaryRecall{Load: load, Recalled: recalled} }
	near(t, "the knee", Knee([]BinaryRecall{at(.1, 1), at(.14, .75), at(.18, .25), at(.2, 0)}), .16, 1e-15)
	if k := Knee([]BinaryRecall{at(.1, 1), at(.2, .6)}); !math.IsNaN(k) {
		t.Errorf("a knee at %v where more than a half is recalled", k)
	}
}

// TestSphereTrial checks that a large sphere recalls every pattern, many more than the bound
// promises, and that a small one with little beta recalls none.
func TestSphereTrial(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	large, err := SphereTrial{Dim: 20, Radius: 3 * math.Sqrt(19), Beta: 1, Probes: 30}.Run(bridge.Attention{}, rng, 500)
	if err != nil {
		t.Fatal(err)
	}
	if large.Recalled != 1 || large.Farthest > .1 || large.Patterns != 500 {
		t.Errorf("radius 3√19: %+v", large)
	}
	small, err := SphereTrial{Dim: 20, Radius: 1, Beta: 1}.Run(bridge.Attention{}, rng, 50)
	if err != nil {
		t.Fatal(err)
	}
	if small.Recalled != 0 || !(small.Farthest > .5) {
		t.Errorf("radius 1: %+v, want every probe at the mean of the patterns", small)
	}
}

// TestTrialsRefuse checks that trials refuse bad sizes and say what is wanted.
func TestTrialsRefuse(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 0))
	for i, err := range []error{
		second(BinaryTrial{Spins: 10}.Run(rng, 0)),
		second(BinaryTrial{}.Run(rng, 1)),
		second(SphereTrial{Dim: 3, Radius: 1}.Run(bridge.Attention{}, rng, 0)),
		second(SphereTrial{Dim: 3}.Run(bridge.Attention{}, rng, 1)),
		second(SphereTrial{Dim: 3, Radius: 1, Beta: -1}.Run(bridge.Attention{}, rng, 1)),
		second(modern(t, Sphere(rng, 2, 3, 1), nil, 1).Basin(bridge.Attention{}, rng, 2, 1, 10, Limit{})),
		second(modern(t, Sphere(rng, 2, 3, 1), nil, 1).Basin(bridge.Attention{}, rng, 0, 1, 0, Limit{})),
	} {
		if err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "store at least") {
			t.Errorf("case %d: error %v, want one that says what is wanted", i, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
