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
	//go:embed html/chart.js
	chartJS template.JS
	//go:embed html/report.js
	reportJS template.JS
	//go:embed html/live.js
	liveJS template.JS

	//go:embed html/history.tmpl
	historyText string
	//go:embed html/history.js
	historyJS template.JS

	pageTemplate    = template.Must(template.New("report").Parse(pageText))
	historyTemplate = template.Must(template.Must(pageTemplate.Clone()).New("history").Parse(historyText))
)

// script joins several files into one script, in a scope of their own.
func script(files ...template.JS) template.JS {
	all := template.JS("\"use strict\";\n(() => {\n")
	for _, f := range files {
		all += f
	}
	return all + "})();\n"
}

// A page is what the template shows. Everything but the charts is in the HTML itself and needs no
// script. The template escapes all texts of the run.
type page struct {
	CSS  template.CSS
	JS   template.JS
	Live string // the version of the run if the page renews itself, else empty

	Title, Commit, Started string
	Cards                  []pageCard
	Warnings, Findings     []string
	LadderTitle            string
	Common                 string // what all problems of Fastest have in common
	Fastest, Ladder        *pageTable
	Costs, Accuracy, Notes *pageTable
	Head                   []pageColumn
	Lines                  []pageLine
	Machine                [][]string
	Definitions            []definition
	Data                   pageData
}

// A pageCard is one verdict of the summary.
type pageCard struct {
	Title       string
	Defined     string // the ID of a definition, or empty
	Tone        string // good, warn, bad, or empty
	Value, Text string
}

// A pageTable is a small table.
type pageTable struct {
	Name   string // for screen readers
	Header []string
	Lines  [][]string
	Share  int // the column whose percentages are also drawn as bars; 0 is none
}

// Long reports whether the table scrolls.
func (t *pageTable) Long() bool { return len(t.Lines) > 14 }

// Defined returns the ID of a column's definition, or an empty text.
func (*pageTable) Defined(head string) string { return defined(head) }

// Words reports whether a column holds sentences.
func (*pageTable) Words(head string) bool { return head == "reason" }

// Bar returns the width of the bar in a cell, empty where there is none.
func (t *pageTable) Bar(column int, text string) string {
	if number, ok := strings.CutSuffix(text, " %"); ok && t.Share > 0 && column == t.Share {
		return number
	}
	return ""
}

// A pageLine is one point in the table of all points.
type pageLine struct {
	Status string
	Cells  []string
}

// pageData is what the script draws from: the rows as in sweep.csv, and the groups and series that
// they belong to.
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

// pageKeys are the properties by which a reader chooses a group, in the order of the filters.
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
	Colour int    `json:"colour"` // the index of the kernel in the run
	Shape  int    `json:"shape"`  // the index of the instruction set
	Slope  string `json:"slope"`
	Rows   []int  `json:"rows"` // by length
}

// A pageLimit is a limit of the machine, a line of the roofline.
type pageLimit struct {
	Label string  `json:"label"`
	Rate  float64 `json:"rate"`
}

// HTML writes the report of a run as one page that needs no other file and no network.
func HTML(w io.Writer, r *run.Run) error {
	p := page{JS: script(chartJS, reportJS)}
	if err := p.fill(r); err != nil {
		return err
	}
	return pageTemplate.Execute(w, &p)
}

