package figures

import (
	"fmt"
	"image/color"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"attnlab/theory/gibbs"
	"attnlab/theory/hopfield"
)

// star returns the look of stored patterns.
func star() draw.GlyphStyle {
	return draw.GlyphStyle{Color: color.White, Radius: 4, Shape: draw.PyramidGlyph{}}
}

// plane returns a matrix of f over the square from -reach to reach, row 0 at the bottom.
func plane(reach float64, steps int, f func(x, y float64) float64) cells {
	m := mat.NewDense(steps, steps, nil)
	middle := func(i int) float64 { return reach * (float64(2*i+1)/float64(steps) - 1) }
	m.Apply(func(r, c int, _ float64) float64 { return f(middle(c), middle(r)) }, m)
	return cells{m: m, x0: -reach, x1: reach, y0: -reach, y1: reach}
}

// reachOf returns the distance from the centre that a picture of a memory in the plane must show.
func reachOf(m *hopfield.Modern, probes mat.Matrix) float64 {
	return 1.15 * max(largest(m.Keys), largest(probes))
}

// inPlane returns an error unless a memory has two dimensions.
func inPlane(m *hopfield.Modern) error {
	if _, d := m.Dims(); d != 2 {
		return fmt.Errorf("got patterns of %d numbers, want two for a map", d)
	}
	return nil
}

// HopfieldEnergy draws the energy of a memory in the plane with the paths of some probes, one in
// each row. Beside it are two functions along these paths: the energy, and the function that the
// source documents print, whose logarithm is not divided by beta (E-06).
func HopfieldEnergy(m *hopfield.Modern, probes mat.Matrix) Figure {
	f := Figure{
		Name: "hopfield-energy", Width: 24 * vg.Centimeter, Height: 7.5 * vg.Centimeter,
		Caption: fmt.Sprintf("The energy of a modern Hopfield network, beta = %.3g. Triangles are stored patterns, lines the paths of probes under the update, which is one step of attention. "+
			"The energy falls at each step; the printed function, whose logarithm is not divided by beta, can rise.", m.Beta),
	}
	left := newPanel("energy and retrieval", "x₀", "x₁")
	right := curves("E along the path", "update", "E")
	printed := curves("as printed (E-06)", "update", "½|x|² - log Σ exp(βk·x)")
	f.Rows = [][]*Panel{{left, right, printed}}
	if err := inPlane(m); err != nil {
		left.fail("energy", err)
		return f
	}
	heights := plane(reachOf(m, probes), 300, func(x, y float64) float64 { return m.Energy([]float64{x, y}) })
	heights.colors = depths(mat.Min(heights.m), mat.Max(heights.m))
	left.Add(&heights)
	left.bar, left.square = heights.colors, true
	n, _ := probes.Dims()
	longest := 0
	for i := range n {
		way := m.Settle(mat.Row(nil, i, probes), hopfield.Limit{Iterations: 12, Tolerance: 1e-3}).Path
		longest = max(longest, len(way)-1)
		var x, y, at, e, wrong []float64
		for t, s := range way {
			x, y, at = append(x, s[0]), append(y, s[1]), append(at, float64(t))
			e = append(e, m.Energy(s))
			wrong = append(wrong, floats.Dot(s, s)/2-gibbs.LogPartition(m.Overlaps(s), 1/m.Beta))
		}
		left.dotted("", x, y, hue(i+1))
		right.dotted("", at, e, hue(i+1))
		printed.dotted("", at, wrong, hue(i+1))
	}
	left.dots("", column(m.Keys, 0), column(m.Keys, 1), star())
	right.X.Tick.Marker, printed.X.Tick.Marker = right.indices("update", longest+1, nil), printed.indices("update", longest+1, nil)
	return f
}

