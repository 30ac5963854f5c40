package asmgen

import "fmt"

// dot emits Ops.Dot: products of rows with rows. Their columns are in lanes, so a micro-tile has a
// vector of sums for each pair of a query and a key. At the end it adds up the elements of the
// vectors of four keys at once, pair by pair.
//
//	0 .. 4*R-1   sums of R queries with 4 keys
//	4*R ..       elements of R queries
//	the next     elements of a key
//
// Remainders are computed with fewer queries, with one key, and with one column. The order of the
// additions does not depend on the micro-tile, so neither do the bits.
//
// While it reads these keys, it prefetches the rows at Runs.Ahead line by line, and a line of each
// page at Runs.Far.
//
// A hardware prefetcher tells streams apart by the address of the load instruction, and loses track
// when a loop has many of them. So one query multiplies keys one after another. Int8 keeps the CPU
// busier, so there one query multiplies four keys by four vectors of columns, which are 16 loads.
// Tuning: docs/tuning.md#dot-loads
//
// K may be cells of any type. ScaleKeys multiplies by their scales afterwards.
func (g *gen) dot(c cells) {
	g.function("Dot"+c.name()+g.reading.name, "(p *Dot)", 8, 8, fmt.Sprintf(`
for j := range p.N { // 4 at a time
	for r := range p.R { // %d at a time
		var sum [%[2]d]float32
		for x := range p.D { // %[2]d at a time; what is left over is added to sum[0]
			sum[x%%%[2]d] = fma(p.Rows.Data[r*p.Rows.Stride+x], %[3]s, sum[x%%%[2]d])
		}
		p.P[r*p.Stride+j] = float32(p.Factor) * Σ sum
	}
}`, g.queries, g.vec, c.float("p.Cache", "j*p.Cache.Stride+x")))
	g.take(panel, lanes, lanesAt, elem, elemAt, stride, stride3, out, count, steps, rowsLeft, apart, apart3, lead, leadAt)
	g.arg(panel, "p", 0)
	g.get(stride, g.of("Cache.Stride"))
	g.get(apart, g.of("Rows.Stride"))
	g.scale(stride, c.size())
	g.scale(apart, 4)
	g.offset(stride3, stride, stride, 2)
	g.offset(apart3, apart, apart, 2)
	g.runs()
	g.label("run")
	g.get(steps, g.of("run"))
	g.runAt(elem, "At", "Cache."+c.slice(), c.size(), elemAt)
	g.leadOf(elem, c, elemAt)
	g.rowsOfHead(elemAt)
	g.scoresOfRun(out, elemAt)
	g.keysOfRun(count, elemAt)
	if c != i8 {
		dots{g, c, 1, 4}.alone()
	}
	for _, keys := range []int{4, 1} {
		g.jumpBelow(count, keys, fmt.Sprint("end", keys))
		g.label(fmt.Sprint("keys", keys))
		g.firstShare()
		g.get(lanes, g.of("rows"))
		g.get(rowsLeft, g.of("R"))
		for queries := g.queries; queries > 0; queries /= 2 {
			dots{g, c, queries, keys}.emit()
		}
		g.note("move to the first query of the next keys")
		g.get(rowsLeft, g.of("R"))
		g.get(steps, g.of("Stride"))
		g.scale(steps, 4)
		g.multiply(steps, rowsLeft)
		g.subtract(out, steps)
		g.increase(out, 4*keys)
		g.down(elem, stride, keys)
		g.increase(count, -keys)
		g.jumpAtLeast(count, keys, fmt.Sprint("keys", keys))
		g.label(fmt.Sprint("end", keys))
	}
	g.moreRuns("run")
	g.ret()
}

// runs begins a loop over the runs of keys. Its progress is stored in the call, because other loops
// need the registers.
func (g *gen) runs() {
	g.set(steps, 0)
	g.put(g.of("run"), steps)
	g.put(g.of("head"), steps)
	g.get(steps, g.of("N"))
	g.put(g.of("left"), steps)
}

