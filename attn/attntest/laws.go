package attntest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// Laws hold without knowing the answer; the oracle is asked for tolerances only, the whole of them: a law that compares two runs allows
// each its own.

// A margin is the tolerance of one row.
type margin struct {
	out []float64
	lse float64
}

// margins has one entry a row, in the order of cases.Rows.
func margins(p attn.Problem, a *attn.Args) ([]margin, error) {
	o, err := oracle.New(p, a)
	if err != nil {
		return nil, err
	}
	var m []margin
	cases.Rows(&a.Out, func(b, i, h int, _ []float32) {
		r := o.Row(oracle.Index{B: b, H: h, I: i})
		m = append(m, margin{append([]float64(nil), r.TolOut...), r.TolLSE})
	})
	return m, nil
}

// near compares two outputs, and two LSE that should differ by shift if both calls have them, within the sum of the margins.
func near(x, y *attn.Args, mx, my []margin, shift float64) error {
	at := 0
	var err error
	cases.Rows(&x.Out, func(b, i, h int, row []float32) {
		other := y.Out.Row(b, i, h)
		for c := range row {
			got, want, tol := float64(other[c]), float64(row[c]), mx[at].out[c]+my[at].out[c]
			if r := oracle.Ratio(got, want, tol); !(r <= 1) && err == nil {
				err = fmt.Errorf("Out[batch %d, head %d, query %d, %d]: %v and %v, tolerance %.3g", b, h, i, c, row[c], other[c], tol)
			}
		}
		if x.Stats.LSE.Data != nil && y.Stats.LSE.Data != nil {
			got, want := float64(y.Stats.LSE.Row(b, i, h)[0]), float64(x.Stats.LSE.Row(b, i, h)[0])+shift
			tol := mx[at].lse + my[at].lse
			if r := oracle.Ratio(got, want, tol); !(r <= 1) && err == nil {
				err = fmt.Errorf("LSE[batch %d, head %d, query %d]: %v, want %v, tolerance %.3g", b, h, i, got, want, tol)
			}
		}
		at++
	})
	return err
}

// softmax runs f on the softmax calls of each.
func (s *Subject) softmax(f func(c cases.Case) error) error {
	return s.each(func(c cases.Case) error {
		if c.Problem.Op != attn.OpSoftmax {
			return nil
		}
		c.Problem.Want &= attn.WantLSE
		return f(c)
	})
}

// shift: a constant added to every score changes no weight and moves LSE by itself. It is added through one more dimension, in which every
// query is 1 and every key is the constant, so that every kernel can be asked.
func shift(s *Subject) error {
	const by = 3.5
	return s.softmax(func(c cases.Case) error {
		c.Problem.Score.Scale = c.Problem.Scale() // that of the narrower problem
		x, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		p := c.Problem
		p.Dim++
		y, err := cases.NewArgs(p, "bhsd", nil)
		if err != nil {
			return err
		}
		widen := func(to, from *attn.Tensor, last float32) {
			cases.Rows(to, func(b, i, h int, row []float32) {
				copy(row, from.Row(b, i, h))
				row[len(row)-1] = last
			})
		}
		widen(&y.Q, &x.Q, 1)
		widen(&y.K, &x.K, float32(by/p.Scale()))
		cases.Rows(&y.V, func(b, i, h int, row []float32) { copy(row, x.V.Row(b, i, h)) })
		return s.compare(c.Problem, x, p, y, by)
	})
}

// compare runs y and demands that it agrees with x.
func (s *Subject) compare(px attn.Problem, x *attn.Args, py attn.Problem, y *attn.Args, shift float64) error {
	if err := s.forward(py, y, nil); err != nil {
		return err
	}
	mx, err := margins(px, x)
	if err != nil {
		return err
	}
	my, err := margins(py, y)
	if err != nil {
		return err
	}
	return near(x, y, mx, my, shift)
}

