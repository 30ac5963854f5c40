package flash

import (
	"math"
	"sync/atomic"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
	"attnlab/kernels/tile"
)

const (
	// fewRows is the largest SeqQ that takes the decode path. Lanes are then mostly empty, and time is what it takes to read K and V. On a Xeon (family 6,
	// model 167), 8 queries of 8 heads took .8 and .6 of the time that tiles take with AVX-512, d = 64 and 128, and 1.1 and .9 with AVX2, of 1024 keys; of 32768 .8
	// and .6, .8 and .75; 5 from .55 to .8. But 8 take 1.4 to 1.6 as long with 64 keys: it is not the keys that choose, so that a row's bits do not depend on how
	// many there may be.
	fewRows = 8
	// part is the number of keys that have a partial state of their own. Parts start at multiples of it, whatever the number of workers, and are merged in
	// order, so that the bits are the same for any of them.
	part = 2048
	// tilePart is that number for tiles, whose queries are brought in and out once a part.
	tilePart = 4096
	// longest is the largest number of parts that a task takes together: first all their scores, then all their weights, then all their values. Memory has little
	// to do between one loop and the next.
	longest = 4
	// inHand is the number of queries whose scores of a part may be in hand together: of one part or several, of one key head or several.
	inHand = 32
	// cleaned is the number of values that are copied without what is not finite.
	cleaned = 256
	// aligned is a number of keys. Where the first ones of a part are hidden from all queries, it begins at a multiple of it: vectors and runs then lie as
	// they would from the beginning of the part.
	aligned = 64
)

// few says that a problem takes the decode path. The limits of temperature do not: they are not worth a second set of rules.
func few(p *attn.Problem) bool {
	return p.SeqQ <= fewRows && !tile.Limit(p)
}

// parts is how many parts so many keys make: one if there are none.
func parts(p *attn.Problem, keys int) int {
	if byTiles(p) {
		return max(1, cover(keys, tilePart))
	}
	return max(1, cover(keys, part))
}

func (k kernel) checkFew(p *attn.Problem, workers int) (int64, error) {
	results, err := attn.Floats(p.Batch, p.HeadsQ, p.SeqQ, parts(p, p.SeqKV), p.DimV+5)
	if err != nil {
		return 0, err
	}
	queries, err := attn.Floats(p.Batch, p.HeadsQ, p.SeqQ, prepared(p))
	if err != nil {
		return 0, err
	}
	scratch, err := attn.Floats(k.workersFew(p, workers), k.fewFloats(p))
	if err != nil {
		return 0, err
	}
	back, err := tile.BackwardBytes(p, k.ops, k.cut(p), workers)
	return scratch + results + queries + back, err
}

// fewFloats is the number of float32 numbers in the scratch of a worker.
func (k kernel) fewFloats(p *attn.Problem) int {
	if byTiles(p) {
		return k.wideFloats(p) + p.DimV + scalar.RowFloats(p)
	}
	return atOnce(p)*abreast(p)*part + 5*states(p) + cleaned*p.DimV + fewEditsFloats(p, k.ops) + cacheFloats(p) + stageFloats(p) + scalar.RowFloats(p)
}

func (k kernel) workersFew(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsQ*p.SeqQ*parts(p, p.SeqKV)))
}

// rowsOf is the number of queries that share a key head, atOnce how many of them go together at most, and span the largest number of parts that these may be
// of: the second cache holds their scores beside what is read.
func rowsOf(p *attn.Problem) int { return p.Group() * p.SeqQ }
func atOnce(p *attn.Problem) int { return min(rowsOf(p), inHand) }

func span(p *attn.Problem) int {
	if p.Score.Rope != attn.NoRope {
		return 1 // keys are turned part by part
	}
	return min(longest, inHand/max(atOnce(p), 1))
}

// turns is the largest number of heads that go in turn.
func turns(p *attn.Problem) int {
	if p.Score.Rope != attn.NoRope {
		return 1
	}
	return min(p.HeadsKV, inHand/max(atOnce(p), 1))
}

// abreast is the largest number of parts whose scores are in hand together, of one head or of each in its turn.
func abreast(p *attn.Problem) int { return max(span(p), turns(p)) }

