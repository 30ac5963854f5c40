package scorers_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/scorers"
)

// example returns the first worked example of the source documents.
func example() (q, k, v *mat.Dense) {
	return mat.NewDense(2, 2, []float64{1, 0, 0, 1}), mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1}), mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
}

// normal returns a matrix of standard normal numbers.
func normal(r *rand.Rand, rows, cols int) *mat.Dense {
	m := mat.NewDense(rows, cols, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return r.NormFloat64() }, m)
	return m
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func near(t *testing.T, what string, got, want []float64, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] && !(math.Abs(got[i]-want[i]) <= bound) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func nearMat(t *testing.T, what string, got, want mat.Matrix, bound float64) {
	t.Helper()
	gr, gc := got.Dims()
	if r, c := want.Dims(); r != gr || c != gc {
		t.Fatalf("%s: %d by %d, want %d by %d", what, gr, gc, r, c)
	}
	near(t, what, mat.DenseCopyOf(got).RawMatrix().Data, mat.DenseCopyOf(want).RawMatrix().Data, bound)
}

// panicText returns the text of the panic of f, or "" if f returns.
func panicText(f func()) (text string) {
	defer func() {
		if x := recover(); x != nil {
			text, _ = x.(string)
		}
	}()
	f()
	return ""
}

// TestScores checks the scores of each scorer on the worked example.
func TestScores(t *testing.T) {
	q, k, _ := example()
	g := mat.NewDense(2, 2, []float64{2, .5, .5, 1})
	skew := mat.NewDense(2, 2, []float64{0, 1, 0, 0}) // joins q_0 with k_1, but not q_1 with k_0
	root := 1 / math.Sqrt2
	for _, c := range []struct {
		name string
		s    scorers.Scorer
		want []float64
	}{
		{"dot", scorers.Dot{}, []float64{root, 0, root, 0, root, root}},
		{"dot, its own scale", scorers.Dot{Scale: 3}, []float64{3, 0, 3, 0, 3, 3}},
		{"metric", scorers.Bilinear{M: g}, []float64{2, .5, 2.5, .5, 1, 1.5}},
		{"metric, scaled", scorers.Bilinear{M: g, Scale: -2}, []float64{-4, -1, -5, -1, -2, -3}},
		{"not symmetric", scorers.Bilinear{M: skew}, []float64{0, 1, 1, 0, 0, 0}},
		{
			"additive",
			scorers.Additive{U: mat.NewDense(1, 2, []float64{1, 2}), W: mat.NewDense(1, 2, []float64{-1, .5}), V: []float64{4}},
			[]float64{0, 4 * math.Tanh(1.5), 4 * math.Tanh(.5), 4 * math.Tanh(1), 4 * math.Tanh(2.5), 4 * math.Tanh(1.5)},
		},
	} {
		near(t, c.name, c.s.Scores(q, k).RawMatrix().Data, c.want, 1e-15)
	}
}

// TestRectangular checks a bilinear form of queries and keys of different lengths.
func TestRectangular(t *testing.T) {
	r := source(1)
	q, k, m := normal(r, 4, 2), normal(r, 5, 3), normal(r, 2, 3)
	var bent mat.Dense
	bent.Mul(q, m)
	nearMat(t, "scores", scorers.Bilinear{M: m, Scale: .5}.Scores(q, k), scorers.Dot{Scale: .5}.Scores(&bent, k), 1e-14)
}

// TestWorkedExample checks every stage of attention on the worked example.
func TestWorkedExample(t *testing.T) {
	q, k, v := example()
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	a, b, o := .40111209, .19777581, 1.20333628
	near(t, "weights", d.Weights.RawMatrix().Data, []float64{a, b, a, b, a, a}, 1e-8)
	near(t, "output", d.Output.RawMatrix().Data, []float64{o, 2 - o, 2 - o, o}, 1e-8)
	near(t, "log Z", d.LogPartition, []float64{1.62062114, 1.62062114}, 1e-8)
	near(t, "Z", d.Partition(), []float64{5.05622996, 5.05622996}, 1e-8)
	nearMat(t, "scores", d.Scores, d.Raw, 0)
	if d.Temp != 1 {
		t.Errorf("temperature %v, want 1", d.Temp)
	}
	nearMat(t, "Weights", scorers.Weights(d.Raw, scorers.Options{}), d.Weights, 0)
	nearMat(t, "Output", scorers.Output(d.Weights, v), d.Output, 0)
}

