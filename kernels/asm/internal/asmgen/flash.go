package asmgen

import "fmt"

// flash emits Ops.Flash for rows from to to, a whole number of groups, without S: Score with the weights of each group computed amid the
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
func (g *gen) flash(vecs int) {
	g.function(fmt.Sprint("Flash", vecs), "(p *Panel, from, to int) (done int)", 256, 32, fmt.Sprintf(`
for j := from; j < to; j += %[1]d {
	score rows j to j+%[1]d
	if any !(p.P[i*%[2]d+lane] <= p.M[lane]+Limit) { // j <= i < j+%[1]d
		return j
	}
	for lane := range %[3]d {
		p.L[lane] += Σ e // over the rows, with e = 2^(p.P[i*%[2]d+lane] - p.M[lane])
		p.P[i*%[2]d+lane] = e
	}
}
return to`, g.rows, g.vecs*g.vec, vecs*g.vec))
	t := tile{gen: g, vecs: vecs, rows: g.rows, along: true}
	g.scoreRows()
	g.get(refs, mem{base: panel, field: "Panel_M"})
	g.get(totals, mem{base: panel, field: "Panel_L"})
	g.scratch(groupSums)
	for v := range vecs {
		g.zero(t.sum(0, v))
		g.store(t.groupSum(v), t.sum(0, v))
	}
	t.startScore()
	t.products()
	g.jump("scores")

	g.label("group")
	t.startScore()
	t.begin()
	t.mixed()
	t.total()

	g.label("scores")
	t.finishScore()
	t.check("over")
	g.move(weightsAt, out)
	t.nextScore()
	g.increase(count, -g.rows)
	g.jumpAtLeast(count, 1, "group")

	t.weights("last")
	t.total()
	g.label("over")
	g.arg(aux, "to", 16)
	g.subtract(aux, count)
	g.result("done", 24, aux)
	g.ret()
}

func (t tile) groupSum(v int) mem { return mem{base: groupSums, off: v * t.bytes()} }

// temps are the last four registers. If the tile uses them, they are free only between steps.
func (t tile) temps() [4]vec {
	n := vec(t.regs)
	return [4]vec{n - 4, n - 3, n - 2, n - 1}
}

func (t tile) spare() bool { return t.temps()[0] > t.broadcasted() }

// weight emits the weights of vector v in the row at weightsAt.
func (t tile) weight(v int) {
	at := mem{base: weightsAt, off: v * t.bytes()}
	temps := t.temps()
	e, sum := temps[2], temps[3]
	t.exp2(temps, at, mem{base: refs, off: v * t.bytes()})
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
			t.step(k, func() {
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
			t.step(k, nil)
		}
	}
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

// total adds the sums of the group to L and empties them. The sums of the tile are not touched.
func (t tile) total() {
	sum := t.temps()[0]
	for v := range t.vecs {
		l := mem{base: totals, off: v * t.bytes()}
		t.load(sum, t.groupSum(v))
		t.add(sum, sum, l)
		t.store(l, sum)
		t.zero(sum)
		t.store(t.groupSum(v), sum)
	}
}

// check jumps if a score is not within its limit. It destroys the sums, which finishScore has left as scores.
func (t tile) check(over string) {
	var all []vec
	for v := range t.vecs {
		max := t.lane(0)
		t.load(max, mem{base: refs, off: v * t.bytes()})
		t.add(max, max, limit)
		for r := range t.rows {
			t.sub(t.sum(r, v), max, t.sum(r, v))
			all = append(all, t.sum(r, v))
		}
	}
	for len(all) > 1 {
		half := (len(all) + 1) / 2
		for i, x := range all[half:] {
			t.worse(all[i], all[i], x)
		}
		all = all[:half]
	}
	t.jumpOver(all[0], over)
}
