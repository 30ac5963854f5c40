package reports

import (
	"testing"

	"gonum.org/v1/plot/vg"
)

// TestLegendHoldsNames checks that a legend has room for its longest name, and that legends of
// short names have one width.
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
