package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"attnlab/harness/gate"
	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// chosen is the cell whose speed steps.
const chosen = "Attention/kernel=flash/isa=go/pass=forward/mask=full/heads=1/seq=512/dim=64/threads=1"

// keep makes the n-th run of a machine. Folders are named so that their order is not that of the
// runs.
func keep(t *testing.T, machine string, n int, m runtest.Model) {
	t.Helper()
	m.Seed, m.Samples, m.Masks = uint64(n), 1, []string{"full"}
	change := m.Meta
	m.Meta = func(meta *run.Meta) {
		meta.Commit = run.Commit{Revision: commit(n)}
		meta.Started = meta.Started.Add(time.Duration(n) * 24 * time.Hour)
		if change != nil {
			change(meta)
		}
	}
	runtest.Make(t, filepath.Join(machine, fmt.Sprintf("%02d", 99-n)), m)
}

func commit(n int) string { return fmt.Sprintf("%012x%028d", 0xabc000+n, 0) }

// A machine with a step of a tenth at run 12, where the Go version changes too, and one with too
// few runs.
func made(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for n := range 24 {
		m := runtest.Model{Slower: func(p run.Point) float64 {
			if p.Name() == chosen && n >= 12 {
				return 1 / 0.9
			}
			return 1
		}}
		// Two runs know no share of this cell, and most know none of another.
		m.Drop = func(p run.Point) bool {
			return p.Name() == chosen && n%10 == 5 || p.Kernel == "linear" && p.SeqKV == 256 && n > 3
		}
		if n >= 12 {
			m.Meta = func(meta *run.Meta) { meta.Machine.Go = "go1.27" }
		}
		keep(t, filepath.Join(dir, "big"), n, m)
	}
	for n := range 2 {
		keep(t, filepath.Join(dir, "small"), n, runtest.Model{})
	}
	for _, other := range []string{".git", "empty"} {
		if err := os.Mkdir(filepath.Join(dir, other), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestHistory(t *testing.T) {
	machines, warnings, err := Read(made(t))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if len(machines) != 2 || machines[0].Name != "big" || len(machines[0].Runs) != 24 || len(machines[1].Runs) != 2 {
		t.Fatalf("got %+v", machines)
	}
	big := machines[0]
	for i, r := range big.Runs {
		if r.Meta.Commit.Revision != commit(i) {
			t.Fatalf("run %d is of %s", i, r.Meta.Commit)
		}
	}
	if len(big.Cells) != 20 {
		t.Errorf("%d cells, want 20", len(big.Cells))
	}
	for _, c := range big.Cells {
		if c.Name != chosen {
			if len(c.Steps) > 0 {
				t.Errorf("%s has steps %+v", c.Name, c.Steps)
			}
			if strings.Contains(c.Name, "linear") && strings.Contains(c.Name, "seq=256/") && (c.By != gate.ByTime || len(c.Values) != 24) {
				t.Errorf("%s goes by %s, with %d values", c.Name, c.By, len(c.Values))
			}
			if strings.Contains(c.Name, "naive") && strings.Contains(c.Name, "seq=2048/") && len(c.Values) != 0 {
				t.Errorf("%s was skipped and has values %v", c.Name, c.Values)
			}
			continue
		}
		// Runs 5 and 15 have no share.
		if c.By != gate.ByPeak || len(c.At) != 22 {
			t.Errorf("goes by %s, with %d values", c.By, len(c.At))
		}
		if len(c.Steps) != 1 {
			t.Fatalf("steps %+v", c.Steps)
		}
		s := c.Steps[0]
		if s.After != 11 || s.Begin != 12 || !(math.Abs(s.Change+0.1) < 0.01) || !slices.Equal(s.Machine, []string{"Go is go1.27, was go1.26"}) {
			t.Errorf("got %+v", s)
		}
	}
	var text, all, js bytes.Buffer
	if err := WriteText(&text, machines, false); err != nil {
		t.Fatal(err)
	}
	if err := WriteText(&all, machines, true); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&js, machines); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"big: 24 runs", "2026-01-14", "25.2 %  22.7 %", "at " + commit(12)[:12] + " the machine changed too: Go is go1.27", "19 of 20 cells have no step\n", "small: 2 runs", "; 17 runs are the fewest"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if n := strings.Count(all.String(), "Attention/"); n != 40 {
		t.Errorf("all shows %d cells:\n%s", n, all.String())
	}
	var out []jsonMachine
	if err := json.Unmarshal(js.Bytes(), &out); err != nil || len(out) != 2 || len(out[0].Cells) != 20 || out[0].Runs[3].Commit.Revision != commit(3) {
		t.Errorf("the JSON: %v", err)
	}
	t.Log("\n" + text.String())
}

// TestPaths checks that a series is of one path, that runs without a path continue the newest
// one, that a path which comes back continues its own, and that the text names both.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for n, path := range []string{"", "x", "x", "", "y", "", "x"} {
		keep(t, filepath.Join(dir, "m"), n, runtest.Model{Meta: func(m *run.Meta) { m.Paths = run.Paths{"flash/go": path} }})
	}
	machines, _, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	type series struct {
		path string
		at   string
	}
	var got []series
	for _, c := range machines[0].Cells {
		switch {
		case c.Name == chosen:
			got = append(got, series{c.Path, fmt.Sprint(c.At)})
		case !strings.Contains(c.Name, "kernel=flash") && (c.Path != "" || c.Split):
			t.Errorf("%s is on the path %q", c.Name, c.Path)
		}
	}
	if want := []series{{"x", "[0 1 2 3 6]"}, {"y", "[4 5]"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var text, js bytes.Buffer
	if err := errors.Join(WriteText(&text, machines, true), WriteJSON(&js, machines)); err != nil {
		t.Fatal(err)
	}
	note := "at " + commit(4)[:12] + " flash/go took the path y, x before: another kernel, with a series of its own\n"
	for want, n := range map[string]int{note: 1, chosen + ", path x\n": 1, chosen + ", path y\n": 1, ", path ": 8} {
		if strings.Count(text.String(), want) != n {
			t.Errorf("want %q %d times in\n%s", want, n, text.String())
		}
	}
	if n := strings.Count(js.String(), `"path": "y"`); n != 4 {
		t.Errorf("the JSON has %d series of path y, want 4", n)
	}
}

// A series is one kind of value: a share, if half of the runs that timed the cell know it.
func TestChoose(t *testing.T) {
	nan := math.NaN()
	row := func(peak, bandwidth, ns float64) *run.Row {
		return &run.Row{PeakShare: run.Stat{Mid: peak}, BandwidthShare: run.Stat{Mid: bandwidth}, Ns: run.Stat{Mid: ns}}
	}
	for _, c := range []struct {
		rows   []*run.Row
		by     string
		at     []int
		values []float64
	}{
		{[]*run.Row{row(0.5, nan, 100), nil, row(0.25, nan, 200)}, gate.ByPeak, []int{0, 2}, []float64{0.5, 0.25}},
		{[]*run.Row{row(nan, 0.5, 100), row(nan, 0.75, 100)}, gate.ByBandwidth, []int{0, 1}, []float64{0.5, 0.75}},
		{[]*run.Row{row(0.5, nan, 100), row(nan, nan, 200)}, gate.ByPeak, []int{0}, []float64{0.5}},
		{[]*run.Row{row(0.5, nan, 100), row(nan, nan, 200), row(nan, nan, 200)}, gate.ByTime, []int{0, 1, 2}, []float64{1e7, 5e6, 5e6}},
		{[]*run.Row{row(nan, nan, nan), nil}, gate.ByTime, nil, nil},
	} {
		var got Cell
		got.choose(c.rows)
		if got.By != c.by || !slices.Equal(got.At, c.at) || !slices.Equal(got.Values, c.values) {
			t.Errorf("got %+v, want %+v", got, c)
		}
	}
}

func TestLeastRuns(t *testing.T) {
	m := &Machine{}
	for n := range LeastRuns {
		m.Runs = append(m.Runs, &Run{})
		c := &Cell{}
		for i := range n + 1 {
			c.At, c.Values = append(c.At, i), append(c.Values, map[bool]float64{true: 1, false: 2}[i < (n+1)/2]+0.001*float64(i))
		}
		if m.step(c); (len(c.Steps) > 0) != (n+1 == LeastRuns) {
			t.Errorf("%d runs: steps %+v", n+1, c.Steps)
		}
	}
}

// TestReadStrays checks that folders without a run are skipped, and that a run without journal and
// figures, and a journal without its run.json, are left out with a warning each.
func TestReadStrays(t *testing.T) {
	dir := t.TempDir()
	for n := range 3 {
		keep(t, filepath.Join(dir, "m"), n, runtest.Model{})
	}
	missing := []string{filepath.Join(dir, "m", "98", run.JournalFile), filepath.Join(dir, "m", "99", run.MetaFile)}
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "m", "notes", "more"), 0o755),
		os.Remove(missing[0]), os.Remove(filepath.Join(dir, "m", "98", run.CSVFile)),
		os.Remove(missing[1]),
	)
	if err != nil {
		t.Fatal(err)
	}
	machines, warnings, err := Read(dir)
	if err != nil || len(machines) != 1 || len(machines[0].Runs) != 1 {
		t.Fatalf("got %+v, %v", machines, err)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], missing[0]) || !strings.Contains(warnings[1], missing[1]) {
		t.Errorf("got warnings %q, want one for each of %q", warnings, missing)
	}
}

