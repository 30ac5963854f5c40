// Package revisiontest makes git repositories whose builds are scripts, for tests that build
// revisions.
package revisiontest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/internal/processtest"
)

// Repository makes the current folder a repository of one commit, and returns the folder that
// temporary files go to. It also puts a program go on the path: go build runs the script, which
// finds the path to build at in $5, and go list lists nothing.
func Repository(t *testing.T, script string) (temporary string) {
	t.Helper()
	processtest.Needed(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	bin, top := t.TempDir(), t.TempDir()
	Script(t, filepath.Join(bin, "go"), `test "$1" = list && exit`+"\n"+script)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Chdir(top)
	Git(t, "init", "--quiet")
	Git(t, "commit", "--quiet", "--allow-empty", "-m", "first")
	temporary = t.TempDir()
	t.Setenv("TMPDIR", temporary)
	return temporary
}

// Script writes a shell script that can be run.
func Script(t *testing.T, path, script string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Git runs git in the current folder and returns what it prints.
func Git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
