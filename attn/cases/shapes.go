package cases

import (
	"fmt"

	"attnlab/attn"
)

// sizes has the lengths at which a block, a lane group or a tail can go wrong: primes, and the tile
// sizes of kernels, one less and one more. Each length is tested with many queries and with a
// single one, which kernels process on different paths.
func sizes(l *list) {
	for i, n := range []int{17, 31, 61, 113, 127, 211, 799} {
		l.add(fmt.Sprintf("full-%d", n), wanting(head(n, n, 8, 8), rowStats)).core(n == 61)
		l.add(fmt.Sprintf("causal-%d", n), masked(head(n, n, 9, 7), attn.Causal())).core(n == 113)
		l.add(fmt.Sprintf("decode-%d", n), wanting(head(1, n, 16, 16), rowStats)).core(n == 211)
		l.add(fmt.Sprintf("uneven-%d", n), head(max(5, n-97), n+i, 8, 8))
	}
	for _, tile := range []int{4, 8, 16, 24, 32, 48, 64, 128, 256} {
		for n := tile - 1; n <= tile+1; n++ {
			l.add(fmt.Sprintf("tile-%d", n), wanting(head(n, n, 8, 16), rowStats)).core(n == 33 || n == 63)
			l.add(fmt.Sprintf("tile-causal-%d", n), masked(head(n, n, 8, 8), attn.Causal()))
			l.add(fmt.Sprintf("tile-keys-%d", n), masked(head(7, n, 8, 8), attn.Causal()))
			l.add(fmt.Sprintf("tile-decode-%d", n), masked(head(1, n, 8, 8), attn.Causal())).core(n == 129)
		}
	}
	for _, n := range []int{1, 2, 3, 5} {
		l.add(fmt.Sprintf("few-%d", n), wanting(head(n, n, 8, 8), rowStats)).core(n == 1 || n == 3)
		l.add(fmt.Sprintf("few-queries-%d", n), wanting(head(n, 300, 8, 8), rowStats)).core(n == 2)
	}
	for _, dist := range distributions {
		l.add("data-"+dist, wanting(head(70, 150, 32, 32), rowStats)).data(dist).core(true)
		l.add("data-causal-"+dist, wanting(masked(head(130, 130, 16, 16), attn.Causal()), rowStats)).data(dist)
		l.add("data-decode-"+dist, wanting(head(1, 515, 64, 64), rowStats)).data(dist).core(dist == "rising")
	}
}

// dims has head sizes: powers of two, the odd sizes of real models, and the smallest and largest.
// Some values are wider or narrower than keys.
func dims(l *list) {
	add := func(d, dv int, core bool) {
		l.add(fmt.Sprintf("%d-%d", d, dv), masked(head(35, 37, d, dv), attn.Causal())).core(core)
		l.add(fmt.Sprintf("decode-%d-%d", d, dv), wanting(head(1, 67, d, dv), rowStats)).core(core && d < 80)
	}
	for _, d := range []int{1, 2, 3, 8, 40, 59, 64, 72, 80, 96, 111, 128, 256, 512} {
		add(d, d, d == 1 || d == 3 || d == 59 || d == 64 || d == 111)
	}
	for _, d := range [][2]int{{1, 64}, {64, 1}, {8, 10}, {59, 111}, {192, 128}, {40, 80}, {512, 3}, {3, 512}, {128, 192}, {16, 17}} {
		add(d[0], d[1], d[0] == 8 || d[0] == 64 || d[0] == 40)
	}
}

// groups has query heads that share key heads.
func groups(l *list) {
	for _, h := range [][2]int{{9, 3}, {8, 1}, {6, 2}, {4, 4}, {12, 1}, {2, 1}, {6, 3}} {
		p := wanting(problem(2, 19, 21, h[0], h[1], 8, 12), rowStats)
		l.add(fmt.Sprintf("full-%d-%d", h[0], h[1]), p).core(h[0] == 9)
		l.add(fmt.Sprintf("causal-%d-%d", h[0], h[1]), masked(p, attn.Causal())).core(h[0] == 8)
		p.SeqQ, p.SeqKV, p.Want = 1, 70, 0
		l.add(fmt.Sprintf("decode-%d-%d", h[0], h[1]), p).core(h[0] == 9 || h[0] == 8)
		p.SeqQ, p.Want = 7, rowStats
		l.add(fmt.Sprintf("few-%d-%d", h[0], h[1]), masked(p, attn.Causal())).core(h[0] == 9 || h[0] == 8)
		p.Score.Terms = attn.TermBias | attn.TermALiBi | attn.TermSinks
		l.add(fmt.Sprintf("fewer-%d-%d", h[0], h[1]), masked(p, attn.Window(40, 0))).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, 5, 66) }).core(h[0] == 9 || h[0] == 8)
	}
	p := problem(2, 12, 40, 6, 2, 16, 16)
	p.Score.Terms = attn.TermBias
	l.add("bias", p).core(true)
	p.Score.Terms, p.Lengths = 0, true
	l.add("lengths", masked(p, attn.Causal())).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { copy(a.KLen, []int32{11, 33}) })
}

