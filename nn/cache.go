package nn

import (
	"fmt"

	"attnlab/attn"
)

// Caches makes layers go on where their last call ended: every Attention that is planned with it (On) keeps the keys and values of all rows that it has seen,
// so that a call may bring a sequence in chunks of any length, and at last token by token. A step then costs what one row costs, and its attention
// what reading the cache does: O(t d) at length t, with O(t d layers) memory. There is no way back from a cache: passes with one have no gradients.
type Caches struct {
	Capacity int        // rows of a sequence
	Store    attn.DType // of what is kept
	Page     int        // rows in a page; 0: one page holds all

	kept []*cachedPass
}

// Len is how many rows of every sequence are kept.
func (c *Caches) Len() int {
	if len(c.kept) == 0 || len(c.kept[0].a.KLen) == 0 {
		return 0
	}
	return int(c.kept[0].a.KLen[0])
}

// Truncate forgets all rows but the first n.
func (c *Caches) Truncate(n int) {
	for _, p := range c.kept {
		for b := range p.a.KLen {
			p.a.KLen[b] = min(p.a.KLen[b], int32(n))
		}
	}
}

// Append puts keys and values that were made elsewhere behind those that a layer keeps, the layers being counted in the order in which they were planned: the
// same number of rows of every sequence, one sequence after the other. To go on from there, all layers must have got as many.
func (c *Caches) Append(layer int, k, v Mat) error {
	p := c.kept[layer]
	if k.Rows%p.batch != 0 || v.Rows != k.Rows || k.Cols != p.dk || v.Cols != p.dv {
		return fmt.Errorf("%w: %s keeps %d sequences with keys of %d and values of %d, not %v and %v", ErrShape, p.layer.Q.W.Name, p.batch, p.dk, p.dv, k, v)
	}
	keys, values := heads(k, p.batch, p.layer.KVHeads), heads(v, p.batch, p.layer.KVHeads)
	return p.problem.Append(&p.a, &keys, &values)
}

// Bytes is what all layers keep, when it is full.
func (c *Caches) Bytes() (n int) {
	for _, p := range c.kept {
		for _, t := range []*attn.Tensor{&p.a.K, &p.a.V} {
			n += 4*len(t.Data) + 2*len(t.Bits) + len(t.Int8) + 4*len(t.Scale)
		}
	}
	return n
}

// planCached plans a layer that keeps its keys and values. One plan has the queries of a chunk, the other a single one, which kernels answer in another way.
func (l *Attention) planCached(on On, in Shape) (Pass, int, error) {
	c := on.Caches
	if l.Memory > 0 {
		return nil, 0, fmt.Errorf("nn: %s: keys and values from elsewhere are not cached: call it without Caches", l.Q.W.Name)
	}
	made, err := l.project(on, in, in)
	if err != nil {
		return nil, 0, err
	}
	p := &cachedPass{projections: made, layer: l, caches: c, batch: in.Batch, o: NewMat(in.Rows(), made.joined)}
	p.problem = l.problem(&made, in.Batch, in.Seq, c.Capacity)
	p.problem.Lengths, p.problem.KV, p.problem.Page = true, c.Store, c.Page
	single := p.problem
	single.SeqQ = min(1, in.Seq)
	for _, s := range []struct {
		to      *attn.Plan
		problem attn.Problem
	}{{&p.chunk, p.problem}, {&p.step, single}} {
		if *s.to, err = on.Kernel.Plan(s.problem, on.Products.team); err != nil {
			return nil, 0, fmt.Errorf("nn: %s: %w", l.Q.W.Name, err)
		}
	}
	batch, rows := in.Batch, c.Capacity
	if c.Page > 0 {
		each := p.problem.PagesEach()
		p.a.Pages = make([]int32, batch*each)
		for i := range p.a.Pages {
			p.a.Pages[i] = int32(i)
		}
		batch, rows = batch*each, c.Page
	}
	p.a.K = attn.NewTyped(c.Store, attn.BHSD, batch, rows, l.KVHeads, p.problem.Dim)
	p.a.V = attn.NewTyped(c.Store, attn.BHSD, batch, rows, l.KVHeads, p.problem.DimV)
	p.a.KLen, p.a.Terms = make([]int32, in.Batch), l.Terms
	c.kept = append(c.kept, p)
	return p, made.dim, nil
}

type cachedPass struct {
	projections
	layer       *Attention
	caches      *Caches
	batch       int
	problem     attn.Problem
	chunk, step attn.Plan
	o           Mat
	a           attn.Args
	fresh       [2]attn.Tensor // keys and values of this call
}

// Forward appends the keys and values of x and attends to all that are kept. Without room for them it panics: Caches.Len says how many there are.
func (p *cachedPass) Forward(x Mat) Mat {
	l, o := p.layer, p.o.First(x.Rows)
	p.a.Q, p.a.Out = heads(p.q.Forward(x), p.batch, l.Heads), heads(o, p.batch, l.Heads)
	p.fresh = [2]attn.Tensor{heads(p.k.Forward(x), p.batch, l.KVHeads), heads(p.v.Forward(x), p.batch, l.KVHeads)}
	if err := p.problem.Append(&p.a, &p.fresh[0], &p.fresh[1]); err != nil {
		panic(fmt.Errorf("nn: %s: %w", l.Q.W.Name, err))
	}
	plan := p.chunk
	if x.Rows == p.batch {
		plan = p.step
	}
	plan.Forward(&p.a)
	return p.out.Forward(o)
}

// Backward panics.
func (p *cachedPass) Backward(Mat) Mat {
	panic("nn: " + p.layer.Q.W.Name + ": a cache has no gradients: plan the layer without Caches to train it")
}
