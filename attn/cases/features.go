package cases

import (
	"fmt"

	"attnlab/attn"
)

// everyRowStat are the by-products that every row of a softmax with a finite temperature has.
const everyRowStat = rowStats | attn.WantMax | attn.WantArgMax

// shapes are lengths around the size of a tile and of a block, with more and with fewer queries
// than keys, and with a few queries as in decoding.
var shapes = [][2]int{{33, 70}, {100, 300}, {1, 70}, {7, 300}}

// terms has each score term alone, with every kind of band.
func terms(l *list) {
	for _, f := range []struct {
		name string
		set  func(p *attn.Problem)
		edit func(p *attn.Problem, a *attn.Args, r rnd)
	}{
		{"softcap", func(p *attn.Problem) { p.Score.Softcap = 2 }, nil},
		{"softcap-tight", func(p *attn.Problem) { p.Score.Softcap = 0.1 }, nil},
		{"softcap-wide", func(p *attn.Problem) { p.Score.Softcap = 1e4 }, nil},
		{"alibi", func(p *attn.Problem) { p.Score.Terms = attn.TermALiBi }, nil},
		{"alibi-steep", func(p *attn.Problem) { p.Score.Terms = attn.TermALiBi }, func(_ *attn.Problem, a *attn.Args, _ rnd) {
			fill(a.Terms.Slopes, 30)
			a.Terms.Slopes[0] = -0.25
		}},
		{"sinks", func(p *attn.Problem) { p.Score.Terms = attn.TermSinks }, nil},
		{"sinks-heavy", func(p *attn.Problem) { p.Score.Terms = attn.TermSinks }, func(_ *attn.Problem, a *attn.Args, _ rnd) {
			fill(a.Terms.Sinks, 90)
			a.Terms.Sinks[0] = -90
		}},
		{"sinks-infinite", func(p *attn.Problem) { p.Score.Terms = attn.TermSinks }, func(_ *attn.Problem, a *attn.Args, _ rnd) {
			copy(a.Terms.Sinks, []float32{inf, -inf, nan, 1})
		}},
		{"relative", func(p *attn.Problem) { p.Score.Terms = attn.TermRelative }, nil},
		{"relative-clipped", func(p *attn.Problem) { p.Score.Terms = attn.TermRelative }, func(_ *attn.Problem, a *attn.Args, _ rnd) {
			a.Terms.RelativeClip = 9
			a.Terms.Relative.S = 19
		}},
		{"metric", func(p *attn.Problem) { p.Score.Terms = attn.TermMetric }, nil},
		{"metric-shared", func(p *attn.Problem) { p.Score.Terms = attn.TermMetric }, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Terms.Metric.H = 1 }},
		{"metric-rectangular", func(p *attn.Problem) { p.Score.Terms, p.DimQ = attn.TermMetric, 11 }, nil},
		{"rope-pairs", func(p *attn.Problem) { p.Score.Rope = attn.RopeInterleaved }, nil},
		{"rope-halves", func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }, nil},
		{"rope-partial", func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Terms.Cos.D, a.Terms.Sin.D = 3, 3 }},
		{"rope-partial-pairs", func(p *attn.Problem) { p.Score.Rope = attn.RopeInterleaved }, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Terms.Cos.D, a.Terms.Sin.D = 5, 5 }},
		{"no-term", func(*attn.Problem) {}, nil}, // max and argmax alone
	} {
		for _, n := range shapes {
			for _, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.Window(20, 3)} {
				p := wanting(masked(problem(2, n[0], n[1], 4, 2, 16, 8), m), everyRowStat|attn.WantScores|attn.WantWeights)
				f.set(&p)
				l.add(fmt.Sprintf("%s-%v-%dx%d", f.name, m, n[0], n[1]), p).with(f.edit).core(n == shapes[0] && m.Band && m.Left < 0 || n == shapes[3] && !m.Band)
			}
		}
		p := problem(1, 65, 65, 2, 2, 40, 40) // no by-products: the shortest path
		f.set(&p)
		l.add(f.name+"-alone", masked(p, attn.Causal())).with(func(p *attn.Problem, a *attn.Args, r rnd) {
			if f.edit != nil && f.name != "sinks-infinite" {
				f.edit(p, a, r)
			}
		})
	}
	for _, nq := range []int{3, 40} {
		p := wanting(problem(3, nq, 300, 4, 2, 16, 8), everyRowStat)
		p.Score.Terms, p.Lengths = attn.TermRelative|attn.TermALiBi, true
		// Queries far before the keys, among them and behind them.
		l.add(fmt.Sprint("relative-positions-", nq), p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			a.Terms.RelativeClip, a.Terms.Relative.S = 9, 19
			a.KLen, a.QPos = []int32{300, 290, 31}, []int32{-50, 100, 400}
		})
	}
	p := wanting(problem(2, 20, 40, 4, 2, 8, 8), everyRowStat)
	p.Score.Terms, p.Mask.Bitmap = attn.TermSinks, attn.BoolBitmap
	l.add("sinks-hidden-rows", p).core(true).with(func(p *attn.Problem, a *attn.Args, r rnd) { a.Allowed = randomMask(r, 0.3, p.SeqQ, 1) })
	// A sink also determines a row that sees no key.
	for _, p.Want = range []attn.Want{everyRowStat, 0} {
		p.Mask, p.Lengths = attn.Causal(), true
		l.add(fmt.Sprintf("sinks-infinite-blind-rows-%#x", int(p.Want)), p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			a.QPos = []int32{-5, -20} // some of the rows see no key, or all of them
			copy(a.Terms.Sinks, []float32{inf, -inf, nan, 1e12})
		})
	}
	for _, nq := range []int{3, 40} {
		p := wanting(problem(2, nq, 70, 4, 2, 8, 8), everyRowStat)
		p.Score.Terms, p.Lengths = attn.TermALiBi, true
		l.add(fmt.Sprint("alibi-farthest-", nq), p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			a.QPos = []int32{1 << 30, -1 << 30}
			copy(a.Terms.Slopes, []float32{1e-9, 1e-8, -1e-9, 0})
		})
	}
	p = wanting(problem(2, 20, 40, 4, 2, 8, 8), everyRowStat)
	p.Score = attn.Score{Terms: attn.TermALiBi | attn.TermSinks | attn.TermBias | attn.TermRelative | attn.TermMetric, Rope: attn.RopeHalves, Softcap: 3, Temp: 0.7}
	p.Lengths = true
	l.add("all", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.KLen, a.QPos = []int32{33, 40}, []int32{7, 0} })
	p.SeqQ = 2
	l.add("all-decode", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.KLen, a.QPos = []int32{33, 40}, []int32{7, 0} })
}

