// Package gate decides whether a run may pass: whether anything in it is slower, takes more memory
// or answers worse than in a baseline.
//
// # Speed
//
// The two runs were made at different times, so their times are not compared. Each sample was taken
// between two probes of what the machine could do at that moment, and what a cell is judged by is
// its samples' shares of those probes: of the peak where a point is held against arithmetic, of the
// bandwidth where it is held against memory. Samples whose two probes disagree, which peak_frac
// leaves out, count here: ranks and medians bear them, and on a busy Xeon, where they were 69 of
// 100, medians of all twelve samples of a cell differed less from run to run (a tenth of them by
// more than 6.6 %) than medians of the rest (9.7 %).
//
// A cell is slower when its median fell by the least effect, what it reached when little disturbed
// it by half of that, and the rank test tells the samples apart after Holm's correction over all
// cells that are judged; it needs all three. What it reached when little disturbed it is taken in
// two ways, of which the kinder one counts: the greatest share, and the greatest rate over the
// greatest of the probes.
//
// Greatest values and half the effect are from runs of unchanged code on an EPYC where something
// outside the machine takes, for tenths of a second at a time, a quarter of the speed of short
// calls and little of the probes'. In some runs it left fewer than a tenth of the samples alone.
// Upper deciles and the whole effect called 4 cells of 480 regressed there, of 20 samples each, and
// 0 of 480 of 40 samples; these 2 and 0. With a tenth less speed written into one cell they named
// it in 302 and 423 of 480 trials, these in 364 and 455.
//
// A cell is undecided
//
//   - when its median fell by the least effect and it lacks one of the others: among so many cells chance does that, and neighbours do;
//   - when the samples are so few that no data could have shown a change after the correction, or so scattered that either sample, slowed by the least
//     effect, could not be told from itself at the level of one test;
//   - when it has no probes, and its time is longer by the least effect. Time is a hint: the machine may have changed.
//
// The least effect of a cell is the one asked for, or what makes the floor that benchrun doctor
// found on the machine of either run, if that is more and run.json knows it: times of the same code
// lay that far apart.
//
// # What is exact
//
// Scratch memory, bytes and objects allocated by a call are counted, not sampled: any increase is a
// regression. Peak memory is a sample of one, and is not judged. A point that fails or answers
// wrongly in the run and did not in the baseline is a regression. One that has no number, or is not
// there, is undecided; one that only the run has is named. A point whose kernel names another path
// than in the baseline (attn.Tuned) is two cells: one that is not in the run, and one that is not
// in the baseline.
//
// # Baselines
//
// A baseline is a run folder, whole: one that was interrupted, cut or damaged is refused, and so is
// one from another machine. Of a folder the gate needs journal.jsonl and run.json; Run.Copy makes
// such a one. Those that are committed stand in
//
//	reports/history/MACHINE/COMMIT/
//
// where MACHINE is a name for what the runs were made on and COMMIT for the sources; package
// history reads the same folders.
package gate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// Options say what counts as a regression. Start from DefaultOptions.
type Options struct {
	Alpha      float64 // chance of a false alarm over all cells
	Effect     float64 // least relative loss of speed that matters
	AnyMachine bool    // compare although the machines differ
}

// DefaultOptions allow for what a share still keeps of its run: where memory happened to lie, how
// warm the machine was.
var DefaultOptions = Options{Alpha: 0.05, Effect: 0.05}

// A Verdict is on one cell, or on all.
type Verdict string

// Verdicts.
const (
	Passed    Verdict = "passed"
	Regressed Verdict = "regressed"
	Undecided Verdict = "undecided"
	Unjudged  Verdict = "not judged" // of a cell: there is nothing to compare
)

// What a cell's speed is judged by. More is better in each.
const (
	ByPeak      = "share of the peak"
	ByBandwidth = "share of the bandwidth"
	ByTime      = "calls a second"
)

// A Report is the outcome.
type Report struct {
	Baseline, Run Side
	Options       Options
	Verdict       Verdict
	Cells         []*Cell // in the order of the run, then those that it lacks
	Warnings      []string
}

