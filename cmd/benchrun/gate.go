package main

import (
	"errors"
	"fmt"

	"attnlab/harness/gate"
	"attnlab/harness/run"
)

// GateCmd lets a run pass, or not.
type GateCmd struct {
	Baseline string `required:"" placeholder:"DIR" help:"Run folder to hold the run against, or with --update to make of it."`
	Dir      string `arg:"" name:"run" help:"Run folder in question."`
	Update   bool   `help:"Make the run the new baseline, and compare nothing."`

	MinEffect  float64 `name:"min-effect" default:"0.05" placeholder:"X" help:"Least loss of speed that matters, as a part of it (${default})."`
	Alpha      float64 `default:"0.05" placeholder:"P" help:"Chance of a false alarm over all cells (${default})."`
	AnyMachine bool    `name:"any-machine" help:"Compare although the baseline is from another machine, and warn."`
	JSON       bool    `name:"json" xor:"form" help:"Write JSON instead of text, with all cells."`
	Markdown   bool    `xor:"form" help:"Write Markdown instead of text, for a comment on a pull request."`
}

// Help is printed above the flags.
func (*GateCmd) Help() string {
	return `For CI: may this run pass? A cell regressed when its samples' shares of the machine's own speed, measured around each sample, fell by --min-effect in
the median and by half of it in the best one (what it reached when little disturbed it), and ranks tell the two runs apart after Holm's correction over all cells; when it has more scratch memory, or a call allocates
more, by as little as one byte; or when it fails or answers wrongly and did not before. Where run.json
knows a floor from benchrun doctor, --min-effect is no less. Cells that are missing, and too few or too scattered samples,
leave it undecided. A kernel that took another path than in the baseline (benchrun list shows paths) is another kernel: the baseline's cells of it are missing. Take the runs with equal flags, such as benchrun sweep --samples 12, and more samples the busier the machine.

A baseline from another machine (CPU, caches, instruction sets, number of CPUs, Go version) is refused, and so is one that was cut off or damaged.
Baselines that are committed stand in reports/history/MACHINE/COMMIT, which benchrun history reads:

  benchrun gate --update --baseline reports/history/xeon-2cpu/0123456 runs/mine

Exit codes: 0 passed, 1 regressed, 2 undecided, 4 the runs cannot be compared.`
}

// Run compares, or renews the baseline.
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

// update makes the run the baseline.
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
