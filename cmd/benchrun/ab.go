package main

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
	"attnlab/harness/run"

	"github.com/alecthomas/kong"
)

// ABCmd compares two revisions, or two kernels of this build.
type ABCmd struct {
	Base string `placeholder:"REV" help:"What to compare with: a revision that git knows, or keys of a point in this build, such as kernel=tiled."`
	Head string `default:"worktree" placeholder:"REV" help:"What is in question: a revision, the checkout as it stands (${default}), or keys of a point, such as kernel=flash."`

	Grid
	MinEffect float64       `name:"min-effect" default:"0.02" placeholder:"X" help:"Least difference that matters, as a part of the time (${default})."`
	Alpha     float64       `default:"0.05" placeholder:"P" help:"Chance of a false alarm over all cells and looks (${default})."`
	Budget    time.Duration `default:"1m" help:"Stop after this time, verification included; the first round is always finished (${default})."`
	MaxMemory Bytes         `name:"max-memory" placeholder:"SIZE" help:"Skip cells that need more, such as 2GB; default half of what is available."`
	Timeout   time.Duration `default:"2m" help:"Give a cell up when one of its samples takes longer (${default})."`
	Seed      uint64        `placeholder:"N" help:"Of the order of measurements; default random."`
	Resume    bool          `help:"Go on with the comparison in --out that was interrupted, with the flags it was begun with."`
	Out       string        `short:"o" placeholder:"DIR" help:"Folder for the two runs, base and head; default a fresh one under runs/."`
	JSON      bool          `name:"json" help:"Write JSON instead of text."`
}

// Help is printed above the flags.
func (*ABCmd) Help() string {
	return `Both sides are built (revisions in worktrees of their own, so nothing of the checkout is touched), verified, and timed alternately, each
sample in a process of its own, in the order A B B A or B A A B, cell by cell. run.json of a side has the commit that was built; of the checkout it also has
a hash of the files that differ from that commit, untracked ones that are built included. A cell is worse when the least time of head is more than --min-effect above that of
base, the median of the rounds' ratios agrees, and ranks tell the two apart after Holm's correction over all cells and one for looking several times; it is the same
when the interval of that median lies within --min-effect of 1. Until either holds, more rounds are taken, as far as --budget goes.

A kernel that takes another path in head (benchrun list shows paths: the choices that change a kernel's bits) is another kernel. Its cells are not
compared, and say which path each side took. A revision that is too old to report paths is compared.

Ctrl-C finishes the sample in hand, saves, and says how to resume; a second one stops at once. A comparison that was interrupted is resumed with the same
sources, from its last whole rounds; one that came to its end is not, since its verdicts allow for as many looks as it had.

Exit codes: 0 no cell is worse, 1 at least one is, or fails where base does not, 2 at least one is undecided, 3 interrupted, or at least one cannot be
compared: base fails, the sides take different paths, or it asks for more threads or memory than there are.`
}

// check refuses flags that are not about single points.
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
func (c *ABCmd) Run(k *kong.Context, to streams, all kernelList) error {
	if c.Resume {
		return c.resume(k, to, all)
	}
	if err := c.check(); err != nil {
		return err
	}
	if !given(k)["seq"] { // few cells, which a minute decides
		c.Seq = []int{512, 2048}
	}
	all, peers, err := c.among(all, c.Timeout)
	if err != nil {
		return err
	}
	defer all.close()
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.Out == "" {
		c.Out = freshFolder("ab")
	}
	return c.compare(to, all, func(sides [2]program) (js [2]*run.Journal, err error) {
		meta, err := newMeta(k, c.Seed)
		if err != nil {
			return js, err
		}
		meta.Peers, meta.PeerSum = peers, c.Peers.sum()
		for i, p := range sides {
			meta.Commit, meta.Program, meta.Paths = p.commit, p.sum, p.paths
			if js[i], err = run.Create(c.folder(i), meta); err != nil && i == 1 {
				return js, errors.Join(err, js[0].Discard()) // half a comparison could be neither resumed nor begun again
			} else if err != nil {
				return js, err
			}
		}
		return js, nil
	})
}

// abSides name the sides, and their flags and folders.
var abSides = [2]string{"base", "head"}

