//go:build (amd64 || arm64) && !purego

package asm

import "fmt"

// cellLoops are the assembly loops that change types.
type cellLoops struct {
	widen  []func(to *float32, from *Cells, n, d int)
	narrow []func(to *uint16, from *float32, vectors int) // to F16, to BF16
}

// widening puts the checks before them.
func (l *loops) widening(o *Ops) {
	if l.cells.widen != nil {
		o.Widen = func(to []float32, from *Cells, n, d int) {
			from.check("from", "from.Scale", n, d, 0, 0)
			reach("to", len(to), n, d, d)
			if n <= 0 || d <= 0 {
				return
			}
			step := atOnce(n, 1, d, d*(4+from.Type.size()), 0)
			if step >= n {
				l.cells.widen[from.Type](&to[0], from, n, d)
				return
			}
			all := *from
			for j := 0; j < n; j += step {
				*from = all.From(j)
				l.cells.widen[from.Type](&to[j*d], from, min(step, n-j), d)
			}
			*from = all
		}
	}
	if l.cells.narrow != nil {
		o.Narrow = func(to []uint16, from []float32, t Type) {
			if t != F16 && t != BF16 {
				panic(fmt.Errorf("asm: Narrow: type %d: it must be F16 or BF16", t))
			}
			reach("to", len(to), 1, len(from), 0)
			for len(from) >= l.vec {
				vectors := min(len(from), mostBytes/8) / l.vec
				l.cells.narrow[t-F16](&to[0], &from[0], vectors)
				to, from = to[vectors*l.vec:], from[vectors*l.vec:]
			}
			narrow(to, from, t)
		}
	}
}

// size returns the bytes of an element.
func (t Type) size() int { return [...]int{F32: 4, F16: 2, BF16: 2, I8: 1}[t] }

// check panics if rows of so many columns, the first of which begins at an element, do not lie within the cells, or there is no scale for each, by the
// names given.
func (c *Cells) check(name, scale string, rows, cols, element, firstScale int) {
	switch c.Type {
	case F32:
		reach(name, len(c.Data)-element, rows, cols, c.Stride)
	case F16, BF16:
		reach(name, len(c.Half)-element, rows, cols, c.Stride)
	case I8:
		reach(name, len(c.Byte)-element, rows, cols, c.Stride)
		reach(scale, len(c.Scale)-firstScale, rows, 1, c.ScaleStride)
	default:
		panic(fmt.Errorf("asm: %s: type %d: there is no such", name, c.Type))
	}
}
