// Package flash is exact attention that never holds a score matrix: online softmax over blocks of keys, with memory that does not grow with
// the length.
//
// A tile is some queries in lanes (package asm draws the panel). It walks over the keys in blocks that start at multiples of a constant in
// absolute key index; for each it computes S^T = K Q^T into a small panel, turns scores into weights against a lazily raised reference, and
// adds O^T += V^T P^T. Blocks that no query of the tile may see are never visited. At the end O^T is transposed out, times 1/l. A task is a
// bundle of tiles that share a key head, and take turns on each block of its keys.
//
// What a problem does to scores besides the product, package tile does between the two steps, a few rows of a block at a time; blocks without any of it
// go through both in one loop. Keys that are turned, lie in pages or are not float32 are brought into rows of float32 once for a bundle, and so are
// values that lie far apart.
//
// A plan for a few queries, as decoding asks, takes another path (decode.go): queries in rows, keys split into parts that workers share, and read where
// they lie, in the type they have (cache.go), for all queries together that share a key head. Memory decides how fast that goes. Rows of a head that follow one
// another are read fastest. Where each lies between those of other heads, these take turns, so that memory is read in its order, unless keys are turned. Pages
// are read fastest where a head's rows in them begin with a page of memory, as they do in a pool that make returned. Where so many queries share a key head
// that multiply-adds decide, they stand in the lanes of tiles there, too (decode_tiles.go).
//
// The backward pass (tile.Backward) makes the weights once more, by the same steps, and holds no matrix either.
//
// A row's bits are a function of its query and of the keys it sees: its lane is touched by nothing else, blocks and groups stand at absolute
// key indices, and a rescale in one lane multiplies no other. So neither thread count nor bundles, batch mates, layout, or neighbours in the
// tile change them. Asking for means, entropies or maxima of scores may change an output's last bits: their factor then is not in the queries.
package flash

