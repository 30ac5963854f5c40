package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// eachISA runs a test on the loops of every instruction set. It skips, and logs, the sets that the
// CPU lacks.
func eachISA(t *testing.T, f func(t *testing.T, ops *asm.Ops)) {
	for _, l := range asm.Levels() {
		t.Run(l.ISA, func(t *testing.T) {
			if !l.Available {
				t.Skip(l.Reason)
			}
			f(t, l.Ops)
		})
	}
}

// random returns a matrix of standard normal numbers inside a larger one of NaN.
func random(r *rand.Rand, rows, cols, extra int) Mat {
	m := NewMat(rows, cols+extra)
	for i := range m.Data {
		m.Data[i] = float32(math.NaN())
	}
	m.Cols = cols
	for i := range rows {
		for j := range m.Row(i) {
			m.Row(i)[j] = float32(r.NormFloat64())
		}
	}
	return m
}

// framed returns such a matrix with rows of NaN before and behind it.
func framed(r *rand.Rand, rows, cols int) (m, frame Mat) {
	frame = random(r, rows+2, cols, 5)
	for _, i := range []int{0, rows + 1} {
		for j := range frame.Row(i) {
			frame.Row(i)[j] = float32(math.NaN())
		}
	}
	return frame.Part(1, rows, 0, cols), frame
}

// turned returns the transpose of x, whose rows have n numbers.
func turned(x [][]float64, n int) [][]float64 {
	to := make([][]float64, n)
	for i := range x {
		for j, v := range x[i] {
			to[j] = append(to[j], v)
		}
	}
	return to
}

// checkProduct compares products of the given numbers of rows, terms and columns, in every form,
// with sums in float64. NaN surrounds the operands and C: a product must read only the operands and
// write only C. (Tests of the loops check that they do not even touch the memory behind.)
func checkProduct(t *testing.T, ops *asm.Ops, r *rand.Rand, rows, terms, cols int) {
	t.Helper()
	for form := range 8 {
		p := Product{AT: form&1 != 0, BT: form&2 != 0, Add: form&4 != 0}
		name := fmt.Sprintf("%d x %d x %d, transposed %v %v, added %v", rows, terms, cols, p.AT, p.BT, p.Add)
		if p.A, _ = framed(r, rows, terms); p.AT {
			p.A, _ = framed(r, terms, rows)
		}
		if p.B, _ = framed(r, terms, cols); p.BT {
			p.B, _ = framed(r, cols, terms)
		}
		var frame Mat
		p.C, frame = framed(r, rows, cols)
		was := wide(p.C)
		if !p.Add { // the contents of C must not matter
			for i := range frame.Data {
				frame.Data[i] = float32(math.NaN())
			}
		}
		NewMultiplier(ops, nil).Do(p)
		a, b := wide(p.A), wide(p.B) // b by columns
		if p.AT {
			a = turned(a, rows)
		}
		if !p.BT {
			b = turned(b, cols)
		}
		for i := range rows {
			for j, got := range p.C.Row(i) {
				var want, size float64
				if p.Add {
					want, size = was[i][j], math.Abs(was[i][j])
				}
				for k, x := range a[i] {
					x *= b[j][k]
					want += x
					size += math.Abs(x)
				}
				if tol := roundings(terms) * size; !(math.Abs(float64(got)-want) <= tol) {
					t.Fatalf("%s: element %d, %d is %v, want %v within %v", name, i, j, got, want, tol)
				}
				p.C.Row(i)[j] = float32(math.NaN())
			}
		}
		for i, x := range frame.Data {
			if x == x {
				t.Fatalf("%s: wrote beside C, element %d of the frame", name, i)
			}
		}
	}
}

// TestAliasedProduct checks that an A whose rows are alias apart, which is packed, gives the same
// bits as an A whose rows are not.
func TestAliasedProduct(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(7, 8))
		m := NewMultiplier(ops, nil)
		for _, rows := range []int{inPlaceRows + 1, aside, aside + 1, high + aside + 5} {
			const terms, cols = depth + 3, width + 1
			apart, b := random(r, terms, rows, 1), random(r, terms, cols, 3)
			near := random(r, terms, rows, alias-rows)
			want, got := NewMat(rows, cols), NewMat(rows, cols)
			for k := range terms {
				copy(near.Row(k), apart.Row(k))
			}
			for _, add := range []bool{false, true} {
				m.Do(Product{C: want, A: apart, B: b, AT: true, Add: add})
				m.Do(Product{C: got, A: near, B: b, AT: true, Add: add})
				if !slices.Equal(got.Data, want.Data) {
					t.Errorf("%d rows, added %v: other numbers", rows, add)
				}
			}
		}
	})
}

