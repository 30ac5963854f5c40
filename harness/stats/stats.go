// Package stats is the statistics of the lab: numbers in, numbers out. Nothing here assumes a
// distribution. Timings are skewed, have outliers and drift, so their centre is the median, its
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

// A Summary describes one sample. Lo and Hi are infinite where the sample is too small for an
// interval, which takes six values; with no values at all every number is NaN.
type Summary struct {
	N              int
	Median, Lo, Hi float64 // Lo and Hi are a confidence interval of the median
	Min            float64
}

// Summarise describes a sample and leaves it as it is.
func Summarise(xs []float64) Summary {
	if len(xs) == 0 {
		nan := math.NaN()
		return Summary{Median: nan, Lo: nan, Hi: nan, Min: nan}
	}
	s := benchmath.NewSample(slices.Clone(xs), &benchmath.DefaultThresholds)
	m := benchmath.AssumeNothing.Summary(s, Confidence)
	return Summary{N: len(xs), Median: m.Center, Lo: m.Lo, Hi: m.Hi, Min: s.Values[0]}
}

// Width is how far the interval reaches from the median to its farther end, relative to the median;
// +Inf without an interval.
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

// RankTest is the probability that two samples of one distribution would differ in rank as much as
// these do, by the Mann-Whitney U test. It is 1 when either is empty or all values are equal.
func RankTest(a, b []float64) float64 {
	sample := func(xs []float64) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(xs), &benchmath.DefaultThresholds)
	}
	return benchmath.AssumeNothing.Compare(sample(a), sample(b)).P
}

// LeastP is the smallest probability that RankTest can give for samples of these sizes without
// ties: that of complete separation. Where it exceeds the level asked for, no data could show a
// difference.
func LeastP(n, m int) float64 {
	if n < 1 || m < 1 {
		return 1
	}
	return min(1, 2*math.Exp(-combin.LogGeneralizedBinomial(float64(n+m), float64(n))))
}

// Delta is the relative change from old to new: 0.1 is ten per cent more. From zero to anything
// else it is infinite.
func Delta(old, new float64) float64 {
	if old == new {
		return 0
	}
	return (new - old) / math.Abs(old)
}

// Holm adjusts the probabilities of a family of tests so that comparing each with a level keeps the
// chance of even one false alarm in the family below that level, however the tests depend on each
// other.
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

// Slope fits log y = slope log x + c by least squares: the exponent in y = C x^slope. Points where
// either is not positive are left out; with fewer than two distinct x it is NaN.
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

// Number is nil for what JSON cannot say: NaN and the infinities.
func Number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
