package figures

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot/vg"

	"attnlab/theory/positions"
)

// Encodings draws the sinusoidal encodings of positions and their inner products.
func Encodings(count, dim int) Figure {
	table := positions.Sinusoid{Dim: dim}.Table(count)
	t := matrix("encodings", "column", "position", table, signs(1), nil, nil, nil)
	t.bar, t.square = signs(1), false

	var products mat.Dense
	products.Mul(table, table.T())
	g := matrix("inner products", "position", "position", &products, signs(largest(&products)), nil, nil, nil)
	g.bar = signs(largest(&products))

	p := curves("inner products by distance", "distance", "product / product with itself")
	distance := floats.Span(make([]float64, count), 0, float64(count-1))
	for i, d := range []int{8, 32, 128} {
		s := positions.Sinusoid{Dim: d}
		y := make([]float64, count)
		for k, x := range distance {
			y[k] = s.Product(x) / s.Product(0)
		}
		p.line(fmt.Sprintf("d = %d", d), distance, y, solid(hue(i)))
	}
	return Figure{
		Name: "positions", Width: 25 * vg.Centimeter, Height: 7 * vg.Centimeter, Rows: [][]*Panel{{t, g, p}},
		Caption: "Sinusoidal encodings. Each pair of columns is a clock hand, each slower than the one before. Inner products depend on the distance alone, so their matrix is constant along each " +
			"diagonal, and they cannot tell before from after.",
	}
}

// A Scheme is a named way to include positions in a score.
type Scheme struct {
	Name  string
	Score positions.Score
}

// Shifts draws the score of a query and a key at a fixed distance against their position. It is
// flat for schemes that depend on relative positions alone. The mean of each curve is subtracted,
// so that curves can be compared.
func Shifts(q, k []float64, distance, upTo int, schemes []Scheme) Figure {
	p := curves(fmt.Sprintf("query and key %d apart", distance), "position of the key", "score, less its mean")
	at := floats.Span(make([]float64, upTo), 0, float64(upTo-1))
	for i, s := range schemes {
		y := make([]float64, upTo)
		for n := range y {
			y[n] = s.Score(q, k, n+distance, n)
		}
		floats.AddConst(-floats.Sum(y)/float64(upTo), y)
		look := solid(hue(i))
		if i > 0 { // flat lines overlap
			look.Dashes = []vg.Length{6, vg.Length(4 * i)}
			look.Width += .4
		}
		p.line(s.Name, at, y, look)
	}
	return Figure{
		Name: "shifts", Width: 17 * vg.Centimeter, Height: 7 * vg.Centimeter, Rows: [][]*Panel{{p}},
		Caption: "Does a score keep the relative position and nothing else? A rotation of queries and keys does, and so does a bias by distance. Encodings that are added to the contents do not: the products " +
			"of content and encoding depend on the positions themselves.",
	}
}
