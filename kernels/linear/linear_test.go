package linear_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm"
	"attnlab/kernels/linear"
)

// geometries are those of every instruction set, run through the portable loops, so that each is tested on every machine.
var geometries = map[string]*asm.Ops{
	"go": asm.Go(), "avx2": asm.Portable(24, 8, 4, 4, 6), "avx512": asm.Portable(48, 16, 8, 8, 6), "neon": asm.Portable(16, 4, 4, 4, 8),
}

func TestLinear(t *testing.T) {
	for name, ops := range geometries {
		t.Run(name, func(t *testing.T) {
			attntest.Run(t, linear.New(ops), attn.NeedLinear|attn.NeedLengths, attntest.Options{})
		})
	}
}
