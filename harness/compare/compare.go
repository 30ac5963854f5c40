// Package compare decides whether one run is slower than another. The numbers are benchstat's. The
// verdicts are not: they know which direction of each unit is better.
//
// A cell is worse if the rank test tells its two samples apart at level Alpha and its median moved
// the wrong way by at least Effect. Some of many cells differ by chance. So the runs as a whole
// have regressed only if a cell is worse after Holm's correction over all cells of its unit, or if
// an exact cell is worse, or if a cell failed. The comparison is undecided if a worse cell does not
// survive the correction, if a cell has too few samples to show anything, or if one is missing.
//
// A benchmark whose kernel names another path in the second run (attn.Tuned) is two cells, one gone
// and one new.
package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchproc"
	"gonum.org/v1/gonum/stat"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// Options say what counts as a difference. Start from DefaultOptions.
type Options struct {
	Alpha  float64 // level of the rank test
	Effect float64 // least relative change of the median that matters
	Filter string  // benchstat's filter language; empty is everything
}

// DefaultOptions are benchstat's level, and the smallest change that two runs at different times
// can show.
var DefaultOptions = Options{Alpha: 0.05, Effect: 0.02}

// A Verdict is the result for one cell or for all.
type Verdict string

// Verdicts on a cell.
const (
	Better   Verdict = "better"
	Worse    Verdict = "worse"
	Same     Verdict = "same"
	TooFew   Verdict = "not enough samples" // to show a difference of any size
	Unjudged Verdict = "not judged"         // measured once a run, as peak memory is
	Differs  Verdict = "differs"            // in a unit without a better direction
	Gone     Verdict = "gone"               // not in the second run
	New      Verdict = "new"                // not in the first run
	Broken   Verdict = "failed"             // in the second run, and not in the first
)

// Verdicts on all cells.
const (
	Regressed Verdict = "regressed" // at least one cell is worse
	Passed    Verdict = "nothing regressed"
	Undecided Verdict = "undecided"
)

// A Report is the result of a comparison.
type Report struct {
	A, B     string
	Options  Options
	Verdict  Verdict
	Reasons  []string // for the verdict
	Tables   []*Table
	Warnings []string
}

// A Table holds the cells of one unit, and of one package where the files name several.
type Table struct {
	Package, Unit string
	Directed      bool // the unit has a better direction
	Higher        bool // the better direction is up
	Exact         bool // the unit is counted, not sampled, so any difference is one
	Cells         []*Cell
	Geomean       float64 // of the ratios B/A; NaN where there is none
}

// A Cell compares one benchmark in one unit. A or B has N 0 where the benchmark is not in that run.
type Cell struct {
	Name       string
	A, B       Side
	Delta      float64 // of the medians; NaN without two sides
	Comparison benchmath.Comparison
	Adjusted   float64 // probability after Holm's correction
	Verdict    Verdict
	Note       string // why it failed, or that its kernel took another path on the other side
}

// A Side is the sample of one run. Its summary is benchstat's.
type Side struct {
	N int
	benchmath.Summary
	values []float64
	lines  int // results of the benchmark, with this unit or without
}

// A key is shared by the values of a cell. Side is 1 or 2 if the other side's kernel took another
// path, and 0 otherwise.
type key struct {
	pkg, unit, name string
	side            int
}

