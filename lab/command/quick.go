package command

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/reports"
)

// QuickCmd is benchrun without arguments. It verifies every kernel and sweeps a small grid, in
// about a minute. The lengths are long enough to show that the memory of naive grows with n x n,
// and short enough that every point gets the samples that an interval takes.
type QuickCmd struct {
	Seq    string        `default:"256,512,1024" placeholder:"N,..." help:"Lengths (${default})."`
	Budget time.Duration `default:"45s" help:"Time for the sweep (${default})."`
	Out    string        `short:"o" placeholder:"DIR" help:"Run folder; by default a new one under runs/."`
}

// Run verifies and times every kernel, prints a table, and suggests what to try next.
func (c *QuickCmd) Run(to streams, lab Lab) error {
	line, k, err := parse([]string{
		"sweep", "--mask=full", "--dim=64", "--timeout=1m", "--precision=0.05", "--wait=50ms", "--seq=" + c.Seq, "--budget=" + c.Budget.String(),
	}, to)
	if err != nil {
		return err
	}
	sweep, measured := &line.Sweep, lab.server()
	if err := sweep.check(); err != nil {
		return err
	}
	points, err := sweep.points(lab, to.Err)
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		dir = freshFolder("quick")
	}
	ctx, stop, release := interruptible(to.Err) // until the sweep has its own
	meta, err := lab.newMeta(k, rand.Uint64())
	if err != nil {
		return err
	}
	meta.Paths = harness.Paths(measured.Kernels).Of(points)
	j, err := run.Create(dir, meta)
	if err != nil {
		return err
	}
	client, err := newClient(sweep.Timeout, Peers{})
	if err != nil {
		return err
	}
	core := ofPass("forward", cases.Core())
	fmt.Fprintf(to.Err, "Verifying %d kernels on %d cases.\n", len(lab.Kernels), len(core))
	wrong, err := verifyCases(ctx, stop, client, lab.Kernels, core, to.Out)
	release()
	client.Close()
	if err != nil {
		return errors.Join(err, j.Discard())
	}
	fmt.Fprintf(to.Err, "\nTiming %d points, about %v.\n", len(points), sweep.Budget)
	o, err := sweep.sweep(measured, points, j, to)
	if err != nil {
		return err
	}
	o.Wide = 0 // the budget is all that was asked for
	failed := conclude(o, j, to)
	if err := reports.Write(dir); err != nil {
		return err
	}
	fmt.Fprintf(to.Out, `
Charts and tables of this run are in %s: report.html, report.md, plots/, sweep.csv, bench.txt.

Try next:
  benchrun sweep --kernel flash --mask causal --seq 1024,4096,16384   # how time grows with length
  benchrun sweep --kernel flash --seq 1 --seq-kv 4096,65536           # decoding: one query, many keys
  benchrun verify                                                     # every case, and gradients
  benchrun machine                                                    # the limits of this machine
  benchrun --help
`, dir)
	if wrong > 0 {
		return exitf(exitWrong, "wrong answers: %d", wrong)
	}
	return failed
}
