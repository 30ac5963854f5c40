package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Vectors that leave Flash before others get the bits that they get alone, from rows up to where they leave; and the call leaves at the first group in
// which one that is still there goes over. So does the portable twin.
func TestFlashInSteps(t *testing.T) {
	for _, o := range append(assembled(), Portable(24, 8, 4, 4, 6), Portable(16, 4, 4, 4, 8)) {
		fs := fences{}
		rng := rand.New(rand.NewPCG(5, 6))
		left, stayed := 0, 0
		steps(o, rng, func(width, n, d int, until []int) {
			what := fmt.Sprintf("%s: width %d, %d columns, until %v", o.ISA, width, d, until)
			p := random(o, width, n, d, 0)
			p.From, p.Plain, p.Edit.Key = rng.IntN(until[0]/o.Keys)*o.Keys, rng.IntN(n+1)/o.Keys*o.Keys, rng.IntN(1000)
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			for l := range width {
				p.M[l], p.L[l] = 16, 1
				switch rng.IntN(12) {
				case 0: // some of these go over
					p.M[l] = float32(math.Sqrt(float64(d))*.37) - Limit + rng.Float32()*4
				case 1:
					p.M[l], p.L[l] = Unset, 0
				}
				if p.S != nil {
					p.S[l] = p.L[l]
				}
				p.Edit.Lo, p.Edit.Hi = append(p.Edit.Lo, int32(p.Edit.Key+rng.IntN(n+1))), append(p.Edit.Hi, int32(p.Edit.Key+rng.IntN(n+1)))
			}
			alone := func(lane, to int) *Panel {
				q := *p
				for _, s := range []*[]float32{&q.Qt, &q.P, &q.M, &q.L, &q.S, &q.Keep} {
					*s = slices.Clone((*s)[min(lane, len(*s)):])
				}
				q.Width, q.N, q.Edit.Lo, q.Edit.Hi = min(o.Unit(), width-lane), to, p.Edit.Lo[lane:], p.Edit.Hi[lane:]
				o.Flash(&q)
				return &q
			}
			done := n
			for lane := 0; lane < width; lane += o.Unit() {
				if q := alone(lane, until[lane/o.Vec]); q.Done < q.N {
					done = min(done, q.Done)
				}
			}
			got := fs.put(t, p, rng.IntN(2) == 0)
			got.Until = until
			if o.Flash(got); got.Done != done {
				t.Fatalf("%s: left at %d, by lanes alone at %d", what, got.Done, done)
			}
			if stayed++; done < n {
				left++
			}
			for lane := range width {
				at := lane % o.Unit()
				to := min(done, until[lane/o.Vec])
				want := alone(lane-at, to)
				if got.L[lane] != want.L[at] || p.S != nil && got.S[lane] != want.S[at] || done == n && got.M[lane] != want.M[at] {
					t.Fatalf("%s: from %d to %d: lane %d: M and L are %v and %v, alone %v and %v", what, p.From, done, lane, got.M[lane], got.L[lane], want.M[at], want.L[at])
				}
				for j := p.From; j < to; j++ {
					if g, w := got.P[j*o.Lanes+lane], want.P[j*o.Lanes+at]; g != w {
						t.Fatalf("%s: from %d to %d: P[%d][%d] is %v, alone %v", what, p.From, done, j, lane, g, w)
					}
				}
			}
		})
		if stayed -= left; left < 20 || stayed < 20 {
			t.Errorf("%s: %d calls left early and %d did not", o.ISA, left, stayed)
		}
	}
}

// steps visits all widths and some columns with vectors that leave at different groups, as Flash asks for it: also where the last ones leave together.
func steps(o *Ops, rng *rand.Rand, do func(width, n, d int, until []int)) {
	for width := o.Vec; width <= o.Lanes; width += o.Vec {
		for _, d := range []int{1, 7, 64, 67, 128} {
			for range 20 {
				until, groups := make([]int, width/o.Vec), 0
				last := rng.IntN(2*len(until)) * o.Vec // from here on they leave together
				for v := range until {
					if lane := v * o.Vec; lane%o.Unit() == 0 && (lane == 0 || lane <= last) {
						groups += 1 + rng.IntN(3)
					}
					until[v] = groups * o.Keys
				}
				do(width, groups*o.Keys, d, until)
			}
		}
	}
}

// Flash gives lanes that have seen no key their reference, with the bits that leaving and Raise give; and it leaves no more for them.
func TestFlashSeeds(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
		rng := rand.New(rand.NewPCG(3, 4))
		copied := func(p *Panel) *Panel {
			q := *p
			for _, s := range []*[]float32{&q.P, &q.M, &q.L, &q.S, &q.Keep} {
				*s = slices.Clone(*s)
			}
			return &q
		}
		grid(o, func(width, n, d int) {
			p := random(o, width, n, d, 0)
			p.Plain, p.Edit.Key = 0, rng.IntN(1000)
			begun := rng.IntN(2) == 0 // some lanes are
			for l := range width {
				p.M[l], p.L[l], p.S[l], p.Keep[l] = Unset, 0, 0, 1
				if begun && rng.IntN(4) == 0 {
					p.M[l], p.L[l], p.S[l] = rng.Float32()-Limit, 1, 1
				}
				p.Edit.Lo, p.Edit.Hi = append(p.Edit.Lo, int32(p.Edit.Key+rng.IntN(n+1))), append(p.Edit.Hi, int32(p.Edit.Key+n))
			}
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			for _, ops := range []*Ops{o, twin} {
				what := fmt.Sprintf("%s/%s: width %d, %d keys, %d columns", o.ISA, ops.ISA, width, n, d)
				got, want := copied(p), copied(p)
				for ops.Flash(got); got.Done < n; ops.Flash(got) {
					if !begun && got.Done < n-n%o.Keys { // Exp does what is left
						t.Fatalf("%s: Flash left at %d", what, got.Done)
					}
					ops.Raise(got)
				}
				ops.Score(want)
				mask(want, 0, n)
				for ops.Exp(want); want.Done < n; ops.Exp(want) {
					ops.Raise(want)
				}
				for l := range width {
					if got.M[l] != want.M[l] || got.L[l] != want.L[l] || p.S != nil && got.S[l] != want.S[l] {
						t.Fatalf("%s: lane %d: M and L are %v and %v, with Raise %v and %v", what, l, got.M[l], got.L[l], want.M[l], want.L[l])
					}
					for j := range n {
						if g, w := got.P[j*o.Lanes+l], want.P[j*o.Lanes+l]; g != w {
							t.Fatalf("%s: P[%d][%d] is %v, with Raise %v", what, j, l, g, w)
						}
					}
				}
			}
		})
	}
}

