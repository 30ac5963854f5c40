// Package decode computes exact attention of a few queries: queries in rows, keys in KV splits that
// workers share.
//
// A task scans some splits of a key head, or one split of several key heads, for all queries that
// share them. It stores a partial state (o, m, l, s) of each query and split; then the states of
// each query are merged. Splits start at multiples of a constant in absolute key index and are
// merged in order, so the bits do not depend on the number of workers.
//
// Memory decides the speed. Keys and values are read once, in place, as they are stored (cache.go),
// for all queries together that share a key head. Contiguous rows of a head are read fastest. Where
// the rows of several heads are interleaved in memory, their runs are interleaved too, so that
// memory is read in its order, unless keys are rotated. Pages are read fastest where a head's rows
// in them begin with a page of memory, as they do in a pool allocated by make.
//
// Where many queries share a key head, multiply-adds decide the speed. Such queries go through its
// splits in the lanes of tiles (tiles.go), which the caller supplies.
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
	// maxQueries is the largest SeqQ that is decoded. With more queries prefill fills its lanes and
	// uses each loaded number more often. The number of keys is not considered, so that a row's
	// bits do not depend on the capacity of the cache.
	// Tuning: docs/tuning.md#decode-queries
	maxQueries = 8
	// splitKeys is the number of keys in a KV split. Short splits leave tasks for more workers;
	// long ones have fewer states to store and merge.
	// Tuning: docs/tuning.md#decode-splits
	splitKeys = 2048
	// tileSplitKeys is the same number for tiles, which load and store their queries once a split.
	// Tuning: docs/tuning.md#decode-tiles
	tileSplitKeys = 4096
	// maxSplits is the largest number of splits that a task scans together: first all their scores,
	// then all their weights, then all their values. Between these loops memory is nearly idle, but
	// more scores leave less of the second cache for rows.
	// Tuning: docs/tuning.md#decode-splits
	maxSplits = 4
	// maxRows is the largest number of rows of scores that a task holds: one for each of its
	// queries, key heads and splits. More rows read keys less often, but their scores take more of
	// the second cache.
	// Tuning: docs/tuning.md#decode-rows
	maxRows = 32
	// cleanKeys is the number of rows of V that are copied at once in a careful round.
	cleanKeys = 256
	// aligned is a number of keys. Where the first keys of a split are hidden from all queries, a
	// task begins at a multiple of aligned. Its vectors and runs are then the same as if it began
	// with the split.
	aligned = 64
)

// Path names the sizes of splits, in rows and in tiles. They change bits, as states are merged.
func Path() string { return fmt.Sprintf("split=%d/%d", splitKeys, tileSplitKeys) }

// Takes reports whether a problem is decoded. Problems at the limits of temperature are not: they
// are too rare for code of their own.
func Takes(p *attn.Problem) bool { return p.SeqQ <= maxQueries && !tile.Limit(p) }

// A Kernel plans calls on a set of loops.
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
	rows := rowsTogether(p) * max(splitLimit(p), headLimit(p))
	return rows*splitKeys + 5*statesOf(p) + cleanKeys*p.DimV + editsFloats(p, k.Ops) + cacheFloats(p) + rotatedFloats(p) + scalar.RowFloats(p)
}

// workers returns the number of a team's workers that can be busy at once.
func (k Kernel) workers(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsQ*p.SeqQ*splits(p, p.SeqKV)))
}

// splits returns the number of splits of a number of keys: 1 if there are no keys.
func splits(p *attn.Problem, keys int) int {
	if byTiles(p) {
		return max(1, cover(keys, tileSplitKeys))
	}
	return max(1, cover(keys, splitKeys))
}

// sharers returns the number of queries that share a key head.
func sharers(p *attn.Problem) int { return p.Group() * p.SeqQ }

// rowsTogether returns the largest number of queries of one key head that a task computes.
func rowsTogether(p *attn.Problem) int { return min(sharers(p), maxRows) }

// splitLimit returns the largest number of splits that a task scans: the second cache must hold
// their scores beside the rows that are read. Keys are rotated one split at a time.
func splitLimit(p *attn.Problem) int {
	if p.Score.Rope != attn.NoRope {
		return 1
	}
	return min(maxSplits, maxRows/max(rowsTogether(p), 1))
}

// headLimit returns the largest number of heads that are interleaved.
func headLimit(p *attn.Problem) int {
	if p.Score.Rope != attn.NoRope {
		return 1
	}
	return min(p.HeadsKV, maxRows/max(rowsTogether(p), 1))
}

// statesOf returns the largest number of partial states that a task stores.
func statesOf(p *attn.Problem) int { return max(p.HeadsKV, splitLimit(p)) * sharers(p) }

// preparedFloats returns the length of a query that is copied before it is multiplied by keys. It
// is 0 where queries are read in Q: they need no conversion, and queries that share a key head are
// evenly spaced.
func preparedFloats(p *attn.Problem) int {
	if byTiles(p) {
		return 0 // tiles load their queries
	}
	if p.Q != attn.F32 || p.Score.Rope != attn.NoRope || p.Score.Terms&attn.TermMetric != 0 || p.Group() > 1 && p.SeqQ > 1 {
		return p.Dim
	}
	return 0
}

