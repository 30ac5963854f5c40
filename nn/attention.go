package nn

import (
	"fmt"
	"math/rand/v2"

	"attnlab/attn"
)

// Attention is multi-head attention with its projections:
//
//	q = x W_Q    k = m W_K    v = m W_V      a row of q has Heads heads, of k and v KVHeads
//	o_h = attention(q_h, k_g, v_g)           g = h / (Heads / KVHeads)
//	y = concat(o_h) W_O = Σ_h o_h W_O^h
//
// m is x, or On.Memory in cross-attention. A head is a view of its columns, so heads are never
// copied. The kernel is an argument (On): a layer can be run, and compared, on any kernel.
type Attention struct {
	Name           string // the prefix of its parameters' names
	Q, K, V, Out   *Linear
	QKV            *Linear // after Fuse: the matrix whose columns are Q, K and V; else nil
	Heads, KVHeads int
	Cross          bool // m is On.Memory
	Mask           attn.Mask
	Score          attn.Score
	Terms          attn.Operands // operands of Score: slopes, tables of rotations
	Linear         *attn.Linear  // linear attention of this kind, without a rule; nil: softmax
}

// checkLinear returns an error for linear attention that a layer has no parameters for.
func checkLinear(name string, l *attn.Linear) error {
	switch {
	case l == nil:
		return nil
	case l.Gate != attn.NoGate:
		return fmt.Errorf("nn: %s: linear attention with a gate: a layer has no parameters that Decay is computed from, leave Linear.Gate unset", name)
	case l.Delta:
		return fmt.Errorf("nn: %s: linear attention with the delta rule: a layer has no parameters that Beta is computed from, leave Linear.Delta unset", name)
	case l.HeadsV != 0:
		return fmt.Errorf("nn: %s: linear attention with %d value heads: keys and values of a layer have KVHeads heads, leave Linear.HeadsV 0", name, l.HeadsV)
	case l.Snapshots > 1:
		return fmt.Errorf("nn: %s: linear attention with %d snapshots: a layer keeps one state, leave Linear.Snapshots 0", name, l.Snapshots)
	}
	return nil
}

// NewAttention returns attention that takes and returns rows of dim numbers.
func NewAttention(name string, dim, heads, kvHeads int, bias bool, r *rand.Rand) (*Attention, error) {
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 || dim%heads != 0 {
		return nil, fmt.Errorf("nn: %s: %d heads, %d key heads, rows of %d: the heads must divide the row, and the key heads the heads", name, heads, kvHeads, dim)
	}
	kv := dim / heads * kvHeads
	return &Attention{
		Name: name, Q: NewLinear(name+".q", dim, dim, bias, r), K: NewLinear(name+".k", dim, kv, bias, r), V: NewLinear(name+".v", dim, kv, bias, r),
		Out: NewLinear(name+".o", dim, dim, bias, r), Heads: heads, KVHeads: kvHeads,
	}, nil
}

// Fuse makes W_Q, W_K and W_V columns of one matrix, [dim][dq + dk + dv], and likewise their
// biases, so that one product replaces three. The numbers stay. Q, K and V become views of QKV,
// which is trained and saved from then on.
//
// Outputs and gradients of weights keep their bits; the gradient of x is added up in another order.
// Cross-attention cannot be fused, because its projections apply to different rows.
func (l *Attention) Fuse() {
	l.QKV = &Linear{W: join(l.Name+".qkv.w", l.Q.W, l.K.W, l.V.W)}
	if l.Q.B != nil {
		l.QKV.B = join(l.Name+".qkv.b", l.Q.B, l.K.B, l.V.B)
	}
}

// join returns a new parameter whose columns are those of parts, and makes the parts views of it.
func join(name string, parts ...*Param) *Param {
	rows, cols := parts[0].W.Rows, 0
	for _, p := range parts {
		cols += p.W.Cols
	}
	all, at := NewParam(name, rows, cols), 0
	for _, p := range parts {
		w, grad := all.W.Part(0, rows, at, p.W.Cols), all.Grad.Part(0, rows, at, p.W.Cols)
		for i := range rows {
			copy(w.Row(i), p.W.Row(i))
			copy(grad.Row(i), p.Grad.Row(i))
		}
		p.W, p.Grad = w, grad
		at += w.Cols
	}
	return all
}

