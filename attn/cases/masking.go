package cases

import (
	"fmt"

	"attnlab/attn"
)

// masks has bands in both alignments with every relation of n_q to n_k, element masks of every
// rank, and rows or whole tiles without a visible key.
func masks(l *list) {
	for i, n := range [][2]int{{17, 17}, {9, 31}, {31, 9}, {1, 40}, {40, 1}, {65, 64}, {64, 65}, {33, 130}, {130, 33}} {
		p := wanting(head(n[0], n[1], 8, 8), rowStats)
		l.add(fmt.Sprintf("causal-%dx%d", n[0], n[1]), masked(p, attn.Causal())).core(i < 3)
		l.add(fmt.Sprintf("causal-topleft-%dx%d", n[0], n[1]), masked(p, attn.CausalTopLeft())).core(i < 3)
	}
	const all = attn.Unbounded
	for i, w := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {3, 2}, {7, 0}, {0, 7}, {5, all}, {all, 4}, {all, all}, {100, 100}, {64, 0}} {
		m := attn.Window(w[0], w[1])
		for j, n := range [][2]int{{40, 40}, {9, 31}, {31, 9}, {1, 65}, {70, 150}} {
			p := wanting(masked(head(n[0], n[1], 8, 8), m), rowStats)
			l.add(fmt.Sprintf("%v-%dx%d", m, n[0], n[1]), p).core(j == 0 && i < 4 || j == 2 && i == 4 || j == 4 && i == 3)
		}
		m.Align = attn.TopLeft
		l.add(fmt.Sprintf("%v-33x70", m), masked(head(33, 70, 8, 8), m)).core(i == 3)
		// the last rows are positioned after the last key
		l.add(fmt.Sprintf("%v-70x33", m), masked(head(70, 33, 8, 8), m))
	}
	l.add("window-sparse-tiles", masked(head(300, 300, 8, 8), attn.Window(16, 0)))
	for _, n := range []int{1, 4} { // enough keys for decoding to split them
		l.add(fmt.Sprintf("window-end-of-%dx2100", n), wanting(masked(head(n, 2100, 8, 8), attn.Window(300, 0)), everyRowStat)).core(n == 1)
		long := wanting(problem(1, n, 11000, 4, 2, 8, 8), everyRowStat)
		l.add(fmt.Sprintf("window-end-of-%dx11000", n), masked(long, attn.Window(5000, 0))).core(n == 4)
		l.add(fmt.Sprintf("causal-%dx11000", n), masked(long, attn.Causal()))
	}
	for rank := 1; rank <= 4; rank++ {
		for _, n := range [][2]int{{19, 70}, {1, 70}} {
			p := wanting(problem(2, n[0], n[1], 4, 2, 8, 8), rowStats)
			p.Mask = p.Mask.With(attn.BoolBitmap)
			edit := func(p *attn.Problem, a *attn.Args, r rnd) {
				a.Allowed = randomMask(r, 0.6, []int{p.Batch, p.HeadsQ, p.SeqQ, p.SeqKV}[4-rank:]...)
			}
			l.add(fmt.Sprintf("bool-rank%d-%dx%d", rank, n[0], n[1]), p).with(edit).core(rank == 4 || rank == 1 && n[0] == 1)
		}
	}
	bool1 := func(nq, nk int, m attn.Mask) attn.Problem {
		return wanting(masked(head(nq, nk, 8, 8), m.With(attn.BoolBitmap)), rowStats)
	}
	hide := func(hidden func(i, j int) bool) func(*attn.Problem, *attn.Args, rnd) {
		return func(p *attn.Problem, a *attn.Args, _ rnd) {
			for i := range p.SeqQ {
				for j := range p.SeqKV {
					a.Allowed.Bool[i*p.SeqKV+j] = !hidden(i, j)
				}
			}
		}
	}
	l.add("bool-and-causal", bool1(40, 40, attn.Causal())).with(hide(func(i, j int) bool { return (i+j)%3 == 0 })).core(true)
	l.add("bool-and-window", bool1(40, 70, attn.Window(9, 4))).with(hide(func(i, j int) bool { return j%5 == 0 }))
	l.add("bool-heads", masked(problem(2, 9, 33, 4, 2, 8, 8), attn.Full().With(attn.BoolBitmap))).
		with(func(p *attn.Problem, a *attn.Args, r rnd) { a.Allowed = randomMask(r, 0.5, 1, p.HeadsQ, 1, p.SeqKV) })
	l.add("bool-whole-rows", bool1(21, 40, attn.Full())).core(true).
		// Key extent 1: a query sees all keys or none.
		with(func(p *attn.Problem, a *attn.Args, r rnd) { a.Allowed = randomMask(r, 0.5, p.SeqQ, 1) })
	l.add("hidden-rows", bool1(40, 70, attn.Full())).with(hide(func(i, _ int) bool { return i%3 == 1 })).core(true)
	l.add("hidden-all", bool1(20, 70, attn.Full())).with(hide(func(_, _ int) bool { return true })).core(true)
	l.add("hidden-first-tiles", bool1(40, 300, attn.Full())).with(hide(func(i, j int) bool { return j < 256 })).core(true)
	l.add("hidden-first-tiles-some-rows", bool1(40, 300, attn.Full())).with(hide(func(i, j int) bool { return i%2 == 0 && j < 131 }))
	l.add("hidden-middle-tiles", bool1(40, 300, attn.Full())).with(hide(func(i, j int) bool { return j >= 30 && j < 290 }))
	l.add("hidden-last-tiles", bool1(40, 300, attn.Full())).with(hide(func(i, j int) bool { return j > 3 }))
	l.add("hidden-but-last", bool1(33, 70, attn.Full())).with(hide(func(i, j int) bool { return j != 69 })).core(true)
	l.add("hidden-but-own", bool1(33, 33, attn.Full())).with(hide(func(i, j int) bool { return j != i }))
	l.add("checkerboard", bool1(33, 70, attn.Full())).with(hide(func(i, j int) bool { return (i+j)%2 == 0 }))
	l.add("hidden-rows-decode", bool1(1, 70, attn.Full())).with(hide(func(i, j int) bool { return true })).core(true)
	l.add("hidden-first-tiles-decode", bool1(1, 600, attn.Full())).with(hide(func(i, j int) bool { return j < 530 }))
	// The hidden keys have the largest scores. A maximum over them would make every visible weight
	// 0.
	loud := func(p *attn.Problem, a *attn.Args, r rnd) {
		Rows(&a.Q, func(_, _, _ int, row []float32) { fill(row, 1) })
		Rows(&a.K, func(_, j, _ int, row []float32) {
			if j%4 == 0 {
				fill(row, 100)
			}
		})
		hide(func(i, j int) bool { return j%4 == 0 })(p, a, r)
	}
	l.add("hidden-loud", bool1(33, 70, attn.Full())).with(loud).core(true)
	l.add("hidden-loud-decode", bool1(1, 70, attn.Full())).with(loud).core(true)
}

