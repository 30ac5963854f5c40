package linear_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm"
	"attnlab/kernels/linear"
)

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

func TestLinear(t *testing.T) {
	for name, ops := range geometries(t) {
		t.Run(name, func(t *testing.T) {
			attntest.Run(t, linear.New(ops), attn.NeedLinear|attn.NeedLengths|attn.NeedGrad, attntest.Options{HoldGrad: .5})
		})
	}
}
