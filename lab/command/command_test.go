package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
	"attnlab/internal/group"
	"attnlab/internal/processtest"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/kernels/naive"
	"attnlab/lab/layer"
	"attnlab/peers"
	"attnlab/peers/peertest"
	"attnlab/theory/equations"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the golden parts of testdata/script")

// Programs are the programs that TestMain, in foreign_test.go, makes of this binary. Each has other
// kernels.
var Programs = map[string]func(){
	"benchrun": programOf(kernels.All),
	"norun":    programOf(func() []attn.Kernel { return nil }),
	"fewrun":   programOf(portable),
	"wrongrun": programOf(func() []attn.Kernel { return append([]attn.Kernel{wrongKernel}, portable()...) }),
	"waitrun":  programOf(func() []attn.Kernel { return append([]attn.Kernel{waitingKernel}, kernels.All()...) }),
	"tunedrun": programOf(func() []attn.Kernel { return append([]attn.Kernel{tunedKernel{bad{"tuned", honest}}}, portable()...) }),
	"badrun":   programOf(func() []attn.Kernel { return append(badKernels(), kernels.All()...) }),
	"peer":     peertest.Main,
}

// programOf returns the main function of a program with some kernels.
func programOf(all func() []attn.Kernel) func() {
	return func() { os.Exit(Main(labOf(all()), os.Args[1:], os.Stdout, os.Stderr)) }
}

// Quickly is the effort of tests, which do not look at what is measured.
var Quickly = harness.Effort{Sample: time.Millisecond, Probe: time.Millisecond, Readings: 4, Profile: 400 * time.Millisecond}

// labOf returns a lab of this module with some kernels.
func labOf(all []attn.Kernel) Lab {
	levels := asm.Levels()
	return Lab{
		Kernels: all, Sets: levels, Equations: equations.Table(), Peers: peers.Parse, Layers: &layer.Layers{Sets: levels, Reference: naive.New()},
		Effort: Effort{Harness: Quickly, Readings: 3, Tries: 10},
	}
}

// The race detector makes every process sleep for a second as it ends, unless this variable tells
// it not to.
const NoRaceSleep, NoRaceSleepValue = "GORACE", "atexit_sleep_ms=0"

func TestScripts(t *testing.T) {
	processtest.Needed(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error { e.Setenv(NoRaceSleep, NoRaceSleepValue); return nil },
		Cmds:  map[string]func(*testscript.TestScript, bool, []string){"code": code, "rows": rows, "damage": damage, "unfinish": unfinish, "model": model},
	})
}

// code N command... runs a command and demands its exit code. Exit code 4 takes one line on
// standard error and nothing else.
func code(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: code N command...")
	}
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d\n%s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stderr"))
	}
	if text := ts.ReadFile("stderr"); want == exitUsage && (strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "benchrun: ")) {
		ts.Fatalf("%s: one line was wanted:\n%s", strings.Join(args[1:], " "), text)
	}
}

// rows DIR OK SKIPPED FAILED checks how many rows of a run have each status, and that no point has
// two rows.
func rows(ts *testscript.TestScript, _ bool, args []string) {
	r, err := run.Load(ts.MkAbs(args[0]))
	ts.Check(err)
	var got [3]int
	seen := map[run.Point]bool{}
	for _, w := range r.Rows() {
		if seen[w.Point] {
			ts.Fatalf("%s stands there twice", w.Name())
		}
		seen[w.Point] = true
		got[slices.Index([]string{run.OK, run.Skipped, run.Failed}, w.Status)]++
		if w.Status != run.OK && w.Note == "" {
			ts.Fatalf("%s is %s for no reason", w.Name(), w.Status)
		}
	}
	for i, what := range []string{run.OK, run.Skipped, run.Failed} {
		if want, _ := strconv.Atoi(args[1+i]); got[i] != want {
			ts.Fatalf("%d rows are %s, want %d", got[i], what, want)
		}
	}
}

// damage FILE LINE spoils one line of a file.
func damage(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	lines := strings.SplitAfter(ts.ReadFile(args[0]), "\n")
	lines[n-1] = "{" + lines[n-1]
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o644))
}

// unfinish DIR... makes complete runs ones that were interrupted.
func unfinish(ts *testscript.TestScript, _ bool, dirs []string) {
	for _, dir := range dirs {
		runtest.Edit(scriptTB{ts: ts}, ts.MkAbs(dir), func(r *run.Record) {
			if r.End != nil {
				r.End.Complete = false
			}
		})
	}
}

// messages collects what a process writes to standard error.
type messages struct {
	mu    sync.Mutex
	more  *sync.Cond
	text  strings.Builder
	ended bool // the process has ended
}

func newMessages(from io.ReadCloser) *messages {
	m := new(messages)
	m.more = sync.NewCond(&m.mu)
	go func() {
		defer from.Close()
		buffer, err := make([]byte, 1<<10), error(nil)
		for n := 0; err == nil; {
			n, err = from.Read(buffer)
			m.mu.Lock()
			m.text.Write(buffer[:n])
			m.ended = err != nil
			m.more.Broadcast()
			m.mu.Unlock()
		}
	}()
	return m
}

// await returns when the process has written a text.
func (m *messages) await(t *testing.T, text string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !strings.Contains(m.text.String(), text) {
		if m.ended {
			t.Fatalf("the process ended without saying %q: %s", text, m.text.String())
		}
		m.more.Wait()
	}
}

