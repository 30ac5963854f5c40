package decode

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// scanTask takes the queries of a task over its keys, and stores their partial states.
func (pl *Plan) scanTask(worker, i int) {
	w, p, a := pl.workers[worker], &pl.p, pl.a
	w.cache.fit(p, pl.loops, pl.schedule.interleaved)
	t := pl.schedule.task(i)
	nq, keys := a.Queries(p, t.b), a.Keys(p, t.b)
	group := p.Group() * nq
	begin, rows := pl.schedule.rows(t.share, group)
	if rows == 0 {
		return
	}
	lo, hi := keys, 0 // keys that any row sees
	for r := range rows {
		l, h := a.Visible(p, t.b, (begin+r)%nq)
		if w.visible.lo[r], w.visible.hi[r] = l, h; l < h {
			lo, hi = min(lo, l), max(hi, h)
		}
	}
	pl.eachState(&t, begin, rows, func(j, k int) {
		w.states.reset(j)
		clear(pl.states.o[k*p.DimV:][:p.DimV])
	})
	if first, end := t.keys(lo, hi, w.cache.run); first < end {
		interleave := 1
		if pl.schedule.interleaved {
			interleave = t.heads
		}
		w.cache.open(p, a, &t, interleave, first, end)
		w.dot.Stride, w.weigh.Stride, w.sum.Stride = t.splits*splitKeys, t.splits*splitKeys, t.splits*splitKeys
		for head := 0; head < t.heads; head += interleave {
			pl.scanHeads(w, block{
				b: t.b, kv: t.kv + head, head: head, heads: interleave, first: begin, rows: rows, split: t.split, key: first, n: end - first,
			})
		}
	}
	pl.eachState(&t, begin, rows, func(j, k int) { pl.states.copy(k, &w.states, j) })
}

// eachState calls do for each state of a task: j is its row in the worker, and k its index in the
// plan.
func (pl *Plan) eachState(t *task, begin, rows int, do func(j, k int)) {
	group, j := pl.p.Group()*pl.a.Queries(&pl.p, t.b), 0
	for i := range t.splits { // the task has one head or one split
		for h := range t.heads {
			k := pl.stateOf(pl.rowOf(t.b, 0, 0)+(t.kv+h)*group+begin) + t.split + i
			for range rows {
				do(j, k)
				j, k = j+1, k+pl.schedule.splits
			}
		}
	}
}

// A block is the queries and keys that one call of each loop takes together. The queries are of one
// key head, or of several that are interleaved; the keys are of one split or of several.
type block struct {
	b, kv, head int // batch entry; first key head, and its index among those of the task
	heads       int // key heads that are interleaved
	first, rows int // first row of a key head, and number of rows
	row         int // the worker's row of the first query, for the first split
	scores      int // the first query's row of scores
	split       int // the first split
	key, n      int // first key, and number of keys
}

// only returns the block of head h of the block.
func (k block) only(h int) block {
	k.kv, k.head, k.row, k.scores, k.heads = k.kv+h, k.head+h, k.row+h*k.rows, k.scores+h*k.rows, 1
	return k
}

// query returns the head and the index of the query in a row of the block's first head.
func (pl *Plan) query(k *block, row int) (h, i int) {
	nq := pl.a.Queries(&pl.p, k.b)
	return k.kv*pl.p.Group() + (k.first+row)/nq, (k.first + row) % nq
}

// scanHeads takes the queries of key heads over the keys of a block.
func (pl *Plan) scanHeads(w *worker, k block) {
	k.row = k.head * k.rows
	w.dot.R, w.weigh.R, w.sum.R = k.rows, k.rows, k.rows
	pl.dot(w, &k)
	for h := range k.heads {
		pl.weigh(w, k.only(h))
	}
	if pl.careful {
		for h := range k.heads {
			pl.sum(w, k.only(h))
		}
	} else {
		pl.sum(w, k)
	}
}

// dot computes the scores of a block, after rotating the keys if the problem has a rotation.
func (pl *Plan) dot(w *worker, k *block) {
	c, p := &w.dot, &pl.p
	c.Rows, c.HeadStep = pl.queryRows(k.b, k.kv, k.first)
	c.P, c.N, c.Heads = w.scores, k.n, k.heads
	if p.Score.Rope != attn.NoRope {
		w.copier.Copy(w.rotated, &pl.a.K, pl.a, k.b, k.key, k.kv, k.n)
		for j := range k.n {
			operand.Rotate(pl.Ops, p, pl.a, w.rotated[j*p.Dim:][:p.Dim], k.b, k.key+j)
		}
		c.Cache, c.Run = asm.Cells{Rows: asm.Rows{Data: w.rotated, Stride: p.Dim}}, 0
	} else {
		h := &w.cache.heads[k.head]
		w.cache.read(&c.Walk, &h.k, w.cache.k.now, 0)
		w.cache.prefetch(&c.Walk, &h.v, w.cache.v.now, 0)
	}
	pl.loops.Decode.Dot(c)
}

