package linear

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// Sizes of the masked form.
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

// masked is the scratch of the masked form, which has no rule.
type masked struct {
	keys    []float32 // [block][d]: features of keys
	queries []float32 // [block][d]: features of queries
	chunk   values
	weights []float32 // [chunk][chunk]: a row for each query, a column for each key of the chunk
	sums    []float32 // [block]: sums of the weights of a row
	dens    []float32 // [block]: denominators from the state
	scale   []float32 // [block]: factors of output rows
}

func (m *masked) layout(p *attn.Problem, take func(n int) []float32) {
	m.keys, m.queries = take(block*p.Dim), take(block*p.Dim)
	m.chunk = values{clean: take(chunk * p.DimV), bad: make([]int, 0, chunk)}
	m.weights = take(chunk * chunk)
	m.sums, m.dens, m.scale = take(block), take(block), take(block)
}

// values are the values of a chunk's keys.
type values struct {
	rows  asm.Rows  // V in place, or clean
	clean []float32 // [chunk][d_v]: rows of V, with zeros for rows that are not finite
	bad   []int     // rows that are not finite
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
	w.answers(0, w.a.Q.S, pos)
}

// causal computes queries of which query i sees the keys up to pos+i, in the chunks that a state
// would have.
func (w *worker) causal(pos, keys int) {
	nq := w.a.Q.S
	w.pos, w.nq, w.few = pos, nq, 1
	if keys == 0 {
		w.answers(0, nq, nothing)
		return
	}
	w.answers(0, min(max(-pos, 0), nq), nothing) // before the first key
	w.run(0, min(keys, max(pos+nq, 0)))
	w.answers(min(max(keys-pos, 0), nq), nq, everything)
}

// answers writes the outputs of queries i to end-1, which see all of the state or nothing.
func (w *worker) answers(i, end, pos int) {
	for ; i < end; i += block {
		w.answer(i, min(block, end-i), pos)
	}
}

// load computes the features of n keys starting at key, and finds their values. A weight of 0 times
// a value that is not finite would not be 0. So if a row is not finite, the values are copied with
// zeros in its place.
func (w *worker) load(key, n int) {
	w.features(w.keys, operand.Rows(&w.a.K, w.b, key, w.kv), n, false)
	v, d := &w.chunk, w.p.DimV
	v.rows, v.bad = operand.Rows(&w.a.V, w.b, key, w.vh), v.bad[:0]
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
	v, k := operand.Rows(&w.a.V, w.b, key, w.vh), operand.Rows(&w.a.K, w.b, key, w.kv)
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

// answer writes the outputs of queries i to i+n-1, for each output head of the state. If pos is
// nothing, the queries see no key and get zero rows.
func (w *worker) answer(i, n, pos int) {
	d, dv, state := w.p.Dim, w.p.DimV, asm.Rows{Data: w.x, Stride: w.p.DimV}
	for h := range w.n {
		q := operand.Rows(&w.a.Q, w.b, i, w.queryHead(h))
		out := operand.Rows(&w.a.Out, w.b, i, w.h+h)
		if pos == nothing {
			for r := range n {
				clear(out.Row(r, dv))
			}
			continue
		}
		w.features(w.queries, q, n, false)
		w.scales(n, 0)
		o := w.outerOf(out.Data, out.Stride, n, dv, w.queries, d, d, state)
		o.Fresh, o.Scale = true, w.scale
		if q.Stride == d {
			o.At, o.Len = after(q, n), 4*n*d
		}
		w.ops.Back.Outer(o)
		o.Stream = asm.Stream{}
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
