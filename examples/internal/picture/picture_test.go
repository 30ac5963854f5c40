package picture

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// TestSave checks that the SVG of a chart and a matrix has their words, and that the PNG has the
// colours of the curve and of the weights. It also checks the errors of an empty curve and of a
// missing folder.
func TestSave(t *testing.T) {
	c := Chart{Title: "Rising", X: "keys", Y: "part", LogX: true, Low: 0, High: 1, Curves: []Curve{
		{Name: "up", X: []float64{4, 8, 16}, Y: []float64{.1, .5, .9}}, {Name: "level", X: []float64{4, 16}, Y: []float64{.5, .5}, Dashed: true, Thin: true},
	}}
	p, err := c.Plot()
	if err != nil {
		t.Fatal(err)
	}
	m := Matrix("Weights", [][]float64{{1, 0}, {.25, .75}}, []string{"q0", "q1"}, []string{"k0", "k1"})
	path := filepath.Join(t.TempDir(), "picture")
	if err := Save(path, 20*vg.Centimeter, 8*vg.Centimeter, [][]*plot.Plot{{p, m, nil}}); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"Rising", "keys", "part", "up", "level", ">4<", ">16<", "Weights", "q1", "k0"} {
		if !strings.Contains(string(svg), word) {
			t.Errorf("%q is not in the picture", word)
		}
	}
	f, err := os.Open(path + ".png")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	blue, black := 0, 0
	for x := range image.Bounds().Dx() {
		for y := range image.Bounds().Dy() {
			switch r, g, b, _ := image.At(x, y).RGBA(); {
			case r>>8 == 0x00 && g>>8 == 0x72 && b>>8 == 0xb2:
				blue++
			case r+g+b == 0:
				black++
			}
		}
	}
	if blue < 50 || black < 1000 {
		t.Errorf("got %d pixels of the first curve's colour and %d black ones, want at least 50 and 1000", blue, black)
	}
	if _, err := (&Chart{Curves: []Curve{{Name: "nothing"}}}).Plot(); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a curve without points: %v", err)
	}
	if err := Save(filepath.Join(path, "nowhere"), vg.Centimeter, vg.Centimeter, [][]*plot.Plot{{p}}); err == nil {
		t.Error("saved into a missing folder: no error")
	}
}

// TestMatrix checks that row 0 of a matrix has the largest y, and that numbers are clamped to the
// range of the colours.
func TestMatrix(t *testing.T) {
	m := matrix{{.5, -1, 2}, {.1, .2, .3}}
	if c, r := m.Dims(); c != 3 || r != 2 {
		t.Fatalf("%d columns and %d rows", c, r)
	}
	if m.Z(0, 1) != .5 || m.Z(2, 0) != .3 || m.Z(1, 1) != 0 || m.Z(2, 1) != 1 {
		t.Errorf("%v, %v, %v, %v", m.Z(0, 1), m.Z(2, 0), m.Z(1, 1), m.Z(2, 1))
	}
}
