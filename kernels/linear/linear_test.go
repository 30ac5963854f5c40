package linear_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/linear"
)

// TestLinear runs the suite on every set of loops.
func TestLinear(t *testing.T) {
	for _, l := range asmtest.All(t) {
		t.Run(l.Name, func(t *testing.T) {
			attntest.Run(t, linear.New(l.Ops), attn.NeedLinear|attn.NeedLengths|attn.NeedRagged|attn.NeedGrad|attn.AllRules, attntest.Options{HoldGrad: .5})
		})
	}
}
