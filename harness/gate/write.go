package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/stats"
	"attnlab/internal/markdown"
)

// change describes how the speed of a cell changed.
func (c *Cell) change() string {
	direction := "faster"
	if c.Change < 0 {
		direction = "slower"
	}
	text := fmt.Sprintf("%.1f %% %s: ", 100*math.Abs(c.Change), direction)
	switch c.By {
	case ByPeak:
		return text + fmt.Sprintf("%.3g %% of the peak, was %.3g %%", 100*c.Run.Median, 100*c.Base.Median)
	case ByBandwidth:
		return text + fmt.Sprintf("%.3g %% of the bandwidth, was %.3g %%", 100*c.Run.Median, 100*c.Base.Median)
	}
	return text + fmt.Sprintf("%.4g calls a second, was %.4g", c.Run.Median, c.Base.Median)
}

// String names a side for people.
func (s Side) String() string {
	return fmt.Sprintf("%s (%v, %s)", s.Dir, s.Commit, s.Started.UTC().Format(time.DateTime))
}

// summary returns the verdict as one line.
func (r *Report) summary() string {
	return fmt.Sprintf("%s: of %d cells %d regressed, %d undecided, %d passed, %d not judged (least effect %g %%, alpha %g)", r.Verdict, len(r.Cells),
		r.Count(Regressed), r.Count(Undecided), r.Count(Passed), r.Count(Unjudged), 100*r.Options.Effect, r.Options.Alpha)
}

// An entry is the findings of one cell, which stands for all cells with the same findings.
type entry struct {
	verdict Verdict
	cell    string
	more    string // the number of other cells, in words
	texts   []string
}

// entries returns the entries of a report, the worst first. Each cell that regressed has its own.
// One entry stands for all other cells with the same findings, such as missing ones.
func (r *Report) entries() []entry {
	var list []entry
	more := map[string]int{}
	at := map[string]int{}
	for _, c := range r.Cells {
		if len(c.Findings) == 0 {
			continue
		}
		e := entry{verdict: c.Verdict, cell: c.Name}
		for _, f := range c.Findings {
			e.texts = append(e.texts, f.Text)
		}
		key := string(c.Verdict) + strings.Join(e.texts, "\n")
		if _, seen := at[key]; seen && c.Verdict != Regressed {
			more[key]++
			continue
		}
		at[key] = len(list)
		list = append(list, e)
	}
	for key, n := range more {
		list[at[key]].more = fmt.Sprintf(" and %d more", n)
	}
	slices.SortStableFunc(list, func(a, b entry) int { return slices.Index(verdicts, b.verdict) - slices.Index(verdicts, a.verdict) })
	return list
}

// WriteText writes the report for a terminal: the cells with findings, and the verdict last.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "baseline: %v\nrun:      %v\n\n", r.Baseline, r.Run)
	for _, e := range r.entries() {
		fmt.Fprintf(&b, "%-10s  %s%s\n", e.verdict, e.cell, e.more)
		for _, text := range e.texts {
			fmt.Fprintf(&b, "            %s\n", text)
		}
	}
	for _, s := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", s)
	}
	fmt.Fprintln(&b, r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the report as a comment on a pull request: the verdict, and a table of the
// cells with findings.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**benchrun gate: %s**\n\n", r.summary())
	if list := r.entries(); len(list) > 0 {
		b.WriteString("| verdict | cell | what |\n| --- | --- | --- |\n")
		for _, e := range list {
			for i, text := range e.texts {
				e.texts[i] = markdown.Escape(text)
			}
			fmt.Fprintf(&b, "| %s | `%s`%s | %s |\n", e.verdict, e.cell, e.more, strings.Join(e.texts, "<br>"))
		}
		b.WriteByte('\n')
	}
	for _, s := range r.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n\n", markdown.Escape(s))
	}
	fmt.Fprintf(&b, "Baseline `%v`, run `%v`.\n", r.Baseline, r.Run)
	_, err := io.WriteString(w, b.String())
	return err
}

// The types below are the JSON form. A number that was not measured is null.
type jsonSide struct {
	Dir     string     `json:"dir"`
	Commit  run.Commit `json:"commit"`
	Started time.Time  `json:"started"`
}

type jsonSample struct {
	N      int      `json:"n"`
	Median *float64 `json:"median"`
	Lo     *float64 `json:"lo"`
	Hi     *float64 `json:"hi"`
}

type jsonSpeed struct {
	By     string     `json:"by"`
	Effect float64    `json:"effect"`
	Base   jsonSample `json:"base"`
	Run    jsonSample `json:"run"`
	Change *float64   `json:"change"`
	Top    *float64   `json:"change_of_best"`
	P      *float64   `json:"p_holm"`
}

type jsonExact struct {
	Unit string   `json:"unit"`
	Base *float64 `json:"base"`
	Run  *float64 `json:"run"`
}

type jsonFinding struct {
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`
}

type jsonCell struct {
	Name     string        `json:"name"`
	Verdict  Verdict       `json:"verdict"`
	Findings []jsonFinding `json:"findings,omitempty"`
	Speed    *jsonSpeed    `json:"speed,omitempty"`
	Exact    []jsonExact   `json:"exact,omitempty"`
}

type jsonReport struct {
	Baseline jsonSide   `json:"baseline"`
	Run      jsonSide   `json:"run"`
	Alpha    float64    `json:"alpha"`
	Effect   float64    `json:"effect"`
	Verdict  Verdict    `json:"verdict"`
	Warnings []string   `json:"warnings,omitempty"`
	Cells    []jsonCell `json:"cells"`
}

// WriteJSON writes the report, with all its cells, as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := jsonReport{
		Baseline: jsonSide(r.Baseline), Run: jsonSide(r.Run), Alpha: r.Options.Alpha, Effect: r.Options.Effect, Verdict: r.Verdict, Warnings: r.Warnings,
	}
	for _, c := range r.Cells {
		j := jsonCell{Name: c.Name, Verdict: c.Verdict}
		for _, f := range c.Findings {
			j.Findings = append(j.Findings, jsonFinding(f))
		}
		if c.By != "" {
			j.Speed = &jsonSpeed{c.By, c.Effect, sample(c.Base), sample(c.Run), stats.Number(c.Change), stats.Number(c.Top), stats.Number(c.P)}
		}
		for _, x := range c.Exact {
			j.Exact = append(j.Exact, jsonExact{x.Unit, stats.Number(x.Base), stats.Number(x.Run)})
		}
		out.Cells = append(out.Cells, j)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func sample(s stats.Summary) jsonSample {
	return jsonSample{N: s.N, Median: stats.Number(s.Median), Lo: stats.Number(s.Lo), Hi: stats.Number(s.Hi)}
}
