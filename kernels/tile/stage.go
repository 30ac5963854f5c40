package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// A Config describes what the tiles of a worker share.
type Config struct {
	Block  int      // keys in a block
	Pack   asm.Pack // packing of keys, values and queries
	Copies bool     // CopyRows may be called
	Joined bool     // tiles may have the queries of several heads, where JoinsHeads

	backward bool // tiles are Backs
}

// Packing returns the packing of a problem's rows for a pass: that of ops where it pays, or else
// one that aliases rows. By-products of scores rule packing out, as packed products flush small
// numbers to 0.
func Packing(p *attn.Problem, ops *asm.Ops, pass asm.Pass) asm.Pack {
	const together = 512 // about the number of queries of the tiles that share a block
	n, d, want := min(p.SeqQ, max(together/max(p.Group(), 1), 1)), p.Dim, p.Want
	if pass == asm.Backward {
		n, d, want = p.SeqQ, max((p.Dim+p.DimV)/2, 1), withoutProducts(*p).Want
	}
	if p.Dim == 0 || want&^(attn.WantLSE|attn.WantGrad) != 0 {
		return asm.Pack{}
	}
	pos := p.SeqKV // the last n queries see the most keys under a causal mask
	if p.Mask.Align == attn.TopLeft {
		pos = p.SeqQ
	}
	pairs, keys := p.Mask.Count(pos-n, n, p.SeqKV)
	queries := pairs * int64(p.Group()) / int64(max(keys, 1))
	if !ops.Pack.Worth(pass, d, int(queries), int(pairs/int64(max(n, 1)))) {
		return asm.Pack{}
	}
	return ops.Pack
}

// A Stage holds the block of keys and values that a worker's tiles work on, packed once for all of
// them. Rows are read in place if they are float32, evenly spaced and not to be rotated. Other rows
// are copied into contiguous float32 rows, and so are all rows if CopyRows is on.
type Stage struct {
	Config
	ops    *asm.Ops
	p      *attn.Problem
	copies bool // copy rows that the loops could read in place
	k, v   copied
	copier operand.Copier

	keys         keyBlock   // K, for scores
	values       valueBlock // V, for the output
	valuesAsKeys keyBlock   // V, for gradients of scores
	keysAsValues valueBlock // K, for dQ

	clean  []float32 // [Block][d_v]: rows of V, with zeros for rows that are not finite
	joined []float32 // [Lanes][d or d_v]: queries or outputs of a tile that has several heads
}

// A keyBlock is a block of rows that queries are multiplied by, and the rows that it holds.
type keyBlock struct {
	span  blockSpan
	block asm.KeyBlock
}

// A valueBlock is a block of rows that are multiplied by weights and summed, and the rows that it
// holds.
type valueBlock struct {
	span  blockSpan
	block asm.ValueBlock
}

// copied holds copies of rows of K or V.
type copied struct {
	rows []float32
	span blockSpan
}

// A blockSpan is the rows of a tensor that a block holds: n keys of a key head, starting at key.
type blockSpan struct{ b, kv, key, n int }

// has reports whether the block holds n rows starting at key.
func (s blockSpan) has(b, kv, key, n int) bool {
	return s.n > 0 && s.b == b && s.kv == kv && s.key <= key && key+n <= s.key+s.n
}

// copied reports whether rows of K, and whether rows of V, are or may be copied.
func (c *Config) copied(p *attn.Problem, ops *asm.Ops) (k, v bool) {
	return !operand.InPlace(p) || p.Score.Rope != attn.NoRope || c.Copies && ops.Tuning.CopiesRows, !operand.InPlace(p) || c.Copies
}

// StageFloats returns the number of float32 numbers in a Stage.
func StageFloats(p *attn.Problem, ops *asm.Ops, c Config) int {
	n := c.Block*p.DimV + c.Pack.Size(asm.Keys, c.Block, p.Dim)
	if c.backward {
		n += c.Pack.Size(asm.Values, c.Block, p.Dim) + c.Pack.Size(asm.Keys, c.Block, p.DimV)
	} else {
		n += c.Pack.Size(asm.Values, c.Block, p.DimV)
	}
	k, v := c.copied(p, ops)
	if k {
		n += c.Block * p.Dim
	}
	if v {
		n += c.Block * p.DimV
	}
	if c.Joined {
		n += joinedFloats(p, ops)
	}
	return n
}

