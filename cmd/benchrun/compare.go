package main

import (
	"errors"

	"attnlab/harness/compare"
)

// CompareCmd compares two runs.
type CompareCmd struct {
	A string `arg:"" help:"The run to compare with: a run folder, or a file that go test -bench wrote."`
	B string `arg:"" help:"The run in question."`

	Alpha  float64 `default:"0.05" placeholder:"P" help:"Level of the rank test (${default})."`
	Effect float64 `default:"0.02" placeholder:"X" help:"Least change of a median that matters, as a part of it (${default})."`
	Filter string  `placeholder:"QUERY" help:"Compare only these cells, in benchstat's language: '/kernel:flash .unit:sec/op'."`
	JSON   bool    `name:"json" help:"Write JSON instead of text."`
}

// Help is printed above the flags.
func (*CompareCmd) Help() string {
	return `Medians, intervals, deltas and probabilities are those that benchstat prints for the two bench.txt. Each cell also gets a verdict that knows
which way its unit is better: faster or slower (better or worse for memory), same, or not enough samples; four a side is the least that can
show anything. Of many cells a few differ by chance, so the whole counts as regressed (exit 1) only when a slower cell remains after Holm's
correction over all cells of its unit, an exact figure is worse, or a point failed. Slower cells that do not remain, missing cells and too few
samples leave it undecided (exit 2). A kernel that took another path in B (benchrun list shows paths) is another kernel: its cells are gone, and new.

Two runs made one after the other also differ by what the machine did in between; compare shows that too, and cannot tell it apart.`
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
