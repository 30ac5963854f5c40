package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// Where the loops multiply parts of numbers (package asm), rows of keys and values are cut once for a bundle of tiles and kept by their stage, and queries once for
// each tile.

// UsesParts is whether a problem's scores, on the way forward, are products of parts. Those that a call asks about are not: among them may be some too small
// for parts. Nor are they where a key is not worth cutting, for the queries that go over it together, or a query for its keys.
func UsesParts(p *attn.Problem, ops *asm.Ops) bool {
	const together = 512 // nearly as many as the tiles of a bundle have
	return usesParts(p, ops, min(p.SeqQ, max(together/max(p.Group(), 1), 1)), ops.PartsFrom)
}

// UsesBackParts is the same for the way back, where more is cut, and tiles that are not full count for more. On a Xeon (family 6, model 167) parts made calls so many
// times as fast: 8 heads of d = 64 with 256 and 512 queries and keys 1.27 and 1.42, under a causal mask .94 and 1.10, and with a window of 256 of 1024 keys 1.03; 4
// heads of d = 128 with 256, 512 and 1024 1.05, 1.18 and 1.28, causal .78, .95 and 1.15; 2 of d = 256 .86, .95 and 1.08; 16 of d = 32 with 256 1.23, and causal
// with 512 1.11; and 32 of d = 16, whose columns fill half a tile, with 512 1.01, and causal with 1024 .97 (5 to 602 rounds by turns).
func UsesBackParts(p *attn.Problem, ops *asm.Ops) bool {
	own, d := withoutProducts(*p), max((p.Dim+p.DimV)/2, 1)
	return usesParts(&own, ops, p.SeqQ, 2*ops.PartsFrom*max(d, 64)/64*max(d, 32)/d)
}

// usesParts is whether of the last n queries, which under a causal mask see the most, so many see a key, in the mean, and a query so many keys.
func usesParts(p *attn.Problem, ops *asm.Ops, n, from int) bool {
	if ops.CutKeys == nil || p.Dim == 0 || p.Want&^(attn.WantLSE|attn.WantGrad) != 0 {
		return false
	}
	pos := p.SeqKV
	if p.Mask.Align == attn.TopLeft {
		pos = p.SeqQ
	}
	pairs, keys := p.Mask.Count(pos-n, n, p.SeqKV)
	return pairs*int64(p.Group()) >= int64(from)*int64(keys) && pairs >= int64(from)*int64(n)
}

// cuttings are the parts of rows, if the loops multiply those, and of which.
type cuttings struct {
	parts asm.Parts
	span
	small []float32 // where those are that have no parts
}

// KeepParts makes the stage keep the parts of rows, too, where the loops multiply parts.
func (s *Stage) KeepParts() *Stage {
	if UsesParts(s.p, s.ops) {
		s.keys.cut.parts.Data = make([]uint16, asm.KeyParts(s.size, s.p.Dim))
		s.vals.cut.parts.Data, s.vals.cut.small = make([]uint16, asm.ValueParts(s.size, s.p.DimV)), s.clean // or where clean rows would be
	}
	return s
}

// KeepBackParts makes it keep those that a Back multiplies.
func (s *Stage) KeepBackParts() *Stage {
	if UsesBackParts(s.p, s.ops) {
		s.keys.cut.parts.Data = make([]uint16, asm.KeyParts(s.size, s.p.Dim))
		s.back.keys.parts.Data, s.back.keys.small = make([]uint16, asm.ValueParts(s.size, s.p.Dim)), make([]float32, s.size*s.p.Dim)
		s.back.vals.parts.Data = make([]uint16, asm.KeyParts(s.size, s.p.DimV))
	}
	return s
}

// PartsFloats is the number of float32 numbers as large as the parts of blocks of so many keys, and of so many tiles.
func PartsFloats(p *attn.Problem, ops *asm.Ops, size, tiles int) int {
	if !UsesParts(p, ops) {
		return 0
	}
	return (asm.KeyParts(size, p.Dim) + asm.ValueParts(size, p.DimV) + tiles*asm.QueryParts(p.Dim, ops.Lanes) + 1) / 2
}

