package reports

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"attnlab/harness/run"
	"attnlab/internal/markdown"
)

// Blocks show least times. Other work on a machine only adds time, and pages compare programs that
// were measured on shared machines.
const least = "the least of its samples"

// A blockWriter writes the body of one block.
type blockWriter struct {
	document
	up       string // from the page's folder to the module's root
	pictures []File
}

// A kind is one kind of generated block.
type kind struct {
	name  string
	write func(*blockWriter, []source) error
}

var kinds = [...]kind{
	{"ladder", (*blockWriter).ladder},
	{"ladder-chart", (*blockWriter).ladderChart},
	{"beside", (*blockWriter).beside},
	{"beside-chart", (*blockWriter).besideChart},
	{"times", (*blockWriter).times},
	{"ratios", (*blockWriter).ratios},
	{"memory", (*blockWriter).memory},
	{"limits", (*blockWriter).limits},
	{"bandwidth", (*blockWriter).bandwidth},
	{"threads", (*blockWriter).threads},
	{"features", (*blockWriter).features},
}

// ladderOf returns the rungs of a run, and the length at which they compare.
func ladderOf(sources []source) (*group, int, error) {
	if len(sources) > 1 {
		return nil, 0, errors.New("a ladder is made from one run: name one folder")
	}
	all, seq := ladder(sources[0].Rows)
	if all == nil {
		return nil, 0, errors.New("nothing was measured in this run")
	}
	rungs := all.rungs(sources[0].Meta, seq)
	if len(rungs.series) < 2 || rungs.series[0].kernel != "naive" {
		return nil, 0, fmt.Errorf("a ladder begins at naive and goes on: measure --kernel naive,tiled,flash, all with --seq %d", seq)
	}
	return rungs, seq, nil
}

func (b *blockWriter) ladder(sources []source) error {
	g, seq, err := ladderOf(sources)
	if err != nil {
		return err
	}
	naive := g.series[0].at(seq).NsMin
	var lines [][]string
	var measured []*run.Row
	for _, s := range g.series {
		w := s.at(seq)
		measured = append(measured, w)
		lines = append(lines, []string{
			s.kernel, s.isa, seconds(w.NsMin), digits(naive/w.NsMin, 3), digits(w.Flop/w.NsMin, 3), size(w.Scratch),
		})
	}
	b.table([]string{"kernel", "instruction set", "time of one call", "times as fast as naive", "GFLOP/s", "scratch memory"}, lines)
	b.caption("Time of one call, "+least, measured, sources)
	return b.err
}

func (b *blockWriter) ladderChart(sources []source) error {
	g, _, err := ladderOf(sources)
	if err != nil {
		return err
	}
	return b.picture("ladder", "Time and scratch memory of one call against sequence length", func() ([]byte, error) { return ladderChart(g) })
}

// picture adds a picture docs/NAME.svg, and shows it.
func (b *blockWriter) picture(name, alt string, paint func() ([]byte, error)) error {
	data, err := paint()
	if err != nil {
		return err
	}
	file := "docs/" + name + ".svg"
	b.pictures = append(b.pictures, File{file, data})
	b.raw("![" + alt + "](" + b.up + file + ")")
	return b.err
}

// A grid is a table of measured rows: lines and columns are points of which only some fields are
// set, and a line and a column together are a whole point.
type grid struct {
	lines, columns []run.Point
	at             map[[2]run.Point]*run.Row
	all            []*run.Row // with a time, in the order of the runs
	names          map[string]string
}

// byProblem puts kernels, and how they run, into lines, and problems into columns.
func byProblem(p run.Point) (line, column run.Point) {
	line = run.Point{Kernel: p.Kernel, ISA: p.ISA, Op: p.Op, Features: p.Features, Store: p.Store, Page: p.Page, Threads: p.Threads, Rule: p.Rule}
	column = p
	column.Kernel, column.ISA, column.Op, column.Features, column.Store, column.Page, column.Threads, column.Rule = "", "", "", "", "", 0, 0, ""
	return line, column
}

// byLength puts lengths into columns.
func byLength(p run.Point) (line, column run.Point) {
	line, column = p, run.Point{SeqQ: p.SeqQ, SeqKV: p.SeqKV}
	line.SeqQ, line.SeqKV = 0, 0
	return line, column
}