// states is the largest number of partial states that a task leaves.
func states(p *attn.Problem) int { return max(p.HeadsKV, span(p)) * rowsOf(p) }

// prepared is the length of a row as it meets the keys, where it does not lie so in Q, or not at one distance from the next that shares its key head, and
// otherwise 0.
func prepared(p *attn.Problem) int {
	if byTiles(p) {
		return 0 // tiles bring them in
	}
	if p.Q != attn.F32 || p.Score.Rope != attn.NoRope || p.Score.Terms&attn.TermMetric != 0 || p.Group() > 1 && p.SeqQ > 1 {
		return p.Dim
	}
	return 0
}

// stageFloats is the number of float32 numbers that a part of the keys takes that has to be turned.
func stageFloats(p *attn.Problem) int {
	if p.Score.Rope == attn.NoRope {
		return 0
	}
	return tile.StageFloats(p, nil, part, false)
}

func (k kernel) planFew(p attn.Problem, team *attn.Team, scratch int64) attn.Plan {
	n := p.Batch * p.HeadsQ * p.SeqQ * parts(&p, p.SeqKV)
	f := func(n int) []float32 { return make([]float32, n) }
	d := &decoder{
		kernel: k, p: p, team: team, scratch: scratch, o: f(n * p.DimV), m: f(n), l: f(n), s: f(n), max: f(n), first: make([]int32, n), bad: make([]bool, n),
		q: f(p.Batch * p.HeadsQ * p.SeqQ * prepared(&p)), factors: tile.FactorsOf(&p),
		back: tile.NewBackward(p, k.ops, k.cut(&p), team),
	}
	d.scan, d.merge, d.prepare = d.scanParts, d.mergeRow, d.prepareRow
	if byTiles(&p) {
		d.useTiles(k.workersFew(&p, team.Workers()))
		return d
	}
	rows, all := rowsOf(&p), states(&p)
	for range k.workersFew(&p, team.Workers()) {
		w := &fewWorker{
			cache: newCache(&p), clean: f(cleaned * p.DimV), lo: make([]int, rows), hi: make([]int, rows), bad: make([]bool, all),
			panel: asm.Panel{Fresh: true}, row: scalar.NewRow(&d.p), max: f(all), first: make([]int32, all), edits: newFewEdits(&p, k.ops), m: f(all), l: f(all), s: f(all),
		}
		if p.Score.Rope != attn.NoRope {
			w.stage = tile.NewStage(&d.p, k.ops, part, false)
		}
		w.scores = f(atOnce(&p) * abreast(&p) * part)
		d.workers = append(d.workers, w)
	}
	return d
}

// decoder is the plan of the decode path: a task scans one or more parts of the keys of a head, or one part of several heads, for queries that share them
// and leaves a partial state (o, m, l, s) of each query and part; then each query's states are merged.
//
// Queries that share a key head are rows, in the order of their heads. Those of a batch entry follow one another, as many as the call has.
type decoder struct {
	kernel
	guard   attn.Guard
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []*fewWorker
	factors tile.Factors
	back    *tile.Backward
	wide    *plan // of queries in lanes (decode_tiles.go), if they are enough
	a       *attn.Args
	loops   *asm.Ops // of this call
	n       int      // parts of its keys
	heads   int      // key heads that a task takes through its parts,
	parts   int      // how many these are,
	shares  int      // and into how many shares the queries of a key head are split, of which it takes one
	inTurn  bool     // it reads some keys of each of its heads, and then those that follow

	q []float32 // [batch][row][dim]: queries as they meet the keys, where they do not lie so in Q

	// [batch][row][part], o with d_v numbers each
	o, m, l, s []float32
	max        []float32 // the largest score and its key
	first      []int32
	bad        []bool // to be answered by definition

	careful              bool        // the second round, when an output was not finite: see package tile
	again                atomic.Bool // asks for it
	prepare, scan, merge func(worker, task int)
	leave                func(*tile.Tile)
}

