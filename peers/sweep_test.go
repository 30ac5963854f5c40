package peers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
	"attnlab/kernels/naive"
	"attnlab/peers"
	"attnlab/peers/peertest"
)

// workerEnv is the environment variable that makes the test binary a worker. Its value lists the
// kinds of its peers; a peer has the name of its kind.
const workerEnv = "ATTNLAB_TEST_WORKER"

// work runs the worker.
func work() {
	self, err := os.Executable()
	if err == nil {
		server := newServer(self, strings.Split(os.Getenv(workerEnv), ","), 0)
		server.Effort = harness.Effort{Sample: time.Millisecond, Probe: time.Millisecond}
		err = server.Serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// newServer returns a server with naive and the given kinds of peers, all of which are this binary.
func newServer(self string, likes []string, timeout time.Duration) *harness.Server {
	s := &harness.Server{
		Kernels: []attn.Kernel{naive.New()},
		Probes: func(run.Point) harness.Probes {
			return harness.Probes{Peak: spin, Read: func(x []float32) float32 { return x[0] }}
		},
	}
	for _, like := range likes {
		k := peers.New(like, self, like)
		k.Timeout = timeout
		s.Kernels = append(s.Kernels, k)
	}
	s.Workload = func(at run.Point) (*harness.Workload, error) {
		k, err := harness.Find(s.Kernels, at.Kernel, at.ISA)
		if err != nil {
			return nil, err
		}
		return harness.Attention(k, at)
	}
	return s
}

var spun float64

// spin is a probe that takes time.
func spin(n int) int64 {
	for range n {
		spun = spun*0.5 + 1
	}
	return 2 * int64(n)
}

// newSweep returns a sweep over naive and some kinds of peers, at the given lengths. Every peer
// leaves a file in dir that is named after its process.
func newSweep(t *testing.T, timeout time.Duration, likes []string, lengths ...int) (s *harness.Sweep, server *harness.Server, dir string) {
	t.Helper()
	self := processtest.Self(t)
	dir = t.TempDir()
	t.Setenv(peertest.Processes, dir)
	client := &harness.Client{Timeout: timeout, Command: func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), workerEnv+"="+strings.Join(likes, ","))
		return cmd
	}}
	server = newServer(self, likes, timeout)
	t.Cleanup(func() {
		client.Close()
		closeAll(server)
	})
	j, err := run.Create(t.TempDir(), run.Meta{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	s = &harness.Sweep{Recorder: harness.Recorder{Workload: server.Workload, Worker: client, Journal: j}, Samples: 2}
	for _, n := range lengths {
		for _, k := range server.Kernels {
			algo, isa := k.Name()
			s.Points = append(s.Points, run.Point{Kernel: algo, ISA: isa, Mask: "full", SeqKV: n, Dim: 8}.WithDefaults())
		}
	}
	return s, server, dir
}

// closeAll closes the peers of a server and ignores errors.
func closeAll(s *harness.Server) {
	for _, k := range s.Kernels[1:] {
		_ = k.(*peers.Kernel).Close()
	}
}

// noneOf fails the test if a process still runs in a group whose leader left a file in dir.
func noneOf(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		if leader, err := strconv.Atoi(f.Name()); err == nil {
			found++
			processtest.Gone(t, leader)
		}
	}
	if found == 0 {
		t.Error("no peer has left its number")
	}
}

