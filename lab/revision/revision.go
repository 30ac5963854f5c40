// Package revision builds revisions of this repository, and the checkout with its changes, into
// programs.
package revision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"attnlab/harness/run"
)

// Worktree is the name of the checkout with its changes, where other names are revisions of git.
const Worktree = "worktree"

// A Program is a build of a revision.
type Program struct {
	Path   string
	Sum    string     // SHA-256 of the file at Path
	Commit run.Commit // its sources
}

// Sum returns the SHA-256 of a file, in hexadecimal. Builds of the same sources by the same Go have
// the same sum.
func Sum(path string) (string, error) {
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

// A Workshop is a temporary folder for builds. It belongs to this process while the process holds
// the lock in it. A later process removes the workshops of processes that were killed.
type Workshop struct {
	dir  string
	lock *os.File
	tell io.Writer
}

const (
	prefix   = "benchrun-ab-"
	lockName = "lock"
)

// Open makes a workshop, and removes the workshops that killed processes left. Build writes to tell
// what it builds. The caller closes the workshop.
func Open(tell io.Writer) (*Workshop, error) {
	removeStaleWorkshops()
	for {
		dir, err := os.MkdirTemp("", prefix)
		if err != nil {
			return nil, err
		}
		if s, err := newWorkshop(dir, tell); s != nil || err != nil {
			return s, err
		}
	}
}

// newWorkshop makes a new folder a workshop. Both results are nil if another process found the
// folder before it was locked, and takes it for a stale one.
func newWorkshop(dir string, tell io.Writer) (*Workshop, error) {
	f, err := os.Create(filepath.Join(dir, lockName))
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
	return &Workshop{dir: dir, lock: f, tell: tell}, nil
}

// isAt reports whether an open file is the file at a path.
func isAt(f *os.File, path string) bool {
	opened, err1 := f.Stat()
	found, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, found)
}

// removeStaleWorkshops removes workshops whose owners have ended. It leaves what it may not open or
// remove, such as those of another user.
func removeStaleWorkshops() {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		dir := filepath.Join(os.TempDir(), e.Name())
		f, err := os.Open(filepath.Join(dir, lockName))
		if err != nil {
			_ = os.Remove(dir) // only if it is empty: its owner was killed before it made the lock
			continue
		}
		if run.Lock(f) != nil {
			f.Close()
			continue
		}
		(&Workshop{dir: dir, lock: f}).Close()
	}
}

// Close removes a workshop. It may be nil.
func (s *Workshop) Close() {
	if s == nil {
		return
	}
	_ = os.RemoveAll(s.dir) // while the lock is held, so that no other process takes the folder
	s.lock.Close()
	_ = os.Remove(s.lock.Name()) // Windows removes no open file
	_ = os.Remove(s.dir)
}

// Build builds a revision, or the checkout with its changes if rev is [Worktree]. Programs of
// different names do not overwrite each other.
func (s *Workshop) Build(ctx context.Context, rev, name string) (p Program, err error) {
	here, err := checkout("").git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return p, err
	}
	top := checkout(strings.TrimSpace(here))
	top.unregisterStale(ctx)
	p.Path = filepath.Join(s.dir, name+"-benchrun")
	if rev == Worktree {
		err = s.buildCheckout(ctx, top, &p)
	} else {
		err = s.buildCommit(ctx, top, rev, name, &p)
	}
	if err == nil {
		p.Sum, err = Sum(p.Path)
	}
	return p, err
}

// buildCommit builds a revision from a worktree of its own, so that the checkout stays as it is.
func (s *Workshop) buildCommit(ctx context.Context, top checkout, rev, name string, p *Program) (err error) {
	if p.Commit.Revision, err = top.commit(ctx, rev); err != nil {
		return err
	}
	sources := checkout(filepath.Join(s.dir, name+"-sources"))
	defer top.removeWorktree(ctx, sources)
	if err := top.addWorktree(ctx, sources, p.Commit.Revision); err != nil {
		return err
	}
	return s.goBuild(ctx, sources, rev, p.Path)
}

// buildCheckout builds the checkout with its changes. It notes the commit and the hash of the
// changes.
func (s *Workshop) buildCheckout(ctx context.Context, top checkout, p *Program) (err error) {
	if p.Commit.Revision, err = top.commit(ctx, "HEAD"); err != nil {
		return err
	}
	if p.Commit.Diff, err = top.diff(ctx, p.Commit.Revision); err != nil {
		return err
	}
	p.Commit.Modified = p.Commit.Diff != ""
	if err := s.goBuild(ctx, top, Worktree, p.Path); err != nil {
		return err
	}
	after, err := top.diff(ctx, p.Commit.Revision)
	if err == nil && after != p.Commit.Diff {
		err = errors.New("files of the checkout were changed while it was built: begin again")
	}
	return err
}

// goBuild builds the program of a checkout at a path.
func (s *Workshop) goBuild(ctx context.Context, sources checkout, rev, path string) error {
	fmt.Fprintf(s.tell, "building %s\n", rev)
	_, err := output(ctx, string(sources), []string{"GOTMPDIR=" + s.dir}, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, mainPackage)
	return err
}

// mainPackage is the package of the program in a checkout.
const mainPackage = "./cmd/benchrun"
