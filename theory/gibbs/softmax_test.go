package gibbs

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

var (
	inf    = math.Inf(1)
	hidden = math.Inf(-1)
	nan    = math.NaN()
	most   = math.MaxFloat64
)

// same requires that numbers are within tol of each other, that infinities are equal, and that NaNs
// match NaNs.
func same(t rapid.TB, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, x := range got {
		if !(x == want[i] || math.Abs(x-want[i]) <= tol || math.IsNaN(x) && math.IsNaN(want[i])) {
			t.Fatalf("%s: got %v, want %v (number %d is off by %g, more than %g)", what, got, want, i, x-want[i], tol)
		}
	}
}

func one(t rapid.TB, what string, got, want, tol float64) {
	t.Helper()
	same(t, what, []float64{got}, []float64{want}, tol)
}

// someScores draws the scores of a row, some hidden.
func someScores(t *rapid.T) []float64 {
	s := rapid.SliceOfN(rapid.Float64Range(-30, 30), 1, 12).Draw(t, "scores")
	for j := range s[1:] {
		if rapid.IntRange(0, 4).Draw(t, "hidden") == 0 {
			s[j+1] = hidden
		}
	}
	return s
}

func someTemperature(t *rapid.T) float64 { return rapid.Float64Range(0.1, 10).Draw(t, "temperature") }

// TestSoftmax checks weights at known scores, in both limits and at the ends of float64.
func TestSoftmax(t *testing.T) {
	third := 1.0 / 3
	e := math.Exp(-1)
	for _, c := range []struct {
		name string
		s    []float64
		t    float64
		want []float64
	}{
		{"printed in the lesson", []float64{1, 2, 3, 4, 1}, 1, []float64{.03106277, .08443737, .22952458, .6239125, .03106277}},
		{"cold", []float64{1, 2, 3, 4}, .1, []float64{0, 0, 4.54e-5, .9999546}},
		{"hot", []float64{1, 2, 3, 4}, 10, []float64{.21383822, .23632778, .26118259, .28865141}},
		{"limit of cold", []float64{1, 5, 2}, 0, []float64{0, 1, 0}},
		{"limit of cold, ties", []float64{2, 2, 0}, 0, []float64{.5, .5, 0}},
		{"limit of cold, all tie", []float64{-7, -7, -7}, 0, []float64{third, third, third}},
		{"limit of hot", []float64{1, 5, 2}, inf, []float64{third, third, third}},
		{"limit of hot, one hidden", []float64{1, hidden, 2}, inf, []float64{.5, 0, .5}},
		{"limit of cold, one hidden", []float64{1, hidden, 2}, 0, []float64{0, 0, 1}},
		{"one hidden", []float64{3, hidden, 3}, 1, []float64{.5, 0, .5}},
		{"all hidden", []float64{hidden, hidden}, 1, []float64{0, 0}},
		{"all hidden, cold", []float64{hidden, hidden}, 0, []float64{0, 0}},
		{"all hidden, hot", []float64{hidden, hidden}, inf, []float64{0, 0}},
		{"no state", nil, 1, nil},
		{"no state and no temperature", nil, nan, nil},
		{"one state", []float64{-1e300}, 1, []float64{1}},
		{"one takes all", []float64{1e308, inf, hidden}, 1, []float64{0, 1, 0}},
		{"one takes all, hot", []float64{1, inf, 2}, inf, []float64{0, 1, 0}},
		{"one takes all, cold", []float64{1, inf, 2}, 0, []float64{0, 1, 0}},
		{"two infinities", []float64{inf, inf, 1}, 1, []float64{nan, nan, nan}},
		{"NaN", []float64{nan, 1}, 1, []float64{nan, nan}},
		{"NaN behind", []float64{1, nan}, 0, []float64{nan, nan}},
		{"below zero", []float64{1, 2}, -1, []float64{nan, nan}},
		{"no temperature", []float64{1, 2}, nan, []float64{nan, nan}},
		{"large", []float64{1e4, 1e4 - 1}, 1, []float64{1 / (1 + e), e / (1 + e)}},
		{"largest", []float64{most, -most}, 1, []float64{1, 0}},
		{"largest and hottest", []float64{most, -most}, most, []float64{1 / (1 + e*e), e * e / (1 + e*e)}},
		{"coldest", []float64{1, 1 + 1e-15}, 5e-324, []float64{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, "weights", Softmax(c.s, c.t), c.want, 6e-9) })
	}
}

