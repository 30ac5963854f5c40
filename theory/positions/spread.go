package positions

import "math"

// A Score is the score of a query at position m and a key at position n, given their contents.
type Score func(q, k []float64, m, n int) float64

// Spread is how much a score tells of where two rows stand beyond how far they are apart: its
// largest value less its smallest over the given shifts of both rows together, of which the query
// stands so far behind the key. It is 0, but for rounding, for scores that keep relative positions
// and nothing else.
func Spread(score Score, q, k []float64, distance int, shifts []int) float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, at := range shifts {
		s := score(q, k, at+distance, at)
		lo, hi = min(lo, s), max(hi, s)
	}
	return hi - lo
}
