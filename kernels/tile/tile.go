// Package tile holds what the blocked softmax kernels share: a tile of queries and the steps that
// take it over blocks of keys, on the loops of package asm. Tiled and flash call the same steps in
// different orders.
//
//	At           chooses the queries of the lanes, and the keys that each may see
//	Load         loads the queries into lanes, rotated and multiplied by a metric; empties the sums
//	Block        begins a block of the keys that the tile sees
//	Weights      computes the block's weights (flash); Scores and Softmax do it in two steps (tiled)
//	Mix          adds the block's values to the output
//	Finish       writes rows and by-products, or reports that a careful round is needed
//
// A Back is a tile of the backward pass (back.go).
//
// # Parts of a tile
//
//	place       the queries of the lanes, and the keys that they see
//	stairs      the rows of a block for each vector of lanes, where the band's edges cross the block
//	Sums        the running sums of the lanes
//	edits       changes of scores before they become weights
//	Stage       the block of keys and values that a worker's tiles share, packed
//	prefetcher  the choice of the rows that the loops prefetch
//
// # Numbers that are not finite
//
// The loops have no case for them. A score that is NaN or +Inf makes its lane's sums NaN. NaN or
// Inf in V reaches lanes that must not see it, as 0 times NaN. So when a row comes out not finite,
// the tile is computed once more, in a careful round: Mix then reads rows of V that are not finite
// as zeros.
//
// Finish then computes some rows by their definition, key by key: rows of lanes that see such keys,
// and rows that are still not finite. Other lanes keep their bits, and a call without such numbers
// costs nothing more.
package tile

import (
	"math"
	"slices"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/scalar"
)

// Have is the set of abilities of a kernel made of tiles.
const Have = attn.AllSoftmax &^ (attn.NeedWeights | attn.NeedScores)

// A Tile is one tile of a worker.
type Tile struct {
	Split int // index of the KV split that the tile is restricted to

	ops      *asm.Ops
	p        *attn.Problem
	a        *attn.Args // the call
	stage    *Stage
	place    place
	stairs   stairs
	sums     Sums
	flash    asm.Flash // the block's scores and weights, in all lanes
	stair    asm.Flash // some lanes and rows of it
	mix      asm.Mix
	edits    edits
	moves    moves
	prefetch prefetcher
	row      scalar.Row
	careful  bool // this is the careful round
}

// Floats returns the number of float32 numbers in a tile whose queries pack packs.
func Floats(p *attn.Problem, ops *asm.Ops, pack asm.Pack) int {
	return ops.Shape.Lanes*p.DimV + sharedFloats(p, ops, pack)
}

// sharedFloats is Floats without the output, which a Back does not have.
func sharedFloats(p *attn.Problem, ops *asm.Ops, pack asm.Pack) int {
	lanes := ops.Shape.Lanes
	return lanes*(p.Dim+SumsPerLane+4) + pack.Size(asm.Queries, lanes, p.Dim) + movesFloats(p, lanes) + editsFloats(p, lanes) + scalar.RowFloats(p)
}

// New allocates a tile for a worker of a plan of problem p, which must not be moved or copied
// afterwards. The worker's tiles share a stage.
func New(p *attn.Problem, ops *asm.Ops, stage *Stage) *Tile {
	t := newTile(p, ops, stage)
	t.mix.O = make([]float32, ops.Shape.Lanes*p.DimV)
	return t
}

// newTile is New without the output.
func newTile(p *attn.Problem, ops *asm.Ops, stage *Stage) *Tile {
	s := &ops.Shape
	t := &Tile{
		ops: ops, p: p, stage: stage, row: scalar.NewRow(p),
		place: newPlace(s.Lanes), stairs: newStairs(s.Lanes, s.Vec, s.Unit(), s.Group),
		edits: newEdits(p, s.Lanes), moves: newMoves(p, s.Lanes),
	}
	f := &t.flash
	f.Lanes, f.D, f.Factor = s.Lanes, p.Dim, t.edits.Product
	f.Queries = stage.Pack.NewQueries(s.Lanes, p.Dim)
	f.Keep = make([]float32, s.Lanes)
	f.Lo, f.Hi = t.place.lo, t.place.hi
	t.mix.Lanes, t.mix.C, t.mix.Keep = s.Lanes, p.DimV, f.Keep
	t.Use(NewSums(ops))
	// Queries are multiplied by the factor as they are loaded, where that saves a multiplication
	// for each score. It rounds each of their numbers, so it is not done where means of scores are
	// wanted, or where the factor could drive numbers out of range.
	if x := math.Abs(f.Factor); ops.Tuning.Prescaled && !stage.backward && !t.edits.terms && f.S == nil && x >= 0x1p-30 && x <= 0x1p30 {
		t.moves.factor, f.Factor = f.Factor, 1
	}
	t.edits.scores.Product = f.Product
	t.edits.relative.Queries = asm.QueryLanes(t.rawQueries())
	t.stair.Product, t.stair.Lanes = f.Product, f.Lanes
	t.prefetch = newPrefetcher(p, ops, t.edits.any || f.S != nil)
	return t
}

