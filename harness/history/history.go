// Package history follows every cell through the runs that are kept of a machine, and names the
// commit where its speed steps.
//
// Runs are in DIR/MACHINE/COMMIT/ or, where a commit has several, in DIR/MACHINE/COMMIT/RUN/. A run
// is read from its journal or, where only its figures are kept, from sweep.csv. Whatever the names
// of the folders, runs are ordered by when they began, and run.json has the commit of each.
//
// The values of a cell are its shares of the peak or of the bandwidth. If fewer than half of the
// runs that timed it have such a share, they are its calls a second. Its steps are those of
// stats.ChangePoints, between the medians of both sides. A step begins with the run that it names,
// or with an earlier commit after the last run before it, if not every commit was measured.
//
// A kernel that names another path (attn.Tuned) is another kernel, whose cells have values of their
// own. A run that names no path, such as one without its journal, continues the newest values of a
// point.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"attnlab/harness/gate"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// LeastRuns is the fewest runs that can show a step: of fewer, no split passes the rank test of
// stats.ChangePoints.
var LeastRuns = func() int {
	n := 2
	for stats.LeastP(n/2, n-n/2) > stats.ChangeLevel {
		n++
	}
	return n
}()

// A Machine is all that is kept of one machine.
type Machine struct {
	Name  string
	Runs  []*Run  // in the order they began
	Cells []*Cell // in the order in which runs first have them
}

// A Run is one kept run.
type Run struct {
	Dir      string
	Meta     run.Meta
	Rows     []run.Row
	Paths    []string // of the kernels of Rows; empty where the run names none
	Warnings []string // about the folder, or that the run is not complete
}

// A Cell is one point through the runs, on one path of its kernel.
type Cell struct {
	Name   string
	Path   string    // of its kernel; empty where no run names one
	Split  bool      // other cells have the same Name, and other paths
	By     string    // what its values are: gate.ByPeak and its like
	At     []int     // the runs that know a value, and
	Values []float64 // the values; more is better
	Steps  []Step

	kernel string // and its instruction set
	begin  int    // the first run that has the cell
}

// A Step is a change of a cell's speed that lasts.
type Step struct {
	After, Begin int      // the last run before it, the first one in it
	Was, Is      float64  // medians of the values on both sides, as far as the steps next to it
	Change       float64  // relative: below 0 is slower
	Machine      []string // what else changed between the two runs, of what measurements depend on
}

// Read reads the history of all machines in a folder. It skips folders that hold no run, and warns
// of a run that lacks its journal and its figures. A damaged run is an error.
func Read(dir string) (machines []*Machine, warnings []string, err error) {
	names, err := folders(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		dirs, err := runFolders(filepath.Join(dir, name))
		if err != nil {
			return nil, nil, err
		}
		var runs []*Run
		for _, d := range dirs {
			r, err := load(d)
			if errors.Is(err, fs.ErrNotExist) {
				warnings = append(warnings, fmt.Sprintf("left out: %v", err))
				continue
			} else if err != nil {
				return nil, nil, err
			}
			runs = append(runs, r)
		}
		if len(runs) > 0 {
			machines = append(machines, newMachine(name, runs))
		}
	}
	if len(machines) == 0 {
		return nil, nil, fmt.Errorf("%s: no runs in it; they are in %s, or in folders of their own below it", dir, filepath.Join(dir, "MACHINE", "COMMIT"))
	}
	return machines, warnings, nil
}

// runFolders lists the folders of a machine's runs: COMMIT and COMMIT/RUN.
func runFolders(machine string) (dirs []string, err error) {
	commits, err := folders(machine)
	if err != nil {
		return nil, err
	}
	for _, c := range commits {
		below, err := folders(filepath.Join(machine, c))
		if err != nil {
			return nil, err
		}
		for _, r := range append([]string{""}, below...) {
			if d := filepath.Join(machine, c, r); exists(d, run.MetaFile) || exists(d, run.JournalFile) {
				dirs = append(dirs, d)
			}
		}
	}
	return dirs, nil
}

