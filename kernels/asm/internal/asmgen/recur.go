package asmgen

import "fmt"

// solve emits Ops.Solve. It computes some columns of all rows, and then the next columns. Rows are
// computed a micro-tile at a time: first the sums over the rows before the micro-tile, as in Outer,
// then a triangle in registers. There each finished row is stored and, times its weights,
// subtracted from the rows after it.
//
// Rows of X and V may be in descending order, with negative strides. Fresh is a keep of nil.
func (g *gen) solve() {
	g.function("Solve", "(x, v *float32, xStride, vStride int, p *float32, lanes int, keep, beta *float32, n, c int)", 8, 80, fmt.Sprintf(`
for k := range c { // %d at a time
	for i := range n { // %d at a time
		sum := keep[i] * x[i*xStride+k] // 0 if keep is nil
		for j := range i {
			sum = fma(p[i*lanes+j], x[j*xStride+k], sum)
		}
		x[i*xStride+k] = beta[i] * (v[i*vStride+k] - sum)
	}
}`, g.wide*g.vec, outerRows.tiles[0]))
	g.take(lanes, lanesAt, elem, elemAt, elemAt4, stride, out, count, steps, columns, apart, outStride, lead, factors)
	g.arg(lanes, "x", 0)
	g.arg(apart, "xStride", 16)
	g.arg(outStride, "vStride", 24)
	g.arg(stride, "lanes", 40)
	g.arg(columns, "c", 72)
	g.scale(apart, 4)
	g.scale(outStride, 4)
	g.scale(stride, 4)
	t := tile{gen: g, along: true, apart: true}
	for t.vecs = g.wide; t.vecs > 0; t.vecs /= 2 {
		t.solveColumns(t.vecs * t.vec)
	}
	t.vecs, t.single = 1, true
	t.solveColumns(1)
	g.ret()
}

// solveColumns emits the loop over width columns of all rows.
func (t tile) solveColumns(width int) {
	t.jumpBelow(columns, width, fmt.Sprint("end", width))
	t.label(fmt.Sprint("columns", width))
	t.note("lead is at the columns of V")
	t.arg(lead, "v", 8)
	t.plus(lead, lanes)
	t.arg(out, "x", 0)
	t.subtract(lead, out)
	t.arg(elem, "p", 32)
	t.arg(count, "n", 64)
	for _, t.rows = range outerRows.tiles {
		t.name = fmt.Sprintf("%dx%d", t.rows, width)
		t.jumpBelow(count, t.rows, "end"+t.name)
		t.label("rows" + t.name)
		t.take()
		t.solveRows()
		t.freeVectors()
		t.down(elem, stride, t.rows)
		t.increase(count, -t.rows)
		t.jumpAtLeast(count, t.rows, "rows"+t.name)
		t.label("end" + t.name)
	}
	t.increase(lanes, 4*width)
	t.increase(columns, -width)
	t.jumpAtLeast(columns, width, fmt.Sprint("columns", width))
	t.label(fmt.Sprint("end", width))
}

// solveRows emits a micro-tile. lead is at its rows of V, and moves to the next ones.
func (t tile) solveRows() {
	t.empty()
	t.move(elemAt, elem)
	t.move(lanesAt, lanes)
	t.follow()
	t.arg(steps, "n", 64)
	t.subtract(steps, count)
	t.increase(steps, -unroll)
	t.rest(t.name)
	t.note("lanesAt is at the micro-tile's rows of X, and elemAt at its triangle")
	t.arg(steps, "n", 64)
	t.subtract(steps, count)
	t.arg(factors, "keep", 48)
	t.jumpBelow(factors, 1, "fresh"+t.name)
	t.offset(factors, factors, steps, 4)
	t.move(out, lanesAt)
	for r := range t.rows {
		t.broadcast(t.elem(0), mem{base: factors, off: 4 * r})
		for v := range t.vecs {
			t.fma(t.sum(r, v), t.elem(0), t.old(v, mem{base: out, vectors: v}))
		}
		t.offset(out, out, apart, 1)
	}
	t.label("fresh" + t.name)
	t.arg(factors, "beta", 56)
	t.offset(factors, factors, steps, 4)
	t.move(out, lanesAt)
	for r := range t.rows {
		for v := range t.vecs {
			t.loadLanes(t.lane(v), mem{base: lead, vectors: v})
			t.sub(t.sum(r, v), t.lane(v), t.sum(r, v))
		}
		t.offset(lead, lead, outStride, 1)
	}
	for r := range t.rows {
		t.broadcast(t.elem(0), mem{base: factors, off: 4 * r})
		for v := range t.vecs {
			t.mul(t.sum(r, v), t.sum(r, v), t.elem(0))
			t.storeLanes(mem{base: out, vectors: v}, t.sum(r, v))
		}
		t.offset(out, out, apart, 1)
		for below := r + 1; below < t.rows; below++ {
			t.broadcast(t.elem(0), t.at(below, r))
			for v := range t.vecs {
				t.fnma(t.sum(below, v), t.sum(r, v), t.elem(0))
			}
		}
	}
}

