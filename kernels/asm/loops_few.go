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
	if asking.dot != nil {
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
				loop := asking.dot[f.K.Type]
				if n := f.keysAtOnce(&f.K, f.D, whole); n >= f.N {
					l.few.dot(f, loop)
				} else {
					for keys := f.split(&f.K, n, whole); keys.next(); {
						l.few.dot(f, loop)
					}
				}
			}
			f.end(whole)
		}
	}
	if asking.sum != nil {
		o.Sum = func(f *Few) {
			f.check(f.heads())
			f.checkHeads("O", &f.O, f.C, f.HeadO)
			whole := f.begin("V", "V.Scale", &f.V, f.C)
			if f.R > 0 && f.N > 0 && f.C > 0 {
				f.turns = sumTurns[min(f.R, len(sumTurns)-1)]
				loop := asking.sum[f.V.Type]
				if n := f.keysAtOnce(&f.V, f.C, whole); n >= f.N {
					l.few.sum(f, loop)
				} else {
					for keys := f.split(&f.V, n, whole); keys.next(); {
						l.few.sum(f, loop)
					}
				}
			}
			f.end(whole)
		}
	}
	if l.dscore != nil {
		o.DScore = func(p *Panel) {
			width := l.checkWidth(p)
			reach("V", len(p.V.Data), p.N, p.C, p.V.Stride)
			reach("Dot", len(p.Dot), p.C, p.Width, p.Lanes)
			reach("P", len(p.P), p.N, p.Width, p.Lanes)
			reach("Sub", len(p.Sub), 1, p.Width, 0)
			n, v, scores := p.N, p.V.Data, p.P
			step := atOnce(n, l.keys, p.C*p.Width, 4*(p.C+p.Width), 4*p.C*p.Width)
			for j := 0; j < n && width > 0; j += step {
				p.N, p.V.Data, p.P = min(step, n-j), v[min(j*p.V.Stride, len(v)):], scores[j*p.Lanes:]
				l.dscore[width-1](p)
			}
			p.N, p.V.Data, p.P = n, v, scores
		}
	}
	if l.few.outer.run != nil {
		o.Outer = func(p *Panel) {
			reach("P", len(p.P), p.N, p.Width, p.Lanes)
			if p.Scale != nil {
				reach("Scale", len(p.Scale), 1, p.N, 0)
			}
			l.few.outer.on(p, l.vec, p.Lanes)
		}
	}
	if l.few.outerT.run != nil {
		o.OuterT = func(p *Panel) {
			reach("P", len(p.P), p.Width, p.N, p.Lanes)
			l.few.outerT.on(p, l.vec, 1)
		}
	}
	if l.few.inner != nil {
		o.Inner = func(to []float32, x, y Rows, d int) {
			reach("x", len(x.Data), len(to), d, x.Stride)
			reach("y", len(y.Data), len(to), d, y.Stride)
			xStride, yStride := x.Stride, y.Stride
			step := atOnce(len(to), innerRows, d, 8*d, 0)
			for i := 0; i < len(to); i += step {
				n := min(step, len(to)-i)
				x, y := x.Data[min(i*x.Stride, len(x.Data)):], y.Data[min(i*y.Stride, len(y.Data)):]
				l.few.inner(&to[i], unsafe.SliceData(x), xStride, unsafe.SliceData(y), yStride, n, d)
			}
		}
	}
	if l.elu != nil {
		o.Elu = func(to, from []float32, ahead uintptr) {
			reach("to", len(to), 1, len(from), 0)
			const step = mostBytes / 8
			for i := 0; i < len(from); i += step {
				l.elu(&to[i], &from[i], min(step, len(from)-i), ahead+uintptr(4*i))
			}
		}
	}
}

// innerRows is the number of rows that Inner takes at once, and dotKeys the number of keys that Dot
// and Sum do.
const innerRows, dotKeys = 4, 4