// folders lists the folders in a folder, without hidden ones.
func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// load reads a run from its journal, or from its figures where they are all that is kept.
func load(dir string) (*Run, error) {
	if !exists(dir, run.JournalFile) && exists(dir, run.CSVFile) {
		s, err := run.ReadSummary(dir)
		if err != nil {
			return nil, err
		}
		return &Run{Dir: dir, Meta: s.Meta, Rows: s.Rows, Paths: make([]string, len(s.Rows))}, nil
	}
	r, err := run.Load(dir)
	if err != nil {
		return nil, err
	}
	h := &Run{Dir: dir, Meta: r.Meta, Rows: r.Rows(), Warnings: r.Warnings}
	for _, c := range r.Cells {
		h.Paths = append(h.Paths, c.Path)
	}
	if !r.Complete() {
		h.Warnings = append(h.Warnings, dir+": the run is not complete")
	}
	return h, nil
}

func newMachine(name string, runs []*Run) *Machine {
	slices.SortStableFunc(runs, func(a, b *Run) int { return a.Meta.Started.Compare(b.Meta.Started) })
	m := &Machine{Name: name, Runs: runs}
	rows := map[*Cell][]*run.Row{} // one a run, or nil
	known := map[string][]*Cell{}  // by name
	for i, r := range runs {
		for k := range r.Rows {
			w, path := &r.Rows[k], r.Paths[k]
			name := w.Name()
			c := continued(known[name], path)
			if c == nil {
				c = &Cell{Name: name, kernel: w.Contender(), begin: i, Split: len(known[name]) > 0}
				rows[c] = make([]*run.Row, len(runs))
				m.Cells, known[name] = append(m.Cells, c), append(known[name], c)
				known[name][0].Split = c.Split
			}
			c.Path = cmp.Or(c.Path, path)
			rows[c][i] = w
		}
	}
	for _, c := range m.Cells {
		c.choose(rows[c])
		m.step(c)
	}
	return m
}

// continued returns the newest cell of a point that a run on this path continues, or nil.
func continued(cells []*Cell, path string) *Cell {
	for _, c := range slices.Backward(cells) {
		if c.Path == "" || path == "" || c.Path == path {
			return c
		}
	}
	return nil
}

// choose fills a cell's series.
func (c *Cell) choose(rows []*run.Row) {
	series := func(value func(*run.Row) float64) (at []int, values []float64) {
		for i, w := range rows {
			if w == nil {
				continue
			}
			if x := value(w); run.Known(x) {
				at, values = append(at, i), append(values, x)
			}
		}
		return at, values
	}
	c.By = gate.ByTime
	c.At, c.Values = series(func(w *run.Row) float64 { return 1e9 / w.Ns.Mid })
	peakAt, peaks := series(func(w *run.Row) float64 { return w.PeakShare.Mid })
	bandwidthAt, bandwidths := series(func(w *run.Row) float64 { return w.BandwidthShare.Mid })
	switch timed := len(c.At); {
	case len(peaks) > 0 && 2*len(peaks) >= timed:
		c.By, c.At, c.Values = gate.ByPeak, peakAt, peaks
	case len(bandwidths) > 0 && 2*len(bandwidths) >= timed:
		c.By, c.At, c.Values = gate.ByBandwidth, bandwidthAt, bandwidths
	}
}

// step finds the steps of a cell.
func (m *Machine) step(c *Cell) {
	changes := stats.ChangePoints(c.Values)
	levels := stats.Levels(c.Values, changes)
	for i, at := range changes {
		s := Step{After: c.At[at-1], Begin: c.At[at], Was: levels[i], Is: levels[i+1], Change: stats.Delta(levels[i], levels[i+1])}
		s.Machine = m.Runs[s.After].Meta.Machine.Differences(m.Runs[s.Begin].Meta.Machine)
		c.Steps = append(c.Steps, s)
	}
}