// Params returns the parameters of the projections.
func (l *Attention) Params() []*Param {
	if l.QKV != nil {
		return Chain{l.QKV, l.Out}.Params()
	}
	return Chain{l.Q, l.K, l.V, l.Out}.Params()
}

// projections are the passes of an Attention's products, with the numbers of their columns.
type projections struct {
	q, k, v    Pass
	all        Pass // replaces q, k and v if they are fused
	out        Pass
	dq, dk, dv int // columns of q, k and v
	joined     int // columns of out's input
}

// of returns the queries of x, and the keys and values of m.
func (p *projections) of(x, m Mat) (q, k, v Mat) {
	if p.all != nil {
		return p.columns(p.all.Forward(x))
	}
	return p.q.Forward(x), p.k.Forward(m), p.v.Forward(m)
}

// columns returns the columns of queries, keys and values in a matrix of all three.
func (p *projections) columns(m Mat) (q, k, v Mat) {
	return m.Part(0, m.Rows, 0, p.dq), m.Part(0, m.Rows, p.dq, p.dk), m.Part(0, m.Rows, p.dq+p.dk, p.dv)
}

// project plans the products for inputs of shapes x and m.
func (l *Attention) project(on On, x, m Shape) (p projections, err error) {
	p = projections{dq: l.Q.W.W.Cols, dk: l.K.W.W.Cols, dv: l.V.W.W.Cols, joined: l.Out.W.W.Rows}
	if p.dq%l.Heads != 0 || p.dk%l.KVHeads != 0 || p.dv%l.KVHeads != 0 || p.dv/l.KVHeads*l.Heads != p.joined {
		return p, fmt.Errorf("%w: %s has %d heads, %d key heads, rows of %d (q), %d (k), %d (v) and %d (o): want heads that divide these rows, and rows of o that are the heads' values", ErrShape, l.Name, l.Heads, l.KVHeads, p.dq, p.dk, p.dv, p.joined)
	}
	type product struct {
		to   *Pass
		from *Linear
		in   Shape
	}
	products := []product{{&p.out, l.Out, Shape{x.Batch, x.Seq, p.joined}}}
	switch {
	case l.QKV == nil:
		products = append(products, product{&p.q, l.Q, x}, product{&p.k, l.K, m}, product{&p.v, l.V, m})
	case l.Cross:
		return p, fmt.Errorf("nn: %s: the projections of cross-attention apply to different rows: do not Fuse them", l.Name)
	default:
		products = append(products, product{&p.all, l.QKV, x})
	}
	for _, s := range products {
		if *s.to, _, err = s.from.Plan(on, s.in); err != nil {
			return p, err
		}
	}
	return p, nil
}

// memory returns the shape of m for an input x of shape in.
func (l *Attention) memory(on On, in Shape) (Shape, error) {
	if !l.Cross {
		return in, nil
	}
	if on.Memory == nil {
		return in, fmt.Errorf("nn: %s: cross-attention without On.Memory: set it to the rows of an encoder", l.Name)
	}
	m := on.Memory.W
	if in.Batch < 1 || m.Rows%in.Batch != 0 {
		return in, fmt.Errorf("%w: %s: On.Memory of %v, want rows of %d sequences of one length", ErrShape, l.Name, m, in.Batch)
	}
	return Shape{in.Batch, m.Rows / in.Batch, m.Cols}, nil
}

// problem returns the kernel's problem for the given numbers of queries and keys.
func (l *Attention) problem(p *projections, batch, queries, keys int) attn.Problem {
	problem := attn.Problem{
		Batch: batch, SeqQ: queries, SeqKV: keys, HeadsQ: l.Heads, HeadsKV: l.KVHeads, Dim: p.dk / l.KVHeads, DimV: p.dv / l.KVHeads, Mask: l.Mask, Score: l.Score,
	}
	if d := p.dq / l.Heads; d != problem.Dim {
		problem.DimQ = d
	}
	if l.Linear != nil {
		problem.Op, problem.Linear = attn.OpLinear, *l.Linear
	}
	return problem
}

