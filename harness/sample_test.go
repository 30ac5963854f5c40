package harness_test

import (
	"errors"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/harness"

	"pgregory.net/rapid"
)

// A fakeJob takes a known time a call.
type fakeJob struct {
	call, overhead time.Duration
	log            []int // calls asked for
	fail           int   // the run that fails, from 1; 0 is none
	team           *attn.Team
}

func (j *fakeJob) Run(calls int) (harness.Elapsed, error) {
	j.log = append(j.log, calls)
	if len(j.log) == j.fail {
		return harness.Elapsed{}, errors.New("broken")
	}
	t := j.overhead + time.Duration(calls)*j.call
	return harness.Elapsed{Wall: t, CPU: t}, nil
}

func (*fakeJob) Plan() error                               { return nil }
func (*fakeJob) Check(int, uint64) (oracle.Verdict, error) { return oracle.Verdict{}, nil }
func (j *fakeJob) Team() *attn.Team                        { return j.team }
func (*fakeJob) Reads() []float32                          { return nil }
func (*fakeJob) Updates() []float32                        { return nil }
func (*fakeJob) Scratch() int64                            { return 0 }
func (*fakeJob) Close() error                              { return nil }

// TestTake checks that a sample lasts as long as asked, and not much longer unless one call does.
// It checks the calls that warm up one thread and a team, and the order of probes, calls and
// counts.
func TestTake(t *testing.T) {
	team := attn.NewTeam(2)
	defer team.Close()
	const least = 5 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		j := &fakeJob{
			call:     time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "call")),
			overhead: time.Duration(rapid.Int64Range(0, 1000).Draw(t, "overhead")),
		}
		warm := time.Duration(1)
		if rapid.Bool().Draw(t, "a team") {
			j.team, warm = team, 40*time.Millisecond
		}
		hint := rapid.IntRange(0, 3).Draw(t, "hint")
		var probed []int // how many runs there had been
		count := func(int) func() map[string]int64 {
			begun := len(j.log)
			return func() map[string]int64 { return map[string]int64{"runs": int64(len(j.log)), "from": int64(begun)} }
		}
		var looked []int
		slots := func() float64 { looked = append(looked, len(j.log)); return 10 - float64(len(looked)) }
		probe := func() float64 { probed = append(probed, len(j.log)); return float64(len(probed)) }
		m := harness.Sampler{Probe: probe, Slots: slots, Count: count}
		s, err := m.Take(j, harness.SampleOptions{Calls: hint})
		if err != nil {
			t.Fatal(err)
		}
		ran := func(runs []int) (took time.Duration) {
			for _, calls := range runs {
				took += j.overhead + time.Duration(calls)*j.call
			}
			return took
		}
		if n := probed[0]; j.log[0] != 1 || ran(j.log[:n]) < warm || n > 1 && ran(j.log[:n-1]) >= warm {
			t.Errorf("warmed with runs of %v calls, for %v", j.log[:n], ran(j.log[:n]))
		}
		last := len(j.log)
		before := last - 1
		if j.overhead+j.call < 4*least {
			if before--; j.log[before] != 1 {
				t.Errorf("the sample comes after runs %v", j.log)
			}
		}
		if s.Calls != j.log[last-1] || s.Calls < hint {
			t.Errorf("%d calls in the sample, hint %d, runs %v", s.Calls, hint, j.log)
		}
		if s.Elapsed.Wall < least || s.Elapsed.Wall > max(2*least, j.overhead+time.Duration(max(1, hint))*j.call) {
			t.Errorf("the sample lasts %v", s.Elapsed.Wall)
		}
		if s.Counts["from"] != int64(last-1) || s.Counts["runs"] != int64(last) {
			t.Errorf("counted %v, want the last of %d runs", s.Counts, last)
		}
		if n := len(probed); n < 2 || probed[n-2] != before || probed[n-1] != last || s.Before != float64(n-1) || s.After != float64(n) {
			t.Errorf("probes after runs %v of %d; sample %+v", probed, last, s)
		}
		if n := len(looked); n < 2 || looked[n-2] != before || looked[n-1] != last || s.Slots != 10-float64(n) {
			t.Errorf("slots were read after runs %v of %d; sample %+v", looked, last, s)
		}
	})
}

