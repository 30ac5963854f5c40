package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// chunks calls do for all geometries, with a number of tokens and of columns.
func chunks(t *testing.T, do func(t *testing.T, o *Ops, rng *rand.Rand, n, c int)) {
	for _, o := range geometries {
		for _, n := range []int{0, 1, 2, 5, 8, 9, 17, 32} {
			for _, c := range []int{0, 1, 7, 16, 33, 64, 100} {
				t.Run(fmt.Sprintf("isa=%s/lanes=%d/n=%d/c=%d", o.ISA, o.Shape.Lanes, n, c), func(t *testing.T) {
					do(t, o, rand.New(rand.NewPCG(uint64(n), uint64(c))), n, c)
				})
			}
		}
	}
}

// gapped returns n rows of c numbers of scale s, with NaN after each row.
func gapped(rng *rand.Rand, n, c int, s float64) Rows {
	r := Rows{Data: make([]float32, n*(c+3)), Stride: c + 3}
	for i := range r.Data {
		if r.Data[i] = nan; i%r.Stride < c {
			r.Data[i] = float32(s * rng.NormFloat64())
		}
	}
	return r
}

func copied(r Rows) Rows { return Rows{Data: append([]float32(nil), r.Data...), Stride: r.Stride} }

// gapsAreLeft fails if a loop wrote after the rows.
func gapsAreLeft(t *testing.T, name string, r Rows, c int) {
	t.Helper()
	for i, x := range r.Data {
		if i%r.Stride >= c && x == x {
			t.Fatalf("%s: element %d after a row was written", name, i)
		}
	}
}

// TestSolve checks Solve against its definition in float64, in both orders.
func TestSolve(t *testing.T) {
	chunks(t, func(t *testing.T, o *Ops, rng *rand.Rand, n, c int) {
		for form := range 16 {
			p := gapped(rng, n, n, .3)
			x, v := gapped(rng, n, c, 1), gapped(rng, n, c, 1)
			call := Solve{Panel: Panel{Lanes: p.Stride, N: n, P: p.Data}, C: c, X: x.Data, XStride: x.Stride, V: v}
			if call.Fresh = form&1 != 0; call.Fresh && form&8 != 0 {
				call.V = x
			}
			call.Reverse = form&2 != 0
			for i := 0; i < n && form&4 != 0; i++ {
				call.Keep, call.Beta = append(call.Keep, float32(rng.Float64())), append(call.Beta, float32(rng.Float64()))
			}
			want := definedSolve(&call)
			o.Recur.Solve(&call)
			gapsAreLeft(t, "X", x, c)
			for i := range n {
				for k, got := range x.Row(i, c) {
					if d := math.Abs(float64(got) - want[i][k]); !(d < 1e-4*(1+math.Abs(want[i][k]))) {
						t.Fatalf("form %d: X[%d][%d] = %v, want %v", form, i, k, got, want[i][k])
					}
				}
			}
		}
	})
}

func definedSolve(p *Solve) [][]float64 {
	u := make([][]float64, p.N)
	row := func(i int) int {
		if p.Reverse {
			return p.N - 1 - i
		}
		return i
	}
	for i := range p.N {
		r := make([]float64, p.C)
		for c := range r {
			r[c] = float64(p.V.Row(row(i), p.C)[c])
			if keep := 1.0; !p.Fresh {
				if p.Keep != nil {
					keep = float64(p.Keep[i])
				}
				r[c] -= keep * float64(p.X[row(i)*p.XStride+c])
			}
			for j := range i {
				r[c] -= float64(p.P[i*p.Lanes+j]) * u[row(j)][c]
			}
			if p.Beta != nil {
				r[c] *= float64(p.Beta[i])
			}
		}
		u[row(i)] = r
	}
	return u
}

// TestStep checks Step against its definition in float64.
func TestStep(t *testing.T) {
	chunks(t, func(t *testing.T, o *Ops, rng *rand.Rand, n, c int) {
		for _, keeps := range []bool{false, true} {
			factors := gapped(rng, 4, max(n, c), 1)
			x, y := gapped(rng, n, c, 1), gapped(rng, 1, c, 1)
			s := Step{N: n, C: c, X: x.Data, XStride: x.Stride, W: factors.Row(0, n), K: factors.Row(1, n), U: factors.Row(2, c), Y: y.Data}
			if keeps {
				s.Keep = factors.Row(3, n)
			}
			old := copied(x)
			o.Recur.Step(&s)
			gapsAreLeft(t, "X", x, c)
			gapsAreLeft(t, "Y", y, c)
			for k := range c {
				terms := []float64{0}
				for i := range n {
					was, keep := float64(old.Row(i, c)[k]), 1.0
					if keeps {
						keep = float64(s.Keep[i])
					}
					terms = append(terms, float64(s.W[i])*was)
					check(t, fmt.Sprintf("X[%d][%d]", i, k), x.Row(i, c)[k], keep*was, float64(s.K[i])*float64(s.U[k]))
				}
				check(t, fmt.Sprintf("Y[%d]", k), y.Data[k], terms...)
			}
		}
	})
}

