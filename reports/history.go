package reports

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"attnlab/harness/history"
	"attnlab/harness/run"
)

// A historyPage is what the template of the history shows.
type historyPage struct {
	CSS       template.CSS
	JS        template.JS
	Live      string // always empty: the page does not renew itself
	Title     string
	LeastRuns int
	Machines  []historyMachine
	Data      []trendMachine
}

// A historyMachine is the part of the page on one machine that can be read without a script.
type historyMachine struct {
	ID, Name string
	Cards    []pageCard
	Warnings []string
	Steps    *pageTable
}

// A trendMachine is what the script draws from.
type trendMachine struct {
	Name  string      `json:"name"`
	Runs  []trendRun  `json:"runs"`
	Cells []trendCell `json:"cells"`
}

type trendRun struct {
	Commit string `json:"commit"`
	Day    string `json:"day"`
}

type trendCell struct {
	Title  string      `json:"title"`
	Keys   trendKeys   `json:"keys"`
	By     string      `json:"by"`
	Share  bool        `json:"share"` // whether values are shares rather than calls a second
	At     []int       `json:"at"`    // indices of runs
	Values []float64   `json:"values"`
	Steps  []trendStep `json:"steps"`
}

// trendKeys are the properties by which a reader chooses cells, in the order of the filters.
type trendKeys struct {
	Machine string `json:"machine"`
	Kernel  string `json:"kernel"`
	pageKeys
	Seq string `json:"seq"`
}

type trendStep struct {
	Begin  int     `json:"begin"` // the index of a run
	Was    float64 `json:"was"`
	Is     float64 `json:"is"`
	Change string  `json:"change"`
}

// History writes the trends of all machines as one page that needs no other file and no network.
func History(w io.Writer, machines []*history.Machine) error {
	p := historyPage{
		CSS: pageCSS, JS: script(chartJS, historyJS), Title: "Attention kernels, commit by commit", LeastRuns: history.LeastRuns, Data: []trendMachine{},
	}
	for i, m := range machines {
		points := map[string]*run.Row{} // by name, without numbers
		for _, r := range m.Runs {
			for i := range r.Rows {
				points[r.Rows[i].Name()] = &run.Row{Point: r.Rows[i].Point}
			}
		}
		p.Machines = append(p.Machines, historyMachine{
			ID: fmt.Sprintf("machine-%d", i+1), Name: m.Name, Cards: historyCards(m), Warnings: historyWarnings(m), Steps: stepTable(m, points),
		})
		p.Data = append(p.Data, trends(m, points))
	}
	return historyTemplate.Execute(w, p)
}

func day(r *history.Run) string { return r.Meta.Started.UTC().Format(time.DateOnly) }

func historyCards(m *history.Machine) []pageCard {
	slower, faster, steady := 0, 0, 0
	for _, c := range m.Cells {
		if len(c.Steps) == 0 {
			steady++
		}
		for _, s := range c.Steps {
			if s.Change < 0 {
				slower++
			} else {
				faster++
			}
		}
	}
	first, last := m.Runs[0], m.Runs[len(m.Runs)-1]
	runs := pageCard{
		Title: "Runs", Value: fmt.Sprint(len(m.Runs)), Text: fmt.Sprintf("%v of %s to %v of %s.", first.Meta.Commit, day(first), last.Meta.Commit, day(last)),
	}
	if len(m.Runs) < history.LeastRuns {
		runs.Tone = "warn"
		runs.Text += fmt.Sprintf(" %d are the fewest that can show a step.", history.LeastRuns)
	}
	down := pageCard{Title: "Steps down", Tone: "good", Value: fmt.Sprint(slower), Text: "Changes of a cell to a lower speed that lasted."}
	if slower > 0 {
		down.Tone = "bad"
	}
	return []pageCard{
		down,
		{Title: "Steps up", Tone: "good", Value: fmt.Sprint(faster), Text: "Changes of a cell to a higher speed that lasted."},
		{Title: "Steady", Value: fmt.Sprintf("%d of %d", steady, len(m.Cells)), Text: "Cells without a step."},
		runs,
	}
}

func historyWarnings(m *history.Machine) []string {
	var list []string
	for _, r := range m.Runs {
		list = append(list, r.Warnings...)
	}
	return append(list, m.Paths()...)
}

// stepTable returns a table with a line for each step, the newest first.
func stepTable(m *history.Machine, points map[string]*run.Row) *pageTable {
	type line struct {
		begin int
		cells []string
	}
	var lines []line
	for _, c := range m.Cells {
		for _, s := range c.Steps {
			begin := m.Runs[s.Begin]
			lines = append(lines, line{s.Begin, []string{
				change(s.Change), c.Title(spoken(points[c.Name])), begin.Meta.Commit.String(), day(begin), m.Runs[s.After].Meta.Commit.String(),
				c.Format(s.Was), c.Format(s.Is), c.By, strings.Join(s.Machine, "; "),
			}})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return b.begin - a.begin })
	var sorted [][]string
	for _, l := range lines {
		sorted = append(sorted, l.cells)
	}
	return table("Steps on "+m.Name, []string{"change", "cell", "begins at", "of", "after", "was", "is", "what", "the machine changed too"}, sorted)
}

// change formats a relative change with its sign. A change from zero has no number.
func change(x float64) string {
	if math.IsInf(x, 0) {
		return "from zero"
	}
	return strings.Replace(fmt.Sprintf("%+.1f %%", 100*x), "-", "\u2212", 1)
}

func trends(m *history.Machine, points map[string]*run.Row) trendMachine {
	t := trendMachine{Name: m.Name, Cells: []trendCell{}}
	for _, r := range m.Runs {
		t.Runs = append(t.Runs, trendRun{r.Meta.Commit.String(), day(r)})
	}
	for _, c := range m.Cells {
		if len(c.Values) == 0 {
			continue
		}
		w := points[c.Name]
		parts, features := groupParts(w.Point)
		tc := trendCell{
			Title: c.Title(spoken(w)), By: c.By, Share: c.Share(), At: c.At, Values: c.Values, Steps: []trendStep{},
			Keys: trendKeys{m.Name, strings.TrimSpace(w.Kernel + " " + w.ISA + " " + features), keysOf(parts), fmt.Sprint(w.SeqKV)},
		}
		for _, s := range c.Steps {
			tc.Steps = append(tc.Steps, trendStep{s.Begin, s.Was, s.Is, change(s.Change)})
		}
		t.Cells = append(t.Cells, tc)
	}
	return t
}
