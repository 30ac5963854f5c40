package asm

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// eachFew calls do for all sets, several numbers of queries and all shapes. Rows have gaps of NaN
// after them.
func eachFew(t *testing.T, do func(t *testing.T, o *Ops, f *few)) {
	for _, o := range append(everyReading(), Go()) {
		for _, r := range []int{1, 2, 3, 8} {
			for _, s := range shapes {
				t.Run(fmt.Sprintf("isa=%s/r=%d/n=%d/d=%d/c=%d", o.ISA, r, s[0], s[1], s[2]), func(t *testing.T) {
					do(t, o, randomFew(r, s[0], s[1], s[2]))
				})
			}
		}
	}
}

// few are the operands of the loops of decode.
type few struct {
	R, N, D, C   int // numbers of queries, of keys, and of columns of keys and of values
	Factor       float64
	Q, O         Rows
	K, V         Cells
	P            []float32 // [R][Stride]
	Stride       int
	HeadQ, HeadO int // elements from one head's rows to those of the next
	Sums
	Runs
}

func (f *few) panel() RowPanel { return RowPanel{R: f.R, N: f.N, P: f.P, Stride: f.Stride} }

// Each of these returns a call that shares its slices with the operands.

func (f *few) dot() *Dot {
	return &Dot{Walk: Walk{RowPanel: f.panel(), Runs: f.Runs, D: f.D, Cache: f.K, Rows: f.Q, HeadStep: f.HeadQ}, Factor: f.Factor}
}

func (f *few) weigh() *Weigh { return &Weigh{RowPanel: f.panel(), Sums: f.Sums} }

func (f *few) sum() *Walk {
	return &Walk{RowPanel: f.panel(), Runs: f.Runs, D: f.C, Cache: f.V, Rows: f.O, HeadStep: f.HeadO}
}

func randomFew(r, n, d, c int) *few {
	p := random(Go(), 1, n, d, c)
	f := &few{
		R: r, N: n, D: d, C: c, Factor: .37, Q: random(Go(), 1, r, d, 0).K, K: Cells{Rows: p.K}, V: Cells{Rows: p.V}, O: random(Go(), 1, r, c, 0).K,
		Stride: n + 16, Sums: Sums{M: make([]float32, r), L: make([]float32, r), S: make([]float32, r)},
	}
	f.P = random(Portable(f.Stride, 1, 1, 1, 1), n, r, 0, 0).P
	for i := range f.M {
		f.M[i], f.L[i], f.S[i] = 4, 2, 3
	}
	return f
}

// TestDot checks Dot against a sum in float64.
func TestDot(t *testing.T) {
	eachFew(t, func(t *testing.T, o *Ops, f *few) {
		o.Decode.Dot(f.dot())
		for r := range f.R {
			for j := range f.N {
				terms := []float64{0}
				for x, q := range f.Q.Row(r, f.D) {
					terms = append(terms, f.Factor*float64(q)*float64(f.K.Row(j, f.D)[x]))
				}
				check(t, fmt.Sprintf("P[%d][%d]", r, j), f.P[r*f.Stride+j], terms...)
			}
		}
	})
}

// TestWeigh checks weights and their sums against exponentials in float64.
func TestWeigh(t *testing.T) {
	eachFew(t, func(t *testing.T, o *Ops, f *few) {
		raw := slices.Clone(f.P)
		if f.N > 1 {
			raw[1], f.P[1] = negInf, negInf
		}
		w := f.weigh()
		if o.Decode.Weigh(w); w.Done != w.R {
			t.Fatalf("left at query %d of %d", w.Done, w.R)
		}
		for r := range f.R {
			sum, sumZ := []float64{2}, []float64{3}
			for j := range f.N {
				at := r*f.Stride + j
				want := math.Exp2(float64(raw[at]) - 4)
				if isAssembly(o.Decode.Weigh) { // assembly rounds the difference first
					want = math.Exp2(float64(raw[at] - 4))
				}
				if !(ulps(f.P[at], want) <= o.ulps) && f.P[at] != float32(want) {
					t.Fatalf("P[%d][%d] = %v, want %v", r, j, f.P[at], want)
				}
				if sum = append(sum, want); want > 0 {
					sumZ = append(sumZ, want*float64(raw[at]))
				}
			}
			check(t, "L", f.L[r], sum...)
			check(t, "S", f.S[r], sumZ...)
		}
	})
}