import (
	"slices"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// sizes says how many keys make a block, and how many tiles of queries go over a block together, from the sizes in bytes of the first two caches.
//
// A longer block has more of its exponentials amid products and fewer sums to add up; its rows of K and V, 4(d+d_v) bytes a key, should take
// half of the cache at most. Tiles share what is left of three quarters of it, each 4(d+d_v) bytes a query, so that the next one finds rows of
// K and V where the last one left them. On a Xeon (family 6, model 207, 2 MB), with d = 64 and 4096 keys, blocks of 256, 192, 128 and 96 keys ran
// at .91, .91, .88 and .87 of the peak of AVX2; with 8192 keys, 8 tiles at .90 and one alone at .80. With 4096, 16 were no better than 8;
// but what is brought together for them costs half as much.
//
// Where 512 keys take a quarter of the second cache at most they make a block: there are half as many steps. On a Zen 5 (1 MB), d = 64 and 8 heads, AVX-512
// took .7 % less time for 2048 keys than in blocks of 256, with a causal mask 1.1, and 1.5 for 512; AVX2 .0 to .3 (medians of 20 rounds). On a Zen 4 (1 MB
// too) AVX-512 took .6 and 1.1 % less for 2048. But AVX2, whose weights for 256 keys leave room in the first cache (32 KB), took .6 % more there, causal .4,
// and for 512 keys 1.6 and .9 (100 and more rounds by turns): then 256 keys make a block. Those of AVX-512 fill one of 48 KB and leave no room: on a Xeon
// (family 6, model 167) blocks of 512 took .8 and 1.5 % less for 512 keys, full and causal, .2 and .6 for 2048 (49 to 1358 rounds by turns). With d = 128,
// where 512 take half, it gained nothing.
//
// Where rows of keys and values, and queries, are cut into parts, these take 6 bytes a number. On a Xeon (family 6, model 167), AMX with d = 64 and 4096
// keys of 8 heads did 302 GFLOP/s in blocks of 256 keys, and 342 in blocks of 512; with 22 tiles no more than with 11, which keep scratch below 2 MiB at d = 128.
//
// A sum over a whole block is also where most of the error comes from. The shortest rows, whose tolerance is the tightest, pay for shorter sums.
func sizes(p *attn.Problem, ops *asm.Ops, first, cache int) (block, tiles int) {
	longest, most, row := 256, 16, 4*max(p.Dim+p.DimV, 1)
	query, cuts := row, tile.UsesParts(p, ops)
	if cuts {
		row, query, most = row*3/2, row+6*p.Dim, 11
	}
	if 512*row <= min(cache, 2<<20)/4 && (cuts || 4*longest*ops.Lanes >= first) {
		longest = 512
	}
	if p.Dim+p.DimV <= 16 {
		longest = 32
	}
	if side := p.Mask.Block; side >= 64 && side < longest && side%ops.Group() == 0 { // blocks of the bitmap are all or nothing
		longest = side
	}
	for block = longest; block > ops.Group() && block*row > cache/2; {
		block /= 2
	}
	tiles = (cache*3/4 - block*(row+4*ops.Lanes)) / (ops.Lanes * query)
	return block, min(max(tiles, 1), most)
}

// gathered is the least number of tiles for which rows of V that lie far apart are brought together.
const gathered = 4

// gathers is whether so many tiles may have rows brought together. Those that multiply parts do without.
func (k kernel) gathers(p *attn.Problem, tiles int) bool {
	return tiles >= gathered && !tile.UsesParts(p, k.ops)
}

// askers is how many tiles, the last ones to mix a block, ask memory for the values of the next one, each for its share: Mix reads a few columns of all rows,
// and a CPU that is left to find them stops for the first tile. On a Zen 4, d = 64, AVX2 with 2048 keys and 8 heads took .8 % less time so where heads lie
// next to one another, and .4 % where a head's rows do; AVX-512 .1 % less.
const askers = 4

// farApart is whether rows of V, from each of which to the next it is so many numbers, are worth bringing together. Mix goes over a block's rows again for
// every few columns, from the second-level cache. Where they lie between rows of other heads, those of a block, and of K with them, share few of its sets,
// whose number depends on the place in a page of memory, and drive each other out if these hold less than the block: that is where AVX-512 begins to win,
// which takes 8 columns at a time, and loops that take fewer, and so come more often, win before. On a Zen 5 with 2048 keys and 8 heads, d = 64, AVX2 lost
// 7 % by such a layout, and loses 2 % when V is copied; with 32 heads of d = 128 it lost 48 %, and AVX-512 with 32 of d = 64 15 %, and both lose 4 %.
//
// AVX-512 on a Xeon (family 6, model 167), whose caches hold more, wins always: 8 heads of d = 64, 2048 keys, took 4 % less time in bshd and 5 in the packed
// layout when V was copied, of d = 128 11 and 19, with a causal mask 1 and 11; AVX2 the same time, and 4 % more at 512 keys of d = 128. With K copied too,
// AVX-512 takes another 1 to 2 % less, of d = 128 3 and 6.
func (k kernel) farApart(p *attn.Problem, stride, block int) bool {
	const columns = 8
	row, next := 4*p.DimV, min(4*stride, memoryPage)
	return row < next && (k.ops.Gathers || k.cache/next*row*k.ops.Cols < columns*4*(p.Dim+p.DimV)*block)
}

// cut is that of the backward pass: each key has four rows in the cache, and each query five. Keys should take three eighths of it and queries a quarter.
// 192 keys are whole groups for Outer too, whose tiles have six rows.
//
// Where loops multiply parts, a key has its rows of dK and dV there and parts of K, twice, and V, of 6 bytes a number, and a query parts of 18 bytes a number: half of
// the cache for each. On a Xeon (family 6, model 167, 2 MB), 2048 keys of 8 heads, d = 64, took 3 % less time in blocks of 256 than of 192, causal 1, and 6 and 4
// less with 8 tiles than with 4; of 4 heads of d = 128 1 and 0, and 1 and 3 (14 rounds by turns).
func (k kernel) cut(p *attn.Problem) tile.Cut {
	ops, cache := k.ops, k.cache
	longest, most, row, query, keys, queries := 192, 8, 8*(p.Dim+p.DimV), 4*(3*p.Dim+2*p.DimV), cache*3/8, cache/4
	if tile.UsesBackParts(p, ops) {
		longest, row, query, keys, queries = 256, 16*p.Dim+10*p.DimV, 18*(p.Dim+p.DimV), cache/2, cache/2
	}
	if side := p.Mask.Block; side >= 64 && side < longest && side%ops.Group() == 0 { // blocks of the bitmap are all or nothing
		longest = side
	}
	block := longest
	for block > ops.Group() && block*row > keys {
		block = max(ops.Group(), block/2/ops.Group()*ops.Group())
	}
	tiles := queries / (ops.Lanes * max(query, 4))
	return tile.Cut{Block: block, Tiles: min(max(tiles, 1), most)}
}

type kernel struct {
	ops   *asm.Ops
	name  string
	first int // bytes of the first cache,
	cache int // of the second one,
	last  int // and of the last
}

// New returns the kernel flash on the given loops.
func New(ops *asm.Ops) attn.Kernel {
	first, cache, last := asm.Caches()
	return kernel{ops, "flash/" + ops.ISA, first, cache, last}
}

func (k kernel) Name() (algo, isa string) { return "flash", k.ops.ISA }

func (k kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, tile.Have); err != nil {
		return 0, err
	}
	if few(&p) {
		return k.checkFew(&p, workers)
	}
	back, err := tile.BackwardBytes(&p, k.ops, k.cut(&p), workers)
	if err != nil {
		return 0, err
	}
	scratch, err := attn.Floats(k.workers(&p, workers), k.wideFloats(&p))
	return scratch + back, err
}

