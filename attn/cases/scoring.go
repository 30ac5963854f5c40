package cases

import (
	"fmt"
	"math"

	"attnlab/attn"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// scores has scales and temperatures, and the limits of temperature.
func scores(l *list) {
	sizes := [][2]int{{33, 70}, {1, 70}}
	for i, c := range []float64{0.01, 1, 0.125, -0.5, 3} {
		for _, n := range sizes {
			p := wanting(masked(head(n[0], n[1], 16, 16), attn.Causal()), rowStats)
			p.Score.Scale = c
			l.add(fmt.Sprintf("scale-%v-%dx%d", c, n[0], n[1]), p).core(i == 0 || i == 3 && n[0] > 1)
		}
	}
	for i, t := range []float64{0.1, 10, 0.01, 1e3, 0.7, 1} {
		for _, n := range sizes {
			p := wanting(masked(head(n[0], n[1], 16, 16), attn.Causal()), rowStats)
			p.Score.Temp = t
			l.add(fmt.Sprintf("temp-%v-%dx%d", t, n[0], n[1]), p).core(i == 4)
			p.Score.Terms, p.Score.Scale = attn.TermBias, 0.2
			l.add(fmt.Sprintf("temp-scale-bias-%v-%dx%d", t, n[0], n[1]), p).core(i == 1)
		}
	}
	for _, n := range sizes {
		for _, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.Window(5, 2)} {
			p := masked(head(n[0], n[1], 4, 16), m)
			p.Want = attn.WantMean | attn.WantEntropy
			p.Score = attn.Score{Temp: attn.Frozen, Scale: 0.5}
			l.add(fmt.Sprintf("frozen-%v-%dx%d", m, n[0], n[1]), p).with(integers).core(!m.Band || m.Left > 0)
			p.Score = attn.Score{Temp: math.Inf(1)}
			p.Want |= attn.WantLSE
			l.add(fmt.Sprintf("uniform-%v-%dx%d", m, n[0], n[1]), p).core(m.Band && m.Left > 0)
		}
		p := head(n[0], n[1], 4, 16)
		p.Want = attn.WantMean | attn.WantEntropy
		p.Score = attn.Score{Temp: attn.Frozen, Scale: 0.25, Terms: attn.TermBias}
		l.add(fmt.Sprintf("frozen-bias-%dx%d", n[0], n[1]), p).with(func(p *attn.Problem, a *attn.Args, r rnd) {
			integers(p, a, r)
			Rows(&a.Terms.Bias, func(_, i, _ int, row []float32) {
				for j := range row {
					row[j] = float32(r.IntN(3))
					if i == 0 || r.IntN(4) == 0 { // the first row sees nothing
						row[j] = -inf
					}
				}
			})
		}).core(true)
		p.Score = attn.Score{Temp: math.Inf(1), Terms: attn.TermBias}
		p.Want |= attn.WantLSE
		l.add(fmt.Sprintf("uniform-bias-%dx%d", n[0], n[1]), p).with(func(_ *attn.Problem, a *attn.Args, r rnd) {
			Rows(&a.Terms.Bias, func(_, i, _ int, row []float32) {
				for j := range row {
					if i == 0 || r.IntN(4) == 0 {
						row[j] = -inf
					}
				}
			})
		}).core(true)
	}
}

// integers makes scores small integers, which are exact in float32 at a power-of-two scale. Equal
// scores are then equal in every kernel.
func integers(_ *attn.Problem, a *attn.Args, r rnd) {
	for _, t := range []*attn.Tensor{&a.Q, &a.K} {
		Rows(t, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = float32(r.IntN(5) - 2)
			}
		})
	}
}

