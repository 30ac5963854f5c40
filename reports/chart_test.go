package reports

import (
	"testing"

	"gonum.org/v1/plot/vg"
)

// A legend has room for the longest of its names, and charts of short ones are all of one width.
func TestLegendHoldsNames(t *testing.T) {
	short := group{series: []*series{{kernel: "flash", isa: "go"}}}
	if got := short.legendWidth(); got != 3.6*vg.Centimeter {
		t.Errorf("%v of room for a short name", got)
	}
	long := group{series: []*series{{kernel: "flash", isa: "avx512", features: "softcap:30+alibi+sinks+rope"}, short.series[0]}}
	name := newLegend().TextStyle.Width(long.series[0].label())
	if got := long.legendWidth(); got < 8+thumb+name || got > 2*(8+thumb+name) {
		t.Errorf("%v of room for a name that takes %v", got, name)
	}
}
