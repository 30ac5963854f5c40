package harness

import (
	"math"
	"time"

	"attnlab/harness/run"
)

// Progress is the state of long work between two measurements.
type Progress struct {
	Phase       string    // plan, verify, round 3, ...
	Done, Total int       // steps; Total is an estimate while the intervals decide
	Point       run.Point // what is measured next
	// Width is the half-width of the interval of the point's median, relative to the median; +Inf
	// while there is no interval.
	Width float64
	// Left is the estimated time to the end, negative while it is unknown.
	Left time.Duration
}

// Needed returns the number of values that narrow the interval of a median from width to precision,
// both relative to the median. The interval of n values shrinks with the square root of n. The
// result is at least n, and at least least, the fewest that have an interval.
func Needed(n int, width, precision float64, least int) int {
	need := max(n, least)
	if w := width / precision; w > 1 && !math.IsInf(w, 0) {
		need = max(need, int(min(math.Ceil(float64(n)*w*w), math.MaxInt32)))
	}
	return need
}

// NeededFor returns the number of samples after which a cell should have as many accepted ones as
// wanted, if the share accepted among its n samples stays the same. Without an accepted sample it
// assumes that all further ones are.
func NeededFor(want, accepted, n int) int {
	lacks := max(0, want-accepted)
	if accepted > 0 {
		lacks = (lacks*n + accepted - 1) / accepted
	}
	return n + lacks
}

// Forecast returns how many of the needed steps will still be taken, and how long they take at the
// pace of the steps taken so far. The time is at most what is left of the budget; a negative budget
// is no limit. The time is negative, which means unknown, while no step has been taken.
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
