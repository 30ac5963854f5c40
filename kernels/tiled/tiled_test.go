package tiled_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/tiled"
)

const claims = attn.AllSoftmax

var hold = attntest.Options{Hold: .25, HoldNarrow: .5, HoldGrad: .5}

// TestTiled runs the suite on every set of loops.
func TestTiled(t *testing.T) {
	for _, l := range asmtest.All(t) {
		o := hold
		o.Core = l.Core
		t.Run(l.Name, func(t *testing.T) { attntest.Run(t, tiled.New(l.Ops), claims, o) })
	}
}

// TestBLAS runs the suite on the loops with gonum's products.
func TestBLAS(t *testing.T) {
	o := hold
	o.Core = asmtest.Core()
	attntest.Run(t, tiled.NewBLAS(), claims, o)
}
