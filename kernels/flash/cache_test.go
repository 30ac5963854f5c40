package flash

import (
	"testing"

	"attnlab/attn/attntest"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/tile"
)

// TestSmallCache runs the suite with a small cache. Its problems, which are small, then have
// several blocks, and bundles of one tile.
func TestSmallCache(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the suite once more")
	}
	for _, l := range asmtest.All(t) {
		if l.Core {
			t.Logf("SKIPPED: %s: the suite once more, for the sets that run more than its core", l.Name)
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			attntest.Run(t, newKernel(0, 8<<10, 0)(l.Ops), tile.Have, attntest.Options{Hold: .25, HoldNarrow: .5, HoldGrad: .5, Core: true})
		})
	}
}
