package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// An AB asks whether one side is slower than the other: two builds of this program, or two kernels
// of one. Its cells are taken in rounds, each in the order A B B A or B A A B by turns, so that
// what the machine does meanwhile happens to both.
//
// Cells are judged after 6, 12, 24, 48 and 96 rounds, and when the budget is spent, whichever comes
// first: Looks times at most, each at the level of one of so many (stats.Sequence), with Holm's
// correction over the cells. A cell that has its verdict is left alone from then on.
//
//	worse   the least time of B is more than the cell's effect above that of A, the median of the rounds' ratios more than half of it, and ranks tell them apart
//	better  the same the other way round
//	same    the interval of that median lies within the effect of 1
//
// Until one of these holds, a cell is undecided. The least of many times is what the code takes
// when nothing disturbs it; the ranks see to it that it was not a lucky one.
//
// What the journals already hold of whole rounds is not measured again: an AB that was interrupted
// goes on where it stopped, with the looks it has had.
type AB struct {
	Sides    [2]Worker
	Journals [2]*run.Journal // nil: nothing is kept
	Seed     uint64          // of the order of measurements
	Lab      *Lab
	Cells    [][2]run.Point // what is compared: a point of each side

	Effect float64            // least relative difference that matters
	Floors map[string]float64 // no less can be told of a cell whose probe has this unit
	Alpha  float64            // chance of a false alarm, over all cells and looks
	Budget time.Duration

	MaxMemory int64 // as of a Sweep,
	CPUs      int   // and so are these threads

	Now  func() time.Time // nil: time.Now
	Tell func(Progress)   // nil: nobody is told

	sides         [2]*Sweep // which plan, verify and keep record
	begun, timing time.Time
	taken         int // rounds in this session

	verdicts []ABCell
	pairs    [][]stats.Pair
	calls    [][2]int

	kept  [][]keptRound // of each cell: whole rounds of an earlier session, until they are taken over
	lanes []int         // of each cell; see number
	width int           // lanes in all
	first int           // a multiple of width, below the numbers of all new rounds
}

// A keptRound is a round that the journals hold.
type keptRound struct {
	times [2][2]float64 // by side
	calls [2]int
}

// Decided is why an AB ends at best.
const Decided = "no cell is left to decide"

// Looks is how often an AB judges its cells at most.
const Looks = 6

// firstLook is the round after which cells are judged for the first time; each look comes after
// twice as many as the one before.
const firstLook = 6

// A Judgement is what a cell comes to.
type Judgement string

// Judgements.
const (
	Worse     Judgement = "worse"
	Better    Judgement = "better"
	Same      Judgement = "same"
	Unsure    Judgement = "undecided"
	NoNumbers Judgement = "failed"     // on side B
	Unjudged  Judgement = "not judged" // there is nothing to compare: side A failed, what either side asks for cannot be done here, or the paths differ
)

// An ABCell is one comparison.
type ABCell struct {
	Points [2]run.Point
	Ns     [2]float64 // the least time of one call on each side
	stats.Paired
	Adjusted  float64 // P after Holm's correction
	Effect    float64 // least difference that matters in it
	Judgement Judgement
	Note      string // why it failed, or is not judged
}

// Run compares. When stop is closed it ends after the sample in hand. The reason is Decided,
// AllSamples, BudgetSpent or Interrupted.
func (s *AB) Run(ctx context.Context, stop <-chan struct{}) (cells []ABCell, reason string, err error) {
	if err := s.begin(ctx, stop); err != nil {
		return s.interrupted(err)
	}
	for i := range s.Cells {
		if Stopped(ctx, stop) {
			return s.verdicts, Interrupted, nil
		}
		s.tell("verify", i, i)
		if err := s.verify(ctx, i); err != nil {
			return s.interrupted(err)
		}
	}
	s.timing = s.now()
	rng := rand.New(rand.NewPCG(s.Seed, 1))
	next, look := firstLook, 1
	for round := 1; ; round++ {
		open := 0
		for _, i := range rng.Perm(len(s.Cells)) {
			if s.verdicts[i].Judgement != Unsure {
				continue
			}
			first := rng.IntN(2)
			if !s.takeOver(i) {
				s.tell(fmt.Sprintf("round %d", round), i, len(s.Cells)+s.rounds())
				if err := s.round(ctx, stop, i, round, first); err != nil {
					return s.interrupted(err)
				}
			}
			if s.verdicts[i].Judgement == Unsure {
				open++
			}
		}
		spent := s.Budget > 0 && s.now().Sub(s.begun) >= s.Budget
		if open > 0 && round < next && !spent {
			continue
		}
		s.judge()
		switch open = s.open(); {
		case open == 0:
			return s.verdicts, Decided, nil
		case spent:
			return s.verdicts, BudgetSpent, nil
		case look == Looks-1: // the last one is kept for the end of the budget
			return s.verdicts, AllSamples, nil
		}
		next, look = 2*next, look+1
	}
}

