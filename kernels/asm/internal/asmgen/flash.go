package asmgen

import "fmt"

// flash emits Ops.Flash for rows from to to, a whole number of groups, with or without S: Score with the weights of each group computed amid the
// products of the next, where the units that multiply are busy and all others idle.
//
//	products of group 0
//	check, store scores
//	products of group 1, weights of group 0
//	check, store scores
//	...
//	weights of the last group
//
// One row of weights goes with 64/rows steps of the products, so that at D = 64 the last row of the one meets the last steps of the other.
// Where registers are left, a weight's instructions are strewn among the multiply-adds. With AVX2 none are: there a whole weight is computed
// between two steps, in the registers of lanes and broadcast element, which are dead for that moment; renaming does the rest. When D is
// small, rows that have not had their turn follow in a loop of their own; when it is large, the last steps go alone.
//
// With each row of weights, the first 64 numbers of a row of K of the next group are asked for into the second-level cache. That, and the same
// for V in Mix, was worth 2 % to AVX2 on a Xeon (family 6, model 207) at d = 64 and 2048 keys.
func (g *gen) flash(vecs int, sums bool) {
	name, s, frame := "Flash", "", 64+g.row()
	if sums {
		name, s, frame = "FlashSums", "\n\t\tp.S[lane] += Σ e*p.P[i*lanes+lane]", 64+2*g.row()
	}
	g.function(fmt.Sprint(name, vecs), "(p *Panel, from, to, scored int) (done int)", frame, 40, fmt.Sprintf(`
for j := from; j < to; j += %[1]d {
	if j > from || scored == 0 {
		score rows j to j+%[1]d
		if j >= p.Plain {
			p.P[i*%[2]d+lane] = -Inf where !(p.Edit.Lo[lane] <= i && i < p.Edit.Hi[lane]) // j <= i < j+%[1]d
		}
	}
	if any p.P[i*%[2]d+lane] > p.M[lane]+Limit { // j <= i < j+%[1]d
		p.M[lane] = max(p.P[i*%[2]d+lane], p.M[lane]) where p.M[lane] == Unset && p.L[lane] == 0
		if any still is {
			return j
		}
	}
	for lane := range %[3]d {
		p.L[lane] += Σ e // over the rows, with e = 2^(p.P[i*%[2]d+lane] - p.M[lane])%[4]s
		p.P[i*%[2]d+lane] = e
	}
}
return to`, g.rows, g.vecs*g.vec, vecs*g.vec, s))
	t := tile{gen: g, vecs: vecs, rows: g.rows, along: true, sums: sums}
	g.scoreRows()
	g.scratch(groupSums)
	t.emptySums()
	g.get(refs, mem{base: panel, field: "Panel_M"})
	g.arg(steps, "scored", 24)
	g.jumpAtLeast(steps, 1, "fits")
	t.startScore()
	t.products()
	g.jump("scores")

	g.label("group")
	t.startScore()
	t.offset(nextRow, elem, stride, t.rows)
	t.begin()
	t.mixed()
	t.total()

	g.label("scores")
	t.finishScore()
	g.arg(rowOf, "to", 16)
	g.subtract(rowOf, count)
	g.get(steps, mem{base: panel, field: "Panel_Plain"})
	g.jumpLess(rowOf, steps, "shown")
	g.jump("mask")
	g.label("shown")
	t.check("over")
	g.label("fits")
	g.move(weightsAt, out)
	t.nextScore()
	g.increase(count, -g.rows)
	g.jumpAtLeast(count, 1, "group")

	t.weights("last")
	t.total()
	g.label("leave")
	g.arg(aux, "to", 16)
	g.subtract(aux, count)
	g.result("done", 32, aux)
	g.ret()

	g.label("over")
	t.seed()
	t.check("leave")
	g.jump("fits")

	g.label("mask")
	t.mask()
	g.jump("shown")
}

// groupSum is Σ P of a group, groupSumS Σ P*score.
func (t tile) groupSum(v int) mem  { return mem{base: groupSums, off: v * t.bytes()} }
func (t tile) groupSumS(v int) mem { return t.groupSum(t.vecs + v) }

// rowOf is the first row of a group, between its products and its weights.
const rowOf = lanesAt

// mask hides scores outside Lo and Hi, in the sums and where finishScore has stored them.
func (t tile) mask() {
	lo, last, key, tmp := t.lane(0), t.lane(0)+1, t.lane(0)+2, t.lane(0)+3
	for v := range t.vecs {
		at := mem{base: steps, off: v * t.bytes()}
		t.get(steps, mem{base: panel, field: "Panel_Edit+Edit_Lo"})
		t.load(lo, at)
		t.get(steps, mem{base: panel, field: "Panel_Edit+Edit_Hi"})
		t.load(last, at)
		t.addInt(last, last, previous)
		t.broadcastInt(key, rowOf)
		for r := range t.rows {
			t.replaceAboveInt(t.sum(r, v), hidden, lo, key, tmp)
			t.replaceAboveInt(t.sum(r, v), hidden, key, last, tmp)
			t.store(mem{base: out, off: r*t.row() + v*t.bytes()}, t.sum(r, v))
			t.addInt(key, key, next)
		}
	}
}

