package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// noise returns n times of about 100, with a spread of 2 %, skewed upwards as timings are.
func noise(r *rand.Rand, n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = 100 * math.Exp(0.015*r.NormFloat64()+0.01*r.ExpFloat64())
	}
	return xs
}

// TestChangePoints checks that series of one distribution have no change, and that a step of 5 % is
// found where it is.
func TestChangePoints(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const trials = 300
	alarms, found, near := 0, 0, 0
	for range trials {
		if len(ChangePoints(noise(r, 20+r.IntN(181)))) > 0 {
			alarms++
		}
		n := 40 + r.IntN(61)
		step := 15 + r.IntN(n-30)
		xs := noise(r, n)
		for i := range xs[step:] {
			xs[step+i] *= 1.05
		}
		if at := ChangePoints(xs); len(at) > 0 {
			found++
			if slices.ContainsFunc(at, func(i int) bool { return max(i-step, step-i) <= 5 }) {
				near++
			}
		}
	}
	t.Logf("of %d series, %d without a change had one found; with a step of 5 %%, %d had one found, %d of them within 5 values", trials, alarms, found, near)
	if alarms > 3+3 { // a hundredth of the series, and three standard deviations of their number
		t.Errorf("%d of %d series without a change had one found, want one in a hundred", alarms, trials)
	}
	if found < 95*trials/100 || near < 95*trials/100 {
		t.Errorf("a step of 5 %% was found in %d of %d series, within 5 values in %d; want 95 in a hundred", found, trials, near)
	}
}

// TestChangePointsEdges checks series that are too short or constant.
func TestChangePointsEdges(t *testing.T) {
	for _, xs := range [][]float64{nil, {1}, {1, 1, 1, 9, 9, 9}, slices.Repeat([]float64{3}, 100)} {
		if at := ChangePoints(xs); at != nil {
			t.Errorf("%v: changes at %v", xs, at)
		}
	}
	var xs []float64
	for _, level := range []float64{10, 20, 5} {
		for i := range 20 {
			xs = append(xs, level+0.01*float64(i%7))
		}
	}
	at := ChangePoints(xs)
	if !slices.Equal(at, []int{20, 40}) {
		t.Fatalf("changes at %v, want 20 and 40", at)
	}
	if levels := Levels(xs, at); !slices.EqualFunc(levels, []float64{10.03, 20.03, 5.03}, func(x, y float64) bool { return math.Abs(x-y) < 0.011 }) {
		t.Errorf("levels %v", levels)
	}
}

// TestChangePointsProperties checks that neither the unit of a series nor its direction matters.
func TestChangePointsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		xs := noise(r, 60)
		step := rapid.IntRange(12, 48).Draw(t, "step")
		for i := range xs[step:] {
			xs[step+i] *= 1.5 // far from any of the noise
		}
		at := ChangePoints(xs)
		if !slices.Contains(at, step) {
			t.Fatalf("a step of a half at %d is not among %v", step, at)
		}
		scaled := make([]float64, len(xs))
		for i, x := range xs {
			scaled[i] = x / 1024
		}
		if other := ChangePoints(scaled); !slices.Equal(at, other) {
			t.Fatalf("changes at %v, in another unit at %v", at, other)
		}
		slices.Reverse(xs)
		if back := ChangePoints(xs); !slices.Contains(back, len(xs)-step) {
			t.Fatalf("turned round, a step at %d is not among %v", len(xs)-step, back)
		}
	})
}
