package reports

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
	"attnlab/internal/canvas"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
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
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what was written; -update accepts it:\n%s", path, got)
	}
}

// TestGolden compares the table and report.md of a run with those in testdata.
func TestGolden(t *testing.T) {
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Drop: func(p run.Point) bool {
		return p.Kernel == "flash" && p.SeqKV == 512
	}})
	r.Meta.Peaks = []run.Peak{
		{ISA: "go", Flop: 5e9}, {ISA: "avx2", Flop: 1.6e10, PerCycle: 31.9}, {ISA: "avx512", Flop: 2e10, PerCycle: 48, Doubt: "48 FLOP per cycle is neither 32 nor 64"},
	}
	var text, md bytes.Buffer
	if err := Table(&text, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", text.Bytes())
	if err := Markdown(&md, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.md", md.Bytes())
}

// oddRun returns a run of two lengths of decoding without memory or accuracy, and of points of
// other groups that were never measured.
func oddRun(t *testing.T) *run.Run {
	t.Helper()
	j, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, p := range []run.Point{
		{Kernel: "flash", SeqQ: 1, SeqKV: 4096},
		{Kernel: "flash", SeqQ: 1, SeqKV: 8192},
		{Kernel: "flash", SeqKV: 4096, Mask: "window:16:0", Features: "lse"},
		{Kernel: "linear", SeqKV: 4096, Op: "linear"},
		{Kernel: "linear", SeqKV: 4096, Op: "linear", Features: "relu+1"},
	} {
		p.ISA, p.Dim = "go", 64
		p = p.WithDefaults()
		if err := j.Append(run.Record{Plan: &run.Plan{Point: p, Flop: 1e6, Bytes: 1e6}}); err != nil {
			t.Fatal(err)
		}
		if p.SeqQ != 1 {
			continue
		}
		for round := range 6 {
			v := run.Visit{Point: p.Name(), Round: round, Calls: 1, Wall: 1e6, CPU: 1e6, Before: 2e9, After: 2e9, Unit: run.ProbeBytes}
			if err := j.Append(run.Record{Visit: &v}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return j.Run()
}

// costlyRun returns a run in which a point with a feature has half the rate of the plain one, and a
// point in int8 takes a third of its time.
func costlyRun(t *testing.T) *run.Run {
	t.Helper()
	j, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, c := range []struct {
		point run.Point
		flop  int64
		ns    int64
		unit  string
	}{
		{run.Point{SeqKV: 4096}, 1e6, 1e6, run.ProbeFlop},
		{run.Point{SeqKV: 4096, Features: "bool"}, 9e5, 18e5, run.ProbeFlop},
		{run.Point{SeqKV: 4096, Mask: "window:16:0", Features: "lse"}, 1e6, 1e6, run.ProbeFlop},
		{run.Point{SeqQ: 1, SeqKV: 8192}, 1e6, 3e6, run.ProbeBytes},
		{run.Point{SeqQ: 1, SeqKV: 8192, Store: "int8"}, 1e6, 1e6, run.ProbeBytes},
	} {
		p := c.point
		p.Kernel, p.ISA, p.Dim = "flash", "go", 64
		p = p.WithDefaults()
		if err := j.Append(run.Record{Plan: &run.Plan{Point: p, Flop: c.flop, Bytes: 1e6}}); err != nil {
			t.Fatal(err)
		}
		for round := range 7 {
			v := run.Visit{Point: p.Name(), Round: round, Calls: 1, Wall: c.ns, CPU: c.ns, Before: 2e9, After: 2e9, Unit: c.unit}
			if err := j.Append(run.Record{Visit: &v}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return j.Run()
}

// TestCosts checks the lines on the cost of features, of points that have a plain one beside them.
func TestCosts(t *testing.T) {
	r := costlyRun(t)
	var text, md bytes.Buffer
	if err := Table(&text, r); err != nil {
		t.Fatal(err)
	}
	if err := Markdown(&md, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n  kernel    with        against                                                       seq  speed   from     to  rounds\n",
		"\n  flash go  bool        forward, full mask, one head, d = 64, one thread             4096  0.500  0.500  0.500       7\n",
		"\n  flash go  store int8  forward, full mask, one head, one query, d = 64, one thread  8192   3.00   3.00   3.00       7\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	const line = "| flash go | bool | forward, full mask, one head, d = 64, one thread | 4096 | 0.500 | 0.500 | 0.500 | 7 |\n"
	if !strings.Contains(md.String(), "## What features cost\n") || !strings.Contains(md.String(), line) {
		t.Errorf("the report lacks %q:\n%s", line, md.String())
	}
	if strings.Contains(md.String(), "lse |") {
		t.Error("a point is compared with one that the run does not have")
	}
}

// TestGroups checks the groups and series of a run, and their names.
func TestGroups(t *testing.T) {
	var got []string
	for _, g := range groups(oddRun(t).Rows()) {
		var labels []string
		for _, s := range g.series {
			labels = append(labels, s.label())
		}
		got = append(got, fmt.Sprintf("%s | %s | %v | %s", g.title(), g.slug(), g.seqs, strings.Join(labels, ", ")))
	}
	want := []string{
		"forward, full mask, one head, one query, d = 64, one thread | forward-full-heads1-seqq1-dim64-threads1 | [4096 8192] | flash go",
		"forward, window:16:0 mask, one head, d = 64, with lse, one thread | forward-window-16-0-heads1-dim64-featureslse-threads1 | [4096] | flash go",
		"forward, full mask, one head, d = 64, one thread | forward-full-heads1-dim64-threads1 | [4096] | linear go, linear go relu+1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOddRuns checks that no figure is invented for a run that lacks most figures, or holds
// nothing.
func TestOddRuns(t *testing.T) {
	r := oddRun(t)
	var text, md bytes.Buffer
	if err := Table(&text, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"of bandwidth", "50.0 %", "skipped: linear go relu+1"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &text)
		}
	}
	if err := Markdown(&md, r); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(text.String()+md.String(), bad) {
			t.Errorf("%s is shown as a number", bad)
		}
	}
	if err := Write(r.Dir); err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Glob(filepath.Join(r.Dir, run.PlotsDir, "*.svg"))
	if err != nil || len(charts) != 2 {
		t.Errorf("one group has two lengths, a time and a rate: got %q, %v", charts, err)
	}

	j, err := run.Create(filepath.Join(t.TempDir(), "empty"), run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := Write(j.Run().Dir); err != nil {
		t.Errorf("an empty run: %v", err)
	}
}

// TestEnding checks that a run that was cut off is not reported as ended, although earlier sessions
// of it ended.
func TestEnding(t *testing.T) {
	p := run.Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8}.WithDefaults()
	j, err := run.Create(filepath.Join(t.TempDir(), "r"), run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	const cut = "The run was cut off; resume it to finish it."
	for i, step := range []struct {
		rec  run.Record
		want string
	}{
		{run.Record{Plan: &run.Plan{Point: p, Flop: 1}}, cut},
		{run.Record{End: &run.End{Reason: "interrupted"}}, "The run is not complete: interrupted."},
		{run.Record{End: &run.End{Reason: "all samples are taken", Complete: true}}, "The run ended: all samples are taken."},
		{run.Record{Visit: &run.Visit{Point: p.Name(), Calls: 1, Wall: 1000}}, cut},
	} {
		if err := j.Append(step.rec); err != nil {
			t.Fatal(err)
		}
		if got := ending(j.Run()); got != step.want {
			t.Errorf("after record %d: got %q, want %q", i, got, step.want)
		}
	}
}

// TestWriteLongNames checks that a point with many features has charts, and that pages are written
// even if charts cannot be.
func TestWriteLongNames(t *testing.T) {
	const many = "temp:0.12345678901234567+softcap:30.123456789012345+bias+alibi+sinks+relative-clipped:16+metric-rect:32+rope-halves+packed:0.25+ragged-alone:16+lengths+lse+mean+entropy+argmax+weights+scores"
	j, err := run.Create(filepath.Join(t.TempDir(), "long"), run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, seq := range []int{64, 128} {
		p := run.Point{Kernel: "flash", ISA: "go", Batch: 16, HeadsQ: 8, HeadsKV: 2, SeqKV: seq, Dim: 64, Layout: "bshd", Features: many, Mask: "window:1024:1024"}.WithDefaults()
		for _, rec := range []run.Record{{Plan: &run.Plan{Point: p, Flop: 1}}, {Visit: &run.Visit{Point: p.Name(), Calls: 1, Wall: 1000}}} {
			if err := j.Append(rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := j.Run().Dir
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, run.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := filepath.Glob(filepath.Join(dir, run.PlotsDir, "*.svg"))
	if err != nil || len(drawn) == 0 {
		t.Fatalf("no charts: %v", err)
	}
	for _, path := range drawn {
		if !bytes.Contains(report, []byte("("+run.PlotsDir+"/"+filepath.Base(path)+")")) {
			t.Errorf("%s does not show %s", run.ReportFile, path)
		}
	}
	for _, name := range []string{run.PlotsDir, run.HTMLFile, run.ReportFile} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, run.PlotsDir), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir); err == nil {
		t.Error("drew into a file")
	}
	for _, name := range []string{run.HTMLFile, run.ReportFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestPlots checks that every chart of a run exists in both formats: the PNG has the colour of
// every line, the SVG its name.
func TestPlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	runtest.Make(t, dir, runtest.Model{})
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, run.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	err = filepath.WalkDir(filepath.Join(dir, run.PlotsDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		count++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".svg":
			for _, s := range []string{"naive go", "tiled blas", "tiled go", "flash go", "linear go", "sequence length", ">2048<"} {
				if !bytes.Contains(data, []byte(s)) {
					t.Errorf("%s lacks %q", path, s)
				}
			}
			if link := "(" + run.PlotsDir + "/" + e.Name() + ")"; !bytes.Contains(report, []byte(link)) {
				t.Errorf("%s does not show %s", run.ReportFile, link)
			}
		case ".png":
			img, err := png.Decode(bytes.NewReader(data))
			if err != nil {
				return err
			}
			if testing.Short() {
				return nil // the pixels take a while
			}
			seen := map[[3]uint32]bool{}
			for y := range img.Bounds().Dy() {
				for x := range img.Bounds().Dx() {
					r, g, b, _ := img.At(x, y).RGBA()
					seen[[3]uint32{r >> 8, g >> 8, b >> 8}] = true
				}
			}
			for _, c := range canvas.Colors[:4] {
				if !seen[[3]uint32{uint32(c.R), uint32(c.G), uint32(c.B)}] {
					t.Errorf("%s has nothing in colour %v", path, c)
				}
			}
		default:
			t.Errorf("%s is no chart", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * len(charts) * 2; count != want {
		t.Errorf("%d files, want %d: two groups, four charts, two formats", count, want)
	}
}

// TestLogTicks checks that every axis has some two to nine labels, inside its range and ascending.
func TestLogTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]float64{2, 10}).Draw(t, "base")
		low := math.Pow(10, rapid.Float64Range(-9, 9).Draw(t, "low"))
		// panel has a range of 2.25 or more.
		high := low * math.Pow(10, rapid.Float64Range(math.Log10(2.25), 9).Draw(t, "range"))
		labels, last := 0, 0.0
		for _, tick := range logTicks(low, high, base, tickNumber) {
			if !(tick.Value >= low && tick.Value <= high && tick.Value > last) {
				t.Fatalf("tick %v after %v in %v to %v", tick.Value, last, low, high)
			}
			last = tick.Value
			if tick.Label != "" {
				labels++
			}
		}
		if labels < 1 || labels > 11 {
			t.Fatalf("%d labels in %v to %v", labels, low, high)
		}
	})
}

// TestNumbers checks how numbers are formatted.
func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{seconds(1234), "1.234 µs"},
		{seconds(12.5e6), "12.50 ms"},
		{seconds(3e9), "3.000 s"},
		{seconds(math.NaN()), ""},
		{size(0), "0 B"},
		{size(25600), "25.00 KiB"},
		{size(100), "100.0 B"},
		{size(3 << 30), "3.000 GiB"},
		{percent(0.4567), "45.7 %"},
		{percent(1), "100 %"},
		{percent(math.NaN()), ""},
		{digits(0.25, 2), "0.25"},
		{digits(12345, 3), "1.23e+04"},
		{digits(0, 3), "0"},
		{digits(math.Inf(1), 3), "+Inf"},
		{digits(999.9, 3), "1000"},
		{within(100, 99, 102), "± 2.0 %"},
		{within(100, math.NaN(), 102), ""},
		{tickSeconds(2e-3), "2 ms"},
		{tickSeconds(5e-9), "5 ns"},
		{tickBytes(1 << 20), "1 MiB"},
		{tickBytes(512), "512 B"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestMarkdownHostile checks that texts of a run stay texts in report.md: each table keeps its
// columns, and no element, code or image is added.
func TestMarkdownHostile(t *testing.T) {
	const evil = "a|b\nc`d`<img src=x>![e](f)|*g*"
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{
		Samples: 6,
		Meta: func(m *run.Meta) {
			m.Machine.CPU, m.Commit.Revision, m.Command = evil, "<b>|", []string{evil}
			m.Noise = map[string]string{evil: evil}
			m.Peers = map[string]string{evil: evil}
			m.Peaks = []run.Peak{{ISA: evil, Flop: 1e9, Doubt: evil}}
		},
		Edit: func(rec *run.Record) {
			switch {
			case rec.Skip != nil:
				rec.Skip.Reason = evil
			case rec.Fail != nil:
				rec.Fail.Reason = evil
			case rec.End != nil:
				rec.End.Reason = evil
			}
		},
	})
	r.Warnings = []string{evil}
	var b bytes.Buffer
	if err := Markdown(&b, r); err != nil {
		t.Fatal(err)
	}
	const shown = "a\\|b c\\`d\\`&lt;img src=x>!\\[e\\](f)\\|\\*g\\*"
	for _, want := range []string{
		"# Attention kernels on " + shown + "\n", "\nWarning: " + shown + "\n", "| commit | &lt;b>\\| |\n", "| command | " + shown + " |\n",
		"| " + shown + " | " + shown + " |\n", "| peer " + shown + " | " + shown + " |\n", "| skipped | ", " | " + shown + " |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not hold %q", want)
		}
	}
	text, _, _ := strings.Cut(strings.ReplaceAll(b.String(), shown, ""), "## How to read this")
	columns := 0
	for line := range strings.Lines(text) {
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = n
		}
		if n != columns {
			t.Errorf("%d bars in %q, want %d", n, line, columns)
		}
	}
	if i := strings.IndexAny(text, "<`"); i >= 0 {
		t.Errorf("the report holds an element or code: %.80q", text[i:])
	}
}
