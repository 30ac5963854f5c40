// Package linear is attention whose weights are products of features, f(q).f(k), so that keys and values can be summed before any query
// comes: time and memory grow with n and not with n^2.
//
//	state  X = Σ_j f(k_j) v_j^T    z = Σ_j f(k_j)        over the keys seen so far
//	output o_i = f(q_i)^T X / (f(q_i) . z + eps)         or scale * f(q_i)^T X, not normalised
//
// There are three forms of it. Without a mask, all keys are summed, then all queries answered (parallel). Under a causal mask, keys come in
// chunks: a query is answered from the state before its chunk plus the keys of the chunk that it sees, weighed one by one (chunked). With one
// row at a time, the state takes in the key and answers the query (recurrent): decoding in constant memory. The last two carry the state
// from call to call through attn.Recurrent.
//
// The backward pass goes over the keys once for the queries and once more, from the end, for the keys (backward.go).
//
// All of it is products of rows, on the loops of package asm: the output is Outer with X for Y, the state OuterT with the keys' features for P,
// weights and denominators are Dot. Nothing is packed or transposed.
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
	// chunk is the number of keys weighed one by one under a causal mask. Weighing costs chunk*(d+d_v) operations a query, the state 4*d*d_v: at
	// d = 64, 16 keys add an eighth. AVX-512 at d = 64 reached .45 of its peak with 16 on a Xeon (family 6, model 207), .43 with 24, .42 with 32.
	chunk = 16
	// step is the number of queries weighed at once, by as many keys as the last of them sees. With 16 the same Xeon lost a hundredth.
	step = 8
	// block is the number of rows at once where nothing is weighed. With 16 the state's products are short, with 128 operands leave the
	// first-level cache: both cost .03 there.
	block = 32
)

type kernel struct {
	ops  *asm.Ops
	name string
}

// New returns the kernel linear on the given loops.
func New(ops *asm.Ops) attn.Kernel { return kernel{ops, "linear/" + ops.ISA} }

func (k kernel) Name() (algo, isa string) { return "linear", k.ops.ISA }

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
	state   []float32 // of the whole batch in a Step, else nil
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
	w.x, w.z = w.ownX, w.ownZ
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

// worker is the scratch of one worker, and where it stands.
type worker struct {
	p          *attn.Problem
	ops        *asm.Ops
	ownX, ownZ []float32
	keys       []float32 // [block][d] features of keys
	queries    []float32 // [block][d] and of queries
	clean      []float32 // [chunk][d_v] values without those that are not finite
	bad        []int     // rows of the chunk whose values are not finite
	values     asm.Rows  // of the chunk: V in place, or clean
	weights    []float32 // [chunk][chunk] of the chunk's keys, a query's in one row
	sums       []float32 // [block] of these
	dens       []float32 // [block] denominators, as far as the state goes
	scale      []float32 // [block] of output rows
	ones       []float32 // [block]
	panel      asm.Panel
	few        asm.Few

	a     *attn.Args
	b, kv int
	x, z  []float32 // the state; z is nil when not normalised

	grads *attn.Grads
	back  *backward // scratch of a backward pass, nil if there is none
}

func newWorker(p *attn.Problem, ops *asm.Ops) *worker {
	w := &worker{
		p: p, ops: ops, ownX: make([]float32, p.Dim*p.DimV), keys: make([]float32, block*p.Dim), queries: make([]float32, block*p.Dim),
		clean: make([]float32, chunk*p.DimV), bad: make([]int, 0, chunk), weights: make([]float32, chunk*chunk),
	}
	n := make([]float32, 4*block)
	w.sums, w.dens, w.scale, w.ones = n[:block], n[block:2*block], n[2*block:3*block], n[3*block:]
	if !p.Linear.Unnormalised {
		w.ownZ = make([]float32, p.Dim)
	}
	if p.Want&attn.WantGrad != 0 {
		w.back = newBackward(p)
	}
	for i := range w.ones {
		w.ones[i] = 1
	}
	w.few.Factor = 1
	return w
}

// Positions of queries that see every key, or none.
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

// causal is the chunked form: query i sees the keys up to pos+i of so many. If rest is set, keys that no query sees are absorbed too.
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

// load computes the features of keys key to key+n-1, and finds their values. 0 times a value that is not finite is no 0, so when there is such
// a row, the values become a copy in which it is zero.
func (w *worker) load(key, n int) {
	w.features(w.keys, operand.Rows(&w.a.K, w.b, key, w.kv), n, false)
	w.values, w.bad = operand.Rows(&w.a.V, w.b, key, w.kv), w.bad[:0]
	d := w.p.DimV
	if w.values.Stride == d && w.ops.Finite(w.values.Data[:n*d]) {
		return
	}
	for j := range n {
		if !w.ops.Finite(w.values.Row(j, d)) {
			w.bad = append(w.bad, j)
		}
	}
	if len(w.bad) == 0 {
		return
	}
	for j := range n {
		copy(w.clean[j*d:], w.values.Row(j, d))
	}
	for _, j := range w.bad {
		clear(w.clean[j*d:][:d])
	}
	w.values = asm.Rows{Data: w.clean, Stride: d}
}