// TestReadFigures checks that runs are read from sweep.csv where that is all that is kept, in
// folders of their own below a commit's too, and that the cells and their steps are those of the
// journals.
func TestReadFigures(t *testing.T) {
	dir := made(t)
	want, _, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 23 { // the newest keeps its journal
		folder := filepath.Join(dir, "big", fmt.Sprintf("%02d", 99-n))
		if err := os.Remove(filepath.Join(folder, run.JournalFile)); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			continue
		}
		err := os.Mkdir(filepath.Join(folder, "night"), 0o755)
		for _, name := range []string{run.MetaFile, run.CSVFile} {
			err = errors.Join(err, os.Rename(filepath.Join(folder, name), filepath.Join(folder, "night", name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, warnings, err := Read(dir)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if !reflect.DeepEqual(got[0].Cells, want[0].Cells) {
		t.Errorf("got cells %+v, want %+v", got[0].Cells, want[0].Cells)
	}
	if night := filepath.Join("98", "night"); !strings.HasSuffix(got[0].Runs[1].Dir, night) {
		t.Errorf("got run %s, want %s", got[0].Runs[1].Dir, night)
	}
	if err := os.WriteFile(filepath.Join(dir, "big", "99", run.CSVFile), []byte("no columns\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(dir); err == nil || !strings.Contains(err.Error(), filepath.Join("99", run.CSVFile)) {
		t.Errorf("damaged figures: %v", err)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	read := func(want string) {
		t.Helper()
		if _, _, err := Read(dir); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
	read("no runs in it")
	keep(t, filepath.Join(dir, "m"), 1, runtest.Model{})
	if _, _, err := Read(dir); err != nil {
		t.Error(err)
	}
	journal := filepath.Join(dir, "m", "98", run.JournalFile)
	if err := os.WriteFile(journal, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read("journal.jsonl:1: damaged")
	dir = filepath.Join(dir, "absent")
	read("no such file")
}