// runAt loads the address at which the run begins whose number is in steps. It destroys temp.
func (g *gen) runAt(dst reg, list, from string, size int, temp reg) {
	g.get(dst, g.of(list))
	g.offset(dst, dst, steps, 8)
	g.get(dst, mem{base: dst})
	g.scale(dst, size)
	g.get(temp, g.of(from))
	g.plus(dst, temp)
}

// leadOf computes the distance from a run's rows, which begin at the address at, to the rows that
// it prefetches. steps has the run's number. It also touches the lines at Far and FarScale, and
// destroys temp.
func (g *gen) leadOf(at reg, c cells, temp reg) {
	find := func(list string) {
		g.get(lead, g.of(list))
		g.offset(lead, lead, steps, 8)
		g.get(lead, mem{base: lead})
	}
	find("Far")
	g.get(temp, g.of("FarPages"))
	g.label("touch")
	g.prefetch(mem{base: lead})
	g.increase(lead, page)
	g.increase(temp, -1)
	g.jumpAtLeast(temp, 1, "touch")
	if c == i8 {
		find("FarScale")
		g.prefetch(mem{base: lead})
	}
	find("Ahead")
	g.subtract(lead, at)
}

// rowsOfHead computes the address of the rows of Q or O of the current run's head. It destroys
// steps and temp.
func (g *gen) rowsOfHead(temp reg) {
	g.get(steps, g.of("head"))
	g.get(temp, g.of("HeadStep"))
	g.multiply(steps, temp)
	g.get(temp, g.of("Rows.Data"))
	g.offset(steps, temp, steps, 4)
	g.put(g.of("rows"), steps)
}

// scoresOfRun computes the address in P of the first query's scores for the run's keys. It destroys
// steps and temp.
func (g *gen) scoresOfRun(dst, temp reg) {
	g.get(steps, g.of("head"))
	g.get(temp, g.of("R"))
	g.multiply(steps, temp)
	g.get(temp, g.of("Stride"))
	g.multiply(steps, temp)
	g.get(temp, g.of("N"))
	g.plus(steps, temp)
	g.get(temp, g.of("left"))
	g.subtract(steps, temp)
	g.get(temp, g.of("P"))
	g.offset(dst, temp, steps, 4)
}

// keysOfRun loads the number of keys in the run and moves on to the next run: the same keys of the
// next head or, after the last head, the next keys of the first. It destroys steps and temp.
func (g *gen) keysOfRun(dst, temp reg) {
	g.get(steps, g.of("run"))
	g.increase(steps, 1)
	g.put(g.of("run"), steps)
	g.get(dst, g.of("left"))
	g.get(steps, g.of("Run"))
	g.jumpLess(dst, steps, "taken")
	g.move(dst, steps)
	g.label("taken")
	g.get(steps, g.of("head"))
	g.increase(steps, 1)
	g.get(temp, g.of("Heads"))
	g.jumpLess(steps, temp, "head")
	g.get(steps, g.of("left"))
	g.subtract(steps, dst)
	g.put(g.of("left"), steps)
	g.set(steps, 0)
	g.label("head")
	g.put(g.of("head"), steps)
}

// moreRuns ends the loop over runs.
func (g *gen) moreRuns(label string) {
	g.get(steps, g.of("left"))
	g.jumpAtLeast(steps, 1, label)
}

// ifShare emits the prefetch of one row of four, if the row is in the current micro-tile's share.
// The micro-tiles of all queries divide the prefetches among themselves: if one made them all,
// memory would be idle during the others. The lowest bits of Runs.share select the rows.
// Tuning: docs/tuning.md#decode-turns
func (g *gen) ifShare(row int, name string, prefetch func()) {
	g.jumpUnless(g.of("share"), row, "prefetched"+name)
	prefetch()
	g.label("prefetched" + name)
}

// firstShare sets Runs.share to the share of the first micro-tile. It destroys steps.
func (g *gen) firstShare() {
	g.get(steps, g.of("shares"))
	g.put(g.of("share"), steps)
}

// nextShare sets Runs.share to the share of the next micro-tile. It destroys steps.
func (g *gen) nextShare() {
	g.get(steps, g.of("share"))
	g.lower(steps, 4)
	g.put(g.of("share"), steps)
}

