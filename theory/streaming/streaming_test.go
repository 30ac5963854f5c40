package streaming_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"attnlab/theory/streaming"
)

var inf, nan = math.Inf(1), math.NaN()

func matrix(r *rand.Rand, rows, columns int) *mat.Dense {
	m := mat.NewDense(rows, columns, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return r.NormFloat64() }, m)
	return m
}

// plain returns softmax attention as defined: all scores, then all weights, then the output.
func plain(q, k, v *mat.Dense, scale float64, sees func(i, j int) bool) (out *mat.Dense, lse []float64) {
	nq, _ := q.Dims()
	nk, dv := v.Dims()
	out = mat.NewDense(nq, dv, nil)
	for i := range nq {
		z := 0.0
		for j := range nk {
			if sees(i, j) {
				w := math.Exp(scale * floats.Dot(q.RawRowView(i), k.RawRowView(j)))
				z += w
				floats.AddScaled(out.RawRowView(i), w, v.RawRowView(j))
			}
		}
		if z > 0 {
			floats.Scale(1/z, out.RawRowView(i))
		}
		lse = append(lse, math.Log(z))
	}
	return out, lse
}

// near requires |got-want| <= bound; equal infinities are equal, and NaN equals NaN.
func near(t rapid.TB, what string, got, want []float64, bound float64) {
	t.Helper()
	for i := range want {
		if len(got) != len(want) || !(got[i] == want[i] || math.Abs(got[i]-want[i]) <= bound || math.IsNaN(got[i]) && math.IsNaN(want[i])) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

func all(int, int) bool        { return true }
func causal(i, j int) bool     { return j <= i }
func everyThird(i, j int) bool { return j%3 == 0 && i != 2 } // query 2 sees nothing

// TestAttend checks attention in blocks of many sizes against plain attention.
func TestAttend(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 7, 20} {
		q, k, v := matrix(r, n, 4), matrix(r, n+3, 4), matrix(r, n+3, 2)
		for name, sees := range map[string]func(i, j int) bool{"all": all, "causal": causal, "every third": everyThird} {
			for _, block := range []int{0, 1, 2, 5, 1000} {
				for _, scale := range []float64{0, .3} {
					got, lse := streaming.Attend(q, k, v, streaming.Options{Scale: scale, Block: block, Mask: sees})
					if scale == 0 {
						scale = .5 // 1/sqrt(4)
					}
					want, wantLSE := plain(q, k, v, scale, sees)
					near(t, name+": O", got.RawMatrix().Data, want.RawMatrix().Data, 1e-14)
					near(t, name+": LSE", lse, wantLSE, 1e-14)
				}
			}
		}
	}
}

// TestMasksSelect checks that a hidden key has no effect, whatever it holds.
func TestMasksSelect(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	q, k, v, dO := matrix(r, 5, 3), matrix(r, 9, 3), matrix(r, 9, 2), matrix(r, 5, 2)
	o := streaming.Options{Block: 2, Mask: everyThird}
	out, lse := streaming.Attend(q, k, v, o)
	dq, dk, dv := streaming.Backward(q, k, v, out, lse, dO, o)
	for j := range 9 {
		if j%3 != 0 {
			k.SetRow(j, []float64{nan, inf, -inf})
			v.SetRow(j, []float64{nan, inf})
		}
	}
	again, lseAgain := streaming.Attend(q, k, v, o)
	near(t, "O", again.RawMatrix().Data, out.RawMatrix().Data, 0)
	near(t, "LSE", lseAgain, lse, 0)
	near(t, "the query that sees nothing", again.RawRowView(2), []float64{0, 0}, 0)
	dq2, dk2, dv2 := streaming.Backward(q, k, v, out, lse, dO, o)
	near(t, "dQ", dq2.RawMatrix().Data, dq.RawMatrix().Data, 0)
	near(t, "dK", dk2.RawMatrix().Data, dk.RawMatrix().Data, 0)
	near(t, "dV", dv2.RawMatrix().Data, dv.RawMatrix().Data, 0)
	near(t, "dK of a hidden key", dk2.RawRowView(1), []float64{0, 0, 0}, 0)
}

// TestLargeScores checks that no score is too large, since no exponential is larger than 1.
func TestLargeScores(t *testing.T) {
	s := streaming.NewState(1)
	s.Push([]float64{1e4, -1e4}, mat.NewDense(2, 1, []float64{1, 2}))
	s.Push([]float64{1e4 + math.Log(3)}, mat.NewDense(1, 1, []float64{5}))
	near(t, "output", s.Output(), []float64{4}, 1e-9)
	near(t, "LSE", []float64{s.LSE()}, []float64{1e4 + math.Log(4)}, 1e-9)
}

// TestInfinities checks infinite scores and NaN against package attn, block by block.
func TestInfinities(t *testing.T) {
	for _, c := range []struct {
		name   string
		scores []float64
		out    float64
		lse    float64
	}{
		{"none", nil, 0, -inf},
		{"all hidden", []float64{-inf, -inf}, 0, -inf},
		{"one hidden", []float64{-inf, 0}, 2, 0},
		{"hidden last", []float64{0, -inf}, 1, 0},
		{"one takes all", []float64{0, inf, 3}, 2, inf},
		{"one takes all at once", []float64{inf}, 1, inf},
		{"two cannot", []float64{inf, 0, inf}, nan, nan},
		{"NaN", []float64{0, nan}, nan, nan},
		{"NaN first", []float64{nan, 0}, nan, nan},
	} {
		values := []float64{1, 2, 3}
		for _, block := range []int{1, 3} {
			s := streaming.NewState(1)
			for from := 0; from < len(c.scores); from += block {
				to := min(from+block, len(c.scores))
				s.Push(c.scores[from:to], mat.NewDense(to-from, 1, slices.Clone(values[from:to])))
			}
			near(t, c.name+": output", s.Output(), []float64{c.out}, 0)
			near(t, c.name+": LSE", []float64{s.LSE()}, []float64{c.lse}, 0)
		}
	}
}

// TestAnySplit checks that any split of the keys into blocks, pushed or merged in any order, gives
// the softmax over all keys.
func TestAnySplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "keys")
		scores := rapid.SliceOfN(rapid.Float64Range(-50, 50), n, n).Draw(t, "scores")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		values := matrix(r, n, 2)
		z, want := 0.0, make([]float64, 2)
		for j, s := range scores {
			z += math.Exp(s)
			floats.AddScaled(want, math.Exp(s), values.RawRowView(j))
		}
		floats.Scale(1/z, want)

		pushed := streaming.NewState(2)
		var parts []streaming.State
		for from := 0; from < n; {
			to := from + rapid.IntRange(1, n-from).Draw(t, "block")
			part := streaming.NewState(2)
			part.Push(scores[from:to], values.Slice(from, to, 0, 2))
			parts = append(parts, part)
			pushed.Push(scores[from:to], values.Slice(from, to, 0, 2))
			from = to
		}
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		merged := streaming.NewState(2)
		for _, p := range parts {
			merged = streaming.Merge(p, merged)
		}
		for _, s := range []streaming.State{pushed, merged} {
			near(t, "output", s.Output(), want, 1e-13)
			near(t, "LSE", []float64{s.LSE()}, []float64{math.Log(z)}, 1e-12)
			if s.Max != slices.Max(scores) || s.Sum < 1 || s.Sum > float64(n) {
				t.Fatalf("m is %v and l is %v, of %d keys", s.Max, s.Sum, n)
			}
		}
		if x, y := streaming.Merge(parts[0], merged), streaming.Merge(merged, parts[0]); x.Sum != y.Sum || !slices.Equal(x.Acc, y.Acc) {
			t.Fatalf("merged %+v and %+v", x, y)
		}
	})
}

