package flash

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// A backward is what a plan has for the backward pass, which makes the weights once more, from Q, K and the LSE. Tiles that share a key head walk over its keys as on the way forward, a bundle at a
// time, and a block's rows of K, V, dK and dV stay in the cache while the bundle is on it.
//
// A row of dQ is summed block after block, in its tile. A row of dK or dV is summed tile after tile, in its place: so the bundles of a key head go over a
// block in their order, each when the one before is done with it. They follow one another at the distance of a block or more, on as many workers as
// there are; bundles of other heads need not wait for them. So the bits do not depend on who does what, and no sums are held but the caller's.
type backward struct {
	kernel
	p       attn.Problem
	team    *attn.Team
	block   int // keys
	size    int // tiles in an item, at most
	workers [][]*tile.Back
	a       *attn.Args
	g       *attn.Grads
	items   []item
	n       int            // items of this call
	sound   []bool         // of each key head of each batch entry: its keys and values are finite,
	bad     []bool         // and it is answered by definition
	last    []int          // of each chain: the last item so far, less than 0 if there is none
	joint   bool           // chains are of several key heads
	shared  []*tile.Shared // of each worker

	look, walk func(worker, task int)
}

// An item is a bundle on its way over the keys.
type item struct {
	b, kv      int
	first, end int          // tiles: first <= tile < end
	before     int          // the item before it in its chain, less than 0 if it is the first
	begins     bool         // it is the first of its key head,
	ends       bool         // or the last
	sound      bool         // no query is left to be answered by definition
	broken     bool         // what came out is not finite
	passed     atomic.Int64 // keys below it are done with
}

// itemFloats is the size of an item, in floats.
const itemFloats = int(unsafe.Sizeof(item{})) / 4

// passedAll is above any key.
const passedAll = math.MaxInt64

// backwardSizes are the sizes of the backward pass: each key has four rows in the cache, and each query five.
//
// Blocks are whole groups of keys for Outer too, whose tiles have six rows.
func backwardSizes(p *attn.Problem, ops *asm.Ops, cache int) (block, tiles int) {
	longest, most := 192, 8
	if side := p.Mask.Block; side >= 64 && side < longest && side%ops.Keys == 0 { // blocks of the bitmap are all or nothing
		longest = side
	}
	row := 8 * max(p.Dim+p.DimV, 1)
	for block = longest; block > ops.Keys && block*row > cache/2; {
		block = max(ops.Keys, block/2/ops.Keys*ops.Keys)
	}
	tiles = (cache*3/4 - block*(row+4*ops.Lanes)) / (ops.Lanes * 4 * max(3*p.Dim+2*p.DimV, 1))
	return block, min(max(tiles, 1), most)
}

// bundle is the number of tiles in an item: no more than there are sizes for, and few enough that all workers end at about the same time.
func (k kernel) bundle(p *attn.Problem, workers int) (block, tiles int) {
	block, tiles = backwardSizes(p, k.ops, k.cache)
	all := p.Group() * tile.Count(p, k.ops, p.SeqQ)
	tiles = max(1, min(tiles, all))
	if terms := p.Score.Terms; workers > 1 && terms == 0 { // what terms share is summed item after item
		tiles = min(tiles, max(p.Batch*p.HeadsKV*all/(4*workers), 1))
	}
	return block, tiles
}

// bundles is the number of items of one key head, at most.
func (k kernel) bundles(p *attn.Problem, tiles int) int {
	return (p.Group()*tile.Count(p, k.ops, p.SeqQ) + tiles - 1) / tiles
}

// checkBackward is the size of what a plan holds for the backward pass.
func (k kernel) checkBackward(p *attn.Problem, workers int) (int64, error) {
	if p.Want&attn.WantGrad == 0 {
		return 0, nil
	}
	own := withoutProducts(*p)
	block, tiles := k.bundle(&own, workers)
	items, err := attn.Floats(p.Batch, p.HeadsKV, k.bundles(&own, tiles), itemFloats)
	if err != nil {
		return 0, err
	}
	scratch, err := attn.Floats(k.busy(&own, tiles, workers), tiles*tile.BackFloats(&own, k.ops)+tile.SharedFloats(&own, k.ops, block)+tile.StageFloats(&own, block))
	return items + scratch, err
}

// busy is how many of a team's workers can be busy at once.
func (k kernel) busy(p *attn.Problem, tiles, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsKV*k.bundles(p, tiles)))
}

// withoutProducts is the problem without by-products, which tiles would make once more, but for that which has a gradient.
func withoutProducts(p attn.Problem) attn.Problem {
	p.Want &= attn.WantGrad | attn.WantEntropy
	return p
}

