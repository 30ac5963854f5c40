//go:build (amd64 || arm64) && !purego

package asm

import (
	"unsafe"
)

// backLoops are the assembly loops of the backward pass.
type backLoops struct {
	dscore        []func(p *DScore)
	outer, outerT outerLoop
	inner         func(to, x *float32, xStride int, y *float32, yStride, rows, d int)
}

// An outerLoop computes micro-tiles of rows rows and cols columns, and prefetches some lines of
// memory in every four steps.
type outerLoop struct {
	rows, cols, prefetches int
	run                    func(p *Outer)
}

// setBack replaces the portable loops by the set's own, with checks before them.
func (l *loops) setBack(o *Ops) {
	if l.back.dscore != nil {
		o.Back.DScore = l.dscore
	}
	if l.back.outer.run != nil {
		o.Back.Outer = l.outer
	}
	if l.back.outerT.run != nil {
		o.Back.OuterT = l.outerT
	}
	if l.back.inner != nil {
		o.Back.Inner = l.inner
	}
}

func (l *loops) dscore(p *DScore) {
	width := l.checkPanel(&p.Panel)
	v := &p.Values.rows
	reach("Values", len(v.Data), p.N, p.C, v.Stride)
	reach("Dot", len(p.Dot.lanes), p.C, p.Width, p.Lanes)
	reach("Sub", len(p.Sub), 1, p.Width, 0)
	n, data, scores := p.N, v.Data, p.P
	step := atOnce(n, l.keys, p.C*p.Width, 4*(p.C+p.Width), 4*p.C*p.Width)
	for j := 0; j < n && width > 0; j += step {
		p.N, v.Data, p.P = min(step, n-j), data[min(j*v.Stride, len(data)):], scores[j*p.Lanes:]
		l.back.dscore[width-1](p)
	}
	p.N, v.Data, p.P = n, data, scores
}

func (l *loops) outer(p *Outer) {
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	l.back.outer.on(p, l.vec, p.Lanes)
}

func (l *loops) outerT(p *Outer) {
	reach("P", len(p.P), p.Width, p.N, p.Lanes)
	l.back.outerT.on(p, l.vec, 1)
}

func (l *loops) inner(to []float32, x, y Rows, d int) {
	reach("x", len(x.Data), len(to), d, x.Stride)
	reach("y", len(y.Data), len(to), d, y.Stride)
	xStride, yStride := x.Stride, y.Stride
	step := atOnce(len(to), innerRows, d, 8*d, 0)
	for i := 0; i < len(to); i += step {
		n := min(step, len(to)-i)
		x, y := x.Data[min(i*x.Stride, len(x.Data)):], y.Data[min(i*y.Stride, len(y.Data)):]
		l.back.inner(&to[i], unsafe.SliceData(x), xStride, unsafe.SliceData(y), yStride, n, d)
	}
}

// innerRows is the number of rows that Inner computes at once.
const innerRows = 4

// on panics if slices are too short for what Outer and OuterT touch besides the weights. Then it
// computes X, some rows and columns in each call. apart is the distance between the weights of
// neighbouring rows of X.
func (l *outerLoop) on(p *Outer, vec, apart int) {
	p.mustBePlain()
	y := &p.Y.rows
	reach("Y", len(y.Data), p.Width, p.C, y.Stride)
	reach("X", len(p.X), p.N, p.C, p.XStride)
	if p.Keep != nil {
		reach("Keep", len(p.Keep), 1, p.N, 0)
	}
	if p.Scale != nil {
		reach("Scale", len(p.Scale), 1, p.N, 0)
	}
	if p.N <= 0 || p.C <= 0 {
		return
	}
	if p.Len > 0 {
		p.By = min(line, cover(p.Len, l.lines(p)))
	}
	rows, cols := l.atOnce(p, vec)
	if rows >= p.N && cols >= p.C {
		l.run(p)
		return
	}
	all := *p
	for c := 0; c < all.C; c += cols {
		p.C, y.Data = min(cols, all.C-c), all.Y.rows.Data[min(c, len(all.Y.rows.Data)):]
		for r := 0; r < all.N; r += rows {
			p.N, p.P, p.X = min(rows, all.N-r), all.P[min(r*apart, len(all.P)):], all.X[r*p.XStride+c:]
			if all.Keep != nil {
				p.Keep = all.Keep[r:]
			}
			if all.Scale != nil {
				p.Scale = all.Scale[r:]
			}
			l.run(p)
			if p.At != 0 {
				p.At += uintptr(l.lines(p) * p.By)
			}
		}
	}
	*p = all
}

// lines returns the number of lines of memory that a call prefetches.
func (l *outerLoop) lines(p *Outer) int {
	return cover(p.N, l.rows) * cover(p.C, l.cols) * max(1, p.Width/4) * l.prefetches
}

// atOnce returns the number of rows and columns of X that one call computes. It takes all columns
// if a micro-tile's rows of them are within the bounds, or else as many columns as are. Then it
// takes as many rows as the bounds allow.
func (l *outerLoop) atOnce(p *Outer, vec int) (rows, cols int) {
	of := func(n int) (products, bytes, shared int) { // a row or column of n elements
		return n * p.Width, 4 * (p.Width + 2*n), 4 * n * p.Width
	}
	if products, bytes, shared := of(p.C); within(p.N, products, bytes, shared) {
		return p.N, p.C
	}
	products, bytes, shared := of(min(l.rows, p.N))
	if cols = p.C; !within(cols, products, bytes, shared) {
		cols = max(most(l.cols, products, bytes, shared), min(most(vec, products, bytes, shared), l.cols), vec)
	}
	products, bytes, shared = of(min(cols, p.C))
	return atOnce(p.N, l.rows, products, bytes, shared), cols
}

// line is the size of a cache line.
const line = 64

// cover returns the number of pieces of a size that cover n.
func cover(n, size int) int { return (n + size - 1) / size }
