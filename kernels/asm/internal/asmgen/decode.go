package asmgen

import "fmt"

// dot emits Ops.Dot: products of rows with rows. Their columns stand in lanes, so a tile has a vector of sums for each pair of a query and a
// key, and adds up the vector's elements at the end: those of four keys at once, pair by pair.
//
//	0 .. 4*R-1   sums, of R queries with 4 keys
//	4*R ..       elements of R queries
//	the next     elements of a key
//
// What is left over goes by fewer queries, by one key, and by one column; the additions, and so the bits, are the same for all of them.
//
// While these keys are read, what Few.Ahead says is asked for from memory, line for line, and a line of what Few.Far says.
//
// A CPU guesses what comes next by the instruction that loads, and loses its way where these are many: with 32 loads for four rows of 512 bytes AVX-512 on
// a Zen 5 read float32 keys slower than with 8, key after key, and as fast as the loop happened to lie in the binary. One query therefore takes keys one
// after another. Of int8, which keeps the CPU busier, it takes four keys by four vectors of columns: that is 16 loads.
//
// K may be cells of any type; their scales are multiplied in afterwards, by ScaleKeys.
func (g *gen) dot(c cells) {
	g.function("Dot"+c.name()+g.way.name, "(p *Dot)", 8, 8, fmt.Sprintf(`
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
		g.firstTurn()
		g.get(lanes, g.of("rows"))
		g.get(rowsLeft, g.of("R"))
		for queries := g.queries; queries > 0; queries /= 2 {
			dots{g, c, queries, keys}.emit()
		}
		g.note("the first query of the keys that follow")
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

// runs begins a loop over the runs of keys. How far it has come is kept in the block of arguments: other loops need the registers.
func (g *gen) runs() {
	g.set(steps, 0)
	g.put(g.of("run"), steps)
	g.put(g.of("head"), steps)
	g.get(steps, g.of("N"))
	g.put(g.of("left"), steps)
}

// runAt finds where the run whose number is in steps begins. It destroys temp.
func (g *gen) runAt(dst reg, list, from string, size int, temp reg) {
	g.get(dst, g.of(list))
	g.offset(dst, dst, steps, 8)
	g.get(dst, mem{base: dst})
	g.scale(dst, size)
	g.get(temp, g.of(from))
	g.plus(dst, temp)
}

// leadOf finds how far ahead of its rows, which begin at a place, the run whose number is in steps asks. It touches the lines that Far and FarScale say, and
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

// rowsOfHead finds where the rows of Q or O begin of the head whose run is in hand. It destroys steps and temp.
func (g *gen) rowsOfHead(temp reg) {
	g.get(steps, g.of("head"))
	g.get(temp, g.of("HeadStep"))
	g.multiply(steps, temp)
	g.get(temp, g.of("Rows.Data"))
	g.offset(steps, temp, steps, 4)
	g.put(g.of("rows"), steps)
}

// scoresOfRun finds where the row of P begins that its first query has for the run's keys. It destroys steps and temp.
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

// keysOfRun counts the run's keys, and moves on to the one that follows: the same keys of the next head, or of the first head the keys that come then. It
// destroys steps and temp.
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
	g.jumpLess(steps, temp, "turn")
	g.get(steps, g.of("left"))
	g.subtract(steps, dst)
	g.put(g.of("left"), steps)
	g.set(steps, 0)
	g.label("turn")
	g.put(g.of("head"), steps)
}

// moreRuns ends the loop.
func (g *gen) moreRuns(label string) {
	g.get(steps, g.of("left"))
	g.jumpAtLeast(steps, 1, label)
}

// ifTurn emits what asks for a row of four in the turn of a tile that does so. Tiles of queries take turns to ask for the rows that come later: memory that is
// asked for all of them amid one tile, and for none amid the others, has little to do then. The lowest bits of Few.turn say which rows. On a Xeon (family 6,
// model 167) Dot read keys for 8 queries 7 to 24 % faster so, and Sum values 8 to 24 %.
func (g *gen) ifTurn(row int, name string, ask func()) {
	g.jumpUnless(g.of("turn"), row, "asked"+name)
	ask()
	g.label("asked" + name)
}

// firstTurn and nextTurn set those bits. They destroy steps.
func (g *gen) firstTurn() {
	g.get(steps, g.of("turns"))
	g.put(g.of("turn"), steps)
}

func (g *gen) nextTurn() {
	g.get(steps, g.of("turn"))
	g.lower(steps, 4)
	g.put(g.of("turn"), steps)
}

// dots is a tile of sums of queries with keys.
type dots struct {
	*gen
	cells
	queries, keys int
}

func (d dots) sum(r, j int) vec { return vec(r*d.keys + j) }
func (d dots) query(r int) vec  { return vec(d.queries*d.keys + r) }
func (d dots) key() vec         { return vec(d.queries*d.keys + d.queries) }

// take gives a tile its registers: as many for keys as the loop over columns reads at once.
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
		keys = turnVectors
	}
	d.take(keys)
	if d.queries == 1 && d.cells != i8 {
		d.keyByKey(name)
	} else {
		d.together(name)
	}
	d.finish()
	d.freeVectors()
	d.nextTurn()
	d.increase(rowsLeft, -d.queries)
	d.jumpAtLeast(rowsLeft, d.queries, "queries"+name)
	d.label("done" + name)
}

// together emits the sums of queries with all keys at a time.
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
		d.inTurn(name)
	} else if many := min(line/(d.vec*d.size()), 4); many > 1 {
		d.columns(name+"line", many, false)
	}
	d.columns(name+"vector", 1, false)
	d.columns(name+"one", 1, true)
}

// line is the size of a cache line.
const line = 64

// turnVectors is how many vectors of a query registers hold for inTurn.
const turnVectors = 4

// inTurn emits the products of one query by four vectors of columns, which registers hold of the query, then by two.
func (d dots) inTurn(name string) {
	for vecs := turnVectors; vecs > 1; vecs /= 2 {
		name, n := fmt.Sprint(name, "turn", vecs), vecs*d.vec
		d.jumpBelow(steps, n, "end"+name)
		d.label("columns" + name)
		for v := range vecs {
			d.load(d.key()+vec(v), mem{base: lanesAt, vectors: v})
		}
		for j := range d.keys {
			for v := range vecs {
				off := v * d.vec * d.size()
				if off%line == 0 {
					d.ask(row(leadAt, stride, stride3, j, off))
				}
				d.loadCells(d.query(0), row(elemAt, stride, stride3, j, off), d.cells)
				d.fma(d.sum(0, j), d.key()+vec(v), d.query(0))
			}
		}
		d.next(n)
		d.increase(leadAt, d.size()*n)
		if vecs == turnVectors {
			d.jumpAtLeast(steps, n, "columns"+name)
		}
		d.label("end" + name)
	}
}

// columns emits the loop over columns, so many vectors at a time or one element.
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
				d.ifTurn(j, fmt.Sprint(name, j), func() { d.ask(row(leadAt, stride, stride3, j, 0)) })
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

// alone emits the sums of the only query with keys one after another, four at a time, if it is of 16, eight or four vectors, as rows of common sizes are: it
// stays in registers for all keys of the run, as far as there are enough, and what there are none for is read again with each key. Few instructions lie
// between one row and the next, so that a CPU has more rows in hand. On a Zen 4, decoding 32768 keys of 8 heads, AVX-512 took 3 % less time so than where each
// four keys came by way of the counts of queries and columns, and with d = 128 7 % (medians of 44 rounds; the least times were within 1.2 % of one another).
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
			asks := d.askRow(key, vecs, d.cells)
			for v := range vecs {
				at := mem{base: key, off: v * d.vec * d.size()}
				asks(at.off)
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

// keyByKey emits the sums of one query with keys one after another: each is the last, and moves up when the next one comes.
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

// eachKey emits a loop over keys, whose body adds to the last sum.
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

// askRow asks for a row of so many vectors four lines at a time, before the first of them is read, by what it returns. On a Zen 4, which asks for lines when it
// comes to them, decoding float32 took 2 to 3 % less time so than where each line was asked for alone, with d = 64, and with AVX2 and d = 128 4 % less. With
// d = 128, two lines at a time were slower with AVX2, and eight with AVX-512.
func (g *gen) askRow(at reg, vecs int, c cells) (each func(off int)) {
	const together = 4 * line
	bytes := vecs * g.vec * c.size()
	return func(off int) {
		for next := off; off%together == 0 && next < min(off+together, bytes); next += line {
			g.ask(mem{base: at, index: lead, times: 1, off: next})
		}
	}
}

// columnsOfKey emits the products with so many vectors of columns of a key, or with one element; with loop, until fewer are left.
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
			d.ask(mem{base: elemAt, index: lead, times: 1, off: off})
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

// next moves on by so many columns.
func (d dots) next(n int) {
	d.increase(lanesAt, 4*n)
	d.increase(elemAt, d.size()*n)
	d.increase(steps, -n)
}

// row is the element so many bytes from a cursor, up to three rows further on.
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

// finish adds up and stores, and moves on to the queries that follow.
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

// total adds up a query's sums and stores them, times the factor, which is where a key was.
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

// sum emits Ops.Sum. A run of V is read once, for all columns of all queries, and the sums lie in O meanwhile: a loop over all
// runs for some columns, and another for the rest, would read rows from memory in halves. Tiles are Outer's, but for one query, which takes one key after
// another, as in Dot.
//
// V may be cells of any type; ScaleKeys multiplies their scales into the weights before.
func (g *gen) sum(c cells) {
	g.function("Sum"+c.name()+g.way.name, "(p *Walk)", 8, 8, fmt.Sprintf(`
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
	g.firstTurn()
	g.get(out, g.of("rows"))
	g.get(count, g.of("R"))
	for _, rows := range outerRows.tiles {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		g.get(columns, g.of("D"))
		g.columns(tile{gen: g, rows: rows, along: true, apart: true, ahead: true, cells: c}, tile.sumColumns)
		g.note("the first column of the rows that follow")
		g.get(steps, g.of("D"))
		g.scale(steps, c.size())
		g.subtract(lanes, steps)
		g.get(steps, g.of("D"))
		g.scale(steps, 4)
		g.subtract(out, steps)
		g.down(out, outStride, rows)
		g.down(elem, stride, rows)
		g.nextTurn()
		g.increase(count, -rows)
		g.jumpAtLeast(count, rows, fmt.Sprint("rows", rows))
		g.label(fmt.Sprint("end", rows))
	}
	g.moreRuns("run")
	g.ret()
}

// sumColumns emits a tile, for the keys of a run.
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

// keyByKey says that a tile has one query, which takes one key after another. Int8 is too busy for that.
func (t tile) keyByKey() bool { return t.ahead && t.rows == 1 && t.cells != i8 }

// keyVectors is how wide such a tile is at most: rows of common sizes then go whole. On a Zen 5, decoding was 7 to 14 % faster so than with eight vectors here
// and in Dot, by which rows of a run went in halves: with AVX2 those of 128 numbers, with AVX-512 those of 256.
const keyVectors = 16

// sumKeys emits it. Sums for which there are no registers stay where they go.
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
	asks := t.askRow(lanesAt, t.vecs, t.cells)
	for v := range t.vecs {
		off := v * t.vec * t.size()
		asks(off)
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

// weigh emits Ops.Weigh for rows from one on, with or without S. Rows are done in whole vectors, up to the one that holds the last key. Memory would have
// nothing to do meanwhile: it is asked for what Few.Next says.
func (g *gen) weigh(sums bool) {
	name, s := "Weigh", ""
	if sums {
		name, s = "WeighSums", "\n\tp.S[r] += Σ e*p.P[r*p.Stride+j]"
	}
	g.function(name+g.power.name+g.way.name, "(p *Weigh, from, vectors int) (done int)", 8, 32, fmt.Sprintf(`
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
		ref, sum, sumZ      = vec(0), vec(1), vec(2) // of weighted
		top, highest, score = vec(4), vec(5), vec(6) // of the check
	)
	asks := func() {
		g.ask(mem{base: lead})
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
	g.largest(top, score, at, g.bytes(), "check", asks)
	g.load(score, top)
	g.jumpAbove(score, highest, "over")

	g.zero(sum)
	if sums {
		g.zero(sumZ)
	}
	g.move(at, out)
	g.arg(steps, "vectors", 16)
	g.weighted(at, g.bytes(), "vector", sums, asks)
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

// total adds the elements of a vector to a number.
func (g *gen) total(sum vec, to reg) {
	temp := vec(4)
	g.pairs(sum, sum, sum, temp)
	g.pairs(sum, sum, sum, temp)
	g.quarters(sum, temp)
	g.loadOne(temp, mem{base: to})
	g.add(sum, sum, temp)
	g.storeOne(mem{base: to}, sum)
}
