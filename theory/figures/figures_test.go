package figures

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"attnlab/internal/canvas"
	"attnlab/theory/hopfield"
)

// power returns a curve that grows as a power of n.
func power(name string, exponent float64) Curve {
	c := Curve{Name: name}
	for n := 64.0; n <= 4096; n *= 2 {
		c.N, c.Value = append(c.N, n), append(c.Value, 1e-7*math.Pow(n, exponent))
	}
	return c
}

func all() []Figure {
	return slices.Collect(All(Measured{Seconds: []Curve{power("standard", 2), power("linear", 1)}, Bytes: []Curve{power("weights", 2)}}))
}

// once returns all figures, drawn only once.
var once = sync.OnceValue(all)

// svg returns a figure as SVG.
func svg(t *testing.T, f Figure) string {
	t.Helper()
	c := vgsvg.New(f.Width, f.Height)
	if err := f.Draw(draw.New(c)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAllAreDrawn checks that every figure has its own name, a caption and a picture.
func TestAllAreDrawn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	names := map[string]bool{}
	for i, f := range once() {
		if names[f.Name] {
			t.Errorf("two figures are called %s", f.Name)
		}
		names[f.Name] = true
		if testing.Short() && i%4 != 0 { // one of each way of drawing
			continue
		}
		if len(f.Caption) < 40 || !strings.HasSuffix(f.Caption, ".") {
			t.Errorf("%s: the caption is %q", f.Name, f.Caption)
		}
		if err := f.Save(dir); err != nil {
			t.Error(err)
			continue
		}
		file, err := os.ReadFile(filepath.Join(dir, f.Name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if want := f.Width.Dots(canvas.DPI); math.Abs(float64(img.Bounds().Dx())-want) > 1 {
			t.Errorf("%s is %d pixels wide, want %.0f", f.Name, img.Bounds().Dx(), want)
		}
		colours, ink := inkOf(img)
		if colours < 12 || ink < .02 || ink > .95 {
			t.Errorf("%s has %d colours, and %.1f%% of it is not white", f.Name, colours, 100*ink)
		}
		file, err = os.ReadFile(filepath.Join(dir, f.Name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		if s := string(file); !strings.Contains(s, "<svg") || strings.Count(s, "<text") < 8 {
			t.Errorf("%s.svg is no picture with labels", f.Name)
		}
	}
	if len(names) != 15 {
		t.Errorf("%d figures, want 15", len(names))
	}
}

// inkOf returns the number of colours of a picture, and the share of it that is not white.
func inkOf(img image.Image) (colours int, ink float64) {
	seen := map[color.RGBA]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			seen[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	white := seen[color.RGBA{0xff, 0xff, 0xff, 0xff}]
	return len(seen), 1 - float64(white)/float64(b.Dx()*b.Dy())
}

// TestSameBytes checks that the same data give the same bytes, however often they are drawn.
func TestSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("draws every figure three times")
	}
	first, second := once(), all()
	for i, f := range first {
		drawn := svg(t, f)
		if again := svg(t, f); again != drawn {
			t.Errorf("%s differs when the same figure is drawn twice", f.Name)
		}
		if other := svg(t, second[i]); other != drawn {
			t.Errorf("%s differs from one time to the next", f.Name)
		}
	}
}

// TestComplexityNamesTheSlope checks that the legend has the fitted exponents, and that there is no
// panel without curves.
func TestComplexityNamesTheSlope(t *testing.T) {
	s := svg(t, Complexity([]Curve{power("standard", 2), power("linear", 1)}, nil))
	for _, want := range []string{"standard: n^2.00", "linear: n^1.00", "seconds"} {
		if !strings.Contains(s, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
	if strings.Contains(s, "bytes") {
		t.Error("a panel for memory, of which there is nothing")
	}
}

// TestErrorsSayWhatToDo checks that bad data are refused with an error that says what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	three, err := hopfield.NewModern(mat.NewDense(2, 3, nil), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	falling := power("falling", 1)
	falling.N[0] = 1e9
	for name, c := range map[string]struct {
		f    Figure
		says string
	}{
		"no name":      {Figure{Width: 1, Height: 1}, "want a name"},
		"no size":      {Figure{Name: "x"}, "and a positive size"},
		"length 0":     {Complexity([]Curve{{"k", []float64{0, 1}, []float64{1, 1}}}, nil), "want positive numbers"},
		"one length":   {Complexity([]Curve{{"k", []float64{1}, []float64{1}}}, nil), "two or more of each"},
		"order":        {Complexity([]Curve{falling}, nil), "sort them"},
		"three dims":   {HopfieldEnergy(three, mat.NewDense(1, 3, nil)), "want two for a map"},
		"basins":       {HopfieldBasins(mat.NewDense(2, 3, nil), []float64{1}), "want two for a map"},
		"beta":         {HopfieldProfile([]float64{-1}), "want a positive number"},
		"one key":      {EntropyDistribution([]string{"a"}, [][]float64{{0}}, 1), "want two or more"},
		"no rows":      {EntropyDistribution([]string{"a"}, [][]float64{nil}, 4), "no entropies"},
		"mask":         {Masks([]Mask{{"m", ""}}), "empty picture"},
		"not a number": {Shifts([]float64{1}, []float64{1}, 1, 3, []Scheme{{"bad", func(_, _ []float64, _, _ int) float64 { return math.NaN() }}}), "finite numbers"},
	} {
		if err := c.f.Save(t.TempDir()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := TemperatureSweep([]float64{1, 0}).Save(file); err == nil || !strings.Contains(err.Error(), "name a folder") {
		t.Errorf("a file in place of the folder: error %v", err)
	}
}

// TestCellsStandAsWritten checks the position of cells: a matrix with one dark element, in each of
// its corners.
func TestCellsStandAsWritten(t *testing.T) {
	for _, n := range []int{4, 40} { // as boxes, and as an image
		for _, corner := range []struct{ i, j int }{{0, 0}, {0, n - 1}, {n - 1, 0}, {n - 1, n - 1}} {
			m := mat.NewDense(n, n, nil)
			m.Set(corner.i, corner.j, 1)
			f := Figure{Name: "corner", Width: 200, Height: 200, Rows: [][]*Panel{{matrix("", "", "", m, blues(1), nil, nil, nil)}}}
			dir := t.TempDir()
			if err := f.Save(dir); err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(filepath.Join(dir, "corner.png"))
			if err != nil {
				t.Fatal(err)
			}
			img, err := png.Decode(file)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			x, y, count := 0.0, 0.0, 0.0
			for v := range img.Bounds().Dy() {
				for u := range img.Bounds().Dx() {
					// Count the pixels of the darkest blue.
					if c := color.RGBAModel.Convert(img.At(u, v)).(color.RGBA); int(c.B)-int(c.R) > 60 {
						x, y, count = x+float64(u), y+float64(v), count+1
					}
				}
			}
			if count == 0 {
				t.Fatalf("%d by %d: no dark cell", n, n)
			}
			middle := float64(img.Bounds().Dx()) / 2
			if right, low := x/count > middle, y/count > middle; right != (corner.j > 0) || low != (corner.i > 0) {
				t.Errorf("%d by %d: element %d,%d is drawn at %.0f,%.0f from the left and the top", n, n, corner.i, corner.j, x/count, y/count)
			}
		}
	}
}

// TestTwoDecimals checks the format of numbers in cells.
func TestTwoDecimals(t *testing.T) {
	for x, want := range map[float64]string{.401: ".40", -.2: "-.20", 1: "1.00", -1.5: "-1.50", 0: ".00"} {
		if got := two(x); got != want {
			t.Errorf("%v is written %q, want %q", x, got, want)
		}
	}
}
