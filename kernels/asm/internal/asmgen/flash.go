package asmgen

import "fmt"

// flash emits Ops.Flash without S for rows from..to, a whole number of groups. It is Score with the
// weights of each group computed amid the products of the next. Products keep the multipliers busy
// and leave the other units idle.
//
//	products of group 0
//	check, store scores
//	products of group 1, weights of group 0
//	check, store scores
//	...
//	weights of the last group
//
// One row of weights goes with 64/rows steps of the products, so that at D = 64 the last row of
// weights falls on the last steps. When D is smaller, the remaining rows follow in a loop of their
// own; when it is larger, the last steps go alone.
//
// Where registers are left, a weight's instructions are strewn among the multiply-adds. AVX2 has
// none left: it computes a whole weight between two steps, in the registers of lanes and of the
// broadcast element, which are dead there. At which steps this happens matters more than the order
// of the instructions.
// Tuning: docs/tuning.md#flash-steps
//
// With each row of weights it prefetches the first 64 numbers of a row of K of the next group into
// the first cache.
// Tuning: docs/tuning.md#flash-next-keys
//
// If power.prefetches, it also prefetches the rows at Flash.Prefetch, two lines with each row of
// weights. Mix, which prefetches values, has less room for more: it reads six times as much from
// the second cache, through the same line-fill buffers.
//
// Where Until is set, the first vectors leave on the way, a unit at a time. The groups after that
// have a loop of their own. The first of these groups is computed with the weights of the group
// before, which still has all vectors. So only the very last weights go alone.
func (g *gen) flash(vecs int) {
	t := tile{gen: g, vecs: vecs, rows: g.rows, along: true, name: "0"}
	g.function(fmt.Sprint("Flash", g.power.name, vecs), "(p *Flash, from, to, scored int) (done int)", 8, 40, fmt.Sprintf(`
first := 0 // lane
for j := from; ; j += %[1]d {
	if j == to {
		if first += %[4]d; first >= %[3]d || p.Until == nil || p.Until[first/%[5]d] <= to {
			return to
		}
		to = p.Until[first/%[5]d]
	}
	if j > from || scored == 0 {
		score rows j to j+%[1]d
		if j >= p.Plain {
			p.P[i*%[2]d+lane] = -Inf where !(p.Lo[lane] <= p.Key+i && p.Key+i < p.Hi[lane]) // j <= i < j+%[1]d
		}
	}
	if any p.P[i*%[2]d+lane] > p.M[lane]+Limit { // j <= i < j+%[1]d, first <= lane
		p.M[lane] = max(p.P[i*%[2]d+lane], p.M[lane]) where p.M[lane] == Unset && p.L[lane] == 0
		if any still is {
			return j
		}
	}
	for lane := first; lane < %[3]d; lane++ {
		p.L[lane] += Σ e // over the rows, with e = 2^(p.P[i*%[2]d+lane] - p.M[lane])
		p.P[i*%[2]d+lane] = e
	}
}`, g.rows, g.vecs*g.vec, vecs*g.vec, g.unit()*g.vec, g.vec))
	g.take(panel, lanesAt, weightsAt, elem, elemAt, stride, stride3, out, count, steps, aux, nextRow, pause)
	g.takeFar()
	g.arg(panel, "p", 0)
	g.get(out, g.of("P"))
	g.scoreRows(8)
	g.free(aux)
	g.take(refs)
	if g.power.prefetches {
		g.take(source)
		g.get(source, g.of("At"))
		g.jumpAtLeast(source, 1, "next")
		g.get(source, g.of("Qt"))
		g.label("next")
	}
	t.take()
	if t.spare() {
		t.vectors(span{"temps", t.temps()[0], 4})
	}
	t.mark()
	g.get(refs, g.of("M"))
	g.arg(steps, "scored", 24)
	g.jumpAtLeast(steps, 1, "fits0")
	t.startScore()
	t.products()
	t.groups()
	for t.first+g.unit() < vecs {
		more := t
		t.first += g.unit()
		t.name = fmt.Sprint(t.first)
		g.label("fewer" + t.name)
		t.amid(more, more.name+"to"+t.name)
		more.total() // the vectors that leave have no more groups
		t.mark()
		t.groups()
	}
	g.label("leave")
	g.free(refs)
	g.take(aux)
	g.arg(aux, "to", 16)
	g.subtract(aux, count)
	g.result("done", 32, aux)
	g.ret()
}

// unit returns the number of vectors that leave together.
func (t *target) unit() int { return max(1, unitLanes/t.vec) }

// unitLanes is the least number of lanes that leave together. Products of fewer lanes are slow.
const unitLanes = 8

