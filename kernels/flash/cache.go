package flash

import (
	"math/bits"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/tile"
)

// Rows of K and V are read where they lie and as they are stored: float32 or less, after one another or in pages. A part of the keys is cut into runs that
// lie in one page each; loops take all of a part's runs in one call, with the bits of one run. While they read a run they ask memory for the one that
// they read some KiB later, so that nothing waits at the end of a page, or where values follow on keys and the next head on this one.

// A cache is the keys and values of some key heads.
type cache struct {
	heads []head
	k, v  pool
	pages []int32     // of the batch entry; nil: keys lie after one another
	shift int         // a key's page is key>>shift
	turn  int         // heads whose runs are read in turn
	run   int         // keys in a run
	later int         // a run asks for the one that comes so many runs later,
	far   int         // and touches the one that comes so many later,
	lies  int         // in so many pages of memory
	size  uintptr     // of an element
	runs  []uintptr   // where the runs begin of what is read, and some of those of what is read next
	lines []uintptr   // where the scales begin of all that is read next
	stage *tile.Stage // of keys that have to be turned
}

// A head has its rows from key 0 on, or from the first page of the pool on.
type head struct{ k, v asm.Cells }

// pool says how the rows of K, or of V, lie there: for all heads alike.
type pool struct {
	row, page, head distance // from one to the next
	now, next       places   // of the part in hand, and of the one after it
}

// A distance is in elements, and in scales.
type distance struct{ at, scales int }

// places are where the runs of a part begin: in elements, and in scales.
type places struct{ at, scales []int }

// In bytes, the size of a run that no page ends. It asks as far ahead as is best for the loops: far enough for rows to come from memory, near enough for the
// cache to keep them until then. On a Zen 5, loops that take less than wide bytes at a time keep the CPU busier, and want rows further ahead; nobody has
// measured what NEON's want, which all do. On a Xeon (family 6, model 167), which is asked for rows in its second cache, 8 to 32 KiB were within 1 % of one
// another, 4 KiB 2 % slower and 48 KiB 4, and on a Zen 4 8 to 32 KiB alike. Further still a run is touched once in each page of memory, so that the CPU has
// found that, and seen where the next stream begins, when its rows are asked for.
//
// Loops that ask from further than such a run on take longer ones: on the Xeon one query took 3 % less time than with short ones, and with 64 KiB 1 % more.
// And so do several queries where these ask from further than a short run on, for their sums are taken up and put down once a run: 4 and 16 of a key head
// took 4 to 11 % less time so on the Zen 4, and 8 with AVX-512 and d = 128, beside a process that read memory too, 20 to 33 % more with 64 and 128 KiB.
// Where heads went in turn, whose runs lie between one another's, they took up to 30 % more.
//
// Loops that ask for nothing ahead are for a CPU that follows a stream by itself, and the longest runs are for them: it does so best where many pages are
// touched together. On a Zen 4, decoding one query of 8 heads with 65536 keys beside a process that read memory too, AVX-512 took 2 to 8 % less time with
// 128 KiB than with 16 at d = 64 and 5 to 9 at d = 128, AVX2 0 to 1 and 2 to 3 (40 to 70 rounds by turns, three sittings); with 32 KiB it was half of that, and
// with 64 to 512 KiB alike. Long runs whose pages were not touched gained nothing, and neither did pages touched further ahead a few at a time.
const (
	shortRun   = 4 << 10
	longRun    = 16 << 10
	streamRun  = 128 << 10
	wide       = 32
	touchAhead = 48 << 10
	memoryPage = 4 << 10
	line       = 64
)

// runOf is the number of keys in a run of so many bytes at most, and what its bytes come to.
func runOf(p *attn.Problem, longest int) (run, bytes int) {
	run = part
	row := p.KV.Bytes() * max(p.Dim, 1)
	if p.Page != 0 {
		run = min(run, p.Page)
	}
	for run > 4 && run*row > longest {
		run /= 2
	}
	return run, run * row
}

// cover is how many pieces of a size cover so many bytes.
func cover(bytes, size int) int { return (bytes + size - 1) / size }

func newCache(p *attn.Problem) cache {
	run, size := runOf(p, shortRun) // the most runs
	n := abreast(p) * part / run
	pool := func() pool {
		places := func() places { return places{make([]int, n), make([]int, n)} }
		return pool{now: places(), next: places()}
	}
	var lines []uintptr
	if p.KV == attn.I8 {
		lines = make([]uintptr, n)
	}
	return cache{
		heads: make([]head, p.HeadsKV), k: pool(), v: pool(), size: uintptr(p.KV.Bytes()),
		runs: make([]uintptr, n+cover(touchAhead, size)), lines: lines,
	}
}

// cacheFloats is the size of its heads and places, in floats.
func cacheFloats(p *attn.Problem) int {
	run, size := runOf(p, shortRun)
	return p.HeadsKV*int(unsafe.Sizeof(head{}))/4 + 2*(10*abreast(p)*part/run+cover(touchAhead, size))
}

// suit makes runs as long, and has them ask as far ahead, as suits the loops, and heads that go in turn.
func (c *cache) suit(p *attn.Problem, loops *asm.Ops, inTurn bool) {
	ahead, longest := loops.Ahead, shortRun
	switch {
	case ahead == 0:
		longest = streamRun
	case ahead > shortRun && (ahead >= longRun || atOnce(p) > 1) && !inTurn:
		longest = longRun
	}
	if loops.Vec*p.KV.Bytes() < wide {
		ahead *= 2
	}
	run, size := runOf(p, longest)
	c.run, c.later, c.far, c.lies = run, cover(ahead, size), cover(touchAhead, size), cover(size, memoryPage)
}