// fade emits Ops.Fade, a vector of lanes at a time. A register holds the products of gates: each
// row multiplies it by its gate and adds 1 in its own lane, which is 0 until then. unit points to
// that 1, among zeros.
func (g *gen) fade() {
	g.function("Fade", "(p, from *float32, pStride, fromStride, n, vectors int, alpha, unit, last *float32, strict int)", 8, 80, fmt.Sprintf(`
var product [%[1]d * vectors]float32
for i := range n {
	for lane := range product { // %[1]d at a time
		before := product[lane] * alpha[i]
		product[lane] = before + unit[lane-i]
		p[i*pStride+lane] = from[i*fromStride+lane] * product[lane] // or times before, if strict
	}
}
copy(last, product) // unless last is nil`, g.vec))
	g.take(lanes, lanesAt, elem, elemAt, stride, out, resultAt, count, steps, aux, apart, lead, leadAt)
	const product, after, gate, x = vec(0), vec(1), vec(2), vec(3)
	g.vectors(span{"product", product, 1}, span{"after", after, 1}, span{"gate", gate, 1}, span{"x", x, 1})
	g.arg(out, "p", 0)
	g.arg(lanes, "from", 8)
	g.arg(apart, "pStride", 16)
	g.arg(stride, "fromStride", 24)
	g.arg(count, "vectors", 40)
	g.arg(lead, "unit", 56)
	g.arg(elem, "last", 64)
	g.scale(apart, 4)
	g.scale(stride, 4)
	g.label("vector")
	g.zero(product)
	g.move(lanesAt, lanes)
	g.move(resultAt, out)
	g.move(leadAt, lead)
	g.arg(elemAt, "alpha", 48)
	g.arg(steps, "n", 32)
	g.arg(aux, "strict", 72)
	g.jumpAtLeast(aux, 1, "strict")
	for _, strict := range []bool{false, true} {
		row := "row"
		if strict {
			g.label("strict")
			row = "strictRow"
		}
		g.align()
		g.label(row)
		g.broadcast(gate, mem{base: elemAt})
		g.load(after, mem{base: leadAt})
		g.fma(after, product, gate)
		if strict {
			g.mul(x, product, gate)
			g.mul(x, x, mem{base: lanesAt})
		} else {
			g.mul(x, after, mem{base: lanesAt})
		}
		g.store(mem{base: resultAt}, x)
		g.load(product, after)
		g.increase(elemAt, 4)
		g.increase(leadAt, -4)
		g.plus(lanesAt, stride)
		g.plus(resultAt, apart)
		g.increase(steps, -1)
		g.jumpAtLeast(steps, 1, row)
		if !strict {
			g.jump("rows")
		}
	}
	g.label("rows")
	g.jumpBelow(elem, 1, "next")
	g.store(mem{base: elem}, product)
	g.step(elem, 1)
	g.label("next")
	g.step(lanes, 1)
	g.step(out, 1)
	g.step(lead, 1)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "vector")
	g.ret()
}

