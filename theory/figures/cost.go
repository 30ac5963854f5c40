package figures

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot/vg"
)

// A Curve is a quantity as a function of sequence length, shortest first.
type Curve struct {
	Name     string
	N, Value []float64
}

// drawable returns an error if the curve has no logarithms.
func (c Curve) drawable() error {
	if len(c.N) != len(c.Value) || len(c.N) < 2 {
		return fmt.Errorf("got %d lengths and %d values, want two or more of each", len(c.N), len(c.Value))
	}
	for i, n := range c.N {
		if v := c.Value[i]; !(n > 0 && v > 0) || math.IsInf(n, 1) || math.IsInf(v, 1) {
			return fmt.Errorf("got %v at length %v, want positive numbers, leave others out", v, n)
		}
		if i > 0 && n <= c.N[i-1] {
			return fmt.Errorf("got length %v after %v, want increasing lengths, sort them", n, c.N[i-1])
		}
	}
	return nil
}

// slope returns the exponent of n, fitted to the longer half of the lengths, because overheads
// distort short ones.
func (c Curve) slope() float64 {
	from := min(len(c.N)/2, len(c.N)-2)
	var x, y []float64
	for i := from; i < len(c.N); i++ {
		x, y = append(x, math.Log(c.N[i])), append(y, math.Log(c.Value[i]))
	}
	_, slope := stat.LinearRegression(x, y, nil, false)
	return slope
}

// Complexity draws measured curves on logarithmic axes, each with its slope, beside guides that
// grow as n and as n². Seconds or bytes may be empty.
func Complexity(seconds, bytes []Curve) Figure {
	f := Figure{
		Name: "complexity", Height: 9 * vg.Centimeter, Rows: [][]*Panel{nil},
		Caption: "Cost against sequence length, on logarithmic axes: a power of n is a straight line, and its exponent the slope, fitted to the longer half of the lengths. Dashed lines " +
			"grow as n and as n².",
	}
	for _, kind := range []struct {
		title, y string
		curves   []Curve
	}{{"time", "seconds", seconds}, {"memory", "bytes", bytes}} {
		if len(kind.curves) == 0 {
			continue
		}
		p := curves(kind.title, "sequence length n", kind.y).logX().logY()
		f.Rows[0] = append(f.Rows[0], p)
		for i, c := range kind.curves {
			if err := c.drawable(); err != nil {
				p.fail(c.Name, err)
				continue
			}
			p.dotted(fmt.Sprintf("%s: n^%.2f", c.Name, c.slope()), c.N, c.Value, hue(i))
		}
		if p.err == nil {
			p.guides(kind.curves)
		}
	}
	f.Width = vg.Length(len(f.Rows[0])) * 13 * vg.Centimeter
	return f
}

// guides adds lines that grow as n and as n² from the lowest point at the shortest length. It clips
// them to the range of the curves.
func (p *Panel) guides(curves []Curve) {
	low, high := p.Y.Min, p.Y.Max
	n0, n1 := p.X.Min, p.X.Max
	for _, g := range []struct {
		name  string
		power func(float64) float64
		color color.Color
	}{
		{"as n", func(x float64) float64 { return x }, grey}, {"as n²", func(x float64) float64 { return x * x }, color.Black},
	} {
		var x, y []float64
		for _, n := range floats.LogSpan(make([]float64, 60), n0, n1) {
			if v := low * g.power(n/n0); v <= high {
				x, y = append(x, n), append(y, v)
			}
		}
		p.line(g.name, x, y, dashed(g.color))
	}
}
