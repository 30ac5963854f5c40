package positions_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/theory/positions"
)

func row(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func matrix(r *rand.Rand, rows, columns int) *mat.Dense {
	return mat.NewDense(rows, columns, row(r, rows*columns))
}

func near(t rapid.TB, what string, got, want []float64, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= bound) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

// panicText returns the text of the panic of f.
func panicText(f func()) (text string) {
	defer func() {
		text, _ = recover().(string)
	}()
	f()
	return ""
}

// TestFrequencies checks the frequencies for even and odd dimensions.
func TestFrequencies(t *testing.T) {
	for _, c := range []struct {
		d    int
		base float64
		want []float64
	}{
		{4, 0, []float64{1, .01}},
		{4, 100, []float64{1, .1}},
		{3, 1000, []float64{1, .01}}, // an odd d has half a pair more
		{1, 0, []float64{1}},
		{0, 0, nil},
	} {
		near(t, "frequencies", positions.Frequencies(c.d, c.base), c.want, 1e-15)
	}
	near(t, "wavelengths", positions.Wavelengths(4, 100), []float64{2 * math.Pi, 20 * math.Pi}, 1e-13)
}

// TestSinusoid checks every element of the table against its formula.
func TestSinusoid(t *testing.T) {
	for d := 1; d <= 7; d++ {
		s := positions.Sinusoid{Dim: d, Base: 50}
		table := s.Table(20)
		for pos := range 20 {
			for c := range d {
				angle := float64(pos) * math.Pow(50, -float64(c-c%2)/float64(d))
				want := math.Sin(angle)
				if c%2 == 1 {
					want = math.Cos(angle)
				}
				if got := table.At(pos, c); !(math.Abs(got-want) <= 1e-13) {
					t.Fatalf("d = %d: PE(%d)[%d] = %v, want %v", d, pos, c, got, want)
				}
			}
		}
	}
}

// TestShift checks that shifts are a group of rotations that moves every position alike.
func TestShift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := positions.Sinusoid{Dim: 2 * rapid.IntRange(1, 8).Draw(t, "pairs"), Base: rapid.Float64Range(2, 1e5).Draw(t, "base")}
		pos, k, m := rapid.Float64Range(-100, 100).Draw(t, "pos"), rapid.Float64Range(-50, 50).Draw(t, "k"), rapid.Float64Range(-50, 50).Draw(t, "m")
		shift := func(k float64) *mat.Dense {
			x, err := s.Shift(k)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		apply := func(x mat.Matrix, v []float64) []float64 {
			var y mat.VecDense
			y.MulVec(x, mat.NewVecDense(len(v), v))
			return y.RawVector().Data
		}
		near(t, "T_k PE(pos)", apply(shift(k), s.At(pos)), s.At(pos+k), 1e-12)
		var both mat.Dense
		both.Mul(shift(k), shift(m))
		near(t, "T_k T_m", both.RawMatrix().Data, shift(k+m).RawMatrix().Data, 1e-12)
		near(t, "T_k^T", mat.DenseCopyOf(shift(k).T()).RawMatrix().Data, shift(-k).RawMatrix().Data, 0)
		near(t, "PE(pos).PE(pos+k)", []float64{floats.Dot(s.At(pos), s.At(pos+k))}, []float64{s.Product(k)}, 1e-12*float64(s.Dim))
	})
	for _, d := range []int{-2, 0, 5} {
		if _, err := (positions.Sinusoid{Dim: d}).Shift(1); err == nil || !strings.Contains(err.Error(), "even number") {
			t.Errorf("shift of %d numbers: %v, want an error that asks for an even number", d, err)
		}
	}
}

