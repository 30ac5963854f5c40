//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSplitsKeepBits checks that work which is more than one call of assembly may do has the bits
// that one call gives.
func TestSplitsKeepBits(t *testing.T) {
	ran := false
	for _, l := range sets {
		if l.tiles != nil || !slices.ContainsFunc(assembled(), func(o *Ops) bool { return o.ISA == l.isa }) {
			continue
		}
		ran = true
		for i := range l.powers {
			o := l.ops(&l.powers[i], 0)
			t.Run(l.isa+"/Flash", func(t *testing.T) { flashSplits(t, l, &l.powers[i], o) })
		}
		o := l.ops(&l.powers[0], 0)
		t.Run(l.isa+"/products", func(t *testing.T) { productSplits(t, l, o) })
		t.Run(l.isa+"/decoding", func(t *testing.T) { fewSplits(t, l, o) })
		t.Run(l.isa+"/rows", func(t *testing.T) { rowSplits(t, l, o) })
	}
	if !ran {
		t.Skip("SKIPPED: this machine has no loops in assembly")
	}
}

// twice runs two loops on the same panel and compares all that they write.
func twice(t *testing.T, what string, p *Panel, split, whole func(*Panel)) {
	t.Helper()
	var panels [2]*Panel
	for i, run := range []func(*Panel){split, whole} {
		q := *p
		for _, s := range []*[]float32{&q.P, &q.O, &q.M, &q.L, &q.S, &q.X} {
			*s = slices.Clone(*s)
		}
		q.Until = slices.Clone(q.Until)
		run(&q)
		panels[i] = &q
	}
	got, want := panels[0], panels[1]
	for name, s := range map[string][2][]float32{
		"P": {got.P, want.P}, "O": {got.O, want.O}, "M": {got.M, want.M}, "L": {got.L, want.L}, "S": {got.S, want.S}, "X": {got.X, want.X},
	} {
		sameBits(t, what+": "+name, s[0], s[1])
	}
	same := got.Done == want.Done && got.Width == p.Width && got.N == p.N && got.C == p.C && slices.Equal(got.Until, p.Until)
	if !same || got.Next != p.Next || got.Scored {
		t.Fatalf("%s: ends with Done %d, want %d, and with width %d, N %d, C %d, Until %v, which it began with: %d, %d, %d, %v",
			what, got.Done, want.Done, got.Width, got.N, got.C, got.Until, p.Width, p.N, p.C, p.Until)
	}
}

func flashSplits(t *testing.T, l *loops, power *powerLoops, o *Ops) {
	rng := rand.New(rand.NewPCG(7, 8))
	left, rounds := 0, 40
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		d := []int{500, 1000, 3000}[round%3]
		p := random(o, o.Lanes-round%2*o.Vec, 128, d, 0)
		p.Edit.Lo, p.Edit.Hi = make([]int32, o.Lanes), make([]int32, o.Lanes)
		for lane := range o.Lanes {
			p.Edit.Hi[lane] = int32(rng.IntN(2 * p.N))
			p.M[lane], p.L[lane], p.S[lane] = Unset, 0, 0
			if rng.IntN(200) == 0 { // one that goes over sooner or later
				p.M[lane], p.L[lane] = -20, 1
			}
		}
		p.Plain = rng.IntN(p.N/o.Keys+1) * o.Keys
		p.S = nil
		if round%2 == 0 {
			to := p.N / 2
			for v := range p.Width / o.Vec {
				if lane := v * o.Vec; lane%o.Unit() == 0 && lane > 0 {
					to = min(to+o.Keys*(1+rng.IntN(3)), p.N)
				}
				p.Until = append(p.Until, to)
			}
			for v := len(p.Until) - 1; v >= 0 && p.Until[v] == to; v-- {
				p.Until[v] = p.N
			}
		}
		what := fmt.Sprintf("%d columns, width %d, until %v", d, p.Width, p.Until)
		twice(t, what, p, o.Flash, func(p *Panel) {
			loop, to := power.flash, p.N
			if p.Until != nil {
				to = p.Until[0]
			}
			if p.Done = loop[l.vectors(p.Width)-1](p, 0, to, 0); p.Done < p.N {
				left++
			}
		})
	}
	if left == 0 || left == rounds {
		t.Errorf("%d of %d calls left early, want some that do and some that do not", left, rounds)
	}
}

