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

// Plan plans the projections and the kernel. What it returns is an *AttentionPass.
func (l *Attention) Plan(on On, in Shape) (Pass, int, error) {
	memory := in
	if l.Memory > 0 {
		memory.Seq, memory.Dim = l.Memory, l.K.W.W.Rows
	}
	p := &AttentionPass{adder: newAdder(on), Memory: NewMat(0, 0), cross: l.Memory > 0}
	var dq, dk, dv, dim int
	var err error
	joined := l.Out.W.W.Rows
	for _, s := range []struct {
		to   *Pass
		from *Linear
		in   Shape
		dim  *int
	}{{&p.q, l.Q, in, &dq}, {&p.k, l.K, memory, &dk}, {&p.v, l.V, memory, &dv}, {&p.out, l.Out, Shape{in.Batch, in.Seq, joined}, &dim}} {
		if *s.to, *s.dim, err = s.from.Plan(on, s.in); err != nil {
			return nil, 0, err
		}
	}
	if dq%l.Heads != 0 || dk%l.KVHeads != 0 || dv%l.KVHeads != 0 || dv/l.KVHeads*l.Heads != joined {
		return nil, 0, fmt.Errorf("%w: %s has %d heads, %d of keys, in rows of %d, %d and %d, and joins rows of %d", ErrShape, l.Q.W.Name, l.Heads, l.KVHeads, dq, dk, dv, joined)
	}
	problem := attn.Problem{
		Batch: in.Batch, SeqQ: in.Seq, SeqKV: memory.Seq, HeadsQ: l.Heads, HeadsKV: l.KVHeads, Dim: dk / l.KVHeads, DimV: dv / l.KVHeads,
		Mask: l.Mask, Score: l.Score, Want: attn.WantLSE | attn.WantGrad,
	}
	if d := dq / l.Heads; d != problem.Dim {
		problem.DimQ = d
	}
	plan, err := on.Kernel.Plan(problem, on.Products.team)
	if err != nil {
		return nil, 0, fmt.Errorf("nn: %s: %w", l.Q.W.Name, err)
	}
	p.plan = plan.(attn.Differentiable)
	p.o, p.dq, p.dk, p.dv = NewMat(in.Rows(), joined), NewMat(in.Rows(), dq), NewMat(memory.Rows(), dk), NewMat(memory.Rows(), dv)
	p.a.Out, p.a.Terms = heads(p.o, in, l.Heads), l.Terms
	p.a.Stats.LSE = attn.New(attn.BSHD, in.Batch, in.Seq, l.Heads, 1)
	p.g.Q, p.g.K, p.g.V = heads(p.dq, in, l.Heads), heads(p.dk, memory, l.KVHeads), heads(p.dv, memory, l.KVHeads)
	p.layer, p.in, p.keys, p.DMemory = l, in, memory, NewMat(memory.Rows(), memory.Dim)
	return p, dim, nil
}

// heads is m, whose rows are sequences one after the other, as an operand with so many heads in a row.
func heads(m Mat, s Shape, n int) attn.Tensor {
	d := m.Cols / n
	return attn.Tensor{Data: m.Data, B: s.Batch, S: s.Seq, H: n, D: d, SB: s.Seq * m.Stride, SS: m.Stride, SH: d}
}

// An AttentionPass runs Attention.
type AttentionPass struct {
	Memory  Mat // in cross-attention: what keys and values are made of, to be set before Forward
	DMemory Mat // the gradient by it, or in self-attention the keys' and values' part of that by x, after Backward

	*adder
	layer        *Attention
	cross        bool
	in, keys     Shape
	plan         attn.Differentiable
	q, k, v, out Pass
	o            Mat // heads side by side
	dq, dk, dv   Mat
	a            attn.Args
	g            attn.Grads
}

// Forward runs the layer.
func (p *AttentionPass) Forward(x Mat) Mat {
	m := x
	if p.cross {
		m = p.Memory
	}
	l := p.layer
	p.a.Q, p.a.K, p.a.V = heads(p.q.Forward(x), p.in, l.Heads), heads(p.k.Forward(m), p.keys, l.KVHeads), heads(p.v.Forward(m), p.keys, l.KVHeads)
	p.plan.Forward(&p.a)
	return p.out.Forward(p.o)
}

// Backward runs it back.
func (p *AttentionPass) Backward(dy Mat) Mat {
	p.g.Out = heads(p.out.Backward(dy), p.in, p.layer.Heads)
	p.plan.Backward(&p.a, &p.g)
	p.add(p.DMemory, p.k.Backward(p.dk), p.v.Backward(p.dv))
	dx := p.q.Backward(p.dq)
	if !p.cross {
		p.add(dx, dx, p.DMemory)
	}
	return dx
}
