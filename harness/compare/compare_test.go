package compare

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func read(t *testing.T, path string) *Source {
	t.Helper()
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func compare(t *testing.T, a, b *Source, o Options) *Report {
	t.Helper()
	r, err := Compare(a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Report) cell(t *testing.T, unit, part string) *Cell {
	t.Helper()
	for _, table := range r.Tables {
		for _, c := range table.Cells {
			if table.Unit == unit && strings.Contains(c.Name, part) {
				return c
			}
		}
	}
	t.Fatalf("no cell %s %s", part, unit)
	return nil
}

// bench returns samples of one unit, with a row for each name.
func bench(unit string, rows ...[]float64) *Source {
	var b strings.Builder
	for i, row := range rows {
		for _, x := range row {
			fmt.Fprintf(&b, "BenchmarkX/row=%d 1 %v %s\n", i, x, unit)
		}
	}
	s, err := parse("text", []byte(b.String()))
	if err != nil {
		panic(err)
	}
	return s
}

func ramp(n int, from float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = from * (1 + 0.001*float64(i))
	}
	return x
}

// TestVerdicts checks the verdict on each kind of cell.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		unit string
		a, b []float64
		cell Verdict
		all  Verdict
	}{
		{"slower", "sec/op", ramp(6, 1), ramp(6, 1.1), Worse, Regressed},
		{"faster", "sec/op", ramp(6, 1), ramp(6, 0.9), Better, Passed},
		{"ns is time too", "ns/op", ramp(6, 100), ramp(6, 110), Worse, Regressed},
		{"a lower rate", "MB/s", ramp(6, 1), ramp(6, 0.9), Worse, Regressed},
		{"a higher rate", "MB/s", ramp(6, 1), ramp(6, 1.1), Better, Passed},
		{"the same", "sec/op", ramp(6, 1), ramp(6, 1), Same, Passed},
		{"all equal", "sec/op", []float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}, Same, Passed},
		{"told apart, but by little", "sec/op", ramp(6, 1), ramp(6, 1.01), Same, Passed},
		{"three a side", "sec/op", ramp(3, 1), ramp(3, 2), TooFew, Undecided},
		{"four a side", "sec/op", ramp(4, 1), ramp(4, 2), Worse, Regressed},
		{"one a side, equal", "sec/op", ramp(1, 1), ramp(1, 1), TooFew, Undecided},
		{"three against many", "sec/op", ramp(3, 1), ramp(10, 2), Worse, Regressed},
		{"from nothing", "allocs/op", make([]float64, 6), ramp(6, 2), Worse, Regressed},
		{"to nothing", "allocs/op", ramp(6, 2), make([]float64, 6), Better, Passed},
		{"no direction", "widgets", ramp(6, 1), ramp(6, 2), Differs, Passed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := compare(t, bench(c.unit, c.a), bench(c.unit, c.b), DefaultOptions)
			if got := r.Tables[0].Cells[0].Verdict; got != c.cell || r.Verdict != c.all {
				t.Errorf("cell %q, all %q; want %q, %q", got, r.Verdict, c.cell, c.all)
			}
		})
	}
}

// TestExact checks that exact units are judged without statistics. For them x/perf reports P and
// Alpha 0, whether they differ or not.
func TestExact(t *testing.T) {
	source := func(bytes int) *Source {
		s, err := parse("text", fmt.Appendf(nil, "Unit scratch-B better=lower assume=exact\nBenchmarkX 1 %d scratch-B\n", bytes))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		b    int
		want Verdict
	}{{1000, Same}, {1001, Worse}, {999, Better}} {
		r := compare(t, source(1000), source(c.b), DefaultOptions)
		if got := r.Tables[0].Cells[0].Verdict; got != c.want {
			t.Errorf("1000 to %d: %q, want %q", c.b, got, c.want)
		}
		if want := map[bool]Verdict{true: Regressed, false: Passed}[c.want == Worse]; r.Verdict != want {
			t.Errorf("1000 to %d: %q in all, want %q", c.b, r.Verdict, want)
		}
	}
}

// TestManyCells checks that a cell that is worse by chance is no regression among many cells. The
// same cell alone is one, and so is a cell that is worse beyond chance.
func TestManyCells(t *testing.T) {
	same := make([][]float64, 39)
	for i := range same {
		same[i] = ramp(5, 1)
	}
	a := append([][]float64{ramp(5, 1)}, same...)
	b := append([][]float64{ramp(5, 1.5)}, same...)
	if r := compare(t, bench("sec/op", a[:1]...), bench("sec/op", b[:1]...), DefaultOptions); r.Verdict != Regressed {
		t.Errorf("alone: %q", r.Verdict)
	}
	r := compare(t, bench("sec/op", a...), bench("sec/op", b...), DefaultOptions)
	if r.Tables[0].Cells[0].Verdict != Worse || r.Verdict != Undecided {
		t.Errorf("among 40: %q, %q", r.Tables[0].Cells[0].Verdict, r.Verdict)
	}
	for i := range a {
		a[i], b[i] = ramp(10, a[i][0]), ramp(10, b[i][0])
	}
	if r := compare(t, bench("sec/op", a...), bench("sec/op", b...), DefaultOptions); r.Verdict != Regressed {
		t.Errorf("among 40 with ten samples: %q", r.Verdict)
	}
}

