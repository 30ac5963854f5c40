// Package scalar computes attention by definition in float32, one query and one key at a time.
// Package naive is built on it. Kernels that work in blocks use it for rows whose scores, sums or
// operands are not finite.
//
//	             one pair      one query and all its keys
//	forward      Scorer        Row
//	backward     Gradient      RowGradient
//
// Each value is the scratch of one worker. It is allocated with a plan and moved from query to
// query; what it returns is valid until it moves.
package scalar

import "math"

var inf = float32(math.Inf(1))

// dot returns the inner product of x and the first len(x) numbers of y.
func dot(x, y []float32) float32 {
	sum := float32(0)
	for i, a := range x {
		sum += float32(a * y[i])
	}
	return sum
}

// add adds w times from to to.
func add(to []float32, w float32, from []float32) {
	for i, x := range from {
		to[i] += float32(w * x)
	}
}

// finite reports whether no number is NaN or an infinity.
func finite(x []float32) bool {
	for _, x := range x {
		if x-x != 0 {
			return false
		}
	}
	return true
}
