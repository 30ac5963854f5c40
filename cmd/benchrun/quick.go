package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"attnlab/attn/cases"
	"attnlab/harness/run"
	"attnlab/reports"
)

// QuickCmd is benchrun without arguments: a small sweep, long enough to see n x n memory grow away
// from n, and short enough to end in about a minute with verification and all.
type QuickCmd struct {
	Seq    string        `default:"256,512,1024,2048" placeholder:"N,..." help:"Lengths (${default})."`
	Budget time.Duration `default:"40s" help:"Time for the sweep (${default})."`
	Out    string        `short:"o" placeholder:"DIR" help:"Run folder; default a fresh one under runs/."`
}

// Run verifies, sweeps, prints and says what to try next.
func (c *QuickCmd) Run(to streams, all kernelList) error {
	line, k, err := parse([]string{
		"sweep", "--mask=full", "--dim=64", "--timeout=1m", "--precision=0.05", "--wait=300ms", "--seq=" + c.Seq, "--budget=" + c.Budget.String(),
	}, to)
	if err != nil {
		return err
	}
	sweep, lab := &line.Sweep, newLab(all)
	if err := sweep.check(); err != nil {
		return err
	}
	points, err := sweep.points(lab.Kernels, to.Err)
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		dir = freshFolder("quick")
	}
	ctx, stop, release := interruptible(to.Err) // until the sweep has its own
	meta, err := newMeta(k, rand.Uint64())
	if err != nil {
		return err
	}
	meta.Paths = lab.Paths().Of(points)
	j, err := run.Create(dir, meta)
	if err != nil {
		return err
	}
	child, err := newChild(sweep.Timeout, Peers{})
	if err != nil {
		return err
	}
	core := ofPass("forward", cases.Core())
	fmt.Fprintf(to.Err, "Verifying %d kernels on %d cases.\n", len(lab.Kernels), len(core))
	wrong, err := verify(ctx, stop, child, lab.Kernels, core, to.Out)
	release()
	child.Close()
	if err != nil {
		return errors.Join(err, j.Discard())
	}
	fmt.Fprintf(to.Err, "\nTiming %d points, about %v.\n", len(points), sweep.Budget)
	o, err := sweep.sweep(lab, points, j, to)
	if err != nil {
		return err
	}
	failed := conclude(o, j, to)
	if err := reports.Write(dir); err != nil {
		return err
	}
	fmt.Fprintf(to.Out, `
Charts and tables of this run are in %s: report.html, report.md, plots/, sweep.csv, bench.txt.

Try next:
  benchrun sweep --kernel flash --mask causal --seq 1024,4096,16384 --budget 1m   how time grows with length
  benchrun sweep --kernel flash --seq 1 --seq-kv 4096,65536                       decoding: one query against many keys
  benchrun verify                                                                 every case
  benchrun machine                                                                what this machine can do
  benchrun --help
`, dir)
	if wrong > 0 {
		return exitf(exitWrong, "wrong answers: %d", wrong)
	}
	return failed
}