// TestRope checks that a rotation keeps norms, has its inverse at the negative position, and agrees
// with its matrix. It also checks that products depend on distance alone.
func TestRope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := positions.Rope{Dim: rapid.IntRange(1, 9).Draw(t, "dim"), Halves: rapid.Bool().Draw(t, "halves"), Base: rapid.Float64Range(2, 1e5).Draw(t, "base")}
		r.Turned = rapid.IntRange(0, r.Dim).Draw(t, "turned")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		q, k := row(rng, r.Dim), row(rng, r.Dim)
		m, n, shift := rapid.IntRange(-200, 200).Draw(t, "m"), rapid.IntRange(-200, 200).Draw(t, "n"), rapid.IntRange(-200, 200).Draw(t, "shift")

		before := slices.Clone(q)
		turned := r.Turn(q, float64(m))
		near(t, "the row itself", q, before, 0)
		near(t, "back again", r.Turn(turned, -float64(m)), q, 1e-13)
		near(t, "norm", []float64{floats.Norm(turned, 2)}, []float64{floats.Norm(q, 2)}, 1e-13)
		var y mat.VecDense
		y.MulVec(r.Matrix(float64(m)), mat.NewVecDense(r.Dim, q))
		near(t, "matrix", y.RawVector().Data, turned, 1e-13)
		near(t, "shifted", []float64{r.Score(q, k, m+shift, n+shift)}, []float64{r.Score(q, k, m, n)}, 1e-10)
		near(t, "R_m^T R_n = R_(n-m)", []float64{r.Score(q, k, m, n)}, []float64{floats.Dot(q, r.Turn(k, float64(n-m)))}, 1e-10)
	})
}

// TestRopeIsThatOfAttn checks that every way to pair elements agrees with attn.Rotate.
func TestRopeIsThatOfAttn(t *testing.T) {
	const rows, d = 30, 7
	rng := rand.New(rand.NewPCG(5, 6))
	x := matrix(rng, rows, d)
	from, to := attn.New(attn.BHSD, 1, rows, 1, d), attn.New(attn.BHSD, 1, rows, 1, d)
	for i := range rows {
		for c := range d {
			from.Row(0, i, 0)[c] = float32(x.At(i, c))
			x.Set(i, c, float64(float32(x.At(i, c))))
		}
	}
	for _, r := range []positions.Rope{{Dim: d}, {Dim: d, Halves: true}, {Dim: d, Turned: 4, Base: 300}, {Dim: d, Turned: 5, Halves: true}} {
		turned, base := d, 10000.0
		if r.Turned > 0 {
			turned = r.Turned
		}
		if r.Base > 0 {
			base = r.Base
		}
		cos, sin := attn.RopeTables(base, rows+3, turned)
		at := make([]int32, rows)
		for i := range at {
			at[i] = int32(i + 3)
		}
		if err := attn.Rotate(r.Kind(), to, from, cos, sin, at); err != nil {
			t.Fatal(err)
		}
		want := r.Rows(x, 3)
		wantCos, wantSin := r.Tables(rows)
		for i := range rows {
			got := make([]float64, d)
			for c := range got {
				got[c] = float64(to.Row(0, i, 0)[c])
			}
			near(t, "rotated", got, want.RawRowView(i), 1e-6)
			for c := range turned / 2 {
				near(t, "tables", []float64{float64(cos.Row(0, i, 0)[c]), float64(sin.Row(0, i, 0)[c])}, []float64{wantCos.At(i, c), wantSin.At(i, c)}, 0x1p-25)
			}
		}
	}
}

// TestBias checks that biases depend on the distance from the query's own position.
func TestBias(t *testing.T) {
	// Two queries, the last of which is at the position of the last of four keys.
	got := positions.Bias(func(distance int) float64 { return float64(distance) }, 2, 4)
	near(t, "distances", got.RawMatrix().Data, []float64{-2, -1, 0, 1, -3, -2, -1, 0}, 0)
	near(t, "ALiBi", positions.ALiBi(.5, 2, 4).RawMatrix().Data, []float64{-1, -.5, 0, -.5, -1.5, -1, -.5, 0}, 0)
	if got := positions.ALiBiScore(.5)([]float64{1, 2}, []float64{3, 4}, 7, 3); got != 11-2 {
		t.Errorf("ALiBi's score is %v, want 9", got)
	}
}

