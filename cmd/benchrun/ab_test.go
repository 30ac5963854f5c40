package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnlab/internal/processtest"
)

// repository makes a repository of one commit the folder at hand, and a program go of the script, which finds the path to build at in $5. Temporary files go
// to the folder that is returned.
func repository(t *testing.T, script string) (temporary string) {
	t.Helper()
	processtest.Needed(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	bin, top := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Chdir(top)
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--allow-empty", "-m", "first"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	temporary = t.TempDir()
	t.Setenv("TMPDIR", temporary)
	return temporary
}

// nothingLeft demands that a comparison left no run, no temporary file and no worktree.
func nothingLeft(t *testing.T, temporary string) {
	t.Helper()
	for _, pattern := range []string{"r/*/*", filepath.Join(temporary, "*"), ".git/worktrees/*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// ab compares naive on 8 rows, into the folder r, and returns the exit code and what stands on standard error.
func ab(args ...string) (code int, errs string) {
	var o, e bytes.Buffer
	code = benchrun(append([]string{"ab", "--kernel", "naive", "--seq", "8", "-o", "r"}, args...), streams{&o, &e}, allKernels())
	return code, e.String()
}

// A comparison that cannot begin leaves nothing that would be in the way of the next one.
func TestABThatCannotBegin(t *testing.T) {
	temporary := repository(t, `test ! -e broken && : >"$5"`)
	if err := os.WriteFile("broken", nil, 0o644); err != nil { // in head alone
		t.Fatal(err)
	}
	for _, c := range []struct{ base, want string }{
		{"nosuchrev", "--base nosuchrev: git rev-parse"},
		{"HEAD", "--head worktree: go build"},
	} {
		code, errs := ab("--base", c.base)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("exit %d, want %d, and %q in\n%s", code, exitUsage, c.want, errs)
		}
		nothingLeft(t, temporary)
	}
	if err := os.MkdirAll("r/head", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("r/head/journal.jsonl", []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, errs := ab("--base", "kernel=naive", "--head", "kernel=naive")
	if _, err := os.Stat("r/base"); err == nil || !strings.Contains(errs, "r/head holds a journal.jsonl without its run.json") {
		t.Errorf("base was begun, and head cannot be: %s", errs)
	}
}

// Ctrl-C ends a build at once, and there is nothing to resume.
func TestABInterruptedWhileItBuilds(t *testing.T) {
	temporary := repository(t, `: >"$BUILDING"; exec sleep 100`)
	building := filepath.Join(t.TempDir(), "building")
	t.Setenv("BUILDING", building)
	cmd, stderr := begin(t, "ab", "--base", "HEAD", "--kernel", "naive", "--seq", "8", "-o", "r")
	for range 1000 {
		if _, err := os.Stat(building); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code := exitOf(cmd.Wait())
	if text := stderr.String(); code != exitIncomplete || !strings.Contains(text, "interrupted while building") || strings.Contains(text, "finishing") {
		t.Errorf("exit %d, want %d: %s", code, exitIncomplete, text)
	}
	nothingLeft(t, temporary)
}
