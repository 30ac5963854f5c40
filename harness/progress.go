package harness

import (
	"math"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// Progress is how far long work has come, between two measurements.
type Progress struct {
	Phase       string        // what is going on
	Done, Total int           // steps of the whole; Total is an estimate while the intervals decide
	Point       run.Point     // what is measured next
	Width       float64       // how far the interval of what is known of it reaches from the median, as a part of it; +Inf without one
	Left        time.Duration // estimate of the time to the end; negative while there is nothing to go by
}

// Needed is how many values, of which there are n, a sample should have for its interval, which
// reaches width from its median, to reach no farther than precision: it shrinks with the square
// root of their number. It is no less than n, nor than least, which is what there must be for an
// interval.
func Needed(n int, width, precision float64, least int) int {
	need := max(n, least)
	if w := width / precision; w > 1 && !math.IsInf(w, 0) {
		need = max(need, int(min(math.Ceil(float64(n)*w*w), math.MaxInt32)))
	}
	return need
}

// NeededFor is how many samples a cell needs in all to have so many accepted, if of its n samples
// so many are and the share stays; of cells without samples, or without accepted ones, it is told
// no more than that they need one for each that they lack.
func NeededFor(want, accepted, n int) int {
	lacks := max(0, want-accepted)
	if accepted > 0 {
		lacks = (lacks*n + accepted - 1) / accepted
	}
	return n + lacks
}

// Forecast is how many of the steps that are needed will be taken yet, and how long that takes: at
// the pace of those taken so far in this session, and no longer than what is left of a budget, of
// which a negative one is none. Without a pace the time is negative, which is unknown.
func Forecast(needed, taken int, took, budget time.Duration) (steps int, left time.Duration) {
	if taken < 1 || took <= 0 {
		return needed, -1
	}
	each := float64(took) / float64(taken)
	time := each * float64(needed)
	if budget >= 0 && time > float64(budget) {
		return int(float64(budget) / each), budget
	}
	return needed, duration(time)
}

func duration(ns float64) time.Duration { return time.Duration(min(ns, math.MaxInt64/2)) }

// lookAfter is the round after which cells are judged next if they need so many rounds.
func lookAfter(rounds int) int {
	next := firstLook
	for look := 1; look < Looks-1 && next < rounds; look++ {
		next *= 2
	}
	return next
}

// roundsNeeded is how many rounds a cell is foreseen to take to its verdict, given the ratios of
// those that it has: as many as bring its interval to lie within the effect; where the median lies
// outside, which may be a verdict at any time, as many as the next look takes.
func roundsNeeded(ratios []float64, effect float64) int {
	s := stats.Summarise(ratios)
	room := effect - math.Abs(s.Median-1)
	if !(room > 0) {
		return lookAfter(len(ratios) + 1)
	}
	return lookAfter(Needed(len(ratios), s.Width()*s.Median, room, firstLook))
}