// TestFalseAlarms checks that runs of the same kernels regress no more often than the level says,
// with any number of cells.
func TestFalseAlarms(t *testing.T) {
	if testing.Short() {
		t.Skip("two hundred comparisons of twenty cells")
	}
	r := rand.New(rand.NewPCG(7, 8))
	draw := func() *Source {
		rows := make([][]float64, 20)
		for i := range rows {
			for range 8 {
				rows[i] = append(rows[i], 1+0.1*r.ExpFloat64())
			}
		}
		return bench("sec/op", rows...)
	}
	o := DefaultOptions
	o.Effect = 0
	const trials = 200
	alarms, cells := 0, 0
	for range trials {
		report := compare(t, draw(), draw(), o)
		if report.Verdict == Regressed {
			alarms++
		}
		for _, c := range report.Tables[0].Cells {
			if c.Verdict == Worse {
				cells++
			}
		}
	}
	// Half of the level is slower; three standard deviations of the count are allowed.
	level := o.Alpha / 2
	if most := trials*level + 3*math.Sqrt(trials*level*(1-level)); !(float64(alarms) <= most) {
		t.Errorf("%d of %d runs called regressed, want at most %.0f", alarms, trials, most)
	}
	if cells == 0 {
		t.Error("no cell was ever slower: the correction had nothing to correct")
	}
}

// TestGoTestOutput checks that the output of go test -bench compares with a run folder, although
// its names end in GOMAXPROCS.
func TestGoTestOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	runtest.Make(t, dir, runtest.Model{Masks: []string{"full"}})
	p := run.Point{Kernel: "flash", ISA: "go", SeqKV: 512, Dim: 64}.WithDefaults()
	var b strings.Builder
	b.WriteString("goos: linux\ngoarch: amd64\npkg: attnlab/kernels\ncpu: Model CPU @ 2.00GHz\n")
	for i := range 6 {
		fmt.Fprintf(&b, "BenchmarkAttention/%s-2   \t 100\t %d ns/op\t 0 B/op\t 0 allocs/op\n", strings.TrimPrefix(p.Name(), "Attention/"), 26_000_000+i)
	}
	b.WriteString("PASS\nok  \tattnlab/kernels\t1.234s\n")
	s, err := parse("text", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	r := compare(t, read(t, dir), s, DefaultOptions)
	if c := r.cell(t, "sec/op", p.Name()); c.Verdict != Worse || !(math.Abs(c.Delta-0.93) < 0.02) || len(r.Warnings) != 0 {
		t.Errorf("%+v, %q", c, r.Warnings)
	}
	if c := r.cell(t, "allocs/op", p.Name()); c.Verdict != Same {
		t.Errorf("%+v", c)
	}
}

// TestMissing checks benchmarks that are in one run only.
func TestMissing(t *testing.T) {
	two, one := bench("sec/op", ramp(6, 1), ramp(6, 1)), bench("sec/op", ramp(6, 1))
	r := compare(t, two, one, DefaultOptions)
	if c := r.cell(t, "sec/op", "row=1"); c.Verdict != Gone || r.Verdict != Undecided {
		t.Errorf("gone: %q, %q", c.Verdict, r.Verdict)
	}
	one.Failed["X/row=1"] = "killed"
	r = compare(t, two, one, DefaultOptions)
	if c := r.cell(t, "sec/op", "row=1"); c.Verdict != Broken || r.Verdict != Regressed || c.Note != "killed" {
		t.Errorf("failed: %q, %q", c.Verdict, r.Verdict)
	}
	r = compare(t, one, two, DefaultOptions)
	if c := r.cell(t, "sec/op", "row=1"); c.Verdict != New || r.Verdict != Passed {
		t.Errorf("new: %q, %q", c.Verdict, r.Verdict)
	}
}