// BackPartsFloats is the same for a Back's.
func BackPartsFloats(p *attn.Problem, ops *asm.Ops, size, tiles int) int {
	if !UsesBackParts(p, ops) {
		return 0
	}
	block := asm.KeyParts(size, p.Dim) + asm.ValueParts(size, p.Dim) + asm.KeyParts(size, p.DimV)
	each := 0
	for _, d := range [...]int{p.Dim, p.DimV} {
		each += asm.QueryParts(d, ops.Lanes) + asm.LineParts(d, ops.Lanes)
	}
	return size*p.Dim + (block+tiles*each+1)/2
}

// cuts is whether the stage keeps parts.
func (s *Stage) cuts() bool { return len(s.keys.cut.parts.Data)+len(s.vals.cut.parts.Data) > 0 }

// KeyParts are the parts of n rows of keys from key on.
func (s *Stage) KeyParts(a *attn.Args, b, kv, key, n int) asm.Parts {
	return s.partsOf(&s.keys.cut, s.K, s.cutKeys, a, b, kv, key, n)
}

// ValueParts is the same for values.
func (s *Stage) ValueParts(a *attn.Args, b, kv, key, n int) asm.Parts {
	return s.partsOf(&s.vals.cut, s.V, s.cutValues, a, b, kv, key, n)
}

// BackKeys are those of keys in columns, and BackValues those of values in rows, times lift.
func (s *Stage) BackKeys(a *attn.Args, b, kv, key, n int) asm.Parts {
	return s.partsOf(&s.back.keys, s.K, s.turnKeys, a, b, kv, key, n)
}

func (s *Stage) BackValues(a *attn.Args, b, kv, key, n int) asm.Parts {
	return s.partsOf(&s.back.vals, s.V, s.liftValues, a, b, kv, key, n)
}

// cutKeys, cutValues, turnKeys and liftValues cut rows.
func (s *Stage) cutKeys(c *cuttings, rows asm.Rows, n int) {
	single := s.p.KV == attn.BF16 && s.p.Score.Rope == attn.NoRope
	c.parts = s.ops.CutKeys(c.parts.Data, rows, n, s.p.Dim, 1, single)
}

func (s *Stage) cutValues(c *cuttings, rows asm.Rows, n int) {
	c.parts = s.ops.CutValues(c.parts.Data, c.small, rows, n, s.p.DimV, s.p.KV == attn.BF16)
}

func (s *Stage) turnKeys(c *cuttings, rows asm.Rows, n int) {
	c.parts = s.ops.CutValues(c.parts.Data, c.small, rows, n, s.p.Dim, false)
}

func (s *Stage) liftValues(c *cuttings, rows asm.Rows, n int) {
	c.parts = s.ops.CutKeys(c.parts.Data, rows, n, s.p.DimV, lift, false)
}

// partsOf are the parts of n rows from key on, if the stage keeps any. They are cut a whole block at a time.
func (s *Stage) partsOf(c *cuttings, rows func(a *attn.Args, b, kv, key, n int) asm.Rows, cut func(*cuttings, asm.Rows, int), a *attn.Args, b, kv, key, n int) asm.Parts {
	if len(c.parts.Data) == 0 {
		return asm.Parts{}
	}
	if !c.has(b, kv, key, n) {
		c.span = s.whole(a, b, kv, key)
		cut(c, rows(a, b, kv, c.key, c.n), c.n)
	}
	return c.parts.From(key - c.key)
}

// other are the parts of rows that are not the problem's, if the stage keeps any.
func (c *cuttings) other(cut func(*cuttings, asm.Rows, int), rows asm.Rows, n int) asm.Parts {
	if len(c.parts.Data) == 0 {
		return asm.Parts{}
	}
	c.n = 0
	cut(c, rows, n)
	return c.parts
}

// lift is what numbers are multiplied by before they are cut.
const lift = 1 << 30

// cut makes parts of queries and gradients of rows.
func (b *Back) cut() {
	t, q, g := b.Tile, &b.part, b.g
	if g.Out.Data != nil {
		*q = asm.Panel{Lanes: t.Lanes, Width: t.Width, D: t.C, Factor: lift, Qt: b.dot, QtParts: t.DotParts}
		t.ops.CutQueries(q)
		t.ops.CutLines(b.parts.dout, b.own(b.dout, t.C), t.rows, t.C, lift)
	} else {
		clear(t.DotParts)
	}
	if g.K.Data != nil {
		t.ops.CutLines(b.parts.queries, b.own(b.queries(), t.D), t.rows, t.D, lift)
	}
}