// fewWorker is the scratch of one worker. A row of it is a query of those in hand: those of one key head after those of the head before, or all of them for one
// part after those for the part before.
type fewWorker struct {
	asm.Few
	cache
	row     scalar.Row
	scores  []float32 // [query][span]
	clean   []float32 // [cleaned][d_v]: rows of V without those that are not finite; merging, the output
	panel   asm.Panel // of merging, and what multiplies the output
	over    [1]float32
	edits   fewEdits
	m, l, s []float32
	max     []float32
	first   []int32
	lo, hi  []int // of the rows in hand of one key head: they are those of all
	bad     []bool
}

func (d *decoder) Backward(a *attn.Args, g *attn.Grads) {
	defer d.guard.Enter(d.name).Leave()
	d.p.MustGrads(d.name, a, g)
	d.back.Run(a, g)
}

func (d *decoder) Scratch() int64 { return d.scratch }

func (d *decoder) Forward(a *attn.Args) {
	defer d.guard.Enter(d.name).Leave()
	d.p.Must(d.name, a)
	if d.p.SeqQ == 0 { // keys make tasks all the same, for more workers than there is scratch for
		return
	}
	longest := 0
	for b := range d.p.Batch {
		longest = max(longest, a.Keys(&d.p, b))
	}
	d.a, d.n, d.careful = a, parts(&d.p, longest), false
	if d.wide != nil {
		d.forwardTiles()
		return
	}
	if d.loops = d.ops; d.streams(longest) {
		d.loops = d.ops.Streamed
	}
	d.together()
	if len(d.q) > 0 {
		d.team.Run(d.p.Batch*d.p.HeadsQ*d.p.SeqQ, d.prepare)
	}
	d.run(d.p.Batch * d.sets() * d.spans() * d.shares)
}

// run scans in so many tasks, and merges, with care if that is not sound.
func (d *decoder) run(tasks int) {
	for {
		d.again.Store(false)
		d.team.Run(tasks, d.scan)
		d.team.Run(d.p.Batch*d.p.HeadsQ*d.p.SeqQ, d.merge)
		if !d.again.Load() {
			return
		}
		d.careful = true
	}
}

// together decides how many key heads a task takes, and how many parts of their keys. Where the heads lie apart it is several parts of one head. Where the
// rows of one lie between those of another, as in pages, it is one part of several heads, since what the CPU brings beyond the end of a run is then what
// the next head reads; and where each row lies between those of other heads it takes them in turn, if it can. And it decides how many queries of a key head.
func (d *decoder) together() {
	p, k := &d.p, &d.a.K
	apart := p.HeadsKV == 1 || k.SH > part*k.SS
	d.inTurn = k.SH < k.SS && turns(p) > 1
	most := max(p.HeadsKV, 1)
	switch {
	case apart:
		most = min(d.n, span(p))
	case d.inTurn:
		most = turns(p)
	}
	if n := len(d.workers); n > 1 { // enough tasks for all workers to end at about the same time
		most = max(1, min(most, p.Batch*p.HeadsKV*d.n/(4*n)))
	}
	if d.heads, d.parts = most, 1; apart {
		d.heads, d.parts = 1, most
	}
	// Shares read the same keys. Where there are too few tasks for all workers, that is worth it for some multiply-adds with each number.
	const worth = 8
	d.shares = max(1, cover(rowsOf(p), inHand))
	if n, tasks := len(d.workers), p.Batch*d.sets()*d.spans()*d.shares; n > 1 && 0 < tasks && tasks < 2*n {
		d.shares = max(d.shares, min(d.shares*cover(2*n, tasks), rowsOf(p)/worth))
	}
}

// streams is whether so many keys and their values come from memory in one stream, and as fast as it gives them: rows of float32 after one another, each for
// one query, more than the last cache keeps from one call to the next. Smaller numbers take more work for a line.
func (d *decoder) streams(keys int) bool {
	p, k, v := &d.p, &d.a.K, &d.a.V
	bytes := p.Batch * p.HeadsKV * keys * (p.Dim + p.DimV) * p.KV.Bytes()
	return p.KV == attn.F32 && p.Page == 0 && atOnce(p) == 1 && k.SS == p.Dim && v.SS == p.DimV && bytes > d.last
}

