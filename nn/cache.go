package nn

import (
	"errors"
	"fmt"

	"attnlab/attn"
)

// Caches makes layers continue where their last call ended. Every Attention that is planned with it
// (On) keeps what later rows need, so a sequence may come in chunks of any length, down to single
// tokens. A layer keeps, for t rows of d numbers:
//
//   - softmax: the keys and values of all rows. A step reads them all: O(t d) work, and O(t d)
//     memory for each layer.
//   - linear attention: the state that sums them. Work and memory are O(d^2) for each layer,
//     however long the sequence is.
//   - cross-attention: the keys and values of On.Memory. The first call computes them, and so does
//     the first call after Truncate(0).
//
// A pass with a cache has no gradients.
type Caches struct {
	Capacity int        // the most rows of a sequence; a state holds any number
	Store    attn.DType // the type of stored keys and values
	Page     int        // rows of a page; 0: one page holds all

	kept []keeper
}

// A keeper is a pass that keeps something from call to call.
type keeper interface {
	Pass
	length() int // rows of every sequence so far
	truncate(n int)
	bytes() int
}

// Len returns the number of rows of every sequence so far.
func (c *Caches) Len() int {
	if len(c.kept) == 0 {
		return 0
	}
	return c.kept[0].length()
}

// Truncate forgets all rows but the first n. A state is a sum of rows and can only forget all of
// them: linear attention panics if n is neither 0 nor at least Len.
func (c *Caches) Truncate(n int) {
	for _, p := range c.kept {
		p.truncate(n)
	}
}

// Append adds keys and values that were computed elsewhere to a layer's own. Layers are numbered in
// the order in which they were planned. k and v have the same number of rows for every sequence,
// one sequence after the other. Append the same number of rows to all layers before the next
// Forward.
func (c *Caches) Append(layer int, k, v Mat) error {
	p, ok := c.kept[layer].(*cachedPass)
	if !ok {
		return errors.New("nn: Append to a layer that does not keep the keys and values of its rows: run Forward on the rows")
	}
	if k.Rows%p.batch != 0 || v.Rows != k.Rows || k.Cols != p.dk || v.Cols != p.dv {
		return fmt.Errorf("%w: %s gets keys %v and values %v, want rows of %d sequences with keys of %d and values of %d", ErrShape, p.layer.Name, k, v, p.batch, p.dk, p.dv)
	}
	keys, values := heads(k, p.batch, p.layer.KVHeads), heads(v, p.batch, p.layer.KVHeads)
	return p.problem.Append(&p.a, &keys, &values)
}

// Bytes returns the size of what all layers keep at full capacity.
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

// A stepper is the common part of passes with caches. It has one plan for the queries of a chunk,
// and one for a single query of every sequence, which kernels compute on another path.
type stepper struct {
	projections
	layer       *Attention
	batch       int
	chunk, step attn.Plan
	o           Mat // outputs of the heads, side by side
	a           attn.Args
}

// plans makes both plans.
func (s *stepper) plans(on On, chunk, step attn.Problem) (err error) {
	if s.chunk, err = on.Kernel.Plan(chunk, on.Products.team); err != nil {
		return err
	}
	s.step, err = on.Kernel.Plan(step, on.Products.team)
	return err
}

// prepare sets the operands for rows of queries, and returns the plan for them and their output.
func (s *stepper) prepare(q Mat) (plan attn.Plan, o Mat) {
	o = s.o.First(q.Rows)
	s.a.Q, s.a.Out = heads(q, s.batch, s.layer.Heads), heads(o, s.batch, s.layer.Heads)
	if q.Rows == s.batch {
		return s.step, o
	}
	return s.chunk, o
}

// operands returns keys and values as the kernel's operands.
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

// Forward appends the keys and values of x and attends to all that are kept. It panics if there is
// no room for them: see Caches.Len.
func (p *cachedPass) Forward(x Mat) Mat {
	q, k, v := p.of(x, x)
	p.fresh[0], p.fresh[1] = p.operands(k, v)
	if err := p.problem.Append(&p.a, &p.fresh[0], &p.fresh[1]); err != nil {
		panic(fmt.Errorf("nn: %s: %w", p.layer.Name, err))
	}
	plan, o := p.prepare(q)
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
	rows  int // rows of every sequence in the state
}

func (s stepper) planState(on On, in Shape) (keeper, error) {
	problem := func(rows int) attn.Problem { return s.layer.problem(&s.projections, in.Batch, rows, rows) }
	chunk := problem(in.Seq)
	if !chunk.Carries() {
		return nil, fmt.Errorf("linear attention under mask %v carries no state from call to call: set the mask attn.Causal()", chunk.Mask)
	}
	if err := s.plans(on, chunk, problem(min(1, in.Seq))); err != nil {
		return nil, err
	}
	p := &statePass{stepper: s, state: make([]float32, chunk.StateLen())}
	p.a.StateIn, p.a.StateOut = p.state, p.state
	return p, nil
}

// Forward adds the keys and values of x to the state row by row. The output of a row uses the state
// that includes the row.
func (p *statePass) Forward(x Mat) Mat {
	q, k, v := p.of(x, x)
	p.a.K, p.a.V = p.operands(k, v)
	plan, o := p.prepare(q)
	plan.Forward(&p.a)
	p.rows += x.Rows / p.batch
	return p.out.Forward(o)
}

func (p *statePass) length() int { return p.rows }

func (p *statePass) truncate(n int) {
	switch {
	case n >= p.rows:
	case n > 0:
		panic(fmt.Sprintf("nn: %s: Truncate(%d) of a state of %d rows, want 0: a state is a sum and cannot forget some rows", p.layer.Name, n, p.rows))
	default:
		clear(p.state)
		p.rows = 0
	}
}

func (p *statePass) bytes() int { return 4 * len(p.state) }

// A memoryPass keeps the keys and values of On.Memory, which do not change from call to call.
type memoryPass struct {
	stepper
	memory *Param
	size   int // bytes
	rows   int // queries of every sequence so far
}

func (s stepper) planMemory(on On, in, memory Shape) (keeper, error) {
	problem := func(queries int) attn.Problem { return s.layer.problem(&s.projections, in.Batch, queries, memory.Seq) }
	if err := s.plans(on, problem(in.Seq), problem(min(1, in.Seq))); err != nil {
		return nil, err
	}
	return &memoryPass{stepper: s, memory: on.Memory, size: 4 * memory.Rows() * (s.dk + s.dv)}, nil
}

// Forward attends to the kept keys and values. The first call computes them.
func (p *memoryPass) Forward(x Mat) Mat {
	if p.rows == 0 {
		p.a.K, p.a.V = p.operands(p.k.Forward(p.memory.W), p.v.Forward(p.memory.W))
	}
	p.rows += x.Rows / p.batch
	plan, o := p.prepare(p.q.Forward(x))
	plan.Forward(&p.a)
	return p.out.Forward(o)
}

func (p *memoryPass) length() int { return p.rows }

func (p *memoryPass) truncate(n int) { p.rows = min(p.rows, n) }

func (p *memoryPass) bytes() int { return p.size }
