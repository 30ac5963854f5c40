package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"attnlab/harness"
	"attnlab/harness/ab"
	"attnlab/harness/run"

	"github.com/alecthomas/kong"
)

// ABCmd compares two revisions, or two kernels of this program.
type ABCmd struct {
	Base string `placeholder:"REV" help:"What to compare with: a git revision, such as main, or keys of a point of this program, such as kernel=tiled."`
	Head string `default:"worktree" placeholder:"REV" help:"What is in question: a git revision, the checkout with its changes (${default}), or keys of a point, such as kernel=flash."`

	Grid
	MinEffect float64       `name:"min-effect" default:"0.02" placeholder:"X" help:"Least difference that matters, as a share of the time (${default})."`
	Alpha     float64       `default:"0.05" placeholder:"P" help:"Chance of a false alarm, over all cells and looks (${default})."`
	Budget    time.Duration `default:"1m" help:"Stop after this time, verification included (${default}). The first round is always finished."`
	MaxMemory Bytes         `name:"max-memory" placeholder:"SIZE" help:"Skip cells that need more memory; default half of what is available. Example: 2GB."`
	Timeout   time.Duration `default:"2m" help:"Fail a cell when one of its samples takes longer (${default})."`
	Seed      uint64        `placeholder:"N" help:"Seed of the order of measurements; default random."`
	Resume    bool          `help:"Continue the interrupted comparison in --out, with the flags it was begun with."`
	Out       string        `short:"o" placeholder:"DIR" help:"Folder for the two runs, base and head; default a fresh one under runs/."`
	JSON      bool          `name:"json" help:"Write JSON instead of text."`
}

// Help is printed above the flags.
func (*ABCmd) Help() string {
	return `Builds both sides, verifies them, and times them alternately. A revision is built in a worktree of its own, so the checkout is not touched. Each
sample runs in a process of its own, in the order A B B A or B A A B, cell by cell. The run.json of a side names the commit that was built; for the checkout
it also has a hash of the files that differ from that commit, including untracked files that are built.

A cell is worse when three things hold: the least time of head is more than --min-effect above that of base, the median of the rounds' ratios agrees, and a
rank test tells both sides apart. The test is corrected for the number of cells (Holm) and for looking several times. A cell is the same when the interval
of that median lies within --min-effect of 1. Undecided cells get more rounds, until --budget is spent.

A kernel that takes another path in head is another kernel: a path is the choices that change its bits, which benchrun list shows. Its cells are not
compared, and name both paths. A revision too old to report paths is compared.

Ctrl-C finishes the current sample, saves, and prints how to resume. A second Ctrl-C stops at once. An interrupted comparison continues with the same
sources, after its last whole round. One that came to its end does not: its verdicts allow for as many looks as it had.

Exit codes: 0 no cell is worse; 1 a cell is worse, or fails in head alone; 2 a cell is undecided; 3 interrupted, or a cell cannot be compared because base
fails, the paths differ, or it needs more threads or memory than there are.`
}

// check refuses bad values of flags that are not part of the grid.
func (c *ABCmd) check() error {
	switch {
	case c.Base == "":
		return exitf(exitUsage, "--base: name a revision, such as main, or keys of a point, such as kernel=tiled")
	case !(c.MinEffect > 0) || !(c.Alpha > 0 && c.Alpha < 1) || c.Budget < 0 || c.Timeout < 0:
		return exitf(exitUsage, "--min-effect %v --alpha %v --budget %v --timeout %v: want an effect above 0, a chance between 0 and 1, and times of 0 or more", c.MinEffect, c.Alpha, c.Budget, c.Timeout)
	}
	return nil
}

