package asmgen

import "fmt"

// raise emits Ops.Raise for a group of rows, a vector of lanes at a time. It skips vectors in which
// no lane is over its limit; in the others, lanes that are not over are multiplied by 1.
func (g *gen) raise() {
	g.function("Raise", "(p *Softmax, rows int)", 0, 16, fmt.Sprintf(`
for lane := range p.Width { // %[2]d at a time
	top := p.M[lane]
	for j := p.Done; j < p.Done+rows; j++ {
		top = max(p.P[j*%[1]d+lane], top)
	}
	if top <= p.M[lane]+Limit {
		continue
	}
	f := float32(0)
	if d := top - p.M[lane]; d > 126 {
		p.M[lane] = top
	} else {
		p.M[lane] += round(d)
		f = 2^-round(d)
	}
	p.L[lane] *= f
	p.S[lane] *= f // if there is S
	p.Keep[lane] *= f
	for j := range p.Done {
		p.P[j*%[1]d+lane] *= f // 0 if the product is less than 2^-100
	}
}`, g.vecs*g.vec, g.vec))
	g.take(panel, lanesAt, elem, stride, stride3, out, count, steps, aux)
	const (
		refs, sums         = aux, elem                      // M; L, S
		off, width         = stride3, stride                // bytes before and of all lanes
		at                 = lanesAt                        // current vector of a row
		m, top, highest, d = vec(0), vec(1), vec(2), vec(3) // of a vector of lanes
		k, f, nothing, tmp = vec(4), vec(5), vec(6), vec(7) // of the raise
		least, x           = vec(8), vec(9)                 // least weight; vector of a row
	)
	g.vectors(span{"m", m, 1}, span{"top", top, 1}, span{"highest", highest, 1}, span{"d", d, 1}, span{"k", k, 1}, span{"f", f, 1}, span{"nothing", nothing, 1}, span{"tmp", tmp, 1}, span{"least", least, 1}, span{"x", x, 1})
	vector := func(base reg) mem { return mem{base: base, index: off, times: 1} }

	g.arg(panel, "p", 0)
	g.get(width, g.of("Width"))
	g.scale(width, 4)
	g.get(refs, g.of("M"))
	g.get(out, g.of("P"))
	g.get(count, g.of("Done"))
	g.scale(count, g.row())
	g.offset(out, out, count, 1)
	g.set(off, 0)

	g.label("vector")
	g.load(m, vector(refs))
	g.load(top, m)
	g.offset(at, out, off, 1)
	g.arg(steps, "rows", 8)
	g.largest(top, x, at, g.row(), "row", func() {})
	g.add(highest, m, limit)
	g.load(x, top)
	g.jumpAbove(x, highest, "raised")
	g.label("next")
	g.step(off, 1)
	g.jumpLess(off, width, "vector")
	g.ret()

	g.label("raised")
	g.zero(nothing)
	g.sub(d, top, m)
	g.add(k, d, whole)
	g.sub(k, k, whole)
	g.load(f, nothing)
	g.replaceAbove(f, k, top, highest, tmp)
	g.add(m, m, f)
	g.load(k, whole)
	g.add(least, k, f)
	g.shiftLeft(least, least, fraction)
	g.addInt(least, least, lightest)
	g.sub(f, k, f)
	g.shiftLeft(f, f, fraction)
	g.addInt(f, f, one)
	g.load(k, far)
	g.replaceAbove(m, top, d, k, tmp)
	g.replaceAbove(f, nothing, d, k, tmp)
	g.store(vector(refs), m)
	multiply := func() {
		g.mul(x, f, vector(sums))
		g.store(vector(sums), x)
	}
	g.get(sums, g.of("L"))
	multiply()
	g.get(sums, g.of("S"))
	g.jumpBelow(sums, 1, "noS")
	multiply()
	g.label("noS")
	g.get(sums, g.of("Keep"))
	multiply()

	g.note("set weights that would become subnormal to 0 first: such products are slow")
	g.get(at, g.of("P"))
	g.offset(at, at, off, 1)
	g.get(steps, g.of("Done"))
	for _, n := range []int{unroll, 1} {
		loop, end := fmt.Sprint("weights", n), fmt.Sprint("end", n)
		g.jumpBelow(steps, n, end)
		g.label(loop)
		for i := range n {
			row := mem{base: at, off: i * g.row()}
			g.load(x, row)
			g.replaceAbove(x, nothing, least, x, tmp)
			g.mul(x, x, f)
			g.store(row, x)
		}
		g.increase(at, n*g.row())
		g.increase(steps, -n)
		g.jumpAtLeast(steps, n, loop)
		g.label(end)
	}
	g.jump("next")
}