// rotatedFloats returns the number of float32 numbers in the rotated keys of a split.
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

// A Plan computes calls of one problem.
//
// Queries that share a key head are consecutive rows, in the order of their heads, as many as the
// call has. The rows of a batch entry follow one another in the order of key heads.
type Plan struct {
	Kernel
	p       attn.Problem
	team    *attn.Team
	workers []*worker
	factors tile.Factors
	walker  Walker    // computes queries in lanes; nil: queries are in rows
	queries []float32 // [batch][row][dim], where they cannot be read in Q
	states  states    // [batch][row][split]

	a        *attn.Args
	loops    *asm.Ops // loops of this call
	schedule schedule
	careful  bool        // this is the careful round: see package tile
	again    atomic.Bool // a careful round is needed

	prepare, scan, merge func(worker, task int)
	collect              func(*tile.Tile)
}

// A worker is the scratch of one worker. It has a row for each query, key head and split of its
// task: the queries of one key head after those of the head before, or those of one split after
// those of the split before.
type worker struct {
	dot   asm.Dot
	weigh asm.Weigh
	sum   asm.Walk
	merge asm.Outer

	cache   cache
	rotated []float32 // [split][dim]: keys
	copier  operand.Copier
	scores  []float32 // [row][span]
	clean   []float32 // [cleanKeys][d_v]: V, with zeros for rows that are not finite; merge: output
	edits   edits
	states  partials // [row]
	visible spans    // keys that each query of a key head sees
	row     scalar.Row
	scale   [1]float32 // factor of the output in a merge
}

// spans are the keys lo <= key < hi that each query sees.
type spans struct{ lo, hi []int }

func (pl *Plan) newWorker() *worker {
	p := &pl.p
	f := func(n int) []float32 { return make([]float32, n) }
	w := &worker{
		cache: newCache(p), rotated: f(rotatedFloats(p)), copier: operand.NewCopier(p, pl.Ops),
		scores: f(rowsTogether(p) * max(splitLimit(p), headLimit(p)) * splitKeys), clean: f(cleanKeys * p.DimV),
		edits: newEdits(p, pl.Ops), states: newPartials(statesOf(p)),
		visible: spans{make([]int, sharers(p)), make([]int, sharers(p))}, row: scalar.NewRow(p),
	}
	w.dot.D, w.dot.Factor, w.sum.D, w.merge.Fresh = p.Dim, pl.factors.Product, p.DimV, true
	w.edits.relative.Factor = pl.factors.Product
	return w
}

// Run computes a call.
func (pl *Plan) Run(a *attn.Args) {
	if pl.p.SeqQ == 0 { // there is scratch for one worker, but splits would make more tasks
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

// scanAndMerge runs the given number of scanning tasks, and merges. If an output is not finite, it
// does both again in a careful round.
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

// streams reports whether K and V come from memory in one stream, at the full speed of memory. They
// do if their rows are float32, contiguous, each read for one query, and more than the last cache
// keeps from one call to the next. Smaller types take more work for each line.
func (pl *Plan) streams(keys int) bool {
	p, k, v := &pl.p, &pl.a.K, &pl.a.V
	bytes := p.Batch * p.HeadsKV * keys * (p.Dim + p.DimV) * p.KV.Bytes()
	return p.KV == attn.F32 && p.Page == 0 && rowsTogether(p) == 1 && k.SS == p.Dim && v.SS == p.DimV && bytes > pl.LLC
}

// rowOf returns the index of query i of a head among all rows.
func (pl *Plan) rowOf(b, h, i int) int {
	return b*pl.p.HeadsQ*pl.p.SeqQ + h*pl.a.Queries(&pl.p, b) + i
}

// stateOf returns the index of the first partial state of a row. The states of the next row start
// schedule.splits later.
func (pl *Plan) stateOf(row int) int { return row * pl.schedule.splits }

// queryOf returns the query of a task of prepare or merge, and whether the call has it.
func (pl *Plan) queryOf(task int) (b, h, i int, exists bool) {
	i, h, b = task%pl.p.SeqQ, task/pl.p.SeqQ%pl.p.HeadsQ, task/pl.p.SeqQ/pl.p.HeadsQ
	return b, h, i, i < pl.a.Queries(&pl.p, b)
}

// prepareRow rotates a query, multiplies it by the metric, and widens it.
func (pl *Plan) prepareRow(worker, task int) {
	if b, h, i, exists := pl.queryOf(task); exists {
		copy(pl.queries[pl.rowOf(b, h, i)*pl.p.Dim:][:pl.p.Dim], pl.workers[worker].row.Prepared(pl.a, b, i, h))
	}
}

// queryRows returns the queries that share key head kv, starting at row first of them, and the
// distance to the queries of the next key head.
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
