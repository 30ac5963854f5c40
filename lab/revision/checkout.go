package revision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attnlab/internal/group"
)

// A checkout is the folder at the top of a git checkout, or of one of its worktrees.
type checkout string

// git runs a git command in the checkout and returns its standard output.
func (c checkout) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, string(c), nil, "git", args...)
}

// commit returns the hash of the commit that a revision names.
func (c checkout) commit(ctx context.Context, rev string) (string, error) {
	out, err := c.git(ctx, "rev-parse", "--verify", rev+"^{commit}")
	return strings.TrimSpace(out), err
}

// addWorktree checks a commit out in a folder of its own.
func (c checkout) addWorktree(ctx context.Context, at checkout, commit string) error {
	_, err := c.git(ctx, "worktree", "add", "--detach", "--quiet", string(at), commit)
	return err
}

// removeWorktree removes a worktree and its registration, also after Ctrl-C. The second --force is
// for one whose making was interrupted.
func (c checkout) removeWorktree(ctx context.Context, at checkout) {
	_, _ = c.git(context.WithoutCancel(ctx), "worktree", "remove", "--force", "--force", string(at))
}

// unregisterStale makes git forget the worktrees of workshops whose processes were killed and whose
// folders are gone. It leaves worktrees of other names alone: a user's may be on a disk that is not
// mounted now.
func (c checkout) unregisterStale(ctx context.Context) {
	list, _ := c.git(ctx, "worktree", "list", "--porcelain")
	for line := range strings.Lines(list) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "worktree ")
		workshop := filepath.Dir(path)
		if !ok || !strings.HasPrefix(filepath.Base(workshop), prefix) {
			continue
		}
		if _, err := os.Lstat(workshop); errors.Is(err, fs.ErrNotExist) {
			c.removeWorktree(ctx, checkout(path))
		}
	}
}

// diff returns the hash of what differs between the checkout and a commit, for [run.Commit]. It
// covers tracked files, and untracked files that are built into the program. It is empty if nothing
// differs.
func (c checkout) diff(ctx context.Context, commit string) (string, error) {
	changed, err := c.files(ctx, "--no-optional-locks", "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", commit, "--")
	if err != nil {
		return "", err
	}
	tracked, err := c.files(ctx, "ls-files", "-z")
	if err != nil {
		return "", err
	}
	built, err := c.built(ctx)
	if err != nil {
		return "", err
	}
	known := map[string]bool{}
	for _, name := range slices.Concat(changed, tracked) {
		known[name] = true
	}
	for _, name := range built {
		if !known[name] {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return "", nil
	}
	slices.Sort(changed)
	h := sha256.New()
	for _, name := range slices.Compact(changed) {
		sum, err := c.sum(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s  %s\x00", sum, name)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sum returns the SHA-256 of a file of the checkout, of a link's target, or "deleted".
func (c checkout) sum(name string) (string, error) {
	path := filepath.Join(string(c), filepath.FromSlash(name))
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "deleted", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return fmt.Sprintf("%x", sha256.Sum256([]byte(target))), err
	case info.IsDir():
		return "", fmt.Errorf("%s is a submodule, which has no hash here: commit it, or compare revisions", name)
	}
	return Sum(path)
}

// files runs a git command that lists files, each ended by a zero byte. Their names are relative to
// the checkout.
func (c checkout) files(ctx context.Context, args ...string) ([]string, error) {
	out, err := c.git(ctx, args...)
	return strings.FieldsFunc(out, func(r rune) bool { return r == 0 }), err
}

// built lists the files of the checkout from which Go builds benchrun, relative to the checkout.
func (c checkout) built(ctx context.Context) ([]string, error) {
	const kinds = "GoFiles,CgoFiles,CFiles,CXXFiles,HFiles,SFiles,SysoFiles,EmbedFiles"
	out, err := output(ctx, string(c), nil, "go", "list", "-deps", "-buildvcs=false", "-json=Dir,"+kinds, mainPackage)
	if err != nil {
		return nil, err
	}
	var names []string
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p struct {
			Dir                                                                        string
			GoFiles, CgoFiles, CFiles, CXXFiles, HFiles, SFiles, SysoFiles, EmbedFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return names, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		dir, err := filepath.Rel(string(c), p.Dir)
		if err != nil || !filepath.IsLocal(dir) { // a package of Go or of another module
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.CXXFiles, p.HFiles, p.SFiles, p.SysoFiles, p.EmbedFiles) {
			names = append(names, filepath.ToSlash(filepath.Join(dir, name)))
		}
	}
}

// output runs a program in a folder and returns its standard output. An empty folder is the current
// one. An error has what the program wrote to standard error. When ctx ends or the program fails,
// neither the program nor any process that it started lives on.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(cleanEnvironment(os.Environ()), env...), &out, &errs
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return group.Terminate(cmd.Process.Pid) }
	group.Lead(cmd)
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if cmd.Process != nil {
		group.Kill(cmd.Process.Pid)
	}
	if said := bytes.TrimSpace(errs.Bytes()); len(said) > 0 {
		return "", fmt.Errorf("%s %s: %s", name, args[0], said)
	}
	return "", fmt.Errorf("%s %s: %w", name, args[0], err)
}

// cleanEnvironment returns an environment without the variables that git sets for its hooks: they
// name a repository, an index and settings of git's own. Variables that name a user's configuration
// stay.
func cleanEnvironment(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		return strings.HasPrefix(v, "GIT_") && (!strings.HasPrefix(v, "GIT_CONFIG_") || strings.HasPrefix(v, "GIT_CONFIG_PARAMETERS="))
	})
}
