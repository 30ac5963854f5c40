package figures

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"slices"
	"sort"
	"strconv"

	"attnlab/internal/canvas"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/brewer"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A scale maps numbers to colours. It runs linearly from the first colour at min to the last one at
// max, or has one colour for each band between levels.
type scale struct {
	min, max float64
	colors   []color.RGBA
	levels   []float64
	// root spaces the colours by the square root, which separates small numbers.
	root bool
}

// hidden is the colour of NaN.
var hidden = color.RGBA{0xee, 0xee, 0xee, 0xff}

// at returns the colour of a number.
func (s *scale) at(v float64) color.RGBA {
	if math.IsNaN(v) {
		return hidden
	}
	t := min(max((v-s.min)/(s.max-s.min), 0), 1)
	switch {
	case s.root:
		t = math.Sqrt(t)
	case s.levels != nil:
		t = float64(sort.SearchFloat64s(s.levels, v)) / float64(len(s.levels))
	}
	if math.IsNaN(t) { // min equals max
		t = 0
	}
	return s.colors[int(t*float64(len(s.colors)-1)+.5)]
}

// blues returns a scale for numbers from 0 to top.
func blues(top float64) *scale {
	return &scale{min: 0, max: top, colors: shades(brewer.TypeSequential, "Blues", 9)}
}

// depths returns a scale for heights between two numbers, in bands that are darker at lower
// heights. Low bands are narrow, since heights grow with the square of the distance.
func depths(low, high float64) *scale {
	const bands = 16
	colors := shades(brewer.TypeSequential, "YlGnBu", 9)
	slices.Reverse(colors)
	s := &scale{min: low, max: high, colors: colors}
	for i := 1; i < bands; i++ {
		t := float64(i) / bands
		s.levels = append(s.levels, low+(high-low)*t*t)
	}
	return s
}

// signs returns a scale for numbers from -size to size.
func signs(size float64) *scale {
	if size == 0 {
		size = 1
	}
	return &scale{min: -size, max: size, colors: shades(brewer.TypeDiverging, "RdBu", 11)}
}

// shades returns 256 colours that interpolate the palette with the given number of colours.
func shades(kind brewer.PaletteType, name string, of int) []color.RGBA {
	p, err := brewer.GetPalette(kind, name, of)
	if err != nil {
		panic(err)
	}
	between := p.Colors()
	all := make([]color.RGBA, 256)
	for i := range all {
		t := float64(i) / 255 * float64(of-1)
		k := min(int(t), of-2)
		all[i] = mix(color.RGBAModel.Convert(between[k]).(color.RGBA), color.RGBAModel.Convert(between[k+1]).(color.RGBA), t-float64(k))
	}
	return all
}

// mix returns the colour at the fraction t of the way from a to b.
func mix(a, b color.RGBA, t float64) color.RGBA {
	blend := func(x, y uint8) uint8 { return uint8(math.Round(float64(x) + t*(float64(y)-float64(x)))) }
	return color.RGBA{blend(a.R, b.R), blend(a.G, b.G), blend(a.B, b.B), 0xff}
}

