package equations

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"attnlab/theory/bridge"
)

// A Printer prints results as lines of text. The title of a chapter stands above its first row.
type Printer struct {
	W          io.Writer
	Details    bool // print a line for each kernel, the errata and the notes
	FailedOnly bool

	title  string
	counts map[Verdict]int
}

// Print prints one result.
func (p *Printer) Print(r Result) {
	if p.counts == nil {
		p.counts = map[Verdict]int{}
	}
	p.counts[r.Verdict]++
	if p.FailedOnly && r.Verdict != Fail {
		return
	}
	if t := chapterOf(r.ID); t != p.title {
		p.title = t
		fmt.Fprintf(p.W, "\n%s\n", t)
	}
	residual, bound := "", ""
	if o := r.closest(); o != nil {
		residual, bound = figure(o.Residual), figure(o.Bound)
	}
	fmt.Fprintf(p.W, "%-11s %-9s %9s %9s %7s  %s\n", r.ID, r.Verdict, residual, bound, r.kernels(), r.Statement)
	line := func(format string, args ...any) { fmt.Fprintf(p.W, "%-11s   %s\n", "", fmt.Sprintf(format, args...)) }
	if r.Verdict != Pass && len(r.Of) > 0 {
		line("%s %s", map[Verdict]string{Alias: "see", Prose: "in the documentation of", Pending: "waits for"}[r.Verdict], strings.Join(r.Of, ", "))
	}
	for _, o := range r.Outcomes {
		by := o.By
		if by == "" {
			by = "mathematics"
		}
		if p.Details || o.Verdict == Fail {
			line("%s: %s, %s (%s of %s)", by, o.Verdict, o.What, figure(o.Residual), figure(o.Bound))
		}
		if !p.Details {
			continue
		}
		for _, e := range o.Errata {
			line("%s: %s is %s; printed: %s", e.ID, e.What, e.Ours, e.Printed)
		}
		for _, n := range o.Notes {
			line("%s", n)
		}
	}
}

// Head prints the headings of the columns.
func (p *Printer) Head() {
	fmt.Fprintf(p.W, "%-11s %-9s %9s %9s %7s  %s\n", "id", "verdict", "residual", "at most", "kernels", "statement")
}

// Foot prints the number of rows of each verdict.
func (p *Printer) Foot() {
	total := 0
	var parts []string
	for _, v := range []Verdict{Pass, Fail, Alias, Prose, Pending, Unclaimed} {
		if n := p.counts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
		total += p.counts[v]
	}
	fmt.Fprintf(p.W, "\n%d rows: %s.\n", total, strings.Join(parts, ", "))
}

// Failed returns the number of rows that failed.
func (p *Printer) Failed() int { return p.counts[Fail] }

// closest returns the outcome that is closest to failing, or one that failed.
func (r *Result) closest() *Outcome {
	var worst *Outcome
	ratio := func(o *Outcome) float64 { return Fact{Residual: o.Residual, Bound: o.Bound}.ratio() }
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.Verdict != Unclaimed && (worst == nil || ratio(o) > ratio(worst)) {
			worst = o
		}
	}
	return worst
}

// kernels returns how many of the kernels that claim the row pass it, as "2 of 3".
func (r *Result) kernels() string {
	claim, hold := 0, 0
	for _, o := range r.Outcomes {
		if o.By == "" || o.By == bridge.Definition || o.Verdict == Unclaimed {
			continue
		}
		claim++
		if o.Verdict == Pass {
			hold++
		}
	}
	if claim == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", hold, claim)
}

// figure formats a residual or a bound with two digits.
func figure(x Number) string { return fmt.Sprintf("%.2g", float64(x)) }

// chapterOf returns the title of the chapter of a row.
func chapterOf(id string) string {
	for _, c := range Chapters() {
		if slices.ContainsFunc(c.Rows, func(r Row) bool { return r.ID == id }) {
			return c.Title
		}
	}
	return ""
}

// Page writes results as a Markdown page: the rows by chapter, then the errata. It omits what
// depends on the machine: residuals and instruction sets.
func Page(w io.Writer, results []Result) {
	fmt.Fprint(w, `# The executable paper

This table has every numbered statement of the source documents. `+"`benchrun equations`"+` checks the
mathematics in float64, and each kernel that claims the problem within the tolerance of package
attn/oracle. It also prints residuals and bounds. This page is generated:
`+"`go test ./theory/equations -run Page -update`"+`.

The first letter of an id is its source: T the tutorial, P the paper, D the documentation page,
N the notes, L the lesson, M the reference library. The column facts counts the comparisons that a
row makes on its mathematics. The column kernels lists the algorithms that claim the row and pass.
An alias repeats other rows. A row of prose has nothing to compute: the documentation covers it.
`)
	title := ""
	for _, r := range results {
		if t := chapterOf(r.ID); t != title {
			title = t
			fmt.Fprintf(w, "\n## %s\n\n| id | statement | verdict | facts | kernels |\n|---|---|---|---|---|\n", t)
		}
		verdict, facts := string(r.Verdict), ""
		if len(r.Of) > 0 {
			verdict += ": " + strings.Join(r.Of, ", ")
		}
		var algos []string
		for _, o := range r.Outcomes {
			algo, _, _ := strings.Cut(o.By, "/")
			switch {
			case o.By == "":
				facts = fmt.Sprint(len(o.Facts))
			case o.By != bridge.Definition && o.Verdict == Pass && !slices.Contains(algos, algo):
				algos = append(algos, algo)
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", r.ID, cell(r.Statement), cell(verdict), facts, strings.Join(algos, ", "))
	}
	fmt.Fprint(w, "\n## Where the sources are wrong\n\nThe column right has what `benchrun equations` computes, the column printed what the source prints.\n\n| erratum | row | what | right | printed |\n|---|---|---|---|---|\n")
	var lines []string
	for _, r := range results {
		for _, e := range errata(r) {
			lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s |\n", e.ID, r.ID, cell(e.What), cell(e.Ours), cell(e.Printed)))
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:len("| E-00")], b[:len("| E-00")]) })
	fmt.Fprint(w, strings.Join(lines, ""))
}

// errata returns the errata of a row, each once.
func errata(r Result) []Erratum {
	var list []Erratum
	for _, o := range r.Outcomes {
		for _, e := range o.Errata {
			if !slices.Contains(list, e) {
				list = append(list, e)
			}
		}
	}
	return list
}

// cell escapes a text for a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(s)
}
