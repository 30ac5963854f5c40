package stats

import (
	"math"
	"slices"
)

// A Pair is the times of A and of B in one round of a comparison. They are taken in the order A B B
// A or B A A B, so that a linear drift over the round adds as much to A as to B.
type Pair struct{ A, B [2]float64 }

// Ratio returns B over A in one round.
func (p Pair) Ratio() float64 { return (p.B[0] + p.B[1]) / (p.A[0] + p.A[1]) }

// A Paired describes rounds.
type Paired struct {
	Rounds         int
	Median, Lo, Hi float64 // of the rounds' ratios, with the interval of Summarise
	// Least is the least time of B over the least time of A, which are the least disturbed ones.
	Least float64
	P     float64 // of RankTest over all times
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

// A Sequence is a number of looks at data that still come in. Each look has an equal share of Alpha
// as its level. Then the chance that any look raises a false alarm is at most Alpha, however the
// looks depend on each other (Bonferroni).
type Sequence struct {
	Alpha float64
	Looks int
}

// Level returns the level of one look.
func (s Sequence) Level() float64 { return s.Alpha / float64(max(s.Looks, 1)) }
