package command

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/lab/revision"
)

// A program is the program of a side, with the paths of its kernels.
type program struct {
	revision.Program
	paths run.Paths
}

// build builds the programs of both sides, and asks each for the paths of its kernels. The caller
// closes the workshop that holds the programs; it is nil if nothing was built. Ctrl-C ends a build
// at once: there is nothing to keep yet.
func (c *ABCmd) build(lab Lab, tell io.Writer) (sides [2]program, shop *revision.Workshop, err error) {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if !ours(c.Base) || !ours(c.Head) {
		if shop, err = revision.Open(tell); err != nil {
			return sides, nil, err
		}
	}
	build := func(p *program, rev, side string) (err error) {
		if !ours(rev) {
			p.Program, err = shop.Build(ctx, rev, side)
			return err
		}
		p.Commit = run.ProgramCommit()
		if p.Path, err = os.Executable(); err != nil {
			return err
		}
		p.Sum, err = revision.Sum(p.Path)
		return err
	}
	ask := func(p *program, rev, _ string) (err error) {
		if ours(rev) {
			p.paths = harness.Paths(lab.Kernels)
		} else {
			p.paths, err = clientOf(p.Path, c.Timeout, Peers{}).Paths(ctx)
		}
		return err
	}
	for _, step := range [...]func(p *program, rev, side string) error{build, ask} {
		for i, rev := range [2]string{c.Base, c.Head} {
			err := step(&sides[i], rev, abSides[i])
			if ctx.Err() != nil {
				return sides, shop, exitf(exitIncomplete, "interrupted while building, before any measurement: begin again with the same command")
			}
			if err != nil {
				return sides, shop, exitf(exitUsage, "--%s %s: %w", abSides[i], rev, err)
			}
		}
	}
	return sides, shop, nil
}

// ours reports whether a side names keys of a point, which this program measures, and no revision.
func ours(side string) bool { return strings.Contains(side, "=") }
