package asmgen

import (
	"fmt"
	"strings"
)

// outer emits a product whose rows, factors and results are all rows of floats, at any stride:
//
//	x[r][c] += Σ_k weights[r][k] * y[k][c]
//
// Columns are in lanes: rows of y are loaded, weights are broadcast, and nothing is packed. It is
// Ops.Outer, and Ops.OuterT with the weights transposed.
//
// While it sums, Outer prefetches the rows of x that the micro-tile is added to and, where a row is
// several lines, those of the next micro-tile.
// Tuning: docs/tuning.md#outer-results
//
// Both prefetch the lines of Outer.Stream, one or two in every four steps of a micro-tile; OuterT
// also prefetches a second stream beside it. The caller knows which rows will be read from memory
// next, and a product leaves time to fetch them. A shorter loop would end before a line arrives.
// Tuning: docs/tuning.md#outer-stream
//
// Micro-tiles have 6 rows by as many vectors as registers allow; those of OuterT have 8 rows where
// a register holds four elements. Edges are computed with fewer rows, fewer vectors, and at last
// one column. Fewer rows would leave too few chains to hide the latency of a multiply-add. Each
// element of x is one chain of FMAs in the order of k from zero, added to the old value, whatever
// the micro-tile.
// Tuning: docs/tuning.md#outer-rows
func (g *gen) outer(o outer) {
	g.function(o.name, "(p *Outer)", 8, 8, fmt.Sprintf(`
for r := range p.N { // %d at a time
	for c := range p.C { // %d at a time
		sum := float32(0)
		for k := range p.Width {
			sum = fma(p.P[%s], p.Y.rows.Data[k*p.Y.rows.Stride+c], sum)
		}
		// Keep and Scale are 1 if they are nil, and the old X is 0 if p.Fresh
		p.X[r*p.XStride+c] = (p.X[r*p.XStride+c]*p.Keep[r] + sum) * p.Scale[r]
	}
}`, g.outerTiles(o)[0], g.wide*g.vec, o.weight))
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
	g.jumpAtLeast(lead, 1, "prefetches")
	g.move(lead, elem)
	g.label("prefetches")
	for _, rows := range g.outerTiles(o) {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		g.get(columns, g.of("C"))
		g.get(lanes, g.of("Y.Data"))
		g.columns(tile{gen: g, rows: rows, along: !o.transposed, apart: true}, func(t tile) { t.outerColumns(o) })
		g.note("move to the first column of the next rows")
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

// outer is one of the two forms of the product.
type outer struct {
	name       string
	weight     string // Go: index of the weight of row r and step k
	tiles      []int  // rows of micro-tiles
	byElement  []int  // rows where a register holds four elements, one a row; nil: tiles
	transposed bool   // if not, it also prefetches results
}

var (
	outerRows       = outer{name: "Outer", weight: "r*p.Lanes+k", tiles: []int{6, 2, 1}}
	outerTransposed = outer{name: "OuterT", weight: "k*p.Lanes+r", tiles: []int{6, 4, 2, 1}, byElement: []int{8, 4, 1}, transposed: true}
)

// outerTiles returns the rows of a form's micro-tiles.
func (g *gen) outerTiles(o outer) []int {
	if g.byElement && o.byElement != nil {
		return o.byElement
	}
	return o.tiles
}

// outerLoop returns a form's field of the table.
func (g *gen) outerLoop(o outer) string {
	if !g.declared[o.name] {
		return ""
	}
	return fmt.Sprintf("%s: outerLoop{%d, %d, %d, %s%s},\n", strings.ToLower(o.name[:1])+o.name[1:], g.outerTiles(o)[0], g.wide*g.vec, g.streamLines(), g.name, o.name)
}

// streamLines returns the number of lines that a micro-tile prefetches in every four steps. With
// one line, the widest would prefetch less than it reads.
func (g *gen) streamLines() int {
	if g.wide*g.vec >= 64 {
		return 2
	}
	return 1
}

// columns emits a row of micro-tiles, each width in a loop: as wide as registers allow, then
// narrower ones, and at last one column at a time.
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

// tilesOf emits the loop over micro-tiles of width columns. lanes and out are at the first column.
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

// outerColumns emits a micro-tile.
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
	t.streamLines, t.beside = t.gen.streamLines(), o.transposed
	t.get(steps, t.of("Width"))
	t.increase(steps, -unroll)
	t.rest(t.name)
	t.finishOuter()
}

// finishOuter turns the sums into results. It adds the old values unless the call is Fresh, times
// the rows' factors in Keep if there are any, and multiplies by those in Scale.
func (t tile) finishOuter() {
	fresh, plain, stored := "fresh"+t.name, "plain"+t.name, "stored"+t.name
	t.getBool(elemAt, t.of("Fresh"))
	t.jumpAtLeast(elemAt, 1, fresh)
	t.factors("Keep", plain)
	t.eachResult(func(r, v int, at mem) {
		t.factor(r, v)
		t.fma(t.sum(r, v), t.elem(0), t.old(v, at))
	})
	t.jump(fresh)
	t.label(plain)
	t.eachResult(func(r, v int, at mem) { t.add(t.sum(r, v), t.sum(r, v), t.old(v, at)) })
	t.label(fresh)
	t.factors("Scale", stored)
	for r := range t.rows {
		for v := range t.vecs {
			t.factor(r, v)
			t.mul(t.sum(r, v), t.sum(r, v), t.elem(0))
		}
	}
	t.label(stored)
	t.eachResult(func(r, v int, at mem) { t.storeLanes(at, t.sum(r, v)) })
}

// factors puts the address of the rows' factors in lanesAt, or jumps if there are none.
func (t tile) factors(field, none string) {
	t.get(lanesAt, t.of(field))
	t.jumpBelow(lanesAt, 1, none)
	t.get(steps, t.of("N"))
	t.subtract(steps, count)
	t.offset(lanesAt, lanesAt, steps, 4)
}

// factor broadcasts the factor of row r before the row's first vector.
func (t tile) factor(r, v int) {
	if v == 0 {
		t.broadcast(t.elem(0), mem{base: lanesAt, off: 4 * r})
	}
}

// old returns an operand with the old value of a vector of results.
func (t tile) old(v int, at mem) operand {
	if !t.single {
		return at
	}
	t.loadOne(t.lane(v), at)
	return t.lane(v)
}

// eachResult calls emit for each vector of results with its address.
func (t tile) eachResult(emit func(r, v int, at mem)) {
	t.move(elemAt, out)
	for r := range t.rows {
		for v := range t.vecs {
			emit(r, v, mem{base: elemAt, vectors: v})
		}
		t.offset(elemAt, elemAt, outStride, 1)
	}
}

// down advances a cursor by a number of rows.
func (g *gen) down(cursor, stride reg, rows int) {
	for _, n := range []int{8, 4, 2, 1} {
		for ; rows >= n; rows -= n {
			g.offset(cursor, cursor, stride, n)
		}
	}
}

// dscore emits Ops.DScore: micro-tiles as in Score, of V with Dot, multiplied into P.
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
