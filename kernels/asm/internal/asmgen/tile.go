package asmgen

import "fmt"

// A tile is a micro-tile of a product. For each of its rows r it has vecs vectors of sums over a
// common index k:
//
//	sum[r][lane] = Σ_k elem(r, k) * lanes[k][lane]
//
// Lanes are loaded and elements are broadcast from where they are stored; nothing is packed. A set
// that multiplies by element loads as many contiguous elements as a register holds: elements of one
// row for the next steps, or of the next rows for one step. The registers of R rows and V vectors
// are:
//
//	0 .. R*V-1       sums, row after row
//	R*V .. R*V+V-1   the row of lanes
//	the next ones    elements: the broadcast one or, by element, of each row along k, or of all rows
//
// A lane's sum is one chain of FMAs in the order of k, whatever the size of the micro-tile. So
// micro-tiles with fewer rows and vectors give the same bits.
type tile struct {
	*gen
	vecs, rows  int
	along       bool   // elements of a row are contiguous along k, and rows a stride apart
	apart       bool   // the stride of rows of lanes is in a register
	single      bool   // there is one lane
	name        string // suffix of its labels, unique in the function
	ahead       bool   // prefetch rows lead bytes after the rows of lanes
	below       bool   // prefetch elements eight steps ahead
	results     bool   // prefetch the results that the sums are added to
	streamLines int    // lines to prefetch from a stream in every four steps
	beside      bool   // prefetch a line of a second stream with each line of the first
	first       int    // vectors before this one compute no more steps
	late        int    // number of last vectors that compute no steps yet
	cells              // how rows of lanes are stored
}

func (t tile) sum(r, v int) vec { return vec(r*t.vecs + v) }
func (t tile) elem(i int) vec   { return t.lane(t.vecs-1) + vec(1+i) }
func (t tile) lane(v int) vec {
	if t.rows == 1 { // no other row reads it later
		v = 0
	}
	return vec(t.rows*t.vecs + v)
}

// take takes the micro-tile's registers. freeVectors frees them.
func (t tile) take() {
	t.vectors(span{"sums", 0, t.rows * t.vecs})
	t.takeOperands()
}

// takeOperands takes the registers of the operands of a step.
func (t tile) takeOperands() {
	n := t.vecs
	if t.rows == 1 {
		n = 1
	}
	t.vectors(span{"lanes", t.lane(0), n}, span{"elements", t.lane(0) + vec(n), t.elems()})
}

// meanwhile emits instructions between steps that use the registers of operands for other values.
func (t tile) meanwhile(other span, emit func()) {
	t.freeVectors("lanes", "elements")
	t.vectors(other)
	emit()
	t.freeVectors(other.role)
	t.takeOperands()
}

// elems returns the number of registers with elements.
func (t tile) elems() int {
	switch {
	case !t.byElement:
		return 1
	case t.along:
		return t.rows
	}
	return (t.rows + t.vec - 1) / t.vec
}

// element emits the load of the element of row r in step k of n, and returns its operand. Where a
// set multiplies by element, one load fetches a vector of elements, for the next steps or the next
// rows. n is one or a multiple of the vector's length.
func (t tile) element(r, k, n int) operand {
	in, i := r, k
	if !t.along {
		in, i, n = r/t.vec, r, t.rows
	}
	if !t.byElement || n == 1 {
		t.broadcast(t.elem(0), t.at(r, k))
		return t.elem(0)
	}
	if i%t.vec == 0 {
		t.load(t.elem(in), t.at(r, k))
	}
	return element{t.elem(in), i % t.vec}
}

// unroll is the number of steps along k in one iteration of the main loop. It is four because rows
// up to four strides away can be addressed.
const unroll = 4

// cursors are the cursors of elements, four strides apart.
var cursors = [...]reg{elemAt, elemAt4, elemAt8, elemAt12}

// at returns the element of row r, k steps from the cursor.
func (t tile) at(r, k int) mem {
	far, near := k, r
	if t.along {
		far, near = r, k
	}
	m := t.rowsOn(cursors[far/t.reach()], far%t.reach())
	m.off = 4 * near
	return m
}

// reach returns how many rows or steps one cursor addresses. Six rows are divided into three and
// three, which leaves the register of stride3 free.
func (t tile) reach() int {
	if t.along && t.rows == 6 {
		return 3
	}
	return 4
}

// rowsOn returns the operand n strides from an address; n is at most 3.
func (t tile) rowsOn(base reg, n int) mem {
	m := mem{base: base}
	switch n {
	case 1, 2:
		m.index, m.times = stride, n
	case 3:
		m.index, m.times = stride3, 1
	}
	return m
}