// NewStage allocates a worker's stage for calls of problem p, which must not be moved or copied
// afterwards.
func NewStage(p *attn.Problem, ops *asm.Ops, c Config) *Stage {
	s := &Stage{Config: c, ops: ops, p: p, copier: operand.NewCopier(p, ops), clean: make([]float32, c.Block*p.DimV)}
	s.keys.block = c.Pack.NewKeys(c.Block, p.Dim)
	if c.backward {
		s.keysAsValues.block = c.Pack.NewValues(c.Block, p.Dim)
		s.valuesAsKeys.block = c.Pack.NewKeys(c.Block, p.DimV)
	} else {
		s.values.block = c.Pack.NewValues(c.Block, p.DimV)
	}
	k, v := c.copied(p, ops)
	if k {
		s.k.rows = make([]float32, c.Block*p.Dim)
	}
	if v {
		s.v.rows = make([]float32, c.Block*p.DimV)
	}
	if c.Joined {
		s.joined = make([]float32, joinedFloats(p, ops))
	}
	return s
}

// forget empties the stage: operands may have changed.
func (s *Stage) forget() {
	s.k.span.n, s.v.span.n = 0, 0
	s.keys.span.n, s.values.span.n, s.keysAsValues.span.n, s.valuesAsKeys.span.n = 0, 0, 0, 0
}

// packs reports whether the stage packs rows.
func (s *Stage) packs() bool {
	return s.Pack.Size(asm.Keys, s.Block, s.p.Dim)+s.Pack.Size(asm.Keys, s.Block, s.p.DimV) > 0
}

// keysForm and valuesForm return the Form of rows of K and of V for packing.
func (s *Stage) keysForm() asm.Form {
	if s.p.Score.Rope != attn.NoRope {
		return asm.Form{Type: asm.F32}
	}
	return s.valuesForm()
}

func (s *Stage) valuesForm() asm.Form {
	if s.p.KV == attn.BF16 {
		return asm.Form{Type: asm.BF16}
	}
	return asm.Form{Type: asm.F32}
}

// Keys sets to to the n keys starting at key, for scores. The keys must be within one block of the
// stage, here and in the methods below.
func (s *Stage) Keys(to *asm.KeyBlock, a *attn.Args, b, kv, key, n int) {
	c := &s.keys
	if !c.span.has(b, kv, key, n) {
		c.span = s.whole(a, b, kv, key)
		s.Pack.Keys(&c.block, s.keyRows(a, b, kv, c.span.key, c.span.n), c.span.n, s.p.Dim, s.keysForm())
	}
	if key == c.span.key {
		*to = c.block
	} else {
		*to = c.block.From(key - c.span.key)
	}
}

// Values sets to to the n values starting at key, for the output.
func (s *Stage) Values(to *asm.ValueBlock, a *attn.Args, b, kv, key, n int) {
	c := &s.values
	if !c.span.has(b, kv, key, n) {
		c.span = s.whole(a, b, kv, key)
		s.Pack.Values(&c.block, s.valueRows(a, b, kv, c.span.key, c.span.n), c.span.n, s.p.DimV, s.valuesForm())
	}
	if key == c.span.key {
		*to = c.block
	} else {
		*to = c.block.From(key - c.span.key)
	}
}

// KeysAsValues returns n keys starting at key, for dQ.
func (s *Stage) KeysAsValues(a *attn.Args, b, kv, key, n int) asm.ValueBlock {
	c := &s.keysAsValues
	if !c.span.has(b, kv, key, n) {
		c.span = s.whole(a, b, kv, key)
		s.Pack.Values(&c.block, s.keyRows(a, b, kv, c.span.key, c.span.n), c.span.n, s.p.Dim, asm.Form{})
	}
	return c.block.From(key - c.span.key)
}

