// Package peers lets programs that are not ours compete. A peer is a kernel that another process computes, whatever that is written in: a few dozen lines
// around somebody's library, such as those in the folders below this one, which say how to install what they need.
//
//	benchrun sweep --peer 'onnxruntime=node peers/onnxruntime/peer.mjs' --kernel flash,onnxruntime --seq 512,2048
//
// A peer is started with pipes for its standard input and output, and answers one request after the other until its input ends. A request is a line of JSON, and
// so is an answer. Tensors follow as float32, little endian, in rows [batch][head][row][column] without gaps.
//
//	request                                    answer
//	{"do":"about"}, once, at the start         {"about":"Library 1.2.3"}: what it is, for the records of a run
//	{"do":"check","problem":P,"threads":N}     {}, or {"refused":"why"} where it does not do this problem
//	{"do":"plan","problem":P,"threads":N}      {}; this is the problem from here on, until another plan
//	{"do":"load"} and Q, K, V                  {}
//	{"do":"run","calls":N}                     {"wall_ns":W,"cpu_ns":C}: all calls together, timed by the peer, without copies
//	{"do":"store"}                             {} and Out, of the last call
//
// One that says "backward":true about itself is also asked for problems with "grads":true. Out is then followed by LSE, and there are
//
//	{"do":"load_grads"} and dOut               {}
//	{"do":"run","pass":"backward","calls":N}   {"wall_ns":W,"cpu_ns":C}: the backward pass alone, of the last call
//	{"do":"store_grads"}                       {} and dQ, dK, dV
//
// What goes wrong is answered by {"error":"what"}, in place of any of these. cpu_ns is the processor time of the peer; 0 is not known, and wall_ns then counts. No
// more threads may work than were told: processor time that says otherwise is an error. P is
//
//	{"batch":1,"heads_q":8,"heads_kv":8,"seq_q":512,"seq_kv":512,"dim":64,"dim_v":64,"scale":0.125,"mask":"causal"}
//
// where mask is full, causal (the last query sees the last key), causal-topleft (the first query sees the first key), or window:L:R or window:L:R:topleft as
// package attn has them. heads_kv divides heads_q; query head h has key head h/(heads_q/heads_kv). A peer refuses what it does not do, such as numbers that are 0.
package peers

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"

	"attnlab/attn"
)