// Run compares.
func (c *ABCmd) Run(k *kong.Context, to streams, lab Lab) error {
	if c.Resume {
		return c.resume(k, to, lab)
	}
	if err := c.check(); err != nil {
		return err
	}
	if !given(k)["seq"] { // few cells, which a minute decides
		c.set("seq_q", 512, 2048)
	}
	lab, peers, err := c.among(lab, c.Timeout)
	if err != nil {
		return err
	}
	defer lab.close()
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.Out == "" {
		c.Out = freshFolder("ab")
	}
	return c.compare(to, lab, func(sides [2]program) (js [2]*run.Journal, err error) {
		meta, err := lab.newMeta(k, c.Seed)
		if err != nil {
			return js, err
		}
		meta.Peers, meta.PeerSum = peers, c.Peers.sum()
		for i, p := range sides {
			meta.Commit, meta.Program, meta.Paths = p.Commit, p.Sum, p.paths
			if js[i], err = run.Create(c.folder(i), meta); err != nil && i == 1 {
				// Half a comparison could be neither resumed nor begun again.
				return js, errors.Join(err, js[0].Discard())
			} else if err != nil {
				return js, err
			}
		}
		return js, nil
	})
}

// abSides are the names of the sides, of their flags and of their folders.
var abSides = [2]string{"base", "head"}

// folder returns the run folder of a side.
func (c *ABCmd) folder(side int) string { return filepath.Join(c.Out, abSides[side]) }

// abFixed are the flags that a resumed comparison keeps: its samples and their verdicts depend on
// them.
var abFixed = append(gridFlags(), "base", "head", "min-effect", "alpha", "max-memory", "seed")

// resume continues a comparison. A flag that is not given keeps the value with which the comparison
// was begun.
func (c *ABCmd) resume(k *kong.Context, to streams, lab Lab) error {
	if c.Out == "" {
		return exitf(exitUsage, "--resume: name the folder with -o DIR")
	}
	var journals [2]*run.Journal
	complete := true
	for side := range journals {
		j, err := run.Resume(c.folder(side))
		if side > 0 && errors.Is(err, fs.ErrNotExist) {
			return exitf(exitUsage, "%s: the comparison was ended before it began: begin it again, with the same command", c.Out)
		} else if err != nil {
			return err
		}
		defer j.Close()
		for _, w := range j.Run().Warnings {
			fmt.Fprintf(to.Err, "benchrun: %s\n", w)
		}
		if err := lab.sameMachine(j.Run().Meta); err != nil {
			return exitf(exitUsage, "%s: %w", c.Out, err)
		}
		journals[side], complete = j, complete && j.Run().Complete()
	}
	if complete {
		return exitf(exitUsage, "%s: the comparison came to its end, and more rounds would be one look too many: begin another one", c.Out)
	}
	line, err := againWith(k, journals[0].Run().Meta.Flags, c.Out, abFixed, to)
	if err != nil {
		return err
	}
	began := &line.AB
	if err := began.check(); err != nil {
		return err
	}
	lab, peers, err := began.among(lab, began.Timeout)
	if err != nil {
		return err
	}
	defer lab.close()
	if err := samePeers(c.Out, journals[0].Run().Meta, peers, began.Peers); err != nil {
		return err
	}
	return began.compare(to, lab, func(sides [2]program) ([2]*run.Journal, error) {
		for i, p := range sides {
			if journals[i].Run().Meta.Program != p.Sum {
				return journals, exitf(exitUsage, "%s: the sources of --%s have changed since this comparison was begun: begin another one", c.Out, abSides[i])
			}
			if err := samePaths(journals[i].Run().Meta, p.paths); err != nil {
				return journals, exitf(exitUsage, "%s: --%s: %w", c.Out, abSides[i], err)
			}
		}
		return journals, nil
	})
}

