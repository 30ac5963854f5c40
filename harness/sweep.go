package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A Sweep takes the points of a grid through verification, memory and rounds of samples, into a
// journal. What the journal already holds is not done again.
type Sweep struct {
	Lab     *Lab
	Worker  Worker
	Journal *run.Journal
	Points  []run.Point

	Samples   int           // that many for each point; 0: until every interval is narrow, or as many as Accepted takes
	Accepted  int           // and of each point's samples so many that are not dropped
	Precision float64       // narrow: the interval of the median reaches no farther from it than this part of it
	Budget    time.Duration // for this session; the first round is done whatever it takes. 0 is no limit
	MaxMemory int64         // operands and scratch of a point; 0 is no limit
	CPUs      int           // threads that can run at once; a point that wants more is skipped. 0 is no limit
	Wait      time.Duration // how long a sample may wait for a core that nobody else is on, and for probes that agree

	Now  func() time.Time // nil: time.Now
	Tell func(Progress)   // called between measurements; nil: nobody is told

	need   int       // samples in all, by the stopping rule
	had    int       // of them before this session
	begun  time.Time // this session,
	timing time.Time // and its samples

	trials map[run.Point]trial // so that each point is asked about once
}

// A trial is what asking about a point has come to, before anything of it is allocated: a workload,
// or why there is none.
type trial struct {
	work *Workload
	skip string // it cannot be done here
	fail string // its kernel, which is not ours, broke when it was asked
}

// Why a sweep ended.
const (
	Precise     = "every interval is narrow"
	AllSamples  = "all samples are taken"
	AllAccepted = "enough samples are accepted"
	BudgetSpent = "the budget is spent"
	Interrupted = "interrupted"
	NothingLeft = "there is nothing to time"
)

// An Outcome is what a sweep came to.
type Outcome struct {
	Reason                 string // Precise, AllSamples, AllAccepted, BudgetSpent, Interrupted or NothingLeft
	Points                 int
	Wrong, Failed, Skipped int // wrong answers; other failures; points not tried
	Wide                   int // points whose interval is wider than asked, if the intervals decide,
	Few                    int // and those with fewer samples than asked
}

// leastSamples is the fewest values that have a 95 % interval of their median.
const leastSamples = 6

// Run does the sweep. When stop is closed it finishes the sample in hand and returns; when ctx is
// cancelled it returns at once. The error is one of the journal or of a worker that does not start:
// whatever goes wrong at a point is in the journal.
func (s *Sweep) Run(ctx context.Context, stop <-chan struct{}) (Outcome, error) {
	reason, err := s.all(ctx, stop)
	if errors.Is(err, context.Canceled) {
		reason, err = Interrupted, nil
	}
	o := s.outcome(reason)
	if err != nil {
		return o, err
	}
	return o, s.Journal.Append(run.Record{End: &run.End{Reason: reason, Complete: reason != Interrupted, Time: s.now()}})
}

func (s *Sweep) all(ctx context.Context, stop <-chan struct{}) (string, error) {
	s.begun = s.now()
	if err := s.plan(ctx, stop); err != nil {
		return "", err
	}
	s.timing, s.had = s.begun, s.visits()
	s.foresee()
	for i, at := range s.Points {
		if Stopped(ctx, stop) {
			return Interrupted, nil
		}
		s.tell("verify", at, i)
		if err := s.settle(ctx, at); err != nil {
			return "", err
		}
	}
	s.timing = s.now()
	for round := 1; ; round++ {
		if reason := s.enough(round); reason != "" {
			return reason, nil
		}
		s.foresee()
		order := rand.New(rand.NewPCG(s.Journal.Run().Meta.Seed, uint64(round))).Perm(len(s.Points))
		for _, i := range order {
			c := s.cell(s.Points[i])
			if c.Done() || c.Visited(round) {
				continue
			}
			if Stopped(ctx, stop) {
				return Interrupted, nil
			}
			if s.Budget > 0 && round > 1 && s.now().Sub(s.begun) >= s.Budget {
				return BudgetSpent, nil
			}
			s.tell(fmt.Sprintf("round %d", round), c.Point, len(s.Points)+s.visits())
			if err := s.visit(ctx, c, round); err != nil {
				return "", err
			}
		}
	}
}

func (s *Sweep) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Sweep) cell(at run.Point) *run.Cell { return s.Journal.Run().Cell(at) }

