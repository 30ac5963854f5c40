package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchunit"

	"attnlab/harness/stats"
)

// WriteText writes the report as one table for each unit. Above each table are the parts that all
// of its names share.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A: %s\nB: %s\n", r.A, r.B)
	for _, t := range r.Tables {
		b.WriteByte('\n')
		t.writeText(&b)
	}
	b.WriteByte('\n')
	for _, s := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", s)
	}
	fmt.Fprintf(&b, "%s (alpha %g, least effect %g %%)\n", r.Verdict, r.Options.Alpha, 100*r.Options.Effect)
	for _, s := range r.Reasons {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) writeText(w io.Writer) {
	of := ""
	if t.Package != "" {
		of = "pkg: " + t.Package + " "
	}
	for _, all := range [...]Verdict{Same, Unjudged} {
		if (t.Exact || all == Unjudged) && !slices.ContainsFunc(t.Cells, func(c *Cell) bool { return c.Verdict != all }) {
			fmt.Fprintf(w, "%s%s: %s in all %d cells\n", of, t.Unit, all, len(t.Cells))
			return
		}
	}
	names := make([]string, len(t.Cells))
	for i, c := range t.Cells {
		names[i] = c.Name
	}
	common, short := factor(names)
	if common = strings.TrimSpace(of + common); common != "" {
		fmt.Fprintln(w, common)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s\tA\tB\tdelta\t\tverdict\n", t.Unit)
	class := benchunit.ClassOf(t.Unit)
	for i, c := range t.Cells {
		scale := benchunit.CommonScale([]float64{c.A.Center, c.B.Center}, class)
		side := func(s Side) string {
			if s.N == 0 {
				return "-"
			}
			return scale.Format(s.Center) + " ±" + s.PctRangeString()
		}
		delta, test := "", ""
		if c.A.N > 0 && c.B.N > 0 {
			delta, test = c.Comparison.FormatDelta(c.A.Center, c.B.Center), "("+c.Comparison.String()+")"
		}
		verdict := t.word(c.Verdict)
		if c.Note != "" {
			verdict += ": " + c.Note
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", short[i], side(c.A), side(c.B), delta, test, verdict)
	}
	if len(t.Cells) > 1 && !math.IsNaN(t.Geomean) {
		fmt.Fprintf(tw, "geomean\t\t\t%+.2f%%\n", 100*(t.Geomean-1))
	}
	_ = tw.Flush() // into a Builder
}

// word returns faster and slower for better and worse, if the unit is one of speed.
func (t *Table) word(v Verdict) string {
	if t.Unit == "sec/op" || strings.HasSuffix(t.Unit, "/s") || strings.HasSuffix(t.Unit, "peak") {
		switch v {
		case Better:
			return "faster"
		case Worse:
			return "slower"
		}
	}
	return string(v)
}

// factor splits names at their slashes and returns the parts that all of them share, and the rest
// of each.
func factor(names []string) (common string, short []string) {
	count := map[string]int{}
	for _, n := range names {
		for part := range strings.SplitSeq(n, "/") {
			count[part]++
		}
	}
	for i, n := range names {
		var shared, own []string
		for part := range strings.SplitSeq(n, "/") {
			if count[part] == len(names) && len(names) > 1 {
				shared = append(shared, part)
			} else {
				own = append(own, part)
			}
		}
		if i == 0 {
			common = strings.Join(shared, "/")
		}
		short = append(short, strings.Join(own, "/"))
	}
	return common, short
}

// jsonSide and the types below are the JSON form. A number that does not exist, or is infinite, is
// null.
type jsonSide struct {
	N      int      `json:"n"`
	Median *float64 `json:"median"`
	Lo     *float64 `json:"lo"`
	Hi     *float64 `json:"hi"`
}

type jsonCell struct {
	Name     string   `json:"name"`
	A        jsonSide `json:"a"`
	B        jsonSide `json:"b"`
	Delta    *float64 `json:"delta"`
	P        *float64 `json:"p"`
	Adjusted *float64 `json:"p_holm"`
	Verdict  Verdict  `json:"verdict"`
	Note     string   `json:"note,omitempty"`
}

type jsonTable struct {
	Package string     `json:"pkg,omitempty"`
	Unit    string     `json:"unit"`
	Better  string     `json:"better,omitempty"`
	Exact   bool       `json:"exact,omitempty"`
	Geomean *float64   `json:"geomean_ratio"`
	Cells   []jsonCell `json:"cells"`
}

type jsonReport struct {
	A        string      `json:"a"`
	B        string      `json:"b"`
	Alpha    float64     `json:"alpha"`
	Effect   float64     `json:"effect"`
	Verdict  Verdict     `json:"verdict"`
	Reasons  []string    `json:"reasons,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
	Tables   []jsonTable `json:"tables"`
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := jsonReport{
		A: r.A, B: r.B, Alpha: r.Options.Alpha, Effect: r.Options.Effect, Verdict: r.Verdict, Reasons: r.Reasons, Warnings: r.Warnings,
	}
	for _, t := range r.Tables {
		jt := jsonTable{Package: t.Package, Unit: t.Unit, Exact: t.Exact, Geomean: stats.Number(t.Geomean)}
		if t.Directed {
			jt.Better = map[bool]string{true: "higher", false: "lower"}[t.Higher]
		}
		for _, c := range t.Cells {
			jc := jsonCell{
				Name: c.Name, A: c.A.json(), B: c.B.json(), Delta: stats.Number(c.Delta), Adjusted: stats.Number(c.Adjusted), Verdict: c.Verdict, Note: c.Note,
			}
			if c.A.N > 0 && c.B.N > 0 {
				jc.P = stats.Number(c.Comparison.P)
			}
			jt.Cells = append(jt.Cells, jc)
		}
		out.Tables = append(out.Tables, jt)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func (s *Side) json() jsonSide {
	if s.N == 0 {
		return jsonSide{}
	}
	return jsonSide{N: s.N, Median: stats.Number(s.Center), Lo: stats.Number(s.Lo), Hi: stats.Number(s.Hi)}
}
