package harness

import (
	"runtime"
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
	return calibrated(team, probeFirst, func(_, n int) int64 { return p.Peak(n) })
}

// ForRead measures bytes per second over the memory that the measured calls read, each thread reading its share of it.
func (p Probes) ForRead(team *attn.Team, x []float32) Probe {
	if len(x) == 0 {
		return func() float64 { return 0 }
	}
	workers := team.Workers()
	return calibrated(team, 1, func(i, n int) int64 {
		share := x[i*len(x)/workers : (i+1)*len(x)/workers]
		for range n {
			p.Read(share)
		}
		return 4 * int64(n) * int64(len(share))
	})
}

// calibrated measures the work that the threads of a team do together in a second, each doing n parts of it, with n such that it takes
// probeTime.
func calibrated(team *attn.Team, n int, work func(thread, n int) int64) Probe {
	workers := team.Workers()
	return func() float64 {
		for {
			var begun, done atomic.Int64
			took := Time(workers, func() {
				team.Run(workers, func(_, thread int) {
					// A worker that waits for the others here cannot take a second share while one of them wakes up.
					for begun.Add(1); begun.Load() < int64(workers); {
						runtime.Gosched()
					}
					done.Add(work(thread, n))
				})
			}).judged(workers)
			if took >= probeTime {
				return float64(done.Load()) / took.Seconds()
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
