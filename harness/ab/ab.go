// Package ab decides whether one side of a comparison is slower than the other: two builds of a
// program, or two kernels of one.
//
// Its cells are taken in rounds. A round takes four samples of a cell in the order A B B A or B A A
// B, so that what the machine does meanwhile happens to both sides. Cells are judged after 6, 12,
// 24, 48 and 96 rounds and when the budget is spent, whichever comes first. That is at most Looks
// times, so each look has the level Alpha/Looks (stats.Sequence), with Holm's correction over the
// cells. A cell that has its verdict takes no more rounds.
//
// The verdict of a cell is
//
//	worse   if the least time of B is above that of A by the cell's effect or more,
//	        the median of the rounds' ratios is above 1 by half the effect or more,
//	        and a rank test tells the times apart
//	better  if the same holds with the sides exchanged
//	same    if the interval of that median is within the effect of 1
//
// and undecided otherwise. The least of many times is what the code takes when nothing disturbs it;
// the ranks and the median make sure that it was not luck.
//
// Rounds that the journals already hold are not taken again, so a comparison that was interrupted
// goes on where it stopped, with the looks that it has had.
package ab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A Comparison compares the cells of two sides.
type Comparison struct {
	Sides [2]*harness.Recorder // base and head
	Cells [][2]run.Point       // a point of each side
	Seed  uint64               // of the order of measurements

	Effect float64            // least relative difference that matters
	Floors map[string]float64 // least effects by the unit of a cell's probe (harness.ProbeUnit)
	Alpha  float64            // chance of a false alarm, over all cells and looks
	Budget time.Duration      // 0 is no limit

	Tell func(harness.Progress) // called between measurements; may be nil

	begun, timing time.Time // of this session, and of its first round
	taken         int       // rounds in this session

	// By cell: its verdict, the times of its rounds, and the calls of its last samples.
	verdicts []Cell
	pairs    [][]stats.Pair
	calls    [][2]int

	kept [][]keptRound // by cell: whole rounds of earlier sessions that are not used yet
	numbers
}

// Decided is the reason why a comparison ends when no cell is undecided.
const Decided = "no cell is left to decide"

// Looks is the greatest number of times that a cell is judged.
const Looks = 6

// firstLook is the round after which cells are judged first. Each later look comes after twice as
// many rounds as the one before.
const firstLook = 6

// A Verdict is what a cell comes to.
type Verdict string

// Verdicts.
const (
	Worse     Verdict = "worse"
	Better    Verdict = "better"
	Same      Verdict = "same"
	Undecided Verdict = "undecided"
	Failed    Verdict = "failed"     // side B gave no numbers
	Unjudged  Verdict = "not judged" // side A failed, a side was skipped, or the paths differ
)

// A Cell is the result of one comparison.
type Cell struct {
	Points [2]run.Point
	Ns     [2]float64 // least time of one call on each side
	stats.Paired
	Adjusted float64 // P after Holm's correction
	Effect   float64 // least difference that matters in this cell
	Verdict  Verdict
	Note     string // why it failed or is not judged
}