// A Side names one of the two runs.
type Side struct {
	Dir     string
	Commit  run.Commit
	Started time.Time
}

// A Cell is one point in both runs.
type Cell struct {
	Name     string
	Verdict  Verdict
	Findings []Finding // what is worse, in doubt, better, or worth knowing
	Effect   float64   // least loss of speed that matters in it
	By       string    // what speed is judged by; empty where there is none to compare
	Base     stats.Summary
	Run      stats.Summary
	Change   float64 // of the medians, relative: below 0 is slower
	Top      float64 // change of what was reached when little disturbed
	P        float64 // of the rank test, after Holm's correction
	Exact    []Exact

	base, run []run.Sample
}

// A Finding is one thing said of a cell, and what it makes of the cell: Regressed, Undecided, or
// Passed for what is only worth knowing.
type Finding struct {
	Verdict Verdict
	Text    string
}

// An Exact is a counted figure of a cell; NaN is not measured.
type Exact struct {
	Unit      string
	Base, Run float64
}

// Compare holds r against the baseline. An error says why the two cannot be compared.
func Compare(base, r *run.Run, o Options) (*Report, error) {
	if !(o.Alpha > 0 && o.Alpha < 1) || !(o.Effect > 0 && o.Effect < 1) {
		return nil, fmt.Errorf("alpha is %v and the least effect %v, want both between 0 and 1", o.Alpha, o.Effect)
	}
	if !base.Complete() {
		return nil, fmt.Errorf("%s: the baseline was cut off: its journal does not end with the end of a complete run", base.Dir)
	}
	rep := &Report{
		Baseline: Side{base.Dir, base.Meta.Commit, base.Meta.Started}, Run: Side{r.Dir, r.Meta.Commit, r.Meta.Started}, Options: o,
		Warnings: slices.Concat(base.Warnings, r.Warnings),
	}
	if d := base.Meta.Machine.Differences(r.Meta.Machine); len(d) > 0 {
		text := "not the baseline's machine: " + strings.Join(d, "; ")
		if !o.AnyMachine {
			return nil, fmt.Errorf("%s: %s", r.Dir, text)
		}
		rep.Warnings = append(rep.Warnings, text)
	}
	if d := run.EnvDifferences(base.Meta.Env, r.Meta.Env); len(d) > 0 {
		rep.Warnings = append(rep.Warnings, "not the baseline's environment: "+strings.Join(d, "; "))
	}
	common := false
	var missing []*Cell
	for _, c := range r.Cells {
		b := base.Cell(c.Point)
		common = common || b != nil
		if note := otherPath(b, c); note != "" {
			missing = append(missing, newCell(b, nil, note))
			rep.Cells = append(rep.Cells, newCell(nil, c, note))
			continue
		}
		rep.Cells = append(rep.Cells, newCell(b, c, ""))
	}
	if len(r.Cells) == 0 && !r.Complete() {
		return nil, fmt.Errorf("%s: the run was ended before it had a point: resume it, then hold it against the baseline", r.Dir)
	}
	if !common {
		return nil, fmt.Errorf("%s and %s have no point in common", base.Dir, r.Dir)
	}
	for _, b := range base.Cells {
		if r.Cell(b.Point) == nil {
			missing = append(missing, newCell(b, nil, ""))
		}
	}
	rep.Cells = append(rep.Cells, missing...)
	rep.raise(base.Meta.Floors, r.Meta.Floors)
	rep.judge()
	rep.conclude()
	if !r.Complete() {
		rep.Warnings = append(rep.Warnings, "the run is not complete")
		if rep.Verdict == Passed {
			rep.Verdict = Undecided
		}
	}
	return rep, nil
}

// otherPath returns a note if a kernel took another path in the run than in the baseline, whose
// cell may be nil, and "" otherwise.
func otherPath(b, r *run.Cell) string {
	if b == nil {
		return ""
	}
	return run.OtherPath(&b.Plan, &r.Plan, [2]string{"the baseline", "the run"})
}