// wideFloats is the number of float32 numbers in the scratch of a worker, without decoding.
func (k kernel) wideFloats(p *attn.Problem) int {
	block, tiles := k.sizes(p)
	return tiles*tile.Floats(p, k.ops) + block*k.ops.Lanes + tile.StageFloats(p, k.ops, block, k.gathers(p, tiles)) + tile.PartsFloats(p, k.ops, block, tiles) + tile.MixedFloats(p, k.ops)
}

// sizes are those of the package's function, without tiles that no call can fill.
func (k kernel) sizes(p *attn.Problem) (block, tiles int) {
	block, tiles = sizes(p, k.ops, k.first, k.cache)
	return block, max(1, min(tiles, p.Group()*tile.Count(p, k.ops, p.SeqQ)))
}

// workers is how many of a team's workers can be busy at once.
func (k kernel) workers(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsQ*tile.Count(p, k.ops, p.SeqQ)))
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	if few(&p) {
		return k.planFew(p, team, scratch), nil
	}
	pl := k.planWide(p, team, k.workers(&p, team.Workers()))
	pl.scratch, pl.back = scratch, tile.NewBackward(p, k.ops, k.cut(&p), team)
	return pl, nil
}

// planWide is a plan for so many workers, without decoding and the way back.
func (k kernel) planWide(p attn.Problem, team *attn.Team, workers int) *plan {
	pl := &plan{kernel: k, p: p, team: team, starts: make([]int, p.Batch+1)}
	pl.task = pl.bundle
	block, tiles := k.sizes(&p)
	pl.block = block
	for range workers {
		panel, stage := make([]float32, block*k.ops.Lanes), tile.NewStage(&pl.p, k.ops, block, k.gathers(&p, tiles)).KeepParts().HoldMixed()
		w := make([]*tile.Tile, tiles)
		for i := range w {
			w[i] = tile.New(&pl.p, k.ops, stage)
			w[i].P = panel
		}
		pl.workers = append(pl.workers, w)
	}
	return pl
}

type plan struct {
	kernel
	guard   attn.Guard
	p       attn.Problem
	team    *attn.Team
	scratch int64
	block   int
	workers [][]*tile.Tile
	a       *attn.Args
	gather  bool  // rows of V are brought together in this call, for tiles enough
	size    int   // tiles in a bundle
	starts  []int // tasks before each batch entry, and of all
	task    func(worker, task int)
	back    *tile.Backward
	leave   func(*tile.Tile) // what becomes of a tile that has a part of the keys; nil: it has all, and finishes
}

func (pl *plan) Backward(a *attn.Args, g *attn.Grads) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.MustGrads(pl.name, a, g)
	pl.back.Run(a, g)
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.Must(pl.name, a)
	pl.begin(a)
	all := 0
	for b := range pl.p.Batch {
		all += pl.p.HeadsKV * pl.tiles(b)
	}
	pl.size = len(pl.workers[0])
	if n := len(pl.workers); n > 1 { // enough bundles for each worker that all end at about the same time
		pl.size = min(pl.size, max(all/(16*n), 1))
	}
	for b := range pl.p.Batch {
		pl.starts[b+1] = pl.starts[b] + pl.p.HeadsKV*pl.bundles(b)
	}
	pl.team.Run(pl.starts[pl.p.Batch], pl.task)
}