// effect is the least difference that matters and can be told in a cell. One noisy cell does not
// blind the others.
func (s *AB) effect(points [2]run.Point) float64 {
	return max(s.Effect, s.Floors[ProbeUnit(points[0])], s.Floors[ProbeUnit(points[1])])
}

func (s *AB) interrupted(err error) ([]ABCell, string, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errStopped) {
		return s.verdicts, Interrupted, nil
	}
	return s.verdicts, "", err
}

// begin has a sweep of each side plan its points, and finds the rounds that the journals hold.
func (s *AB) begin(ctx context.Context, stop <-chan struct{}) error {
	s.verdicts, s.pairs, s.calls = make([]ABCell, len(s.Cells)), make([][]stats.Pair, len(s.Cells)), make([][2]int, len(s.Cells))
	for i, points := range s.Cells {
		s.verdicts[i] = ABCell{Points: points, Judgement: Unsure, Effect: s.effect(points), Paired: stats.SummarisePairs(nil)}
	}
	for side, j := range s.Journals {
		if j == nil {
			j = run.Unkept()
		}
		sweep := &Sweep{Lab: s.Lab, Worker: s.Sides[side], Journal: j, MaxMemory: s.MaxMemory, CPUs: s.CPUs, Now: s.Now}
		for _, cell := range s.Cells {
			sweep.Points = append(sweep.Points, cell[side])
		}
		if err := sweep.plan(ctx, stop); err != nil {
			return err
		}
		s.sides[side] = sweep
	}
	s.layLanes()
	s.findKept()
	s.begun = s.now()
	return nil
}

// layLanes gives each cell the lowest lane that no earlier cell has with which it shares a point.
func (s *AB) layLanes() {
	s.lanes, s.width = make([]int, len(s.Cells)), 1
	taken := map[sidePoint]map[int]bool{}
	for i, points := range s.Cells {
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
		s.lanes[i], s.width = lane, max(s.width, lane+1)
	}
}

// A sidePoint is a point in the journal of a side.
type sidePoint struct {
	side int
	run.Point
}

// number is how the journals call a round of a cell. Each of its two samples on a side is a visit,
// in rounds 2*number-1 and 2*number. A point may be in several cells: these have different lanes,
// so that a number is of one cell only, and equal numbers of cells in one lane are taken in the
// same round of the comparison.
func (s *AB) number(i, round int) int { return s.first + (round-1)*s.width + s.lanes[i] + 1 }

// findKept finds the rounds of which the journals have all four samples. One that was cut off is
// taken again, under another number.
func (s *AB) findKept() {
	last := 0
	visits := map[sidePoint]map[int]*run.Visit{} // by round
	for _, cell := range s.Cells {
		for side, point := range cell {
			at := sidePoint{side, point}
			if visits[at] != nil {
				continue
			}
			visits[at] = map[int]*run.Visit{}
			c := s.sides[side].cell(point)
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
			v := visits[sidePoint{side, at}][2*number-1+n]
			if v == nil {
				return k, false
			}
			took := Elapsed{Wall: time.Duration(v.Wall), CPU: time.Duration(v.CPU)}
			k.times[side][n], k.calls[side] = perCall(took, v.Calls, at), v.Calls
		}
	}
	return k, true
}

func (s *AB) now() time.Time { return s.sides[0].now() }

// tell says that cell i is next, after so many steps: a cell verified is one, and so is a round of
// a cell.
func (s *AB) tell(phase string, i, done int) {
	if s.Tell == nil {
		return
	}
	now, budget := s.now(), time.Duration(-1)
	if s.Budget > 0 {
		budget = max(0, s.Budget-now.Sub(s.begun))
	}
	needed := 0
	for n, c := range s.verdicts {
		if c.Judgement == Unsure {
			needed += max(0, roundsNeeded(ratios(s.pairs[n]), c.Effect)-len(s.pairs[n]))
		}
	}
	steps, left := Forecast(needed, s.taken, now.Sub(s.timing), budget)
	s.Tell(Progress{
		Phase: phase, Done: done, Total: max(len(s.Cells)+s.rounds()+steps, done), Point: s.Cells[i][1],
		Width: stats.Summarise(ratios(s.pairs[i])).Width(), Left: left,
	})
}

// rounds are those of all cells.
func (s *AB) rounds() (n int) {
	for _, pairs := range s.pairs {
		n += len(pairs)
	}
	return n
}

func ratios(pairs []stats.Pair) []float64 {
	r := make([]float64, len(pairs))
	for i, p := range pairs {
		r[i] = p.Ratio()
	}
	return r
}

func (s *AB) open() (n int) {
	for _, c := range s.verdicts {
		if c.Judgement == Unsure {
			n++
		}
	}
	return n
}

