package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFlashInSteps checks vectors that leave Flash before others. They must get the bits that they
// get alone, from the rows before they leave. The call must return at the first group in which a
// remaining vector goes over its limit. The portable twin must do the same.
func TestFlashInSteps(t *testing.T) {
	for _, o := range append(assembled(), Portable(24, 8, 4, 4, 6), Portable(16, 4, 4, 4, 8)) {
		fs := fences{}
		rng := rand.New(rand.NewPCG(5, 6))
		left, stayed := 0, 0
		steps(o, rng, func(width, n, d int, until []int) {
			what := fmt.Sprintf("%s: width %d, %d columns, until %v", o.ISA, width, d, until)
			p := random(o, width, n, d, 0)
			var from int
			from, p.Plain, p.Key = rng.IntN(until[0]/o.Shape.Keys)*o.Shape.Keys, rng.IntN(n+1)/o.Shape.Keys*o.Shape.Keys, rng.IntN(1000)
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			for l := range width {
				p.M[l], p.L[l] = 16, 1
				switch rng.IntN(12) {
				case 0: // some of these are over the limit
					p.M[l] = float32(math.Sqrt(float64(d))*.37) - Limit + rng.Float32()*4
				case 1:
					p.M[l], p.L[l] = Unset, 0
				}
				if p.S != nil {
					p.S[l] = p.L[l]
				}
				p.Lo, p.Hi = append(p.Lo, int32(p.Key+rng.IntN(n+1))), append(p.Hi, int32(p.Key+rng.IntN(n+1)))
			}
			alone := func(lane, to int) *Flash {
				q := *p
				for _, s := range []*[]float32{&q.Qt, &q.P, &q.M, &q.L, &q.S, &q.Keep} {
					*s = slices.Clone((*s)[min(lane, len(*s)):])
				}
				q.Width, q.N, q.Lo, q.Hi = min(o.Shape.Unit(), width-lane), to, p.Lo[lane:], p.Hi[lane:]
				f := q.flash()
				f.From = from
				o.Panel.Flash(f)
				return f
			}
			done := n
			for lane := 0; lane < width; lane += o.Shape.Unit() {
				if q := alone(lane, until[lane/o.Shape.Vec]); q.Done < q.N {
					done = min(done, q.Done)
				}
			}
			got := fs.put(t, p, rng.IntN(2) == 0).flash()
			got.From, got.Until = from, until
			if o.Panel.Flash(got); got.Done != done {
				t.Fatalf("%s: left at %d, by lanes alone at %d", what, got.Done, done)
			}
			if stayed++; done < n {
				left++
			}
			for lane := range width {
				at := lane % o.Shape.Unit()
				to := min(done, until[lane/o.Shape.Vec])
				want := alone(lane-at, to)
				if got.L[lane] != want.L[at] || p.S != nil && got.S[lane] != want.S[at] || done == n && got.M[lane] != want.M[at] {
					t.Fatalf("%s: from %d to %d: lane %d: M and L are %v and %v, alone %v and %v", what, from, done, lane, got.M[lane], got.L[lane], want.M[at], want.L[at])
				}
				for j := from; j < to; j++ {
					if g, w := got.P[j*o.Shape.Lanes+lane], want.P[j*o.Shape.Lanes+at]; g != w {
						t.Fatalf("%s: from %d to %d: P[%d][%d] is %v, alone %v", what, from, done, j, lane, g, w)
					}
				}
			}
		})
		if stayed -= left; left < 20 || stayed < 20 {
			t.Errorf("%s: %d calls left early and %d did not", o.ISA, left, stayed)
		}
	}
}

// steps visits all widths and some numbers of columns with vectors that leave at different groups,
// as Flash requires. In some cases the last vectors leave together.
func steps(o *Ops, rng *rand.Rand, do func(width, n, d int, until []int)) {
	for width := o.Shape.Vec; width <= o.Shape.Lanes; width += o.Shape.Vec {
		for _, d := range []int{1, 7, 64, 67, 128} {
			for range 20 {
				until, groups := make([]int, width/o.Shape.Vec), 0
				last := rng.IntN(2*len(until)) * o.Shape.Vec // later vectors leave together
				for v := range until {
					if lane := v * o.Shape.Vec; lane%o.Shape.Unit() == 0 && (lane == 0 || lane <= last) {
						groups += 1 + rng.IntN(3)
					}
					until[v] = groups * o.Shape.Keys
				}
				do(width, groups*o.Shape.Keys, d, until)
			}
		}
	}
}