// HopfieldProfile draws the energy along the line through two opposite patterns, at several inverse
// temperatures.
func HopfieldProfile(betas []float64) Figure {
	p := curves("", "x", "E + const")
	at := floats.Span(make([]float64, 201), -1.75, 1.75)
	for i, beta := range betas {
		m, err := hopfield.NewModern(mat.NewDense(2, 1, []float64{1, -1}), nil, beta)
		if err != nil {
			p.fail(fmt.Sprintf("β = %g", beta), err)
			continue
		}
		e := m.Landscape([]float64{0}, []float64{1}, at)
		floats.AddConst(m.Constant(), e)
		p.line(fmt.Sprintf("β = %g", beta), at, e, solid(hue(i)))
	}
	return Figure{
		Name: "hopfield-profile", Width: 15 * vg.Centimeter, Height: 8 * vg.Centimeter, Rows: [][]*Panel{{p}},
		Caption: "The energy between the two patterns +1 and -1. Up to beta = 1 there is one valley, between them, and retrieval ends in a mixture. Above, each pattern has its own.",
	}
}

// HopfieldBasins draws the pattern at which each state of the plane settles, at several inverse
// temperatures. A state that settles farther from every pattern than a fifth of the longest pattern
// is grey: it retrieves a mixture.
func HopfieldBasins(patterns mat.Matrix, betas []float64) Figure {
	f := Figure{
		Name: "hopfield-basins", Width: vg.Length(len(betas)) * 7 * vg.Centimeter, Height: 7 * vg.Centimeter, Rows: [][]*Panel{nil},
		Caption: "The end of retrieval: a state has the colour of the pattern (triangle) at which it settles, or grey for a mixture of patterns. A larger beta makes more basins.",
	}
	n, _ := patterns.Dims()
	var lights []color.RGBA
	longest := 0.0
	for i := range n {
		longest = max(longest, floats.Norm(mat.Row(nil, i, patterns), 2))
		lights = append(lights, mix(hue(i), color.RGBA{0xff, 0xff, 0xff, 0xff}, .45))
	}
	for _, beta := range betas {
		p := newPanel(fmt.Sprintf("β = %g", beta), "x₀", "x₁")
		f.Rows[0] = append(f.Rows[0], p)
		m, err := hopfield.NewModern(patterns, nil, beta)
		if err == nil {
			err = inPlane(m)
		}
		if err != nil {
			p.fail("basins", err)
			continue
		}
		far := longest / 5
		h := plane(1.5*largest(patterns), 80, func(x, y float64) float64 {
			end := m.Settle([]float64{x, y}, hopfield.Limit{Iterations: 60, Tolerance: 1e-4}).State
			j, r := m.Nearest(end)
			if r > far {
				return math.NaN()
			}
			return float64(j)
		})
		h.colors = &scale{min: 0, max: float64(n - 1), colors: lights}
		p.Add(&h)
		p.dots("", column(patterns, 0), column(patterns, 1), draw.GlyphStyle{Color: color.Black, Radius: 3.5, Shape: draw.PyramidGlyph{}})
		p.square = true
	}
	return f
}

// HopfieldCapacity stores growing numbers of random patterns in a classical network of the given
// spins and draws the share that it recalls.
func HopfieldCapacity(rng *rand.Rand, spins int, loads []float64) Figure {
	p := curves(fmt.Sprintf("%d spins", spins), "load M/N", "share")
	var at, recalled, fixed, bits, predicted []float64
	for _, load := range loads {
		m := max(int(math.Round(load*float64(spins))), 1)
		r, err := hopfield.BinaryTrial{Spins: spins, Networks: 10, Probes: 5}.Run(rng, m)
		if err != nil {
			p.fail("capacity", err)
			break
		}
		at = append(at, r.Load)
		recalled, fixed = append(recalled, r.Recalled), append(fixed, 1-r.NotFixed)
		bits, predicted = append(bits, r.WrongBits), append(predicted, hopfield.WrongBit(m, spins))
	}
	p.dotted("patterns recalled", at, recalled, hue(0))
	p.dotted("patterns fixed, bit for bit", at, fixed, hue(1))
	p.dotted("wrong bits", at, bits, hue(2))
	p.line("wrong bits, predicted", at, predicted, dashed(hue(2)))
	p.line("M = 0.138 N", []float64{.138, .138}, []float64{0, 1}, dashed(grey))
	return Figure{
		Name: "hopfield-capacity", Width: 17 * vg.Centimeter, Height: 8 * vg.Centimeter, Rows: [][]*Panel{{p}},
		Caption: "The share of patterns that a classical network recalls. Beyond some load memory breaks down at once; without a wrong bit the network stores much less. In small networks the knee is " +
			"rounded, and is a little above 0.138.",
	}
}
