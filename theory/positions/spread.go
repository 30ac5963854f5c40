package positions

import "math"

// A Score returns the score of a query at position m and a key at position n, given their contents.
type Score func(q, k []float64, m, n int) float64

// Spread measures how much a score depends on positions beyond their distance. It is the largest
// score less the smallest over the given shifts, which move the query and the key together. The
// query is the given distance behind the key. Spread is 0, up to rounding, for scores that depend
// on relative positions only.
func Spread(score Score, q, k []float64, distance int, shifts []int) float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, at := range shifts {
		s := score(q, k, at+distance, at)
		lo, hi = min(lo, s), max(hi, s)
	}
	return hi - lo
}
