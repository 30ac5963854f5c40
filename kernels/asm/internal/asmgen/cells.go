package asmgen

import (
	"fmt"
)

// cells is a Type of package asm: how the elements of a row are stored.
type cells int

const (
	f32 cells = iota
	f16
	bf16
	i8
	allCells
)

// name returns the suffix of the names of a type's loops.
func (c cells) name() string { return [...]string{"", "F16", "BF16", "I8"}[c] }
func (c cells) size() int    { return [...]int{4, 2, 2, 1}[c] }

// slice returns the field of Cells that holds a type's elements.
func (c cells) slice() string { return [...]string{"Data", "Half", "Half", "Byte"}[c] }

func (c cells) field() string {
	if c == f32 {
		return "Cells_Rows+Rows_Data"
	}
	return "Cells_" + c.slice()
}

// float returns the Go expression of an element of rows as a float32.
func (c cells) float(rows, at string) string {
	element := fmt.Sprintf("%s.%s[%s]", rows, c.slice(), at)
	switch c {
	case f32:
		return element
	case i8:
		return "float32(" + element + ")"
	}
	return "from" + c.name() + "(" + element + ")"
}

const cellStride = "Cells_Rows+Rows_Stride"

// scaleKeys emits the product of scores or weights with the scales of their keys, for all queries.
// It multiplies a vector of keys at once where the scales are contiguous, and otherwise four.
func (g *gen) scaleKeys() {
	g.function("ScaleKeys", "(p *Walk, scale *float32, apart int)", 0, 24, fmt.Sprintf(`
for j := range p.N { // %d at a time if apart is 1, or else 4
	for r := range p.R {
		p.P[r*p.Stride+j] *= scale[j*apart]
	}
}`, g.vec))
	g.take(panel, lanesAt, elem, stride, stride3, out, count, steps, apart)
	g.arg(panel, "p", 0)
	g.arg(stride, "apart", 16)
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	g.get(apart, g.of("Stride"))
	g.scale(apart, 4)
	g.runs()
	g.label("run")
	g.scoresOfRun(out, elem)
	g.get(steps, g.of("run"))
	g.get(elem, g.of("Scales"))
	g.offset(elem, elem, steps, 8)
	g.get(lanesAt, mem{base: elem})
	g.arg(elem, "scale", 8)
	g.offset(elem, elem, lanesAt, 4)
	g.keysOfRun(count, lanesAt)
	g.jumpBelow(stride, 4, "apart")
	g.jumpAtLeast(stride, 5, "apart")
	g.scaled("vector", g.vec, false)
	g.label("apart")
	g.scaled("four", 4, true)
	g.scaled("one", 1, false)
	g.moreRuns("run")
	g.ret()
}

// scaled emits the steps of ScaleKeys for the given number of keys at once: a vector of them, four
// whose scales are gathered, or one.
func (g *gen) scaled(name string, keys int, gather bool) {
	const scale, product = vec(0), vec(1)
	g.vectors(span{"scale", scale, 1}, span{"product", product, 1})
	defer g.freeVectors()
	load, store := func(dst vec, m mem) { g.load(dst, m) }, g.store
	switch keys {
	case 1:
		load, store = func(dst vec, m mem) { g.loadOne(dst, m) }, g.storeOne
	case 4:
		load, store = g.loadFour, g.storeFour
	}
	g.jumpBelow(count, keys, "end"+name)
	g.label(name)
	if gather {
		g.gatherFour(scale, elem, stride, stride3)
	} else {
		load(scale, mem{base: elem})
	}
	g.move(lanesAt, out)
	g.get(steps, g.of("R"))
	g.label("query" + name)
	load(product, mem{base: lanesAt})
	g.mul(product, product, scale)
	store(mem{base: lanesAt}, product)
	g.offset(lanesAt, lanesAt, apart, 1)
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "query"+name)
	g.down(elem, stride, keys)
	g.increase(out, 4*keys)
	g.increase(count, -keys)
	g.jumpAtLeast(count, keys, name)
	g.label("end" + name)
}

