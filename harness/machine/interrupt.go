package machine

import (
	"fmt"
	"slices"
	"time"
)

// Interruptions are the gaps in the time of a thread that only reads the clock. Ticks of the system
// and of its hypervisor, and other threads, make them. A measurement loses that time and more,
// because its caches are colder after each of them.
type Interruptions struct {
	PerSecond float64
	Typical   time.Duration // median length
	Lost      float64       // share of the time
}

const (
	watchTime = 50 * time.Millisecond
	leastGap  = 5 * time.Microsecond // between two readings, which themselves take far less
)

// Watch reads the clock for watchTime and returns its gaps.
func Watch() Interruptions {
	begun := time.Now()
	return watch(func() time.Duration { return time.Since(begun) })
}

func watch(now func() time.Duration) Interruptions {
	gaps := make([]time.Duration, 0, watchTime/leastGap) // the most there can be
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

// String formats the interruptions as one line.
func (i Interruptions) String() string {
	if i.PerSecond == 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f in a second, half of them %v or longer, %s of the time", i.PerSecond, i.Typical.Round(time.Microsecond/10), Percent(i.Lost))
}
