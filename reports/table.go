package reports

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"attnlab/harness/run"
)

// Table writes a run as text: for each group a line a kernel, with the time of one call at each length, the exponent of time in length, and
// the rest at the greatest length that the kernel was measured at.
func Table(w io.Writer, r *run.Run) error {
	var b strings.Builder
	rows := r.Rows()
	for i, g := range groups(rows) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: time of one call\n", g.title())
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(tw, "%s\t\n", strings.Join(g.header(), "\t"))
		for _, s := range g.series {
			fmt.Fprintf(tw, "%s\t\n", strings.Join(g.line(s), "\t"))
		}
		_ = tw.Flush() // into a Builder
	}
	if notes := notes(rows); len(notes) > 0 {
		b.WriteByte('\n')
		for _, n := range notes {
			fmt.Fprintf(&b, "%s: %s: %s\n", n.status, n.where, n.text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (g *group) header() []string {
	h := []string{"kernel", "isa"}
	for _, n := range g.seqs {
		h = append(h, strconv.Itoa(n))
	}
	return append(h, "slope", "GFLOP/s", "of peak", "GB/s", "scratch", "peak RSS", "err/tol")
}

func (g *group) line(s *series) []string {
	l := []string{strings.TrimSpace(s.kernel + " " + s.features), s.isa}
	for _, n := range g.seqs {
		cell := ""
		if w := s.rows[n]; w != nil {
			cell = w.Status
			if s.at(n) != nil {
				cell = seconds(w.Ns)
			}
		}
		l = append(l, cell)
	}
	w := s.longest()
	if w == nil {
		return append(l, "", "", "", "", "", "", "")
	}
	peak := percent(w.Peak)
	if !run.Known(w.Peak) && run.Known(w.Bandwidth) {
		peak = percent(w.Bandwidth) + " B/s"
	}
	return append(l, digits(s.slope(), 3), digits(w.GFlops, 3), peak, digits(w.GBps, 3), size(w.Scratch), size(w.RSS), digits(w.Err, 2))
}

// A note is what is to be said of one row, or of several with the same text.
type note struct{ status, where, text string }

// notes lists what is to be said of rows, those of one series and one text together.
func notes(rows []run.Row) []note {
	var list []note
	last := map[string]int{}
	for i := range rows {
		w := &rows[i]
		if w.Note == "" {
			continue
		}
		status := w.Status
		if status == run.OK {
			status = "note"
		}
		parts, features := groupParts(w.Point)
		who := strings.TrimSpace(w.Kernel+" "+w.ISA+" "+features) + ", " + (&group{parts: parts}).title()
		id := status + "\x00" + who + "\x00" + w.Note
		if at, ok := last[id]; ok {
			list[at].where += fmt.Sprintf(", %d", w.SeqKV)
			continue
		}
		last[id] = len(list)
		list = append(list, note{status, fmt.Sprintf("%s, seq %d", who, w.SeqKV), w.Note})
	}
	return list
}
