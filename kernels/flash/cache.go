package flash

import (
	"math/bits"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// Rows of K and V are read where they lie and as they are stored: float32 or less, after one another or in pages. A chunk of keys is one run or, where
// pages are shorter, a run for each; loops take all of a chunk's runs in one call, with the bits of one run.

// A cache is the keys and values of one key head.
type cache struct {
	k, v  pool
	pages []int32     // of the batch entry; nil: keys lie after one another
	shift int         // a key's page is key>>shift
	run   int         // keys in a run
	stage *tile.Stage // of keys that have to be turned
}

// pool is one of the two.
type pool struct {
	asm.Cells               // from key 0 on, or from the first page of the pool on
	page, pageScales int    // elements, and scales, from one page to the next
	now, next        places // of the chunk in hand, and of the one after it
}

// places are where the runs of a chunk begin: in elements, and in scales.
type places struct{ at, scales []int }

// runs is the number of runs in a chunk.
func runs(p *attn.Problem) int {
	if p.Page == 0 {
		return 1
	}
	return max(1, chunkOf(p)/p.Page)
}

func newCache(p *attn.Problem) cache {
	n := runs(p)
	pool := func() pool {
		places := func() places { return places{make([]int, n), make([]int, n)} }
		return pool{now: places(), next: places()}
	}
	return cache{k: pool(), v: pool(), run: chunkOf(p) / n}
}

// cacheFloats is the size of its places, in floats.
func cacheFloats(p *attn.Problem) int { return 2 * 8 * runs(p) }

// open finds the keys and values of a key head, and where the chunk that begins with a key lies.
func (c *cache) open(p *attn.Problem, a *attn.Args, b, kv, key, keys int) {
	at, row := 0, 0
	if c.pages = nil; p.Page != 0 {
		c.pages, c.shift = a.Pages[b*p.PagesEach():], bits.TrailingZeros(uint(p.Page))
	} else if a.Keys(p, b) > 0 {
		at, row = a.KRow(p, b, 0)
	}
	if c.stage != nil {
		c.stage.Forget()
	}
	c.k.open(&a.K, at, row, kv)
	c.v.open(&a.V, at, row, kv)
	c.find(key, keys)
}

func (p *pool) open(t *attn.Tensor, b, s, h int) {
	p.Cells, p.page, p.pageScales = tile.Cells(t, b, s, h), t.SB, t.SB/max(t.D, 1)
	if t.D == 0 {
		p.page, p.Stride = 0, 0
	}
}

// find makes the chunk that was next the one in hand, and finds the one that begins with a key.
func (c *cache) find(key, keys int) {
	for _, p := range [...]*pool{&c.k, &c.v} {
		p.now, p.next = p.next, p.now
		for i := range p.next.at {
			page, row := 0, min(key+i*c.run, keys-1)
			if c.pages != nil {
				page, row = int(c.pages[row>>c.shift]), row&(1<<c.shift-1)
			}
			p.next.at[i] = page*p.page + row*p.Stride
			p.next.scales[i] = page*p.pageScales + row*p.ScaleStride
		}
	}
}

// ask asks for the keys of the next chunk where they begin anew at every page: what brings rows that follow one another to the cache before they are
// read does not see a jump coming. Rows with those of other heads between them jump all the time, and are not asked for: that left float32 pages of 16
// as fast as they were, and slowed int8's to .86.
func (d *decoder) ask(w *fewWorker) {
	if w.pages == nil || w.k.Stride != d.p.Dim {
		return
	}
	d.ops.Ask(&w.k.Cells, w.k.next.at, w.k.next.scales, w.run)
	d.ops.Ask(&w.v.Cells, w.v.next.at, w.v.next.scales, w.run)
}

// dot computes the scores of a chunk. Its values are asked for meanwhile. Keys that have to be turned are, first.
func (d *decoder) dot(w *fewWorker, b, kv, key, n int) {
	if w.stage != nil {
		w.K = asm.Cells{Rows: w.stage.K(d.a, b, kv, key, n)}
		w.Next, w.Run = w.K, 0
		d.ops.Dot(&w.Few)
		return
	}
	w.K, w.Next = w.k.Cells, w.v.Cells
	w.Run, w.At, w.Scales, w.NextAt = w.run, w.k.now.at, w.k.now.scales, w.v.now.at
	if w.k.Stride != w.v.Stride {
		w.Next, w.NextAt = w.K, w.k.next.at
	}
	d.ops.Dot(&w.Few)
}

// sum adds the values of a chunk. The keys of the next one are asked for meanwhile.
func (d *decoder) sum(w *fewWorker) {
	if d.careful {
		w.V = asm.Cells{Rows: asm.Rows{Data: w.clean, Stride: d.p.DimV}}
		w.Next, w.Run = w.V, 0
		d.ops.Sum(&w.Few)
		return
	}
	w.V, w.Next = w.v.Cells, w.k.Cells
	w.Run, w.At, w.Scales, w.NextAt = w.run, w.v.now.at, w.v.now.scales, w.k.next.at
	if w.k.Stride != w.v.Stride {
		w.Next, w.NextAt = w.V, w.v.next.at
	}
	d.ops.Sum(&w.Few)
}
