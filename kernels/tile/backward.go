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

// A Backward is the backward pass of a plan. It computes the weights a second time, from Q, K and
// the LSE. Tiles that share a key head go over its keys as in the forward pass, a bundle at a time.
// A block's rows of K, V, dK and dV stay in the cache while a bundle works on it.
//
// A row of dQ is summed block after block, in its tile. A row of dK or dV is summed tile after
// tile, in the caller's tensor. So the bundles of a key head go over a block in order: each waits
// until the one before is done with the block. They run on several workers, at least a block apart;
// bundles of other key heads do not wait for them. So the bits do not depend on which worker runs
// which bundle, and the only sums are the caller's tensors.
type Backward struct {
	ops      *asm.Ops
	p        attn.Problem
	team     *attn.Team
	blocking Blocking
	size     int // most tiles in an item
	workers  [][]*Back
	a        *attn.Args
	g        *attn.Grads
	items    []item
	n        int       // items of this call
	bad      []bool    // [batch][key head]: all gradients are computed by definition
	unsound  []bool    // [batch][key head]: some item so far left queries to the fallback
	checked  []int8    // [batch][key head][block]: 0 not checked; 1 K and V are finite; -1 not
	blocks   int       // blocks of a key head
	last     []int     // [chain]: the last item so far, less than 0 if there is none
	joint    bool      // a chain may have several key heads
	shared   []*Shared // [worker]

	walk func(worker, task int)
}

// An item is one bundle of tiles in the schedule of a call.
type item struct {
	b, kv      int
	first, end int          // tiles: first <= tile < end
	before     int          // the item before it in its chain, less than 0 if it is the first
	begins     bool         // it is the first of its key head
	ends       bool         // it is the last of its key head
	broken     bool         // its gradients are not finite
	passed     atomic.Int64 // the item is done with all keys below this one
}

// itemFloats is the size of an item, in floats.
const itemFloats = int(unsafe.Sizeof(item{})) / 4

// headBytes is the size of last, bad and unsound for one key head.
const headBytes = int(unsafe.Sizeof(0)) + 2

// passedAll is above any key.
const passedAll = math.MaxInt64

// A Blocking holds the sizes into which a backward pass is divided.
type Blocking struct {
	Block   int      // keys in a block
	Tiles   int      // most tiles in a bundle
	Unfused bool     // compute all scores of a block before the first weight
	Pack    asm.Pack // packing of the rows: Packing's for the backward pass
}

// config returns the configuration of the workers' stages.
func (c *Blocking) config() Config { return Config{Block: c.Block, Pack: c.Pack, backward: true} }

// bundle returns the number of tiles in an item: Tiles at most, and few enough that all workers end
// at about the same time. Gradients of score terms are summed item after item, so with such terms
// it does not depend on the number of workers.
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

// bundles returns the largest number of items of one key head.
func bundles(p *attn.Problem, ops *asm.Ops, tiles int) int {
	return (p.Group()*Count(p, ops, p.SeqQ) + tiles - 1) / tiles
}

// BackwardBytes returns the size of a plan's Backward: 0 if its problem wants no gradients.
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

// busy returns the number of a team's workers that can be busy at once.
func busy(p *attn.Problem, ops *asm.Ops, tiles, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsKV*bundles(p, ops, tiles)))
}

// withoutProducts returns the problem without the by-products of the forward pass, except the one
// that has a gradient.
func withoutProducts(p attn.Problem) attn.Problem {
	p.Want &= attn.WantGrad | attn.WantEntropy
	return p
}

// NewBackward allocates a plan's Backward, or returns nil if its problem wants no gradients.
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
		if !w.p.Ragged { // a ragged Q may have rows of no sequence, which must become 0
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
// Items that add to the same numbers form a chain.
func (w *Backward) layOut() {
	p, n := &w.p, 0
	for i := range w.last {
		w.last[i] = -1
	}
	byBatch, byHead := w.separate()
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

// separate reports whether different batch entries, and different key heads, never add to the same
// gradients.
func (w *Backward) separate() (byBatch, byHead bool) {
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
// first item that reaches the block checks, which brings the block into the cache. No other item is
// on the block then.
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
	defer it.passed.Store(passedAll) // also on a panic, or later items would wait for ever
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
		t.LoadRows(w.g)
		t.FindReferences(&w.blocking)
		sound = t.Sound() && sound
		if t.End() > 0 {
			first, end = min(first, t.First(w.blocking.Block)), max(end, t.End())
		}
	}
	terms := &w.g.Terms
	// Then all blocks add to the same numbers.
	if terms.Relative.Data != nil || terms.Bias.Data != nil && terms.Bias.D == 1 {
		w.await(it, passedAll)
	}
	// Then finish may add to the numbers of any block.
	hold := it.ends && w.joint && terms.Bias.Data != nil
	for key := first; key < end; key += w.blocking.Block {
		w.await(it, int64(key+w.blocking.Block))
		finite := w.finite(it, key)
		for _, t := range tiles {
			if t.Block(key, w.blocking.Block) {
				t.RecomputeWeights(w.blocking.Unfused)
				t.AddGradients(finite)
			}
		}
		if !hold {
			it.passed.Store(int64(key + w.blocking.Block))
		}
	}
	for _, t := range tiles {
		it.broken = !t.StoreQueryGradients() || it.broken
	}
	w.await(it, passedAll)
	for _, t := range tiles {
		t.AddTermGradients()
	}
	unsound := &w.unsound[it.pair(p)]
	*unsound = *unsound || !sound
	if it.ends {
		it.broken = !w.shared[worker].finish(w.a, w.g, it.b, it.kv, !*unsound) || it.broken
	}
}

// await waits until the item before it in its chain is done with the keys below key. Items are
// handed out in order, so that item is finished or a worker is running it.
func (w *Backward) await(it *item, key int64) {
	if it.before < 0 {
		return
	}
	for before := &w.items[it.before]; before.passed.Load() < key; {
		runtime.Gosched()
	}
}