// groups emits the work after a group's products, and a loop over more groups of the same vectors.
func (t tile) groups() {
	t.jump("scores" + t.name)
	t.label("group" + t.name)
	t.amid(t, t.name)

	t.label("scores" + t.name)
	t.scaleScores()
	t.arg(rowOf, "to", 16)
	t.subtract(rowOf, count)
	t.get(steps, t.of("Plain"))
	t.jumpLess(rowOf, steps, "shown"+t.name)
	t.edges(t.mask)
	t.label("shown" + t.name)
	t.storeScores()
	t.edges(func() { t.check("over" + t.name) })
	t.label("fits" + t.name)
	t.move(weightsAt, out)
	t.firstHalf()
	t.nextScore()
	t.increase(count, -t.rows)
	t.jumpAtLeast(count, 1, "group"+t.name)
	if next := t.first + t.unit(); next < t.vecs {
		const until, to = steps, rowOf
		t.get(until, t.of("Until"))
		t.jumpBelow(until, 1, "last"+t.name)
		t.get(count, mem{base: until, off: 8 * next})
		t.arg(to, "to", 16)
		t.subtract(count, to)
		t.jumpBelow(count, 1, "last"+t.name)
		t.plus(to, count)
		t.result("to", 16, to)
		t.jump(fmt.Sprint("fewer", next))
	}
	t.weights("last" + t.name)
	t.total()
	t.jump("leave")

	t.label("over" + t.name)
	t.arg(pause, "from", 8)
	t.jumpLess(out, pause, "added"+t.name)
	t.total() // seed reads L
	t.mark()
	t.label("added" + t.name)
	t.edges(func() {
		t.seed()
		t.check("leave")
	})
	t.jump("fits" + t.name)
}

// edges emits the work on a group's scores between its products and the next group's. It uses four
// registers starting with those of lanes.
func (t tile) edges(emit func()) { t.meanwhile(span{"edges", t.lane(0), 4}, emit) }

// amid emits the products of a group amid the weights of the one before.
func (t tile) amid(before tile, name string) {
	t.startScore()
	t.offset(nextRow, elem, stride, t.rows)
	t.begin()
	t.mixed(before, name)
}

// The weights of a group are added to L when half of the next group's are computed, and are read
// back from P. No register is free for their sum. A sum in memory would cost each weight a load, an
// addition and a store. Adding between the products of two groups would put more accesses where the
// stores of scores already fill the store queue.
// Tuning: docs/tuning.md#flash-sums

// mark records that all groups before out have been added. The slot of the argument from, which is
// no longer needed, holds the place where the weights of the group at out will pause. Later pauses
// follow a group that has not been added.
func (t tile) mark() {
	t.move(pause, out)
	t.increase(pause, t.half())
	t.result("from", 8, pause)
}

// half returns the size in bytes of half of a group's weights.
func (t tile) half() int { return t.rows / 2 * t.row() }

// total adds the group of weights before out, the only one that has not been added.
func (t tile) total() { t.addGroup(out, 0) }

// addGroup adds the group of weights that ends before bytes before end.
func (t tile) addGroup(end reg, before int) {
	const totals = pause // pause is not needed here
	sum := t.temps()[0]
	t.get(totals, t.of("L"))
	t.withTemps(func() {
		for v := t.first; v < t.vecs; v++ {
			row := func(r int) mem { return mem{base: end, off: (r-t.rows)*t.row() - before + v*t.bytes()} }
			t.load(sum, row(0))
			for r := 1; r < t.rows; r++ {
				t.add(sum, sum, row(r))
			}
			at := mem{base: totals, vectors: v}
			t.add(sum, sum, at)
			t.store(at, sum)
		}
	})
}

// rowOf is the first row of a group, between its products and its weights.
const rowOf = lanesAt

// mask hides scores outside Lo and Hi.
func (t tile) mask() {
	lo, last, key, tmp := t.lane(0), t.lane(0)+1, t.lane(0)+2, t.lane(0)+3
	t.get(steps, t.of("Key"))
	t.plus(rowOf, steps)
	for v := t.first; v < t.vecs; v++ {
		at := mem{base: steps, vectors: v}
		t.get(steps, t.of("Lo"))
		t.load(lo, at)
		t.get(steps, t.of("Hi"))
		t.load(last, at)
		t.addInt(last, last, previous)
		t.broadcastInt(key, rowOf)
		for r := range t.rows {
			t.replaceAboveInt(t.sum(r, v), hidden, lo, key, tmp)
			t.replaceAboveInt(t.sum(r, v), hidden, key, last, tmp)
			t.addInt(key, key, next)
		}
	}
}

// temps returns the last four registers. If the micro-tile uses them, they are free only between
// steps.
func (t tile) temps() [4]vec {
	n := vec(t.regs)
	return [4]vec{n - 4, n - 3, n - 2, n - 1}
}

// withTemps emits instructions that use temps.
func (t tile) withTemps(emit func()) {
	if t.spare() {
		emit()
		return
	}
	t.meanwhile(span{"temps", t.temps()[0], 4}, emit)
}

func (t tile) spare() bool { return t.temps()[0] > t.elem(t.elems()-1) }

