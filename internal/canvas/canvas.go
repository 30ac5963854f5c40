// Package canvas is what all pictures of this module have in common: their files, their ground,
// their letters and their colours.
package canvas

import (
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

// Colors are Okabe and Ito's, which people with any colour vision can tell apart, without their
// yellow, which white swallows.
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

// Sans is the letters' font in a size.
func Sans(size font.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
}

// Save has one picture painted twice on white, with a margin, and written to path.svg and path.png.
func Save(path string, w, h vg.Length, paint func(draw.Canvas) error) error {
	svg := vgsvg.New(w, h)
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(DPI))}
	for _, f := range []struct {
		canvas vg.CanvasSizer
		ext    string
		out    io.WriterTo
	}{{svg, ".svg", svg}, {png, ".png", png}} {
		area := draw.New(f.canvas)
		area.SetColor(color.White)
		area.Fill(area.Path())
		if err := paint(draw.Crop(area, margin, -margin, margin, -margin)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := write(path+f.ext, f.out); err != nil {
			return fmt.Errorf("%w; name a folder that can be written to", err)
		}
	}
	return nil
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
