package reports

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"attnlab/harness/run"
	"attnlab/harness/stats"
)

var (
	//go:embed html/report.tmpl
	pageText string
	//go:embed html/report.css
	pageCSS template.CSS
	//go:embed html/report.js
	pageJS template.JS

	pageTemplate = template.Must(template.New("report").Parse(pageText))
)

// A page is what the template shows. All but the charts is in the HTML itself and reads without a script; the template escapes what comes from the run.
type page struct {
	CSS template.CSS
	JS  template.JS

	Title, Commit, Started string
	OK, Skipped, Failed    int
	Ending                 string
	Warnings, Findings     []string
	LadderTitle            string
	Fastest, Ladder        *pageTable
	Costs, Accuracy, Notes *pageTable
	Head                   []pageColumn
	Lines                  []pageLine
	Machine                [][]string
	How                    string
	Data                   pageData
}

// A pageTable is a small table.
type pageTable struct {
	Name   string // for those who cannot see it
	Header []string
	Lines  [][]string
}

// A pageLine is one point in the table of all.
type pageLine struct {
	Status string
	Cells  []string
}

// pageData is what the script draws from: the rows as sweep.csv has them, and where they belong.
type pageData struct {
	Columns    []string    `json:"columns"`
	Rows       [][]string  `json:"rows"`
	Groups     []pageGroup `json:"groups"`
	Peaks      []pageLimit `json:"peaks"`      // GFLOP/s
	Bandwidths []pageLimit `json:"bandwidths"` // GB/s
}

type pageGroup struct {
	Title  string       `json:"title"`
	Keys   pageKeys     `json:"keys"`
	Series []pageSeries `json:"series"`
}

// pageKeys are what groups are chosen by, in the order in which the script offers them.
type pageKeys struct {
	Pass    string `json:"pass"`
	Mask    string `json:"mask"`
	Dim     string `json:"dim"`
	Heads   string `json:"heads"`
	Threads string `json:"threads"`
	Other   string `json:"other"` // the rest of the group's name
}

type pageSeries struct {
	Label  string `json:"label"`
	Colour int    `json:"colour"` // the kernel's place among those of the run
	Shape  int    `json:"shape"`  // the instruction set's
	Slope  string `json:"slope"`
	Rows   []int  `json:"rows"` // by length
}

// A pageLimit is what the machine can do, as a line of the roofline.
type pageLimit struct {
	Label string  `json:"label"`
	Rate  float64 `json:"rate"`
}

// HTML writes the report of a run as one page that needs no other file and no network.
func HTML(w io.Writer, r *run.Run) error {
	rows := r.Rows()
	p := page{
		CSS: pageCSS, JS: pageJS, How: howToRead,
		Title: "Attention kernels on " + orUnknown(r.Meta.Machine.CPU), Commit: r.Meta.Commit.String(), Started: started(r),
		Ending: ending(r), Warnings: slices.Clone(r.Warnings), Findings: findings(r, rows),
		Fastest: fastest(rows), Head: pageColumns, Machine: machineLines(r),
	}
	p.OK, p.Skipped, p.Failed = tally(rows)
	for _, s := range doubts(r) {
		p.Warnings = append(p.Warnings, upper(s))
	}
	if g, seq := ladder(rows); g != nil {
		p.LadderTitle = fmt.Sprintf("%s, seq %d.", upper(g.title()), seq)
		header, lines := ladderTable(r, rows, g, seq)
		p.Ladder = table("The ladder", header, lines)
	}
	header, lines := costTable(r)
	p.Costs = table("What features cost", header, lines)
	header, lines = accuracyTable(rows)
	p.Accuracy = table("Accuracy", header, lines)
	header, lines = notesTable(rows)
	p.Notes = table("Skipped, failed, and remarks", header, lines)
	for i := range rows {
		line := pageLine{Status: rows[i].Status}
		for _, c := range pageColumns {
			line.Cells = append(line.Cells, c.show(&rows[i]))
		}
		p.Lines = append(p.Lines, line)
	}
	var err error
	if p.Data, err = newPageData(r, rows); err != nil {
		return err
	}
	return pageTemplate.Execute(w, p)
}

// table is nil where there are no lines.
func table(name string, header []string, lines [][]string) *pageTable {
	if len(lines) == 0 {
		return nil
	}
	return &pageTable{name, header, lines}
}

