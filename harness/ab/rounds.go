package ab

import (
	"time"

	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A keptRound is a round that the journals hold.
type keptRound struct {
	times [2][2]float64 // by side
	calls [2]int
}

// A sidePoint is a point in the journal of a side.
type sidePoint struct {
	side int
	run.Point
}

// numbers give each round of a cell its visits in the journals. A point may be in several cells,
// and its visits do not say of which. So cells that share a point are in different lanes, and each
// lane has visits of its own.
type numbers struct {
	lanes []int // by cell
	width int   // lanes in all
	first int   // visits of this session have greater numbers; a multiple of width
}

// numberRounds gives each cell the lowest lane that no earlier cell has with which it shares a
// point.
func numberRounds(cells [][2]run.Point) numbers {
	n := numbers{lanes: make([]int, len(cells)), width: 1}
	taken := map[sidePoint]map[int]bool{}
	for i, points := range cells {
		a, b := sidePoint{0, points[0]}, sidePoint{1, points[1]}
		lane := 0
		for taken[a][lane] || taken[b][lane] {
			lane++
		}
		for _, at := range [...]sidePoint{a, b} {
			if taken[at] == nil {
				taken[at] = map[int]bool{}
			}
			taken[at][lane] = true
		}
		n.lanes[i], n.width = lane, max(n.width, lane+1)
	}
	return n
}

// visit returns the journal's round of sample n, 0 or 1 on its side, of a round of cell i. The two
// samples of round number k of a lane are visits 2k-1 and 2k.
func (s *numbers) visit(i, round, n int) int {
	return visitOf(s.first+(round-1)*s.width+s.lanes[i]+1, n)
}

func visitOf(number, n int) int { return 2*number - 1 + n }

// findKept finds the rounds of which the journals have all four samples. A round that was cut off
// is taken again under another number.
func (s *Comparison) findKept() {
	last := 0
	visits := map[sidePoint]map[int]*run.Visit{} // by the journal's round
	for _, cell := range s.Cells {
		for side, point := range cell {
			at := sidePoint{side, point}
			if visits[at] != nil {
				continue
			}
			visits[at] = map[int]*run.Visit{}
			c := s.Sides[side].Cell(point)
			for n := range c.Visits {
				v := &c.Visits[n]
				visits[at][v.Round], last = v, max(last, (v.Round+1)/2)
			}
		}
	}
	s.first = (last + s.width - 1) / s.width * s.width
	s.kept = make([][]keptRound, len(s.Cells))
	for i, cell := range s.Cells {
		for number := s.lanes[i] + 1; number <= last; number += s.width {
			if k, whole := newKeptRound(cell, visits, number); whole {
				s.kept[i] = append(s.kept[i], k)
			}
		}
	}
}

func newKeptRound(cell [2]run.Point, visits map[sidePoint]map[int]*run.Visit, number int) (k keptRound, whole bool) {
	for side, at := range cell {
		for n := range 2 {
			v := visits[sidePoint{side, at}][visitOf(number, n)]
			if v == nil {
				return k, false
			}
			took := harness.Elapsed{Wall: time.Duration(v.Wall), CPU: time.Duration(v.CPU)}
			k.times[side][n] = harness.Sample{Calls: v.Calls, Elapsed: took}.PerCall(at.Threads)
			k.calls[side] = v.Calls
		}
	}
	return k, true
}

// takeKept uses a round of a cell from the journals, and reports whether there was one left.
func (s *Comparison) takeKept(i int) bool {
	if len(s.kept[i]) == 0 {
		return false
	}
	k := s.kept[i][0]
	s.kept[i] = s.kept[i][1:]
	s.add(i, stats.Pair{A: k.times[0], B: k.times[1]})
	s.calls[i] = k.calls
	return true
}