// TestSoftmaxLimits checks that the limits are where finite temperatures lead.
func TestSoftmaxLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := someScores(t)
		for j, x := range s {
			s[j] = math.Round(x) // makes ties common and avoids small gaps
		}
		same(t, "cold", Softmax(s, 1e-3), Softmax(s, 0), 1e-300)
		same(t, "hot", Softmax(s, 1e12), Softmax(s, inf), 1e-10)
	})
}

// TestSoftmaxProperties checks that weights add up to 1, follow the order of the scores, and do not
// change if all scores shift or if scores and temperature scale together.
func TestSoftmaxProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		p := Softmax(s, temp)
		one(t, "sum", floats.Sum(p), 1, 1e-15*float64(len(s)))
		for i := range s {
			for j := range s {
				if s[i] < s[j] && !(p[i] <= p[j]*(1+1e-15)) {
					t.Fatalf("scores %v < %v have weights %v > %v", s[i], s[j], p[i], p[j])
				}
			}
			if (s[i] == hidden) != (p[i] == 0) {
				t.Fatalf("score %v has weight %v", s[i], p[i])
			}
		}
		shift := rapid.Float64Range(-100, 100).Draw(t, "shift")
		moved := slices.Clone(s)
		floats.AddConst(shift, moved)
		same(t, "shifted", Softmax(moved, temp), p, 1e-12)
		floats.Scale(8, s)
		if !slices.Equal(Softmax(s, 8*temp), p) {
			t.Fatal("scores and temperature times 8 changed a weight")
		}
	})
}

// TestLogSoftmax checks that the results are the logarithms of the weights, also where weights
// underflow.
func TestLogSoftmax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		logs, logZ := LogSoftmax(s, temp), LogPartition(s, temp)
		for j, p := range Softmax(s, temp) {
			one(t, "log of a weight", logs[j], math.Log(p), 1e-12)
			one(t, "score less log Z", logs[j], s[j]/temp-logZ, 1e-12)
		}
	})
	same(t, "small weights", LogSoftmax([]float64{0, -1e6}, 1), []float64{0, -1e6}, 0)
	same(t, "cold", LogSoftmax([]float64{2, 2, 0}, 0), []float64{-math.Ln2, -math.Ln2, hidden}, 1e-15)
	same(t, "hot", LogSoftmax([]float64{2, hidden, 0}, inf), []float64{-math.Ln2, hidden, -math.Ln2}, 1e-15)
	same(t, "hidden", LogSoftmax([]float64{hidden, hidden}, 1), []float64{hidden, hidden}, 0)
	same(t, "NaN", LogSoftmax([]float64{1, nan}, 1), []float64{nan, nan}, 0)
}

// TestLogPartition checks log Z at known scores and in both limits.
func TestLogPartition(t *testing.T) {
	for _, c := range []struct {
		name string
		s    []float64
		t    float64
		want float64
	}{
		{"two", []float64{0, 0}, 1, math.Ln2},
		{"example of the tutorial", []float64{math.Sqrt2 / 2, 0, math.Sqrt2 / 2}, 1, 1.62062114},
		{"no overflow", []float64{1000, 1000}, 1, 1000 + math.Ln2},
		{"no underflow", []float64{-1000, -1000}, 1, -1000 + math.Ln2},
		{"colder", []float64{2, 1, 0}, .5, 2 * 2.071466},
		{"hidden ones do not count", []float64{0, hidden, 0}, 1, math.Ln2},
		{"nothing visible", []float64{hidden}, 1, hidden},
		{"no state", nil, 1, hidden},
		{"no state and no temperature", nil, nan, hidden},
		{"infinite", []float64{1, inf}, 1, inf},
		{"infinite, hot", []float64{1, inf}, inf, inf},
		{"hot", []float64{1, 5, hidden, 2}, inf, math.Log(3)},
		{"cold, above 0", []float64{1, 5}, 0, inf},
		{"cold, below 0", []float64{-1, -5}, 0, hidden},
		{"cold, at 0", []float64{0, 0, -5}, 0, math.Ln2},
		{"NaN", []float64{nan}, 1, nan},
		{"below zero", []float64{1}, -1, nan},
	} {
		t.Run(c.name, func(t *testing.T) { one(t, "log Z", LogPartition(c.s, c.t), c.want, 1e-6) })
	}
}