func newPageData(r *run.Run, rows []run.Row) (pageData, error) {
	var b bytes.Buffer
	if err := run.WriteCSV(&b, rows); err != nil {
		return pageData{}, err
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		return pageData{}, err
	}
	d := pageData{Columns: lines[0], Rows: lines[1:], Groups: []pageGroup{}, Peaks: peaks(r, rows), Bandwidths: bandwidths(r)}
	index := map[*run.Row]int{}
	for i := range rows {
		index[&rows[i]] = i
	}
	var kernels, isas []string
	place := func(list *[]string, s string) int {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
		return slices.Index(*list, s)
	}
	for _, g := range groups(rows) {
		pg := pageGroup{Title: upper(g.title()), Keys: keysOf(g.parts)}
		for _, s := range g.series {
			ps := pageSeries{
				Label: s.label(), Colour: place(&kernels, s.kernel+" "+s.features), Shape: place(&isas, s.isa), Slope: digits(s.slope(), 3),
			}
			for _, n := range g.seqs {
				if w := s.rows[n]; w != nil {
					ps.Rows = append(ps.Rows, index[w])
				}
			}
			pg.Series = append(pg.Series, ps)
		}
		d.Groups = append(d.Groups, pg)
	}
	return d, nil
}

func keysOf(parts []string) pageKeys {
	var k pageKeys
	var other []string
	for _, p := range parts {
		name, value, _ := strings.Cut(p, "=")
		switch name {
		case "pass":
			k.Pass = value
		case "mask":
			k.Mask = value
		case "dim":
			k.Dim = value
		case "heads":
			k.Heads = value
		case "threads":
			k.Threads = value
		default:
			other = append(other, name+" "+value)
		}
	}
	k.Other = strings.Join(other, ", ")
	return k
}

// peaks lists the multiply-add probe of each instruction set on one thread, as the run began, and the fastest on more threads, as rows found it.
func peaks(r *run.Run, rows []run.Row) []pageLimit {
	list := []pageLimit{}
	for _, p := range r.Meta.Peaks {
		if p.Flop > 0 {
			list = append(list, pageLimit{"peak of " + p.ISA, p.Flop / 1e9})
		}
	}
	most := map[int]bool{}
	for i := range rows {
		if t := rows[i].Threads; t > 1 || len(r.Meta.Peaks) == 0 {
			most[t] = true
		}
	}
	for _, t := range slices.Sorted(maps.Keys(most)) {
		if x := fastestPeak(r, rows, t); run.Known(x) {
			list = append(list, pageLimit{"peak of " + plural(t, "thread"), x})
		}
	}
	slices.SortStableFunc(list, func(a, b pageLimit) int { return cmp.Compare(b.Rate, a.Rate) })
	return list
}

// bandwidths lists what the read probes around the samples of a run reached, by the number of threads: the median over all samples.
func bandwidths(r *run.Run) []pageLimit {
	probes := map[int][]float64{}
	for _, c := range r.Cells {
		for i := range c.Visits {
			if v := &c.Visits[i]; v.Unit == run.ProbeBytes && v.Before > 0 && v.After > 0 {
				probes[c.Point.Threads] = append(probes[c.Point.Threads], v.Before, v.After)
			}
		}
	}
	list := []pageLimit{}
	for _, t := range slices.Sorted(maps.Keys(probes)) {
		list = append(list, pageLimit{"bandwidth of " + plural(t, "thread"), stats.Summarise(probes[t]).Median / 1e9})
	}
	return list
}

// findings says in sentences how right and how noisy a run is.
func findings(r *run.Run, rows []run.Row) []string {
	var list []string
	var worst, widest *run.Row
	var widths []float64
	samples, dropped := 0.0, 0.0
	for i := range rows {
		w := &rows[i]
		if run.Known(w.Err) && (worst == nil || w.Err > worst.Err) {
			worst = w
		}
		if w.Status != run.OK || !run.Known(w.Ns) {
			continue
		}
		samples, dropped = samples+w.Samples, dropped+w.Dropped
		if run.Known(w.NsLo) && run.Known(w.NsHi) {
			widths = append(widths, width(w))
			if widest == nil || width(w) > width(widest) {
				widest = w
			}
		}
	}
	if worst != nil {
		list = append(list, fmt.Sprintf("Worst error over tolerance: %s, at %s.", digits(worst.Err, 2), worst.Name()))
	}
	if widest != nil {
		list = append(list, fmt.Sprintf("Noise: half of the 95 %% intervals of the time are within ± %s, the widest is ± %s, at %s.",
			percent(stats.Summarise(widths).Median), percent(width(widest)), widest.Name()))
	} else if samples > 0 {
		list = append(list, "Noise: no point has the six samples that a 95 % interval of the time takes.")
	}
	if samples > 0 {
		list = append(list, fmt.Sprintf("%.0f of %.0f samples are left out of shares of the peak, because the probes around them disagree.", dropped, samples))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Meta.Noise)) {
		list = append(list, fmt.Sprintf("%s: %s.", upper(k), strings.TrimSuffix(r.Meta.Noise[k], ".")))
	}
	return list
}