// on panics if the panel's slices are too short for what Outer and OuterT touch, beside the
// weights, and computes X, some rows and columns in each call. apart is how far apart the weights
// of one row of X and of the next are.
func (l *outerLoop) on(p *Panel, vec, apart int) {
	reach("Y", len(p.Y.Data), p.Width, p.C, p.Y.Stride)
	reach("X", len(p.X), p.N, p.C, p.XStr)
	if p.N <= 0 || p.C <= 0 {
		return
	}
	if p.AheadLen > 0 {
		p.AheadBy = min(line, cover(p.AheadLen, l.lines(p)))
	}
	rows, cols := l.atOnce(p, vec)
	if rows >= p.N && cols >= p.C {
		l.run(p)
		return
	}
	all := *p
	for c := 0; c < all.C; c += cols {
		p.C, p.Y.Data = min(cols, all.C-c), all.Y.Data[min(c, len(all.Y.Data)):]
		for r := 0; r < all.N; r += rows {
			p.N, p.P, p.X = min(rows, all.N-r), all.P[min(r*apart, len(all.P)):], all.X[r*p.XStr+c:]
			if all.Scale != nil {
				p.Scale = all.Scale[r:]
			}
			l.run(p)
			if p.Ahead != 0 {
				p.Ahead += uintptr(l.lines(p) * p.AheadBy)
			}
		}
	}
	*p = all
}

// lines returns how many lines of memory a call asks for.
func (l *outerLoop) lines(p *Panel) int {
	return cover(p.N, l.rows) * cover(p.C, l.cols) * max(1, p.Width/4) * l.asks
}

// atOnce returns how many rows and columns of X one call computes: all columns, if a tile's rows of
// them are within the bounds, or else as many as are, and then as many rows.
func (l *outerLoop) atOnce(p *Panel, vec int) (rows, cols int) {
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

// dot multiplies queries with keys, and the products of I8 with their keys' scales.
func (l *fewLoops) dot(f *Few, loop func(*Few)) {
	loop(f)
	if f.K.Type == I8 {
		l.scale(f, &f.K.Scale[0], f.K.ScaleStride)
	}
}

// sum multiplies weights of I8 with their values' scales, and then weights with values.
func (l *fewLoops) sum(f *Few, loop func(*Few)) {
	if f.V.Type == I8 {
		l.scale(f, &f.V.Scale[0], f.V.ScaleStride)
	}
	loop(f)
}

// keysAtOnce returns how many keys one call of Dot or Sum takes: whole runs, of all heads in turn,
// unless all keys are one run.
func (f *Few) keysAtOnce(rows *Cells, cols int, whole bool) int {
	unit, queries, size := f.Run, f.heads()*f.R, f.heads()*cols*rows.Type.size()
	if whole {
		unit = dotKeys
	}
	return atOnce(f.N, unit, queries*cols, size+4*queries, 4*queries*cols)
}

// fewKeys are the keys of a Few on their way through Dot or Sum, n in each call.
type fewKeys struct {
	f     *Few
	rows  *Cells // K or V of f
	all   Few
	first Cells // all of the rows
	at, n int   // the first key of the next call
	whole bool  // all keys are one run
}

func (f *Few) split(rows *Cells, n int, whole bool) fewKeys {
	return fewKeys{f: f, rows: rows, all: *f, first: *rows, n: n, whole: whole}
}

// next points f at the keys of the next call, or at all of them again and returns false.
func (k *fewKeys) next() bool {
	f := k.f
	if k.at >= k.all.N {
		*f = k.all
		return false
	}
	f.N, f.P = min(k.n, k.all.N-k.at), k.all.P[k.at:]
	if k.whole {
		*k.rows = k.first.From(k.at)
		f.Run, f.ahead[0] = f.N, k.rows.Address(0)
	} else {
		run := k.at / f.Run * f.heads()
		f.At, f.Ahead, f.Far = k.all.At[run:], k.all.Ahead[run:], k.all.Far[run:]
		if k.rows.Type == I8 {
			f.Scales, f.FarScale = k.all.Scales[run:], k.all.FarScale[run:]
		}
	}
	k.at += k.n
	return true
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
