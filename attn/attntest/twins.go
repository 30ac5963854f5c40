package attntest

import (
	"fmt"
	"math"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// A twin is one of two calls that must give the same answer. The other is an edited copy of it.
type twin struct {
	p    attn.Problem
	a    *attn.Args
	done bool     // the outputs are written
	m    []margin // nil until needed
}

func (t *twin) copy(edit func(p *attn.Problem, a *attn.Args)) *twin {
	c := &twin{p: t.p, a: clone(t.a)}
	edit(&c.p, c.a)
	return c
}

// twins runs f on the calls, whose outputs are not written yet.
func (s *Subject) twins(f func(x *twin) error) error {
	return s.each(func(c cases.Case) error {
		c = c.Only(^attn.WantWeights)
		a, _, err := c.Args()
		if err != nil {
			return err
		}
		poison(a)
		return f(&twin{p: c.Problem, a: a})
	})
}

// agree compares the answers of twins, if both are valid and the claims cover them.
func (s *Subject) agree(what string, x, y *twin, compare func(x, y *twin) error) error {
	for _, t := range []*twin{x, y} {
		if t.p.Validate() != nil || t.p.Needs()&^s.Claims != 0 {
			return nil
		}
	}
	for _, t := range []*twin{x, y} {
		if t.done {
			continue
		}
		if err := s.forward(t.p, t.a, nil); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.done = true
	}
	if err := compare(x, y); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func bits(x, y *twin) error { return same(collect(x.a, nil), collect(y.a, nil)) }

func closely(x, y *twin) error {
	for _, t := range []*twin{x, y} {
		if t.m != nil {
			continue
		}
		var err error
		if t.m, err = margins(t.p, t.a); err != nil {
			return err
		}
	}
	return near(x.a, y.a, x.m, y.m, 0)
}

// bitmaps checks that a bitmap that shows every key changes no bit.
func bitmaps(s *Subject) error {
	return s.twins(func(x *twin) error {
		if x.p.Mask.Bitmap != attn.NoBitmap {
			return nil
		}
		nq, nk := grid(&x.p, x.a)
		show := func(_, _ int) bool { return true }
		flags := attn.Bits{Bool: slices.Repeat([]bool{true}, nq*nk), B: 1, S: nq, H: 1, D: nk, SS: nk}
		for _, m := range []struct {
			bitmap attn.Bitmap
			side   int
			ones   attn.Bits
		}{
			{attn.BoolBitmap, 0, flags},
			{attn.PackedBitmap, 0, attn.Pack(nq, nk, show)},
			{attn.BlockBitmap, 16, attn.BlockSparse(nq, nk, 16, show)},
		} {
			y := x.copy(func(p *attn.Problem, a *attn.Args) { p.Mask.Bitmap, p.Mask.Block, a.Allowed = m.bitmap, m.side, m.ones })
			if err := s.agree(y.p.Mask.String()+" of ones", x, y, bits); err != nil {
				return err
			}
		}
		return nil
	})
}

// neutral checks that a bias of 0, slopes of 0, a sink of -Inf, a rotation by 0 and the identity as
// metric change nothing but bits. Bits may change because a kernel takes another path for terms.
func neutral(s *Subject) error {
	return s.twins(func(x *twin) error {
		nq, nk := grid(&x.p, x.a)
		type nothing struct {
			name string
			term attn.Terms // 0 for the rotation
			edit func(p *attn.Problem, o *attn.Operands)
		}
		for _, n := range some(s,
			nothing{"the identity as metric", attn.TermMetric, func(p *attn.Problem, o *attn.Operands) {
				o.Metric = attn.New(attn.BHSD, 1, p.Dim, 1, p.Dim)
				for c := range p.Dim {
					o.Metric.Row(0, c, 0)[c] = 1
				}
			}},
			nothing{"bias of 0", attn.TermBias, func(_ *attn.Problem, o *attn.Operands) { o.Bias = attn.New(attn.BHSD, 1, nq, 1, nk) }},
			nothing{"slopes of 0", attn.TermALiBi, func(p *attn.Problem, o *attn.Operands) { o.Slopes = make([]float32, p.HeadsQ) }},
			nothing{"sinks of -Inf", attn.TermSinks, func(p *attn.Problem, o *attn.Operands) {
				o.Sinks = slices.Repeat([]float32{float32(math.Inf(-1))}, p.HeadsQ)
			}},
			nothing{"turn by nothing", 0, func(p *attn.Problem, o *attn.Operands) {
				p.Score.Rope = attn.RopeHalves
				o.Cos, o.Sin = attn.RopeTables(10000, p.SeqQ+p.SeqKV, p.Dim)
				for _, t := range []*attn.Tensor{&o.Cos, &o.Sin} {
					t.SS = 0 // every position has the angles of position 0
				}
			}},
		) {
			if x.p.Score.Terms&n.term != 0 || n.term == 0 && x.p.Score.Rope != attn.NoRope {
				continue
			}
			y := x.copy(func(p *attn.Problem, a *attn.Args) {
				p.Score.Terms |= n.term
				n.edit(p, &a.Terms)
			})
			if err := s.agree(n.name, x, y, closely); err != nil {
				return err
			}
		}
		return nil
	})
}

// alibi checks that slopes give the same as a bias of -slope times the distance.
func alibi(s *Subject) error {
	return s.twins(func(x *twin) error {
		if x.p.Score.Terms&(attn.TermALiBi|attn.TermBias) != 0 || x.p.Ragged {
			return nil
		}
		slopes := attn.ALiBiSlopes(x.p.HeadsQ)
		short := x.copy(func(p *attn.Problem, a *attn.Args) {
			p.Score.Terms |= attn.TermALiBi
			a.Terms.Slopes = slopes
		})
		long := x.copy(func(p *attn.Problem, a *attn.Args) {
			p.Score.Terms |= attn.TermBias
			nq, nk := grid(p, a)
			a.Terms.Bias = attn.New(attn.BHSD, p.Batch, nq, p.HeadsQ, nk)
			cases.Rows(&a.Terms.Bias, func(b, i, h int, row []float32) {
				for j := range row {
					row[j] = -slopes[h] * float32(math.Abs(float64(a.Pos(p, b)+i-j)))
				}
			})
		})
		return s.agree("slopes written out", short, long, closely)
	})
}

// turn checks that a rotated score depends on the distance of query and key and not on their
// positions: the table of angles may begin anywhere.
func turn(s *Subject) error {
	const by = 23
	return s.twins(func(x *twin) error {
		if x.p.Score.Terms&attn.TermMetric != 0 {
			return nil // a metric does not rotate with its operands
		}
		for _, rope := range some(s, attn.RopeInterleaved, attn.RopeHalves) {
			from := func(first int) func(p *attn.Problem, a *attn.Args) {
				return func(p *attn.Problem, a *attn.Args) {
					p.Score.Rope = rope
					a.Terms.Cos, a.Terms.Sin = attn.RopeTables(10000, p.SeqQ+p.SeqKV+by, p.Dim)
					for _, t := range []*attn.Tensor{&a.Terms.Cos, &a.Terms.Sin} {
						skip(t, first*t.SS)
						t.S -= first
					}
				}
			}
			if err := s.agree(fmt.Sprintf("rope %d from position %d on", rope, by), x.copy(from(0)), x.copy(from(by)), closely); err != nil {
				return err
			}
		}
		return nil
	})
}

// rounding checks that an output of 16 bits is the rounded output of 32 bits.
func rounding(s *Subject) error {
	return s.twins(func(x *twin) error {
		for _, typ := range some(s, attn.BF16, attn.F16) {
			as := func(t attn.DType) *twin {
				return x.copy(func(p *attn.Problem, a *attn.Args) {
					p.Out = t
					a.Out = attn.NewTyped(t, attn.BHSD, a.Out.B, a.Out.S, a.Out.H, a.Out.D)
					poison(a)
				})
			}
			err := s.agree(fmt.Sprintf("%v output", typ), as(attn.F32), as(typ), func(x, y *twin) error {
				wide := x.a.Out
				x.a.Out = attn.NewTyped(typ, attn.BHSD, wide.B, wide.S, wide.H, wide.D)
				cases.Rows(&wide, func(b, i, h int, row []float32) { x.a.Out.Write(row, b, i, h) })
				return bits(x, y)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// dequantised checks that keys and values of a narrow type give the same as the float32 numbers
// that they stand for.
func dequantised(s *Subject) error {
	return s.twins(func(x *twin) error {
		for _, typ := range some(s, attn.I8, attn.F16, attn.BF16) {
			stored := func(t attn.DType) func(p *attn.Problem, a *attn.Args) {
				return func(p *attn.Problem, a *attn.Args) {
					p.KV = t
					for _, o := range []*attn.Tensor{&a.K, &a.V} {
						from := *o
						*o = attn.NewTyped(t, attn.BHSD, o.B, o.S, o.H, o.D)
						cases.Rows(&from, func(b, j, h int, row []float32) { o.Write(row, b, j, h) })
					}
				}
			}
			narrow := x.copy(stored(typ))
			if err := s.agree(fmt.Sprintf("%v rows widened", typ), narrow, narrow.copy(stored(attn.F32)), closely); err != nil {
				return err
			}
		}
		return nil
	})
}