// biases has biases of every shape that broadcasts, with infinities and large numbers.
func biases(l *list) {
	biased := func(p attn.Problem) attn.Problem {
		p.Score.Terms = attn.TermBias
		p.Want = rowStats
		return p
	}
	of := func(dims func(p *attn.Problem) []int, value func(i, j int, r rnd) float32) func(*attn.Problem, *attn.Args, rnd) {
		return func(p *attn.Problem, a *attn.Args, r rnd) {
			d := dims(p)
			n := 1
			for _, x := range d {
				n *= x
			}
			data := make([]float32, n)
			last := d[len(d)-1]
			for at := range data {
				data[at] = value(at/last, at%last, r)
			}
			t, err := attn.BiasTensor(data, d...)
			if err != nil {
				panic(err) // the caller passed a bad shape
			}
			a.Terms.Bias = t
		}
	}
	plain := func(_, _ int, r rnd) float32 { return float32(r.NormFloat64()) }
	for i, s := range []struct {
		name string
		dims func(p *attn.Problem) []int
	}{
		{"rank1", func(p *attn.Problem) []int { return []int{p.SeqKV} }},
		{"rank2", func(p *attn.Problem) []int { return []int{p.SeqQ, p.SeqKV} }},
		{"rank3", func(p *attn.Problem) []int { return []int{p.HeadsQ, p.SeqQ, p.SeqKV} }},
		{"rank4", func(p *attn.Problem) []int { return []int{p.Batch, p.HeadsQ, p.SeqQ, p.SeqKV} }},
		{"by-head", func(p *attn.Problem) []int { return []int{p.HeadsQ, 1, p.SeqKV} }},
		{"by-batch", func(p *attn.Problem) []int { return []int{p.Batch, 1, 1, p.SeqKV} }},
		{"by-query", func(p *attn.Problem) []int { return []int{p.SeqQ, 1} }},
		{"scalar", func(p *attn.Problem) []int { return []int{1} }},
	} {
		p := biased(problem(2, 19, 70, 4, 2, 8, 8))
		l.add(s.name, p).with(of(s.dims, plain)).core(i == 3 || i == 6)
		p.SeqQ = 1
		l.add(s.name+"-decode", p).with(of(s.dims, plain)).core(i == 3)
		p.SeqQ, p.Mask = 66, attn.Causal()
		l.add(s.name+"-causal", p).with(of(s.dims, plain)).core(i == 2)
	}
	full := func(p *attn.Problem) []int { return []int{p.SeqQ, p.SeqKV} }
	entry := func(name string, core bool, value func(i, j int, r rnd) float32) {
		for _, nq := range []int{33, 1} {
			l.add(fmt.Sprintf("%s-%d", name, nq), biased(head(nq, 150, 8, 8))).with(of(full, value)).core(core)
		}
	}
	entry("minus-infinity", true, func(i, j int, r rnd) float32 {
		if r.IntN(2) == 0 {
			return -inf
		}
		return 0
	})
	entry("minus-infinity-rows", true, func(i, j int, r rnd) float32 {
		if i%2 == 0 {
			return -inf
		}
		return float32(r.NormFloat64())
	})
	entry("minus-infinity-first-tiles", false, func(i, j int, r rnd) float32 {
		if j < 140 {
			return -inf
		}
		return 1
	})
	entry("infinity", true, func(i, j int, r rnd) float32 {
		if j == (7*i+3)%150 {
			return inf
		}
		return float32(r.NormFloat64())
	})
	entry("two-infinities", false, func(i, j int, r rnd) float32 {
		if i%2 == 0 && (j == 3 || j == 140) {
			return inf
		}
		return 0
	})
	entry("nan", true, func(i, j int, r rnd) float32 {
		if i%2 == 0 && j == 70 {
			return nan
		}
		return 0
	})
	entry("large", false, func(i, j int, r rnd) float32 { return float32(1e4 * r.NormFloat64()) })
	entry("huge", false, func(i, j int, r rnd) float32 { return float32(1e37 * r.NormFloat64()) })
	entry("shift", true, func(i, j int, r rnd) float32 { return 1000 })
	// The finite number that many programs use in place of -Inf.
	entry("filler", true, func(i, j int, r rnd) float32 {
		if (i+j)%3 > 0 {
			return -1e9
		}
		return 0
	})
	// A NaN or an infinity behind a mask does not leak.
	l.add("hidden-nan", masked(biased(head(33, 33, 8, 8)), attn.Causal())).core(true).with(of(full, func(i, j int, r rnd) float32 {
		if j > i {
			return []float32{nan, inf, -inf}[j%3]
		}
		return float32(r.NormFloat64())
	}))
}

// byproducts wants each by-product alone and all of them together, with every kind of mask.
func byproducts(l *list) {
	all := []attn.Want{attn.WantLSE, attn.WantMean, attn.WantEntropy, attn.WantWeights, rowStats, rowStats | attn.WantWeights}
	names := []string{"lse", "mean", "entropy", "weights", "rows", "everything"}
	for i, w := range all {
		for _, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.Window(6, 1)} {
			p := wanting(masked(problem(1, 37, 45, 2, 1, 16, 16), m), w)
			l.add(fmt.Sprintf("%s-%v", names[i], m), p).core(m.Band && (i == 5 || i == 0 && m.Left > 0))
			p.SeqQ = 1
			l.add(fmt.Sprintf("%s-%v-decode", names[i], m), p)
		}
	}
	p := wanting(problem(1, 33, 45, 2, 1, 16, 16), rowStats|attn.WantWeights)
	l.add("wanted-but-not-taken", p).core(true).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
		a.Stats.LSE, a.Stats.Weights = attn.Tensor{}, attn.Tensor{}
	})
	for _, dist := range distributions[1:] {
		p := wanting(masked(problem(1, 80, 150, 1, 1, 32, 8), attn.Causal()), rowStats|attn.WantWeights)
		l.add("everything-"+dist, p).data(dist).core(dist == "std30")
		p.SeqQ = 1
		l.add("everything-decode-"+dist, p).data(dist)
	}
	p = wanting(problem(2, 9, 40, 4, 2, 8, 8), rowStats|attn.WantWeights)
	p.Mask = p.Mask.With(attn.BoolBitmap)
	l.add("hidden-rows", p).core(true).with(func(p *attn.Problem, a *attn.Args, r rnd) {
		a.Allowed = randomMask(r, 0.5, p.Batch, p.HeadsQ, p.SeqQ, 1)
	})
}
