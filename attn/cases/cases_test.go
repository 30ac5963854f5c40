package cases_test

import (
	"math"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// TestAll checks that the definition covers every case, that names are unique, and that building a
// case twice gives the same operands.
func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases.All() {
		if testing.Short() && !c.Core {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			if seen[c.String()] {
				t.Fatal("two cases have this name")
			}
			seen[c.String()] = true
			a, slab, err := c.Args()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := oracle.New(c.Problem, a); err != nil {
				t.Fatal(err)
			}
			_, again, _ := c.Args()
			if !slices.EqualFunc(slab, again, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
				t.Error("a second build differs")
			}
			cases.Outputs(a, func(name string, o *attn.Tensor) {
				cases.Rows(o, func(b, s, h int, row []float32) {
					if i := slices.IndexFunc(row, func(x float32) bool { return !cases.IsPoison(x) }); i >= 0 {
						t.Fatalf("%s[%d %d %d %d] is not poisoned", name, b, s, h, i)
					}
				})
			})
		})
	}
}