// dots is a micro-tile: sums of queries with keys.
type dots struct {
	*gen
	cells
	queries, keys int
}

func (d dots) sum(r, j int) vec { return vec(r*d.keys + j) }
func (d dots) query(r int) vec  { return vec(d.queries*d.keys + r) }
func (d dots) key() vec         { return vec(d.queries*d.keys + d.queries) }

// take takes the micro-tile's registers, and as many for keys as the loop over columns reads at
// once.
func (d dots) take(keys int) {
	d.vectors(span{"sums", 0, d.queries * d.keys}, span{"queries", d.query(0), d.queries}, span{"keys", d.key(), keys})
}

// emit emits the loop over queries.
func (d dots) emit() {
	name := fmt.Sprintf("%dx%d", d.queries, d.keys)
	d.jumpBelow(rowsLeft, d.queries, "done"+name)
	d.label("queries" + name)
	keys := 1
	if d.queries == 1 && d.cells == i8 {
		keys = heldVectors
	}
	d.take(keys)
	if d.queries == 1 && d.cells != i8 {
		d.keyByKey(name)
	} else {
		d.together(name)
	}
	d.finish()
	d.freeVectors()
	d.nextShare()
	d.increase(rowsLeft, -d.queries)
	d.jumpAtLeast(rowsLeft, d.queries, "queries"+name)
	d.label("done" + name)
}

// together emits the sums of queries with all keys of the micro-tile at once.
func (d dots) together(name string) {
	for r := range d.queries {
		for j := range d.keys {
			d.zero(d.sum(r, j))
		}
	}
	d.move(lanesAt, lanes)
	d.move(elemAt, elem)
	d.offset(leadAt, elem, lead, 1)
	d.get(steps, d.of("D"))
	if d.queries == 1 {
		d.heldQuery(name)
	} else if many := min(line/(d.vec*d.size()), 4); many > 1 {
		d.columns(name+"line", many, false)
	}
	d.columns(name+"vector", 1, false)
	d.columns(name+"one", 1, true)
}

// line is the size of a cache line.
const line = 64

// heldVectors is the number of vectors of a query that heldQuery holds in registers.
const heldVectors = 4

// heldQuery emits the products of one query by four vectors of columns, which it holds in
// registers, and then by two.
func (d dots) heldQuery(name string) {
	for vecs := heldVectors; vecs > 1; vecs /= 2 {
		name, n := fmt.Sprint(name, "held", vecs), vecs*d.vec
		d.jumpBelow(steps, n, "end"+name)
		d.label("columns" + name)
		for v := range vecs {
			d.load(d.key()+vec(v), mem{base: lanesAt, vectors: v})
		}
		for j := range d.keys {
			for v := range vecs {
				off := v * d.vec * d.size()
				if off%line == 0 {
					d.prefetchRead(row(leadAt, stride, stride3, j, off))
				}
				d.loadCells(d.query(0), row(elemAt, stride, stride3, j, off), d.cells)
				d.fma(d.sum(0, j), d.key()+vec(v), d.query(0))
			}
		}
		d.next(n)
		d.increase(leadAt, d.size()*n)
		if vecs == heldVectors {
			d.jumpAtLeast(steps, n, "columns"+name)
		}
		d.label("end" + name)
	}
}

// columns emits the loop over columns, vecs vectors at a time, or one element if single.
func (d dots) columns(name string, vecs int, single bool) {
	load, widen, n := d.load, d.loadCells, vecs*d.vec
	if single {
		load, widen, n = d.loadOne, d.loadCell, 1
	}
	d.jumpBelow(steps, n, "end"+name)
	d.label("columns" + name)
	for v := range vecs {
		for r := range d.queries {
			load(d.query(r), row(lanesAt, apart, apart3, r, v*d.bytes()))
		}
		for j := range d.keys {
			widen(d.key(), row(elemAt, stride, stride3, j, v*d.vec*d.size()), d.cells)
			if v == 0 && !single {
				d.ifShare(j, fmt.Sprint(name, j), func() { d.prefetchRead(row(leadAt, stride, stride3, j, 0)) })
			}
			for r := range d.queries {
				d.fma(d.sum(r, j), d.query(r), d.key())
			}
		}
	}
	d.next(n)
	d.increase(leadAt, d.size()*n)
	d.jumpAtLeast(steps, n, "columns"+name)
	d.label("end" + name)
}