// runningProducts emits Ops.Products. A product without its fraction is a signed power of two, and
// an infinity for NaN. The least and the greatest of a row show if it is within the bounds.
func (g *gen) runningProducts() {
	g.function("Products", "(to, from *float32, toStride, fromStride, n, d int) (rows int)", 8, 56, fmt.Sprintf(`
for i := range n {
	for c := range d { // %d at a time
		to[i*toStride+c] = from[i*fromStride+c]
		if i > 0 {
			to[i*toStride+c] *= to[(i-1)*toStride+c]
		}
	}
	if any !(Least <= to[i*toStride+c] < Most) {
		return i
	}
}
return n`, g.vec))
	const before, beforeAt = elem, elemAt // the row of products before, or nil
	g.take(lanes, lanesAt, before, beforeAt, stride, out, resultAt, count, steps, aux, apart)
	const x, bits, low, high, exponents = vec(0), vec(1), vec(2), vec(3), vec(4)
	g.vectors(span{"x", x, 1}, span{"bits", bits, 1}, span{"low", low, 1}, span{"high", high, 1}, span{"exponents", exponents, 1})
	g.arg(out, "to", 0)
	g.arg(lanes, "from", 8)
	g.arg(apart, "toStride", 16)
	g.arg(stride, "fromStride", 24)
	g.arg(count, "n", 32)
	g.scale(apart, 4)
	g.scale(stride, 4)
	g.load(exponents, exponentBits)
	g.set(before, 0)
	g.label("row")
	g.move(lanesAt, lanes)
	g.move(resultAt, out)
	g.move(beforeAt, before)
	g.load(low, one)
	g.load(high, one)
	g.arg(steps, "d", 40)
	for _, single := range []bool{false, true} {
		load, store, n := func(dst vec, m mem) { g.load(dst, m) }, g.store, g.vec
		if single { // in all lanes, as zeros would be out of bounds
			load, store, n = g.broadcast, g.storeOne, 1
		}
		first, end := fmt.Sprint("first", n), fmt.Sprint("end", n)
		g.jumpBelow(steps, n, end)
		g.label(fmt.Sprint("columns", n))
		load(x, mem{base: lanesAt})
		g.jumpBelow(before, 1, first)
		load(bits, mem{base: beforeAt})
		g.mul(x, x, bits)
		g.label(first)
		store(mem{base: resultAt}, x)
		g.and(bits, x, exponents)
		g.max(high, high, bits)
		g.min(low, low, bits)
		for _, at := range []reg{lanesAt, resultAt, beforeAt} {
			g.increase(at, 4*n)
		}
		g.increase(steps, -n)
		g.jumpAtLeast(steps, n, fmt.Sprint("columns", n))
		g.label(end)
	}
	g.load(bits, productMost)
	g.jumpAbove(high, bits, "out")
	g.load(bits, productLeast)
	g.jumpAbove(bits, low, "out")
	g.move(before, out)
	g.plus(out, apart)
	g.plus(lanes, stride)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	g.label("out")
	g.arg(aux, "n", 32)
	g.subtract(aux, count)
	g.result("rows", 48, aux)
	g.ret()
}

const (
	exponentBits constant = "exponentBits"
	productLeast constant = "productLeast"
	productMost  constant = "productMost"
)

func (g *gen) recurConstants() {
	g.constant(exponentBits, "all bits but the fraction", func(int) uint32 { return 0x1ff << fraction })
	g.constant(productLeast, "Least of package asm", same(0x1p-60))
	g.constant(productMost, "half of Most of package asm: powers of two above it are out", same(0x1p59))
}

// byRows emits a loop over rows and their columns: to = x*y, x/y, or x times one factor for each
// row.
func (g *gen) byRows(name string) {
	args, y := "x, y *float32, toStride, xStride, yStride, n, d int", "* y[i*yStride+c]"
	switch name {
	case "Over":
		y = "/ y[i*yStride+c]"
	case "Scale":
		args, y = "x, by *float32, toStride, xStride, n, d int", "* by[i]"
	}
	scales := name == "Scale"
	size, at := 64, 48
	if scales {
		size, at = 56, 40
	}
	g.function(name, "(to, "+args+")", 8, size, fmt.Sprintf(`
for i := range n {
	for c := range d { // %d at a time
		to[i*toStride+c] = x[i*xStride+c] %s
	}
}`, g.wide*g.vec, y))
	g.take(elem, elemAt, lanes, lanesAt, out, resultAt, stride, outStride, apart, count, steps)
	g.arg(out, "to", 0)
	g.arg(elem, "x", 8)
	g.arg(outStride, "toStride", 24)
	g.arg(stride, "xStride", 32)
	if scales {
		g.arg(lanes, "by", 16)
		g.set(apart, 1)
	} else {
		g.arg(lanes, "y", 16)
		g.arg(apart, "yStride", 40)
	}
	g.arg(count, "n", at)
	for _, r := range []reg{outStride, stride, apart} {
		g.scale(r, 4)
	}
	factor := vec(4 * g.wide)
	g.vectors(span{"columns", 0, 4 * g.wide}, span{"factor", factor, 1})
	g.label("row")
	g.move(elemAt, elem)
	g.move(lanesAt, lanes)
	g.move(resultAt, out)
	if scales {
		g.broadcast(factor, mem{base: lanes})
	}
	g.arg(steps, "d", at+8)
	for _, t := range []tile{{gen: g, vecs: g.wide}, {gen: g, vecs: 1}, {gen: g, vecs: 1, single: true}} {
		n := t.vecs * g.vec
		if t.single {
			n = 1
		}
		g.jumpBelow(steps, n, fmt.Sprint("end", n))
		g.label(fmt.Sprint("columns", n))
		for v := range t.vecs {
			x, y, to, tmp := vec(4*v), vec(4*v+1), vec(4*v+2), vec(4*v+3)
			t.loadLanes(x, mem{base: elemAt, vectors: v})
			if scales {
				y = factor
			} else {
				t.loadLanes(y, mem{base: lanesAt, vectors: v})
			}
			if name == "Over" {
				g.div(to, x, y, tmp)
			} else {
				g.mul(to, x, y)
			}
			t.storeLanes(mem{base: resultAt, vectors: v}, to)
		}
		g.increase(elemAt, 4*n)
		if !scales {
			g.increase(lanesAt, 4*n)
		}
		g.increase(resultAt, 4*n)
		g.increase(steps, -n)
		g.jumpAtLeast(steps, n, fmt.Sprint("columns", n))
		g.label(fmt.Sprint("end", n))
	}
	g.plus(elem, stride)
	g.plus(lanes, apart)
	g.plus(out, outStride)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	g.ret()
}

