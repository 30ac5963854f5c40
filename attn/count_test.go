package attn_test

import (
	"testing"

	"attnlab/attn"
	"pgregory.net/rapid"
)

// drawCall draws a small problem with every kind of mask, length, position and layout of sequences,
// and the operands that Count reads.
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
	starts := func(name string, capacity int) []int32 {
		at := []int32{int32(n(name+" from", 0, 2))}
		for b := range p.Batch {
			at = append(at, at[b]+int32(n(name, 0, capacity)))
		}
		return at
	}
	if p.Ragged = rapid.Bool().Draw(t, "ragged"); p.Ragged {
		a.QStart, a.KStart = starts("queries", p.SeqQ), starts("keys", p.SeqKV)
		a.Q.S, a.K.S = int(a.QStart[p.Batch]), int(a.KStart[p.Batch])
	}
	if rapid.Bool().Draw(t, "pages") {
		p.Page, a.K.S, a.KStart = 8, 8, nil
	}
	if p.Lengths = rapid.Bool().Draw(t, "lengths"); p.Lengths {
		for b := range p.Batch {
			a.KLen = append(a.KLen, int32(n("klen", 0, room(&p, a, b))))
			a.QPos = append(a.QPos, int32(n("qpos", -12, 12)))
		}
		if rapid.Bool().Draw(t, "no positions") {
			a.QPos = nil
		}
	}
	drawBitmap(t, &p, a)
	return p, a
}

// drawBitmap draws an element mask of any form, broadcast along any dimensions, or none.
func drawBitmap(t *rapid.T, p *attn.Problem, a *attn.Args) {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	dims := []int{p.Batch, p.HeadsQ, a.Q.S, a.K.S}
	if p.Ragged {
		dims[2], dims[3] = p.SeqQ, p.SeqKV
	}
	if p.Page != 0 {
		dims[3] = p.SeqKV
	}
	p.Mask.Bitmap = attn.Bitmap(n("bitmap", 0, 3))
	if p.Mask.Bitmap == attn.BlockBitmap {
		p.Mask.Block = n("block", 1, 4)
		for i := 2; i < 4; i++ {
			dims[i] = (dims[i] + p.Mask.Block - 1) / p.Mask.Block
		}
	}
	for i := range dims {
		if rapid.Bool().Draw(t, "broadcast") {
			dims[i] = 1
		}
	}
	if p.Mask.Bitmap == attn.BoolBitmap {
		dims = dims[n("rank", 0, 3):]
	}
	size := 1
	for _, d := range dims {
		size *= d
	}
	bits := rapid.SliceOfN(rapid.Bool(), size, size).Draw(t, "mask")
	switch p.Mask.Bitmap {
	case attn.BoolBitmap:
		var err error
		if a.Allowed, err = attn.BoolMask(bits, dims...); err != nil {
			t.Fatal(err)
		}
	case attn.PackedBitmap, attn.BlockBitmap:
		m := attn.Bits{B: dims[0], H: dims[1], S: dims[2], D: dims[3], Words: make([]uint64, (size+63)/64)}
		m.SS, m.SH, m.SB = m.D, m.S*m.D, m.H*m.S*m.D // rows may begin within a word
		for i, bit := range bits {
			if bit {
				m.Words[i/64] |= 1 << (i % 64)
			}
		}
		a.Allowed = m
	}
}

// room returns the number of key rows of a batch entry, by definition.
func room(p *attn.Problem, a *attn.Args, b int) int {
	switch {
	case p.Page != 0:
		return p.SeqKV
	case p.Ragged:
		return int(a.KStart[b+1]) - int(a.KStart[b])
	}
	return a.K.S
}

func queries(p *attn.Problem, a *attn.Args, b int) int {
	if p.Ragged {
		return int(a.QStart[b+1]) - int(a.QStart[b])
	}
	return a.Q.S
}

// sees defines the masks one pair at a time. It does not use the intervals of package attn.
func sees(p *attn.Problem, a *attn.Args, b, h, i, j int) (band, shown bool) {
	nk := room(p, a, b)
	if a.KLen != nil {
		nk = int(a.KLen[b])
	}
	pos := nk - queries(p, a, b) + i
	if p.Mask.Align == attn.TopLeft {
		pos = i
	}
	if a.QPos != nil {
		pos = int(a.QPos[b]) + i
	}
	m := p.Mask
	band = j < nk && (!m.Band || (m.Left < 0 || j >= pos-m.Left) && (m.Right < 0 || j <= pos+m.Right))
	if m.Bitmap == attn.NoBitmap {
		return band, band
	}
	at := &a.Allowed
	if m.Bitmap == attn.BlockBitmap {
		i, j = i/m.Block, j/m.Block
	}
	bit := b%at.B*at.SB + i%at.S*at.SS + h%at.H*at.SH + j%at.D
	if m.Bitmap == attn.BoolBitmap {
		return band, band && at.Bool[bit]
	}
	return band, band && at.Words[bit/64]>>(bit%64)&1 != 0
}

func TestCountAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, a := drawCall(t)
		var pairs, keys, rows int64
		for b := range p.Batch {
			rows += int64(queries(&p, a, b) * p.HeadsQ)
			for j := range room(&p, a, b) {
				reached := false
				for i := range queries(&p, a, b) {
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
		if want := 5 * int64(p.Dim+p.DimV) * pairs; c.Back != want {
			t.Fatalf("softmax backward: %d operations, want %d", c.Back, want)
		}
		moved := 4 * (rows + keys) * int64(p.Dim+p.DimV)
		if want := moved + int64(len(a.Allowed.Bool)+8*len(a.Allowed.Words)); c.Bytes != want {
			t.Fatalf("%d bytes, want %d", c.Bytes, want)
		}
		p.Op = attn.OpLinear
		if got, want := p.Count(a).Flop, 2*int64(p.Dim)*int64(p.DimV+1)*(keys+rows); got != want {
			t.Fatalf("linear: %d operations, want %d", got, want)
		}
	})
}

// TestCountOfCapacity checks that a problem without operands is counted at its full capacity.
func TestCountOfCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := drawCall(t)
		p.Mask.Bitmap, p.Mask.Block, p.Ragged, p.Page = attn.NoBitmap, 0, false, 0
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

// TestMaskKeys checks that Mask.Keys returns the keys that the band shows, for any position.
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
