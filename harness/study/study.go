// Package study estimates what comparisons are worth on a machine. It compares the same code with
// itself, so that every difference found is a false alarm.
package study

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/harness/ab"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A Result is what a comparison makes of rounds whose sides are the same. The rounds are taken once
// and resampled for many comparisons, as they are and with one side made slower. So its shares are
// estimates from one stretch of time on one machine.
type Result struct {
	Point  run.Point `json:"point"`
	Rounds int       `json:"rounds"`
	// FalseAlarms is the share of comparisons of the same code that end in worse or better.
	FalseAlarms float64 `json:"false_alarms"`
	// Smallest is the smallest slowdown caught in 95 of 100 comparisons; 0 if there is none.
	Smallest float64 `json:"smallest"`
	// Floor is the relative difference that the least times of both sides keep to in 95 of 100
	// comparisons.
	Floor float64 `json:"floor"`
	// Spread is the distance of the first and last deciles of single times, relative to the median.
	Spread float64 `json:"spread"`
}

const (
	roundsEach = 12  // rounds of a comparison
	draws      = 200 // comparisons
)

// slowdowns are the slowdowns that a study tries, in ascending order.
var slowdowns = []float64{0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5}

// Run takes rounds of the first cell of a comparison, whose sides should be the same, and studies
// them. When stop is closed it studies the rounds so far. A sample that fails is an error.
func Run(ctx context.Context, stop <-chan struct{}, c *ab.Comparison, rounds int) (Result, error) {
	pairs, err := c.Rounds(ctx, stop, rounds)
	if err != nil {
		return Result{}, err
	}
	r := Result{Point: c.Cells[0][0], Rounds: len(pairs)}
	if r.Rounds > 0 {
		r.study(c, pairs)
	}
	return r, nil
}

func (r *Result) study(c *ab.Comparison, pairs []stats.Pair) {
	rng := rand.New(rand.NewPCG(c.Seed, 2))
	var times, apart []float64
	for _, p := range pairs {
		times = append(times, p.A[:]...)
		times = append(times, p.B[:]...)
	}
	slices.Sort(times)
	at := func(xs []float64, q float64) float64 { return xs[int(q*float64(len(xs)-1)+0.5)] }
	r.Spread = (at(times, 0.9) - at(times, 0.1)) / at(times, 0.5)
	level := c.Level()
	caught := make([]int, len(slowdowns))
	alarms := 0
	for range draws {
		drawn := make([]stats.Pair, roundsEach)
		for i := range drawn {
			p := pairs[rng.IntN(len(pairs))]
			if rng.IntN(2) == 0 { // both sides are the same code
				p.A, p.B = p.B, p.A
			}
			drawn[i] = p
		}
		apart = append(apart, math.Abs(least(drawn)-1))
		// A round that was drawn twice has tied times. Real comparisons have none, and the rank
		// test is slow with ties, so each time is moved a little.
		for i := range drawn {
			for _, t := range []*float64{&drawn[i].A[0], &drawn[i].A[1], &drawn[i].B[0], &drawn[i].B[1]} {
				*t *= 1 + 1e-9*rng.Float64()
			}
		}
		if worse(drawn, c.Effect, level) || worse(exchanged(drawn), c.Effect, level) {
			alarms++
		}
		for n, x := range slowdowns {
			slow := slices.Clone(drawn)
			for i := range slow {
				slow[i].B[0] *= 1 + x
				slow[i].B[1] *= 1 + x
			}
			if worse(slow, c.Effect, level) { // larger slowdowns are caught, too
				for ; n < len(caught); n++ {
					caught[n]++
				}
				break
			}
		}
	}
	slices.Sort(apart)
	r.Floor, r.FalseAlarms = at(apart, 0.95), float64(alarms)/draws
	for n := len(slowdowns) - 1; n >= 0 && caught[n] >= draws*95/100; n-- {
		r.Smallest = slowdowns[n]
	}
}

// worse reports whether rounds come to the verdict ab.Worse. The rank test, which takes longest, is
// made only where the other conditions hold.
func worse(rounds []stats.Pair, effect, level float64) bool {
	ratios := make([]float64, len(rounds))
	for i, p := range rounds {
		ratios[i] = p.Ratio()
	}
	slices.Sort(ratios)
	c := ab.Cell{Paired: stats.Paired{Median: ratios[len(ratios)/2], Least: least(rounds), Lo: math.Inf(-1), Hi: math.Inf(1)}, Effect: effect}
	if c.Judge(level) != ab.Worse {
		return false
	}
	var a, b []float64
	for _, p := range rounds {
		a, b = append(a, p.A[:]...), append(b, p.B[:]...)
	}
	c.Adjusted = stats.RankTest(a, b)
	return c.Judge(level) == ab.Worse
}

// least returns the least time of B over that of A.
func least(rounds []stats.Pair) float64 {
	a, b := math.Inf(1), math.Inf(1)
	for _, p := range rounds {
		a, b = min(a, p.A[0], p.A[1]), min(b, p.B[0], p.B[1])
	}
	return b / a
}

// exchanged returns the rounds with their sides exchanged.
func exchanged(rounds []stats.Pair) []stats.Pair {
	t := slices.Clone(rounds)
	for i, p := range t {
		t[i].A, t[i].B = p.B, p.A
	}
	return t
}