// newCell sets two cells of the journals side by side, of which one may be nil, and finds what
// needs no statistics. The note says why one is nil although both journals have the point.
func newCell(b, r *run.Cell, note string) *Cell {
	if note != "" {
		note = ": " + note
	}
	nan := math.NaN()
	none := stats.Summarise(nil)
	c := &Cell{Change: nan, Top: nan, P: nan, Base: none, Run: none}
	if r == nil {
		c.Name = b.Point.Name()
		c.find(Undecided, "not in the run%s", note)
		return c
	}
	c.Name = r.Point.Name()
	now, was := r.Row(), run.Row{Status: "new"}
	if b != nil {
		was = b.Row()
	}
	switch {
	case now.Status == run.Failed && was.Status == run.Failed:
		c.find(Unjudged, "failed, as in the baseline: %s", now.Note)
	case now.Status == run.Failed:
		c.find(Regressed, "failed: %s", now.Note)
	case b == nil:
		c.find(Unjudged, "not in the baseline%s", note)
	case now.Status == run.Skipped && was.Status == run.OK:
		c.find(Undecided, "skipped: %s", now.Note)
	case now.Status == run.Skipped && was.Status == run.Skipped:
		c.raise(Unjudged)
	case was.Status != run.OK:
		c.find(Unjudged, "%s; in the baseline %s: %s", now.Status, was.Status, was.Note)
	default:
		c.weigh("B of scratch", was.Scratch, now.Scratch)
		c.weigh("B/op", was.Alloc, now.Alloc)
		c.weigh("allocs/op", was.Allocs, now.Allocs)
		c.sample(b, r)
	}
	return c
}

// raise has no cell judged by less than the larger of two floors. A floor is of times: what takes
// 1+f as long has lost f/(1+f) of its speed.
func (r *Report) raise(base, now map[string]float64) {
	loss := func(unit string) float64 { f := max(base[unit], now[unit]); return f / (1 + f) }
	of := map[string]float64{ByPeak: loss(run.ProbeFlop), ByBandwidth: loss(run.ProbeBytes)}
	of[ByTime] = max(of[ByPeak], of[ByBandwidth])
	warned := map[string]bool{}
	for _, c := range r.Cells {
		least := of[c.By]
		if least <= r.Options.Effect {
			continue
		}
		c.Effect = least
		if !warned[c.By] {
			warned[c.By] = true
			r.Warnings = append(r.Warnings, fmt.Sprintf("the least effect on the %s is raised to %.3g %%, the floor that benchrun doctor found", c.By, 100*least))
		}
	}
}

// verdicts in the order in which one outweighs another.
var verdicts = []Verdict{Unjudged, Passed, Undecided, Regressed}

// find adds a finding. The worst of a cell is its verdict.
func (c *Cell) find(v Verdict, format string, a ...any) {
	c.Findings = append(c.Findings, Finding{v, fmt.Sprintf(format, a...)})
	c.raise(v)
}

func (c *Cell) raise(v Verdict) {
	if slices.Index(verdicts, v) > slices.Index(verdicts, c.Verdict) {
		c.Verdict = v
	}
}

// weigh compares a counted figure.
func (c *Cell) weigh(unit string, was, now float64) {
	c.Exact = append(c.Exact, Exact{unit, was, now})
	switch {
	case now > was:
		c.find(Regressed, "%.0f %s, was %.0f", now, unit, was)
	case now < was:
		c.find(Passed, "%.0f %s, was %.0f", now, unit, was)
	case run.Known(was) && !run.Known(now):
		c.find(Undecided, "%s not measured, was %.0f", unit, was)
	}
}

