package tile

// stairs hold the rows of a block that each vector of a tile uses where the band's edges cross the
// block. Rows that all queries see are plain, the others are masked. The last lanes see the latest
// keys, and skip the rows before their first; the first lanes skip the rows after their last.
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
//
// A vector's rows begin and end with groups of keys, and all vectors of a unit have the same rows.
type stairs struct {
	vec, unit, group int // lanes in a vector and in a unit, rows in a group: powers of two

	divided bool  // false: all vectors use all rows
	rows    int   // rows of the block
	vectors int   // vectors in use
	since   []int // first row of each vector; does not decrease
	until   []int // end of the rows of each vector; does not decrease
	leave   []int // until, for the vectors of a step
	plain   span  // rows that every query sees
}

func newStairs(lanes, vec, unit, group int) stairs {
	n := lanes / vec
	return stairs{vec: vec, unit: unit, group: group, since: make([]int, n), until: make([]int, n), leave: make([]int, n)}
}

// begin gives all rows of a block to all vectors.
func (s *stairs) begin(rows int) { s.divided, s.rows = false, rows }

// divide chooses the rows of each vector, of the block that begin was called for. Row 0 is key.
func (s *stairs) divide(l *place, key int) {
	s.divided, s.vectors = true, 0
	begin, end := 0, 0
	for lane := 0; lane < l.width; lane += s.unit {
		next := min(lane+s.unit, l.width)
		if end = max(end, min(s.up(int(l.hi[next-1])-key), s.rows)); next == l.width {
			end = s.rows
		}
		if lane > 0 {
			row := max(int(l.lo[lane])-key, 0)
			begin = max(begin, min(down(row, s.group), s.until[0]))
		}
		for ; s.vectors*s.vec < next; s.vectors++ {
			s.since[s.vectors], s.until[s.vectors] = begin, end
		}
	}
	s.plain = span{min(s.up(l.common.lo-key), s.rows), min(l.common.hi-key, s.rows)}
	if s.plain.hi < s.rows {
		s.plain.hi = down(s.plain.hi, s.group)
	}
	s.plain.hi = max(s.plain.hi, s.plain.lo)
}

// up rounds a row up to the first row of a group, and to 0 at least.
func (s *stairs) up(row int) int { return up(max(row, 0), s.group) }

// A step is a call of Flash: rows up to end, for the lanes that use the first of them.
type step struct {
	lane, width int
	end         int
	until       []int // end of the rows of each vector, in ascending order; nil: all end at end
}

// step returns the call that begins at row from and ends at row to or before. If early is set,
// vectors may leave while those after them continue.
func (s *stairs) step(from, to int, early bool) step {
	first, last := 0, s.vectors
	for s.until[first] <= from {
		first++
	}
	for ; s.since[last-1] > from; last-- {
		to = min(to, s.since[last-1])
	}
	end := min(to, s.until[first])
	if early { // the other vectors may continue for whole groups
		end = max(end, down(min(to, s.until[last-1]), s.group))
	}
	st := step{lane: first * s.vec, width: (last - first) * s.vec, end: end}
	if s.until[first] < end {
		st.until = s.leave[:last-first]
		for i := range st.until {
			st.until[i] = min(s.until[first+i], end)
		}
	}
	return st
}

// stretch returns the first lane that uses a row or a later one, in whole units, and the end of the
// rows that all lanes from there on use.
func (s *stairs) stretch(row int) (lane, end int) {
	if !s.divided {
		return 0, s.rows
	}
	for s.until[lane/s.vec] <= row {
		lane += s.unit
	}
	return lane, s.until[lane/s.vec]
}
