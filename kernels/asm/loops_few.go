//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// fewLoops are the assembly loops whose operands lie in rows: those of decoding, and Outer.
type fewLoops struct {
	scale         func(f *Few, scale *float32, apart int)
	outer, outerT outerLoop
	inner         func(to, x *float32, xStride int, y *float32, yStride, rows, d int)
}

// An outerLoop takes a tile of rows and columns at once, in which it asks so many lines of memory in every four terms.
type outerLoop struct {
	rows, cols, asks int
	run              func(p *Panel)
}

// rows puts the checks before the loops on rows.
func (l *loops) rows(o *Ops, asking *askingLoops) {
	dotTurns, sumTurns := turns(l.dotTiles), turns(l.sumTiles)
	o.Dot = func(f *Few) {
		f.check(f.heads())
		f.checkHeads("Q", &f.Q, f.D, f.HeadQ)
		whole := f.begin("K", "K.Scale", &f.K, f.D)
		switch {
		case f.R == 0 || f.N == 0:
		case f.D == 0 || !Normal(f.Factor):
			dot(f)
		default:
			f.turns = dotTurns[min(f.R, len(dotTurns)-1)]
			asking.dot[f.K.Type](f)
			if f.K.Type == I8 {
				l.few.scale(f, &f.K.Scale[0], f.K.ScaleStride)
			}
		}
		f.end(whole)
	}
	o.Sum = func(f *Few) {
		f.check(f.heads())
		f.checkHeads("O", &f.O, f.C, f.HeadO)
		whole := f.begin("V", "V.Scale", &f.V, f.C)
		if f.R > 0 && f.N > 0 && f.C > 0 {
			if f.V.Type == I8 {
				l.few.scale(f, &f.V.Scale[0], f.V.ScaleStride)
			}
			f.turns = sumTurns[min(f.R, len(sumTurns)-1)]
			asking.sum[f.V.Type](f)
		}
		f.end(whole)
	}
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
		l.few.outer.on(p)
	}
	o.OuterT = func(p *Panel) {
		reach("P", len(p.P), p.Width, p.N, p.Lanes)
		l.few.outerT.on(p)
	}
	o.Inner = func(to []float32, x, y Rows, d int) {
		reach("x", len(x.Data), len(to), d, x.Stride)
		reach("y", len(y.Data), len(to), d, y.Stride)
		if len(to) > 0 {
			l.few.inner(unsafe.SliceData(to), unsafe.SliceData(x.Data), x.Stride, unsafe.SliceData(y.Data), y.Stride, len(to), d)
		}
	}
	o.Elu = func(to, from []float32, ahead uintptr) {
		reach("to", len(to), 1, len(from), 0)
		if len(from) > 0 {
			l.elu(&to[0], &from[0], len(from), ahead)
		}
	}
}

// on panics if the panel's slices are too short for what Outer and OuterT touch, beside the weights.
func (l *outerLoop) on(p *Panel) {
	reach("Y", len(p.Y.Data), p.Width, p.C, p.Y.Stride)
	reach("X", len(p.X), p.N, p.C, p.XStr)
	if p.N <= 0 || p.C <= 0 {
		return
	}
	if p.AheadLen > 0 {
		lines := cover(p.N, l.rows) * cover(p.C, l.cols) * max(1, p.Width/4) * l.asks
		p.AheadBy = min(line, cover(p.AheadLen, lines))
	}
	l.run(p)
}

// line is the size of a cache line.
const line = 64

// cover is how many pieces of a size cover n.
func cover(n, size int) int { return (n + size - 1) / size }