// sets is the number of tasks that take a part, and spans of those that take a head.
func (d *decoder) sets() int  { return (d.p.HeadsKV + d.heads - 1) / d.heads }
func (d *decoder) spans() int { return (d.n + d.parts - 1) / d.parts }

// row is where query i of a head stands among all rows.
func (d *decoder) row(b, h, i int) int {
	return b*d.p.HeadsQ*d.p.SeqQ + h*d.a.Queries(&d.p, b) + i
}

// state is the index of the first partial state of a row; that of the row after it is d.n on.
func (d *decoder) state(row int) int { return row * d.n }

// query is what a task that has one query is about, and whether the call has it.
func (d *decoder) query(task int) (b, h, i int, there bool) {
	i, h, b = task%d.p.SeqQ, task/d.p.SeqQ%d.p.HeadsQ, task/d.p.SeqQ/d.p.HeadsQ
	return b, h, i, i < d.a.Queries(&d.p, b)
}

// prepareRow brings a query into the form in which it meets the keys.
func (d *decoder) prepareRow(worker, task int) {
	if b, h, i, there := d.query(task); there {
		copy(d.q[d.row(b, h, i)*d.p.Dim:][:d.p.Dim], d.workers[worker].row.Prepared(d.a, b, i, h))
	}
}

// queries are the rows that share key head kv from one of them on, and next is how far those of the next key head are from them.
func (d *decoder) queries(b, kv, first int) (rows asm.Rows, next int) {
	p, q := &d.p, &d.a.Q
	switch batch, row := d.a.QRow(p, b, 0); {
	case p.Dim == 0:
		return asm.Rows{}, 0
	case len(d.q) > 0:
		return asm.Rows{Data: d.q[(d.row(b, kv*p.Group(), 0)+first)*p.Dim:], Stride: p.Dim}, p.Group() * d.a.Queries(p, b) * p.Dim
	case p.SeqQ == 1:
		rows = operand.Rows(q, batch, row, kv*p.Group()+first)
		rows.Stride = q.SH
		return rows, p.Group() * q.SH
	default:
		return operand.Rows(q, batch, row+first, kv), q.SH
	}
}

// scanParts takes the queries of some key heads through some parts of the keys.
func (d *decoder) scanParts(worker, task int) {
	w, p, a := d.workers[worker], &d.p, d.a
	w.suit(p, d.loops, d.inTurn)
	share, task := task%d.shares, task/d.shares
	sets, spans := d.sets(), d.spans()
	at, from, b := task%spans*d.parts, task/spans%sets*d.heads, task/spans/sets
	nq, keys, heads, parts := a.Queries(p, b), a.Keys(p, b), min(d.heads, p.HeadsKV-from), min(d.parts, d.n-at)
	group := p.Group() * nq
	begin := share * group / d.shares
	rows := (share+1)*group/d.shares - begin
	if rows == 0 {
		return
	}
	first, last := keys, 0
	for r := range rows {
		if w.lo[r], w.hi[r] = a.Visible(p, b, (begin+r)%nq); w.lo[r] < w.hi[r] {
			first, last = min(first, w.lo[r]), max(last, w.hi[r])
		}
	}
	state := func(h int) int { return d.state(d.row(b, 0, 0)+(from+h)*group+begin) + at }
	for i := range parts { // heads or parts are one
		j := i * rows
		for h := range heads {
			k := state(h) + i
			for range rows {
				w.m[j], w.l[j], w.s[j], w.bad[j] = asm.Unset, 0, 0, false
				w.max[j], w.first[j] = float32(math.Inf(-1)), -1
				clear(d.o[k*p.DimV:][:p.DimV])
				j, k = j+1, k+d.n
			}
		}
	}
	first, last = max(first-first%max(w.run, aligned), at*part), min(last, (at+parts)*part)
	if first < last {
		turn := 1
		if d.inTurn {
			turn = heads
		}
		w.open(p, a, b, from, heads, turn, first, last, (at+parts)*part, keys)
		w.Stride = parts * part
		for head := 0; head < heads; head += turn {
			d.scanHeads(w, block{b: b, kv: from + head, head: head, heads: turn, first: begin, rows: rows, at: at, key: first, n: last - first})
		}
	}
	for i := range parts {
		j := i * rows
		for h := range heads {
			k := state(h) + i
			for range rows {
				d.m[k], d.l[k], d.s[k], d.bad[k] = w.m[j], w.l[j], w.s[j], w.bad[j] || w.l[j] != w.l[j]
				d.max[k], d.first[k] = w.max[j], w.first[j]
				j, k = j+1, k+d.n
			}
		}
	}
}