// compare builds both sides, measures them into their journals, and prints the verdicts.
func (c *ABCmd) compare(to streams, lab Lab, open func([2]program) ([2]*run.Journal, error)) error {
	measured := lab.server()
	c.best = true
	points, err := c.points(lab, to.Err)
	if err != nil {
		return err
	}
	cells, err := c.cells(points, lab)
	if err != nil {
		return err
	}
	sides, shop, err := c.build(lab, to.Err)
	defer shop.Close()
	if err != nil {
		return err
	}
	ctx, stop, release := interruptible(to.Err)
	defer release()
	tell, done := newProgress(to.Err)
	comparison := &ab.Comparison{Cells: cells, Effect: c.MinEffect, Alpha: c.Alpha, Budget: c.Budget, Seed: c.Seed, Tell: tell}
	for i := range sides {
		var points []run.Point
		for _, cell := range cells {
			points = append(points, cell[i])
		}
		sides[i].paths = sides[i].paths.Of(points)
	}
	journals, err := open(sides)
	if err != nil {
		return err
	}
	for i, p := range sides {
		defer journals[i].Close()
		client := clientOf(p.Path, c.Timeout, c.Peers)
		defer client.Close()
		comparison.Sides[i] = &harness.Recorder{
			Workload: measured.Workload, Worker: client, Journal: journals[i], MaxMemory: c.MaxMemory.limit(), CPUs: runtime.NumCPU(),
		}
	}
	comparison.Floors = journals[0].Run().Meta.Floors
	c.tellFloors(comparison.Floors, cells, to.Err)
	verdicts, reason, err := comparison.Run(ctx, stop)
	done()
	if err != nil {
		return kept(err, "ab", c.Out)
	}
	for _, j := range journals {
		end := run.End{Reason: reason, Complete: reason != harness.Interrupted, Time: time.Now()}
		if err := errors.Join(j.Append(run.Record{End: &end}), j.Run().Write()); err != nil {
			return kept(err, "ab", c.Out)
		}
	}
	concluded := c.conclude(verdicts, reason)
	if c.JSON {
		err = c.writeJSON(to.Out, journals, verdicts, reason, concluded)
	} else {
		err = writeAB(to.Out, verdicts)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(to.Err, "\n%s: %d cells, %s; samples of both sides: benchrun compare %s %s\n", c.Out, len(verdicts), reason, c.folder(0), c.folder(1))
	return concluded
}

// tellFloors says for which cells --min-effect is raised to the floor of this machine.
func (c *ABCmd) tellFloors(floors map[string]float64, cells [][2]run.Point, tell io.Writer) {
	if len(floors) == 0 {
		fmt.Fprintln(tell, "the floor of this machine is not known; benchrun doctor finds it")
	}
	for _, kind := range []struct{ unit, cells string }{{run.ProbeFlop, "of many queries"}, {run.ProbeBytes, "of one query"}} {
		of := func(cell [2]run.Point) bool {
			return harness.ProbeUnit(cell[0]) == kind.unit || harness.ProbeUnit(cell[1]) == kind.unit
		}
		if floor := floors[kind.unit]; floor > c.MinEffect && slices.ContainsFunc(cells, of) {
			fmt.Fprintf(tell, "in cells %s --min-effect is raised to %.3g, the floor of this machine: benchrun doctor\n", kind.cells, floor)
		}
	}
}

// cells pairs the points of both sides: the same ones, except for the keys that a side names.
func (c *ABCmd) cells(points []run.Point, lab Lab) ([][2]run.Point, error) {
	var cells [][2]run.Point
	for _, p := range points {
		var cell [2]run.Point
		for i, side := range []struct{ flag, rev string }{{"base", c.Base}, {"head", c.Head}} {
			cell[i] = p
			if !ours(side.rev) {
				continue
			}
			var err error
			if cell[i], err = p.Edited(side.rev); err == nil {
				err = cmp.Or(known("kernel", []string{cell[i].Kernel}, algorithms(lab.Kernels)), known("isa", []string{cell[i].ISA}, lab.knownISAs()))
			}
			if err != nil {
				return nil, exitf(exitUsage, "--%s %s: %w", side.flag, side.rev, err)
			}
		}
		if !slices.Contains(cells, cell) {
			cells = append(cells, cell)
		}
	}
	return cells, nil
}
