package harness

import (
	"cmp"
	"time"
)

// An Effort is how long measurements last. The zero value is the default, which results need; tests
// that do not look at the figures take less.
type Effort struct {
	// Sample is the least duration of a sample; 0 means 5 ms. It is long against the resolution of
	// the clock and short against the time slices of the scheduler.
	Sample time.Duration
	// Probe is the duration of a probe, before and again after each sample; 0 means 16 ms. A longer
	// one averages over more interruptions, so that two probes of one machine agree.
	// Tuning: docs/tuning.md#probe-time
	Probe time.Duration
	// Readings is the number of short readings of the instructions begun in a cycle, before and
	// again after each sample; 0 means 40. A short reading is seldom interrupted, and many find one
	// that was not.
	// Tuning: docs/tuning.md#slot-readings
	Readings int
	// Profile is how long a point runs under the profiler; 0 means 2 s, which is about two hundred
	// samples on each thread.
	Profile time.Duration
}

// orDefault returns e with its zero fields set to their defaults.
func (e Effort) orDefault() Effort {
	return Effort{
		Sample:   cmp.Or(e.Sample, 5*time.Millisecond),
		Probe:    cmp.Or(e.Probe, 16*time.Millisecond),
		Readings: cmp.Or(e.Readings, 40),
		Profile:  cmp.Or(e.Profile, 2*time.Second),
	}
}