// width is how far the interval of a row's time reaches from its median, as a share of it.
func width(w *run.Row) float64 { return max(w.NsHi/w.Ns-1, 1-w.NsLo/w.Ns) }

// fastest has a line for each group and operation: who is fastest at the greatest length that any was measured at, and by how much.
func fastest(rows []run.Row) *pageTable {
	var lines [][]string
	for _, g := range groups(rows) {
		var ops []string
		for _, s := range g.series {
			for _, w := range s.rows {
				if !slices.Contains(ops, w.Op) {
					ops = append(ops, w.Op)
				}
			}
		}
		for _, op := range ops {
			if line := g.fastest(op); line != nil {
				lines = append(lines, line)
			}
		}
	}
	return table("Fastest", []string{"problem", "attention", "seq", "fastest", "time of one call", "GFLOP/s", "of peak", "against the next"}, lines)
}

func (g *group) fastest(op string) []string {
	for _, n := range slices.Backward(g.seqs) {
		var field []*series
		for _, s := range g.series {
			if w := s.at(n); w != nil && w.Op == op {
				field = append(field, s)
			}
		}
		if len(field) == 0 {
			continue
		}
		slices.SortStableFunc(field, func(a, b *series) int { return cmp.Compare(a.at(n).Ns, b.at(n).Ns) })
		w := field[0].at(n)
		lead := "the only one"
		if len(field) > 1 {
			next := field[1].at(n)
			lead = fmt.Sprintf("%s times as fast as %s", digits(next.Ns/w.Ns, 3), field[1].label())
			if !(w.NsHi < next.NsLo) { // also where there is no interval
				lead += "; the intervals do not tell them apart"
			}
		}
		return []string{
			upper(g.title()), op, fmt.Sprint(n), field[0].label(), strings.TrimSpace(seconds(w.Ns) + " " + within(w.Ns, w.NsLo, w.NsHi)),
			digits(w.GFlops, 3), percent(w.Peak), lead,
		}
	}
	return nil
}

// A pageColumn is one of the table of all points.
type pageColumn struct {
	Title  string
	Column string // of sweep.csv, by which it is sorted; empty: by what it shows
	Number bool
	show   func(*run.Row) string
}

var pageColumns = []pageColumn{
	{"kernel", "kernel", false, func(w *run.Row) string { return w.Kernel }},
	{"isa", "isa", false, func(w *run.Row) string { return w.ISA }},
	{"pass", "pass", false, func(w *run.Row) string { return w.Pass }},
	{"mask", "mask", false, func(w *run.Row) string { return w.Mask }},
	{"heads", "heads_q", true, func(w *run.Row) string { return fmt.Sprint(w.HeadsQ) }},
	{"dim", "dim", true, func(w *run.Row) string { return fmt.Sprint(w.Dim) }},
	{"threads", "threads", true, func(w *run.Row) string { return fmt.Sprint(w.Threads) }},
	{"other", "", false, func(w *run.Row) string {
		parts, features := groupParts(w.Point)
		return strings.Trim(features+", "+keysOf(parts).Other, ", ")
	}},
	{"seq", "seq_kv", true, func(w *run.Row) string { return fmt.Sprint(w.SeqKV) }},
	{"status", "status", false, func(w *run.Row) string { return w.Status }},
	{"time", "ns_median", true, func(w *run.Row) string { return strings.TrimSpace(seconds(w.Ns) + " " + within(w.Ns, w.NsLo, w.NsHi)) }},
	{"samples", "samples", true, func(w *run.Row) string { return digits(w.Samples, 6) }},
	{"GFLOP/s", "gflops", true, func(w *run.Row) string { return digits(w.GFlops, 3) }},
	{"of peak", "peak_frac", true, func(w *run.Row) string { return percent(w.Peak) }},
	{"GB/s", "gbps", true, func(w *run.Row) string { return digits(w.GBps, 3) }},
	{"of bandwidth", "bandwidth_frac", true, func(w *run.Row) string { return percent(w.Bandwidth) }},
	{"scratch", "scratch_bytes", true, func(w *run.Row) string { return size(w.Scratch) }},
	{"peak RSS", "peak_rss_bytes", true, func(w *run.Row) string { return size(w.RSS) }},
	{"allocs", "allocs", true, func(w *run.Row) string { return digits(w.Allocs, 3) }},
	{"err/tol", "err_ratio", true, func(w *run.Row) string { return digits(w.Err, 2) }},
	{"note", "note", false, func(w *run.Row) string { return w.Note }},
}