// byThreads puts numbers of threads into columns.
func byThreads(p run.Point) (line, column run.Point) {
	line, column = p, run.Point{Threads: p.Threads}
	line.Threads = 0
	return line, column
}

// byFeatures puts features into lines.
func byFeatures(p run.Point) (line, column run.Point) {
	line, column = run.Point{Features: chosenFeatures(p)}, p
	column.Features = ""
	return line, column
}

// chosenFeatures returns the features of a point, empty if it has these by default.
func chosenFeatures(p run.Point) string {
	if p.Features == defaultFeatures(p) {
		return ""
	}
	return p.Features
}

// defaultFeatures returns the features of a point that names none: those of its operation and rule.
func defaultFeatures(p run.Point) string {
	return run.Point{Op: p.Op, Rule: p.Rule}.WithDefaults().Features
}

// newGrid arranges those rows of runs that have a time and that keep, if it is not nil, accepts.
func newGrid(sources []source, by func(run.Point) (line, column run.Point), keep func(*run.Row) bool) (*grid, error) {
	g := &grid{at: map[[2]run.Point]*run.Row{}, names: map[string]string{}}
	for _, s := range sources {
		for name, title := range peerTitles(s.Meta) {
			g.names[name] = title
		}
		for i := range s.Rows {
			w := &s.Rows[i]
			if w.Status != run.OK || !run.Known(w.NsMin) || keep != nil && !keep(w) {
				continue
			}
			line, column := by(w.Point)
			key := [2]run.Point{line, column}
			if g.at[key] != nil {
				return nil, fmt.Errorf("two of the runs measured %s: name one of them", w.Name())
			}
			g.at[key] = w
			g.all = append(g.all, w)
			if !slices.Contains(g.lines, line) {
				g.lines = append(g.lines, line)
			}
			if !slices.Contains(g.columns, column) {
				g.columns = append(g.columns, column)
			}
		}
	}
	if len(g.all) == 0 {
		return nil, errors.New("the run has no measured point for this table")
	}
	return g, nil
}

// peerTitles returns the names that other programs of a run give themselves, up to the first comma
// or plus sign. Of forms of one program, NAME and NAME-FORM, the latter have the form in
// parentheses.
func peerTitles(m run.Meta) map[string]string {
	titles := map[string]string{}
	for name, says := range m.Peers {
		title := strings.TrimSpace(says)
		if end := strings.IndexAny(title, ",+"); end > 0 {
			title = title[:end]
		}
		if program, form, ok := strings.Cut(name, "-"); ok && m.Peers[program] != "" {
			title += " (" + form + ")"
		}
		titles[name] = title
	}
	return titles
}

// A field is one property of a point in words.
type field struct {
	words func(run.Point) string
	plain string // not worth a word where all points have it
}

