package reports

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attnlab/harness/run"
)

// Marks around the generated part of the README.
const (
	beginMark = "<!-- ladder:begin -->"
	endMark   = "<!-- ladder:end -->"
)

// ladderPicture is the README's chart, relative to the README.
const ladderPicture = "docs/ladder"

// threads is the number of threads of a series, which all of its group have.
func (s *series) threads() int {
	for _, w := range s.rows {
		return w.Threads
	}
	return 0
}

// ladder chooses the problem that a ladder is shown for: the one that most series have a time for,
// the longest of those, the first planned of those. It returns nil where nothing was measured.
func ladder(rows []run.Row) (best *group, seq int) {
	most := 0
	for _, g := range groups(rows) {
		for _, n := range g.seqs {
			count := 0
			for _, s := range g.series {
				if s.at(n) != nil {
					count++
				}
			}
			if count > most || count == most && count > 0 && n > seq {
				best, seq, most = g, n, count
			}
		}
	}
	return best, seq
}

// ladderShare is the column of the ladder by which its rungs compare.
const ladderShare = "of the fastest peak"

// ladderTable is the table of the ladder: one line a kernel and instruction set, all measured
// against the one fastest peak.
func ladderTable(r *run.Run, rows []run.Row, g *group, seq int) (header []string, lines [][]string) {
	for _, s := range g.series {
		w := s.rows[seq]
		switch {
		case w == nil:
		case s.at(seq) == nil:
			lines = append(lines, []string{strings.TrimSpace(s.kernel + " " + s.features), s.isa, w.Status + ": " + w.Note, "", "", "", digits(w.Err, 2)})
		default:
			share := w.GFlops / fastestPeak(r, rows, w.Threads)
			lines = append(lines, []string{
				strings.TrimSpace(s.kernel + " " + s.features), s.isa, strings.TrimSpace(seconds(w.Ns) + " " + within(w.Ns, w.NsLo, w.NsHi)),
				digits(w.GFlops, 3), percent(share), size(w.Scratch), digits(w.Err, 2),
			})
		}
	}
	return []string{"rung", "isa", "time of one call", "GFLOP/s", ladderShare, "scratch", "err/tol"}, lines
}

// README rewrites what stands between the ladder's marks in the README at path, and the chart it
// shows, docs/ladder.svg and .png beside it. What was skipped, such as a form that a kernel does
// not have, is no rung there; the run's own report names it.
func README(path string, r *run.Run) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, mark := range []string{beginMark, endMark} {
		if n := bytes.Count(old, []byte(mark)); n != 1 {
			return fmt.Errorf("%s: the mark %s stands there %d times, want once", path, mark, n)
		}
	}
	head, rest, _ := bytes.Cut(old, []byte(beginMark))
	_, tail, ok := bytes.Cut(rest, []byte(endMark))
	if !ok {
		return fmt.Errorf("%s: %s stands before %s", path, endMark, beginMark)
	}
	rows := r.Rows()
	g, seq := ladder(rows)
	if g == nil {
		return fmt.Errorf("%s: nothing was measured in this run", r.Dir)
	}
	picture := filepath.Join(filepath.Dir(path), filepath.FromSlash(ladderPicture))
	if err := os.MkdirAll(filepath.Dir(picture), 0o755); err != nil {
		return err
	}
	if err := ladderChart(picture, g); err != nil {
		return err
	}
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(beginMark + "\n")
	d := document{w: &b}
	m := r.Meta
	d.text("%s, seq %d, on %s; commit %s, %s.", upper(g.title()), seq, orUnknown(m.Machine.CPU), m.Commit, m.Started.UTC().Format(time.DateOnly))
	threads := g.series[0].threads()
	if peak := fastestPeak(r, rows, threads); run.Known(peak) {
		d.text("The fastest multiply-add probe of this build does %s GFLOP/s on %s.", digits(peak, 4), plural(threads, "thread"))
	}
	for _, s := range doubts(r) {
		d.text("Warning: %s.", s)
	}
	d.text("")
	rungs := *g
	rungs.series = slices.DeleteFunc(slices.Clone(g.series), func(s *series) bool { return s.rows[seq] != nil && s.rows[seq].Status == run.Skipped })
	header, lines := ladderTable(r, rows, &rungs, seq)
	d.table(header, lines)
	d.raw("![Time and scratch memory against sequence length](" + ladderPicture + ".svg)")
	b.WriteString(endMark)
	b.Write(tail)
	return run.Replace(path, b.Bytes())
}
