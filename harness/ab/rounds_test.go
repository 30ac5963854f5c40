package ab

import "testing"

// TestRoundsNeeded checks after which look a verdict is expected.
func TestRoundsNeeded(t *testing.T) {
	around := func(n int, median, reach float64) []float64 {
		r := make([]float64, n)
		for i := range r {
			r[i] = median + reach*(2*float64(i)/float64(n-1)-1)
		}
		return r
	}
	for _, c := range []struct {
		what   string
		ratios []float64
		want   int
	}{
		{"none yet", nil, 6},
		{"too few for an interval", around(4, 1, 0.001), 6},
		{"narrow", around(6, 1, 0.01), 6},
		{"twice too wide", around(6, 1, 0.039), 24},
		{"far too wide", around(6, 1, 0.5), 96},
		{"clearly slower", around(6, 1.1, 0.01), 12},
		{"clearly slower, at the last look", around(96, 1.1, 0.01), 96},
	} {
		if got := roundsNeeded(c.ratios, 0.02); got != c.want {
			t.Errorf("%s: %d rounds, want %d", c.what, got, c.want)
		}
	}
}
