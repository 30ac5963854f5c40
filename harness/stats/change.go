package stats

import (
	"math"
	"slices"
)

// ChangeLevel is the level of the rank test that confirms a change point. It is far below that of a
// single test, because the split is the best of many. In series of one distribution, of 20 to 200
// values, ChangePoints finds a change in less than one of a hundred (TestChangePoints).
const ChangeLevel = 1e-4

// ChangePoints returns the indices at which the distribution of a series changes, in order. It
// splits a stretch where the energy distance of its two parts is largest, if they differ by
// RankTest at ChangeLevel, and then does the same with each part. This is E-divisive, with a rank
// test in place of its permutation test. It does not find a change of spread alone.
func ChangePoints(xs []float64) []int {
	var found []int
	var split func(from, to int)
	split = func(from, to int) {
		at := from + bestSplit(xs[from:to])
		if at == from || RankTest(xs[from:at], xs[at:to]) > ChangeLevel {
			return
		}
		split(from, at)
		found = append(found, at)
		split(at, to)
	}
	split(0, len(xs))
	return found
}

// leastStretch is the fewest values between two change points. With fewer, a single outlier would
// be a stretch.
const leastStretch = 4

// bestSplit returns the index at which the energy distance of the two parts of a series is largest,
// 0 if the series is too short. With n values x before the index and m values y after it, that is
//
//	nm/(n+m) (2 mean |x-y| - mean |x-x'| - mean |y-y'|)
//
// The sums over pairs are updated as each value moves from the right part to the left one.
func bestSplit(xs []float64) int {
	n := len(xs)
	if n < 2*leastStretch {
		return 0
	}
	left, right, across := 0.0, 0.0, 0.0 // sums over pairs, each counted once
	for i, x := range xs {
		for _, y := range xs[i+1:] {
			right += math.Abs(x - y)
		}
	}
	best, at := 0.0, 0
	for k, x := range xs[:n-leastStretch] {
		toLeft, toRight := 0.0, 0.0
		for _, y := range xs[:k] {
			toLeft += math.Abs(x - y)
		}
		for _, y := range xs[k+1:] {
			toRight += math.Abs(x - y)
		}
		left += toLeft
		right -= toRight
		across += toRight - toLeft
		if k+1 < leastStretch {
			continue
		}
		p, q := float64(k+1), float64(n-k-1)
		if e := p * q / (p + q) * (2*across/(p*q) - 2*left/(p*p) - 2*right/(q*q)); e > best {
			best, at = e, k+1
		}
	}
	return at
}

// Levels returns the median of each stretch of a series between its change points.
func Levels(xs []float64, changes []int) []float64 {
	var medians []float64
	from := 0
	for _, to := range append(slices.Clone(changes), len(xs)) {
		medians = append(medians, Summarise(xs[from:to]).Median)
		from = to
	}
	return medians
}