// weight emits the weights of vector v in the row at weightsAt.
func (t tile) weight(v int) {
	at := mem{base: weightsAt, vectors: v}
	temps := t.temps()
	t.withTemps(func() {
		t.exp2(temps, at, mem{base: refs, vectors: v})
		t.store(at, temps[2])
	})
}

// weights emits a loop over the rows from weightsAt to out.
func (t tile) weights(label string) {
	t.label(label)
	for v := t.first; v < t.vecs; v++ {
		t.weight(v)
	}
	t.increase(weightsAt, t.row())
	t.jumpLess(weightsAt, pause, label)
	t.halfWay(label+"Half", label+"End")
	t.jump(label)
	t.label(label + "End")
}

// firstHalf makes the weights of the group pause half way.
func (t tile) firstHalf() {
	t.move(pause, weightsAt)
	t.increase(pause, t.half())
}

// halfWay emits the code for a pause of the weights. Half way, it adds the group before, if it has
// not been added, and continues. At the end it jumps to done.
func (t tile) halfWay(label, done string) {
	t.jumpLess(pause, out, label+"Way")
	t.jump(done)
	t.label(label + "Way")
	t.arg(pause, "from", 8)
	t.jumpLess(pause, weightsAt, label+"Add")
	t.jump(label)
	t.label(label + "Add")
	t.addGroup(weightsAt, t.half())
	t.label(label)
	t.move(pause, out)
}

// mixed emits the products, and with them the rows of weights from weightsAt to out. These may have
// more vectors than the products.
func (t tile) mixed(w tile, name string) {
	n := 64 / t.rows // steps a row
	prefetch := func(k int) {
		if lines := 4; k%(n/lines) == 0 {
			t.prefetchNear(mem{base: nextRow, off: k / (n / lines) * line})
		}
		if t.power.prefetches && k == n/2+1 {
			t.prefetch(mem{base: source})
			t.prefetch(mem{base: source, off: line})
			t.plusAt(source, t.of("By"))
		}
	}
	t.increase(steps, -n)
	t.jumpBelow(steps, 0, "left"+name)
	t.align()
	t.label("mixed" + name)
	if t.spare() {
		strew := t.strew(n*t.rows, t.lines(func() {
			for v := w.first; v < w.vecs; v++ {
				w.weight(v)
			}
		}))
		for k := range n {
			prefetch(k)
			t.step(k, n, strew)
		}
	} else {
		v := w.first
		for k := range n {
			if done := v - w.first; v < w.vecs && k == min((done+1)*n/(w.vecs-w.first), n-1) {
				w.weight(v)
				v++
			}
			prefetch(k)
			t.step(k, n, nil)
		}
	}
	t.offset(nextRow, nextRow, stride, 1)
	t.advance(n)
	w.increase(weightsAt, w.row())
	t.jumpLess(weightsAt, pause, "more"+name)
	w.halfWay("half"+name, "alone"+name)
	t.label("more" + name)
	t.jumpAtLeast(steps, 0, "mixed"+name)
	t.label("left" + name)
	w.weights("row" + name)
	t.label("alone" + name)
	t.increase(steps, n-unroll)
	t.rest("Mixed" + name)
}

// seed makes M the largest score in lanes that have seen no key. Raise would give the same result,
// as all that it scales is 0 there. Lanes with a sum that is not 0 are left to Raise.
func (t tile) seed() {
	const sums = steps
	ref, top, begun, least := t.lane(0), t.lane(0)+1, t.lane(0)+2, t.lane(0)+3
	t.get(sums, t.of("L"))
	for v := t.first; v < t.vecs; v++ {
		at := mem{base: refs, vectors: v}
		t.load(ref, at)
		t.sub(begun, ref, lowest)
		t.add(begun, begun, mem{base: sums, vectors: v})
		t.load(top, ref)
		for r := range t.rows {
			t.larger(top, t.sum(r, v), top)
		}
		t.note("at most 0 if the lane has seen no key, and else at least 1, or NaN")
		t.load(least, one)
		t.replaceAbove(ref, top, least, begun, least)
		t.store(at, ref)
	}
}

// check jumps if a score is over its limit. The scores are still in the registers of the sums. One
// comparison for all vectors can replace one for each. That pays where a comparison costs a
// multiply-add, and maxima and differences cost nothing.
// Tuning: docs/tuning.md#flash-check
func (t tile) check(over string) {
	top, highest, excess := t.lane(0), t.lane(0)+1, t.lane(0)+2
	if !t.checksEach {
		t.zero(excess)
	}
	for v := t.first; v < t.vecs; v++ {
		t.load(top, mem{base: refs, vectors: v})
		t.add(highest, top, limit)
		for r := range t.rows {
			t.larger(top, t.sum(r, v), top)
		}
		if t.checksEach {
			t.jumpAbove(top, highest, over)
			continue
		}
		t.sub(top, top, highest)
		t.note("NaN if both are +Inf: not above 0")
		t.larger(excess, top, excess)
	}
	if !t.checksEach {
		t.zero(highest)
		t.jumpAbove(excess, highest, over)
	}
}
