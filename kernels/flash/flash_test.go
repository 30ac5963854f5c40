package flash_test

import (
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash"
)

const claims = attn.AllNeeds &^ (attn.NeedLinear | attn.NeedProjection | attn.NeedRules | attn.NeedBF16 | attn.NeedWeights | attn.NeedScores)

// hold is a quarter of the tolerance, half of it for the shortest rows and for gradients.
var hold = attntest.Options{Hold: .25, HoldNarrow: .5, HoldGrad: .5}

// geometries are those of every instruction set, run through the portable loops, so that each is tested on every machine; and then the sets
// themselves, as far as this machine has them. With -short, only these.
func geometries(t *testing.T) map[string]*asm.Ops {
	all := map[string]*asm.Ops{
		"24 lanes": asm.Portable(24, 8, 4, 4, 6), "48 lanes": asm.Portable(48, 16, 8, 8, 6), "16 lanes": asm.Portable(16, 4, 4, 4, 8),
	}
	if testing.Short() {
		clear(all)
	}
	for _, l := range asm.Levels() {
		if l.Available {
			all[l.ISA] = l.Ops
		} else {
			t.Logf("SKIPPED: %s: %s", l.ISA, l.Reason)
		}
	}
	return all
}

// others is whether there are loops that are not portable.
var others = slices.ContainsFunc(asm.Levels(), func(l asm.Level) bool { return l.Available && l.ISA != "go" })

func TestFlash(t *testing.T) {
	for name, ops := range geometries(t) {
		o := hold
		// Less is asked of geometries of the portable loops, and of these themselves where there are others: with the tag purego they go through it all.
		o.Core = name != ops.ISA || ops.ISA == "go" && others
		t.Run(name, func(t *testing.T) { attntest.Run(t, flash.New(ops), claims, o) })
	}
}
