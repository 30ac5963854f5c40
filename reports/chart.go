package reports

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"attnlab/harness/run"
	"attnlab/internal/canvas"
)

// A chart is one quantity against sequence length.
type chart struct {
	name  string // in file names
	title string
	axis  string // label of the vertical axis
	value func(*run.Row) (y, lo, hi float64)
	label func(float64) string // of a tick
	base  float64              // of the ticks: 10, or 2 for bytes
	peak  bool                 // also draw the probes' peak
}

var charts = [...]chart{
	{
		name: "time", title: "Time of one call", axis: "time", base: 10, label: tickSeconds,
		value: func(w *run.Row) (y, lo, hi float64) { return w.Ns.Mid / 1e9, w.Ns.Lo / 1e9, w.Ns.Hi / 1e9 },
	},
	{
		name: "flops", title: "Rate", axis: "GFLOP/s", base: 10, label: tickNumber, peak: true,
		value: func(w *run.Row) (y, lo, hi float64) { return w.GFlops, w.Flop / w.Ns.Hi, w.Flop / w.Ns.Lo },
	},
	scratch,
	{
		name: "rss", title: "Peak resident memory over the inputs", axis: "peak RSS", base: 2, label: tickBytes,
		value: func(w *run.Row) (y, lo, hi float64) { return w.RSS, math.NaN(), math.NaN() },
	},
}

var scratch = chart{
	name: "scratch", title: "Scratch memory of a plan", axis: "scratch", base: 2, label: tickBytes,
	value: func(w *run.Row) (y, lo, hi float64) { return w.Scratch, math.NaN(), math.NaN() },
}

// leastTime is the time that blocks of pages show.
var leastTime = chart{
	title: "Time of one call", axis: "time", base: 10, label: tickSeconds,
	value: func(w *run.Row) (y, lo, hi float64) { return w.NsMin / 1e9, math.NaN(), math.NaN() },
}

// file returns the name of a chart's files, without folder and extension.
func (c *chart) file(g *group) string { return g.slug() + "-" + c.name }

// drawable reports whether a group has at least two lengths and a positive number to draw.
func (c *chart) drawable(g *group) bool {
	if len(g.seqs) < 2 {
		return false
	}
	return slices.ContainsFunc(g.series, func(s *series) bool { return len(c.points(g, s)) > 0 })
}

// A bar is a point of a chart with the ends of its interval, which are NaN where there is none.
type bar struct{ x, y, lo, hi float64 }

func (c *chart) points(g *group, s *series) []bar {
	var b []bar
	for _, n := range g.seqs {
		if w := s.at(n); w != nil {
			if y, lo, hi := c.value(w); y > 0 {
				b = append(b, bar{float64(n), y, lo, hi})
			}
		}
	}
	return b
}

// Plots draws every chart of every group of a run into a folder, as SVG and PNG.
func Plots(dir string, r *run.Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, g := range groups(r.Rows()) {
		for i := range charts {
			c := &charts[i]
			if !c.drawable(g) {
				continue
			}
			if err := canvas.Save(filepath.Join(dir, c.file(g)), 17*vg.Centimeter, 10*vg.Centimeter, func(area draw.Canvas) error {
				return panel(area, g, c, c.title+"\n"+g.title(), true)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ladderChart draws time and scratch memory side by side, as SVG.
func ladderChart(g *group) ([]byte, error) {
	return canvas.SVG(24*vg.Centimeter, 10*vg.Centimeter, func(area draw.Canvas) error {
		left, right := area, area
		split := area.Min.X + (area.Max.X-area.Min.X-g.legendWidth())/2
		left.Max.X, right.Min.X = split-8, split+8
		if err := panel(left, g, &leastTime, leastTime.title, false); err != nil {
			return err
		}
		return panel(right, g, &scratch, scratch.title, true)
	})
}

var (
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}}
	dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}, {1, 3}}
	grey   = color.RGBA{0xd8, 0xd8, 0xd8, 0xff}
)

// style returns the look of a series: the colour of its kernel, and the dash and the shape of its
// instruction set.
func (g *group) style(s *series) (color.Color, []vg.Length, draw.GlyphDrawer) {
	var kernels, isas []string
	for _, t := range g.series {
		if k := t.kernel + t.features; !slices.Contains(kernels, k) {
			kernels = append(kernels, k)
		}
		if !slices.Contains(isas, t.isa) {
			isas = append(isas, t.isa)
		}
	}
	k, i := slices.Index(kernels, s.kernel+s.features), slices.Index(isas, s.isa)
	return canvas.Colors[k%len(canvas.Colors)], dashes[i%len(dashes)], shapes[i%len(shapes)]
}

// thumb is the width of a line in a legend.
const thumb = 28

// newLegend returns an empty legend for the right of a chart.
func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle.Font = canvas.Sans(9)
	l.Padding = 3
	l.ThumbnailWidth = thumb
	return l
}