// oneStep emits Ops.Step. Some columns of Y and U stay in registers, while rows of X are loaded and
// stored one after another, as a hardware prefetcher expects them. It prefetches the line that is
// ahead bytes after each line.
func (g *gen) oneStep() {
	most := 8 // vectors of Y, and of U
	for 2*most+5 > g.regs {
		most /= 2
	}
	g.function("Step", "(x *float32, xStride int, w, k, keep, u, y *float32, n, c, ahead int)", 8, 80, fmt.Sprintf(`
for j := range c { // %d at a time
	for i := range n {
		y[j] = fma(w[i], x[i*xStride+j], y[j]) // from 0
		x[i*xStride+j] = fma(keep[i], x[i*xStride+j], k[i]*u[j]) // keep is 1 if it is nil
	}
}`, most*g.vec))
	g.take(lanes, out, outStride, resultAt, elem, elemAt, lanesAt, count, columns, lead, leadAt)
	g.arg(leadAt, "ahead", 72)
	g.arg(out, "x", 0)
	g.arg(outStride, "xStride", 8)
	g.arg(lanes, "u", 40)
	g.arg(elem, "y", 48)
	g.arg(columns, "c", 64)
	g.scale(outStride, 4)
	t := tile{gen: g}
	for t.vecs = most; t.vecs > 0; t.vecs /= 2 {
		t.tilesOf(t.vecs*t.vec, tile.stepColumns)
	}
	t.vecs, t.single = 1, true
	t.tilesOf(1, tile.stepColumns)
	g.ret()
}

// stepColumns emits the loop over the rows of some columns, with lead of the old X and without.
func (t tile) stepColumns() {
	const weightAt, keyAt, keepAt = elemAt, lanesAt, lead
	u, weight, key, keep, x, old := vec(t.vecs), vec(2*t.vecs), vec(2*t.vecs+1), vec(2*t.vecs+2), vec(2*t.vecs+3), vec(2*t.vecs+4)
	t.vectors(span{"sums", 0, t.vecs}, span{"row", u, t.vecs}, span{"weights", weight, 3}, span{"x", x, 2})
	defer t.freeVectors()
	for v := range vec(t.vecs) {
		t.zero(v)
		t.loadLanes(u+v, mem{base: lanes, vectors: int(v)})
	}
	t.move(resultAt, out)
	t.arg(weightAt, "w", 16)
	t.arg(keyAt, "k", 24)
	t.arg(keepAt, "keep", 32)
	t.arg(count, "n", 56)
	t.jumpBelow(keepAt, 1, "plain"+t.name)
	for _, keeps := range []bool{true, false} {
		row := "row" + t.name
		if !keeps {
			t.label("plain" + t.name)
			row = "plainRow" + t.name
		}
		t.label(row)
		t.broadcast(weight, mem{base: weightAt})
		t.broadcast(key, mem{base: keyAt})
		if keeps {
			t.broadcast(keep, mem{base: keepAt})
			t.increase(keepAt, 4)
		}
		for v := range vec(t.vecs) {
			at := mem{base: resultAt, vectors: int(v)}
			if off := int(v) * t.bytes(); off%line == 0 && !t.single {
				t.prefetch(mem{base: resultAt, index: leadAt, times: 1, off: off})
			}
			t.loadLanes(old, at)
			t.fma(v, old, weight)
			t.mul(x, u+v, key)
			if keeps {
				t.fma(x, old, keep)
			} else {
				t.add(x, x, old)
			}
			t.storeLanes(at, x)
		}
		t.increase(weightAt, 4)
		t.increase(keyAt, 4)
		t.plus(resultAt, outStride)
		t.increase(count, -1)
		t.jumpAtLeast(count, 1, row)
		if keeps {
			t.jump("rows" + t.name)
		}
	}
	t.label("rows" + t.name)
	for v := range t.vecs {
		t.storeLanes(mem{base: elem, vectors: v}, vec(v))
	}
	t.increase(elem, 4*t.width())
}

// width returns the number of columns of a micro-tile.
func (t tile) width() int {
	if t.single {
		return 1
	}
	return t.vecs * t.vec
}
