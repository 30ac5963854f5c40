//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"unsafe"
)

// fewLoops are the assembly loops whose operands lie in rows: those of decoding, and Outer.
type fewLoops struct {
	dot, sum         []func(f *Few)
	scale            func(f *Few, scale *float32, apart int)
	ask              func(at unsafe.Pointer, step, lines int)
	weigh, weighSums func(f *Few, from, vectors int) (done int)
	outer, outerT    func(p *Panel)
}

// rows puts the checks before the loops on rows.
func (l *loops) rows(o *Ops) {
	o.Dot = func(f *Few) {
		f.check()
		reach("Q", len(f.Q.Data), f.R, f.D, f.Q.Stride)
		f.K.check("K", "K.Scale", f.N, f.D)
		switch {
		case f.R == 0 || f.N == 0:
		case f.D == 0 || !normal(float32(f.Factor)):
			dot(f)
		default:
			l.few.dot[f.K.Type](f)
			if f.K.Type == I8 {
				l.few.scale(f, &f.K.Scale[0], f.K.ScaleStride)
			}
		}
	}
	o.Weigh = func(f *Few) { l.weigh(f) }
	o.Sum = func(f *Few) {
		f.check()
		f.V.check("V", "V.Scale", f.N, f.C)
		reach("O", len(f.O.Data), f.R, f.C, f.O.Stride)
		if f.R > 0 && f.N > 0 && f.C > 0 {
			if f.V.Type == I8 {
				l.few.scale(f, &f.V.Scale[0], f.V.ScaleStride)
			}
			l.few.sum[f.V.Type](f)
		}
	}
	o.Ask = l.ask
	o.DScore = func(p *Panel) {
		width := l.checkWidth(p)
		reach("V", len(p.V.Data), p.N, p.C, p.V.Stride)
		reach("Dot", len(p.Dot), p.C, p.Width, p.Lanes)
		reach("P", len(p.P), p.N, p.Width, p.Lanes)
		reach("Sub", len(p.Sub), 1, p.Width, 0)
		if p.N > 0 && width > 0 {
			l.dscore[width-1](p)
		}
	}
	o.Outer = func(p *Panel) {
		reach("P", len(p.P), p.N, p.Width, p.Lanes)
		if p.Scale != nil {
			reach("Scale", len(p.Scale), 1, p.N, 0)
		}
		if l.checkOuter(p) {
			l.few.outer(p)
		} else if p.C > 0 { // Fresh or Scale without terms
			outer(p)
		}
	}
	o.OuterT = func(p *Panel) {
		reach("P", len(p.P), p.Width, p.N, p.Lanes)
		if l.checkOuter(p) {
			l.few.outerT(p)
		}
	}
	o.Elu = func(to, from []float32) {
		reach("to", len(to), 1, len(from), 0)
		if len(from) > 0 {
			l.elu(&to[0], &from[0], len(from))
		}
	}
}

// askEvery is how many bytes a line that Ask asks for stands for. On a Xeon (family 6, model 207) float32 pages of 16 keys, out of order (AVX-512,
// [page, head, row, dim], d = 128), ran at .97, 1.00, .99 and .91 of keys without pages with a line in 256 bytes, 512, 1 KiB and 4 KiB, and at .85
// without Ask.
const askEvery = 1 << 10

// ask needs no checks: what does not exist is not brought.
func (l *loops) ask(c *Cells, n int) {
	at, size := unsafe.Pointer(unsafe.SliceData(c.Data)), 4
	switch c.Type {
	case F16, BF16:
		at, size = unsafe.Pointer(unsafe.SliceData(c.Half)), 2
	case I8:
		at, size = unsafe.Pointer(unsafe.SliceData(c.Byte)), 1
		l.askRows(unsafe.Pointer(unsafe.SliceData(c.Scale)), n, 4*c.ScaleStride)
	}
	l.askRows(at, n, size*c.Stride)
}

// askRows asks for rows so many bytes apart: those that are far, one by one.
func (l *loops) askRows(at unsafe.Pointer, n, apart int) {
	if apart < askEvery {
		n, apart = (n*apart+askEvery-1)/askEvery, askEvery
	}
	l.few.ask(at, apart, n)
}

// checkOuter panics if the panel's slices are too short for what Outer and OuterT touch, and reports whether there is anything to do.
func (l *loops) checkOuter(p *Panel) bool {
	reach("Y", len(p.Y.Data), p.Width, p.C, p.Y.Stride)
	reach("X", len(p.X), p.N, p.C, p.XStr)
	return p.N > 0 && p.Width > 0 && p.C > 0
}

// weigh does whole vectors: what lies behind the last key is set to weigh nothing.
func (l *loops) weigh(f *Few) {
	f.check()
	whole := (f.N + l.vec - 1) / l.vec * l.vec
	reach("P", len(f.P), f.R, whole, f.Stride)
	reach("M", len(f.M), 1, f.R, 0)
	reach("L", len(f.L), 1, f.R, 0)
	weigh := l.few.weigh
	if f.S != nil {
		reach("S", len(f.S), 1, f.R, 0)
		weigh = l.few.weighSums
	}
	if f.From < 0 || f.From > f.R {
		panic(fmt.Errorf("asm/%s: From is %d: it must be one of the %d rows", l.isa, f.From, f.R))
	}
	if f.N == 0 {
		f.Done = f.R
		return
	}
	for r := f.From; r < f.R; r++ {
		rest := f.P[r*f.Stride:][f.N:whole]
		for j := range rest {
			rest[j] = negInf
		}
	}
	f.Done = weigh(f, f.From, whole/l.vec)
}

// check panics if the block's scores do not lie within P.
func (f *Few) check() { reach("P", len(f.P), f.R, f.N, f.Stride) }
