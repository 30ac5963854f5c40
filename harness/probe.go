package harness

import (
	"sync/atomic"
	"time"

	"attnlab/attn"
)

// Probes are the loops that say what the machine can do, in one instruction set.
type Probes struct {
	Peak func(n int) int64         // n rounds of independent fused multiply-adds; returns the floating-point operations done
	Read func(x []float32) float32 // reads all of x as fast as memory gives it
}

// A Probe measures the machine's rate right now, in FLOP/s or bytes/s.
type Probe func() float64

const (
	probeTime  = 4 * time.Millisecond // each side of a sample; on a shared machine two probes of 1 ms agreed half as often as two of this
	probeFirst = 256                  // rounds of the first try
)

// ForPeak measures floating-point operations per second, on all of the team's threads at once.
func (p Probes) ForPeak(team *attn.Team) Probe {
	workers, n := team.Workers(), probeFirst
	return func() float64 {
		for {
			var flop atomic.Int64
			took := Time(workers, func() {
				team.Run(workers, func(_, _ int) { flop.Add(p.Peak(n)) })
			}).judged(workers)
			if took >= probeTime {
				return float64(flop.Load()) / took.Seconds()
			}
			n = grow(n, took, probeTime)
		}
	}
}

// ForRead measures bytes per second over the memory that the measured calls read, each thread reading its share of it.
func (p Probes) ForRead(team *attn.Team, x []float32) Probe {
	workers, n := team.Workers(), 1
	share := func(i int) []float32 { return x[i*len(x)/workers : (i+1)*len(x)/workers] }
	return func() float64 {
		if len(x) == 0 {
			return 0
		}
		for {
			took := Time(workers, func() {
				team.Run(workers, func(_, i int) {
					for range n {
						p.Read(share(i))
					}
				})
			}).judged(workers)
			if took >= probeTime {
				return float64(n) * 4 * float64(len(x)) / took.Seconds()
			}
			n = grow(n, took, probeTime)
		}
	}
}

// grow says how many calls to try next when n calls took less time than wanted: a fifth more than the measurement asks for, and never
// more than a hundredfold, because the first calls are slow and the clock is coarse.
func grow(n int, took, want time.Duration) int {
	next := 100 * float64(n)
	if took > 0 {
		next = min(next, 1.2*float64(n)*float64(want)/float64(took))
	}
	return max(n+1, int(next))
}
