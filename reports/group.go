// Package reports makes what people read from a run: a table for the terminal, report.md, charts,
// and the generated part of the README.
//
// A run's rows fall into groups, one a problem apart from its length; a group's rows fall into
// series, one a kernel and instruction set, that run along the lengths. Linear attention stands in
// the group of the softmax kernels it is an alternative to.
package reports

import (
	"slices"
	"strings"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A series is one kernel and instruction set along the lengths of a group.
type series struct {
	kernel, isa string
	features    string           // of a linear kernel, where not the plain one
	rows        map[int]*run.Row // by length
}

// label names the series in charts and tables.
func (s *series) label() string {
	return strings.TrimSpace(s.kernel + " " + s.isa + " " + s.features)
}

// at is the row at a length, nil if there is none with a time.
func (s *series) at(seq int) *run.Row {
	if w := s.rows[seq]; w != nil && w.Status == run.OK && run.Known(w.Ns) {
		return w
	}
	return nil
}

// longest is the row with a time at the greatest length, or nil.
func (s *series) longest() *run.Row {
	var best *run.Row
	for n := range s.rows {
		if w := s.at(n); w != nil && (best == nil || n > best.SeqKV) {
			best = w
		}
	}
	return best
}

// slope is the exponent of time in length, NaN with fewer than two lengths.
func (s *series) slope() float64 {
	var x, y []float64
	for n := range s.rows {
		if w := s.at(n); w != nil {
			x, y = append(x, float64(n)), append(y, w.Ns)
		}
	}
	return stats.Slope(x, y)
}

// A group is a problem apart from its length.
type group struct {
	parts  []string // of its name: pass=forward, mask=full, heads=1, ...
	seqs   []int    // ascending
	series []*series
}

// title is the group's name for people: forward, full mask, heads 1, dim 64, threads 1.
func (g *group) title() string {
	var t []string
	for _, p := range g.parts {
		k, v, _ := strings.Cut(p, "=")
		switch k {
		case "pass":
			t = append(t, v)
		case "mask":
			t = append(t, v+" mask")
		default:
			t = append(t, k+" "+v)
		}
	}
	return strings.Join(t, ", ")
}

// slug is the group's name for files: forward-full-heads1-dim64-threads1.
func (g *group) slug() string {
	var t []string
	for _, p := range g.parts {
		k, v, _ := strings.Cut(p, "=")
		v = strings.NewReplacer(":", "-", "+", "-").Replace(v)
		if k == "pass" || k == "mask" {
			k = ""
		}
		t = append(t, k+v)
	}
	return run.FileName(strings.Join(t, "-"))
}

// groups sorts rows into groups, in the order in which they appear.
func groups(rows []run.Row) []*group {
	index := map[string]*group{}
	var list []*group
	for i := range rows {
		w := &rows[i]
		parts, features := groupParts(w.Point)
		id := strings.Join(parts, "/")
		g := index[id]
		if g == nil {
			g = &group{parts: parts}
			index[id] = g
			list = append(list, g)
		}
		g.add(w, features)
	}
	for _, g := range list {
		slices.Sort(g.seqs)
	}
	return list
}

// groupParts takes from a point's name what is not the kernel's, nor the length. Features of which
// the op always has some, as linear attention has a feature map, are returned apart.
func groupParts(p run.Point) (parts []string, features string) {
	if plain := (run.Point{Op: p.Op}).WithDefaults(); plain.Features != "" {
		if p.Features != plain.Features {
			features = p.Features
		}
		p.Features = plain.Features
	}
	for part := range strings.SplitSeq(p.Group(), "/") {
		if k, _, ok := strings.Cut(part, "="); ok && k != "seq" {
			parts = append(parts, part)
		}
	}
	return parts, features
}

func (g *group) add(w *run.Row, features string) {
	at := slices.IndexFunc(g.series, func(s *series) bool {
		return s.kernel == w.Kernel && s.isa == w.ISA && s.features == features
	})
	if at < 0 {
		at = len(g.series)
		g.series = append(g.series, &series{kernel: w.Kernel, isa: w.ISA, features: features, rows: map[int]*run.Row{}})
	}
	g.series[at].rows[w.SeqKV] = w
	if !slices.Contains(g.seqs, w.SeqKV) {
		g.seqs = append(g.seqs, w.SeqKV)
	}
}

// tally counts rows by status.
func tally(rows []run.Row) (ok, skipped, failed int) {
	for i := range rows {
		switch rows[i].Status {
		case run.OK:
			ok++
		case run.Skipped:
			skipped++
		default:
			failed++
		}
	}
	return ok, skipped, failed
}

// fastestPeak is the greatest rate that any multiply-add probe reached with so many threads, in
// GFLOP/s: the one limit that all rungs of a ladder are measured against. It is NaN where nothing
// was probed.
func fastestPeak(r *run.Run, rows []run.Row, threads int) float64 {
	peak := 0.0
	for i := range rows {
		if w := &rows[i]; w.Threads == threads && w.PeakGFlops > peak {
			peak = w.PeakGFlops
		}
	}
	for _, p := range r.Meta.Peaks {
		if threads == 1 {
			peak = max(peak, p.Flop/1e9)
		}
	}
	return positive(peak)
}

// doubts says which peaks of a run are unreliable, and why: all shares of them are too.
func doubts(r *run.Run) []string {
	var list []string
	for _, p := range r.Meta.Peaks {
		if p.Doubt != "" {
			list = append(list, "the peak of "+p.ISA+" is unreliable: "+p.Doubt)
		}
	}
	return list
}