// Run compares. When stop is closed it finishes the present sample and returns. The reason is
// Decided, or AllSamples, BudgetSpent or Interrupted of package harness.
func (s *Comparison) Run(ctx context.Context, stop <-chan struct{}) (cells []Cell, reason string, err error) {
	if err := s.begin(ctx, stop); err != nil {
		return s.interrupted(err)
	}
	for i := range s.Cells {
		if harness.Stopped(ctx, stop) {
			return s.verdicts, harness.Interrupted, nil
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
			if s.verdicts[i].Verdict != Undecided {
				continue
			}
			first := rng.IntN(2)
			if !s.takeKept(i) {
				s.tell(fmt.Sprintf("round %d", round), i, len(s.Cells)+s.rounds())
				if err := s.round(ctx, stop, i, round, first); err != nil {
					return s.interrupted(err)
				}
			}
			if s.verdicts[i].Verdict == Undecided {
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
			return s.verdicts, harness.BudgetSpent, nil
		case look == Looks-1: // the last look is for the end of the budget
			return s.verdicts, harness.AllSamples, nil
		}
		next, look = 2*next, look+1
	}
}

// Rounds takes up to n rounds of the first cell, whose sides should be the same, and returns their
// times without verifying or judging them. When stop is closed it returns the rounds
// so far. A sample that fails is an error.
func (s *Comparison) Rounds(ctx context.Context, stop <-chan struct{}, n int) ([]stats.Pair, error) {
	if err := s.begin(ctx, stop); errors.Is(err, context.Canceled) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	s.timing = s.now()
	for round := 1; round <= n && !harness.Stopped(ctx, stop); round++ {
		if s.Tell != nil {
			_, left := harness.Forecast(n-s.taken, s.taken, s.now().Sub(s.timing), -1)
			s.Tell(harness.Progress{Phase: "rounds", Done: s.taken, Total: n, Point: s.Cells[0][0], Width: math.Inf(1), Left: left})
		}
		if err := s.round(ctx, stop, 0, round, round%2); errors.Is(err, errStopped) {
			break
		} else if err != nil {
			return nil, err
		}
		if c := s.verdicts[0]; c.Verdict != Undecided {
			return nil, fmt.Errorf("no numbers of %s: %s", c.Points[0].Name(), c.Note)
		}
	}
	return s.pairs[0], nil
}

// effect returns the least difference that matters in a cell and can be told apart there. A floor
// holds for the cells of its unit only.
func (s *Comparison) effect(points [2]run.Point) float64 {
	return max(s.Effect, s.Floors[harness.ProbeUnit(points[0])], s.Floors[harness.ProbeUnit(points[1])])
}

func (s *Comparison) interrupted(err error) ([]Cell, string, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errStopped) {
		return s.verdicts, harness.Interrupted, nil
	}
	return s.verdicts, "", err
}

// begin plans the points of both sides and finds the rounds that the journals hold.
func (s *Comparison) begin(ctx context.Context, stop <-chan struct{}) error {
	s.taken = 0
	s.verdicts, s.pairs, s.calls = make([]Cell, len(s.Cells)), make([][]stats.Pair, len(s.Cells)), make([][2]int, len(s.Cells))
	for i, points := range s.Cells {
		s.verdicts[i] = Cell{Points: points, Verdict: Undecided, Effect: s.effect(points), Paired: stats.SummarisePairs(nil)}
	}
	for side, r := range s.Sides {
		var points []run.Point
		for _, cell := range s.Cells {
			points = append(points, cell[side])
		}
		if err := r.Plan(ctx, stop, points, nil); err != nil {
			return err
		}
	}
	s.numbers = numberRounds(s.Cells)
	s.findKept()
	s.begun = s.now()
	return nil
}

func (s *Comparison) now() time.Time { return s.Sides[0].Time() }

// tell reports that cell i is next, after done steps: a verification of a cell is one, and so is a
// round of a cell.
func (s *Comparison) tell(phase string, i, done int) {
	if s.Tell == nil {
		return
	}
	now, budget := s.now(), time.Duration(-1)
	if s.Budget > 0 {
		budget = max(0, s.Budget-now.Sub(s.begun))
	}
	needed := 0
	for n, c := range s.verdicts {
		if c.Verdict == Undecided {
			needed += max(0, roundsNeeded(ratios(s.pairs[n]), c.Effect)-len(s.pairs[n]))
		}
	}
	steps, left := harness.Forecast(needed, s.taken, now.Sub(s.timing), budget)
	s.Tell(harness.Progress{
		Phase: phase, Done: done, Total: max(len(s.Cells)+s.rounds()+steps, done), Point: s.Cells[i][1],
		Width: stats.Summarise(ratios(s.pairs[i])).Width(), Left: left,
	})
}

