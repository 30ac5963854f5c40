// Package linear computes attention whose weights are products of features, f(q).f(k). Keys and
// values are summed into a state, from which each query's output is computed: time and memory grow
// with n and not with n^2.
//
//	state  X = Σ_j f(k_j) v_j^T    z = Σ_j f(k_j)        over the keys seen so far
//	output o_i = f(q_i)^T X / (f(q_i) . z + eps)         or scale * f(q_i)^T X, not normalised
//
// There are three forms.
//
//   - Parallel, without a mask: all keys are summed, then all outputs are computed.
//   - Chunked, under a causal mask: an output is computed from the state before the query's chunk,
//     plus the visible keys of the chunk, weighed one by one.
//   - Recurrent, for one row at a time: the key is added to the state, and the output is computed
//     from it. This is decode in constant memory.
//
// The last two carry the state from call to call through attn.Recurrent.
//
// The backward pass goes over the keys forwards for the gradients of queries, and then backwards
// for those of keys (backward.go).
//
// All of it is products of rows, on the loops of package asm. The output is Outer with X for Y, the
// state is OuterT with the keys' features for P, weights are Dot and denominators Inner. Nothing is
// packed or transposed.
package linear

import (
	"fmt"
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

const have = attn.NeedLinear | attn.NeedLengths | attn.NeedGrad

const (
	// chunk is the number of keys weighed one by one under a causal mask. A query costs
	// chunk*(d+d_v) operations for these keys and 4*d*d_v for the state. In a short chunk, the
	// products with the state have few rows.
	// Tuning: docs/tuning.md#linear-chunk
	chunk = 16
	// step is the number of queries weighed in one call, with the keys that the last of them sees.
	// More queries compute more weights that are not used; fewer make more calls.
	// Tuning: docs/tuning.md#linear-chunk
	step = 8
	// block is the number of rows in one call of the parallel form. Fewer rows make short products;
	// the operands of more rows do not stay in the first-level cache.
	// Tuning: docs/tuning.md#linear-chunk
	block = 32
)

type kernel struct {
	ops  *asm.Ops
	name string
}

// New returns the kernel linear on a set of loops.
func New(ops *asm.Ops) attn.Kernel { return kernel{ops, "linear/" + ops.ISA} }

func (k kernel) Name() (algo, isa string) { return "linear", k.ops.ISA }

// Path names the numbers of rows that are summed at once, which change bits.
func (k kernel) Path() string { return fmt.Sprintf("chunk=%d,step=%d,block=%d", chunk, step, block) }

func (k kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, have); err != nil {
		return 0, err
	}
	floats := stateLen(&p) + block*(2*p.Dim+4) + chunk*(p.DimV+chunk)
	if p.Want&attn.WantGrad != 0 {
		floats += backwardFloats(&p)
	}
	return attn.Floats(max(1, min(workers, p.Batch*p.HeadsKV)), floats)
}

