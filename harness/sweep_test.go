package harness_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"attnlab/attn/oracle"
	"attnlab/harness"
	"attnlab/harness/harnesstest"
	"attnlab/harness/run"
)

// TestRoundsAreShuffled checks that every round visits every point once, that each round has an
// order of its own, and that the seed alone decides the orders.
func TestRoundsAreShuffled(t *testing.T) {
	var points []run.Point
	for n := 1; n <= 12; n++ {
		points = append(points, point("honest", n))
	}
	var orders [2][]run.Point
	for i := range orders {
		w := new(harnesstest.Worker)
		s := newSweep(t, w, points...)
		s.Samples = 5
		if o := mustRun(t, s); o.Reason != harness.AllSamples {
			t.Fatalf("ended because %s", o.Reason)
		}
		orders[i] = w.Sampled
	}
	if !slices.Equal(orders[0], orders[1]) {
		t.Error("the same seed gave another order")
	}
	if len(orders[0]) != 5*len(points) {
		t.Fatalf("%d samples of %d points in 5 rounds", len(orders[0]), len(points))
	}
	var first []run.Point
	for r := range 5 {
		round := orders[0][r*len(points):][:len(points)]
		if !slices.Equal(names(round), names(points)) {
			t.Errorf("round %d visits %v", r+1, names(round))
		}
		if r > 0 && slices.Equal(round, first) || slices.Equal(round, points) {
			t.Errorf("round %d is in an order that was there before", r+1)
		}
		first = orders[0][:len(points)]
	}
}

// TestStopsWhenIntervalsAreNarrow checks that a sweep takes samples of all points until the
// interval of the noisiest point is narrow.
func TestStopsWhenIntervalsAreNarrow(t *testing.T) {
	quiet, noisy := point("honest", 3), point("honest", 4)
	w := &harnesstest.Worker{OnSample: func(at run.Point, visit int) (harness.Sample, error) {
		if at == noisy && visit%2 == 0 && visit < 20 {
			return harnesstest.Steady(1100 * time.Microsecond), nil
		}
		return harnesstest.Steady(time.Millisecond), nil
	}}
	s := newSweep(t, w, quiet, noisy)
	o := mustRun(t, s)
	if o.Reason != harness.Precise || o.Wide != 0 {
		t.Fatalf("outcome %+v", o)
	}
	if n := len(s.Cell(noisy).Visits); n <= 6 {
		t.Errorf("the noisy point has %d samples, which is no 95 %% interval within 2 %%", n)
	}
	if a, b := len(s.Cell(noisy).Visits), len(s.Cell(quiet).Visits); a != b {
		t.Errorf("%d and %d samples: every round visits every point", a, b)
	}
	if !s.Journal.Run().Complete() {
		t.Error("the journal does not say that it is complete")
	}
}

// TestStopsWhenEnoughSamplesAreAccepted checks that a sweep goes on until each point has the
// accepted samples asked for, and takes at least the samples asked for.
func TestStopsWhenEnoughSamplesAreAccepted(t *testing.T) {
	quiet, shared := point("honest", 3), point("honest", 4)
	for _, c := range []struct{ samples, accepted, want int }{{0, 5, 9}, {20, 5, 20}, {0, 3, 5}} {
		w := &harnesstest.Worker{OnSample: func(at run.Point, visit int) (harness.Sample, error) {
			got := harnesstest.Steady(time.Duration(visit) * time.Millisecond) // never narrow
			if at == shared && visit%2 == 0 {
				got.After *= 0.9
			}
			return got, nil
		}}
		s := newSweep(t, w, quiet, shared)
		s.Samples, s.Accepted = c.samples, c.accepted
		if o := mustRun(t, s); o.Reason != harness.AllAccepted || o.Few != 0 || o.Wide != 0 {
			t.Fatalf("outcome %+v", o)
		}
		if a, b := len(s.Cell(shared).Visits), len(s.Cell(quiet).Visits); a != c.want || b != c.want {
			t.Errorf("%+v: %d and %d samples", c, a, b)
		}
	}
}

