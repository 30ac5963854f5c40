// Command floors holds sweeps against the speeds that flash and linear are meant to reach on one
// core, as shares of its own peak and bandwidth, and writes a table of every floor: what each round
// of sweeps came to, the 95 % interval of the median one, and whether that reaches the floor.
//
//	go run ./reports/floors ROUND...
//
// A ROUND is a folder of run folders, as reports/floors.sh makes three of them.
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
		return errors.New("name the folders of the rounds, as reports/floors.sh makes them")
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

// rows are the points of a round. Of a point that stands in several runs, each counts beside those
// of its own run.
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

// A floor is for the rows that it picks: by itself, or over the row of the same run that base makes
// of its point.
type floor struct {
	what  string
	least float64
	of    func(w *run.Row) bool
	base  func(p *run.Point) // nil: the row's own share of peak or bandwidth
	speed bool               // over the base's time of one call, not its share
}

// A finding is what rounds say of a point; without one, nobody measured what the floor is for.
type finding struct {
	what, point string
	least       float64
	rounds      []value
	last        int // the round that the last value is of
}

// A value is the median of one round, with how far its interval reaches, and of how many samples.
type value struct {
	median, lo, hi float64
	accepted       int
}

// middle is the round whose median is the median one, the lower one of two.
func (f *finding) middle() value {
	sorted := slices.SortedFunc(slices.Values(f.rounds), func(a, b value) int { return cmp.Compare(a.median, b.median) })
	return sorted[(len(sorted)-1)/2]
}

// enough is how many samples of each round must count.
const enough = 31

// verdict is whether the interval of the middle round reaches the floor, if each round has enough
// samples.
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

// judge holds floors against all rows of all rounds. A point that stands in several runs of a round
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

// value is what a row comes to, if it was measured.
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
		v.median, v.lo, v.hi = b.Ns/w.Ns, b.NsLo/w.NsHi, b.NsHi/w.NsLo
	}
	return v, run.Known(v.median)
}

// share is a row's share of the peak, or of the bandwidth for one query.
func share(w *run.Row) value {
	v := value{w.Peak, w.PeakLo, w.PeakHi, int(w.Samples - w.Dropped)}
	if w.SeqQ == 1 {
		v.median, v.lo, v.hi = w.Bandwidth, w.BandwidthLo, w.BandwidthHi
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
