package nn

import (
	"errors"
	"fmt"

	"attnlab/attn"
)

// Caches makes layers go on where their last call ended: every Attention that is planned with it
// (On) keeps what it has seen, so that a call may bring a sequence in chunks of any length, and at
// last token by token. What is kept is
//
//	softmax              keys and values of all rows: a step reads them all, O(t d) at length t, with O(t d layers) memory
//	linear attention     the state that sums them (attn.Recurrent): O(d^2 layers) work and memory, however long the sequence
//	cross-attention      keys and values of On.Memory, which are made of it by the first call after none or after Truncate(0)
//
// There is no way back from a cache: passes with one have no gradients.
type Caches struct {
	Capacity int        // rows of a sequence that there is room for; a state takes any number
	Store    attn.DType // of keys and values
	Page     int        // rows in a page; 0: one page holds all

	kept []keeper
}

// A keeper is a pass that keeps something from call to call.
type keeper interface {
	Pass
	length() int // rows of every sequence that it has seen
	truncate(n int)
	bytes() int
}

// Len is how many rows of every sequence have been taken in.
func (c *Caches) Len() int {
	if len(c.kept) == 0 {
		return 0
	}
	return c.kept[0].length()
}

// Truncate forgets all rows but the first n. A state is a sum of rows, of which it can forget only
// all: for n other than 0, less than there are, linear attention panics.
func (c *Caches) Truncate(n int) {
	for _, p := range c.kept {
		p.truncate(n)
	}
}

// Append puts keys and values that were made elsewhere behind those that a layer keeps, the layers
// being counted in the order in which they were planned: the same number of rows of every sequence,
// one sequence after the other. To go on from there, all layers must have got as many.
func (c *Caches) Append(layer int, k, v Mat) error {
	p, ok := c.kept[layer].(*cachedPass)
	if !ok {
		return errors.New("nn: Append puts keys and values behind others, and this layer keeps something else: have it read rows")
	}
	if k.Rows%p.batch != 0 || v.Rows != k.Rows || k.Cols != p.dk || v.Cols != p.dv {
		return fmt.Errorf("%w: %s keeps %d sequences with keys of %d and values of %d, not %v and %v", ErrShape, p.layer.Name, p.batch, p.dk, p.dv, k, v)
	}
	keys, values := heads(k, p.batch, p.layer.KVHeads), heads(v, p.batch, p.layer.KVHeads)
	return p.problem.Append(&p.a, &keys, &values)
}

// Bytes is what all layers keep, when it is full.
func (c *Caches) Bytes() (n int) {
	for _, p := range c.kept {
		n += p.bytes()
	}
	return n
}

// plan plans a layer whose products are planned.
func (c *Caches) plan(l *Attention, on On, made projections, in, memory Shape) (p keeper, err error) {
	s := stepper{projections: made, layer: l, batch: in.Batch, o: NewMat(in.Rows(), made.joined)}
	s.a.Terms = l.Terms
	switch {
	case l.Cross:
		p, err = s.planMemory(on, in, memory)
	case l.Linear != nil:
		p, err = s.planState(on, in)
	default:
		p, err = s.planCache(on, in)
	}
	if err != nil {
		return nil, fmt.Errorf("nn: %s: %w", l.Name, err)
	}
	c.kept = append(c.kept, p)
	return p, nil
}

// A stepper is what passes with caches have in common. One plan has the queries of a chunk, the
// other a single one of every sequence, which kernels answer in another way.
type stepper struct {
	projections
	layer       *Attention
	batch       int
	chunk, step attn.Plan
	o           Mat // heads side by side
	a           attn.Args
}

// plans plans the two.
func (s *stepper) plans(on On, chunk, step attn.Problem) (err error) {
	if s.chunk, err = on.Kernel.Plan(chunk, on.Products.team); err != nil {
		return err
	}
	s.step, err = on.Kernel.Plan(step, on.Products.team)
	return err
}

// ask puts rows of queries to the kernel, and says which plan answers them.
func (s *stepper) ask(q Mat) (plan attn.Plan, o Mat) {
	o = s.o.First(q.Rows)
	s.a.Q, s.a.Out = heads(q, s.batch, s.layer.Heads), heads(o, s.batch, s.layer.Heads)
	if q.Rows == s.batch {
		return s.step, o
	}
	return s.chunk, o
}

// operands are keys and values as the kernel takes them.
func (s *stepper) operands(k, v Mat) (keys, values attn.Tensor) {
	return heads(k, s.batch, s.layer.KVHeads), heads(v, s.batch, s.layer.KVHeads)
}

// Backward panics.
func (s *stepper) Backward(Mat) Mat {
	panic("nn: " + s.layer.Name + ": a cache has no gradients: plan the layer without Caches to train it")
}

// A cachedPass keeps keys and values.
type cachedPass struct {
	stepper
	problem attn.Problem
	fresh   [2]attn.Tensor // keys and values of this call
}

