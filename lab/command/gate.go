package command

import (
	"errors"
	"fmt"

	"attnlab/harness/gate"
	"attnlab/harness/run"
)

// GateCmd decides whether a run may pass.
type GateCmd struct {
	Baseline string `required:"" placeholder:"DIR" help:"Run folder to compare with; with --update, the folder to write."`
	Dir      string `arg:"" name:"run" help:"Run folder in question."`
	Update   bool   `help:"Copy the run to the baseline, and compare nothing."`

	MinEffect  float64 `name:"min-effect" default:"0.05" placeholder:"X" help:"Least loss of speed that matters, as a share of it (${default})."`
	Alpha      float64 `default:"0.05" placeholder:"P" help:"Chance of a false alarm over all cells (${default})."`
	AnyMachine bool    `name:"any-machine" help:"Compare with a baseline of another machine, with a warning."`
	JSON       bool    `name:"json" xor:"form" help:"Write JSON instead of text, with all cells."`
	Markdown   bool    `xor:"form" help:"Write Markdown instead of text, for a comment on a pull request."`
}

// Help is printed above the flags.
func (*GateCmd) Help() string {
	return `A sample's speed is its share of the machine's own speed, which is measured around each sample. A cell regressed

- when its speed fell: by --min-effect in the median and by half of that in the best sample, and a rank test tells both runs apart after Holm's correction
over all cells;

- when it has more scratch memory, or a call allocates more, by as little as one byte;

- when it fails or answers wrongly, and did not before.

--min-effect is at least the floor of the machine, if run.json knows one from benchrun doctor. The gate is undecided when cells are missing, or samples are
too few or too scattered. A kernel that took another path than in the baseline (benchrun list shows paths) is another kernel, and the baseline's cells of it
are missing. Take both runs with the same flags, such as benchrun sweep --samples 12, with more samples on a busier machine.

A baseline of another machine (CPU, caches, instruction sets, number of CPUs, Go version) is refused, and so is one that is cut off or damaged. A
baseline needs its samples (journal.jsonl). Committed baselines are in reports/history/MACHINE/COMMIT, or in COMMIT/RUN where a commit has several runs;
benchrun history reads both:

  benchrun gate --update --baseline reports/history/xeon-2cpu/0123456 runs/mine

Exit codes: 0 passed, 1 regressed, 2 undecided, 4 the runs cannot be compared.`
}

// Run compares a run with the baseline, or makes it the baseline.
func (c *GateCmd) Run(to streams) error {
	r, err := run.Load(c.Dir)
	if err != nil {
		return err
	}
	if c.Update {
		return c.update(r, to)
	}
	base, err := run.Load(c.Baseline)
	if err != nil {
		return err
	}
	report, err := gate.Compare(base, r, gate.Options{Alpha: c.Alpha, Effect: c.MinEffect, AnyMachine: c.AnyMachine})
	if err != nil {
		return err
	}
	write := report.WriteText
	switch {
	case c.JSON:
		write = report.WriteJSON
	case c.Markdown:
		write = report.WriteMarkdown
	}
	if err := write(to.Out); err != nil {
		return err
	}
	switch report.Verdict {
	case gate.Regressed:
		return &ExitError{exitWrong, errors.New("regressed")}
	case gate.Undecided:
		return &ExitError{exitUndecided, errors.New("undecided")}
	}
	return nil
}

// update copies the run to the baseline.
func (c *GateCmd) update(r *run.Run, to streams) error {
	if !r.Complete() {
		return exitf(exitUsage, "%s: the run is not complete, and no baseline; to go on: benchrun sweep --resume -o %s", r.Dir, r.Dir)
	}
	if err := r.Copy(c.Baseline); err != nil {
		return err
	}
	ok := 0
	for _, w := range r.Rows() {
		if w.Status == run.OK {
			ok++
		}
	}
	fmt.Fprintf(to.Out, "%s: %v, %d of %d points with numbers\n", c.Baseline, r.Meta.Commit, ok, len(r.Cells))
	return nil
}