func (k kernel) planBackward(p attn.Problem, team *attn.Team) *backward {
	if p.Want&attn.WantGrad == 0 {
		return nil
	}
	w := &backward{kernel: k, p: withoutProducts(p), team: team}
	block, tiles := k.bundle(&w.p, team.Workers())
	w.block, w.size = block, tiles
	w.items = make([]item, p.Batch*p.HeadsKV*k.bundles(&w.p, tiles))
	heads := p.Batch * p.HeadsKV
	w.last, w.sound, w.bad = make([]int, heads), make([]bool, heads), make([]bool, heads)
	w.look, w.walk = w.lookAt, w.walkItem
	for range k.busy(&w.p, tiles, team.Workers()) {
		shared, stage := tile.NewShared(&w.p, k.ops, block), tile.NewStage(&w.p, k.ops, block)
		own := make([]*tile.Back, tiles)
		for i := range own {
			own[i] = tile.NewBack(&w.p, k.ops, stage, shared)
		}
		w.workers, w.shared = append(w.workers, own), append(w.shared, shared)
	}
	return w
}

func (w *backward) backward(a *attn.Args, g *attn.Grads) {
	w.a, w.g = a, g
	w.team.Run(w.p.Batch*w.p.HeadsKV, w.look)
	for again := true; again; {
		again = false
		g.Begin()
		w.layOut()
		w.team.Run(w.n, w.walk)
		for i := range w.items[:w.n] {
			if it := &w.items[i]; it.broken {
				w.bad[it.pair(&w.p)], again = true, true
			}
		}
	}
	w.a, w.g = nil, nil
}

func (it *item) pair(p *attn.Problem) int { return it.b*p.HeadsKV + it.kv }

// layOut lists the items: the first bundles of all key heads, then the second ones, and so on. Those that add to the same numbers are a chain.
func (w *backward) layOut() {
	p, n := &w.p, 0
	for i := range w.last {
		w.last[i] = -1
	}
	byBatch, byHead := w.apart()
	w.joint = !byBatch || !byHead
	for at, more := 0, true; more; at++ {
		more = false
		for b := range p.Batch {
			tiles := p.Group() * tile.Count(p, w.ops, w.a.Queries(p, b))
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
				it.begins, it.ends, it.sound, it.broken = at == 0, at == bundles-1, true, false
				it.before, w.last[chain] = w.last[chain], n
				it.passed.Store(0)
				n++
				more = true
			}
		}
	}
	w.n = n
}

// apart is whether batch entries, and key heads, add to gradients of their own.
func (w *backward) apart() (byBatch, byHead bool) {
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

// lookAt looks whether the keys and values of a key head are finite.
func (w *backward) lookAt(_, task int) {
	p, a := &w.p, w.a
	b, kv := task/p.HeadsKV, task%p.HeadsKV
	at, row := a.KRow(p, b, 0)
	w.bad[task] = false
	w.sound[task] = tile.Finite(w.ops, &a.K, at, row, kv, a.Keys(p, b)) && tile.Finite(w.ops, &a.V, at, row, kv, a.Keys(p, b))
}

// walkItem takes the tiles of an item over the keys that they see.
func (w *backward) walkItem(worker, task int) {
	it, p := &w.items[task], &w.p
	defer it.passed.Store(passedAll) // however it ends: nobody is to wait for ever
	if w.bad[it.pair(p)] {
		w.await(it, passedAll)
		if it.begins {
			w.shared[worker].ByDefinition(w.a, w.g, it.b, it.kv)
		}
		return
	}
	tiles := w.workers[worker][:it.end-it.first]
	first, end := p.SeqKV, 0
	for i, t := range tiles {
		row, h := (it.first+i)/p.Group(), (it.first+i)%p.Group()
		t.At(w.a, it.b, it.kv*p.Group()+h, row)
		t.Recall(w.g, w.sound[it.pair(p)])
		it.sound = t.Sound() && it.sound
		if t.End() > 0 {
			first, end = min(first, t.First(w.block)), max(end, t.End())
		}
	}
	terms := &w.g.Terms
	if terms.Relative.Data != nil || terms.Bias.Data != nil && terms.Bias.D == 1 { // all blocks add to the same numbers
		w.await(it, passedAll)
	}
	hold := it.ends && w.joint && terms.Bias.Data != nil // what is done at the end may add to any
	for key := first; key < end; key += w.block {
		w.await(it, key+w.block)
		for _, t := range tiles {
			if t.Block(key, w.block) {
				t.Weights()
				t.Share()
			}
		}
		if !hold {
			it.passed.Store(int64(key + w.block))
		}
	}
	for _, t := range tiles {
		it.broken = !t.Return() || it.broken
	}
	w.await(it, passedAll)
	for _, t := range tiles {
		t.Settle()
	}
	if it.ends {
		sound := true
		for i := range w.items[:task+1] {
			if before := &w.items[i]; before.b == it.b && before.kv == it.kv {
				sound = before.sound && sound
			}
		}
		it.broken = !w.shared[worker].Finish(w.a, w.g, it.b, it.kv, sound) || it.broken
	}
}

// await waits until the item before is done with the keys below one. A worker has it in hand, or it is over: items are handed out in order.
func (w *backward) await(it *item, key int) {
	if it.before < 0 {
		return
	}
	for before := &w.items[it.before]; before.passed.Load() < int64(key); {
		runtime.Gosched()
	}
}
