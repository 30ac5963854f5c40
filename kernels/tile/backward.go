package tile

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// A Backward is what a plan has for the backward pass, which computes the weights once more, from
// Q, K and the LSE. Tiles that share a key head go over its keys as in the forward pass, a bundle
// at a time, and a block's rows of K, V, dK and dV stay in the cache while the bundle is on it.
//
// A row of dQ is summed block after block, in its tile. A row of dK or dV is summed tile after
// tile, in its place. So the bundles of a key head go over a block in order, each when the one
// before is done with it. They follow one another at the distance of a block or more, on several
// workers; bundles of other heads do not wait for them. So the bits do not depend on which worker
// does what, and no sums are held but the caller's.
type Backward struct {
	ops      *asm.Ops
	p        attn.Problem
	team     *attn.Team
	blocking Blocking
	size     int // tiles in an item, at most
	workers  [][]*Back
	a        *attn.Args
	g        *attn.Grads
	items    []item
	n        int       // items of this call
	bad      []bool    // of each key head of each batch entry: it is answered by definition
	unsound  []bool    // of each: some of its queries are answered by definition, of the items so far
	checked  []int8    // of each of its blocks: 1 if keys and values are finite, -1 if not, 0 before it is checked
	blocks   int       // in a key head
	last     []int     // of each chain: the last item so far, less than 0 if there is none
	joint    bool      // chains are of several key heads
	shared   []*Shared // of each worker

	walk func(worker, task int)
}

// An item is a bundle of tiles that go over the keys.
type item struct {
	b, kv      int
	first, end int          // tiles: first <= tile < end
	before     int          // the item before it in its chain, less than 0 if it is the first
	begins     bool         // it is the first of its key head
	ends       bool         // it is the last of its key head
	broken     bool         // its gradients are not finite
	passed     atomic.Int64 // it is done with the keys below
}

// itemFloats is the size of an item, in floats.
const itemFloats = int(unsafe.Sizeof(item{})) / 4

// headBytes is the size of what is kept of a key head besides checked: last, bad and unsound.
const headBytes = int(unsafe.Sizeof(0)) + 2

// passedAll is above any key.
const passedAll = math.MaxInt64

// A Blocking says into which pieces a backward pass is divided.
type Blocking struct {
	Block   int      // keys in a block
	Tiles   int      // tiles that go over a block together, at most
	Unfused bool     // scores are finished before the first becomes a weight
	Pack    asm.Pack // of the rows: Packing's for the backward pass
}

// config returns that of the workers' stages.
func (c *Blocking) config() Config { return Config{Block: c.Block, Pack: c.Pack, backward: true} }

// bundle returns the number of tiles in an item: Tiles at most, and few enough that all workers end
// at about the same time. What terms share is summed item after item, so there it may not depend on
// the workers.
//
// Tuning: docs/tuning.md#backward-items
func (c *Blocking) bundle(p *attn.Problem, ops *asm.Ops, workers int) (tiles int) {
	all := p.Group() * Count(p, ops, p.SeqQ)
	if p.Score.Terms != 0 {
		workers = 4
	}
	tiles = c.Tiles
	if workers > 1 {
		tiles = min(tiles, max(p.Batch*p.HeadsKV*all/(16*workers), 2))
	}
	return max(1, min(tiles, all))
}

// blocks returns the number of blocks of a key head.
func (c *Blocking) blocks(p *attn.Problem) int { return (p.SeqKV + c.Block - 1) / c.Block }

// bundles returns the number of items of one key head, at most.
func bundles(p *attn.Problem, ops *asm.Ops, tiles int) int {
	return (p.Group()*Count(p, ops, p.SeqQ) + tiles - 1) / tiles
}