func randomMask(r rnd, show float64, dims ...int) attn.Bits {
	n := 1
	for _, d := range dims {
		n *= d
	}
	data := make([]bool, n)
	for i := range data {
		data[i] = r.Float64() < show
	}
	m, err := attn.BoolMask(data, dims...)
	if err != nil {
		panic(err) // the caller passed a bad shape
	}
	return m
}

func fill(row []float32, x float32) {
	for i := range row {
		row[i] = x
	}
}

// lengths has batches whose entries use some of their keys. Queries are positioned among the keys,
// at the ends, before the first key and after the last.
func lengths(l *list) {
	add := func(name string, p attn.Problem, klen, qpos []int32) *Case {
		p.Lengths = true
		p.Want = rowStats
		return l.add(name, p).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
			a.KLen, a.QPos = klen, qpos
			for b, n := range klen { // rows beyond the keys in use hold anything
				for j := int(n); j < a.K.S; j++ {
					for h := range a.K.H {
						fill(a.K.Row(b, j, h), Poison)
						fill(a.V.Row(b, j, h), Poison)
					}
				}
			}
		})
	}
	p := problem(3, 20, 45, 4, 2, 8, 8)
	add("full", p, []int32{45, 7, 30}, nil).core(true)
	add("full-zero", p, []int32{0, 45, 1}, nil).core(true)
	for i, m := range []attn.Mask{attn.Causal(), attn.CausalTopLeft(), attn.Window(4, 0), attn.Window(3, 3)} {
		p.Mask = m
		add(fmt.Sprintf("%v", m), p, []int32{45, 33, 20}, nil).core(i == 0)
		// Fewer keys than queries: the first rows see nothing.
		add(fmt.Sprintf("%v-short", m), p, []int32{3, 0, 19}, nil).core(i < 2)
		add(fmt.Sprintf("%v-positions", m), p, nil, []int32{0, 13, 25}).core(i == 0)
		add(fmt.Sprintf("%v-lengths-positions", m), p, []int32{44, 17, 2}, []int32{20, 0, 1}).core(i == 2)
		add(fmt.Sprintf("%v-before", m), p, []int32{45, 20, 1}, []int32{-5, -19, -30}).core(i == 0)
		add(fmt.Sprintf("%v-past", m), p, []int32{45, 20, 0}, []int32{40, 100, 1 << 30})
	}
	for i, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.Window(16, 0)} {
		p := masked(problem(4, 1, 300, 4, 1, 16, 16), m)
		add(fmt.Sprintf("decode-%v", m), p, []int32{300, 1, 129, 0}, nil).core(i < 2)
		add(fmt.Sprintf("decode-%v-positions", m), p, []int32{300, 5, 129, 64}, []int32{299, 2, 128, 70})
	}
	q := masked(problem(2, 30, 90, 2, 1, 8, 8), attn.Causal())
	q.Want = rowStats
	l.add("below-capacity", q).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, 13, 50) })
	l.add("one-row-of-capacity", q).with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, 1, 77) })
	q.Lengths = true
	l.add("below-capacity-lengths", q).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		Trim(a, 13, 50)
		a.KLen, a.QPos = []int32{20, 50}, []int32{3, 40}
	})
}
