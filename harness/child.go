package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/harness/run"
	"attnlab/internal/group"
)

// ErrNoChild is what a Child returns when no process can be started at all: no point is to blame.
var ErrNoChild = errors.New("cannot start a worker process")

// ErrTimeout is what a Child wraps when a request took longer than its limit.
var ErrTimeout = errors.New("no answer")

// A Child is a Worker in other processes. Cases share one, which is started when it is needed and
// replaced when it dies. Whatever is asked about a point has a process of its own: its speed also
// hangs on where its memory lies, which no later call in the same process changes. On a Xeon
// (family 6, model 167) whose free memory lay in pieces, samples of the same code from two
// processes, many from each, differed by up to 12 %.
type Child struct {
	Command func() *exec.Cmd // runs Lab.Serve on its standard input and output
	Timeout time.Duration    // for one request; then the process is killed. 0 is no limit
	process *process
}

// excess is how much longer than its limit a request about a Foreign kernel may take: the worker
// gives such a kernel up by itself, and says at what.
const excess = 5 * time.Second

type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	stderr  *head
	groups  map[int]bool // process groups that the worker has started, and not said to have ended
}

// answer reads the next answer, and whatever the worker tells of process groups before it.
func (p *process) answer() (a answer, err error) {
	for {
		if a = (answer{}); p.answers.Decode(&a) != nil {
			return a, errNoAnswer
		}
		switch {
		case a.Group == 0:
			return a, nil
		case a.Runs:
			p.groups[a.Group] = true
		default:
			delete(p.groups, a.Group)
		}
	}
}

// errNoAnswer is what reading an answer comes to when there is none. Why is for the end of the
// process to tell.
var errNoAnswer = errors.New("no answer on the worker's output")

// head keeps the beginning of what is written to it: that is where a crash says what it is.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := 16<<10 - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (c *Child) start() error {
	p := &process{cmd: c.Command(), stderr: new(head), groups: map[int]bool{}}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second // what it started itself may hold its output open
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.in, p.answers = in, json.NewDecoder(out)
	c.process = p
	return nil
}

// Close ends the process of cases, and the programs that it has started. The child may be asked
// again: a new one is then started.
func (c *Child) Close() error {
	p := c.process
	if p == nil {
		return nil
	}
	c.process = nil
	p.in.Close()
	err := p.cmd.Wait()
	for leader := range p.groups {
		group.Kill(leader)
	}
	return err
}

// ask puts one request to the process. An error of the kernel's or its death is told as an error; a
// cancelled context as the context's. A process that is so young that it does not yet ignore what a
// terminal or a batch system sends to all of us is replaced: what that means is for the parent to
// say.
func (c *Child) ask(ctx context.Context, q request) (answer, error) {
	a, err := c.askOnce(ctx, q)
	if err != nil && ctx.Err() == nil && interrupted(err) {
		return c.askOnce(ctx, q)
	}
	return a, err
}

// interrupted is whether an error is the death of a process by a signal that asks it to end.
func interrupted(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGTERM)
}

func (c *Child) askOnce(ctx context.Context, q request) (answer, error) {
	if c.process == nil {
		if err := c.start(); err != nil {
			return answer{}, fmt.Errorf("%w: %w", ErrNoChild, err)
		}
	}
	p := c.process
	limit, cancel := ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		q.Limit = int64(c.Timeout)
		patience := c.Timeout
		if q.foreign() {
			patience += excess
		}
		limit, cancel = context.WithTimeout(ctx, patience)
	}
	defer cancel()
	defer context.AfterFunc(limit, func() { // reading then ends
		if ctx.Err() == nil && p.cmd.Process.Signal(syscall.SIGQUIT) == nil { // Go programs die of it with their stacks as last words
			time.Sleep(2 * time.Second)
		}
		_ = p.cmd.Process.Kill()
	})()

	var a answer
	err := json.NewEncoder(p.in).Encode(q)
	if err == nil {
		a, err = p.answer()
	}
	switch {
	case err == nil && a.Error != "" && a.Late:
		return a, lateError(a.Error)
	case err == nil && a.Error != "":
		return a, errors.New(a.Error)
	case err == nil:
		return a, nil
	}
	_ = p.cmd.Process.Kill() // it may live on with its output closed or garbled
	died := c.Close()
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case limit.Err() != nil:
		return a, fmt.Errorf("%w within %v%s", ErrTimeout, c.Timeout, standing(p.stderr.String()))
	}
	return a, &death{lastWords(p.stderr.String(), died), died}
}

// A lateError is what a worker tells of a Foreign kernel that it has given up.
type lateError string

func (e lateError) Error() string { return string(e) }
func (lateError) Unwrap() error   { return ErrTimeout }

// A death is that of a worker.
type death struct {
	lastWords string
	of        error // what waiting for it said
}

