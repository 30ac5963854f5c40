package attntest

import (
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// The functions of this file return parts of a call as calls. A part shares the memory of the call,
// so a law uses a clone.

// clone copies a call into new memory, contiguous and with poisoned outputs.
func clone(a *attn.Args) *attn.Args {
	c := *a
	cut(&c, func(t *attn.Tensor) { *t = contiguous(t) })
	t := &c.Terms
	t.Slopes, t.Sinks = slices.Clone(t.Slopes), slices.Clone(t.Sinks)
	for _, x := range []*[]int32{&c.QStart, &c.KStart, &c.KLen, &c.QPos, &c.Pages, &c.Stats.ArgMax} {
		*x = slices.Clone(*x)
	}
	c.StateIn, c.StateOut = slices.Clone(a.StateIn), slices.Clone(a.StateOut)
	poison(&c)
	return &c
}

func contiguous(t *attn.Tensor) attn.Tensor {
	c := attn.NewTyped(t.Type, attn.BHSD, t.B, t.S, t.H, t.D)
	for b := range t.B {
		for s := range t.S {
			for h := range t.H {
				move(&c, place{b, s, h}, t, place{b, s, h})
			}
		}
	}
	return c
}

// A place is the index of a row of a tensor.
type place struct{ b, s, h int }

func (x place) in(t *attn.Tensor) int { return x.b*t.SB + x.s*t.SS + x.h*t.SH }

// move copies a row as stored, without conversion.
func move(to *attn.Tensor, x place, from *attn.Tensor, y place) {
	i, j, d := x.in(to), y.in(from), to.D
	switch to.Type {
	case attn.F32:
		copy(to.Data[i:][:d], from.Data[j:][:d])
	case attn.I8:
		copy(to.Int8[i:][:d], from.Int8[j:][:d])
		to.Scale[i/d] = from.Scale[j/d]
	default:
		copy(to.Bits[i:][:d], from.Bits[j:][:d])
	}
}

// cut changes the view of every tensor of a call, inputs and outputs.
func cut(a *attn.Args, f func(t *attn.Tensor)) {
	cases.Inputs(a, func(_ string, t *attn.Tensor) { f(t) })
	cases.Outputs(a, func(_ string, t *attn.Tensor) { f(t) })
}

// skip makes a view begin n elements later.
func skip(t *attn.Tensor, n int) {
	t.Data, t.Bits, t.Int8 = t.Data[min(n, len(t.Data)):], t.Bits[min(n, len(t.Bits)):], t.Int8[min(n, len(t.Int8)):]
	if t.Type == attn.I8 {
		t.Scale = t.Scale[min(n/t.D, len(t.Scale)):]
	}
}

func skipBits(m *attn.Bits, n int) {
	if m.Bool != nil {
		m.Bool = m.Bool[n:]
	} else {
		m.Words = m.Words[n/64:] // rows of Pack begin at whole words
	}
}

// owners returns the batch entry and the query of each row of Q and Out, by [batch, row] of the
// tensor. A ragged batch may have rows that belong to no sequence.
func owners(p *attn.Problem, a *attn.Args) map[[2]int][2]int {
	own := map[[2]int][2]int{}
	for b := range p.Batch {
		for i := range a.Queries(p, b) {
			at, row := a.QRow(p, b, i)
			own[[2]int{at, row}] = [2]int{b, i}
		}
	}
	return own
}

// answered returns a function that is true for the output rows of batch entry b.
func answered(p *attn.Problem, a *attn.Args, b int) func(at, row, _ int) bool {
	own := owners(p, a)
	return func(at, row, _ int) bool {
		x, ok := own[[2]int{at, row}]
		return ok && x[0] == b
	}
}

// entry returns batch entry b of a call.
func entry(p attn.Problem, a *attn.Args, b int) (attn.Problem, *attn.Args) {
	c := *a
	cut(&c, func(t *attn.Tensor) {
		if pool := p.Page != 0 && (t == &c.K || t == &c.V); !pool && t.B > 1 {
			skip(t, b*t.SB)
			t.B = 1
		}
	})
	for _, x := range []*[]int32{&c.KLen, &c.QPos} {
		if *x != nil {
			*x = (*x)[b : b+1]
		}
	}
	for _, x := range []*[]int32{&c.QStart, &c.KStart} {
		if *x != nil {
			*x = (*x)[b : b+2]
		}
	}
	if each := p.PagesEach(); each > 0 {
		c.Pages = c.Pages[b*each:][:each]
	}
	if c.Stats.ArgMax != nil && !p.Ragged {
		n := c.Q.S * c.Q.H
		c.Stats.ArgMax = c.Stats.ArgMax[b*n:][:n]
	}
	c.StateIn, c.StateOut = part(&p, a, b, 0, p.StateHeads())
	p.Batch = 1
	return p, &c
}

// part returns new memory with the incoming state of n heads of a batch entry, and for as many
// states as the call writes.
func part(p *attn.Problem, a *attn.Args, b, head, n int) (in, out []float32) {
	if a.StateIn != nil {
		in = stateOf(p, a.StateIn, b, head, n)
	}
	if a.StateOut != nil {
		out = make([]float32, len(a.StateOut)/(p.Batch*p.StateHeads())*n)
		fillWith(out, cases.Poison)
	}
	return in, out
}

// headState is part for one head of all batch entries.
func headState(p *attn.Problem, a *attn.Args, head int) (in, out []float32) {
	var sums []float32
	for b := range p.Batch {
		x, y := part(p, a, b, head, 1)
		own := min(p.Dim*p.DimV, len(x))
		in, sums, out = append(in, x[:own]...), append(sums, x[own:]...), append(out, y...)
	}
	return append(in, sums...), out
}

// stateOf returns the state of n heads of a batch entry, as a call of its own has it.
func stateOf(p *attn.Problem, state []float32, b, head, n int) []float32 {
	own, first := p.Dim*p.DimV, b*p.StateHeads()+head
	x := slices.Clone(state[first*own:][:n*own])
	if sums := state[p.Batch*p.StateHeads()*own:]; len(sums) > 0 {
		x = append(x, sums[first*p.Dim:][:n*p.Dim]...)
	}
	return x
}

// sequence returns one sequence of a ragged batch as a call that is not ragged. The problem must
// not have an operand or by-product with a number for each pair of query and key.
func sequence(p attn.Problem, a *attn.Args, b int) (attn.Problem, *attn.Args) {
	p, c := entry(p, a, b)
	first, nq, nk := int(c.QStart[0]), c.Queries(&p, 0), c.Keys(&p, 0)
	take := func(t *attn.Tensor, from, n int) {
		skip(t, from*t.SS)
		t.S = n
	}
	take(&c.Q, first, nq)
	cases.Outputs(c, func(_ string, t *attn.Tensor) { take(t, first, nq) })
	if c.Stats.ArgMax != nil {
		c.Stats.ArgMax = c.Stats.ArgMax[first*p.HeadsQ:][:nq*p.HeadsQ]
	}
	if p.Page == 0 {
		take(&c.K, int(c.KStart[0]), nk)
		take(&c.V, int(c.KStart[0]), nk)
		for _, t := range []*attn.Tensor{&c.Terms.Decay, &c.Terms.Beta} {
			if t.Size() > 0 {
				take(t, int(c.KStart[0]), nk)
			}
		}
	}
	c.QStart, c.KStart = nil, nil
	p.Ragged = false
	return p, c
}

// head returns output head h of a call with the heads that it reads. The problem must not want
// ArgMax, which cannot be cut by heads.
func head(p attn.Problem, a *attn.Args, h int) (attn.Problem, *attn.Args) {
	c := *a
	cut(&c, func(t *attn.Tensor) {
		if t.H > 1 {
			skip(t, p.HeadOf(h, t.H)*t.SH)
			t.H = 1
		}
	})
	if p.Op == attn.OpLinear {
		c.StateIn, c.StateOut = headState(&p, a, p.HeadOf(h, p.StateHeads()))
	}
	for _, x := range []*[]float32{&c.Terms.Slopes, &c.Terms.Sinks} {
		if *x != nil {
			*x = (*x)[h : h+1]
		}
	}
	p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 1, 1, min(p.Linear.HeadsV, 1)
	return p, &c
}

// queries returns rows lo to hi of a call that is not ragged, at their positions. The new problem
// has Lengths, unless it does not use positions. The problem must not want ArgMax.
func queries(p attn.Problem, a *attn.Args, lo, hi int) (attn.Problem, *attn.Args) {
	c := *a
	n := c.Q.S
	rows := func(t *attn.Tensor) {
		skip(t, lo*t.SS)
		t.S = hi - lo
	}
	rows(&c.Q)
	cases.Outputs(&c, func(_ string, t *attn.Tensor) { rows(t) })
	if t := &c.Terms; t.Bias.S > 1 {
		rows(&t.Bias)
	}
	if t := &c.Terms.Relative; t.Size() > 0 && c.Terms.RelativeClip == 0 {
		skip(t, (n-hi)*t.SS)
		t.S -= n - (hi - lo)
	}
	if m := &c.Allowed; m.S > 1 {
		side := max(p.Mask.Block, 1)
		skipBits(m, lo/side*m.SS)
		m.S = (hi - lo + side - 1) / side
	}
	if positional(&p) {
		p.Lengths = true
		c.QPos = make([]int32, p.Batch)
		for b := range c.QPos {
			c.QPos[b] = int32(a.Pos(&p, b) + lo)
		}
	}
	return p, &c
}

// positional reports whether the positions of queries matter.
func positional(p *attn.Problem) bool {
	return p.Mask.Band || p.Score.Rope != attn.NoRope || p.Score.Terms&(attn.TermALiBi|attn.TermRelative) != 0
}

// hide spoils the keys of batch entry b for which hidden is true, with their values, beta, and
// gates per head. Gates per key channel stay: a kernel may begin its chunks by them.
func hide(p *attn.Problem, a *attn.Args, b int, hidden func(j int) bool) {
	for j := range a.Keys(p, b) {
		if !hidden(j) {
			continue
		}
		at, row := a.KRow(p, b, j)
		for _, t := range []*attn.Tensor{&a.K, &a.V, &a.Terms.Decay, &a.Terms.Beta} {
			for h := range t.H {
				if t != &a.Terms.Decay || p.Linear.Gate != attn.KeyGate {
					spoilRow(t, at, row, h)
				}
			}
		}
	}
}

// spoilRow spoils a row of a tensor.
func spoilRow(t *attn.Tensor, b, s, h int) {
	row := make([]float32, t.D)
	spoil(row)
	t.Write(row, b, s, h)
}

// spoil fills a row with NaN, and with large numbers that change every maximum.
func spoil(row []float32) {
	for i := range row {
		row[i] = []float32{cases.Poison, 1e4, -1e4}[i%3]
	}
}
