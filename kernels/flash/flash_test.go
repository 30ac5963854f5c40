package flash_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash"
)

const claims = attn.NeedSoftmax | attn.NeedWindow | attn.NeedBool | attn.NeedTemp | attn.NeedBias | attn.NeedLengths |
	attn.NeedLSE | attn.NeedMean | attn.NeedEntropy

var hold = attntest.Options{Hold: .25, HoldNarrow: .5}

// geometries are those of every instruction set, run through the portable loops, so that each is tested on every machine.
var geometries = map[string]*asm.Ops{
	"go": asm.Go(), "avx2": asm.Portable(24, 8, 4, 4, 6), "avx512": asm.Portable(48, 16, 8, 8, 6), "neon": asm.Portable(16, 4, 4, 4, 8),
}

func TestFlash(t *testing.T) {
	for name, ops := range geometries {
		t.Run(name, func(t *testing.T) { attntest.Run(t, flash.New(ops), claims, hold) })
	}
}
