// Package tile is what the blocked softmax kernels share: a tile of queries on its way through the loops of package asm. Tiled and flash
// differ in when they call its steps, and in nothing else.
//
//	At           says which queries stand in the lanes, and which keys each may see
//	Load         brings them in, transposed, and empties the sums; turned and taken through a metric, if the problem says so
//	Block        points it at a block of the keys that it sees
//	Weights      turns a block into weights (flash); Scores and Softmax do it in two steps (tiled)
//	Mix          adds the block's values to the output
//	Finish       writes rows and by-products out, or asks for one more round
//
// A Back is a tile on its way back (back.go).
//
// # Numbers that are not finite
//
// The loops have no case for them. A score that is NaN or +Inf makes its lane's sums NaN, and NaN or Inf in V reaches lanes that must not see
// it, as 0 times NaN. So when a row comes out not finite, the tile is done once more with care: Mix then takes such rows of V as zeros. The
// rows of lanes that do see them, and those that are still not finite, Finish answers by the definition, key by key. Other lanes keep their
// bits, and a call without such numbers pays nothing.
package tile

import (
	"math"
	"slices"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/scalar"
)

// Have is the set of abilities of a kernel made of tiles.
const Have = attn.AllSoftmax &^ (attn.NeedWeights | attn.NeedScores)

var inf = float32(math.Inf(1))

// A Tile is one worker's tile. Its Panel is what the loops work on; Qt and O are the tile's own, the kernel sets P.
type Tile struct {
	asm.Panel
	ops    *asm.Ops
	p      *attn.Problem
	temp   float64
	best   []float32
	hidden []bool    // lanes to be answered by row
	since  []int     // rows of a block that a vector of lanes uses: from one
	until  []int     // to another,
	leave  []int     // and up to where Flash takes them in one call;
	vecs   int       // so many vectors are in use
	part   asm.Panel // some lanes and rows of the block
	scale  []float32
	ones   []float32 // [Lanes]: what Keep
	unset  []float32 // [Lanes]: and M begin with
	stage  *Stage
	move   asm.Move
	edits  edits
	load   loader
	row    scalar.Row

	Part    int        // which part of the keys, where it is one
	a       *attn.Args // the call, and where in it the tile stands
	b, h, i int        // the first query; of several heads the first one, and i of all their queries
	heads   int
	kv      int
	rows    int
	filled  int    // lanes of Qt from here on are 0
	stand   [5]int // position of the first query, keys in use, rows, heads and which of these is first, on which depends
	sees    [2]int // which keys some query of the tile may see:
	lo, hi  int    // those, or some of them;
	allLo   int    // keys allLo <= j < allHi are visible to every query of the tile,
	allHi   int    // as far as the band goes
	careful bool   // the second round
}

// Sums is what a tile keeps of its lanes between one block and the next.
type Sums struct {
	m, l, s []float32
	best    []float32 // at the limits of temperature: largest score, or sum of scores
	max     []float32 // the largest score so far, where it is asked for,
	first   []int32   // and its key
	hidden  []bool
}

// Kept is the number of float32 numbers that Sums keep for a lane, rounded up.
const Kept = 7

// NewSums allocates the sums of one tile.
func NewSums(ops *asm.Ops) Sums {
	n := ops.Lanes
	f := make([]float32, 5*n)
	cut := func(i int) []float32 { return f[i*n : (i+1)*n : (i+1)*n] }
	return Sums{cut(0), cut(1), cut(2), cut(3), cut(4), make([]int32, n), make([]bool, n)}
}

// Use makes the tile keep its sums in s.
func (t *Tile) Use(s Sums) {
	t.M, t.L, t.S, t.best, t.hidden = s.m, s.l, s.s, s.best, s.hidden
	t.edits.max, t.edits.first = s.max, s.first
	if t.p.Want&(attn.WantMean|attn.WantEntropy) == 0 {
		t.S = nil // Exp and Flash are cheaper without
	}
}

// Floats is the number of float32 numbers in a tile.
func Floats(p *attn.Problem, ops *asm.Ops) int {
	return ops.Lanes*(p.Dim+p.DimV+Kept+4) + loaderFloats(p, ops) + editsFloats(p, ops) + scalar.RowFloats(p)
}

