package reports

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"attnlab/harness/run"
)

// Table writes a run as text. Each group has a line for each kernel, with the time of one call at
// each length and the exponent of time in length. The other figures are of the greatest length at
// which the kernel was measured. The cost of features and the notes follow.
func Table(w io.Writer, r *run.Run) error {
	var b strings.Builder
	rows := r.Rows()
	b.WriteString(Times(rows))
	if header, lines := costTable(r); len(lines) > 0 {
		b.WriteString("\nWhat features cost: speed relative to the point without them, round by round\n")
		align(&b, append([][]string{header}, lines...), 3)
	}
	if notes := notes(rows); len(notes) > 0 {
		b.WriteByte('\n')
		for _, n := range notes {
			fmt.Fprintf(&b, "%s: %s: %s\n", n.status, n.where, n.text)
		}
	}
	for i, s := range doubts(r) {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "warning: %s\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Times returns the tables of Table that have a line for each kernel, with its times.
func Times(rows []run.Row) string {
	var b strings.Builder
	for i, g := range groups(rows) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: time of one call\n", g.title())
		g.writeText(&b)
	}
	return b.String()
}

// A column of the text table shows one figure of a series.
type column struct {
	title string
	// show returns the text of a series. longest is its row at the greatest length with a time, or
	// nil.
	show func(s *series, longest *run.Row) string
}

func (g *group) columns() []column {
	c := []column{
		{"kernel", func(s *series, _ *run.Row) string { return strings.TrimSpace(s.kernel + " " + s.features) }},
		{"isa", func(s *series, _ *run.Row) string { return s.isa }},
	}
	for _, n := range g.seqs {
		c = append(c, column{strconv.Itoa(n), func(s *series, _ *run.Row) string {
			switch w := s.rows[n]; {
			case w == nil:
				return ""
			case s.at(n) == nil:
				return w.Status
			default:
				return seconds(w.Ns.Mid)
			}
		}})
	}
	known := func(f func(*run.Row) float64) bool {
		for _, s := range g.series {
			if w := s.longest(); w != nil && run.Known(f(w)) {
				return true
			}
		}
		return false
	}
	measured := func(title string, number func(*run.Row) float64, format func(float64) string) {
		if known(number) {
			c = append(c, column{title, func(_ *series, w *run.Row) string {
				if w == nil {
					return ""
				}
				return format(number(w))
			}})
		}
	}
	if len(g.seqs) > 1 {
		c = append(c, column{"slope", func(s *series, _ *run.Row) string { return digits(s.slope(), 3) }})
	}
	three := func(x float64) string { return digits(x, 3) }
	measured("GFLOP/s", func(w *run.Row) float64 { return w.GFlops }, three)
	measured("of peak", func(w *run.Row) float64 { return w.PeakShare.Mid }, percent)
	if bandwidth := func(w *run.Row) float64 { return w.BandwidthShare.Mid }; known(bandwidth) {
		measured("GB/s", func(w *run.Row) float64 { return w.GBps }, three)
		measured("of bandwidth", bandwidth, percent)
	}
	measured("tokens/s", func(w *run.Row) float64 { return w.Tokens }, thousands)
	measured("in attention", func(w *run.Row) float64 { return w.AttnShare }, percent)
	measured("in products", func(w *run.Row) float64 { return w.ProductShare }, percent)
	measured("scratch", func(w *run.Row) float64 { return w.Scratch }, size)
	measured("peak RSS", func(w *run.Row) float64 { return w.RSS }, size)
	measured("err/tol", func(w *run.Row) float64 { return w.Err }, func(x float64) string { return digits(x, 2) })
	return c
}

func (g *group) writeText(b *strings.Builder) {
	columns := g.columns()
	lines := [][]string{make([]string, len(columns))}
	for i, c := range columns {
		lines[0][i] = c.title
	}
	for _, s := range g.series {
		line := make([]string, len(columns))
		for i, c := range columns {
			line[i] = c.show(s, s.longest())
		}
		lines = append(lines, line)
	}
	align(b, lines, 2)
}

// align writes lines of columns. The first left columns are aligned left, the others right.
func align(b *strings.Builder, lines [][]string, left int) {
	for _, line := range lines {
		for i, text := range line {
			width := 0
			for _, l := range lines {
				width = max(width, utf8.RuneCountInString(l[i]))
			}
			if i < left {
				width = -width
			}
			fmt.Fprintf(b, "  %*s", width, text)
		}
		b.WriteByte('\n')
	}
}

// A note is the note of one row, or of several rows with the same text.
type note struct{ status, where, text string }

// named is the most measured rows with one note that are listed by name. Of more, as when a machine
// was never quiet, only their number is given.
const named = 8

// notes returns the notes of rows. Rows of one series with one text are one note.
func notes(rows []run.Row) []note {
	var list []note
	last, measured := map[string]int{}, map[string]int{}
	for i := range rows {
		if rows[i].Status == run.OK {
			measured[rows[i].Note]++
		}
	}
	for i := range rows {
		w := &rows[i]
		if w.Note == "" {
			continue
		}
		status := w.Status
		if status == run.OK {
			status = "note"
		}
		series, where := contender(w), spoken(w)
		if n := measured[w.Note]; w.Status == run.OK && n > named {
			series, where = "", fmt.Sprintf("%d points", n)
		}
		id := status + "\x00" + series + "\x00" + w.Note
		if at, ok := last[id]; ok {
			if series != "" {
				list[at].where += fmt.Sprintf(", %d", w.SeqKV)
			}
			continue
		}
		last[id] = len(list)
		list = append(list, note{status, where, w.Note})
	}
	return list
}

// contender returns the name of a row's series and group for people.
func contender(w *run.Row) string {
	parts, features := groupParts(w.Point)
	return strings.TrimSpace(w.Kernel+" "+w.ISA+" "+features) + ", " + (&group{parts: parts}).title()
}

// spoken returns the name of a row for people.
func spoken(w *run.Row) string { return fmt.Sprintf("%s, seq %d", contender(w), w.SeqKV) }
