package harness_test

import (
	"context"
	"errors"
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
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
	"attnlab/kernels/naive"
)

// childEnv makes the test binary a worker child of the bad lab.
const childEnv = "ATTNLAB_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		lab := badLab()
		if err := lab.Serve(os.Stdin, os.Stdout); err != nil {
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

// testChild runs the bad lab in a process of its own.
func testChild(t *testing.T) *harness.Child {
	self := processtest.Self(t)
	c := &harness.Child{Timeout: time.Minute, Command: func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0") // or each end takes the race detector a second
		return cmd
	}}
	t.Cleanup(func() { c.Close() })
	return c
}

// An odd kernel is naive under another name, with something strange about it.
type odd struct {
	name    string
	check   func(p attn.Problem) error           // nil: naive's
	forward func(a *attn.Args, honest attn.Plan) // nil: naive's
}

func (k odd) Name() (algo, isa string) { return k.name, "go" }

func (k odd) Check(p attn.Problem, workers int) (int64, error) {
	n, err := naive.New().Check(p, workers)
	if err == nil && k.check != nil {
		err = k.check(p)
	}
	return n, err
}

func (k odd) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if _, err := k.Check(p, team.Workers()); err != nil {
		return nil, err
	}
	honest, err := naive.New().Plan(p, team)
	return oddPlan{honest, k}, err
}

// chooses is an odd kernel that names a path.
type chooses struct{ odd }

func (chooses) Path() string { return "exp=reduced" }

type oddPlan struct {
	attn.Plan
	k odd
}

func (p oddPlan) Forward(a *attn.Args) {
	if p.k.forward == nil {
		p.Plan.Forward(a)
		return
	}
	p.k.forward(a, p.Plan)
}

var sink []float32

// disturbed is a slow kernel: while its second call goes on, the first that is counted, something
// else allocates.
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

// badLab has one kernel for each thing that can go wrong, and an honest one.
func badLab() *harness.Lab {
	lab := &harness.Lab{
		Profile: 500 * time.Millisecond,
		Kernels: []attn.Kernel{
			odd{name: "honest"},
			chooses{odd{name: "chooses"}},
			odd{name: "crashes", forward: func(*attn.Args, attn.Plan) { panic("lost its head") }},
			odd{name: "exits", forward: func(*attn.Args, attn.Plan) { os.Exit(7) }},
			odd{name: "killed", forward: func(*attn.Args, attn.Plan) { kill(); select {} }},
			odd{name: "hangs", forward: hang},
			odd{name: "wrong", forward: func(a *attn.Args, honest attn.Plan) { honest.Forward(a); a.Out.Data[0]++ }},
			odd{name: "lazy", forward: func(*attn.Args, attn.Plan) {}},
			odd{name: "garbles", forward: func(*attn.Args, attn.Plan) { fmt.Println("hello") }},
			odd{name: "disturbed", forward: disturbed()},
			odd{name: "allocates", forward: func(a *attn.Args, honest attn.Plan) { sink = make([]float32, 1000); honest.Forward(a) }},
		},
		Probes: func(run.Point) harness.Probes {
			return harness.Probes{Peak: func(n int) int64 { return 2 * spin(n) }, Read: func(x []float32) float32 { return x[0] }}
		},
	}
	lab.Count = func(threads int) func() map[string]int64 {
		return func() map[string]int64 {
			return map[string]int64{"cycles": int64(threads), "process": int64(os.Getpid())}
		}
	}
	lab.Workload = func(at run.Point) (*harness.Workload, error) {
		k, err := lab.Kernel(at.Kernel, at.ISA)
		if err != nil {
			return nil, err
		}
		return harness.Attention(k, at)
	}
	return lab
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

func point(kernel string, seq int) run.Point {
	return run.Point{Kernel: kernel, ISA: "go", SeqKV: seq, Dim: 8}.WithDefaults()
}

// A fakeWorker answers at once, from functions.
type fakeWorker struct {
	verify func(at run.Point) (oracle.Verdict, error)
	sample func(at run.Point, visit int) (harness.Sample, error)
	visits map[run.Point]int
	order  []run.Point // as sampled
	asked  []run.Point // for anything
}

func (w *fakeWorker) Verify(ctx context.Context, at run.Point) (oracle.Verdict, error) {
	w.asked = append(w.asked, at)
	if w.verify != nil {
		return w.verify(at)
	}
	return oracle.Verdict{Rows: 4, Worst: 0.25}, ctx.Err()
}

func (w *fakeWorker) Weigh(ctx context.Context, at run.Point) (harness.Memory, error) {
	w.asked = append(w.asked, at)
	return harness.Memory{Scratch: new(int64(64))}, ctx.Err()
}

func (w *fakeWorker) Sample(ctx context.Context, at run.Point, _ harness.Wish) (harness.Sample, error) {
	if ctx.Err() != nil {
		return harness.Sample{}, ctx.Err()
	}
	if w.visits == nil {
		w.visits = map[run.Point]int{}
	}
	w.visits[at]++
	w.order = append(w.order, at)
	if w.sample != nil {
		return w.sample(at, w.visits[at])
	}
	return steady(time.Millisecond), nil
}

func (*fakeWorker) Try(context.Context, string, string, cases.Case) (harness.Finding, error) {
	return harness.Finding{}, errors.ErrUnsupported
}

func (*fakeWorker) TryOutside(context.Context, string, string, string, *cases.Outside) (harness.Finding, error) {
	return harness.Finding{}, errors.ErrUnsupported
}

// steady is a sample of ten calls, each taking so long, on a machine that does not move.
func steady(call time.Duration) harness.Sample {
	return harness.Sample{Calls: 10, Elapsed: harness.Elapsed{Wall: 10 * call, CPU: 10 * call}, Before: 1e9, After: 1e9}
}

// newSweep is a sweep of the points through w into a fresh journal.
func newSweep(t *testing.T, w harness.Worker, points ...run.Point) *harness.Sweep {
	t.Helper()
	j, err := run.Create(t.TempDir(), run.Meta{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return &harness.Sweep{Lab: badLab(), Worker: w, Journal: j, Points: points, Precision: 0.02}
}

func cell(s *harness.Sweep, at run.Point) *run.Cell { return s.Journal.Run().Cell(at) }

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
