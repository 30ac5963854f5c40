package history

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"attnlab/harness/gate"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// Share reports whether a cell's values are shares of what the machine can do, and not calls a
// second.
func (c *Cell) Share() bool { return c.By != gate.ByTime }

// Format shows a value of a cell.
func (c *Cell) Format(x float64) string {
	if c.Share() {
		return fmt.Sprintf("%.3g %%", 100*x)
	}
	return fmt.Sprintf("%.4g/s", x)
}

// Title returns the name of a cell, or other words for it, with its path where the name is not
// enough.
func (c *Cell) Title(name string) string {
	if c.Split {
		name += ", path " + c.Path
	}
	return name
}

// Paths returns a note for each kernel that took another path from some run on.
func (m *Machine) Paths() (notes []string) {
	before := map[string]*Cell{} // by name
	for _, c := range m.Cells {
		if b := before[c.Name]; b != nil {
			note := fmt.Sprintf("at %s %s took the path %s, %s before: another kernel, with a series of its own", m.Runs[c.begin].Meta.Commit, c.kernel, c.Path, b.Path)
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
		before[c.Name] = c
	}
	return notes
}

// WriteText writes a table a machine: a line a step, and with all a line for each cell without one.
func WriteText(w io.Writer, machines []*Machine, all bool) error {
	var b strings.Builder
	for i, m := range machines {
		if i > 0 {
			b.WriteByte('\n')
		}
		m.writeText(&b, all)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (m *Machine) writeText(b *strings.Builder, all bool) {
	first, last := m.Runs[0].Meta, m.Runs[len(m.Runs)-1].Meta
	fmt.Fprintf(b, "%s: %d runs, %s of %s to %s of %s\n", m.Name, len(m.Runs),
		first.Commit, first.Started.UTC().Format(time.DateOnly), last.Commit, last.Started.UTC().Format(time.DateOnly))
	for _, r := range m.Runs {
		for _, text := range r.Warnings {
			fmt.Fprintf(b, "warning: %s\n", text)
		}
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	notes := m.Paths()
	steady, lines := 0, 0
	line := func(format string, a ...any) {
		if lines++; lines == 1 {
			fmt.Fprint(tw, "begins at\tof\tafter\tchange\twas\tis\twhat\tcell\n")
		}
		fmt.Fprintf(tw, format, a...)
	}
	for _, c := range m.Cells {
		for _, s := range c.Steps {
			begin, after := m.Runs[s.Begin].Meta, m.Runs[s.After].Meta
			line("%s\t%s\t%s\t%+.1f %%\t%s\t%s\t%s\t%s\n",
				begin.Commit, begin.Started.UTC().Format(time.DateOnly), after.Commit, 100*s.Change, c.Format(s.Was), c.Format(s.Is), c.By, c.Title(c.Name))
			if len(s.Machine) > 0 {
				note := fmt.Sprintf("at %s the machine changed too: %s", begin.Commit, strings.Join(s.Machine, "; "))
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
			}
		}
		if len(c.Steps) > 0 {
			continue
		}
		steady++
		if level := stats.Summarise(c.Values); all && level.N > 0 {
			line("\t\t\t\t\t%s\t%s in %d runs\t%s\n", c.Format(level.Median), c.By, level.N, c.Title(c.Name))
		} else if all {
			line("\t\t\t\t\t\tno numbers\t%s\n", c.Title(c.Name))
		}
	}
	_ = tw.Flush() // into a Builder
	for _, n := range notes {
		fmt.Fprintln(b, n)
	}
	fmt.Fprintf(b, "%d of %d cells have no step", steady, len(m.Cells))
	if len(m.Runs) < LeastRuns {
		fmt.Fprintf(b, "; %d runs are the fewest that can show one", LeastRuns)
	}
	b.WriteByte('\n')
}

// The types below are the JSON form.
type jsonRun struct {
	Dir     string     `json:"dir"`
	Commit  run.Commit `json:"commit"`
	Started time.Time  `json:"started"`
}

type jsonStep struct {
	After   int      `json:"after"` // in runs
	Begin   int      `json:"begin"`
	Was     float64  `json:"was"`
	Is      float64  `json:"is"`
	Change  *float64 `json:"change"` // null from zero
	Machine []string `json:"machine,omitempty"`
}

type jsonCell struct {
	Name   string     `json:"name"`
	Path   string     `json:"path,omitempty"`
	By     string     `json:"by"`
	At     []int      `json:"at,omitempty"` // in runs
	Values []float64  `json:"values,omitempty"`
	Steps  []jsonStep `json:"steps,omitempty"`
}

type jsonMachine struct {
	Name  string     `json:"name"`
	Runs  []jsonRun  `json:"runs"`
	Cells []jsonCell `json:"cells"`
}

// WriteJSON writes all series with their steps as one JSON array of machines.
func WriteJSON(w io.Writer, machines []*Machine) error {
	var out []jsonMachine
	for _, m := range machines {
		jm := jsonMachine{Name: m.Name}
		for _, r := range m.Runs {
			jm.Runs = append(jm.Runs, jsonRun{r.Dir, r.Meta.Commit, r.Meta.Started})
		}
		for _, c := range m.Cells {
			jc := jsonCell{Name: c.Name, Path: c.Path, By: c.By, At: c.At, Values: c.Values}
			for _, s := range c.Steps {
				js := jsonStep{After: s.After, Begin: s.Begin, Was: s.Was, Is: s.Is, Machine: s.Machine}
				if !math.IsInf(s.Change, 0) {
					js.Change = &s.Change
				}
				jc.Steps = append(jc.Steps, js)
			}
			jm.Cells = append(jm.Cells, jc)
		}
		out = append(out, jm)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
