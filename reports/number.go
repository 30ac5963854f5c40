package reports

import (
	"math"
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"

	"attnlab/harness/run"
)

// positive turns what is not a positive number into an unknown one.
func positive(x float64) float64 {
	if !(x > 0) {
		return math.NaN()
	}
	return x
}

// scaled writes a quantity with a prefix that fits it, and nothing where it is unknown.
func scaled(x float64, unit string, class benchunit.Class) string {
	if !run.Known(x) {
		return ""
	}
	if x == 0 {
		return "0 " + unit
	}
	s := benchunit.Scale(x, class)
	digits := strings.TrimRight(s, "nµmkMGTi"+"K")
	return digits + " " + s[len(digits):] + unit
}

// seconds writes a time given in nanoseconds.
func seconds(ns float64) string { return scaled(ns/1e9, "s", benchunit.Decimal) }

// size writes a number of bytes.
func size(b float64) string { return scaled(b, "B", benchunit.Binary) }

// thousands writes a large number.
func thousands(x float64) string { return strings.TrimSpace(scaled(x, "", benchunit.Decimal)) }

// digits writes a number with so many significant digits, whole ones with one more, and nothing
// where it is unknown.
func digits(x float64, n int) string {
	if !run.Known(x) {
		return ""
	}
	if x != 0 && math.Abs(x) < math.Pow(10, float64(n+1)) && math.Abs(x) >= 1e-3 {
		places := n - 1 - int(math.Floor(math.Log10(math.Abs(x))))
		return strconv.FormatFloat(x, 'f', max(places, 0), 64)
	}
	return strconv.FormatFloat(x, 'g', n, 64)
}

// whole writes a count, and nothing where it is unknown.
func whole(x float64) string {
	if !run.Known(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}

// percent writes a fraction.
func percent(x float64) string {
	if !run.Known(x) {
		return ""
	}
	return digits(100*x, 3) + " %"
}

// within writes how far an interval reaches from its centre: ± 1.2 %.
func within(centre, lo, hi float64) string {
	if !run.Known(lo) || !run.Known(hi) {
		return ""
	}
	return "± " + digits(100*max(hi/centre-1, 1-lo/centre), 2) + " %"
}

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "one " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