// bitmaps has packed and block bitmaps of every density, alone and with bands.
func bitmaps(l *list) {
	for _, n := range [][2]int{{33, 70}, {100, 300}, {130, 520}, {1, 300}} {
		for _, m := range []attn.Mask{attn.Full(), attn.Causal()} {
			for _, show := range []float64{0.02, 0.5, 0.98} {
				p := wanting(masked(problem(2, n[0], n[1], 2, 1, 16, 12), m.With(attn.PackedBitmap)), everyRowStat)
				l.add(fmt.Sprintf("%v-%v-%dx%d", p.Mask, show, n[0], n[1]), p).core(n[0] == 33 && show == 0.5).with(func(p *attn.Problem, a *attn.Args, r rnd) {
					a.Allowed = attn.Pack(p.SeqQ, p.SeqKV, func(_, _ int) bool { return r.Float64() < show })
				})
			}
			for _, side := range []int{1, 16, 24, 64, 128} {
				p := wanting(masked(problem(2, n[0], n[1], 2, 1, 16, 12), m.WithBlocks(side)), rowStats)
				l.add(fmt.Sprintf("%v-%d-%dx%d", p.Mask, side, n[0], n[1]), p).core(n[0] == 100 && side%48 == 16).with(func(p *attn.Problem, a *attn.Args, r rnd) {
					a.Allowed = attn.BlockSparse(p.SeqQ, p.SeqKV, side, func(_, _ int) bool { return r.IntN(3) == 0 })
				})
			}
		}
	}
	for name, m := range map[string]attn.Bits{
		"local": attn.Local(150, 17), "strided": attn.Strided(150, 7), "global-local": attn.GlobalLocal(150, 4, 20),
	} {
		p := wanting(masked(problem(1, 150, 150, 2, 2, 16, 16), attn.Full().With(attn.PackedBitmap)), rowStats)
		l.add(name, p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Allowed = m })
	}
	p := masked(problem(1, 150, 150, 2, 2, 16, 16), attn.Full().WithBlocks(40))
	l.add("block-diagonal", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Allowed = attn.BlockDiagonal(150, 40) })
	p = wanting(problem(3, 40, 90, 2, 2, 8, 8), rowStats)
	p.Mask = attn.Causal().With(attn.BoolBitmap)
	l.add("padding-causal", p).core(true).with(func(_ *attn.Problem, a *attn.Args, r rnd) {
		keep := make([][]bool, 3)
		for b := range keep {
			for j := range 90 {
				keep[b] = append(keep[b], j >= 10*b)
			}
		}
		a.Allowed, _ = attn.Padding(keep)
	})
}

