package command

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
	"attnlab/internal/processtest"
)

// TestServe checks that report --serve shows a run that is still written, tells the page when there
// is more, writes nothing, and ends cleanly when it is interrupted.
func TestServe(t *testing.T) {
	t.Parallel()
	self := processtest.Self(t)
	dir := filepath.Join(t.TempDir(), "r")
	runtest.Make(t, dir, runtest.Model{Samples: 1, Masks: []string{"full"}})
	before := folder(t, dir)
	cmd := &exec.Cmd{Path: self, Args: []string{"benchrun", "report", dir, "--serve"}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address := strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("got %q, %v", line, err)
	}
	get := func(path string) io.ReadCloser {
		t.Helper()
		answer, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, answer.Status)
		}
		return answer.Body
	}
	page, err := io.ReadAll(get(""))
	if err != nil || !strings.Contains(string(page), "connect-src 'self'") {
		t.Errorf("the page is not one that renews itself: %v", err)
	}
	_, seen, _ := strings.Cut(string(page), `data-seen="`)
	seen, _, _ = strings.Cut(seen, `"`)
	events := bufio.NewReader(get("events?seen=" + seen))

	j, err := run.Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Append(run.Record{End: &run.End{Reason: "more"}}); err != nil {
		t.Fatal(err)
	}
	if line, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Errorf("after the journal has grown: %q, %v", line, err)
	}
	if got := folder(t, dir); got != before {
		t.Errorf("serving made %s of %s", got, before)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitOf(cmd.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// folder lists the files of a folder.
func folder(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
