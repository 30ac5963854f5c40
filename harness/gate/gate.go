// Package gate decides whether a run may pass: whether any of it is slower, takes more memory or
// answers worse than in a baseline.
//
// # Speed
//
// The two runs were made at different times, so their times are not compared. A cell is judged by
// its samples' shares of what the machine could do just before and after each of them. They are
// shares of the bandwidth for decoding, and of the peak otherwise. Samples whose two probes
// disagree count, although peak_frac leaves them out: ranks and medians bear them, and a cell has
// more samples with them.
// Tuning: docs/tuning.md#gate-all-samples
//
// A cell is slower if three conditions hold:
//
//   - its median fell by the least effect;
//   - its undisturbed speed fell by half of the least effect;
//   - the rank test tells the samples apart, after Holm's correction over all cells judged.
//
// The undisturbed speed is the greatest share, or the greatest rate over the greatest probe if that
// fell less. A disturbance may slow all but a few samples of a run, and then their upper decile,
// too.
// Tuning: docs/tuning.md#gate-undisturbed
//
// A cell is undecided if one of these holds:
//
//   - its median fell by the least effect, but it lacks another condition. Among many cells chance
//     does that, and so do neighbours;
//   - it has so few samples that no data could show a change after the correction;
//   - its samples scatter so much that either sample could not be told from itself, slowed by the
//     least effect, at the level of one test;
//   - it has no probes, and its time is longer by the least effect. The machine may have changed.
//
// The least effect of a cell is the one asked for. It is raised to the floor that benchrun doctor
// found on the machine of either run, if run.json has one that is greater, since times of the same
// code are that far apart.
//
// # What is exact
//
// Scratch memory, and the bytes and objects that a call allocates, are counted: any increase is a
// regression. Peak memory is measured once and not judged. A point that fails or is wrong in the
// run, and not in the baseline, is a regression. A point without a number, or missing from the run,
// is undecided. A point that only the run has is named. A point whose kernel names another path
// than in the baseline (attn.Tuned) is two cells: one missing from the run, and one missing from
// the baseline.
//
// # Baselines
//
// A baseline is a whole run: one that was interrupted, cut or damaged is refused, and so is one
// from another machine. The gate compares samples, so it needs journal.jsonl and run.json; Run.Copy
// makes such a folder. Baselines that are committed are in
//
//	reports/history/MACHINE/COMMIT/
//
// or in COMMIT/RUN/ where a commit has several runs. MACHINE is a name for the machine. Package
// history reads the same folders, and other runs there, of which only the figures are kept.
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

// DefaultOptions allow for differences between runs that shares do not remove, such as the
// addresses of memory and the temperature of the machine.
var DefaultOptions = Options{Alpha: 0.05, Effect: 0.05}

// A Verdict is the result for one cell or for all.
type Verdict string

// Verdicts.
const (
	Passed    Verdict = "passed"
	Regressed Verdict = "regressed"
	Undecided Verdict = "undecided"
	Unjudged  Verdict = "not judged" // of a cell with nothing to compare
)

// What a cell's speed is judged by. More is better in each.
const (
	ByPeak      = "share of the peak"
	ByBandwidth = "share of the bandwidth"
	ByTime      = "calls a second"
)

// A Report is the result of a comparison.
type Report struct {
	Baseline, Run Side
	Options       Options
	Verdict       Verdict
	Cells         []*Cell // in the order of the run, then the cells missing from it
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
	Top      float64 // relative change of the undisturbed speed
	P        float64 // of the rank test, after Holm's correction
	Exact    []Exact

	base, run []run.Sample
}

// A Finding is a statement about a cell and the verdict that it leads to: Regressed, Undecided, or
// Passed if it is only worth knowing.
type Finding struct {
	Verdict Verdict
	Text    string
}

// An Exact is a counted figure of a cell; NaN is not measured.
type Exact struct {
	Unit      string
	Base, Run float64
}

// Compare compares r with the baseline. An error says why the two cannot be compared.
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

// newCell compares two cells of the journals, of which one may be nil, as far as that needs no
// statistics. The note says why one is nil although both journals have the point.
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
		c.count("B of scratch", was.Scratch, now.Scratch)
		c.count("B/op", was.Alloc, now.Alloc)
		c.count("allocs/op", was.Allocs, now.Allocs)
		c.sample(b, r)
	}
	return c
}

// raise raises the least effect of each cell to the larger of two floors. A floor f is of times,
// and a time that is longer by f is a loss of f/(1+f) of the speed.
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

// verdicts are in ascending order: the greatest of a cell's findings is its verdict.
var verdicts = []Verdict{Unjudged, Passed, Undecided, Regressed}

// find adds a finding to a cell.
func (c *Cell) find(v Verdict, format string, a ...any) {
	c.Findings = append(c.Findings, Finding{v, fmt.Sprintf(format, a...)})
	c.raise(v)
}

func (c *Cell) raise(v Verdict) {
	if slices.Index(verdicts, v) > slices.Index(verdicts, c.Verdict) {
		c.Verdict = v
	}
}

// count compares a counted figure.
func (c *Cell) count(unit string, was, now float64) {
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

// sample chooses the samples by which the speeds of two cells are compared. Both use the baseline's
// count of work, so that another count is no change of speed.
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

// best returns the greatest rate over the greatest of the probes.
func best(samples []run.Sample) float64 {
	var rates, probes []float64
	for _, s := range samples {
		rates, probes = append(rates, s.Rate), append(probes, s.Probe)
	}
	return slices.Max(rates) / slices.Max(probes)
}

// rates returns the samples of a cell as calls a second.
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
		apart := adjusted <= alpha
		switch slower := c.Change <= -c.Effect; {
		case slower && c.By == ByTime:
			c.find(Undecided, "%s; by its time alone, since nothing says how fast the machine was", c.change())
		case slower && apart && c.Top > -c.Effect/2:
			c.find(Undecided, "%s; but what it reached undisturbed by %.1f %% only", c.change(), 100*max(0, -c.Top))
		case slower && apart:
			c.find(Regressed, "%s (p = %.1g)", c.change(), adjusted)
		case least > alpha:
			c.find(Undecided, "%d and %d samples cannot show a change among %d cells", c.Base.N, c.Run.N, len(family))
		case slower:
			c.find(Undecided, "%s; chance does that among %d cells (p = %.1g)", c.change(), len(family), adjusted)
		case blind(c.base, c.Effect, alpha) || blind(c.run, c.Effect, alpha):
			c.find(Undecided, "its samples scatter too much to show a change of %.3g %%", 100*c.Effect)
		case c.Change >= c.Effect && apart:
			c.find(Passed, "%s", c.change())
		default:
			c.raise(Passed)
		}
	}
}

// blind reports whether a change of the least effect would not show in a sample.
func blind(samples []run.Sample, effect, alpha float64) bool {
	xs, slowed := shares(samples), shares(samples)
	for i := range slowed {
		slowed[i] *= 1 - effect
	}
	return stats.RankTest(xs, slowed) > alpha
}

// conclude derives the verdict on all cells from the verdict on each.
func (r *Report) conclude() {
	r.Verdict = Passed
	for _, v := range []Verdict{Undecided, Regressed} {
		if r.Count(v) > 0 {
			r.Verdict = v
		}
	}
}

// Count returns the number of cells with a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, c := range r.Cells {
		if c.Verdict == v {
			n++
		}
	}
	return n
}
