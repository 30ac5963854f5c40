package figures

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"attnlab/internal/canvas"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Panel is a plot with a legend or a colour bar at its right. A Panel without a plot is blank.
type Panel struct {
	*plot.Plot
	names  []named
	bar    *scale
	square bool // equal scales on both axes
	err    error
}

// named is an entry of the legend.
type named struct {
	name  string
	thumb []plot.Thumbnailer
}

// newPanel returns an empty plot.
func newPanel(title, x, y string) *Panel {
	p := &Panel{Plot: plot.New()}
	p.Title.Text = title
	p.Title.TextStyle.Font = canvas.Sans(10)
	p.Title.Padding = 6
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = canvas.Sans(9)
		a.Tick.Label.Font = canvas.Sans(8)
		a.Tick.Length = 4
		a.Tick.Marker = plot.TickerFunc(evenTicks)
		a.Padding = 0
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	return p
}

// curves returns a plot for lines, with a grid behind them.
func curves(title, x, y string) *Panel {
	p := newPanel(title, x, y)
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = pale, pale
	g.Vertical.Width, g.Horizontal.Width = 0.5, 0.5
	p.Add(g)
	return p
}

// evenTicks returns four to seven round numbers.
func evenTicks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow10(int(math.Floor(math.Log10((high - low) / 4))))
	for _, f := range []float64{5, 2.5, 2} {
		if (high-low)/(f*step) >= 3.5 {
			step *= f
			break
		}
	}
	for k := math.Ceil(low/step - 1e-9); k*step <= high+1e-9*step; k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: strconv.FormatFloat(k*step+0, 'g', 6, 64)})
	}
	return ticks
}

// logX makes the horizontal axis logarithmic.
func (p *Panel) logX() *Panel {
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	return p
}

// logY makes the vertical axis logarithmic.
func (p *Panel) logY() *Panel {
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	return p
}

// logTicks returns powers of ten, at most eight of them with a label. A range of less than three
// decades also has labels at 2 and 5 times them.
func logTicks(low, high float64) (ticks []plot.Tick) {
	decades := math.Log10(high / low)
	every := max(1, int(math.Ceil(decades/8)))
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for m := 1; m < 10; m++ {
			t := plot.Tick{Value: float64(m) * math.Pow10(e)}
			if m == 1 && e%every == 0 || decades < 3 && (m == 2 || m == 5) {
				t.Label = strconv.FormatFloat(t.Value, 'g', -1, 64)
			}
			if t.Value >= low*(1-1e-9) && t.Value <= high*(1+1e-9) {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// line adds a line. It is in the legend if it has a name.
func (p *Panel) line(name string, x, y []float64, look draw.LineStyle) *plotter.Line {
	at, err := points(x, y)
	if err != nil {
		p.fail("line "+name, err)
		return nil
	}
	l := &plotter.Line{XYs: at}
	l.LineStyle = look
	p.Add(l)
	if name != "" {
		p.names = append(p.names, named{name, []plot.Thumbnailer{l}})
	}
	return l
}

// dots adds points. They are in the legend if they have a name.
func (p *Panel) dots(name string, x, y []float64, look draw.GlyphStyle) {
	at, err := points(x, y)
	if err != nil {
		p.fail("points "+name, err)
		return
	}
	s := &plotter.Scatter{XYs: at, GlyphStyle: look}
	p.Add(s)
	if name != "" {
		p.names = append(p.names, named{name, []plot.Thumbnailer{s}})
	}
}

// dotted adds a line with a dot at each of its points.
func (p *Panel) dotted(name string, x, y []float64, c color.Color) {
	l := p.line("", x, y, solid(c))
	p.dots("", x, y, dot(c))
	if l != nil && name != "" {
		p.names = append(p.names, named{name, []plot.Thumbnailer{l, &plotter.Scatter{GlyphStyle: dot(c)}}})
	}
}

// fail records the first error of the panel and the name of its subject; Draw returns it.
func (p *Panel) fail(name string, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("panel %q, %s: %w", p.Title.Text, name, err)
	}
}

// points returns pairs of x and y.
func points(x, y []float64) (plotter.XYs, error) {
	if len(x) != len(y) || len(x) == 0 {
		return nil, fmt.Errorf("got %d numbers of x and %d of y, want equal numbers, one or more", len(x), len(y))
	}
	at := make(plotter.XYs, len(x))
	for i := range x {
		if math.IsNaN(x[i]+y[i]) || math.IsInf(x[i], 0) || math.IsInf(y[i], 0) {
			return nil, fmt.Errorf("got point %v, %v, want finite numbers, leave others out", x[i], y[i])
		}
		at[i] = plotter.XY{X: x[i], Y: y[i]}
	}
	return at, nil
}

// draw draws the plot, and the legend or colour bar at its right.
func (p *Panel) draw(c draw.Canvas) {
	if p.Plot == nil {
		return
	}
	left := draw.Crop(c, 0, -p.room(), 0, 0)
	if p.square {
		left = p.squared(left)
	}
	p.Draw(left)
	data := p.DataCanvas(left)
	side := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
		Min: vg.Point{X: left.Max.X + 8, Y: data.Min.Y}, Max: vg.Point{X: left.Max.X + p.room(), Y: data.Max.Y},
	}}
	if p.bar != nil {
		p.bar.draw(side)
		return
	}
	if len(p.names) == 0 {
		return
	}
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.TextStyle.Font = canvas.Sans(8)
	legend.Padding, legend.ThumbnailWidth = 3, thumb
	for _, n := range p.names {
		legend.Add(n.name, n.thumb...)
	}
	legend.Draw(side)
}

const thumb = 20 // width of the sample of a line in the legend

// room returns the width of the legend or the colour bar.
func (p *Panel) room() vg.Length {
	style := text.Style{Font: canvas.Sans(8), Handler: plot.DefaultTextHandler}
	widest := vg.Length(0)
	if p.bar != nil {
		for _, t := range p.bar.ticks() {
			widest = max(widest, style.Width(t.Label))
		}
		return 8 + barWidth + 6 + widest
	}
	for _, n := range p.names {
		widest = max(widest, style.Width(n.name))
	}
	if widest == 0 {
		return 0
	}
	return 8 + thumb + 6 + widest
}

// squared returns the centre of c in which both axes have the same scale.
func (p *Panel) squared(c draw.Canvas) draw.Canvas {
	data := p.DataCanvas(c)
	size := data.Size()
	x, y := vg.Length(p.X.Max-p.X.Min), vg.Length(p.Y.Max-p.Y.Min)
	if wide := size.X - size.Y*x/y; wide > 0 {
		return draw.Crop(c, wide/2, -wide/2, 0, 0)
	}
	high := size.Y - size.X*y/x
	return draw.Crop(c, 0, 0, high/2, -high/2)
}

var (
	pale = color.RGBA{0xe0, 0xe0, 0xe0, 0xff}
	grey = color.RGBA{0x80, 0x80, 0x80, 0xff}
)

// hue returns the colour of line i.
func hue(i int) color.RGBA { return canvas.Colors[i%len(canvas.Colors)] }

// solid and dashed return the styles of lines.
func solid(c color.Color) draw.LineStyle { return draw.LineStyle{Color: c, Width: 1.4} }

func dashed(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1, Dashes: []vg.Length{4, 3}}
}

// dot returns the style of points.
func dot(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: 2.2, Shape: draw.CircleGlyph{}}
}
