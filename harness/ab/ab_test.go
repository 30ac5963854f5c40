package ab_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"attnlab/attn/oracle"
	"attnlab/harness"
	"attnlab/harness/ab"
	"attnlab/harness/harnesstest"
	"attnlab/harness/run"
)

// A noisy machine takes times that are skewed upwards, drift slowly, and are sometimes far off. Its
// clock advances with what it measures.
type noisy struct {
	r     *rand.Rand
	drift float64
	now   time.Time
}

func (m *noisy) sample(call float64) harness.Sample {
	m.drift += 0.002 * m.r.NormFloat64()
	m.drift *= 0.99
	call *= math.Exp(m.drift + 0.01*m.r.ExpFloat64())
	if m.r.IntN(20) == 0 {
		call *= 1.3
	}
	s := harnesstest.Steady(time.Duration(call))
	m.now = m.now.Add(s.Elapsed.Wall)
	return s
}

// compare returns a comparison of cells on two workers, whose results are kept in memory.
func compare(a, b harness.Worker, cells ...[2]run.Point) *ab.Comparison {
	side := func(w harness.Worker) *harness.Recorder {
		return &harness.Recorder{Workload: harnesstest.Workload, Worker: w}
	}
	return &ab.Comparison{Sides: [2]*harness.Recorder{side(a), side(b)}, Cells: cells, Effect: 0.02, Alpha: 0.05}
}

// trial compares cells on a noisy machine. The first cell takes longer on side B by the factor
// slower.
func trial(t *testing.T, seed uint64, cells int, slower float64) []ab.Cell {
	t.Helper()
	m := &noisy{r: rand.New(rand.NewPCG(seed, 3))}
	side := func(first float64) *harnesstest.Worker {
		return &harnesstest.Worker{OnSample: func(at run.Point, _ int) (harness.Sample, error) {
			call := float64(100 * time.Millisecond)
			if at.SeqKV == 1 {
				call *= first
			}
			return m.sample(call), nil
		}}
	}
	c := compare(side(1), side(slower))
	c.Seed, c.Budget, c.Sides[0].Now = seed, 10000*time.Second, func() time.Time { return m.now }
	for i := range cells {
		at := harnesstest.Point("honest", i+1)
		c.Cells = append(c.Cells, [2]run.Point{at, at})
	}
	got, _, err := c.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestABErrorRates checks on a noisy machine that the same code is called different in fewer runs
// than Alpha, and that slower code is caught.
func TestABErrorRates(t *testing.T) {
	if testing.Short() {
		t.Skip("takes hundreds of comparisons")
	}
	const trials, cells = 200, 3
	count := func(slower float64) (caught, wrong, unsure int) {
		for n := range trials {
			for i, c := range trial(t, uint64(n), cells, slower) {
				switch {
				case c.Verdict == ab.Undecided:
					unsure++
				case c.Verdict == ab.Worse && i == 0 && slower > 1:
					caught++
				case c.Verdict == ab.Worse || c.Verdict == ab.Better:
					wrong++
				}
			}
		}
		return caught, wrong, unsure
	}
	_, alarms, unsure := count(1)
	t.Logf("the same code: %d false alarms in %d runs of %d cells, %d cells undecided", alarms, trials, cells, unsure)
	if alarms > 4 {
		t.Errorf("%d false alarms in %d runs, want 4 at most", alarms, trials)
	}
	for _, want := range []struct {
		slower float64
		least  int
	}{{1.05, 188}, {1.03, 160}} {
		caught, wrong, unsure := count(want.slower)
		t.Logf("%.0f %% slower: caught in %d of %d runs, %d other cells called different, %d undecided", 100*(want.slower-1), caught, trials, wrong, unsure)
		if caught < want.least || wrong > 4 {
			t.Errorf("%.0f %% slower: caught in %d of %d runs, want %d; %d other cells called different, want 4 at most", 100*(want.slower-1), caught, trials, want.least, wrong)
		}
	}
}

// TestABInterleaves checks that a drift of the machine is no difference between the sides, since
// each round samples them in the order A B B A or B A A B.
func TestABInterleaves(t *testing.T) {
	var order []int
	now := time.Time{}
	side := func(n int) *harnesstest.Worker {
		return &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) {
			order = append(order, n)
			now = now.Add(time.Second)
			slowing := time.Duration(1e6 + 1e4*float64(len(order)))
			return harnesstest.Steady(slowing), nil
		}}
	}
	at := harnesstest.Point("honest", 8)
	c := compare(side(0), side(1), [2]run.Point{at, at})
	c.Sides[0].Now = func() time.Time { return now }
	cells, reason, err := c.Run(t.Context(), nil)
	if err != nil || cells[0].Verdict != ab.Same || reason != ab.Decided {
		t.Errorf("%+v, %s, %v; want the same", cells[0], reason, err)
	}
	for i := 0; i+4 <= len(order); i += 4 {
		if o := order[i:]; o[0] != o[3] || o[1] != o[2] || o[0] == o[1] {
			t.Fatalf("round of sides %v, want A B B A or B A A B", o[:4])
		}
	}
}

