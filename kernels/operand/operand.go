// Package operand converts tensors into rows that the inner loops read: from any layout, element
// type and page table, rotated to their positions.
package operand

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// Rows returns the float32 rows of head h in batch b, starting at row s of the tensor.
func Rows(t *attn.Tensor, b, s, h int) asm.Rows {
	if t.D == 0 {
		return asm.Rows{}
	}
	return asm.Rows{Data: t.Data[b*t.SB+s*t.SS+h*t.SH:], Stride: t.SS}
}

// Cells returns the rows of head h in batch b, of any element type, starting at row s of the
// tensor.
func Cells(t *attn.Tensor, b, s, h int) asm.Cells {
	if t.D == 0 {
		return asm.Cells{}
	}
	o := b*t.SB + s*t.SS + h*t.SH
	c := asm.Cells{Type: asm.Type(t.Type), Rows: asm.Rows{Stride: t.SS}}
	switch {
	case t.Type == attn.F32:
		c.Data = t.Data[o:]
	case t.Type == attn.I8:
		c.Byte, c.Scale, c.ScaleStride = t.Int8[o:], t.Scale[o/t.D:], t.SS/t.D
	default:
		c.Half = t.Bits[o:]
	}
	return c
}

// InPlace reports whether the loops can read rows of K and V in place, unless they must be rotated:
// they are float32 and not in pages.
func InPlace(p *attn.Problem) bool { return p.KV == attn.F32 && p.Page == 0 }

// A Copier copies rows of K or V into contiguous float32 rows. It belongs to one worker.
type Copier struct {
	ops   *asm.Ops
	p     *attn.Problem
	cells asm.Cells // a field, as on the stack it would escape through the func fields of Ops
}

// NewCopier returns a Copier for calls of problem p, to which it keeps a pointer.
func NewCopier(p *attn.Problem, ops *asm.Ops) Copier { return Copier{ops: ops, p: p} }

// Copy copies n rows of key head kv of t, which is K or V of the call, to to. The rows are those of
// keys key, key+1, ... of batch entry b.
func (c *Copier) Copy(to []float32, t *attn.Tensor, a *attn.Args, b, key, kv, n int) {
	for j := 0; j < n; {
		rows := n - j
		if c.p.Page != 0 {
			rows = min(rows, c.p.Page-(key+j)%c.p.Page) // the rest of the page
		}
		at, row := a.KRow(c.p, b, key+j)
		c.cells = Cells(t, at, row, kv)
		c.ops.Vector.Widen(to[j*t.D:], &c.cells, rows, t.D)
		j += rows
	}
}

// Rotate rotates a row of Q or K to a position of batch entry b.
func Rotate(ops *asm.Ops, p *attn.Problem, a *attn.Args, row []float32, b, pos int) {
	cos, sin := &a.Terms.Cos, &a.Terms.Sin
	ops.Vector.Rotate(row, cos.Row(b%cos.B, pos, 0), sin.Row(b%sin.B, pos, 0), p.Score.Rope == attn.RopeInterleaved)
}

// RotateBack undoes Rotate. sines is scratch for Angles numbers.
func RotateBack(ops *asm.Ops, p *attn.Problem, a *attn.Args, row []float32, b, pos int, sines []float32) {
	cos, sin := &a.Terms.Cos, &a.Terms.Sin
	back := sines[:sin.D]
	for i, x := range sin.Row(b%sin.B, pos, 0) {
		back[i] = -x
	}
	ops.Vector.Rotate(row, cos.Row(b%cos.B, pos, 0), back, p.Score.Rope == attn.RopeInterleaved)
}

// Angles returns the largest number of angles that the rotation tables of a problem can have, or 0
// without rotation.
func Angles(p *attn.Problem) int {
	if p.Score.Rope == attn.NoRope {
		return 0
	}
	return min(p.QDim(), p.Dim) / 2
}

// Finite reports whether n rows of head h in batch b are finite, starting at row s of a float32
// tensor. A tensor without data is finite.
func Finite(ops *asm.Ops, t *attn.Tensor, b, s, h, n int) bool {
	if t.Data == nil || n == 0 || t.D == 0 {
		return true
	}
	if x := t.Data[b*t.SB+s*t.SS+h*t.SH:]; t.SS == t.D {
		return ops.Vector.Finite(x[:n*t.D])
	}
	for i := range n {
		if !ops.Vector.Finite(t.Row(b, s+i, h)) {
			return false
		}
	}
	return true
}
