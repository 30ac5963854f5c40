package tile

import (
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
)

// TestWeightsInStairs checks the weights of blocks that the band's edges cross, against the softmax
// in float64. Scores rise so that references must be raised several times. The calls of the steps
// must be such as assembly supports.
func TestWeightsInStairs(t *testing.T) {
	for _, mask := range []attn.Mask{attn.Causal(), attn.Window(9, 2)} {
		p := attn.Problem{Batch: 1, SeqQ: 24, SeqKV: 64, HeadsQ: 1, HeadsKV: 1, Dim: 4, DimV: 4, Mask: mask}
		a := stageCall(t, p)
		for i := range p.SeqQ {
			a.Q.Row(0, i, 0)[0] = 1
		}
		for j := range p.SeqKV { // far larger than the key before
			copy(a.K.Row(0, j, 0), []float32{float32(j * 150), 0, 0, 0})
		}
		ops, raises, narrow := asm.Portable(24, 4, 4, 4, 6), 0, 0
		raise, flash := ops.Panel.Raise, ops.Panel.Flash
		ops.Panel.Raise = func(s *asm.Softmax) {
			if s.From > s.Done || s.Done >= s.N || s.From%4 != 0 {
				t.Errorf("%v: Raise from row %d, done %d of %d", mask, s.From, s.Done, s.N)
			}
			raises++
			raise(s)
		}
		ops.Panel.Flash = func(f *asm.Flash) {
			if f.From >= f.N || f.From%4 != 0 || f.Until != nil && f.Until[len(f.Until)-1] != f.N {
				t.Errorf("%v: Flash from row %d of %d, until %v", mask, f.From, f.N, f.Until)
			}
			if f.Width < 24 {
				narrow++
			}
			flash(f)
		}
		tile := New(&p, ops, NewStage(&p, ops, Config{Block: 64}))
		tile.SetPanel(make([]float32, 64*24))
		tile.At(a, 0, 0, 0)
		for range 2 { // the second time with the state that the first one left in the calls
			if tile.Load(); !tile.Block(0, 64) {
				t.Fatal("no block")
			}
			tile.Weights()
		}
		tile.zeros()
		if raises < 5 || narrow < 3 {
			t.Errorf("%v: %d raises, %d calls of some lanes: too few to tell", mask, raises, narrow)
		}
		for lane := range 24 {
			lo, hi := mask.Keys(40+lane, 64)
			sum, top := 0., float64(hi-1)*150*p.Scale()
			for j := lo; j < hi; j++ {
				sum += math.Exp(float64(j)*150*p.Scale() - top)
			}
			for j := range 64 {
				want := 0.
				if lo <= j && j < hi {
					want = math.Exp(float64(j)*150*p.Scale()-top) / sum
				}
				first := tile.Key()
				if j < first || j >= first+tile.flash.N {
					continue
				}
				taken := tile.stairs.until[lane/4] > j-first
				if got := float64(tile.flash.P[(j-first)*24+lane] / tile.sums.L[lane]); taken && math.Abs(got-want) > 1e-5 {
					t.Fatalf("%v: the weight of key %d in lane %d is %v, want %v", mask, j, lane, got, want)
				}
			}
		}
	}
}

// TestFactorOfQueries checks that queries are multiplied by the factor when they are loaded, if the
// tuning says so and no edit needs scores without it. The factor must be applied once, to the
// queries or to the products.
func TestFactorOfQueries(t *testing.T) {
	base := attn.Problem{Batch: 1, SeqQ: 8, SeqKV: 8, HeadsQ: 1, HeadsKV: 1, Dim: 4, DimV: 4}
	capped, means, large := base, base, base
	capped.Score.Softcap, means.Want, large.Score.Scale = 3, attn.WantMean, 0x1p31
	for _, c := range []struct {
		name      string
		p         attn.Problem
		prescaled bool
		want      bool
	}{
		{"plain", base, true, true},
		{"by a tuning without", base, false, false},
		{"softcap", capped, true, false},
		{"means of scores", means, true, false},
		{"out of range", large, true, false},
	} {
		ops := asm.Go()
		ops.Tuning.Prescaled = c.prescaled
		a := stageCall(t, c.p)
		for _, config := range []Config{{Block: 8}, {Block: 8, backward: true}} {
			tile := New(&c.p, ops, NewStage(&c.p, ops, config))
			tile.At(a, 0, 0, 0)
			tile.Load()
			factor := FactorsOf(&c.p).Product
			q, inQueries, inProducts := float64(a.Q.Row(0, 0, 0)[1]), 1., factor
			if c.want && !config.backward {
				inQueries, inProducts = factor, 1
			}
			if got := tile.flash.Queries.Lanes()[8]; got != float32(q*inQueries) || tile.flash.Factor != inProducts || tile.edits.scores.Factor != inProducts {
				t.Errorf("%s, %+v: the query is %v times %v, products are multiplied by %v", c.name, config, q, float64(got)/q, tile.flash.Factor)
			}
		}
	}
}

// TestFloats checks that the count of scratch covers everything that a Back allocates.
func TestFloats(t *testing.T) {
	for _, c := range cases.All() {
		p := c.Problem
		if p.Op != attn.OpSoftmax || p.Require("tile", Have|attn.NeedWeights|attn.NeedScores) != nil {
			continue
		}
		ops := asm.Portable(24, 8, 4, 4, 6)
		stage := NewStage(&p, ops, Config{Block: 16, backward: true})
		b := NewBack(&p, ops, stage, NewShared(&p, ops, 16))
		floats := func(all ...[]float32) (n int) {
			for _, x := range all {
				n += len(x)
			}
			return n
		}
		m, s := &b.perLane, &b.sums
		n := floats(m.lse, m.lifted, m.entropy, m.dEntropy, m.norm, m.logNorm, m.sinkWeight) + 2*len(m.delta)
		n += floats(b.prepared, b.metric.P, b.table.mix.O, b.table.outs, b.dq.O, b.dot.Lanes())
		n += floats(b.flash.Queries.Lanes(), b.flash.Keep, b.moves.scale, b.moves.rows, b.moves.raw, b.moves.metric.P, b.moves.outs)
		n += floats(s.M, s.L, s.best, s.max) + len(s.first) + len(s.hidden)
		n += floats(b.edits.was, b.edits.edit.Bias, b.edits.relative.P, b.edits.edit.SlopeHi, b.edits.edit.SlopeLo) + len(b.edits.edit.Pos) + len(b.edits.edit.Bits)
		if counted := BackFloats(&p, ops, asm.Pack{}); counted < n {
			t.Errorf("%v: %d numbers are allocated, %d counted", c, n, counted)
		}
	}
}
