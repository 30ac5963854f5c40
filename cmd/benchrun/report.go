package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"attnlab/harness/run"
	"attnlab/reports"
)

// ReportCmd makes what people read from a run.
type ReportCmd struct {
	Dir    string       `arg:"" name:"run" help:"Run folder."`
	Readme optionalPath `placeholder:"PATH" help:"Also renew the table between the ladder marks of README.md, or of PATH, and the chart in docs/."`
	Serve  bool         `help:"Not in this version."`
}

// An optionalPath is a flag that may stand alone, and then means README.md.
type optionalPath string

// Decode reads the flag. What follows it is its value if it is joined to it by an equals sign, or is a Markdown file.
func (p *optionalPath) Decode(ctx *kong.DecodeContext) error {
	*p = "README.md"
	if t := ctx.Scan.Peek(); t.Type == kong.FlagValueToken || strings.HasSuffix(t.String(), ".md") {
		*p = optionalPath(ctx.Scan.Pop().String())
	}
	return nil
}

// IsBool lets the flag stand without a value.
func (*optionalPath) IsBool() bool { return true }

// Help is printed above the flags.
func (*ReportCmd) Help() string {
	return `Writes report.html, report.md and plots/ (time, FLOP/s, scratch memory and peak memory against sequence length, as SVG and PNG) into the run folder,
and rewrites sweep.csv and bench.txt from its journal. report.html is one file that needs no network: summary, charts that kernels are switched on and
off in, a roofline, and the table of all points, to be sorted or taken away as CSV; without a script it still has the summary and the tables.`
}

// Run writes the report.
func (c *ReportCmd) Run(to streams) error {
	if c.Serve {
		return exitf(exitUsage, "--serve: not in this version of benchrun")
	}
	r, err := run.Load(c.Dir)
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(to.Err, "benchrun: %s\n", w)
	}
	if err := r.Write(); err != nil {
		return err
	}
	if err := reports.Write(c.Dir); err != nil {
		return err
	}
	fmt.Fprintln(to.Out, filepath.Join(c.Dir, reports.HTMLFile))
	fmt.Fprintln(to.Out, filepath.Join(c.Dir, reports.ReportFile))
	if c.Readme == "" {
		return nil
	}
	if err := reports.README(string(c.Readme), r); err != nil {
		return err
	}
	fmt.Fprintln(to.Out, string(c.Readme))
	return nil
}
