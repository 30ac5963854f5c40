//go:build unix

package command

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
	"attnlab/kernels"
	"attnlab/lab/revision"
	"attnlab/lab/revision/revisiontest"
)

// nothingLeft checks that a comparison left no run, no temporary file and no worktree.
func nothingLeft(t *testing.T, temporary string) {
	t.Helper()
	for _, pattern := range []string{"r/*/*", filepath.Join(temporary, "*"), ".git/worktrees/*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// runAB compares naive on 8 rows, into the folder r. It returns the exit code and standard error.
func runAB(args ...string) (code int, errs string) {
	var o, e bytes.Buffer
	code = benchrun(append([]string{"ab", "--kernel", "naive", "--seq", "8", "-o", "r"}, args...), streams{&o, &e}, labOf(kernels.All()))
	return code, e.String()
}

// TestABThatCannotBegin checks that a comparison that cannot begin leaves nothing that would stop
// the next one.
func TestABThatCannotBegin(t *testing.T) {
	temporary := revisiontest.Repository(t, `test ! -e broken && : >"$5"`)
	if err := os.WriteFile("broken", nil, 0o644); err != nil { // in head alone
		t.Fatal(err)
	}
	for _, c := range []struct{ base, want string }{
		{"nosuchrev", "--base nosuchrev: git rev-parse"},
		{"HEAD", "--head worktree: go build"},
	} {
		code, errs := runAB("--base", c.base)
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
	_, errs := runAB("--base", "kernel=naive", "--head", "kernel=naive")
	if _, err := os.Stat("r/base"); err == nil || !strings.Contains(errs, "r/head holds a journal.jsonl without its run.json") {
		t.Errorf("base was begun, and head cannot be: %s", errs)
	}
}

// A fifo is a named pipe, whose name scripts find in $FIFO. What they write to it is an event. It
// ends when every process that has it open has ended.
type fifo struct {
	*bufio.Reader
	file *os.File
}

// newFifo makes a fifo and returns its path.
func newFifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// await returns when a process has opened the fifo and written a line, which is want.
func await(t *testing.T, path, want string) fifo {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	f := fifo{bufio.NewReader(file), file}
	if line, err := f.ReadString('\n'); line != want+"\n" {
		t.Fatalf("got %q, %v, want %q", line, err, want)
	}
	return f
}

// ended checks that every process that had the fifo open has ended, or is about to.
func (f fifo) ended(t *testing.T) {
	t.Helper()
	if err := f.file.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if rest, err := f.ReadString('\n'); err != io.EOF {
		t.Errorf("a process lives on: %q, %v", rest, err)
	}
}

// deafChild is a part of a script that starts a process which ignores signals that ask it to end.
const deafChild = `exec 3>"$FIFO"
(trap '' INT TERM; exec sleep 100) >/dev/null 2>&1 &
echo building >&3
`

// TestABInterruptedWhileItBuilds checks that Ctrl-C ends a build at once, with the processes that
// it started, and that there is nothing to resume.
func TestABInterruptedWhileItBuilds(t *testing.T) {
	temporary := revisiontest.Repository(t, deafChild+`wait`)
	path := newFifo(t)
	t.Setenv("FIFO", path)
	cmd, stderr := begin(t, "ab", "--base", "HEAD", "--kernel", "naive", "--seq", "8", "-o", "r")
	building := await(t, path, "building")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code := exitOf(cmd.Wait())
	if text := stderr.String(); code != exitIncomplete || !strings.Contains(text, "interrupted while building") || strings.Contains(text, "finishing") {
		t.Errorf("exit %d, want %d: %s", code, exitIncomplete, text)
	}
	building.ended(t)
	nothingLeft(t, temporary)
}

// TestABThatFailsToBuild checks that no process of a failed build lives on.
func TestABThatFailsToBuild(t *testing.T) {
	temporary := revisiontest.Repository(t, deafChild+`echo no such thing >&2; exit 1`)
	path := newFifo(t)
	t.Setenv("FIFO", path)
	cmd, stderr := begin(t, "ab", "--base", "HEAD", "--kernel", "naive", "--seq", "8", "-o", "r")
	building := await(t, path, "building")
	if code := exitOf(cmd.Wait()); code != exitUsage || !strings.Contains(stderr.String(), "no such thing") {
		t.Errorf("exit %d, want %d: %s", code, exitUsage, stderr)
	}
	building.ended(t)
	nothingLeft(t, temporary)
}

// TestABRemovesWhatAKillLeft checks that a comparison removes the folder and the worktree of one
// that was killed, and no other process's.
func TestABRemovesWhatAKillLeft(t *testing.T) {
	temporary := revisiontest.Repository(t, `exec 3>"$FIFO"; echo building >&3; read hung <"$HANG"`)
	path, hang := newFifo(t), newFifo(t)
	t.Setenv("FIFO", path)
	t.Setenv("HANG", hang)
	shop, err := revision.Open(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close()
	inUse, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || len(inUse) != 1 {
		t.Fatalf("a workshop is the folders %v, %v", inUse, err)
	}
	// A worktree of the user's, on a disk that is not mounted.
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	revisiontest.Git(t, "worktree", "add", "--quiet", elsewhere)
	if err := os.RemoveAll(elsewhere); err != nil {
		t.Fatal(err)
	}
	cmd, _ := begin(t, "ab", "--base", "HEAD", "--kernel", "naive", "--seq", "8", "-o", "r")
	building := await(t, path, "building")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// A build that outlived the kill ends now. If none did, the pipe has no reader: O_WRONLY would
	// wait for one.
	pipe, err := os.OpenFile(hang, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	building.ended(t)
	if left, _ := filepath.Glob(filepath.Join(temporary, "*", "base-sources")); len(left) != 1 || !strings.Contains(revisiontest.Git(t, "worktree", "list"), left[0]) {
		t.Fatalf("the killed comparison left %v, want a worktree", left)
	}
	if code, errs := runAB("--base", "nosuchrev"); code != exitUsage {
		t.Errorf("exit %d, want %d: %s", code, exitUsage, errs)
	}
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || !slices.Equal(left, inUse) {
		t.Errorf("there are %v, want %v alone; %v", left, inUse, err)
	}
	if list := revisiontest.Git(t, "worktree", "list"); strings.Contains(list, temporary) || !strings.Contains(list, elsewhere) {
		t.Errorf("worktrees are\n%s", list)
	}
}

// TestABRecordsSources checks that each side's run.json has the commit that was built, and the
// checkout's also a hash of what differs, where git warns and a hook's variables name another
// repository.
func TestABRecordsSources(t *testing.T) {
	revisiontest.Repository(t, `ln -s "$SELF" "$5"`)
	t.Setenv("SELF", processtest.Self(t))
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	base := revisiontest.Git(t, "rev-parse", "HEAD")
	for _, text := range []string{"committed", "changed"} {
		if err := os.WriteFile("file", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if text == "committed" {
			revisiontest.Git(t, "add", "file")
			revisiontest.Git(t, "commit", "--quiet", "-m", "second")
		}
	}
	head := revisiontest.Git(t, "rev-parse", "HEAD")
	bin := t.TempDir()
	revisiontest.Script(t, filepath.Join(bin, "git"), `echo warning: of something >&2; exec `+real+` "$@"`)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "elsewhere"))
	}
	cmd, stderr := begin(t, "ab", "--base", base, "--kernel", "naive", "--isa", "go", "--seq", "8", "--mask", "full", "--min-effect", "5", "-o", "r")
	if code := exitOf(cmd.Wait()); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var got [2]run.Commit
	for i := range got {
		r, err := run.Load(filepath.Join("r", abSides[i]))
		if err != nil {
			t.Fatal(err)
		}
		got[i] = r.Meta.Commit
	}
	if want := (run.Commit{Revision: base}); got[0] != want {
		t.Errorf("base: got %+v, want %+v", got[0], want)
	}
	if got[1].Revision != head || !got[1].Modified || len(got[1].Diff) != 64 {
		t.Errorf("head: got %+v, want %s, modified, with a hash of the difference", got[1], head)
	}
}

// TestABPaths checks that each side's own program is asked for the paths of its kernels: a kernel
// on two paths is not compared, and one of a program that does not know the question is.
func TestABPaths(t *testing.T) {
	revisiontest.Repository(t, `cp "$SIDE" "$5"`)
	bin := t.TempDir()
	side, tuned := filepath.Join(bin, "side"), filepath.Join(bin, "tunedrun")
	t.Setenv("SIDE", side)
	t.Setenv("TUNEDRUN", tuned)
	if err := os.Symlink(processtest.Self(t), tuned); err != nil {
		t.Fatal(err)
	}
	revisiontest.Script(t, side, `case $0 in *head-benchrun) TUNED=exp=reduced exec "$TUNEDRUN" "$@";; esac
test "$OLDER" || TUNED=exp=table exec "$TUNEDRUN" "$@"
read -r request
case $request in *'"paths"'*) echo '{"error":"request paths without a point"}'; exit;; esac
{ printf '%s\n' "$request"; cat; } | "$TUNEDRUN" "$@"`)
	for _, c := range []struct {
		older, out string
		code       int
		want       string
		base       run.Paths
	}{
		{"", "new", exitIncomplete, "tuned/go took the path exp=table in the base and exp=reduced in the head: another kernel, not compared", run.Paths{"tuned/go": "exp=table"}},
		{"yes", "old", 0, " same Attention/kernel=tuned/", nil},
	} {
		t.Setenv("OLDER", c.older)
		var out, errs bytes.Buffer
		code := benchrun([]string{"ab", "--base", "HEAD", "--kernel", "tuned", "--isa", "go", "--seq", "8", "--mask", "full", "--min-effect", "5", "-o", c.out},
			streams{&out, &errs}, labOf([]attn.Kernel{tunedKernel{bad{"tuned", honest}}}))
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit %d, want %d and %q in\n%s%s", c.out, code, c.code, c.want, out.String(), errs.String())
			continue
		}
		for i, want := range [2]run.Paths{c.base, {"tuned/go": "exp=reduced"}} {
			r, err := run.Load(filepath.Join(c.out, abSides[i]))
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(r.Meta.Paths, want) || r.Cells[0].Path != want["tuned/go"] {
				t.Errorf("%s, %s: got %v in run.json and %q in the journal, want %v", c.out, abSides[i], r.Meta.Paths, r.Cells[0].Path, want)
			}
			if tried := r.Cells[0].Verified != nil; tried != (c.code == 0) {
				t.Errorf("%s, %s: tried is %t", c.out, abSides[i], tried)
			}
		}
	}
}