func productSplits(t *testing.T, l *loops, o *Ops) {
	for _, width := range []int{o.Vec, o.Lanes} {
		v := l.vectors(width) - 1
		p := random(o, width, 900, 1000, 0)
		twice(t, "Score", p, o.Score, func(p *Panel) { l.score[v](p, 0, p.N) })
		p = random(o, width, 901, 0, 333)
		p.Keep = random(o, width, 1, 1, 1).Keep
		twice(t, "Mix", p, o.Mix, func(p *Panel) { l.mix[v](p, &p.Keep[0]) })
		for i := range width / o.Vec {
			p.Since, p.Until = append(p.Since, 8*i), append(p.Until, p.N-3)
		}
		twice(t, "Mix in stairs", p, o.Mix, func(p *Panel) { l.mix[v](p, &p.Keep[0]) })
		twice(t, "DScore", random(o, width, 333, 0, 900), o.DScore, func(p *Panel) { l.dscore[v](p) })
	}
	for _, s := range [][3]int{{700, 64, 128}, {40, 700, 900}, {7, 40, 9000}, {1, 700, 5000}, {3000, 3, 400}} { // rows, columns, terms
		n, c, terms := s[0], s[1], s[2]
		rng := rand.New(rand.NewPCG(uint64(n), uint64(c)))
		floats := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			return x
		}
		p := &Panel{N: n, C: c, Width: terms, Lanes: terms + 1, P: floats(n * (terms + 1)), Y: Rows{floats(terms * (c + 2)), c + 2}, X: floats(n * (c + 1)), XStr: c + 1}
		what := fmt.Sprintf("%d rows, %d columns, %d terms", n, c, terms)
		twice(t, "Outer: "+what, p, o.Outer, l.few.outer.run)
		p.Scale, p.Ahead, p.AheadLen = floats(n), 4096, 1<<20 // where nothing is
		twice(t, "Outer, scaled: "+what, p, o.Outer, l.few.outer.run)
		p.Fresh = true
		twice(t, "Outer, fresh: "+what, p, o.Outer, l.few.outer.run)
		p.Scale, p.Fresh, p.Lanes, p.P = nil, false, n+1, floats(terms*(n+1))
		twice(t, "OuterT: "+what, p, o.OuterT, l.few.outerT.run)
	}
}

// fewSplits holds Dot and Sum, in one run, in runs, and of heads in turn.
func fewSplits(t *testing.T, l *loops, o *Ops) {
	const n = 720
	for _, typ := range []Type{F32, F16, BF16, I8} {
		for _, r := range some(5, 2, 9) {
			for _, d := range []int{130, 1000} {
				f := randomFew(r, n, d, d)
				f.K, f.V = stored(f.K.Rows, n, d, typ, 1), stored(f.V.Rows, n, d, typ, 2)
				for _, run := range []int{0, 8, 20} {
					p, out := slices.Clone(f.P), slices.Clone(f.O.Data)
					var at, scales [2][]int
					if f.Run = run; run == 20 { // half of the runs are those of a second head
						f.Heads, f.R, f.N, f.HeadQ, f.HeadO = 2, r/2, n/2, r/2*f.Q.Stride, r/2*f.O.Stride
					}
					if run > 0 {
						f.K, at[0], scales[0] = scattered(f.K, n, d, run)
						f.V, at[1], scales[1] = scattered(f.V, n, d, run)
						f.Ahead = make([]uintptr, len(at[0])) // nothing is there
						f.Far, f.FarScale = f.Ahead, f.Ahead
					}
					do := func(dot, sum func(*Few)) (scores, outputs []float32) {
						f.P, f.O.Data = slices.Clone(p), slices.Clone(out)
						f.At, f.Scales = at[0], scales[0]
						dot(f)
						scores = slices.Clone(f.P)
						f.At, f.Scales = at[1], scales[1]
						sum(f)
						if f.N*max(f.Heads, 1) != n || f.Run != run {
							t.Fatalf("%d keys of all heads in runs of %d have become %d of each in runs of %d", n, run, f.N, f.Run)
						}
						return scores, f.O.Data
					}
					scores, outputs := do(o.Dot, o.Sum)
					wantScores, wantOutputs := do(func(f *Few) {
						whole := f.begin("K", "K.Scale", &f.K, f.D)
						f.turns = turns(l.dotTiles)[f.R]
						l.few.dot(f, l.asking[0].dot[typ])
						f.end(whole)
					}, func(f *Few) {
						whole := f.begin("V", "V.Scale", &f.V, f.C)
						f.turns = turns(l.sumTiles)[f.R]
						l.few.sum(f, l.asking[0].sum[typ])
						f.end(whole)
					})
					what := fmt.Sprintf("type %d, %d queries, %d columns, runs of %d", typ, r, d, run)
					sameBits(t, what+": Dot", scores, wantScores)
					sameBits(t, what+": Sum", outputs, wantOutputs)
				}
			}
		}
	}
}

