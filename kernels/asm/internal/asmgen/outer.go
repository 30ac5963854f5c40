package asmgen

import "fmt"

// outer emits a product whose rows, factors and results all lie in rows of floats, any stride apart:
//
//	x[r][c] += Σ_k weights[r][k] * y[k][c]
//
// Columns stand in lanes: rows of y are loaded, weights broadcast, nothing is packed. It is Ops.Outer, and Ops.OuterT with the weights
// transposed; Ops.Sum is it for the few rows of queries that share keys, where y is V and comes from memory, and asks for
// the rows that follow meanwhile, as Dot does.
//
// Outer asks for the rows of x that a tile will be added to while it sums, and for those of the next one, where a row is several lines. With AVX-512,
// blocks of 192 keys and 8 tiles of queries in turn, in the second-level cache, Outer ran so at .88 of the peak instead of .83 on an Intel Xeon.
//
// OuterT asks for a line of what Panel.Ahead says in every four terms of a tile: its caller knows what comes from memory next, and a product leaves time
// to bring it. In linear attention with 8 heads, N = 8192 and d = 64 nobody asked for values before, and AVX-512 on a Zen 5 ran at .55 of its
// peak instead of .62.
//
// Tiles are of 6 rows (4, transposed) by as many vectors as there are registers for; what is left over at the edges goes by fewer rows, by fewer
// vectors, and at last by one column. An element of x is one chain of FMAs in the order of k from zero, added to what was there, whatever the
// tile, and through all runs of keys.
func (g *gen) outer(o outer) {
	frame, after := 0, ""
	if o.ahead || o.finishes || o.asks {
		frame = 8 // for the register of the frame pointer
	}
	if o.finishes {
		after = " // what was there counts as 0 if p.Fresh\n\t\tif p.Scale != nil {\n\t\t\t" + o.result + " *= p.Scale[r]\n\t\t}"
	}
	g.function(o.name+o.cells.name(), "(p *"+o.block+")", frame, 8, fmt.Sprintf(`
for r := range p.%[1]s { // %[2]d at a time
	for c := range p.C { // %[3]d at a time
		sum := float32(0)
		for k := range p.%[4]s {
			sum = fma(p.P[%[5]s], %[6]s, sum)
		}
		%[7]s += sum%[8]s
	}
}`, o.rows, o.tiles[0], g.wide*g.vec, o.terms, o.weight, o.float("p."+o.y, "k*p."+o.y+".Stride+c"), o.result, after))
	g.arg(panel, "p", 0)
	g.get(count, o.field(o.rows))
	g.get(elem, o.field("P"))
	g.get(stride, o.field(o.weights))
	g.get(apart, o.field(o.y+"+"+o.yStride))
	g.get(out, o.field(o.x))
	g.get(outStride, o.field(o.xStride))
	g.scale(stride, 4)
	g.scale(apart, o.cells.size())
	g.scale(outStride, 4)
	g.offset(stride3, stride, stride, 2)
	if o.asks {
		g.get(lead, o.field("Ahead"))
		g.jumpAtLeast(lead, 1, "asks")
		g.move(lead, elem)
		g.label("asks")
	}
	for _, rows := range o.tiles {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		g.get(columns, o.field("C"))
		g.get(lanes, o.field(o.y+"+"+o.yData))
		t := tile{gen: g, rows: rows, along: !o.transposed, apart: true, ahead: o.ahead, cells: o.cells}
		for t.vecs = map[int]int{6: g.wide, 4: g.wide, 2: 4, 1: 8}[rows]; t.vecs > 0; t.vecs /= 2 {
			t.outerColumns(o)
		}
		t.vecs, t.single = 1, true
		t.outerColumns(o)
		g.note("the first column of the rows that follow")
		g.get(steps, o.field("C"))
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

// An outer is a form of the product: what its block of arguments calls the parts, and what it does besides.
type outer struct {
	name, block                         string
	rows, terms, weights, y, x, xStride string // fields: numbers of rows and terms, stride of weights, y, results, their stride
	weight, result                      string // as Go
	tiles                               []int  // rows of tiles
	transposed, ahead/* runs of terms; asks ahead */ bool
	asks           bool   // for what lies elsewhere
	finishes       bool   // knows fresh results, and factors of rows
	cells                 // how y is stored
	yData, yStride string // fields of that
}

var (
	outerRows = outer{
		name: "Outer", block: "Panel", rows: "N", terms: "Width", weights: "Lanes", y: "Y", x: "X", xStride: "XStr", yData: "Rows_Data", yStride: "Rows_Stride",
		weight: "r*p.Lanes+k", result: "p.X[r*p.XStr+c]", tiles: []int{6, 2, 1}, finishes: true,
	}
	outerTransposed = outer{
		name: "OuterT", block: "Panel", rows: "N", terms: "Width", weights: "Lanes", y: "Y", x: "X", xStride: "XStr", yData: "Rows_Data", yStride: "Rows_Stride",
		weight: "k*p.Lanes+r", result: "p.X[r*p.XStr+c]", tiles: []int{4, 1}, transposed: true, asks: true,
	}
)

// outerFew is Ops.Sum, whose scales ScaleKeys multiplies into the weights before.
func outerFew(c cells) outer {
	return outer{
		name: "Sum", block: "Few", rows: "R", terms: "N", weights: "Stride", y: "V", x: "O+Rows_Data", xStride: "O+Rows_Stride",
		weight: "r*p.Stride+k", result: "p.O.Data[r*p.O.Stride+c]", tiles: []int{6, 2, 1}, ahead: true,
		cells: c, yData: c.field(), yStride: cellStride,
	}
}

func (o outer) field(name string) mem { return mem{base: panel, field: o.block + "_" + name} }

// outerColumns emits the loop over tiles of a row of tiles.
func (t tile) outerColumns(o outer) {
	width, name := t.vecs*t.vec, fmt.Sprintf("%dx%d", t.rows, t.vecs*t.vec)
	if t.single {
		width, name = 1, fmt.Sprintf("%dx1", t.rows)
	}
	t.jumpBelow(columns, width, "end"+name)
	t.label("columns" + name)
	t.empty()
	t.move(elemAt, elem)
	if o.ahead {
		t.runsOuter(o, name)
	} else {
		t.move(lanesAt, lanes)
		t.follow()
		if t.results = o.finishes && t.vecs*t.bytes() > line; t.results {
			t.move(lead, out)
		}
		t.asks = o.asks
		t.get(steps, o.field(o.terms))
		t.increase(steps, -unroll)
		t.rest(name)
	}
	if o.finishes {
		t.getBool(elemAt, o.field("Fresh"))
		t.jumpBelow(elemAt, 1, "add"+name)
		t.finishOuter(o, true, name+"fresh")
		t.jump("next" + name)
		t.label("add" + name)
	}
	t.finishOuter(o, false, name)
	t.label("next" + name)
	t.increase(lanes, o.cells.size()*width)
	t.increase(out, 4*width)
	t.increase(columns, -width)
	t.jumpAtLeast(columns, width, "columns"+name)
	t.label("end" + name)
}

// runsOuter emits the steps of a tile, run by run.
func (t tile) runsOuter(o outer, name string) {
	start, temp := o.y+"+"+o.yData, elemAt4
	t.runs()
	t.label("run" + name)
	t.get(steps, few("run"))
	t.runAt(lanesAt, "At", start, o.size(), temp)
	t.leadOf(lanesAt, o.cells)
	t.note("the columns of the tile")
	t.plus(lanesAt, lanes)
	t.get(temp, few(start))
	t.subtract(lanesAt, temp)
	t.keysOfRun(temp, "taken"+name)
	t.move(steps, temp)
	t.follow()
	t.increase(steps, -unroll)
	t.rest(name)
	t.moreRuns("run" + name)
}

// finishOuter makes the sums results: adds what was there unless they are fresh, and multiplies them by factors if there are any.
func (t tile) finishOuter(o outer, fresh bool, name string) {
	if o.finishes {
		t.get(lanesAt, o.field("Scale"))
		t.jumpBelow(lanesAt, 1, "plain"+name)
		t.get(steps, o.field(o.rows))
		t.subtract(steps, count)
		t.offset(lanesAt, lanesAt, steps, 4)
		t.storeOuter(fresh, true)
		t.jump("stored" + name)
		t.label("plain" + name)
	}
	t.storeOuter(fresh, false)
	t.label("stored" + name)
}

func (t tile) storeOuter(fresh, scale bool) {
	t.move(elemAt, out)
	for r := range t.rows {
		if scale {
			t.broadcast(t.elem(0), mem{base: lanesAt, off: 4 * r})
		}
		for v := range t.vecs {
			at, old := mem{base: elemAt, off: v * t.bytes()}, t.lane(v)
			if !fresh {
				t.loadLanes(old, at)
				t.add(t.sum(r, v), t.sum(r, v), old)
			}
			if scale {
				t.mul(t.sum(r, v), t.sum(r, v), t.elem(0))
			}
			t.storeLanes(at, t.sum(r, v))
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
	g.function(fmt.Sprint("DScore", vecs), "(p *Panel)", 0, 8, fmt.Sprintf(`
for j := range p.N { // %[1]d at a time
	var sum [%[2]d]float32
	for c := range p.C { // %[3]d at a time
		for lane := range sum {
			sum[lane] = fma(p.V.Data[j*p.V.Stride+c], p.Dot[c*%[4]d+lane], sum[lane])
		}
	}
	for lane := range sum {
		p.P[j*%[4]d+lane] *= sum[lane] - p.Sub[lane]
	}
}`, g.rows, vecs*g.vec, unroll, g.vecs*g.vec))
	field := func(name string) mem { return mem{base: panel, field: "Panel_" + name} }
	g.arg(panel, "p", 0)
	g.get(count, field("N"))
	g.get(elem, field("V+Rows_Data"))
	g.get(stride, field("V+Rows_Stride"))
	g.get(lanes, field("Dot"))
	g.get(aux, field("Sub"))
	g.get(out, field("P"))
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	g.tiles(vecs, true, func(t tile) {
		t.move(lanesAt, lanes)
		t.move(elemAt, elem)
		t.get(steps, field("C"))
		t.products()
	}, func(t tile) {
		for r := range t.rows {
			for v := range t.vecs {
				at := mem{base: out, off: r*t.row() + v*t.bytes()}
				t.sub(t.sum(r, v), t.sum(r, v), mem{base: aux, off: v * t.bytes()})
				t.mul(t.sum(r, v), t.sum(r, v), at)
				t.store(at, t.sum(r, v))
			}
		}
		t.nextScore()
	})
	g.ret()
}
