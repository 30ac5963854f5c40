package prefill

import (
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash/flashtest"
	"attnlab/kernels/tile"
)

// packing returns the sets that pack, and portable loops with a packing that copies.
func packing(t *testing.T) (all []*asm.Ops) {
	copying := *asm.Go()
	copying.Pack = asm.Copying()
	all = append(all, &copying)
	for _, l := range asmtest.Levels(t) {
		if asmtest.Packs(l.Ops) {
			all = append(all, l.Ops)
		}
	}
	return all
}

// TestPacksOnce checks that rows are packed once for each block and bundle of tiles, and only where
// that pays and no by-product forbids it. All products must then read packed rows.
func TestPacksOnce(t *testing.T) {
	for _, l := range packing(t) {
		packed := map[bool]int{}
		for _, c := range []struct {
			queries int
			mask    attn.Mask
			want    attn.Want
		}{
			{300, attn.Full(), 0},
			{300, attn.Full(), attn.WantLSE | attn.WantGrad},
			{300, attn.Full(), attn.WantMean},
			{300, attn.Full(), attn.WantMax},
			{20, attn.Full(), 0},
			{900, attn.Window(600, 0), 0},
			{900, attn.Window(30, 0), 0},
			{900, attn.Causal(), 0},
		} {
			p := attn.Problem{Batch: 1, SeqQ: c.queries, SeqKV: 1000, HeadsQ: 2, HeadsKV: 1, Dim: 40, DimV: 24, Mask: c.mask, Want: c.want}
			a := flashtest.Filled(t, p, "bhsd")
			ops, made, inPlace := *l, map[asm.Kind]int{}, 0
			ops.Pack = l.Pack.Watched(func(k asm.Kind) { made[k]++ })
			within := func(rows asm.Rows, of *attn.Tensor) bool {
				at, first := rows.Prefetch().At, asm.Rows{Data: of.Data}.Prefetch().At
				return first <= at && at < first+uintptr(4*len(of.Data))
			}
			ops.Panel.Flash = func(f *asm.Flash) {
				if within(f.Keys.Rows(), &a.K) {
					inPlace++
				}
				l.Panel.Flash(f)
			}
			ops.Panel.Mix = func(m *asm.Mix) {
				if within(m.Values.Rows(), &a.V) {
					inPlace++
				}
				l.Panel.Mix(m)
			}
			pl := Kernel{Ops: &ops, L2: 1 << 20}.Plan(p, nil)
			pl.Run(a)
			packs, least, most := packs(&p, l), 0, 0
			if packed[packs]++; packs {
				bundles, blocks := cover(2*tile.Count(&p, l, p.SeqQ), pl.size), cover(p.SeqKV, pl.layout.Block)
				if least, most = bundles*blocks, bundles*blocks; c.mask.Band { // some are unseen
					least = blocks
				}
			}
			if made[asm.Keys] < least || made[asm.Keys] > most || made[asm.Values] != made[asm.Keys] || made[asm.Queries] > 0 != packs || made[asm.Lines] != 0 {
				t.Errorf("%s: %d queries, %v, asked for %v: packed %v, want %d to %d times", l.ISA, c.queries, c.mask, c.want, made, least, most)
			}
			if packs && c.want&(attn.WantMean|attn.WantMax) != 0 {
				t.Errorf("%s: packed for a call that wants %v", l.ISA, c.want)
			}
			if copies := l.ISA == "go"; copies && packs != (inPlace == 0) {
				t.Errorf("%s: %d queries, %v, asked for %v: %d products of rows in place", l.ISA, c.queries, c.mask, c.want, inPlace)
			}
		}
		if packed[true] == 0 || packed[false] == 0 {
			t.Errorf("%s: %d problems are packed, and %d are not", l.ISA, packed[true], packed[false])
		}
	}
}

// TestPackedSizes checks the sizes of blocks and bundles, forward and backward, with and without a
// packing whose numbers take 6 bytes.
func TestPackedSizes(t *testing.T) {
	type sizes struct{ block, tiles int }
	const kib = 1 << 10
	wide, narrow := asm.Portable(48, 16, 16, 8, 6), asm.Portable(24, 8, 8, 4, 6)
	for _, c := range []struct {
		ops               *asm.Ops
		l1, l2, d         int
		forward, packed   sizes
		backward, packedB sizes
	}{
		{wide, 32 * kib, 512 * kib, 64, sizes{256, 8}, sizes{256, 3}, sizes{192, 2}, sizes{128, 2}},
		{wide, 32 * kib, 512 * kib, 128, sizes{256, 1}, sizes{128, 2}, sizes{96, 1}, sizes{64, 1}},
		{wide, 48 * kib, 1024 * kib, 64, sizes{512, 16}, sizes{256, 11}, sizes{192, 4}, sizes{256, 4}},
		{wide, 48 * kib, 1024 * kib, 128, sizes{256, 9}, sizes{256, 4}, sizes{192, 2}, sizes{128, 2}},
		{wide, 48 * kib, 2048 * kib, 64, sizes{512, 16}, sizes{512, 11}, sizes{192, 8}, sizes{256, 8}},
		{wide, 48 * kib, 2048 * kib, 128, sizes{512, 16}, sizes{256, 11}, sizes{192, 4}, sizes{256, 4}},
		{narrow, 32 * kib, 512 * kib, 64, sizes{256, 16}, sizes{256, 8}, sizes{192, 4}, sizes{128, 4}},
		{narrow, 32 * kib, 512 * kib, 128, sizes{256, 4}, sizes{128, 4}, sizes{96, 2}, sizes{64, 2}},
		{narrow, 48 * kib, 2048 * kib, 64, sizes{256, 16}, sizes{512, 11}, sizes{192, 8}, sizes{256, 8}},
		{narrow, 48 * kib, 2048 * kib, 128, sizes{256, 16}, sizes{256, 11}, sizes{192, 8}, sizes{256, 8}},
	} {
		for _, packs := range []bool{false, true} {
			ops, forward, backward := *c.ops, c.forward, c.backward
			if packs {
				ops.Pack, forward, backward = asm.Copying(), c.packed, c.packedB
			}
			p := attn.Problem{Batch: 1, SeqQ: 4096, SeqKV: 4096, HeadsQ: 8, HeadsKV: 8, Dim: c.d, DimV: c.d, Want: attn.WantGrad}
			k := Kernel{Ops: &ops, L1: c.l1, L2: c.l2}
			if of := k.layout(&p); (sizes{of.Block, of.tiles}) != forward {
				t.Errorf("%d lanes, caches of %d and %d, d = %d, packed %v: %d keys and %d tiles, want %+v", ops.Shape.Lanes, c.l1, c.l2, c.d, packs, of.Block, of.tiles, forward)
			}
			if of := k.Blocking(&p); (sizes{of.Block, of.Tiles}) != backward {
				t.Errorf("%d lanes, caches of %d and %d, d = %d, packed %v: %d keys and %d tiles backward, want %+v", ops.Shape.Lanes, c.l1, c.l2, c.d, packs, of.Block, of.Tiles, backward)
			}
		}
	}
}
