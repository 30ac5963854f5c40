// Package prefill computes exact attention with queries in the lanes of tiles (package asm draws
// the panel).
//
// A tile walks over the keys in blocks that start at multiples of a constant in absolute key index.
// For each block it computes S^T = K Q^T into a small panel, turns scores into weights against a
// lazily raised reference, and adds O^T += V^T P^T. Blocks that no query of the tile may see are
// skipped. At the end O^T is transposed into the output, times 1/l.
//
// A task is a bundle of tiles that share a key head: all of them go over one block of its keys, and
// then over the next. Package tile edits scores between the two steps, a few rows of a block at a
// time; blocks without edits run both steps in one loop. Keys that are rotated, in pages or not
// float32 are copied into contiguous float32 rows once for a bundle. So are values whose rows are
// far apart.
package prefill

import (
	"slices"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// A Kernel plans calls on a set of loops, for caches of the given sizes.
type Kernel struct {
	Ops    *asm.Ops
	L1, L2 int // bytes of a core's first and second caches
}

// Bytes returns the scratch of a plan.
func (k Kernel) Bytes(p *attn.Problem, workers int) (int64, error) {
	return attn.Floats(k.workers(p, workers), k.Floats(p))
}

// Floats returns the number of float32 numbers in the scratch of a worker.
func (k Kernel) Floats(p *attn.Problem) int {
	l := k.layout(p)
	return l.tiles*tile.Floats(p, k.Ops, l.Pack) + l.Block*k.Ops.Shape.Lanes + tile.StageFloats(p, k.Ops, l.Config)
}

// workers returns the number of a team's workers that can be busy at once.
func (k Kernel) workers(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsQ*tile.Count(p, k.Ops, p.SeqQ)))
}

// Plan returns a plan for all workers of a team that can be busy.
func (k Kernel) Plan(p attn.Problem, team *attn.Team) *Plan {
	return k.PlanFor(p, team, k.workers(&p, team.Workers()))
}

// PlanFor returns a plan for the given number of workers of a team.
func (k Kernel) PlanFor(p attn.Problem, team *attn.Team, workers int) *Plan {
	pl := &Plan{Kernel: k, p: p, layout: k.layout(&p), team: team, starts: make([]int, p.Batch+1)}
	pl.task = pl.bundle
	for range workers {
		panel, stage := make([]float32, pl.layout.Block*k.Ops.Shape.Lanes), tile.NewStage(&pl.p, k.Ops, pl.layout.Config)
		w := make([]*tile.Tile, pl.layout.tiles)
		for i := range w {
			w[i] = tile.New(&pl.p, k.Ops, stage)
			w[i].SetPanel(panel)
		}
		pl.workers = append(pl.workers, w)
	}
	return pl
}

// A Plan computes calls of one problem.
type Plan struct {
	Kernel
	p       attn.Problem
	layout  layout
	team    *attn.Team
	workers [][]*tile.Tile
	a       *attn.Args
	copies  bool  // this call copies rows of V for bundles of enough tiles
	size    int   // tiles in a bundle
	starts  []int // tasks before each batch entry, and of all
	task    func(worker, task int)
	// collect reads the partial state of a tile after a KV split. nil: tiles see all keys.
	collect func(*tile.Tile)
}

// Run computes a call.
func (pl *Plan) Run(a *attn.Args) {
	pl.Begin(a, nil)
	all := 0
	for b := range pl.p.Batch {
		all += pl.p.HeadsKV * pl.tiles(b)
	}
	pl.size = pl.layout.tiles
	if n := len(pl.workers); n > 1 { // enough bundles for all workers to end at about the same time
		pl.size = min(pl.size, max(all/(16*n), 1))
	}
	for b := range pl.p.Batch {
		pl.starts[b+1] = pl.starts[b] + pl.p.HeadsKV*pl.bundles(b)
	}
	pl.team.Run(pl.starts[pl.p.Batch], pl.task)
}

// Begin starts a call whose KV splits are scanned by Scan. collect is called with each tile after a
// split, and reads its partial state.
func (pl *Plan) Begin(a *attn.Args, collect func(*tile.Tile)) {
	pl.a, pl.collect = a, collect
	pl.copies = pl.layout.Copies && pl.copiesValues(&pl.p, a.V.SS, pl.layout.Block)
}

// Scan takes the queries that share key head kv of batch entry b over a KV split: n keys starting
// at first. In a careful round, values that are not finite are read as 0 (package tile).
func (pl *Plan) Scan(worker, b, kv, split, first, n int, careful bool) {
	p := &pl.p
	all := tile.Count(p, pl.Ops, p.Group()*pl.a.Queries(p, b))
	for at := 0; at < all; at += pl.layout.tiles {
		tiles := pl.workers[worker][:min(pl.layout.tiles, all-at)]
		for i, t := range tiles {
			t.AtAll(pl.a, b, kv, at+i)
			t.Restrict(split, first, n, careful)
		}
		pl.walkTogether(tiles)
	}
}