// begin makes a call the plan's.
func (pl *plan) begin(a *attn.Args) {
	pl.a, pl.gather = a, pl.gathers(&pl.p, len(pl.workers[0])) && pl.farApart(&pl.p, a.V.SS, pl.block)
}

// tiles is the number of tiles that share a key head of batch entry b, and bundles the number of tasks they make.
func (pl *plan) tiles(b int) int {
	n, group := pl.a.Queries(&pl.p, b), pl.p.Group()
	if pl.mixes(b) {
		return tile.Count(&pl.p, pl.ops, group*n)
	}
	return group * tile.Count(&pl.p, pl.ops, n)
}

// mixes is whether tiles of batch entry b have queries of all heads that share a key head: if that leaves enough of them for all workers.
func (pl *plan) mixes(b int) bool {
	p, n := &pl.p, pl.a.Queries(&pl.p, b)
	if !tile.MixingPays(p, pl.ops, n) {
		return false
	}
	workers := len(pl.workers)
	return workers == 1 || p.Batch*p.HeadsKV*tile.Count(p, pl.ops, p.Group()*n) >= 2*workers
}

func (pl *plan) bundles(b int) int { return cover(pl.tiles(b), pl.size) }

// bundle answers some tiles of queries that share a key head. The last queries of a head go first: under a causal mask they take the longest.
func (pl *plan) bundle(worker, task int) {
	a, p := pl.a, &pl.p
	b, _ := slices.BinarySearch(pl.starts, task+1) // the first that is above task
	b--
	all, group := pl.tiles(b), p.Group()
	rows, bundles := all/group, cover(all, pl.size)
	kv, at := (task-pl.starts[b])/bundles, (task-pl.starts[b])%bundles
	first, last := at*all/bundles, (at+1)*all/bundles
	tiles := pl.workers[worker][:last-first]
	mixes := pl.mixes(b)
	for i, t := range tiles {
		if mixes {
			t.AtAll(a, b, kv, all-1-first-i)
			continue
		}
		row, h := (first+i)/group, (first+i)%group
		t.At(a, b, kv*group+h, rows-1-row)
	}
	if p.Mask.Band && p.Mask.Left != attn.Unbounded {
		// The first queries then see the earliest keys, and lead. On a Xeon (family 6, model 167) windows of 1023 and 511 keys, with 4096 queries of
		// d = 128, went 1.3 and 2.1 % faster so, with the queries of each tile loaded when it begins.
		slices.Reverse(tiles)
	}
	tiles[0].Gather(pl.gather && pl.gathers(p, len(tiles)))
	pl.walk(tiles)
}

// walk takes tiles over the keys that they see: all over one block, then all over the next. A tile is loaded when it comes to the first of its blocks, and
// finished after the last one: its queries, and its output, are then in the nearest cache.
func (pl *plan) walk(tiles []*tile.Tile) {
	first, end := pl.p.SeqKV, 0
	for _, t := range tiles {
		if t.End() > 0 {
			first, end = min(first, t.First(pl.block)), max(end, t.End())
		} else { // it sees nothing
			t.Load()
			t.Empty()
			pl.finish(t)
		}
	}
	for key := first; key < end; key += pl.block {
		for i, t := range tiles {
			if t.Begins(key, pl.block) {
				t.Load()
				t.Empty()
			}
			if !t.Block(key, pl.block) {
				continue
			}
			later := key + pl.block
			if len(tiles) == 1 {
				t.AskOwnValues()
			} else if later < end {
				t.AskGathered(later, len(tiles)-1-i)
			}
			t.Weights()
			last := t.End() <= later
			if i+1 < len(tiles) && tiles[i+1].Begins(key, pl.block) {
				t.AskQueries(tiles[i+1])
			}
			if last {
				t.AskOut()
			} else if asking := min(askers, len(tiles)); i >= len(tiles)-asking {
				turn := i - len(tiles) + asking
				for quarter := turn * askers / asking; quarter < (turn+1)*askers/asking; quarter++ {
					t.AskValues(later+quarter*pl.block/askers, end)
				}
			}
			t.Mix()
			if last && pl.finish(t) {
				pl.walk(tiles[i : i+1])
			}
		}
	}
}

// finish ends a tile, and says whether it must be done again.
func (pl *plan) finish(t *tile.Tile) (again bool) {
	if pl.leave != nil {
		pl.leave(t)
		return false
	}
	return t.Finish()
}
