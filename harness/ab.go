package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// An AB asks whether one side is slower than the other: two builds of this program, or two kernels of one. Its cells are taken in rounds, each in the
// order A B B A or B A A B by turns, so that what the machine does meanwhile happens to both.
//
// Cells are judged after 6, 12, 24, 48 and 96 rounds, and when the budget is spent, whichever comes first: Looks times at most, each at the level of one
// of so many (stats.Sequence), with Holm's correction over the cells. A cell that has its verdict is left alone from then on.
//
//	worse   the least time of B is more than the cell's effect above that of A, the median of the rounds' ratios more than half of it, and ranks tell them apart
//	better  the same the other way round
//	same    the interval of that median lies within the effect of 1
//
// Until one of these holds, a cell is undecided. The least of many times is what the code takes when nothing disturbs it; the ranks see to it that it was
// not a lucky one.
//
// What the journals already hold of whole rounds is not measured again: an AB that was interrupted goes on where it stopped, with the looks it has had.
type AB struct {
	Sides    [2]Worker
	Journals [2]*run.Journal // nil: nothing is written
	Seed     uint64          // of the order of measurements
	Lab      *Lab
	Cells    [][2]run.Point // what is compared: a point of each side

	Effect float64            // least relative difference that matters
	Floors map[string]float64 // no less can be told of a cell whose probe has this unit
	Alpha  float64            // chance of a false alarm, over all cells and looks
	Budget time.Duration
	Now    func() time.Time // nil: time.Now
	Tell   func(Progress)   // nil: nobody is told

	begun, timing time.Time
	taken         int // rounds in this session

	verdicts []ABCell
	pairs    [][]stats.Pair
	calls    [][2]int
}

// Looks is how often an AB judges its cells at most.
const Looks = 6

// firstLook is the round after which cells are judged for the first time; each look comes after twice as many as the one before.
const firstLook = 6

// A Judgement is what a cell comes to.
type Judgement string

// Judgements.
const (
	Worse     Judgement = "worse"
	Better    Judgement = "better"
	Same      Judgement = "same"
	Unsure    Judgement = "undecided"
	NoNumbers Judgement = "failed"
)

// An ABCell is one comparison.
type ABCell struct {
	Points [2]run.Point
	Ns     [2]float64 // the least time of one call on each side
	stats.Paired
	Adjusted  float64 // P after Holm's correction
	Effect    float64 // least difference that matters in it
	Judgement Judgement
	Note      string // why it failed
}

// Run compares. When stop is closed it ends after the sample in hand. The reason is that of a Sweep.
func (s *AB) Run(ctx context.Context, stop <-chan struct{}) (cells []ABCell, reason string, err error) {
	s.begun = s.now()
	s.verdicts, s.pairs, s.calls = make([]ABCell, len(s.Cells)), make([][]stats.Pair, len(s.Cells)), make([][2]int, len(s.Cells))
	resumed := s.resumed()
	if at, twice := s.shared(); resumed && twice {
		return nil, "", fmt.Errorf("%s is in two cells, whose rounds the journal does not tell apart: begin this comparison again", at.Name())
	}
	for i, points := range s.Cells {
		s.verdicts[i] = ABCell{Points: points, Judgement: Unsure, Effect: s.effect(points), Paired: stats.SummarisePairs(nil)}
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
			if !resumed || !s.recorded(i, round) {
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
			return s.verdicts, Precise, nil
		case spent:
			return s.verdicts, BudgetSpent, nil
		case look == Looks-1: // the last one is kept for the end of the budget
			return s.verdicts, AllSamples, nil
		}
		next, look = 2*next, look+1
	}
}

// effect is the least difference that matters and can be told in a cell. One noisy cell does not blind the others.
func (s *AB) effect(points [2]run.Point) float64 {
	return max(s.Effect, s.Floors[ProbeUnit(points[0])], s.Floors[ProbeUnit(points[1])])
}

func (s *AB) interrupted(err error) ([]ABCell, string, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errStopped) {
		return s.verdicts, Interrupted, nil
	}
	return s.verdicts, "", err
}

func (s *AB) write(side int, rec run.Record) error {
	if s.Journals[side] == nil {
		return nil
	}
	return s.Journals[side].Append(rec)
}

func (s *AB) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// tell says that cell i is next, after so many steps: a cell verified is one, and so is a round of a cell.
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