// TestSweepOverFaultyPeers checks that a sweep over peers with every kind of fault ends. Each point
// of a faulty peer has a row with the fault, the rows of the others are complete, and no process is
// left.
func TestSweepOverFaultyPeers(t *testing.T) {
	want := map[string]string{ // the status and the beginning of the fault
		"honest": "ok", "cries": "ok", "lingers": "ok", "fails": "ok",
		"dies-at-about":      "failed peer dies-at-about: about: it ended (exit status 1)",
		"leaves-at-about":    "failed peer leaves-at-about: about: it ended (exit status 1)",
		"floods-at-about":    "failed peer floods-at-about: about: got 65536 bytes without an end of line",
		"dies-at-check":      "failed peer dies-at-check: check: it ended (exit status 1)",
		"garbles-at-check":   "failed peer garbles-at-check: check: got ",
		"repeats-at-check":   "failed peer repeats-at-check: check: got 9 bytes more than the answer",
		"dies-at-plan":       "failed verify: plan: peer dies-at-plan: plan: it ended (exit status 1)",
		"trails-at-load":     "failed verify: load: peer trails-at-load: load: got 4 bytes more than the answer",
		"crashes-at-run":     "failed verify: peer crashes-at-run: run: it ended (signal: killed)",
		"leaves-at-run":      "failed verify: peer leaves-at-run: run: it ended (exit status 1)",
		"floods-at-run":      "failed verify: peer floods-at-run: run: got 65536 bytes without an end of line",
		"boastful":           "failed verify: peer boastful: run: for 1 calls it claims to have taken 1h0m0",
		"owing":              "failed verify: peer owing: run: for 1 calls it claims cpu_ns -1",
		"shortens-at-store":  "failed verify: peer shortens-at-store: store: got ",
		"lengthens-at-store": "failed verify: peer lengthens-at-store: store: got 4 bytes more than the answer",
		"refuses":            "",
	}
	var likes []string
	for like := range want {
		likes = append(likes, like)
	}
	s, server, dir := newSweep(t, time.Minute, likes, 8, 16)
	o, err := s.Run(t.Context(), make(chan struct{}))
	if err != nil || o.Reason != harness.AllSamples || o.Points != 2*(1+len(likes)) {
		t.Fatalf("outcome %+v, %v", o, err)
	}
	for _, at := range s.Points {
		row := s.Journal.Run().Cell(at).Row()
		wanted := want[at.Kernel]
		switch {
		case at.Kernel == "naive" || at.Kernel == "refuses" && at.SeqKV == 8:
			wanted = "ok"
		case at.Kernel == "refuses":
			wanted = "skipped unsupported: refuses/native: more than 8 queries"
		}
		if got := strings.TrimSpace(row.Status + " " + row.Note); !strings.HasPrefix(got, wanted) || row.Status == run.OK && row.Samples != 2 {
			t.Errorf("%s: %s with %v samples, want %s", at.Name(), got, row.Samples, wanted)
		}
	}
	closeAll(server)
	noneOf(t, dir)
}

// TestSweepOverHangingPeers checks that peers that hang, and their children, are ended: by the
// worker, or by the parent if the parent made the request. The message names the request.
func TestSweepOverHangingPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("peers that hang take their time")
	}
	const limit = 3 * time.Second
	want := map[string]string{
		"hangs-at-about":  "peer hangs-at-about: about: no answer within 3s",
		"breeds-at-check": "peer breeds-at-check: check: no answer within 3s",
		"breeds-at-run":   "verify: peer breeds-at-run: run: no answer within 3s",
		"keeps-at-store":  "verify: peer keeps-at-store: store: no answer within 3s",
		"closes-at-load":  "verify: load: peer closes-at-load: load: it closed its standard output",
	}
	var likes []string
	for like := range want {
		likes = append(likes, like)
	}
	s, server, dir := newSweep(t, limit, likes, 8)
	o, err := s.Run(t.Context(), make(chan struct{}))
	if err != nil || o.Reason != harness.AllSamples || o.Failed != len(likes) {
		t.Fatalf("outcome %+v, %v", o, err)
	}
	for _, at := range s.Points[1:] {
		if row := s.Journal.Run().Cell(at).Row(); row.Status != run.Failed || row.Note != want[at.Kernel] {
			t.Errorf("%s: %s %q, want %q", at.Name(), row.Status, row.Note, want[at.Kernel])
		}
	}
	closeAll(server)
	noneOf(t, dir)
}

// TestGroupsEndWithTheWorker checks that everything that peers have started ends when the worker is
// killed, for example by a second Ctrl-C.
func TestGroupsEndWithTheWorker(t *testing.T) {
	s, _, dir := newSweep(t, time.Minute, []string{"breeds-at-run"}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if files, _ := filepath.Glob(filepath.Join(dir, "*.child")); len(files) > 0 {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, err := s.Worker.Verify(ctx, s.Points[1]); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	noneOf(t, dir)
}
