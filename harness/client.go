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
	"attnlab/harness/verify"
	"attnlab/internal/group"
)

// A Client is a Worker that asks Servers in other processes. Cases share one process, which is
// started when it is needed and replaced when it dies. Each request about a point has a process of
// its own, since the speed of a point depends on the addresses of its memory, which stay the same
// while a process lives.
// Tuning: docs/tuning.md#process-for-each-sample
type Client struct {
	Command func() *exec.Cmd // runs Server.Serve on its standard input and output
	Timeout time.Duration    // of one request, after which its process is killed; 0 is no limit
	process *process         // of cases
}

// excess is the time beyond its limit that a request about a Foreign kernel may take. The server
// gives such a kernel up by itself at the limit, and reports what it was doing.
const excess = 5 * time.Second

type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	stderr  *head
	groups  map[int]bool // process groups that the server has started and that run
}

// answer reads the next answer, and the news of process groups before it.
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

// errNoAnswer is the error of reading where there is no answer. How the process ended says why.
var errNoAnswer = errors.New("no answer on the worker's output")

// head keeps the beginning of what is written to it, where a crash says what it is.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := 16<<10 - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (c *Client) start() error {
	p := &process{cmd: c.Command(), stderr: new(head), groups: map[int]bool{}}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second // programs that it started may hold its output open
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

// Close ends the process of cases and the programs that it has started. A later request starts a
// new one.
func (c *Client) Close() error {
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

// ask sends one request to the process of cases. Its error is that of the kernel, of the end of the
// process, or of the context.
//
// A terminal or a batch system may send SIGINT or SIGTERM to the whole process group. A worker
// ignores it, because the parent decides what it means. A process that is too young to ignore it
// dies of it, and is replaced once.
func (c *Client) ask(ctx context.Context, q request) (answer, error) {
	a, err := c.askOnce(ctx, q)
	if err != nil && ctx.Err() == nil && interrupted(err) {
		return c.askOnce(ctx, q)
	}
	return a, err
}

// interrupted reports whether an error is that of a process ended by SIGINT or SIGTERM.
func interrupted(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGTERM)
}

