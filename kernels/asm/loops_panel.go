//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"unsafe"
)

// panelLoops are the assembly loops of prefill that do not compute 2^x.
type panelLoops struct {
	score []func(p *Product, scores *float32, from, to int)
	mix   []func(p *Mix, keep *float32)
	raise func(p *Softmax, rows int)
	top   func(p *Softmax, from, to int)
}

// setPanel replaces the portable loops by the set's own, with checks before them. Flash gives the
// bits of Score and Exp, so a set that has one of these gets a Flash made of them.
func (l *loops) setPanel(o *Ops, power *powerLoops) {
	if l.panel.score != nil {
		o.Panel.Score = func(p *Scores) { l.scores(&p.Panel, &p.Product, 0) }
	}
	if power.exp != nil {
		o.ulps = power.ulps
		o.Panel.Exp = func(p *Softmax) {
			l.checkExp(p)
			l.weights(power, p, p.From)
		}
	}
	if l.panel.score != nil || power.exp != nil {
		unit := l.vectors(o.Shape.Unit())
		o.Panel.Flash = func(p *Flash) { l.flash(power, p, unit) }
	}
	o.Tuning.Prescaled = o.Tuning.Prescaled && l.panel.score != nil
	if l.panel.raise != nil {
		o.Panel.Raise = l.raise
	}
	if l.panel.top != nil {
		o.Panel.Top = l.top
	}
	if l.panel.mix != nil {
		o.Panel.Mix = l.mix
	}
}

func (l *loops) flash(power *powerLoops, p *Flash, unit int) {
	l.checkExp(&p.Softmax)
	l.checkScores(&p.Panel, &p.Product)
	whole := p.N &^ (l.keys - 1)
	if p.Plain < p.N {
		l.checkBand(p)
	}
	if p.Until != nil && p.Width > 0 {
		l.checkLeaving(p, unit)
	}
	if p.Width == 0 || p.From == whole || !Normal(p.Factor) {
		whole = p.From
	} else if l.groups(power, p, whole); p.Done < whole {
		p.Scored = false
		return
	}
	p.Scored = false
	if whole < p.N {
		l.scores(&p.Panel, &p.Product, whole)
		mask(&p.Panel, &p.Band, max(whole, p.Plain), p.N)
	}
	l.weights(power, &p.Softmax, whole)
}

func (l *loops) raise(p *Softmax) {
	l.checkRaise(p)
	switch rows := min(l.keys, p.N-p.Done); {
	case rows <= 0 || p.Width == 0:
	case p.Done > raiseAtOnce:
		raise(p, l.keys)
	default:
		l.panel.raise(p, rows)
	}
	p.From, p.Scored = p.Done, true
}

func (l *loops) top(p *Softmax) {
	l.checkPanel(&p.Panel)
	reach("M", len(p.M), 1, p.Width, 0)
	for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
		l.panel.top(p, from, min(from+expAtOnce, p.N))
	}
}

func (l *loops) mix(p *Mix) {
	width, keep := l.checkMix(p), &ones[0]
	if p.Keep != nil {
		keep = unsafe.SliceData(p.Keep)
	}
	if width > 0 {
		l.columns(p, l.panel.mix[width-1], keep)
	}
}

// scores computes the scores of rows from..N.
func (l *loops) scores(p *Panel, of *Product, from int) {
	width := l.checkScores(p, of)
	if !Normal(of.Factor) {
		scoreRows(p, of, from, p.N)
		return
	}
	if p.N > 0 {
		l.scoreRows(p, of, width, from, p.N)
	}
}

// scoreRows computes the scores of rows from..to for width vectors of lanes, some rows in each
// call.
func (l *loops) scoreRows(p *Panel, of *Product, width, from, to int) {
	if l.panel.score == nil {
		scoreRows(p, of, from, to)
		return
	}
	for step := l.scoresAtOnce(p, of, to-from); from < to && width > 0; from += step {
		l.panel.score[width-1](of, &p.P[0], from, min(from+step, to))
	}
}

// scoresAtOnce returns how many of n rows of scores one call computes.
func (l *loops) scoresAtOnce(p *Panel, of *Product, n int) int {
	return atOnce(n, l.keys, of.D*p.Width, 4*(of.D+p.Width), 4*of.D*p.Width)
}