// Use makes the tile keep its sums in s.
func (t *Tile) Use(s Sums) {
	if t.p.Want&(attn.WantMean|attn.WantEntropy) == 0 {
		s.S = nil // Exp and Flash are cheaper without
	}
	t.sums, t.flash.Sums = s, s.Sums
}

// SetPanel makes the tile keep the scores and weights of a block in p, which is [rows of a
// block][Lanes].
func (t *Tile) SetPanel(p []float32) { t.flash.P = p }

// At places the tile: it becomes tile number tile of the queries of head h in batch entry b.
func (t *Tile) At(a *attn.Args, b, h, tile int) { t.put(a, b, h, 1, tile) }

// put places the tile among the queries of heads heads, the first of which is h.
func (t *Tile) put(a *attn.Args, b, h, heads, tile int) {
	t.a, t.careful, t.Split = a, false, 0
	t.place.put(t.p, &t.ops.Shape, a, b, h, heads, tile)
	t.flash.Width, t.mix.Width = t.place.width, t.place.width
	t.edits.put(t.p, a, &t.place)
	t.stage.forget()
}

// CopyRows sets whether the stage copies rows of V into contiguous rows, and rows of K where
// Tuning.CopiesRows. The stage must have Copies.
func (t *Tile) CopyRows(on bool) { t.stage.copies = on }

// Load loads the queries and empties the sums. Rows whose sink is NaN or +Inf are left to Finish,
// in a careful round.
func (t *Tile) Load() {
	t.loadQueries()
	t.stage.Pack.Queries(&t.flash.Queries, t.place.width, t.p.Dim, t.flash.Factor, asm.Form{})
	t.edits.scores.Queries = t.flash.Queries
	t.sums.empty(t.p.Temperature(), t.p.Want)
	for lane := 0; t.p.Score.Terms&attn.TermSinks != 0 && lane < t.place.rows; lane++ {
		h, _ := t.Query(lane)
		if sink := t.a.Sink(t.p, h); sink != sink || sink == inf {
			t.careful, t.sums.hidden[lane] = true, true
		}
	}
}

// Empty makes the output 0. Finish may be called then, without any Mix.
func (t *Tile) Empty() { t.mix.Fresh = true }

// First returns the start of the first block of size keys that the tile sees. Blocks start at
// multiples of their size.
func (t *Tile) First(size int) int { return t.place.start(size) }

// Begins reports whether the block of size keys at key is the first one that the tile sees.
func (t *Tile) Begins(key, size int) bool { return t.place.begins(key, size) }

// End returns the key after the last one that the tile sees, or 0 if it sees none.
func (t *Tile) End() int { return t.place.keys.hi }

// Key returns the index of the key in the panel's row 0.
func (t *Tile) Key() int { return t.flash.Key }

// Query returns the head and the index of the query in a lane.
func (t *Tile) Query(lane int) (h, i int) { return t.place.query(lane) }

// Block begins the block of size keys that starts at key. It reports false if the tile sees none of
// it. The first block begins with the group that holds the tile's first key, and the last block
// ends with its last key: keys that are left out are hidden from every query.
func (t *Tile) Block(key, size int) bool {
	keys := t.place.block(key, size, t.ops.Shape.Group)
	if keys.empty() {
		return false
	}
	n := keys.hi - keys.lo
	t.flash.Begin(keys.lo, n)
	t.mix.Begin(n)
	t.stairs.begin(n)
	t.edits.used = span{0, n}
	return true
}

// stageKeys sets the call's keys to the stage's block.
func (t *Tile) stageKeys() {
	t.stage.Keys(&t.flash.Keys, t.a, t.place.b, t.place.kv, t.flash.Key, t.flash.N)
}

