package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// eachISA runs a test on the loops of every instruction set. One that is not here is skipped aloud.
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

// random is a matrix of standard normal numbers inside a larger one of NaN.
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

// at is element (i, j) of m or of its transpose.
func at(m Mat, i, j int, transposed bool) float64 {
	if transposed {
		i, j = j, i
	}
	return float64(m.Row(i)[j])
}

func TestProduct(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, size := range [][3]int{ // rows, terms, columns
			{1, 1, 1}, {6, 128, 64}, {7, 129, 65}, {5, 3, 2}, {13, 300, 50}, {385, 40, 130}, {768, 17, 64}, {1, 500, 70}, {70, 1, 500}, {0, 3, 3}, {3, 0, 3}, {3, 3, 0},
		} {
			for form := range 8 {
				rows, terms, cols := size[0], size[1], size[2]
				p := Product{AT: form&1 != 0, BT: form&2 != 0, Add: form&4 != 0}
				p.A, p.B, p.C = random(r, rows, terms, 3), random(r, terms, cols, 5), random(r, rows, cols, 2)
				if p.AT {
					p.A = random(r, terms, rows, 1)
				}
				if p.BT {
					p.B = random(r, cols, terms, 0)
				}
				name := fmt.Sprintf("%v, transposed %v %v, added %v", size, p.AT, p.BT, p.Add)
				before := append([]float32(nil), p.C.Data...)
				if !p.Add {
					for i := range rows { // what was there does not matter
						for j := range p.C.Row(i) {
							p.C.Row(i)[j] = float32(math.NaN())
						}
					}
				}
				NewMultiplier(ops, nil).Do(p)
				for i := range rows {
					for j := range p.C.Stride {
						got, was := p.C.Data[i*p.C.Stride+j], before[i*p.C.Stride+j]
						if j >= cols {
							if got == got {
								t.Fatalf("%s: wrote behind row %d", name, i)
							}
							continue
						}
						var want, size float64
						if p.Add {
							want, size = float64(was), math.Abs(float64(was))
						}
						for k := range terms {
							x := at(p.A, i, k, p.AT) * at(p.B, k, j, p.BT)
							want += x
							size += math.Abs(x)
						}
						if tol := 0x1p-24 * (math.Sqrt(float64(terms)) + 4) * size; !(math.Abs(float64(got)-want) <= tol) {
							t.Fatalf("%s: element %d, %d is %v, want %v within %v", name, i, j, got, want, tol)
						}
					}
				}
			}
		}
	})
}

// The same bits on any team, and nothing is allocated.
func TestProductOnTeams(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(3, 4))
		p := Product{A: random(r, 500, 200, 0), B: random(r, 200, 150, 0)}
		var want Mat
		for workers := 1; workers <= 3; workers++ {
			team := attn.NewTeam(workers)
			defer team.Close()
			m := NewMultiplier(ops, team)
			p.C = NewMat(500, 150)
			m.Do(p)
			if workers == 1 {
				want = p.C
			}
			for i, x := range p.C.Data {
				if math.Float32bits(x) != math.Float32bits(want.Data[i]) {
					t.Fatalf("%d workers: element %d is %v, and %v on one", workers, i, x, want.Data[i])
				}
			}
			if n := testing.AllocsPerRun(3, func() { m.Do(p) }); n != 0 {
				t.Errorf("%d workers: %v allocations a product", workers, n)
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
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "nn: product of ") {
					t.Errorf("%v, %v into %v: panic is %v", p.A, p.B, p.C, r)
				}
			}()
			NewMultiplier(asm.Levels()[0].Ops, nil).Do(p)
		}()
	}
}

// BenchmarkProduct is a product of square matrices in each of the forms that a layer takes: forward, the gradient of the input, of the weights. Its share
// of the peak is by turns with the probe.
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
						probed += l.Ops.Peak(2000)
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

// Every product is seen once, with its time, and then none any more.
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
