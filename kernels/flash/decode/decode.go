// Package decode computes exact attention of a few queries, as decoding asks: queries in rows, keys
// in KV splits that workers share.
//
// A task scans some splits of the keys of a head, or one split of several heads, for queries that
// share them, and leaves a partial state (o, m, l, s) of each query and split; then the states of
// each query are merged. Splits start at multiples of a constant in absolute key index, whatever
// the number of workers, and are merged in order, so that the bits are the same for any of them.
//
// Memory decides how fast that goes. Keys and values are read once, in place, as they are stored
// (cache.go), for all queries together that share a key head. Rows of a head that follow one
// another are read fastest. Where each is stored between those of other heads, these are
// interleaved, so that memory is read in its order, unless keys are rotated. Pages are read fastest
// where a head's rows in them begin with a page of memory, as they do in a pool that make returned.
//
// Where enough queries share a key head that multiply-adds decide, they go through its splits in
// the lanes of tiles (tiles.go), which the caller supplies.
package decode

import (
	"fmt"
	"sync/atomic"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
	"attnlab/kernels/tile"
)

const (
	// maxQueries is the largest SeqQ that is decoded. More queries fill lanes, where a number that
	// is loaded is used more often. The number of keys does not choose, so that a row's bits do not
	// depend on how many there may be.
	// Tuning: docs/tuning.md#decode-queries
	maxQueries = 8
	// splitKeys is the number of keys in a KV split.
	splitKeys = 2048
	// tileSplitKeys is that number for tiles, which load and store their queries once a split.
	tileSplitKeys = 4096
	// maxSpan is the largest number of splits that a task takes together: first all their scores,
	// then all their weights, then all their values. Memory has little to do between loops.
	maxSpan = 4
	// maxRows is the largest number of rows of scores that a task holds: of queries of one split or
	// of several, of one key head or of several.
	maxRows = 32
	// cleanKeys is the number of values that are copied at once without what is not finite.
	cleanKeys = 256
	// aligned is a number of keys. Where the first keys of a split are hidden from all queries, a
	// task begins at a multiple of it: vectors and runs are then the same as from the beginning of
	// the split.
	aligned = 64
)

// Path names the sizes of splits, in rows and in tiles. They change bits, as states are merged.
func Path() string { return fmt.Sprintf("split=%d/%d", splitKeys, tileSplitKeys) }

// Takes reports whether a problem is decoded. Those at the limits of temperature are not: they are
// not worth a second set of rules.
func Takes(p *attn.Problem) bool { return p.SeqQ <= maxQueries && !tile.Limit(p) }

// A Kernel plans calls on some loops.
type Kernel struct {
	Ops   *asm.Ops
	LLC   int // bytes of the last cache
	Tiles Tiles
}

// Bytes returns the scratch of a plan.
func (k Kernel) Bytes(p *attn.Problem, workers int) (int64, error) {
	states, err := attn.Floats(p.Batch, p.HeadsQ, p.SeqQ, splits(p, p.SeqKV), p.DimV+5)
	if err != nil {
		return 0, err
	}
	queries, err := attn.Floats(p.Batch, p.HeadsQ, p.SeqQ, preparedFloats(p))
	if err != nil {
		return 0, err
	}
	scratch, err := attn.Floats(k.workers(p, workers), k.floats(p))
	return scratch + states + queries, err
}

// floats returns the number of float32 numbers in the scratch of a worker.
func (k Kernel) floats(p *attn.Problem) int {
	if byTiles(p) {
		return k.Tiles.Floats(p) + p.DimV + scalar.RowFloats(p)
	}
	rows := rowsTogether(p) * max(spanLimit(p), headLimit(p))
	return rows*splitKeys + 5*statesOf(p) + cleanKeys*p.DimV + editsFloats(p, k.Ops) + cacheFloats(p) + rotatedFloats(p) + scalar.RowFloats(p)
}

// workers returns the number of a team's workers that can be busy at once.
func (k Kernel) workers(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsQ*p.SeqQ*splits(p, p.SeqKV)))
}

// splits returns the number of splits of some keys: 1 if there are none.
func splits(p *attn.Problem, keys int) int {
	if byTiles(p) {
		return max(1, cover(keys, tileSplitKeys))
	}
	return max(1, cover(keys, splitKeys))
}

// sharers returns the number of queries that share a key head.
func sharers(p *attn.Problem) int { return p.Group() * p.SeqQ }

// rowsTogether returns the largest number of them that a task takes.
func rowsTogether(p *attn.Problem) int { return min(sharers(p), maxRows) }

