package attntest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// These checks require the same bits: a row of the output depends on its query, its visible keys
// and their absolute indices only. They compare plans of the same Problem.SeqQ, because SeqQ
// selects between the prefill and the decode path.

// threads checks any number of workers.
func threads(s *Subject) error {
	for _, workers := range some(s, 3, 2, 5) {
		team := attn.NewTeam(workers)
		err := s.each(func(c cases.Case) error {
			alone, err := s.answer(c, nil)
			if err != nil {
				return err
			}
			together, err := s.answer(c, team)
			if err != nil {
				return err
			}
			return same(collect(alone, nil), collect(together, nil))
		})
		team.Close()
		if err != nil {
			return fmt.Errorf("%d workers: %w", workers, err)
		}
	}
	return nil
}

// layouts checks the same numbers with other strides and addresses.
func layouts(s *Subject) error {
	return s.each(func(c cases.Case) error {
		want, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		for _, layout := range []string{"bshd", "padded", "packed"} {
			if _, err := cases.SlabLen(c.Problem, layout); layout == "packed" && err != nil {
				continue
			}
			in := c.In(layout)
			a, _, err := in.Args()
			if err != nil {
				return err
			}
			poison(a)
			// Case.Args seeds by name, so the numbers are those of want.
			if err := s.forward(c.Problem, a, nil); err != nil {
				return err
			}
			if err := same(collect(want, nil), collect(a, nil)); err != nil {
				return fmt.Errorf("layout %s: %w", layout, err)
			}
		}
		return nil
	})
}

// batchMates checks a batch entry when the other entries hold NaN, and when there are none.
func batchMates(s *Subject) error {
	return s.each(func(c cases.Case) error {
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		for b := range c.Problem.Batch {
			p, mine := c.Problem, answered(&c.Problem, whole, b)
			want := collect(whole, mine)
			a := clone(whole)
			cases.Rows(&a.Q, func(at, row, h int, q []float32) {
				if !mine(at, row, h) {
					spoil(q)
				}
			})
			for other := range p.Batch {
				if other != b {
					hide(&p, a, other, func(int) bool { return true })
				}
			}
			if err := s.forward(p, a, nil); err != nil {
				return err
			}
			if err := same(want, collect(a, mine)); err != nil {
				return fmt.Errorf("batch entry %d among NaN: %w", b, err)
			}
			p, a = entry(p, clone(whole), b)
			if err := s.forward(p, a, nil); err != nil {
				return err
			}
			if err := same(want, collect(a, answered(&p, a, 0))); err != nil {
				return fmt.Errorf("batch entry %d alone: %w", b, err)
			}
		}
		return nil
	})
}

// headsAlone checks one query head with its key head as a problem of its own.
func headsAlone(s *Subject) error {
	return s.each(func(c cases.Case) error {
		c = c.Only(^attn.WantArgMax)
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		for h := range c.Problem.OutHeads() {
			p, a := head(c.Problem, clone(whole), h)
			if err := s.forward(p, a, nil); err != nil {
				return err
			}
			if err := same(collect(whole, func(_, _, x int) bool { return x == h }), collect(a, everyRow)); err != nil {
				return fmt.Errorf("head %d alone: %w", h, err)
			}
		}
		return nil
	})
}

// neighbours checks a query when the other queries of its tile hold NaN, or large numbers whose
// maxima are at other keys.
func neighbours(s *Subject) error {
	return s.each(func(c cases.Case) error {
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		for _, i := range []int{0, 1, c.Problem.SeqQ / 2, whole.Q.S - 1} {
			for _, disturb := range []func([]float32){spoil, func(row []float32) { scale(row, -100) }} {
				a := clone(whole)
				cases.Rows(&a.Q, func(_, x, _ int, row []float32) {
					if x != i {
						disturb(row)
					}
				})
				if err := s.forward(c.Problem, a, nil); err != nil {
					return err
				}
				mine := func(_, x, _ int) bool { return x == i }
				if err := same(collect(whole, mine), collect(a, mine)); err != nil {
					return fmt.Errorf("query %d among others: %w", i, err)
				}
			}
		}
		return nil
	})
}

func scale(row []float32, c float32) {
	for i := range row {
		row[i] *= c
	}
}

// rowsAlone checks a few rows through a plan of the same capacity, which puts them in other lanes
// of another tile.
func rowsAlone(s *Subject) error {
	return s.each(func(c cases.Case) error {
		c = c.Only(^attn.WantArgMax)
		p, n := c.Problem, c.Problem.SeqQ
		if p.Ragged || p.Rule() {
			return nil
		}
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		for _, rows := range [][2]int{{0, 1}, {n - 1, n}, {n - 5, n}, {n / 3, n/3 + 9}, {0, n - 1}} {
			lo, hi := max(rows[0], 0), min(rows[1], n)
			lo -= lo % max(p.Mask.Block, 1)
			q, a := queries(p, clone(whole), lo, hi)
			stay := lo == 0 && p.Mask.Align == attn.TopLeft || hi == n && p.Mask.Align == attn.BottomRight
			if q.Needs()&^s.Claims != 0 {
				if !stay {
					continue
				}
				q.Lengths, a.QPos = p.Lengths, nil
			}
			if err := s.forward(q, a, nil); err != nil {
				return err
			}
			if err := same(collect(whole, func(_, i, _ int) bool { return lo <= i && i < hi }), collect(a, nil)); err != nil {
				return fmt.Errorf("rows %d to %d alone: %w", lo, hi, err)
			}
		}
		return nil
	})
}