func (d *death) Error() string { return "the worker died: " + d.lastWords }
func (d *death) Unwrap() error { return d.of }

// lastWords is the line of a crash report that says most.
func lastWords(stderr string, died error) string {
	first := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "SIG") {
			return line
		}
		if first == "" {
			first = line
		}
	}
	if first != "" {
		return first
	}
	text := fmt.Sprint(died)
	if strings.HasSuffix(text, "signal: killed") {
		text += ", which is what the system does when memory runs out"
	}
	return text
}

// standing says where the stacks in a worker's last words show its main goroutine: the innermost
// calls. It is empty if they do not show it.
func standing(stacks string) string {
	_, main, ok := strings.Cut(stacks, "\ngoroutine 1 ")
	if !ok {
		return ""
	}
	var calls []string
	for line := range strings.Lines(main) {
		if line == "\n" || len(calls) == 5 {
			break
		}
		// The line that begins the goroutine, and those of a file, have no call; those of the
		// runtime say how it waits, and the state says it better.
		if end := strings.LastIndex(line, "("); end > 0 && line[0] != '\t' && !strings.HasPrefix(line, "runtime.") {
			calls = append(calls, line[:end])
		}
	}
	_, state, _ := strings.Cut(main, "[")
	return fmt.Sprintf(": it stood in %s (%s)", strings.Join(calls, " < "), state[:max(0, strings.IndexAny(state, ",]"))])
}

// fresh puts one request to a process in which nothing else has run.
func (c *Child) fresh(ctx context.Context, q request) (answer, error) {
	alone := &Child{Command: c.Command, Timeout: c.Timeout}
	if c.Timeout > 0 {
		alone.Timeout += time.Duration(q.Wait)
	}
	a, err := alone.ask(ctx, q)
	return a, errors.Join(err, alone.Close())
}

// Paths returns what Lab.Paths of the child's program returns. It is nil for a program that does
// not report paths, since it is of an older build, and for one that dies: each of its points will
// fail.
func (c *Child) Paths(ctx context.Context) (run.Paths, error) {
	a, err := c.fresh(ctx, request{Do: "paths"})
	if a.Error != "" || errors.As(err, new(*death)) {
		return nil, nil
	}
	return a.Paths, err
}

// Verify is the Worker's.
func (c *Child) Verify(ctx context.Context, at run.Point) (oracle.Verdict, error) {
	a, err := c.fresh(ctx, request{Do: "verify", Point: &at})
	return oracle.Verdict{Rows: a.Rows, Worst: float64(a.Worst), Where: a.Note}, err
}

// Weigh is the Worker's.
func (c *Child) Weigh(ctx context.Context, at run.Point) (Memory, error) {
	a, err := c.fresh(ctx, request{Do: "weigh", Point: &at})
	if err != nil {
		return Memory{}, err
	}
	return *a.Memory, nil
}

// Sample is the Worker's. What it waits is not a part of its Timeout.
func (c *Child) Sample(ctx context.Context, at run.Point, wish Wish) (Sample, error) {
	a, err := c.fresh(ctx, request{Do: "sample", Point: &at, Hint: wish.Calls, Slots: wish.Slots, Wait: int64(wish.Wait)})
	if err != nil {
		return Sample{}, err
	}
	if at.Layer != "" && a.Sample.Elapsed.Products == 0 {
		return Sample{}, errors.New("the worker timed the kernel without its layer: it is of a build that has no layers")
	}
	return *a.Sample, nil
}

// Profile runs a point for two seconds under the CPU profiler, without timing it, and returns what
// go tool pprof reads.
func (c *Child) Profile(ctx context.Context, at run.Point) ([]byte, error) {
	a, err := c.fresh(ctx, request{Do: "profile", Point: &at})
	return a.Profile, err
}

// Try is the Worker's.
func (c *Child) Try(ctx context.Context, algo, isa string, k cases.Case) (Finding, error) {
	a, err := c.ask(ctx, request{Do: "try", Algo: algo, ISA: isa, Case: k.String(), Back: k.Backward()})
	return Finding{
		Kernel: algo, ISA: isa, Family: k.Family, Case: k.Name, Refused: a.Refused, Worst: float64(a.Worst), Note: a.Note, Late: a.Late,
	}, err
}

// TryOutside is the Worker's.
func (c *Child) TryOutside(ctx context.Context, algo, isa, path string, o *cases.Outside) (Finding, error) {
	a, err := c.ask(ctx, request{Do: "outside", Algo: algo, ISA: isa, Path: path, Case: o.Name, File: o.File})
	return Finding{
		Kernel: algo, ISA: isa, Family: o.File, Case: o.Name, Refused: a.Refused, Excused: a.Excused, Worst: float64(a.Worst), Note: a.Note, Late: a.Late,
	}, err
}