// Scores fills the panel with finished scores; hidden keys are -Inf.
func (t *Tile) Scores() {
	t.stageKeys()
	f := &t.flash
	for row := 0; row < f.N; row += t.edits.step {
		n := min(t.edits.step, f.N-row)
		if view := t.edits.bits.see(t.p, t.a, &t.place, f.Key+row, n); view == none {
			fill(f.P[row*f.Lanes:(row+n)*f.Lanes], -inf)
		} else {
			t.score(row, n, view)
		}
	}
}

// Weights computes the block's weights by the lazy softmax.
func (t *Tile) Weights() {
	f := &t.flash
	switch {
	case Limit(t.p):
		t.Scores()
		t.sums.limit(&f.Panel, f.Keep, t.p.Temperature())
		t.exp()
	case t.edits.any:
		t.stageKeys()
		t.edited()
	case t.place.common.holds(span{f.Key, f.Key + f.N}):
		t.stageKeys()
		t.fused()
	default:
		t.stageKeys()
		t.band()
	}
}

// Softmax turns scores into weights in two passes, and writes the scores and weights that the call
// wants. The block must hold all the keys that the tile sees.
func (t *Tile) Softmax() {
	if Limit(t.p) {
		t.sums.limit(&t.flash.Panel, t.flash.Keep, t.p.Temperature())
	}
	weights := &t.a.Stats.Weights
	if weights.Data != nil {
		fill(t.moves.scale, 1)
		t.storePairs(weights)
	}
	t.ops.Panel.Top(&t.flash.Softmax)
	t.exp()
	if weights.Data != nil {
		t.finishWeights()
	}
}

// exp turns scores into weights, and raises references where lanes go over their limit.
func (t *Tile) exp() {
	s := &t.flash.Softmax
	for t.ops.Panel.Exp(s); s.Done < s.N; t.ops.Panel.Exp(s) {
		t.ops.Panel.Raise(s)
	}
}

// fused computes scores and turns them into weights in one loop, raising references as exp does.
func (t *Tile) fused() {
	f := &t.flash
	for t.ops.Panel.Flash(f); f.Done < f.N; t.ops.Panel.Flash(f) {
		t.ops.Panel.Raise(&f.Softmax)
	}
}

// edited implements Weights where scores are edited.
func (t *Tile) edited() {
	e, f, end := &t.edits, &t.flash, t.flash.N
	see := func(row int) (n int, v view) {
		n = min(e.step, end-row)
		return n, e.bits.see(t.p, t.a, &t.place, f.Key+row, n)
	}
	e.used = span{end, 0}
	for row := 0; row < end; {
		n, view := see(row)
		if view == none {
			clear(f.P[row*f.Lanes : (row+n)*f.Lanes])
			row += n
			continue
		}
		fused := view == all && !e.terms
		if fused { // all rows up to the next edit, in one call
			for row+n < end {
				more, view := see(row + n)
				if view != all {
					break
				}
				n += more
			}
		} else {
			t.score(row, n, view)
		}
		e.used = span{min(e.used.lo, row), row + n}
		f.From, f.N, f.Scored = row, row+n, false
		if fused {
			t.fused()
		} else {
			t.exp()
		}
		row += n
	}
	f.N = end
}

// band implements Weights where the band's edges cross the block: it computes the block in stairs.
func (t *Tile) band() {
	s, f := &t.stairs, &t.flash
	s.divide(&t.place, f.Key)
	t.mix.Since, t.mix.Until = s.since[:s.vectors], s.until[:s.vectors]
	n := f.N
	t.stair.Keys, t.stair.Prefetch = f.Keys, f.Prefetch
	t.climb(span{0, s.plain.lo}, 0)
	t.climb(span{s.plain.lo, n}, s.plain.hi)
	f.N, f.Until = n, nil
}

// climb computes rows for the lanes that use each of them. Rows from plain on are masked.
func (t *Tile) climb(rows span, plain int) {
	early := asm.Normal(t.flash.Factor)
	for scored := false; !rows.empty(); {
		f := t.lanes(t.stairs.step(rows.lo, rows.hi, early))
		f.From, f.Plain, f.Scored = rows.lo, plain, scored
		t.ops.Panel.Flash(f)
		rows.lo = f.Done
		if scored = f.Done < f.N; scored {
			f = t.lanes(t.stairs.step(rows.lo, rows.hi, early))
			f.From, f.Done = rows.lo, rows.lo
			t.ops.Panel.Raise(&f.Softmax)
		}
	}
}

