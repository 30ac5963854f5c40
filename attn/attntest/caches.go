package attntest

import (
	"fmt"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// Laws about the location of rows: ragged batches, pages, and a cache that fills.

// raggedAlone checks that a ragged batch equals its sequences one by one, through plans of the same
// SeqQ that are not ragged.
func raggedAlone(s *Subject) error {
	return s.each(func(c cases.Case) error {
		c = c.Only(^attn.WantWeights)
		if !c.Problem.Ragged {
			return nil
		}
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		for b := range c.Problem.Batch {
			p, a := sequence(c.Problem, clone(whole), b)
			if err := s.forward(p, a, nil); err != nil {
				return err
			}
			if err := same(collect(whole, answered(&c.Problem, whole, b)), collect(a, everyRow)); err != nil {
				return fmt.Errorf("sequence %d alone: %w", b, err)
			}
		}
		return nil
	})
}

// paginate moves the rows of K and V to pages of a pool. Page i of batch entry b is stored at
// order(b, i). The rest of the pool is spoiled.
func paginate(p *attn.Problem, a *attn.Args, rows, pool int, order func(b, i int) int) {
	p.Page = rows
	each := p.PagesEach()
	a.Pages = make([]int32, p.Batch*each)
	for i := range a.Pages {
		a.Pages[i] = int32(order(i/each, i%each))
	}
	for _, t := range []*attn.Tensor{&a.K, &a.V} {
		from := *t
		*t = attn.NewTyped(p.KV, attn.BHSD, pool, rows, p.HeadsKV, from.D)
		cases.Rows(t, func(_, _, _ int, row []float32) { spoil(row) })
		for b := range from.B {
			for j := range from.S {
				at, row := a.KRow(p, b, j)
				for h := range from.H {
					move(t, place{at, row, h}, &from, place{b, j, h})
				}
			}
		}
	}
}

// pages checks that a cache in pages, in any order, gives the bits of a contiguous cache.
func pages(s *Subject) error {
	return s.twins(func(x *twin) error {
		if x.p.Ragged || x.p.Page != 0 || x.p.Rule() {
			return nil
		}
		for _, rows := range some(s, 8, 64) {
			q := x.p
			q.Page = rows
			each := q.PagesEach()
			for name, order := range map[string]func(b, i int) int{
				"in order":     func(b, i int) int { return b*each + i },
				"from the end": func(b, i int) int { return x.p.Batch*each - b*each - i },
			} {
				y := x.copy(func(p *attn.Problem, a *attn.Args) { paginate(p, a, rows, p.Batch*each+1, order) })
				if err := s.agree(fmt.Sprintf("pages of %d %s", rows, name), x, y, bits); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ring checks that a window needs no more pages than it spans, when pages that it has left behind
// are overwritten.
func ring(s *Subject) error {
	for _, nq := range []int{20, 1} {
		p := attn.Problem{Batch: 2, SeqQ: nq, SeqKV: 157, HeadsQ: 4, HeadsKV: 2, Dim: 16, DimV: 20, Mask: attn.Window(12, 0), Want: s.Claims.Wants() & attn.WantLSE}
		c := cases.Case{Family: "laws", Name: fmt.Sprintf("ring-%d", nq), Problem: p, Layout: "bhsd", Data: "normal"}
		err := guarded(c, func(c cases.Case) error {
			a, _, err := c.Args()
			if err != nil {
				return err
			}
			x := &twin{p: p, a: a}
			y := x.copy(func(p *attn.Problem, a *attn.Args) { paginate(p, a, 16, 6, func(b, i int) int { return 3*b + i%3 }) })
			return s.agree(c.Name, x, y, bits)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// filling runs f on the calls whose cache can be filled step by step: no query sees past its own
// key.
func (s *Subject) filling(f func(p attn.Problem, whole *attn.Args) error) error {
	if s.Claims&attn.NeedLengths == 0 {
		return nil
	}
	return s.each(func(c cases.Case) error {
		c = c.Only(^(attn.WantArgMax | attn.WantWeights))
		p := c.Problem
		if m := p.Mask; !m.Band || m.Right != 0 || p.Ragged || m.Bitmap == attn.BlockBitmap || p.SeqQ < 5 || p.Rule() {
			return nil
		}
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		return f(p, whole)
	})
}

// step returns queries lo to hi of a call, with a cache that holds the keys up to the last of them.
func step(p attn.Problem, whole *attn.Args, lo, hi int) (attn.Problem, *attn.Args) {
	p, a := queries(p, clone(whole), lo, hi)
	klen := make([]int32, p.Batch)
	for b := range klen {
		klen[b] = int32(min(whole.Keys(&p, b), int(a.QPos[b])+hi-lo))
		hide(&p, a, b, func(j int) bool { return j >= int(klen[b]) })
	}
	a.KLen = klen
	return p, a
}

// chunks checks that a prompt in chunks through one plan has the bits of the prompt in one pass.
func chunks(s *Subject) error {
	return s.filling(func(p attn.Problem, whole *attn.Args) error {
		for _, size := range some(s, 7, p.SeqQ/2+1) {
			for lo := 0; lo < p.SeqQ; lo += size {
				hi := min(lo+size, p.SeqQ)
				q, a := step(p, whole, lo, hi)
				if err := s.forward(q, a, nil); err != nil {
					return err
				}
				if err := same(collect(whole, func(_, i, _ int) bool { return lo <= i && i < hi }), collect(a, nil)); err != nil {
					return fmt.Errorf("queries %d to %d as a chunk: %w", lo, hi, err)
				}
			}
		}
		return nil
	})
}

// decode checks that a prompt token by token, through a plan for one query, equals the prompt in
// one pass within the tolerance.
func decode(s *Subject) error {
	return s.filling(func(p attn.Problem, whole *attn.Args) error {
		for _, i := range slices.Compact([]int{0, 1, p.SeqQ / 2, p.SeqQ - 1}) {
			q, a := step(p, whole, i, i+1)
			q.SeqQ = 1
			if err := s.forward(q, a, nil); err != nil {
				return err
			}
			m, err := margins(q, a)
			if err != nil {
				return err
			}
			_, row := queries(p, whole, i, i+1)
			if err := near(row, a, m, m, 0); err != nil {
				return fmt.Errorf("query %d alone: %w", i, err)
			}
		}
		return nil
	})
}
