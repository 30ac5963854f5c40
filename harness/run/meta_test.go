package run

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"attnlab/internal/processtest"
)

// TestProgramCommit checks that the commit is the one stamped into the program, never the one of
// the folder in which the program runs.
func TestProgramCommit(t *testing.T) {
	stamp := []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}
	if got := stampedCommit(stamp); got != (Commit{Revision: "abc", Modified: true}) {
		t.Errorf("stamped: got %+v", got)
	}
	processtest.Needed(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git command here")
	}
	dir := t.TempDir() // a checkout of a module of the same name
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+module+"\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	t.Chdir(dir)
	if got := ProgramCommit(); got != (Commit{}) { // tests have no stamp
		t.Errorf("without a stamp: got %+v", got)
	}
}

// TestCommitString checks the short form of a commit.
func TestCommitString(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4)
	for want, c := range map[string]Commit{
		"unknown":                                {},
		"abc":                                    {Revision: "abc"},
		"0123456789ab with changes":              {Revision: long, Modified: true},
		"0123456789ab with changes 0123456789ab": {Revision: long, Modified: true, Diff: long},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestEnvironment checks that variables that change results are found and compared, and no others.
func TestEnvironment(t *testing.T) {
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); changesResults(name) {
			t.Setenv(name, "")
		}
	}
	if env := Environment(); env != nil {
		t.Errorf("got %v, want none", env)
	}
	t.Setenv("GOGC", "50")
	t.Setenv("OMP_NUM_THREADS", "2")
	t.Setenv("MKL_NUM_THREADS", "")
	t.Setenv("MY_TOKEN", "secret")
	env := Environment()
	if want := map[string]string{"GOGC": "50", "OMP_NUM_THREADS": "2"}; !maps.Equal(env, want) {
		t.Errorf("got %v, want %v", env, want)
	}
	if d := EnvDifferences(env, env); len(d) != 0 {
		t.Errorf("the same: %q", d)
	}
	got := EnvDifferences(env, map[string]string{"GOGC": "100", "GODEBUG": "a=1"})
	want := []string{`GODEBUG is "a=1", was not set`, `GOGC is "100", was "50"`, `OMP_NUM_THREADS is not set, was "2"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMetaRoundTrip checks that run.json is read as it was written.
func TestMetaRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := Meta{
		Commit: Commit{"abc", true, "def"}, Env: map[string]string{"GOGC": "50"}, Flags: map[string]string{"a": "b"}, Seed: 1 << 63, Peaks: []Peak{{"go", 5e9, 1.5, "why", 4}}, Machine: Fingerprint{CPU: "c"},
	}
	if err := WriteMeta(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := readMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Commit != want.Commit || got.Seed != want.Seed || !slices.Equal(got.Peaks, want.Peaks) || got.Flags["a"] != "b" || !maps.Equal(got.Env, want.Env) {
		t.Errorf("got %+v", got)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("more than %s is there: %v, %v", MetaFile, files, err)
	}
}

// TestDifferences checks that machines differ by what changes measurements, and by nothing else.
func TestDifferences(t *testing.T) {
	a := Fingerprint{CPU: "c", Cores: 2, ISA: []string{"go"}, Governor: "powersave", Kernel: "6.1"}
	b := a
	b.Governor, b.Kernel = "performance", "6.2"
	if d := a.Differences(b); len(d) != 0 {
		t.Errorf("what does not matter: %q", d)
	}
	b.CPU, b.ISA = "d", []string{"go", "avx2"}
	if d := a.Differences(b); len(d) != 2 || d[0] != "CPU is d, was c" {
		t.Errorf("what matters: %q", d)
	}
}

// TestFileName checks that long names are cut, and that they stay different.
func TestFileName(t *testing.T) {
	short, long := strings.Repeat("a", 200), strings.Repeat("a", 300)
	if got := FileName(short); got != short {
		t.Errorf("got %s", got)
	}
	a, b := FileName(long+"b"), FileName(long+"c")
	if len(a) != 200 || len(b) != 200 || a == b || a != FileName(long+"b") || !strings.HasPrefix(a, "aaa") {
		t.Errorf("got %s and %s", a, b)
	}
}

// TestReplace checks that a replaced file is a new file, that a link stays a link, and that errors
// name the path that was asked for.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.md")
	link := filepath.Join(dir, "link.md")
	if err := os.Symlink("a.md", link); err != nil {
		t.Skip(err)
	}
	var old os.FileInfo
	for i, at := range []string{path, path, link} {
		if err := Replace(at, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(rune(i)) {
			t.Errorf("%s: got %q, %v", at, got, err)
		}
		now, err := os.Stat(path)
		if err != nil || i == 1 && os.SameFile(old, now) {
			t.Errorf("the file was written into: %v", err)
		}
		old = now
	}
	if at, err := os.Readlink(link); err != nil || at != "a.md" {
		t.Errorf("the link is %q, %v", at, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("got files %v, %v, want a.md and link.md", files, err)
	}
	nowhere := filepath.Join(dir, "nowhere", "a.md")
	if err := Replace(nowhere, nil); err == nil || !strings.Contains(err.Error(), nowhere+":") {
		t.Errorf("got %v, want one about %s", err, nowhere)
	}
}