// spanLimit returns the largest number of splits that a task takes: the second cache holds their
// scores beside what is read. Keys are rotated split by split.
func spanLimit(p *attn.Problem) int {
	if p.Score.Rope != attn.NoRope {
		return 1
	}
	return min(maxSpan, maxRows/max(rowsTogether(p), 1))
}

// headLimit returns the largest number of heads that are interleaved.
func headLimit(p *attn.Problem) int {
	if p.Score.Rope != attn.NoRope {
		return 1
	}
	return min(p.HeadsKV, maxRows/max(rowsTogether(p), 1))
}

// statesOf returns the largest number of partial states that a task leaves.
func statesOf(p *attn.Problem) int { return max(p.HeadsKV, spanLimit(p)) * sharers(p) }

// preparedFloats returns the length of a query that is copied to be multiplied with keys. It is 0
// where queries can be read in Q: as they are, and at one distance from one to the next that shares
// their key head.
func preparedFloats(p *attn.Problem) int {
	if byTiles(p) {
		return 0 // tiles load them
	}
	if p.Q != attn.F32 || p.Score.Rope != attn.NoRope || p.Score.Terms&attn.TermMetric != 0 || p.Group() > 1 && p.SeqQ > 1 {
		return p.Dim
	}
	return 0
}

// rotatedFloats returns the number of float32 numbers in the keys of a split that are rotated.
func rotatedFloats(p *attn.Problem) int {
	if p.Score.Rope == attn.NoRope {
		return 0
	}
	return splitKeys * p.Dim
}

// Plan returns a plan for all workers of a team that can be busy.
func (k Kernel) Plan(p attn.Problem, team *attn.Team) *Plan {
	pl := &Plan{
		Kernel: k, p: p, team: team, factors: tile.FactorsOf(&p),
		states:  newStates(p.Batch*p.HeadsQ*p.SeqQ*splits(&p, p.SeqKV), p.DimV),
		queries: make([]float32, p.Batch*p.HeadsQ*p.SeqQ*preparedFloats(&p)),
	}
	pl.prepare, pl.scan, pl.merge = pl.prepareRow, pl.scanTask, pl.mergeRow
	workers := k.workers(&p, team.Workers())
	if byTiles(&p) {
		pl.useTiles(workers)
		return pl
	}
	for range workers {
		pl.workers = append(pl.workers, pl.newWorker())
	}
	return pl
}

// A Plan answers calls of one problem.
//
// Queries that share a key head are rows, in the order of their heads. Those of a batch entry
// follow one another, as many as the call has.
type Plan struct {
	Kernel
	p       attn.Problem
	team    *attn.Team
	workers []*worker
	factors tile.Factors
	walker  Walker    // of queries in lanes, if they are enough
	queries []float32 // [batch][row][dim], where they cannot be read in Q
	states  states    // [batch][row][split]

	a        *attn.Args
	loops    *asm.Ops // of this call
	schedule schedule
	careful  bool        // the second round, when an output was not finite: see package tile
	again    atomic.Bool // a second round is needed

	prepare, scan, merge func(worker, task int)
	leave                func(*tile.Tile)
}

// A worker is the scratch of one worker. It has a row for each query of its task: those of one key
// head after those of the head before, or all of them for one split after those for the split
// before.
type worker struct {
	dot   asm.Dot
	weigh asm.Weigh
	sum   asm.Walk
	merge asm.Outer

	cache   cache
	rotated []float32 // [split][dim]: keys
	copier  operand.Copier
	scores  []float32 // [row][span]
	clean   []float32 // [cleanKeys][d_v]: V, 0 in place of rows that are not finite; merging, the output
	edits   edits
	states  partials // [row]
	visible spans    // of the queries of a key head
	row     scalar.Row
	scale   [1]float32 // merging, of the output
}

// spans are the keys lo <= key < hi that each query sees.
type spans struct{ lo, hi []int }

func (pl *Plan) newWorker() *worker {
	p := &pl.p
	f := func(n int) []float32 { return make([]float32, n) }
	w := &worker{
		cache: newCache(p), rotated: f(rotatedFloats(p)), copier: operand.NewCopier(p, pl.Ops),
		scores: f(rowsTogether(p) * max(spanLimit(p), headLimit(p)) * splitKeys), clean: f(cleanKeys * p.DimV),
		edits: newEdits(p, pl.Ops), states: newPartials(statesOf(p)),
		visible: spans{make([]int, sharers(p)), make([]int, sharers(p))}, row: scalar.NewRow(p),
	}
	w.dot.D, w.dot.Factor, w.sum.D, w.merge.Fresh = p.Dim, pl.factors.Product, p.DimV, true
	w.edits.relative.Factor = pl.factors.Product
	return w
}