// ticks returns the labels of the bar: both ends and the middle.
func (s *scale) ticks() []plot.Tick {
	var t []plot.Tick
	for _, v := range []float64{s.min, (s.min + s.max) / 2, s.max} {
		t = append(t, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
	}
	return t
}

const barWidth = 9

// draw draws a bar of all the colours with its ticks.
func (s *scale) draw(c draw.Canvas) {
	const steps = 128
	high := c.Max.Y - c.Min.Y
	for i := range steps {
		from := c.Min.Y + high*vg.Length(i)/steps
		fill(c, c.Min.X, c.Min.X+barWidth, from, c.Max.Y, s.at(s.min+(s.max-s.min)*(float64(i)+.5)/steps))
	}
	style := text.Style{Color: color.Black, Font: canvas.Sans(8), YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	for i, t := range s.ticks() {
		y := c.Min.Y + high*vg.Length(i)/2
		c.StrokeLine2(draw.LineStyle{Color: color.Black, Width: .5}, c.Min.X+barWidth, y, c.Min.X+barWidth+3, y)
		c.FillText(style, vg.Point{X: c.Min.X + barWidth + 5, Y: y}, t.Label)
	}
}

func fill(c draw.Canvas, x0, x1, y0, y1 vg.Length, col color.Color) {
	c.FillPolygon(col, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

// cells plots a matrix: a coloured cell for each element, over a rectangle of the axes.
type cells struct {
	m mat.Matrix
	// The columns span x0 to x1 and the rows y0 to y1.
	x0, x1, y0, y1 float64
	colors         *scale
	label          func(v float64) string // text of a cell; nil: none
}

// byHand is the largest number of cells that are drawn one by one. Larger matrices are drawn as an
// image.
const byHand = 700

// Plot implements plot.Plotter.
func (h *cells) Plot(c draw.Canvas, p *plot.Plot) {
	if rows, cols := h.m.Dims(); rows*cols > byHand {
		h.image(c, p)
	} else {
		h.boxes(c, p)
	}
}

// edge returns the start of row or column i of n.
func edge(from, to float64, i, n int) float64 { return from + (to-from)*float64(i)/float64(n) }

// boxes draws the cells one by one. Each reaches a little into the next ones, which are drawn over
// it, so that no gaps show.
func (h *cells) boxes(c draw.Canvas, p *plot.Plot) {
	const over = .4
	trX, trY := p.Transforms(&c)
	rows, cols := h.m.Dims()
	beyond := func(from, to, low, high vg.Length) vg.Length {
		if to < from {
			return max(to-over, low)
		}
		return min(to+over, high)
	}
	for i := range rows {
		y0, y1 := trY(edge(h.y0, h.y1, i, rows)), trY(edge(h.y0, h.y1, i+1, rows))
		for j := range cols {
			x0, x1 := trX(edge(h.x0, h.x1, j, cols)), trX(edge(h.x0, h.x1, j+1, cols))
			col := h.colors.at(h.m.At(i, j))
			fill(c, x0, beyond(x0, x1, c.Min.X, c.Max.X), y0, beyond(y0, y1, c.Min.Y, c.Max.Y), col)
			if h.label == nil || math.IsNaN(h.m.At(i, j)) {
				continue
			}
			style := text.Style{Color: color.Black, Font: canvas.Sans(8), XAlign: draw.XCenter, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
			if dark(col) {
				style.Color = color.White
			}
			c.FillText(style, vg.Point{X: (x0 + x1) / 2, Y: (y0 + y1) / 2}, h.label(h.m.At(i, j)))
		}
	}
}

// dark reports whether black text is hard to read on a colour.
func dark(c color.RGBA) bool { return .299*float64(c.R)+.587*float64(c.G)+.114*float64(c.B) < 128 }

// image draws the cells as one image, which is smaller than thousands of boxes.
func (h *cells) image(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	xa, xb, ya, yb := trX(h.x0), trX(h.x1), trY(h.y0), trY(h.y1)
	area := vg.Rectangle{Min: vg.Point{X: min(xa, xb), Y: min(ya, yb)}, Max: vg.Point{X: max(xa, xb), Y: max(ya, yb)}}
	size := area.Size()
	wide, high := int(math.Ceil(size.X.Dots(canvas.DPI))), int(math.Ceil(size.Y.Dots(canvas.DPI)))
	img := image.NewRGBA(image.Rect(0, 0, wide, high))
	rows, cols := h.m.Dims()
	for v := range high { // pixel row 0 is the top
		y := area.Max.Y - size.Y*vg.Length(float64(v)+.5)/vg.Length(high)
		i := min(int(float64(rows)*float64((y-ya)/(yb-ya))), rows-1)
		for u := range wide {
			x := area.Min.X + size.X*vg.Length(float64(u)+.5)/vg.Length(wide)
			j := min(int(float64(cols)*float64((x-xa)/(xb-xa))), cols-1)
			img.SetRGBA(u, v, h.colors.at(h.m.At(i, j)))
		}
	}
	c.DrawImage(area, img)
}

// DataRange implements plot.DataRanger.
func (h *cells) DataRange() (xmin, xmax, ymin, ymax float64) { return h.x0, h.x1, h.y0, h.y1 }

// matrix returns a panel of a matrix as it is written, with row 0 at the top. The labels of rows
// and columns may be nil, which means their numbers.
func matrix(title, x, y string, m mat.Matrix, colors *scale, columns, rows []string, label func(float64) string) *Panel {
	p := newPanel(title, x, y)
	r, c := m.Dims()
	p.Add(&cells{m: m, x0: -.5, x1: float64(c) - .5, y0: -.5, y1: float64(r) - .5, colors: colors, label: label})
	p.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}}
	p.X.Tick.Marker, p.Y.Tick.Marker = p.indices("column", c, columns), p.indices("row", r, rows)
	p.X.Width, p.Y.Width = 0, 0
	p.square = true
	return p
}

// indices returns ticks at 0, 1, ... n-1, with the given names or else with as many numbers as fit.
func (p *Panel) indices(what string, n int, names []string) plot.ConstantTicks {
	if names != nil && len(names) != n {
		p.fail(what, fmt.Errorf("got %d names, want %d", len(names), n))
		names = nil
	}
	step := 1
	for n/step > 9 {
		step *= 2
	}
	var t plot.ConstantTicks
	for i := range n {
		switch {
		case names != nil:
			t = append(t, plot.Tick{Value: float64(i), Label: names[i]})
		case i%step == 0:
			t = append(t, plot.Tick{Value: float64(i), Label: strconv.Itoa(i)})
		}
	}
	return t
}

// two formats a number with two decimals and without the leading 0.
func two(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	switch {
	case len(s) > 1 && s[0] == '0':
		return s[1:]
	case len(s) > 2 && s[:2] == "-0":
		return "-" + s[2:]
	}
	return s
}

// largest returns the largest finite absolute value of a matrix.
func largest(m mat.Matrix) float64 {
	r, c := m.Dims()
	top := 0.0
	for i := range r {
		for j := range c {
			if x := math.Abs(m.At(i, j)); x > top && !math.IsInf(x, 0) {
				top = x
			}
		}
	}
	return top
}