// Stopped is whether stop is closed or ctx over.
func Stopped(ctx context.Context, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// plan announces every point that has not been. Masks of large problems take time to count: what
// one kernel has to do, others have too.
func (s *Sweep) plan(ctx context.Context, stop <-chan struct{}) error {
	type work struct {
		problem run.Point // without a kernel
		not     string    // why it cannot be done, which is counted otherwise
	}
	counted := map[work]attn.Count{}
	for i, at := range s.Points {
		if s.cell(at) != nil {
			continue
		}
		if Stopped(ctx, stop) {
			return context.Canceled
		}
		tried := s.trial(at)
		of := work{at, cmp.Or(tried.skip, tried.fail)}
		of.problem.Kernel, of.problem.ISA = "", ""
		n, known := counted[of]
		if !known {
			if s.Tell != nil {
				s.Tell(Progress{Phase: "plan", Done: i, Total: len(s.Points), Point: at, Width: math.Inf(1), Left: -1})
			}
			var err error
			if n, err = tried.count(at); err != nil {
				return err
			}
			counted[of] = n
		}
		if err := s.Journal.Append(run.Record{Plan: &run.Plan{Point: at, Flop: n.Flop, Bytes: n.Bytes}}); err != nil {
			return err
		}
	}
	return nil
}

// count is the work of a point: what its workload says or, if there is none, what its problem does
// at capacity.
func (t trial) count(at run.Point) (attn.Count, error) {
	if t.work != nil {
		return t.work.Count()
	}
	if at.Layer != "" {
		return at.LayerWork()
	}
	p, err := at.Problem()
	return p.Count(nil), err
}

// settle decides whether a point will be timed, and measures its memory.
func (s *Sweep) settle(ctx context.Context, at run.Point) error {
	c, name := s.cell(at), at.Name()
	if err := s.verify(ctx, at); err != nil || c.Done() || c.Memory != nil {
		return err
	}
	m, err := s.Worker.Weigh(ctx, at)
	if err != nil {
		return s.fail(ctx, name, "memory", err)
	}
	return s.Journal.Append(run.Record{Memory: &run.Memory{
		Point: name, Scratch: m.Scratch, PeakRSS: m.PeakRSS, Alloc: m.Bytes, Allocs: m.Allocs,
	}})
}

// verify decides whether a point can be timed: it can be done, it fits, its answer is right.
func (s *Sweep) verify(ctx context.Context, at run.Point) error {
	c, name := s.cell(at), at.Name()
	if c.Done() {
		return nil
	}
	switch tried := s.trial(at); {
	case tried.fail != "":
		return s.Journal.Append(run.Record{Fail: &run.Fail{Point: name, Reason: tried.fail}})
	case tried.skip != "":
		return s.Journal.Append(run.Record{Skip: &run.Skip{Point: name, Reason: tried.skip}})
	}
	if c.Verified == nil {
		v, err := s.Worker.Verify(ctx, at)
		if err != nil {
			return s.fail(ctx, name, "verify", err)
		}
		rec := &run.Verify{Point: name, Ratio: run.Ratio(v.Worst), Rows: v.Rows, Where: v.Where}
		if err := s.Journal.Append(run.Record{Verify: rec}); err != nil {
			return err
		}
	}
	if !right(c) {
		return s.Journal.Append(run.Record{Fail: &run.Fail{
			Point: name, Reason: fmt.Sprintf("wrong answer, %.3g times the tolerance: %s", float64(c.Verified.Ratio), c.Verified.Where),
		}})
	}
	return nil
}

// right says that a cell was verified and found within tolerance. NaN is not.
func right(c *run.Cell) bool { return c.Verified != nil && c.Verified.Ratio <= 1 }

// impossible says why a point cannot be done here, or nothing.
func (s *Sweep) impossible(at run.Point) string { return s.trial(at).skip }

// trial asks about a point, unless that was done before.
func (s *Sweep) trial(at run.Point) trial {
	t, known := s.trials[at]
	if known {
		return t
	}
	if s.trials == nil {
		s.trials = map[run.Point]trial{}
	}
	w, err := (*Workload)(nil), error(nil)
	if s.CPUs > 0 && at.Threads > s.CPUs {
		err = fmt.Errorf("needs %d threads at once, %d can run here", at.Threads, s.CPUs)
	} else {
		w, err = s.Lab.Workload(at)
	}
	switch {
	case errors.As(err, new(*attn.RemoteError)):
		t.fail = err.Error()
	case err != nil:
		t.skip = err.Error()
	default:
		if need := w.Operands + w.Scratch; s.MaxMemory > 0 && (need > s.MaxMemory || need < 0) {
			t.skip = fmt.Sprintf("needs %s, limit %s", Size(need), Size(s.MaxMemory))
		} else {
			t.work = w
		}
	}
	s.trials[at] = t
	return t
}

// fail records what went wrong at a point, unless it is not the point that is to blame.
func (s *Sweep) fail(ctx context.Context, name, doing string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrNoChild) {
		return err
	}
	return s.Journal.Append(run.Record{Fail: &run.Fail{Point: name, Reason: doing + ": " + err.Error()}})
}

