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
	return func() float64 {
		for {
			done, took := together(team, func(thread int) int64 { return work(thread, n) })
			if took >= probeTime {
				return float64(done) / took.Seconds()
			}
			n = grow(n, took, probeTime)
		}
	}
}

// together has each thread of a team do its work, and says what that comes to and how long it took. Several threads do it twice, and what
// counts is the second time: they may have woken up on one CPU, and the scheduler needs some milliseconds to part them.
func together(team *attn.Team, work func(thread int) int64) (done int64, took time.Duration) {
	workers := team.Workers()
	if workers == 1 {
		took = Time(1, func() { done = work(0) }).judged(1)
		return done, took
	}
	var begun, warm, sum atomic.Int64
	var from time.Time
	team.Run(workers, func(_, thread int) {
		// A worker that waits for the others cannot take a second share while one of them wakes up.
		meet(&begun, workers)
		work(thread)
		if meet(&warm, workers) {
			from = time.Now()
		}
		sum.Add(work(thread))
	})
	return sum.Load(), time.Since(from)
}

// meet returns when so many have called it, and says to one of them that it was the last.
func meet(here *atomic.Int64, all int) (last bool) {
	if here.Add(1) == int64(all) {
		return true
	}
	for here.Load() < int64(all) {
		runtime.Gosched()
	}
	return false
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
