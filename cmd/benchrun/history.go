package main

import (
	"bytes"
	"fmt"

	"attnlab/harness/history"
	"attnlab/harness/run"
	"attnlab/reports"
)

// HistoryCmd shows where speeds stepped over the runs that are kept.
type HistoryCmd struct {
	Dir  string `arg:"" optional:"" default:"reports/history" help:"Folder of machines, each with a run folder a commit (${default})."`
	All  bool   `help:"Show cells without a step too."`
	HTML string `name:"html" xor:"form" placeholder:"FILE" help:"Write a page with the trend of every cell, its steps marked, instead of text."`
	JSON bool   `name:"json" xor:"form" help:"Write JSON instead of text: every series with its steps."`
}

// Help is printed above the flags.
func (*HistoryCmd) Help() string {
	return fmt.Sprintf(`Follows every cell of a machine through its runs, in the order they began, by its median share of the peak or of the bandwidth. A step is where a series
is split best (energy distance), if ranks tell the two sides apart at the level 1e-4; it is named by the first commit that has it and the last one that
has not. %d runs are the fewest that can show one. From the commit at which a kernel takes another path (benchrun list shows paths) its cells are new ones. Runs are kept in DIR/MACHINE/COMMIT; benchrun gate --update --baseline puts one there.`, history.LeastRuns)
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