// visit takes one sample.
func (s *Sweep) visit(ctx context.Context, c *run.Cell, round int) error {
	at := c.Point
	wish := Wish{Slots: s.Journal.Run().LeastSlots(at), Wait: s.Wait}
	if n := len(c.Visits); n > 0 {
		wish.Calls = c.Visits[n-1].Calls
	}
	got, err := s.Worker.Sample(ctx, at, wish)
	if err != nil {
		return s.fail(ctx, at.Name(), "timing", err)
	}
	return s.note(at, round, got)
}

// note records a sample.
func (s *Sweep) note(at run.Point, round int, got Sample) error {
	return s.Journal.Append(run.Record{Visit: &run.Visit{
		Point: at.Name(), Round: round, Calls: got.Calls, Wall: int64(got.Elapsed.Wall), CPU: int64(got.Elapsed.CPU),
		Before: got.Before, After: got.After, Unit: ProbeUnit(at), Dropped: !got.Steady(), Slots: got.Slots, Again: got.Again, Counts: got.Counts,
		Attention: int64(got.Elapsed.Attention), Products: int64(got.Elapsed.Products),
	}})
}

// width is how far the interval of a cell's median reaches from it, as a part of it.
func width(c *run.Cell) float64 {
	ns := make([]float64, len(c.Visits))
	for i, v := range c.Visits {
		ns[i] = v.Nanoseconds()
	}
	return stats.Summarise(ns).Width()
}

// precise says whether the intervals decide how many samples there are.
func (s *Sweep) precise() bool { return s.Samples == 0 && s.Accepted == 0 }

func (s *Sweep) wide(c *run.Cell) bool { return s.precise() && !c.Done() && !(width(c) <= s.Precision) }

func (s *Sweep) few(c *run.Cell) bool {
	return !c.Done() && (len(c.Visits) < s.Samples || c.Accepted() < s.Accepted)
}

// enough says why the given round need not be begun, or nothing. Rounds that an earlier session
// left unfinished are begun again.
func (s *Sweep) enough(round int) string {
	live, short, missing := 0, 0, 0
	for _, at := range s.Points {
		c := s.cell(at)
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
	case missing < live: // a round begun is finished, so that all points have equally many samples
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
		c := s.cell(at)
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

func (s *Sweep) visits() int {
	n := 0
	for _, at := range s.Points {
		n += len(s.cell(at).Visits)
	}
	return n
}

func (s *Sweep) tell(phase string, at run.Point, done int) {
	if s.Tell == nil {
		return
	}
	now, visits, budget := s.now(), s.visits(), time.Duration(-1)
	if s.Budget > 0 {
		budget = max(0, s.Budget-now.Sub(s.begun))
	}
	steps, left := Forecast(max(0, s.need-visits), visits-s.had, now.Sub(s.timing), budget)
	s.Tell(Progress{Phase: phase, Done: done, Total: max(len(s.Points)+visits+steps, done), Point: at, Width: width(s.cell(at)), Left: left})
}

// foresee estimates how many samples the stopping rule will ask for: every point has as many as the
// one that needs most.
func (s *Sweep) foresee() {
	live, rounds := 0, s.Samples
	for _, at := range s.Points {
		c := s.cell(at)
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

// Size formats a number of bytes for people.
func Size(n int64) string {
	x, unit := float64(n), 0
	for x >= 1000 && unit < 5 {
		x /= 1000
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %cB", x, "_kMGTP"[unit])
}