func TestProduct(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, size := range [][3]int{
			{1, 1, 1}, {25, 128, 64}, {26, 129, 65}, {31, 300, 50}, {385, 40, 130}, {768, 17, 64}, {70, 1, 500}, {0, 3, 3}, {3, 0, 3}, {3, 3, 0},
		} {
			checkProduct(t, ops, r, size[0], size[1], size[2])
		}
	})
}

// TestProductOfFewRows checks the largest number of rows that are multiplied without packing, and
// one more, at the edges of tiles, strips and runs of terms.
func TestProductOfFewRows(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(1, 3))
		all := []int{1, 2, 3, 5, 6, 7, inPlaceRows, inPlaceRows + 1}
		if testing.Short() {
			all = []int{1, 6, inPlaceRows, inPlaceRows + 1}
		}
		for _, rows := range all {
			for _, terms := range []int{1, 31, depth, depth + 1} {
				for _, cols := range []int{1, 17, width, width + 1, strip + 15, 2*strip + 1} {
					checkProduct(t, ops, r, rows, terms, cols)
				}
			}
			checkProduct(t, ops, r, rows, longest, 3)
			checkProduct(t, ops, r, rows, 2*longest+1, 3)
		}
	})
}

// TestProductOfRowsAlone checks that a row among few has the same bits as among many, if B is not
// transposed.
func TestProductOfRowsAlone(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(1, 4))
		m := NewMultiplier(ops, nil)
		const rows, terms, cols = 48, 300, 200
		for form := range 4 {
			p := Product{AT: form&1 != 0, Add: form&2 != 0, A: random(r, rows, terms, 0), B: random(r, terms, cols, 0), C: random(r, rows, cols, 0)}
			if p.AT {
				p.A = random(r, terms, rows, 0)
			}
			before := Mat{slices.Clone(p.C.Data), rows, cols, cols}
			m.Do(p)
			from := 0
			for _, n := range []int{1, 2, 5, 6, inPlaceRows} {
				alone := p
				if p.AT {
					alone.A = p.A.Part(0, terms, from, n)
				} else {
					alone.A = p.A.Part(from, n, 0, terms)
				}
				alone.C = before.Part(from, n, 0, cols)
				m.Do(alone)
				if err := sameBits(fmt.Sprintf("%d rows, transposed %v, added %v: element", n, p.AT, p.Add), p.C.Part(from, n, 0, cols), alone.C); err != nil {
					t.Fatal(err)
				}
				from += n
			}
		}
	})
}

// TestProductOnTeams checks that the bits are the same on any team, and that nothing is allocated.
func TestProductOnTeams(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, size := range [][3]int{{500, 200, 150}, {3, 200, 600}} {
			rows, terms, cols := size[0], size[1], size[2]
			for _, p := range []Product{
				{A: random(r, rows, terms, 0), B: random(r, terms, cols, 0)}, {A: random(r, rows, terms, 0), B: random(r, cols, terms, 0), BT: true},
			} {
				var want Mat
				for workers := 1; workers <= 3; workers++ {
					team := attn.NewTeam(workers)
					defer team.Close()
					m := NewMultiplier(ops, team)
					p.C = NewMat(rows, cols)
					m.Do(p)
					if workers == 1 {
						want = p.C
					}
					if err := sameBits(fmt.Sprintf("%d rows on %d workers: element", rows, workers), want, p.C); err != nil {
						t.Fatal(err)
					}
					if n := testing.AllocsPerRun(3, func() { m.Do(p) }); n != 0 {
						t.Errorf("%d rows on %d workers: %v allocations a product", rows, workers, n)
					}
				}
			}
		}
	})
}

func TestProductOfWrongShapes(t *testing.T) {
	for _, p := range []Product{
		{C: NewMat(2, 2), A: NewMat(2, 3), B: NewMat(2, 2)},
		{C: NewMat(2, 2), A: NewMat(3, 2), B: NewMat(2, 2)},
		{C: NewMat(2, 3), A: NewMat(2, 2), B: NewMat(2, 2)},
		{C: NewMat(2, 2), A: NewMat(2, 3), B: NewMat(3, 2), AT: true},
		{C: NewMat(2, 2), A: NewMat(2, 3), B: NewMat(3, 2), BT: true},
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "nn: the product of ") {
					t.Errorf("%v, %v into %v: panic is %v", p.A, p.B, p.C, r)
				}
			}()
			NewMultiplier(asm.Levels()[0].Ops, nil).Do(p)
		}()
	}
}

