package oracle

import "testing"

// TestAhead checks the sums over a chunk against their definition.
func TestAhead(t *testing.T) {
	for _, n := range []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk + 5} {
		for width := 1; width <= 3; width++ {
			x := make([]float64, n*width)
			for i := range x {
				x[i] = float64(i*i%17 + 1)
			}
			for i, got := range ahead(x, width) {
				want := 0.0
				for j := i; j < len(x) && j < i+chunk*width; j += width {
					want += x[j]
				}
				if got != want {
					t.Fatalf("%d rows of %d: sum %d is %v, want %v", n, width, i, got, want)
				}
			}
		}
	}
}
