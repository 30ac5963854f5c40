// Package peers lets programs of other projects compete as kernels. A peer is a kernel that another
// process computes, in any language: a few dozen lines around a library. The folders below this one
// have some, which say how to install what they need.
//
//	benchrun sweep --peer 'onnxruntime=node peers/onnxruntime/peer.mjs' \
//		--kernel flash,onnxruntime --seq 512,2048
//
// # Requests and answers
//
// A peer is started with pipes for its standard input and output. It answers one request after the
// other until its input ends. A request is a line of JSON. An answer is one too, of at most 64 KiB.
// Every answer repeats the "id" of its request, which is left out below. Tensors follow as float32,
// little endian, in rows [batch][head][row][column] without gaps.
//
//	request                                  answer
//	{"do":"about"}                           {"about":"Library 1.2.3"}
//	{"do":"check","problem":P,"threads":N}   {}, or {"refused":"why"}
//	{"do":"plan","problem":P,"threads":N}    {}
//	{"do":"load"} and Q, K, V                {}
//	{"do":"run","calls":N}                   {"wall_ns":W,"cpu_ns":C}
//	{"do":"store"}                           {} and Out, of the last call
//
// The first request is about: what the peer is, for the records of a run. A peer refuses at check
// what it does not compute, such as sizes of 0. A plan holds until the next one. The times of run
// are those of all calls together, measured by the peer, without copies.
//
// A peer whose about has "backward":true also gets problems with "grads":true. Out is then followed
// by LSE, and there are more requests. The times are those of the backward pass alone, of the last
// call:
//
//	{"do":"load_grads"} and dOut             {}
//	{"do":"run","pass":"backward","calls":N} {"wall_ns":W,"cpu_ns":C}
//	{"do":"store_grads"}                     {} and dQ, dK, dV
//
// A peer whose about has "linear":true also gets linear problems. P then has, for example,
//
//	"linear":{"feature":"identity","unnormalised":true,"eps":0,"gate":"head","delta":true,
//	 "norm":"sum","norm_eps":1e-06,"heads_v":8,"state":true}
//
// as package attn defines them. V and Out have heads_v heads, or Out has heads_q if that is more.
// Load sends more operands after V: Decay if the gate is head or key, Beta if delta is set, and a
// state if state is set. A state is [batch][head][column of K][column of V]. In a normalised
// problem the sums of features follow it. The state after the call then follows Out in store. Each
// run starts from the state that was sent.
//
// P is, on one line,
//
//	{"batch":1,"heads_q":8,"heads_kv":8,"seq_q":512,"seq_kv":512,"dim":64,"dim_v":64,
//	 "scale":0.125,"mask":"causal"}
//
// The mask is full, causal (the last query sees the last key), causal-topleft (the first query sees
// the first key), window:L:R or window:L:R:topleft, as package attn defines them. heads_kv divides
// heads_q; query head h uses key head h/(heads_q/heads_kv).
//
// # Faults
//
// A peer that cannot answer writes {"error":"what"} in place of an answer. That, and every other
// fault, is an attn.RemoteError and ends the process:
//
//   - The peer does not answer in time, ends, or closes its pipes.
//   - It writes anything but the answer: a line that is too long or not JSON, another id, bytes
//     after the answer. The output of a library belongs on the standard error, whose end is quoted
//     in messages.
//   - It claims an implausible time: a wall time of 0 or less, or longer than the exchange took
//     from outside; a negative processor time, or more than its threads can use. cpu_ns is the
//     processor time of the peer. 0 means unknown; wall_ns then counts.
//
// A peer leads a process group, which is killed when the peer ends, and with it every process that
// the peer has started. Messages contain the name of a peer and never its command. What it writes
// is shortened, and the arguments and assignments of its command are struck out.
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

// A Kernel is a peer. It starts a process when it needs one, and keeps one process that no plan
// uses.
type Kernel struct {
	// Timeout limits each exchange. 0 means no limit. Set it before the first use.
	Timeout time.Duration

	name         string
	env, command []string
	censor

	mu      sync.Mutex
	limited time.Duration // the limit that Within set
	until   time.Time
	heard   func(group int, runs bool)
	live    map[*process]bool
	idle    *process
	first   *first
}

// first is the outcome of the first start.
type first struct {
	about answer
	err   error // if not nil, no process is started again
}

var _ attn.Foreign = (*Kernel)(nil)

