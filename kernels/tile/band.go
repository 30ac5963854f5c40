package tile

import "attnlab/kernels/asm"

// place finds the keys that lanes see, whose bounds do not decrease from one lane to the next, and those that some and that all of them see.
func (t *Tile) place(pos, keys int) {
	first, last := 0, t.rows-1
	los, his := t.Edit.Lo[:t.Width], t.Edit.Hi[:t.Width]
	if t.heads == 1 {
		t.p.Mask.Each(pos, keys, los[:t.rows], his[:t.rows])
	} else {
		for lane := range t.rows {
			at := pos + (t.i+lane)/t.heads - t.i/t.heads
			t.p.Mask.Each(at, keys, los[lane:lane+1], his[lane:lane+1])
		}
	}
	for lane := t.rows; lane < t.Width; lane++ {
		los[lane], his[lane] = los[last], his[last]
	}
	t.allLo, t.allHi = int(los[last]), int(his[first])
	for first < last && los[first] == his[first] {
		first++
	}
	for first < last && los[last] == his[last] {
		last--
	}
	if t.sees = [2]int{int(los[first]), int(his[last])}; t.sees[0] >= t.sees[1] { // nobody sees any
		t.sees = [2]int{keys, 0}
	}
}

// plain is whether the band shows the whole block to every query.
func (t *Tile) plain() bool {
	return t.allLo <= t.Edit.Key && t.Edit.Key+t.N <= t.allHi
}

// band is Weights where the mask's edges cross the block. Rows that all queries see are plain; the others are masked, and go in stairs: the
// last lanes, which see the latest keys, are left out of the rows before their first, and the first lanes of the rows after their last.
//
//	         lanes
//	      ┌──┐
//	rows  │▚▚└──┐    masked: the first unit of lanes,
//	      │▚▚▚▚▚└──┐ the first two, and so on
//	      │▚▚▚▚▚▚▚▚│
//	      │████████│ plain
//	      │▚▚▚▚▚▚▚▚│ masked: all units,
//	      └──┐▚▚▚▚▚│ all but the first,
//	         └──┐▚▚│ and so on
//	            └──┘
func (t *Tile) band() {
	t.Since, t.Until = t.since, t.until
	begin, end, v := 0, 0, 0
	for lane, unit := 0, t.ops.Unit(); lane < t.Width; lane += unit {
		next := min(lane+unit, t.Width)
		if end = max(end, min(t.up(int(t.Edit.Hi[next-1])), t.N)); next == t.Width {
			end = t.N
		}
		if lane > 0 {
			row := max(int(t.Edit.Lo[lane])-t.Edit.Key, 0)
			begin = max(begin, min(t.down(row), t.until[0]))
		}
		for ; v*t.ops.Vec < next; v++ {
			t.since[v], t.until[v] = begin, end
		}
	}
	t.vecs = v
	first, last := min(t.up(t.allLo), t.N), 0
	if last = min(t.allHi-t.Edit.Key, t.N); last < t.N {
		last = t.down(last)
	}
	last = max(last, first)
	n := t.N
	t.stairs(0, first, 0)
	t.stairs(first, n, last)
	t.N, t.Until = n, t.until
}

// up is the row of a key, rounded up to a group's first, not less than 0.
func (t *Tile) up(key int) int {
	return t.down(max(key-t.Edit.Key, 0) + t.ops.Group() - 1)
}

// down is a row, rounded down to a group's first.
func (t *Tile) down(row int) int { return row &^ (t.ops.Group() - 1) }

// stairs takes the lanes that use each of the rows through them; masked, from row plain on. The steps at which lanes leave are one call of Flash.
func (t *Tile) stairs(from, to, plain int) {
	for scored := false; from < to; {
		p := t.step(from, to)
		p.Plain, p.Scored = plain, scored
		t.ops.Flash(p)
		from = p.Done
		if scored = from < p.N; scored {
			p = t.step(from, to)
			p.Done = from
			t.ops.Raise(p)
		}
	}
}

// step is a panel of the lanes in use at a row, and of the rows that they may go on for: the tile's own if these are all lanes.
func (t *Tile) step(from, to int) *asm.Panel {
	p, vec, first := &t.Panel, t.ops.Vec, 0
	for t.until[first] <= from {
		first++
	}
	last := t.vecs
	for ; t.since[last-1] > from; last-- {
		to = min(to, t.since[last-1])
	}
	end := min(to, t.until[first])
	if asm.Normal(t.Factor) { // whole groups may go on without those that leave
		end = max(end, t.down(min(to, t.until[last-1])))
	}
	lane, width := first*vec, (last-first)*vec
	if width < t.Width {
		p = &t.part
		*p = t.Panel
		p.Width = width
		p.Edit.Lo, p.Edit.Hi = p.Edit.Lo[lane:], p.Edit.Hi[lane:]
		for _, s := range []*[]float32{&p.Qt, &p.P, &p.M, &p.L, &p.S, &p.Keep} {
			*s = (*s)[min(lane, len(*s)):]
		}
		if p.QtParts != nil {
			p.QtParts = p.QtParts[asm.QueryParts(1, lane):]
		}
	}
	p.From, p.N, p.Until = from, end, nil
	if t.until[first] < end {
		p.Until = t.leave[:last-first]
		for i := range p.Until {
			p.Until[i] = min(t.until[first+i], end)
		}
	}
	return p
}

// zeros makes weights 0 in the rows before a vector's first, which the stairs leave as they were and Mix does not read.
func (t *Tile) zeros() {
	for lane := 0; t.Since != nil && lane < t.Width; lane += t.ops.Vec {
		for row := range t.Since[lane/t.ops.Vec] {
			clear(t.P[row*t.Lanes+lane:][:t.ops.Vec])
		}
	}
}
