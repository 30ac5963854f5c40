// Package linear computes linear attention, whose weights are products of features, and which sums
// keys and values into a state. Time and memory grow with n and not with n^2.
//
//	S = alpha o S + k u^T    u = v, or beta (v - (alpha o S)^T k) with the delta rule
//	z = alpha z + k          for normalised outputs
//	o = scale S^T q          or S^T q / (z.q + eps)
//
// Here q and k are features of normed rows of Q and K, and alpha is 1, a number, or a number for
// each row of S. There are three forms.
//
//   - Chunked, for tokens in order: products of matrices compute the outputs of a chunk of tokens
//     from the state before it, and then the state after it (chunk.go).
//   - Token by token, for decode and for what chunks cannot compute (step.go).
//   - Masked, without a rule: all keys are summed before the queries, or the queries of a band use
//     the chunks of its keys (masked.go).
//
// All three are products of rows, on the loops of package asm.
//
// With a rule, the backward pass takes chunks of tokens from the last to the first (reverse.go).
// Without one, it goes over the keys forwards for the gradients of queries, and then backwards for
// those of keys (backward.go).
package linear

import (
	"fmt"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

const have = attn.NeedLinear | attn.NeedLengths | attn.NeedRagged | attn.NeedGrad | attn.AllRules

type kernel struct {
	ops  *asm.Ops
	name string
}

// New returns the kernel linear on a set of loops.
func New(ops *asm.Ops) attn.Kernel { return kernel{ops, "linear/" + ops.ISA} }

func (k kernel) Name() (algo, isa string) { return "linear", k.ops.ISA }

// Path names the numbers of rows and columns that are summed at once, which change bits.
func (k kernel) Path() string {
	return fmt.Sprintf("chunk=%d,rows=%d,columns=%d,masked=%d/%d/%d", tokens, rows, columns, chunk, step, block)
}

func (k kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, have); err != nil {
		return 0, err
	}
	floats := 0
	new(worker).layout(&p, func(n int) []float32 {
		floats += n
		return nil
	})
	return attn.Floats(workersOf(&p, workers), floats)
}

// tasks returns the number of tasks of a forward pass: one for each state head.
func tasks(p *attn.Problem) int { return p.Batch * p.StateHeads() }

func workersOf(p *attn.Problem, workers int) int { return max(1, min(workers, tasks(p))) }

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{kernel: k, p: p, team: team, scratch: scratch}
	pl.task, pl.reverse = pl.head, pl.groupBack
	for range workersOf(&p, team.Workers()) {
		pl.workers = append(pl.workers, newWorker(&pl.p, k.ops))
	}
	return pl, nil
}

type plan struct {
	kernel
	guard   attn.Guard
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []*worker
	a       *attn.Args
	task    func(worker, task int)

	g       *attn.Grads // gradients of a backward pass
	groups  int         // groups of heads in a batch entry
	reverse func(worker, task int)
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.Must(pl.name, a)
	pl.a = a
	pl.team.Run(tasks(&pl.p), pl.task)
}

// head computes all the outputs that read one state.
func (pl *plan) head(id, task int) {
	w, p, a := pl.workers[id], &pl.p, pl.a
	heads := p.StateHeads()
	b := task / heads
	w.enter(a, b, task%heads)
	if p.Rule() || a.StateIn != nil || a.StateOut != nil {
		w.inOrder(a, task)
		return
	}
	w.state = w.own
	clear(w.x)
	clear(w.z)
	if p.Mask.Band {
		w.causal(a.Pos(p, b), a.Keys(p, b))
	} else {
		w.full(a.Keys(p, b))
	}
}

// A state holds the sums over the keys absorbed so far.
type state struct {
	x []float32 // [d][d_v]
	z []float32 // [d]; nil when outputs are not normalised
}

// stateOf returns the state of a task in a state of the whole batch, or none if that is nil. X of
// every head comes first, then z of every head.
func stateOf(p *attn.Problem, all []float32, task int) state {
	if all == nil {
		return state{}
	}
	n := p.Dim * p.DimV
	s := state{x: all[task*n:][:n]}
	if !p.Linear.Unnormalised {
		s.z = all[tasks(p)*n+task*p.Dim:][:p.Dim]
	}
	return s
}

// copyFrom sets a state to another one, or to 0 if that is empty.
func (s state) copyFrom(from state) {
	if from.x == nil {
		clear(s.x)
		clear(s.z)
		return
	}
	copy(s.x, from.x)
	copy(s.z, from.z)
}

// A worker is the scratch of one worker, and its place in the call.
type worker struct {
	p   *attn.Problem
	ops *asm.Ops
	own state // for calls without a caller's state

	masked
	recurrence

	norms []float32 // [most rows of features]: squares of norms, then their inverses
	ones  []float32 // [block, or lanes]
	outer asm.Outer
	dot   asm.Dot

	a      *attn.Args // the call, of which row 0 is the first of this sequence
	args   attn.Args  // a ragged call, moved to a sequence
	b      int        // batch entry of the operands
	kv, vh int        // key head and value head
	h, n   int        // the first of the state's output heads, and their number
	state             // state of the head

	grads *attn.Grads
	back  *backward // scratch of a backward pass, nil if there is none
}

func newWorker(p *attn.Problem, ops *asm.Ops) *worker {
	w := &worker{p: p, ops: ops}
	w.layout(p, func(n int) []float32 { return make([]float32, n) })
	for i := range w.ones {
		w.ones[i] = 1
	}
	w.dot.Factor = 1
	return w
}

// layout takes the worker's scratch from take.
func (w *worker) layout(p *attn.Problem, take func(n int) []float32) {
	w.own.x = take(p.Dim * p.DimV)
	if !p.Linear.Unnormalised {
		w.own.z = take(p.Dim)
	}
	w.norms, w.ones = take(max(block, tokens)), take(max(block, lanes))
	if !p.Rule() {
		w.masked.layout(p, take)
	}
	if p.Mask.Band {
		w.recurrence.layout(p, take)
	}
	if p.Want&attn.WantGrad != 0 {
		w.back = new(backward)
		w.back.layout(p, take)
	}
}

// enter moves the worker to a state head of batch entry b.
func (w *worker) enter(a *attn.Args, b, state int) {
	p := w.p
	w.a, w.b = a, b
	w.kv, w.vh = p.StateHeadOf(state, p.HeadsKV), p.StateHeadOf(state, p.ValueHeads())
	w.n = p.OutHeads() / p.StateHeads()
	w.h = state * w.n
	if p.Ragged {
		w.args = *a
		q, k := int(a.QStart[b]), int(a.KStart[b])
		t := &w.args.Terms
		for _, o := range [...]struct {
			t       *attn.Tensor
			row, to int
		}{
			{&w.args.Q, q, int(a.QStart[b+1])},
			{&w.args.Out, q, int(a.QStart[b+1])},
			{&w.args.K, k, int(a.KStart[b+1])},
			{&w.args.V, k, int(a.KStart[b+1])},
			{&t.Decay, k, int(a.KStart[b+1])},
			{&t.Beta, k, int(a.KStart[b+1])},
		} {
			o.t.Data, o.t.S = o.t.Data[min(o.row*o.t.SS, len(o.t.Data)):], o.to-o.row
		}
		w.a, w.b = &w.args, 0
	}
}

// queryHead returns the head of Q that the state's output head i reads.
func (w *worker) queryHead(i int) int { return w.p.HeadOf(w.h+i, w.p.HeadsQ) }
