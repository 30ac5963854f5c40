package harness

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"attnlab/attn"
	"attnlab/harness/machine"
)

// Probes are loops that measure what the machine can do, in one instruction set.
type Probes struct {
	// Peak does n rounds of independent fused multiply-adds and returns their floating-point
	// operations.
	Peak func(n int) int64
	// Read reads all of x as fast as memory gives it.
	Read func(x []float32) float32
	// Update reads all of x and writes it back.
	Update func(x []float32)
	// Chain does n rounds of additions, each of which waits a cycle for the one before, and returns
	// their number. Slots does n rounds of independent instructions and returns theirs. If Slots is
	// nil, the instructions begun in a cycle are not measured.
	Chain, Slots func(n int) int64
}

// A Probe measures the machine's rate right now, in FLOP/s or bytes/s.
type Probe func() float64

// firstRounds is the number of rounds of Peak that calibration begins with.
const firstRounds = 256

// ForPeak returns a probe of floating-point operations per second, on all threads of the team at
// once.
func (p Probes) ForPeak(team *attn.Team, e Effort) Probe {
	return calibrated(team, e, firstRounds, func(_, n int) int64 { return p.Peak(n) })
}

// ForRead returns a probe of bytes per second. The threads of the team read x at once, each its
// share.
func (p Probes) ForRead(team *attn.Team, x []float32, e Effort) Probe {
	return overMemory(team, x, e, 4, func(share []float32) { p.Read(share) })
}

// ForUpdate returns a probe of bytes per second, where a number counts twice: it is read and
// written. The threads of the team update x at once, each its share.
func (p Probes) ForUpdate(team *attn.Team, x []float32, e Effort) Probe {
	return overMemory(team, x, e, 8, p.Update)
}

// overMemory returns a probe of bytes per second, where pass moves each bytes for a number of x.
func overMemory(team *attn.Team, x []float32, e Effort, each int64, pass func(share []float32)) Probe {
	if len(x) == 0 {
		return func() float64 { return 0 }
	}
	workers := team.Workers()
	return calibrated(team, e, 1, func(i, n int) int64 {
		share := x[i*len(x)/workers : (i+1)*len(x)/workers]
		for range n {
			pass(share)
		}
		return each * int64(n) * int64(len(share))
	})
}

// ForSlots returns a probe of instructions begun in a cycle: the least among the threads of the
// team, which are measured at once. It reads 0 without Slots.
func (p Probes) ForSlots(team *attn.Team, e Effort) Probe {
	if p.Slots == nil {
		return func() float64 { return 0 }
	}
	workers := team.Workers()
	readings := e.orDefault().Readings
	each, least := make([]Probe, workers), make([]float64, workers)
	for i := range each {
		each[i] = machine.Slots(p.Chain, p.Slots, readings)
	}
	return func() float64 {
		var met atomic.Int64
		team.Run(workers, func(_, thread int) {
			meet(&met, workers) // or one worker may take two shares
			least[thread] = each[thread]()
		})
		return slices.Min(least)
	}
}

// calibrated returns a probe of the work that the threads of a team do together in a second. Each
// does n parts of the work, where n is raised until they take the time of a probe.
func calibrated(team *attn.Team, e Effort, n int, work func(thread, n int) int64) Probe {
	least := e.orDefault().Probe
	return func() float64 {
		for {
			done, took := together(team, n, work)
			if took >= least {
				return float64(done) / took.Seconds()
			}
			n = grow(n, took, least)
		}
	}
}

// Threads that wake up on one CPU run one after the other, until the scheduler moves them apart
// some milliseconds later. So before several threads are timed, they do short turns of the work
// until all finish one turn at the same time.
const (
	sameTime      = 200 * time.Microsecond // between the first and the last to finish a turn
	turnsPerProbe = 16                     // the work of a probe over that of a turn
	maxTurns      = 64                     // after which the threads are timed as they are
)

// together has each thread of a team do n parts of its work. It returns the work done and the time
// it took.
func together(team *attn.Team, n int, work func(thread, n int) int64) (done int64, took time.Duration) {
	workers := team.Workers()
	if workers == 1 {
		took = Time(1, func() { done = work(0, n) }).judged(1)
		return done, took
	}
	begin := time.Now()
	var met [maxTurns + 1]atomic.Int64
	var sum, from atomic.Int64
	finished := make([]atomic.Int64, workers*maxTurns) // since begin
	team.Run(workers, func(_, thread int) {
		// A worker that waits here cannot take the share of one that still wakes up.
		meet(&met[0], workers)
		for turn := range maxTurns {
			work(thread, max(1, n/turnsPerProbe))
			all := finished[turn*workers:][:workers]
			all[thread].Store(int64(time.Since(begin)))
			if meet(&met[turn+1], workers) {
				from.Store(int64(time.Since(begin)))
			}
			first, last := all[0].Load(), all[0].Load()
			for i := range all {
				first, last = min(first, all[i].Load()), max(last, all[i].Load())
			}
			if time.Duration(last-first) < sameTime {
				break
			}
		}
		sum.Add(work(thread, n))
	})
	return sum.Load(), time.Since(begin) - time.Duration(from.Load())
}

// meet returns when it has been called all times, and reports to one caller that it was the last. A
// waiting caller spins: the goroutine that takes samples is locked to its thread, and would have to
// be woken up if it let others run. With fewer processors than callers it does let them run.
func meet(here *atomic.Int64, all int) (last bool) {
	if here.Add(1) == int64(all) {
		return true
	}
	for here.Load() < int64(all) {
		if all > runtime.GOMAXPROCS(0) {
			runtime.Gosched()
		}
	}
	return false
}

// grow returns the number of calls to try next when n calls took less time than wanted: a fifth
// more than proportion asks for. It is at most a hundred times n, because the first calls are slow
// and the clock is coarse.
func grow(n int, took, want time.Duration) int {
	next := 100 * float64(n)
	if took > 0 {
		next = min(next, 1.2*float64(n)*float64(want)/float64(took))
	}
	return max(n+1, int(next))
}
