package asmgen

import (
	"fmt"
	"strings"
)

// outer emits a product whose rows, factors and results all lie in rows of floats, any stride apart:
//
//	x[r][c] += Σ_k weights[r][k] * y[k][c]
//
// Columns stand in lanes: rows of y are loaded, weights broadcast, nothing is packed. It is Ops.Outer, and Ops.OuterT with the weights
// transposed.
//
// Outer asks for the rows of x that a tile will be added to while it sums, and for those of the next one, where a row is several lines. With AVX-512,
// blocks of 192 keys and 8 tiles of queries in turn, in the second-level cache, Outer ran so at .88 of the peak instead of .83 on an Intel Xeon.
//
// Both ask for what Panel.Ahead says, a line or two in every four terms of a tile, and OuterT for another stream beside it: their caller knows what comes
// from memory next, and a product leaves time to bring it. In linear attention with 8 heads, N = 8192 and d = 64, AVX-512 ran at .55 of its peak on a Zen 5
// when nobody asked for values, and .62 when OuterT did. When products ask for keys and queries too, instead of features all at once, which are done before
// a line has come, calls take some 17 % less time on a Xeon (family 6, model 167; AVX2: 14).
//
// Tiles are of 6 rows, OuterT's of 8 where four elements are in a register, by as many vectors as there are registers for; what is left over at the edges
// goes by fewer rows, by fewer vectors, and at last by one column. With 4 rows, OuterT of 64 terms ran at .83 of AVX2's peak on that Xeon, where 8 sums are
// no more than the chains that its units need, and at .98 with 6; AVX-512 at .93 and .96. An element of x is one chain of FMAs in the order of k from zero,
// added to what was there, whatever the tile.
func (g *gen) outer(o outer) {
	g.function(o.name, "(p *Outer)", 8, 8, fmt.Sprintf(`
for r := range p.N { // %d at a time
	for c := range p.C { // %d at a time
		sum := float32(0)
		for k := range p.Width {
			sum = fma(p.P[%s], p.Y.rows.Data[k*p.Y.rows.Stride+c], sum)
		}
		%s
	}
}`, g.outerTiles(o)[0], g.wide*g.vec, o.weight, o.after))
	g.take(panel, lanes, lanesAt, elem, elemAt, stride, out, count, steps, columns, apart, outStride, lead)
	if o.transposed {
		g.take(stride3, leadAt)
	} else {
		g.take(elemAt4, resultAt)
	}
	g.arg(panel, "p", 0)
	g.get(count, g.of("N"))
	g.get(elem, g.of("P"))
	g.get(stride, g.of("Lanes"))
	g.get(apart, g.of("Y.Stride"))
	g.get(out, g.of("X"))
	g.get(outStride, g.of("XStride"))
	g.scale(stride, 4)
	g.scale(apart, 4)
	g.scale(outStride, 4)
	if o.transposed {
		g.offset(stride3, stride, stride, 2)
		g.get(leadAt, g.of("Beside"))
	}
	g.get(lead, g.of("At"))
	g.jumpAtLeast(lead, 1, "asks")
	g.move(lead, elem)
	g.label("asks")
	for _, rows := range g.outerTiles(o) {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		g.get(columns, g.of("C"))
		g.get(lanes, g.of("Y.Data"))
		g.columns(tile{gen: g, rows: rows, along: !o.transposed, apart: true}, func(t tile) { t.outerColumns(o) })
		g.note("the first column of the rows that follow")
		g.get(steps, g.of("C"))
		g.scale(steps, 4)
		g.subtract(out, steps)
		g.down(out, outStride, rows)
		if o.transposed {
			g.increase(elem, 4*rows)
		} else {
			g.down(elem, stride, rows)
		}
		g.increase(count, -rows)
		g.jumpAtLeast(count, rows, fmt.Sprint("rows", rows))
		g.label(fmt.Sprint("end", rows))
	}
	g.ret()
}

// An outer is a form of the product.
type outer struct {
	name          string
	weight, after string // as Go: of row r and term k; what becomes of a sum
	tiles         []int  // rows of tiles,
	byElement     []int  // and where a register holds four elements, one for each row, if not these
	transposed    bool   // otherwise it asks for results too, and knows fresh ones, and factors of rows
}

var (
	outerRows = outer{
		name: "Outer", weight: "r*p.Lanes+k", tiles: []int{6, 2, 1},
		after: "p.X[r*p.XStride+c] += sum // what was there counts as 0 if p.Fresh\n\t\tif p.Scale != nil {\n\t\t\tp.X[r*p.XStride+c] *= p.Scale[r]\n\t\t}",
	}
	outerTransposed = outer{name: "OuterT", weight: "k*p.Lanes+r", tiles: []int{6, 4, 2, 1}, byElement: []int{8, 4, 1}, transposed: true, after: "p.X[r*p.XStride+c] += sum"}
)

// outerTiles are the rows of a form's tiles.
func (g *gen) outerTiles(o outer) []int {
	if g.byElement && o.byElement != nil {
		return o.byElement
	}
	return o.tiles
}

// outerLoop is how the table says a form.
func (g *gen) outerLoop(o outer) string {
	if !g.declared[o.name] {
		return ""
	}
	return fmt.Sprintf("%s: outerLoop{%d, %d, %d, %s%s},\n", strings.ToLower(o.name[:1])+o.name[1:], g.outerTiles(o)[0], g.wide*g.vec, g.asks(), g.name, o.name)
}

// asks is how many lines a tile asks for in every four terms: with one, the widest would ask for less than they read.
func (g *gen) asks() int {
	if g.wide*g.vec >= 64 {
		return 2
	}
	return 1
}

