package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"attnlab/attn"
	"attnlab/harness/run"
)

// A Recorder does one step at a point through a Worker and appends the result to a Journal. What
// goes wrong at a point is a result, too. The errors of its methods have another cause: the
// journal, a worker that does not start (ErrNoWorker), or the context.
type Recorder struct {
	Workload func(run.Point) (*Workload, error) // allocates no operands; an error skips the point
	Worker   Worker
	Journal  *run.Journal // nil: results are kept in memory only

	// MaxMemory limits the operands and scratch of a point, and CPUs its threads. A point that
	// needs more is skipped. 0 is no limit.
	MaxMemory int64
	CPUs      int

	Now func() time.Time // nil: time.Now

	trials map[run.Point]trial // so that the workload of each point is made once
}

// A trial is what making the workload of a point led to: the workload, or why there is none.
type trial struct {
	work *Workload
	skip string // the point cannot be done here
	fail string // an attn.Remote kernel broke
}

// Time returns the time by the recorder's clock.
func (r *Recorder) Time() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// Cell returns what the journal holds of a point, nil before it is planned.
func (r *Recorder) Cell(at run.Point) *run.Cell { return r.Journal.Run().Cell(at) }

// Stopped reports whether stop is closed or ctx is done.
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

// Plan journals every point that is not in the journal yet. Counting the mask of a large problem
// takes time, so points that differ in their kernel alone are counted once. Plan calls tell, which
// may be nil, before it counts.
func (r *Recorder) Plan(ctx context.Context, stop <-chan struct{}, points []run.Point, tell func(Progress)) error {
	if r.Journal == nil {
		r.Journal = run.Unkept()
	}
	type work struct {
		problem run.Point // without a kernel
		not     string    // why it cannot be done: then its work is counted otherwise
	}
	counted := map[work]attn.Count{}
	for i, at := range points {
		if r.Cell(at) != nil {
			continue
		}
		if Stopped(ctx, stop) {
			return context.Canceled
		}
		tried := r.trial(at)
		of := work{at, cmp.Or(tried.skip, tried.fail)}
		of.problem.Kernel, of.problem.ISA = "", ""
		n, known := counted[of]
		if !known {
			if tell != nil {
				tell(Progress{Phase: "plan", Done: i, Total: len(points), Point: at, Width: math.Inf(1), Left: -1})
			}
			var err error
			if n, err = tried.count(at); err != nil {
				return err
			}
			counted[of] = n
		}
		if err := r.Journal.Append(run.Record{Plan: &run.Plan{Point: at, Flop: n.Flop, Bytes: n.Bytes}}); err != nil {
			return err
		}
	}
	return nil
}

// count returns the work of a point. Without a workload it is that of the problem at capacity.
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

// Skip returns why a point cannot be done here, empty if it can.
func (r *Recorder) Skip(at run.Point) string { return r.trial(at).skip }

// trial makes the workload of a point, unless that was done before.
func (r *Recorder) trial(at run.Point) trial {
	t, known := r.trials[at]
	if known {
		return t
	}
	if r.trials == nil {
		r.trials = map[run.Point]trial{}
	}
	w, err := (*Workload)(nil), error(nil)
	if r.CPUs > 0 && at.Threads > r.CPUs {
		err = fmt.Errorf("needs %d threads at once, %d can run here", at.Threads, r.CPUs)
	} else {
		w, err = r.Workload(at)
	}
	switch {
	case errors.As(err, new(*attn.RemoteError)):
		t.fail = err.Error()
	case err != nil:
		t.skip = err.Error()
	default:
		if need := w.Operands + w.Scratch; r.MaxMemory > 0 && (need > r.MaxMemory || need < 0) {
			t.skip = fmt.Sprintf("needs %s, limit %s", Size(need), Size(r.MaxMemory))
		} else {
			t.work = w
		}
	}
	r.trials[at] = t
	return t
}

// Verify skips a planned point that cannot be done here, and verifies it otherwise, unless the
// journal says that this was done before. A wrong answer fails the point.
func (r *Recorder) Verify(ctx context.Context, at run.Point) error {
	c, name := r.Cell(at), at.Name()
	if c.Done() {
		return nil
	}
	switch tried := r.trial(at); {
	case tried.fail != "":
		return r.Journal.Append(run.Record{Fail: &run.Fail{Point: name, Reason: tried.fail}})
	case tried.skip != "":
		return r.Journal.Append(run.Record{Skip: &run.Skip{Point: name, Reason: tried.skip}})
	}
	if c.Verified == nil {
		v, err := r.Worker.Verify(ctx, at)
		if err != nil {
			return r.fail(ctx, name, "verify", err)
		}
		rec := &run.Verify{Point: name, Ratio: run.Ratio(v.Worst), Rows: v.Rows, Where: v.Where}
		if err := r.Journal.Append(run.Record{Verify: rec}); err != nil {
			return err
		}
	}
	if !right(c) {
		return r.Journal.Append(run.Record{Fail: &run.Fail{
			Point: name, Reason: fmt.Sprintf("wrong answer, %.3g times the tolerance: %s", float64(c.Verified.Ratio), c.Verified.Where),
		}})
	}
	return nil
}

// right reports whether a cell was verified and is within tolerance. NaN is not.
func right(c *run.Cell) bool { return c.Verified != nil && c.Verified.Ratio <= 1 }

// memory measures the memory of a verified point, unless that was done before.
func (r *Recorder) memory(ctx context.Context, at run.Point) error {
	c, name := r.Cell(at), at.Name()
	if c.Done() || c.Memory != nil {
		return nil
	}
	m, err := r.Worker.Memory(ctx, at)
	if err != nil {
		return r.fail(ctx, name, "memory", err)
	}
	return r.Journal.Append(run.Record{Memory: &run.Memory{
		Point: name, Scratch: m.Scratch, PeakRSS: m.PeakRSS, Alloc: m.Bytes, Allocs: m.Allocs,
	}})
}

// Sample takes one sample of a point as its visit of a round. It reports false where the point
// failed.
func (r *Recorder) Sample(ctx context.Context, at run.Point, round int, o SampleOptions) (s Sample, ok bool, err error) {
	s, err = r.Worker.Sample(ctx, at, o)
	if err != nil {
		return Sample{}, false, r.fail(ctx, at.Name(), "timing", err)
	}
	return s, true, r.Journal.Append(run.Record{Visit: &run.Visit{
		Point: at.Name(), Round: round, Calls: s.Calls, Wall: int64(s.Elapsed.Wall), CPU: int64(s.Elapsed.CPU),
		Before: s.Before, After: s.After, Unit: ProbeUnit(at), Dropped: !s.Steady(), Slots: s.Slots, Again: s.Again, Counts: s.Counts,
		Attention: int64(s.Elapsed.Attention), Products: int64(s.Elapsed.Products),
	}})
}

// fail journals what went wrong at a point. It returns err where the point is not the cause.
func (r *Recorder) fail(ctx context.Context, name, doing string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrNoWorker) {
		return err
	}
	return r.Journal.Append(run.Record{Fail: &run.Fail{Point: name, Reason: doing + ": " + err.Error()}})
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
