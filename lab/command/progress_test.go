package command

import (
	"math"
	"testing"
	"time"

	"attnlab/harness"
	"attnlab/harness/run"
)

// TestDescribe checks the text beside the progress bar.
func TestDescribe(t *testing.T) {
	at := run.Point{Kernel: "flash", ISA: "avx512", Mask: "causal", SeqKV: 4096, Dim: 64}.WithDefaults()
	decode := run.Point{Kernel: "naive", ISA: "go", SeqQ: 1, SeqKV: 32, Dim: 64}.WithDefaults()
	for want, p := range map[string]harness.Progress{
		"verify: flash/avx512 causal 4096":                       {Phase: "verify", Point: at, Width: math.Inf(1), Left: -1},
		"round 12: flash/avx512 causal 4096 ± 3.1 %, 1m40s left": {Phase: "round 12", Point: at, Width: 0.0312, Left: 100*time.Second + 3},
		"round 7: naive/go full 1x32 ± 0.0 %, 0s left":           {Phase: "round 7", Point: decode},
	} {
		if got := describe(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
