package tile

import (
	"slices"
	"testing"

	"attnlab/attn"
)

// divided returns stairs of 24 lanes in vectors of 4 and units of 8, over a block of rows starting
// at key.
func divided(l *place, key, rows int) *stairs {
	s := newStairs(24, 4, 8, 8)
	s.begin(rows)
	s.divide(l, key)
	return &s
}

// TestStairs checks stairs in examples.
func TestStairs(t *testing.T) {
	for _, c := range []struct {
		mask         attn.Mask
		pos, queries int
		key, rows    int
		since, until []int
		plain        span
	}{
		// Lane i sees keys up to 16+i: the units need 24, 32 and 40 rows.
		{attn.Causal(), 16, 24, 0, 40, []int{0, 0, 0, 0, 0, 0}, []int{24, 24, 32, 32, 40, 40}, span{0, 16}},
		// One key later, the units need a row of another group.
		{attn.Causal(), 17, 24, 0, 41, []int{0, 0, 0, 0, 0, 0}, []int{32, 32, 40, 40, 41, 41}, span{0, 16}},
		// All see the first 24 rows, and the last unit ends with the block.
		{attn.Causal(), 23, 24, 0, 32, []int{0, 0, 0, 0, 0, 0}, []int{32, 32, 32, 32, 32, 32}, span{0, 24}},
		// Lane i sees keys from 8+i on: units begin at rows 0, 16 and 24, but not after the first
		// unit's last.
		{attn.Window(8, 0), 16, 24, 0, 40, []int{0, 0, 16, 16, 24, 24}, []int{24, 24, 32, 32, 40, 40}, span{32, 32}},
		{attn.Window(1, 0), 16, 24, 0, 40, []int{0, 0, 16, 16, 24, 24}, []int{24, 24, 32, 32, 40, 40}, span{40, 40}},
		{attn.Window(30, 0), 40, 20, 16, 44, []int{0, 0, 0, 0, 8}, []int{32, 32, 40, 40, 44}, span{16, 24}},
		// The block ends before the edge.
		{attn.Window(30, 0), 40, 24, 8, 16, []int{0, 0, 8, 8, 16, 16}, []int{16, 16, 16, 16, 16, 16}, span{16, 16}},
		{attn.Full(), 0, 3, 8, 20, []int{0}, []int{20}, span{0, 20}},
	} {
		l := seen(c.mask, spot{c.pos, 64, c.queries, 1, 0})
		l.width = up(c.queries, 4)
		s := divided(&l, c.key, c.rows)
		if n := s.vectors; !slices.Equal(s.since[:n], c.since) || !slices.Equal(s.until[:n], c.until) || s.plain != c.plain {
			t.Errorf("%v, queries from %d on, keys from %d on: vectors take rows %v to %v, plain %v, want %v to %v, %v",
				c.mask, c.pos, c.key, s.since[:n], s.until[:n], s.plain, c.since, c.until, c.plain)
		}
	}
}

// everyStairs calls f for stairs of all masks and spots, over blocks that the place sees.
func everyStairs(f func(l *place, s *stairs, key int)) {
	for _, mask := range masks {
		for _, at := range spots() {
			l := seen(mask, at)
			for key := l.start(16); key < l.keys.hi; key += 16 {
				if b := l.block(key, 32, 8); !b.empty() {
					f(&l, divided(&l, b.lo, b.hi-b.lo), b.lo)
				}
			}
		}
	}
}