// TestFlashSeeds checks that Flash seeds lanes that have seen no key, with the bits that leaving
// and Raise would give, and does not leave for them.
func TestFlashSeeds(t *testing.T) {
	for _, o := range assembled() {
		twin := portable(o)
		rng := rand.New(rand.NewPCG(3, 4))
		copied := func(p *operands) *operands {
			q := *p
			for _, s := range []*[]float32{&q.P, &q.M, &q.L, &q.S, &q.Keep} {
				*s = slices.Clone(*s)
			}
			return &q
		}
		grid(o, func(width, n, d int) {
			p := random(o, width, n, d, 0)
			p.Plain, p.Key = 0, rng.IntN(1000)
			begun := rng.IntN(2) == 0 // some lanes have seen keys
			for l := range width {
				p.M[l], p.L[l], p.S[l], p.Keep[l] = Unset, 0, 0, 1
				if begun && rng.IntN(4) == 0 {
					p.M[l], p.L[l], p.S[l] = rng.Float32()-Limit, 1, 1
				}
				p.Lo, p.Hi = append(p.Lo, int32(p.Key+rng.IntN(n+1))), append(p.Hi, int32(p.Key+n))
			}
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			for _, ops := range []*Ops{o, twin} {
				what := fmt.Sprintf("%s/%s: width %d, %d keys, %d columns", o.ISA, ops.ISA, width, n, d)
				got, of := copied(p).flash(), copied(p)
				for ops.Panel.Flash(got); got.Done < n; ops.Panel.Flash(got) {
					if !begun && got.Done < n-n%o.Shape.Keys { // Exp does the remaining rows
						t.Fatalf("%s: Flash left at %d", what, got.Done)
					}
					ops.Panel.Raise(&got.Softmax)
				}
				want := of.softmax()
				ops.Panel.Score(of.scores())
				mask(&of.Panel, &of.Band, 0, n)
				for ops.Panel.Exp(want); want.Done < n; ops.Panel.Exp(want) {
					ops.Panel.Raise(want)
				}
				for l := range width {
					if got.M[l] != want.M[l] || got.L[l] != want.L[l] || p.S != nil && got.S[l] != want.S[l] {
						t.Fatalf("%s: lane %d: M and L are %v and %v, with Raise %v and %v", what, l, got.M[l], got.L[l], want.M[l], want.L[l])
					}
					for j := range n {
						if g, w := got.P[j*o.Shape.Lanes+l], want.P[j*o.Shape.Lanes+l]; g != w {
							t.Fatalf("%s: P[%d][%d] is %v, with Raise %v", what, j, l, g, w)
						}
					}
				}
			}
		})
	}
}

// TestFlashAgainstScoreAndExp checks that Exp agrees with its portable twin, and that Flash agrees
// bit for bit with Score, a mask and Exp. It compares their results, where they leave, and the
// state in which they leave, also when the first group holds scores already.
func TestFlashAgainstScoreAndExp(t *testing.T) {
	for _, o := range assembled() {
		twin := portable(o)
		fs := [3]fences{{}, {}, {}}
		rng := rand.New(rand.NewPCG(1, 2))
		left := 0
		grid(o, func(width, n, d int) {
			what := fmt.Sprintf("%s: width %d, %d keys, %d columns", o.ISA, width, n, d)
			p := random(o, width, n, d, 0)
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			if rng.IntN(4) == 0 {
				poison(p)
			}
			for l := range width {
				p.M[l], p.L[l] = 16, 1
				if rng.IntN(8) == 0 { // about the size of a score, so that some are over the limit
					p.M[l] = float32(math.Sqrt(float64(d))*.37) - Limit + rng.Float32()*4
				}
				if p.S != nil {
					p.S[l] = 1
				}
			}
			from := rng.IntN(n/o.Shape.Keys+1) * o.Shape.Keys
			if rng.IntN(2) == 0 {
				p.Plain, p.Key = rng.IntN(n/o.Shape.Keys+1)*o.Shape.Keys, rng.IntN(1000)
				for range width {
					p.Lo, p.Hi = append(p.Lo, int32(p.Key+rng.IntN(n+1))), append(p.Hi, int32(p.Key+rng.IntN(n+1)))
				}
			}
			first := rng.IntN(2) == 0
			of := [3]*operands{fs[0].put(t, p, first), fs[1].put(t, p, first), fs[2].put(t, p, first)}
			got, two, ref := of[0].flash(), of[1].softmax(), of[2].softmax()
			got.From, two.From, ref.From = from, from, from
			o.Panel.Score(of[1].scores())
			mask(&two.Panel, &of[1].Band, p.Plain, n)
			for i := range min(from*o.Shape.Lanes, len(two.P)) {
				two.P[i] = p.P[i] // Score computes all rows
			}
			copy(ref.P, two.P)
			o.Panel.Exp(two)
			if got.Scored = two.Done > from && rng.IntN(2) == 0; got.Scored {
				copy(got.P[from*o.Shape.Lanes:], ref.P[from*o.Shape.Lanes:])
			}
			o.Panel.Flash(got)
			twin.Panel.Exp(ref)
			if two.Done < n {
				left++
			}
			if got.Done != two.Done || ref.Done != two.Done {
				t.Fatalf("%s: Flash left at %d, Exp at %d, its twin at %d", what, got.Done, two.Done, ref.Done)
			}
			for j := range min(n, two.Done+o.Shape.Keys) {
				for l := range width {
					g, w, r := got.P[j*o.Shape.Lanes+l], two.P[j*o.Shape.Lanes+l], ref.P[j*o.Shape.Lanes+l]
					if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
						t.Fatalf("%s: from %d: P[%d][%d]: Flash %v, Score and Exp %v", what, from, j, l, g, w)
					}
					if j >= from && j < two.Done && !(math.Abs(float64(w)-float64(r)) <= 2e-6*float64(r)+0x1p-99) && (w == w || r == r) {
						t.Fatalf("%s: P[%d][%d]: Exp %v, its twin %v", what, j, l, w, r)
					}
				}
			}
			for l := range width {
				if two.L[l] != two.L[l] && got.L[l] != got.L[l] && ref.L[l] != ref.L[l] {
					continue
				}
				if got.L[l] != two.L[l] || !(math.Abs(float64(two.L[l]-ref.L[l])) <= 3e-6*float64(ref.L[l])) {
					t.Fatalf("%s: L[%d]: Flash %v, Exp %v, its twin %v", what, l, got.L[l], two.L[l], ref.L[l])
				}
				if p.S != nil && (got.S[l] != two.S[l] || !(math.Abs(float64(two.S[l]-ref.S[l])) <= 4e-5*float64(two.L[l]))) {
					t.Fatalf("%s: S[%d]: Flash %v, Exp %v, its twin %v", what, l, got.S[l], two.S[l], ref.S[l])
				}
			}
		})
		if left < 15 {
			t.Errorf("%s: only %d calls left early", o.ISA, left)
		}
	}
}