// verify has both sides of a cell answer, and plans it in their journals, unless they did so in an earlier session.
func (s *AB) verify(ctx context.Context, i int) error {
	for side, at := range s.Cells[i] {
		w, err := s.Lab.Workload(at)
		if err != nil {
			s.verdicts[i].Judgement, s.verdicts[i].Note = NoNumbers, err.Error()
			return nil
		}
		if j := s.Journals[side]; j != nil && j.Run().Cell(at) == nil {
			n, err := w.Count()
			if err != nil {
				return err
			}
			if err := j.Append(run.Record{Plan: &run.Plan{Point: at, Flop: n.Flop, Bytes: n.Bytes}}); err != nil {
				return err
			}
		}
		if j := s.Journals[side]; j != nil {
			c := j.Run().Cell(at)
			if c.Failed != "" {
				s.verdicts[i].Judgement, s.verdicts[i].Note = NoNumbers, sideName(side)+": "+c.Failed
				return nil
			}
			if right(c) {
				continue
			}
		}
		v, err := s.Sides[side].Verify(ctx, at)
		if err == nil && !(v.Worst <= 1) {
			err = fmt.Errorf("wrong answer, %.3g times the tolerance: %s", v.Worst, v.Where)
		}
		if err != nil {
			return s.fail(ctx, i, side, err)
		}
		if err := s.write(side, run.Record{Verify: &run.Verify{Point: at.Name(), Ratio: run.Ratio(v.Worst), Rows: v.Rows, Where: v.Where}}); err != nil {
			return err
		}
	}
	return nil
}

func sideName(side int) string { return [2]string{"base", "head"}[side] }

// fail records what went wrong on one side, unless it is not the cell that is to blame.
func (s *AB) fail(ctx context.Context, i, side int, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrNoChild) {
		return err
	}
	s.verdicts[i].Judgement, s.verdicts[i].Note = NoNumbers, fmt.Sprintf("%s: %v", sideName(side), err)
	return s.write(side, run.Record{Fail: &run.Fail{Point: s.Cells[i][side].Name(), Reason: err.Error()}})
}

// resumed is whether journals hold something of an earlier session.
func (s *AB) resumed() bool {
	for _, j := range s.Journals {
		if j != nil && len(j.Run().Cells) > 0 {
			return true
		}
	}
	return false
}

// shared is a point that one side has in several cells, if there is one.
func (s *AB) shared() (run.Point, bool) {
	for side := range s.Sides {
		seen := map[run.Point]bool{}
		for _, cell := range s.Cells {
			if seen[cell[side]] {
				return cell[side], true
			}
			seen[cell[side]] = true
		}
	}
	return run.Point{}, false
}

// recorded takes a round from the journals, if they have all four samples of it. Of a round that was cut off, to be taken again, a side may have some
// samples more than once: the second of it follows the first only where a round is whole.
func (s *AB) recorded(i, round int) bool {
	var times [2][2]float64
	var calls [2]int
	for side, at := range s.Cells[i] {
		j := s.Journals[side]
		if j == nil {
			return false
		}
		visits := j.Run().Cell(at).Visits
		n := len(visits) - 1
		for n >= 0 && visits[n].Round != 2*round-1 {
			n--
		}
		if n < 0 || n+1 == len(visits) || visits[n+1].Round != 2*round {
			return false
		}
		for k, v := range visits[n : n+2] {
			took := Elapsed{Wall: time.Duration(v.Wall), CPU: time.Duration(v.CPU)}
			times[side][k], calls[side] = perCall(took, v.Calls, at), v.Calls
		}
	}
	s.add(i, stats.Pair{A: times[0], B: times[1]})
	s.calls[i] = calls
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
			return s.fail(ctx, i, side, err)
		}
		s.calls[i][side] = got.Calls
		of := &[2]*[2]float64{&pair.A, &pair.B}[side][n/2]
		*of = perCall(got.Elapsed, got.Calls, at)
		if err := s.write(side, run.Record{Visit: &run.Visit{
			Point: at.Name(), Round: 2*round - 1 + n/2, Calls: got.Calls, Wall: int64(got.Elapsed.Wall), CPU: int64(got.Elapsed.CPU),
			Before: got.Before, After: got.After, Unit: ProbeUnit(at), Dropped: !got.Steady(), Slots: got.Slots, Counts: got.Counts,
			Attention: int64(got.Elapsed.Attention), Products: int64(got.Elapsed.Products),
		}}); err != nil {
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
		if c.Judgement == NoNumbers || len(s.pairs[i]) == 0 {
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