// TestABFloorsAreOfCells checks that the floor of decode cells does not raise the effect of others.
func TestABFloorsAreOfCells(t *testing.T) {
	prefill, decode := harnesstest.Point("honest", 8), run.Point{Kernel: "honest", ISA: "go", SeqQ: 1, SeqKV: 8, Dim: 8}.WithDefaults()
	side := func(took time.Duration) *harnesstest.Worker {
		return &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) { return harnesstest.Steady(took), nil }}
	}
	c := compare(side(100*time.Millisecond), side(109*time.Millisecond), [2]run.Point{prefill, prefill}, [2]run.Point{decode, decode})
	c.Floors = map[string]float64{run.ProbeBytes: 0.2}
	cells, _, err := c.Run(t.Context(), nil)
	if err != nil || cells[0].Verdict != ab.Worse || cells[0].Effect != 0.02 || cells[1].Verdict != ab.Same || cells[1].Effect != 0.2 {
		t.Errorf("%+v, %v; want worse by 2 %%, and the same by 20 %%", cells, err)
	}
}

// TestABFailures checks the verdicts of cells where a side fails, and of comparisons that are
// stopped or cancelled.
func TestABFailures(t *testing.T) {
	broken := &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) { return harness.Sample{}, errors.New("the worker died") }}
	wrong := &harnesstest.Worker{OnVerify: func(run.Point) (oracle.Verdict, error) { return oracle.Verdict{Rows: 1, Worst: 7}, nil }}
	at := harnesstest.Point("honest", 8)
	for name, side := range map[string]*harnesstest.Worker{"head: timing: the worker died": broken, "head: wrong answer, 7 times the tolerance: ": wrong} {
		c := compare(new(harnesstest.Worker), side, [2]run.Point{at, at})
		cells, _, err := c.Run(t.Context(), nil)
		if err != nil || cells[0].Verdict != ab.Failed || cells[0].Note != name {
			t.Errorf("%v, %q: %v; want %q", cells[0].Verdict, cells[0].Note, err, name)
		}
	}
	c := compare(broken, new(harnesstest.Worker), [2]run.Point{at, at})
	if cells, _, err := c.Run(t.Context(), nil); err != nil || cells[0].Verdict != ab.Unjudged || cells[0].Note != "base: timing: the worker died" {
		t.Errorf("%+v, %v; want no verdict on head where base failed", cells[0], err)
	}
	stop := make(chan struct{})
	close(stop)
	c = compare(new(harnesstest.Worker), new(harnesstest.Worker), [2]run.Point{at, at})
	if _, reason, err := c.Run(t.Context(), stop); reason != harness.Interrupted || err != nil {
		t.Errorf("stopped: %s, %v", reason, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, reason, err := c.Run(ctx, nil); reason != harness.Interrupted || err != nil {
		t.Errorf("cancelled: %s, %v", reason, err)
	}
}

// TestABSkips checks that a cell is tried on neither side where one cannot be done.
func TestABSkips(t *testing.T) {
	small, big, many := harnesstest.Point("honest", 8), harnesstest.Point("honest", 4096), harnesstest.Point("honest", 8)
	many.Threads = 8
	for _, test := range []struct {
		cell [2]run.Point
		want string
	}{
		{[2]run.Point{big, big}, "needs 67.1 MB, limit 100 kB"},
		{[2]run.Point{small, big}, "head: needs 67.1 MB, limit 100 kB"},
		{[2]run.Point{many, small}, "base: needs 8 threads at once, 2 can run here"},
		{[2]run.Point{small, harnesstest.Point("absent", 8)}, "head: there is no kernel absent/go"},
	} {
		a, b := new(harnesstest.Worker), new(harnesstest.Worker)
		c := compare(a, b, test.cell)
		for _, side := range c.Sides {
			side.MaxMemory, side.CPUs = 100_000, 2
		}
		cells, _, err := c.Run(t.Context(), nil)
		if err != nil || cells[0].Verdict != ab.Unjudged || !strings.Contains(cells[0].Note, test.want) || len(a.Asked)+len(b.Asked)+len(a.Sampled)+len(b.Sampled) > 0 {
			t.Errorf("%+v, %v: want %q, and nothing tried", cells[0], err, test.want)
		}
	}
}

// TestABPaths checks that a kernel on two paths is neither tried nor compared. A kernel without a
// path on one side is compared, and so are two different kernels.
func TestABPaths(t *testing.T) {
	at, other := harnesstest.Point("honest", 8), harnesstest.Point("lazy", 8)
	for _, test := range []struct {
		name  string
		paths [2]run.Paths
		head  run.Point
		note  string
	}{
		{"two paths", [2]run.Paths{{"honest/go": "x"}, {"honest/go": "y"}}, at, "honest/go took the path x in the base and y in the head: another kernel, not compared"},
		{"one path", [2]run.Paths{{"honest/go": "x"}, {"honest/go": "x"}}, at, ""},
		{"a base without paths", [2]run.Paths{nil, {"honest/go": "y"}}, at, ""},
		{"two kernels", [2]run.Paths{{"honest/go": "x"}, {"lazy/go": "y"}}, other, ""},
	} {
		workers := [2]*harnesstest.Worker{new(harnesstest.Worker), new(harnesstest.Worker)}
		c := compare(workers[0], workers[1], [2]run.Point{at, test.head})
		for i, side := range c.Sides {
			j, err := run.Create(t.TempDir(), run.Meta{Paths: test.paths[i]})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			side.Journal = j
		}
		cells, reason, err := c.Run(t.Context(), nil)
		if err != nil || reason != ab.Decided {
			t.Fatalf("%s: %s, %v", test.name, reason, err)
		}
		want, tried := ab.Same, len(workers[0].Asked)*len(workers[1].Asked) > 0
		if test.note != "" {
			want, tried = ab.Unjudged, len(workers[0].Asked)+len(workers[1].Asked) == 0
		}
		if cells[0].Verdict != want || cells[0].Note != test.note || !tried {
			t.Errorf("%s: got %s, %q, asked %v and %v; want %s, %q", test.name, cells[0].Verdict, cells[0].Note, workers[0].Asked, workers[1].Asked, want, test.note)
		}
	}
}

// halves returns sides that take the same time, and close stop after the given number of samples; 0
// is never.
func halves(t *testing.T, after int) (sides [2]*harnesstest.Worker, stop chan struct{}, samples *int) {
	t.Helper()
	stop, samples = make(chan struct{}), new(int)
	for i := range sides {
		sides[i] = &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) {
			if *samples++; *samples == after {
				close(stop)
			}
			return harnesstest.Steady(time.Millisecond), nil
		}}
	}
	return sides, stop, samples
}

