package attntest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// Laws hold without knowledge of the answer. They use only the oracle's tolerances. A law that
// compares two runs allows each run its whole tolerance.

// A margin is the tolerance of one row and the number of keys that it sees. A row that belongs to
// no sequence has a zero margin.
type margin struct {
	seen int
	out  []float64
	lse  float64
}

// tolerances returns the margins of a call.
func tolerances(p attn.Problem, a *attn.Args) ([]margin, error) {
	o, err := oracle.New(p, a)
	if err != nil {
		return nil, err
	}
	var m []margin
	own := owners(&p, a)
	cases.Rows(&a.Out, func(at, row, h int, _ []float32) {
		x, ok := own[[2]int{at, row}]
		if !ok {
			m = append(m, margin{})
			return
		}
		r := o.Row(oracle.Index{B: x[0], H: h, I: x[1]})
		m = append(m, margin{r.Visible, append([]float64(nil), r.TolOut...), r.TolLSE})
	})
	return m, nil
}

// near returns an error unless two outputs agree within the sum of the margins. If both calls have
// an LSE, those must differ by shift.
func near(x, y *attn.Args, mx, my []margin, shift float64) error {
	at, out, outY := -1, make([]float32, y.Out.D), make([]float32, y.Out.D)
	var err error
	differ := func(name string, b, i, h, c int, got, want float32, shift, tol float64) {
		if r := oracle.Ratio(float64(got), float64(want)+shift, tol); !(r <= 1) && err == nil {
			err = fmt.Errorf("%s[batch %d, head %d, row %d, %d]: %v and %v, tolerance %.3g", name, b, h, i, c, want, got, tol)
		}
	}
	cases.Rows(&x.Out, func(b, i, h int, _ []float32) {
		if at++; mx[at].out == nil {
			return
		}
		other := y.Out.Read(outY, b, i, h)
		for c, want := range x.Out.Read(out, b, i, h) {
			differ("Out", b, i, h, c, other[c], want, 0, mx[at].out[c]+my[at].out[c])
		}
		if x.Stats.LSE.Data != nil && y.Stats.LSE.Data != nil {
			differ("LSE", b, i, h, 0, y.Stats.LSE.Row(b, i, h)[0], x.Stats.LSE.Row(b, i, h)[0], shift, mx[at].lse+my[at].lse)
		}
	})
	return err
}

// exponential runs f on the calls whose weights are exponentials over their sum.
func (s *Subject) exponential(f func(c cases.Case) error) error {
	return s.each(func(c cases.Case) error {
		if !c.Problem.Op.HasLSE() {
			return nil
		}
		c.Problem.Want &= attn.WantLSE
		return f(c)
	})
}

// bare reports whether a problem has only a product and a band.
func bare(p attn.Problem) bool {
	return p.Score == attn.Score{} && p.Mask.Bitmap == attn.NoBitmap && p.Q == attn.F32 && p.KV == attn.F32 && p.Out == attn.F32 &&
		!p.Ragged && !p.Lengths && p.Page == 0
}