func (s stepper) planCache(on On, in Shape) (keeper, error) {
	c := on.Caches
	p := &cachedPass{stepper: s, problem: s.layer.problem(&s.projections, in.Batch, in.Seq, c.Capacity)}
	p.problem.Lengths, p.problem.KV, p.problem.Page = true, c.Store, c.Page
	step := p.problem
	step.SeqQ = min(1, in.Seq)
	if err := p.plans(on, p.problem, step); err != nil {
		return nil, err
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
	p.a.K = attn.NewTyped(c.Store, attn.BHSD, batch, rows, s.layer.KVHeads, p.problem.Dim)
	p.a.V = attn.NewTyped(c.Store, attn.BHSD, batch, rows, s.layer.KVHeads, p.problem.DimV)
	p.a.KLen = make([]int32, in.Batch)
	return p, nil
}

// Forward appends the keys and values of x and attends to all that are kept. Without room for them
// it panics: Caches.Len says how many there are.
func (p *cachedPass) Forward(x Mat) Mat {
	q, k, v := p.of(x, x)
	p.fresh[0], p.fresh[1] = p.operands(k, v)
	if err := p.problem.Append(&p.a, &p.fresh[0], &p.fresh[1]); err != nil {
		panic(fmt.Errorf("nn: %s: %w", p.layer.Name, err))
	}
	plan, o := p.ask(q)
	plan.Forward(&p.a)
	return p.out.Forward(o)
}

func (p *cachedPass) length() int {
	if len(p.a.KLen) == 0 {
		return 0
	}
	return int(p.a.KLen[0])
}

func (p *cachedPass) truncate(n int) {
	for b := range p.a.KLen {
		p.a.KLen[b] = min(p.a.KLen[b], int32(n))
	}
}

func (p *cachedPass) bytes() (n int) {
	for _, t := range []*attn.Tensor{&p.a.K, &p.a.V} {
		n += 4*len(t.Data) + 2*len(t.Bits) + len(t.Int8) + 4*len(t.Scale)
	}
	return n
}

// A statePass keeps the state of linear attention.
type statePass struct {
	stepper
	state []float32
	rows  int // summed in it, of every sequence
}

func (s stepper) planState(on On, in Shape) (keeper, error) {
	problem := func(rows int) attn.Problem { return s.layer.problem(&s.projections, in.Batch, rows, rows) }
	if err := s.plans(on, problem(in.Seq), problem(min(1, in.Seq))); err != nil {
		return nil, err
	}
	plan, ok := s.chunk.(attn.Recurrent)
	if !ok {
		return nil, errors.New("with this mask and kernel linear attention has no state to go on from: set the mask attn.Causal(), and the kernel linear")
	}
	return &statePass{stepper: s, state: make([]float32, plan.StateLen())}, nil
}

// Forward adds the keys and values of x to the state, row by row, and answers each query from what
// there is with its own row.
func (p *statePass) Forward(x Mat) Mat {
	q, k, v := p.of(x, x)
	p.a.K, p.a.V = p.operands(k, v)
	plan, o := p.ask(q)
	plan.(attn.Recurrent).Step(&p.a, p.state)
	p.rows += x.Rows / p.batch
	return p.out.Forward(o)
}

func (p *statePass) length() int { return p.rows }

func (p *statePass) truncate(n int) {
	switch {
	case n >= p.rows:
	case n > 0:
		panic(fmt.Sprintf("nn: %s: a state of %d rows cannot go back to %d of them: only to none", p.layer.Name, p.rows, n))
	default:
		clear(p.state)
		p.rows = 0
	}
}

func (p *statePass) bytes() int { return 4 * len(p.state) }

// A memoryPass keeps keys and values of what cross-attention looks at, which do not change from
// call to call.
type memoryPass struct {
	stepper
	memory *Param
	size   int // bytes
	rows   int // queries seen, of every sequence
}

func (s stepper) planMemory(on On, in, memory Shape) (keeper, error) {
	problem := func(queries int) attn.Problem { return s.layer.problem(&s.projections, in.Batch, queries, memory.Seq) }
	if err := s.plans(on, problem(in.Seq), problem(min(1, in.Seq))); err != nil {
		return nil, err
	}
	return &memoryPass{stepper: s, memory: on.Memory, size: 4 * memory.Rows() * (s.dk + s.dv)}, nil
}

// Forward attends to what is kept, having made it first if this is the beginning.
func (p *memoryPass) Forward(x Mat) Mat {
	if p.rows == 0 {
		p.a.K, p.a.V = p.operands(p.k.Forward(p.memory.W), p.v.Forward(p.memory.W))
	}
	p.rows += x.Rows / p.batch
	plan, o := p.ask(p.q.Forward(x))
	plan.Forward(&p.a)
	return p.out.Forward(o)
}

func (p *memoryPass) length() int { return p.rows }

func (p *memoryPass) truncate(n int) { p.rows = min(p.rows, n) }

func (p *memoryPass) bytes() int { return p.size }