// split gives the sequences of a ragged call the lengths nq and nk. The first two rows belong to no
// sequence.
func split(a *attn.Args, nq, nk []int) {
	at := func(n []int) []int32 {
		starts := []int32{2}
		for _, x := range n {
			starts = append(starts, starts[len(starts)-1]+int32(x))
		}
		return starts
	}
	a.QStart = at(nq)
	if a.KStart != nil {
		a.KStart = at(nk)
	}
}

// ragged has batches of sequences of different lengths, some of them empty.
func ragged(l *list) {
	nq, nk := []int{7, 0, 60, 1, 33}, []int{20, 5, 100, 0, 33}
	for _, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.CausalTopLeft(), attn.Window(9, 2)} {
		p := wanting(masked(problem(5, 70, 110, 4, 2, 16, 8), m), everyRowStat|attn.WantScores|attn.WantWeights)
		p.Ragged = true
		edit := func(_ *attn.Problem, a *attn.Args, _ rnd) { split(a, nq, nk) }
		l.add(fmt.Sprintf("%v", m), p).with(edit).core(m.Band)
		few := p
		few.SeqQ = 3
		l.add(fmt.Sprintf("%v-decode", m), few).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { split(a, []int{1, 3, 0, 1, 2}, nk) }).core(!m.Band)
		p.Score.Terms, p.Lengths = attn.TermBias|attn.TermALiBi|attn.TermRelative, true
		l.add(fmt.Sprintf("%v-terms-lengths", m), p).with(func(p *attn.Problem, a *attn.Args, r rnd) {
			edit(p, a, r)
			a.KLen, a.QPos = []int32{20, 3, 71, 0, 0}, []int32{13, 0, 40, 0, 5}
		}).core(m.Band && m.Left > 0)
		p.Score, p.Lengths = attn.Score{}, false
		p.Mask = m.With(attn.BoolBitmap)
		l.add(fmt.Sprintf("%v-bool", m), p).with(func(p *attn.Problem, a *attn.Args, r rnd) {
			edit(p, a, r)
			a.Allowed = randomMask(r, 0.5, p.Batch, p.HeadsQ, p.SeqQ, p.SeqKV)
		})
	}
}