// top emits Ops.Top for the first rows of a panel.
func (g *gen) top() {
	g.function("Top", "(p *Softmax, from, to int)", 0, 24, fmt.Sprintf(`
for lane := range p.Width { // %[2]d at a time
	for j := from; j < to; j++ {
		p.M[lane] = max(p.P[j*%[1]d+lane], p.M[lane])
	}
}`, g.vecs*g.vec, g.vec))
	g.take(panel, lanesAt, stride, stride3, out, count, steps, aux)
	const (
		sums, x = 4, vec(4) // the largest of every fourth row; a vector of a row
		refs    = aux
	)
	g.vectors(span{"sums", 0, sums}, span{"x", x, 1})
	g.sweep(sums, func() {
		g.get(refs, g.of("M"))
		for i := range sums {
			g.load(vec(i), column(refs))
		}
	}, func(n int) {
		for i := range n {
			g.load(x, g.swept(i))
			g.larger(vec(i), x, vec(i))
		}
	}, func() {
		for i := 1; i < sums; i++ {
			g.larger(0, vec(i), 0)
		}
		g.store(column(refs), 0)
	})
}

// finite emits the check that no number is NaN or an infinity: 0 times each number must be 0.
func (g *gen) finite() {
	g.function("Finite", "(x *float32, rounds int) (bad int)", 0, 24, fmt.Sprintf(`
for i := range %d * rounds {
	if x[i]*0 != 0 {
		return 1
	}
}
return 0`, g.reads*g.vec))
	g.take(lanes, count, aux)
	nothing, all, flags, tmp := vec(g.reads), vec(0), vec(1), vec(2)
	g.vectors(span{"sums", 0, g.reads}, span{"nothing", nothing, 1})
	g.arg(lanes, "x", 0)
	g.arg(count, "rounds", 8)
	for i := range g.reads + 1 {
		g.zero(vec(i))
	}
	g.align()
	g.label("round")
	for i := range g.reads {
		g.fma(vec(i), nothing, mem{base: lanes, vectors: i})
	}
	g.step(lanes, g.reads)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "round")
	for i := 1; i < g.reads; i++ {
		g.add(all, all, vec(i))
	}
	g.freeVectors("sums")
	g.vectors(span{"all", all, 1}, span{"flags", flags, 1}, span{"tmp", tmp, 1})
	g.bad(16, all, nothing, flags, tmp)
	g.ret()
}

// bad emits a result that is 0 if all elements of a vector are 0, and 1 if one is NaN.
func (g *gen) bad(at int, all, nothing, flags, tmp vec) {
	g.set(aux, 0)
	g.load(flags, one)
	g.replaceAbove(flags, nothing, flags, all, tmp)
	g.jumpAbove(flags, nothing, "bad")
	g.jump("done")
	g.label("bad")
	g.set(aux, 1)
	g.label("done")
	g.result("bad", at, aux)
}

// inverse emits Ops.Inverse.
func (g *gen) inverse() {
	g.function("Inverse", "(to, from *float32, vectors int) (bad int)", 0, 32, fmt.Sprintf(`
for i := range %d * vectors {
	if to[i] = 1 / from[i]; to[i] > math.MaxFloat32 {
		to[i] = 0
	}
	if from[i]*0 != 0 {
		bad = 1
	}
}
return bad`, g.vec))
	g.take(lanes, out, count, aux)
	nothing, all, x, inverse, highest, tmp, ones := vec(0), vec(1), vec(2), vec(3), vec(4), vec(5), vec(6)
	g.vectors(span{"nothing", nothing, 1}, span{"all", all, 1}, span{"x", x, 1}, span{"inverse", inverse, 1}, span{"highest", highest, 1}, span{"tmp", tmp, 1}, span{"ones", ones, 1})
	g.arg(out, "to", 0)
	g.arg(lanes, "from", 8)
	g.arg(count, "vectors", 16)
	g.zero(nothing)
	g.zero(all)
	g.load(ones, one)
	g.sub(highest, nothing, lowest)
	g.label("vector")
	g.load(x, mem{base: lanes})
	g.fma(all, x, nothing)
	g.quotient(inverse, ones, x)
	g.replaceAbove(inverse, nothing, inverse, highest, tmp)
	g.store(mem{base: out}, inverse)
	g.step(lanes, 1)
	g.step(out, 1)
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "vector")
	g.bad(24, all, nothing, x, tmp)
	g.ret()
}