// BenchmarkProduct measures a product of square matrices in each form that a layer uses: forward,
// gradient of the input, gradient of the weights. It alternates with the probe, and reports its
// share of the peak.
func BenchmarkProduct(b *testing.B) {
	for _, l := range asm.Levels() {
		if !l.Available {
			continue
		}
		for _, n := range []int{256, 512, 1024} {
			for _, form := range []string{"AB", "ABt", "AtB"} {
				b.Run(fmt.Sprintf("isa=%s/n=%d/form=%s", l.ISA, n, form), func(b *testing.B) {
					r := rand.New(rand.NewPCG(5, 6))
					p := Product{A: random(r, n, n, 0), B: random(r, n, n, 0), C: NewMat(n, n), AT: form == "AtB", BT: form == "ABt"}
					m := NewMultiplier(l.Ops, nil)
					m.Do(p)
					var work, probe time.Duration
					var probed int64
					b.ReportAllocs()
					for b.Loop() {
						t0 := time.Now()
						m.Do(p)
						t1 := time.Now()
						probed += l.Ops.Probe.Peak(2000)
						work, probe = work+t1.Sub(t0), probe+time.Since(t1)
					}
					flops := 2 * float64(n) * float64(n) * float64(n) * float64(b.N) / work.Seconds()
					b.ReportMetric(flops/1e9, "GFLOP/s")
					b.ReportMetric(100*flops/(float64(probed)/probe.Seconds()), "%peak")
				})
			}
		}
	}
}

// BenchmarkFewRows measures a product of a few rows, such as decoded tokens, with matrices that
// come from memory. It alternates with the probe that reads the same memory, and reports its
// bandwidth, the probe's and the ratio of the two.
func BenchmarkFewRows(b *testing.B) {
	const pool = 1 << 24 // numbers of all matrices
	for _, l := range asm.Levels() {
		if !l.Available {
			continue
		}
		for _, shape := range [][2]int{{512, 512}, {512, 2048}, {2048, 512}} {
			for _, form := range []string{"AB", "ABt"} {
				for _, rows := range []int{1, 2, 6, inPlaceRows, inPlaceRows + 1, 96} {
					b.Run(fmt.Sprintf("isa=%s/terms=%d/cols=%d/form=%s/rows=%d", l.ISA, shape[0], shape[1], form, rows), func(b *testing.B) {
						r := rand.New(rand.NewPCG(5, 7))
						all, n := random(r, 1, pool, 0).Data, shape[0]*shape[1]
						p := Product{A: random(r, rows, shape[0], 0), C: NewMat(rows, shape[1]), BT: form == "ABt"}
						if p.B = (Mat{nil, shape[0], shape[1], shape[1]}); p.BT {
							p.B = Mat{nil, shape[1], shape[0], shape[0]}
						}
						m := NewMultiplier(l.Ops, nil)
						var work, probe time.Duration
						at := 0
						for b.Loop() {
							here := all[at*n:][:n]
							p.B.Data = here
							t0 := time.Now()
							m.Do(p)
							t1 := time.Now()
							l.Ops.Probe.Read(all[(at+pool/n/2)%(pool/n)*n:][:n])
							work, probe = work+t1.Sub(t0), probe+time.Since(t1)
							at = (at + 1) % (pool / n)
						}
						bytes := 4 * float64(n) * float64(b.N) / 1e9
						b.ReportMetric(bytes/work.Seconds(), "GB/s")
						b.ReportMetric(bytes/probe.Seconds(), "read-GB/s")
						b.ReportMetric(100*probe.Seconds()/work.Seconds(), "%read")
					})
				}
			}
		}
	}
}

// TestWatch checks that every product is reported once with its time, and none after a nil func.
func TestWatch(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	p := Product{A: random(r, 70, 40, 0), B: random(r, 40, 50, 0), C: NewMat(70, 50)}
	m := NewMultiplier(asm.Levels()[0].Ops, nil)
	seen, spent := 0, time.Duration(0)
	m.Watch(func(q Product, took time.Duration) {
		seen++
		spent += took
		if q.C.Rows != 70 || q.A.Cols != 40 || q.C.Row(69)[49] == 0 {
			t.Errorf("the product that was seen is of %v and %v into %v", q.A, q.B, q.C)
		}
	})
	begun := time.Now()
	m.Do(p)
	if n := testing.AllocsPerRun(3, func() { m.Do(p) }); n != 0 {
		t.Errorf("%v allocations a product", n)
	}
	if all := time.Since(begun); seen != 5 || spent <= 0 || spent > all {
		t.Errorf("%d products in %v of %v, want 5", seen, spent, all)
	}
	m.Watch(nil)
	if m.Do(p); seen != 5 {
		t.Errorf("a product was seen after the watch had ended")
	}
}
