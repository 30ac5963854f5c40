package nn

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
)

// TestSplitAndCombine checks that heads are views of a matrix, that joining them returns the
// matrix, and that heads in another layout are refused.
func TestSplitAndCombine(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 1))
	m := random(r, 6, 8, 3)
	heads, err := Split(m, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if heads.B != 2 || heads.S != 3 || heads.H != 4 || heads.D != 2 {
		t.Fatalf("4 heads of 2 sequences in %v: %s", m, heads.Shape())
	}
	for b := range 2 {
		for i := range 3 {
			for h := range 4 {
				row := heads.Row(b, i, h)
				if &row[0] != &m.Row(3*b + i)[2*h] {
					t.Fatalf("sequence %d, row %d, head %d is not row %d from column %d on", b, i, h, 3*b+i, 2*h)
				}
			}
		}
	}
	joined, err := Combine(heads)
	if err != nil {
		t.Fatal(err)
	}
	if &joined.Data[0] != &m.Data[0] || joined.Rows != m.Rows || joined.Cols != m.Cols || joined.Stride != m.Stride {
		t.Errorf("joined: %v, stride %d; want %v, stride %d", joined, joined.Stride, m, m.Stride)
	}
	for _, shape := range [][4]int{{1, 1, 4, 2}, {3, 1, 4, 2}, {1, 5, 1, 2}} {
		m := random(r, shape[0]*shape[1], shape[2]*shape[3], 1)
		heads, err := Split(m, shape[0], shape[2])
		if err != nil {
			t.Fatal(err)
		}
		joined, err := Combine(heads)
		if err != nil {
			t.Errorf("%v: %v", shape, err)
			continue
		}
		for i := range m.Rows {
			if &joined.Row(i)[0] != &m.Row(i)[0] || len(joined.Row(i)) != len(m.Row(i)) {
				t.Errorf("%v: row %d lies elsewhere", shape, i)
			}
		}
	}
	for _, n := range [][2]int{{0, 1}, {4, 1}, {2, 3}, {2, 0}} {
		if _, err := Split(m, n[0], n[1]); !errors.Is(err, ErrShape) {
			t.Errorf("%d sequences of %d heads in %v: %v", n[0], n[1], m, err)
		}
	}
	apart := attn.New(attn.BSHD, 2, 3, 4, 2)
	apart.SB *= 2
	same := attn.New(attn.BSHD, 1, 3, 4, 2)
	same.SS = 0
	for name, bad := range map[string]attn.Tensor{
		"one head after another": attn.New(attn.BHSD, 2, 3, 4, 2), "half precision": attn.NewTyped(attn.F16, attn.BSHD, 2, 3, 4, 2), "gaps": apart, "one row for all": same,
	} {
		if _, err := Combine(bad); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// roundings returns the error of a float32 sum of products, relative to the sum of the products'
// sizes.
func roundings(terms int) float64 { return 0x1p-24 * (math.Sqrt(float64(terms)) + 4) }

// productNear compares a matrix with the product of two others.
func productNear(t *testing.T, what string, got, a, b Mat) {
	t.Helper()
	for i := range a.Rows {
		for j := range b.Cols {
			want, size := 0.0, 0.0
			for k := range a.Cols {
				x := float64(a.Row(i)[k]) * float64(b.Row(k)[j])
				want += x
				size += math.Abs(x)
			}
			if d := math.Abs(float64(got.Row(i)[j]) - want); !(d <= roundings(a.Cols)*size) {
				t.Fatalf("%s: element %d, %d is off by %v, want at most %v", what, i, j, d, roundings(a.Cols)*size)
			}
		}
	}
}

// TestDecompose checks the decomposition of a layer. Every head has its projections; its weights
// are the softmax of its scores over the visible keys. The heads' outputs and the bias add up to
// the layer's output, and so does SumOverHeads.
func TestDecompose(t *testing.T) {
	for _, test := range []struct {
		heads, kv, memory int
		mask              attn.Mask
		bias              bool
	}{{1, 1, 0, attn.Full(), false}, {4, 4, 0, attn.Causal(), true}, {4, 2, 0, attn.Full(), true}, {4, 1, 7, attn.Full(), true}, {2, 2, 7, attn.Causal(), false}} {
		r := rand.New(rand.NewPCG(52, uint64(test.heads)))
		l, err := NewAttention("att", 8, test.heads, test.kv, test.bias, r)
		if err != nil {
			t.Fatal(err)
		}
		l.Mask, l.Cross = test.mask, test.memory > 0
		if test.bias {
			l.Out.B.Normal(r, 1)
		}
		x := random(r, 10, 8, 0)
		m := x
		on := On{Kernel: kernels.All()[0], Products: NewMultiplier(asm.Levels()[0].Ops, nil)}
		if test.memory > 0 {
			m = random(r, 2*test.memory, 8, 0)
			on.Memory = &Param{W: m}
		}
		pass, _, err := l.Plan(on, Shape{2, 5, 8})
		if err != nil {
			t.Fatal(err)
		}
		p := pass.(*AttentionPass)
		if _, err := p.Decompose(0); err == nil {
			t.Error("before Forward: no error")
		}
		y, sum := p.Forward(x), p.SumOverHeads()
		keys := m.Rows / 2
		for _, b := range []int{-1, 2} {
			if _, err := p.Decompose(b); err == nil {
				t.Errorf("sequence %d of 2: no error", b)
			}
		}
		for b := range 2 {
			all, err := p.Decompose(b)
			if err != nil {
				t.Fatal(err)
			}
			for h, a := range all {
				wq, wk, wv, wo := l.HeadWeights(h)
				productNear(t, "Q", a.Q, x.Part(5*b, 5, 0, 8), wq) // the biases of these are 0
				productNear(t, "K", a.K, m.Part(keys*b, keys, 0, 8), wk)
				productNear(t, "V", a.V, m.Part(keys*b, keys, 0, 8), wv)
				productNear(t, "Y", a.Y, a.O, wo)
				for i := range 5 {
					last := keys - 1
					if test.mask.Band { // the last query sees the last key
						last = keys - 5 + i
					}
					z, want := 0.0, make([]float64, a.V.Cols)
					for j := range keys {
						s := 0.0
						for c, q := range a.Q.Row(i) {
							s += float64(q) * float64(a.K.Row(j)[c]) / math.Sqrt(float64(a.Q.Cols))
						}
						if j > last {
							if a.Weights.At(i, j) != 0 || !math.IsInf(a.Scores.At(i, j), -1) {
								t.Fatalf("head %d: weight of key %d, which query %d does not see, is %v, its score %v", h, j, i, a.Weights.At(i, j), a.Scores.At(i, j))
							}
							continue
						}
						if math.Abs(a.Scores.At(i, j)-s) > 1e-6*(1+math.Abs(s)) {
							t.Fatalf("head %d: score of %d, %d is %v, want %v", h, i, j, a.Scores.At(i, j), s)
						}
						z += math.Exp(s)
						for c, v := range a.V.Row(j) {
							want[c] += math.Exp(s) * float64(v)
						}
					}
					if math.Abs(a.LSE[i]-math.Log(z)) > 1e-6*(1+math.Abs(a.LSE[i])) {
						t.Fatalf("head %d: LSE of row %d is %v, want %v", h, i, a.LSE[i], math.Log(z))
					}
					for c := range want {
						if d := math.Abs(float64(a.O.Row(i)[c]) - want[c]/z); !(d <= 2e-6) {
							t.Fatalf("head %d: output %d, %d is off by %v", h, i, c, d)
						}
					}
				}
			}
			for i := range 5 {
				for c := range 8 {
					want, size := 0.0, 0.0
					if test.bias {
						want = float64(l.Out.B.W.Row(0)[c])
						size = math.Abs(want)
					}
					for _, a := range all {
						want += float64(a.Y.Row(i)[c])
						for k, o := range a.O.Row(i) {
							size += math.Abs(float64(o) * float64(l.Out.W.W.Row(k)[c]))
						}
					}
					size += math.Abs(want)
					for name, got := range map[string]float32{"y": y.Row(5*b + i)[c], "the sum over heads": sum.Row(5*b + i)[c]} {
						if d := math.Abs(float64(got) - want); !(d <= 4*roundings(8)*size) {
							t.Fatalf("%+v: element %d, %d of %s is off the sum of the heads' parts by %v", test, i, c, name, d)
						}
					}
				}
			}
		}
	}
}

// TestDecomposeLinear checks that linear attention, which has no softmax, is not decomposed.
func TestDecomposeLinear(t *testing.T) {
	l, err := NewAttention("att", 8, 2, 2, false, rand.New(rand.NewPCG(52, 1)))
	if err != nil {
		t.Fatal(err)
	}
	l.Linear = &attn.Linear{}
	kernel, err := kernels.ByName("linear", "go")
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(asm.Levels()[0].Ops, nil)}, Shape{1, 3, 8})
	if err != nil {
		t.Fatal(err)
	}
	p.Forward(NewMat(3, 8))
	if _, err := p.(*AttentionPass).Decompose(0); err == nil || !strings.Contains(err.Error(), "linear attention") {
		t.Errorf("decomposed: %v", err)
	}
}