// Exp agrees with its portable twin, and Flash with Score, a mask and Exp bit for bit: in what they do, and in where and how they leave; also when
// Flash is told that the first group is scored.
func TestFlashAgainstScoreAndExp(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
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
				if rng.IntN(8) == 0 { // about a score's size, so that some go over
					p.M[l] = float32(math.Sqrt(float64(d))*.37) - Limit + rng.Float32()*4
				}
				if p.S != nil {
					p.S[l] = 1
				}
			}
			p.From = rng.IntN(n/o.Keys+1) * o.Keys
			if rng.IntN(2) == 0 {
				p.Plain, p.Edit.Key = rng.IntN(n/o.Keys+1)*o.Keys, rng.IntN(1000)
				for range width {
					p.Edit.Lo, p.Edit.Hi = append(p.Edit.Lo, int32(p.Edit.Key+rng.IntN(n+1))), append(p.Edit.Hi, int32(p.Edit.Key+rng.IntN(n+1)))
				}
			}
			first := rng.IntN(2) == 0
			got, two, ref := fs[0].put(t, p, first), fs[1].put(t, p, first), fs[2].put(t, p, first)
			o.Score(two)
			mask(two, p.Plain, n)
			for i := range min(p.From*o.Lanes, len(two.P)) {
				two.P[i] = p.P[i] // Score does all rows
			}
			copy(ref.P, two.P)
			o.Exp(two)
			if got.Scored = two.Done > p.From && rng.IntN(2) == 0; got.Scored {
				copy(got.P[p.From*o.Lanes:], ref.P[p.From*o.Lanes:])
			}
			o.Flash(got)
			twin.Exp(ref)
			if two.Done < n {
				left++
			}
			if got.Done != two.Done || ref.Done != two.Done {
				t.Fatalf("%s: Flash left at %d, Exp at %d, its twin at %d", what, got.Done, two.Done, ref.Done)
			}
			for j := range min(n, two.Done+o.Keys) {
				for l := range width {
					g, w, r := got.P[j*o.Lanes+l], two.P[j*o.Lanes+l], ref.P[j*o.Lanes+l]
					if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
						t.Fatalf("%s: from %d: P[%d][%d]: Flash %v, Score and Exp %v", what, p.From, j, l, g, w)
					}
					if j >= p.From && j < two.Done && !(math.Abs(float64(w)-float64(r)) <= 2e-6*float64(r)+0x1p-99) && (w == w || r == r) {
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
		if left < 50 {
			t.Errorf("%s: only %d calls left early", o.ISA, left)
		}
	}
}

// Raise does what its portable twin does, bit for bit but for the sign of 0.
func TestRaiseAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
		fs := fences{}
		rng := rand.New(rand.NewPCG(3, 4))
		grid(o, func(width, n, c int) {
			if n == 0 {
				return
			}
			p := random(o, width, n, 0, c)
			p.Done = rng.IntN((n+o.Keys-1)/o.Keys) * o.Keys
			for i := range p.P { // weights, then scores
				p.P[i] = float32(math.Exp2(-100 * rng.Float64()))
				if i >= p.Done*o.Lanes && rng.IntN(20) == 0 {
					p.P[i] = []float32{negInf, nan, float32(math.Inf(1)), 3e38, Unset}[rng.IntN(5)]
				}
			}
			for l := range width {
				p.M[l], p.P[p.Done*o.Lanes+l] = float32(rng.NormFloat64()), float32(60*rng.NormFloat64())
				if rng.IntN(10) == 0 {
					p.M[l] = []float32{Unset, 1e30, float32(math.Inf(1))}[rng.IntN(3)]
				}
			}
			if rng.IntN(2) == 0 {
				p.S = nil
			}
			want := *p
			want.P, want.Keep, want.M, want.L, want.S = slices.Clone(p.P), slices.Clone(p.Keep), slices.Clone(p.M), slices.Clone(p.L), slices.Clone(p.S)
			twin.Raise(&want)
			for _, first := range []bool{true, false} {
				got := fs.put(t, p, first)
				o.Raise(got)
				if got.From != want.From || !got.Scored {
					t.Fatalf("%s: goes on from %d, scored %v; want %d", o.ISA, got.From, got.Scored, want.From)
				}
				for name, pair := range map[string][2][]float32{
					"P": {got.P, want.P}, "Keep": {got.Keep, want.Keep}, "M": {got.M, want.M}, "L": {got.L, want.L}, "S": {got.S, want.S},
				} {
					for i, x := range pair[0] {
						if w := pair[1][i]; i%o.Lanes < width && x != w && (x == x || w == w) {
							t.Fatalf("%s: width %d, %d keys, done %d: %s row %d lane %d is %v, want %v", o.ISA, width, n, p.Done, name, i/o.Lanes, i%o.Lanes, x, w)
						}
					}
				}
			}
		})
	}
}
