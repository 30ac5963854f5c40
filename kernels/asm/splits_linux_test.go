//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestSplitsKeepBits checks that work that needs several calls of assembly has the bits of one
// call.
func TestSplitsKeepBits(t *testing.T) {
	ran := false
	for _, l := range sets {
		if l.tiles != nil || !slices.ContainsFunc(complete(), func(o *Ops) bool { return o.ISA == l.isa }) {
			continue
		}
		ran = true
		for i := range l.powers {
			power := &l.powers[i]
			o := l.ops(Tuning{Path: Path{Exp: power.way}})
			t.Run(l.isa+"/Flash", func(t *testing.T) { flashSplits(t, l, power, o) })
		}
		o := l.ops(Tuning{Path: Path{Exp: l.powers[0].way}})
		t.Run(l.isa+"/products", func(t *testing.T) { productSplits(t, l, o) })
		t.Run(l.isa+"/decoding", func(t *testing.T) { decodeSplits(t, l, o) })
		t.Run(l.isa+"/rows", func(t *testing.T) { rowSplits(t, l, o) })
	}
	if !ran {
		t.Skip("SKIPPED: this machine has no loops in assembly")
	}
}

// twice runs two loops on the same operands and compares everything that they write. The first loop
// must leave its call unchanged, except for results such as Done.
func twice[C any](t *testing.T, what string, p *operands, call func(*operands) *C, split, whole func(*C)) {
	t.Helper()
	var all [2]operands
	var dones [2]int
	for i, run := range []func(*C){split, whole} {
		q := &all[i]
		*q = *p
		for _, s := range []*[]float32{&q.P, &q.O, &q.M, &q.L, &q.S, &q.X} {
			*s = slices.Clone(*s)
		}
		q.Until = slices.Clone(q.Until)
		c := call(q)
		before := *c
		run(c)
		dones[i] = reported(&before, c)
		if i == 0 && !(reflect.DeepEqual(before, *c) && slices.Equal(q.Until, p.Until)) {
			t.Fatalf("%s: the call is not as it was, or Until is %v, which was %v", what, q.Until, p.Until)
		}
	}
	got, want := &all[0], &all[1]
	for name, s := range map[string][2][]float32{
		"P": {got.P, want.P}, "O": {got.O, want.O}, "M": {got.M, want.M}, "L": {got.L, want.L}, "S": {got.S, want.S}, "X": {got.X, want.X},
	} {
		sameBits(t, what+": "+name, s[0], s[1])
	}
	if dones[0] != dones[1] {
		t.Fatalf("%s: ends with Done %d, want %d", what, dones[0], dones[1])
	}
}

// reported copies the results that loops report in their call to the call before it, and returns
// Done.
func reported(before, after any) (done int) {
	switch was := before.(type) {
	case *Scores:
		was.plain = after.(*Scores).plain
	case *Flash:
		is := after.(*Flash)
		was.Done, was.plain, done = is.Done, is.plain, is.Done
	case *Softmax:
		was.From, was.Scored = was.Done, true
	case *Mix: // Mix swaps Next and Then with every micro-tile
		if is := after.(*Mix); was.Next == is.Then && was.Then == is.Next {
			was.Next, was.Then = is.Next, is.Then
		}
	case *Outer:
		was.By = after.(*Outer).By
	}
	return done
}

func flashSplits(t *testing.T, l *loops, power *powerLoops, o *Ops) {
	rng := rand.New(rand.NewPCG(7, 8))
	left, rounds := 0, 40
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		d := []int{500, 1000, 3000}[round%3]
		p := random(o, o.Shape.Lanes-round%2*o.Shape.Vec, 128, d, 0)
		p.Lo, p.Hi = make([]int32, o.Shape.Lanes), make([]int32, o.Shape.Lanes)
		for lane := range o.Shape.Lanes {
			p.Hi[lane] = int32(rng.IntN(2 * p.N))
			p.M[lane], p.L[lane], p.S[lane] = Unset, 0, 0
			if rng.IntN(200) == 0 { // a score that goes over the limit sooner or later
				p.M[lane], p.L[lane] = -20, 1
			}
		}
		p.Plain = rng.IntN(p.N/o.Shape.Keys+1) * o.Shape.Keys
		sums := p.S
		p.S = nil
		if round%2 == 0 {
			to := p.N / 2
			for v := range p.Width / o.Shape.Vec {
				if lane := v * o.Shape.Vec; lane%o.Shape.Unit() == 0 && lane > 0 {
					to = min(to+o.Shape.Keys*(1+rng.IntN(3)), p.N)
				}
				p.Until = append(p.Until, to)
			}
			for v := len(p.Until) - 1; v >= 0 && p.Until[v] == to; v-- {
				p.Until[v] = p.N
			}
		}
		what := fmt.Sprintf("%d columns, width %d, until %v", d, p.Width, p.Until)
		twice(t, what, p, (*operands).flash, o.Panel.Flash, func(f *Flash) {
			to := f.N
			if f.Until != nil {
				to = f.Until[0]
			}
			f.plain = f.Factor == 1
			if f.Done = power.flash[l.vectors(f.Width)-1](f, 0, to, 0); f.Done < f.N {
				left++
			}
		})
		flashWithSums(t, what, o, p, sums)
	}
	if left == 0 || left == rounds {
		t.Errorf("%d of %d calls left early, want some that do and some that do not", left, rounds)
	}
}