// TestHeadWeights checks that writing a matrix for each head writes the layer's weights, fused or
// not.
func TestHeadWeights(t *testing.T) {
	for _, fused := range []bool{false, true} {
		l, err := NewAttention("att", 8, 4, 2, false, rand.New(rand.NewPCG(53, 1)))
		if err != nil {
			t.Fatal(err)
		}
		wq, wk, wv := l.Q.W.W, l.K.W.W, l.V.W.W
		if fused {
			l.Fuse()
			w := l.QKV.W.W
			wq, wk, wv = w.Part(0, 8, 0, 8), w.Part(0, 8, 8, 4), w.Part(0, 8, 12, 4)
		}
		for h := range 4 {
			q, k, v, o := l.HeadWeights(h)
			if &q.Row(3)[0] != &wq.Row(3)[2*h] || &k.Row(3)[1] != &wk.Row(3)[h/2*2+1] || &v.Row(3)[1] != &wv.Row(3)[h/2*2+1] || &o.Row(1)[5] != &l.Out.W.W.Row(2*h + 1)[5] {
				t.Errorf("head %d has others' weights, fused %v", h, fused)
			}
			if q.Rows != 8 || q.Cols != 2 || k.Cols != 2 || v.Cols != 2 || o.Rows != 2 || o.Cols != 8 {
				t.Errorf("head %d has W_Q of %v, W_K of %v, W_V of %v, W_O of %v, fused %v", h, q, k, v, o, fused)
			}
		}
	}
}