// shift checks that a constant added to every score changes no weight and adds to LSE. It is added
// through one more dimension, in which every query is 1 and every key is the constant. Every kernel
// can compute that.
func shift(s *Subject) error {
	const by = 3.5
	return s.exponential(func(c cases.Case) error {
		if !bare(c.Problem) {
			return nil
		}
		c.Problem.Score.Scale = c.Problem.Scale() // the scale of the narrower problem
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

// compare runs y and returns an error unless it agrees with x.
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

// permute checks that without a mask the order of the keys does not matter.
func permute(s *Subject) error {
	return s.each(func(c cases.Case) error {
		if c.Problem.Mask.Band || !bare(c.Problem) {
			return nil
		}
		c.Problem.Want &= attn.WantLSE
		x, err := s.answer(c, nil)
		if err != nil {
			return err
		}
		y := clone(x)
		order := rand.New(rand.NewPCG(c.Seed(), 6)).Perm(y.K.S)
		for _, t := range [][2]*attn.Tensor{{&y.K, &x.K}, {&y.V, &x.V}} {
			cases.Rows(t[0], func(b, j, h int, row []float32) { copy(row, t[1].Row(b, order[j], h)) })
		}
		return s.compare(c.Problem, x, c.Problem, y, 0)
	})
}

// average checks that an output is a weighted mean of values: if all values are one row, the output
// is that row.
func average(s *Subject) error {
	return s.each(func(c cases.Case) error {
		if !c.Problem.Averages() || c.Problem.KV == attn.I8 { // int8 cannot store the values
			return nil
		}
		a, _, err := c.Args()
		if err != nil {
			return err
		}
		a.StateIn = nil // it has values of its own
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
		at, buf := -1, make([]float32, c.Problem.DimV)
		cases.Rows(&a.Out, func(b, i, h int, _ []float32) {
			if at++; m[at].seen == 0 {
				return
			}
			for x, got := range a.Out.Read(buf, b, i, h) {
				if r := oracle.Ratio(float64(got), float64(value(x)), m[at].out[x]); !(r <= 1) && err == nil {
					err = fmt.Errorf("Out[batch %d, head %d, row %d, %d]: the mean of values that are all %v is %v", b, h, i, x, value(x), got)
				}
			}
		})
		return err
	})
}

// merge checks that attn.Merge of the attention over two splits of the keys is the attention over
// all.
func merge(s *Subject) error {
	// positions differ in a split
	fits := func(p attn.Problem) bool { return bare(p) && !p.Mask.Band }
	return s.joins(fits, func(p attn.Problem, whole *attn.Args, split, part int) (attn.Problem, *attn.Args) {
		from, to := part*split, split
		if part == 1 {
			to = whole.K.S
		}
		a := clone(whole)
		p.SeqKV = to - from
		for _, t := range []*attn.Tensor{&a.K, &a.V} {
			skip(t, from*t.SS)
			t.S = p.SeqKV
		}
		return p, a
	})
}

// parts checks the law of merge for any terms and any cache, with two bitmaps that each show one
// split of the keys. A sink belongs to one split.
func parts(s *Subject) error {
	fits := func(p attn.Problem) bool { return s.Claims&attn.NeedPacked != 0 && p.Mask.Bitmap == attn.NoBitmap }
	return s.joins(fits, func(p attn.Problem, whole *attn.Args, split, part int) (attn.Problem, *attn.Args) {
		a := clone(whole)
		p.Mask.Bitmap = attn.PackedBitmap
		_, nk := grid(&p, a)
		a.Allowed = attn.Pack(1, nk, func(_, j int) bool { return (j < split) == (part == 0) })
		if part == 1 {
			p.Score.Terms &^= attn.TermSinks
			a.Terms.Sinks = nil
		}
		return p, a
	})
}

// grid returns the extents of operands with a number for each pair of query and key.
func grid(p *attn.Problem, a *attn.Args) (nq, nk int) {
	nq, nk = a.Q.S, a.K.S
	if p.Ragged {
		nq = p.SeqQ
	}
	if p.Ragged || p.Page != 0 {
		nk = p.SeqKV
	}
	return nq, nk
}

// joins splits the keys of each call that fits in two, at several places, and returns an error
// unless the results over both splits merge to the result over all.
func (s *Subject) joins(fits func(p attn.Problem) bool, cut func(p attn.Problem, whole *attn.Args, split, part int) (attn.Problem, *attn.Args)) error {
	if s.Claims.Wants()&attn.WantLSE == 0 {
		return nil
	}
	return s.exponential(func(c cases.Case) error {
		if c.Problem.Out = attn.F32; !fits(c.Problem) || c.Problem.Needs()&^s.Claims != 0 {
			return nil
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
		_, nk := grid(&c.Problem, whole)
		for _, split := range some(s, 1, 0, 64, nk) {
			var part [2]*attn.Args
			var m [2][]margin
			for i := range part {
				p, a := cut(c.Problem, whole, split, i)
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
			// A merged output is a weighted mean of two. Its error is at most the larger of their
			// errors, one more rounding, and the errors of both LSE in the weights.
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

// bound returns the largest magnitude in a tensor.
func bound(t *attn.Tensor) float64 {
	top := 0.0
	cases.Rows(t, func(_, _, _ int, row []float32) {
		for _, x := range row {
			top = max(top, math.Abs(float64(x)))
		}
	})
	return top
}
