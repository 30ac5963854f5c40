package harness

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"attnlab/attn"
	"attnlab/harness/machine"
)

// Probes are the loops that say what the machine can do, in one instruction set.
type Probes struct {
	Peak func(n int) int64         // n rounds of independent fused multiply-adds; returns the floating-point operations done
	Read func(x []float32) float32 // reads all of x as fast as memory gives it

	// n rounds of additions, each a cycle after the one before, and of instructions that wait for
	// none; they return how many. nil: nobody looks.
	Chain, Slots func(n int) int64
}

// A Probe measures the machine's rate right now, in FLOP/s or bytes/s.
type Probe func() float64

// ProbeTime is how long a probe lasts, each side of a sample: on a Zen 5 with 1400 interruptions a
// second, of 37 µs, two probes of 4 ms agreed in 43 of 100 samples, and of this in 89.
var ProbeTime = 16 * time.Millisecond

// SlotReadings are the short readings of how many instructions a cycle begins, each side of a
// sample: so short and so many that interruptions are in few of them. On a Zen 5 with 1400 in a
// second, of 37 µs, three of ten that took four times as long were late in most samples, and seemed
// to begin .82 of what the CPU did.
var SlotReadings = 40

const probeFirst = 256 // rounds of the first try

// ForPeak measures floating-point operations per second, on all of the team's threads at once.
func (p Probes) ForPeak(team *attn.Team) Probe {
	return calibrated(team, probeFirst, func(_, n int) int64 { return p.Peak(n) })
}

// ForRead measures bytes per second over the memory that the measured calls read, each thread
// reading its share of it.
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

// ForSlots measures how many instructions a cycle begins, on all of the team's threads at once: the
// least of them; 0 if nobody looks.
func (p Probes) ForSlots(team *attn.Team) Probe {
	if p.Slots == nil {
		return func() float64 { return 0 }
	}
	workers := team.Workers()
	each, least := make([]Probe, workers), make([]float64, workers)
	for i := range each {
		each[i] = machine.Slots(p.Chain, p.Slots, SlotReadings)
	}
	return func() float64 {
		var met atomic.Int64
		team.Run(workers, func(_, thread int) {
			meet(&met, workers) // so that each has a worker of its own
			least[thread] = each[thread]()
		})
		return slices.Min(least)
	}
}

// calibrated measures the work that the threads of a team do together in a second, each doing n
// parts of it, with n such that it takes ProbeTime.
func calibrated(team *attn.Team, n int, work func(thread, n int) int64) Probe {
	return func() float64 {
		for {
			done, took := together(team, n, work)
			if took >= ProbeTime {
				return float64(done) / took.Seconds()
			}
			n = grow(n, took, ProbeTime)
		}
	}
}

// Threads that wake up on one CPU do their work one after the other, until the scheduler parts them
// some milliseconds later. Before several threads are timed they take turns of a few parts of the
// work, until all have finished one at the same time but for this.
const (
	apart         = 200 * time.Microsecond
	turnsPerProbe = 16 // that its work would make
	maxTurns      = 64
)

// together has each thread of a team do n parts of its work, and says what that comes to and how
// long it took.
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
		// A worker that waits for the others cannot take a second share while one of them wakes up.
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
			if time.Duration(last-first) < apart {
				break
			}
		}
		sum.Add(work(thread, n))
	})
	return sum.Load(), time.Since(begin) - time.Duration(from.Load())
}

// meet returns when so many have called it, and says to one of them that it was the last. Who waits
// lets other goroutines run only if there are fewer processors than workers: a goroutine locked to
// its thread, as the one that takes samples is, would have to be woken up again.
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

// grow says how many calls to try next when n calls took less time than wanted: a fifth more than
// the measurement asks for, and never more than a hundredfold, because the first calls are slow and
// the clock is coarse.
func grow(n int, took, want time.Duration) int {
	next := 100 * float64(n)
	if took > 0 {
		next = min(next, 1.2*float64(n)*float64(want)/float64(took))
	}
	return max(n+1, int(next))
}