// hiddenKeys checks that hidden keys may hold anything. A row that sees no spoiled key must not
// change, even if other rows of its tile do.
func hiddenKeys(s *Subject) error {
	return s.each(func(c cases.Case) error {
		p := c.Problem
		if p.Mask == attn.Full() {
			return nil
		}
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		sees := func(b, i, j int) bool {
			lo, hi := whole.Visible(&p, b, i)
			return lo <= j && j < hi && whole.Shows(&p, b, i, 0, j)
		}
		own := owners(&p, whole)
		for _, q := range []int{0, p.SeqQ / 2, p.SeqQ - 1} {
			a := clone(whole)
			bad := func(b, j int) bool { return q < whole.Queries(&p, b) && !sees(b, q, j) }
			for b := range p.Batch {
				hide(&p, a, b, func(j int) bool { return bad(b, j) })
			}
			if err := s.forward(p, a, nil); err != nil {
				return err
			}
			blind := func(at, row, _ int) bool {
				x, ok := own[[2]int{at, row}]
				for j := 0; ok && j < whole.Keys(&p, x[0]); j++ {
					ok = !bad(x[0], j) || !sees(x[0], x[1], j)
				}
				return ok
			}
			if err := same(collect(whole, blind), collect(a, blind)); err != nil {
				return fmt.Errorf("what query %d does not see: %w", q, err)
			}
		}
		return nil
	})
}

// capacity checks a plan for more keys and the same number of queries: with K of the same length,
// and with key lengths and garbage behind them.
func capacity(s *Subject) error {
	return s.each(func(c cases.Case) error {
		c = c.Only(^attn.WantWeights) // its width is that of K
		p := c.Problem
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		big := p
		big.SeqKV = 3*p.SeqKV + 7
		a := clone(whole)
		if p.Page != 0 {
			a.Pages = slices.Repeat([]int32{-1}, p.Batch*big.PagesEach())
			for b := range p.Batch {
				copy(a.Pages[b*big.PagesEach():], whole.Pages[b*p.PagesEach():][:p.PagesEach()])
			}
		}
		if err := s.forward(big, a, nil); err != nil {
			return err
		}
		if err := same(collect(whole, nil), collect(a, nil)); err != nil {
			return fmt.Errorf("a plan for %d keys: %w", big.SeqKV, err)
		}
		if byPair := p.Score.Terms&(attn.TermBias|attn.TermRelative) != 0 || p.Mask.Bitmap != attn.NoBitmap; byPair || p.Ragged || p.Page != 0 || p.Rule() {
			return nil // their operands are as wide as K
		}
		big.Lengths = true
		if big.Needs()&^s.Claims != 0 {
			return nil
		}
		a = clone(whole)
		for _, t := range [][2]*attn.Tensor{{&a.K, &whole.K}, {&a.V, &whole.V}} {
			*t[0] = attn.NewTyped(p.KV, attn.BHSD, p.Batch, big.SeqKV, p.HeadsKV, t[1].D)
			cases.Rows(t[0], func(b, j, h int, row []float32) {
				if spoil(row); j < p.SeqKV {
					copy(row, t[1].Row(b, j, h))
				}
			})
		}
		a.KLen = slices.Repeat([]int32{int32(p.SeqKV)}, p.Batch)
		if err := s.forward(big, a, nil); err != nil {
			return err
		}
		if err := same(collect(whole, nil), collect(a, nil)); err != nil {
			return fmt.Errorf("%d keys in use of %d: %w", p.SeqKV, big.SeqKV, err)
		}
		return nil
	})
}

// concurrent checks many plans of one kernel value at once.
func concurrent(s *Subject) error {
	calls := s.calls()
	errs := make([]error, 2*len(calls))
	var wg sync.WaitGroup
	for i := range errs {
		c := calls[i/2]
		want, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		wg.Go(func() {
			errs[i] = guarded(c, func(c cases.Case) error {
				got, err := s.answer(c, nil)
				if err != nil {
					return err
				}
				return same(collect(want, nil), collect(got, nil))
			})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", calls[i/2].Name, err)
		}
	}
	return nil
}

// allocations checks that Forward allocates nothing after the first call, with any team.
func allocations(s *Subject) error {
	for _, workers := range []int{1, 2} {
		team := attn.NewTeam(workers)
		err := s.each(func(c cases.Case) error {
			a, _, err := c.Args()
			if err != nil {
				return err
			}
			plan, err := s.plan(c.Problem, team)
			if err != nil {
				return err
			}
			defer done(plan)
			if n := testing.AllocsPerRun(4, func() { plan.Forward(a) }); n != 0 {
				return fmt.Errorf("%v allocations a call", n)
			}
			return nil
		})
		team.Close()
		if err != nil {
			return fmt.Errorf("%d workers: %w", workers, err)
		}
	}
	return nil
}
