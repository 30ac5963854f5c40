package harness_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/harness/harnesstest"
	"attnlab/harness/profile"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
)

// TestClientOutlivesBadKernels checks that a kernel that crashes, hangs or writes nonsense ends its
// own request with an error that says so, and that later requests are answered.
func TestClientOutlivesBadKernels(t *testing.T) {
	c := newClient(t)
	c.Timeout = 10 * time.Second
	honest := func() {
		t.Helper()
		v, err := c.Verify(t.Context(), point("honest", 33))
		if err != nil || !(v.Worst <= 1) || v.Rows != 33 {
			t.Fatalf("honest: %+v, %v", v, err)
		}
	}
	honest()
	for kernel, want := range map[string]string{
		"crashes": "the worker died: panic: lost its head",
		"exits":   "the worker died: exit status 7",
		"killed":  "the worker died: signal: killed, which is what the system does when memory runs out",
		"garbles": "the worker died:",
		"absent":  "there is no kernel absent/go",
	} {
		_, err := c.Verify(t.Context(), point(kernel, 33))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kernel, err, want)
		}
		honest()
	}
	c.Close()
	honestCommand := c.Command
	c.Timeout = 300 * time.Millisecond
	if _, err := c.Sample(t.Context(), point("hangs", 33), harness.SampleOptions{}); !errors.Is(err, harness.ErrTimeout) ||
		!strings.Contains(err.Error(), "no answer within 300ms: it was in time.Sleep < ") || !strings.Contains(err.Error(), ".Forward < ") {
		t.Errorf("hangs: %v", err)
	}
	c.Timeout = time.Minute
	honest()

	hung, tells, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	defer tells.Close()
	c.Command = func() *exec.Cmd {
		cmd := honestCommand()
		cmd.ExtraFiles, cmd.Env = []*os.File{tells}, append(cmd.Env, hungEnv+"=3")
		return cmd
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = hung.Read(make([]byte, 1))
		cancel()
	}()
	if _, err := c.Verify(ctx, point("hangs", 33)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestWrongAnswersAreSeen checks that a wrong element and an answer that was not written are found.
func TestWrongAnswersAreSeen(t *testing.T) {
	c := newClient(t)
	for kernel, where := range map[string]string{"wrong": "Out[batch 0, head 0, query 0, 0]", "lazy": "NaN"} {
		v, err := c.Verify(t.Context(), point(kernel, 33))
		if err != nil || !(v.Worst > 1) || !strings.Contains(v.Where, where) {
			t.Errorf("%s: %+v, %v", kernel, v, err)
		}
	}
}

// TestClientThatCannotStart checks that a program that does not start is ErrNoWorker.
func TestClientThatCannotStart(t *testing.T) {
	processtest.Needed(t)
	c := &harness.Client{Command: func() *exec.Cmd { return exec.Command("/nonexistent/benchrun") }}
	if _, err := c.Verify(t.Context(), point("honest", 3)); !errors.Is(err, harness.ErrNoWorker) {
		t.Errorf("error %v", err)
	}
}

// TestClientReplacesInterruptedProcess checks that a request survives a signal that ends its
// process once, before the process ignores signals, and not twice.
func TestClientReplacesInterruptedProcess(t *testing.T) {
	for _, sig := range []string{"INT", "TERM"} {
		c := newClient(t)
		real, started := c.Command, 0
		c.Command = func() *exec.Cmd {
			if started++; started == 1 {
				return exec.Command("sh", "-c", "kill -"+sig+" $$")
			}
			return real()
		}
		if v, err := c.Verify(t.Context(), point("honest", 33)); err != nil || v.Rows != 33 || started != 2 {
			t.Errorf("SIG%s: %+v from process %d, %v", sig, v, started, err)
		}
	}
	c := newClient(t)
	c.Command = func() *exec.Cmd { return exec.Command("sh", "-c", "kill -TERM $$") }
	if _, err := c.Verify(t.Context(), point("honest", 33)); err == nil || !strings.Contains(err.Error(), "signal: terminated") {
		t.Errorf("struck twice: %v", err)
	}
}

// TestClientPaths checks that a client reports the paths of the server's kernels, and that a
// program without them is no error.
func TestClientPaths(t *testing.T) {
	c := newClient(t)
	if got, err := c.Paths(t.Context()); err != nil || !maps.Equal(got, run.Paths{"chooses/go": "exp=reduced"}) {
		t.Errorf("got %v, %v; want the path of chooses/go alone", got, err)
	}
	for name, script := range map[string]string{
		"an older build": `read request; echo '{"error":"request \"paths\" without a point"}'; read request`,
		"one that dies":  `echo "panic: at its beginning" >&2; exit 2`,
	} {
		c := &harness.Client{Command: func() *exec.Cmd { return exec.Command("sh", "-c", script) }}
		if got, err := c.Paths(t.Context()); err != nil || got != nil {
			t.Errorf("%s: got %v, %v; want neither paths nor an error", name, got, err)
		}
	}
	if _, err := (&harness.Client{Command: func() *exec.Cmd { return exec.Command("/nonexistent/benchrun") }}).Paths(t.Context()); !errors.Is(err, harness.ErrNoWorker) {
		t.Errorf("a program that is not there: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Paths(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

// TestClientSample checks samples of one thread, of decoding and of a team, each from a process of
// its own.
func TestClientSample(t *testing.T) {
	c := newClient(t)
	decode := run.Point{Kernel: "honest", ISA: "go", SeqQ: 1, SeqKV: 256, Dim: 8}.WithDefaults()
	team := point("honest", 16)
	team.HeadsQ, team.HeadsKV, team.Threads = 4, 4, 2
	for _, at := range []run.Point{point("honest", 16), decode, team} {
		s, err := c.Sample(t.Context(), at, harness.SampleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Calls < 1 || s.Elapsed.Wall < 5*time.Millisecond || !(s.Before > 0) || !(s.After > 0) {
			t.Errorf("%s: %+v", at.Name(), s)
		}
		if runtime.GOOS == "linux" && !(s.Elapsed.CPU > 0) {
			t.Errorf("%s: no CPU time in %+v", at.Name(), s)
		}
		if s.Counts["cycles"] != int64(at.Threads) {
			t.Errorf("%s: counted %v", at.Name(), s.Counts)
		}
		again, err := c.Sample(t.Context(), at, harness.SampleOptions{Calls: s.Calls})
		if err != nil || again.Calls < s.Calls {
			t.Errorf("%s: %d calls after a hint of %d, %v", at.Name(), again.Calls, s.Calls, err)
		}
		if again.Counts["process"] == s.Counts["process"] {
			t.Errorf("%s: two samples from one process; want a process each", at.Name())
		}
	}
}

// TestSampleOfALayerByAnOlderBuild checks that the time of the kernel alone, which a build without
// layers reports, is not taken for the time of the layer.
func TestSampleOfALayerByAnOlderBuild(t *testing.T) {
	at := point("honest", 16)
	at.Layer = run.LayerMHA
	if s, err := newClient(t).Sample(t.Context(), at, harness.SampleOptions{}); err == nil || !strings.Contains(err.Error(), "of a build that has no layers") {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestClientMemory checks that peak memory is that of the kernel alone, and that an allocation in
// every call is found.
func TestClientMemory(t *testing.T) {
	c := newClient(t)
	const n = 1024
	m, err := c.Memory(t.Context(), point("honest", n))
	if err != nil {
		t.Fatal(err)
	}
	if *m.Scratch < 4*n*n || *m.Scratch > 4*n*(n+1) {
		t.Errorf("scratch %d, the score matrix takes %d", *m.Scratch, 4*n*n)
	}
	if m.Allocs == nil || *m.Allocs != 0 || m.Bytes == nil || *m.Bytes != 0 {
		t.Errorf("an honest call allocates %v times, %v bytes", show(m.Allocs), show(m.Bytes))
	}
	if runtime.GOOS != "linux" {
		if m.PeakRSS != nil {
			t.Errorf("peak memory %d on a system that does not tell it", *m.PeakRSS)
		}
	} else if m.PeakRSS == nil || *m.PeakRSS < 4*n*n || *m.PeakRSS > 2*4*n*n && !raced {
		t.Errorf("peak memory %v for a score matrix of %d", show(m.PeakRSS), 4*n*n)
	}
	m, err = c.Memory(t.Context(), point("allocates", 16))
	if err != nil {
		t.Fatal(err)
	}
	if m.Allocs == nil || *m.Allocs != 1 || *m.Bytes != 4096 {
		t.Errorf("a call that makes 4000 bytes allocates %v times, %v bytes", show(m.Allocs), show(m.Bytes))
	}
	m, err = c.Memory(t.Context(), point("disturbed", 16))
	if err != nil {
		t.Fatal(err)
	}
	if m.Allocs == nil || *m.Allocs != 0 || *m.Bytes != 0 {
		t.Errorf("a slow call beside which something allocates once allocates %v times, %v bytes", show(m.Allocs), show(m.Bytes))
	}
}

func show(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

// TestClientTry checks the findings of a right kernel, a wrong one and one that crashes.
func TestClientTry(t *testing.T) {
	c := newClient(t)
	k := cases.Core()[0]
	f, err := c.Try(t.Context(), "honest", "go", k)
	if err != nil || !f.Right() || f.Refused || f.Family != k.Family || f.Case != k.Name || f.Kernel != "honest" {
		t.Errorf("honest: %+v, %v", f, err)
	}
	f, err = c.Try(t.Context(), "lazy", "go", k)
	if err != nil || f.Right() {
		t.Errorf("lazy: %+v, %v", f, err)
	}
	f, err = c.Try(t.Context(), "crashes", "go", k)
	if err != nil || f.Right() || f.Late || !strings.Contains(f.String(), "lost its head") || f.Kernel != "crashes" || f.Case != k.Name {
		t.Errorf("crashes: %+v, %v", f, err)
	}
	c.Timeout = 300 * time.Millisecond
	f, err = c.Try(t.Context(), "hangs", "go", k)
	if err != nil || f.Right() || !f.Late || !strings.Contains(f.Note, "no answer within 300ms") {
		t.Errorf("hangs: %+v, %v", f, err)
	}
	c = &harness.Client{Command: func() *exec.Cmd { return exec.Command("/nonexistent/benchrun") }}
	if _, err := c.Try(t.Context(), "honest", "go", k); !errors.Is(err, harness.ErrNoWorker) {
		t.Errorf("a program that does not start: %v", err)
	}
}

// TestSweepOverBadKernels checks that a sweep through worker processes ends with a row for each bad
// kernel.
func TestSweepOverBadKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("a kernel that hangs takes a second")
	}
	c := newClient(t)
	c.Timeout = time.Second
	var points []run.Point
	for _, k := range []string{"honest", "crashes", "hangs", "wrong", "allocates", "killed"} {
		points = append(points, point(k, 24))
	}
	s := newSweep(t, c, points...)
	s.Samples = 2
	o := mustRun(t, s)
	if o.Wrong != 1 || o.Failed != 3 || o.Skipped != 0 {
		t.Errorf("outcome %+v", o)
	}
	for i, want := range []string{run.OK, run.Failed, run.Failed, run.Failed, run.OK, run.Failed} {
		if row := s.Cell(points[i]).Row(); row.Status != want || want == run.Failed && row.Note == "" {
			t.Errorf("%s: %s %q, want %s", points[i].Kernel, row.Status, row.Note, want)
		}
	}
	if row := s.Cell(points[4]).Row(); row.Allocs != 1 {
		t.Errorf("allocates: %v allocations a call in its row", row.Allocs)
	}
}

var _ attn.Kernel = harnesstest.Odd{}

// TestClientProfile checks that a profile names functions of the kernel, and that a kernel that
// crashes is an error.
func TestClientProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("a profile takes two seconds")
	}
	c := newClient(t)
	data, err := c.Profile(t.Context(), point("honest", 128))
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	var own int64 // samples in the kernel's functions and in those it calls
	for _, spot := range p.Spots {
		for _, of := range []string{"attnlab/kernels/naive.", "attnlab/kernels/scalar.(*Scorer).", "math."} {
			if strings.HasPrefix(spot.Function, of) {
				own += spot.Samples
			}
		}
	}
	if 2*own < p.Samples {
		name, _ := p.Hottest()
		t.Errorf("%d of %d samples are in the kernel, want at least half; the hottest function is %s", own, p.Samples, name)
	}
	if _, err := c.Profile(t.Context(), point("crashes", 8)); err == nil || !strings.Contains(err.Error(), "lost its head") {
		t.Errorf("a kernel that crashes: %v", err)
	}
}
