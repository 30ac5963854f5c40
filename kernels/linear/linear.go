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
// The products run on the panel loops of package asm: the output is Mix with X for V, the state Outer with the keys in lanes.
package linear

import (
	"fmt"
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

const have = attn.NeedLinear | attn.NeedLengths

// chunk is the number of keys weighed one by one under a causal mask. Weighing costs chunk*(d+d_v) operations a query, the state 4*d*d_v:
// at d = 64, 32 keys add a quarter.
const chunk = 32

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
	lanes := k.ops.Lanes
	floats := stateLen(&p) + p.Dim*(chunk+3*lanes) + p.DimV*(chunk+lanes) + chunk*lanes + lanes
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
	pl.task = pl.head
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
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []*worker
	a       *attn.Args
	state   []float32 // of the whole batch during Step, else nil
	task    func(worker, task int)
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	pl.p.Must(pl.name, a)
	pl.run(a, nil)
}

func (pl *plan) run(a *attn.Args, state []float32) {
	pl.a, pl.state = a, state
	pl.team.Run(pl.p.Batch*pl.p.HeadsKV, pl.task)
	pl.a, pl.state = nil, nil
}

// recurrent is a plan whose mask lets a state be carried from call to call.
type recurrent struct{ *plan }

func (r recurrent) StateLen() int { return r.p.Batch * r.p.HeadsKV * stateLen(&r.p) }

func (r recurrent) Step(a *attn.Args, state []float32) {
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
		w.causal(a.Pos(p, b), a.Keys(b), false)
	default:
		w.full(a.Keys(b))
	}
}

// worker is the scratch of one worker, and where it stands.
type worker struct {
	p          *attn.Problem
	ops        *asm.Ops
	ownX, ownZ []float32
	keys       []float32 // [chunk][d] features of keys
	clean      []float32 // [chunk][d_v] values without those that are not finite
	bad        []int     // rows of the chunk whose values are not finite
	values     asm.Rows  // of the chunk: V in place, or clean
	side       []float32 // [lanes][d] features of the rows about to be transposed
	kt         []float32 // [d][lanes] the same transposed, keys
	qt         []float32 // [d][lanes] and queries
	weights    []float32 // [chunk][lanes]
	out        []float32 // [d_v][lanes]
	ones       []float32
	panel      asm.Panel
	move       asm.Move

	a     *attn.Args
	b, kv int
	x, z  []float32 // the state; z is nil when not normalised
}

func newWorker(p *attn.Problem, ops *asm.Ops) *worker {
	d, n := p.Dim, ops.Lanes
	w := &worker{
		p: p, ops: ops, ownX: make([]float32, d*p.DimV), keys: make([]float32, chunk*d), clean: make([]float32, chunk*p.DimV),
		bad: make([]int, 0, chunk), side: make([]float32, n*d), kt: make([]float32, d*n),
		qt: make([]float32, d*n), weights: make([]float32, chunk*n), out: make([]float32, p.DimV*n), ones: make([]float32, n),
	}
	if !p.Linear.Unnormalised {
		w.ownZ = make([]float32, d)
	}
	for i := range w.ones {
		w.ones[i] = 1
	}
	w.panel.Lanes, w.panel.Factor = n, 1
	return w
}

// Positions of queries that see every key, or none.
const (
	everything = math.MaxInt / 2
	nothing    = -everything
)

// full is the parallel form: all keys, then all queries.
func (w *worker) full(keys int) {
	for key := 0; key < keys; key += chunk {
		n := min(chunk, keys-key)
		w.load(key, n)
		w.absorb(key, n)
	}
	for i := 0; i < w.a.Q.S; i += w.ops.Lanes {
		pos := everything
		if keys == 0 {
			pos = nothing
		}
		w.answer(i, min(w.ops.Lanes, w.a.Q.S-i), 0, 0, pos)
	}
}

// causal is the chunked form: query i sees the keys up to pos+i of so many. If rest is set, keys that no query sees are absorbed too.
func (w *worker) causal(pos, keys int, rest bool) {
	i, nq := 0, w.a.Q.S
	blind := min(max(-pos, 0), nq) // queries before the first key
	if keys == 0 {
		blind = nq
	}
	for ; i < blind; i += w.ops.Lanes {
		w.answer(i, min(w.ops.Lanes, blind-i), 0, 0, nothing)
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
			rows := min(w.ops.Lanes, end-i)
			w.answer(i, rows, key, n, pos)
			i += rows
		}
		w.absorb(key, n)
	}
}

// load computes the features of keys key to key+n-1, and finds their values. 0 times a value that is not finite is no 0, so when there is such
// a row, the values become a copy in which it is zero.
func (w *worker) load(key, n int) {
	d, v := w.p.Dim, &w.a.V
	w.bad = w.bad[:0]
	for j := range n {
		features(w.p.Linear.Feature, w.keys[j*d:][:d], w.a.K.Row(w.b, key+j, w.kv))
		for _, x := range v.Row(w.b, key+j, w.kv) {
			if x-x != 0 {
				w.bad = append(w.bad, j)
				break
			}
		}
	}
	if v.D == 0 {
		return
	}
	w.values = asm.Rows{Data: v.Data[w.b*v.SB+key*v.SS+w.kv*v.SH:], Stride: v.SS}
	if len(w.bad) == 0 {
		return
	}
	for j := range n {
		copy(w.clean[j*v.D:], w.values.Row(j, v.D))
	}
	for _, j := range w.bad {
		clear(w.clean[j*v.D:][:v.D])
	}
	w.values = asm.Rows{Data: w.clean, Stride: v.D}
}

