package machine

import (
	"fmt"
	"slices"
	"time"
)

// Interruptions are what a thread loses that does nothing but look at the clock: to ticks of the
// system and of the hypervisor beneath it, and to other threads. What is measured loses that time,
// and more: after each of them its caches are colder.
type Interruptions struct {
	PerSecond float64
	Typical   time.Duration // the median of their lengths
	Lost      float64       // part of the time
}

const (
	watchTime = 50 * time.Millisecond
	leastGap  = 5 * time.Microsecond // between two looks at the clock, which take some tens of nanoseconds
)

// Watch looks at the clock for watchTime.
func Watch() Interruptions {
	begun := time.Now()
	return watch(func() time.Duration { return time.Since(begun) })
}

func watch(now func() time.Duration) Interruptions {
	gaps := make([]time.Duration, 0, watchTime/leastGap) // there can be no more, so that the loop allocates nothing
	first := now()
	last := first
	for last-first < watchTime {
		at := now()
		if at-last >= leastGap {
			gaps = append(gaps, at-last)
		}
		last = at
	}
	if len(gaps) == 0 {
		return Interruptions{}
	}
	lost := time.Duration(0)
	for _, g := range gaps {
		lost += g
	}
	slices.Sort(gaps)
	took := last - first
	return Interruptions{float64(len(gaps)) / took.Seconds(), gaps[len(gaps)/2], lost.Seconds() / took.Seconds()}
}

// String says it in a line.
func (i Interruptions) String() string {
	if i.PerSecond == 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f in a second, half of them %v or longer, %s of the time", i.PerSecond, i.Typical.Round(time.Microsecond/10), Percent(i.Lost))
}