// New allocates a tile for a worker of a plan of problem p, which must stay where it is. The worker's tiles share a stage.
func New(p *attn.Problem, ops *asm.Ops, stage *Stage) *Tile {
	n := ops.Lanes
	t := &Tile{ops: ops, p: p, temp: p.Temperature(), scale: make([]float32, n), stage: stage, row: scalar.NewRow(p)}
	t.Qt, t.O = make([]float32, n*p.Dim), make([]float32, n*p.DimV)
	if stage.cuts() {
		t.QtParts = make([]uint16, asm.QueryParts(p.Dim, n))
	}
	t.Lanes, t.D, t.C = n, p.Dim, p.DimV
	t.Use(NewSums(ops))
	t.Keep, t.ones, t.unset = make([]float32, n), make([]float32, n), make([]float32, n)
	fill(t.ones, 1)
	fill(t.unset, asm.Unset)
	t.since, t.until, t.leave = make([]int, n/ops.Vec), make([]int, n/ops.Vec), make([]int, n/ops.Vec)
	t.Edit.Lo, t.Edit.Hi = make([]int32, n), make([]int32, n)
	t.load = newLoader(p, ops)
	t.prepareEdits()
	return t
}

// run is how many queries tiles are laid out in, one run after the other: all of them, unless a bitmap has blocks that a tile fits in. A tile of such a
// problem lies in one row of blocks, which shows it all of a block of keys or nothing.
func run(p *attn.Problem, ops *asm.Ops, n int) int {
	if p.Mask.Bitmap == attn.BlockBitmap && p.Mask.Block >= ops.Lanes {
		return min(p.Mask.Block, max(n, 1))
	}
	return max(n, 1)
}

// Count is the number of tiles that n queries of a problem fill.
func Count(p *attn.Problem, ops *asm.Ops, n int) int {
	run := run(p, ops, n)
	if run >= n {
		return tiles(ops, n)
	}
	return n/run*tiles(ops, run) + tiles(ops, n%run)
}

// tiles is the number of tiles that n queries of a run fill.
func tiles(ops *asm.Ops, n int) int { return (n + ops.Lanes - 1) / ops.Lanes }

// Place is the first query of a tile of n queries, and how many it has. The first tile of a run takes what does not fill one: under a causal mask it has the
// fewest keys. If that is one vector, the second tile leaves it another, for products of one vector wait for one another: on a Zen 4, AVX-512
// with 1024 queries, d = 64, took .4 % less time so.
func Place(p *attn.Problem, ops *asm.Ops, n, tile int) (i, rows int) {
	run := run(p, ops, n)
	each := tiles(ops, run)
	if tile >= each {
		i, tile = tile/each*run, tile%each
	}
	length := run
	if length > n-i {
		length = n - i
		each = tiles(ops, length)
	}
	short, left := length-(each-1)*ops.Lanes, 0
	if short <= ops.Vec && short < length && ops.Vec > 1 {
		left = ops.Vec
	}
	switch tile {
	case 0:
		return i, short + left
	case 1:
		return i + short + left, ops.Lanes - left
	}
	return i + short + (tile-1)*ops.Lanes, ops.Lanes
}

// At makes the tile one of those that the queries of head h in batch entry b fill. Lanes without a query see what the last one sees.
func (t *Tile) At(a *attn.Args, b, h, tile int) { t.put(a, b, h, 1, tile) }

// put places the tile: among the queries of one head, or of so many from one on.
func (t *Tile) put(a *attn.Args, b, h, heads, tile int) {
	i, rows := Place(t.p, t.ops, a.Queries(t.p, b)*heads, tile)
	t.a, t.b, t.h, t.i, t.heads, t.kv, t.rows = a, b, h, i, heads, h/t.p.Group(), rows
	t.Width = (t.rows + t.ops.Vec - 1) &^ (t.ops.Vec - 1)
	t.careful = false
	t.stage.Forget()
	if stand := [5]int{a.Pos(t.p, b) + i/heads, a.Keys(t.p, b), rows, heads, i % heads}; stand != t.stand { // else it was there for another head
		t.stand = stand
		t.place(stand[0], stand[1])
	}
	t.lo, t.hi, t.Part = t.sees[0], t.sees[1], 0
	t.placeEdits()
}

// Gather says whether from now on rows of V are copied that lie between others. Only a stage that was made to may.
func (t *Tile) Gather(on bool) { t.stage.gather = on }

// Load brings the queries in and empties the sums.
func (t *Tile) Load() {
	t.loadQueries()
	if t.QtParts != nil {
		t.ops.CutQueries(&t.Panel)
	}
	t.N, t.Done = 0, 0 // no block yet
	copy(t.M, t.unset)
	clear(t.L)
	clear(t.S)
	clear(t.hidden)
	if t.p.Want != 0 {
		fill(t.edits.max, -inf)
		for lane := range t.edits.first {
			t.edits.first[lane] = -1
		}
	}
	if Limit(t.p) {
		clear(t.best)
	}
	if t.temp == attn.Frozen {
		copy(t.best, t.unset)
	}
	for lane := 0; t.p.Score.Terms&attn.TermSinks != 0 && lane < t.rows; lane++ {
		h, _ := t.Query(lane)
		if sink := t.a.Sink(t.p, h); sink != sink || sink == inf { // the row is answered by definition
			t.careful, t.hidden[lane] = true, true
		}
	}
}