// views has the same kinds of problem in every layout, and calls that use less than their slab.
func views(l *list) {
	for _, layout := range layouts {
		for _, m := range []attn.Mask{attn.Full(), attn.Causal()} {
			p := wanting(masked(problem(2, 23, 23, 4, 2, 20, 20), m), rowStats)
			l.add(fmt.Sprintf("%s-%v", layout, m), p).in(layout).core(m.Band)
		}
		if layout == "packed" {
			continue
		}
		p := wanting(problem(2, 1, 71, 6, 2, 24, 11), rowStats)
		l.add(layout+"-decode", p).in(layout).core(layout == "padded")
		p = masked(problem(2, 37, 66, 3, 3, 9, 13), attn.Window(8, 3))
		l.add(layout+"-window", p).in(layout).core(layout == "padded")
	}
	p := masked(problem(2, 21, 33, 2, 1, 16, 16), attn.Causal())
	l.add("same-tensor", masked(problem(1, 27, 27, 2, 2, 16, 16), attn.Causal())).core(true).
		with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.K, a.V = a.Q, a.Q })
	l.add("same-keys-values", p).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.V = a.K })
	l.add("one-query-for-all", p).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Q.SS, a.Q.SH = 0, 0 })
	l.add("one-key-for-all", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { a.K.SS, a.K.SB = 0, 0 })
	l.add("every-other-row", p).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Trim(a, 10, 16)
		for _, t := range []*attn.Tensor{&a.Q, &a.K, &a.V, &a.Out} {
			t.SS *= 2
		}
	})
	for off := 1; off <= 3; off++ { // float32 alignment is 4 bytes, that of vectors 16 to 64
		l.add(fmt.Sprintf("unaligned-%d", off), problem(1, 9, 40, 1, 1, 32, 32)).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			Inputs(a, func(_ string, t *attn.Tensor) {
				moved := make([]float32, len(t.Data)+off)
				copy(moved[off:], t.Data)
				t.Data = moved[off:]
			})
		})
	}
}

// empty has an extent of 0 in one dimension, which is valid.
func empty(l *list) {
	add := func(name string, p attn.Problem) *Case { return l.add(name, wanting(p, rowStats)).core(true) }
	add("no-queries", problem(2, 0, 5, 4, 2, 8, 8))
	add("no-batch", problem(0, 5, 5, 4, 2, 8, 8))
	for _, nq := range []int{1, 5, 40} { // few queries have a path of their own
		add := func(name string, p attn.Problem) *Case { return add(fmt.Sprintf("%s-%d", name, nq), p) }
		add("no-keys", problem(2, nq, 0, 4, 2, 8, 8))
		add("no-keys-causal", masked(problem(1, nq, 0, 1, 1, 8, 8), attn.Causal()))
		add("no-heads", problem(2, nq, 5, 0, 0, 8, 8))
		add("no-query-heads", problem(2, nq, 5, 0, 4, 8, 8))
		add("no-values", problem(2, nq, 5, 4, 2, 8, 0))
		// every score is 0: the output is the mean of the values
		add("no-dim", problem(1, nq, 6, 2, 1, 0, 8))
		small := problem(1, nq, 6, 4, 2, 8, 0)
		small.Out = attn.F16
		add("no-values-f16", small)
		add("no-queries-in-call", problem(1, nq, 6, 2, 1, 8, 8)).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, 0, 6) })
		add("no-keys-in-call", problem(1, nq, 6, 2, 1, 8, 8)).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, nq, 0) })
	}
	l.add("no-dim-causal", masked(problem(1, 80, 80, 1, 1, 0, 8), attn.Causal())).core(true)
}

// emptyLinear has no keys to sum over.
func emptyLinear(l *list) { l.add("linear-no-keys", problem(1, 6, 0, 2, 1, 8, 8)).core(true) }