// kept returns a comparison of cells whose results are kept in folders.
func kept(t *testing.T, dirs [2]string, open func(dir string) (*run.Journal, error), sides [2]*harnesstest.Worker, cells [][2]run.Point) *ab.Comparison {
	t.Helper()
	c := compare(sides[0], sides[1], cells...)
	c.Seed = 5
	for i, dir := range dirs {
		j, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() })
		c.Sides[i].Journal = j
	}
	return c
}

func create(dir string) (*run.Journal, error) { return run.Create(dir, run.Meta{}) }

// TestABResumes checks that a comparison stops after the present sample, wherever that is. Resumed,
// it goes on from its whole rounds to the same verdicts.
func TestABResumes(t *testing.T) {
	a, b := harnesstest.Point("honest", 8), harnesstest.Point("honest", 16)
	cells := [][2]run.Point{{a, a}, {b, b}}
	const whole = 2 * 6 * 4 // samples
	step := 1
	if testing.Short() {
		step = 5 // which meets every place in a round
	}
	for after := 1; after < whole; after += step {
		dirs := [2]string{t.TempDir(), t.TempDir()}
		sides, stop, samples := halves(t, after)
		c := kept(t, dirs, create, sides, cells)
		if _, reason, err := c.Run(t.Context(), stop); err != nil || reason != harness.Interrupted || *samples != after {
			t.Fatalf("stopped after %d samples: %s after %d, %v", after, reason, *samples, err)
		}
		for _, side := range c.Sides {
			side.Journal.Close()
		}
		sides, stop, samples = halves(t, 0)
		again := kept(t, dirs, run.Resume, sides, cells)
		got, reason, err := again.Run(t.Context(), stop)
		if err != nil || reason != ab.Decided {
			t.Fatalf("resumed after %d samples: %s, %v", after, reason, err)
		}
		if want := whole - after + after%4; *samples != want {
			t.Errorf("resumed after %d samples: took %d more, want %d", after, *samples, want)
		}
		for _, c := range got {
			if c.Verdict != ab.Same || c.Rounds != 6 || c.Ns != [2]float64{1e6, 1e6} {
				t.Errorf("resumed after %d samples: %+v", after, c)
			}
		}
		if n := len(sides[0].Asked) + len(sides[1].Asked); n > 0 {
			t.Errorf("resumed after %d samples: %d points were verified again", after, n)
		}
	}
}

