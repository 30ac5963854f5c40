package command

import (
	"bytes"
	"fmt"

	"attnlab/harness/history"
	"attnlab/harness/run"
	"attnlab/reports"
)

// HistoryCmd shows at which commits speeds changed, over all kept runs.
type HistoryCmd struct {
	Dir  string `arg:"" optional:"" default:"reports/history" help:"Folder with a folder for each machine, and in it a run folder for each commit (${default})."`
	All  bool   `help:"Also show cells without a step."`
	HTML string `name:"html" xor:"form" placeholder:"FILE" help:"Write a page instead of text: the trend of every cell, with its steps. Example: history.html."`
	JSON bool   `name:"json" xor:"form" help:"Write JSON instead of text: every series with its steps."`
}

// Help is printed above the flags.
func (*HistoryCmd) Help() string {
	return fmt.Sprintf(`Follows every cell of a machine through its runs, in the order in which they began, by its median share of the peak or of the bandwidth. A step is
the point at which a series is split best (energy distance), if a rank test tells both parts apart at the level 1e-4. It is named by the first commit that
has it and the last commit that has not. At least %d runs are needed to show a step. From the commit at which a kernel takes another path, its cells are new
ones; benchrun list shows paths. Runs are kept in DIR/MACHINE/COMMIT, or in COMMIT/RUN where a commit has several,
with a journal or with run.json and sweep.csv alone. benchrun gate --update --baseline puts them there.`, history.LeastRuns)
}

// Run prints the steps.
func (c *HistoryCmd) Run(to streams) error {
	machines, warnings, err := history.Read(c.Dir)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(to.Err, "benchrun: %s\n", w)
	}
	if c.HTML != "" {
		return c.page(machines, to)
	}
	if c.JSON {
		return history.WriteJSON(to.Out, machines)
	}
	return history.WriteText(to.Out, machines, c.All)
}

// page writes the page.
func (c *HistoryCmd) page(machines []*history.Machine, to streams) error {
	var b bytes.Buffer
	if err := reports.History(&b, machines); err != nil {
		return err
	}
	if err := run.Replace(c.HTML, b.Bytes()); err != nil {
		return err
	}
	fmt.Fprintln(to.Out, c.HTML)
	return nil
}
