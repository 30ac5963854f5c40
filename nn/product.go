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
const (
	depth = 128
	width = 64
	high  = 384 // a multiple of the rows of every set's tiles
)

// A Multiplier computes products on the loops of an instruction set. It is used by one goroutine at a time, and allocates nothing after it was made.
type Multiplier struct {
	ops     *asm.Ops
	team    *attn.Team
	workers []productWorker
	p       Product // in hand
	columns int     // tasks side by side
	task    func(worker, task int)
	watch   func(p Product, took time.Duration)
}

type productWorker struct {
	panel asm.Panel
	move  asm.Move
	b     []float32 // [depth][width]
}

// NewMultiplier makes one that shares the work among a team; nil is the caller's goroutine.
func NewMultiplier(ops *asm.Ops, team *attn.Team) *Multiplier {
	m := &Multiplier{ops: ops, team: team, workers: make([]productWorker, team.Workers())}
	for i := range m.workers {
		w := &m.workers[i]
		w.b = make([]float32, depth*width)
		w.move.Scale = make([]float32, ops.Lanes)
		for lane := range w.move.Scale {
			w.move.Scale[lane] = 1
		}
	}
	m.task = m.part
	return m
}

// Watch has f called after every product from now on, with the time that it took. Without it, or after a nil f, no clock is read.
func (m *Multiplier) Watch(f func(p Product, took time.Duration)) { m.watch = f }

// Do computes a product. C must not share elements with A or B. Shapes that do not fit are a panic.
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
	m.p, m.columns = p, (cols+width-1)/width
	m.team.Run((rows+high-1)/high*m.columns, m.task)
	m.p = Product{}
}

// part computes one task.
func (m *Multiplier) part(worker, task int) {
	w, p := &m.workers[worker], &m.p
	r, c := task/m.columns*high, task%m.columns*width
	rows, cols, terms := min(high, p.C.Rows-r), min(width, p.C.Cols-c), p.A.Cols
	if p.AT {
		terms = p.A.Rows
	}
	q := &w.panel
	q.N, q.C, q.X, q.XStr, q.Y, q.Lanes = rows, cols, p.C.Data[r*p.C.Stride+c:], p.C.Stride, asm.Rows{Data: w.b, Stride: width}, p.A.Stride
	for k := 0; k < terms; k += depth {
		q.Width, q.Fresh = min(depth, terms-k), k == 0 && !p.Add
		m.pack(w, k, q.Width, c, cols)
		if p.AT {
			if q.Fresh { // which OuterT does not know
				p.C.Part(r, rows, c, cols).Clear()
			}
			q.P = p.A.Data[k*p.A.Stride+r:]
			m.ops.OuterT(q)
		} else {
			q.P = p.A.Data[r*p.A.Stride+k:]
			m.ops.Outer(q)
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