// sample chooses what the speeds of two cells are compared by. The work of a point is what the
// baseline counts: to count it otherwise is not to be faster.
func (c *Cell) sample(b, r *run.Cell) {
	now := *r
	now.Flop, now.Bytes = b.Flop, b.Bytes
	for _, kind := range []struct{ unit, by string }{{run.ProbeFlop, ByPeak}, {run.ProbeBytes, ByBandwidth}} {
		c.base, c.run = b.Samples(kind.unit), now.Samples(kind.unit)
		if len(c.base) > 0 && len(c.run) > 0 {
			c.By = kind.by
			break
		}
	}
	if c.By == "" {
		c.By, c.base, c.run = ByTime, rates(b), rates(r)
	}
	c.summarise()
}

func (c *Cell) summarise() {
	base, now := shares(c.base), shares(c.run)
	c.Base, c.Run = stats.Summarise(base), stats.Summarise(now)
	c.Change = stats.Delta(c.Base.Median, c.Run.Median)
	c.Top = max(stats.Delta(slices.Max(base), slices.Max(now)), stats.Delta(best(c.base), best(c.run)))
}

func shares(samples []run.Sample) []float64 {
	xs := make([]float64, len(samples))
	for i, s := range samples {
		xs[i] = s.Share()
	}
	return xs
}

// best is the greatest rate over the greatest of the probes.
func best(samples []run.Sample) float64 {
	var rates, probes []float64
	for _, s := range samples {
		rates, probes = append(rates, s.Rate), append(probes, s.Probe)
	}
	return slices.Max(rates) / slices.Max(probes)
}

// rates are the calls a second of a cell's samples.
func rates(c *run.Cell) []run.Sample {
	var samples []run.Sample
	for i := range c.Visits {
		samples = append(samples, run.Sample{Rate: 1e9 / c.Visits[i].Nanoseconds(), Probe: 1})
	}
	return samples
}

// judge compares the speeds.
func (r *Report) judge() {
	var family []*Cell
	var p []float64
	for _, c := range r.Cells {
		if c.By != "" {
			family, p = append(family, c), append(p, stats.RankTest(shares(c.base), shares(c.run)))
		}
	}
	alpha := r.Options.Alpha
	for i, adjusted := range stats.Holm(p) {
		c := family[i]
		c.P, c.Effect = adjusted, max(c.Effect, r.Options.Effect)
		least := stats.LeastP(c.Base.N, c.Run.N) * float64(len(family))
		told := adjusted <= alpha
		switch slower := c.Change <= -c.Effect; {
		case slower && c.By == ByTime:
			c.find(Undecided, "%s; by its time alone, since nothing says how fast the machine was", c.change())
		case slower && told && c.Top > -c.Effect/2:
			c.find(Undecided, "%s; but what it reached undisturbed by %.1f %% only", c.change(), 100*max(0, -c.Top))
		case slower && told:
			c.find(Regressed, "%s (p = %.1g)", c.change(), adjusted)
		case least > alpha:
			c.find(Undecided, "%d and %d samples cannot show a change among %d cells", c.Base.N, c.Run.N, len(family))
		case slower:
			c.find(Undecided, "%s; chance does that among %d cells (p = %.1g)", c.change(), len(family), adjusted)
		case blind(c.base, c.Effect, alpha) || blind(c.run, c.Effect, alpha):
			c.find(Undecided, "its samples scatter too much to show a change of %.3g %%", 100*c.Effect)
		case c.Change >= c.Effect && told:
			c.find(Passed, "%s", c.change())
		default:
			c.raise(Passed)
		}
	}
}

// blind reports whether a sample is such that a change of the least effect would not show in it.
func blind(samples []run.Sample, effect, alpha float64) bool {
	xs, slowed := shares(samples), shares(samples)
	for i := range slowed {
		slowed[i] *= 1 - effect
	}
	return stats.RankTest(xs, slowed) > alpha
}

// conclude makes one verdict of those on the cells.
func (r *Report) conclude() {
	r.Verdict = Passed
	for _, v := range []Verdict{Undecided, Regressed} {
		if r.Count(v) > 0 {
			r.Verdict = v
		}
	}
}

// Count is the number of cells with a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, c := range r.Cells {
		if c.Verdict == v {
			n++
		}
	}
	return n
}
