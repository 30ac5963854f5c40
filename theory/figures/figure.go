// Package figures draws the mathematics of attention: weights and heads, temperature and entropy,
// masks, gradients, memories, positions, cost. Each function takes data and returns a Figure, and
// All draws one of each from examples of its own. The same data give the same picture, to the byte
// in SVG.
//
// Heat maps of matrices stand as matrices are written, with row 0 at the top. Colours are ones that
// people with any colour vision can tell apart: blues for numbers from 0 on, red to blue for
// numbers of both signs, and grey for what is hidden.
package figures

import (
	"fmt"
	"os"
	"path/filepath"

	"attnlab/internal/canvas"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Figure is panels in rows.
type Figure struct {
	Name          string // of its files, without folder and extension
	Caption       string // what is seen, and what to look at
	Width, Height vg.Length
	Rows          [][]*Panel
}

// Save draws the figure to NAME.svg and NAME.png in a folder, which it makes if there is none.
func (f Figure) Save(dir string) error {
	if f.Name == "" || f.Width <= 0 || f.Height <= 0 {
		return fmt.Errorf("figures: a figure of name %q and size %v by %v; give it a name for its files, and a size", f.Name, f.Width, f.Height)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("figure %s: %w; name a folder that can be written to", f.Name, err)
	}
	if err := canvas.Save(filepath.Join(dir, f.Name), f.Width, f.Height, f.Draw); err != nil {
		return fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return nil
}

// Draw draws the figure: rows share the height evenly, panels of a row its width.
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

// grid puts panels in rows of so many.
func grid(columns int, panels []*Panel) (rows [][]*Panel) {
	for len(panels) > columns {
		rows, panels = append(rows, panels[:columns]), panels[columns:]
	}
	if len(rows) > 0 { // so that panels of the last row are as wide as the others
		for len(panels) < columns {
			panels = append(panels, new(Panel))
		}
	}
	return append(rows, panels)
}