// alone emits the sums of an only query whose row is 16, 8 or 4 vectors, the common sizes. It
// multiplies keys one after another, and stores the scores of four at once. The query stays in
// registers for the whole run; vectors that do not fit are read again with each key. Few
// instructions between one row and the next let a CPU keep more rows in flight.
// Tuning: docs/tuning.md#dot-alone
func (d dots) alone() {
	d.get(steps, d.of("R"))
	d.jumpAtLeast(steps, 2, "notAlone")
	d.jumpBelow(count, d.keys, "notAlone")
	d.get(steps, d.of("D"))
	d.get(lanes, d.of("rows"))
	query := func(v int) vec { return d.key() + vec(1+v) }
	for _, vecs := range []int{16, 8, 4} {
		name := fmt.Sprint("alone", vecs)
		d.jumpBelow(steps, vecs*d.vec, "end"+name)
		d.jumpAtLeast(steps, vecs*d.vec+1, "end"+name)
		kept := min(vecs, d.regs-int(query(0)))
		d.take(1)
		d.vectors(span{"query", query(0), kept})
		for v := range kept {
			d.load(query(v), mem{base: lanes, vectors: v})
		}
		d.label(name)
		d.eachKey(name, func(key reg) {
			prefetch := d.prefetchRow(key, vecs, d.cells)
			for v := range vecs {
				at := mem{base: key, off: v * d.vec * d.size()}
				prefetch(at.off)
				switch {
				case v >= kept:
					d.loadCells(d.key(), at, d.cells)
					d.fma(d.sum(0, d.keys-1), d.key(), mem{base: lanes, vectors: v})
				case d.cells == f32:
					d.fma(d.sum(0, d.keys-1), query(v), at)
				default:
					d.loadCells(d.key(), at, d.cells)
					d.fma(d.sum(0, d.keys-1), query(v), d.key())
				}
			}
		})
		d.broadcast64(d.key(), d.of("Factor"))
		d.total(0)
		d.increase(out, 4*d.keys)
		d.down(elem, stride, d.keys)
		d.increase(count, -d.keys)
		d.jumpAtLeast(count, d.keys, name)
		d.jump("notAlone")
		d.freeVectors()
		d.label("end" + name)
	}
	d.label("notAlone")
}

// keyByKey emits the sums of one query with keys one after another. The current key's sum is the
// last, and moves to the place before when the next key begins.
func (d dots) keyByKey(name string) {
	const most = 8
	d.eachKey(name, func(key reg) {
		d.move(lanesAt, lanes)
		d.move(elemAt, key)
		d.get(steps, d.of("D"))
		for vecs := most; vecs > 0; vecs /= 2 {
			d.columnsOfKey(fmt.Sprint(name, "vectors", vecs), vecs, vecs == most, false)
		}
		d.columnsOfKey(name+"one", 1, true, true)
	})
	d.set(rowsLeft, 1)
}

// eachKey emits a loop over keys. body adds to the last sum.
func (d dots) eachKey(name string, body func(key reg)) {
	const keysLeft, key = rowsLeft, leadAt // one query is left
	d.move(key, elem)
	d.set(keysLeft, d.keys)
	d.label("key" + name)
	for j := range d.keys - 1 {
		d.load(d.sum(0, j), d.sum(0, j+1))
	}
	d.zero(d.sum(0, d.keys-1))
	body(key)
	d.plus(key, stride)
	d.increase(keysLeft, -1)
	d.jumpAtLeast(keysLeft, 1, "key"+name)
}

