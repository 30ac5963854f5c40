// Package canvas paints the pictures of this module. It sets their background, fonts and colours,
// and writes their files.
package canvas

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colors is the palette of Okabe and Ito, which people with any colour vision can tell apart. It
// omits their yellow, which cannot be seen on white.
var Colors = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff},
	{0xd5, 0x5e, 0x00, 0xff},
	{0x00, 0x9e, 0x73, 0xff},
	{0xcc, 0x79, 0xa7, 0xff},
	{0xe6, 0x9f, 0x00, 0xff},
	{0x56, 0xb4, 0xe9, 0xff},
	{0x00, 0x00, 0x00, 0xff},
}

// DPI is the resolution of PNG files.
const DPI = 150

// Sans returns the font of all text in the given size.
func Sans(size font.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
}

// Save paints a picture as SVG and as PNG, and writes path.svg and path.png.
func Save(path string, w, h vg.Length, paint func(draw.Canvas) error) error {
	svg := vgsvg.New(w, h)
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(DPI))}
	for _, f := range []struct {
		canvas vg.CanvasSizer
		ext    string
		out    io.WriterTo
	}{{svg, ".svg", svg}, {png, ".png", png}} {
		if err := paintOn(f.canvas, paint); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := write(path+f.ext, f.out); err != nil {
			return fmt.Errorf("%w; choose a folder that can be written to", err)
		}
	}
	return nil
}

// SVG returns the SVG of a picture, painted on white inside a margin.
func SVG(w, h vg.Length, paint func(draw.Canvas) error) ([]byte, error) {
	svg := vgsvg.New(w, h)
	if err := paintOn(svg, paint); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := svg.WriteTo(&b)
	return b.Bytes(), err
}

// paintOn fills a canvas with white and paints inside its margin.
func paintOn(c vg.CanvasSizer, paint func(draw.Canvas) error) error {
	area := draw.New(c)
	area.SetColor(color.White)
	area.Fill(area.Path())
	return paint(draw.Crop(area, margin, -margin, margin, -margin))
}

const margin = 8

func write(path string, from io.WriterTo) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	_, err = from.WriteTo(f)
	return err
}