// stateLen returns the length of the state of one head.
func stateLen(p *attn.Problem) int {
	if p.Linear.Unnormalised {
		return p.Dim * p.DimV
	}
	return p.Dim * (p.DimV + 1)
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{kernel: k, p: p, team: team, scratch: scratch}
	pl.task, pl.reverse = pl.head, pl.headBack
	for range max(1, min(team.Workers(), p.Batch*p.HeadsKV)) {
		pl.workers = append(pl.workers, newWorker(&pl.p, k.ops))
	}
	if m := p.Mask; m.Band && m.Left == attn.Unbounded && m.Right == 0 && !p.Lengths {
		return recurrent{pl}, nil
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
	state   []float32 // the caller's state of the whole batch in a Step, otherwise nil
	task    func(worker, task int)

	g       *attn.Grads // gradients of a backward pass
	reverse func(worker, task int)
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.Must(pl.name, a)
	pl.run(a, nil)
}

func (pl *plan) run(a *attn.Args, state []float32) {
	pl.a, pl.state = a, state
	pl.team.Run(pl.p.Batch*pl.p.HeadsKV, pl.task)
}

// A recurrent is a plan whose mask allows the state to be carried from call to call.
type recurrent struct{ *plan }

func (r recurrent) StateLen() int { return r.p.Batch * r.p.HeadsKV * stateLen(&r.p) }

func (r recurrent) Step(a *attn.Args, state []float32) {
	defer r.guard.Enter(r.name).Leave()
	r.p.Must(r.name, a)
	if a.Q.S != a.K.S {
		panic(fmt.Errorf("%s: Step: %d rows of Q and %d of K: give as many of both", r.name, a.Q.S, a.K.S))
	}
	if len(state) != r.StateLen() {
		panic(fmt.Errorf("%s: state: got %d numbers, want %d: allocate StateLen of this plan", r.name, len(state), r.StateLen()))
	}
	r.run(a, state)
}

// head computes all the queries that share one key head.
func (pl *plan) head(id, task int) {
	w, p, a := pl.workers[id], &pl.p, pl.a
	b, kv := task/p.HeadsKV, task%p.HeadsKV
	w.a, w.b, w.kv = a, b, kv
	w.state = w.own
	if pl.state == nil {
		clear(w.x)
		clear(w.z)
	} else { // X of every head comes first, then z of every head
		n := p.Dim * p.DimV
		w.x = pl.state[task*n:][:n]
		if w.z != nil {
			w.z = pl.state[p.Batch*p.HeadsKV*n+task*p.Dim:][:p.Dim]
		}
	}
	switch {
	case pl.state != nil && p.SeqQ == 1:
		w.row()
	case pl.state != nil:
		w.causal(0, a.K.S, true)
	case p.Mask.Band:
		w.causal(a.Pos(p, b), a.Keys(p, b), false)
	default:
		w.full(a.Keys(p, b))
	}
}

// A state holds the sums over the keys absorbed so far.
type state struct {
	x []float32 // [d][d_v]
	z []float32 // [d]; nil when outputs are not normalised
}

// A worker is the scratch of one worker, and its place in the call.
type worker struct {
	p       *attn.Problem
	ops     *asm.Ops
	own     state     // for calls without a caller's state
	keys    []float32 // [block][d]: features of keys
	queries []float32 // [block][d]: features of queries
	chunk   values
	weights []float32 // [chunk][chunk]: a row for each query, a column for each key of the chunk
	sums    []float32 // [block]: sums of the weights of a row
	dens    []float32 // [block]: denominators from the state
	scale   []float32 // [block]: factors of output rows
	ones    []float32 // [block]
	outer   asm.Outer
	dot     asm.Dot

	a     *attn.Args
	b, kv int
	state // state of the head

	grads *attn.Grads
	back  *backward // scratch of a backward pass, nil if there is none
}

// values are the values of a chunk's keys.
type values struct {
	rows  asm.Rows  // V in place, or clean
	clean []float32 // [chunk][d_v]: rows of V, with zeros for rows that are not finite
	bad   []int     // rows that are not finite
}

func newWorker(p *attn.Problem, ops *asm.Ops) *worker {
	w := &worker{
		p: p, ops: ops, own: state{x: make([]float32, p.Dim*p.DimV)},
		keys: make([]float32, block*p.Dim), queries: make([]float32, block*p.Dim),
		chunk:   values{clean: make([]float32, chunk*p.DimV), bad: make([]int, 0, chunk)},
		weights: make([]float32, chunk*chunk),
	}
	n := make([]float32, 4*block)
	w.sums, w.dens, w.scale, w.ones = n[:block], n[block:2*block], n[2*block:3*block], n[3*block:]
	if !p.Linear.Unnormalised {
		w.own.z = make([]float32, p.Dim)
	}
	if p.Want&attn.WantGrad != 0 {
		w.back = newBackward(p)
	}
	for i := range w.ones {
		w.ones[i] = 1
	}
	w.dot.Factor = 1
	return w
}

// Positions of queries that see all keys, and of queries that see none.
const (
	everything = math.MaxInt / 2
	nothing    = -everything
)

// full computes the parallel form: all keys, then all queries.
func (w *worker) full(keys int) {
	for key := 0; key < keys; key += block {
		n := min(block, keys-key)
		w.features(w.keys, operand.Rows(&w.a.K, w.b, key, w.kv), n, false)
		w.absorb(key, n)
	}
	pos := everything
	if keys == 0 {
		pos = nothing
	}
	for i := 0; i < w.a.Q.S; i += block {
		w.answer(i, min(block, w.a.Q.S-i), 0, 0, pos)
	}
}

// causal computes the chunked form: query i sees the keys up to pos+i. If rest is set, keys that no
// query sees are absorbed too.
func (w *worker) causal(pos, keys int, rest bool) {
	i, nq := 0, w.a.Q.S
	blind := min(max(-pos, 0), nq) // queries before the first key
	if keys == 0 {
		blind = nq
	}
	for ; i < blind; i += chunk {
		w.answer(i, min(chunk, blind-i), 0, 0, nothing)
	}
	i = blind
	for key := 0; key < keys && (i < nq || rest); key += chunk {
		n := min(chunk, keys-key)
		w.load(key, n)
		end := nq // queries whose last key is in this chunk
		if key+n < keys {
			end = min(max(key+n-pos, i), nq)
		}
		for i < end {
			rows := min(chunk, end-i)
			w.answer(i, rows, key, n, pos)
			i += rows
		}
		w.absorb(key, n)
	}
}

// load computes the features of n keys starting at key, and finds their values. A weight of 0 times
// a value that is not finite would not be 0. So if a row is not finite, the values are copied with
// zeros in its place.
func (w *worker) load(key, n int) {
	w.features(w.keys, operand.Rows(&w.a.K, w.b, key, w.kv), n, false)
	v, d := &w.chunk, w.p.DimV
	v.rows, v.bad = operand.Rows(&w.a.V, w.b, key, w.kv), v.bad[:0]
	if v.rows.Stride == d && w.ops.Vector.Finite(v.rows.Data[:n*d]) {
		return
	}
	for j := range n {
		if !w.ops.Vector.Finite(v.rows.Row(j, d)) {
			v.bad = append(v.bad, j)
		}
	}
	if len(v.bad) == 0 {
		return
	}
	for j := range n {
		copy(v.clean[j*d:], v.rows.Row(j, d))
	}
	for _, j := range v.bad {
		clear(v.clean[j*d:][:d])
	}
	v.rows = asm.Rows{Data: v.clean, Stride: d}
}

// absorb adds the loaded keys and their values to the state. Meanwhile it prefetches the next n
// values, and the next n keys if rows of both are contiguous.
func (w *worker) absorb(key, n int) {
	d, dv := w.p.Dim, w.p.DimV
	v, k := operand.Rows(&w.a.V, w.b, key, w.kv), operand.Rows(&w.a.K, w.b, key, w.kv)
	o := w.outerOf(w.x, dv, d, dv, w.keys, d, n, v)
	o.At, o.By = after(v, n), 4*v.Stride
	if v.Stride == dv && k.Stride == d {
		o.Len, o.Beside = 4*n*max(d, dv), int(after(k, n)-o.At)
	}
	w.ops.Back.OuterT(o)
	o.Stream = asm.Stream{}
	if w.z != nil {
		w.sum(w.z, dv, 1, d, w.ones, d, n, asm.Rows{Data: w.keys, Stride: d})
	}
}

// after returns the address after n rows, where the next row begins. It need not exist.
func after(r asm.Rows, n int) uintptr {
	p := r.Prefetch()
	return p.At + uintptr(n*p.By)
}

// answer writes the outputs of queries i to i+n-1, for each query head of the key head, from the
// state and from the loaded keys that they see. The loaded keys start at key; query i sees keys up
// to pos+i. A query that sees no key gets a zero row.
func (w *worker) answer(i, n, key, keys, pos int) {
	d, dv, state := w.p.Dim, w.p.DimV, asm.Rows{Data: w.x, Stride: w.p.DimV}
	for h := w.kv * w.p.Group(); h < (w.kv+1)*w.p.Group(); h++ {
		q := operand.Rows(&w.a.Q, w.b, i, h)
		w.features(w.queries, q, n, false)
		out := operand.Rows(&w.a.Out, w.b, i, h)
		first := pos + i - key + 1 // loaded keys that query i sees; each one after it sees one more
		for r := 0; r < n && keys > 0; r += step {
			w.weigh(r, min(step, n-r), first, keys)
		}
		w.scales(n, keys)
		if q.Stride == d {
			w.outer.At, w.outer.Len = after(q, n), 4*n*d
		}
		if keys == 0 {
			w.product(out, w.queries, d, n, d, state, true, w.scale)
		} else {
			w.product(out, w.queries, d, n, d, state, true, nil)
			w.addBad(out, n, first, operand.Rows(&w.a.V, w.b, key, w.kv))
			for r := 0; r < n; r += step {
				m := min(step, n-r)
				w.product(out.From(r), w.weights[r*chunk:], chunk, m, seen(first+r+m-1, keys), w.chunk.rows, false, w.scale[r:])
			}
		}
		for r := 0; r < n && key == 0 && pos+i+r < 0; r++ {
			clear(out.Row(r, dv))
		}
	}
}

// seen returns the number of loaded keys that a query sees, if it sees the first all keys of a
// longer sequence.
func seen(all, keys int) int { return min(max(all, 0), keys) }

// weigh computes the weights of the loaded keys for queries r to r+n-1. Query r sees the first
// first+r keys; the others have weight 0.
func (w *worker) weigh(r, n, first, keys int) {
	d, some, weights := w.p.Dim, seen(first+r+n-1, keys), w.weights[r*chunk:]
	w.dotTo(weights, chunk, w.queries[r*d:], d, n, w.keys, d, some, d)
	for i := range n {
		clear(weights[i*chunk:][seen(first+r+i, keys):chunk])
	}
}

// scales computes the factors of n output rows. Weights are summed over the whole chunk, so that
// the additions do not depend on the number of keys.
func (w *worker) scales(n, keys int) {
	if w.z == nil {
		for r := range n {
			w.scale[r] = float32(w.p.Scale())
		}
		return
	}
	clear(w.sums)
	if keys > 0 {
		w.ops.Back.Inner(w.sums[:n], asm.Rows{Data: w.weights, Stride: chunk}, asm.Rows{Data: w.ones}, chunk)
	}
	w.ops.Back.Inner(w.dens[:n], asm.Rows{Data: w.queries, Stride: w.p.Dim}, asm.Rows{Data: w.z}, w.p.Dim)
	for r, eps := 0, float32(w.p.Linear.Eps); r < n; r++ {
		w.scale[r] = 1 / (eps + w.dens[r] + w.sums[r])
	}
}

// product adds rows of y, weighed by rows of weights, to n rows of the output; if fresh, the old
// output counts as 0. Then it multiplies the rows by scale, unless that is nil.
func (w *worker) product(out asm.Rows, weights []float32, stride, n, terms int, y asm.Rows, fresh bool, scale []float32) {
	o := w.outerOf(out.Data, out.Stride, n, w.p.DimV, weights, stride, terms, y)
	o.Fresh, o.Scale = fresh, scale
	w.ops.Back.Outer(o)
	o.Stream = asm.Stream{}
}

// addBad adds the values that are not finite to the outputs of the queries that see them, of n
// queries. Query 0 sees the first first keys.
func (w *worker) addBad(out asm.Rows, n, first int, values asm.Rows) {
	for _, j := range w.chunk.bad {
		for r := max(j+1-first, 0); r < n; r++ {
			o := out.Row(r, w.p.DimV)
			for c, v := range values.Row(j, len(o)) {
				o[c] += float32(w.weights[r*chunk+j] * v)
			}
		}
	}
}

// row computes the recurrent form: it adds one key to the state and computes the output from it.
func (w *worker) row() {
	if w.a.K.S == 0 {
		return
	}
	d, dv := w.p.Dim, w.p.DimV
	k, q, v := w.keys[:d], w.queries[:d], w.a.V.Row(w.b, 0, w.kv)
	w.features(k, operand.Rows(&w.a.K, w.b, 0, w.kv), 1, false)
	for a, f := range k {
		for c, x := range w.x[a*dv:][:dv] {
			w.x[a*dv+c] = x + float32(f*v[c])
		}
		if w.z != nil {
			w.z[a] += f
		}
	}
	for h := w.kv * w.p.Group(); h < (w.kv+1)*w.p.Group(); h++ {
		w.features(q, operand.Rows(&w.a.Q, w.b, 0, h), 1, false)
		out := w.a.Out.Row(w.b, 0, h)
		clear(out)
		den := float32(w.p.Linear.Eps)
		for a, f := range q {
			for c, x := range w.x[a*dv:][:dv] {
				out[c] += float32(f * x)
			}
			if w.z != nil {
				den += float32(f * w.z[a])
			}
		}
		factor := float32(w.p.Scale())
		if w.z != nil {
			factor = 1 / den
		}
		for c := range out {
			out[c] *= factor
		}
	}
}

// features applies the feature map to n rows, and prefetches the next n. Contiguous rows are
// prefetched only if prefetch is set.
func (w *worker) features(to []float32, from asm.Rows, n int, prefetch bool) {
	d, ahead := w.p.Dim, n
	if from.Stride == d { // as if they were one
		d, n, from.Stride = n*d, 1, n*d
		if ahead = 1; !prefetch {
			ahead = 0
		}
	}
	for j := range n {
		to, from, next := to[j*d:][:d], from.Row(j, d), after(from, j+ahead)
		switch w.p.Linear.Feature {
		case attn.EluPlusOne:
			w.ops.Vector.Elu(to, from, next)
		case attn.ReluPlusOne:
			for i, x := range from {
				to[i] = max(x, 0) + 1
			}
		default:
			copy(to, from)
		}
	}
}