// TestWeighLeaves checks that Weigh leaves before a query with a score that is over its limit, and
// processes the queries before it.
func TestWeighLeaves(t *testing.T) {
	for _, o := range append(everyReading(), Go()) {
		for n := 1; n < 40; n++ {
			for _, bad := range []float32{4.5 + Limit, float32(math.Inf(1))} {
				f := randomFew(5, n, 1, 1)
				f.P[3*f.Stride+n-1] = bad
				raw := slices.Clone(f.P)
				w := f.weigh()
				if o.Decode.Weigh(w); w.Done != 3 || w.Top != bad || f.L[2] == 2 || f.L[3] != 2 || f.P[3*f.Stride] != raw[3*f.Stride] && n > 1 {
					t.Fatalf("%s: %v as the last of %d scores of query 3: done %d, top %v, sums %v", o.ISA, bad, n, w.Done, w.Top, f.L)
				}
				f.P[3*f.Stride+n-1] = 4 + Limit
				w.From = w.Done
				if o.Decode.Weigh(w); w.Done != 5 || f.P[3*f.Stride+n-1] != 1<<Limit || f.L[4] == 2 {
					t.Fatalf("%s: done %d in the second call, weight %v", o.ISA, w.Done, f.P[3*f.Stride+n-1])
				}
			}
		}
	}
}

// TestWeighPassesNaN checks that Weigh does not leave because of a NaN, and that a NaN does not
// hide a score over the limit.
func TestWeighPassesNaN(t *testing.T) {
	nan := float32(math.NaN())
	for _, o := range append(everyReading(), Go()) {
		for n := 2; n < 40; n++ {
			for at := range n {
				f := randomFew(2, n, 1, 1)
				f.P[f.Stride+at] = nan
				over := slices.Clone(f.P)
				w := f.weigh()
				if o.Decode.Weigh(w); w.Done != 2 || f.L[1] == f.L[1] || f.L[0] != f.L[0] {
					t.Fatalf("%s: NaN as score %d of %d of query 1: done %d, sums %v", o.ISA, at, n, w.Done, f.L)
				}
				f = randomFew(2, n, 1, 1)
				f.P = over
				f.P[f.Stride+(at+1)%n] = 5 + Limit
				w = f.weigh()
				if o.Decode.Weigh(w); w.Done != 1 || w.Top != 5+Limit {
					t.Fatalf("%s: NaN as score %d of %d beside one to leave for: done %d, top %v", o.ISA, at, n, w.Done, w.Top)
				}
			}
		}
	}
}

// TestSum checks Sum against a sum in float64.
func TestSum(t *testing.T) {
	eachFew(t, func(t *testing.T, o *Ops, f *few) {
		old := slices.Clone(f.O.Data)
		o.Decode.Sum(f.sum())
		for r := range f.R {
			for c := range f.C {
				terms := []float64{float64(old[r*f.O.Stride+c])}
				for j := range f.N {
					terms = append(terms, float64(f.P[r*f.Stride+j])*float64(f.V.Row(j, f.C)[c]))
				}
				check(t, fmt.Sprintf("O[%d][%d]", r, c), f.O.Row(r, f.C)[c], terms...)
			}
		}
	})
}

// TestFewQueriesApart checks that the results of a query do not depend on other queries, or on
// later keys with weight 0.
func TestFewQueriesApart(t *testing.T) {
	for _, o := range append(everyReading(), Go()) {
		for _, n := range []int{1, 3, 4, 17, 64} {
			for _, d := range []int{1, 15, 16, 37, 64} {
				all := randomFew(9, n, d, d)
				rows := func(r Rows) Rows { return Rows{Data: slices.Clone(r.Data), Stride: r.Stride} }
				run := func(from, to, keys int) *few {
					f := *all
					f.R, f.N = to-from, keys
					f.Q, f.O = f.Q.From(from), rows(f.O.From(from))
					f.P = slices.Clone(f.P)
					f.M, f.L, f.S = slices.Clone(f.M[from:]), slices.Clone(f.L[from:]), slices.Clone(f.S[from:])
					o.Decode.Dot(f.dot())
					for r := range f.R {
						for j := (n + 1) / 2; j < keys; j++ {
							f.P[r*f.Stride+j] = negInf
						}
					}
					o.Decode.Weigh(f.weigh())
					o.Decode.Sum(f.sum())
					return &f
				}
				together := run(0, 9, n)
				for r := range 9 {
					alone := run(r, r+1, (n+1)/2)
					for c := range d {
						if g, w := alone.O.Row(0, d)[c], together.O.Row(r, d)[c]; g != w {
							t.Fatalf("%s: %d keys, %d columns: O[%d][%d] is %v alone, %v together", o.ISA, n, d, r, c, g, w)
						}
					}
					if alone.L[0] != together.L[r] || alone.S[0] != together.S[r] {
						t.Fatalf("%s: %d keys, %d columns: L, S of query %d are %v, %v alone, %v, %v together", o.ISA, n, d, r, alone.L[0], alone.S[0], together.L[r], together.S[r])
					}
				}
			}
		}
	}
}