// TestOtherPath checks that a kernel on another path is gone and new, even if the runs have nothing
// else in common, and that a source without paths is compared.
func TestOtherPath(t *testing.T) {
	source := func(path string, slower float64) *Source {
		dir := filepath.Join(t.TempDir(), "run")
		runtest.Make(t, dir, runtest.Model{
			Masks: []string{"full"}, Slower: func(run.Point) float64 { return slower }, Meta: func(m *run.Meta) { m.Paths = run.Paths{"flash/go": path} },
		})
		return read(t, dir)
	}
	a, b := source("x", 1), source("y", 1.5)
	r := compare(t, a, b, Options{Alpha: 0.05, Effect: 0.02, Filter: "/kernel:flash"})
	const note = "flash/go took the path x in A and y in B: another kernel, not compared"
	if r.Verdict != Undecided || !slices.Equal(r.Reasons, []string{note}) {
		t.Errorf("got %s, %q; want it undecided, for the path alone", r.Verdict, r.Reasons)
	}
	for _, table := range r.Tables {
		if len(table.Cells) != 8 || !math.IsNaN(table.Geomean) {
			t.Errorf("%s: %d cells, want two of each of four; geomean %v", table.Unit, len(table.Cells), table.Geomean)
		}
		for i, c := range table.Cells {
			want, has := Gone, c.A.N > 0 && c.B.N == 0
			if i >= 4 {
				want, has = New, c.A.N == 0 && c.B.N > 0
			}
			if c.Verdict != want || !has || c.Note != note {
				t.Errorf("%s %s: got %s with %d and %d samples, %q", table.Unit, c.Name, c.Verdict, c.A.N, c.B.N, c.Note)
			}
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "gone: "+note) || !strings.Contains(text.String(), "new: "+note) {
		t.Errorf("%v; the text is\n%s", err, text.String())
	}
	for name, old := range map[string]*Source{"the same path": source("x", 1), "a run that does not tell": source("", 1)} {
		if r := compare(t, a, old, DefaultOptions); r.Verdict != Passed || r.cell(t, "sec/op", "kernel=flash").Verdict != Same {
			t.Errorf("%s: got %s, %q", name, r.Verdict, r.Reasons)
		}
	}
}

// slowed writes two runs, the second with a slower flash on a causal mask and a faster naive.
func slowed(t *testing.T) (a, b string) {
	t.Helper()
	a, b = filepath.Join(t.TempDir(), "A"), filepath.Join(t.TempDir(), "B")
	runtest.Make(t, a, runtest.Model{Seed: 1})
	runtest.Make(t, b, runtest.Model{Seed: 2, Slower: func(p run.Point) float64 {
		switch {
		case p.Kernel == "flash" && p.Mask == "causal":
			return 1.2
		case p.Kernel == "naive":
			return 0.8
		}
		return 1
	}})
	return a, b
}

// TestRuns checks the verdicts on two run folders.
func TestRuns(t *testing.T) {
	a, b := slowed(t)
	r := compare(t, read(t, a), read(t, b), DefaultOptions)
	if r.Verdict != Regressed {
		t.Errorf("in all: %q", r.Verdict)
	}
	for _, c := range []struct {
		unit, part string
		want       Verdict
	}{
		{"sec/op", "flash/isa=go/pass=forward/mask=causal/heads=1/seq=512", Worse},
		{"FLOP/s", "flash/isa=go/pass=forward/mask=causal/heads=1/seq=512", Worse},
		{"%peak", "flash/isa=go/pass=forward/mask=causal/heads=1/seq=512", Worse},
		{"sec/op", "naive/isa=go/pass=forward/mask=full/heads=1/seq=1024", Better},
		{"FLOP/s", "naive/isa=go/pass=forward/mask=full/heads=1/seq=1024", Better},
		{"sec/op", "tiled/isa=blas/pass=forward/mask=full/heads=1/seq=1024", Same},
		{"scratch-B", "flash", Same},
		{"rss-B", "flash", Unjudged},
		{"allocs/op", "flash", Same},
	} {
		if got := r.cell(t, c.unit, c.part).Verdict; got != c.want {
			t.Errorf("%s %s: %q, want %q", c.part, c.unit, got, c.want)
		}
	}
	if r := compare(t, read(t, a), read(t, a), DefaultOptions); r.Verdict != Passed {
		t.Errorf("a run against itself: %q %v", r.Verdict, r.Reasons)
	}
	only := DefaultOptions
	only.Filter = "/kernel:naive .unit:sec/op"
	if r := compare(t, read(t, a), read(t, b), only); len(r.Tables) != 1 || r.Verdict != Passed {
		t.Errorf("filtered: %d tables, %q", len(r.Tables), r.Verdict)
	}
	// The bench.txt of a run compares like its journal.
	if got := compare(t, read(t, a), read(t, filepath.Join(b, run.BenchFile)), DefaultOptions); got.Verdict != r.Verdict {
		t.Errorf("folder against file: %q", got.Verdict)
	}
}

// TestBenchstatAgrees checks that benchstat computes the same medians, intervals, deltas and
// probabilities from the same files.
func TestBenchstatAgrees(t *testing.T) {
	if testing.Short() {
		t.Skip("builds benchstat")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here to run benchstat with")
	}
	a, b := slowed(t)
	fileA, fileB := filepath.Join(a, run.BenchFile), filepath.Join(b, run.BenchFile)
	cmd := exec.Command("go", "tool", "benchstat", "-format", "csv", fileA, fileB)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("benchstat: %v\n%s", err, stderr.Bytes())
	}
	r := compare(t, read(t, fileA), read(t, fileB), DefaultOptions)
	in := csv.NewReader(bytes.NewReader(out))
	in.FieldsPerRecord = -1
	lines, err := in.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	unit, cells := "", 0
	for _, f := range lines {
		switch {
		case len(f) < 3 || f[0] == "geomean" || slices.Contains(f, fileA):
			continue
		case f[0] == "":
			unit = f[1]
			continue
		}
		c := r.cell(t, unit, f[0])
		want := []string{f[0], fmt.Sprint(c.A.Center), c.A.PctRangeString()}
		if c.B.N > 0 {
			want = append(want, fmt.Sprint(c.B.Center), c.B.PctRangeString(), c.Comparison.FormatDelta(c.A.Center, c.B.Center), c.Comparison.String())
		}
		if !slices.Equal(f[:len(want)], want) {
			t.Errorf("%s\n benchstat %q\nours      %q", unit, f, want)
		}
		cells++
	}
	ours := 0
	for _, table := range r.Tables {
		ours += len(table.Cells)
	}
	if cells != ours || cells == 0 {
		t.Errorf("benchstat has %d cells, we have %d", cells, ours)
	}
}