// columns emits a row of tiles, each in a loop: as wide as registers allow, then narrower ones, and at last a column at a time.
func (g *gen) columns(t tile, emit func(t tile)) {
	t.vecs = map[int]int{8: g.wide, 6: g.wide, 4: g.wide, 2: 4, 1: 8}[t.rows]
	if t.keyByKey() {
		t.vecs = keyVectors
	}
	for ; t.vecs > 0; t.vecs /= 2 {
		t.tilesOf(t.vecs*t.vec, emit)
	}
	t.vecs, t.single = 1, true
	t.tilesOf(1, emit)
}

// tilesOf emits the loop over tiles of so many columns. lanes and out are at a tile's first one.
func (t tile) tilesOf(width int, emit func(t tile)) {
	t.name = fmt.Sprintf("%dx%d", t.rows, width)
	t.jumpBelow(columns, width, "end"+t.name)
	t.label("columns" + t.name)
	emit(t)
	t.increase(lanes, t.size()*width)
	t.increase(out, 4*width)
	t.increase(columns, -width)
	t.jumpAtLeast(columns, width, "columns"+t.name)
	t.label("end" + t.name)
}

// outerColumns emits a tile.
func (t tile) outerColumns(o outer) {
	t.take()
	defer t.freeVectors()
	t.empty()
	t.move(elemAt, elem)
	t.move(lanesAt, lanes)
	t.follow()
	if t.results = !o.transposed && t.vecs*t.bytes() > line; t.results {
		t.move(resultAt, out)
	}
	t.asks, t.beside = t.gen.asks(), o.transposed
	t.get(steps, t.of("Width"))
	t.increase(steps, -unroll)
	t.rest(t.name)
	if o.transposed {
		t.storeOuter(false, false)
		return
	}
	t.getBool(elemAt, t.of("Fresh"))
	t.jumpBelow(elemAt, 1, "add"+t.name)
	t.finishOuter(true, t.name+"fresh")
	t.jump("next" + t.name)
	t.label("add" + t.name)
	t.finishOuter(false, t.name)
	t.label("next" + t.name)
}

// finishOuter makes the sums results: adds what was there unless they are fresh, and multiplies them by factors if there are any.
func (t tile) finishOuter(fresh bool, name string) {
	t.get(lanesAt, t.of("Scale"))
	t.jumpBelow(lanesAt, 1, "plain"+name)
	t.get(steps, t.of("N"))
	t.subtract(steps, count)
	t.offset(lanesAt, lanesAt, steps, 4)
	t.storeOuter(fresh, true)
	t.jump("stored" + name)
	t.label("plain" + name)
	t.storeOuter(fresh, false)
	t.label("stored" + name)
}

func (t tile) storeOuter(fresh, scale bool) {
	t.eachResult(func(r, v int, at mem) {
		old := t.lane(v)
		if scale && v == 0 {
			t.broadcast(t.elem(0), mem{base: lanesAt, off: 4 * r})
		}
		if !fresh {
			t.loadLanes(old, at)
			t.add(t.sum(r, v), t.sum(r, v), old)
		}
		if scale {
			t.mul(t.sum(r, v), t.sum(r, v), t.elem(0))
		}
		t.storeLanes(at, t.sum(r, v))
	})
}

// eachResult emits what is to be done with each vector of results, where it lies.
func (t tile) eachResult(emit func(r, v int, at mem)) {
	t.move(elemAt, out)
	for r := range t.rows {
		for v := range t.vecs {
			emit(r, v, mem{base: elemAt, vectors: v})
		}
		t.offset(elemAt, elemAt, outStride, 1)
	}
}

// down moves a cursor by so many rows.
func (g *gen) down(cursor, stride reg, rows int) {
	for _, n := range []int{8, 4, 2, 1} {
		for ; rows >= n; rows -= n {
			g.offset(cursor, cursor, stride, n)
		}
	}
}

// dscore emits Ops.DScore: tiles as Score's, of V with Dot, multiplied into P.
func (g *gen) dscore(vecs int) {
	g.function(fmt.Sprint("DScore", vecs), "(p *DScore)", 0, 8, fmt.Sprintf(`
for j := range p.N { // %[1]d at a time
	var sum [%[2]d]float32
	for c := range p.C { // %[3]d at a time
		for lane := range sum {
			sum[lane] = fma(p.Values.rows.Data[j*p.Values.rows.Stride+c], p.Dot.lanes[c*%[4]d+lane], sum[lane])
		}
	}
	for lane := range sum {
		p.P[j*%[4]d+lane] *= sum[lane] - p.Sub[lane]
	}
}`, g.rows, vecs*g.vec, unroll, g.vecs*g.vec))
	g.take(panel, lanes, lanesAt, elem, elemAt, stride, stride3, out, count, steps, aux)
	g.takeFar()
	g.arg(panel, "p", 0)
	g.get(count, g.of("N"))
	g.get(elem, g.of("V.Data"))
	g.get(stride, g.of("V.Stride"))
	g.get(lanes, g.of("Dot"))
	g.get(aux, g.of("Sub"))
	g.get(out, g.of("P"))
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	g.tiles(vecs, true, []int{g.rows, 1}, func(t tile) {
		t.move(lanesAt, lanes)
		t.move(elemAt, elem)
		t.get(steps, t.of("C"))
		t.products()
	}, func(t tile) {
		for r := range t.rows {
			for v := range t.vecs {
				at := mem{base: out, off: r*t.row() + v*t.bytes()}
				t.sub(t.sum(r, v), t.sum(r, v), mem{base: aux, vectors: v})
				t.mul(t.sum(r, v), t.sum(r, v), at)
				t.store(at, t.sum(r, v))
			}
		}
		t.nextScore()
	})
	g.ret()
}
