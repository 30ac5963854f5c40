// Package picture draws the results of the examples, curves and matrices, as SVG and PNG files.
package picture

import (
	"fmt"
	"image/color"

	"attnlab/internal/canvas"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Curve is a line through points, with a name for the legend.
type Curve struct {
	Name   string
	X, Y   []float64
	Dashed bool
	Thin   bool // without dots
}

// A Chart is a frame with curves.
type Chart struct {
	Title, X, Y string
	LogX        bool    // logarithmic, with a tick at every x of the first curve
	Low, High   float64 // range of the vertical axis, if they differ
	Curves      []Curve
}

// frame returns an empty plot with fonts and a title.
func frame(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font, p.Title.Padding = canvas.Sans(11), 6
	p.Legend.TextStyle.Font, p.Legend.ThumbnailWidth = canvas.Sans(9), 24
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = canvas.Sans(10), canvas.Sans(9)
	}
	return p
}

// Plot returns the plot of the chart.
func (c *Chart) Plot() (*plot.Plot, error) {
	p := frame(c.Title, c.X, c.Y)
	if c.LogX && len(c.Curves) > 0 {
		p.X.Scale = plot.LogScale{}
		var ticks plot.ConstantTicks
		for _, x := range c.Curves[0].X {
			ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprint(x)})
		}
		p.X.Tick.Marker = ticks
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xd8}, color.Gray{0xd8}
	p.Add(grid)
	for i, curve := range c.Curves {
		if len(curve.X) == 0 || len(curve.X) != len(curve.Y) {
			return nil, fmt.Errorf("%s: curve %s: got %d values of y and %d of x, want as many of each, at least 1", c.Title, curve.Name, len(curve.Y), len(curve.X))
		}
		at := make(plotter.XYs, len(curve.X))
		for j, x := range curve.X {
			at[j] = plotter.XY{X: x, Y: curve.Y[j]}
		}
		line, dots, err := plotter.NewLinePoints(at)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", c.Title, curve.Name, err)
		}
		line.Color, line.Width = canvas.Colors[i%len(canvas.Colors)], 1.6
		if curve.Dashed {
			line.Dashes = []vg.Length{5, 3}
		}
		if curve.Thin {
			line.Width = 1
			p.Add(line)
			p.Legend.Add(curve.Name, line)
			continue
		}
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, 2.2
		p.Add(line, dots)
		p.Legend.Add(curve.Name, line, dots)
	}
	p.Legend.Top = true
	if c.Low != c.High {
		p.Y.Min, p.Y.Max = c.Low, c.High
	}
	return p, nil
}

// Matrix returns the plot of a matrix of numbers from 0, drawn white, to 1, drawn black. Row 0 is
// on top. Labels may be empty.
func Matrix(title string, rows [][]float64, left, below []string) *plot.Plot {
	p := frame(title, "", "")
	p.Title.TextStyle.Font = canvas.Sans(10)
	shades := moreland.Kindlmann()
	h := plotter.NewHeatMap(matrix(rows), palette.Reverse(shades).Palette(256))
	h.Min, h.Max = 0, 1
	p.Add(h)
	upward := make([]string, len(left)) // y grows upward, row numbers grow downward
	for i, s := range left {
		upward[len(left)-1-i] = s
	}
	for _, a := range []struct {
		axis   *plot.Axis
		labels []string
	}{{&p.X, below}, {&p.Y, upward}} {
		var ticks plot.ConstantTicks
		for i, s := range a.labels {
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: s})
		}
		a.axis.Tick.Marker, a.axis.Tick.Length, a.axis.Tick.Label.Font = ticks, 0, canvas.Sans(8)
		a.axis.LineStyle.Width = 0
	}
	return p
}

// matrix is a matrix as a grid, whose y grows upward.
type matrix [][]float64

// Dims returns the number of columns and of rows.
func (m matrix) Dims() (c, r int) { return len(m[0]), len(m) }

// Z returns a number of the matrix, clamped to the range of the colours.
func (m matrix) Z(c, r int) float64 { return min(max(m[len(m)-1-r][c], 0), 1) }

// X returns the place of a column.
func (m matrix) X(c int) float64 { return float64(c) }

// Y returns the place of a row.
func (m matrix) Y(r int) float64 { return float64(r) }

// Save draws a grid of plots into path.svg and path.png. A nil plot leaves its place empty.
func Save(path string, width, height vg.Length, plots [][]*plot.Plot) error {
	return canvas.Save(path, width, height, func(area draw.Canvas) error {
		tiles := draw.Tiles{Rows: len(plots), Cols: len(plots[0]), PadX: 10, PadY: 10}
		for i, row := range plot.Align(plots, tiles, area) {
			for j, place := range row {
				if p := plots[i][j]; p != nil {
					p.Draw(place)
				}
			}
		}
		return nil
	})
}