// TestMergeLeavesItsOperands checks that neither pushing nor merging changes its operands.
func TestMergeLeavesItsOperands(t *testing.T) {
	x, y := streaming.NewState(1), streaming.NewState(1)
	x.Push([]float64{1}, mat.NewDense(1, 1, []float64{2}))
	y.Push([]float64{3}, mat.NewDense(1, 1, []float64{4}))
	z := streaming.Merge(x, y)
	z.Push([]float64{5}, mat.NewDense(1, 1, []float64{6}))
	near(t, "x", append(x.Output(), x.LSE()), []float64{2, 1}, 0)
	near(t, "y", append(y.Output(), y.LSE()), []float64{4, 3}, 0)
}

// TestBackward checks the gradients in blocks of many sizes against differences.
func TestBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const nq, nk, d, dv = 5, 7, 3, 2
	q, k, v, dO := matrix(r, nq, d), matrix(r, nk, d), matrix(r, nk, dv), matrix(r, nq, dv)
	for name, sees := range map[string]func(i, j int) bool{"all": all, "causal": causal, "every third": everyThird} {
		for _, scale := range []float64{0, .7} {
			o := streaming.Options{Scale: scale, Mask: sees}
			loss := func(x []float64) float64 {
				out, _ := streaming.Attend(mat.NewDense(nq, d, x[:nq*d]), mat.NewDense(nk, d, x[nq*d:][:nk*d]), mat.NewDense(nk, dv, x[(nq+nk)*d:]), o)
				return floats.Dot(out.RawMatrix().Data, dO.RawMatrix().Data)
			}
			at := slices.Concat(q.RawMatrix().Data, k.RawMatrix().Data, v.RawMatrix().Data)
			want := fd.Gradient(nil, loss, at, &fd.Settings{Formula: fd.Central})
			for _, block := range []int{1, 2, 64} {
				o.Block = block
				out, lse := streaming.Attend(q, k, v, o)
				x, y, z := streaming.Backward(q, k, v, out, lse, dO, o)
				near(t, name, slices.Concat(x.RawMatrix().Data, y.RawMatrix().Data, z.RawMatrix().Data), want, 1e-8)
			}
		}
	}
}

// TestShapes checks that a panic names the operand that does not fit.
func TestShapes(t *testing.T) {
	m := func(r, c int) *mat.Dense { return mat.NewDense(r, c, nil) }
	for says, f := range map[string]func(){
		"K has 2 columns": func() { streaming.Attend(m(1, 3), m(4, 2), m(4, 2), streaming.Options{}) },
		"V has 5 rows":    func() { streaming.Attend(m(1, 3), m(4, 3), m(5, 2), streaming.Options{}) },
		"LSE has 2 rows": func() {
			streaming.Backward(m(1, 3), m(4, 3), m(4, 2), m(1, 2), []float64{0, 0}, m(1, 2), streaming.Options{})
		},
		"2 scores":             func() { s := streaming.NewState(1); s.Push([]float64{1, 2}, m(1, 1)) },
		"of 1 and of 2 column": func() { streaming.Merge(streaming.NewState(1), streaming.NewState(2)) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, says) {
					t.Errorf("panics with %q, want %q in it", got, says)
				}
			}()
			f()
		}()
	}
}