// TestReportsFewSamples checks that an outcome counts the points with fewer samples, or fewer
// accepted ones, than asked.
func TestReportsFewSamples(t *testing.T) {
	now := time.Unix(0, 0)
	w := &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) {
		now = now.Add(time.Second)
		got := harnesstest.Steady(time.Millisecond)
		got.After *= 0.9
		return got, nil
	}}
	s := newSweep(t, w, point("honest", 3))
	s.Now = func() time.Time { return now }
	s.Accepted, s.Budget = 1, 10*time.Second
	if o := mustRun(t, s); o.Reason != harness.BudgetSpent || o.Few != 1 {
		t.Errorf("outcome %+v", o)
	}
	s.Accepted, s.Samples = 0, 100
	if o := mustRun(t, s); o.Reason != harness.BudgetSpent || o.Few != 1 {
		t.Errorf("fewer samples than asked: outcome %+v", o)
	}
}

// TestPlanning checks that an interrupt ends the planning of points, and that kernels share the
// count of a problem.
func TestPlanning(t *testing.T) {
	stop := make(chan struct{})
	var s *harness.Sweep
	w := &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) { return harnesstest.Steady(time.Millisecond), nil }}
	s = newSweep(t, w, point("honest", 3), point("lazy", 3), point("honest", 4), point("honest", 5))
	planned := 0
	s.Tell = func(p harness.Progress) {
		if p.Phase == "plan" {
			if planned++; planned == 2 {
				close(stop)
			}
		}
	}
	if o, err := s.Run(t.Context(), stop); err != nil || o.Reason != harness.Interrupted || planned != 2 {
		t.Errorf("outcome %+v, %v, after %d counts", o, err, planned)
	}
	if c := s.Cell(s.Points[2]); c == nil || s.Cell(s.Points[3]) != nil || c.Flop == 0 || s.Cell(s.Points[0]).Flop != s.Cell(s.Points[1]).Flop {
		t.Error("the wrong points were planned")
	}
}

// TestStopsWhenTheBudgetIsSpent checks that a sweep ends when its budget is spent, but not before
// its first round is finished.
func TestStopsWhenTheBudgetIsSpent(t *testing.T) {
	w := &harnesstest.Worker{}
	now := time.Unix(0, 0)
	w.OnSample = func(_ run.Point, visit int) (harness.Sample, error) {
		now = now.Add(time.Second)
		return harnesstest.Steady(time.Duration(visit) * time.Millisecond), nil // never narrow
	}
	s := newSweep(t, w, point("honest", 3), point("honest", 4), point("honest", 5))
	s.Now = func() time.Time { return now }
	s.Budget = 10 * time.Second
	o := mustRun(t, s)
	if o.Reason != harness.BudgetSpent || o.Wide != 3 {
		t.Errorf("outcome %+v", o)
	}
	if len(w.Sampled) != 10 {
		t.Errorf("%d samples of a second in 10 s", len(w.Sampled))
	}

	w = &harnesstest.Worker{OnSample: w.OnSample}
	s = newSweep(t, w, point("honest", 3), point("honest", 4), point("honest", 5))
	s.Now = func() time.Time { return now }
	s.Budget = time.Nanosecond
	if mustRun(t, s); len(w.Sampled) != 3 {
		t.Errorf("%d samples: the first round is finished whatever the budget", len(w.Sampled))
	}
}

