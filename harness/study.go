package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A Study says what comparisons are worth on this machine: what an AB makes of rounds in which both
// sides were the same. It takes rounds once and compares them many times over, each time twelve of
// them drawn anew, as they are and with one side made slower; so its shares are estimates, from one
// stretch of time on one machine.
type Study struct {
	Point       run.Point `json:"point"`
	Rounds      int       `json:"rounds"`
	FalseAlarms float64   `json:"false_alarms"` // part of comparisons of the same code that were called worse or better
	Smallest    float64   `json:"smallest"`     // the smallest slowdown caught in 95 of 100 comparisons; +Inf is written as 0
	Floor       float64   `json:"floor"`        // least times of the same code lie as near as this, relative to one another, in 95 of 100
	Spread      float64   `json:"spread"`       // single times: from the tenth part to the ninth, relative to the median
}

const (
	studyRounds = 12  // in a comparison
	studyDraws  = 200 // comparisons
)

// slowdowns are those that a Study tries, from the smallest.
var slowdowns = []float64{0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5}

// Study takes so many rounds of the first cell, whose sides should be the same, and says what they
// are worth. The verdicts are those of this AB. When stop is closed it makes do with the rounds it
// has. A sample that fails is an error.
func (s *AB) Study(ctx context.Context, stop <-chan struct{}, rounds int) (Study, error) {
	if err := s.begin(ctx, stop); errors.Is(err, context.Canceled) {
		return Study{Point: s.Cells[0][0]}, nil
	} else if err != nil {
		return Study{}, err
	}
	s.timing, s.taken = s.now(), 0
	for round := 1; round <= rounds && !Stopped(ctx, stop); round++ {
		if s.Tell != nil {
			_, left := Forecast(rounds-s.taken, s.taken, s.now().Sub(s.timing), -1)
			s.Tell(Progress{Phase: "rounds", Done: s.taken, Total: rounds, Point: s.Cells[0][0], Width: math.Inf(1), Left: left})
		}
		if err := s.round(ctx, stop, 0, round, round%2); errors.Is(err, errStopped) {
			break
		} else if err != nil {
			return Study{}, err
		}
		if c := s.verdicts[0]; c.Judgement != Unsure {
			return Study{}, fmt.Errorf("no numbers of %s: %s", c.Points[0].Name(), c.Note)
		}
	}
	st := Study{Point: s.Cells[0][0], Rounds: len(s.pairs[0])}
	if st.Rounds > 0 {
		s.study(&st)
	}
	return st, nil
}

func (s *AB) study(st *Study) {
	rng := rand.New(rand.NewPCG(s.Seed, 2))
	var times, apart []float64
	for _, p := range s.pairs[0] {
		times = append(times, p.A[:]...)
		times = append(times, p.B[:]...)
	}
	slices.Sort(times)
	at := func(xs []float64, q float64) float64 { return xs[int(q*float64(len(xs)-1)+0.5)] }
	st.Spread = (at(times, 0.9) - at(times, 0.1)) / at(times, 0.5)
	level := stats.Sequence{Alpha: s.Alpha, Looks: Looks}.Level()
	caught := make([]int, len(slowdowns))
	alarms := 0
	for range studyDraws {
		drawn := make([]stats.Pair, studyRounds)
		for i := range drawn {
			p := s.pairs[0][rng.IntN(st.Rounds)]
			if rng.IntN(2) == 0 { // both sides are the same: which is which does not matter
				p.A, p.B = p.B, p.A
			}
			drawn[i] = p
		}
		apart = append(apart, math.Abs(least(drawn)-1))
		// A time that was drawn twice would be a tie. Comparisons of times have none, and ranks
		// take far longer with them: on a Zen 3 TestStudy took 7.4 s, and .2 without.
		for i := range drawn {
			for _, t := range []*float64{&drawn[i].A[0], &drawn[i].A[1], &drawn[i].B[0], &drawn[i].B[1]} {
				*t *= 1 + 1e-9*rng.Float64()
			}
		}
		if s.worse(drawn, level) || s.worse(turned(drawn), level) {
			alarms++
		}
		for n, x := range slowdowns {
			slow := slices.Clone(drawn)
			for i := range slow {
				slow[i].B[0] *= 1 + x
				slow[i].B[1] *= 1 + x
			}
			if s.worse(slow, level) { // and so are larger ones
				for ; n < len(caught); n++ {
					caught[n]++
				}
				break
			}
		}
	}
	slices.Sort(apart)
	st.Floor, st.FalseAlarms = at(apart, 0.95), float64(alarms)/studyDraws
	for n := len(slowdowns) - 1; n >= 0 && caught[n] >= studyDraws*95/100; n-- {
		st.Smallest = slowdowns[n]
	}
}

// worse is whether rounds come to the verdict Worse. Ranks, which take the longest, are looked at
// last.
func (s *AB) worse(rounds []stats.Pair, level float64) bool {
	ratios := make([]float64, len(rounds))
	for i, p := range rounds {
		ratios[i] = p.Ratio()
	}
	slices.Sort(ratios)
	c := ABCell{Paired: stats.Paired{Median: ratios[len(ratios)/2], Least: least(rounds), Lo: math.Inf(-1), Hi: math.Inf(1)}, Effect: s.Effect}
	if c.verdict(level) != Worse {
		return false
	}
	var a, b []float64
	for _, p := range rounds {
		a, b = append(a, p.A[:]...), append(b, p.B[:]...)
	}
	c.Adjusted = stats.RankTest(a, b)
	return c.verdict(level) == Worse
}

// least is the least time of B over that of A.
func least(rounds []stats.Pair) float64 {
	a, b := math.Inf(1), math.Inf(1)
	for _, p := range rounds {
		a, b = min(a, p.A[0], p.A[1]), min(b, p.B[0], p.B[1])
	}
	return b / a
}

// turned has the sides change places.
func turned(rounds []stats.Pair) []stats.Pair {
	t := slices.Clone(rounds)
	for i, p := range t {
		t[i].A, t[i].B = p.B, p.A
	}
	return t
}