// Plan plans the projections and the kernel. It returns an *AttentionPass, or, if On has Caches, a
// pass that continues where its last call ended.
func (l *Attention) Plan(on On, in Shape) (Pass, int, error) {
	if err := checkLinear(l.Name, l.Linear); err != nil {
		return nil, 0, err
	}
	memory, err := l.memory(on, in)
	if err != nil {
		return nil, 0, err
	}
	made, err := l.project(on, in, memory)
	if err != nil {
		return nil, 0, err
	}
	dim := l.Out.W.W.Cols
	if on.Caches != nil {
		p, err := on.Caches.plan(l, on, made, in, memory)
		return p, dim, err
	}
	problem := l.problem(&made, in.Batch, in.Seq, memory.Seq)
	problem.Want = attn.WantGrad
	p := &AttentionPass{projections: made, adder: newAdder(on), layer: l, batch: in.Batch, o: NewMat(in.Rows(), made.joined)}
	if l.Linear == nil {
		problem.Want |= attn.WantLSE
		p.lse = attn.New(attn.BSHD, in.Batch, in.Seq, l.Heads, 1)
	}
	if l.Cross {
		p.memory = on.Memory
	}
	if made.all != nil {
		p.gqkv = NewMat(in.Rows(), made.dq+made.dk+made.dv)
		p.gq, p.gk, p.gv = made.columns(p.gqkv)
	} else {
		p.gq, p.gk, p.gv = NewMat(in.Rows(), made.dq), NewMat(memory.Rows(), made.dk), NewMat(memory.Rows(), made.dv)
	}
	plan, err := on.Kernel.Plan(problem, on.Products.team)
	if err != nil {
		return nil, 0, fmt.Errorf("nn: %s: %w", l.Name, err)
	}
	p.plan = plan.(attn.Differentiable)
	return p, dim, nil
}

// heads returns m as an operand with n heads in each row. The rows of m are sequences one after
// another.
func heads(m Mat, batch, n int) attn.Tensor {
	seq := m.Rows / batch
	return attn.Tensor{Data: m.Data, B: batch, S: seq, H: n, D: m.Cols / n, SB: seq * m.Stride, SS: m.Stride, SH: m.Cols / n}
}

// An AttentionPass runs Attention.
type AttentionPass struct {
	projections
	*adder
	layer      *Attention
	batch      int
	memory     *Param // On.Memory, for cross-attention
	plan       attn.Differentiable
	o          Mat // outputs of the heads, side by side
	lse        attn.Tensor
	gq, gk, gv Mat // gradients of queries, keys and values
	gqkv       Mat // the matrix whose columns they are, if the projections are fused
	a          attn.Args
	g          attn.Grads
}

// Forward runs the layer.
func (p *AttentionPass) Forward(x Mat) Mat {
	l, m, o := p.layer, x, p.o.First(x.Rows)
	if p.memory != nil {
		m = p.memory.W
	}
	q, k, v := p.of(x, m)
	p.a.Q, p.a.K, p.a.V = heads(q, p.batch, l.Heads), heads(k, p.batch, l.KVHeads), heads(v, p.batch, l.KVHeads)
	p.a.Out, p.a.Terms = heads(o, p.batch, l.Heads), l.Terms
	if l.Linear == nil {
		p.a.Stats.LSE = p.lse
		p.a.Stats.LSE.S = x.Rows / p.batch
	}
	p.plan.Forward(&p.a)
	return p.out.Forward(o)
}

// Backward runs the layer backward. In cross-attention it adds to the gradient of On.Memory.
func (p *AttentionPass) Backward(dy Mat) Mat {
	l, gq, gk, gv := p.layer, p.gq.First(dy.Rows), p.gk.First(p.a.K.B*p.a.K.S), p.gv.First(p.a.V.B*p.a.V.S)
	p.g.Out, p.g.Q = heads(p.out.Backward(dy), p.batch, l.Heads), heads(gq, p.batch, l.Heads)
	p.g.K, p.g.V = heads(gk, p.batch, l.KVHeads), heads(gv, p.batch, l.KVHeads)
	p.plan.Backward(&p.a, &p.g)
	if p.all != nil {
		return p.all.Backward(p.gqkv.First(dy.Rows))
	}
	dx, dm, dv := p.q.Backward(gq), p.k.Backward(gk), p.v.Backward(gv)
	p.add(dm, dm, dv)
	to := dx
	if p.memory != nil {
		to = p.memory.Grad.First(dm.Rows)
	}
	p.add(to, to, dm)
	return dx
}
