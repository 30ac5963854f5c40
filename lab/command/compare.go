package command

import (
	"errors"

	"attnlab/harness/compare"
)

// CompareCmd compares two runs.
type CompareCmd struct {
	A string `arg:"" help:"The run to compare with: a run folder, or the output of go test -bench."`
	B string `arg:"" help:"The run in question."`

	Alpha  float64 `default:"0.05" placeholder:"P" help:"Level of the rank test (${default})."`
	Effect float64 `default:"0.02" placeholder:"X" help:"Least change of a median that matters, as a share of it (${default})."`
	Filter string  `placeholder:"QUERY" help:"Compare only the cells of a benchstat query; default all. Example: '/kernel:flash .unit:sec/op'."`
	JSON   bool    `name:"json" help:"Write JSON instead of text."`
}

// Help is printed above the flags.
func (*CompareCmd) Help() string {
	return `Prints the medians, intervals, changes and probabilities that benchstat prints for the two files bench.txt. Each cell also gets a verdict, which
knows which direction of its unit is better: faster or slower (for memory better or worse), same, or not enough samples. Four samples a side are the least
that can show a difference.

Of many cells a few differ by chance. The whole is therefore regressed (exit 1) only when a cell is slower after Holm's correction over all cells of its
unit, an exact figure is worse, or a point failed. It is undecided (exit 2) when cells are slower before that correction alone, are missing, or have too few
samples. A kernel that took another path in B is another kernel: its cells are gone, and new. Paths are shown by benchrun list.

Two runs made one after the other also differ by what the machine did in between, and compare cannot tell that apart. Use ab to interleave them.`
}

// Run prints the comparison.
func (c *CompareCmd) Run(to streams) error {
	a, err := compare.Read(c.A)
	if err != nil {
		return err
	}
	b, err := compare.Read(c.B)
	if err != nil {
		return err
	}
	r, err := compare.Compare(a, b, compare.Options{Alpha: c.Alpha, Effect: c.Effect, Filter: c.Filter})
	if err != nil {
		return err
	}
	write := r.WriteText
	if c.JSON {
		write = r.WriteJSON
	}
	if err := write(to.Out); err != nil {
		return err
	}
	switch r.Verdict {
	case compare.Regressed:
		return &ExitError{exitWrong, errors.New("regressed")}
	case compare.Undecided:
		return &ExitError{exitUndecided, errors.New("undecided")}
	}
	return nil
}
