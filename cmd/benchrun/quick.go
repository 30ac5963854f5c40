package main

import (
	"fmt"
	"time"

	"attnlab/attn/cases"
	"attnlab/harness/run"
	"attnlab/reports"

	"github.com/alecthomas/kong"
)

// QuickCmd is benchrun without arguments.
type QuickCmd struct {
	Out string `short:"o" placeholder:"DIR" help:"Run folder; default a fresh one under runs/."`
}

// The small grid: long enough to see n x n memory grow away from n, short enough to end in about a minute with verification and all.
var (
	quickSeq    = []int{256, 512, 1024, 2048}
	quickBudget = 40 * time.Second
)

// Run verifies, sweeps, prints and says what to try next.
func (c *QuickCmd) Run(k *kong.Context, to streams, all kernelList) error {
	lab := newLab(all)
	sweep := SweepCmd{
		Grid:      Grid{Mask: []string{"full"}, Seq: quickSeq, Dim: []int{64}, Heads: []int{1}, Batch: []int{1}, Threads: []int{1}},
		Precision: 0.02, Budget: quickBudget, Timeout: time.Minute,
	}
	points, err := sweep.points(lab.Kernels)
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		dir = freshFolder("quick")
	}
	meta := newMeta(k, uint64(time.Now().UnixNano()))
	j, err := run.Create(dir, meta)
	if err != nil {
		return err
	}
	child, err := newChild(sweep.Timeout)
	if err != nil {
		return err
	}
	fmt.Fprintf(to.Err, "Verifying %d kernels on %d cases.\n", len(lab.Kernels), len(cases.Core()))
	wrong, err := verify(child, lab.Kernels, cases.Core(), to.Out)
	child.Close()
	if err != nil {
		return err
	}
	fmt.Fprintf(to.Err, "\nTiming %d points, about %v.\n", len(points), quickBudget)
	o, err := sweep.sweep(lab, points, j, to)
	if err != nil {
		return err
	}
	failed := conclude(o, j, to)
	if err := reports.Write(dir); err != nil {
		return err
	}
	fmt.Fprintf(to.Out, `
Charts and tables of this run are in %s: report.md, plots/, sweep.csv, bench.txt.

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
