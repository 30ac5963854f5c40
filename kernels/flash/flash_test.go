package flash_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash"
)

const claims = attn.AllSoftmax &^ (attn.NeedWeights | attn.NeedScores)

// hold is a quarter of the tolerance, and half of it for the shortest rows and for gradients.
var hold = attntest.Options{Hold: .25, HoldNarrow: .5, HoldGrad: .5}

// TestCopying runs the core of the suite with a packing that copies rows, to check that rows packed
// for one block, head or call are not read in another.
func TestCopying(t *testing.T) {
	ops, o := *asm.Go(), hold
	ops.Pack, o.Core = asm.Copying(), true
	attntest.Run(t, flash.New(&ops), claims, o)
}

// TestFlash runs the suite on every set of loops.
func TestFlash(t *testing.T) {
	for _, l := range asmtest.All(t) {
		o := hold
		o.Core = l.Core
		t.Run(l.Name, func(t *testing.T) { attntest.Run(t, flash.New(l.Ops), claims, o) })
	}
}