// TestABCutTwice checks that the pieces of a round that was cut off several times make no round.
func TestABCutTwice(t *testing.T) {
	at := harnesstest.Point("honest", 8)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	open := create
	for range 3 { // three samples of the first round each time, one or two of a side
		sides, stop, _ := halves(t, 3)
		c := kept(t, dirs, open, sides, [][2]run.Point{{at, at}})
		if cells, _, err := c.Run(t.Context(), stop); err != nil || cells[0].Rounds > 0 || cells[0].Ns != [2]float64{} {
			t.Fatalf("%+v, %v: want no round", cells, err)
		}
		for _, side := range c.Sides {
			side.Journal.Close()
		}
		open = run.Resume
	}
}

// TestABResumesSharedPoints checks that resumed rounds belong to the right cells where cells share
// points.
func TestABResumesSharedPoints(t *testing.T) {
	a, b := harnesstest.Point("honest", 8), harnesstest.Point("lazy", 8)
	cells := [][2]run.Point{{a, a}, {a, b}, {b, a}, {b, b}}
	const whole = 4 * 6 * 4 // samples
	for _, after := range []int{1, 3, 10, 37, whole - 1} {
		dirs := [2]string{t.TempDir(), t.TempDir()}
		sides, stop, _ := halves(t, after)
		c := kept(t, dirs, create, sides, cells)
		if _, reason, err := c.Run(t.Context(), stop); err != nil || reason != harness.Interrupted {
			t.Fatalf("stopped after %d samples: %s, %v", after, reason, err)
		}
		for _, side := range c.Sides {
			side.Journal.Close()
		}
		sides, stop, samples := halves(t, 0)
		again := kept(t, dirs, run.Resume, sides, cells)
		got, reason, err := again.Run(t.Context(), stop)
		if err != nil || reason != ab.Decided {
			t.Fatalf("resumed after %d samples: %s, %v", after, reason, err)
		}
		if want := whole - after + after%4; *samples != want {
			t.Errorf("resumed after %d samples: took %d more, want %d", after, *samples, want)
		}
		for _, c := range got {
			if c.Rounds != 6 {
				t.Errorf("resumed after %d samples: %+v", after, c)
			}
		}
	}
}

// TestABResumesFailures checks that a cell that failed stays failed.
func TestABResumesFailures(t *testing.T) {
	at := harnesstest.Point("honest", 8)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	broken := &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) { return harness.Sample{}, errors.New("the worker died") }}
	c := kept(t, dirs, create, [2]*harnesstest.Worker{new(harnesstest.Worker), broken}, [][2]run.Point{{at, at}})
	if _, _, err := c.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, side := range c.Sides {
		side.Journal.Close()
	}
	again := kept(t, dirs, run.Resume, [2]*harnesstest.Worker{new(harnesstest.Worker), new(harnesstest.Worker)}, c.Cells)
	if cells, _, err := again.Run(t.Context(), nil); err != nil || cells[0].Verdict != ab.Failed || cells[0].Note != "head: timing: the worker died" {
		t.Errorf("%+v, %v: want the failure", cells, err)
	}
}

// TestABProgress checks the steps and the time left that a comparison reports.
func TestABProgress(t *testing.T) {
	at := harnesstest.Point("honest", 8)
	now := time.Time{}
	c := compare(new(harnesstest.Worker), new(harnesstest.Worker), [2]run.Point{at, at})
	c.Sides[0].Now = func() time.Time { now = now.Add(time.Second); return now }
	var reported []harness.Progress
	c.Tell = func(p harness.Progress) { reported = append(reported, p) }
	if _, _, err := c.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(reported) != 7 {
		t.Fatalf("%d reports, want one of the verification and one of each of six rounds: %+v", len(reported), reported)
	}
	for n, p := range reported {
		if p.Done != n || p.Total != 7 || p.Point != at || (p.Left >= 0) != (n >= 2) {
			t.Errorf("step %d: %+v", n, p)
		}
	}
}