// TestTakeWaits checks that a sample waits for a core whose sibling thread idles. It is taken again
// if that changes or if the probes disagree, until its wait is over.
func TestTakeWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots []float64 // readings, of which the last is repeated
		probe []float64 // likewise
		wait  time.Duration
		again int
		want  harness.Sample // its Slots, Before and After
	}{
		{"idle", []float64{6}, []float64{100}, time.Minute, 0, harness.Sample{Slots: 6, Before: 100, After: 100}},
		{"busy, then idle", []float64{3, 3, 3, 6}, []float64{100}, time.Minute, 0, harness.Sample{Slots: 6, Before: 100, After: 100}},
		{"busy during the sample", []float64{6, 3, 3, 5.9}, []float64{100, 100, 101}, time.Minute, 1, harness.Sample{Slots: 5.9, Before: 101, After: 101}},
		{"the probes disagree twice", []float64{6}, []float64{100, 90, 100, 110, 100}, time.Minute, 2, harness.Sample{Slots: 6, Before: 100, After: 100}},
		{"always busy", []float64{3}, []float64{100}, time.Millisecond, 0, harness.Sample{Slots: 3, Before: 100, After: 100}},
		{"no wait", []float64{3}, []float64{100, 90}, 0, 0, harness.Sample{Slots: 3, Before: 100, After: 90}},
	} {
		next := func(from *[]float64) func() float64 {
			return func() float64 {
				x := (*from)[0]
				*from = (*from)[min(1, len(*from)-1):]
				return x
			}
		}
		j := &fakeJob{call: time.Second}
		s, err := (&harness.Sampler{Probe: next(&c.probe), Slots: next(&c.slots)}).Take(j, harness.SampleOptions{Slots: 5.7, Wait: c.wait})
		if err != nil {
			t.Fatal(err)
		}
		if s.Slots != c.want.Slots || s.Before != c.want.Before || s.After != c.want.After || s.Again != c.again {
			t.Errorf("%s: %+v, want %+v after %d others", c.name, s, c.want, c.again)
		}
		if want := 2 + c.again; len(j.log) != want {
			t.Errorf("%s: %d runs, want %d", c.name, len(j.log), want)
		}
	}
}

// TestTakeReturnsErrors checks that the error of each run of a job is returned.
func TestTakeReturnsErrors(t *testing.T) {
	one := func() float64 { return 1 }
	for fail := range 3 {
		if _, err := (&harness.Sampler{Probe: one, Slots: one}).Take(&fakeJob{call: time.Millisecond, fail: fail + 1}, harness.SampleOptions{}); err == nil {
			t.Errorf("run %d failed: got no error", fail+1)
		}
	}
}

// TestSteady checks the greatest difference of two probes that is steady.
func TestSteady(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		want          bool
	}{{100, 100, true}, {100, 101.9, true}, {101.9, 100, true}, {100, 102.1, false}, {102.1, 100, false}, {0, 0, true}, {0, 1, false}} {
		if got := (harness.Sample{Before: c.before, After: c.after}).Steady(); got != c.want {
			t.Errorf("probes %v and %v: steady is %v", c.before, c.after, got)
		}
	}
}

// TestProbesCoverTheMemory checks that each pass of a bandwidth probe takes all memory once, with
// any number of threads.
func TestProbesCoverTheMemory(t *testing.T) {
	x := make([]float32, 100_003)
	for workers := 1; workers <= 3; workers++ {
		for name, probe := range map[string]func(team *attn.Team, pass func([]float32)) harness.Probe{
			"read": func(team *attn.Team, pass func([]float32)) harness.Probe {
				p := harness.Probes{Read: func(part []float32) float32 { pass(part); return 0 }}
				return p.ForRead(team, x, harness.Effort{})
			},
			"update": func(team *attn.Team, pass func([]float32)) harness.Probe {
				return harness.Probes{Update: pass}.ForUpdate(team, x, harness.Effort{})
			},
		} {
			team := attn.NewTeam(workers)
			seen := make(chan [2]int, 1<<20)
			rate := probe(team, func(part []float32) {
				spin(1_000_000) // one thread is timed by its CPU time
				if len(part) > 0 {
					at := cap(x) - cap(part)
					seen <- [2]int{at, at + len(part)}
				}
			})()
			if !(rate > 0) {
				t.Errorf("%s, %d workers: rate %v", name, workers, rate)
			}
			team.Close()
			close(seen)
			total := 0
			for part := range seen {
				total += part[1] - part[0]
			}
			if total == 0 || total%len(x) != 0 {
				t.Errorf("%s, %d workers: %d of %d floats", name, workers, total, len(x))
			}
		}
	}
	none := harness.Probes{}
	if read, update := none.ForRead(nil, nil, harness.Effort{})(), none.ForUpdate(nil, nil, harness.Effort{})(); read != 0 || update != 0 {
		t.Errorf("no memory is read at %v and updated at %v", read, update)
	}
}