// TestGolden checks the text and the JSON of a report.
func TestGolden(t *testing.T) {
	a, b := slowed(t)
	only := DefaultOptions
	only.Filter = "/mask:causal /seq:2048"
	r := compare(t, read(t, a), read(t, b), only)
	r.A, r.B = "A", "B"
	var text, js bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(js.Bytes()) {
		t.Error("the JSON is none")
	}
	for name, got := range map[string][]byte{"compare.txt": text.Bytes(), "compare.json": js.Bytes()} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// the last digits differ between architectures: some fuse a product and a sum
		if digits := regexp.MustCompile(`(\.[0-9]{12})[0-9]+`); !bytes.Equal(digits.ReplaceAll(got, []byte("$1")), digits.ReplaceAll(want, []byte("$1"))) {
			t.Errorf("%s differs; -update accepts it:\n%s", path, got)
		}
	}
}

// TestBadInput checks the errors for bad options and bad files.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	folder := filepath.Join(dir, "run")
	runtest.Make(t, folder, runtest.Model{Samples: 1})
	journal := filepath.Join(folder, run.JournalFile)
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journal, append([]byte("{}\n"), data...), 0o644); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(dir, "begun")
	j, err := run.Create(begun, run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for path, want := range map[string]string{
		begun:                            "ended before its first sample: resume it",
		filepath.Join(dir, "absent"):     "no such file",
		write("empty.txt", "PASS\nok\n"): "no benchmark results",
		dir:                              "not a run folder",
		folder:                           ":1: damaged",
	} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", path, err, want)
		}
	}
	s := read(t, write("half.txt", "BenchmarkX 1 5 ns/op\nBenchmarkY 1 many ns/op\nBenchmarkZ 1 NaN ns/op\n"))
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "half.txt:2") {
		t.Errorf("warnings %q", s.Warnings)
	}
	if r := compare(t, s, s, DefaultOptions); len(r.Tables[0].Cells) != 1 {
		t.Errorf("a value that is no number was kept: %+v", r.Tables[0].Cells)
	}
	other := bench("widgets", ramp(6, 1))
	if _, err := Compare(s, other, DefaultOptions); err == nil || !strings.Contains(err.Error(), "no benchmark in common") {
		t.Errorf("nothing in common: %v", err)
	}
	for _, o := range []Options{{}, {Alpha: 2}, {Alpha: 0.05, Effect: -1}, {Alpha: 0.05, Effect: math.NaN()}, {Alpha: 0.05, Filter: "(("}} {
		if _, err := Compare(other, other, o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	one := func(better string) *Source {
		s, err := parse("x", []byte("Unit widgets better="+better+"\nBenchmarkX 1 5 widgets\n"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if _, err := Compare(one("higher"), one("lower"), DefaultOptions); err == nil || !strings.Contains(err.Error(), "unit widgets") {
		t.Errorf("directions that disagree: %v", err)
	}
}
