package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// A Stage holds one block of the keys and values that a worker's tiles share, as contiguous float32
// rows. It copies only rows that the loops cannot read in place, or must have rotated, and those that
// tiles have it gather: V, and K where Ops.Gathers.
type Stage struct {
	ops        *asm.Ops
	p          *attn.Problem
	copier     operand.Copier
	size       int
	gather     bool // copy rows although the loops could read them
	keys, vals part
	back       struct{ keys, vals cuttings } // for a Back: K in columns, for dQ, and V in rows
	clean      []float32                     // [size][d_v]: rows of V without those that are not finite
	mixed      []float32                     // [Lanes][d or d_v]: queries or outputs of a tile that has several heads
}

// part is the staged half of a block, K or V.
type part struct {
	rows []float32
	span
	cut cuttings
}

// span is what is in a part.
type span struct{ b, kv, key, n int }

// has is whether n rows from key on are.
func (s span) has(b, kv, key, n int) bool {
	return s.n > 0 && s.b == b && s.kv == kv && s.key <= key && key+n <= s.key+s.n
}

// staged reports whether the stage needs room for rows of K, and of V: they are copied, or may be.
func staged(p *attn.Problem, ops *asm.Ops, gathers bool) (k, v bool) {
	copied := !operand.InPlace(p)
	return copied || p.Score.Rope != attn.NoRope || gathers && ops.Gathers, copied || gathers
}

// StageFloats is the number of float32 numbers in a Stage of blocks of so many keys, whose tiles may have it gather rows.
func StageFloats(p *attn.Problem, ops *asm.Ops, size int, gathers bool) int {
	k, v := staged(p, ops, gathers)
	n := size * p.DimV
	if k {
		n += size * p.Dim
	}
	if v {
		n += size * p.DimV
	}
	return n
}

// NewStage allocates a worker's stage.
func NewStage(p *attn.Problem, ops *asm.Ops, size int, gathers bool) *Stage {
	s := &Stage{ops: ops, p: p, copier: operand.NewCopier(p, ops), size: size, clean: make([]float32, size*p.DimV)}
	k, v := staged(p, ops, gathers)
	if k {
		s.keys.rows = make([]float32, size*p.Dim)
	}
	if v {
		s.vals.rows = make([]float32, size*p.DimV)
	}
	return s
}

// HoldMixed makes room for what tiles that have several heads copy, where some may.
func (s *Stage) HoldMixed() *Stage {
	s.mixed = make([]float32, MixedFloats(s.p, s.ops))
	return s
}

// Forget empties the stage: operands may have changed.
func (s *Stage) Forget() {
	s.keys.n, s.vals.n, s.keys.cut.n, s.vals.cut.n, s.back.keys.n, s.back.vals.n = 0, 0, 0, 0, 0, 0
}

// K is n rows of keys from key on, ready for the loops. They and those of the next calls lie in one block of the stage's size.
func (s *Stage) K(a *attn.Args, b, kv, key, n int) asm.Rows {
	gather := s.gather && s.ops.Gathers && a.K.SS > s.p.Dim
	return s.rows(&s.keys, &a.K, a, b, kv, key, n, s.p.Score.Rope, gather)
}

// V is the same for values.
func (s *Stage) V(a *attn.Args, b, kv, key, n int) asm.Rows {
	return s.rows(&s.vals, &a.V, a, b, kv, key, n, attn.NoRope, s.gather)
}

func (s *Stage) rows(p *part, t *attn.Tensor, a *attn.Args, b, kv, key, n int, rope attn.Rope, gather bool) asm.Rows {
	if gather || !operand.InPlace(s.p) || rope != attn.NoRope || t.D == 0 {
		return s.block(p, t, a, b, kv, key, n, rope)
	}
	at, row := a.KRow(s.p, b, key)
	return operand.Rows(t, at, row, kv)
}

// whole is the block that a key lies in, to its end or that of the keys in use: tiles that start their block later then find it there.
func (s *Stage) whole(a *attn.Args, b, kv, key int) span {
	first := key - key%s.size
	return span{b, kv, first, min(s.size, a.Keys(s.p, b)-first)}
}

// block returns rows of a staged part, those of key first. It fills the part with the whole block
// that contains key.
func (s *Stage) block(p *part, t *attn.Tensor, a *attn.Args, b, kv, key, n int, rope attn.Rope) asm.Rows {
	if t.D == 0 {
		return asm.Rows{}
	}
	if !p.has(b, kv, key, n) {
		p.span = s.whole(a, b, kv, key)
		s.copier.Copy(p.rows, t, a, b, p.key, kv, p.n)
		if rope != attn.NoRope {
			for j := range p.n {
				operand.Rotate(s.ops, s.p, a, p.rows[j*t.D:][:t.D], b, p.key+j)
			}
		}
	}
	return asm.Rows{Data: p.rows[(key-p.key)*t.D:], Stride: t.D}
}
