// Package linear computes attention whose weights are products of features, f(q).f(k). Keys and
// values are summed into a state, from which each query is answered: time and memory grow with n
// and not with n^2.
//
//	state  X = Σ_j f(k_j) v_j^T    z = Σ_j f(k_j)        over the keys seen so far
//	output o_i = f(q_i)^T X / (f(q_i) . z + eps)         or scale * f(q_i)^T X, not normalised
//
// It has three forms. Without a mask, all keys are summed, then all queries answered (parallel).
// Under a causal mask, keys are split into chunks: a query is answered from the state before its
// chunk plus the keys of the chunk that it sees, weighed one by one (chunked). With one row at a
// time, the state absorbs the key and answers the query (recurrent): decoding in constant memory.
// The last two carry the state from call to call through attn.Recurrent.
//
// The backward pass goes over the keys once for the queries and once more, from the end, for the
// keys (backward.go).
//
// All of it is products of rows, on the loops of package asm: the output is Outer with X for Y, the
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
	// chunk is the number of keys weighed one by one under a causal mask. Weighing costs
	// chunk*(d+d_v) operations a query, the state 4*d*d_v; products with the state are short in a
	// short chunk.
	// Tuning: docs/tuning.md#linear-chunk
	chunk = 16
	// step is the number of queries weighed in one call, by the keys that the last of them sees:
	// more queries compute more weights that are not used.
	// Tuning: docs/tuning.md#linear-chunk
	step = 8
	// block is the number of rows in one call where nothing is weighed. Fewer make short products;
	// operands of more leave the first-level cache.
	// Tuning: docs/tuning.md#linear-chunk
	block = 32
)

type kernel struct {
	ops  *asm.Ops
	name string
}

// New returns the kernel linear on the given loops.
func New(ops *asm.Ops) attn.Kernel { return kernel{ops, "linear/" + ops.ISA} }

func (k kernel) Name() (algo, isa string) { return "linear", k.ops.ISA }

// Path names the sizes of what is summed at once, which change bits.
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

// stateLen is the length of the state of one head.
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
	state   []float32 // of the whole batch in a Step, otherwise nil
	task    func(worker, task int)

	g       *attn.Grads // of a backward pass
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

// recurrent is a plan whose mask lets a state be carried from call to call.
type recurrent struct{ *plan }

func (r recurrent) StateLen() int { return r.p.Batch * r.p.HeadsKV * stateLen(&r.p) }

func (r recurrent) Step(a *attn.Args, state []float32) {
	defer r.guard.Enter(r.name).Leave()
	r.p.Must(r.name, a)
	if a.Q.S != a.K.S {
		panic(fmt.Errorf("%s: Step: %d rows of Q and %d of K, they must be as many", r.name, a.Q.S, a.K.S))
	}
	if len(state) != r.StateLen() {
		panic(fmt.Errorf("%s: state: %d numbers, this plan has %d", r.name, len(state), r.StateLen()))
	}
	r.run(a, state)
}

// head answers all the queries that share one key head.
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

// A state is what is known of the keys absorbed so far.
type state struct {
	x []float32 // [d][d_v]
	z []float32 // [d]; nil when outputs are not normalised
}

// A worker is the scratch of one worker, and its place in the call.
type worker struct {
	p       *attn.Problem
	ops     *asm.Ops
	own     state     // for calls that carry none
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
	state // of the head

	grads *attn.Grads
	back  *backward // scratch of a backward pass, nil if there is none
}

// values are those of a chunk's keys.
type values struct {
	rows  asm.Rows  // V in place, or clean
	clean []float32 // [chunk][d_v]: rows of V, 0 in place of those that are not finite
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

// Positions of queries that see all keys, or none.
const (
	everything = math.MaxInt / 2
	nothing    = -everything
)

// full is the parallel form: all keys, then all queries.
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

// causal is the chunked form: query i sees the keys up to pos+i. If rest is set, keys that no query
// sees are absorbed too.
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

// load computes the features of the n keys starting at key, and finds their values. A weight of 0
// times a value that is not finite is not 0: where there is such a row, the values are copied and
// the row is 0 in the copy.
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

// after returns the address of the row that follows n rows, which need not exist.
func after(r asm.Rows, n int) uintptr {
	p := r.Prefetch()
	return p.At + uintptr(n*p.By)
}

// answer writes the rows of queries i to i+n-1, for each head of the group, from the state and from
// the loaded keys that they see, which start at key: query i sees keys up to pos+i. A query that
// sees no key at all gets a zero row.
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

// seen returns the number of keys that a query sees of the loaded ones, if it sees the first all of
// a longer sequence.
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

// scales computes the factors of the output rows of n queries. Weights are summed over the whole
// chunk, so that the additions are the same whatever keys there are.
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

// product sets n rows of the output, or adds to them if they are not fresh: rows of y, weighed by
// rows of weights. Then it multiplies them by scale, unless that is nil.
func (w *worker) product(out asm.Rows, weights []float32, stride, n, terms int, y asm.Rows, fresh bool, scale []float32) {
	o := w.outerOf(out.Data, out.Stride, n, w.p.DimV, weights, stride, terms, y)
	o.Fresh, o.Scale = fresh, scale
	w.ops.Back.Outer(o)
	o.Stream = asm.Stream{}
}

// addBad adds the values that are not finite to the rows of those of n queries that see them. Query
// 0 sees the first first keys.
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

// row is the recurrent form: it adds one key to the state and answers the query from it.
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

// features applies the feature map to n rows, and prefetches the next n. Of contiguous rows it
// prefetches only if prefetch is set.
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
