package gibbs

import "math"

// Mask returns the scores with -Inf for those that show does not show. It selects: what stands
// behind it, NaN included, is gone.
func Mask(s []float64, show func(j int) bool) []float64 {
	to := make([]float64, len(s))
	for j, x := range s {
		if to[j] = x; !show(j) {
			to[j] = math.Inf(-1)
		}
	}
	return to
}
