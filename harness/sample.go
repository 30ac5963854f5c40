package harness

import (
	"math"
	"time"

	"attnlab/harness/machine"
)

// SampleTime is the least duration of a sample: long against timer resolution, short against a
// scheduler's moods. Tests that do not look at what is measured set less, and less of ProbeTime and
// SlotReadings.
var SampleTime = 5 * time.Millisecond

// teamWarm is how long the threads of a team run before they are measured. They wake up on one CPU,
// and some milliseconds later on another one that has slept and is slow: on a virtual machine of
// two CPUs of a Xeon (family 6, model 167) two probes of two threads agreed in 10 of 60 samples
// after one call, in 14 after 20 ms and in 27 after 40.
const teamWarm = 40 * time.Millisecond

// coolTime is how long a call must last to be timed without another one just before it. While the
// probes ran, others have used the caches that were warm before, and shorter calls would be timed
// while they fill them again: on a Zen 5 with busy neighbours, flash with AVX-512, 8 heads, d = 64
// and 512 keys reached .78 of the peak with a causal mask so, and .81 with a call after the probes;
// with 1024 keys .83 and .86.
const coolTime = 20 * time.Millisecond

// MaxDrift is how far apart the two probes around a sample may be before the sample is left out of
// the fraction of peak.
const MaxDrift = 0.02

// A Sample is one measurement: some calls, and the machine's rate just before and just after them.
type Sample struct {
	Calls         int     `json:"calls"`
	Elapsed       Elapsed `json:"elapsed"` // of all calls together
	Before, After float64 // the probe, in FLOP/s or bytes/s
	Slots         float64 // the least number of instructions begun in a cycle, before and after
	Again         int     `json:"again,omitempty"` // so many just before it were not as wished

	Counts map[string]int64 `json:"counts,omitempty"` // of the CPU's events in all calls together, by name; of those it does not count, none
}

// Steady says that both probes saw the same machine.
func (s Sample) Steady() bool {
	return math.Abs(s.Before-s.After) <= MaxDrift*math.Min(s.Before, s.After)
}

// A Wish is what a sample should be like.
type Wish struct {
	Calls int           // so many at least, which an earlier sample of the same point needed; 0: not known
	Slots float64       // so many instructions begun in a cycle, as on a core that nobody else is on; 0: not known
	Wait  time.Duration // how long to wait for that, and to try again after a sample that is not steady or has less
}

// granted says whether a sample is as wished.
func (w Wish) granted(s Sample) bool { return s.Steady() && s.Slots >= w.Slots }

// Take warms a job with one call, a team's with as many as take teamWarm, and measures one sample
// of it, warmed once more if a call is short. What it measures says nothing about whether it tries
// again: only the probes around it do. Without a counter nothing is counted.
func Take(j Job, probe, slots Probe, count machine.Counter, wish Wish) (Sample, error) {
	took, err := j.Run(1)
	if err != nil {
		return Sample{}, err
	}
	s, short := Sample{Calls: max(wish.Calls, 1)}, took.Wall < coolTime
	if wish.Calls < 1 && took.Wall < SampleTime {
		// The warm call is cold and slow: half of what it asks for, and the loop below does the
		// rest.
		s.Calls = max(1, grow(1, took.Wall, SampleTime)/2)
	}
	for warm := took.Wall; j.Team().Workers() > 1 && warm < teamWarm; warm += took.Wall {
		if took, err = j.Run(s.Calls); err != nil {
			return Sample{}, err
		}
	}
	if count == nil {
		count = func(int) func() map[string]int64 { return func() map[string]int64 { return nil } }
	}
	begun := time.Now()
	waits := func() bool { return time.Since(begun) < wish.Wait }
	for {
		before := slots()
		for before < wish.Slots && waits() {
			before = slots()
		}
		s.Before = probe()
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
		if s.Elapsed.Wall >= SampleTime {
			s.After = probe()
			s.Slots = min(before, slots())
			if wish.granted(s) || !waits() {
				return s, nil
			}
			s.Again++
			continue
		}
		s.Calls = grow(s.Calls, s.Elapsed.Wall, SampleTime)
	}
}
