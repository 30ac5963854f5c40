package decode

import (
	"attnlab/attn"
	"attnlab/kernels/scalar"
	"attnlab/kernels/tile"
)

// Tiles plans calls whose queries go through KV splits in the lanes of tiles.
type Tiles struct {
	Floats func(p *attn.Problem) int // number of float32 numbers in the scratch of a worker
	Plan   func(p attn.Problem, team *attn.Team, workers int) Walker
}

// A Walker takes tiles over keys.
type Walker interface {
	// Run computes a whole call.
	Run(a *attn.Args)
	// Begin starts a call whose splits are scanned by Scan. collect is called with each tile after
	// each split.
	Begin(a *attn.Args, collect func(*tile.Tile))
	// Scan takes the queries that share key head kv of batch entry b over a split: n keys starting
	// at first. In a careful round, values that are not finite are read as 0.
	Scan(worker, b, kv, split, first, n int, careful bool)
}

// byTiles reports whether queries go through their keys in the lanes of tiles, split by split. They
// do where many queries share a key head: in rows, multiply-adds would take longer than memory.
// Tuning: docs/tuning.md#decode-tiles
func byTiles(p *attn.Problem) bool {
	n := sharers(p)
	return tile.JoinsHeads(p) && (n > maxRows || n == maxRows && p.Dim <= 64)
}

// useTiles sets up a plan whose queries are in the lanes of tiles.
func (pl *Plan) useTiles(workers int) {
	pl.walker = pl.Tiles.Plan(pl.p, pl.team, workers)
	pl.scan, pl.collect = pl.scanTiles, pl.collectTile
	for range workers {
		w := &worker{row: scalar.NewRow(&pl.p), clean: make([]float32, pl.p.DimV)}
		w.merge.Fresh = true
		pl.workers = append(pl.workers, w)
	}
}

// runTiles computes a call; with one split, it needs no partial states.
func (pl *Plan) runTiles(splits int) {
	if splits == 1 {
		pl.walker.Run(pl.a)
		return
	}
	pl.schedule = schedule{batch: pl.p.Batch, heads: pl.p.HeadsKV, splits: splits, taskHeads: 1, taskSplits: 1, shares: 1}
	pl.walker.Begin(pl.a, pl.collect)
	pl.scanAndMerge(pl.schedule.tasks())
}

// scanTiles takes the queries of a key head over a split.
func (pl *Plan) scanTiles(worker, i int) {
	t := pl.schedule.task(i)
	pl.walker.Scan(worker, t.b, t.kv, t.split, t.split*tileSplitKeys, tileSplitKeys, pl.careful)
}

// collectTile stores the partial states of a tile after a split.
func (pl *Plan) collectTile(t *tile.Tile) {
	b, rows := t.Batch(), t.Sums()
	for lane := range t.Rows() {
		h, i := t.Query(lane)
		k := pl.stateOf(pl.rowOf(b, h, i)) + t.Split
		copy(pl.states.o[k*pl.p.DimV:][:pl.p.DimV], rows.Row(lane, pl.p.DimV))
		m, l, s, largest, first, bad := t.Partial(lane)
		pl.states.set(k, m, l, s, largest, first, bad)
	}
}