func TestDiversity(t *testing.T) {
	eye, back := mat.NewDense(2, 2, []float64{1, 0, 0, 1}), mat.NewDense(2, 2, []float64{0, 1, 1, 0})
	even, none := mat.NewDense(2, 2, []float64{0.5, 0.5, 0.5, 0.5}), mat.NewDense(2, 2, nil)
	for _, test := range []struct {
		name     string
		patterns []*mat.Dense
		want     float64
	}{
		{"no head", nil, 0},
		{"one head", []*mat.Dense{eye}, 0},
		{"heads alike", []*mat.Dense{even, even, even}, 0},
		{"other keys", []*mat.Dense{eye, back}, 1},
		{"a head that sees all, and one key", []*mat.Dense{eye, even}, 1 - 1/math.Sqrt2},
		{"three heads", []*mat.Dense{eye, back, even}, 1 - math.Sqrt2/3},
		{"nothing seen, by two", []*mat.Dense{none, none}, 0},
		{"nothing seen, by one", []*mat.Dense{none, eye}, 1},
	} {
		if got := Diversity(test.patterns); math.Abs(got-test.want) > 1e-15 {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	got := HeadEntropies([]*mat.Dense{eye, even, mat.NewDense(2, 2, []float64{1, 0, 0.5, 0.5})})
	for h, want := range []float64{0, math.Ln2, math.Ln2 / 2} {
		if math.Abs(got[h]-want) > 1e-15 {
			t.Errorf("entropy of head %d is %v, want %v", h, got[h], want)
		}
	}
}

// TestPatterns checks that the patterns of a kernel's weights equal the decomposed layer's.
func TestPatterns(t *testing.T) {
	w := attn.New(attn.BHSD, 2, 3, 2, 4)
	for i := range w.Data {
		w.Data[i] = float32(i)
	}
	all := Patterns(w, 1)
	if len(all) != 2 || all[1].At(2, 3) != 47 || all[0].At(1, 0) != 28 {
		t.Errorf("patterns of entry 1: %v", all)
	}
}

// TestCountAttention checks that the closed form counts the parameters of a layer.
func TestCountAttention(t *testing.T) {
	for _, test := range []struct {
		dim, heads, kv int
		bias           bool
		want           int
	}{{64, 8, 8, false, 16384}, {64, 1, 1, false, 16384}, {64, 8, 8, true, 16384 + 4*64}, {512, 8, 8, false, 1048576}, {64, 8, 2, false, 2*4096 + 2*64*16}, {64, 8, 1, true, 2*65*64 + 2*65*8}} {
		l, err := NewAttention("a", test.dim, test.heads, test.kv, test.bias, rand.New(rand.NewPCG(54, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got, has := CountAttention(test.dim, test.heads, test.kv, test.bias, true), Count(l.Params()); got != test.want || has != test.want {
			t.Errorf("%+v: counted %d, the layer has %d", test, got, has)
		}
	}
	if got := CountAttention(64, 1, 1, false, false); got != 12288 {
		t.Errorf("without W_O %d, want 12288", got)
	}
}