// ValuesAsKeys returns n values starting at key, for gradients of scores.
func (s *Stage) ValuesAsKeys(a *attn.Args, b, kv, key, n int) asm.KeyBlock {
	c := &s.valuesAsKeys
	if !c.span.has(b, kv, key, n) {
		c.span = s.whole(a, b, kv, key)
		s.Pack.Keys(&c.block, s.valueRows(a, b, kv, c.span.key, c.span.n), c.span.n, s.p.DimV, asm.Form{Lift: true})
	}
	return c.block.From(key - c.span.key)
}

// cleanKeysAsValues and cleanValuesAsKeys return blocks of n rows that replace rows of K or V.
func (s *Stage) cleanKeysAsValues(rows asm.Rows, n int) asm.ValueBlock {
	c := &s.keysAsValues
	c.span.n = 0
	s.Pack.Values(&c.block, rows, n, s.p.Dim, asm.Form{})
	return c.block
}

func (s *Stage) cleanValuesAsKeys(rows asm.Rows, n int) asm.KeyBlock {
	c := &s.valuesAsKeys
	c.span.n = 0
	s.Pack.Keys(&c.block, rows, n, s.p.DimV, asm.Form{Lift: true})
	return c.block
}

// cleanValues returns n values starting at key, with zeros for rows that are not finite. It calls
// found for the key of each such row.
func (s *Stage) cleanValues(a *attn.Args, b, kv, key, n int, found func(key int)) asm.ValueBlock {
	d := s.p.DimV
	from := s.valueRows(a, b, kv, key, n)
	to := asm.Rows{Data: s.clean, Stride: d}
	for j := range n {
		if row := from.Row(j, d); s.ops.Vector.Finite(row) {
			copy(to.Row(j, d), row)
			continue
		}
		clear(to.Row(j, d))
		found(key + j)
	}
	s.values.span.n = 0
	s.Pack.Values(&s.values.block, to, n, d, s.valuesForm())
	return s.values.block
}

// keyRows returns n rows of K starting at key, in a form that the loops can read.
func (s *Stage) keyRows(a *attn.Args, b, kv, key, n int) asm.Rows {
	copies := s.copies && s.ops.Tuning.CopiesRows && a.K.SS > s.p.Dim
	return s.rows(&s.k, &a.K, a, b, kv, key, n, s.p.Score.Rope, copies)
}

// valueRows returns n rows of V starting at key, in a form that the loops can read.
func (s *Stage) valueRows(a *attn.Args, b, kv, key, n int) asm.Rows {
	return s.rows(&s.v, &a.V, a, b, kv, key, n, attn.NoRope, s.copies)
}

// rows returns rows of K or V in place, or else copies of them: c then holds the whole block.
func (s *Stage) rows(c *copied, t *attn.Tensor, a *attn.Args, b, kv, key, n int, rope attn.Rope, copies bool) asm.Rows {
	if t.D == 0 {
		return asm.Rows{}
	}
	if operand.InPlace(s.p) && rope == attn.NoRope && !copies {
		at, row := a.KRow(s.p, b, key)
		return operand.Rows(t, at, row, kv)
	}
	if !c.span.has(b, kv, key, n) {
		c.span = s.whole(a, b, kv, key)
		s.copier.Copy(c.rows, t, a, b, c.span.key, kv, c.span.n)
		if rope != attn.NoRope {
			for j := range c.span.n {
				operand.Rotate(s.ops, s.p, a, c.rows[j*t.D:][:t.D], b, c.span.key+j)
			}
		}
	}
	return asm.Rows{Data: c.rows[(key-c.span.key)*t.D:], Stride: t.D}
}

// whole returns the block that holds a key, up to the last key in use. It begins at the start of
// the block, so that tiles that see earlier keys find those there too.
func (s *Stage) whole(a *attn.Args, b, kv, key int) blockSpan {
	first := key - key%s.Block
	return blockSpan{b, kv, first, min(s.Block, a.Keys(s.p, b)-first)}
}
