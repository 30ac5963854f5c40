// Command floors compares sweeps with the speeds that flash and linear are meant to reach on one
// core. A floor is a share of the core's own peak or bandwidth. The command writes a table of all
// floors: the result of each round, the 95 % interval of the median round, and whether that
// interval reaches the floor.
//
//	go run ./.ci/measure/floors ROUND...
//
// A ROUND is a folder of run folders. .ci/measure/floors.sh makes three of them.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"attnlab/harness/run"
)

func main() {
	if err := floors(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "floors:", err)
		os.Exit(1)
	}
}

func floors(dirs []string, to io.Writer) error {
	if len(dirs) == 0 {
		return errors.New("name the folders of the rounds, as .ci/measure/floors.sh makes them")
	}
	var rounds []rows
	for _, dir := range dirs {
		r, err := load(dir)
		if err != nil {
			return err
		}
		rounds = append(rounds, r)
	}
	write(to, judge(table(), rounds))
	return nil
}

// rows are the points of a round, run by run.
type rows [][]run.Row

func load(dir string) (all rows, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", run.JournalFile))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no folder in it is a run", dir)
	}
	for _, f := range files {
		r, e := run.Load(filepath.Dir(f))
		if e != nil {
			return nil, e
		}
		all = append(all, r.Rows())
	}
	return all, err
}

// A floor is the least value that the rows it picks should reach.
type floor struct {
	what  string
	least float64
	of    func(w *run.Row) bool
	// base turns the point of a row into that of another row of the same run; the value is then the
	// ratio of both. Without base, the value is the row's share of the peak or of the bandwidth.
	base  func(p *run.Point)
	speed bool // the ratio is of speeds, not of shares
}

// A finding is the values of one point in all rounds. A floor that picks no row has a finding
// without a point.
type finding struct {
	what, point string
	least       float64
	rounds      []value
	last        int // round of the last value
}

// A value is the median of one round, with its interval and its number of accepted samples.
type value struct {
	median, lo, hi float64
	accepted       int
}

// middle returns the round with the median value; of two, the lower one.
func (f *finding) middle() value {
	sorted := slices.SortedFunc(slices.Values(f.rounds), func(a, b value) int { return cmp.Compare(a.median, b.median) })
	return sorted[(len(sorted)-1)/2]
}

// enough is the least number of accepted samples in each round.
const enough = 31

// verdict reports whether the interval of the median round reaches the floor, or that a round has
// too few samples.
func (f *finding) verdict() string {
	switch {
	case len(f.rounds) == 0:
		return "not measured"
	case slices.ContainsFunc(f.rounds, func(v value) bool { return v.accepted < enough }):
		return "too few samples"
	case f.middle().hi >= f.least:
		return "met"
	}
	return "**short**"
}

// judge compares the floors with all rows of all rounds. A point that is in several runs of a round
// counts in the first.
func judge(floors []floor, rounds []rows) (found []finding) {
	for _, f := range floors {
		before := len(found)
		for n, round := range rounds {
			for _, rows := range round {
				for i := range rows {
					w := &rows[i]
					if w.Status != run.OK || !f.of(w) {
						continue
					}
					v, ok := f.value(w, rows)
					if !ok {
						continue
					}
					at := before + slices.IndexFunc(found[before:], func(in finding) bool { return in.point == w.Name() })
					if at < before {
						at = len(found)
						found = append(found, finding{what: f.what, point: w.Name(), least: f.least, last: -1})
					}
					if in := &found[at]; in.last < n {
						in.rounds, in.last = append(in.rounds, v), n
					}
				}
			}
		}
		if len(found) == before {
			found = append(found, finding{what: f.what, least: f.least})
		}
	}
	return found
}

// value returns the value of a row, and whether it was measured.
func (f *floor) value(w *run.Row, rows []run.Row) (v value, ok bool) {
	v = share(w)
	if f.base == nil {
		return v, run.Known(v.median)
	}
	p := w.Point
	f.base(&p)
	i := slices.IndexFunc(rows, func(b run.Row) bool { return b.Point == p && b.Status == run.OK })
	if i < 0 {
		return v, false
	}
	b := &rows[i]
	of := share(b)
	v.median, v.lo, v.hi, v.accepted = v.median/of.median, v.lo/of.hi, v.hi/of.lo, min(v.accepted, of.accepted)
	if f.speed {
		v.median, v.lo, v.hi = b.Ns.Mid/w.Ns.Mid, b.Ns.Lo/w.Ns.Hi, b.Ns.Hi/w.Ns.Lo
	}
	return v, run.Known(v.median)
}

// share returns a row's share of the peak or, for one query, of the bandwidth.
func share(w *run.Row) value {
	v := value{w.PeakShare.Mid, w.PeakShare.Lo, w.PeakShare.Hi, int(w.Samples - w.Dropped)}
	if w.SeqQ == 1 {
		v.median, v.lo, v.hi = w.BandwidthShare.Mid, w.BandwidthShare.Lo, w.BandwidthShare.Hi
	}
	return v
}

func write(to io.Writer, found []finding) {
	count := map[string]int{}
	fmt.Fprintln(to, "| floor | point | rounds | interval | samples | |")
	fmt.Fprintln(to, "|---|---|---|---|---|---|")
	for _, f := range found {
		verdict := f.verdict()
		count[verdict]++
		if len(f.rounds) == 0 {
			fmt.Fprintf(to, "| %s %v | | | | | %s |\n", f.what, f.least, verdict)
			continue
		}
		var medians, accepted []string
		for _, v := range f.rounds {
			medians = append(medians, fmt.Sprintf("%.3f", v.median))
			accepted = append(accepted, fmt.Sprint(v.accepted))
		}
		m := f.middle()
		fmt.Fprintf(to, "| %s %v | %s | %s | %.3f %.3f | %s | %s |\n", f.what, f.least, strings.TrimPrefix(f.point, "Attention/"), strings.Join(medians, " "), m.lo, m.hi, strings.Join(accepted, " "), verdict)
	}
	fmt.Fprintf(
		to, "\n%d points meet their floors, %d are short, %d have too few samples; %d floors were not measured.\n",
		count["met"], count["**short**"], count["too few samples"], count["not measured"],
	)
}
