package cases

import (
	"fmt"

	"attnlab/attn"
)

// extremes has numbers that break kernels: large and infinite scores, NaN on both sides of a mask,
// denormals, ties, and single keys. Finite scores stay below 2e38, because kernels use base-2
// logarithms, and values stay below 1e25. Products that overflow all have one sign: otherwise the
// order of a sum would decide between an infinity and a NaN.
func extremes(l *list) {
	both := func(name string, core bool, p attn.Problem, edit func(p *attn.Problem, a *attn.Args, r rnd)) {
		l.add(name+"-alone", p).with(edit).core(core) // a kernel may check less without by-products
		p.Want = rowStats
		l.add(name, p).with(edit).core(core)
		p.SeqQ = 1
		l.add(name+"-decode", p).with(edit).core(core)
	}
	key := func(j int, x float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(_ *attn.Problem, a *attn.Args, _ rnd) { fill(a.K.Row(0, j, 0), x) }
	}
	wide := head(33, 150, 16, 16)
	scaled := func(std float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(_ *attn.Problem, a *attn.Args, r rnd) { normal(&a.Q, r, std) }
	}
	both("scores-1e2", false, wide, scaled(1e2))
	both("scores-1e4", true, wide, scaled(1e4))
	both("scores-1e4-causal", false, masked(head(150, 150, 16, 16), attn.Causal()), scaled(1e4))
	both("scores-1e20", false, wide, scaled(1e20))
	both("scores-1e36", true, wide, scaled(1e36))
	both("scores-1e-30", false, wide, scaled(1e-30))
	// Multiplied into the queries, these scales would overflow or underflow, or come close to it.
	for _, scale := range []float64{1e-20, 1e-8, 1e8, 1e20} {
		p := wide
		p.Score.Scale = scale
		both(fmt.Sprintf("scale-%v", scale), scale == 1e20, p, scaled(float32(1/scale)))
	}

	// Queries are positive and about 1e30, so a key of 1e30 overflows and the others do not.
	loud := func(keys ...func(*attn.Problem, *attn.Args, rnd)) func(*attn.Problem, *attn.Args, rnd) {
		return func(p *attn.Problem, a *attn.Args, r rnd) {
			Rows(&a.Q, func(_, _, _ int, row []float32) {
				for i := range row {
					row[i] = 1e30 * (1 + r.Float32())
				}
			})
			for _, f := range keys {
				f(p, a, r)
			}
		}
	}
	all := func(x float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(_ *attn.Problem, a *attn.Args, _ rnd) {
			Rows(&a.K, func(_, _, _ int, row []float32) { fill(row, x) })
		}
	}
	both("overflow-none", false, wide, loud())
	both("overflow-one", true, wide, loud(key(77, 1e30)))
	both("overflow-first", false, wide, loud(key(0, 1e30)))
	both("overflow-last", true, wide, loud(key(149, 1e30)))
	both("overflow-two", true, wide, loud(key(3, 1e30), key(140, 1e30)))
	both("overflow-two-together", false, wide, loud(key(8, 1e30), key(9, 1e30)))
	both("overflow-all", false, wide, loud(all(1e30)))
	both("underflow-one", true, wide, loud(key(77, -1e30)))
	both("underflow-all", true, wide, loud(all(-1e30)))
	both("underflow-all-but-one", false, wide, loud(all(-1e30), key(100, 1)))
	both("underflow-first-tiles", true, wide, func(p *attn.Problem, a *attn.Args, r rnd) {
		loud()(p, a, r)
		for j := range 140 {
			fill(a.K.Row(0, j, 0), -1e30)
		}
	})
	for _, nq := range []int{1, 33} { // with Max and ArgMax
		p := wanting(head(nq, 150, 16, 16), everyRowStat)
		l.add(fmt.Sprint("overflow-one-largest-", nq), p).with(loud(key(77, 1e30))).core(true)
		l.add(fmt.Sprint("overflow-two-largest-", nq), p).with(loud(key(3, 1e30), key(140, 1e30))).core(true)
		l.add(fmt.Sprint("underflow-one-largest-", nq), p).with(loud(key(0, -1e30))).core(true)
		l.add(fmt.Sprint("underflow-all-largest-", nq), p).with(loud(all(-1e30))).core(true)
	}
	both("overflow-and-underflow", false, wide, loud(key(20, -1e30), key(90, 1e30)))
	hidden := masked(head(33, 33, 16, 16), attn.Causal())
	// Rows before 20 do not see the key.
	l.add("overflow-hidden", wanting(hidden, rowStats)).with(loud(key(20, 1e30))).core(true)

	// NaN and infinity, hidden and visible.
	behind := func(x float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(p *attn.Problem, a *attn.Args, _ rnd) {
			for _, j := range []int{3, 64, 149} {
				fill(a.K.Row(0, j, 0), x)
				fill(a.V.Row(0, j, 0), x)
				for i := range p.SeqQ {
					a.Allowed.Bool[i*p.SeqKV+j] = false
				}
			}
		}
	}
	boolean := masked(wide, attn.Full().With(attn.BoolBitmap))
	both("nan-behind-bool", true, boolean, behind(nan))
	both("inf-behind-bool", false, boolean, behind(inf))
	lower := func(x float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(_ *attn.Problem, a *attn.Args, _ rnd) {
			for j := 17; j < a.K.S; j++ { // rows from 17 see some of them
				fill(a.K.Row(0, j, 0), x)
				fill(a.V.Row(0, j, 0), x)
			}
		}
	}
	l.add("nan-behind-causal", wanting(hidden, rowStats)).with(lower(nan)).core(true)
	l.add("inf-behind-causal", wanting(masked(head(33, 33, 16, 16), attn.Causal()), rowStats)).core(true).
		with(func(p *attn.Problem, a *attn.Args, r rnd) {
			Rows(&a.Q, func(_, _, _ int, row []float32) { fill(row, 1) })
			lower(inf)(p, a, r)
		})
	both("nan-behind-window", true, masked(wide, attn.Window(3, 2)), func(p *attn.Problem, a *attn.Args, _ rnd) {
		for j := range a.K.S - p.SeqQ - 3 { // keys before the window of every query
			fill(a.K.Row(0, j, 0), nan)
			fill(a.V.Row(0, j, 0), nan)
		}
	})
	both("nan-in-key", true, wide, key(70, nan))
	both("nan-in-one-key-element", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.K.Row(0, 149, 0)[7] = nan })
	both("nan-in-value", true, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.V.Row(0, 70, 0)[5] = nan })
	both("inf-in-value", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.V.Row(0, 70, 0)[5] = inf })
	both("two-infs-in-value", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) {
		a.V.Row(0, 70, 0)[5], a.V.Row(0, 7, 0)[5] = inf, -inf
	})
	long := wanting(masked(head(1, 5000, 8, 8), attn.Full().With(attn.BoolBitmap)), rowStats)
	l.add("nan-behind-bool-long-decode", long).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		for _, j := range []int{0, 255, 256, 2047, 2048, 4999} {
			fill(a.V.Row(0, j, 0), nan)
			a.Allowed.Bool[j] = false
		}
	})
	l.add("inf-in-value-long-decode", long).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.V.Row(0, 2304, 0)[5] = inf })
	both("nan-in-query", true, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Q.Row(0, 0, 0)[3] = nan })
	both("inf-in-key", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Rows(&a.Q, func(_, _, _ int, row []float32) { row[4] = 1 })
		a.K.Row(0, 33, 0)[4] = inf
	})
	both("minus-inf-in-key", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Rows(&a.Q, func(_, _, _ int, row []float32) { row[4] = 1 })
		a.K.Row(0, 33, 0)[4] = -inf
	})
	// NaN in one row and in no other.
	l.add("nan-in-query-causal", wanting(hidden, rowStats)).core(true).
		with(func(_ *attn.Problem, a *attn.Args, _ rnd) { fill(a.Q.Row(0, 11, 0), nan) })

	// Ties, dominance, the smallest numbers.
	both("identical-keys", true, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) {
		first := append([]float32(nil), a.K.Row(0, 0, 0)...)
		Rows(&a.K, func(_, _, _ int, row []float32) { copy(row, first) })
	})
	both("zero-queries", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Rows(&a.Q, func(_, _, _ int, row []float32) { fill(row, 0) })
	})
	for _, j := range []int{0, 64, 149} {
		both(fmt.Sprintf("one-key-above-all-%d", j), j == 149, wide, func(p *attn.Problem, a *attn.Args, _ rnd) {
			Rows(&a.Q, func(_, _, _ int, row []float32) { fill(row, 1) })
			fill(a.K.Row(0, j, 0), 60)
		})
	}
	// Scores fall by 1 from key to key, so weights fall to e^-149.
	both("weights-underflow", false, wide, func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Rows(&a.Q, func(_, _, _ int, row []float32) { fill(row, 1) })
		Rows(&a.K, func(_, j, _ int, row []float32) { fill(row, -float32(j)/4) })
	})
	tiny := func(of func(a *attn.Args) *attn.Tensor) func(*attn.Problem, *attn.Args, rnd) {
		return func(_ *attn.Problem, a *attn.Args, r rnd) { normal(of(a), r, 1e-40) }
	}
	both("denormal-values", true, wide, tiny(func(a *attn.Args) *attn.Tensor { return &a.V }))
	both("denormal-queries", false, wide, tiny(func(a *attn.Args) *attn.Tensor { return &a.Q }))
	both("denormal-keys", false, wide, tiny(func(a *attn.Args) *attn.Tensor { return &a.K }))
	both("large-values", false, wide, func(_ *attn.Problem, a *attn.Args, r rnd) { normal(&a.V, r, 1e24) })
	both("positive-values", false, wide, func(_ *attn.Problem, a *attn.Args, r rnd) {
		Rows(&a.V, func(_, _, _ int, row []float32) { fill(row, 1+r.Float32()) })
	})

	// The output for a single key is its value, bit for bit, whatever its score.
	single := head(9, 1, 16, 16)
	both("single-key", true, single, nil)
	both("single-key-1e4", false, single, scaled(1e4))
	both("single-key-1e36", false, single, scaled(1e36))
	both("single-key-denormal", true, single, tiny(func(a *attn.Args) *attn.Tensor { return &a.V }))
	both("single-key-infinite", false, single, loud(all(1e30)))
	l.add("own-key-alone", wanting(masked(head(33, 33, 16, 16), attn.Window(0, 0)), rowStats)).with(scaled(1e3)).core(true)
}
