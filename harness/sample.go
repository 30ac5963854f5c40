package harness

import (
	"math"
	"time"

	"attnlab/harness/machine"
)

// teamWarm is how long the threads of a team run before they are measured. They wake up on one CPU
// and move to others some milliseconds later; a CPU that has slept is slow at first.
// Tuning: docs/tuning.md#team-warm
const teamWarm = 40 * time.Millisecond

// warmAgain is the duration below which a call is timed only just after another one. The probes
// refill the caches with their own data, and a short call would be timed while it fills them again.
// Tuning: docs/tuning.md#warm-again
const warmAgain = 20 * time.Millisecond

// MaxDrift is the greatest relative difference of the two probes around a sample. Beyond it the
// sample does not count towards the share of the peak.
const MaxDrift = 0.02

// A Sample is one timing: some calls, and the machine's rate just before and just after them.
type Sample struct {
	Calls   int     `json:"calls"`
	Elapsed Elapsed `json:"elapsed"` // of all calls together
	// Before and After are the two readings of the probe, in FLOP/s or bytes/s.
	Before, After float64
	// Slots is the lesser of two counts of instructions begun in a cycle, before and after.
	Slots float64
	// Again is the number of samples that were thrown away just before this one.
	Again int `json:"again,omitempty"`
	// Counts are CPU events by name, in all calls together. Events that the CPU does not count are
	// absent.
	Counts map[string]int64 `json:"counts,omitempty"`
}

// Steady reports whether both probes found the same rate, but for MaxDrift.
func (s Sample) Steady() bool {
	return math.Abs(s.Before-s.After) <= MaxDrift*math.Min(s.Before, s.After)
}

// PerCall returns the time of one call, in nanoseconds, by the clock that judges this number of
// threads.
func (s Sample) PerCall(threads int) float64 {
	return float64(s.Elapsed.judged(threads)) / float64(s.Calls)
}

// SampleOptions say what a sample should be like. The zero value takes any.
type SampleOptions struct {
	// Calls is the least number of calls, which an earlier sample of the point needed; 0 if
	// unknown.
	Calls int
	// Slots is the number of instructions begun in a cycle on a core whose sibling thread idles; 0
	// if unknown.
	Slots float64
	// Wait is how long to wait for such a core, and how long to take another sample in place of one
	// that is not steady or has fewer slots.
	Wait time.Duration
}

// accept reports whether a sample is as it should be.
func (o SampleOptions) accept(s Sample) bool { return s.Steady() && s.Slots >= o.Slots }

// A Sampler takes samples of jobs.
type Sampler struct {
	Probe Probe           // the machine's rate
	Slots Probe           // instructions begun in a cycle
	Count machine.Counter // nil: events of the CPU are not counted
	Least time.Duration   // of all calls together; 0 is the default of Effort.Sample
}

// Take warms a job up and takes one sample of it. A job runs once to warm up, a team's until
// teamWarm has passed, and a short call runs once more after the probe. Only the probes decide
// whether the sample is taken again; what it measures does not.
func (m *Sampler) Take(j Job, o SampleOptions) (Sample, error) {
	least := Effort{Sample: m.Least}.orDefault().Sample
	took, err := j.Run(1)
	if err != nil {
		return Sample{}, err
	}
	s, short := Sample{Calls: max(o.Calls, 1)}, took.Wall < warmAgain
	if o.Calls < 1 && took.Wall < least {
		// The warm-up call is cold and slow: take half the calls that it asks for, and let the loop
		// below find the rest.
		s.Calls = max(1, grow(1, took.Wall, least)/2)
	}
	for warm := took.Wall; j.Team().Workers() > 1 && warm < teamWarm; warm += took.Wall {
		if took, err = j.Run(s.Calls); err != nil {
			return Sample{}, err
		}
	}
	count := m.Count
	if count == nil {
		count = func(int) func() map[string]int64 { return func() map[string]int64 { return nil } }
	}
	begun := time.Now()
	waits := func() bool { return time.Since(begun) < o.Wait }
	for {
		before := m.Slots()
		for before < o.Slots && waits() {
			before = m.Slots()
		}
		s.Before = m.Probe()
		if short {
			if _, err = j.Run(1); err != nil {
				return Sample{}, err
			}
		}
		counted := count(j.Team().Workers())
		s.Elapsed, err = j.Run(s.Calls)
		s.Counts = counted()
		if err != nil {
			return Sample{}, err
		}
		if s.Elapsed.Wall >= least {
			s.After = m.Probe()
			s.Slots = min(before, m.Slots())
			if o.accept(s) || !waits() {
				return s, nil
			}
			s.Again++
			continue
		}
		s.Calls = grow(s.Calls, s.Elapsed.Wall, least)
	}
}
