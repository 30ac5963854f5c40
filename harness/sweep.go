package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A Sweep takes the points of a grid through verification, memory and rounds of samples. It does
// not repeat what the journal already holds.
type Sweep struct {
	Recorder
	Points []run.Point

	// Samples and Accepted are the least numbers of samples, and of samples that are not dropped,
	// for each point. If both are 0, the intervals decide.
	Samples, Accepted int
	// Precision is the half-width, relative to the median, at which an interval is narrow enough.
	Precision float64
	// Budget is the time of this session; the first round is finished even so. 0 is no limit.
	Budget time.Duration
	// Wait is SampleOptions.Wait of each sample.
	Wait time.Duration

	Tell func(Progress) // called between measurements; may be nil

	need   int       // samples in all, by the stopping rule
	had    int       // samples that earlier sessions took
	begun  time.Time // of this session
	timing time.Time // of its first sample
}

// Reasons why a sweep ended.
const (
	Precise     = "every interval is narrow"
	AllSamples  = "all samples are taken"
	AllAccepted = "enough samples are accepted"
	BudgetSpent = "the budget is spent"
	Interrupted = "interrupted"
	NothingLeft = "there is nothing to time"
)

// An Outcome is the result of a sweep.
type Outcome struct {
	Reason                 string // one of the constants above
	Points                 int
	Wrong, Failed, Skipped int // points with wrong answers, other failures, or not tried
	Wide                   int // points with intervals wider than Precision, if these decide
	Few                    int // points with fewer samples than asked
}

// leastSamples is the fewest values whose median has a 95 % interval.
const leastSamples = 6

// Run does the sweep. When stop is closed it finishes the present sample and returns; when ctx is
// cancelled it returns at once. Its errors are those of a Recorder.
func (s *Sweep) Run(ctx context.Context, stop <-chan struct{}) (Outcome, error) {
	reason, err := s.all(ctx, stop)
	if errors.Is(err, context.Canceled) {
		reason, err = Interrupted, nil
	}
	o := s.outcome(reason)
	if err != nil {
		return o, err
	}
	return o, s.Journal.Append(run.Record{End: &run.End{Reason: reason, Complete: reason != Interrupted, Time: s.Time()}})
}

// all takes every point through all steps, and returns why it ended.
func (s *Sweep) all(ctx context.Context, stop <-chan struct{}) (reason string, err error) {
	s.begun = s.Time()
	if err := s.Plan(ctx, stop, s.Points, s.Tell); err != nil {
		return "", err
	}
	s.timing, s.had = s.begun, s.visits()
	s.foresee()
	for i, at := range s.Points {
		if Stopped(ctx, stop) {
			return Interrupted, nil
		}
		s.tell("verify", at, i)
		if err := s.Verify(ctx, at); err != nil {
			return "", err
		}
		if err := s.memory(ctx, at); err != nil {
			return "", err
		}
	}
	s.timing = s.Time()
	for round := 1; ; round++ {
		if reason := s.enough(round); reason != "" {
			return reason, nil
		}
		s.foresee()
		order := rand.New(rand.NewPCG(s.Journal.Run().Meta.Seed, uint64(round))).Perm(len(s.Points))
		for _, i := range order {
			c := s.Cell(s.Points[i])
			if c.Done() || c.Visited(round) {
				continue
			}
			if Stopped(ctx, stop) {
				return Interrupted, nil
			}
			if s.Budget > 0 && round > 1 && s.Time().Sub(s.begun) >= s.Budget {
				return BudgetSpent, nil
			}
			s.tell(fmt.Sprintf("round %d", round), c.Point, len(s.Points)+s.visits())
			o := SampleOptions{Slots: s.Journal.Run().LeastSlots(c.Point), Wait: s.Wait}
			if n := len(c.Visits); n > 0 {
				o.Calls = c.Visits[n-1].Calls
			}
			if _, _, err := s.Sample(ctx, c.Point, round, o); err != nil {
				return "", err
			}
		}
	}
}

// width returns the half-width of the interval of a cell's median, relative to the median.
func width(c *run.Cell) float64 {
	ns := make([]float64, len(c.Visits))
	for i, v := range c.Visits {
		ns[i] = v.Nanoseconds()
	}
	return stats.Summarise(ns).Width()
}

// precise reports whether the intervals decide how many samples there are.
func (s *Sweep) precise() bool { return s.Samples == 0 && s.Accepted == 0 }

// wide reports whether the interval of a cell is to become narrower.
func (s *Sweep) wide(c *run.Cell) bool { return s.precise() && !c.Done() && !(width(c) <= s.Precision) }

// few reports whether a cell is to have more samples.
func (s *Sweep) few(c *run.Cell) bool {
	return !c.Done() && (len(c.Visits) < s.Samples || c.Accepted() < s.Accepted)
}

// enough returns why the given round need not begin, empty if it must. A round that an earlier
// session left unfinished is finished first.
func (s *Sweep) enough(round int) string {
	live, short, missing := 0, 0, 0
	for _, at := range s.Points {
		c := s.Cell(at)
		if c.Done() {
			continue
		}
		live++
		if s.wide(c) || s.few(c) {
			short++
		}
		if !c.Visited(round) {
			missing++
		}
	}
	switch {
	case live == 0:
		return NothingLeft
	case missing < live: // finish a round that has begun, so that all points have as many samples
		return ""
	case round <= s.Samples || short > 0:
		return ""
	case s.Accepted > 0:
		return AllAccepted
	case s.Samples > 0:
		return AllSamples
	case round > leastSamples:
		return Precise
	}
	return ""
}

func (s *Sweep) outcome(reason string) Outcome {
	o := Outcome{Reason: reason, Points: len(s.Points)}
	for _, at := range s.Points {
		c := s.Cell(at)
		switch {
		case c == nil:
		case c.Skipped != "":
			o.Skipped++
		case c.Verified != nil && !right(c):
			o.Wrong++
		case c.Failed != "":
			o.Failed++
		case s.wide(c):
			o.Wide++
		case s.few(c):
			o.Few++
		}
	}
	return o
}

// visits returns the number of samples of all points.
func (s *Sweep) visits() int {
	n := 0
	for _, at := range s.Points {
		n += len(s.Cell(at).Visits)
	}
	return n
}

func (s *Sweep) tell(phase string, at run.Point, done int) {
	if s.Tell == nil {
		return
	}
	now, visits, budget := s.Time(), s.visits(), time.Duration(-1)
	if s.Budget > 0 {
		budget = max(0, s.Budget-now.Sub(s.begun))
	}
	steps, left := Forecast(max(0, s.need-visits), visits-s.had, now.Sub(s.timing), budget)
	s.Tell(Progress{Phase: phase, Done: done, Total: max(len(s.Points)+visits+steps, done), Point: at, Width: width(s.Cell(at)), Left: left})
}

// foresee estimates how many samples the stopping rule will take in all: as many for every point as
// for the one that needs most.
func (s *Sweep) foresee() {
	live, rounds := 0, s.Samples
	for _, at := range s.Points {
		c := s.Cell(at)
		if c.Done() {
			continue
		}
		live++
		if s.precise() {
			rounds = max(rounds, Needed(len(c.Visits), width(c), s.Precision, leastSamples))
		}
		rounds = max(rounds, NeededFor(s.Accepted, c.Accepted(), len(c.Visits)))
	}
	s.need = live * rounds
}