// counted returns one for 1, and the number in the format many for others.
func counted(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

func (g *grid) fields() []field {
	return []field{
		{words: func(p run.Point) string { return g.contender(p) }},
		{plain: "no rule", words: func(p run.Point) string { return cmp.Or(p.Rule, "no rule") }},
		{plain: "plain", words: func(p run.Point) string { return cmp.Or(chosenFeatures(p), "plain") }},
		{plain: "f32", words: func(p run.Point) string { return p.Store }},
		{plain: "contiguous", words: func(p run.Point) string {
			if p.Page == 0 {
				return "contiguous"
			}
			return fmt.Sprintf("pages of %d", p.Page)
		}},
		{words: func(p run.Point) string { return strings.Replace(p.Pass, "both", "forward and backward", 1) }},
		{words: func(p run.Point) string {
			if p.Mask == "" {
				return ""
			}
			return p.Mask + " mask"
		}},
		{plain: "batch 1", words: func(p run.Point) string { return fmt.Sprintf("batch %d", p.Batch) }},
		{words: func(p run.Point) string {
			if p.HeadsKV != p.HeadsQ {
				return fmt.Sprintf("%d heads on %d key heads", p.HeadsQ, p.HeadsKV)
			}
			return counted(p.HeadsQ, "one head", "%d heads")
		}},
		{plain: "as many value heads", words: func(p run.Point) string {
			if p.HeadsV == 0 {
				return "as many value heads"
			}
			return counted(p.HeadsV, "one value head", "%d value heads")
		}},
		{words: func(p run.Point) string {
			if p.Dim != p.DimV {
				return fmt.Sprintf("d = %d, d_v = %d", p.Dim, p.DimV)
			}
			return fmt.Sprintf("d = %d", p.Dim)
		}},
		{words: func(p run.Point) string {
			if p.SeqQ != p.SeqKV {
				return fmt.Sprintf("%s, %d keys", counted(p.SeqQ, "one query", "%d queries"), p.SeqKV)
			}
			return fmt.Sprintf("n = %d", p.SeqKV)
		}},
		{plain: "bhsd", words: func(p run.Point) string { return p.Layout }},
		{plain: "normal", words: func(p run.Point) string { return p.Data }},
		{words: func(p run.Point) string { return p.Layer }},
		{words: func(p run.Point) string { return counted(p.Threads, "one thread", "%d threads") }},
	}
}

// contender names the kernel of a point.
func (g *grid) contender(p run.Point) string {
	if title := g.names[p.Kernel]; title != "" {
		return title
	}
	return p.Contender()
}

// labels names points by the fields in which they differ.
func (g *grid) labels(points []run.Point) []string {
	labels := make([]string, len(points))
	for _, f := range g.fields() {
		same := true
		for _, p := range points {
			same = same && f.words(p) == f.words(points[0])
		}
		if same {
			continue
		}
		for i, p := range points {
			labels[i] = strings.TrimPrefix(labels[i]+", "+f.words(p), ", ")
		}
	}
	if len(points) == 1 {
		labels[0] = g.contender(points[0])
	}
	return labels
}

// shared says in words what all measured rows have in common.
func (g *grid) shared(rows []*run.Row) string {
	var common []string
	for _, f := range g.fields() {
		words := f.words(rows[0].Point)
		same := words != f.plain && words != ""
		for _, w := range rows {
			same = same && f.words(w.Point) == words
		}
		if same {
			common = append(common, words)
		}
	}
	return strings.Join(common, ", ")
}

// write writes a table with a line for each line of the grid and a column for each of its columns.
func (g *grid) write(b *blockWriter, cell func(*run.Row) string, extra ...[]string) {
	header := append([]string{""}, g.labels(g.columns)...)
	if len(g.columns) == 1 {
		header[1] = ""
	}
	var lines [][]string
	for i, label := range g.labels(g.lines) {
		line := []string{label}
		for _, column := range g.columns {
			text := ""
			if w := g.at[[2]run.Point{g.lines[i], column}]; w != nil {
				text = cell(w)
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	b.table(header, append(lines, extra...))
}

// caption ends a table: what its numbers are, what all its points have in common, and where each
// run is kept.
func (b *blockWriter) caption(what string, rows []*run.Row, sources []source) {
	few, most := math.Inf(1), 0.0
	for _, w := range rows {
		few, most = min(few, w.Samples), max(most, w.Samples)
	}
	samples := whole(most)
	if few < most {
		samples = whole(few) + " to " + samples
	}
	text := ""
	if what != "" {
		text = what + ": "
	}
	text += markdown.Escape((&grid{}).shared(rows)) + "; " + samples + " samples of each point."
	for _, s := range sources {
		m := s.Meta.Machine
		commit := s.Meta.Commit.String()
		if s.Meta.Commit.Revision == "" {
			commit = path.Base(path.Dir(s.folder)) // a kept run's folder is MACHINE/COMMIT/RUN
		}
		text += fmt.Sprintf(" Run [%s](%s), commit %s, %s, on %s", path.Base(s.folder), b.up+s.folder, commit, s.Meta.Started.UTC().Format(time.DateOnly), markdown.Escape(orUnknown(m.CPU)))
		if m.Family != 0 {
			text += fmt.Sprintf(" (family %d, model %d)", m.Family, m.Model)
		}
		text += ": `" + command(s.Meta) + "`."
	}
	b.raw(wrap(upper(text), 100))
}

// command is the command line of a run, without its folder and without the peers' command lines.
func command(m run.Meta) string {
	args := run.Redacted(m.Command)
	var words []string
	for i := 0; i < len(args); i++ {
		switch {
		case i == 0:
			words = append(words, path.Base(args[i]))
		case args[i] == "-o" || args[i] == "--out":
			i++
		case strings.HasPrefix(args[i], "--out="):
		case args[i] == "--peer":
			words = append(words, "--peer ...")
			i++
		case strings.HasPrefix(args[i], "--peer="):
			words = append(words, "--peer ...")
		default:
			words = append(words, args[i])
		}
	}
	return strings.Join(words, " ")
}

// wrap breaks text between words into lines of at most width columns. A longer word has a line of
// its own.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func milliseconds(w *run.Row) string { return digits(w.NsMin/1e6, 3) }

func (b *blockWriter) times(sources []source) error {
	g, err := newGrid(sources, byProblem, nil)
	if err != nil {
		return err
	}
	g.write(b, milliseconds)
	b.caption("Milliseconds of one call, "+least, g.all, sources)
	return b.err
}

// softmax reports whether a row answers what other programs answer.
func softmax(w *run.Row) bool { return w.Op == "softmax" }

// foreign reports whether a kernel of a grid is that of another program.
func (g *grid) foreign(p run.Point) bool { return g.names[p.Kernel] != "" }

// besideGrid arranges the fastest of our kernels and each other program, fastest first. A program
// that was measured in several forms, named NAME and NAME-FORM, has its fastest one.
func besideGrid(sources []source) (*grid, error) {
	g, err := newGrid(sources, byProblem, softmax)
	if err != nil {
		return nil, err
	}
	last := g.columns[len(g.columns)-1]
	ns := func(line run.Point) float64 {
		if w := g.at[[2]run.Point{line, last}]; w != nil {
			return w.NsMin
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(g.lines, func(a, b run.Point) int { return cmp.Compare(ns(a), ns(b)) })
	seen := map[string]bool{}
	others := 0
	g.lines = slices.DeleteFunc(g.lines, func(line run.Point) bool {
		program := ""
		if g.foreign(line) {
			program, _, _ = strings.Cut(line.Kernel, "-")
			others++
		}
		was := seen[program]
		seen[program] = true
		return was
	})
	if others == 0 || !seen[""] {
		return nil, errors.New("this table needs a kernel of ours and another program: measure --peer NAME=COMMAND --kernel flash,NAME")
	}
	g.all = slices.DeleteFunc(g.all, func(w *run.Row) bool {
		line, _ := byProblem(w.Point)
		return !slices.Contains(g.lines, line)
	})
	return g, nil
}

func (b *blockWriter) beside(sources []source) error {
	g, err := besideGrid(sources)
	if err != nil {
		return err
	}
	g.write(b, milliseconds)
	b.caption("Milliseconds of one call, "+least, g.all, sources)
	return b.err
}

func (b *blockWriter) besideChart(sources []source) error {
	g, err := besideGrid(sources)
	if err != nil {
		return err
	}
	longest := 0
	for _, c := range g.columns {
		longest = max(longest, c.SeqKV)
	}
	g.columns = slices.DeleteFunc(g.columns, func(c run.Point) bool { return c.SeqKV < longest })
	return b.picture("beside", "Time of one call beside other programs", g.bars)
}

func (b *blockWriter) ratios(sources []source) error {
	g, err := newGrid(sources, byProblem, softmax)
	if err != nil {
		return err
	}
	best := map[run.Point]*run.Row{}
	for _, w := range g.all {
		if _, column := byProblem(w.Point); g.foreign(w.Point) && (best[column] == nil || w.NsMin < best[column].NsMin) {
			best[column] = w
		}
	}
	if len(best) == 0 {
		return errors.New("this table needs another program: measure --peer NAME=COMMAND --kernel flash,NAME")
	}
	g.columns = slices.DeleteFunc(g.columns, func(c run.Point) bool { return best[c] == nil })
	g.lines = slices.DeleteFunc(g.lines, g.foreign)
	fastest := []string{"fastest other program"}
	for _, column := range g.columns {
		fastest = append(fastest, g.contender(best[column].Point))
	}
	g.write(b, func(w *run.Row) string {
		_, column := byProblem(w.Point)
		return digits(w.NsMin/best[column].NsMin, 2)
	}, fastest)
	b.caption("Time over that of the fastest other program, less than 1 where ours is faster; each time is "+least, g.all, sources)
	return b.err
}

func (b *blockWriter) memory(sources []source) error {
	longest := 0
	for _, s := range sources {
		for i := range s.Rows {
			longest = max(longest, s.Rows[i].SeqKV)
		}
	}
	g, err := newGrid(sources, byProblem, func(w *run.Row) bool { return run.Known(w.RSS) && w.SeqKV == longest })
	if err != nil {
		return err
	}
	g.write(b, func(w *run.Row) string { return size(w.RSS) })
	b.caption("The most memory that a call had resident, besides its inputs", g.all, sources)
	return b.err
}

func (b *blockWriter) limits(sources []source) error {
	g, err := newGrid(sources, byLength, func(w *run.Row) bool { return run.Known(w.PeakShare.Mid) })
	if err != nil {
		return err
	}
	g.write(b, func(w *run.Row) string {
		text := fmt.Sprintf("%.1f", 100*w.PeakShare.Mid)
		if run.Known(w.PeakShare.Lo) && run.Known(w.PeakShare.Hi) {
			text += fmt.Sprintf(" ± %.1f", 100*max(w.PeakShare.Hi-w.PeakShare.Mid, w.PeakShare.Mid-w.PeakShare.Lo))
		}
		return text
	})
	b.caption("Percent of the peak: the median, with the farther end of its 95 % interval", g.all, sources)
	for _, s := range sources {
		for _, p := range s.Meta.Peaks {
			if p.Doubt != "" && slices.ContainsFunc(g.all, func(w *run.Row) bool { return w.ISA == p.ISA }) {
				b.raw("\n" + wrap(fmt.Sprintf("Warning: the peak of %s is unreliable: %s.", p.ISA, markdown.Escape(p.Doubt)), 100))
			}
		}
	}
	return b.err
}

func (b *blockWriter) bandwidth(sources []source) error {
	g, err := newGrid(sources, byProblem, func(w *run.Row) bool { return run.Known(w.GBps) })
	if err != nil {
		return err
	}
	points := make([]run.Point, len(g.all))
	for i, w := range g.all {
		points[i] = w.Point
	}
	var lines [][]string
	for i, label := range g.labels(points) {
		w := g.all[i]
		lines = append(lines, []string{label, milliseconds(w), digits(w.Bytes/w.NsMin, 3), percent(w.BandwidthShare.Mid)})
	}
	b.table([]string{"", "ms", "GB/s", "of a bare read"}, lines)
	b.caption("The share is a median over samples; GB/s are the operands' bytes over the time. Milliseconds of one call, "+least, g.all, sources)
	return b.err
}

func (b *blockWriter) threads(sources []source) error {
	g, err := newGrid(sources, byThreads, nil)
	if err != nil {
		return err
	}
	slices.SortFunc(g.columns, func(a, b run.Point) int { return cmp.Compare(a.Threads, b.Threads) })
	if len(g.columns) < 2 {
		return errors.New("this table compares numbers of threads: measure --threads 1,2")
	}
	header := []string{""}
	for _, c := range g.columns {
		header = append(header, counted(c.Threads, "one thread", "%d threads"))
	}
	var lines [][]string
	for i, label := range g.labels(g.lines) {
		line := []string{label}
		var first, last *run.Row
		for _, c := range g.columns {
			w := g.at[[2]run.Point{g.lines[i], c}]
			if w == nil {
				line = append(line, "")
				continue
			}
			if first == nil {
				first = w
			}
			last = w
			line = append(line, milliseconds(w))
		}
		lines = append(lines, append(line, digits(first.NsMin/last.NsMin, 3)))
	}
	b.table(append(header, "times as fast"), lines)
	b.caption("Milliseconds of one call, "+least, g.all, sources)
	return b.err
}

func (b *blockWriter) features(sources []source) error {
	g, err := newGrid(sources, byFeatures, nil)
	if err != nil {
		return err
	}
	if !slices.Contains(g.lines, run.Point{}) || len(g.lines) < 2 {
		return errors.New("this table compares features with the plain point: measure --with ,FEATURE")
	}
	g.write(b, func(w *run.Row) string {
		line, column := byFeatures(w.Point)
		plain := g.at[[2]run.Point{{}, column}]
		switch {
		case line == run.Point{}:
			return milliseconds(w) + " ms"
		case plain == nil:
			return milliseconds(w) + " ms"
		}
		return digits(w.NsMin/plain.NsMin, 3)
	})
	b.caption("Time over that of the plain point; each time is "+least, g.all, sources)
	return b.err
}