// rounds returns the number of rounds of all cells.
func (s *Comparison) rounds() (n int) {
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

// open returns the number of undecided cells.
func (s *Comparison) open() (n int) {
	for _, c := range s.verdicts {
		if c.Verdict == Undecided {
			n++
		}
	}
	return n
}

// verify verifies both points of a cell. What cannot be done on one side is not tried on the other,
// and neither point of a cell whose paths differ is tried.
func (s *Comparison) verify(ctx context.Context, i int) error {
	a, b := s.Sides[0].Cell(s.Cells[i][0]), s.Sides[1].Cell(s.Cells[i][1])
	if note := run.OtherPath(&a.Plan, &b.Plan, [2]string{"the base", "the head"}); note != "" {
		s.verdicts[i].Verdict, s.verdicts[i].Note = Unjudged, note
		return nil
	}
	order := []int{0, 1}
	if s.Sides[1].Skip(s.Cells[i][1]) != "" {
		order = []int{1, 0}
	}
	for _, side := range order {
		if err := s.Sides[side].Verify(ctx, s.Cells[i][side]); err != nil {
			return err
		}
		if s.settle(i); s.verdicts[i].Verdict != Undecided {
			break
		}
	}
	return nil
}

// settle gives a cell the verdict of a point that failed or was skipped.
func (s *Comparison) settle(i int) {
	v := &s.verdicts[i]
	for side, at := range s.Cells[i] {
		c := s.Sides[side].Cell(at)
		switch {
		case !c.Done() || v.Verdict != Undecided:
			continue
		case c.Skipped != "" || side == 0:
			v.Verdict = Unjudged
		default:
			v.Verdict = Failed
		}
		v.Note = [2]string{"base", "head"}[side] + ": " + cmp.Or(c.Skipped, c.Failed)
	}
}

// add adds the times of a round to a cell.
func (s *Comparison) add(i int, p stats.Pair) {
	s.pairs[i] = append(s.pairs[i], p)
	for side, times := range [2][2]float64{p.A, p.B} {
		l := &s.verdicts[i].Ns[side]
		if least := min(times[0], times[1]); *l == 0 || least < *l {
			*l = least
		}
	}
}

// errStopped is the error of a round that was stopped between two samples.
var errStopped = errors.New("stopped")

// round takes four samples of a cell, beginning with the first side.
func (s *Comparison) round(ctx context.Context, stop <-chan struct{}, i, round, first int) error {
	var pair stats.Pair
	for n, side := range [4]int{first, 1 - first, 1 - first, first} {
		if harness.Stopped(ctx, stop) {
			return errStopped
		}
		at := s.Cells[i][side]
		o := harness.SampleOptions{Calls: max(s.calls[i][0], s.calls[i][1])}
		got, ok, err := s.Sides[side].Sample(ctx, at, s.visit(i, round, n/2), o)
		if err != nil {
			return err
		}
		if !ok {
			s.settle(i)
			return nil
		}
		s.calls[i][side] = got.Calls
		of := &[2]*[2]float64{&pair.A, &pair.B}[side][n/2]
		*of = got.PerCall(at.Threads)
	}
	s.add(i, pair)
	s.taken++
	return nil
}

// judge gives verdicts, as far as the times allow.
func (s *Comparison) judge() {
	var family []int
	var p []float64
	for i := range s.verdicts {
		c := &s.verdicts[i]
		if c.Verdict == Failed || c.Verdict == Unjudged || len(s.pairs[i]) == 0 {
			continue
		}
		c.Paired = stats.SummarisePairs(s.pairs[i])
		family, p = append(family, i), append(p, c.P)
	}
	level := s.Level()
	for n, q := range stats.Holm(p) {
		c := &s.verdicts[family[n]]
		if c.Adjusted = q; c.Verdict == Undecided {
			c.Verdict = c.Judge(level)
		}
	}
}

// Level returns the level of each look.
func (s *Comparison) Level() float64 { return stats.Sequence{Alpha: s.Alpha, Looks: Looks}.Level() }

// Judge returns the verdict that the figures of a cell give at a level.
func (c *Cell) Judge(level float64) Verdict {
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
	return Undecided
}

// lookAfter returns the look at or after a number of rounds, as the round it comes after.
func lookAfter(rounds int) int {
	next := firstLook
	for look := 1; look < Looks-1 && next < rounds; look++ {
		next *= 2
	}
	return next
}

// roundsNeeded estimates how many rounds a cell takes to its verdict, from the ratios of its rounds
// so far: as many as narrow its interval to within the effect. If the median is outside the effect,
// the next look may be the last.
func roundsNeeded(ratios []float64, effect float64) int {
	s := stats.Summarise(ratios)
	room := effect - math.Abs(s.Median-1)
	if !(room > 0) {
		return lookAfter(len(ratios) + 1)
	}
	return lookAfter(harness.Needed(len(ratios), s.Width()*s.Median, room, firstLook))
}
