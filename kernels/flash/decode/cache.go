package decode

import (
	"math/bits"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// Rows of K and V are read in place and as they are stored: in float32 or less, contiguous or in
// pages. The keys of a split are divided into runs, each in one page. Loops read all runs of a
// split in one call, with the bits of one run. While they read a run they prefetch a run some KiB
// ahead. So nothing waits at the end of a page, or where values follow keys and one head another.

// A cache locates the keys and values of the key heads of a task.
type cache struct {
	heads      []head
	k, v       pool
	pages      []int32 // pages of the batch entry; nil: keys are contiguous
	shift      int     // a key's page is key>>shift
	interleave int     // heads whose runs are interleaved
	run        int     // keys in a run
	ahead      ahead
	size       uintptr   // bytes of an element
	runs       []uintptr // addresses of the runs that are read, and of the runs after them
	lines      []uintptr // addresses of the scales of the runs after them; nil: there are no scales
}

// ahead describes what is prefetched while a run is read.
type ahead struct {
	runs  int // distance, in runs, of the run that is prefetched
	touch int // distance, in runs, of the run whose pages of memory are touched
	pages int // number of these pages
}

// A head holds the rows of a key head, starting at key 0 or at the first page of the pool.
type head struct{ k, v asm.Cells }

// A pool describes how the rows of K, or of V, of all heads are stored.
type pool struct {
	row, page, head distance // distance from one row, page or head to the next
	now, next       places   // places of the runs that are read, and of the runs after them
}

// A distance is a number of elements, and of scales.
type distance struct{ at, scales int }

// places are the starts of runs, as indices of elements and of scales.
type places struct{ at, scales []int }

// Sizes in bytes of a run that does not end with its page, and distances of its prefetches. Runs
// are prefetched early enough for rows to arrive from memory, and late enough for the cache to keep
// them. Loops that read less than wideVector bytes at a time keep the CPU busier, and need rows
// earlier. touchAhead bytes ahead, a run is touched once in each page of memory, so that its
// addresses are translated before its rows are prefetched.
//
// A long run has fewer sums to load and store; a short one has less to wait for at its end. Loops
// that prefetch nothing suit a CPU that prefetches streams by itself, which it does best where many
// pages are touched together.
//
// Tuning: docs/tuning.md#decode-runs
const (
	shortRun   = 4 << 10
	longRun    = 16 << 10
	streamRun  = 128 << 10
	wideVector = 32
	touchAhead = 48 << 10
	memoryPage = 4 << 10
	line       = 64
)

// runOf returns the number of keys in a run of at most longest bytes, and its bytes.
func runOf(p *attn.Problem, longest int) (run, bytes int) {
	run = splitKeys
	row := p.KV.Bytes() * max(p.Dim, 1)
	if p.Page != 0 {
		run = min(run, p.Page)
	}
	for run > 4 && run*row > longest {
		run /= 2
	}
	return run, run * row
}

// mostRuns returns the largest number of runs that a task reads together, and that it touches
// ahead.
func mostRuns(p *attn.Problem) (read, touch int) {
	run, bytes := runOf(p, shortRun)
	return max(splitLimit(p), headLimit(p)) * splitKeys / run, cover(touchAhead, bytes)
}

func newCache(p *attn.Problem) cache {
	n, touch := mostRuns(p)
	newPool := func() pool {
		newPlaces := func() places { return places{make([]int, n), make([]int, n)} }
		return pool{now: newPlaces(), next: newPlaces()}
	}
	c := cache{
		heads: make([]head, p.HeadsKV), k: newPool(), v: newPool(), size: uintptr(p.KV.Bytes()),
		runs: make([]uintptr, n+touch),
	}
	if p.KV == attn.I8 {
		c.lines = make([]uintptr, n)
	}
	return c
}

// cacheFloats returns the size of the heads and places of a cache, in float32 numbers.
func cacheFloats(p *attn.Problem) int {
	n, touch := mostRuns(p)
	return p.HeadsKV*int(unsafe.Sizeof(head{}))/4 + 2*(10*n+touch)
}

// fit chooses the length of runs and the distance of prefetches that suit the loops and interleaved
// heads.
func (c *cache) fit(p *attn.Problem, loops *asm.Ops, interleaved bool) {
	reach, longest := loops.Tuning.Ahead, shortRun
	switch {
	case reach == 0:
		longest = streamRun
	case reach > shortRun && (reach >= longRun || rowsTogether(p) > 1) && !interleaved:
		longest = longRun
	}
	if loops.Shape.Vec*p.KV.Bytes() < wideVector {
		reach *= 2
	}
	run, bytes := runOf(p, longest)
	c.run, c.ahead = run, ahead{cover(reach, bytes), cover(touchAhead, bytes), cover(bytes, memoryPage)}
}

// open locates the keys and values of a task's heads, interleave of which are interleaved. It finds
// the runs of keys first..end-1 and, as far as they are prefetched or touched, the runs of the next
// split.
func (c *cache) open(p *attn.Problem, a *attn.Args, t *task, interleave, first, end int) {
	at, row, keys := 0, 0, a.Keys(p, t.b)
	c.interleave = interleave
	if c.pages = nil; p.Page != 0 {
		c.pages, c.shift = a.Pages[t.b*p.PagesEach():], bits.TrailingZeros(uint(p.Page))
	} else if keys > 0 {
		at, row = a.KRow(p, t.b, 0)
	}
	c.heads = c.heads[:t.heads]
	for i := range c.heads {
		c.heads[i] = head{operand.Cells(&a.K, at, row, t.kv+i), operand.Cells(&a.V, at, row, t.kv+i)}
	}
	c.k.measure(&a.K)
	c.v.measure(&a.V)
	n := cover(end-first, c.run) * interleave
	ahead := min(c.ahead.touch, len(c.k.next.at))
	if c.lines != nil {
		ahead = max(ahead, n)
	}
	c.find(&c.k.now, &c.v.now, max(n, ahead), first, keys)
	c.find(&c.k.next, &c.v.next, ahead, (t.split+t.splits)*splitKeys, keys)
}

// measure sets the distances of a tensor.
func (p *pool) measure(t *attn.Tensor) {
	p.row, p.page, p.head = distance{}, distance{}, distance{}
	if t.D > 0 {
		p.row, p.page, p.head = distance{t.SS, t.SS / t.D}, distance{t.SB, t.SB / t.D}, distance{t.SH, t.SH / t.D}
	}
}

// find finds n runs of K and of V, starting with the run that begins at key. A run that would begin
// after the last key gets the place of the last key.
func (c *cache) find(k, v *places, n, key, keys int) {
	for i := 0; i < n; key += c.run {
		page, row := 0, min(key, keys-1)
		if c.pages != nil {
			page, row = int(c.pages[row>>c.shift]), row&(1<<c.shift-1)
		}
		for h := 0; h < c.interleave && i < n; h++ {
			c.k.place(k, i, page, row, h)
			c.v.place(v, i, page, row, h)
			i++
		}
	}
}

func (p *pool) place(to *places, i, page, row, head int) {
	to.at[i] = page*p.page.at + row*p.row.at + head*p.head.at
	to.scales[i] = page*p.page.scales + row*p.row.scales + head*p.head.scales
}

// read sets a loop's runs to runs of K or V, starting at key from of the block.
func (c *cache) read(w *asm.Walk, of *asm.Cells, runs places, from int) {
	first, n := from/c.run*c.interleave, cover(w.N, c.run)*c.interleave
	w.Cache = *of
	w.Run, w.At, w.Scales = c.run, runs.at[first:][:n], runs.scales[first:][:n]
	base := of.Address(0)
	for i, x := range w.At {
		c.runs[i] = base + c.size*uintptr(x)
	}
}

// prefetch sets what a loop prefetches while it reads its runs: later runs of its own, and then the
// runs that are read next, starting at key from of the block. It also touches the scales of the
// latter.
func (c *cache) prefetch(w *asm.Walk, next *asm.Cells, runs places, from int) {
	n, first, last := len(w.At), from/c.run*c.interleave, len(runs.at)-1
	base := next.Address(0)
	for i := range c.ahead.touch {
		c.runs[n+i] = base + c.size*uintptr(runs.at[min(first+i, last)])
	}
	w.Ahead, w.Far, w.FarPages = c.runs[c.ahead.runs:], c.runs[c.ahead.touch:], c.ahead.pages
	if c.lines != nil {
		for i := range n {
			c.lines[i] = next.ScaleAddress(runs.scales[min(first+i, last)])
		}
		w.FarScale = c.lines
	}
}

// prefetchValues returns the prefetch of Weigh, starting at key from of a block. It prefetches
// values that Dot has not prefetched, nor Weigh for earlier keys, nor for earlier heads that are
// interleaved with this one. All weights of a block together prefetch at most one line for each
// step, and at most what the cache has room for.
func (c *cache) prefetchValues(w *asm.Weigh, k *block, from, columns int, loops *asm.Ops) asm.Prefetch {
	steps := func(keys int) int { return 2 * w.R * cover(keys, loops.Shape.Vec) }
	at, before, row := c.v.now.at, k.head%c.interleave, columns*int(c.size)
	run := max(1, c.run*row)
	by := min(line, min(loops.Tuning.Room, c.interleave*k.n*row)/(c.interleave*steps(k.n)))
	done := (before*steps(w.N) + steps(from)) * by
	return asm.Prefetch{
		At: c.heads[k.head-before].v.Address(at[min(c.ahead.runs+done/run, len(at)-1)]) + uintptr(done%run),
		By: by,
	}
}