// BackwardBytes returns the size of what a plan holds for the backward pass: 0 if its problem wants
// no gradients.
func BackwardBytes(p *attn.Problem, ops *asm.Ops, c Blocking, workers int) (int64, error) {
	if p.Want&attn.WantGrad == 0 {
		return 0, nil
	}
	own := withoutProducts(*p)
	tiles := c.bundle(&own, ops, workers)
	items, err := attn.Floats(p.Batch, p.HeadsKV, bundles(&own, ops, tiles), itemFloats)
	if err != nil {
		return 0, err
	}
	heads, err := attn.Floats(p.Batch, p.HeadsKV, (headBytes+c.blocks(p)+3)/4)
	if err != nil {
		return 0, err
	}
	scratch, err := attn.Floats(busy(&own, ops, tiles, workers), tiles*BackFloats(&own, ops, c.Pack)+SharedFloats(&own, ops, c.Block)+StageFloats(&own, ops, c.config()))
	return items + heads + scratch, err
}

// busy returns how many of a team's workers can be busy at once.
func busy(p *attn.Problem, ops *asm.Ops, tiles, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsKV*bundles(p, ops, tiles)))
}

// withoutProducts returns the problem without by-products, which tiles would compute once more,
// except the one that has a gradient.
func withoutProducts(p attn.Problem) attn.Problem {
	p.Want &= attn.WantGrad | attn.WantEntropy
	return p
}

// NewBackward allocates what a plan holds for the backward pass, nil if its problem wants no
// gradients.
func NewBackward(p attn.Problem, ops *asm.Ops, c Blocking, team *attn.Team) *Backward {
	if p.Want&attn.WantGrad == 0 {
		return nil
	}
	w := &Backward{ops: ops, p: withoutProducts(p), team: team, blocking: c}
	w.size = c.bundle(&w.p, ops, team.Workers())
	w.items = make([]item, p.Batch*p.HeadsKV*bundles(&w.p, ops, w.size))
	heads := p.Batch * p.HeadsKV
	w.blocks = c.blocks(&w.p)
	w.last, w.bad, w.unsound, w.checked = make([]int, heads), make([]bool, heads), make([]bool, heads), make([]int8, heads*w.blocks)
	w.walk = w.walkItem
	for range busy(&w.p, ops, w.size, team.Workers()) {
		shared, stage := NewShared(&w.p, ops, c.Block), NewStage(&w.p, ops, c.config())
		own := make([]*Back, w.size)
		for i := range own {
			own[i] = NewBack(&w.p, ops, stage, shared)
		}
		w.workers, w.shared = append(w.workers, own), append(w.shared, shared)
	}
	return w
}

// Run computes the gradients of a call whose operands have been checked.
func (w *Backward) Run(a *attn.Args, g *attn.Grads) {
	w.a, w.g = a, g
	clear(w.bad)
	clear(w.checked)
	for again := true; again; {
		again = false
		clear(w.unsound)
		sums := *g
		if !w.p.Ragged { // else there may be rows of no sequence
			sums.Q = attn.Tensor{}
		}
		sums.Begin()
		w.layOut()
		w.team.Run(w.n, w.walk)
		for i := range w.items[:w.n] {
			if it := &w.items[i]; it.broken {
				w.bad[it.pair(&w.p)], again = true, true
			}
		}
	}
}

func (it *item) pair(p *attn.Problem) int { return it.b*p.HeadsKV + it.kv }

// layOut lists the items: the first bundles of all key heads, then the second ones, and so on.
// Items that add to the same numbers are a chain.
func (w *Backward) layOut() {
	p, n := &w.p, 0
	for i := range w.last {
		w.last[i] = -1
	}
	byBatch, byHead := w.apart()
	w.joint = !byBatch || !byHead
	for at, more := 0, true; more; at++ {
		more = false
		for b := range p.Batch {
			tiles := p.Group() * Count(p, w.ops, w.a.Queries(p, b))
			bundles := (tiles + w.size - 1) / w.size
			for kv := 0; kv < p.HeadsKV && at < bundles; kv++ {
				chain := 0
				if byBatch {
					chain = b * p.HeadsKV
				}
				if byHead {
					chain += kv
				}
				it := &w.items[n]
				it.b, it.kv, it.first, it.end = b, kv, at*tiles/bundles, (at+1)*tiles/bundles
				it.begins, it.ends, it.broken = at == 0, at == bundles-1, false
				it.before, w.last[chain] = w.last[chain], n
				it.passed.Store(0)
				n++
				more = true
			}
		}
	}
	w.n = n
}