// groups computes whole groups with Flash, up to row whole.
func (l *loops) groups(power *powerLoops, p *Flash, whole int) {
	if p.S != nil || power.flash == nil {
		l.unfused(power, p, whole)
		return
	}
	flash, vectors, to := power.flash, l.vectors(p.Width), whole
	if p.Until != nil {
		to = p.Until[0]
	}
	step := l.scoresAtOnce(&p.Panel, &p.Product, whole-p.From)
	if p.From+step >= whole {
		p.Done = flash[vectors-1](p, p.From, to, indicator(p.Scored))
		return
	}
	all, from := *p, p.From
	var until [16]int // end of each vector's rows
	copy(until[:], p.Until)
	for p.Done = from; p.Done < whole; from = p.Done {
		end, first := min(from+step, whole), 0
		if to = end; all.Until != nil {
			for until[first] <= from { // these have left
				first++
			}
			for i := range vectors - first {
				all.Until[i] = min(until[first+i], end)
			}
			to = all.Until[0]
			p.lanesFrom(&all, first*l.vec)
		}
		p.At = all.At + uintptr((from-all.From)*p.By)
		if p.Done = flash[vectors-first-1](p, from, to, indicator(p.Scored)); p.Done < end {
			break
		}
		p.Scored = false
	}
	copy(all.Until, until[:])
	all.Done = p.Done
	*p = all
}

// unfusedAtOnce is the number of rows that unfused scores before it computes their weights. With
// more rows, more scores would be computed again when it leaves early; with fewer, there are more
// calls.
const unfusedAtOnce = 64

// unfused does what groups does, for sets without a fused loop, or with S, which the fused loop
// does not sum. It calls Score, the mask and Exp for some rows after another, with the same bits.
func (l *loops) unfused(power *powerLoops, p *Flash, whole int) {
	all, first := *p, 0 // first vector that has not left
	step := min(unfusedAtOnce, l.scoresAtOnce(&p.Panel, &p.Product, whole-p.From))
	scored := p.From
	if p.Scored {
		scored += l.keys
	}
	for p.Done = p.From; p.Done < whole; {
		for all.Until != nil && all.Until[first] <= p.Done { // these have left
			first++
		}
		from, to := p.Done, min(p.Done+step, whole)
		if all.Until != nil {
			to = min(to, all.Until[first])
		}
		p.lanesFrom(&all, first*l.vec)
		if scored < to {
			l.scoreRows(&p.Panel, &p.Product, l.vectors(p.Width), scored, to)
			mask(&p.Panel, &p.Band, max(scored, p.Plain), to)
			scored = to
		}
		if p.Done = l.exp(power, &p.Softmax, from, to); p.Done == to {
			continue
		}
		group := p.Done
		seed(&p.Softmax, 0, group, group+l.keys)
		if p.Done = l.exp(power, &p.Softmax, group, group+l.keys); p.Done == group {
			break
		}
	}
	all.Done = p.Done
	*p = all
}

// lanesFrom sets p to the lanes of the call all, starting at a lane.
func (p *Flash) lanesFrom(all *Flash, lane int) {
	p.Width = all.Width - lane
	p.Queries, p.P, p.Sums = all.Queries.From(lane), all.P[lane:], all.Sums.From(lane)
	p.Lo, p.Hi = all.Lo[min(lane, len(all.Lo)):], all.Hi[min(lane, len(all.Hi)):]
}

// columns computes O, some columns in each call.
func (l *loops) columns(p *Mix, mix func(p *Mix, keep *float32), keep *float32) {
	all := p.C
	step := atOnce(all, l.keys, p.N*p.Width, 4*(p.N+2*p.Width), 4*p.N*p.Width)
	if step >= all {
		mix(p, keep)
		return
	}
	v, o := p.Values.rows.Data, p.O
	for c := 0; c < all; c += step {
		p.C, p.Values.rows.Data, p.O = min(step, all-c), v[min(c, len(v)):], o[c*p.Lanes:]
		mix(p, keep)
		p.shift(4 * p.C)
	}
	p.shift(-4 * all)
	p.C, p.Values.rows.Data, p.O = all, v, o
}

// shift moves the prefetches by a number of bytes.
func (p *Mix) shift(bytes int) { p.Next, p.Then = p.Next.Shift(bytes), p.Then.Shift(bytes) }

// weights turns the scores of rows from..N into weights.
func (l *loops) weights(power *powerLoops, p *Softmax, from int) {
	if p.Width == 0 {
		p.Done = p.N
		return
	}
	for p.Done = from; p.Done < p.N; {
		to := min(p.Done+expAtOnce, p.N)
		if p.Done = l.exp(power, p, p.Done, to); p.Done < to {
			return
		}
	}
}