// Compare compares b with a.
func Compare(a, b *Source, o Options) (*Report, error) {
	if !(o.Alpha > 0 && o.Alpha < 1) || !(o.Effect >= 0) {
		return nil, fmt.Errorf("alpha is %v, want a level between 0 and 1; effect is %v, want a fraction from 0", o.Alpha, o.Effect)
	}
	if o.Filter == "" {
		o.Filter = "*"
	}
	filter, err := benchproc.NewFilter(o.Filter)
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n") // the other lines point at the place
		return nil, fmt.Errorf("filter %q: %s", o.Filter, text)
	}
	r := &Report{A: a.Path, B: b.Path, Options: o, Warnings: slices.Concat(a.Warnings, b.Warnings)}
	units, err := joinUnits(a, b)
	if err != nil {
		return nil, err
	}
	cells := map[key]*Cell{}
	var order []key
	paths := otherPaths(a, b)
	for i, s := range []*Source{a, b} {
		r.warn(collect(s, filter, func(k key) *Side {
			note := paths[k.name]
			if note != "" {
				k.side = i + 1
			}
			c := cells[k]
			if c == nil {
				c = &Cell{Name: k.name, Note: note}
				cells[k] = c
				order = append(order, k)
			}
			return []*Side{&c.A, &c.B}[i]
		}))
	}
	r.warn(configurations(a, b))
	tables := map[[2]string]*Table{}
	paired := false
	for _, k := range order {
		t := tables[[2]string{k.pkg, k.unit}]
		if t == nil {
			better := units.GetBetter(k.unit)
			t = &Table{Package: k.pkg, Unit: k.unit, Higher: better > 0, Directed: better != 0}
			t.Exact = units.GetAssumption(k.unit) == benchmath.Assumption(benchmath.AssumeExact)
			tables[[2]string{k.pkg, k.unit}] = t
			r.Tables = append(r.Tables, t)
		}
		c := cells[k]
		t.Cells = append(t.Cells, c)
		t.measure(c, units.GetAssumption(k.unit), o.Alpha)
		paired = paired || c.A.N > 0 && c.B.N > 0 || k.side > 0
	}
	if !paired {
		return nil, fmt.Errorf("%s and %s have no benchmark in common", a.Path, b.Path)
	}
	for _, t := range r.Tables {
		t.judge(o, a.Failed, b.Failed)
	}
	r.conclude()
	return r, nil
}

// joinUnits merges the units of two sources.
func joinUnits(a, b *Source) (benchfmt.UnitMetadataMap, error) {
	units := benchfmt.UnitMetadataMap{}
	for _, s := range []*Source{a, b} {
		for k, m := range s.Units {
			if old := units[k]; old != nil && old.Value != m.Value {
				return nil, fmt.Errorf("unit %s: %s=%s in %s, %s=%s in %s", k.Unit, k.Key, old.Value, a.Path, k.Key, m.Value, b.Path)
			}
			units[k] = m
		}
	}
	return units, nil
}

// otherPaths returns a note for each benchmark whose kernel took another path in b.
func otherPaths(a, b *Source) map[string]string {
	notes := map[string]string{}
	for name, was := range a.Plans {
		if now := b.Plans[name]; now != nil {
			if note := run.OtherPath(was, now, [2]string{"A", "B"}); note != "" {
				notes[name] = note
			}
		}
	}
	return notes
}

// collect sorts the values of one source into their cells. Its warnings name values left out.
func collect(s *Source, filter *benchproc.Filter, side func(key) *Side) (warnings []string) {
	lines := map[[2]string]int{}
	sides := map[key]*Side{}
	for _, res := range s.Results {
		if ok, err := filter.Apply(res); !ok {
			if err != nil {
				warnings = append(warnings, err.Error())
			}
			continue
		}
		pkg, name := res.GetConfig("pkg"), res.Name.String()
		lines[[2]string{pkg, name}]++
		for _, v := range res.Values {
			if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
				file, line := res.Pos()
				warnings = append(warnings, fmt.Sprintf("%s:%d: %v %s left out", file, line, v.Value, v.Unit))
				continue
			}
			k := key{pkg: pkg, unit: v.Unit, name: name}
			sides[k] = side(k)
			sides[k].values = append(sides[k].values, v.Value)
		}
	}
	for k, d := range sides {
		d.lines = lines[[2]string{k.pkg, k.name}]
	}
	return warnings
}

// configurations returns warnings about runs, or parts of a run, from different machines.
func configurations(a, b *Source) (warnings []string) {
	for _, key := range []string{"goos", "goarch", "cpu"} {
		var seen [2][]string
		for i, s := range []*Source{a, b} {
			for _, r := range s.Results {
				if v := r.GetConfig(key); v != "" && !slices.Contains(seen[i], v) {
					seen[i] = append(seen[i], v)
				}
			}
			if len(seen[i]) > 1 {
				warnings = append(warnings, fmt.Sprintf("%s: samples of several %s are taken together: %s", s.Path, key, strings.Join(seen[i], ", ")))
			}
		}
		if seen[0] != nil && seen[1] != nil && !slices.Equal(seen[0], seen[1]) {
			warnings = append(warnings, fmt.Sprintf("%s differs: %s, then %s", key, strings.Join(seen[0], ", "), strings.Join(seen[1], ", ")))
		}
	}
	return warnings
}

func (r *Report) warn(w []string) { r.Warnings = append(r.Warnings, w...) }

