package harness_test

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
	"attnlab/harness/run"
)

// A noisy machine takes times that are skewed upwards, drift slowly, and are now and then far off.
// Its clock goes on with what it measures.
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
	s := steady(time.Duration(call))
	m.now = m.now.Add(s.Elapsed.Wall)
	return s
}

// trial compares so many cells, the first of which takes so much longer on side B.
func trial(t *testing.T, seed uint64, cells int, slower float64) []harness.ABCell {
	t.Helper()
	m := &noisy{r: rand.New(rand.NewPCG(seed, 3))}
	side := func(first float64) *fakeWorker {
		return &fakeWorker{sample: func(at run.Point, _ int) (harness.Sample, error) {
			call := float64(100 * time.Millisecond)
			if at.SeqKV == 1 {
				call *= first
			}
			return m.sample(call), nil
		}}
	}
	ab := &harness.AB{
		Sides: [2]harness.Worker{side(1), side(slower)}, Lab: badLab(), Seed: seed, Effect: 0.02, Alpha: 0.05,
		Budget: 10000 * time.Second, Now: func() time.Time { return m.now },
	}
	for i := range cells {
		at := point("honest", i+1)
		ab.Cells = append(ab.Cells, [2]run.Point{at, at})
	}
	got, _, err := ab.Run(t.Context(), never)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// On a machine that is made of noise, the same code is called slower in fewer runs than Alpha, and
// code that is slower is caught.
func TestABErrorRates(t *testing.T) {
	if testing.Short() {
		t.Skip("rates are of hundreds of comparisons")
	}
	const trials, cells = 200, 3
	count := func(slower float64) (caught, wrong, unsure int) {
		for n := range trials {
			for i, c := range trial(t, uint64(n), cells, slower) {
				switch {
				case c.Judgement == harness.Unsure:
					unsure++
				case c.Judgement == harness.Worse && i == 0 && slower > 1:
					caught++
				case c.Judgement == harness.Worse || c.Judgement == harness.Better:
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

// A drift of the machine is not a difference between the sides, and each side is sampled twice in a
// round, by turns.
func TestABInterleaves(t *testing.T) {
	var order []int
	now := time.Time{}
	side := func(n int) *fakeWorker {
		return &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) {
			order = append(order, n)
			now = now.Add(time.Second)
			return steady(time.Duration(1e6 + 1e4*float64(len(order)))), nil // one per cent slower with each sample
		}}
	}
	at := point("honest", 8)
	ab := &harness.AB{Sides: [2]harness.Worker{side(0), side(1)}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05, Now: func() time.Time { return now }}
	cells, reason, err := ab.Run(t.Context(), never)
	if err != nil || cells[0].Judgement != harness.Same || reason != harness.Decided {
		t.Errorf("%+v, %s, %v; want the same", cells[0], reason, err)
	}
	for i := 0; i+4 <= len(order); i += 4 {
		if o := order[i:]; o[0] != o[3] || o[1] != o[2] || o[0] == o[1] {
			t.Fatalf("round of sides %v, want A B B A or B A A B", o[:4])
		}
	}
}

// The floor of cells of one query says nothing of the others.
func TestABFloorsAreOfCells(t *testing.T) {
	prefill, decode := point("honest", 8), run.Point{Kernel: "honest", ISA: "go", SeqQ: 1, SeqKV: 8, Dim: 8}.WithDefaults()
	side := func(took time.Duration) *fakeWorker {
		return &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) { return steady(took), nil }}
	}
	ab := &harness.AB{
		Sides: [2]harness.Worker{side(100 * time.Millisecond), side(109 * time.Millisecond)}, Lab: badLab(), Cells: [][2]run.Point{{prefill, prefill}, {decode, decode}},
		Effect: 0.02, Floors: map[string]float64{run.ProbeBytes: 0.2}, Alpha: 0.05,
	}
	cells, _, err := ab.Run(t.Context(), never)
	if err != nil || cells[0].Judgement != harness.Worse || cells[0].Effect != 0.02 || cells[1].Judgement != harness.Same || cells[1].Effect != 0.2 {
		t.Errorf("%+v, %v; want worse by 2 %%, and the same by 20 %%", cells, err)
	}
}

// What goes wrong on a side is the cell's, and what makes an answer wrong too.
func TestABFailures(t *testing.T) {
	broken := &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) { return harness.Sample{}, errors.New("the worker died") }}
	wrong := &fakeWorker{verify: func(run.Point) (oracle.Verdict, error) { return oracle.Verdict{Rows: 1, Worst: 7}, nil }}
	at := point("honest", 8)
	for name, side := range map[string]*fakeWorker{"head: timing: the worker died": broken, "head: wrong answer, 7 times the tolerance: ": wrong} {
		ab := &harness.AB{Sides: [2]harness.Worker{new(fakeWorker), side}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
		cells, _, err := ab.Run(t.Context(), never)
		if err != nil || cells[0].Judgement != harness.NoNumbers || cells[0].Note != name {
			t.Errorf("%v, %q: %v; want %q", cells[0].Judgement, cells[0].Note, err, name)
		}
	}
	ab := &harness.AB{Sides: [2]harness.Worker{broken, new(fakeWorker)}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
	if cells, _, err := ab.Run(t.Context(), never); err != nil || cells[0].Judgement != harness.Unjudged || cells[0].Note != "base: timing: the worker died" {
		t.Errorf("%+v, %v; want no verdict on head where base failed", cells[0], err)
	}
	stop := make(chan struct{})
	close(stop)
	ab = &harness.AB{Sides: [2]harness.Worker{new(fakeWorker), new(fakeWorker)}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
	if _, reason, err := ab.Run(t.Context(), stop); reason != harness.Interrupted || err != nil {
		t.Errorf("stopped: %s, %v", reason, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, reason, err := ab.Run(ctx, never); reason != harness.Interrupted || err != nil {
		t.Errorf("cancelled: %s, %v", reason, err)
	}
}

// What a sweep would skip is not tried on either side.
func TestABSkips(t *testing.T) {
	small, big, many := point("honest", 8), point("honest", 4096), point("honest", 8)
	many.Threads = 8
	for _, c := range []struct {
		cell [2]run.Point
		want string
	}{
		{[2]run.Point{big, big}, "needs 67.7 MB, limit 100 kB"},
		{[2]run.Point{small, big}, "head: needs 67.7 MB, limit 100 kB"},
		{[2]run.Point{many, small}, "base: needs 8 threads at once, 2 can run here"},
		{[2]run.Point{small, point("absent", 8)}, "head: there is no kernel absent/go"},
	} {
		a, b := new(fakeWorker), new(fakeWorker)
		ab := &harness.AB{
			Sides: [2]harness.Worker{a, b}, Lab: badLab(), Cells: [][2]run.Point{c.cell}, Effect: 0.02, Alpha: 0.05, MaxMemory: 100_000, CPUs: 2,
		}
		cells, _, err := ab.Run(t.Context(), never)
		if err != nil || cells[0].Judgement != harness.Unjudged || !strings.Contains(cells[0].Note, c.want) || len(a.asked)+len(b.asked)+len(a.order)+len(b.order) > 0 {
			t.Errorf("%+v, %v: want %q, and nothing tried", cells[0], err, c.want)
		}
	}
}

// TestABPaths checks that a kernel on two paths is neither tried nor compared, and that a kernel
// without a path on one side is, as two kernels are that are named as such.
func TestABPaths(t *testing.T) {
	at, other := point("honest", 8), point("lazy", 8)
	for _, c := range []struct {
		name  string
		paths [2]run.Paths
		head  run.Point
		note  string
	}{
		{"two paths", [2]run.Paths{{"honest/go": "x"}, {"honest/go": "y"}}, at, "honest/go took the path x in the base and y in the head: another kernel, not compared"},
		{"one path", [2]run.Paths{{"honest/go": "x"}, {"honest/go": "x"}}, at, ""},
		{"a base that does not tell", [2]run.Paths{nil, {"honest/go": "y"}}, at, ""},
		{"two kernels", [2]run.Paths{{"honest/go": "x"}, {"lazy/go": "y"}}, other, ""},
	} {
		workers := [2]*fakeWorker{new(fakeWorker), new(fakeWorker)}
		ab := &harness.AB{
			Sides: [2]harness.Worker{workers[0], workers[1]}, Lab: badLab(), Cells: [][2]run.Point{{at, c.head}}, Effect: 0.02, Alpha: 0.05,
		}
		for i := range ab.Journals {
			j, err := run.Create(t.TempDir(), run.Meta{Paths: c.paths[i]})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			ab.Journals[i] = j
		}
		cells, reason, err := ab.Run(t.Context(), never)
		if err != nil || reason != harness.Decided {
			t.Fatalf("%s: %s, %v", c.name, reason, err)
		}
		want, tried := harness.Same, len(workers[0].asked)*len(workers[1].asked) > 0
		if c.note != "" {
			want, tried = harness.Unjudged, len(workers[0].asked)+len(workers[1].asked) == 0
		}
		if cells[0].Judgement != want || cells[0].Note != c.note || !tried {
			t.Errorf("%s: got %s, %q, asked %v and %v; want %s, %q", c.name, cells[0].Judgement, cells[0].Note, workers[0].asked, workers[1].asked, want, c.note)
		}
	}
}

// A study tells a quiet machine from a noisy one, and its floor is what keeps an AB from calling
// the same code different.
func TestStudy(t *testing.T) {
	if testing.Short() {
		t.Skip("a study is hundreds of comparisons")
	}
	study := func(noise float64) harness.Study {
		r := rand.New(rand.NewPCG(4, 4))
		w := &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) {
			return steady(time.Duration(1e6 * math.Exp(noise*r.ExpFloat64()))), nil
		}}
		at := point("honest", 8)
		ab := &harness.AB{Sides: [2]harness.Worker{w, w}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
		s, err := ab.Study(t.Context(), never, 40)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	quiet, loud := study(0.005), study(0.2)
	if quiet.Rounds != 40 || quiet.FalseAlarms > 0.02 || quiet.Floor > 0.005 || !(quiet.Smallest > 0 && quiet.Smallest <= 0.03) {
		t.Errorf("a quiet machine: %+v", quiet)
	}
	if !(loud.Floor > 2*quiet.Floor) || !(loud.Spread > 10*quiet.Spread) || loud.Smallest != 0 && loud.Smallest < 0.05 {
		t.Errorf("a noisy machine: %+v, a quiet one: %+v", loud, quiet)
	}
	stop := make(chan struct{})
	close(stop)
	at := point("honest", 8)
	ab := &harness.AB{Sides: [2]harness.Worker{new(fakeWorker), new(fakeWorker)}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
	if s, err := ab.Study(t.Context(), stop, 40); s.Rounds != 0 || err != nil {
		t.Errorf("stopped at once: %+v, %v", s, err)
	}
}

// halves are sides that take the same time, and close stop after so many samples; 0 is never.
func halves(t *testing.T, after int) (sides [2]harness.Worker, stop chan struct{}, samples *int) {
	t.Helper()
	stop, samples = make(chan struct{}), new(int)
	side := func() *fakeWorker {
		return &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) {
			if *samples++; *samples == after {
				close(stop)
			}
			return steady(time.Millisecond), nil
		}}
	}
	return [2]harness.Worker{side(), side()}, stop, samples
}

func abJournals(t *testing.T, dirs [2]string, open func(dir string) (*run.Journal, error)) (js [2]*run.Journal) {
	t.Helper()
	for i, dir := range dirs {
		j, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() })
		js[i] = j
	}
	return js
}

func create(dir string) (*run.Journal, error) { return run.Create(dir, run.Meta{}) }

// Wherever an AB is stopped, it stops after the sample in hand, and goes on from its whole rounds:
// what it comes to is what it would have come to.
func TestABResumes(t *testing.T) {
	a, b := point("honest", 8), point("honest", 16)
	cells := [][2]run.Point{{a, a}, {b, b}}
	const whole = 2 * 6 * 4 // samples
	step := 1
	if testing.Short() {
		step = 5 // every place in a round
	}
	for after := 1; after < whole; after += step {
		dirs := [2]string{t.TempDir(), t.TempDir()}
		sides, stop, samples := halves(t, after)
		ab := &harness.AB{Sides: sides, Journals: abJournals(t, dirs, create), Lab: badLab(), Cells: cells, Seed: 5, Effect: 0.02, Alpha: 0.05}
		if _, reason, err := ab.Run(t.Context(), stop); err != nil || reason != harness.Interrupted || *samples != after {
			t.Fatalf("stopped after %d samples: %s after %d, %v", after, reason, *samples, err)
		}
		for _, j := range ab.Journals {
			j.Close()
		}
		sides, stop, samples = halves(t, 0)
		again := &harness.AB{Sides: sides, Journals: abJournals(t, dirs, run.Resume), Lab: badLab(), Cells: cells, Seed: 5, Effect: 0.02, Alpha: 0.05}
		got, reason, err := again.Run(t.Context(), stop)
		if err != nil || reason != harness.Decided {
			t.Fatalf("resumed after %d samples: %s, %v", after, reason, err)
		}
		if want := whole - after + after%4; *samples != want {
			t.Errorf("resumed after %d samples: took %d more, want %d", after, *samples, want)
		}
		for _, c := range got {
			if c.Judgement != harness.Same || c.Rounds != 6 || c.Ns != [2]float64{1e6, 1e6} {
				t.Errorf("resumed after %d samples: %+v", after, c)
			}
		}
		if n := len(sides[0].(*fakeWorker).asked) + len(sides[1].(*fakeWorker).asked); n > 0 {
			t.Errorf("resumed after %d samples: %d points were verified again", after, n)
		}
	}
}

// A round that was cut off more than once is taken whole, and its pieces are not put together.
func TestABCutTwice(t *testing.T) {
	at := point("honest", 8)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	open := create
	for range 3 { // each time three samples of the first round, of which one or two are of a side
		sides, stop, _ := halves(t, 3)
		ab := &harness.AB{Sides: sides, Journals: abJournals(t, dirs, open), Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
		if cells, _, err := ab.Run(t.Context(), stop); err != nil || cells[0].Rounds > 0 || cells[0].Ns != [2]float64{} {
			t.Fatalf("%+v, %v: want no round", cells, err)
		}
		for _, j := range ab.Journals {
			j.Close()
		}
		open = run.Resume
	}
}

// TestABResumesSharedPoints checks that rounds of cells that share points are told apart: these
// have the samples of all of their cells under one name.
func TestABResumesSharedPoints(t *testing.T) {
	a, b := point("honest", 8), point("lazy", 8)
	cells := [][2]run.Point{{a, a}, {a, b}, {b, a}, {b, b}}
	const whole = 4 * 6 * 4 // samples
	for _, after := range []int{1, 3, 10, 37, whole - 1} {
		dirs := [2]string{t.TempDir(), t.TempDir()}
		sides, stop, _ := halves(t, after)
		ab := &harness.AB{Sides: sides, Journals: abJournals(t, dirs, create), Lab: badLab(), Cells: cells, Seed: 5, Effect: 0.02, Alpha: 0.05}
		if _, reason, err := ab.Run(t.Context(), stop); err != nil || reason != harness.Interrupted {
			t.Fatalf("stopped after %d samples: %s, %v", after, reason, err)
		}
		for _, j := range ab.Journals {
			j.Close()
		}
		sides, stop, samples := halves(t, 0)
		again := &harness.AB{Sides: sides, Journals: abJournals(t, dirs, run.Resume), Lab: badLab(), Cells: cells, Seed: 5, Effect: 0.02, Alpha: 0.05}
		got, reason, err := again.Run(t.Context(), stop)
		if err != nil || reason != harness.Decided {
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

// A cell that failed stays failed.
func TestABResumesFailures(t *testing.T) {
	at := point("honest", 8)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	broken := &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) { return harness.Sample{}, errors.New("the worker died") }}
	ab := &harness.AB{Sides: [2]harness.Worker{new(fakeWorker), broken}, Journals: abJournals(t, dirs, create), Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
	if _, _, err := ab.Run(t.Context(), never); err != nil {
		t.Fatal(err)
	}
	for _, j := range ab.Journals {
		j.Close()
	}
	js := abJournals(t, dirs, run.Resume)
	again := &harness.AB{Sides: [2]harness.Worker{new(fakeWorker), new(fakeWorker)}, Journals: js, Lab: badLab(), Cells: ab.Cells, Effect: 0.02, Alpha: 0.05}
	if cells, _, err := again.Run(t.Context(), never); err != nil || cells[0].Judgement != harness.NoNumbers || cells[0].Note != "head: timing: the worker died" {
		t.Errorf("%+v, %v: want the failure", cells, err)
	}
}
