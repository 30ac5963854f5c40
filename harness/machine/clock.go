package machine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"attnlab/harness/run"
)

// A Limit is the rate of a probe of multiply-adds on one thread, and the clock it ran at.
type Limit struct {
	Clock    float64 // cycles per second
	PerCycle float64 // floating-point operations begun in a cycle
	// Slots is the number of instructions that the CPU begins in a cycle for one thread alone.
	Slots float64
	// Shared is the share of the tries in which the CPU began less than run.MinSlots of Slots, less
	// the share in which the clock seemed as slow. A sibling thread was busy then.
	Shared float64
	// Doubt says why the probe is not to be trusted, "" if it is.
	Doubt string
}

// Tries is the number of tries of each probe that Against needs: short ones, of which the best are
// undisturbed.
const Tries = 300

const (
	limitTime  = 25 * time.Microsecond // of a try: many fit between two interruptions
	limitSlack = 0.02                  // relative error of PerCycle that is not doubted
)

// Against measures the clock by a chain of additions that each wait a cycle for the one before. It
// compares two probes with it: multiply-adds on a number of lanes, and independent instructions.
// Each probe does rounds and returns the operations done. The probes alternate, so that they run at
// the same clock, and the best of the tries of each counts, since a disturbance makes a try slower.
//
// A CPU begins one, two or four vector multiply-adds in a cycle. At any other rate something else
// limited the probe, or it ran at another clock, and a share of such a peak says nothing. One lane
// is never in doubt: portable loops multiply, round and add, at a rate that differs between CPUs.
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

// slow returns the share of the rates that are below a rate.
func slow(rates []float64, than float64) float64 {
	n := 0
	for _, x := range rates {
		if x < than {
			n++
		}
	}
	return float64(n) / float64(len(rates))
}

// Slots returns a measurement of the instructions of this thread that the CPU begins in a cycle
// now. It takes a number of readings of limitTime each.
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

// perCycle returns the lower quartile of the instructions begun, over the median of the cycles. An
// occasional interruption does not change it. A sibling thread that runs for a quarter of the time
// does.
func perCycle(begun, cycles []float64) float64 {
	slices.Sort(begun)
	slices.Sort(cycles)
	return begun[len(begun)/4] / cycles[len(cycles)/2]
}

// limit returns the Limit of a rate at a clock, without its slots.
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

// timed returns a function that reads a probe's rate, over as many rounds as take limitTime.
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
