// Package peers lets programs that are not ours compete. A peer is a kernel that another process
// computes, in any language: a few dozen lines around a library, such as those in the folders below
// this one, which say how to install what they need.
//
//	benchrun sweep --peer 'onnxruntime=node peers/onnxruntime/peer.mjs' --kernel flash,onnxruntime --seq 512,2048
//
// # Requests and answers
//
// A peer is started with pipes for its standard input and output. It answers one request after the
// other until its input ends. A request is a line of JSON, and so is an answer, of at most 64 KiB.
// Every answer has the "id" of its request, which is left out below. Tensors follow as float32,
// little endian, in rows [batch][head][row][column] without gaps.
//
//	request                                    answer
//	{"do":"about"}, once, at the start         {"about":"Library 1.2.3"}: what it is, for the records of a run
//	{"do":"check","problem":P,"threads":N}     {}, or {"refused":"why"} if it does not do this problem
//	{"do":"plan","problem":P,"threads":N}      {}; this is the problem until another plan
//	{"do":"load"} and Q, K, V                  {}
//	{"do":"run","calls":N}                     {"wall_ns":W,"cpu_ns":C}: all calls together, timed by the peer, without copies
//	{"do":"store"}                             {} and Out, of the last call
//
// One that says "backward":true about itself is also asked for problems with "grads":true. Out is
// then followed by LSE, and there are
//
//	{"do":"load_grads"} and dOut               {}
//	{"do":"run","pass":"backward","calls":N}   {"wall_ns":W,"cpu_ns":C}: the backward pass alone, of the last call
//	{"do":"store_grads"}                       {} and dQ, dK, dV
//
// P is
//
//	{"batch":1,"heads_q":8,"heads_kv":8,"seq_q":512,"seq_kv":512,"dim":64,"dim_v":64,"scale":0.125,"mask":"causal"}
//
// where mask is full, causal (the last query sees the last key), causal-topleft (the first query
// sees the first key), or window:L:R or window:L:R:topleft as package attn defines them. heads_kv
// divides heads_q; query head h has key head h/(heads_q/heads_kv). A peer refuses what it does not
// do, such as sizes of 0.
//
// # What goes wrong
//
// A peer that cannot answer says {"error":"what"}, in place of any answer. That, and whatever else
// it does wrong, is an attn.RemoteError and the end of its process:
//
//   - It does not answer in time, or ends, or closes its pipes.
//   - It writes something else than the answer: a line that is too long or not JSON, another id, bytes after the answer. What a library prints belongs on the
//     standard error, of which messages quote the end.
//   - It claims a time that is not above 0, or longer than the exchange took from outside, or negative processor time, or more of it than the threads it was told
//     can use. cpu_ns is the processor time of the peer; 0 is unknown, and wall_ns then counts.
//
// A peer leads a process group, which is killed when the peer ends: what it starts ends with it.
// Messages have the name of a peer and never its command; what it writes is cut, and the arguments
// and assignments of its command are struck out.
package peers

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"attnlab/attn"
)

// A Kernel is a peer. It starts a process when it needs one, and keeps one that no plan holds.
type Kernel struct {
	// Timeout bounds each exchange. 0 is no bound. It is set before anything is asked.
	Timeout time.Duration

	name         string
	env, command []string
	censor

	mu      sync.Mutex
	limited time.Duration // by Within
	until   time.Time
	heard   func(group int, runs bool)
	live    map[*process]bool
	idle    *process
	first   *first
}

// first is what came of the first start.
type first struct {
	about answer
	err   error // nothing is started again
}

var _ attn.Foreign = (*Kernel)(nil)