// verify has both sides of a cell answer, unless they did so in an earlier session. What cannot be
// done on one side is not tried on the other; neither side of a cell whose paths differ is tried.
func (s *AB) verify(ctx context.Context, i int) error {
	a, b := s.sides[0].cell(s.Cells[i][0]), s.sides[1].cell(s.Cells[i][1])
	if note := run.OtherPath(&a.Plan, &b.Plan, [2]string{"the base", "the head"}); note != "" {
		s.verdicts[i].Judgement, s.verdicts[i].Note = Unjudged, note
		return nil
	}
	order := []int{0, 1}
	if s.sides[1].impossible(s.Cells[i][1]) != "" {
		order = []int{1, 0}
	}
	for _, side := range order {
		if err := s.sides[side].verify(ctx, s.Cells[i][side]); err != nil {
			return err
		}
		if s.settle(i); s.verdicts[i].Judgement != Unsure {
			break
		}
	}
	return nil
}

// settle takes over what the journals say went wrong with a cell.
func (s *AB) settle(i int) {
	v := &s.verdicts[i]
	for side, at := range s.Cells[i] {
		c := s.sides[side].cell(at)
		switch {
		case !c.Done() || v.Judgement != Unsure:
			continue
		case c.Skipped != "" || side == 0:
			v.Judgement = Unjudged
		default:
			v.Judgement = NoNumbers
		}
		v.Note = [2]string{"base", "head"}[side] + ": " + cmp.Or(c.Skipped, c.Failed)
	}
}

// takeOver takes a round of a cell from the journals, if they hold one that was not taken over yet.
func (s *AB) takeOver(i int) bool {
	if len(s.kept[i]) == 0 {
		return false
	}
	k := s.kept[i][0]
	s.kept[i] = s.kept[i][1:]
	s.add(i, stats.Pair{A: k.times[0], B: k.times[1]})
	s.calls[i] = k.calls
	return true
}

// add takes a round into account.
func (s *AB) add(i int, p stats.Pair) {
	s.pairs[i] = append(s.pairs[i], p)
	for side, times := range [2][2]float64{p.A, p.B} {
		l := &s.verdicts[i].Ns[side]
		if least := min(times[0], times[1]); *l == 0 || least < *l {
			*l = least
		}
	}
}

// perCall is the time that a sample is judged by.
func perCall(e Elapsed, calls int, at run.Point) float64 {
	return float64(e.judged(at.Threads)) / float64(calls)
}

// errStopped is what a round returns that was stopped between two samples.
var errStopped = errors.New("stopped")

// round takes four samples of a cell, the first of them of the given side.
func (s *AB) round(ctx context.Context, stop <-chan struct{}, i, round, first int) error {
	var pair stats.Pair
	for n, side := range [4]int{first, 1 - first, 1 - first, first} {
		if Stopped(ctx, stop) {
			return errStopped
		}
		at := s.Cells[i][side]
		got, err := s.Sides[side].Sample(ctx, at, Wish{Calls: max(s.calls[i][0], s.calls[i][1])})
		if err != nil {
			err = s.sides[side].fail(ctx, at.Name(), "timing", err)
			s.settle(i)
			return err
		}
		s.calls[i][side] = got.Calls
		of := &[2]*[2]float64{&pair.A, &pair.B}[side][n/2]
		*of = perCall(got.Elapsed, got.Calls, at)
		if err := s.sides[side].note(at, 2*s.number(i, round)-1+n/2, got); err != nil {
			return err
		}
	}
	s.add(i, pair)
	s.taken++
	return nil
}

// judge gives verdicts, as far as the data go.
func (s *AB) judge() {
	var family []int
	var p []float64
	for i := range s.verdicts {
		c := &s.verdicts[i]
		if c.Judgement == NoNumbers || c.Judgement == Unjudged || len(s.pairs[i]) == 0 {
			continue
		}
		c.Paired = stats.SummarisePairs(s.pairs[i])
		family, p = append(family, i), append(p, c.P)
	}
	level := stats.Sequence{Alpha: s.Alpha, Looks: Looks}.Level()
	for n, q := range stats.Holm(p) {
		c := &s.verdicts[family[n]]
		if c.Adjusted = q; c.Judgement == Unsure {
			c.Judgement = c.verdict(level)
		}
	}
}

func (c *ABCell) verdict(level float64) Judgement {
	apart := c.Adjusted <= level
	up, half := math.Log1p(c.Effect), math.Log1p(c.Effect)/2
	switch least, median := math.Log(c.Paired.Least), math.Log(c.Median); {
	case apart && least >= up && median >= half:
		return Worse
	case apart && least <= -up && median <= -half:
		return Better
	case math.Log(c.Lo) >= -up && math.Log(c.Hi) <= up:
		return Same
	}
	return Unsure
}