// TestFailuresBecomeRows checks that each kind of failure ends in the row of its point, and in no
// other.
func TestFailuresBecomeRows(t *testing.T) {
	good, wrong, nan, dies, late := point("honest", 3), point("honest", 4), point("honest", 5), point("honest", 6), point("honest", 7)
	none := point("absent", 8)
	w := &harnesstest.Worker{
		OnVerify: func(at run.Point) (oracle.Verdict, error) {
			switch at {
			case wrong:
				return oracle.Verdict{Rows: 1, Worst: 3, Where: "Out[here]"}, nil
			case nan:
				return oracle.Verdict{Rows: 1, Worst: math.NaN()}, nil
			case dies:
				return oracle.Verdict{}, errors.New("the worker died: SIGSEGV")
			}
			return oracle.Verdict{Rows: 1, Worst: 0.5}, nil
		},
		OnSample: func(at run.Point, visit int) (harness.Sample, error) {
			if at == late && visit == 2 {
				return harness.Sample{}, errors.New("no answer within 1s")
			}
			return harnesstest.Steady(time.Millisecond), nil
		},
	}
	s := newSweep(t, w, good, wrong, nan, dies, late, none)
	s.Samples = 4
	o := mustRun(t, s)
	if o.Wrong != 2 || o.Failed != 2 || o.Skipped != 1 || o.Points != 6 {
		t.Errorf("outcome %+v", o)
	}
	for _, c := range []struct {
		at                   run.Point
		visits               int
		failed, skipped, row string
	}{
		{good, 4, "", "", run.OK},
		{wrong, 0, "wrong answer, 3 times the tolerance: Out[here]", "", run.Failed},
		{nan, 0, "wrong answer, NaN times", "", run.Failed},
		{dies, 0, "verify: the worker died: SIGSEGV", "", run.Failed},
		{late, 1, "timing: no answer within 1s", "", run.Failed},
		{none, 0, "", "no kernel absent/go", run.Skipped},
	} {
		got := s.Cell(c.at)
		if len(got.Visits) != c.visits || !strings.Contains(got.Failed, c.failed) || !strings.Contains(got.Skipped, c.skipped) ||
			(got.Failed == "") != (c.failed == "") || (got.Skipped == "") != (c.skipped == "") || got.Row().Status != c.row {
			t.Errorf("%s: %d visits, failed %q, skipped %q, row %s; want %+v", c.at.Name(), len(got.Visits), got.Failed, got.Skipped, got.Row().Status, c)
		}
	}
}

// TestTooBigIsSkipped checks that a point that needs too much memory or too many threads is skipped
// without asking the worker.
func TestTooBigIsSkipped(t *testing.T) {
	small, big, wide := point("honest", 64), point("honest", 1<<20), point("honest", 65)
	wide.Threads = 1000
	w := new(harnesstest.Worker)
	s := newSweep(t, w, small, big, wide)
	s.Samples, s.MaxMemory, s.CPUs = 1, 1<<30, 4
	mustRun(t, s)
	if got, want := s.Cell(big).Skipped, "needs 4.4 TB, limit 1.07 GB"; got != want {
		t.Errorf("skipped because %q, want %q", got, want)
	}
	if got, want := s.Cell(wide).Skipped, "needs 1000 threads at once, 4 can run here"; got != want {
		t.Errorf("skipped because %q, want %q", got, want)
	}
	if slices.Contains(w.Asked, big) || slices.Contains(w.Asked, wide) {
		t.Error("the worker was asked for a point that cannot be done")
	}
	if len(s.Cell(small).Visits) != 1 {
		t.Error("the small point was not timed")
	}
}