// TestAsDefined checks that the definition of package attn agrees, with masks and at every kind of
// temperature.
func TestAsDefined(t *testing.T) {
	r := source(2)
	q, k, v := bridge.Float32(normal(r, 5, 3)), bridge.Float32(normal(r, 7, 3)), bridge.Float32(normal(r, 7, 2))
	// The last query is at the position of the last key.
	causal := func(i, j int) bool { return j <= i+2 }
	sparse := func(i, j int) bool { return i != 3 && (i+j)%3 != 0 }
	for _, c := range []struct {
		name string
		mask attn.Mask
		show func(i, j int) bool
	}{
		{"full", attn.Full(), nil},
		{"causal", attn.Causal(), causal},
		{"bitmap, a row that sees nothing", attn.Full().With(attn.PackedBitmap), sparse},
	} {
		for _, temp := range []float64{0, 1, .25, 3, attn.Frozen, math.Inf(1)} {
			call := bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Mask: c.mask, Want: attn.WantWeights | attn.WantScores | attn.WantLSE}}
			call.Problem.Score.Temp = temp
			if temp == attn.Frozen {
				call.Problem.Want &^= attn.WantLSE
			}
			if c.mask.Bitmap != attn.NoBitmap {
				call.Args.Allowed = attn.Pack(5, 7, c.show)
			}
			want, err := bridge.Attention{}.Attend(call)
			if err != nil {
				t.Fatal(err)
			}
			d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: c.show, Temp: temp})
			within(t, c.name+", output", d.Output, want.O)
			within(t, c.name+", weights", d.Weights, want.Weights)
			within(t, c.name+", scores", d.Scores, want.Scores)
			if want.LSE.X != nil {
				within(t, c.name+", log Z", mat.NewDense(5, 1, d.LogPartition), want.LSE)
			}
		}
	}
}

// within requires that a matrix agrees with an answer up to its float32 tolerance.
func within(t *testing.T, what string, got *mat.Dense, want bridge.Values) {
	t.Helper()
	rows, cols := want.X.Dims()
	for i := range rows {
		for j := range cols {
			x, w := got.At(i, j), want.X.At(i, j)
			if x != w && !(math.Abs(x-w) <= want.Tol.At(i, j)) {
				t.Errorf("%s: (%d, %d) is %v, want %v within %v", what, i, j, x, w, want.Tol.At(i, j))
			}
		}
	}
}

// TestNothingSeen checks that a query that sees no key has zero weights and output, and log Z =
// -Inf.
func TestNothingSeen(t *testing.T) {
	q, k, v := example()
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: func(i, _ int) bool { return i == 1 }})
	near(t, "weights", d.Weights.RawRowView(0), []float64{0, 0, 0}, 0)
	near(t, "output", d.Output.RawRowView(0), []float64{0, 0}, 0)
	if !math.IsInf(d.LogPartition[0], -1) || d.Partition()[0] != 0 {
		t.Errorf("log Z %v, Z %v, want -Inf and 0", d.LogPartition[0], d.Partition()[0])
	}
	near(t, "the other row's log Z", d.LogPartition[1:], []float64{1.62062114}, 1e-8)
}

// TestMasksSelect checks that a hidden key has no effect, whatever it holds, and that a visible NaN
// reaches its own row alone.
func TestMasksSelect(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		q, k, v := example()
		k.SetRow(1, []float64{bad, bad})
		v.SetRow(1, []float64{bad, bad})
		d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: func(i, j int) bool { return i == 1 || j != 1 }})
		near(t, "weights", d.Weights.RawRowView(0), []float64{.5, 0, .5}, 1e-15)
		near(t, "output", d.Output.RawRowView(0), []float64{1.5, .5}, 1e-15)
		if x := d.Raw.At(0, 1); !math.IsNaN(x) && !math.IsInf(x, 1) {
			t.Errorf("raw score %v, want what the scorer made", x)
		}
		if x := d.Scores.At(0, 1); !math.IsInf(x, -1) {
			t.Errorf("hidden score %v, want -Inf", x)
		}
		if x := d.Output.At(1, 0); !math.IsNaN(x) && !math.IsInf(x, 1) {
			t.Errorf("output %v of the row that sees %v", x, bad)
		}
	}
}

// TestLimits checks weights and output in both limits of the temperature.
func TestLimits(t *testing.T) {
	raw, v := mat.NewDense(1, 3, []float64{2, 2, 0}), mat.NewDense(3, 1, []float64{3, 6, 9})
	for _, c := range []struct {
		temp    float64
		weights []float64
		out     float64
	}{
		{attn.Frozen, []float64{.5, .5, 0}, 4.5},
		{math.Inf(1), []float64{1. / 3, 1. / 3, 1. / 3}, 6},
	} {
		d := scorers.Decompose(raw, v, scorers.Options{Temp: c.temp})
		near(t, "weights", d.Weights.RawMatrix().Data, c.weights, 1e-16)
		near(t, "output", d.Output.RawMatrix().Data, []float64{c.out}, 1e-15)
		if d.Temp != c.temp {
			t.Errorf("temperature %v, want %v", d.Temp, c.temp)
		}
	}
}