// TestGibbs checks that Gibbs of energies is Softmax of the negative energies.
func TestGibbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, temp := someScores(t), someTemperature(t)
		e := slices.Clone(s)
		floats.Scale(-1, e)
		if !slices.Equal(Gibbs(e, temp), Softmax(s, temp)) {
			t.Fatal("energies are not scores with the sign turned")
		}
	})
}

// TestMask checks that a hidden score has no effect, whatever it was.
func TestMask(t *testing.T) {
	shown := func(j int) bool { return j != 1 }
	same(t, "mask", Mask([]float64{1, nan, 3}, shown), []float64{1, hidden, 3}, 0)
	p := Softmax(Mask([]float64{1, inf, 3}, shown), 1)
	same(t, "weights", p, []float64{1 / (1 + math.Exp(2)), 0, 1 / (1 + math.Exp(-2))}, 1e-15)
	causal := MaskRows(mat.NewDense(2, 2, []float64{1, 2, 3, 4}), func(i, j int) bool { return j <= i })
	same(t, "causal", causal.RawMatrix().Data, []float64{1, hidden, 3, 4}, 0)
}

// TestRows checks that each function of rows applies the function of a vector to every row, for any
// kind of matrix.
func TestRows(t *testing.T) {
	s := mat.NewDense(2, 3, []float64{1, 2, 3, 0, hidden, 5})
	for _, m := range []mat.Matrix{s, s.T().T(), mat.DenseCopyOf(s.T()).T()} {
		p := SoftmaxRows(m, .7)
		logs, g := LogSoftmaxRows(m, .7), GibbsRows(m, .7)
		for i := range 2 {
			row := s.RawRowView(i)
			w := Softmax(row, .7)
			same(t, "weights", p.RawRowView(i), w, 0)
			same(t, "logarithms", logs.RawRowView(i), LogSoftmax(row, .7), 0)
			same(t, "of energies", g.RawRowView(i), Gibbs(row, .7), 0)
			one(t, "log Z", LogPartitionRows(m, .7)[i], LogPartition(row, .7), 0)
			one(t, "free energy", FreeEnergyRows(m, .7)[i], FreeEnergy(row, .7), 0)
			one(t, "energy", ExpectedEnergyRows(p, m)[i], ExpectedEnergy(w, row), 0)
			one(t, "entropy", EntropyRows(p)[i], Entropy(w), 0)
			one(t, "normalised entropy", NormalizedEntropyRows(p)[i], NormalizedEntropy(w), 0)
			one(t, "effective states", EffectiveStatesRows(p)[i], EffectiveStates(w), 0)
			if !mat.Equal(Jacobians(p, .7)[i], Jacobian(w, .7)) {
				t.Errorf("Jacobian %d", i)
			}
		}
	}
	if p := SoftmaxRows(new(mat.Dense), 1); !p.IsEmpty() {
		t.Errorf("weights of an empty matrix: %v", p)
	}
	for name, f := range map[string]func(){
		"rows":    func() { ExpectedEnergyRows(s, mat.NewDense(1, 3, nil)) },
		"columns": func() { ExpectedEnergyRows(s, mat.NewDense(2, 2, nil)) },
	} {
		if !panics(f) {
			t.Errorf("weights and scores that differ in their %s were taken", name)
		}
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}
