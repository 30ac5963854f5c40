package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestPairDrift checks that a linear drift over a round does not move its ratio.
func TestPairDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, drift := rapid.Float64Range(1, 100).Draw(t, "time"), rapid.Float64Range(-0.2, 0.2).Draw(t, "drift")
		at := func(i int) float64 { return base * (1 + drift*float64(i)) }
		p := Pair{A: [2]float64{at(0), at(3)}, B: [2]float64{at(1), at(2)}}
		if r := p.Ratio(); !(math.Abs(r-1) <= 1e-12) {
			t.Fatalf("a drift of %v makes a ratio of %v", drift, r)
		}
	})
}

// TestSummarisePairs checks the description of a few rounds, and of none.
func TestSummarisePairs(t *testing.T) {
	if s := SummarisePairs(nil); s.Rounds != 0 || !math.IsNaN(s.Median) || !math.IsNaN(s.Least) || s.P != 1 {
		t.Errorf("no rounds: %+v", s)
	}
	var rounds []Pair
	for i := range 8 {
		x := 10 + 0.01*float64(i)
		rounds = append(rounds, Pair{A: [2]float64{x, x}, B: [2]float64{1.1 * x, 1.1 * x}})
	}
	s := SummarisePairs(rounds)
	if s.Rounds != 8 || !(math.Abs(s.Median-1.1) <= 1e-12) || !(math.Abs(s.Least-1.1) <= 1e-12) || !(s.P < 1e-6) {
		t.Errorf("a tenth more: %+v", s)
	}
}

// TestSequence checks that several looks raise no more false alarms than one look.
func TestSequence(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	const trials = 600
	s := Sequence{Alpha: 0.05, Looks: 4}
	alarms := 0
	for range trials {
		var a, b []float64
		for range s.Looks {
			for range 8 {
				a, b = append(a, r.ExpFloat64()), append(b, r.ExpFloat64())
			}
			if RankTest(a, b) <= s.Level() {
				alarms++
				break
			}
		}
	}
	if got, most := float64(alarms)/trials, s.Alpha+3*math.Sqrt(s.Alpha*(1-s.Alpha)/trials); !(got <= most) {
		t.Errorf("false alarms: %.3f over %d looks, want at most %.3f", got, s.Looks, most)
	}
	if got := (Sequence{Alpha: 0.05}).Level(); got != 0.05 {
		t.Errorf("no looks planned: level %v", got)
	}
}