// prefetchRow returns a function that prefetches a row of vecs vectors, four lines at a time,
// before the first of the four is read. Fewer lines at a time leave fewer reads of memory in
// flight; more delay the products.
// Tuning: docs/tuning.md#prefetch-row
func (g *gen) prefetchRow(at reg, vecs int, c cells) (each func(off int)) {
	const together = 4 * line
	bytes := vecs * g.vec * c.size()
	return func(off int) {
		for next := off; off%together == 0 && next < min(off+together, bytes); next += line {
			g.prefetchRead(mem{base: at, index: lead, times: 1, off: next})
		}
	}
}

// columnsOfKey emits the products of vecs vectors of columns of a key, or of one element if single.
// With loop it repeats until fewer columns are left.
func (d dots) columnsOfKey(name string, vecs int, loop, single bool) {
	load, widen, n := d.load, d.loadCells, vecs*d.vec
	if single {
		load, widen, n = d.loadOne, d.loadCell, 1
	}
	d.jumpBelow(steps, n, "end"+name)
	d.label("columns" + name)
	for v := range vecs {
		off := v * d.vec * d.size()
		if off%line == 0 && !single {
			d.prefetchRead(mem{base: elemAt, index: lead, times: 1, off: off})
		}
		load(d.query(0), mem{base: lanesAt, vectors: v})
		widen(d.key(), mem{base: elemAt, off: off}, d.cells)
		d.fma(d.sum(0, d.keys-1), d.query(0), d.key())
	}
	d.next(n)
	if loop {
		d.jumpAtLeast(steps, n, "columns"+name)
	}
	d.label("end" + name)
}

// next advances the cursors by n columns.
func (d dots) next(n int) {
	d.increase(lanesAt, 4*n)
	d.increase(elemAt, d.size()*n)
	d.increase(steps, -n)
}

// row returns the operand off bytes from a cursor, in row r after it; r is at most 3.
func row(at, stride, stride3 reg, r, off int) mem {
	m := mem{base: at, off: off}
	switch r {
	case 1, 2:
		m.index, m.times = stride, r
	case 3:
		m.index, m.times = stride3, 1
	}
	return m
}

// finish adds up and stores the sums, and advances to the next queries.
func (d dots) finish() {
	d.get(steps, d.of("Stride"))
	d.scale(steps, 4)
	for r := range d.queries {
		if r == 0 {
			d.broadcast64(d.key(), d.of("Factor"))
		}
		d.total(r)
		d.offset(out, out, steps, 1)
	}
	d.down(lanes, apart, d.queries)
}

// total adds up the sums of query r, multiplies them by the factor, and stores them. The factor is
// in the register of a key.
func (d dots) total(r int) {
	all, temp := d.sum(r, 0), d.query(0)
	if d.keys == 4 {
		d.pairs(all, all, d.sum(r, 1), temp)
		d.pairs(d.sum(r, 2), d.sum(r, 2), d.sum(r, 3), temp)
		d.pairs(all, all, d.sum(r, 2), temp)
	} else {
		d.pairs(all, all, all, temp)
		d.pairs(all, all, all, temp)
	}
	d.quarters(all, temp)
	d.mul(all, all, d.key())
	if d.keys == 4 {
		d.storeFour(mem{base: out}, all)
	} else {
		d.storeOne(mem{base: out}, all)
	}
}