// TestT5 checks that the bias agrees with package attn and refuses the same arguments.
func TestT5(t *testing.T) {
	for _, both := range []bool{false, true} {
		const buckets, most, nq, nk = 8, 20, 40, 50
		table, table32 := make([]float64, buckets), make([]float32, buckets)
		for b := range table {
			table[b], table32[b] = float64(b*b), float32(b*b)
		}
		got, err := positions.T5(table, most, both, nq, nk)
		if err != nil {
			t.Fatal(err)
		}
		want, err := attn.T5Bias(table32, 1, buckets, most, both, nk-nq, nq, nk)
		if err != nil {
			t.Fatal(err)
		}
		for i := range nq {
			for j := range nk {
				if got.At(i, j) != float64(want.Row(0, i, 0)[j]) {
					t.Fatalf("both %v, query %d, key %d: %v, want %v", both, i, j, got.At(i, j), want.Row(0, i, 0)[j])
				}
			}
		}
	}
	for _, c := range []struct {
		buckets, most int
		both          bool
	}{{1, 10, false}, {3, 10, true}, {8, 4, false}, {8, 2, true}} {
		if _, err := positions.T5(make([]float64, c.buckets), c.most, c.both, 2, 2); err == nil || !strings.Contains(err.Error(), "want two or more on each side") {
			t.Errorf("%+v: %v, want an error that says what there must be", c, err)
		}
	}
}

// TestRelative checks tables of relative positions, clipped and not, against package attn.
func TestRelative(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const nq, nk, d = 3, 5, 4
	q := matrix(r, nq, d)
	for _, clip := range []int{0, 1, 2, 10} {
		rows := nq + nk - 1
		if clip > 0 {
			rows = 2*clip + 1
		}
		table, weights := matrix(r, rows, d), matrix(r, nq, nk)
		got, values := positions.Relative(q, table, nk, clip), positions.RelativeValues(weights, table, clip)
		p := attn.Problem{Batch: 1, SeqQ: nq, SeqKV: nk}
		a := attn.Args{Q: attn.Tensor{S: nq}, K: attn.Tensor{S: nk}, Terms: attn.Operands{RelativeClip: clip}}
		for i := range nq {
			want := make([]float64, d)
			for j := range nk {
				at := a.Relative(&p, 0, i, j) // as kernels compute it
				if x := positions.TableRow(i, j, nq, nk, clip); x != at {
					t.Errorf("clip %d: row (%d, %d) is %d, want %d", clip, i, j, x, at)
				}
				near(t, "q.r", []float64{got.At(i, j)}, []float64{floats.Dot(q.RawRowView(i), table.RawRowView(at))}, 1e-14)
				floats.AddScaled(want, weights.At(i, j), table.RawRowView(at))
			}
			near(t, "a r", values.RawRowView(i), want, 1e-14)
		}
	}
	for _, f := range []func(){
		func() { positions.Relative(q, mat.NewDense(nq+nk, d, nil), nk, 0) },
		func() { positions.RelativeValues(mat.NewDense(nq, nk, nil), mat.NewDense(2, d, nil), 1) },
	} {
		if got := panicText(f); !strings.Contains(got, "the table is") {
			t.Errorf("panics with %q, want the sizes of the table", got)
		}
	}
}

// TestXL checks the four terms, and that their sum equals the sum of terms that kernels have.
func TestXL(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	const nq, nk, d = 4, 6, 3
	q, k, table, u, v := matrix(r, nq, d), matrix(r, nk, d), matrix(r, nq+nk-1, d), row(r, d), row(r, d)
	terms := positions.XL(q, k, table, u, v)
	queries, bias := positions.XLAsTerms(q, table, u, v, nk)
	for i := range nq {
		for j := range nk {
			rel := table.RawRowView(j - i + nq - 1)
			want := []float64{
				floats.Dot(q.RawRowView(i), k.RawRowView(j)), floats.Dot(q.RawRowView(i), rel), floats.Dot(u, k.RawRowView(j)), floats.Dot(v, rel),
			}
			near(t, "terms", []float64{terms.Content.At(i, j), terms.Position.At(i, j), terms.GlobalContent.At(i, j), terms.GlobalPosition.At(i, j)}, want, 1e-14)
			near(t, "sum", []float64{terms.Sum().At(i, j)}, []float64{floats.Sum(want)}, 1e-14)
			others := floats.Dot(queries.RawRowView(i), k.RawRowView(j)) + floats.Dot(queries.RawRowView(i), rel) + bias.At(i, j)
			near(t, "as terms", []float64{others}, []float64{floats.Sum(want)}, 1e-13)
		}
	}
	if got := panicText(func() { positions.XL(q, k, table, u, v[:1]) }); !strings.Contains(got, "v 1") {
		t.Errorf("panics with %q, want the sizes of u and v", got)
	}
}

