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

// How a product is divided. Addends are summed in registers, depth at a time, and each sum is added
// to C. A panel of B, of depth rows and width columns, is packed and stays in the first-level cache
// while it is multiplied by all rows of a task. A task is high rows and width columns of C. On
// every team an element is summed in the same order.
//
// For up to inPlaceRows rows of C, packing costs more than it saves. B is then read in place, in
// strips of columns. The additions are the same, so a row has the same bits alone and among others.
// A transposed B is the exception: its rows are multiplied by those of A in place, longest numbers
// in each call, which sums in another order.
//
// If A is transposed, a micro-tile reads a few numbers from each of depth rows of A. Rows whose
// distance is a multiple of alias all map to one set of the first-level cache. Such an A is packed
// too, aside columns at a time.
//
// Tuning: docs/tuning.md#products
const (
	depth       = 128
	width       = 64
	high        = 384 // a multiple of the rows of every set's micro-tiles
	inPlaceRows = 12
	aside       = 96 // as high is
	strip       = 128
	longest     = 1024
	alias       = 4096 / 4
)

// A Multiplier computes products on the loops of an instruction set, one at a time. It panics when
// a second product begins before the first has ended. It allocates only when it is made.
type Multiplier struct {
	guard   attn.Guard
	ops     *asm.Ops
	team    *attn.Team
	workers []productWorker
	p       Product // the current product
	inPlace bool    // B is not packed
	width   int     // columns of a task
	columns int     // number of tasks side by side
	task    func(worker, task int)
	watch   func(p Product, took time.Duration)
}

type productWorker struct {
	outer asm.Outer
	move  asm.Move
	dot   asm.Dot
	b     []float32 // [depth][width]
	a     []float32 // [depth][aside]
}

// NewMultiplier returns a Multiplier that shares its work among a team. A nil team is the caller's
// goroutine.
func NewMultiplier(ops *asm.Ops, team *attn.Team) *Multiplier {
	m := &Multiplier{ops: ops, team: team, workers: make([]productWorker, team.Workers())}
	for i := range m.workers {
		w := &m.workers[i]
		w.a, w.b = make([]float32, depth*aside), make([]float32, depth*width)
		w.dot.Factor = 1
	}
	m.task = m.compute
	return m
}

// Watch makes the Multiplier call f after every later product, with the product's duration. Without
// Watch, or after a nil f, no clock is read.
func (m *Multiplier) Watch(f func(p Product, took time.Duration)) { m.watch = f }

// Do computes a product. C must not share elements with A or B. Do panics on shapes that do not
// fit. An element has the same bits on any team. If B is not transposed, they do not depend on
// other rows either.
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
		panic(fmt.Sprintf("nn: the product of %v (transposed: %v) and %v (transposed: %v) does not fit %v", p.A, p.AT, p.B, p.BT, p.C))
	}
	if terms == 0 {
		if !p.Add {
			p.C.Clear()
		}
		return
	}
	m.p, m.inPlace, m.width = p, rows <= inPlaceRows && !(p.AT && p.BT), width
	if m.inPlace && !p.BT {
		m.width = strip
	}
	m.columns = (cols + m.width - 1) / m.width
	m.team.Run((rows+high-1)/high*m.columns, m.task)
	m.p = Product{}
}

// compute computes one task.
func (m *Multiplier) compute(worker, task int) {
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
	o := &w.outer
	o.N, o.C, o.X, o.XStride, o.Lanes = rows, cols, p.C.Data[r*p.C.Stride+c:], p.C.Stride, p.A.Stride
	for k := 0; k < terms; k += depth {
		o.Width, o.Fresh = min(depth, terms-k), k == 0 && !p.Add
		if m.inPlace {
			o.Y = asm.LineRows(asm.Rows{Data: p.B.Data[k*p.B.Stride+c:], Stride: p.B.Stride})
		} else {
			m.pack(w, k, o.Width, c, cols)
			o.Y = asm.LineRows(asm.Rows{Data: w.b, Stride: width})
		}
		if p.AT {
			if o.Fresh { // which OuterT ignores
				p.C.Part(r, rows, c, cols).Clear()
			}
			m.transposed(w, k, r)
		} else {
			o.P = p.A.Data[r*p.A.Stride+k:]
			m.ops.Back.Outer(o)
		}
	}
}

// transposed adds the products of rows k to k+depth of A and B to the results of the worker's call.
// The rows of the result are columns r, r+1, ... of A.
func (m *Multiplier) transposed(w *productWorker, k, r int) {
	o, a := &w.outer, &m.p.A
	if m.inPlace || a.Stride%alias != 0 {
		o.P = a.Data[k*a.Stride+r:]
		m.ops.Back.OuterT(o)
		return
	}
	n, x := o.N, o.X
	for i := 0; i < n; i += aside {
		o.N = min(aside, n-i)
		for j := range o.Width {
			copy(w.a[j*aside:][:o.N], a.Data[(k+j)*a.Stride+r+i:])
		}
		o.P, o.Lanes, o.X = w.a, aside, x[i*o.XStride:]
		m.ops.Back.OuterT(o)
	}
	o.N, o.X, o.Lanes = n, x, a.Stride
}

// dots computes columns c to c+cols of C, which has few rows, from rows of B.
func (m *Multiplier) dots(w *productWorker, c, cols int) {
	p, d := &m.p, &w.dot
	d.R, d.N = p.C.Rows, cols
	for k := 0; k < p.A.Cols; k += longest {
		d.D = min(longest, p.A.Cols-k)
		d.Rows = asm.Rows{Data: p.A.Data[k:], Stride: p.A.Stride}
		d.Cache.Rows = asm.Rows{Data: p.B.Data[c*p.B.Stride+k:], Stride: p.B.Stride}
		if k == 0 && !p.Add {
			d.P, d.Stride = p.C.Data[c:], p.C.Stride
			m.ops.Decode.Dot(d)
			continue
		}
		d.P, d.Stride = w.b, width
		m.ops.Decode.Dot(d)
		for i := range d.R {
			add(p.C.Row(i)[c:], w.b[i*width:][:cols])
		}
	}
}

// pack copies rows k to k+n-1 and columns c to c+cols-1 of B into the panel.
func (m *Multiplier) pack(w *productWorker, k, n, c, cols int) {
	b := &m.p.B
	if !m.p.BT {
		for i := range n {
			copy(w.b[i*width:][:cols], b.Data[(k+i)*b.Stride+c:])
		}
		return
	}
	v, shape := &w.move, &m.ops.Shape
	v.Lanes, v.D = width, n
	for j := 0; j < cols; j += shape.Lanes {
		v.Rows = min(shape.Lanes, cols-j)
		v.Width = (v.Rows + shape.Vec - 1) / shape.Vec * shape.Vec
		v.Tile, v.Outside = w.b[j:], asm.Rows{Data: b.Data[(c+j)*b.Stride+k:], Stride: b.Stride}
		m.ops.Vector.Load(v)
	}
}
