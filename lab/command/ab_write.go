package command

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"attnlab/harness"
	"attnlab/harness/ab"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// writeAB prints a line a cell.
func writeAB(out io.Writer, cells []ab.Cell) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "base\thead\tmedian\tfrom\tto\tleast\tp\trounds\tverdict\t cell\n")
	for _, c := range cells {
		name := c.Points[0].Name()
		if c.Points[0] != c.Points[1] {
			name += " | " + c.Points[1].Name()
		}
		if c.Note != "" {
			name += ": " + c.Note
		}
		if c.Note != "" || c.Rounds == 0 {
			fmt.Fprintf(w, "\t\t\t\t\t\t\t\t%s\t %s\n", c.Verdict, name)
			continue
		}
		fmt.Fprintf(w, "%v\t%v\t%s\t%s\t%s\t%s\t%.2g\t%d\t%s\t %s\n",
			time.Duration(c.Ns[0]).Round(100), time.Duration(c.Ns[1]).Round(100),
			longer(c.Median), longer(c.Lo), longer(c.Hi), longer(c.Paired.Least), c.Adjusted, c.Rounds, c.Verdict, name)
	}
	return w.Flush()
}

// longer formats a ratio of times as a change in percent. It returns nothing if there is no ratio,
// such as the end of an interval of too few rounds.
func longer(ratio float64) string {
	if stats.Number(ratio) == nil {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*(ratio-1))
}

// The types below are the JSON form, which resembles gate's. What was not measured is null.
type abSide struct {
	Asked   string     `json:"asked"` // by --base or --head
	Dir     string     `json:"dir"`
	Commit  run.Commit `json:"commit"`
	Started time.Time  `json:"started"`
}

type abCell struct {
	Base    string     `json:"base"`
	Head    string     `json:"head"`
	Verdict ab.Verdict `json:"verdict"`
	Note    string     `json:"note,omitempty"`
	Effect  float64    `json:"effect"`
	Rounds  int        `json:"rounds"`
	BaseNs  *float64   `json:"base_ns"`
	HeadNs  *float64   `json:"head_ns"`
	Median  *float64   `json:"median"` // of the rounds' ratios, head over base
	Lo      *float64   `json:"lo"`
	Hi      *float64   `json:"hi"`
	Least   *float64   `json:"least"`
	P       *float64   `json:"p_holm"`
}

type abReport struct {
	Base    abSide   `json:"base"`
	Head    abSide   `json:"head"`
	Alpha   float64  `json:"alpha"`
	Effect  float64  `json:"effect"`
	Verdict string   `json:"verdict"`
	Reason  string   `json:"reason"`
	Cells   []abCell `json:"cells"`
}

// abVerdicts are the verdicts on all cells, by exit code.
var abVerdicts = [...]string{0: "passed", exitWrong: "regressed", exitUndecided: "undecided", exitIncomplete: "incomplete"}

func (c *ABCmd) writeJSON(out io.Writer, journals [2]*run.Journal, cells []ab.Cell, reason string, concluded error) error {
	side := func(n int, asked string) abSide {
		r := journals[n].Run()
		return abSide{asked, r.Dir, r.Meta.Commit, r.Meta.Started}
	}
	r := abReport{Base: side(0, c.Base), Head: side(1, c.Head), Alpha: c.Alpha, Effect: c.MinEffect, Verdict: abVerdicts[exitCode(concluded)], Reason: reason}
	for _, c := range cells {
		line := abCell{Base: c.Points[0].Name(), Head: c.Points[1].Name(), Verdict: c.Verdict, Note: c.Note, Effect: c.Effect, Rounds: c.Rounds}
		if c.Rounds > 0 {
			line.BaseNs, line.HeadNs, line.P = &c.Ns[0], &c.Ns[1], &c.Adjusted
			line.Median, line.Lo, line.Hi, line.Least = stats.Number(c.Median), stats.Number(c.Lo), stats.Number(c.Hi), stats.Number(c.Paired.Least)
		}
		r.Cells = append(r.Cells, line)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// conclude turns verdicts into an exit code.
func (c *ABCmd) conclude(cells []ab.Cell, reason string) error {
	count := map[ab.Verdict]int{}
	for _, cell := range cells {
		count[cell.Verdict]++
	}
	switch {
	case reason == harness.Interrupted:
		return exitf(exitIncomplete, "interrupted, %d of %d cells are undecided; to go on: benchrun ab --resume -o %s", count[ab.Undecided], len(cells), c.Out)
	case count[ab.Worse] > 0 || count[ab.Failed] > 0:
		return exitf(exitWrong, "%d of %d cells are worse, %d failed", count[ab.Worse], len(cells), count[ab.Failed])
	case count[ab.Unjudged] > 0:
		return exitf(exitIncomplete, "%d of %d cells are not judged, for the reasons in the table", count[ab.Unjudged], len(cells))
	case count[ab.Undecided] > 0:
		return exitf(exitUndecided, "%d of %d cells are undecided; a longer --budget may decide them", count[ab.Undecided], len(cells))
	}
	return nil
}