// measure computes the numbers of a cell as benchstat does.
func (t *Table) measure(c *Cell, assume benchmath.Assumption, alpha float64) {
	c.Delta, c.Adjusted = math.NaN(), math.NaN()
	var s [2]*benchmath.Sample
	for i, d := range []*Side{&c.A, &c.B} {
		if d.N = len(d.values); d.N > 0 {
			s[i] = benchmath.NewSample(d.values, &benchmath.Thresholds{CompareAlpha: alpha})
			d.Summary = assume.Summary(s[i], stats.Confidence)
		}
	}
	if s[0] == nil || s[1] == nil {
		return
	}
	c.Comparison = assume.Compare(s[0], s[1])
	c.Delta = stats.Delta(c.A.Center, c.B.Center)
}

// judge gives every cell of a table its verdict.
func (t *Table) judge(o Options, failedA, failedB map[string]string) {
	var family []*Cell
	var p, ratios []float64
	for _, c := range t.Cells {
		c.Verdict, c.Note = t.verdict(c, o, failedA, failedB)
		if c.A.N == 0 || c.B.N == 0 {
			continue
		}
		if ratio := c.B.Center / c.A.Center; ratio > 0 && !math.IsInf(ratio, 0) {
			ratios = append(ratios, ratio)
		}
		switch {
		case t.Exact:
			c.Adjusted = 0
		case c.Verdict != Unjudged:
			family, p = append(family, c), append(p, c.Comparison.P)
		}
	}
	for i, q := range stats.Holm(p) {
		family[i].Adjusted = q
	}
	t.Geomean = math.NaN()
	if len(ratios) > 0 {
		t.Geomean = stat.GeometricMean(ratios, nil)
	}
}

// verdict returns the verdict on a cell, with its note.
func (t *Table) verdict(c *Cell, o Options, failedA, failedB map[string]string) (Verdict, string) {
	switch {
	case c.Note != "" && c.B.N == 0:
		return Gone, c.Note
	case c.Note != "":
		return New, c.Note
	case c.B.N == 0 && failedB[c.Name] != "":
		return Broken, failedB[c.Name]
	case c.B.N == 0:
		return Gone, ""
	case c.A.N == 0:
		return New, failedA[c.Name]
	}
	least := stats.LeastP(c.A.N, c.B.N)
	switch {
	case t.Exact || least <= o.Alpha:
	case c.A.N < c.A.lines || c.B.N < c.B.lines:
		return Unjudged, ""
	default:
		return TooFew, ""
	}
	// An exact comparison has P and Alpha 0, and every difference counts.
	found := c.Comparison.P <= c.Comparison.Alpha && c.Delta != 0 && (t.Exact || math.Abs(c.Delta) >= o.Effect)
	switch {
	case !found:
		return Same, ""
	case !t.Directed:
		return Differs, ""
	case (c.Delta > 0) == t.Higher:
		return Better, ""
	}
	return Worse, ""
}

// conclude derives the verdict on all cells from the verdict on each.
func (r *Report) conclude() {
	var sure, unsure, few, gone, other, broken []string
	for _, t := range r.Tables {
		for _, c := range t.Cells {
			at := c.Name + " " + t.Unit
			switch c.Verdict {
			case Worse:
				if t.Exact || c.Adjusted <= r.Options.Alpha {
					sure = append(sure, at)
				} else {
					unsure = append(unsure, at)
				}
			case TooFew:
				few = append(few, at)
			case Gone:
				if c.Note != "" {
					other = append(other, c.Note)
				} else {
					gone = append(gone, c.Name)
				}
			case Broken:
				broken = append(broken, c.Name+": "+c.Note)
			}
		}
	}
	gone, other, broken = distinct(gone), distinct(other), distinct(broken)
	say := func(list []string, what string) {
		if n := len(list); n == 1 {
			r.Reasons = append(r.Reasons, fmt.Sprintf("%s: %s", what, list[0]))
		} else if n > 1 {
			r.Reasons = append(r.Reasons, fmt.Sprintf("%s: %s and %d more", what, list[0], n-1))
		}
	}
	say(broken, "failed")
	say(sure, "worse")
	r.Verdict = Passed
	if len(r.Reasons) > 0 {
		r.Verdict = Regressed
	}
	say(unsure, "worse, but not beyond what chance does among so many; take more samples")
	say(few, "too few samples to show any difference")
	say(gone, "not in the second run")
	r.Reasons = append(r.Reasons, other...)
	if r.Verdict == Passed && len(r.Reasons) > 0 {
		r.Verdict = Undecided
	}
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