// products emits the micro-tile's products. lanesAt and elemAt must be at the first step, and steps
// must be the number of steps; it destroys all three.
func (t tile) products() {
	t.begin()
	t.increase(steps, -unroll)
	t.rest(fmt.Sprint(t.rows))
}

// empty emits instructions that set the sums to 0.
func (t tile) empty() {
	for r := range t.rows {
		for v := range t.vecs {
			t.zero(t.sum(r, v))
		}
	}
}

// begin sets the sums to 0 and sets the second cursor.
func (t tile) begin() {
	t.empty()
	t.follow()
}

// follow sets the second cursor of elements, where one is needed.
func (t tile) follow() {
	if t.far() {
		t.offset(elemAt4, elemAt, stride, t.reach()&^1)
		if t.reach()%2 != 0 {
			t.offset(elemAt4, elemAt4, stride, 1)
		}
	}
	if t.below {
		t.offset(elemAt4, elemAt, stride, 8)
	}
}

// takeFar takes the second cursor of elements if micro-tiles with the set's rows need one.
func (g *gen) takeFar() {
	if (tile{gen: g, rows: g.rows, along: true}).far() {
		g.take(elemAt4)
	}
}

// far reports whether some rows are too far from elemAt to be addressed.
func (t tile) far() bool { return t.along && t.rows > 4 }

// rest emits the remaining steps. steps holds their number less unroll.
func (t tile) rest(suffix string) {
	t.jumpBelow(steps, 0, "rest"+suffix)
	t.align()
	t.label("steps" + suffix)
	for k := range unroll {
		t.step(k, unroll, nil)
	}
	t.advance(unroll)
	t.jumpAtLeast(steps, 0, "steps"+suffix)
	t.label("rest" + suffix)
	t.increase(steps, unroll-1)
	t.jumpBelow(steps, 0, "done"+suffix)
	t.label("one" + suffix)
	t.step(0, 1, nil)
	t.advance(1)
	t.jumpAtLeast(steps, 0, "one"+suffix)
	t.label("done" + suffix)
}

// step emits step k of n from the cursors, and calls between after each row's multiply-adds.
func (t tile) step(k, n int, between func()) {
	if t.ahead {
		t.ifShare(k, fmt.Sprint(t.name, "step", k, "of", n), func() {
			for off := 0; off < t.vecs*t.vec*t.size(); off += line {
				t.prefetchRead(mem{base: lanesAt, index: lead, times: 1, off: off})
			}
		})
	}
	if t.below {
		t.prefetchNear(t.rowsOn(elemAt4, k%unroll))
	}
	if t.results && n == unroll {
		if off := k * line; off < t.vecs*t.bytes() {
			t.prefetchNear(mem{base: resultAt, off: off})
		}
		if k == n-1 {
			t.offset(resultAt, resultAt, outStride, 1)
		}
	}
	if t.streamLines > 0 && k%(unroll/t.streamLines) == unroll/t.streamLines-1 {
		t.prefetchNear(mem{base: lead})
		if t.beside {
			t.prefetchNear(mem{base: lead, index: leadAt, times: 1})
		}
		t.plusAt(lead, t.of("Next.By"))
	}
	widen := t.loadCells
	if t.single {
		widen = t.loadCell
	}
	load := func(v int) { widen(t.lane(v), mem{base: lanesAt, off: k*t.lanesRow() + v*t.vec*t.size()}, t.cells) }
	for v := t.first; v < t.vecs-t.late && t.rows > 1; v++ {
		load(v)
	}
	for r := range t.rows {
		e := t.element(r, k, n)
		for v := t.first; v < t.vecs-t.late; v++ {
			if t.rows == 1 {
				load(v)
			}
			t.fma(t.sum(r, v), t.lane(v), e)
		}
		if between != nil {
			between()
		}
	}
	if t.apart {
		t.offset(lanesAt, lanesAt, apart, 1)
	}
}

// lanesRow returns the distance between rows of lanes, or 0 if a register holds it.
func (t tile) lanesRow() int {
	if t.apart {
		return 0
	}
	return t.row()
}

func (t tile) loadLanes(dst vec, m mem) {
	if t.single {
		t.loadOne(dst, m)
	} else {
		t.load(dst, m)
	}
}

func (t tile) storeLanes(m mem, src vec) {
	if t.single {
		t.storeOne(m, src)
	} else {
		t.store(m, src)
	}
}

func (t tile) advance(n int) {
	if !t.apart {
		t.increase(lanesAt, n*t.row())
	}
	switch {
	case !t.along:
		t.offset(elemAt, elemAt, stride, n)
		if t.below {
			t.offset(elemAt4, elemAt4, stride, n)
		}
	case t.far():
		t.increase(elemAt4, 4*n)
		fallthrough
	default:
		t.increase(elemAt, 4*n)
	}
	t.increase(steps, -n)
}

