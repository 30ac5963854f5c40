package cases

import (
	"fmt"
	"math"
	"slices"

	"attnlab/attn"
)

// far has scores that are far from 0: a padded row filled with -1e9 or with the lowest float32, and
// positions of 2^30 with ALiBi. At 1e9 float32 numbers are 64 apart, so a tolerance that follows
// the scores accepts anything.
//
// The shift makes no difference in these cases: the scores of a row are all equal, or one key leads
// by so much that it has all the weight. The same case near 0 therefore gives a tolerance to judge
// the answer by: see Case.Near.
func far(l *list) {
	const lowest = -math.MaxFloat32
	wide, causal := problem(1, 37, 128, 2, 1, 8, 10), masked(problem(1, 90, 300, 1, 1, 8, 8), attn.Causal())
	few, one := problem(1, 3, 600, 2, 1, 8, 8), problem(2, 1, 600, 4, 2, 8, 8)
	shapes := []struct {
		name string
		p    attn.Problem
	}{{"", wide}, {"-causal", causal}, {"-few", few}, {"-decode", one}}
	add := func(name string, p attn.Problem, temp float64, core bool, edit, shift func(p *attn.Problem, a *attn.Args)) {
		p.Score.Temp = temp
		p.Want = everyRowStat | attn.WantWeights | attn.WantScores
		if temp != 1 {
			name += fmt.Sprint("-T", temp)
		}
		two := len(l.cases)%2 == 0
		c := l.add(name, p).core(core).with(func(p *attn.Problem, a *attn.Args, _ rnd) {
			clearTensor(&a.Terms.Bias)
			if two {
				twoNumbers(a)
			}
			edit(p, a)
		})
		c.shift = shift
	}
	for s, shape := range shapes {
		shape.p.Score.Terms = attn.TermBias
		for i, by := range []float32{-1e9, 1e9, lowest, -1e4, 1e4, -lowest} {
			name := fmt.Sprintf("%.0e", by)
			temps := []float64{1, 0.1, 7}
			if by == -lowest {
				temps = []float64{1} // z would be infinite
			}
			for t, temp := range temps {
				if s > 0 && t > 0 && i != 2 {
					continue
				}
				add("all"+name+shape.name, shape.p, temp, i%2 == 0 && t == 0 && (s == 0 || s == 3), equalKeys, shiftRows(by, func(int) bool { return true }))
				add("some"+name+shape.name, shape.p, temp, i < 3 && t == 0 && s == 0, equalKeys, shiftRows(by, func(i int) bool { return i%3 == 1 }))
			}
			if by < 0 {
				add("keys"+name+shape.name, shape.p, 1, i == 2 && s == 0, hideHalf, shiftHalf(by))
			}
			if math.Abs(float64(by)) == 1e9 {
				add("lead"+name+shape.name, shape.p, 1, s == 0, func(p *attn.Problem, a *attn.Args) {
					equalKeys(p, a)
					lead(a, 300)
				}, func(p *attn.Problem, a *attn.Args) {
					lead(a, 1<<16)
					shiftRows(by, func(int) bool { return true })(p, a)
				})
				sunk := shape.p
				sunk.Score.Terms |= attn.TermSinks
				add("sink"+name+shape.name, sunk, 1, s == 0, silent, func(p *attn.Problem, a *attn.Args) {
					shiftRows(by, func(int) bool { return true })(p, a)
					fill(a.Terms.Sinks, by)
				})
			}
		}
	}
	// Enough keys for decoding to split them.
	for i, p := range []attn.Problem{problem(1, 1, 2200, 2, 1, 8, 8), problem(1, 4, 4200, 8, 1, 8, 8)} {
		p.Score.Terms = attn.TermBias
		for _, by := range []float32{-1e9, lowest} {
			add(fmt.Sprintf("splits%.0e-%d", by, p.SeqQ), p, 1, i == 0 && by == lowest, equalKeys, shiftRows(by, func(int) bool { return true }))
		}
		add(fmt.Sprint("splits-apart-", p.SeqQ), p, 1, i == 0, func(p *attn.Problem, a *attn.Args) {
			equalKeys(p, a)
			early(a, -inf)
		}, func(_ *attn.Problem, a *attn.Args) {
			early(a, lowest)
		})
	}
	// All distances round to 2^30 in float32, and all scores to one number as a base-2 logarithm.
	for _, nq := range []int{16, 1} {
		p := problem(2, nq, 16, 4, 2, 8, 8)
		p.Lengths = true
		for _, terms := range []attn.Terms{attn.TermALiBi, attn.TermALiBi | attn.TermBias} {
			p.Score.Terms = terms
			add(fmt.Sprintf("alibi-%d-%d", nq, terms), p, 1, true, func(p *attn.Problem, a *attn.Args) {
				equalKeys(p, a)
				fill(a.Terms.Slopes, 0)
				placeAt(p, a, 0)
			}, func(p *attn.Problem, a *attn.Args) {
				fill(a.Terms.Slopes, 1)
				placeAt(p, a, 1<<30)
			})
		}
		p.Score.Terms = attn.TermRelative
		add(fmt.Sprint("positions-", nq), p, 1, nq == 1, func(p *attn.Problem, a *attn.Args) {
			a.Terms.RelativeClip = 5
			a.Terms.Relative = attn.New(attn.BHSD, 1, 11, 1, p.Dim)
			for i := range a.Terms.Relative.Data {
				a.Terms.Relative.Data[i] = float32(i%7) - 3
			}
			placeAt(p, a, 1000)
		}, func(p *attn.Problem, a *attn.Args) { placeAt(p, a, 1<<30) })
	}
}