var (
	word       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// Parse reads NAME=COMMAND: assignments to the environment, a program and its arguments, separated
// by spaces. The error does not quote them, because they may be secret.
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

// New returns the peer that runs a command.
func New(name string, command ...string) *Kernel {
	return &Kernel{name: name, command: command, censor: newCensor(nil, command[1:]), live: map[*process]bool{}}
}

// Name returns the peer's name, and attn.Native.
func (k *Kernel) Name() (algo, isa string) { return k.name, attn.Native }

// About returns what the peer is, in its own words. If it failed to answer when it was first
// started, the peer is not started again and the error stays the same.
func (k *Kernel) About() (string, error) {
	f := k.firstStart()
	return f.about.About, f.err
}

// Claims returns every ability that a request can express. A peer that did not answer about has no
// backward pass.
func (k *Kernel) Claims() attn.Needs {
	claims := attn.NeedSoftmax | attn.NeedWindow
	about := k.firstStart().about
	if about.Backward {
		claims |= attn.NeedGrad
	}
	if about.Linear {
		claims |= attn.NeedLinear | attn.AllRules&^attn.NeedSnapshots
	}
	return claims
}

// Within implements attn.Foreign.
func (k *Kernel) Within(limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limited, k.until = limit, time.Now().Add(limit); limit == 0 {
		k.until = time.Time{}
	}
}

// limit returns the time by which an exchange that begins now must end, and the limit that sets it.
// The time is zero if there is no limit.
func (k *Kernel) limit() (d time.Duration, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if own := time.Now().Add(k.Timeout); k.Timeout > 0 && (k.until.IsZero() || own.Before(k.until)) {
		return k.Timeout, own
	}
	return k.limited, k.until
}

// Watch implements attn.Foreign.
func (k *Kernel) Watch(heard func(group int, runs bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = heard
}

// runs records that a process has started or ended.
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

// Check asks the peer. The scratch bytes are unknown and returned as 0.
func (k *Kernel) Check(p attn.Problem, workers int) (scratch int64, err error) {
	at, err := k.checked(&p, workers)
	if err != nil {
		return 0, err
	}
	k.free(at)
	return 0, nil
}

// Plan returns a plan with a process of its own until it is closed.
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

// Close ends the process that no plan uses. The kernel may still be used.
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

// Kill ends every process of the peer at once, including those of plans.
func (k *Kernel) Kill() {
	k.mu.Lock()
	live := slices.Collect(maps.Keys(k.live))
	k.mu.Unlock()
	for _, p := range live {
		p.kill()
	}
}

// checked returns a process that accepts a problem. If a process that was used before fails, an
// earlier request may be the cause, so a new process decides.
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

// process returns the idle process, or a new one, and reports whether it was used before.
func (k *Kernel) process() (p *process, used bool, err error) {
	if f := k.firstStart(); f.err != nil {
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

// firstStart returns the outcome of the first start, which it makes if there was none.
func (k *Kernel) firstStart() *first {
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

// start returns a new process that has answered about.
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

// free keeps a process for the next plan, or ends it if there is one already.
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

// failed returns an error about operands that were not sent.
func (k *Kernel) failed(err error) error { return fmt.Errorf("peer %s: %w", k.name, err) }

// A plan is a problem that a process has planned. It implements attn.Remote and io.Closer.
type plan struct {
	kernel  *Kernel
	problem attn.Problem
	threads int
	at      *process
	size    [2]int // the queries and keys that the peer has planned for
	empty   bool   // the call has no queries or no keys
	broken  error  // the fault that the process was killed for
}

// Scratch returns 0: the peer's memory is unknown.
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

// Load copies the operands to the peer. If the call is empty although its plan is not, its result
// is known and the peer is not asked.
func (p *plan) Load(a *attn.Args) error {
	if err := p.problem.Check(a); err != nil {
		return p.kernel.failed(err)
	}
	if p.problem.Want&attn.WantGrad != 0 && a.Stats.LSE.Data == nil {
		return p.kernel.failed(errors.New("Stats.LSE: not given, but the backward pass reads it: set it"))
	}
	if p.empty = a.Q.S == 0 || a.K.S == 0; p.empty {
		return nil
	}
	if err := p.replan(a.Q.S, a.K.S); err != nil {
		return err
	}
	operands := []*attn.Tensor{&a.Q, &a.K, &a.V}
	if p.problem.Linear.Gate != attn.NoGate {
		operands = append(operands, &a.Terms.Decay)
	}
	if beta := a.Terms.Beta; p.problem.Linear.Delta {
		if heads := p.problem.ValueHeads(); beta.H < heads {
			beta.H, beta.SH = heads, 0
		}
		operands = append(operands, &beta)
	}
	if hasState(&p.problem, a.Q.S, a.K.S) {
		state := p.state(a.StateIn)
		operands = append(operands, &state)
	}
	_, _, err := p.ask(request{Do: "load"}, operands, nil)
	return err
}

// state returns a state as a tensor. A nil state has rows of zeros that share memory.
func (p *plan) state(x []float32) attn.Tensor {
	width := max(p.problem.Dim, 1)
	t := attn.Tensor{Data: x, B: p.problem.StateLen() / width, S: 1, H: 1, D: width, SB: width}
	if x == nil {
		t.Data, t.SB = make([]float32, width), 0
	}
	return t
}

// replan makes the peer plan for the numbers of queries and keys of a call, which may be fewer than
// the plan's.
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

// Run computes calls and returns the time that the peer measured.
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
	// coarse is the allowed error of a clock at both ends of a reading together, and askew the
	// share by which it may run faster than ours.
	coarse = 100 * time.Microsecond
	askew  = 1e-3
	// ticks is the allowed error of processor time, which some systems count in ticks.
	ticks = 10 * time.Millisecond
	// idlers is the number of threads whose time may go to other work, such as a garbage
	// collector's.
	idlers = 0.5
)

// implausible returns what cannot be true of the times that a peer claims for its calls, or "" if
// they can be true. took is the time of the exchange as measured from outside.
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
		if n := copy(a.StateOut, a.StateIn); n < len(a.StateOut) {
			clear(a.StateOut[n:])
		}
		return nil
	}
	lse := a.Stats.LSE // set if there are gradients; a peer has one number for each row
	lse.D = min(lse.D, 1)
	results := []*attn.Tensor{&a.Out, &lse}
	if hasState(&p.problem, a.Q.S, a.K.S) {
		state := p.state(a.StateOut)
		results = append(results, &state)
	}
	if err := p.fetch("store", results...); err != nil {
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

// Process returns the ID of the peer's process.
func (p *plan) Process() int { return p.at.cmd.Process.Pid }

// Close returns the process to the kernel.
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