// TestSplitsOfPartsKeepBits checks the same of products of parts.
func TestSplitsOfPartsKeepBits(t *testing.T) {
	ran := false
	for _, l := range sets {
		if l.tiles == nil || !slices.ContainsFunc(Levels(), func(level Level) bool { return level.Available && level.ISA == l.isa }) {
			continue
		}
		ran = true
		o := l.ops(&l.powers[0], 0)
		for _, width := range []int{o.Vec, o.Lanes} {
			for _, n := range []int{800, 777} {
				p, v := random(o, width, n, 200, 230), width/o.Vec-1
				p.S, p.Scale, p.Fresh = nil, nil, false
				p.KParts = o.CutKeys(make([]uint16, KeyParts(n, p.D)), p.K, n, p.D, 1, false)
				p.QtParts = make([]uint16, QueryParts(p.D, p.Lanes))
				o.CutQueries(p)
				p.VLines = o.CutKeys(make([]uint16, KeyParts(n, p.C)), p.V, n, p.C, 4, false)
				p.DotParts = make([]uint16, QueryParts(p.C, p.Lanes))
				o.CutQueries(&Panel{Lanes: p.Lanes, Width: width, D: p.C, Factor: 2, Qt: p.Dot, QtParts: p.DotParts})
				p.YParts = make([]uint16, LineParts(p.C, p.Lanes))
				o.CutLines(p.YParts, p.Y, width, p.C, 2)
				p.Lower = .5

				groups, full := n/tileRows, &scoreConfigs[tileRows]
				score := func(p *Panel) {
					steps, from := up(p.D, tileDepth)/tileDepth, groups*tileRows
					l.tiles.all.score[v](&p.QtParts[0], &p.KParts.Data[0], &p.P[0], groups, steps, full)
					if from < n {
						l.tiles.all.score[v](&p.QtParts[0], &p.KParts.Data[from*p.KParts.Row], &p.P[from*p.Lanes], 1, steps, &scoreConfigs[n-from])
					}
				}
				what := fmt.Sprintf("%s: width %d, %d rows: ", l.isa, width, n)
				twice(t, what+"Score", p, o.Score, score)
				twice(t, what+"DScore", p, o.DScore, func(p *Panel) {
					l.tiles.dscore[v](&p.DotParts[0], &p.VLines.Data[0], &p.P[0], &p.Sub[0], n, up(p.C, tileDepth)/tileDepth, full)
				})
				twice(t, what+"Outer", p, o.Outer, func(p *Panel) {
					by := p.Lanes / l.vec * partsOfTile
					for c := 0; c < p.C; c += tileRows {
						l.tiles.outer1[v](&p.P[0], &p.YParts[c/tileRows*by], &p.X[c], n, 4*p.XStr, columnMask(min(p.C-c, tileRows)), full, p.Lower)
					}
				})
				for lane := range o.Lanes {
					p.M[lane], p.L[lane] = Unset, 0
				}
				twice(t, what+"Flash", p, o.Flash, func(p *Panel) {
					score(p)
					weigh := func(p *Panel) {
						for o.Exp(p); p.Done < p.N; o.Exp(p) {
							o.Raise(p)
						}
						p.From, p.Scored = 0, false
					}
					weigh(p)
				})
			}
		}
	}
	if !ran {
		t.Skip("SKIPPED: this machine has no loops that multiply parts")
	}
}