// caches has pages of every size and type, queries that continue a cache, and a ring.
func caches(l *list) {
	for _, page := range []int{8, 16, 64, 256} {
		for _, n := range [][2]int{{33, 300}, {1, 300}, {4, 1500}} {
			p := wanting(masked(problem(2, n[0], n[1], 4, 2, 16, 8), attn.Causal()), everyRowStat)
			p.Page, p.Lengths = page, true
			edit := func(_ *attn.Problem, a *attn.Args, r rnd) {
				a.KLen = []int32{int32(n[1]), int32(n[1] * 2 / 3)}
				each := len(a.Pages) / 2
				for i := each + (int(a.KLen[1])+page-1)/page; i < 2*each; i++ {
					a.Pages[i] = -1 // not in use
				}
			}
			l.add(fmt.Sprintf("page-%d-%dx%d", page, n[0], n[1]), p).with(edit).core(page == 16)
			p.Score.Rope = attn.RopeHalves
			l.add(fmt.Sprintf("page-%d-rope-%dx%d", page, n[0], n[1]), p).with(edit).core(page == 8 && n[0] == 33)
			for _, typ := range []attn.DType{attn.F16, attn.BF16, attn.I8} {
				p.Score.Rope, p.KV = attn.NoRope, typ
				l.add(fmt.Sprintf("page-%d-%v-%dx%d", page, typ, n[0], n[1]), p).with(edit).core(page == 64 && n[0] < 33)
			}
		}
	}
	// A window over a ring of three pages: page i of the cache is stored in page i mod 3. Keys that
	// a later page has overwritten are outside the window.
	for _, nq := range []int{20, 1} {
		p := wanting(masked(problem(1, nq, 160, 2, 2, 8, 8), attn.Window(25, 0)), rowStats)
		p.Page, p.Lengths = 16, true
		if nq == 20 {
			p.Mask = attn.Window(12, 0)
		}
		l.add(fmt.Sprintf("ring-%d", nq), p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			a.KLen = []int32{150}
			for i := range a.Pages {
				a.Pages[i] = int32(i % 3)
			}
		})
	}
	p := wanting(masked(problem(3, 40, 96, 4, 2, 16, 16), attn.Causal()), rowStats)
	p.Ragged, p.Lengths, p.Page = true, true, 8
	l.add("ragged-pages", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		split(a, []int{9, 40, 2}, nil)
		a.KLen = []int32{50, 96, 2}
	})
	p.SeqQ = 1
	l.add("ragged-pages-decode", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		a.QStart, a.KLen = []int32{0, 1, 2, 3}, []int32{50, 96, 2}
	})
}

// types has operands stored in 16 bits and in int8.
func types(l *list) {
	for _, n := range shapes {
		for _, d := range []int{16, 35, 64} {
			for _, typ := range []attn.DType{attn.F16, attn.BF16, attn.I8} {
				p := wanting(masked(problem(2, n[0], n[1], 4, 2, d, d+5), attn.Causal()), everyRowStat)
				p.KV = typ
				l.add(fmt.Sprintf("kv-%v-d%d-%dx%d", typ, d, n[0], n[1]), p).core(d == 35 && n != shapes[1])
				if typ == attn.I8 {
					continue
				}
				p.Q, p.Out = typ, typ
				l.add(fmt.Sprintf("%v-d%d-%dx%d", typ, d, n[0], n[1]), p).core(d == 16 && n == shapes[0])
			}
		}
	}
	p := wanting(problem(1, 40, 40, 2, 2, 16, 16), rowStats)
	p.Q, p.KV, p.Out = attn.BF16, attn.F16, attn.F32
	l.add("mixed", p).core(true)
	p.Score.Rope, p.Score.Terms = attn.RopeInterleaved, attn.TermMetric
	l.add("mixed-terms", p)
	p = problem(1, 20, 1, 2, 2, 16, 16) // a single key: the output is its value
	for _, typ := range []attn.DType{attn.F16, attn.BF16, attn.I8} {
		p.KV = typ
		l.add(fmt.Sprintf("single-%v", typ), p).core(true)
	}
	for _, nq := range []int{33, 1} {
		p := problem(1, nq, 70, 2, 1, 8, 8)
		p.Q, p.KV, p.Out = attn.F16, attn.F16, attn.F16
		// Subnormal values and an infinity.
		l.add(fmt.Sprintf("special-%d", nq), p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			Rows(&a.V, func(_, j, _ int, row []float32) {
				if fill(row[:4], float32(j)*0x1p-24); j == 40 {
					row[5] = inf
				}
			})
		})
	}
}