// TestLargeScores checks that log Z is finite where Z overflows.
func TestLargeScores(t *testing.T) {
	d := scorers.Decompose(mat.NewDense(1, 2, []float64{1000, 1000}), mat.NewDense(2, 1, []float64{1, 3}), scorers.Options{})
	near(t, "log Z", d.LogPartition, []float64{1000 + math.Ln2}, 1e-12)
	near(t, "output", d.Output.RawMatrix().Data, []float64{2}, 0)
	if z := d.Partition()[0]; !math.IsInf(z, 1) {
		t.Errorf("Z is %v, want +Inf", z)
	}
}

// TestBatch checks that each entry of a batch is computed with its own options.
func TestBatch(t *testing.T) {
	r := source(3)
	var q, k, v []*mat.Dense
	for n := range 3 { // entries may differ in size
		q, k, v = append(q, normal(r, 2+n, 4)), append(k, normal(r, 5-n, 4)), append(v, normal(r, 5-n, 2))
	}
	each := func(b int) scorers.Options {
		return scorers.Options{Temp: float64(b + 1), Mask: func(_, j int) bool { return j != b }}
	}
	shared := scorers.AttendBatch(scorers.Dot{}, q, k, v, nil)
	for b, d := range scorers.AttendBatch(scorers.Dot{}, q, k, v, each) {
		nearMat(t, "output", d.Output, scorers.Attend(scorers.Dot{}, q[b], k[b], v[b], each(b)).Output, 0)
		nearMat(t, "without options", shared[b].Output, scorers.Attend(scorers.Dot{}, q[b], k[b], v[b], scorers.Options{}).Output, 0)
	}
}

// TestShapes checks that a panic names the operand that does not fit.
func TestShapes(t *testing.T) {
	m := func(r, c int) *mat.Dense { return mat.NewDense(r, c, nil) }
	add := scorers.Additive{U: m(5, 3), W: m(5, 4), V: make([]float64, 5)}
	for _, c := range []struct {
		name, text string
		f          func()
	}{
		{"dot", "Q has 3 columns and K has 4", func() { scorers.Dot{}.Scores(m(2, 3), m(2, 4)) }},
		{"M", "M is 4 by 3, and Q has 3 columns, K 4", func() { scorers.Bilinear{M: m(4, 3)}.Scores(m(2, 3), m(2, 4)) }},
		{"M of gradients", "M is 3 by 3", func() { scorers.Bilinear{M: m(3, 3)}.Gradients(m(2, 3), m(2, 4), m(2, 2)) }},
		{"dS", "dS is 2 by 3, want a row for each of 2 queries", func() { scorers.Bilinear{M: m(3, 4)}.Gradients(m(2, 3), m(2, 4), m(2, 3)) }},
		{"U", "U is 5 by 3, and V has 5 numbers, Q 4 columns", func() { add.Scores(m(2, 4), m(2, 4)) }},
		{"W", "W is 5 by 4, and V has 5 numbers, K 3 columns", func() { add.Scores(m(2, 3), m(2, 3)) }},
		{"units", "U is 5 by 3, and V has 6 numbers", func() { scorers.Additive{U: m(5, 3), W: m(5, 4), V: make([]float64, 6)}.Scores(m(2, 3), m(2, 4)) }},
		{"dS of additive", "dS is 3 by 2", func() { add.Gradients(m(2, 3), m(2, 4), m(3, 2)) }},
		{"values", "K has 4 rows and V has 3", func() { scorers.Attend(scorers.Dot{}, m(2, 3), m(4, 3), m(3, 1), scorers.Options{}) }},
		{"weights", "weights are for 4 keys and V has 3 rows", func() { scorers.Output(m(2, 4), m(3, 1)) }},
		{"batch", "1 entries of Q, 2 of K and 1 of V", func() {
			scorers.AttendBatch(scorers.Dot{}, []*mat.Dense{m(1, 1)}, []*mat.Dense{m(1, 1), m(1, 1)}, []*mat.Dense{m(1, 1)}, nil)
		}},
	} {
		if got := panicText(c.f); !strings.Contains(got, c.text) {
			t.Errorf("%s: panic %q, want one that says %q", c.name, got, c.text)
		}
	}
}

var central = &fd.Settings{Formula: fd.Central, Step: 1e-5}

// slope returns the gradient of f by the elements of m, by differences.
func slope(m *mat.Dense, f func() float64) []float64 {
	x := m.RawMatrix().Data
	keep := append([]float64(nil), x...)
	defer copy(x, keep)
	return fd.Gradient(nil, func(y []float64) float64 {
		copy(x, y)
		return f()
	}, keep, central)
}

