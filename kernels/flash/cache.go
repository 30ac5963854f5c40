package flash

import (
	"math/bits"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// Rows of K and V are read where they lie and as they are stored: float32 or less, after one another or in pages. Keys that lie evenly spaced are a
// run, which one call of a loop can take. A chunk of several runs has the bits of one: a score is a key's own, and sums go on from run to run.

// A cache is the keys and values of one key head.
type cache struct {
	k, v  pool
	pages []int32     // of the batch entry; nil: keys lie after one another
	shift int         // a key's page is key>>shift
	stage *tile.Stage // of keys that have to be turned
}

// pool is one of the two.
type pool struct {
	asm.Cells     // from key 0 on, or from the first page of the pool on
	d, page   int // elements in a row, and from one page to the next
}

// open finds the keys and values of a key head.
func (c *cache) open(p *attn.Problem, a *attn.Args, b, kv int) {
	at, row := 0, 0
	if c.pages = nil; p.Page != 0 {
		c.pages, c.shift = a.Pages[b*p.PagesEach():], bits.TrailingZeros(uint(p.Page))
	} else if a.Keys(p, b) > 0 {
		at, row = a.KRow(p, b, 0)
	}
	if c.stage != nil {
		c.stage.Forget()
	}
	c.k = pool{tile.Cells(&a.K, at, row, kv), a.K.D, a.K.SB}
	c.v = pool{tile.Cells(&a.V, at, row, kv), a.V.D, a.V.SB}
}

// take makes rows begin at a key of a pool.
func (c *cache) take(rows *asm.Cells, from *pool, key int) {
	if from.d == 0 {
		return
	}
	at := key * from.Stride
	if c.pages != nil {
		at = int(c.pages[key>>c.shift])*from.page + key&(1<<c.shift-1)*from.Stride
	}
	switch from.Type {
	case asm.F32:
		rows.Data = from.Data[at:]
	case asm.F16, asm.BF16:
		rows.Half = from.Half[at:]
	case asm.I8:
		rows.Byte, rows.Scale = from.Byte[at:], from.Scale[at/from.d:]
	}
}

// run is the number of keys from one on, and before another, that lie evenly spaced: to the end of the page, and through pages that follow it in the
// pool. On a Xeon (family 6, model 207), float32 pages of 16 keys in order (AVX-512, [page, row, head, dim], d = 128) ran at 1.00 of keys without
// pages, and at .92 page by page.
func (c *cache) run(key, end int) int {
	if c.pages == nil {
		return end - key
	}
	size := 1 << c.shift
	to := key&^(size-1) + size
	for c.k.page == size*c.k.Stride && c.v.page == size*c.v.Stride && to < end && c.pages[to>>c.shift] == c.pages[to>>c.shift-1]+1 {
		to += size
	}
	return min(to, end) - key
}

// ask asks for the keys from one to another, which may begin anew at every page: what brings rows that follow one another to the cache before they are
// read does not see a jump coming.
func (d *decoder) ask(w *fewWorker, key, end int) {
	w.K, w.V = w.k.Cells, w.v.Cells
	for n := 0; key < end; key += n {
		n = w.run(key, end)
		w.take(&w.K, &w.k, key)
		w.take(&w.V, &w.v, key)
		d.ops.Ask(&w.K, n)
		d.ops.Ask(&w.V, n)
	}
}

// dot computes the scores of n keys, run by run. The values of a run are asked for meanwhile. Keys that have to be turned are, first.
func (d *decoder) dot(w *fewWorker, b, kv, key, n int) {
	if w.stage != nil {
		w.K = asm.Cells{Rows: w.stage.K(d.a, b, kv, key, n)}
		w.Next = w.K
		d.ops.Dot(&w.Few)
		return
	}
	scores, next := w.P, &w.v
	if w.k.Stride != w.v.Stride {
		next = &w.k
	}
	w.K, w.Next = w.k.Cells, next.Cells
	for at := 0; at < n; at += w.N {
		w.N, w.P = w.run(key+at, key+n), scores[at:]
		w.take(&w.K, &w.k, key+at)
		w.take(&w.Next, next, key+at)
		d.ops.Dot(&w.Few)
	}
	w.N, w.P = n, scores
}

// sum adds the values of n keys, run by run. The keys that are as far into the next chunk are asked for meanwhile.
func (d *decoder) sum(w *fewWorker, key, n, keys int) {
	if d.careful {
		w.V = asm.Cells{Rows: asm.Rows{Data: w.clean, Stride: d.p.DimV}}
		w.Next = w.V
		d.ops.Sum(&w.Few)
		return
	}
	weights, out, next := w.P, w.O, &w.k
	if w.k.Stride != w.v.Stride {
		next = &w.v
	}
	whole := w.run(key, key+n) == n
	if !whole {
		w.O, w.Resume = asm.Rows{Data: w.sums, Stride: w.C}, true
		clear(w.sums[:w.R*w.C])
	}
	w.V, w.Next = w.v.Cells, next.Cells
	for at := 0; at < n; at += w.N {
		w.N, w.P = w.run(key+at, key+n), weights[at:]
		w.take(&w.V, &w.v, key+at)
		w.take(&w.Next, next, min(key+at+d.chunk, keys-1))
		d.ops.Sum(&w.Few)
	}
	w.N, w.P, w.O, w.Resume = n, weights, out, false
	if !whole {
		d.addSums(w)
	}
}

// addSums adds the sums of a chunk to the output, as if they were one key of weight 1: that loop is at hand, and faster than one in Go.
func (d *decoder) addSums(w *fewWorker) {
	rows, out, keys, weights := w.R, w.O, w.N, w.P
	w.R, w.N, w.P = 1, 1, one[:]
	for r := range rows {
		w.V = asm.Cells{Rows: asm.Rows{Data: w.sums[r*w.C:]}}
		w.Next = w.V
		w.O.Data = out.Data[r*out.Stride:]
		d.ops.Sum(&w.Few)
	}
	w.R, w.O, w.N, w.P = rows, out, keys, weights
}

var one = [1]float32{1}

// sums is the size of a worker's sums over keys that lie apart.
func sums(p *attn.Problem) int {
	if p.Page == 0 {
		return 0
	}
	return p.Group() * p.SeqQ * p.DimV
}
