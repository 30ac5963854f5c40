package stats

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// A Pair is what one round of a comparison of two sides gave: the times of A and of B, taken as A B B A or B A A B, so that a drift that is a straight
// line over the round adds as much to one as to the other.
type Pair struct{ A, B [2]float64 }

// Ratio is B over A in one round.
func (p Pair) Ratio() float64 { return (p.B[0] + p.B[1]) / (p.A[0] + p.A[1]) }

// A Paired describes rounds.
type Paired struct {
	Rounds         int
	Median, Lo, Hi float64 // of the rounds' ratios, with the interval of Summarise
	Least          float64 // the least time of B over the least of A: what is left when nothing disturbed either
	P              float64 // of RankTest over all times
}

// SummarisePairs describes rounds. With none, every number is NaN and P is 1.
func SummarisePairs(rounds []Pair) Paired {
	var ratios, a, b []float64
	for _, r := range rounds {
		ratios = append(ratios, r.Ratio())
		a, b = append(a, r.A[:]...), append(b, r.B[:]...)
	}
	s := Summarise(ratios)
	p := Paired{Rounds: len(rounds), Median: s.Median, Lo: s.Lo, Hi: s.Hi, Least: math.NaN(), P: RankTest(a, b)}
	if len(rounds) > 0 {
		p.Least = slices.Min(b) / slices.Min(a)
	}
	return p
}

// A Sequence says how often data are looked at while they come in, and at which level each look is made: with the same share of Alpha for each, the
// chance that any of them raises a false alarm is at most Alpha, however the looks depend on each other (Bonferroni).
type Sequence struct {
	Alpha float64
	Looks int
}

// Level is that of one look.
func (s Sequence) Level() float64 { return s.Alpha / float64(max(s.Looks, 1)) }

// Bootstrap is the interval of the mean of a sample by the studentised bootstrap: resamples are held against their own spread, so that the interval is as
// wide as a small sample needs, and as skewed as its values. Fewer than two values have none: the interval is infinite. Equal seeds give equal intervals.
func Bootstrap(xs []float64, confidence float64, resamples int, seed uint64) (lo, hi float64) {
	mean, err := meanAndError(xs)
	if !(err > 0) {
		if len(xs) > 1 && err == 0 {
			return mean, mean
		}
		return math.Inf(-1), math.Inf(1)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(xs))))
	t := make([]float64, 0, resamples)
	again := make([]float64, len(xs))
	for len(t) < resamples {
		for i := range again {
			again[i] = xs[rng.IntN(len(xs))]
		}
		m, e := meanAndError(again)
		switch {
		case e > 0:
			t = append(t, (m-mean)/e)
		case m != mean: // one value, again and again: as far out as can be
			t = append(t, math.Copysign(math.Inf(1), m-mean))
		default:
			t = append(t, 0)
		}
	}
	slices.Sort(t)
	tail := (1 - confidence) / 2
	at := func(share float64) float64 {
		return t[min(max(int(math.Round(share*float64(resamples))), 0), resamples-1)]
	}
	return mean - err*at(1-tail), mean - err*at(tail)
}

// meanAndError are the mean of a sample and its standard error.
func meanAndError(xs []float64) (mean, err float64) {
	mean, deviation := stat.MeanStdDev(xs, nil)
	return mean, stat.StdErr(deviation, float64(len(xs)))
}