// flashWithSums checks that Flash with S gives the bits that it gives without, and checks S.
func flashWithSums(t *testing.T, what string, o *Ops, p *operands, sums []float32) {
	t.Helper()
	scores := slices.Clone(p.P)
	all := p.scores()
	all.P = scores
	o.Panel.Score(all)
	var calls [2]*Flash
	for i := range calls {
		q := *p
		q.P, q.M, q.L = slices.Clone(p.P), slices.Clone(p.M), slices.Clone(p.L)
		if i == 1 {
			q.S = slices.Clone(sums)
		}
		calls[i] = q.flash()
		o.Panel.Flash(calls[i])
	}
	want, got := calls[0], calls[1]
	rows := min(want.Done+o.Shape.Keys, p.N) // later rows may hold scores
	if got.Done != want.Done || got.Width != p.Width || got.N != p.N {
		t.Fatalf("%s: with S it ends with Done %d, width %d, N %d, want %d, %d, %d", what, got.Done, got.Width, got.N, want.Done, p.Width, p.N)
	}
	sameBits(t, what+": P with S", got.P[:rows*p.Lanes], want.P[:rows*p.Lanes])
	sameBits(t, what+": M with S", got.M, want.M)
	sameBits(t, what+": L with S", got.L, want.L)
	for l := range p.Width {
		terms, until := []float64{0}, got.Done
		if p.Until != nil {
			until = min(until, p.Until[l/o.Shape.Vec])
		}
		for j := range until {
			if w := lane(got.P, p, j, l); w != 0 {
				terms = append(terms, w*lane(scores, p, j, l))
			}
		}
		check(t, what+": S", got.S[l], terms...)
	}
}

func productSplits(t *testing.T, l *loops, o *Ops) {
	for _, width := range []int{o.Shape.Vec, o.Shape.Lanes} {
		v := l.vectors(width) - 1
		p := random(o, width, 900, 1000, 0)
		twice(t, "Score", p, (*operands).scores, o.Panel.Score, func(s *Scores) {
			s.plain = s.Factor == 1
			l.panel.score[v](&s.Product, &s.P[0], 0, s.N)
		})
		p = random(o, width, 901, 0, 333)
		p.Keep = random(o, width, 1, 1, 1).Keep
		twice(t, "Mix", p, (*operands).mix, o.Panel.Mix, func(m *Mix) { l.panel.mix[v](m, &m.Keep[0]) })
		for i := range width / o.Shape.Vec {
			p.Since, p.Until = append(p.Since, 8*i), append(p.Until, p.N-3)
		}
		twice(t, "Mix in stairs", p, (*operands).mix, o.Panel.Mix, func(m *Mix) { l.panel.mix[v](m, &m.Keep[0]) })
		twice(t, "DScore", random(o, width, 333, 0, 900), (*operands).dscore, o.Back.DScore, l.back.dscore[v])
	}
	// Numbers of rows, columns and lanes.
	for _, s := range [][3]int{{700, 64, 128}, {40, 700, 900}, {7, 40, 9000}, {1, 700, 5000}, {3000, 3, 400}} {
		n, c, terms := s[0], s[1], s[2]
		rng := rand.New(rand.NewPCG(uint64(n), uint64(c)))
		floats := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			return x
		}
		p := &operands{Panel: Panel{N: n, Width: terms, Lanes: terms + 1, P: floats(n * (terms + 1))}, C: c, Y: Rows{floats(terms * (c + 2)), c + 2}, X: floats(n * (c + 1)), XStride: c + 1}
		ahead := Stream{} // not mapped
		outer := func(p *operands) *Outer {
			o := p.outer()
			o.Stream = ahead
			return o
		}
		what := fmt.Sprintf("%d rows, %d columns, %d terms", n, c, terms)
		twice(t, "Outer: "+what, p, outer, o.Back.Outer, l.back.outer.run)
		p.Scale, ahead = floats(n), Stream{At: 4096, Len: 1 << 20}
		twice(t, "Outer, scaled: "+what, p, outer, o.Back.Outer, l.back.outer.run)
		kept := func(p *operands) *Outer {
			o := outer(p)
			o.Keep = p.Scale
			return o
		}
		twice(t, "Outer, kept: "+what, p, kept, o.Back.Outer, l.back.outer.run)
		p.Fresh = true
		twice(t, "Outer, fresh: "+what, p, outer, o.Back.Outer, l.back.outer.run)
		p.Scale, p.Fresh, p.Lanes, p.P = nil, false, n+1, floats(terms*(n+1))
		twice(t, "OuterT: "+what, p, outer, o.Back.OuterT, l.back.outerT.run)
	}
}