// tiles emits the loop over micro-tiles. It computes as many as count has room for with the first
// number of rows, and so on down to the last number, 1. sums sets the cursors of a micro-tile and
// computes it; finish stores its sums and advances to the next.
func (g *gen) tiles(vecs int, along bool, rows []int, sums, finish func(t tile)) {
	for _, rows := range rows {
		t := tile{gen: g, vecs: vecs, rows: rows, along: along}
		loop, end := fmt.Sprintf("tile%d", rows), fmt.Sprintf("end%d", rows)
		t.jumpBelow(count, rows, end)
		t.label(loop)
		t.take()
		sums(t)
		finish(t)
		t.freeVectors()
		t.increase(count, -rows)
		t.jumpAtLeast(count, rows, loop)
		t.label(end)
	}
}

// score emits Ops.Score for rows from..to.
func (g *gen) score(vecs int) {
	g.function(fmt.Sprint("Score", vecs), "(p *Product, scores *float32, from, to int)", 0, 32, fmt.Sprintf(`
for j := from; j < to; j++ { // %d at a time
	var sum [%d]float32
	for x := range p.D { // %d at a time
		for lane := range sum {
			sum[lane] = fma(p.Keys.rows.Data[j*p.Keys.rows.Stride+x], p.Queries.lanes[x*%[4]d+lane], sum[lane])
		}
	}
	for lane := range sum {
		if !p.plain { // Factor is not 1
			sum[lane] *= float32(p.Factor)
		}
		scores[j*%[4]d+lane] = sum[lane]
	}
}`, g.rows, vecs*g.vec, unroll, g.vecs*g.vec))
	g.take(panel, lanesAt, elem, elemAt, stride, stride3, out, count, steps, aux)
	g.takeFar()
	g.arg(out, "scores", 8)
	g.scoreRows(16)
	// The remaining keys are often half a micro-tile. A single row has only one or two sums to
	// overlap, and takes almost as long as half a micro-tile.
	g.tiles(vecs, true, []int{g.rows, g.rows / 2, 1}, func(t tile) {
		t.startScore()
		t.products()
	}, func(t tile) {
		t.scaleScores()
		t.storeScores()
		t.nextScore()
	})
	g.ret()
}

// scoreRows sets the registers whose values all micro-tiles of keys share. It reads out, the first
// argument p, and the arguments from and to at offset at.
func (g *gen) scoreRows(at int) {
	g.arg(panel, "p", 0)
	g.arg(count, "to", at+8)
	g.arg(aux, "from", at)
	g.get(stride, g.of("K.Stride"))
	g.get(elem, g.of("K.Data"))
	g.subtract(count, aux)
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	g.note("skip from rows of K and of P")
	g.move(steps, aux)
	g.multiply(steps, stride)
	g.offset(elem, elem, steps, 1)
	g.scale(aux, g.row())
	g.offset(out, out, aux, 1)
}

func (t tile) startScore() {
	t.get(lanesAt, t.of("Qt"))
	t.move(elemAt, elem)
	t.get(steps, t.of("D"))
}

// scaleScores multiplies by the factor unless it is 1. It destroys steps.
func (t tile) scaleScores() {
	scaled := fmt.Sprint("scaled", t.rows, t.name)
	t.getBool(steps, t.of("plain"))
	t.jumpAtLeast(steps, 1, scaled)
	t.broadcast64(t.elem(0), t.of("Factor"))
	for r := range t.rows {
		for v := t.first; v < t.vecs; v++ {
			t.mul(t.sum(r, v), t.sum(r, v), t.elem(0))
		}
	}
	t.label(scaled)
}

func (t tile) storeScores() {
	for r := range t.rows {
		for v := t.first; v < t.vecs; v++ {
			t.store(mem{base: out, off: r*t.row() + v*t.bytes()}, t.sum(r, v))
		}
	}
}

func (t tile) nextScore() {
	t.increase(out, t.rows*t.row())
	for r := t.rows; r > 0; r -= min(r, 8) {
		t.offset(elem, elem, stride, min(r, 8))
	}
}