// folder is the run folder of a side.
func (c *ABCmd) folder(side int) string { return filepath.Join(c.Out, abSides[side]) }

// abFixed are the flags that a resumed comparison keeps: the samples it has, and what they are
// worth, depend on them.
var abFixed = append(slices.Clone(gridFlags), "base", "head", "min-effect", "alpha", "max-memory", "seed")

// resume goes on with a comparison. Flags that are not given are those it was begun with.
func (c *ABCmd) resume(k *kong.Context, to streams, all kernelList) error {
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
		if err := sameMachine(j.Run().Meta); err != nil {
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
	all, peers, err := began.among(all, began.Timeout)
	if err != nil {
		return err
	}
	defer all.close()
	if err := samePeers(c.Out, journals[0].Run().Meta, peers, began.Peers); err != nil {
		return err
	}
	return began.compare(to, all, func(sides [2]program) ([2]*run.Journal, error) {
		for i, p := range sides {
			if journals[i].Run().Meta.Program != p.sum {
				return journals, exitf(exitUsage, "%s: the sources of --%s have changed since this comparison was begun: begin another one", c.Out, abSides[i])
			}
			if err := samePaths(journals[i].Run().Meta, p.paths); err != nil {
				return journals, exitf(exitUsage, "%s: --%s: %w", c.Out, abSides[i], err)
			}
		}
		return journals, nil
	})
}

// compare builds both sides, goes on with their journals, and says what came of it.
func (c *ABCmd) compare(to streams, all kernelList, open func([2]program) ([2]*run.Journal, error)) error {
	lab := newLab(all)
	c.best = true
	points, err := c.points(lab.Kernels, to.Err)
	if err != nil {
		return err
	}
	cells, err := c.cells(points, all)
	if err != nil {
		return err
	}
	sides, shop, err := c.build(lab, to.Err)
	defer shop.close()
	if err != nil {
		return err
	}
	ctx, stop, release := interruptible(to.Err)
	defer release()
	tell, done := newProgress(to.Err)
	ab := &harness.AB{Lab: lab, Cells: cells, Alpha: c.Alpha, Budget: c.Budget, Seed: c.Seed, MaxMemory: c.MaxMemory.limit(), CPUs: runtime.NumCPU(), Tell: tell}
	for i := range sides {
		var points []run.Point
		for _, cell := range cells {
			points = append(points, cell[i])
		}
		sides[i].paths = sides[i].paths.Of(points)
	}
	if ab.Journals, err = open(sides); err != nil {
		return err
	}
	for i, p := range sides {
		defer ab.Journals[i].Close()
		child := childOf(p.path, c.Timeout, c.Peers)
		defer child.Close()
		ab.Sides[i] = child
	}
	ab.Effect, ab.Floors = c.MinEffect, ab.Journals[0].Run().Meta.Floors
	c.tellFloors(ab.Floors, cells, to.Err)
	verdicts, reason, err := ab.Run(ctx, stop)
	done()
	if err != nil {
		return kept(err, "ab", c.Out)
	}
	for _, j := range ab.Journals {
		end := run.End{Reason: reason, Complete: reason != harness.Interrupted, Time: time.Now()}
		if err := errors.Join(j.Append(run.Record{End: &end}), j.Run().Write()); err != nil {
			return kept(err, "ab", c.Out)
		}
	}
	concluded := c.conclude(verdicts, reason)
	if c.JSON {
		err = c.writeJSON(to.Out, ab, verdicts, reason, concluded)
	} else {
		err = writeAB(to.Out, verdicts)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(to.Err, "\n%s: %d cells, %s; samples of both sides: benchrun compare %s %s\n", c.Out, len(verdicts), reason, c.folder(0), c.folder(1))
	return concluded
}

// tellFloors says in which cells --min-effect is raised.
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

// cells pairs the points of the two sides: the same ones, but for the keys that a side names.
func (c *ABCmd) cells(points []run.Point, all kernelList) ([][2]run.Point, error) {
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
				err = cmp.Or(known("kernel", []string{cell[i].Kernel}, algorithms(all)), known("isa", []string{cell[i].ISA}, knownISAs(all)))
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