// absorb adds the loaded keys and their values to the state, and asks memory for the values after them, and for the keys beside them.
func (w *worker) absorb(key, n int) {
	d, dv, p := w.p.Dim, w.p.DimV, &w.panel
	p.Fresh, p.Scale = false, nil
	p.N, p.C, p.Width, p.P, p.Lanes = d, dv, n, w.keys, d
	p.X, p.XStr, p.Y = w.x, dv, operand.Rows(&w.a.V, w.b, key, w.kv)
	p.Ahead, p.AheadBy = p.Y.Ahead(n), 4*p.Y.Stride
	if k := operand.Rows(&w.a.K, w.b, key, w.kv); p.Y.Stride == dv && k.Stride == d {
		p.AheadLen, p.Beside = 4*n*max(d, dv), int(k.Ahead(n)-p.Ahead)
	}
	w.ops.OuterT(p)
	p.Ahead, p.AheadBy, p.AheadLen, p.Beside = 0, 0, 0, 0
	if w.z != nil {
		p.N, p.C, p.P = 1, d, w.ones
		p.X, p.Y = w.z, asm.Rows{Data: w.keys, Stride: d}
		w.ops.Outer(p)
	}
}

// answer writes the rows of queries i to i+n-1, for each head of the group, from the state and those of the loaded keys, so many from key on,
// that they see: query i sees keys up to pos+i. A query that sees no key at all gets a zero row.
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
			w.panel.Ahead, w.panel.AheadLen = q.Ahead(n), 4*n*d
		}
		if keys == 0 {
			w.product(out, w.queries, d, n, d, state, true, w.scale)
		} else {
			w.product(out, w.queries, d, n, d, state, true, nil)
			w.addBad(out, n, first, operand.Rows(&w.a.V, w.b, key, w.kv))
			for r := 0; r < n; r += step {
				m := min(step, n-r)
				w.product(out.From(r), w.weights[r*chunk:], chunk, m, seen(first+r+m-1, keys), w.values, false, w.scale[r:])
			}
		}
		for r := 0; r < n && key == 0 && pos+i+r < 0; r++ {
			clear(out.Row(r, dv))
		}
	}
}

// seen is how many of so many keys a query sees that would see up to all.
func seen(all, keys int) int { return min(max(all, 0), keys) }

// weigh computes the weights of the loaded keys for n queries from r on, query 0 seeing the first so many of them; others weigh 0.
func (w *worker) weigh(r, n, first, keys int) {
	d, some, weights := w.p.Dim, seen(first+r+n-1, keys), w.weights[r*chunk:]
	w.dotTo(weights, chunk, w.queries[r*d:], d, n, w.keys, d, some, d)
	for i := range n {
		clear(weights[i*chunk:][seen(first+r+i, keys):chunk])
	}
}

// scales computes what the rows of n queries are multiplied by at the end. Weights are summed over the whole chunk, so that the additions are
// the same whatever keys there are.
func (w *worker) scales(n, keys int) {
	if w.z == nil {
		for r := range n {
			w.scale[r] = float32(w.p.Scale())
		}
		return
	}
	clear(w.sums)
	if keys > 0 {
		w.ops.Inner(w.sums[:n], asm.Rows{Data: w.weights, Stride: chunk}, asm.Rows{Data: w.ones}, chunk)
	}
	w.ops.Inner(w.dens[:n], asm.Rows{Data: w.queries, Stride: w.p.Dim}, asm.Rows{Data: w.z}, w.p.Dim)
	for r, eps := 0, float32(w.p.Linear.Eps); r < n; r++ {
		w.scale[r] = 1 / (eps + w.dens[r] + w.sums[r])
	}
}

// product is n rows of the output, or is added to them if they are not fresh: so many rows of y, weighed by rows of weights. Then they are
// multiplied by scale, if there is one.
func (w *worker) product(out asm.Rows, weights []float32, stride, n, terms int, y asm.Rows, fresh bool, scale []float32) {
	p := &w.panel
	p.Fresh, p.Scale = fresh, scale
	p.N, p.C, p.Width, p.P, p.Lanes = n, w.p.DimV, terms, weights, stride
	p.X, p.XStr, p.Y = out.Data, out.Stride, y
	w.ops.Outer(p)
	p.Ahead, p.AheadBy, p.AheadLen = 0, 0, 0
}

// addBad adds the values that are not finite to those of n queries that see them, query 0 seeing the first so many keys.
func (w *worker) addBad(out asm.Rows, n, first int, values asm.Rows) {
	for _, j := range w.bad {
		for r := max(j+1-first, 0); r < n; r++ {
			o := out.Row(r, w.p.DimV)
			for c, v := range values.Row(j, len(o)) {
				o[c] += float32(w.weights[r*chunk+j] * v)
			}
		}
	}
}

// row is the recurrent form: one key into the state, then the query answered from it.
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

// features applies the feature map to n rows, and asks memory for the n after them, unless they follow one another and asks is false.
func (w *worker) features(to []float32, from asm.Rows, n int, asks bool) {
	d, ahead := w.p.Dim, n
	if from.Stride == d { // as if they were one
		d, n, from.Stride = n*d, 1, n*d
		if ahead = 1; !asks {
			ahead = 0
		}
	}
	for j := range n {
		to, from, next := to[j*d:][:d], from.Row(j, d), from.Ahead(j+ahead)
		switch w.p.Linear.Feature {
		case attn.EluPlusOne:
			w.ops.Elu(to, from, next)
		case attn.ReluPlusOne:
			for i, x := range from {
				to[i] = max(x, 0) + 1
			}
		default:
			copy(to, from)
		}
	}
}
