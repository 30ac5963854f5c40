package figures_test

import (
	"fmt"
	"os"
	"path/filepath"

	"attnlab/theory/figures"
)

// All draws every figure; the break stops after the first one. Save writes SVG and PNG. A command
// that has measured curves passes them to All.
func ExampleAll() {
	dir, err := os.MkdirTemp("", "figures")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for f := range figures.All(figures.Measured{}) {
		if err := f.Save(dir); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(f.Name)
		break // one is enough here
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	// Output:
	// attention
	// attention.png
	// attention.svg
}
