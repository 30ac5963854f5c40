package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"attnlab/harness"
	"attnlab/harness/run"
)

// A program is what a side runs.
type program struct {
	path   string
	sum    string     // SHA-256 of the file at path
	commit run.Commit // its sources
	paths  run.Paths  // of its kernels
}

// build builds the programs of both sides in a workshop, which the caller closes; it is nil where
// nothing is built. Then it asks each side for the paths of its kernels. Ctrl-C ends it at once:
// there is nothing to keep yet.
func (c *ABCmd) build(lab *harness.Lab, tell io.Writer) (sides [2]program, shop *workshop, err error) {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if !ours(c.Base) || !ours(c.Head) {
		if shop, err = openWorkshop(); err != nil {
			return sides, nil, err
		}
		shop.tell = tell
	}
	build := func(p *program, rev, side string) (err error) {
		if ours(rev) {
			p.commit = run.ProgramCommit()
			p.path, err = os.Executable()
		} else {
			*p, err = shop.build(ctx, rev, side)
		}
		if err == nil {
			p.sum, err = sumOf(p.path)
		}
		return err
	}
	ask := func(p *program, rev, _ string) (err error) {
		if ours(rev) {
			p.paths = lab.Paths()
		} else {
			p.paths, err = childOf(p.path, c.Timeout, Peers{}).Paths(ctx)
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

// ours reports whether this program measures a side: it is keys of a point, not a revision.
func ours(side string) bool { return strings.Contains(side, "=") }

// sumOf returns the SHA-256 of a file. Builds of the same sources by the same Go have the same sum.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A workshop is a temporary folder for builds. It belongs to this process for as long as it holds
// the lock in it; a later process removes a workshop whose owner was killed.
type workshop struct {
	dir  string
	lock *os.File
	tell io.Writer // is told what is built
}

const (
	workshopPrefix = "benchrun-ab-"
	workshopLock   = "lock"
)

// openWorkshop makes a workshop, and removes those that killed processes left.
func openWorkshop() (*workshop, error) {
	removeStaleWorkshops()
	for {
		dir, err := os.MkdirTemp("", workshopPrefix)
		if err != nil {
			return nil, err
		}
		if s, err := newWorkshop(dir); s != nil || err != nil {
			return s, err
		}
	}
}

// newWorkshop makes a new folder a workshop. Both results are nil if another process, which found
// the folder before it was locked, takes it for a stale one.
func newWorkshop(dir string) (*workshop, error) {
	f, err := os.Create(filepath.Join(dir, workshopLock))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	switch err := run.Lock(f); {
	case errors.Is(err, run.ErrLocked), err == nil && !isAt(f, f.Name()):
		f.Close()
		return nil, nil
	case err != nil && !errors.Is(err, errors.ErrUnsupported):
		f.Close()
		return nil, err
	}
	return &workshop{dir: dir, lock: f}, nil
}

// isAt reports whether an open file is the one at a path.
func isAt(f *os.File, path string) bool {
	opened, err1 := f.Stat()
	found, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, found)
}

// removeStaleWorkshops removes workshops whose owners have ended. What it may not open or remove,
// such as another user's, it leaves.
func removeStaleWorkshops() {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), workshopPrefix) {
			continue
		}
		dir := filepath.Join(os.TempDir(), e.Name())
		f, err := os.Open(filepath.Join(dir, workshopLock))
		if err != nil {
			_ = os.Remove(dir) // if it is empty: its owner was killed before it made the lock
			continue
		}
		if run.Lock(f) != nil {
			f.Close()
			continue
		}
		(&workshop{dir: dir, lock: f}).close()
	}
}

// close removes a workshop, if there is one.
func (s *workshop) close() {
	if s == nil {
		return
	}
	_ = os.RemoveAll(s.dir) // while the lock is held, so that nobody else takes the folder
	s.lock.Close()
	_ = os.Remove(s.lock.Name()) // Windows removes no open file
	_ = os.Remove(s.dir)
}

// build builds a revision, or the checkout as it stands, as the program of a side.
func (s *workshop) build(ctx context.Context, rev, side string) (p program, err error) {
	here, err := checkout("").git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return p, err
	}
	top := checkout(strings.TrimSpace(here))
	top.unregisterStale(ctx)
	p.path = filepath.Join(s.dir, side+"-benchrun")
	if rev == "worktree" {
		err = s.buildCheckout(ctx, top, &p)
		return p, err
	}
	if p.commit.Revision, err = top.commit(ctx, rev); err != nil {
		return p, err
	}
	sources := checkout(filepath.Join(s.dir, side+"-sources"))
	defer top.removeWorktree(ctx, sources)
	if err := top.addWorktree(ctx, sources, p.commit.Revision); err != nil {
		return p, err
	}
	return p, s.goBuild(ctx, sources, rev, p.path)
}

// buildCheckout builds the checkout as it stands, and notes its commit and how it differs from it.
func (s *workshop) buildCheckout(ctx context.Context, top checkout, p *program) (err error) {
	if p.commit.Revision, err = top.commit(ctx, "HEAD"); err != nil {
		return err
	}
	if p.commit.Diff, err = top.diff(ctx, p.commit.Revision); err != nil {
		return err
	}
	p.commit.Modified = p.commit.Diff != ""
	if err := s.goBuild(ctx, top, "worktree", p.path); err != nil {
		return err
	}
	after, err := top.diff(ctx, p.commit.Revision)
	if err == nil && after != p.commit.Diff {
		err = errors.New("files of the checkout were changed while it was built: begin again")
	}
	return err
}

// goBuild builds the program of a checkout at a path.
func (s *workshop) goBuild(ctx context.Context, sources checkout, rev, path string) error {
	fmt.Fprintf(s.tell, "building %s\n", rev)
	_, err := output(ctx, string(sources), []string{"GOTMPDIR=" + s.dir}, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, mainPackage)
	return err
}

// mainPackage is the package of this command in a checkout.
const mainPackage = "./cmd/benchrun"
