package nn

import (
	"fmt"
	"time"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// A Product is C = A B, or C += A B, with either factor transposed:
//
//	C[i][j] (+)= Σ_k A[i][k] B[k][j]        AT: A[k][i]        BT: B[j][k]
type Product struct {
	C, A, B Mat
	AT, BT  bool
	Add     bool
}

// How a product is cut. Terms are added up depth at a time, in registers, and then to C: a panel of B, depth rows of width columns, lies packed in the
// first-level cache while all rows of a task go past it. A task is high rows and width columns of C: whatever team takes the tasks, an element is
// added up in the same order.
//
// Packing is worth it for many rows of C. Where there are no more than few, B is read where it lies, strip columns at a time. The additions are the same, and so
// are the bits: a row comes out alone as it does among others. Only if B is transposed, its rows are multiplied with those of A as they lie, longest terms at a time,
// which adds up in another order.
//
// On an EPYC (Zen 5), with 64 MiB of matrices in turn, one row of A took .5 of its time with packing, which is as long as the probe takes to read B and no more; 12 rows
// took .6 (AVX2 .8). With 24 rows AVX2 took 1.2 where rows of B are 8 KiB apart and displace each other in the first-level cache, and .9 elsewhere. Strips of 64
// columns cost one row a quarter or a third more with AVX-512, strips of 256 no less.
//
// If A is transposed, a tile reads a few numbers of each of depth of its rows. Rows a multiple of alias apart all fall into one set of the first-level cache: of such an
// A aside columns at a time are packed too. With rows of 4 KB read in place AVX-512 made .69 of the peak on that EPYC, and AVX2 .57; so packed .79 and .89.
const (
	depth   = 128
	width   = 64
	high    = 384 // a multiple of the rows of every set's tiles
	few     = 12
	aside   = 96 // and so is this
	strip   = 128
	longest = 1024
	alias   = 4096 / 4
)

// A Multiplier computes products on the loops of an instruction set, one at a time: it panics when
// a second product begins before the first has ended. It allocates nothing after it was made.
type Multiplier struct {
	guard   attn.Guard
	ops     *asm.Ops
	team    *attn.Team
	workers []productWorker
	p       Product // in hand
	inPlace bool    // B is not packed
	width   int     // columns of a task
	columns int     // tasks side by side
	task    func(worker, task int)
	watch   func(p Product, took time.Duration)
}

type productWorker struct {
	panel asm.Panel
	move  asm.Move
	few   asm.Few
	b     []float32 // [depth][width]
	a     []float32 // [depth][aside]
}

// NewMultiplier makes one that shares the work among a team; nil is the caller's goroutine.
func NewMultiplier(ops *asm.Ops, team *attn.Team) *Multiplier {
	m := &Multiplier{ops: ops, team: team, workers: make([]productWorker, team.Workers())}
	for i := range m.workers {
		w := &m.workers[i]
		w.a, w.b = make([]float32, depth*aside), make([]float32, depth*width)
		w.few.Factor = 1
	}
	m.task = m.part
	return m
}

// Watch has f called after every product from now on, with the time that it took. Without it, or after a nil f, no clock is read.
func (m *Multiplier) Watch(f func(p Product, took time.Duration)) { m.watch = f }

// Do computes a product. C must not share elements with A or B. Shapes that do not fit are a panic. An element has the same bits on any team and, if B is not
// transposed, whatever other rows there are.
func (m *Multiplier) Do(p Product) {
	if m.watch == nil {
		m.do(p)
		return
	}
	begun := time.Now()
	m.do(p)
	m.watch(p, time.Since(begun))
}

func (m *Multiplier) do(p Product) {
	defer m.guard.Enter("nn: product").Leave()
	rows, terms := p.A.Rows, p.A.Cols
	if p.AT {
		rows, terms = terms, rows
	}
	inner, cols := p.B.Rows, p.B.Cols
	if p.BT {
		inner, cols = cols, inner
	}
	if rows != p.C.Rows || cols != p.C.Cols || inner != terms {
		panic(fmt.Sprintf("nn: product of %v (transposed: %v) and %v (transposed: %v) into %v", p.A, p.AT, p.B, p.BT, p.C))
	}
	if terms == 0 {
		if !p.Add {
			p.C.Clear()
		}
		return
	}
	m.p, m.inPlace, m.width = p, rows <= few && !(p.AT && p.BT), width
	if m.inPlace && !p.BT {
		m.width = strip
	}
	m.columns = (cols + m.width - 1) / m.width
	m.team.Run((rows+high-1)/high*m.columns, m.task)
	m.p = Product{}
}

// part computes one task.
func (m *Multiplier) part(worker, task int) {
	w, p := &m.workers[worker], &m.p
	r, c := task/m.columns*high, task%m.columns*m.width
	rows, cols, terms := min(high, p.C.Rows-r), min(m.width, p.C.Cols-c), p.A.Cols
	if m.inPlace && p.BT {
		m.dots(w, c, cols)
		return
	}
	if p.AT {
		terms = p.A.Rows
	}
	q := &w.panel
	q.N, q.C, q.X, q.XStr, q.Lanes = rows, cols, p.C.Data[r*p.C.Stride+c:], p.C.Stride, p.A.Stride
	for k := 0; k < terms; k += depth {
		q.Width, q.Fresh = min(depth, terms-k), k == 0 && !p.Add
		if m.inPlace {
			q.Y = asm.Rows{Data: p.B.Data[k*p.B.Stride+c:], Stride: p.B.Stride}
		} else {
			m.pack(w, k, q.Width, c, cols)
			q.Y = asm.Rows{Data: w.b, Stride: width}
		}
		if p.AT {
			if q.Fresh { // which OuterT does not know
				p.C.Part(r, rows, c, cols).Clear()
			}
			m.transposed(w, k, r)
		} else {
			q.P = p.A.Data[r*p.A.Stride+k:]
			m.ops.Outer(q)
		}
	}
}

// transposed adds to the panel's results the terms from k on, of as many columns of A from r on.
func (m *Multiplier) transposed(w *productWorker, k, r int) {
	q, a := &w.panel, &m.p.A
	if m.inPlace || a.Stride%alias != 0 {
		q.P = a.Data[k*a.Stride+r:]
		m.ops.OuterT(q)
		return
	}
	all := *q
	for i := 0; i < all.N; i += aside {
		q.N = min(aside, all.N-i)
		for j := range q.Width {
			copy(w.a[j*aside:][:q.N], a.Data[(k+j)*a.Stride+r+i:])
		}
		q.P, q.Lanes, q.X = w.a, aside, all.X[i*q.XStr:]
		m.ops.OuterT(q)
	}
	*q = all
}

// dots computes columns c to c+cols of few rows of C from rows of B.
func (m *Multiplier) dots(w *productWorker, c, cols int) {
	p, f := &m.p, &w.few
	f.R, f.N = p.C.Rows, cols
	for k := 0; k < p.A.Cols; k += longest {
		f.D = min(longest, p.A.Cols-k)
		f.Q = asm.Rows{Data: p.A.Data[k:], Stride: p.A.Stride}
		f.K.Rows = asm.Rows{Data: p.B.Data[c*p.B.Stride+k:], Stride: p.B.Stride}
		if k == 0 && !p.Add {
			f.P, f.Stride = p.C.Data[c:], p.C.Stride
			m.ops.Dot(f)
			continue
		}
		f.P, f.Stride = w.b, width
		m.ops.Dot(f)
		for i := range f.R {
			add(p.C.Row(i)[c:], w.b[i*width:][:cols])
		}
	}
}

// pack copies rows k to k+n and columns c to c+cols of B into the panel.
func (m *Multiplier) pack(w *productWorker, k, n, c, cols int) {
	b := &m.p.B
	if !m.p.BT {
		for i := range n {
			copy(w.b[i*width:][:cols], b.Data[(k+i)*b.Stride+c:])
		}
		return
	}
	v := &w.move
	v.Lanes, v.D = width, n
	for j := 0; j < cols; j += m.ops.Lanes {
		v.Rows = min(m.ops.Lanes, cols-j)
		v.Width = (v.Rows + m.ops.Vec - 1) / m.ops.Vec * m.ops.Vec
		v.Tile, v.Outside = w.b[j:], asm.Rows{Data: b.Data[(c+j)*b.Stride+k:], Stride: b.Stride}
		m.ops.Load(v)
	}
}