// TestRaiseAgainstPortable checks that Raise gives the bits of its portable twin, except for the
// sign of 0.
func TestRaiseAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		twin := portable(o)
		fs := fences{}
		rng := rand.New(rand.NewPCG(3, 4))
		grid(o, func(width, n, c int) {
			if n == 0 {
				return
			}
			p := random(o, width, n, 0, c)
			done := rng.IntN((n+o.Shape.Keys-1)/o.Shape.Keys) * o.Shape.Keys
			for i := range p.P { // weights, then scores
				p.P[i] = float32(math.Exp2(-100 * rng.Float64()))
				if i >= done*o.Shape.Lanes && rng.IntN(20) == 0 {
					p.P[i] = []float32{negInf, nan, float32(math.Inf(1)), 3e38, Unset}[rng.IntN(5)]
				}
			}
			for l := range width {
				p.M[l], p.P[done*o.Shape.Lanes+l] = float32(rng.NormFloat64()), float32(60*rng.NormFloat64())
				if rng.IntN(10) == 0 {
					p.M[l] = []float32{Unset, 1e30, float32(math.Inf(1))}[rng.IntN(3)]
				}
			}
			if rng.IntN(2) == 0 {
				p.S = nil
			}
			want := p.softmax()
			want.P, want.Keep, want.M, want.L, want.S = slices.Clone(p.P), slices.Clone(p.Keep), slices.Clone(p.M), slices.Clone(p.L), slices.Clone(p.S)
			want.Done = done
			twin.Panel.Raise(want)
			for _, first := range []bool{true, false} {
				got := fs.put(t, p, first).softmax()
				got.Done = done
				o.Panel.Raise(got)
				if got.From != want.From || !got.Scored {
					t.Fatalf("%s: goes on from %d, scored %v; want %d", o.ISA, got.From, got.Scored, want.From)
				}
				for name, pair := range map[string][2][]float32{
					"P": {got.P, want.P}, "Keep": {got.Keep, want.Keep}, "M": {got.M, want.M}, "L": {got.L, want.L}, "S": {got.S, want.S},
				} {
					for i, x := range pair[0] {
						if w := pair[1][i]; i%o.Shape.Lanes < width && x != w && (x == x || w == w) {
							t.Fatalf("%s: width %d, %d keys, done %d: %s row %d lane %d is %v, want %v", o.ISA, width, n, done, name, i/o.Shape.Lanes, i%o.Shape.Lanes, x, w)
						}
					}
				}
			}
		})
	}
}
