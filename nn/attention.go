package nn

import (
	"fmt"
	"math/rand/v2"

	"attnlab/attn"
)

// Attention is multi-head attention with its projections:
//
//	q = x W_Q    k = m W_K    v = m W_V      each row of Heads (k and v: KVHeads) parts, one a head
//	o_h = attention(q_h, k_g, v_g)           g = h / (Heads / KVHeads)
//	y = concat(o_h) W_O = Σ_h o_h W_O^h
//
// m is x itself, or in cross-attention rows of something else (Memory). Heads are never copied apart: a head is a view of the columns it has. The kernel is an
// argument (On), and so a layer says what a kernel is worth in it.
type Attention struct {
	Q, K, V, Out   *Linear
	Heads, KVHeads int
	Mask           attn.Mask
	Score          attn.Score
	Terms          attn.Operands // of Score: slopes, tables of rotations
	Memory         int           // rows of a sequence of m; 0: m is x
}

// NewAttention makes one that takes and returns rows of dim.
func NewAttention(name string, dim, heads, kvHeads int, bias bool, r *rand.Rand) (*Attention, error) {
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 || dim%heads != 0 {
		return nil, fmt.Errorf("nn: %s: %d heads, %d of keys, in rows of %d: the heads must divide the row, and the heads of keys the heads", name, heads, kvHeads, dim)
	}
	kv := dim / heads * kvHeads
	return &Attention{
		Q: NewLinear(name+".q", dim, dim, bias, r), K: NewLinear(name+".k", dim, kv, bias, r), V: NewLinear(name+".v", dim, kv, bias, r),
		Out: NewLinear(name+".o", dim, dim, bias, r), Heads: heads, KVHeads: kvHeads,
	}, nil
}

// Params are those of the four projections.
func (l *Attention) Params() []*Param { return Chain{l.Q, l.K, l.V, l.Out}.Params() }

// projections are the passes of an Attention's four products, and the sizes of what they make.
type projections struct {
	q, k, v, out Pass
	dq, dk, dv   int // columns
	joined, dim  int
}

// project plans the products. Memory is the shape of m.
func (l *Attention) project(on On, in, memory Shape) (p projections, err error) {
	p.joined = l.Out.W.W.Rows
	for _, s := range []struct {
		to   *Pass
		from *Linear
		in   Shape
		dim  *int
	}{{&p.q, l.Q, in, &p.dq}, {&p.k, l.K, memory, &p.dk}, {&p.v, l.V, memory, &p.dv}, {&p.out, l.Out, Shape{in.Batch, in.Seq, p.joined}, &p.dim}} {
		if *s.to, *s.dim, err = s.from.Plan(on, s.in); err != nil {
			return p, err
		}
	}
	if p.dq%l.Heads != 0 || p.dk%l.KVHeads != 0 || p.dv%l.KVHeads != 0 || p.dv/l.KVHeads*l.Heads != p.joined {
		return p, fmt.Errorf("%w: %s has %d heads, %d of keys, in rows of %d, %d and %d, and joins rows of %d", ErrShape, l.Q.W.Name, l.Heads, l.KVHeads, p.dq, p.dk, p.dv, p.joined)
	}
	return p, nil
}

// problem is what the kernel is asked, with queries and keys of so many rows.
func (l *Attention) problem(p *projections, batch, queries, keys int) attn.Problem {
	problem := attn.Problem{
		Batch: batch, SeqQ: queries, SeqKV: keys, HeadsQ: l.Heads, HeadsKV: l.KVHeads, Dim: p.dk / l.KVHeads, DimV: p.dv / l.KVHeads, Mask: l.Mask, Score: l.Score,
	}
	if d := p.dq / l.Heads; d != problem.Dim {
		problem.DimQ = d
	}
	return problem
}

// Plan plans the projections and the kernel. What it returns is an *AttentionPass, or, if On has caches, the pass of one that keeps its keys and values there.
func (l *Attention) Plan(on On, in Shape) (Pass, int, error) {
	if on.Caches != nil {
		return l.planCached(on, in)
	}
	memory := in
	if l.Memory > 0 {
		memory.Seq, memory.Dim = l.Memory, l.K.W.W.Rows
	}
	made, err := l.project(on, in, memory)
	if err != nil {
		return nil, 0, err
	}
	problem := l.problem(&made, in.Batch, in.Seq, memory.Seq)
	problem.Want = attn.WantLSE | attn.WantGrad
	plan, err := on.Kernel.Plan(problem, on.Products.team)
	if err != nil {
		return nil, 0, fmt.Errorf("nn: %s: %w", l.Q.W.Name, err)
	}
	return &AttentionPass{
		projections: made, adder: newAdder(on), layer: l, batch: in.Batch, plan: plan.(attn.Differentiable),
		o: NewMat(in.Rows(), made.joined), gq: NewMat(in.Rows(), made.dq), gk: NewMat(memory.Rows(), made.dk), gv: NewMat(memory.Rows(), made.dv),
		lse: attn.New(attn.BSHD, in.Batch, in.Seq, l.Heads, 1), gm: NewMat(memory.Rows(), memory.Dim),
	}, made.dim, nil
}

// heads is m, whose rows are sequences one after another, as an operand with so many heads in a row.
func heads(m Mat, batch, n int) attn.Tensor {
	seq := m.Rows / batch
	return attn.Tensor{Data: m.Data, B: batch, S: seq, H: n, D: m.Cols / n, SB: seq * m.Stride, SS: m.Stride, SH: m.Cols / n}
}

// An AttentionPass runs Attention.
type AttentionPass struct {
	Memory  Mat // in cross-attention: what keys and values are made of, to be set before Forward
	DMemory Mat // the gradient by it, or in self-attention the keys' and values' part of that by x, after Backward

	projections
	*adder
	layer      *Attention
	batch      int
	plan       attn.Differentiable
	o          Mat // heads side by side
	lse        attn.Tensor
	gq, gk, gv Mat // gradients of queries, keys, values
	gm         Mat // of m
	a          attn.Args
	g          attn.Grads
}

// Forward runs the layer.
func (p *AttentionPass) Forward(x Mat) Mat {
	l, m, o := p.layer, x, p.o.First(x.Rows)
	if l.Memory > 0 {
		m = p.Memory
	}
	p.a.Q, p.a.K, p.a.V = heads(p.q.Forward(x), p.batch, l.Heads), heads(p.k.Forward(m), p.batch, l.KVHeads), heads(p.v.Forward(m), p.batch, l.KVHeads)
	p.a.Out, p.a.Stats.LSE, p.a.Terms = heads(o, p.batch, l.Heads), p.lse, l.Terms
	p.a.Stats.LSE.S = x.Rows / p.batch
	p.plan.Forward(&p.a)
	return p.out.Forward(o)
}

// Backward runs it back.
func (p *AttentionPass) Backward(dy Mat) Mat {
	l, gq, gk, gv := p.layer, p.gq.First(dy.Rows), p.gk.First(p.a.K.B*p.a.K.S), p.gv.First(p.a.V.B*p.a.V.S)
	p.g.Out, p.g.Q = heads(p.out.Backward(dy), p.batch, l.Heads), heads(gq, p.batch, l.Heads)
	p.g.K, p.g.V = heads(gk, p.batch, l.KVHeads), heads(gv, p.batch, l.KVHeads)
	p.plan.Backward(&p.a, &p.g)
	p.DMemory = p.add(p.gm.First(gk.Rows), p.k.Backward(gk), p.v.Backward(gv))
	dx := p.q.Backward(gq)
	if l.Memory == 0 {
		p.add(dx, dx, p.DMemory)
	}
	return dx
}