// TestResumedIsWhole checks that a sweep that is interrupted after any sample and resumed has the
// same rows as one that was not.
func TestResumedIsWhole(t *testing.T) {
	points := []run.Point{point("honest", 3), point("honest", 4), point("wrong", 5), point("absent", 6)}
	verify := func(at run.Point) (oracle.Verdict, error) {
		if at.Kernel == "wrong" {
			return oracle.Verdict{Rows: 1, Worst: 2}, nil
		}
		return oracle.Verdict{Rows: 1, Worst: 0.5}, nil
	}
	const samples = 4
	for cut := range 2*samples + 1 {
		stop := make(chan struct{})
		w := &harnesstest.Worker{OnVerify: verify}
		w.OnSample = func(run.Point, int) (harness.Sample, error) {
			if len(w.Sampled) == cut {
				close(stop)
			}
			return harnesstest.Steady(time.Millisecond), nil
		}
		s := newSweep(t, w, points...)
		s.Samples = samples
		if cut == 0 {
			close(stop)
		}
		o, err := s.Run(t.Context(), stop)
		if err != nil {
			t.Fatal(err)
		}
		if cut < 2*samples && (o.Reason != harness.Interrupted || s.Journal.Run().Complete()) {
			t.Fatalf("cut at %d: %+v", cut, o)
		}
		if len(w.Sampled) != cut {
			t.Fatalf("cut at %d: %d samples were taken", cut, len(w.Sampled))
		}

		s.Journal.Close()
		j, err := run.Resume(s.Journal.Run().Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		again := &harnesstest.Worker{OnVerify: verify}
		s.Journal, s.Worker = j, again
		if o := mustRun(t, s); o.Reason != harness.AllSamples || o.Wrong != 1 || o.Skipped != 1 {
			t.Errorf("cut at %d, resumed: %+v", cut, o)
		}
		r, err := run.Load(j.Run().Dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []run.Point
		for _, c := range r.Cells {
			got = append(got, c.Point)
			if c.Point.Kernel == "honest" && len(c.Visits) != samples {
				t.Errorf("cut at %d: %s has %d samples, want %d", cut, c.Point.Name(), len(c.Visits), samples)
			}
		}
		if !slices.Equal(got, points) {
			t.Errorf("cut at %d: rows %v", cut, names(got))
		}
	}
}

// TestCancelledAtOnce checks that a cancelled context ends the present sample, and that no point
// fails for it.
func TestCancelledAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &harnesstest.Worker{}
	w.OnSample = func(run.Point, int) (harness.Sample, error) {
		cancel()
		return harness.Sample{}, ctx.Err()
	}
	s := newSweep(t, w, point("honest", 3), point("honest", 4))
	o, err := s.Run(ctx, never)
	if err != nil || o.Reason != harness.Interrupted || o.Failed != 0 {
		t.Errorf("outcome %+v, %v", o, err)
	}
}

// TestNoWorkerIsTheSweepsError checks that a sweep ends with an error when no worker process
// starts, and that no point fails for it.
func TestNoWorkerIsTheSweepsError(t *testing.T) {
	w := &harnesstest.Worker{OnVerify: func(run.Point) (oracle.Verdict, error) {
		return oracle.Verdict{}, fmt.Errorf("%w: gone", harness.ErrNoWorker)
	}}
	s := newSweep(t, w, point("honest", 3))
	if _, err := s.Run(t.Context(), never); !errors.Is(err, harness.ErrNoWorker) {
		t.Errorf("error %v", err)
	}
	if got := s.Cell(point("honest", 3)).Failed; got != "" {
		t.Errorf("the point failed: %s", got)
	}
}

// TestProgress checks that the steps reported increase, never beyond the total reported with them.
func TestProgress(t *testing.T) {
	w := &harnesstest.Worker{OnSample: func(_ run.Point, visit int) (harness.Sample, error) {
		return harnesstest.Steady(time.Millisecond + time.Duration(visit%3)*20*time.Microsecond), nil
	}}
	s := newSweep(t, w, point("honest", 3), point("honest", 4))
	now := time.Time{}
	s.Now = func() time.Time { now = now.Add(time.Second); return now }
	last, foreseen, narrowed := -1, 0, 0
	s.Tell = func(p harness.Progress) {
		if p.Phase == "plan" { // it is no step
			return
		}
		if p.Done <= last || p.Done > p.Total || p.Phase == "" || !slices.Contains(s.Points, p.Point) {
			t.Errorf("%+v after step %d", p, last)
		}
		if last = p.Done; p.Left >= 0 {
			foreseen++
		}
		if !isInf(p.Width) {
			narrowed++
		}
	}
	mustRun(t, s)
	if last < 2 || foreseen == 0 || foreseen >= last {
		t.Errorf("%d steps, of which %d estimate the time left; want at least one, and not the first", last+1, foreseen)
	}
	if narrowed > 0 { // six samples each are enough, and fewer have no interval
		t.Errorf("%d intervals of fewer than six samples", narrowed)
	}
}

// TestSize checks how numbers of bytes are formatted.
func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1 kB", 4_300_000_000: "4.3 GB", 17_179_869_184: "17.2 GB", math.MaxInt64: "9.22e+03 PB",
	} {
		if got := harness.Size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
