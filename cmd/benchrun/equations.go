package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/nn"
	"attnlab/theory/equations"
	"attnlab/theory/figures"
)

// EquationsCmd runs the equations of the source documents.
type EquationsCmd struct {
	ID       []string `name:"id" placeholder:"ID" help:"Rows, such as T-14, or all that begin alike, such as P-1*; default all. An id that has commas (T-3,4) is written with a * in their place."`
	Source   string   `default:"" enum:",tutorial,paper,page,notes,lesson,library" placeholder:"NAME" help:"Rows of one source: tutorial, paper, page, notes, lesson or library."`
	Kernel   []string `placeholder:"NAME" help:"Show what these kernels are asked, alone; default all kernels, beside the mathematics."`
	ISA      []string `name:"isa" placeholder:"NAME" help:"The same for instruction sets."`
	Failed   bool     `xor:"form" help:"Show only rows that fail."`
	Details  bool     `xor:"form" help:"Show every check of a row, what of it is closest to failing, its errata and its notes."`
	JSON     bool     `name:"json" xor:"form" help:"Write JSON: every fact with its residual and its bound."`
	Markdown bool     `xor:"form" help:"Write the page docs/equations.md."`
	Plots    string   `placeholder:"DIR" help:"Draw the figures of the documents into DIR besides, as SVG and PNG."`
}

// Help is printed above the flags.
func (*EquationsCmd) Help() string {
	return `Each row is a numbered statement of the source documents: T the tutorial, P the paper, D the documentation page, N the notes, L the lesson, M the reference
library. Its verdict is pass or fail, by computing both sides; alias of another row; prose, which documentation says; or pending, what is not built yet.
The residual shown is the one closest to its bound, of the mathematics and of all kernels; kernels says how many hold the row, of those that claim it.
Exit code 1 if any row fails.`
}

// Run runs the rows. Ctrl-C ends it between two checks.
func (c *EquationsCmd) Run(to streams, all kernelList) error {
	rows, missing := equations.Select(equations.Table(), c.ID, c.Source)
	switch {
	case len(missing) > 0:
		return exitf(exitUsage, "--id %s: no such row; benchrun equations shows all ids", strings.Join(missing, ","))
	case len(rows) == 0:
		return exitf(exitUsage, "--id %s --source %s: no row is both", strings.Join(c.ID, ","), c.Source)
	}
	picked, err := pick(all, c.Kernel, c.ISA)
	if err != nil {
		return err
	}
	began := time.Now()
	levels := levelsOf(picked)
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
		err = plots(c.Plots, all, to)
	}
	if err == nil && failed > 0 {
		return exitf(exitWrong, "rows that fail: %d", failed)
	}
	return err
}

// plots draws the figures.
func plots(dir string, all []attn.Kernel, to streams) error {
	measured, err := complexity(all, to)
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

// complexity is the time of a call and the memory of its plan at the lesson's lengths, for the
// kernel that writes every weight out (as far as a second a call allows), for the fastest exact
// one, and for the fastest that does linear attention.
func complexity(all []attn.Kernel, to streams) (m figures.Measured, err error) {
	exact, linear := attn.Problem{}, attn.Problem{Op: attn.OpLinear}
	for _, s := range []struct {
		p       attn.Problem
		kernel  attn.Kernel
		longest int
	}{{exact, first(all, exact), 2000}, {exact, last(all, exact), 5000}, {linear, last(all, linear), 5000}} {
		if s.kernel == nil {
			continue
		}
		algo, isa := s.kernel.Name()
		fmt.Fprintf(to.Err, "Timing %s/%s up to %d rows.\n", algo, isa, s.longest)
		seconds, bytes := figures.Curve{Name: algo + "/" + isa}, figures.Curve{Name: algo + "/" + isa}
		for _, n := range []int{100, 500, 1000, 2000, 5000} {
			if n > s.longest {
				break
			}
			took, scratch, err := one(s.kernel, s.p, n)
			if err != nil {
				return m, err
			}
			seconds.N, seconds.Value = append(seconds.N, float64(n)), append(seconds.Value, took.Seconds())
			bytes.N, bytes.Value = append(bytes.N, float64(n)), append(bytes.Value, float64(scratch))
		}
		m.Seconds, m.Bytes = append(m.Seconds, seconds), append(m.Bytes, bytes)
	}
	return m, nil
}

// first and last are those of the kernels that do a problem, of which the later ones are faster;
// nil is none.
func first(all []attn.Kernel, p attn.Problem) attn.Kernel {
	for _, k := range all {
		if _, err := k.Check(sized(p, 1), 1); err == nil {
			return k
		}
	}
	return nil
}

func last(all []attn.Kernel, p attn.Problem) (found attn.Kernel) {
	for _, k := range all {
		if _, err := k.Check(sized(p, 1), 1); err == nil {
			found = k
		}
	}
	return found
}

// sized is a problem of one head, with n queries and keys of 64 numbers.
func sized(p attn.Problem, n int) attn.Problem {
	p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV = 1, 1, 1, n, n, 64, 64
	return p
}

// one is the least time of three calls, or of as many as a tenth of a second has room for, and the
// memory of their plan.
func one(k attn.Kernel, p attn.Problem, n int) (least time.Duration, scratch int64, err error) {
	p = sized(p, n)
	plan, err := k.Plan(p, nil)
	if err != nil {
		return 0, 0, err
	}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		return 0, 0, err
	}
	least = math.MaxInt64
	for begun, calls := time.Now(), 0; calls < 3 && time.Since(begun) < time.Second/10; calls++ {
		call := time.Now()
		plan.Forward(a)
		least = min(least, time.Since(call))
	}
	return least, plan.Scratch(), nil
}