// permute: without a mask, the order of the keys does not matter.
func permute(s *Subject) error {
	return s.each(func(c cases.Case) error {
		if c.Problem.Mask.Band {
			return nil
		}
		c.Problem.Want &= attn.WantLSE
		x, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		y := clone(c.Problem, x)
		order := rand.New(rand.NewPCG(c.Seed(), 6)).Perm(y.K.S)
		for _, t := range [][2]*attn.Tensor{{&y.K, &x.K}, {&y.V, &x.V}} {
			cases.Rows(t[0], func(b, j, h int, row []float32) { copy(row, t[1].Row(b, order[j], h)) })
		}
		return s.compare(c.Problem, x, c.Problem, y, 0)
	})
}

// average: an output is a weighted mean of values, so if all values are one row, that row comes out.
func average(s *Subject) error {
	return s.each(func(c cases.Case) error {
		if c.Problem.Op == attn.OpLinear && c.Problem.Linear.Unnormalised {
			return nil
		}
		a, _, err := c.Args()
		if err != nil {
			return err
		}
		value := func(i int) float32 { return float32(i) - 7.25 }
		cases.Rows(&a.V, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = value(i)
			}
		})
		if err := s.forward(c.Problem, a, nil); err != nil {
			return err
		}
		m, err := margins(c.Problem, a)
		if err != nil {
			return err
		}
		at := 0
		cases.Rows(&a.Out, func(b, i, h int, row []float32) {
			tol := m[at]
			at++
			if lo, hi := a.Visible(&c.Problem, b, i); lo == hi {
				return
			}
			for x, got := range row {
				if r := oracle.Ratio(float64(got), float64(value(x)), tol.out[x]); !(r <= 1) && err == nil {
					err = fmt.Errorf("Out[batch %d, head %d, query %d, %d]: the mean of values that are all %v is %v", b, h, i, x, value(x), got)
				}
			}
		})
		return err
	})
}

// merge: attention over two parts of the keys, joined by attn.Merge, is attention over the whole.
func merge(s *Subject) error {
	if s.wants()&attn.WantLSE == 0 {
		return nil
	}
	return s.softmax(func(c cases.Case) error {
		if c.Problem.Mask.Band {
			return nil // a part has other positions
		}
		whole, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		mw, err := margins(c.Problem, whole)
		if err != nil {
			return err
		}
		top := bound(&whole.V)
		for _, split := range []int{0, 1, 64, whole.K.S} {
			var part [2]*attn.Args
			var m [2][]margin
			for i, keys := range [][2]int{{0, split}, {split, whole.K.S}} {
				p := c.Problem
				p.SeqKV = keys[1] - keys[0]
				a := clone(c.Problem, whole)
				for _, t := range []*attn.Tensor{&a.K, &a.V} {
					t.Data, t.S = t.Data[min(keys[0]*t.SS, len(t.Data)):], p.SeqKV
				}
				if err := s.forward(p, a, nil); err != nil {
					return err
				}
				if m[i], err = margins(p, a); err != nil {
					return err
				}
				part[i] = a
			}
			x, y := part[0], part[1]
			attn.Merge(x.Out, x.Stats.LSE, y.Out, y.Stats.LSE)
			// A merged output is a weighted mean of two, so the larger of their errors bounds its own, and it is rounded once more; the weights carry
			// the errors of both LSE.
			for r := range m[0] {
				for b := range m[0][r].out {
					reach := 2 * (m[0][r].lse + m[1][r].lse) * top
					m[0][r].out[b] = max(m[0][r].out[b], m[1][r].out[b]) + reach
				}
				m[0][r].lse = max(m[0][r].lse, m[1][r].lse)
			}
			if err := near(whole, x, mw, m[0], 0); err != nil {
				return fmt.Errorf("split at %d: %w", split, err)
			}
		}
		return nil
	})
}

// bound is the largest magnitude in a tensor.
func bound(t *attn.Tensor) float64 {
	top := 0.0
	cases.Rows(t, func(_, _, _ int, row []float32) {
		for _, x := range row {
			top = max(top, math.Abs(float64(x)))
		}
	})
	return top
}