// temps are the last four registers. If the tile uses them, they are free only between steps.
func (t tile) temps() [4]vec {
	n := vec(t.regs)
	return [4]vec{n - 4, n - 3, n - 2, n - 1}
}

func (t tile) spare() bool { return t.temps()[0] > t.elem(t.elems()-1) }

// weight emits the weights of vector v in the row at weightsAt.
func (t tile) weight(v int) {
	at := mem{base: weightsAt, off: v * t.bytes()}
	temps := t.temps()
	e, sum := temps[2], temps[3]
	t.exp2(temps, at, mem{base: refs, off: v * t.bytes()})
	if t.sums {
		t.load(temps[0], at)
		t.load(sum, t.groupSumS(v))
		t.addProduct(sum, e, temps[0])
		t.store(t.groupSumS(v), sum)
	}
	t.store(at, e)
	t.add(sum, e, t.groupSum(v))
	t.store(t.groupSum(v), sum)
}

// weights emits a loop over the rows from weightsAt to out.
func (t tile) weights(label string) {
	t.label(label)
	for v := range t.vecs {
		t.weight(v)
	}
	t.increase(weightsAt, t.row())
	t.jumpLess(weightsAt, out, label)
}

// mixed emits the products, and with them the rows of weights from weightsAt to out.
func (t tile) mixed() {
	n := 64 / t.rows // steps a row
	ask := func(k int) {
		if lines := 4; k%(n/lines) == 0 {
			t.prefetch(mem{base: nextRow, off: k / (n / lines) * line})
		}
	}
	t.increase(steps, -n)
	t.jumpBelow(steps, 0, "left")
	t.align()
	t.label("mixed")
	if t.spare() {
		strewn := t.lines(func() {
			for v := range t.vecs {
				t.weight(v)
			}
		})
		slots, slot := n*t.rows, 0
		for k := range n {
			ask(k)
			t.step(k, n, func() {
				for _, line := range strewn[slot*len(strewn)/slots : (slot+1)*len(strewn)/slots] {
					t.text.WriteString(line)
				}
				slot++
			})
		}
	} else {
		v := 0
		for k := range n {
			if k > 0 && k%(n/(t.vecs+1)) == 0 && v < t.vecs {
				t.weight(v)
				v++
			}
			ask(k)
			t.step(k, n, nil)
		}
	}
	t.offset(nextRow, nextRow, stride, 1)
	t.advance(n)
	t.increase(weightsAt, t.row())
	t.jumpLess(weightsAt, out, "more")
	t.jump("alone")
	t.label("more")
	t.jumpAtLeast(steps, 0, "mixed")
	t.label("left")
	t.weights("row")
	t.label("alone")
	t.increase(steps, n-unroll)
	t.rest("Mixed")
}

// total adds the sums of the group to L and S and empties them. The sums of the tile are not touched.
func (t tile) total() {
	t.totalTo("Panel_L", t.groupSum)
	if t.sums {
		t.totalTo("Panel_S", t.groupSumS)
	}
	t.emptySums()
}

func (t tile) totalTo(field string, groupSum func(v int) mem) {
	sum, totals := t.temps()[0], steps
	t.get(totals, mem{base: panel, field: field})
	for v := range t.vecs {
		all := mem{base: totals, off: v * t.bytes()}
		t.load(sum, groupSum(v))
		t.add(sum, sum, all)
		t.store(all, sum)
	}
}

func (t tile) emptySums() {
	nothing := t.temps()[0]
	t.zero(nothing)
	for v := range t.vecs {
		t.store(t.groupSum(v), nothing)
		if t.sums {
			t.store(t.groupSumS(v), nothing)
		}
	}
}

// seed makes M the largest score in lanes that have seen no key. Raise would do the same, as all that it scales is 0 there; but a sum that is not is
// left to it.
func (t tile) seed() {
	const sums = steps
	ref, top, begun, least := t.lane(0), t.lane(0)+1, t.lane(0)+2, t.lane(0)+3
	t.get(sums, mem{base: panel, field: "Panel_L"})
	for v := range t.vecs {
		at := mem{base: refs, off: v * t.bytes()}
		t.load(ref, at)
		t.sub(begun, ref, lowest)
		t.add(begun, begun, mem{base: sums, off: v * t.bytes()})
		t.load(top, ref)
		for r := range t.rows {
			t.larger(top, t.sum(r, v), top)
		}
		t.note("no more than 0 if the lane has seen no key, and else 1 at least, or NaN")
		t.load(least, one)
		t.replaceAbove(ref, top, least, begun, least)
		t.store(at, ref)
	}
}

// check jumps if a score, as finishScore has left them in the sums, is over its limit.
func (t tile) check(over string) {
	top, highest := t.lane(0), t.lane(0)+1
	for v := range t.vecs {
		t.load(top, mem{base: refs, off: v * t.bytes()})
		t.add(highest, top, limit)
		for r := range t.rows {
			t.larger(top, t.sum(r, v), top)
		}
		t.jumpAbove(top, highest, over)
	}
}
