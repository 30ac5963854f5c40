package asmgen

import (
	"fmt"
	"math"
)

// rotate emits Ops.Rotate for the two halves of a row. A rest of less than a vector is computed one
// element at a time, with the same roundings.
func (g *gen) rotate() {
	const (
		low, high      = lanes, out
		cosines, sines = elem, elemAt
	)
	g.function("Rotate", "(x, cos, sin *float32, n int)", 0, 32, fmt.Sprintf(`
for c := range n { // %d at a time
	a, b := x[c], x[c+n]
	x[c], x[c+n] = a*cos[c]-b*sin[c], b*cos[c]+a*sin[c] // the second product is rounded only with the sum
}`, g.vec))
	g.take(lanes, elem, elemAt, out, count)
	g.arg(low, "x", 0)
	g.arg(cosines, "cos", 8)
	g.arg(sines, "sin", 16)
	g.arg(count, "n", 24)
	g.offset(high, low, count, 4)
	g.inVectors(g.vec, func(n int) {
		const a, b, cos, sin, sum = vec(0), vec(1), vec(2), vec(3), vec(4)
		g.vectors(span{"a", a, 1}, span{"b", b, 1}, span{"cos", cos, 1}, span{"sin", sin, 1}, span{"sum", sum, 1})
		defer g.freeVectors()
		t := tile{gen: g, single: n == 1}
		t.loadLanes(a, mem{base: low})
		t.loadLanes(b, mem{base: high})
		t.loadLanes(cos, mem{base: cosines})
		t.loadLanes(sin, mem{base: sines})
		t.mul(sum, a, cos)
		t.fnma(sum, b, sin)
		t.storeLanes(mem{base: low}, sum)
		t.mul(sum, b, cos)
		t.fma(sum, a, sin)
		t.storeLanes(mem{base: high}, sum)
		for _, at := range []reg{low, high, cosines, sines} {
			g.increase(at, 4*n)
		}
	})
}

// rotatePairs emits Ops.Rotate for neighbours. It loads every angle twice, swaps the pairs, and
// negates their first elements; the sums are then those of rotate.
func (g *gen) rotatePairs() {
	const at, cosines, sines = lanes, elem, elemAt
	g.function("RotatePairs", "(x, cos, sin *float32, n int)", 0, 32, fmt.Sprintf(`
for c := range n { // %d at a time
	a, b := x[2*c], x[2*c+1]
	x[2*c], x[2*c+1] = a*cos[c]-b*sin[c], b*cos[c]+a*sin[c] // the second product is rounded only with the sum
}`, g.vec/2))
	g.take(lanes, elem, elemAt, count)
	g.arg(at, "x", 0)
	g.arg(cosines, "cos", 8)
	g.arg(sines, "sin", 16)
	g.arg(count, "n", 24)
	const turn = vec(0)
	g.vectors(span{"turn", turn, 1})
	g.load(turn, quarterTurn)
	g.inVectors(g.vec/2, func(n int) {
		const x, cos, sin, turned, sum = vec(1), vec(2), vec(3), vec(4), vec(5)
		g.vectors(span{"x", x, 1}, span{"cos", cos, 1}, span{"sin", sin, 1}, span{"turned", turned, 1}, span{"sum", sum, 1})
		defer g.freeVectors("x", "cos", "sin", "turned", "sum")
		one := n == 1
		if one {
			g.loadPair(x, mem{base: at})
			g.broadcast(cos, mem{base: cosines})
			g.broadcast(sin, mem{base: sines})
		} else {
			g.load(x, mem{base: at})
			g.loadTwice(cos, mem{base: cosines})
			g.loadTwice(sin, mem{base: sines})
		}
		g.swapPairs(turned, x)
		g.mul(turned, turned, turn)
		g.mul(sum, x, cos)
		g.fma(sum, turned, sin)
		if one {
			g.storePair(mem{base: at}, sum)
		} else {
			g.store(mem{base: at}, sum)
		}
		g.increase(at, 8*n)
		g.increase(cosines, 4*n)
		g.increase(sines, 4*n)
	})
}

// inVectors emits the rest of a function: a loop over the remaining count, many vectors at a time
// and then one element.
func (g *gen) inVectors(many int, do func(n int)) {
	for _, n := range []int{many, 1} {
		loop, end := fmt.Sprint("numbers", n), fmt.Sprint("end", n)
		g.jumpBelow(count, n, end)
		g.label(loop)
		do(n)
		g.increase(count, -n)
		g.jumpAtLeast(count, n, loop)
		g.label(end)
	}
	g.ret()
}

const quarterTurn constant = "quarterTurn"

func (g *gen) rotateConstants() {
	g.constant(quarterTurn, "-1, 1, ...", func(i int) uint32 { return float(math.Copysign(1, float64(i%2)-.5)) })
}
