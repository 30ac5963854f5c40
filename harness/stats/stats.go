// Package stats has the statistics of the lab: numbers in, numbers out. None assumes a
// distribution. Timings are skewed, have outliers and drift. So their centre is the median, its
// interval comes from order statistics, and two samples are compared by rank.
package stats

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/combin"
)

// Confidence is the level of every interval.
const Confidence = 0.95

// A Summary describes one sample. Without values every number is NaN.
type Summary struct {
	N int
	// Lo and Hi are a confidence interval of the median. They are infinite below six values, which
	// have none.
	Median, Lo, Hi float64
	Min            float64
}

// Summarise describes a sample, which it does not change.
func Summarise(xs []float64) Summary {
	if len(xs) == 0 {
		nan := math.NaN()
		return Summary{Median: nan, Lo: nan, Hi: nan, Min: nan}
	}
	s := benchmath.NewSample(slices.Clone(xs), &benchmath.DefaultThresholds)
	m := benchmath.AssumeNothing.Summary(s, Confidence)
	return Summary{N: len(xs), Median: m.Center, Lo: m.Lo, Hi: m.Hi, Min: s.Values[0]}
}

// Width returns the distance from the median to the farther end of its interval, relative to the
// median; +Inf without an interval.
func (s Summary) Width() float64 {
	w := max(s.Hi-s.Median, s.Median-s.Lo) / math.Abs(s.Median)
	if math.IsNaN(w) { // no values, or all of them zero
		if s.N > 0 && s.Lo == s.Hi {
			return 0
		}
		return math.Inf(1)
	}
	return w
}

// RankTest returns the probability that two samples of one distribution differ in rank as much as
// these, by the Mann-Whitney U test. It is 1 if either is empty or all values are equal.
func RankTest(a, b []float64) float64 {
	sample := func(xs []float64) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(xs), &benchmath.DefaultThresholds)
	}
	return benchmath.AssumeNothing.Compare(sample(a), sample(b)).P
}

// LeastP returns the smallest probability that RankTest gives for samples of these sizes without
// ties, which is that of complete separation. If it exceeds the level asked for, no data show a
// difference.
func LeastP(n, m int) float64 {
	if n < 1 || m < 1 {
		return 1
	}
	return min(1, 2*math.Exp(-combin.LogGeneralizedBinomial(float64(n+m), float64(n))))
}

// Delta returns the relative change from old to new: 0.1 is ten per cent more. From zero to
// anything else it is infinite.
func Delta(old, new float64) float64 {
	if old == new {
		return 0
	}
	return (new - old) / math.Abs(old)
}

// Holm adjusts the probabilities of a family of tests. If each is compared with a level, the chance
// of any false alarm in the family is below that level, however the tests depend on each other.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if p[a] < p[b] {
			return -1
		}
		return 1
	})
	adjusted := make([]float64, len(p))
	floor := 0.0
	for rank, i := range order {
		floor = max(floor, min(1, p[i]*float64(len(p)-rank)))
		adjusted[i] = floor
	}
	return adjusted
}

// Slope returns the exponent in y = C x^slope, fitted by least squares of the logarithms. It leaves
// out points that are not positive; with fewer than two distinct x it is NaN.
func Slope(x, y []float64) float64 {
	var lx, ly []float64
	for i := range x {
		if x[i] > 0 && y[i] > 0 && !math.IsInf(x[i], 0) && !math.IsInf(y[i], 0) {
			lx, ly = append(lx, math.Log(x[i])), append(ly, math.Log(y[i]))
		}
	}
	if len(lx) < 2 || slices.Min(lx) == slices.Max(lx) {
		return math.NaN()
	}
	_, slope := stat.LinearRegression(lx, ly, nil, false)
	return slope
}

// Number returns x for JSON, which has no NaN and no infinities: nil for these.
func Number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