// open finds the keys and values of so many key heads from one on: where those lie from one key to another, and, as far as anything is asked or touched
// of them, those that begin with next. So many of the heads go in turn.
func (c *cache) open(p *attn.Problem, a *attn.Args, b, from, heads, turn, key, to, next, keys int) {
	at, row := 0, 0
	c.turn = turn
	if c.pages = nil; p.Page != 0 {
		c.pages, c.shift = a.Pages[b*p.PagesEach():], bits.TrailingZeros(uint(p.Page))
	} else if a.Keys(p, b) > 0 {
		at, row = a.KRow(p, b, 0)
	}
	if c.stage != nil {
		c.stage.Forget()
	}
	c.heads = c.heads[:heads]
	for i := range c.heads {
		c.heads[i] = head{operand.Cells(&a.K, at, row, from+i), operand.Cells(&a.V, at, row, from+i)}
	}
	c.k.open(&a.K)
	c.v.open(&a.V)
	n := (to - key + c.run - 1) / c.run * c.turn
	asked := min(c.far, len(c.k.next.at))
	if c.lines != nil {
		asked = max(asked, n)
	}
	c.find(&c.k.now, &c.v.now, max(n, asked), key, keys)
	c.find(&c.k.next, &c.v.next, asked, next, keys)
}

func (p *pool) open(t *attn.Tensor) {
	p.row, p.page, p.head = distance{}, distance{}, distance{}
	if t.D > 0 {
		p.row, p.page, p.head = distance{t.SS, t.SS / t.D}, distance{t.SB, t.SB / t.D}, distance{t.SH, t.SH / t.D}
	}
}

// find finds the first n runs of those that begin with a key, in K and in V. Behind the last key they are where that one is.
func (c *cache) find(k, v *places, n, key, keys int) {
	for i := 0; i < n; key += c.run {
		page, row := 0, min(key, keys-1)
		if c.pages != nil {
			page, row = int(c.pages[row>>c.shift]), row&(1<<c.shift-1)
		}
		for h := 0; h < c.turn && i < n; h++ {
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

// dot computes the scores of a block. Keys that have to be turned are, first.
func (d *decoder) dot(w *fewWorker, k *block) {
	if w.stage != nil {
		w.K, w.Run = asm.Cells{Rows: w.stage.K(d.a, k.b, k.kv, k.key, k.n)}, 0
	} else {
		h := &w.heads[k.head]
		w.K = h.k
		w.look(&h.k, w.k.now, 0)
		w.ask(&h.v, w.v.now, 0)
	}
	w.Heads = k.heads
	d.loops.Dot(&w.Few)
	w.Heads = 0
}

// next has Weigh ask for the values that dot did not ask for, nor weights before these, which are of the keys from one of the block's on: those of keys before
// them, and of heads before this one in its turn. All weights of a block together ask for a line a step, or for as much as the cache has room for.
func (w *fewWorker) next(k *block, from int, loops *asm.Ops) {
	each := 2 * w.R // asks for each vector of keys
	vectors := func(keys int) int { return (keys + loops.Vec - 1) / loops.Vec }
	at, before, row := w.v.now.at, k.head%w.turn, w.C*int(w.size)
	run := max(1, w.run*row)
	w.NextBy = min(line, min(loops.Room, w.turn*k.n*row)/(w.turn*each*vectors(k.n)))
	asked := (before*vectors(w.N) + vectors(from)) * each * w.NextBy
	w.Next = w.heads[k.head-before].v.Address(at[min(w.later+asked/run, len(at)-1)]) + uintptr(asked%run)
}

// sum adds the values of the keys in hand, from one of a block's on, for all of its heads. Behind its last keys come those of the next head in hand, or of the
// next part of the first.
func (d *decoder) sum(w *fewWorker, k *block, from int) {
	if d.careful {
		w.V, w.Run = asm.Cells{Rows: asm.Rows{Data: w.clean, Stride: d.p.DimV}}, 0
	} else {
		h := &w.heads[k.head]
		w.V = h.v
		w.look(&h.v, w.v.now, from)
		switch {
		case from+w.N < k.n:
			w.ask(&h.v, w.v.now, from+w.N)
		case k.head+k.heads < len(w.heads):
			w.ask(&w.heads[k.head+k.heads].k, w.k.now, 0)
		default:
			w.ask(&w.heads[0].k, w.k.next, 0)
		}
	}
	w.Heads, w.HeadO = k.heads, d.p.Group()*d.a.Queries(&d.p, k.b)*d.n*d.p.DimV
	d.loops.Sum(&w.Few)
	w.Heads = 0
}

// look says where the runs begin of the keys in hand, from one of a block's on.
func (w *fewWorker) look(c *asm.Cells, runs places, from int) {
	first, n := from/w.run*w.turn, (w.N+w.run-1)/w.run*w.turn
	w.Run, w.At, w.Scales = w.run, runs.at[first:][:n], runs.scales[first:][:n]
	base := c.Address(0)
	for i, x := range w.At {
		w.runs[i] = base + w.size*uintptr(x)
	}
}

// ask says what these runs ask for: those that come later, and then the next ones, from one of a block's keys on, of which it touches the scales.
func (w *fewWorker) ask(next *asm.Cells, runs places, from int) {
	n, first, last := len(w.At), from/w.run*w.turn, len(runs.at)-1
	base := next.Address(0)
	for i := range w.far {
		w.runs[n+i] = base + w.size*uintptr(runs.at[min(first+i, last)])
	}
	w.Ahead, w.Far, w.FarPages = w.runs[w.later:], w.runs[w.far:], w.lies
	if w.lines != nil {
		for i := range n {
			w.lines[i] = next.ScaleAddress(runs.scales[min(first+i, last)])
		}
		w.FarScale = w.lines
	}
}
