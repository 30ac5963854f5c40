package machine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"attnlab/harness/run"
)

// A Limit is what a probe of multiply-adds reaches on one thread, against the clock.
type Limit struct {
	Clock    float64 // cycles per second
	PerCycle float64 // floating-point operations
	Slots    float64 // instructions that the CPU begins in a cycle when it has nobody else to begin them for
	Shared   float64 // part of the tries in which it began less than run.MinSlots of them, more than those in which the clock seemed as slow
	Doubt    string  // why the probe is not to be trusted, "" if nothing speaks against it
}

// Tries of each probe are enough for Against: short ones, of which the best are those that nothing
// disturbed.
const Tries = 300

const (
	limitTime  = 25 * time.Microsecond // a CPU runs many of these between two interruptions
	limitSlack = 0.02
)

// Against holds a probe of multiply-adds on so many lanes, and one of how many instructions are
// begun, against one of additions that wait for one another, a cycle each. All do so many rounds
// and return the operations done. They run in turns, so many times, so that they meet the same
// clock, and the best of each counts, for what disturbs a try makes it slow.
//
// A CPU starts one, two or four multiply-adds in a cycle (four: Neoverse V1, Apple). A rate that is
// none of these means that something else limited the probe, or that it ran at another clock, and
// shares of such a peak say nothing. On one lane nothing is doubted: portable loops multiply, round
// and add, which takes units that each CPU has in numbers of its own.
func Against(lanes float64, peak, chain, slots func(rounds int) int64, tries int) Limit {
	var flop float64
	again := []func() float64{timed(peak), timed(chain), timed(slots)}
	var cycles, begun []float64
	for range tries {
		flop, cycles, begun = max(flop, again[0]()), append(cycles, again[1]()), append(begun, again[2]())
	}
	clock, most := slices.Max(cycles), slices.Max(begun)
	l := limit(lanes, flop, clock)
	l.Slots = most / clock
	l.Shared = max(0, slow(begun, run.MinSlots*most)-slow(cycles, run.MinSlots*clock))
	return l
}

// slow is the part of the rates that are less than one.
func slow(rates []float64, than float64) float64 {
	n := 0
	for _, x := range rates {
		if x < than {
			n++
		}
	}
	return float64(n) / float64(len(rates))
}

// Slots returns a measurement of how many instructions of this thread the CPU begins in a cycle
// now, by so many readings of limitTime.
func Slots(chain, slots func(rounds int) int64, readings int) func() float64 {
	clock, begins := timed(chain), timed(slots)
	return func() float64 {
		var cycles, begun []float64
		for range readings {
			cycles, begun = append(cycles, clock()), append(begun, begins())
		}
		return perCycle(begun, cycles)
	}
}

// perCycle is how many instructions were begun in a cycle in all but the fourth part of short
// readings that has the fewest: an interruption now and then does not count, and somebody who runs
// on the same core for some of the time does.
func perCycle(begun, cycles []float64) float64 {
	slices.Sort(begun)
	slices.Sort(cycles)
	return begun[len(begun)/4] / cycles[len(cycles)/2]
}

func limit(lanes float64, flop, clock float64) Limit {
	l := Limit{Clock: clock, PerCycle: flop / clock}
	if lanes == 1 {
		return l
	}
	for _, pipes := range []float64{1, 2, 4} {
		if want := 2 * lanes * pipes; math.Abs(l.PerCycle-want) <= limitSlack*want {
			return l
		}
	}
	l.Doubt = fmt.Sprintf("%.3g FLOP per cycle is not within %s of what one, two or four multiply-adds on %.3g lanes make", l.PerCycle, Percent(limitSlack), lanes)
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
