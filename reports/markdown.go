package reports

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attnlab/harness/run"
	"attnlab/internal/markdown"
)

// Write reads a run folder and writes report.html, report.md and plots/ into it.
func Write(dir string) error {
	r, err := run.Load(dir)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer, *run.Run) error
	}{{run.HTMLFile, HTML}, {run.ReportFile, Markdown}} {
		var b bytes.Buffer
		if err := f.write(&b, r); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := run.Replace(filepath.Join(dir, f.name), b.Bytes()); err != nil {
			return err
		}
	}
	return Plots(filepath.Join(dir, run.PlotsDir), r) // last: if it fails, the pages are written
}

// Markdown writes the report of a run. It links to the charts that Plots makes in the run folder.
func Markdown(w io.Writer, r *run.Run) error {
	d := document{w: w}
	rows := r.Rows()
	ok, skipped, failed := tally(rows)
	d.text("# Attention kernels on %s\n", orUnknown(r.Meta.Machine.CPU))
	d.text("%d points: %d measured, %d skipped, %d failed. %s\n", len(rows), ok, skipped, failed, ending(r))
	for _, s := range r.Warnings {
		d.text("Warning: %s\n", s)
	}
	for _, s := range doubts(r) {
		d.text("Warning: %s\n", s)
	}
	d.text("## Machine and run\n")
	d.table([]string{"", ""}, machineLines(r))
	if g, seq := ladder(rows); g != nil {
		d.text("## The ladder\n")
		d.text("%s, seq %d.\n", upper(g.title()), seq)
		d.table(ladderTable(r, rows, g, seq))
	}
	for _, g := range groups(rows) {
		d.group(r, g)
	}
	if header, lines := costTable(r); len(lines) > 0 {
		d.text("## What features cost\n")
		d.text("Speed relative to the point without the feature, with the 95 %% interval of the median over rounds.\n")
		d.table(header, lines)
	}
	if header, lines := accuracyTable(rows); len(lines) > 0 {
		d.text("## Accuracy\n")
		d.table(header, lines)
	}
	if header, lines := notesTable(rows); len(lines) > 0 {
		d.text("## Skipped, failed, and remarks\n")
		d.table(header, lines)
	}
	d.raw("## How to read this\n\n" + howToRead())
	return d.err
}

// A document writes Markdown and keeps the first error.
type document struct {
	w   io.Writer
	err error
}

// raw writes a line of Markdown.
func (d *document) raw(line string) {
	if d.err == nil {
		_, d.err = io.WriteString(d.w, line+"\n")
	}
}

// text writes a line. The format is Markdown; texts among the arguments are escaped.
func (d *document) text(format string, a ...any) {
	shown := make([]any, len(a))
	for i := range a {
		switch v := a[i].(type) {
		case string:
			shown[i] = markdown.Escape(v)
		case fmt.Stringer:
			shown[i] = markdown.Escape(v.String())
		default:
			shown[i] = v
		}
	}
	d.raw(fmt.Sprintf(format, shown...))
}

// table writes a table. Its cells are escaped.
func (d *document) table(header []string, lines [][]string) {
	row := func(f []string) {
		t := make([]string, len(f))
		for i := range f {
			t[i] = markdown.Escape(f[i])
		}
		d.raw("| " + strings.Join(t, " | ") + " |")
	}
	row(header)
	row(slices.Repeat([]string{"---"}, len(header)))
	for _, l := range lines {
		row(l)
	}
	d.raw("")
}

// machineLines returns names and values of what is known of a run's machine and of the run itself.
func machineLines(r *run.Run) [][]string {
	m := r.Meta
	var t [][]string
	add := func(name, value string) {
		if value != "" && value != "0" {
			t = append(t, []string{name, value})
		}
	}
	f := m.Machine
	add("CPU", f.CPU)
	add("cores, CPUs", fmt.Sprintf("%d, %d", f.Cores, f.CPUs))
	var caches []string
	for _, c := range f.Caches {
		caches = append(caches, c.Name+" "+size(float64(c.Bytes)))
	}
	add("caches", strings.Join(caches, ", "))
	if f.RAM > 0 {
		add("memory", size(float64(f.RAM)))
	}
	add("instruction sets", strings.Join(f.ISA, ", "))
	for _, p := range m.Peaks {
		add("peak "+p.ISA, p.String())
	}
	for _, name := range slices.Sorted(maps.Keys(m.Peers)) {
		add("peer "+name, m.Peers[name])
	}
	add("system", strings.TrimSpace(f.OS+"/"+f.Arch+" "+f.Kernel))
	add("hypervisor", f.Hypervisor)
	add("governor", f.Governor)
	add("turbo", f.Turbo)
	add("SMT", f.SMT)
	add("large pages", f.LargePages)
	add("Go", strings.TrimSpace(f.Go+" "+f.GOAMD64+" "+f.Tags))
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		t = append(t, []string{"environment " + name, m.Env[name]}) // also if it is 0
	}
	add("commit", m.Commit.String())
	add("started", started(r))
	add("command", strings.Join(run.Redacted(m.Command), " "))
	add("seed", fmt.Sprint(m.Seed))
	for _, k := range slices.Sorted(maps.Keys(m.Noise)) {
		add(k, m.Noise[k])
	}
	return t
}