// legendWidth returns the width of a legend that names all series.
func (g *group) legendWidth() vg.Length {
	style, width := newLegend().TextStyle, 3.6*vg.Centimeter
	for _, s := range g.series {
		width = max(width, 8+thumb+style.Width("m"+s.label()))
	}
	return width
}

// panel draws one chart of a group, with a legend on its right if withLegend is set. The legend is
// in the order of the lines' right ends.
func panel(area draw.Canvas, g *group, c *chart, title string, withLegend bool) error {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font = canvas.Sans(11)
	p.Title.Padding = 6
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Scale = plot.LogScale{}
		a.Label.TextStyle.Font = canvas.Sans(10)
		a.Tick.Label.Font = canvas.Sans(9)
		a.Padding = 0
	}
	p.X.Label.Text = "sequence length"
	p.Y.Label.Text = c.axis

	low, high, peak := math.Inf(1), 0.0, 0.0
	for _, s := range g.series {
		for _, b := range c.points(g, s) {
			// A wild interval may run out of the picture; the lines must fill it.
			low = min(low, b.y, max(orElse(b.lo, b.y), b.y/3))
			high = max(high, b.y, min(orElse(b.hi, b.y), b.y*3))
			if c.peak {
				peak = max(peak, orElse(s.at(int(b.x)).PeakGFlops, 0))
			}
		}
	}
	high = max(high, peak)
	p.X.Min, p.X.Max = float64(g.seqs[0])/1.1, float64(g.seqs[len(g.seqs)-1])*1.1
	p.Y.Min, p.Y.Max = low/1.5, high*1.5
	p.X.Tick.Marker = lengthTicks(g.seqs)
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { return logTicks(low, high, c.base, c.label) })
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = grey, grey
	grid.Vertical.Width, grid.Horizontal.Width = 0.5, 0.5
	p.Add(grid)

	type entry struct {
		label string
		end   float64
		thumb []plot.Thumbnailer
	}
	var entries []entry
	for _, s := range g.series {
		points := c.points(g, s)
		if len(points) == 0 {
			continue
		}
		line, dots, bars, err := lines(points)
		if err != nil {
			return err
		}
		line.Color, line.Dashes, dots.Shape = g.style(s)
		line.Width = 1.6
		dots.Color, dots.Radius = line.Color, 2.6
		p.Add(line, dots)
		if bars != nil {
			bars.Color, bars.Width, bars.CapWidth = line.Color, 1, 6
			p.Add(bars)
		}
		// The legend puts a line that ends early where it would go on.
		end := points[len(points)-1]
		at := end.y
		if len(points) > 1 {
			before := points[len(points)-2]
			at *= math.Pow(p.X.Max/end.x, math.Log(end.y/before.y)/math.Log(end.x/before.x))
		}
		entries = append(entries, entry{s.label(), at, []plot.Thumbnailer{line, dots}})
	}
	if peak > 0 {
		line, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: peak}, {X: p.X.Max, Y: peak}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = color.Gray{0x80}, []vg.Length{4, 4}
		p.Add(line)
		entries = append(entries, entry{"peak", peak, []plot.Thumbnailer{line}})
	}
	room := area
	if withLegend {
		room.Max.X -= g.legendWidth()
	}
	p.Draw(room)
	if !withLegend {
		return nil
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		switch {
		case a.end > b.end:
			return -1
		case a.end < b.end:
			return 1
		}
		return 0
	})
	legend := newLegend()
	for _, e := range entries {
		legend.Add(e.label, e.thumb...)
	}
	side := area
	side.Min.X = room.Max.X + 8
	side.Max.Y -= 26
	legend.Draw(side)
	return nil
}

// orElse returns x, or other where x is not known.
func orElse(x, other float64) float64 {
	if run.Known(x) {
		return x
	}
	return other
}

