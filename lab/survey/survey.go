// Package survey measures a machine with the loops of each instruction set: its peak, its memory,
// and how steady both are. It also keeps what a doctor has found, for later runs.
package survey

import (
	"runtime"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
	"attnlab/lab/sets"
)

// A Surveyor measures this machine. Its zero fields have the values that are named; tests, which
// are about other things, take fewer readings.
type Surveyor struct {
	Sets sets.Sets
	// Effort is how long a reading of a probe lasts.
	Effort harness.Effort
	// Readings is the number of readings of a rate, from which its drift is computed: 25.
	Readings int
	// Tries is the number of short readings in which a peak is compared with the clock:
	// machine.Tries.
	Tries int
}

// A Peak is the peak of an instruction set on one thread, and what disturbed its readings.
type Peak struct {
	run.Peak
	Clock  float64 // cycles per second
	Shared float64 // share of the readings during which another thread used the core
	Drift  float64 // how far readings lie apart, relative to their median
}

// Peak measures the peak of an instruction set.
func (s *Surveyor) Peak(o *asm.Ops) Peak {
	peak := s.rate(probes(o).ForPeak(nil, s.Effort))
	p, tries := &o.Probe, s.Tries
	if tries == 0 {
		tries = machine.Tries
	}
	l := machine.Against(p.PeakWidth, p.Peak, p.Chain, p.Slots, tries)
	return Peak{run.Peak{ISA: o.ISA, Flop: peak.PerSecond, PerCycle: l.PerCycle, Doubt: l.Doubt, Slots: l.Slots}, l.Clock, l.Shared, peak.Drift}
}

// readingTime is the time after which a slow rate is read no more.
const readingTime = 300 * time.Millisecond

// readings reads a rate several times, at least three.
func (s *Surveyor) readings(p harness.Probe) []float64 {
	count := s.Readings
	if count == 0 {
		count = 25
	}
	p() // finds its length
	var rates []float64
	for begun := time.Now(); len(rates) < count && (len(rates) < 3 || time.Since(begun) < readingTime); {
		rates = append(rates, p())
	}
	return rates
}

// rate reads a rate several times.
func (s *Surveyor) rate(p harness.Probe) (r Rate) {
	r.PerSecond, r.Drift = machine.Drift(s.readings(p))
	return r
}

// A Memory is the bandwidth of a level of memory.
type Memory struct {
	Level string
	Bytes int64 // that were read again and again
	ISA   string
	// Read and Update are rates of bytes per second: of reading memory, and of reading it and
	// writing it back, where a byte counts twice.
	Read, Update Rate
}

// A Rate is the median of some readings.
type Rate struct {
	PerSecond float64
	Drift     float64 // how far the readings lie apart, relative to their median
}

// Memory measures the bandwidth of each cache, and of the memory behind them, with every
// instruction set.
func (s *Surveyor) Memory(caches []run.Cache) []Memory {
	var all []Memory
	for _, m := range levels(caches) {
		x := attn.Alloc[float32](int(m.Bytes / 4))
		for i := range x {
			x[i] = 1 // so that each page is resident, and not the one zero page
		}
		for _, v := range s.Sets {
			if !v.Available {
				continue
			}
			p := probes(v.Ops)
			all = append(all, Memory{m.Name, m.Bytes, v.ISA, s.rate(p.ForRead(nil, x, s.Effort)), s.rate(p.ForUpdate(nil, x, s.Effort))})
		}
	}
	return all
}

// unreported is a size beyond any cache that a hypervisor hides.
const unreported = 64 << 20

// levels returns, for each level of memory, a size that lies well inside it: half of a cache, and
// four times the largest for the memory behind them. The last is at most a quarter of the available
// memory.
func levels(caches []run.Cache) []run.Cache {
	var list []run.Cache
	largest := int64(unreported)
	for _, c := range caches {
		list = append(list, run.Cache{Name: c.Name, Bytes: c.Bytes / 2})
		largest = max(largest, c.Bytes)
	}
	behind := min(4*largest, 1<<30)
	if n, ok := machine.Available(); ok {
		behind = min(behind, n/4)
	}
	if behind > largest {
		list = append(list, run.Cache{Name: "memory", Bytes: behind})
	}
	return list
}

// Peaks measures the peak of every instruction set, and describes how steady the machine is, for
// run.json.
func (s *Surveyor) Peaks() ([]run.Peak, map[string]string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var peaks []run.Peak
	noise := map[string]string{}
	for _, v := range s.Sets {
		if !v.Available {
			continue
		}
		p := s.Peak(v.Ops)
		peaks = append(peaks, p.Peak)
		noise["drift of the "+v.ISA+" probe"] = machine.Percent(p.Drift)
		noise["core shared with others, by the "+v.ISA+" probe"] = machine.Percent(p.Shared)
	}
	noise["interruptions"] = machine.Watch().String()
	if share, ok := Stolen(); ok {
		noise["stolen since the machine started"] = machine.Percent(share)
	}
	return peaks, noise
}

// Stolen returns the share of the time since the machine started in which the hypervisor ran
// another machine. It reports false where the system does not count it.
func Stolen() (share float64, ok bool) {
	u, ok := machine.ReadUsage()
	return machine.Usage{}.Stolen(u), ok
}

// Probes returns the probes that a point is judged by: those of its own instruction set or, for a
// kernel that is built on none of the sets, those of the fastest set of this machine.
func Probes(s sets.Sets) func(run.Point) harness.Probes {
	return func(at run.Point) harness.Probes {
		return probes(s.For(at.ISA))
	}
}

// probes returns the probes of a set of loops.
func probes(o *asm.Ops) harness.Probes {
	streamed := &o.Streamed.Probe
	return harness.Probes{Peak: o.Probe.Peak, Read: streamed.Read, Update: streamed.Update, Chain: o.Probe.Chain, Slots: o.Probe.Slots}
}
