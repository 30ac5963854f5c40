package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"attnlab/attn"
	"attnlab/lab/curve"
	"attnlab/nn"
	"attnlab/theory/equations"
	"attnlab/theory/figures"
)

// EquationsCmd runs the equations of the source documents.
type EquationsCmd struct {
	ID       []string `name:"id" placeholder:"ID" help:"Rows, such as T-14, or all rows with a prefix, such as P-1*; default all. Write T-3* for an id with commas, such as T-3,4."`
	Source   string   `default:"" enum:",tutorial,paper,page,notes,lesson,library" placeholder:"NAME" help:"Rows of one source: tutorial, paper, page, notes, lesson or library."`
	Kernel   []string `placeholder:"NAME" help:"Check these kernels only, without the mathematics; default all kernels and the mathematics. Example: flash."`
	ISA      []string `name:"isa" placeholder:"NAME" help:"Check kernels of these instruction sets only. Example: avx2."`
	Failed   bool     `xor:"form" help:"Show only rows that fail."`
	Details  bool     `xor:"form" help:"Show every check of a row, the fact closest to failing, errata and notes."`
	JSON     bool     `name:"json" xor:"form" help:"Write JSON: every fact with its residual and its bound."`
	Markdown bool     `xor:"form" help:"Write the page docs/equations.md."`
	Plots    string   `placeholder:"DIR" help:"Also draw the figures of the documents into DIR, as SVG and PNG."`
}

// Help is printed above the flags.
func (*EquationsCmd) Help() string {
	return `Each row is a numbered statement of a source document: T the tutorial, P the paper, D the documentation page, N the notes, L the lesson, M the
reference library. Its verdict is pass or fail, found by computing both sides of the statement; alias, which names the row that has the same statement;
prose, which is covered by documentation; or pending, which is not built yet. The residual shown is the one closest to its bound, over the mathematics and
all kernels. The column kernels counts the kernels for which the row holds, of all that claim it.

Exit code 1 if any row fails.`
}

// Run checks the rows. Ctrl-C ends it between two checks.
func (c *EquationsCmd) Run(to streams, lab Lab) error {
	rows, missing := equations.Select(lab.Equations, c.ID, c.Source)
	switch {
	case len(lab.Equations) == 0:
		return exitf(exitUsage, "this program has no equations")
	case len(missing) > 0:
		return exitf(exitUsage, "--id %s: no such row; benchrun equations shows all ids", strings.Join(missing, ","))
	case len(rows) == 0:
		return exitf(exitUsage, "--id %s --source %s: no row is both", strings.Join(c.ID, ","), c.Source)
	}
	picked, err := lab.pick(c.Kernel, c.ISA)
	if err != nil {
		return err
	}
	began := time.Now()
	levels := lab.Sets.Of(picked)
	env := equations.Env{
		Kernels: picked, KernelsOnly: len(c.Kernel)+len(c.ISA) > 0, Clock: func() time.Duration { return time.Since(began) },
		Products: func() *nn.Multiplier { return nn.NewMultiplier(levels[len(levels)-1].Ops, nil) },
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	p := &equations.Printer{W: to.Out, Details: c.Details, FailedOnly: c.Failed}
	text := !c.JSON && !c.Markdown
	if text {
		p.Head()
	}
	var results []equations.Result
	failed := 0
	err = equations.Run(ctx, env, rows, func(r equations.Result) {
		results = append(results, r)
		if r.Verdict == equations.Fail {
			failed++
		}
		if text {
			p.Print(r)
		}
	})
	switch {
	case text:
		p.Foot()
	case c.Markdown:
		equations.Page(to.Out, results)
	default:
		e := json.NewEncoder(to.Out)
		e.SetIndent("", "\t")
		err = errors.Join(err, e.Encode(results))
	}
	if errors.Is(err, context.Canceled) {
		return exitf(exitIncomplete, "interrupted after %d of %d rows", len(results), len(rows))
	}
	if err == nil && c.Plots != "" {
		err = plots(c.Plots, lab.Kernels, to)
	}
	if err == nil && failed > 0 {
		return exitf(exitWrong, "rows that fail: %d", failed)
	}
	return err
}

// plots draws the figures into a folder.
func plots(dir string, all []attn.Kernel, to streams) error {
	measured, err := curve.Measure(all, to.Err)
	if err != nil {
		return err
	}
	for f := range figures.All(measured) {
		if err := f.Save(dir); err != nil {
			return err
		}
		fmt.Fprintf(to.Out, "%s: %s\n", filepath.Join(dir, f.Name+".svg"), f.Caption)
	}
	return nil
}