// A block is what goes through scores, weights and output together: queries of one key head, or several in turn, and keys of one part or several.
type block struct {
	b, kv, head int // batch entry; the first key head, and which it is of those that the worker has in hand
	heads       int // how many go in turn
	first, rows int // the first of the rows of a key head that are in hand, and how many are
	row         int // the worker's row of the first one, for the first part
	scores      int // its row of scores
	at, key, n  int // that part; the keys
}

// scanHeads takes the queries of key heads through the keys of a block.
func (d *decoder) scanHeads(w *fewWorker, k block) {
	p := &d.p
	k.row = k.head * k.rows
	w.R, w.D, w.C, w.Factor = k.rows, p.Dim, p.DimV, d.factors.Product
	w.Q, w.HeadQ = d.queries(k.b, k.kv, k.first)
	w.P, w.N = w.scores, k.n
	d.dot(w, &k)
	for h := range k.heads {
		d.weigh(w, k.only(h))
	}
	if d.careful {
		for h := range k.heads {
			d.sumParts(w, k.only(h))
		}
	} else {
		d.sumParts(w, k)
	}
}

// only is the block of one of its heads.
func (k block) only(h int) block {
	k.kv, k.head, k.row, k.scores, k.heads = k.kv+h, k.head+h, k.row+h*k.rows, k.scores+h*k.rows, 1
	return k
}

// asker is the query of a row in hand of a block's first head.
func (d *decoder) asker(k *block, row int) (h, i int) {
	nq := d.a.Queries(&d.p, k.b)
	return k.kv*d.p.Group() + (k.first+row)/nq, (k.first + row) % nq
}

// weigh makes weights of the scores of a head, part by part.
func (d *decoder) weigh(w *fewWorker, k block) {
	for from := 0; from < k.n; from += w.N {
		row := d.hold(w, &k, from)
		for i := range w.R {
			d.edit(w, &k, row+i, i, k.key+from)
			w.begin(i, max(0, w.lo[i]-k.key-from))
		}
		w.From = 0
		w.next(&k, from, d.loops)
		for d.loops.Weigh(&w.Few); w.Done < w.R; d.loops.Weigh(&w.Few) {
			w.raise(row+w.Done, w.Done)
			w.From = w.Done
		}
	}
}

// sumParts adds the values, part by part.
func (d *decoder) sumParts(w *fewWorker, k block) {
	for from := 0; from < k.n; from += w.N {
		row := d.hold(w, &k, from)
		if d.careful {
			w.N = min(w.N, cleaned)
			d.cleanValues(w, &k, from, row)
		}
		d.sum(w, &k, from)
	}
}

// hold makes the rest of a part, from one of the block's keys on, what Weigh and Sum are about. It returns the worker's row of the first query.
func (d *decoder) hold(w *fewWorker, k *block, from int) (row int) {
	p := &d.p
	at := (k.key + from) / part
	row = k.row + (at-k.at)*k.rows
	w.N, w.P = min(k.n, (at+1)*part-k.key)-from, w.scores[k.scores*w.Stride+from:]
	w.M, w.L, w.S = w.m[row:], w.l[row:], w.s[row:]
	if p.Want&(attn.WantMean|attn.WantEntropy) == 0 {
		w.S = nil
	}
	w.O = asm.Rows{Data: d.o[(d.state(d.row(k.b, k.kv*p.Group(), 0)+k.first)+at)*p.DimV:], Stride: d.n * p.DimV}
	return row
}

// begin makes the largest of the first scores of a row of those in hand, which it shows from one on, the row's reference if it has none: Weigh would leave
// before each such row.
func (w *fewWorker) begin(at, from int) {
	if w.M[at] != asm.Unset || from >= w.N {
		return
	}
	for _, s := range w.P[at*w.Stride:][from:min(from+aligned, w.N)] {
		if s > w.M[at] && s <= math.MaxFloat32 {
			w.M[at] = s
		}
	}
}