// sum emits Ops.Sum. It reads a run of V once for all columns of all queries, with the sums in O.
// Separate passes over all runs for some of the columns would read rows from memory in pieces. The
// micro-tiles are those of Outer, except that one query sums keys one after another, as in Dot.
//
// V may be cells of any type. ScaleKeys multiplies the weights by their scales before.
func (g *gen) sum(c cells) {
	g.function("Sum"+c.name()+g.reading.name, "(p *Walk)", 8, 8, fmt.Sprintf(`
for k := range p.N {
	for r := range p.R {
		for c := range p.D {
			p.Rows.Data[r*p.Rows.Stride+c] = fma(p.P[r*p.Stride+k], %s, p.Rows.Data[r*p.Rows.Stride+c])
		}
	}
}`, c.float("p.Cache", "k*p.Cache.Stride+c")))
	g.take(panel, lanes, lanesAt, elem, elemAt, elemAt4, stride, stride3, out, count, steps, columns, apart, outStride, lead)
	g.arg(panel, "p", 0)
	g.get(stride, g.of("Stride"))
	g.get(apart, g.of("Cache.Stride"))
	g.get(outStride, g.of("Rows.Stride"))
	g.scale(stride, 4)
	g.scale(apart, c.size())
	g.scale(outStride, 4)
	g.offset(stride3, stride, stride, 2)
	g.runs()
	g.label("run")
	g.get(steps, g.of("run"))
	g.runAt(lanes, "At", "Cache."+c.slice(), c.size(), elem)
	g.leadOf(lanes, c, elemAt)
	g.rowsOfHead(elem)
	g.scoresOfRun(elem, count)
	g.keysOfRun(count, elemAt)
	g.put(g.of("keys"), count)
	g.firstShare()
	g.get(out, g.of("rows"))
	g.get(count, g.of("R"))
	for _, rows := range outerRows.tiles {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		g.get(columns, g.of("D"))
		g.columns(tile{gen: g, rows: rows, along: true, apart: true, ahead: true, cells: c}, tile.sumColumns)
		g.note("move to the first column of the next rows")
		g.get(steps, g.of("D"))
		g.scale(steps, c.size())
		g.subtract(lanes, steps)
		g.get(steps, g.of("D"))
		g.scale(steps, 4)
		g.subtract(out, steps)
		g.down(out, outStride, rows)
		g.down(elem, stride, rows)
		g.nextShare()
		g.increase(count, -rows)
		g.jumpAtLeast(count, rows, fmt.Sprint("rows", rows))
		g.label(fmt.Sprint("end", rows))
	}
	g.moreRuns("run")
	g.ret()
}

// sumColumns emits a micro-tile for the keys of a run.
func (t tile) sumColumns() {
	if t.keyByKey() {
		t.sumKeys()
		return
	}
	t.take()
	defer t.freeVectors()
	t.eachResult(func(r, v int, at mem) { t.loadLanes(t.sum(r, v), at) })
	t.move(elemAt, elem)
	t.move(lanesAt, lanes)
	t.follow()
	t.get(steps, t.of("keys"))
	t.increase(steps, -unroll)
	t.rest(t.name)
	t.eachResult(func(r, v int, at mem) { t.storeLanes(at, t.sum(r, v)) })
}

// keyByKey reports whether the micro-tile has one query, which sums keys one after another. Int8
// keeps the CPU too busy for that.
func (t tile) keyByKey() bool { return t.ahead && t.rows == 1 && t.cells != i8 }

// keyVectors is the largest width of such a micro-tile in vectors. At 16, rows of common sizes are
// read whole; at 8, longer rows of a run would be read in halves.
// Tuning: docs/tuning.md#key-vectors
const keyVectors = 16

// sumKeys emits a micro-tile with one query. Sums that have no register stay in memory.
func (t tile) sumKeys() {
	widen := t.loadCells
	if t.single {
		widen = t.loadCell
	}
	kept := min(t.vecs, t.regs-3)
	weight, row, sum := vec(kept), vec(kept+1), vec(kept+2)
	t.vectors(span{"sums", 0, kept}, span{"weight", weight, 1}, span{"row", row, 1}, span{"sum", sum, 1})
	defer t.freeVectors()
	at := func(v int) mem { return mem{base: out, vectors: v} }
	for v := range kept {
		t.loadLanes(vec(v), at(v))
	}
	t.move(elemAt, elem)
	t.move(lanesAt, lanes)
	t.get(steps, t.of("keys"))
	t.label("key" + t.name)
	t.broadcast(weight, mem{base: elemAt})
	prefetch := t.prefetchRow(lanesAt, t.vecs, t.cells)
	for v := range t.vecs {
		off := v * t.vec * t.size()
		prefetch(off)
		widen(row, mem{base: lanesAt, off: off}, t.cells)
		if v < kept {
			t.fma(vec(v), row, weight)
			continue
		}
		t.load(sum, at(v))
		t.fma(sum, row, weight)
		t.store(at(v), sum)
	}
	t.offset(lanesAt, lanesAt, apart, 1)
	t.increase(elemAt, 4)
	t.increase(steps, -1)
	t.jumpAtLeast(steps, 1, "key"+t.name)
	for v := range kept {
		t.storeLanes(at(v), vec(v))
	}
}

