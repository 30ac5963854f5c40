package prefill

import (
	"fmt"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
)

// TestSizes checks for many sizes of caches that a block is whole groups of keys and that a
// worker's scratch does not grow with the length. At d = 128 it must stay below 2 MiB.
func TestSizes(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for _, cache := range []int{0, 32 << 10, 256 << 10, 1 << 20, 2 << 20, 64 << 20} {
			for _, d := range []int{0, 1, 8, 40, 64, 128, 512} {
				t.Run(fmt.Sprintf("%s/cache=%d/d=%d", l.ISA, cache, d), func(t *testing.T) {
					p := attn.Problem{Batch: 1, SeqQ: 1 << 20, SeqKV: 1 << 20, HeadsQ: 8, HeadsKV: 2, Dim: d, DimV: d}
					k, group := Kernel{Ops: l.Ops, L2: cache}, l.Ops.Shape.Group
					of := k.layout(&p)
					block := of.Block
					if block < group || block%group != 0 || of.tiles < 1 {
						t.Errorf("blocks of %d keys, %d tiles; groups are of %d", block, of.tiles, group)
					}
					if bytes := 8 * d * block; bytes > cache/2 && block > group {
						t.Errorf("a block of %d bytes in a cache of %d", bytes, cache)
					}
					scratch, err := k.Bytes(&p, 1)
					if err != nil || d <= 128 && scratch >= 2<<20 {
						t.Errorf("scratch is %d bytes, error %v", scratch, err)
					}
					p.SeqQ, p.SeqKV = 1<<12, 1<<12
					if short, err := k.Bytes(&p, 1); err != nil || short != scratch {
						t.Errorf("scratch is %d bytes for 4096 rows, %d for 2^20, error %v", short, scratch, err)
					}
				})
			}
		}
	}
}

// TestLongBlocks checks that a block has 512 keys where the second cache has room for them, unless
// the first cache has room for more than the weights of 256.
func TestLongBlocks(t *testing.T) {
	const second = 1 << 20
	for _, c := range []struct{ lanes, d, first, block int }{
		{48, 64, 32 << 10, 512},
		{48, 128, 32 << 10, 256},
		{24, 64, 32 << 10, 256},
		{24, 32, 32 << 10, 256},
		{32, 64, 32 << 10, 512},
		{31, 64, 32 << 10, 256},
		{48, 64, 48 << 10, 512},
		{47, 64, 48 << 10, 256},
		{24, 64, 48 << 10, 256},
	} {
		p := attn.Problem{Batch: 1, SeqQ: 4096, SeqKV: 4096, HeadsQ: 8, HeadsKV: 8, Dim: c.d, DimV: c.d}
		ops := &asm.Ops{Shape: asm.Shape{Lanes: c.lanes, Keys: 16, Group: 16}}
		if block, _ := sizes(&p, ops, &asm.Pack{}, c.first, second); block != c.block {
			t.Errorf("%d lanes, d = %d, caches of %d and %d: blocks of %d keys, want %d", c.lanes, c.d, c.first, second, block, c.block)
		}
	}
}
