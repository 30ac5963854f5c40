package gibbs

import "math"

// Mask returns the scores with -Inf in place of each score that show hides. A hidden score has no
// effect, even if it is NaN.
func Mask(s []float64, show func(j int) bool) []float64 {
	to := make([]float64, len(s))
	for j, x := range s {
		if to[j] = x; !show(j) {
			to[j] = math.Inf(-1)
		}
	}
	return to
}