// mix emits Ops.Mix.
func (g *gen) mix(vecs int) {
	g.function(fmt.Sprint("Mix", vecs), "(p *Mix, keep *float32)", 8, 16, fmt.Sprintf(`
for c := range p.C { // %d at a time
	var sum [%d]float32
	for lane := range sum {
		first, end := 0, p.N
		if p.Until != nil {
			first, end = p.Since[lane/%[5]d], p.Until[lane/%[5]d]
		}
		for j := first; j < end; j++ { // %[3]d at a time
			sum[lane] = fma(p.Values.rows.Data[j*p.Values.rows.Stride+c], p.P[j*%[4]d+lane], sum[lane])
		}
	}
	for lane := range sum {
		if !p.Fresh {
			sum[lane] = fma(p.O[c*%[4]d+lane], keep[lane], sum[lane])
		}
		p.O[c*%[4]d+lane] = sum[lane]
	}
}`, g.rows, vecs*g.vec, unroll, g.vecs*g.vec, g.vec))
	g.take(panel, lanes, lanesAt, elem, elemAt, elemAt4, stride, stride3, out, count, steps, aux, nextRow, lead)
	g.arg(panel, "p", 0)
	g.get(lanes, g.of("P"))
	g.get(elem, g.of("V.Data"))
	g.get(stride, g.of("V.Stride"))
	g.get(out, g.of("O"))
	g.get(count, g.of("C"))
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	// A micro-tile with few vectors gets more columns, so that it has as many sums. With fewer,
	// their multiply-adds would wait for one another.
	// Tuning: docs/tuning.md#mix-columns
	rows := []int{g.rows, 1}
	if many := g.cols[vecs-1]; many > g.rows {
		rows = []int{many, g.rows, 1}
	}
	g.tiles(vecs, false, rows, func(t tile) {
		t.move(lanesAt, lanes)
		t.move(elemAt, elem)
		if t.below = t.rows > 1; t.below {
			t.streamLines = 1
			t.prefetchColumns()
		}
		t.stairs()
	}, func(t tile) {
		at := func(r, v int) mem { return mem{base: out, off: r*t.row() + v*t.bytes()} }
		fresh := fmt.Sprint("fresh", t.rows)
		t.getBool(steps, t.of("Fresh"))
		t.jumpAtLeast(steps, 1, fresh)
		t.arg(aux, "keep", 8)
		for v := range t.vecs {
			t.load(t.lane(v), mem{base: aux, vectors: v})
			for r := range t.rows {
				t.fma(t.sum(r, v), t.lane(v), at(r, v))
			}
		}
		t.label(fresh)
		for r := range t.rows {
			for v := range t.vecs {
				t.store(at(r, v), t.sum(r, v))
			}
		}
		t.increase(out, t.rows*t.row())
		t.increase(elem, 4*t.rows)
	})
	g.ret()
}

// prefetchColumns makes Mix prefetch the current columns of the rows at Mix.Next, and swaps Next
// and Then. If Next is zero, it prefetches those columns of the first row of V.
func (t tile) prefetchColumns() {
	for _, field := range []string{".At", ".By"} {
		t.get(lead, t.of("Then"+field))
		t.get(steps, t.of("Next"+field))
		t.put(t.of("Then"+field), steps)
		t.put(t.of("Next"+field), lead)
	}
	t.move(lead, elem)
	t.get(steps, t.of("Next.At"))
	t.jumpBelow(steps, 1, fmt.Sprint("prefetches", t.rows))
	t.plus(lead, steps)
	t.get(steps, t.of("V.Data"))
	t.subtract(lead, steps)
	t.label(fmt.Sprint("prefetches", t.rows))
}

// stairs emits a micro-tile whose vectors all compute N steps or, if Until is not nil, steps
// Since..Until of each vector. It begins with the first vector alone and adds one vector after
// another until it computes all. Then it drops the first ones one by one. A vector that computes no
// step keeps its sums.
func (t tile) stairs() {
	const of, before = aux, nextRow
	suffix := func(field string, v int) string { return fmt.Sprint(t.rows, field, v) }
	to := func(field string, v int) {
		t.get(of, t.of(field))
		t.get(steps, mem{base: of, off: 8 * v})
		t.subtract(steps, before)
		t.get(before, mem{base: of, off: 8 * v})
		t.increase(steps, -unroll)
	}
	all, done := fmt.Sprint("all", t.rows), fmt.Sprint("summed", t.rows)
	t.begin()
	t.get(steps, t.of("N"))
	t.increase(steps, -unroll)
	t.get(of, t.of("Until"))
	t.jumpBelow(of, 1, all)
	t.set(before, 0)
	for v := 1; v < t.vecs; v++ {
		t.late = t.vecs - v
		to("Since", v)
		t.rest(suffix("Since", v))
	}
	t.late = 0
	to("Until", 0)
	t.label(all)
	t.rest(suffix("Until", 0))
	if t.vecs == 1 {
		return
	}
	t.below = false
	t.get(of, t.of("Until"))
	t.jumpBelow(of, 1, done)
	for t.first = 1; t.first < t.vecs; t.first++ {
		to("Until", t.first)
		t.rest(suffix("Until", t.first))
	}
	t.label(done)
}
