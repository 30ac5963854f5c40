//go:build unix

package revision

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"attnlab/lab/revision/revisiontest"
)

// TestDiff checks which changes of a checkout its hash tells apart.
func TestDiff(t *testing.T) {
	real, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go")
	}
	revisiontest.Repository(t, "")
	t.Setenv("PATH", filepath.Dir(real)+string(os.PathListSeparator)+os.Getenv("PATH"))
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write(".gitignore", "ignored*\n")
	write("cmd/benchrun/main.go", "package main\n\nimport _ \"embed\"\n\n//go:embed text*\nvar text string\n\nfunc main() {}\n")
	write("cmd/benchrun/text", "")
	revisiontest.Git(t, "add", ".")
	revisiontest.Git(t, "commit", "--quiet", "-m", "second")
	top, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	diff := func() string {
		t.Helper()
		sum, err := checkout(top).diff(t.Context(), "HEAD")
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	last, seen := "", map[string]string{"": "a checkout without changes"}
	if sum := diff(); sum != "" {
		t.Errorf("without changes: the hash is %s, want none", sum)
	}
	for _, c := range []struct {
		name   string
		change func()
		same   bool // as before the change
	}{
		{"nothing", func() {}, true},
		{"an untracked note", func() { write("note.txt", "") }, true},
		{"a file that was only touched", func() { write("go.mod", "module m\n\ngo 1.26\n") }, true},
		{"a tracked file", func() { write("cmd/benchrun/main.go", "package main\n\nfunc main() {}\n") }, false},
		{"the same file in another way", func() { write("cmd/benchrun/main.go", "package main\n\nfunc main() { println() }\n") }, false},
		{"the same and staged", func() { revisiontest.Git(t, "add", "cmd/benchrun/main.go") }, true},
		{"an untracked source", func() { write("cmd/benchrun/more.go", "package main\n") }, false},
		{"another text of it", func() { write("cmd/benchrun/more.go", "package main\n\n//\n") }, false},
		{"an untracked source for another system", func() { write("cmd/benchrun/more_plan9.go", "package main\n") }, true},
		{"an ignored source", func() { write("cmd/benchrun/ignored.go", "package main\n") }, false},
		{"a deleted file", func() { _ = os.Remove("cmd/benchrun/text") }, false},
	} {
		c.change()
		sum := diff()
		if c.same && sum != last {
			t.Errorf("%s: the hash became %q, was %q", c.name, sum, last)
		}
		if first, twice := seen[sum]; !c.same && twice {
			t.Errorf("%s: the hash is that of %s", c.name, first)
		}
		last, seen[sum] = sum, c.name
	}
}