// weigh turns the scores of a head into weights, split by split.
func (pl *Plan) weigh(w *worker, k block) {
	c := &w.weigh
	for from := 0; from < k.n; from += c.N {
		row := pl.beginSplit(w, &k, from)
		for i := range c.R {
			pl.edit(w, &k, row+i, i, k.key+from)
			seed(c, i, max(0, w.visible.lo[i]-k.key-from))
		}
		c.From = 0
		c.Prefetch = w.cache.prefetchValues(c, &k, from, pl.p.DimV, pl.loops)
		for pl.loops.Decode.Weigh(c); c.Done < c.R; pl.loops.Decode.Weigh(c) {
			pl.raise(w, row+c.Done, c.Done)
			c.From = c.Done
		}
	}
}

// sum adds the values of a block, split by split. After its last keys it prefetches the keys of the
// next head of the task, or of the first head in the next split.
func (pl *Plan) sum(w *worker, k block) {
	c, cache := &w.sum, &w.cache
	for from := 0; from < k.n; from += c.N {
		row := pl.beginSplit(w, &k, from)
		c.Heads, c.HeadStep = k.heads, pl.p.Group()*pl.a.Queries(&pl.p, k.b)*pl.schedule.splits*pl.p.DimV
		if pl.careful {
			c.N = min(c.N, cleanKeys)
			pl.cleanValues(w, &k, from, row)
			c.Cache, c.Run = asm.Cells{Rows: asm.Rows{Data: w.clean, Stride: pl.p.DimV}}, 0
		} else {
			v := &cache.heads[k.head].v
			cache.read(c, v, cache.v.now, from)
			switch {
			case from+c.N < k.n:
				cache.prefetch(c, v, cache.v.now, from+c.N)
			case k.head+k.heads < len(cache.heads):
				cache.prefetch(c, &cache.heads[k.head+k.heads].k, cache.k.now, 0)
			default:
				cache.prefetch(c, &cache.heads[0].k, cache.k.next, 0)
			}
		}
		pl.loops.Decode.Sum(c)
	}
}

// beginSplit sets the calls of Weigh and Sum to the keys of one split, starting at key from of the
// block. It returns the worker's row of the first query.
func (pl *Plan) beginSplit(w *worker, k *block, from int) (row int) {
	p := &pl.p
	split := (k.key + from) / splitKeys
	row = k.row + (split-k.split)*k.rows
	n, scores := min(k.n, (split+1)*splitKeys-k.key)-from, w.scores[k.scores*w.weigh.Stride+from:]
	w.weigh.N, w.weigh.P, w.sum.N, w.sum.P = n, scores, n, scores
	w.weigh.Sums = w.states.From(row)
	if p.Want&(attn.WantMean|attn.WantEntropy) == 0 {
		w.weigh.S = nil
	}
	state := pl.stateOf(pl.rowOf(k.b, k.kv*p.Group(), 0)+k.first) + split
	w.sum.Rows = asm.Rows{Data: pl.states.o[state*p.DimV:], Stride: pl.schedule.splits * p.DimV}
	return row
}

// seed gives row i a reference if it has none: the largest of its first scores, starting at score
// from. Otherwise Weigh would leave early before each such row.
func seed(w *asm.Weigh, i, from int) {
	if w.M[i] != asm.Unset || from >= w.N {
		return
	}
	for _, s := range w.P[i*w.Stride:][from:min(from+aligned, w.N)] {
		if s > w.M[i] && s <= math.MaxFloat32 {
			w.M[i] = s
		}
	}
}

// raise lifts the reference of row i of the block, which is row row of the worker, to its largest
// score. It scales what was summed below the old reference. A row with a score of +Inf is hidden
// instead.
func (pl *Plan) raise(w *worker, row, i int) {
	top, s := w.weigh.Top, &w.states
	if top > math.MaxFloat32 {
		s.bad[row] = true
		hide(w.weigh.P[i*w.weigh.Stride:], 0, w.weigh.N)
		return
	}
	f := float32(math.Exp2(float64(s.M[row]) - float64(top)))
	s.M[row] = top
	s.L[row] *= f
	s.S[row] *= f
	for c, o := 0, w.sum.Rows.Row(i, w.sum.D); c < len(o); c++ {
		o[c] *= f
	}
}

// cleanValues copies the values of a split, starting at key from of the block, with zeros for rows
// that are not finite. It marks the queries that see such a row; the first query is row row of the
// worker.
func (pl *Plan) cleanValues(w *worker, k *block, from, row int) {
	p, a := &pl.p, pl.a
	for j := range w.sum.N {
		key, to := k.key+from+j, w.clean[j*p.DimV:][:p.DimV]
		batch, s := a.KRow(p, k.b, key)
		if values := a.V.Read(to, batch, s, k.kv); pl.Ops.Vector.Finite(values) {
			copy(to, values)
			continue
		}
		clear(to)
		for r := range w.sum.R {
			h, i := pl.query(k, r)
			sees := w.visible.lo[r] <= key && key < w.visible.hi[r] && a.Shows(p, k.b, i, h, key)
			w.states.bad[row+r] = w.states.bad[row+r] || sees
		}
	}
}