// String waits for the end of the process and returns what it wrote.
func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.ended {
		m.more.Wait()
	}
	return m.text.String()
}

// begin starts benchrun, or another of Programs, in a process group of its own.
func begin(t *testing.T, args ...string) (*exec.Cmd, *messages) {
	t.Helper()
	return beginWith(t, nil, args...)
}

// beginWith is begin with more variables in the environment.
func beginWith(t *testing.T, env []string, args ...string) (*exec.Cmd, *messages) {
	t.Helper()
	self := processtest.Self(t)
	if args[0] != "waitrun" {
		args = append([]string{"benchrun"}, args...)
	}
	stderr, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	cmd := &exec.Cmd{Path: self, Args: args, Stderr: to, Env: append(os.Environ(), env...)}
	group.Lead(cmd)
	if err := cmd.Start(); err != nil {
		stderr.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, newMessages(stderr)
}

func exitOf(err error) int {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		return -2
	}
	return 0
}

// model DIR SEED [CHANGE] makes a run folder of forty points, the same but for noise and for what
// CHANGE does to one of them, or to the run. Its commit and its day are those of the seed.
func model(ts *testscript.TestScript, _ bool, args []string) {
	const chosen = "Attention/kernel=flash/isa=go/pass=forward/mask=causal/heads=1/seq=512/dim=64/threads=1"
	seed, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	m := runtest.Model{Seed: seed}
	date := func(meta *run.Meta) {
		meta.Commit.Revision = fmt.Sprintf("%012x%028d", 0xabc000+seed, 0)
		meta.Started = meta.Started.AddDate(0, 0, int(seed))
	}
	m.Meta = date
	memory := func(change func(*run.Memory)) func(*run.Record) {
		return func(r *run.Record) {
			if r.Memory != nil && r.Memory.Point == chosen {
				change(r.Memory)
			}
		}
	}
	switch change := strings.Join(args[2:], " "); change {
	case "":
	case "slow":
		m.Slower = func(p run.Point) float64 {
			if p.Name() == chosen {
				return 1 / 0.9
			}
			return 1
		}
	case "allocates":
		one := int64(1)
		m.Edit = memory(func(w *run.Memory) { w.Allocs = &one })
	case "scratch":
		m.Edit = memory(func(w *run.Memory) { *w.Scratch += 1 << 20 })
	case "foreign":
		m.Meta = func(meta *run.Meta) { date(meta); meta.Machine.CPU = "Other CPU" }
	case "few":
		m.Samples = 3
	case "interrupted":
		m.Edit = func(r *run.Record) {
			if r.End != nil {
				r.End.Complete = false
			}
		}
	default:
		ts.Fatalf("model: %q is not a change", change)
	}
	runtest.Make(scriptTB{ts: ts}, ts.MkAbs(args[0]), m)
}

// A scriptTB has the methods of testing.TB that runtest needs.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (scriptTB) Helper() {}

func (t scriptTB) Fatal(args ...any) { t.ts.Fatalf("%v", fmt.Sprint(args...)) }

// A bad kernel is naive under another name, with another Forward.
type bad struct {
	name    string
	forward func(a *attn.Args, honest attn.Plan)
}

var wrongKernel = bad{"wrong", func(a *attn.Args, honest attn.Plan) {
	honest.Forward(a)
	if len(a.Out.Data) > 0 {
		a.Out.Data[0]++
	}
}}

// waitingKernel tells the pipe named by $FIFO that it was called, and answers when it can read from
// the one named by $HANG, once in each process.
var waitingKernel = bad{"waits", func(a *attn.Args, honest attn.Plan) {
	wait()
	honest.Forward(a)
}}

var wait = sync.OnceFunc(func() {
	if err := os.WriteFile(os.Getenv("FIFO"), []byte("waiting\n"), 0); err != nil {
		panic(err)
	}
	if _, err := os.ReadFile(os.Getenv("HANG")); err != nil {
		panic(err)
	}
})

// A tunedKernel takes the path that $TUNED names.
type tunedKernel struct{ bad }

func (tunedKernel) Path() string { return os.Getenv("TUNED") }

func honest(a *attn.Args, plan attn.Plan) { plan.Forward(a) }

// portable returns the kernels that run on every machine.
func portable() []attn.Kernel {
	return slices.DeleteFunc(kernels.All(), func(k attn.Kernel) bool { _, isa := k.Name(); return isa != "go" })
}

// badKernels returns kernels that break, each in another way.
func badKernels() []attn.Kernel {
	return []attn.Kernel{
		bad{"crashes", func(*attn.Args, attn.Plan) { panic("lost its head") }},
		bad{"hangs", func(*attn.Args, attn.Plan) { time.Sleep(time.Hour) }},
		wrongKernel,
		bad{"talks", func(a *attn.Args, honest attn.Plan) { os.Stdout.WriteString("hello\n"); honest.Forward(a) }},
	}
}

func (k bad) Name() (algo, isa string) { return k.name, "go" }

func (k bad) Check(p attn.Problem, workers int) (int64, error) { return naive.New().Check(p, workers) }

func (k bad) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	honest, err := naive.New().Plan(p, team)
	return badPlan{honest, k}, err
}

type badPlan struct {
	attn.Plan
	k bad
}

func (p badPlan) Forward(a *attn.Args) { p.k.forward(a, p.Plan) }