// exp turns the scores of rows from..to into weights. It returns the first row that it did not
// process.
func (l *loops) exp(power *powerLoops, p *Softmax, from, to int) (done int) {
	switch {
	case power.exp == nil:
		return expRows(p, l.keys, from, to)
	case p.S != nil:
		return power.expSums(p, from, to)
	}
	return power.exp(p, from, to)
}

// checkScores panics if slices are too short for what Score touches. It returns the vectors in use.
func (l *loops) checkScores(p *Panel, of *Product) int {
	of.plain = of.Factor == 1
	width := l.checkPanel(p)
	reach("Queries", len(of.Queries.lanes), of.D, p.Width, p.Lanes)
	reach("Keys", len(of.Keys.rows.Data), p.N, of.D, of.Keys.rows.Stride)
	return width
}

// checkExp panics if slices are too short for what Exp touches, or if From is not the first row of
// a group.
func (l *loops) checkExp(p *Softmax) {
	l.checkPanel(&p.Panel)
	reach("M", len(p.M), 1, p.Width, 0)
	reach("L", len(p.L), 1, p.Width, 0)
	if p.S != nil {
		reach("S", len(p.S), 1, p.Width, 0)
	}
	if p.From < 0 || p.From > p.N || p.From&(l.keys-1) != 0 {
		panic(fmt.Errorf("asm/%s: From is %d: it must be a multiple of %d within the %d rows", l.isa, p.From, l.keys, p.N))
	}
}

// checkBand panics if the band of Flash is too short.
func (l *loops) checkBand(p *Flash) {
	if n := min(len(p.Lo), len(p.Hi)); n < p.Width {
		panic(fmt.Errorf("asm/%s: Lo, Hi: %d elements for %d lanes", l.isa, n, p.Width))
	}
}

// checkLeaving panics if Until is not valid for vectors that leave Flash early, unit of them
// together.
func (l *loops) checkLeaving(p *Flash, unit int) {
	if !Normal(p.Factor) {
		panic(fmt.Errorf("asm/%s: Factor is %v: use one that is Normal, or leave Until nil", l.isa, p.Factor))
	}
	before, width := p.From, l.vectors(p.Width)
	ok := len(p.Until) >= width && p.Until[width-1] == p.N
	for v := 0; v < width && ok; v++ {
		to := p.Until[v]
		together := v&(unit-1) != 0 || v > 0 && before == p.N
		ok = to&(l.keys-1) == 0 && to >= before && (to == before) == together
		before = to
	}
	if !ok {
		panic(fmt.Errorf("asm/%s: Until is %v: want a multiple of %d for each of %d vectors, larger after every %d vectors, from %d to %d", l.isa, p.Until, l.keys, width, unit, p.From, p.N))
	}
}

// checkRaise panics if slices are too short for what Raise touches, or if there is no group at
// Done.
func (l *loops) checkRaise(p *Softmax) {
	l.checkExp(p)
	reach("Keep", len(p.Keep), 1, p.Width, 0)
	if p.Done < 0 || p.Done >= p.N || p.Done&(l.keys-1) != 0 {
		panic(fmt.Errorf("asm/%s: Done is %d: it must be a multiple of %d within the %d rows", l.isa, p.Done, l.keys, p.N))
	}
}

// checkMix panics if slices are too short for what Mix touches. It returns the vectors in use, or 0
// if there is nothing to compute.
func (l *loops) checkMix(p *Mix) int {
	width := l.checkPanel(&p.Panel)
	reach("Values", len(p.Values.rows.Data), p.N, p.C, p.Values.rows.Stride)
	reach("O", len(p.O), p.C, p.Width, p.Lanes)
	if p.Keep != nil {
		reach("Keep", len(p.Keep), 1, p.Width, 0)
	}
	if p.Until != nil && width > 0 {
		l.checkStairs("Since", p.Since, width, 0, p.Until[0])
		l.checkStairs("Until", p.Until, width, p.Since[width-1], p.N)
		if p.Since[0] != 0 {
			panic(fmt.Errorf("asm/%s: Since begins with %d: it must be 0", l.isa, p.Since[0]))
		}
	}
	if p.C == 0 {
		return 0
	}
	return width
}

// checkStairs panics unless rows has one entry for each vector, in ascending order within from..to.
func (l *loops) checkStairs(name string, rows []int, width, from, to int) {
	for i := range width {
		if len(rows) < width || rows[i] < from || rows[i] > to {
			panic(fmt.Errorf("asm/%s: %s is %v: it must have a row for each of %d vectors, in ascending order from %d to %d", l.isa, name, rows, width, from, to))
		}
		from = rows[i]
	}
}
