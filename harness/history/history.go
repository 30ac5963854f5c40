// Package history follows every cell through the runs that are kept of a machine, and names the
// commit where its speed steps.
//
// Runs stand in DIR/MACHINE/COMMIT/, as package gate keeps its baselines: whatever names the
// folders have, a run's place in the series is when it began, and its commit is what run.json says.
// A cell's series is one of its shares of the peak or of the bandwidth; where fewer than half of
// the runs that timed it have such a share, it is one of its calls a second. Its steps are those of
// stats.ChangePoints, of medians on both sides; a step lies after the last run before it and begins
// with the run it names, or with a commit between the two if not every commit was measured.
//
// A kernel that names another path (attn.Tuned) is another kernel, with a series of its own. A run
// that names no path continues the newest series of a point.
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
	Runs  []*run.Run // in the order they began
	Cells []*Cell    // in the order in which runs first have them
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
	Was, Is      float64  // medians of the values up to it, back to the step before, and from it, on to the next
	Change       float64  // relative: below 0 is slower
	Machine      []string // what else changed between the two runs, of what measurements depend on
}

// Read reads the history of all machines in a folder. A folder that lacks what makes it a run is
// left out, with a warning; a damaged run is an error.
func Read(dir string) (machines []*Machine, warnings []string, err error) {
	names, err := folders(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		commits, err := folders(filepath.Join(dir, name))
		if err != nil {
			return nil, nil, err
		}
		var runs []*run.Run
		for _, c := range commits {
			r, err := run.Load(filepath.Join(dir, name, c))
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
		return nil, nil, fmt.Errorf("%s: no runs in it; they stand in %s", dir, filepath.Join(dir, "MACHINE", "COMMIT"))
	}
	return machines, warnings, nil
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

func newMachine(name string, runs []*run.Run) *Machine {
	slices.SortStableFunc(runs, func(a, b *run.Run) int { return a.Meta.Started.Compare(b.Meta.Started) })
	m := &Machine{Name: name, Runs: runs}
	rows := map[*Cell][]*run.Row{} // one a run, or nil
	known := map[string][]*Cell{}  // by name
	for i, r := range runs {
		for _, at := range r.Cells {
			name := at.Point.Name()
			c := continued(known[name], at.Path)
			if c == nil {
				c = &Cell{Name: name, kernel: at.Point.Contender(), begin: i, Split: len(known[name]) > 0}
				rows[c] = make([]*run.Row, len(runs))
				m.Cells, known[name] = append(m.Cells, c), append(known[name], c)
				known[name][0].Split = c.Split
			}
			c.Path = cmp.Or(c.Path, at.Path)
			w := at.Row()
			rows[c][i] = &w
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
	c.At, c.Values = series(func(w *run.Row) float64 { return 1e9 / w.Ns })
	peakAt, peaks := series(func(w *run.Row) float64 { return w.Peak })
	bandwidthAt, bandwidths := series(func(w *run.Row) float64 { return w.Bandwidth })
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