// started returns the time at which a run began.
func started(r *run.Run) string { return r.Meta.Started.UTC().Format(time.DateTime) + " UTC" }

// group writes one group: its charts, and a table of all its rows.
func (d *document) group(r *run.Run, g *group) {
	d.text("## %s\n", upper(g.title()))
	for _, c := range charts {
		if c.drawable(g) {
			d.raw(fmt.Sprintf("![%s](%s/%s.svg)\n", c.title, run.PlotsDir, c.file(g)))
		}
	}
	var t [][]string
	for _, s := range g.series {
		for _, n := range g.seqs {
			w := s.rows[n]
			if w == nil {
				continue
			}
			if s.at(n) == nil {
				t = append(t, []string{s.label(), fmt.Sprint(n), w.Status, "", "", "", "", "", "", "", "", digits(w.Err, 2)})
				continue
			}
			peak := strings.TrimSpace(percent(w.PeakShare.Mid) + " " + within(w.PeakShare.Mid, w.PeakShare.Lo, w.PeakShare.Hi))
			bandwidth := digits(w.GBps, 3)
			if run.Known(w.BandwidthShare.Mid) {
				share := percent(w.BandwidthShare.Mid) + " " + within(w.BandwidthShare.Mid, w.BandwidthShare.Lo, w.BandwidthShare.Hi)
				bandwidth += " (" + strings.TrimSpace(share) + ")"
			}
			t = append(t, []string{
				s.label(), fmt.Sprint(n), seconds(w.Ns.Mid), within(w.Ns.Mid, w.Ns.Lo, w.Ns.Hi), fmt.Sprint(w.Samples), digits(w.GFlops, 3), peak, bandwidth,
				size(w.Scratch), size(w.RSS), digits(w.Allocs, 3), digits(w.Err, 2),
			})
		}
	}
	d.table([]string{"kernel", "seq", "time", "", "samples", "GFLOP/s", "of peak", "GB/s", "scratch", "peak RSS", "allocs", "err/tol"}, t)
	var layers [][]string
	for _, s := range g.series {
		for _, n := range g.seqs {
			if w := s.at(n); w != nil && w.Layer != "" {
				layers = append(layers, []string{s.label(), fmt.Sprint(n), thousands(w.Tokens), percent(w.AttnShare), percent(w.ProductShare)})
			}
		}
	}
	if len(layers) > 0 {
		d.table([]string{"kernel", "seq", "tokens/s", "in attention", "in products"}, layers)
	}
	var slopes [][]string
	for _, s := range g.series {
		if x := s.slope(); run.Known(x) {
			slopes = append(slopes, []string{s.label(), digits(x, 3)})
		}
	}
	if len(slopes) > 0 {
		d.table([]string{"kernel", "slope of time in length"}, slopes)
	}
}

// accuracyTable returns the worst err/tol of each kernel over all points.
func accuracyTable(rows []run.Row) (header []string, lines [][]string) {
	worst := map[string]*run.Row{}
	var order []string
	for i := range rows {
		w := &rows[i]
		if !run.Known(w.Err) {
			continue
		}
		k := w.Kernel + " " + w.ISA
		if worst[k] == nil {
			order = append(order, k)
		}
		if worst[k] == nil || w.Err > worst[k].Err {
			worst[k] = w
		}
	}
	for _, k := range order {
		lines = append(lines, []string{k, digits(worst[k].Err, 2), worst[k].Name()})
	}
	return []string{"kernel", "worst err/tol", "at"}, lines
}

// notesTable returns the notes of all rows.
func notesTable(rows []run.Row) (header []string, lines [][]string) {
	for _, n := range notes(rows) {
		lines = append(lines, []string{n.status, n.where, n.text})
	}
	return []string{"status", "point", "reason"}, lines
}

// ending returns a sentence on how the run ended. A resumed run may have been cut off although an
// earlier session ended.
func ending(r *run.Run) string {
	switch n := len(r.Ends); {
	case r.Complete():
		return "The run ended: " + strings.TrimSuffix(r.Ends[n-1].Reason, ".") + "."
	case n > 0 && !r.Ends[n-1].Complete:
		return "The run is not complete: " + r.Ends[n-1].Reason + "."
	}
	return "The run was cut off; resume it to finish it."
}

func orUnknown(s string) string {
	if s == "" {
		return "an unknown CPU"
	}
	return s
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