// lanes returns the call for a step: the tile's own if the step takes all lanes.
func (t *Tile) lanes(s step) *asm.Flash {
	f := &t.flash
	if s.width < f.Width {
		all := f
		f = &t.stair
		f.Width, f.P, f.Keep = s.width, all.P[s.lane:], all.Keep[s.lane:]
		f.Sums, f.Queries = all.Sums.From(s.lane), all.Queries.From(s.lane)
		f.Lo, f.Hi, f.Key = all.Lo[s.lane:], all.Hi[s.lane:], all.Key
	}
	f.N, f.Until = s.end, s.until
	return f
}

// zeros makes the weights 0 in the rows before each vector's first one. The stairs leave these rows
// unset, as Mix does not read them.
func (t *Tile) zeros() {
	s := &t.stairs
	for v := 0; s.divided && v < s.vectors; v++ {
		for row := range s.since[v] {
			clear(t.flash.P[row*t.flash.Lanes+v*s.vec:][:s.vec])
		}
	}
}

// Mix adds the block's values to the output. In the careful round it reads rows of V that are not
// finite as zeros, and hides the lanes that see them.
func (t *Tile) Mix() {
	used := t.edits.used
	if used.empty() {
		return
	}
	m, l := &t.mix, &t.place
	if t.careful {
		m.Values = t.stage.cleanValues(t.a, l.b, l.kv, t.flash.Key, t.flash.N, t.hide)
	} else {
		t.stage.Values(&m.Values, t.a, l.b, l.kv, t.flash.Key, t.flash.N)
	}
	if used.lo > 0 {
		m.Values = m.Values.From(used.lo)
	}
	m.N, m.P = used.hi-used.lo, t.flash.P[used.lo*m.Lanes:]
	t.ops.Panel.Mix(m)
	m.Fresh = false
}

// hide hides the lanes that see a key: Finish computes their rows by definition.
func (t *Tile) hide(key int) {
	for lane := range t.place.rows {
		if t.place.sees(lane, key) {
			h, i := t.Query(lane)
			if t.a.Shows(t.p, t.place.b, i, h, key) {
				t.sums.hidden[lane] = true
			}
		}
	}
}

// settle makes the output 0 if no values have been added to it.
func (t *Tile) settle() {
	if t.mix.Fresh {
		clear(t.mix.O)
		t.mix.Fresh = false
	}
}

// Finish writes the rows and the by-products that the call wants. If it reports true, a number is
// not finite: compute the tile again from its first block, and call Finish again. Tiled, which
// keeps the weights, repeats Mix alone.
func (t *Tile) Finish() (again bool) {
	t.settle()
	sound := t.scales()
	if sound = t.storeOut() && sound; !sound && !t.careful {
		t.careful = true
		return true
	}
	rows := t.place.rows
	if !t.careful && t.p.Want == 0 && !slices.Contains(t.sums.hidden[:rows], true) {
		return false
	}
	finite := t.ops.Vector.Finite
	for lane := range rows {
		h, i := t.Query(lane)
		t.row.At(t.a, t.place.b, i, h)
		if t.sums.hidden[lane] || !finite(t.sums.L[lane:lane+1]) || !finite(t.out(lane)) || t.farSums(lane) {
			t.row.ByDefinition()
		} else {
			t.finishRow(lane, h)
		}
	}
	return false
}

// farSums reports whether the by-products of a lane cannot be computed from its sums.
func (t *Tile) farSums(lane int) bool {
	m, l, s := t.sums.numbers(lane)
	if t.sums.S == nil || !(l > 0) {
		return false
	}
	if Limit(t.p) {
		s = float64(t.sums.best[lane])
	}
	return t.row.FarSums(m, s)
}

// finishRow writes the by-products of a row that the loops have computed.
func (t *Tile) finishRow(lane, h int) {
	r := &t.row
	r.Largest(float64(t.sums.max[lane])/t.edits.Beta, int(t.sums.first[lane]))
	m, l, s := t.sums.numbers(lane)
	m, l, s, _ = scalar.AddSink(t.p, t.a, h, m, l, s)
	if l == 0 {
		r.Stats(attn.LogSum{Ref: math.Inf(-1)}, 0, 0)
		return
	}
	lse, best := attn.LogSum{Log: math.Log(l)}, float64(t.sums.best[lane])
	switch {
	case t.p.Temperature() == attn.Frozen:
		r.Stats(lse, best, lse.Log)
	case Limit(t.p):
		r.Stats(lse, best/l, lse.Log)
	default:
		r.FromSums(m, l, s)
	}
}