// inner returns sum_ij a_ij b_ij.
func inner(a, b *mat.Dense) float64 { return floats.Dot(a.RawMatrix().Data, b.RawMatrix().Data) }

// TestBilinearGradients checks the gradients of a bilinear score against differences.
func TestBilinearGradients(t *testing.T) {
	r := source(4)
	q, k, m, dS := normal(r, 3, 2), normal(r, 4, 3), normal(r, 2, 3), normal(r, 3, 4)
	s := scorers.Bilinear{M: m, Scale: .7}
	loss := func() float64 { return inner(dS, s.Scores(q, k)) }
	g := s.Gradients(q, k, dS)
	for _, c := range []struct {
		name    string
		by, got *mat.Dense
	}{{"dQ", q, g.Q}, {"dK", k, g.K}, {"dM", m, g.M}} {
		near(t, c.name, c.got.RawMatrix().Data, slope(c.by, loss), 1e-8)
	}
}

// TestAdditiveGradients checks the gradients of an additive score against differences.
func TestAdditiveGradients(t *testing.T) {
	r := source(5)
	q, k, dS := normal(r, 3, 2), normal(r, 4, 3), normal(r, 3, 4)
	u, w, v := normal(r, 5, 2), normal(r, 5, 3), normal(r, 1, 5)
	s := scorers.Additive{U: u, W: w, V: v.RawRowView(0)}
	loss := func() float64 { return inner(dS, s.Scores(q, k)) }
	g := s.Gradients(q, k, dS)
	for _, c := range []struct {
		name string
		by   *mat.Dense
		got  []float64
	}{
		{"dQ", q, g.Q.RawMatrix().Data},
		{"dK", k, g.K.RawMatrix().Data},
		{"dU", u, g.U.RawMatrix().Data},
		{"dW", w, g.W.RawMatrix().Data},
		{"dV", v, g.V},
	} {
		near(t, c.name, c.got, slope(c.by, loss), 1e-8)
	}
}

// matrices draws matrices of the given size.
func matrices(rows, cols int) *rapid.Generator[*mat.Dense] {
	return rapid.Custom(func(t *rapid.T) *mat.Dense {
		return mat.NewDense(rows, cols, rapid.SliceOfN(rapid.Float64Range(-4, 4), rows*cols, rows*cols).Draw(t, "numbers"))
	})
}

// TestProperties checks that weights are a distribution, that outputs lie between the values, and
// that a temperature is a scale.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6)
		nq, nk, d := size.Draw(t, "queries"), size.Draw(t, "keys"), size.Draw(t, "d")
		q, k, v := matrices(nq, d).Draw(t, "Q"), matrices(nk, d).Draw(t, "K"), matrices(nk, 1).Draw(t, "V")
		temp := rapid.Float64Range(.1, 10).Draw(t, "T")
		a := scorers.Attend(scorers.Dot{Scale: .5}, q, k, v, scorers.Options{Temp: temp})
		b := scorers.Attend(scorers.Dot{Scale: .5 / temp}, q, k, v, scorers.Options{})
		low, high := mat.Min(v), mat.Max(v)
		for i := range nq {
			row := a.Weights.RawRowView(i)
			if floats.Min(row) < 0 || math.Abs(floats.Sum(row)-1) > 1e-14 {
				t.Fatalf("weights %v are not a distribution", row)
			}
			if o := a.Output.At(i, 0); o < low-1e-13 || o > high+1e-13 {
				t.Fatalf("output %v outside of the values, %v to %v", o, low, high)
			}
			if !floats.EqualApprox(row, b.Weights.RawRowView(i), 1e-9) {
				t.Fatalf("weights %v at temperature %v, and %v with the scale divided by it", row, temp, b.Weights.RawRowView(i))
			}
		}
	})
}

// TestKeysAlike checks that with equal keys the output is the mean of the values, for any scorer.
func TestKeysAlike(t *testing.T) {
	r := source(6)
	k := mat.NewDense(4, 3, nil)
	for j := range 4 {
		k.SetRow(j, []float64{1, -2, 3})
	}
	q, v := normal(r, 2, 3), normal(r, 4, 1)
	want := stat.Mean(mat.Col(nil, 0, v), nil)
	for _, s := range []scorers.Scorer{
		scorers.Dot{}, scorers.Bilinear{M: normal(r, 3, 3)}, scorers.Additive{U: normal(r, 2, 3), W: normal(r, 2, 3), V: []float64{1, -1}},
	} {
		near(t, "output", scorers.Attend(s, q, k, v, scorers.Options{}).Output.RawMatrix().Data, []float64{want, want}, 1e-15)
	}
}