// fill puts a run into a page.
func (p *page) fill(r *run.Run) error {
	rows := r.Rows()
	*p = page{
		CSS: pageCSS, JS: p.JS, Live: p.Live, Definitions: definitions[:],
		Title: "Attention kernels on " + orUnknown(r.Meta.Machine.CPU), Commit: r.Meta.Commit.String(), Started: started(r),
		Warnings: slices.Clone(r.Warnings), Findings: findings(r, rows),
		Head: columnsFor(rows), Machine: machineLines(r),
	}
	end := ending(r)
	if p.Live != "" && !r.Complete() {
		end = "The run is not complete yet."
	}
	p.Cards = cards(r, rows, end)
	p.Fastest, p.Common = fastest(rows)
	for _, s := range doubts(r) {
		p.Warnings = append(p.Warnings, upper(s))
	}
	if g, seq := ladder(rows); g != nil {
		p.LadderTitle = fmt.Sprintf("%s, seq %d.", upper(g.title()), seq)
		header, lines := ladderTable(r, rows, g, seq)
		p.Ladder = table("The ladder", header, lines)
		p.Ladder.Share = slices.Index(header, ladderShare)
	}
	header, lines := costTable(r)
	p.Costs = table("What features cost", header, lines)
	header, lines = accuracyTable(rows)
	p.Accuracy = table("Accuracy", header, lines)
	header, lines = notesTable(rows)
	p.Notes = table("Skipped, failed, and remarks", header, lines)
	for i := range rows {
		line := pageLine{Status: rows[i].Status}
		for _, c := range p.Head {
			line.Cells = append(line.Cells, c.show(&rows[i]))
		}
		p.Lines = append(p.Lines, line)
	}
	var err error
	p.Data, err = newPageData(r, rows)
	return err
}

// table returns a table, nil if it has no lines.
func table(name string, header []string, lines [][]string) *pageTable {
	if len(lines) == 0 {
		return nil
	}
	return &pageTable{Name: name, Header: header, Lines: lines}
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
			if s.skipped() {
				continue
			}
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
		if len(pg.Series) > 0 {
			d.Groups = append(d.Groups, pg)
		}
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

// peaks returns the rate of each instruction set's multiply-add probe on one thread, measured as
// the run began, and the fastest rate on more threads among the rows.
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
		if x := fastestPeak(r.Meta, rows, t); run.Known(x) {
			list = append(list, pageLimit{"peak of " + plural(t, "thread"), x})
		}
	}
	slices.SortStableFunc(list, func(a, b pageLimit) int { return cmp.Compare(b.Rate, a.Rate) })
	return list
}