// TestFade checks Fade against products of gates in float64, in place and not.
func TestFade(t *testing.T) {
	chunks(t, func(t *testing.T, o *Ops, rng *rand.Rand, n, _ int) {
		width := (n + o.Shape.Vec - 1) / o.Shape.Vec * o.Shape.Vec
		for form := range 8 {
			from := gapped(rng, n, width, 1)
			before, to := copied(from), from
			call := Fade{From: from, Strict: form&1 != 0, Last: make([]float32, width)}
			for i := 0; i < n && form&2 != 0; i++ {
				call.Alpha = append(call.Alpha, float32(rng.Float64()))
			}
			if form&4 != 0 {
				to = gapped(rng, n, width, 1)
			}
			call.Panel = Panel{Lanes: to.Stride, Width: width, N: n, P: to.Data}
			o.Recur.Fade(&call)
			gapsAreLeft(t, "P", to, width)
			for i := range n {
				for j, got := range to.Row(i, width) {
					d := 1.0
					for _, a := range call.Alpha[min(j+1, len(call.Alpha)):max(min(i+1, len(call.Alpha)), min(j+1, len(call.Alpha)))] {
						d *= float64(a)
					}
					if j > i || j == i && call.Strict {
						d = 0
					}
					if want := d * float64(before.Row(i, width)[j]); math.Abs(float64(got)-want) > 1e-5*math.Abs(want) {
						t.Fatalf("form %d: P[%d][%d] = %v, want %v", form, i, j, got, want)
					}
					if last := call.Last[j]; i == n-1 && j < n && (!call.Strict || j < i) && math.Abs(float64(last)-d) > 1e-5*d {
						t.Fatalf("form %d: Last[%d] = %v, want %v", form, j, last, d)
					}
				}
			}
		}
	})
}

// TestProducts checks that Products stops before the first product out of its bounds.
func TestProducts(t *testing.T) {
	chunks(t, func(t *testing.T, o *Ops, rng *rand.Rand, n, d int) {
		for _, bad := range []float32{1, 0, 0x1p-59, 0x1p59, nan, float32(math.Inf(1)), -1} {
			for at := range max(n, 1) {
				from := gapped(rng, n, d, 0)
				for i := range n {
					for c := range from.Row(i, d) {
						from.Row(i, d)[c] = float32(.5 + rng.Float64())
					}
				}
				if n > 0 && d > 0 {
					from.Row(at, d)[rng.IntN(d)] = bad
				}
				want, p := n, make([]float32, d)
				for c := range p {
					p[c] = 1
				}
				to := gapped(rng, n, d, 1)
				got := o.Recur.Products(to, from, n, d)
			rows:
				for i := range n {
					for c, x := range from.Row(i, d) {
						if p[c] *= x; !(p[c] >= Least && p[c] < Most) {
							want = i
							break rows
						}
						if i < got && to.Row(i, d)[c] != p[c] {
							t.Fatalf("product %d, %d is %v, want %v", i, c, to.Row(i, d)[c], p[c])
						}
					}
				}
				if got != want {
					t.Fatalf("%v in row %d of %d: stops at %d, want %d", bad, at, n, got, want)
				}
				gapsAreLeft(t, "to", to, d)
			}
		}
	})
}

// TestRowsByRows checks Scale and Times, which round once, and Over, which may be 1 ulp off.
func TestRowsByRows(t *testing.T) {
	chunks(t, func(t *testing.T, o *Ops, rng *rand.Rand, n, d int) {
		x, y, by := gapped(rng, n, d, 1), gapped(rng, n, d, 1), gapped(rng, 1, n, 1).Data[:n]
		for _, form := range []struct {
			name string
			run  func(to Rows)
			want func(x, y, by float32) float32
		}{
			{"Scale", func(to Rows) { o.Vector.Scale(to, x, by, d) }, func(x, _, by float32) float32 { return x * by }},
			{"Times", func(to Rows) { o.Vector.Times(to, x, y, n, d) }, func(x, y, _ float32) float32 { return x * y }},
			{"Over", func(to Rows) { o.Vector.Over(to, x, y, n, d) }, func(x, y, _ float32) float32 { return x / y }},
		} {
			to := gapped(rng, n, d, 1)
			form.run(to)
			gapsAreLeft(t, form.name, to, d)
			for i := range n {
				for c, got := range to.Row(i, d) {
					if want := form.want(x.Row(i, d)[c], y.Row(i, d)[c], by[i]); got != want && !(form.name == "Over" && ulps(got, float64(want)) <= 1) {
						t.Fatalf("%s: [%d][%d] = %v, want %v", form.name, i, c, got, want)
					}
				}
			}
		}
	})
}

// TestExpOf checks Exp over the whole range of exponents, and on numbers that are not finite.
func TestExpOf(t *testing.T) {
	var from []float32
	for x := float32(-110); x < 95; x += .0371 {
		from = append(from, x)
	}
	inf := float32(math.Inf(1))
	from = append(from, 0, float32(math.Copysign(0, -1)), 1e-30, -1e-30, -200, -1e30, -inf, inf, 1e30, nan, 88.7, 88.73)
	for _, o := range geometries {
		to := make([]float32, len(from))
		o.Vector.Exp(to, from)
		for i, x := range from {
			want, got := math.Exp(float64(x)), float64(to[i])
			switch {
			case want != want:
				if got == got {
					t.Errorf("%s: e^%v = %v, want NaN", o.ISA, x, got)
				}
			case want > math.MaxFloat32:
				if !math.IsInf(got, 1) {
					t.Errorf("%s: e^%v = %v, want +Inf", o.ISA, x, got)
				}
			case want < 0x1p-125:
				if got < 0 || got > 0x1.01p-125 {
					t.Errorf("%s: e^%v = %v, want %v or 0", o.ISA, x, got, want)
				}
			case math.Abs(got-want) > 2*math.Ldexp(1, math.Ilogb(want)-23):
				t.Errorf("%s: e^%v = %v, want %v", o.ISA, x, got, want)
			}
		}
	}
}
