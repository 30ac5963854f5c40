package flash

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/tile"
)

// Rows are cut once for a bundle of tiles: where loops multiply parts, queries enough see them, and nobody asks about scores.
func TestPartsAreCutOnce(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		if l.Ops.CutKeys == nil {
			continue
		}
		for _, c := range []struct {
			queries int
			mask    attn.Mask
			want    attn.Want
			cut     bool
		}{
			{l.Ops.PartsFrom / 2, attn.Mask{}, 0, true},
			{l.Ops.PartsFrom / 2, attn.Mask{}, attn.WantLSE | attn.WantGrad, true},
			{l.Ops.PartsFrom / 2, attn.Mask{}, attn.WantMean, false},
			{l.Ops.PartsFrom / 2, attn.Mask{}, attn.WantMax, false},
			{l.Ops.PartsFrom/2 - 1, attn.Mask{}, 0, false},
			{900, attn.Window(l.Ops.PartsFrom/2+l.Ops.PartsFrom, 0), 0, true},
			{900, attn.Window(l.Ops.PartsFrom/2, 0), 0, false},
			{l.Ops.PartsFrom/2 + 8, attn.Causal(), 0, true},
			{l.Ops.PartsFrom / 2, attn.Causal(), 0, false},
		} {
			p := attn.Problem{Batch: 1, SeqQ: c.queries, SeqKV: 1000, HeadsQ: 2, HeadsKV: 1, Dim: 40, DimV: 24, Mask: c.mask, Want: c.want}
			a := newArgs(t, p, "bhsd")
			cases.Fill("normal", p, a, 1)
			ops, keys, values := counting(l.Ops)
			k := kernel{ops: &ops, name: "flash/" + l.ISA, cache: 1 << 20}
			made, err := k.Plan(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			pl := made.(*plan)
			pl.Forward(a)
			least, most := 0, 0
			if c.cut {
				most = cover(2*tile.Count(&p, k.ops, p.SeqQ), pl.size) * cover(p.SeqKV, pl.block)
				if least = most; c.mask.Band && c.mask.Left != attn.Unbounded { // bundles see some of the blocks
					least = cover(p.SeqKV, pl.block)
				}
			}
			if *keys < least || *keys > most || *values != *keys {
				t.Errorf("%s: %d queries, %v, asked for %v: keys cut %d times and values %d, want %d to %d", l.ISA, c.queries, c.mask, c.want, *keys, *values, least, most)
			}
		}
	}
}

// Where queries and keys are enough, all products of the way back are of parts, and elsewhere none. Rows of keys and values are cut once for a bundle and block.
func TestBackwardOfParts(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		if l.Ops.CutKeys == nil {
			continue
		}
		for _, c := range []struct {
			queries int
			score   attn.Score
			want    attn.Want
			cut     bool
		}{
			{2 * l.Ops.PartsFrom, attn.Score{}, 0, true},
			{2 * l.Ops.PartsFrom, attn.Score{Softcap: 5, Rope: attn.RopeHalves}, 0, true},
			{2 * l.Ops.PartsFrom, attn.Score{}, attn.WantMean, true},
			{2 * l.Ops.PartsFrom, attn.Score{}, attn.WantEntropy, false},
			{2*l.Ops.PartsFrom - 1, attn.Score{}, 0, false},
		} {
			p := attn.Problem{Batch: 1, SeqQ: c.queries, SeqKV: 1000, HeadsQ: 2, HeadsKV: 2, Dim: 40, DimV: 24, Score: c.score, Want: attn.WantLSE | attn.WantGrad | c.want}
			a := newArgs(t, p, "bhsd")
			cases.Fill("normal", p, a, 1)
			g, err := cases.NewGrads(p, a, "bhsd", nil)
			if err != nil {
				t.Fatal(err)
			}
			cases.FillGrads(g, 1)
			by := map[bool]int{}
			ops, rows, columns := counting(l.Ops)
			ops.Score = func(p *asm.Panel) { by[p.KParts.Data != nil && p.QtParts != nil]++; l.Ops.Score(p) }
			ops.Flash = func(p *asm.Panel) { by[p.KParts.Data != nil && p.QtParts != nil]++; l.Ops.Flash(p) }
			ops.DScore = func(p *asm.Panel) { by[p.VLines.Data != nil && p.DotParts != nil]++; l.Ops.DScore(p) }
			ops.Mix = func(p *asm.Panel) { by[p.VParts.Data != nil]++; l.Ops.Mix(p) }
			ops.Outer = func(p *asm.Panel) {
				if p.Scale == nil { // else no product
					by[p.YParts != nil]++
				}
				l.Ops.Outer(p)
			}
			k := kernel{ops: &ops, name: "flash/" + l.ISA, cache: 1 << 20}
			pl, err := k.Plan(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			pl.Forward(a)
			clear(by)
			*rows, *columns = 0, 0
			pl.(attn.Differentiable).Backward(a, g)
			cut := k.cut(&p)
			blocks, bundles := cover(p.SeqKV, cut.Block), cover(tile.Count(&p, k.ops, p.SeqQ), cut.Tiles)
			each := 0
			if c.cut {
				each = blocks * bundles * p.HeadsKV
			}
			if by[!c.cut] > 0 || by[c.cut] < 5*blocks*p.HeadsKV || *rows != 2*each || *columns != each {
				t.Errorf("%s: %d queries, %+v, asked for %v: %d products by parts, %d others, cut %d times in rows and %d in columns", l.ISA, c.queries, c.score, c.want, by[true], by[false], *rows, *columns)
			}
		}
	}
}

// counting are loops that count how often rows are cut: in rows, as keys are, and in columns, as values are.
func counting(o *asm.Ops) (ops asm.Ops, rows, columns *int) {
	ops, rows, columns = *o, new(int), new(int)
	ops.CutKeys = func(to []uint16, from asm.Rows, n, d int, factor float32, single bool) asm.Parts {
		*rows++
		return o.CutKeys(to, from, n, d, factor, single)
	}
	ops.CutValues = func(to []uint16, small []float32, from asm.Rows, n, d int, single bool) asm.Parts {
		*columns++
		return o.CutValues(to, small, from, n, d, single)
	}
	return ops, rows, columns
}
