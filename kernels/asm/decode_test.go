package asm

import (
	"fmt"
	"math"
	"testing"
)

// eachFew runs do for some numbers of queries and all shapes, with rows that have gaps of NaN behind them.
func eachFew(t *testing.T, do func(t *testing.T, f *Few)) {
	for _, r := range []int{1, 2, 3, 8} {
		for _, s := range shapes {
			p := random(Go(), 1, s[0], s[1], s[2])
			f := &Few{
				R: r, N: s[0], D: s[1], C: s[2], Factor: .37, Q: random(Go(), 1, r, s[1], 0).K, K: p.K, V: p.V, O: random(Go(), 1, r, s[2], 0).K,
				Stride: s[0] + 3, P: random(Portable(s[0]+3, 1, 1, 1, 1), s[0], r, 0, 0).P, M: make([]float32, r), L: make([]float32, r), S: make([]float32, r),
			}
			for i := range r {
				f.M[i], f.L[i], f.S[i] = 4, 2, 3
			}
			t.Run(fmt.Sprintf("r=%d/n=%d/d=%d/c=%d", r, s[0], s[1], s[2]), func(t *testing.T) { do(t, f) })
		}
	}
}

func TestDot(t *testing.T) {
	eachFew(t, func(t *testing.T, f *Few) {
		Go().Dot(f)
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

func TestWeigh(t *testing.T) {
	eachFew(t, func(t *testing.T, f *Few) {
		raw := append([]float32(nil), f.P...)
		if f.N > 1 {
			raw[1], f.P[1] = negInf, negInf
		}
		Go().Weigh(f)
		for r := range f.R {
			sum, sumZ := []float64{2}, []float64{3}
			for j := range f.N {
				at := r*f.Stride + j
				want := math.Exp2(float64(raw[at]) - 4)
				if !(ulps(f.P[at], want) <= .54) && f.P[at] != float32(want) {
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

func TestSum(t *testing.T) {
	eachFew(t, func(t *testing.T, f *Few) {
		old := append([]float32(nil), f.O.Data...)
		Go().Sum(f)
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