func (c *Client) askOnce(ctx context.Context, q request) (answer, error) {
	if c.process == nil {
		if err := c.start(); err != nil {
			return answer{}, fmt.Errorf("%w: %w", ErrNoWorker, err)
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
	defer context.AfterFunc(limit, func() { // which ends the reading below
		// SIGQUIT ends a Go program, which then writes its stacks.
		if ctx.Err() == nil && p.cmd.Process.Signal(syscall.SIGQUIT) == nil {
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
	_ = p.cmd.Process.Kill() // it may still run, with its output closed or garbled
	died := c.Close()
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case limit.Err() != nil:
		return a, fmt.Errorf("%w within %v%s", ErrTimeout, c.Timeout, innermost(p.stderr.String()))
	}
	return a, &death{lastWords(p.stderr.String(), died), died}
}

// A lateError is the error of a Foreign kernel that the server has given up.
type lateError string

func (e lateError) Error() string { return string(e) }
func (lateError) Unwrap() error   { return ErrTimeout }

// A death is the error of a process that ended without an answer.
type death struct {
	lastWords string
	of        error // of exec.Cmd.Wait
}

func (d *death) Error() string { return "the worker died: " + d.lastWords }
func (d *death) Unwrap() error { return d.of }

// lastWords returns the line of a crash report that says most.
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

// innermost describes the innermost calls of the main goroutine, from the stacks that an ended
// process has written. It is empty if they do not show that goroutine.
func innermost(stacks string) string {
	_, main, ok := strings.Cut(stacks, "\ngoroutine 1 ")
	if !ok {
		return ""
	}
	var calls []string
	for line := range strings.Lines(main) {
		if line == "\n" || len(calls) == 5 {
			break
		}
		// The first line of a goroutine and those of files have no call. Calls of the runtime say
		// how it waits, which the state says better.
		if end := strings.LastIndex(line, "("); end > 0 && line[0] != '\t' && !strings.HasPrefix(line, "runtime.") {
			calls = append(calls, line[:end])
		}
	}
	_, state, _ := strings.Cut(main, "[")
	return fmt.Sprintf(": it was in %s (%s)", strings.Join(calls, " < "), state[:max(0, strings.IndexAny(state, ",]"))])
}

// fresh sends one request to a process of its own.
func (c *Client) fresh(ctx context.Context, q request) (answer, error) {
	alone := &Client{Command: c.Command, Timeout: c.Timeout}
	if c.Timeout > 0 {
		alone.Timeout += time.Duration(q.Wait)
	}
	a, err := alone.ask(ctx, q)
	return a, errors.Join(err, alone.Close())
}

// Paths returns the paths of the server's kernels. It is nil for a program of an older build, which
// does not report paths, and for one that dies, since each of its points will fail.
func (c *Client) Paths(ctx context.Context) (run.Paths, error) {
	a, err := c.fresh(ctx, request{Do: "paths"})
	if a.Error != "" || errors.As(err, new(*death)) {
		return nil, nil
	}
	return a.Paths, err
}

// Verify implements Worker.
func (c *Client) Verify(ctx context.Context, at run.Point) (oracle.Verdict, error) {
	a, err := c.fresh(ctx, request{Do: "verify", Point: &at})
	return oracle.Verdict{Rows: a.Rows, Worst: float64(a.Worst), Where: a.Note}, err
}

// Memory implements Worker.
func (c *Client) Memory(ctx context.Context, at run.Point) (Memory, error) {
	a, err := c.fresh(ctx, request{Do: "weigh", Point: &at})
	if err != nil {
		return Memory{}, err
	}
	return *a.Memory, nil
}

// Sample implements Worker. Timeout does not count the time that it waits.
func (c *Client) Sample(ctx context.Context, at run.Point, o SampleOptions) (Sample, error) {
	a, err := c.fresh(ctx, request{Do: "sample", Point: &at, Hint: o.Calls, Slots: o.Slots, Wait: int64(o.Wait)})
	if err != nil {
		return Sample{}, err
	}
	if at.Layer != "" && a.Sample.Elapsed.Products == 0 {
		return Sample{}, errors.New("the worker timed the kernel without its layer: it is of a build that has no layers")
	}
	return *a.Sample, nil
}

// Profile runs a point under the CPU profiler for the server's Effort.Profile. It returns what go
// tool pprof reads.
func (c *Client) Profile(ctx context.Context, at run.Point) ([]byte, error) {
	a, err := c.fresh(ctx, request{Do: "profile", Point: &at})
	return a.Profile, err
}

// Try implements verify.Worker.
func (c *Client) Try(ctx context.Context, algo, isa string, k cases.Case) (verify.Finding, error) {
	f := verify.Finding{Kernel: algo, ISA: isa, Family: k.Family, Case: k.Name}
	return c.find(ctx, f, request{Do: "try", Algo: algo, ISA: isa, Case: k.String(), Back: k.Backward()})
}

// TryOutside implements verify.Worker.
func (c *Client) TryOutside(ctx context.Context, algo, isa, path string, o *cases.Outside) (verify.Finding, error) {
	f := verify.Finding{Kernel: algo, ISA: isa, Family: o.File, Case: o.Name}
	return c.find(ctx, f, request{Do: "outside", Algo: algo, ISA: isa, Path: path, Case: o.Name, File: o.File})
}

// find completes a finding with the answer to a request about a case. A process that crashes or is
// late is a finding, too.
func (c *Client) find(ctx context.Context, f verify.Finding, q request) (verify.Finding, error) {
	switch a, err := c.ask(ctx, q); {
	case err == nil:
		f.Worst, f.Note, f.Refused, f.Excused, f.Late = float64(a.Worst), a.Note, a.Refused, a.Excused, a.Late
		return f, nil
	case ctx.Err() != nil:
		return f, ctx.Err()
	case errors.Is(err, ErrNoWorker):
		return f, err
	default:
		f = f.Broken(err)
		f.Late = errors.Is(err, ErrTimeout)
		return f, nil
	}
}
