package attn_test

import (
	"testing"

	"attnlab/attn"
	"pgregory.net/rapid"
)

// drawCall draws a small problem with every kind of mask, length and position, and the operands that Count looks at.
func drawCall(t *rapid.T) (attn.Problem, *attn.Args) {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	group := n("group", 1, 3)
	p := attn.Problem{
		Batch: n("batch", 0, 3), SeqQ: n("seq_q", 0, 9), SeqKV: n("seq_kv", 0, 9), HeadsKV: n("heads_kv", 1, 2),
		Dim: n("dim", 1, 5), DimV: n("dim_v", 1, 5),
	}
	p.HeadsQ = group * p.HeadsKV
	switch n("band", 0, 3) {
	case 1:
		p.Mask = attn.Causal()
	case 2:
		p.Mask = attn.CausalTopLeft()
	case 3:
		p.Mask = attn.Window(n("left", -1, 4), n("right", -1, 4))
		p.Mask.Align = attn.Align(n("align", 0, 1))
	}
	a := &attn.Args{Q: attn.Tensor{S: n("rows", 0, p.SeqQ)}, K: attn.Tensor{S: n("keys", 0, p.SeqKV)}}
	if p.Lengths = rapid.Bool().Draw(t, "lengths"); p.Lengths {
		for range p.Batch {
			a.KLen = append(a.KLen, int32(n("klen", 0, a.K.S)))
			a.QPos = append(a.QPos, int32(n("qpos", -12, 12)))
		}
		if rapid.Bool().Draw(t, "no positions") {
			a.QPos = nil
		}
	}
	if rapid.Bool().Draw(t, "bool") {
		p.Mask.Bitmap = attn.BoolBitmap
		dims := []int{p.Batch, p.HeadsQ, a.Q.S, a.K.S}
		for i := range dims {
			if rapid.Bool().Draw(t, "broadcast") {
				dims[i] = 1
			}
		}
		dims = dims[n("rank", 0, 3):]
		size := 1
		for _, d := range dims {
			size *= d
		}
		var err error
		a.Allowed, err = attn.BoolMask(rapid.SliceOfN(rapid.Bool(), size, size).Draw(t, "mask"), dims...)
		if err != nil {
			t.Fatal(err)
		}
	}
	return p, a
}

// sees is the definition of the masks, one pair at a time, and again apart from package attn's intervals.
func sees(p *attn.Problem, a *attn.Args, b, h, i, j int) (band, shown bool) {
	nk := a.K.S
	if a.KLen != nil {
		nk = int(a.KLen[b])
	}
	pos := nk - a.Q.S + i
	if p.Mask.Align == attn.TopLeft {
		pos = i
	}
	if a.QPos != nil {
		pos = int(a.QPos[b]) + i
	}
	m := p.Mask
	band = j < nk && (!m.Band || (m.Left < 0 || j >= pos-m.Left) && (m.Right < 0 || j <= pos+m.Right))
	if shown = band; m.Bitmap == attn.BoolBitmap {
		at := &a.Allowed
		shown = band && at.Bool[b%at.B*at.SB+i%at.S*at.SS+h%at.H*at.SH+j%at.D]
	}
	return band, shown
}

func TestCountAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, a := drawCall(t)
		var pairs, keys int64
		for b := range p.Batch {
			for j := range a.K.S {
				reached := false
				for i := range a.Q.S {
					for h := range p.HeadsQ {
						band, shown := sees(&p, a, b, h, i, j)
						reached = reached || band
						if shown {
							pairs++
						}
					}
				}
				if reached {
					keys += int64(p.HeadsKV)
				}
			}
		}
		c := p.Count(a)
		if c.Pairs != pairs || c.Keys != keys {
			t.Fatalf("Count says %d pairs and %d keys, there are %d and %d", c.Pairs, c.Keys, pairs, keys)
		}
		if want := 2 * int64(p.Dim+p.DimV) * pairs; c.Flop != want {
			t.Fatalf("softmax: %d operations, want %d", c.Flop, want)
		}
		queries := int64(p.Batch * a.Q.S * p.HeadsQ)
		moved := 4 * (queries + keys) * int64(p.Dim+p.DimV)
		if want := moved + int64(len(a.Allowed.Bool)); c.Bytes != want {
			t.Fatalf("%d bytes, want %d", c.Bytes, want)
		}
		p.Op = attn.OpLinear
		if got, want := p.Count(a).Flop, 2*int64(p.Dim)*int64(p.DimV+1)*(keys+queries); got != want {
			t.Fatalf("linear: %d operations, want %d", got, want)
		}
	})
}

// Without operands, a problem is counted at its full capacity.
func TestCountOfCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := drawCall(t)
		p.Mask.Bitmap = attn.NoBitmap
		full := &attn.Args{Q: attn.Tensor{S: p.SeqQ}, K: attn.Tensor{S: p.SeqKV}}
		if got, want := p.Count(nil), p.Count(full); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func TestCountOfByProducts(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 3, SeqKV: 5, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 8}
	plain := p.Count(nil).Bytes
	p.Want = attn.WantLSE | attn.WantEntropy
	if got := p.Count(nil).Bytes - plain; got != 2*4*2*3*4 {
		t.Errorf("two numbers a row are %d bytes", got)
	}
	p.Want = attn.WantWeights
	if got := p.Count(nil).Bytes - plain; got != 4*2*3*4*5 {
		t.Errorf("weights are %d bytes", got)
	}
}

// Mask.Keys is the interval of the keys that the band shows, for any position.
func TestMaskKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := attn.Window(rapid.IntRange(-1, 20).Draw(t, "left"), rapid.IntRange(-1, 20).Draw(t, "right"))
		m.Band = rapid.Bool().Draw(t, "band")
		nk := rapid.IntRange(0, 30).Draw(t, "nk")
		pos := rapid.OneOf(rapid.IntRange(-40, 60), rapid.SampledFrom([]int{-1 << 31, 1<<31 - 1})).Draw(t, "pos")
		lo, hi := m.Keys(pos, nk)
		if lo < 0 || hi < lo || hi > nk {
			t.Fatalf("[%d,%d) of %d keys", lo, hi, nk)
		}
		for j := range nk {
			want := !m.Band || (m.Left < 0 || j >= pos-m.Left) && (m.Right < 0 || j <= pos+m.Right)
			if got := lo <= j && j < hi; got != want {
				t.Fatalf("key %d: %v, want %v, the interval is [%d,%d)", j, got, want, lo, hi)
			}
		}
	})
}