// Empty makes the output 0. Finish may be called then, whatever has been mixed.
func (t *Tile) Empty() { t.Fresh = true }

// First is the start of the first block, of so many keys, that the tile sees. Blocks start at multiples of their size.
func (t *Tile) First(size int) int { return t.lo - t.lo%size }

// Begins is whether the block of so many keys at key is the first that the tile sees.
func (t *Tile) Begins(key, size int) bool { return t.hi > 0 && key <= t.lo && t.lo < key+size }

// End is where the tile's keys end.
func (t *Tile) End() int { return t.hi }

// Block points the panel at the block of so many keys that starts at key, and is false if the tile sees none of it. The first block is cut to
// the group of keys that holds the tile's first, the last one to the tile's last key: what is cut is hidden from every query.
func (t *Tile) Block(key, size int) bool {
	first, end := key, min(key+size, t.hi)
	if t.lo > key {
		first = max(key, t.First(t.ops.Group()))
	}
	if first >= end {
		return false
	}
	t.at(first, end-first)
	return true
}

// Key is the index of the key in the panel's row 0.
func (t *Tile) Key() int { return t.Edit.Key }

func (t *Tile) at(key, n int) {
	copy(t.Keep, t.ones)
	t.Edit.Key, t.N, t.From, t.Done, t.Scored, t.Since, t.Until, t.Plain = key, n, 0, 0, false, nil, nil, n
	t.edits.seen, t.edits.last = 0, n
	t.Ahead, t.AheadBy, t.Then, t.ThenBy = 0, 0, 0, 0
	t.Next, t.NextBy = 0, 0
	t.K, t.V = asm.Rows{}, asm.Rows{} // until keys and values bring them
}

// keys and values have the stage bring the block's rows.
func (t *Tile) keys() {
	t.K = t.stage.K(t.a, t.b, t.kv, t.Edit.Key, t.N)
	if t.stage.cuts() {
		t.KParts = t.stage.KeyParts(t.a, t.b, t.kv, t.Edit.Key, t.N)
	}
}

func (t *Tile) values() {
	t.V = t.stage.V(t.a, t.b, t.kv, t.Edit.Key, t.N)
	if t.stage.cuts() {
		t.VParts = t.stage.ValueParts(t.a, t.b, t.kv, t.Edit.Key, t.N)
	}
}

// Scores fills the panel's P with finished scores; hidden keys are -Inf.
func (t *Tile) Scores() {
	t.keys()
	for row := 0; row < t.N; row += t.edits.step {
		n := min(t.edits.step, t.N-row)
		v := t.show(row, n)
		if v == none {
			fill(t.P[row*t.Lanes:(row+n)*t.Lanes], -inf)
		} else {
			t.finish(row, n, v)
		}
	}
}

// Weights turns the panel's block into weights by the lazy softmax.
func (t *Tile) Weights() {
	t.keys()
	switch {
	case Limit(t.p):
		t.Scores()
		t.limitScores()
		t.weigh(t.ops.Exp, &t.Panel)
	case t.edits.any:
		t.edited()
	case t.plain():
		t.weigh(t.ops.Flash, &t.Panel)
	default:
		t.band()
	}
}

// Softmax turns scores into weights in two passes, and writes those that the call asks for. The panel's block must be all the keys that the tile sees.
func (t *Tile) Softmax() {
	t.limitScores()
	weights := &t.a.Stats.Weights
	if weights.Data != nil {
		fill(t.scale, 1)
		t.storePairs(weights)
	}
	t.ops.Top(&t.Panel)
	t.weigh(t.ops.Exp, &t.Panel)
	if weights.Data != nil {
		t.finishWeights()
	}
}

// weigh exponentiates a block, raising references as lanes ask for it.
func (t *Tile) weigh(step func(*asm.Panel), p *asm.Panel) {
	for step(p); p.Done < p.N; step(p) {
		t.ops.Raise(p)
	}
}

// limitScores rewrites a block's scores for the limits of temperature, as scores that mean the same at T = 1: equal ones, 0, for the keys
// that share the weight. It does nothing at other temperatures.
func (t *Tile) limitScores() {
	if !Limit(t.p) {
		return
	}
	for lane := range t.Width {
		rows := t.P[:t.N*t.Lanes]
		top := maximum(rows, lane, t.Lanes)
		if top-top != 0 { // NaN or an infinity, which mean the same at any temperature
			continue
		}
		if t.temp == attn.Frozen && top > t.best[lane] {
			t.best[lane], t.M[lane] = top, asm.Unset
			t.L[lane] *= 0 // NaN stays
			t.Keep[lane] = 0
		}
		sum := 0.0 // of the block: the same score again and again would be rounded the same way
		for at := lane; at < len(rows); at += t.Lanes {
			switch x := rows[at]; {
			case x == -inf:
			case t.temp != attn.Frozen:
				sum += float64(x)
				rows[at] = 0
			case x == t.best[lane]:
				rows[at] = 0
			default:
				rows[at] = -inf
			}
		}
		if t.temp != attn.Frozen {
			t.best[lane] = float32(float64(t.best[lane]) + sum)
		}
	}
}