// TestSpread checks the spread of a known score, and the positions at which it is evaluated.
func TestSpread(t *testing.T) {
	seen := map[[2]int]bool{}
	score := func(_, _ []float64, m, n int) float64 { seen[[2]int{m, n}] = true; return float64(n * n) }
	if got := positions.Spread(score, nil, nil, 3, []int{-1, 0, 2}); got != 4 {
		t.Errorf("spread of squares of -1, 0, 2 is %v, want 4", got)
	}
	for _, at := range [][2]int{{2, -1}, {3, 0}, {5, 2}} {
		if !seen[at] {
			t.Errorf("no score of query %d and key %d", at[0], at[1])
		}
	}
}

// TestSpreadOfEncodings checks that additions to scores keep relative positions and additions to
// contents do not.
func TestSpreadOfEncodings(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	const d = 8
	q, k := row(r, d), row(r, d)
	shifts := []int{0, 1, 5, 50, 300}
	s, rope := positions.Sinusoid{Dim: d}, positions.Rope{Dim: d}
	for _, c := range []struct {
		name   string
		score  positions.Score
		lo, hi float64
	}{
		{"rotation", rope.Score, 0, 1e-11},
		{"ALiBi", positions.ALiBiScore(.25), 0, 0},
		{"sinusoid", s.Score, .1, 100},
	} {
		if got := positions.Spread(c.score, q, k, 4, shifts); !(got >= c.lo && got <= c.hi) {
			t.Errorf("%s: spread %v, want %v to %v", c.name, got, c.lo, c.hi)
		}
	}
}

// TestBigBird checks that the mask adds the right number of random keys to the fixed ones.
func TestBigBird(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, global := rapid.IntRange(1, 40).Draw(t, "n"), rapid.IntRange(0, 4).Draw(t, "global")
		width, random := rapid.IntRange(0, 8).Draw(t, "width"), rapid.IntRange(0, 6).Draw(t, "random")
		draw := func(seed uint64) attn.Bits {
			return positions.BigBird(n, global, width, random, rand.New(rand.NewPCG(seed, 0)))
		}
		p := attn.Problem{Mask: attn.Full().With(attn.PackedBitmap)}
		fixed, some := attn.Args{Allowed: attn.GlobalLocal(n, global, width)}, attn.Args{Allowed: draw(1)}
		for i := range n {
			least, seen := 0, 0
			for j := range n {
				if fixed.Shows(&p, 0, i, 0, j) {
					least++
					if !some.Shows(&p, 0, i, 0, j) {
						t.Fatalf("query %d does not see key %d, which is global or near", i, j)
					}
				}
				if some.Shows(&p, 0, i, 0, j) {
					seen++
				}
			}
			if want := min(least+random, n); seen != want {
				t.Fatalf("query %d sees %d keys, want %d", i, seen, want)
			}
		}
		if !slices.Equal(draw(1).Words, some.Allowed.Words) {
			t.Fatal("the same seed gives another mask")
		}
	})
}

// TestShapes checks that a panic names the operand that does not fit.
func TestShapes(t *testing.T) {
	for says, f := range map[string]func(){
		"a row of 3 numbers":       func() { positions.Rope{Dim: 4}.Turn(make([]float64, 3), 1) },
		"6 elements in rows of 4":  func() { positions.Rope{Dim: 4, Turned: 6}.Matrix(1) },
		"-2 elements in rows of 4": func() { positions.Rope{Dim: 4, Turned: -2}.Tables(1) },
		"a key of 2 numbers":       func() { positions.Sinusoid{Dim: 4}.Score(make([]float64, 4), make([]float64, 2), 0, 0) },
	} {
		if got := panicText(f); !strings.Contains(got, says) {
			t.Errorf("panics with %q, want %q in it", got, says)
		}
	}
}