// decodeSplits checks Dot and Sum with keys in one run, in runs, and in interleaved runs of two
// heads.
func decodeSplits(t *testing.T, l *loops, o *Ops) {
	const n = 720
	reading := &l.reading[0]
	for _, typ := range []Type{F32, F16, BF16, I8} {
		for _, r := range some(5, 2, 9) {
			for _, d := range []int{130, 1000} {
				f := randomFew(r, n, d, d)
				f.K, f.V = stored(f.K.Rows, n, d, typ, 1), stored(f.V.Rows, n, d, typ, 2)
				for _, run := range []int{0, 8, 20} {
					p, out := slices.Clone(f.P), slices.Clone(f.O.Data)
					var at, scales [2][]int
					if f.Run = run; run == 20 { // half of the runs belong to a second head
						f.Heads, f.R, f.N, f.HeadQ, f.HeadO = 2, r/2, n/2, r/2*f.Q.Stride, r/2*f.O.Stride
					}
					if run > 0 {
						f.K, at[0], scales[0] = scattered(f.K, n, d, run)
						f.V, at[1], scales[1] = scattered(f.V, n, d, run)
						f.Ahead = make([]uintptr, len(at[0])) // these addresses are not mapped
						f.Far, f.FarScale = f.Ahead, f.Ahead
					}
					do := func(dot func(*Dot), sum func(*Walk)) (scores, outputs []float32) {
						f.P, f.O.Data = slices.Clone(p), slices.Clone(out)
						f.At, f.Scales = at[0], scales[0]
						product := f.dot()
						dot(product)
						scores = slices.Clone(f.P)
						f.At, f.Scales = at[1], scales[1]
						weighed := f.sum()
						sum(weighed)
						for _, w := range []*Walk{&product.Walk, weighed} {
							if w.N*max(w.Heads, 1) != n || w.Run != run || w.R != f.R || len(w.P) != len(f.P) {
								t.Fatalf("%d keys of all heads in runs of %d have become %d of each in runs of %d, for %d queries", n, run, w.N, w.Run, w.R)
							}
						}
						return scores, f.O.Data
					}
					scores, outputs := do(o.Decode.Dot, o.Decode.Sum)
					wantScores, wantOutputs := do(func(f *Dot) {
						whole := f.begin()
						f.shares = prefetchShares(l.decode.dotTiles)[f.R]
						reading.dot[typ](f)
						if typ == I8 {
							l.decode.scale(&f.Walk, &f.Cache.Scale[0], f.Cache.ScaleStride)
						}
						f.end(whole)
					}, func(f *Walk) {
						whole := f.begin()
						f.shares = prefetchShares(l.decode.sumTiles)[f.R]
						if typ == I8 {
							l.decode.scale(f, &f.Cache.Scale[0], f.Cache.ScaleStride)
						}
						reading.sum[typ](f)
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

// TestSplitsOfTermsKeepBits checks what TestSplitsKeepBits checks, for products of packed operands.
func TestSplitsOfTermsKeepBits(t *testing.T) {
	ran := false
	for _, l := range sets {
		if l.tiles == nil || !slices.ContainsFunc(Levels(), func(level Level) bool { return level.Available && level.ISA == l.isa }) {
			continue
		}
		ran = true
		o := l.ops(Tuning{Path: Path{Exp: l.powers[0].way}})
		pack := &o.Pack
		for _, width := range []int{o.Shape.Vec, o.Shape.Lanes} {
			for _, n := range []int{800, 777} {
				p, v := random(o, width, n, 200, 230), width/o.Shape.Vec-1
				p.S, p.Scale, p.Fresh = nil, nil, false
				b := &p.blocks
				b.keys, b.valueKeys = pack.NewKeys(n, p.D), pack.NewKeys(n, p.C)
				b.queries, b.dot = pack.NewQueries(p.Lanes, p.D), pack.NewQueries(p.Lanes, p.C)
				b.lines = pack.NewLines(p.Lanes, p.C)
				copy(b.queries.Lanes(), p.Qt)
				copy(b.dot.Lanes(), p.Dot)
				pack.Keys(&b.keys, p.K, n, p.D, Form{})
				pack.Keys(&b.valueKeys, p.V, n, p.C, Form{Lift: true})
				pack.Queries(&b.queries, width, p.D, p.Factor, Form{})
				pack.Queries(&b.dot, width, p.C, 1, Form{Lift: true})
				pack.Lines(&b.lines, p.Y, width, p.C, Form{Lift: true})

				groups, full := n/tileRows, &scoreConfigs[tileRows]
				score := func(p *Panel, of *Product) {
					steps, from := up(of.D, tileDepth)/tileDepth, groups*tileRows
					l.tiles.all.score[v](&of.Queries.terms[0], &of.Keys.terms[0], &p.P[0], groups, steps, full)
					if from < n {
						l.tiles.all.score[v](&of.Queries.terms[0], &of.Keys.terms[from*of.Keys.each], &p.P[from*p.Lanes], 1, steps, &scoreConfigs[n-from])
					}
				}
				what := fmt.Sprintf("%s: width %d, %d rows: ", l.isa, width, n)
				twice(t, what+"Score", p, (*operands).scores, o.Panel.Score, func(s *Scores) { score(&s.Panel, &s.Product) })
				twice(t, what+"DScore", p, (*operands).dscore, o.Back.DScore, func(s *DScore) {
					l.tiles.dscore[v](&s.Dot.terms[0], &s.Values.terms[0], &s.P[0], &s.Sub[0], n, up(s.C, tileDepth)/tileDepth, full)
				})
				twice(t, what+"Outer", p, (*operands).outer, o.Back.Outer, func(x *Outer) {
					by := x.Lanes / l.vec * termsOfTile
					for c := 0; c < x.C; c += tileRows {
						l.tiles.outerOf(1).loops[v](&x.P[0], &x.Y.terms[c/tileRows*by], &x.X[c], n, 4*x.XStride, columnMask(min(x.C-c, tileRows)), full, 0x1p-30)
					}
				})
				for lane := range o.Shape.Lanes {
					p.M[lane], p.L[lane] = Unset, 0
				}
				twice(t, what+"Flash", p, (*operands).flash, o.Panel.Flash, func(f *Flash) {
					score(&f.Panel, &f.Product)
					for o.Panel.Exp(&f.Softmax); f.Done < f.N; o.Panel.Exp(&f.Softmax) {
						o.Panel.Raise(&f.Softmax)
					}
				})
			}
		}
	}
	if !ran {
		t.Skip("SKIPPED: this machine has no loops that multiply terms")
	}
}

// rowSplits checks the loops whose rows are independent of one another.
func rowSplits(t *testing.T, l *loops, o *Ops) {
	const n = 1<<18 + 77
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%1000)/100 - 5
	}
	floats := func() []float32 { return make([]float32, n) }
	got, want := floats(), floats()
	o.Vector.Elu(got, x, 4096)
	l.vector.elu(&want[0], &x[0], n, 4096)
	sameBits(t, "Elu", got, want)
	o.Vector.Exp(got, x)
	l.vector.natural(&want[0], &x[0], n)
	sameBits(t, "Exp", got, want)
	o.Vector.Inverse(got, x)
	portable(o).Vector.Inverse(want, x)
	sameBits(t, "Inverse", got, want)
	for at := range n {
		if at%50_021 == 0 {
			x[at] = nan
			if o.Vector.Finite(x) {
				t.Errorf("Finite says so of %d numbers of which that at %d is NaN", n, at)
			}
			x[at] = 1
		}
	}
	if !o.Vector.Finite(x) {
		t.Errorf("Finite does not say so of %d finite numbers", n)
	}
	rows := Rows{Data: x, Stride: 2000}
	o.Back.Inner(got[:130], rows, rows.From(1), 1999)
	l.back.inner(&want[0], &x[0], 2000, &x[2000], 2000, 130, 1999)
	sameBits(t, "Inner", got[:130], want[:130])
	o.Vector.Times(Rows{Data: got, Stride: 1999}, rows, rows.From(1), 130, 1999)
	l.vector.times(&want[0], &x[0], &x[2000], 1999, 2000, 2000, 130, 1999)
	sameBits(t, "Times", got, want)
	o.Vector.Scale(Rows{Data: got, Stride: 1999}, rows, x[2000:][:130], 1999)
	l.vector.scale(&want[0], &x[0], &x[2000], 1999, 2000, 130, 1999)
	sameBits(t, "Scale", got, want)
	for _, reverse := range []bool{false, true} {
		for i := range got {
			got[i], want[i] = x[i], x[i]
		}
		s := Solve{Panel: Panel{Lanes: 40, N: 40, P: weights(40)}, C: 6001, X: got, XStride: 6002, V: Rows{Data: x, Stride: 6003}, Beta: x[1000:], Reverse: reverse}
		o.Recur.Solve(&s)
		first, xStride, vStride := 0, 6002, 6003
		if reverse {
			first, xStride, vStride = 39, -xStride, -vStride
		}
		l.recur.solve(&want[first*6002], &x[first*6003], xStride, vStride, &s.P[0], 40, &ones[0], &x[1000], 40, 6001)
		sameBits(t, "Solve", got, want)
	}
	half, wantHalf := make([]uint16, n), make([]uint16, n)
	o.Vector.Narrow(half, x, BF16)
	l.vector.narrow[1](&wantHalf[0], &x[0], n/l.vec)
	if last := n / l.vec * l.vec; !slices.Equal(half[:last], wantHalf[:last]) {
		t.Error("Narrow: not the numbers of one call")
	}
	cells := stored(Rows{Data: x, Stride: 2000}, 131, 2000, I8, 1)
	o.Vector.Widen(got, &cells, 131, 2000)
	l.vector.widen[I8](&want[0], &cells, 131, 2000)
	sameBits(t, "Widen", got, want)

	m := Move{Lanes: o.Shape.Lanes, Width: o.Shape.Lanes, Rows: o.Shape.Lanes, D: 9000, Tile: make([]float32, 9000*o.Shape.Lanes), Outside: random(o, o.Shape.Vec, o.Shape.Lanes, 9000, 0).K}
	o.Vector.Load(&m)
	for lane := range m.Rows {
		for c, x := range m.Outside.Row(lane, m.D) {
			if m.Tile[c*m.Lanes+lane] != x {
				t.Fatalf("Load: column %d of lane %d is %v, want %v", c, lane, m.Tile[c*m.Lanes+lane], x)
			}
		}
	}
	m.Scale = make([]float32, o.Shape.Lanes)
	for i := range m.Scale {
		m.Scale[i] = 2
	}
	m.Outside.Data = make([]float32, len(m.Outside.Data))
	if !o.Vector.Store(&m) {
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
	if o.Vector.Store(&m) {
		t.Error("Store: all finite, and one is NaN")
	}

	p := random(o, o.Shape.Lanes, 6000, 0, 0)
	p.S = nil
	done := 5000 / o.Shape.Keys * o.Shape.Keys
	for i := range p.P {
		p.P[i] = 1
	}
	for lane := range o.Shape.Lanes {
		p.M[lane], p.P[done*o.Shape.Lanes+lane] = -3, 50+float32(lane)/4
	}
	raised := func(p *operands) *Softmax {
		s := p.softmax()
		s.Keep, s.Done = slices.Clone(p.Keep), done
		return s
	}
	var keeps [][]float32
	twice(t, "Raise", p, raised, func(s *Softmax) {
		o.Panel.Raise(s)
		keeps = append(keeps, s.Keep)
	}, func(s *Softmax) {
		l.panel.raise(s, o.Shape.Keys)
		keeps = append(keeps, s.Keep)
	})
	sameBits(t, "Raise: Keep", keeps[0], keeps[1])
}

// weights returns a panel of n rows of n small numbers.
func weights(n int) []float32 {
	p := make([]float32, n*n)
	for i := range p {
		p[i] = float32(i%7-3) / 16
	}
	return p
}