// weigh emits Ops.Weigh for queries from..R, with or without S. It computes whole vectors of a row,
// up to the one with the last key. Memory would be idle meanwhile, so it prefetches the lines of
// Weigh.Prefetch.
func (g *gen) weigh(sums bool) {
	name, s := "Weigh", ""
	if sums {
		name, s = "WeighSums", "\n\tp.S[r] += Σ e*p.P[r*p.Stride+j]"
	}
	g.function(name+g.power.name+g.reading.name, "(p *Weigh, from, vectors int) (done int)", 8, 32, fmt.Sprintf(`
n := %[1]d * vectors
for r := from; r < p.R; r++ {
	if any p.P[r*p.Stride+j] > p.M[r]+Limit { // j < n
		p.tops[j%%%[1]d] = max(p.P[r*p.Stride+j])
		return r
	}
	p.L[r] += Σ e // with e = 2^(p.P[r*p.Stride+j] - p.M[r])%[2]s
	p.P[r*p.Stride+j] = e
}
return p.R`, g.vec, s))
	g.take(panel, lanes, lanesAt, elem, stride, out, count, steps, aux, refsOf, lead, leadBy)
	const (
		weights, sumsOf     = lanes, elem // L, S
		at                  = lanesAt
		ref, sum, sumZ      = vec(0), vec(1), vec(2) // used by weighted
		top, highest, score = vec(4), vec(5), vec(6) // used by the check
	)
	prefetch := func() {
		g.prefetchRead(mem{base: lead})
		g.plus(lead, leadBy)
	}
	g.arg(panel, "p", 0)
	g.arg(aux, "from", 8)
	g.get(count, g.of("R"))
	g.get(stride, g.of("Stride"))
	g.scale(stride, 4)
	g.get(out, g.of("P"))
	g.move(steps, aux)
	g.multiply(steps, stride)
	g.offset(out, out, steps, 1)
	g.get(refsOf, g.of("M"))
	g.get(weights, g.of("L"))
	g.offset(refsOf, refsOf, aux, 4)
	g.offset(weights, weights, aux, 4)
	if sums {
		g.get(sumsOf, g.of("S"))
		g.offset(sumsOf, sumsOf, aux, 4)
	}
	g.get(lead, g.of("At"))
	g.get(leadBy, g.of("By"))
	g.subtract(count, aux)
	g.jumpBelow(count, 1, "done")

	g.takeWeighted()
	g.label("row")
	g.broadcast(ref, mem{base: refsOf})
	g.load(top, ref)
	g.add(highest, ref, limit)
	g.move(at, out)
	g.arg(steps, "vectors", 16)
	g.largest(top, score, at, g.bytes(), "check", prefetch)
	g.load(score, top)
	g.jumpAbove(score, highest, "over")

	g.zero(sum)
	if sums {
		g.zero(sumZ)
	}
	g.move(at, out)
	g.arg(steps, "vectors", 16)
	g.weighted(at, g.bytes(), "vector", sums, prefetch)
	g.total(sum, weights)
	if sums {
		g.total(sumZ, sumsOf)
		g.increase(sumsOf, 4)
	}
	g.increase(refsOf, 4)
	g.increase(weights, 4)
	g.offset(out, out, stride, 1)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")

	g.label("done")
	g.get(aux, g.of("R"))
	g.subtract(aux, count)
	g.result("done", 24, aux)
	g.ret()

	g.label("over")
	g.store(g.of("tops"), top)
	g.jump("done")
}

// total adds the elements of a vector to a number in memory.
func (g *gen) total(sum vec, to reg) {
	temp := vec(4)
	g.pairs(sum, sum, sum, temp)
	g.pairs(sum, sum, sum, temp)
	g.quarters(sum, temp)
	g.loadOne(temp, mem{base: to})
	g.add(sum, sum, temp)
	g.storeOne(mem{base: to}, sum)
}