// bandwidths returns the median rate of the read probes around a run's samples, for each number of
// threads. Points that update a state have another probe.
func bandwidths(r *run.Run) []pageLimit {
	probes := map[int][]float64{}
	for _, c := range r.Cells {
		if c.Point.Decodes() {
			continue
		}
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

// cards returns the verdicts on a run: whether it is complete, whether its answers are right, which
// kernel is fastest, and how noisy the run was.
func cards(r *run.Run, rows []run.Row, end string) []pageCard {
	list := []pageCard{pointsCard(r, rows, end), rightCard(rows)}
	if g, _ := ladder(rows); g != nil {
		ops := g.ops()
		if i := slices.Index(ops, "softmax"); i > 0 { // the usual one is first
			ops[0], ops[i] = ops[i], ops[0]
		}
		for _, op := range ops {
			if line := g.fastest(op); line != nil {
				list = append(list, pageCard{
					"Fastest " + op, "fastest", "", line[0],
					fmt.Sprintf("%s, %s GFLOP/s; %s. %s, seq %s.", line[3], line[4], line[6], upper(g.title()), line[2]),
				})
				break
			}
		}
	}
	return append(list, noiseCard(rows))
}

func pointsCard(r *run.Run, rows []run.Row, end string) pageCard {
	ok, skipped, failed := tally(rows)
	c := pageCard{"Points measured", "", "good", fmt.Sprintf("%d of %d", ok, len(rows)), fmt.Sprintf("%d skipped, %d failed. %s", skipped, failed, end)}
	switch {
	case failed > 0:
		c.Tone = "bad"
	case skipped > 0 || !r.Complete():
		c.Tone = "warn"
	}
	return c
}

func rightCard(rows []run.Row) pageCard {
	var worst *run.Row
	verified, wrong := 0, 0
	for i := range rows {
		w := &rows[i]
		if !run.Known(w.Err) {
			continue
		}
		verified++
		if !(w.Err <= 1) {
			wrong++
		}
		if worst == nil || w.Err > worst.Err {
			worst = w
		}
	}
	c := pageCard{Title: "Right", Defined: "err", Tone: "good", Value: fmt.Sprintf("%d of %d", verified-wrong, verified)}
	switch {
	case worst == nil:
		c.Tone, c.Value, c.Text = "warn", "unknown", "No point was verified."
		return c
	case wrong > 0:
		c.Tone = "bad"
	}
	c.Text = fmt.Sprintf("Worst error over tolerance: %s, at %s.", digits(worst.Err, 2), spoken(worst))
	return c
}

// A run is noisy if the intervals of its times are wider than a difference.
const (
	quietWidth = 0.02 // the least difference of ab
	noisyWidth = 0.05 // the least difference of gate
)

func noiseCard(rows []run.Row) pageCard {
	c := pageCard{Title: "Noise", Defined: "noise", Tone: "good", Value: "unknown"}
	var widths []float64
	narrow := 0
	for i := range rows {
		w := &rows[i]
		if w.Status != run.OK || !run.Known(w.Ns.Lo) || !run.Known(w.Ns.Hi) {
			continue
		}
		widths = append(widths, width(w))
		if width(w) <= noisyWidth {
			narrow++
		}
	}
	if len(widths) == 0 {
		c.Tone, c.Text = "warn", "A 95 % interval of the time needs six samples, and no point has them."
		return c
	}
	half := stats.Summarise(widths).Median
	if half > noisyWidth {
		c.Tone = "bad"
	} else if half > quietWidth {
		c.Tone = "warn"
	}
	c.Value = "± " + percent(half)
	c.Text = fmt.Sprintf("Half of the points have a time whose 95 %% interval is within this; %d of %d are within ± %s.", narrow, len(widths), percent(noisyWidth))
	return c
}

// findings returns sentences on what else disturbed a run.
func findings(r *run.Run, rows []run.Row) []string {
	var list []string
	samples, dropped := 0.0, 0.0
	for i := range rows {
		if w := &rows[i]; w.Status == run.OK && run.Known(w.Ns.Mid) {
			samples, dropped = samples+w.Samples, dropped+w.Dropped
		}
	}
	if dropped > 0 {
		list = append(list, fmt.Sprintf("%.0f of %.0f samples are left out of shares of the peak, because the probes around them differ or another thread ran on the same core.", dropped, samples))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Meta.Noise)) {
		list = append(list, fmt.Sprintf("%s: %s.", upper(k), strings.TrimSuffix(r.Meta.Noise[k], ".")))
	}
	return list
}

// width returns the distance from the median of a row's time to the farther end of its interval, as
// a share of the median.
func width(w *run.Row) float64 { return max(w.Ns.Hi/w.Ns.Mid-1, 1-w.Ns.Lo/w.Ns.Mid) }

// fastest returns a table with a line for each group and operation: the fastest kernel at the
// greatest measured length, and its lead. What all groups have in common is returned apart.
func fastest(rows []run.Row) (t *pageTable, common string) {
	var lines [][]string
	list := groups(rows)
	shared := sharedParts(list)
	for _, g := range list {
		for _, op := range g.ops() {
			if line := g.fastest(op); line != nil {
				own := &group{parts: slices.DeleteFunc(slices.Clone(g.parts), func(p string) bool { return slices.Contains(shared, p) })}
				lines = append(lines, slices.Insert(line, 1, upper(own.title())))
			}
		}
	}
	t = table("Fastest", []string{"fastest", "problem", "attention", "seq", "time of one call", "GFLOP/s", "of peak", "against the next"}, lines)
	return t, upper((&group{parts: shared}).title())
}

// sharedParts returns the parts of their names that all groups have in common, if there are several
// groups.
func sharedParts(list []*group) []string {
	if len(list) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list[0].parts), func(p string) bool {
		return slices.ContainsFunc(list, func(g *group) bool { return !slices.Contains(g.parts, p) })
	})
}