// TestStairsTakeWhatIsSeen checks that each vector uses all rows that its lanes see, in whole
// groups and in order, as Mix and Flash require, and that plain rows are hidden from no lane.
func TestStairsTakeWhatIsSeen(t *testing.T) {
	steps := 0
	everyStairs(func(l *place, s *stairs, key int) {
		if s.vectors*s.vec != l.width || s.since[0] != 0 || s.until[s.vectors-1] != s.rows {
			t.Fatalf("%d vectors for %d lanes take rows %v to %v of %d", s.vectors, l.width, s.since, s.until, s.rows)
		}
		for v := range s.vectors {
			since, until := s.since[v], s.until[v]
			if v > 0 && (since < s.since[v-1] || until < s.until[v-1]) || since > s.until[0] ||
				since%s.group != 0 || until%s.group != 0 && until != s.rows {
				t.Fatalf("vector %d takes rows %v to %v of %d", v, s.since, s.until, s.rows)
			}
			for row := range s.rows {
				taken := since <= row && row < until
				for lane := v * s.vec; lane < (v+1)*s.vec; lane++ {
					sees := l.sees(lane, key+row)
					if sees && !taken {
						t.Fatalf("lane %d does not take row %d, key %d, which it sees: %v to %v", lane, row, key+row, s.since, s.until)
					}
					if plain := s.plain.lo <= row && row < s.plain.hi; plain && !(sees && taken) {
						t.Fatalf("row %d, key %d, is plain, but lane %d sees it: %v, takes it: %v", row, key+row, lane, sees, taken)
					}
				}
			}
			if since > 0 || until < s.rows {
				steps++
			}
		}
	})
	if steps == 0 {
		t.Error("no stairs")
	}
}

// TestSteps checks that the steps from the first row to the last compute each row of each vector
// once, as Flash requires. Vectors must leave at whole groups, and the remaining ones must see the
// rows before that.
func TestSteps(t *testing.T) {
	left := 0
	everyStairs(func(l *place, s *stairs, _ int) {
		for _, early := range []bool{true, false} {
			taken := make([]int, s.vectors*s.rows)
			for _, rows := range []span{{0, s.plain.lo}, {s.plain.lo, s.rows}} {
				for row := rows.lo; row < rows.hi; {
					st := s.step(row, rows.hi, early)
					if st.end <= row || st.end > rows.hi || st.width <= 0 || st.lane+st.width > l.width || st.lane%s.unit != 0 ||
						st.width%s.unit != 0 && st.lane+st.width != l.width {
						t.Fatalf("rows %v: step %+v from row %d", rows, st, row)
					}
					if !early && st.until != nil || st.until != nil && (st.end%s.group != 0 || len(st.until) != st.width/s.vec || st.until[len(st.until)-1] != st.end) {
						t.Fatalf("rows %v: step %+v from row %d", rows, st, row)
					}
					for i := range st.width / s.vec {
						end := st.end
						if st.until != nil {
							if end = st.until[i]; end%s.group != 0 && end != st.end || i > 0 && end < st.until[i-1] {
								t.Fatalf("rows %v: vectors leave at %v", rows, st.until)
							}
							left++
						}
						for ; row < end; end-- {
							taken[(st.lane/s.vec+i)*s.rows+end-1]++
						}
					}
					row = st.end
				}
			}
			for v := range s.vectors {
				for row := range s.rows {
					want := 0
					if s.since[v] <= row && row < s.until[v] {
						want = 1
					}
					if got := taken[v*s.rows+row]; got != want {
						t.Fatalf("vector %d, rows %v to %v: row %d is taken %d times", v, s.since, s.until, row, got)
					}
				}
			}
		}
	})
	if left == 0 {
		t.Error("no vector leaves early")
	}
}

// TestStretches checks that stretches cover all rows. Each must have the lanes that use it or later
// rows, and end where the first of these lanes ends.
func TestStretches(t *testing.T) {
	undivided := newStairs(24, 4, 8, 8)
	undivided.begin(30)
	if lane, end := undivided.stretch(7); lane != 0 || end != 30 {
		t.Errorf("stretch of a block that is not divided: from lane %d on, to row %d", lane, end)
	}
	everyStairs(func(l *place, s *stairs, _ int) {
		for row := 0; row < s.rows; {
			lane, end := s.stretch(row)
			for v := range s.vectors {
				if before := v*s.vec < lane; before != (s.until[v] <= row) || !before && s.until[v] < end {
					t.Fatalf("rows up to %v: stretch from row %d is of lanes from %d on, to row %d", s.until, row, lane, end)
				}
			}
			if end <= row || end > s.rows {
				t.Fatalf("stretch from row %d to %d of %d", row, end, s.rows)
			}
			row = end
		}
	})
}