// Run answers a call.
func (pl *Plan) Run(a *attn.Args) {
	if pl.p.SeqQ == 0 { // keys make tasks all the same, for more workers than there is scratch for
		return
	}
	longest := 0
	for b := range pl.p.Batch {
		longest = max(longest, a.Keys(&pl.p, b))
	}
	pl.a, pl.careful = a, false
	if pl.walker != nil {
		pl.runTiles(splits(&pl.p, longest))
		return
	}
	if pl.loops = pl.Ops; pl.streams(longest) {
		pl.loops = pl.Ops.Streamed
	}
	pl.schedule = newSchedule(&pl.p, &a.K, splits(&pl.p, longest), len(pl.workers))
	if len(pl.queries) > 0 {
		pl.team.Run(pl.p.Batch*pl.p.HeadsQ*pl.p.SeqQ, pl.prepare)
	}
	pl.scanAndMerge(pl.schedule.tasks())
}

// scanAndMerge scans in some tasks, and merges; if an output is not finite, once more with care.
func (pl *Plan) scanAndMerge(tasks int) {
	for {
		pl.again.Store(false)
		pl.team.Run(tasks, pl.scan)
		pl.team.Run(pl.p.Batch*pl.p.HeadsQ*pl.p.SeqQ, pl.merge)
		if !pl.again.Load() {
			return
		}
		pl.careful = true
	}
}

// streams reports whether K and V come from memory in one stream, as fast as it delivers them: rows
// of float32 after one another, each for one query, more than the last cache keeps from one call to
// the next. Smaller numbers take more work for a line.
func (pl *Plan) streams(keys int) bool {
	p, k, v := &pl.p, &pl.a.K, &pl.a.V
	bytes := p.Batch * p.HeadsKV * keys * (p.Dim + p.DimV) * p.KV.Bytes()
	return p.KV == attn.F32 && p.Page == 0 && rowsTogether(p) == 1 && k.SS == p.Dim && v.SS == p.DimV && bytes > pl.LLC
}

// rowOf returns the index of query i of a head among all rows.
func (pl *Plan) rowOf(b, h, i int) int {
	return b*pl.p.HeadsQ*pl.p.SeqQ + h*pl.a.Queries(&pl.p, b) + i
}

// stateOf returns the index of the first partial state of a row. That of the next row is
// schedule.splits further.
func (pl *Plan) stateOf(row int) int { return row * pl.schedule.splits }

// queryOf returns the query of a task that has one, and whether the call has it.
func (pl *Plan) queryOf(task int) (b, h, i int, exists bool) {
	i, h, b = task%pl.p.SeqQ, task/pl.p.SeqQ%pl.p.HeadsQ, task/pl.p.SeqQ/pl.p.HeadsQ
	return b, h, i, i < pl.a.Queries(&pl.p, b)
}

// prepareRow rotates a query, takes it through the metric, and widens it.
func (pl *Plan) prepareRow(worker, task int) {
	if b, h, i, exists := pl.queryOf(task); exists {
		copy(pl.queries[pl.rowOf(b, h, i)*pl.p.Dim:][:pl.p.Dim], pl.workers[worker].row.Prepared(pl.a, b, i, h))
	}
}

// queryRows returns the queries that share key head kv, row first of them first, and the distance
// from them to those of the next key head.
func (pl *Plan) queryRows(b, kv, first int) (rows asm.Rows, next int) {
	p, q := &pl.p, &pl.a.Q
	switch batch, row := pl.a.QRow(p, b, 0); {
	case p.Dim == 0:
		return asm.Rows{}, 0
	case len(pl.queries) > 0:
		rows = asm.Rows{Data: pl.queries[(pl.rowOf(b, kv*p.Group(), 0)+first)*p.Dim:], Stride: p.Dim}
		return rows, p.Group() * pl.a.Queries(p, b) * p.Dim
	case p.SeqQ == 1:
		rows = operand.Rows(q, batch, row, kv*p.Group()+first)
		rows.Stride = q.SH
		return rows, p.Group() * q.SH
	default:
		return operand.Rows(q, batch, row+first, kv), q.SH
	}
}

// cover returns the number of pieces of a size that cover n.
func cover(n, size int) int { return (n + size - 1) / size }