// ops returns the operations of a group's rows.
func (g *group) ops() (ops []string) {
	for _, s := range g.series {
		for _, w := range s.rows {
			if !slices.Contains(ops, w.Op) {
				ops = append(ops, w.Op)
			}
		}
	}
	return ops
}

// fastest returns one line of the table of the fastest, without the problem, or nil if nothing was
// measured.
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
		slices.SortStableFunc(field, func(a, b *series) int { return cmp.Compare(a.at(n).Ns.Mid, b.at(n).Ns.Mid) })
		w := field[0].at(n)
		lead := "the only one"
		if len(field) > 1 {
			next := field[1].at(n)
			lead = fmt.Sprintf("%s times as fast as %s", digits(next.Ns.Mid/w.Ns.Mid, 3), field[1].label())
			switch {
			case !run.Known(w.Ns.Hi) || !run.Known(next.Ns.Lo):
				lead += ", with too few samples to tell them apart"
			case w.Ns.Hi >= next.Ns.Lo:
				lead += ", but their intervals overlap"
			}
		}
		return []string{
			field[0].label(), op, fmt.Sprint(n), strings.TrimSpace(seconds(w.Ns.Mid) + " " + within(w.Ns.Mid, w.Ns.Lo, w.Ns.Hi)),
			digits(w.GFlops, 3), percent(w.PeakShare.Mid), lead,
		}
	}
	return nil
}

// A pageColumn is a column of the table of all points.
type pageColumn struct {
	Title  string
	Column string // the column of sweep.csv that it is sorted by; empty: its own texts
	Number bool
	show   func(*run.Row) string
}

// Defined is the ID of what the column holds, or empty.
func (c pageColumn) Defined() string { return defined(c.Title) }

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
	{"time", "ns_median", true, func(w *run.Row) string {
		return strings.TrimSpace(seconds(w.Ns.Mid) + " " + within(w.Ns.Mid, w.Ns.Lo, w.Ns.Hi))
	}},
	{"samples", "samples", true, func(w *run.Row) string { return whole(w.Samples) }},
	{"GFLOP/s", "gflops", true, func(w *run.Row) string { return digits(w.GFlops, 3) }},
	{"of peak", "peak_frac", true, func(w *run.Row) string { return percent(w.PeakShare.Mid) }},
	{"GB/s", "gbps", true, func(w *run.Row) string { return digits(w.GBps, 3) }},
	{"of bandwidth", "bandwidth_frac", true, func(w *run.Row) string { return percent(w.BandwidthShare.Mid) }},
	{"scratch", "scratch_bytes", true, func(w *run.Row) string { return size(w.Scratch) }},
	{"peak RSS", "peak_rss_bytes", true, func(w *run.Row) string { return size(w.RSS) }},
	{"allocs", "allocs", true, func(w *run.Row) string { return whole(w.Allocs) }},
	{"err/tol", "err_ratio", true, func(w *run.Row) string { return digits(w.Err, 2) }},
	{"note", "note", false, func(w *run.Row) string { return w.Note }},
}

// layerColumns are inserted before the notes if a run has layers.
var layerColumns = []pageColumn{
	{"tokens/s", "tokens_s", true, func(w *run.Row) string { return thousands(w.Tokens) }},
	{"in attention", "attn_share", true, func(w *run.Row) string { return percent(w.AttnShare) }},
	{"in products", "product_share", true, func(w *run.Row) string { return percent(w.ProductShare) }},
}

// columnsFor returns the columns for a table of these points.
func columnsFor(rows []run.Row) []pageColumn {
	if !slices.ContainsFunc(rows, func(w run.Row) bool { return w.Layer != "" }) {
		return pageColumns
	}
	return slices.Insert(slices.Clone(pageColumns), len(pageColumns)-1, layerColumns...)
}
