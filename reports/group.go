// Package reports writes what people read of a run: a table for the terminal, report.html,
// report.md, charts, and the generated blocks of Markdown pages.
//
// A group is all rows of a run with one problem, at any length. A series is all rows of a group
// with one kernel and one instruction set. Linear attention is in the group of the softmax kernels
// that it can replace.
package reports

import (
	"slices"
	"strings"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

// A series is one kernel and instruction set at all lengths of a group.
type series struct {
	kernel, isa string
	features    string           // the feature map of a linear kernel, empty for the default one
	rows        map[int]*run.Row // by length
}

// label returns the name of the series in charts and tables.
func (s *series) label() string {
	return strings.TrimSpace(s.kernel + " " + s.isa + " " + s.features)
}

// at returns the row at a length, nil if there is none with a time.
func (s *series) at(seq int) *run.Row {
	if w := s.rows[seq]; w != nil && w.Status == run.OK && run.Known(w.Ns.Mid) {
		return w
	}
	return nil
}

// skipped reports whether every row of the series was skipped, as of a kernel that an instruction
// set does not have.
func (s *series) skipped() bool {
	for _, w := range s.rows {
		if w.Status != run.Skipped {
			return false
		}
	}
	return true
}

// longest returns the row with a time at the greatest length, or nil.
func (s *series) longest() *run.Row {
	var best *run.Row
	for n := range s.rows {
		if w := s.at(n); w != nil && (best == nil || n > best.SeqKV) {
			best = w
		}
	}
	return best
}

// slope returns the exponent of time in length, NaN with fewer than two lengths.
func (s *series) slope() float64 {
	var x, y []float64
	for n := range s.rows {
		if w := s.at(n); w != nil {
			x, y = append(x, float64(n)), append(y, w.Ns.Mid)
		}
	}
	return stats.Slope(x, y)
}

// A group is a problem at several lengths.
type group struct {
	parts  []string // of its name: pass=forward, mask=full, heads=1, ...
	seqs   []int    // ascending
	series []*series
}

// title returns the group's name for people: forward, full mask, 8 heads, d = 64, one thread.
func (g *group) title() string {
	var t []string
	for _, p := range g.parts {
		k, v, _ := strings.Cut(p, "=")
		t = append(t, spell(k, v))
	}
	return strings.Join(t, ", ")
}

// spell returns what a part of a point's name means in words.
func spell(key, value string) string {
	n := func(one, many string) string {
		if value == "1" {
			return one
		}
		return value + " " + many
	}
	switch key {
	case "pass":
		return strings.Replace(value, "both", "forward and backward", 1)
	case "mask":
		return value + " mask"
	case "heads":
		return n("one head", "heads")
	case "kvheads":
		return n("one key head", "key heads")
	case "vheads":
		return n("one value head", "value heads")
	case "seqq":
		return n("one query", "queries")
	case "dim":
		return "d = " + value
	case "dimv":
		return "d_v = " + value
	case "page":
		return "pages of " + value
	case "features":
		return "with " + value
	case "threads":
		return n("one thread", "threads")
	}
	return key + " " + value
}

// slug returns the group's name for files: forward-full-heads1-dim64-threads1.
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

// groups returns the groups of rows, in the order in which they first appear.
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

// groupParts returns the parts of a point's name without kernel, instruction set and length. The
// rule and the feature map of linear attention, which always has a map, are returned apart; the
// default ones are empty.
func groupParts(p run.Point) (parts []string, features string) {
	if plain := (run.Point{Op: p.Op}).WithDefaults(); plain.Features != "" {
		features = strings.TrimSpace(p.Rule + " " + chosenFeatures(p))
		p.Rule, p.Features = "", plain.Features
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

// fastestPeak returns the greatest rate that any multiply-add probe of a run reached on a number of
// threads, in GFLOP/s. All rungs of a ladder are measured against it. It is NaN where nothing was
// probed.
func fastestPeak(m run.Meta, rows []run.Row, threads int) float64 {
	peak := 0.0
	for i := range rows {
		if w := &rows[i]; w.Threads == threads && w.PeakGFlops > peak {
			peak = w.PeakGFlops
		}
	}
	for _, p := range m.Peaks {
		if threads == 1 {
			peak = max(peak, p.Flop/1e9)
		}
	}
	return positive(peak)
}

// doubts returns a sentence for each peak of a run that is unreliable. Shares of such a peak are
// unreliable too.
func doubts(r *run.Run) []string {
	var list []string
	for _, p := range r.Meta.Peaks {
		if p.Doubt != "" {
			list = append(list, "the peak of "+p.ISA+" is unreliable: "+p.Doubt)
		}
	}
	return list
}
