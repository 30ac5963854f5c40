// Package figures draws the mathematics of attention: weights and heads, temperature and entropy,
// masks, gradients, memories, positions and cost. Each function takes data and returns a Figure.
// All draws one of each from its own examples. The same data give the same picture, to the byte in
// SVG.
//
// Heat maps show matrices as they are written, with row 0 at the top. People with any colour vision
// can tell the colours apart: blues for nonnegative numbers, red to blue for numbers of both signs,
// and grey for hidden elements.
package figures

import (
	"fmt"
	"os"
	"path/filepath"

	"attnlab/internal/canvas"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Figure is a set of panels in rows.
type Figure struct {
	Name          string // name of its files, without folder and extension
	Caption       string // describes the picture and what to look at
	Width, Height vg.Length
	Rows          [][]*Panel
}

// Save draws the figure to NAME.svg and NAME.png in a folder, which it creates if needed.
func (f Figure) Save(dir string) error {
	if f.Name == "" || f.Width <= 0 || f.Height <= 0 {
		return fmt.Errorf("figures: got a figure of name %q and size %v by %v, want a name for its files and a positive size", f.Name, f.Width, f.Height)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("figure %s: %w; name a folder that can be written to", f.Name, err)
	}
	if err := canvas.Save(filepath.Join(dir, f.Name), f.Width, f.Height, f.Draw); err != nil {
		return fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return nil
}

// Draw draws the figure. Rows share its height evenly, and the panels of a row its width.
func (f Figure) Draw(c draw.Canvas) error {
	for r, row := range f.Rows {
		tiles := draw.Tiles{Cols: len(row), Rows: len(f.Rows), PadX: 14, PadY: 14}
		for i, p := range row {
			if p.err != nil {
				return p.err
			}
			p.draw(tiles.At(c, i, r))
		}
	}
	return nil
}

// grid arranges panels in rows of the given number of columns.
func grid(columns int, panels []*Panel) (rows [][]*Panel) {
	for len(panels) > columns {
		rows, panels = append(rows, panels[:columns]), panels[columns:]
	}
	// Empty panels make the panels of the last row as wide as the others.
	if len(rows) > 0 {
		for len(panels) < columns {
			panels = append(panels, new(Panel))
		}
	}
	return append(rows, panels)
}
