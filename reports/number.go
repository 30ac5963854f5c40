package reports

import (
	"math"
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"

	"attnlab/harness/run"
)

// positive returns x, or NaN if x is not positive.
func positive(x float64) float64 {
	if !(x > 0) {
		return math.NaN()
	}
	return x
}

// scaled formats a quantity with a fitting prefix of its unit. It returns an empty text where x is
// unknown.
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

// seconds formats a time that is given in nanoseconds.
func seconds(ns float64) string { return scaled(ns/1e9, "s", benchunit.Decimal) }

// size formats a number of bytes.
func size(b float64) string { return scaled(b, "B", benchunit.Binary) }

// thousands formats a large number.
func thousands(x float64) string { return strings.TrimSpace(scaled(x, "", benchunit.Decimal)) }

// digits formats a number with n significant digits, or n+1 where these are all before the point.
// It returns an empty text where x is unknown.
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

// whole formats a count. It returns an empty text where x is unknown.
func whole(x float64) string {
	if !run.Known(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}

// percent formats a fraction.
func percent(x float64) string {
	if !run.Known(x) {
		return ""
	}
	return digits(100*x, 3) + " %"
}

// within formats the distance from the centre of an interval to its farther end: ± 1.2 %.
func within(centre, lo, hi float64) string {
	if !run.Known(lo) || !run.Known(hi) {
		return ""
	}
	return "± " + digits(100*max(hi/centre-1, 1-lo/centre), 2) + " %"
}

// plural formats a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "one " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