// apart reports whether batch entries, and key heads, add to gradients of their own.
func (w *Backward) apart() (byBatch, byHead bool) {
	p, t := &w.p, &w.g.Terms
	one := p.Batch == 1
	byBatch, byHead = true, true
	if t.Slopes != nil || t.Sinks != nil {
		byBatch = one
	}
	for _, o := range [...]*attn.Tensor{&t.Relative, &t.Metric} {
		if o.Data != nil {
			byBatch, byHead = one, byHead && o.H == p.HeadsQ
		}
	}
	if o := &t.Bias; o.Data != nil {
		byBatch, byHead = byBatch && o.B == p.Batch, byHead && o.H == p.HeadsQ
	}
	return byBatch, byHead
}

// finite reports whether the keys and values of the block that begins at a key are finite. The
// first item that comes to the block checks, which brings it into the cache; no other is on the
// block then.
func (w *Backward) finite(it *item, key int) bool {
	p, a := &w.p, w.a
	known := &w.checked[it.pair(p)*w.blocks+key/w.blocking.Block]
	if *known == 0 {
		at, row := a.KRow(p, it.b, key)
		n := min(w.blocking.Block, a.Keys(p, it.b)-key)
		if *known = -1; operand.Finite(w.ops, &a.K, at, row, it.kv, n) && operand.Finite(w.ops, &a.V, at, row, it.kv, n) {
			*known = 1
		}
	}
	return *known > 0
}

// walkItem takes the tiles of an item over the keys that they see, block after block.
func (w *Backward) walkItem(worker, task int) {
	it, p := &w.items[task], &w.p
	defer it.passed.Store(passedAll) // however it ends: no other item is to wait for ever
	if w.bad[it.pair(p)] {
		w.await(it, passedAll)
		if it.begins {
			w.shared[worker].byDefinition(w.a, w.g, it.b, it.kv)
		}
		return
	}
	tiles := w.workers[worker][:it.end-it.first]
	first, end, sound := p.SeqKV, 0, true
	for i, t := range tiles {
		row, h := (it.first+i)/p.Group(), (it.first+i)%p.Group()
		t.At(w.a, it.b, it.kv*p.Group()+h, row)
		t.Recall(w.g)
		t.Renormalise(&w.blocking)
		sound = t.Sound() && sound
		if t.End() > 0 {
			first, end = min(first, t.First(w.blocking.Block)), max(end, t.End())
		}
	}
	terms := &w.g.Terms
	// all blocks add to the same numbers
	if terms.Relative.Data != nil || terms.Bias.Data != nil && terms.Bias.D == 1 {
		w.await(it, passedAll)
	}
	hold := it.ends && w.joint && terms.Bias.Data != nil // what is done at the end may add to any
	for key := first; key < end; key += w.blocking.Block {
		w.await(it, int64(key+w.blocking.Block))
		finite := w.finite(it, key)
		for _, t := range tiles {
			if t.Block(key, w.blocking.Block) {
				t.Reweigh(w.blocking.Unfused)
				t.Share(finite)
			}
		}
		if !hold {
			it.passed.Store(int64(key + w.blocking.Block))
		}
	}
	for _, t := range tiles {
		it.broken = !t.Return() || it.broken
	}
	w.await(it, passedAll)
	for _, t := range tiles {
		t.Settle()
	}
	unsound := &w.unsound[it.pair(p)]
	*unsound = *unsound || !sound
	if it.ends {
		it.broken = !w.shared[worker].finish(w.a, w.g, it.b, it.kv, !*unsound) || it.broken
	}
}

// await waits until the item before is done with the keys below one. Items are handed out in order,
// so that item is over, or a worker is at it.
func (w *Backward) await(it *item, key int64) {
	if it.before < 0 {
		return
	}
	for before := &w.items[it.before]; before.passed.Load() < key; {
		runtime.Gosched()
	}
}