// absorb adds the loaded keys and their values to the state.
func (w *worker) absorb(key, n int) {
	d, p := w.p.Dim, &w.panel
	if d == 0 {
		return
	}
	for j := 0; j < n; j += w.ops.Lanes {
		rows := min(w.ops.Lanes, n-j)
		w.transpose(w.kt, asm.Rows{Data: w.keys[j*d:], Stride: d}, rows)
		if w.p.DimV > 0 {
			v := &w.a.V
			p.N, p.C, p.Width, p.P = d, w.p.DimV, rows, w.kt
			p.X, p.XStr = w.x, w.p.DimV
			p.Y = asm.Rows{Data: v.Data[w.b*v.SB+(key+j)*v.SS+w.kv*v.SH:], Stride: v.SS}
			w.ops.Outer(p)
		}
		if w.z != nil {
			for a := range w.z {
				for _, k := range w.kt[a*w.ops.Lanes:][:rows] {
					w.z[a] += k
				}
			}
		}
	}
}

func (w *worker) transpose(tile []float32, from asm.Rows, rows int) {
	w.move = asm.Move{Lanes: w.ops.Lanes, Width: w.width(rows), Rows: rows, D: w.p.Dim, Tile: tile, Outside: from, Scale: w.ones}
	w.ops.Load(&w.move)
}

func (w *worker) width(rows int) int { return (rows + w.ops.Vec - 1) / w.ops.Vec * w.ops.Vec }

// answer writes the rows of queries i to i+rows-1, for each head of the group, from the state and those of the n loaded keys, the first being
// key, that they see: query i sees keys up to pos+i. A query that sees no key at all gets a zero row.
func (w *worker) answer(i, rows, key, n, pos int) {
	d, dv, lanes, p := w.p.Dim, w.p.DimV, w.ops.Lanes, &w.panel
	for h := w.kv * w.p.Group(); h < (w.kv+1)*w.p.Group(); h++ {
		for lane := range rows {
			features(w.p.Linear.Feature, w.side[lane*d:][:d], w.a.Q.Row(w.b, i+lane, h))
		}
		p.Width, p.D, p.C, p.Qt = w.width(rows), d, dv, w.qt
		clear(w.out)
		clear(w.weights[:n*lanes])
		if d > 0 {
			w.transpose(w.qt, asm.Rows{Data: w.side, Stride: d}, rows)
			p.N, p.P, p.O, p.V = d, w.qt, w.out, asm.Rows{Data: w.x, Stride: dv}
			w.ops.Mix(p)
		}
		if n > 0 && d > 0 {
			p.N, p.P, p.K = n, w.weights, asm.Rows{Data: w.keys, Stride: d}
			w.ops.Score(p)
			for lane := range rows {
				for j := max(pos+i+lane-key+1, 0); j < n; j++ {
					w.weights[j*lanes+lane] = 0
				}
			}
			if dv > 0 {
				p.V = w.values
				w.ops.Mix(p)
				for _, j := range w.bad { // a row that is not finite reaches the queries that see it, and no other
					for lane := max(key+j-pos-i, 0); lane < rows; lane++ {
						for c, v := range w.a.V.Row(w.b, key+j, w.kv) {
							w.out[c*lanes+lane] += float32(w.weights[j*lanes+lane] * v)
						}
					}
				}
			}
		}
		for lane := range rows {
			w.write(i+lane, h, lane, min(n, pos+i+lane-key+1), key > 0 || pos+i+lane >= 0)
		}
	}
}

// write finishes one row: it sees the first seen of the loaded keys, and, if any is set, some key at all.
func (w *worker) write(i, h, lane, seen int, any bool) {
	out, lanes := w.a.Out.Row(w.b, i, h), w.ops.Lanes
	if !any {
		clear(out)
		return
	}
	factor := float32(w.p.Scale())
	if w.z != nil {
		den := float32(w.p.Linear.Eps)
		for a, z := range w.z {
			den += float32(w.qt[a*lanes+lane] * z)
		}
		for j := range seen {
			den += w.weights[j*lanes+lane]
		}
		factor = 1 / den
	}
	for c := range out {
		out[c] = w.out[c*lanes+lane] * factor
	}
}

// row is the recurrent form: one key into the state, then the query answered from it.
func (w *worker) row() {
	if w.a.K.S == 0 {
		return
	}
	d, dv := w.p.Dim, w.p.DimV
	k, q, v := w.keys[:d], w.side[:d], w.a.V.Row(w.b, 0, w.kv)
	features(w.p.Linear.Feature, k, w.a.K.Row(w.b, 0, w.kv))
	for a, f := range k {
		for c, x := range w.x[a*dv:][:dv] {
			w.x[a*dv+c] = x + float32(f*v[c])
		}
		if w.z != nil {
			w.z[a] += f
		}
	}
	for h := w.kv * w.p.Group(); h < (w.kv+1)*w.p.Group(); h++ {
		features(w.p.Linear.Feature, q, w.a.Q.Row(w.b, 0, h))
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

// features applies a feature map to a row.
func features(f attn.Feature, to, from []float32) {
	switch f {
	case attn.EluPlusOne:
		for i, x := range from {
			if x > 0 {
				to[i] = x + 1
			} else { // exp itself, not elu+1, which would cancel
				to[i] = float32(math.Exp(float64(x)))
			}
		}
	case attn.ReluPlusOne:
		for i, x := range from {
			to[i] = max(x, 0) + 1
		}
	default:
		copy(to, from)
	}
}