// A Kernel is a peer. It starts a process when it needs one, and keeps one that no plan holds.
type Kernel struct {
	name    string
	command []string
	mu      sync.Mutex
	idle    *process
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Parse reads NAME=COMMAND, the command with arguments that spaces part.
func Parse(spec string) (*Kernel, error) {
	name, command, _ := strings.Cut(spec, "=")
	words := strings.Fields(command)
	if !word.MatchString(name) || len(words) == 0 {
		return nil, fmt.Errorf("%q: want NAME=COMMAND, such as onnxruntime=node peers/onnxruntime/peer.mjs", spec)
	}
	return New(name, words...), nil
}

// New is the peer that a command runs.
func New(name string, command ...string) *Kernel { return &Kernel{name: name, command: command} }

// Name is the peer's, and attn.Native.
func (k *Kernel) Name() (algo, isa string) { return k.name, attn.Native }

// About is what the peer says it is.
func (k *Kernel) About() (string, error) {
	at, err := k.process()
	if err != nil {
		return "", k.failed(err)
	}
	return at.about.About, k.free(at)
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

// Plan has a process of its own until it is closed.
func (k *Kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	at, err := k.checked(&p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{kernel: k, problem: p, threads: team.Workers(), at: at}
	if err := pl.replan(p.SeqQ, p.SeqKV); err != nil {
		return nil, errors.Join(err, at.kill())
	}
	if p.Want&attn.WantGrad != 0 {
		return &backward{pl}, nil
	}
	return pl, nil
}

// Close ends the process that no plan holds. The kernel may still be used.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.idle
	if k.idle = nil; at == nil {
		return nil
	}
	return at.end()
}

// checked is a process that does a problem.
func (k *Kernel) checked(p *attn.Problem, workers int) (*process, error) {
	at, err := k.process()
	if err != nil {
		return nil, k.failed(err)
	}
	have := attn.NeedSoftmax | attn.NeedWindow
	if at.about.Backward {
		have |= attn.NeedGrad
	}
	if err := p.Require(k.name+"/"+attn.Native, have); err != nil {
		k.free(at)
		return nil, err
	}
	a, err := at.ask(planning("check", p, workers))
	switch {
	case err != nil:
		return nil, errors.Join(k.failed(err), at.kill())
	case a.Refused != "":
		k.free(at)
		return nil, fmt.Errorf("%w: %s/%s: %s", attn.ErrUnsupported, k.name, attn.Native, a.Refused)
	}
	return at, nil
}

// process is the idle one, or a new one.
func (k *Kernel) process() (*process, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.idle; at != nil {
		k.idle = nil
		return at, nil
	}
	return start(k.command)
}

// free keeps a process for the next plan. One is enough.
func (k *Kernel) free(at *process) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.idle != nil {
		return at.end()
	}
	k.idle = at
	return nil
}

func (k *Kernel) failed(err error) error {
	return fmt.Errorf("peer %s (%s): %w", k.name, strings.Join(k.command, " "), err)
}

// A plan is a problem that a process is at. It is a Remote and an io.Closer.
type plan struct {
	kernel  *Kernel
	problem attn.Problem
	threads int
	at      *process
	size    [2]int // the queries and keys that the peer has planned for
	empty   bool   // the call has none
	broken  bool
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

// Load copies the operands to the peer. A call may be empty where its plan is not: what comes of that is known without asking.
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
	_, err := p.ask(request{Do: "load"}, &a.Q, &a.K, &a.V)
	return err
}

// replan has the peer plan for so many queries and keys, which a call may have fewer of than its plan.
func (p *plan) replan(queries, keys int) error {
	if p.size == [2]int{queries, keys} {
		return nil
	}
	p.size = [2]int{queries, keys}
	now := p.problem
	now.SeqQ, now.SeqKV = queries, keys
	_, err := p.ask(planning("plan", &now, p.threads))
	return err
}

// sure is how long calls must last for their processor time to say how many threads they had.
const sure = 10 * time.Millisecond

// Run makes calls and says how long they took the peer.
func (p *plan) Run(calls int) (cpu, wall time.Duration, err error) {
	return p.run(request{Do: "run", Calls: calls})
}

func (p *plan) run(q request) (cpu, wall time.Duration, err error) {
	if p.empty {
		return 0, 1, nil
	}
	a, err := p.ask(q)
	cpu, wall = time.Duration(a.CPU), time.Duration(a.Wall)
	switch {
	case err != nil:
	case wall <= 0:
		err = p.kernel.failed(fmt.Errorf("run: %d calls took %v, it says", q.Calls, wall))
	case wall > sure && float64(cpu) > (float64(p.threads)+0.5)*float64(wall):
		err = p.kernel.failed(fmt.Errorf("run: %v of processor time in %v, on more threads than the %d it was told", cpu, wall, p.threads))
	}
	return cpu, wall, err
}

// Store copies the output from the peer.
func (p *plan) Store(a *attn.Args) error {
	if p.empty {
		for row := range rows(&a.Out) {
			clear(row)
		}
		for row := range rows(&a.Stats.LSE) {
			row[0] = float32(math.Inf(-1))
		}
		return nil
	}
	return p.fetch("store", &a.Out, &a.Stats.LSE) // which is given where there are gradients
}

// fetch copies tensors from the peer.
func (p *plan) fetch(do string, results ...*attn.Tensor) error {
	_, err := p.ask(request{Do: do})
	for _, t := range results {
		if err == nil {
			err = p.spoilt(p.at.get(t))
		}
	}
	return err
}

// Process is the peer's.
func (p *plan) Process() int { return p.at.cmd.Process.Pid }

// Close lets the kernel have the process.
func (p *plan) Close() error {
	if p.broken {
		return p.at.kill()
	}
	return p.kernel.free(p.at)
}

func (p *plan) ask(q request, operands ...*attn.Tensor) (answer, error) {
	a, err := p.at.ask(q, operands...)
	return a, p.spoilt(err)
}

// spoilt remembers that nothing more is to be had from a process that failed.
func (p *plan) spoilt(err error) error {
	if err == nil {
		return nil
	}
	p.broken = true
	return p.kernel.failed(err)
}