// lines returns a line, its dots, and bars for the intervals that exist.
func lines(points []bar) (*plotter.Line, *plotter.Scatter, *plotter.YErrorBars, error) {
	var at plotter.XYs
	var e struct {
		plotter.XYs
		plotter.YErrors
	}
	for _, b := range points {
		at = append(at, plotter.XY{X: b.x, Y: b.y})
		if b.lo > 0 && b.hi >= b.y {
			e.XYs = append(e.XYs, plotter.XY{X: b.x, Y: b.y})
			e.YErrors = append(e.YErrors, struct{ Low, High float64 }{b.y - b.lo, b.hi - b.y})
		}
	}
	line, dots, err := plotter.NewLinePoints(at)
	if err != nil || len(e.XYs) == 0 {
		return line, dots, nil, err
	}
	bars, err := plotter.NewYErrorBars(e)
	return line, dots, bars, err
}

// lengthTicks labels the lengths: all of them, or every k-th so that there are at most ten labels.
func lengthTicks(seqs []int) plot.ConstantTicks {
	step := (len(seqs) + 9) / 10
	var t plot.ConstantTicks
	for i, n := range seqs {
		tick := plot.Tick{Value: float64(n)}
		if (len(seqs)-1-i)%step == 0 {
			tick.Label = strconv.Itoa(n)
		}
		t = append(t, tick)
	}
	return t
}

// logTicks returns ticks between low and high, two to nine of them with a label. They are at powers
// of the base, and in a short decimal range also at some multiples of these.
func logTicks(low, high, base float64, label func(float64) string) []plot.Tick {
	decades := math.Log(high/low) / math.Log(base)
	factors, step := []float64{1}, 1
	switch {
	case base == 10 && decades < 1:
		factors = []float64{1, 1.5, 2, 3, 4, 5, 7}
	case base == 10 && decades < 3:
		factors = []float64{1, 2, 5}
	default:
		step = max(1, int(math.Ceil(decades/9)))
	}
	var t []plot.Tick
	for e := int(math.Floor(math.Log(low)/math.Log(base))) - 1; ; e++ {
		power := math.Pow(base, float64(e))
		if power > high {
			return t
		}
		for _, f := range factors {
			if x := f * power; x >= low && x <= high {
				tick := plot.Tick{Value: x}
				if e%step == 0 {
					tick.Label = label(x)
				}
				t = append(t, tick)
			}
		}
	}
}

func tickNumber(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

func tickSeconds(x float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if x >= 0.999*u.size {
			return tickNumber(x/u.size) + " " + u.name
		}
	}
	return tickNumber(x*1e9) + " ns"
}

func tickBytes(x float64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if s := math.Ldexp(1, u.shift); x >= s {
			return tickNumber(x/s) + " " + u.name
		}
	}
	return tickNumber(x) + " B"
}

// bars draws the time of one call as bars: a panel for each column of the grid, a bar for each
// line. Bars of our kernels have a colour of their own.
func (g *grid) bars() ([]byte, error) {
	const row, head, foot = 24, 22, 4
	style := newLegend().TextStyle
	names, room := g.labels(g.lines), vg.Length(0)
	for _, name := range names {
		room = max(room, 1.2*style.Width(name)) // browsers may have a wider font
	}
	titles := g.labels(g.columns)
	for i, column := range g.columns {
		if len(titles) == 1 {
			titles[i] = column.Mask + " mask"
		}
		titles[i] += fmt.Sprintf(", %d keys", column.SeqKV)
	}
	height := vg.Length(head + foot + row*len(g.lines) + 16)
	return canvas.SVG(24*vg.Centimeter, height, func(area draw.Canvas) error {
		width := (area.Max.X - area.Min.X - room - 10) / vg.Length(len(g.columns))
		for i, column := range g.columns {
			left := area.Min.X + room + 10 + width*vg.Length(i)
			most := 0.0
			for _, line := range g.lines {
				if w := g.at[[2]run.Point{line, column}]; w != nil {
					most = max(most, w.NsMin)
				}
			}
			area.FillText(style, vg.Point{X: left, Y: area.Max.Y - 12}, titles[i])
			for k, line := range g.lines {
				y := area.Max.Y - head - row*vg.Length(k+1)
				if i == 0 {
					area.FillText(style, vg.Point{X: area.Min.X, Y: y + 7}, names[k])
				}
				w := g.at[[2]run.Point{line, column}]
				if w == nil {
					continue
				}
				long := (width - 60) * vg.Length(w.NsMin/most)
				fill := color.Color(color.Gray{0xb0})
				if !g.foreign(line) {
					fill = canvas.Colors[0]
				}
				area.FillPolygon(fill, []vg.Point{{X: left, Y: y + 3}, {X: left + long, Y: y + 3}, {X: left + long, Y: y + row - 3}, {X: left, Y: y + row - 3}})
				area.FillText(style, vg.Point{X: left + long + 5, Y: y + 7}, milliseconds(w)+" ms")
			}
		}
		return nil
	})
}