// widenRows emits Ops.Widen: four vectors of a row at a time, then one, then one element.
func (g *gen) widenRows(c cells) {
	times := ""
	if c == i8 {
		times = " * from.Scale[j*from.ScaleStride]"
	}
	g.function("Widen"+c.name(), "(to *float32, from *Cells, n, d int)", 0, 32, fmt.Sprintf(`
for j := range n {
	for x := range d { // %d at a time
		to[j*d+x] = %s%s
	}
}`, 4*g.vec, c.float("from", "j*from.Stride+x"), times))
	g.take(panel, lanes, elem, elemAt, stride, out, count, steps, apart)
	const scale = vec(4)
	g.vectors(span{"cells", 0, 4}, span{"scale", scale, 1})
	g.arg(out, "to", 0)
	g.arg(panel, "from", 8)
	g.arg(count, "n", 16)
	g.get(elem, mem{base: panel, field: c.field()})
	g.get(stride, mem{base: panel, field: cellStride})
	g.scale(stride, c.size())
	if c == i8 {
		g.get(lanes, mem{base: panel, field: "Cells_Scale"})
		g.get(apart, mem{base: panel, field: "Cells_ScaleStride"})
	}
	g.label("row")
	g.move(elemAt, elem)
	if c == i8 {
		g.broadcast(scale, mem{base: lanes})
		g.offset(lanes, lanes, apart, 4)
	}
	g.arg(steps, "d", 24)
	for _, t := range []tile{{gen: g, vecs: 4}, {gen: g, vecs: 1}, {gen: g, vecs: 1, single: true}} {
		n, widen := t.vecs*g.vec, g.loadCells
		if t.single {
			n, widen = 1, g.loadCell
		}
		name := fmt.Sprint(n)
		g.jumpBelow(steps, n, "end"+name)
		g.label("columns" + name)
		for v := range t.vecs {
			widen(vec(v), mem{base: elemAt, off: v * g.vec * c.size()}, c)
			if c == i8 {
				g.mul(vec(v), vec(v), scale)
			}
			t.storeLanes(mem{base: out, vectors: v}, vec(v))
		}
		g.increase(elemAt, n*c.size())
		g.increase(out, 4*n)
		g.increase(steps, -n)
		g.jumpAtLeast(steps, n, "columns"+name)
		g.label("end" + name)
	}
	g.offset(elem, elem, stride, 1)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "row")
	g.ret()
}

// narrowRow emits Ops.Narrow for whole vectors. The upper half of a float32 is a bfloat16. Adding
// 2^15-1 carries into it if the lower half is above the middle; at the middle, 1 more is added if
// the upper half is odd. NaN could carry into infinity, and is replaced.
func (g *gen) narrowRow(c cells) {
	g.function("Narrow"+c.name(), "(to *uint16, from *float32, vectors int)", 0, 24, fmt.Sprintf(`
for i := range %d * vectors {
	to[i] = to%s(from[i])
}`, g.vec, c.name()))
	g.take(lanes, out, count)
	g.arg(out, "to", 0)
	g.arg(lanes, "from", 8)
	g.arg(count, "vectors", 16)
	const x, odd, size, bound, temp = vec(0), vec(1), vec(2), vec(3), vec(4)
	g.vectors(span{"x", x, 1}, span{"odd", odd, 1}, span{"size", size, 1}, span{"bound", bound, 1}, span{"temp", temp, 1})
	if c == bf16 {
		g.load(bound, infinity)
	}
	g.label("vector")
	g.load(x, mem{base: lanes})
	to := mem{base: out}
	if c == f16 {
		g.narrow(to, x, temp)
	} else {
		g.shiftLeft(odd, x, 15)
		g.shiftRight(odd, odd, 31)
		g.shiftLeft(size, x, 1)
		g.shiftRight(size, size, 1)
		g.addInt(x, x, belowHalf)
		g.addInt(x, x, odd)
		g.replaceAboveInt(x, notANumber, size, bound, temp)
		g.storeHigh(to, x, temp)
	}
	g.step(lanes, 1)
	g.increase(out, 2*g.vec)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "vector")
	g.ret()
}

const (
	infinity   constant = "infinity"
	belowHalf  constant = "belowHalf"
	notANumber constant = "notANumber"
)

func (g *gen) cellConstants() {
	all := func(bits uint32) func(int) uint32 { return func(int) uint32 { return bits } }
	g.constant(infinity, "as an integer, less than every NaN without its sign", all(0x7f800000))
	g.constant(belowHalf, "of a bfloat16's last place, less one", all(0x7fff))
	g.constant(notANumber, "", all(0xffffffff))
}
