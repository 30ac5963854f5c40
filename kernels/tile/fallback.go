package tile

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
)

// A fallback computes the parts of the backward pass that a worker's tiles leave out: the gradients
// of queries whose numbers are not finite, by definition, and the last steps of dK. It works on one
// query at a time.
type fallback struct {
	p     *attn.Problem
	ops   *asm.Ops
	row   *scalar.RowGradient
	sines []float32 // of angles that rotate back
	scale []float32 // of rows of dK
	outer asm.Outer
	one   [1]float32
}

// fallbackFloats returns the number of float32 numbers in a fallback.
func fallbackFloats(p *attn.Problem) int {
	return scalar.RowGradientFloats(p) + operand.Angles(p) + finishAtOnce
}

// finishAtOnce is the number of rows of dK that finish scales, and then checks, at a time.
const finishAtOnce = 64

// newFallback allocates a fallback for calls of problem p, to which it keeps a pointer.
func newFallback(p *attn.Problem, ops *asm.Ops) *fallback {
	f := &fallback{p: p, ops: ops, sines: make([]float32, operand.Angles(p)), scale: make([]float32, finishAtOnce)}
	f.row = scalar.NewRowGradient(p, f.inner)
	return f
}

// inner returns x . y, with the same bits as incoming.
func (f *fallback) inner(x, y []float32) float32 {
	f.ops.Back.Inner(f.one[:], asm.Rows{Data: x}, asm.Rows{Data: y}, len(x))
	return f.one[0]
}

// incoming fills to with dO . O of consecutive queries, starting at query i: 0 without a gradient
// of Out.
func (f *fallback) incoming(to []float32, a *attn.Args, g *attn.Grads, b, i, h int) {
	clear(to)
	if batch, row := a.QRow(f.p, b, i); g.Out.Data != nil {
		f.ops.Back.Inner(to, operand.Rows(&g.Out, batch, row, h), operand.Rows(&a.Out, batch, row, h), f.p.DimV)
	}
}

// at moves the row to a query.
func (f *fallback) at(a *attn.Args, g *attn.Grads, b, i, h int) {
	f.incoming(f.one[:], a, g, b, i, h)
	f.row.At(a, g, b, i, h, f.one[0])
}

// finish completes dK of a key head, once all tiles are done. It multiplies the rows by the factor
// that the loops have left out, adds the contributions of unsound queries unless sound is set, and
// rotates the rows back. It reports whether the loops left dK and dV finite.
func (f *fallback) finish(a *attn.Args, g *attn.Grads, b, kv int, sound bool) (finite bool) {
	p, factor := f.p, float32(f.p.Scale()/f.p.Temperature())
	n := a.Keys(p, b)
	at, row := a.KRow(p, b, 0)
	finite = operand.Finite(f.ops, &g.V, at, row, kv, n)
	fill(f.scale, factor)
	for j := 0; j < n && g.K.Data != nil; j += len(f.scale) {
		x, rows := operand.Rows(&g.K, at, row+j, kv), min(len(f.scale), n-j)
		o := &f.outer
		o.N, o.C, o.X, o.XStride, o.Scale = rows, g.K.D, x.Data, x.Stride, f.scale
		f.ops.Back.Outer(o)
		finite = operand.Finite(f.ops, &g.K, at, row+j, kv, rows) && finite
	}
	if !sound {
		f.addQueries(a, g, b, kv, func() bool { return !f.row.Sound(false) })
	}
	f.row.RotateBack(a, g, b, kv)
	return finite
}

// byDefinition computes the gradients of a key head from all its queries.
func (f *fallback) byDefinition(a *attn.Args, g *attn.Grads, b, kv int) {
	f.addQueries(a, g, b, kv, func() bool { return true })
	f.row.RotateBack(a, g, b, kv)
}

// addQueries adds contributions to the gradients of a key head: of each of its queries for which
// take returns true.
func (f *fallback) addQueries(a *attn.Args, g *attn.Grads, b, kv int, take func() bool) {
	group := f.p.Group()
	for h := kv * group; h < (kv+1)*group; h++ {
		for i := range a.Queries(f.p, b) {
			if f.at(a, g, b, i, h); take() {
				f.row.AddAll()
			}
		}
	}
}