var (
	word       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// Parse reads NAME=COMMAND: assignments to the environment, a program and its arguments, separated
// by spaces. The error does not repeat them, which may be secret.
func Parse(spec string) (*Kernel, error) {
	name, command, _ := strings.Cut(spec, "=")
	words := strings.Fields(command)
	n := 0
	for n < len(words) && assignment.MatchString(words[n]) {
		n++
	}
	if !word.MatchString(name) || n == len(words) {
		return nil, errors.New("want NAME=COMMAND, such as onnxruntime=node peers/onnxruntime/peer.mjs")
	}
	k := New(name, words[n:]...)
	k.env, k.censor = words[:n], newCensor(words[:n], words[n+1:])
	return k, nil
}

// New returns the peer that a command runs.
func New(name string, command ...string) *Kernel {
	return &Kernel{name: name, command: command, censor: newCensor(nil, command[1:]), live: map[*process]bool{}}
}

// Name returns the peer's name, and attn.Native.
func (k *Kernel) Name() (algo, isa string) { return k.name, attn.Native }

// About returns what the peer says it is. A peer that failed to say it when it was first started is
// not started again: the error stays the same.
func (k *Kernel) About() (string, error) {
	f := k.met()
	return f.about.About, f.err
}

// Claims returns all that can be said in a request. A peer that does not say what it is has no
// backward pass.
func (k *Kernel) Claims() attn.Needs {
	if k.met().about.Backward {
		return attn.NeedSoftmax | attn.NeedWindow | attn.NeedGrad
	}
	return attn.NeedSoftmax | attn.NeedWindow
}

// Within is a Foreign's.
func (k *Kernel) Within(limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limited, k.until = limit, time.Now().Add(limit); limit == 0 {
		k.until = time.Time{}
	}
}

// limit returns when an exchange that begins now must have ended, and how long it then had by its
// limit; a zero time if it may take for ever.
func (k *Kernel) limit() (d time.Duration, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if own := time.Now().Add(k.Timeout); k.Timeout > 0 && (k.until.IsZero() || own.Before(k.until)) {
		return k.Timeout, own
	}
	return k.limited, k.until
}

// Watch is a Foreign's.
func (k *Kernel) Watch(heard func(group int, runs bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = heard
}

// runs keeps account of a process that has started or ended.
func (k *Kernel) runs(p *process, runs bool) {
	k.mu.Lock()
	heard := k.heard
	if runs {
		k.live[p] = true
	} else {
		delete(k.live, p)
	}
	k.mu.Unlock()
	if heard != nil {
		heard(p.cmd.Process.Pid, runs)
	}
}

// Check asks the peer. What it holds is not known.
func (k *Kernel) Check(p attn.Problem, workers int) (scratch int64, err error) {
	at, err := k.checked(&p, workers)
	if err != nil {
		return 0, err
	}
	k.free(at)
	return 0, nil
}

// Plan returns a plan that has a process of its own until it is closed.
func (k *Kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	at, err := k.checked(&p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{kernel: k, problem: p, threads: team.Workers(), at: at}
	if err := pl.replan(p.SeqQ, p.SeqKV); err != nil {
		return nil, err
	}
	if p.Want&attn.WantGrad != 0 {
		return &backward{pl}, nil
	}
	return pl, nil
}

// Close lets the process end that no plan holds. The kernel may still be used.
func (k *Kernel) Close() error {
	k.mu.Lock()
	at := k.idle
	k.idle = nil
	k.mu.Unlock()
	if at == nil {
		return nil
	}
	return at.end()
}

// Kill ends every process of the peer at once, those of plans too.
func (k *Kernel) Kill() {
	k.mu.Lock()
	live := slices.Collect(maps.Keys(k.live))
	k.mu.Unlock()
	for _, p := range live {
		p.kill()
	}
}

// checked returns a process that does a problem. One that has been asked before and fails may
// suffer from what it was asked then: a new one decides.
func (k *Kernel) checked(p *attn.Problem, workers int) (*process, error) {
	if err := p.Require(k.name+"/"+attn.Native, k.Claims()); err != nil {
		return nil, err
	}
	for {
		at, used, err := k.process()
		if err != nil {
			return nil, err
		}
		a, _, err := at.ask(planning("check", p, workers), nil, nil)
		switch late := new(attn.RemoteError); {
		case err != nil && used && !(errors.As(err, &late) && late.Late):
			continue
		case err != nil:
			return nil, err
		case a.Refused != "":
			k.free(at)
			return nil, fmt.Errorf("%w: %s/%s: %s", attn.ErrUnsupported, k.name, attn.Native, k.clean(a.Refused))
		}
		return at, nil
	}
}

// process returns the idle one, which has been used before, or a new one.
func (k *Kernel) process() (p *process, used bool, err error) {
	if f := k.met(); f.err != nil {
		return nil, false, f.err
	}
	k.mu.Lock()
	p, k.idle = k.idle, nil
	k.mu.Unlock()
	if p != nil {
		return p, p.asked > 1, nil
	}
	p, err = k.start()
	return p, false, err
}

// met returns what came of the first start, which it makes if there was none.
func (k *Kernel) met() *first {
	k.mu.Lock()
	f := k.first
	k.mu.Unlock()
	if f != nil {
		return f
	}
	f = new(first)
	p, err := k.start()
	if f.err = err; err == nil {
		f.about = p.about
		k.free(p)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first == nil {
		k.first = f
	}
	return k.first
}

// start returns a new process that has said what it is.
func (k *Kernel) start() (*process, error) {
	p, err := k.launch()
	if err != nil {
		return nil, err
	}
	if p.about, _, err = p.ask(request{Do: "about"}, nil, nil); err != nil {
		return nil, err
	}
	if p.about.About = brief(p.about.About); p.about.About == "" {
		p.kill()
		return nil, k.fault("about", `got no text, want {"about":"what it is"}`)
	}
	return p, nil
}

// free keeps a process for the next plan. One is enough.
func (k *Kernel) free(at *process) {
	k.mu.Lock()
	spare := k.idle != nil
	if !spare {
		k.idle = at
	}
	k.mu.Unlock()
	if spare {
		at.kill()
	}
}

func (k *Kernel) fault(stage, what string) *attn.RemoteError {
	return &attn.RemoteError{Kernel: k.name, Stage: stage, Fault: what}
}

// failed is about operands that are not sent.
func (k *Kernel) failed(err error) error { return fmt.Errorf("peer %s: %w", k.name, err) }

// A plan is a problem that a process is at. It is a Remote and an io.Closer.
type plan struct {
	kernel  *Kernel
	problem attn.Problem
	threads int
	at      *process
	size    [2]int // the queries and keys that the peer has planned for
	empty   bool   // the call has none
	broken  error  // what the process was killed for
}

// Scratch is not known.
func (p *plan) Scratch() int64 { return 0 }

// Forward is Load, one Run, and Store.
func (p *plan) Forward(a *attn.Args) {
	err := p.Load(a)
	if err == nil {
		_, _, err = p.Run(1)
	}
	if err == nil {
		err = p.Store(a)
	}
	if err != nil {
		panic(err)
	}
}

// Load copies the operands to the peer. A call may be empty where its plan is not: its result is
// known without asking.
func (p *plan) Load(a *attn.Args) error {
	if err := p.problem.Check(a); err != nil {
		return p.kernel.failed(err)
	}
	if p.problem.Want&attn.WantGrad != 0 && a.Stats.LSE.Data == nil {
		return p.kernel.failed(errors.New("Stats.LSE: not given, and there is to be a backward pass"))
	}
	if p.empty = a.Q.S == 0 || a.K.S == 0; p.empty {
		return nil
	}
	if err := p.replan(a.Q.S, a.K.S); err != nil {
		return err
	}
	_, _, err := p.ask(request{Do: "load"}, []*attn.Tensor{&a.Q, &a.K, &a.V}, nil)
	return err
}

// replan has the peer plan for a number of queries and keys, which a call may have fewer of than
// its plan.
func (p *plan) replan(queries, keys int) error {
	if p.size == [2]int{queries, keys} {
		return nil
	}
	p.size = [2]int{queries, keys}
	now := p.problem
	now.SeqQ, now.SeqKV = queries, keys
	_, _, err := p.ask(planning("plan", &now, p.threads), nil, nil)
	return err
}

// Run makes calls and returns how long they took the peer.
func (p *plan) Run(calls int) (cpu, wall time.Duration, err error) {
	return p.run(request{Do: "run", Calls: calls})
}

func (p *plan) run(q request) (cpu, wall time.Duration, err error) {
	if p.empty {
		return 0, 1, nil
	}
	a, took, err := p.ask(q, nil, nil)
	if err != nil {
		return 0, 0, err
	}
	cpu, wall = time.Duration(a.CPU), time.Duration(a.Wall)
	if doubt := implausible(cpu, wall, took, p.threads); doubt != "" {
		p.at.kill()
		p.broken = p.kernel.fault(q.stage(), fmt.Sprintf("for %d calls %s", q.Calls, doubt))
		return 0, 0, p.broken
	}
	return cpu, wall, nil
}

const (
	// coarse is what a clock may be off by at both ends of a reading together, and askew the share
	// by which it may run faster than ours.
	coarse = 100 * time.Microsecond
	askew  = 1e-3
	// ticks is what processor time may be off by: some systems count it in ticks.
	ticks = 10 * time.Millisecond
	// idlers is how many threads' worth of time may go to threads that do not compute, such as a
	// garbage collector's.
	idlers = 0.5
)

// implausible says what cannot be true of the times that a peer claims for calls, which took at
// most the given time from outside; nothing if they can.
func implausible(cpu, wall, took time.Duration, threads int) string {
	longest := took + coarse + time.Duration(askew*float64(took))
	most := (float64(threads) + idlers) * float64(wall)
	if wall <= ticks {
		most += float64(ticks)
	}
	switch {
	case wall <= 0:
		return fmt.Sprintf("it claims wall_ns %d, want a time above 0", wall)
	case wall > longest:
		return fmt.Sprintf("it claims to have taken %v, and answered within %v", wall, took)
	case cpu < 0:
		return fmt.Sprintf("it claims cpu_ns %d, want a time, or 0 if it is unknown", cpu)
	case float64(cpu) > most:
		return fmt.Sprintf("it claims %v of processor time in %v, on more threads than the %d it was told", cpu, wall, threads)
	}
	return ""
}

// Store copies the output from the peer.
func (p *plan) Store(a *attn.Args) error {
	if p.empty {
		for row := range rows(&a.Out) {
			clear(row)
		}
		for row := range rows(&a.Stats.LSE) {
			attn.LogSum{Ref: math.Inf(-1)}.Write(row)
		}
		return nil
	}
	lse := a.Stats.LSE // given where there are gradients; a peer has one number a row
	lse.D = min(lse.D, 1)
	if err := p.fetch("store", &a.Out, &lse); err != nil {
		return err
	}
	for row := range rows(&a.Stats.LSE) {
		clear(row[1:])
	}
	return nil
}

// fetch copies tensors from the peer.
func (p *plan) fetch(do string, results ...*attn.Tensor) error {
	_, _, err := p.ask(request{Do: do}, nil, results)
	return err
}

// Process is the peer's.
func (p *plan) Process() int { return p.at.cmd.Process.Pid }

// Close lets the kernel have the process.
func (p *plan) Close() error {
	if p.broken == nil {
		p.kernel.free(p.at)
	}
	return nil
}

// ask makes an exchange, unless an earlier one has failed.
func (p *plan) ask(q request, operands, results []*attn.Tensor) (a answer, took time.Duration, err error) {
	if p.broken == nil {
		a, took, p.broken = p.at.ask(q, operands, results)
	}
	return a, took, p.broken
}