// maximum is the largest number of a lane, NaN if there is one.
func maximum(rows []float32, lane, lanes int) float32 {
	top := -inf
	for at := lane; at < len(rows); at += lanes {
		top = max(top, rows[at])
	}
	return top
}

// Mix adds the block's values to the output. With care, it takes rows of V that are not finite as zeros and hides the lanes that see them.
func (t *Tile) Mix() {
	if t.edits.seen >= t.edits.last {
		return // nobody sees any of it
	}
	t.values()
	if t.careful {
		t.cleanValues()
	}
	p := &t.Panel
	if t.edits.seen > 0 || t.edits.last < t.N {
		p = &t.part
		*p = t.Panel
		p.N = t.edits.last - t.edits.seen
		p.P = p.P[t.edits.seen*t.Lanes:]
		if p.C > 0 {
			p.V, p.VParts = p.V.From(t.edits.seen), p.VParts.From(t.edits.seen)
		}
	}
	t.ops.Mix(p)
	t.Fresh = false
}

// shows is whether the bitmap, if there is one, shows a key to a lane.
func (t *Tile) shows(lane, key int) bool {
	h, i := t.Query(lane)
	return t.a.Shows(t.p, t.b, i, h, key)
}

// cleanValues copies the block's rows of V without those that are not finite, and marks the lanes that see one of those.
func (t *Tile) cleanValues() {
	v := t.V
	t.V = asm.Rows{Data: t.stage.clean, Stride: t.C}
	for j := range t.N {
		to, from, key := t.V.Row(j, t.C), v.Row(j, t.C), t.Edit.Key+j
		if t.ops.Finite(from) {
			copy(to, from)
			continue
		}
		clear(to)
		for lane := range t.rows {
			if lo, hi := t.Edit.Lo[lane], t.Edit.Hi[lane]; int(lo) <= key && key < int(hi) && t.shows(lane, key) {
				t.hidden[lane] = true
			}
		}
	}
	t.VParts = t.stage.vals.cut.other(t.stage.cutValues, t.V, t.N)
}

// Finish writes the rows and the by-products that the call asks for. If it reports true, what it wrote is not sound: the output, or the weights with it, must be
// done again from the first block, and Finish called again.
func (t *Tile) Finish() (again bool) {
	if t.Fresh {
		clear(t.O)
		t.Fresh = false
	}
	sound := t.scales()
	if sound = t.storeOut() && sound; !sound && !t.careful {
		t.careful = true
		return true
	}
	if !t.careful && t.p.Want == 0 && !slices.Contains(t.hidden[:t.rows], true) {
		return false
	}
	for lane := range t.rows {
		h, i := t.Query(lane)
		t.row.At(t.a, t.b, i, h)
		row := t.load.out(t, lane)
		if t.hidden[lane] || !t.ops.Finite(t.L[lane:lane+1]) || !t.ops.Finite(row) || t.farSums(lane) {
			t.row.ByDefinition()
		} else {
			t.finishRow(lane, h)
		}
	}
	return false
}

// farSums reports whether by-products of a lane cannot be made from its sums.
func (t *Tile) farSums(lane int) bool {
	if t.S == nil || !(t.L[lane] > 0) {
		return false
	}
	s := t.S[lane]
	if Limit(t.p) {
		s = t.best[lane]
	}
	return t.row.FarSums(float64(t.M[lane]), float64(s))
}

// finishRow writes the by-products of a row that the loops have answered.
func (t *Tile) finishRow(lane, h int) {
	r, l, m := &t.row, float64(t.L[lane]), float64(t.M[lane])
	r.Largest(float64(t.edits.max[lane])/t.edits.Beta, int(t.edits.first[lane]))
	s := 0.0
	if t.S != nil {
		s = float64(t.S[lane])
	}
	m, l, s, _ = scalar.AddSink(t.p, t.a, h, m, l, s)
	if l == 0 {
		r.Stats(attn.LogSum{Ref: math.Inf(-1)}, 0, 0)
		return
	}
	lse := attn.LogSum{Log: math.Log(l)}
	switch {
	case t.temp == attn.Frozen:
		r.Stats(lse, float64(t.best[lane]), lse.Log)
	case Limit(t.p):
		r.Stats(lse, float64(t.best[lane])/l, lse.Log)
	default:
		r.FromSums(m, l, s)
	}
}