// tiles returns the number of tiles that share a key head of batch entry b.
func (pl *Plan) tiles(b int) int {
	n, group := pl.a.Queries(&pl.p, b), pl.p.Group()
	if pl.joins(b) {
		return tile.Count(&pl.p, pl.Ops, group*n)
	}
	return group * tile.Count(&pl.p, pl.Ops, n)
}

// joins reports whether tiles of batch entry b have queries of all heads that share a key head.
// They do where that pays and leaves enough tiles for all workers.
func (pl *Plan) joins(b int) bool {
	p, n := &pl.p, pl.a.Queries(&pl.p, b)
	if !tile.JoiningPays(p, pl.Ops, n) {
		return false
	}
	workers := len(pl.workers)
	return workers == 1 || p.Batch*p.HeadsKV*tile.Count(p, pl.Ops, p.Group()*n) >= 2*workers
}

// bundles returns the number of tasks of a key head of batch entry b.
func (pl *Plan) bundles(b int) int { return cover(pl.tiles(b), pl.size) }

// bundle computes some tiles of queries that share a key head. The last queries of a head come
// first: under a causal mask they take the longest.
func (pl *Plan) bundle(worker, task int) {
	a, p := pl.a, &pl.p
	b, _ := slices.BinarySearch(pl.starts, task+1) // the first that is above task
	b--
	all, group := pl.tiles(b), p.Group()
	rows, bundles := all/group, cover(all, pl.size)
	kv, at := (task-pl.starts[b])/bundles, (task-pl.starts[b])%bundles
	first, last := at*all/bundles, (at+1)*all/bundles
	tiles := pl.workers[worker][:last-first]
	joins := pl.joins(b)
	for i, t := range tiles {
		if joins {
			t.AtAll(a, b, kv, all-1-first-i)
			continue
		}
		row, h := (first+i)/group, (first+i)%group
		t.At(a, b, kv*group+h, rows-1-row)
	}
	if p.Mask.Band && p.Mask.Left != attn.Unbounded {
		// The first queries see the earliest keys of the window, so they come first.
		// Tuning: docs/tuning.md#window-order
		slices.Reverse(tiles)
	}
	pl.walkTogether(tiles)
}

// walkTogether takes the tiles of a bundle over their keys, and copies rows for them if that pays.
func (pl *Plan) walkTogether(tiles []*tile.Tile) {
	tiles[0].CopyRows(pl.copies && pl.layout.copies(len(tiles)))
	pl.walk(tiles)
}

// prefetchers is the number of tiles that prefetch the values of the next block: the last ones to
// mix a block, each its share. Mix reads a few columns of all rows, a pattern that a CPU by itself
// detects too late for the first tile.
// Tuning: docs/tuning.md#next-values
const prefetchers = 4

// walk takes tiles over the keys that they see: all over one block, then all over the next. A tile
// is loaded at its first block and finished after its last one, so that its queries and its output
// are then in the nearest cache.
func (pl *Plan) walk(tiles []*tile.Tile) {
	block := pl.layout.Block
	first, end := pl.p.SeqKV, 0
	for _, t := range tiles {
		if t.End() > 0 {
			first, end = min(first, t.First(block)), max(end, t.End())
		} else { // the tile sees no key
			t.Load()
			t.Empty()
			pl.finish(t)
		}
	}
	for key := first; key < end; key += block {
		for i, t := range tiles {
			if t.Begins(key, block) {
				t.Load()
				t.Empty()
			}
			if !t.Block(key, block) {
				continue
			}
			later := key + block
			if len(tiles) == 1 {
				t.PrefetchOwnValues()
			} else if later < end {
				t.PrefetchCopied(later, len(tiles)-1-i)
			}
			t.Weights()
			last := t.End() <= later
			if i+1 < len(tiles) && tiles[i+1].Begins(key, block) {
				t.PrefetchQueries(tiles[i+1])
			}
			if last {
				t.PrefetchOut()
			} else if n := min(prefetchers, len(tiles)); i >= len(tiles)-n {
				share := i - len(tiles) + n
				for quarter := share * prefetchers / n; quarter < (share+1)*prefetchers/n; quarter++ {
					t.PrefetchValues(later+quarter*block/prefetchers, end)
				}
			}
			t.Mix()
			if last && pl.finish(t) {
				pl.walk(tiles[i : i+1])
			}
		}
	}
}

// finish ends a tile, and reports whether it must be computed again.
func (pl *Plan) finish(t *tile.Tile) (again bool) {
	if pl.collect != nil {
		pl.collect(t)
		return false
	}
	return t.Finish()
}
