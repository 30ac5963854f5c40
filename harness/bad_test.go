package harness_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/harnesstest"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
)

// serverEnv makes the test binary a worker process of the bad server.
const serverEnv = "ATTNLAB_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		if err := badServer().Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hungEnv is the descriptor to which the kernel that hangs writes first.
const hungEnv = "ATTNLAB_TEST_HUNG"

func hang(*attn.Args, attn.Plan) {
	if fd, err := strconv.Atoi(os.Getenv(hungEnv)); err == nil {
		_, _ = os.NewFile(uintptr(fd), "hung").Write([]byte{0})
	}
	time.Sleep(time.Hour)
}

// newClient returns a client of the bad server.
func newClient(t *testing.T) *harness.Client {
	self := processtest.Self(t)
	c := &harness.Client{Timeout: time.Minute, Command: func() *exec.Cmd {
		cmd := exec.Command(self)
		// Without this, the race detector sleeps for a second at the end of each process.
		cmd.Env = append(os.Environ(), serverEnv+"=1", "GORACE=atexit_sleep_ms=0")
		return cmd
	}}
	t.Cleanup(func() { c.Close() })
	return c
}

// chooses is an odd kernel that names a path.
type chooses struct{ harnesstest.Odd }

func (chooses) Path() string { return "exp=reduced" }

var sink []float32

// disturbed is a slow kernel. Something else allocates during its second call, the first that is
// counted.
func disturbed() func(*attn.Args, attn.Plan) {
	calls := 0
	return func(a *attn.Args, honest attn.Plan) {
		if calls++; calls == 2 {
			sink = make([]float32, 1000)
		}
		time.Sleep(110 * time.Millisecond)
		honest.Forward(a)
	}
}

// badServer has one kernel for each thing that can go wrong, and an honest one.
func badServer() *harness.Server {
	s := &harness.Server{
		Effort: harness.Effort{Profile: 500 * time.Millisecond},
		Kernels: []attn.Kernel{
			harnesstest.Odd{Algo: "honest"},
			chooses{harnesstest.Odd{Algo: "chooses"}},
			harnesstest.Odd{Algo: "crashes", OnForward: func(*attn.Args, attn.Plan) { panic("lost its head") }},
			harnesstest.Odd{Algo: "exits", OnForward: func(*attn.Args, attn.Plan) { os.Exit(7) }},
			harnesstest.Odd{Algo: "killed", OnForward: func(*attn.Args, attn.Plan) { kill(); select {} }},
			harnesstest.Odd{Algo: "hangs", OnForward: hang},
			harnesstest.Odd{Algo: "wrong", OnForward: func(a *attn.Args, honest attn.Plan) { honest.Forward(a); a.Out.Data[0]++ }},
			harnesstest.Odd{Algo: "lazy", OnForward: func(*attn.Args, attn.Plan) {}},
			harnesstest.Odd{Algo: "garbles", OnForward: func(*attn.Args, attn.Plan) { fmt.Println("hello") }},
			harnesstest.Odd{Algo: "disturbed", OnForward: disturbed()},
			harnesstest.Odd{Algo: "allocates", OnForward: func(a *attn.Args, honest attn.Plan) { sink = make([]float32, 1000); honest.Forward(a) }},
		},
		Probes: func(run.Point) harness.Probes {
			return harness.Probes{Peak: func(n int) int64 { return 2 * spin(n) }, Read: func(x []float32) float32 { return x[0] }}
		},
	}
	s.Count = func(threads int) func() map[string]int64 {
		return func() map[string]int64 {
			return map[string]int64{"cycles": int64(threads), "process": int64(os.Getpid())}
		}
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

// kill ends this process from outside, as the system does when memory runs out.
func kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
}

var spun atomic.Int64

// spin takes some time that grows with n.
func spin(n int) int64 {
	x := spun.Load()
	for i := range n {
		x += int64(i) ^ x
	}
	spun.Store(x) // or the compiler would leave the loop out
	return int64(n)
}

func point(kernel string, seq int) run.Point { return harnesstest.Point(kernel, seq) }

// newSweep returns a sweep of the points through w into a fresh journal.
func newSweep(t *testing.T, w harness.Worker, points ...run.Point) *harness.Sweep {
	t.Helper()
	j, err := run.Create(t.TempDir(), run.Meta{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return &harness.Sweep{Recorder: harness.Recorder{Workload: badServer().Workload, Worker: w, Journal: j}, Points: points, Precision: 0.02}
}

var never = make(chan struct{})

func mustRun(t *testing.T, s *harness.Sweep) harness.Outcome {
	t.Helper()
	o, err := s.Run(t.Context(), never)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func isInf(x float64) bool { return math.IsInf(x, 1) }

func names(points []run.Point) []string {
	var s []string
	for _, p := range points {
		s = append(s, p.Name())
	}
	slices.Sort(s)
	return s
}
