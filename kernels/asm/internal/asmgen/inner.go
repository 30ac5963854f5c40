package asmgen

import "fmt"

// inner emits Ops.Inner: products of pairs of rows. Four pairs have a vector of sums each, whose
// elements are added up at the end as in Dot. Remaining rows and columns are computed one by one,
// in the same order.
func (g *gen) inner() {
	g.function("Inner", "(to, x *float32, xStride int, y *float32, yStride, rows, d int)", 0, 56, fmt.Sprintf(`
for i := range rows { // 4 at a time
	var sum [%[1]d]float32
	for c := range d { // %[1]d at a time; what is left over is added to sum[0]
		sum[c%%%[1]d] = fma(x[i*xStride+c], y[i*yStride+c], sum[c%%%[1]d])
	}
	to[i] = Σ sum
}`, g.vec))
	g.take(lanes, lanesAt, elem, elemAt, stride, stride3, out, count, steps, apart, apart3)
	g.arg(out, "to", 0)
	g.arg(elem, "x", 8)
	g.arg(stride, "xStride", 16)
	g.arg(lanes, "y", 24)
	g.arg(apart, "yStride", 32)
	g.arg(count, "rows", 40)
	g.scale(stride, 4)
	g.scale(apart, 4)
	g.offset(stride3, stride, stride, 2)
	g.offset(apart3, apart, apart, 2)
	g.vectors(span{"sums", 0, 4}, span{"operands", 4, 4})
	for _, rows := range []int{4, 1} {
		g.jumpBelow(count, rows, fmt.Sprint("end", rows))
		g.label(fmt.Sprint("rows", rows))
		for r := range rows {
			g.zero(vec(r))
		}
		g.move(elemAt, elem)
		g.move(lanesAt, lanes)
		g.arg(steps, "d", 48)
		g.innerColumns(rows, false)
		g.innerColumns(rows, true)
		temp := vec(4)
		if rows == 4 {
			g.pairs(0, 0, 1, temp)
			g.pairs(2, 2, 3, temp)
			g.pairs(0, 0, 2, temp)
			g.quarters(0, temp)
			g.storeFour(mem{base: out}, 0)
		} else {
			g.pairs(0, 0, 0, temp)
			g.pairs(0, 0, 0, temp)
			g.quarters(0, temp)
			g.storeOne(mem{base: out}, 0)
		}
		g.increase(out, 4*rows)
		g.down(elem, stride, rows)
		g.down(lanes, apart, rows)
		g.increase(count, -rows)
		g.jumpAtLeast(count, rows, fmt.Sprint("rows", rows))
		g.label(fmt.Sprint("end", rows))
	}
	g.ret()
}

// innerColumns emits the loop over columns, a vector at a time, or one element if single.
func (g *gen) innerColumns(rows int, single bool) {
	name, load, n := fmt.Sprint(rows, "vector"), g.load, g.vec
	if single {
		name, load, n = fmt.Sprint(rows, "one"), g.loadOne, 1
	}
	g.jumpBelow(steps, n, "end"+name)
	g.label("columns" + name)
	for r := range rows {
		x, y := vec(4+2*(r%2)), vec(5+2*(r%2))
		load(x, row(elemAt, stride, stride3, r, 0))
		load(y, row(lanesAt, apart, apart3, r, 0))
		g.fma(vec(r), x, y)
	}
	g.increase(elemAt, 4*n)
	g.increase(lanesAt, 4*n)
	g.increase(steps, -n)
	g.jumpAtLeast(steps, n, "columns"+name)
	g.label("end" + name)
}