// weigh does whole vectors: what lies behind the last key is set to weigh nothing.
func (l *loops) weigh(f *Few, weigh func(f *Few, from, vectors int) (done int)) {
	f.check(1)
	whole := (f.N + l.vec - 1) / l.vec * l.vec
	reach("P", len(f.P), f.R, whole, f.Stride)
	reach("M", len(f.M), 1, f.R, 0)
	reach("L", len(f.L), 1, f.R, 0)
	if f.S != nil {
		reach("S", len(f.S), 1, f.R, 0)
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
	if f.Done = weigh(f, f.From, whole/l.vec); f.Done < f.R {
		f.Top = slices.Max(f.tops[:l.vec])
	}
}

// check panics if the scores of so many heads do not lie within P.
func (f *Few) check(heads int) {
	if f.Heads < 0 || f.Heads > 1 && f.Run == 0 {
		panic(fmt.Errorf("asm: Heads is %d, and Run %d: several heads have runs to go in turn", f.Heads, f.Run))
	}
	if f.R > math.MaxInt/heads {
		panic(fmt.Errorf("asm: P: %d elements for %d heads of %d queries", len(f.P), heads, f.R))
	}
	reach("P", len(f.P), heads*f.R, f.N, f.Stride)
}

// checkHeads panics if rows of the heads, so far apart, do not lie within an operand.
func (f *Few) checkHeads(name string, rows *Rows, cols, apart int) {
	first := 0
	if last := f.heads() - 1; last > 0 && f.R > 0 && cols > 0 {
		over, at := bits.Mul64(uint64(last), uint64(apart))
		if apart < 0 || over != 0 || at > uint64(len(rows.Data)) {
			panic(fmt.Errorf("asm: %s: %d elements, and %d heads %d apart reach past them", name, len(rows.Data), f.heads(), apart))
		}
		first = int(at)
	}
	reach(name, len(rows.Data)-first, f.R, cols, rows.Stride)
}

// turns says, for each number of queries, which of every four rows that come later a tile of queries asks for, a bit a row and four a tile, the first tile's
// the lowest. Each row is asked for by one tile. More queries than there are numbers for do as the last.
func turns(tiles []int) []uint64 {
	const most = 16 // tiles that have bits
	all := make([]uint64, most*tiles[0]+1)
	for queries := range all {
		n, left := 0, queries
		for _, tile := range tiles {
			n += left / tile
			left %= tile
		}
		n = min(n, most)
		for i := range n {
			for row := 4 * i / n; row < 4*(i+1)/n; row++ {
				all[queries] |= 1 << (4*i + row)
			}
		}
	}
	return all
}

// origin is where a run of all keys begins.
var origin [1]int

// begin panics if rows of so many columns do not lie within the cells. If nothing is said about runs it makes all keys one, until the end.
func (f *Few) begin(name, scale string, c *Cells, cols int) (whole bool) {
	if f.Run != 0 {
		f.checkRuns(name, scale, c, cols)
		return false
	}
	c.check(name, scale, f.N, cols, 0, 0)
	f.Run, f.At, f.Scales, f.ahead[0] = max(f.N, 1), origin[:], origin[:], c.Address(0)
	f.Ahead, f.Far, f.FarScale = f.ahead[:], f.ahead[:], f.ahead[:]
	return true
}

func (f *Few) end(whole bool) {
	if whole {
		f.Run = 0
	}
}

// checkRuns does the same run by run.
func (f *Few) checkRuns(name, scale string, c *Cells, cols int) {
	if f.Run < 0 || f.N < 0 {
		panic(fmt.Errorf("asm: %d keys, and Run is %d: neither may be negative", f.N, f.Run))
	}
	rest, heads := f.N%f.Run, f.heads()
	whole := f.N / f.Run * heads
	all := whole + set(rest > 0)*heads
	reach("Ahead", len(f.Ahead), 1, all, 0)
	reach("Far", len(f.Far), 1, all, 0)
	if c.Type == I8 {
		reach("FarScale", len(f.FarScale), 1, all, 0)
	}
	f.checkRun(name, scale, c, 0, whole, f.Run*set(whole > 0), cols)
	f.checkRun(name, scale, c, whole, all, rest, cols)
}

// checkRun does the same for runs from one to another, of so many rows.
func (f *Few) checkRun(name, scale string, c *Cells, from, to, rows, cols int) {
	at, scales := furthest("At", f.At, from, to), 0
	if c.Type == I8 {
		scales = furthest("Scales", f.Scales, from, to)
	}
	c.check(name, scale, rows, cols, at, scales)
}

// furthest is the largest of the places from one to another, none of which may be negative.
func furthest(name string, at []int, from, to int) int {
	if to > len(at) {
		panic(fmt.Errorf("asm: %s: %d places for %d runs", name, len(at), to))
	}
	last := uint(0)
	for _, x := range at[from:to] {
		last = max(last, uint(x))
	}
	if last > math.MaxInt {
		panic(fmt.Errorf("asm: %s: %v: none may be negative", name, at[from:to]))
	}
	return int(last)
}