// equalKeys makes all keys of a head equal, so that a query has the same score with each in any
// arithmetic.
func equalKeys(_ *attn.Problem, a *attn.Args) {
	Rows(&a.K, func(b, _, h int, row []float32) { copy(row, a.K.Row(b, 0, h)) })
}

// silent makes all products 0.
func silent(_ *attn.Problem, a *attn.Args) {
	clearTensor(&a.Q)
	clear(a.Terms.Sinks)
}

// lead gives one key a bias.
func lead(a *attn.Args, by float32) {
	Rows(&a.Terms.Bias, func(_, _, _ int, row []float32) { row[77%len(row)] = by })
}

// hideHalf gives every other key a bias of -Inf. shiftHalf gives it the bias by, which is low
// enough for the same weights.
func hideHalf(p *attn.Problem, a *attn.Args) {
	equalKeys(p, a)
	shiftHalf(-inf)(p, a)
}

func shiftHalf(by float32) func(p *attn.Problem, a *attn.Args) {
	return func(_ *attn.Problem, a *attn.Args) {
		Rows(&a.Terms.Bias, func(_, _, _ int, row []float32) {
			for j := 1; j < len(row); j += 2 {
				row[j] = by
			}
		})
	}
}

// early gives all but the last 100 keys a bias.
func early(a *attn.Args, by float32) {
	Rows(&a.Terms.Bias, func(_, _, _ int, row []float32) { fill(row[:len(row)-100], by) })
}

// shiftRows adds a bias to all keys of some queries.
func shiftRows(by float32, which func(i int) bool) func(p *attn.Problem, a *attn.Args) {
	return func(_ *attn.Problem, a *attn.Args) {
		Rows(&a.Terms.Bias, func(_, i, _ int, row []float32) {
			if which(i) {
				addTo(row, by)
			}
		})
	}
}

// placeAt puts the first query of every batch entry at position pos.
func placeAt(p *attn.Problem, a *attn.Args, pos int32) { a.QPos = slices.Repeat([]int32{pos}, p.Batch) }

func clearTensor(t *attn.Tensor) { Rows(t, func(_, _, _ int, row []float32) { clear(row) }) }

// twoNumbers gives the call an LSE of two numbers: a reference, and the log of the sum over it.
func twoNumbers(a *attn.Args) {
	if t := &a.Stats.LSE; t.Data != nil {
		*t = attn.New(attn.BHSD, t.B, t.S, t.H, 2)
		fill(t.Data, Poison)
	}
}

// Far reports whether the case has a shift, which moves its scores far from 0 and changes nothing
// else.
func (c *Case) Far() bool { return c.shift != nil }

// Near returns the operands of a Far case without its shift. They have the outputs of the call a
// with the shift that must be equal without it: Out, weights and entropy. For a backward pass they
// also have its LSE, which must not be judged.
func (c Case) Near(a *attn.Args) (*attn.Args, error) {
	c.shift = nil
	near, _, err := c.Args()
	if err != nil {
		return nil, err
	}
	near.Out, near.Stats = a.Out, attn.Stats{Entropy: a.Stats.Entropy, Weights: a.Stats.Weights}
	if c.Backward() {
		near.Stats.LSE = a.Stats.LSE
	}
	return near, nil
}

// NearGrads returns the gradients of a call that a shift does not change: all but those of slopes,
// which are multiplied by distances.
func NearGrads(g *attn.Grads) *attn.Grads {
	near := *g
	near.Terms.Slopes = nil
	return &near
}
