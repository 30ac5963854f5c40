package machine

import (
	"fmt"
	"math"
	"time"
)

// A Limit is what a probe of multiply-adds reaches on one thread, against the clock.
type Limit struct {
	Clock    float64 // cycles per second
	PerCycle float64 // floating-point operations
	Doubt    string  // why the probe is not to be trusted, "" if nothing speaks against it
}

// Tries of each probe are enough for Against: short ones, of which the best are those that nothing disturbed.
const Tries = 300

const (
	limitTime  = 100 * time.Microsecond
	limitSlack = 0.02
)

// Against holds a probe of multiply-adds on so many lanes against one of additions that wait for one another, a cycle each. Both do so many rounds and
// return the operations done. They run in turns, so many times, so that they meet the same clock, and the best of each counts, for what disturbs a try makes it slow.
//
// A CPU starts one, two or four multiply-adds in a cycle (four: Neoverse V1, Apple). A rate that is none of these means that something else limited the
// probe, or that it ran at another clock, and shares of such a peak say nothing. On one lane nothing is doubted: portable loops multiply, round and
// add, which takes units that each CPU has in numbers of its own.
func Against(lanes int, peak, chain func(rounds int) int64, tries int) Limit {
	var flop, clock float64
	again := []func() float64{timed(peak), timed(chain)}
	for range tries {
		flop, clock = max(flop, again[0]()), max(clock, again[1]())
	}
	return limit(lanes, flop, clock)
}

func limit(lanes int, flop, clock float64) Limit {
	l := Limit{Clock: clock, PerCycle: flop / clock}
	if lanes == 1 {
		return l
	}
	for _, pipes := range []float64{1, 2, 4} {
		if want := 2 * float64(lanes) * pipes; math.Abs(l.PerCycle-want) <= limitSlack*want {
			return l
		}
	}
	l.Doubt = fmt.Sprintf("%.3g FLOP per cycle is not within %s of what one, two or four multiply-adds on %d lanes make", l.PerCycle, Percent(limitSlack), lanes)
	return l
}

// timed returns a reading of a probe's rate, over as many rounds as take limitTime.
func timed(probe func(rounds int) int64) func() float64 {
	rounds := 1
	return func() float64 {
		for {
			begun := time.Now()
			done := probe(rounds)
			if took := time.Since(begun); took >= limitTime {
				return float64(done) / took.Seconds()
			}
			rounds *= 2
		}
	}
}
