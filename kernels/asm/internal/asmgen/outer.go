package asmgen

import "fmt"

// outer emits a product whose rows, factors and results all lie in rows of floats, any stride apart:
//
//	x[r][c] += Σ_k weights[r][k] * y[k][c]
//
// Columns stand in lanes: rows of y are loaded, weights broadcast, nothing is packed. Ops.Outer is that for many rows; Ops.Sum is it for the few
// rows of queries that share keys, where y is V and comes from memory, and asks for the rows of Next meanwhile, as Dot does.
//
// Tiles are of 6 rows by as many vectors as there are registers for; what is left over at the edges goes by fewer rows, by fewer vectors, and at last
// by one column. An element of x is one chain of FMAs in the order of k from zero, added to what was there, whatever the tile.
func (g *gen) outer(name, block string, fields outerFields, ahead bool) {
	frame := 0
	if ahead {
		frame = 8 // for the register of the frame pointer
	}
	g.function(name, "(p *"+block+")", frame, 8, fmt.Sprintf(`
for r := range p.%[1]s { // 6 at a time
	for c := range p.C { // %[2]d at a time
		sum := float32(0)
		for k := range p.%[3]s {
			sum = fma(p.P[r*p.%[4]s+k], p.%[5]s.Data[k*p.%[5]s.Stride+c], sum)
		}
		%[6]s += sum
	}
}`, fields.rows, g.wide*g.vec, fields.terms, fields.weights, fields.y, fields.result))
	field := func(name string) mem { return mem{base: panel, field: block + "_" + name} }
	g.arg(panel, "p", 0)
	g.get(count, field(fields.rows))
	g.get(elem, field("P"))
	g.get(stride, field(fields.weights))
	g.get(apart, field(fields.y+"+Rows_Stride"))
	g.get(out, field(fields.x))
	g.get(outStride, field(fields.xStride))
	for _, r := range []reg{stride, apart, outStride} {
		g.scale(r, 4)
	}
	g.offset(stride3, stride, stride, 2)
	if ahead {
		g.get(lead, field("Next+Rows_Data"))
		g.get(lanes, field(fields.y+"+Rows_Data"))
		g.subtract(lead, lanes)
	}
	for _, rows := range []int{6, 2, 1} {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		g.get(columns, field("C"))
		g.get(lanes, field(fields.y+"+Rows_Data"))
		t := tile{gen: g, rows: rows, along: true, apart: true, ahead: ahead}
		for t.vecs = map[int]int{6: g.wide, 2: 4, 1: 8}[rows]; t.vecs > 0; t.vecs /= 2 {
			t.outerColumns(field(fields.terms))
		}
		t.vecs, t.single = 1, true
		t.outerColumns(field(fields.terms))
		g.note("the first column of the rows that follow")
		g.get(steps, field("C"))
		g.scale(steps, 4)
		g.subtract(out, steps)
		g.down(out, outStride, rows)
		g.down(elem, stride, rows)
		g.increase(count, -rows)
		g.jumpAtLeast(count, rows, fmt.Sprint("rows", rows))
		g.label(fmt.Sprint("end", rows))
	}
	g.ret()
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

// outerFields names what a block of arguments calls the parts of the product.
type outerFields struct{ rows, terms, weights, y, x, xStride, result string }

var (
	outerOfPanel = outerFields{"N", "Width", "Lanes", "Y", "X", "XStr", "p.X[r*p.XStr+c]"}
	outerOfFew   = outerFields{"R", "N", "Stride", "V", "O+Rows_Data", "O+Rows_Stride", "p.O.Data[r*p.O.Stride+c]"}
)

// outerColumns emits the loop over tiles of a row of tiles.
func (t tile) outerColumns(terms mem) {
	width, name := t.vecs*t.vec, fmt.Sprintf("%dx%d", t.rows, t.vecs*t.vec)
	if t.single {
		width, name = 1, fmt.Sprintf("%dx1", t.rows)
	}
	t.jumpBelow(columns, width, "end"+name)
	t.label("columns" + name)
	t.move(lanesAt, lanes)
	t.move(elemAt, elem)
	t.get(steps, terms)
	t.begin()
	t.increase(steps, -unroll)
	t.rest(name)
	t.move(elemAt, out)
	for r := range t.rows {
		for v := range t.vecs {
			t.loadLanes(t.lane(v), mem{base: elemAt, off: v * t.bytes()})
			t.add(t.sum(r, v), t.sum(r, v), t.lane(v))
			t.storeLanes(mem{base: elemAt, off: v * t.bytes()}, t.sum(r, v))
		}
		t.offset(elemAt, elemAt, outStride, 1)
	}
	t.increase(lanes, 4*width)
	t.increase(out, 4*width)
	t.increase(columns, -width)
	t.jumpAtLeast(columns, width, "columns"+name)
	t.label("end" + name)
}

// down moves a cursor by so many rows.
func (g *gen) down(cursor, stride reg, rows int) {
	for _, n := range []int{8, 4, 2, 1} {
		for ; rows >= n; rows -= n {
			g.offset(cursor, cursor, stride, n)
		}
	}
}