// rowSplits holds the loops whose rows have nothing to do with one another.
func rowSplits(t *testing.T, l *loops, o *Ops) {
	const n = 1<<18 + 77
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%1000)/100 - 5
	}
	floats := func() []float32 { return make([]float32, n) }
	got, want := floats(), floats()
	o.Elu(got, x, 4096)
	l.elu(&want[0], &x[0], n, 4096)
	sameBits(t, "Elu", got, want)
	o.Inverse(got, x)
	portable(o).Inverse(want, x)
	sameBits(t, "Inverse", got, want)
	for at := range n {
		if at%50_021 == 0 {
			x[at] = nan
			if o.Finite(x) {
				t.Errorf("Finite says so of %d numbers of which that at %d is NaN", n, at)
			}
			x[at] = 1
		}
	}
	if !o.Finite(x) {
		t.Errorf("Finite does not say so of %d finite numbers", n)
	}
	rows := Rows{Data: x, Stride: 2000}
	o.Inner(got[:130], rows, rows.From(1), 1999)
	l.few.inner(&want[0], &x[0], 2000, &x[2000], 2000, 130, 1999)
	sameBits(t, "Inner", got[:130], want[:130])
	half, wantHalf := make([]uint16, n), make([]uint16, n)
	o.Narrow(half, x, BF16)
	l.cells.narrow[1](&wantHalf[0], &x[0], n/l.vec)
	if last := n / l.vec * l.vec; !slices.Equal(half[:last], wantHalf[:last]) {
		t.Error("Narrow: not the numbers of one call")
	}
	cells := stored(Rows{Data: x, Stride: 2000}, 131, 2000, I8, 1)
	o.Widen(got, &cells, 131, 2000)
	l.cells.widen[I8](&want[0], &cells, 131, 2000)
	sameBits(t, "Widen", got, want)

	m := Move{Lanes: o.Lanes, Width: o.Lanes, Rows: o.Lanes, D: 9000, Tile: make([]float32, 9000*o.Lanes), Outside: random(o, o.Vec, o.Lanes, 9000, 0).K}
	o.Load(&m)
	for lane := range m.Rows {
		for c, x := range m.Outside.Row(lane, m.D) {
			if m.Tile[c*m.Lanes+lane] != x {
				t.Fatalf("Load: column %d of lane %d is %v, want %v", c, lane, m.Tile[c*m.Lanes+lane], x)
			}
		}
	}
	m.Scale = make([]float32, o.Lanes)
	for i := range m.Scale {
		m.Scale[i] = 2
	}
	m.Outside.Data = make([]float32, len(m.Outside.Data))
	if !o.Store(&m) {
		t.Error("Store: not all finite")
	}
	for lane := range m.Rows {
		for c, x := range m.Outside.Row(lane, m.D) {
			if m.Tile[c*m.Lanes+lane]*2 != x {
				t.Fatalf("Store: column %d of lane %d is %v, want %v", c, lane, x, m.Tile[c*m.Lanes+lane]*2)
			}
		}
	}
	m.Tile[8500*m.Lanes] = nan
	if o.Store(&m) {
		t.Error("Store: all finite, and one is NaN")
	}

	p := random(o, o.Lanes, 6000, 0, 0)
	p.S, p.Done = nil, 5000/o.Keys*o.Keys
	for i := range p.P {
		p.P[i] = 1
	}
	for lane := range o.Lanes {
		p.M[lane], p.P[p.Done*o.Lanes+lane] = -3, 50+float32(lane)/4
	}
	p.Keep = slices.Clone(p.M)
	twice(t, "Raise", p, func(p *Panel) { o.Raise(p); p.Scored = false }, func(p *Panel) { l.raise(p, o.Keys) })
}

// portable are Go's loops in the geometry of others.
func portable(o *Ops) *Ops { return Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank) }