// raise lifts the reference of one row, which is row at of the block in hand, to its largest score, and scales what was summed below the old one.
// A row with a score of +Inf is hidden instead.
func (w *fewWorker) raise(row, at int) {
	top := w.Top
	if top > math.MaxFloat32 {
		w.bad[row] = true
		hide(w.P[at*w.Stride:], 0, w.N)
		return
	}
	f := float32(math.Exp2(float64(w.m[row]) - float64(top)))
	w.m[row] = top
	w.l[row] *= f
	w.s[row] *= f
	for c, o := 0, w.O.Row(at, w.C); c < len(o); c++ {
		o[c] *= f
	}
}

// cleanValues copies the values of the keys in hand without the rows that are not finite, and marks the queries that see one of those, the first of which
// is a row of the worker's.
func (d *decoder) cleanValues(w *fewWorker, k *block, from, row int) {
	p, a := &d.p, d.a
	for j := range w.N {
		key, to := k.key+from+j, w.clean[j*p.DimV:][:p.DimV]
		batch, s := a.KRow(p, k.b, key)
		if values := a.V.Read(to, batch, s, k.kv); d.ops.Finite(values) {
			copy(to, values)
			continue
		}
		clear(to)
		for r := range w.R {
			h, i := d.asker(k, r)
			sees := w.lo[r] <= key && key < w.hi[r] && a.Shows(p, k.b, i, h, key)
			w.bad[row+r] = w.bad[row+r] || sees
		}
	}
}

// mergeRow joins the partial states of one query, in the order of their keys, in the first of them, and writes the row.
func (d *decoder) mergeRow(worker, task int) {
	p := &d.p
	b, h, i, there := d.query(task)
	if !there {
		return
	}
	w := d.workers[worker]
	row := &w.row
	row.At(d.a, b, i, h)
	at := d.state(d.row(b, h, i))
	top, bad, largest, key := float32(asm.Unset), false, float32(math.Inf(-1)), -1
	for k := at; k < at+d.n; k++ {
		bad = bad || d.bad[k]
		if d.l[k] > 0 {
			top = max(top, d.m[k])
		}
		if d.max[k] > largest {
			largest, key = d.max[k], int(d.first[k])
		}
	}
	if sink := d.a.Sink(p, h); bad || sink != sink || sink > math.MaxFloat32 {
		row.ByDefinition()
		return
	}
	l, s := float32(0), float32(0)
	for k := at; k < at+d.n; k++ {
		f := float32(0)
		switch {
		case !(d.l[k] > 0):
		case d.m[k] == top:
			f = 1
		default:
			f = float32(math.Exp2(float64(d.m[k]) - float64(top)))
		}
		d.m[k] = f
		if f > 0 { // else its sums may be anything
			l += float32(f * d.l[k])
			s += float32(f * d.s[k])
		}
	}
	if l > 0 && row.FarSums(float64(top), float64(s)) {
		row.ByDefinition()
		return
	}
	m, sum, sums, keep := scalar.AddSink(p, d.a, h, float64(top), float64(l), float64(s))
	w.over[0] = 1
	if sum != 0 {
		w.over[0] = float32(keep / sum)
	}
	out, q := w.clean[:p.DimV], &w.panel
	q.N, q.C, q.Width, q.Lanes, q.P, q.Scale = 1, p.DimV, d.n, d.n, d.m[at:], w.over[:]
	q.X, q.XStr, q.Y = out, p.DimV, asm.Rows{Data: d.o[at*p.DimV:], Stride: p.DimV}
	d.ops.Outer(q)
	if !d.ops.Finite(out) {
		if d.careful {
			row.ByDefinition()
		} else {
			d.again.Store(true)
		}
		return
	}
	if sum == 0 {
		clear(out)
	}
	row.Write(out)
	if p.Want == 0 {
		return
	}
	row.Largest(float64(largest)/d.factors.Beta, key)
	if sum == 0 {
		row.Stats(attn.LogSum{Ref: math.Inf(-1)}, 0, 0)
	} else {
		row.FromSums(m, sum, sums)
	}
}
