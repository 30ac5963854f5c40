package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func sample(t *rapid.T, name string, least int) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), least, 40).Draw(t, name)
}

// TestSummariseProperties checks the order of a summary's figures, and that the order and the unit
// of the values do not matter.
func TestSummariseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := sample(t, "xs", 1)
		before := slices.Clone(xs)
		s := Summarise(xs)
		if !slices.Equal(xs, before) {
			t.Fatal("the sample was reordered")
		}
		if s.N != len(xs) || s.Min != slices.Min(xs) || !(s.Lo <= s.Median && s.Median <= s.Hi) {
			t.Fatalf("%+v of %v", s, xs)
		}
		below, above := 0, 0
		for _, x := range xs {
			if x <= s.Median {
				below++
			}
			if x >= s.Median {
				above++
			}
		}
		if 2*below < len(xs) || 2*above < len(xs) {
			t.Fatalf("%v is no median of %v", s.Median, xs)
		}
		if finite := !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0); finite != (len(xs) >= 6) {
			t.Fatalf("%d values: interval %v to %v", len(xs), s.Lo, s.Hi)
		}
		if w := s.Width(); !(w >= 0) {
			t.Fatalf("width %v of %+v", w, s)
		}
	})
}

// TestSummariseEdges checks the summaries of few, equal and no values.
func TestSummariseEdges(t *testing.T) {
	if s := Summarise(nil); s.N != 0 || !math.IsNaN(s.Median) || !math.IsNaN(s.Min) || !math.IsInf(s.Width(), 1) {
		t.Errorf("no values: %+v", s)
	}
	if w := Summarise([]float64{0, 0, 0, 0, 0, 0}).Width(); w != 0 {
		t.Errorf("width of six zeros: %v", w)
	}
	if w := Summarise([]float64{9, 10, 10, 10, 10, 13}).Width(); !(math.Abs(w-0.3) <= 1e-12) {
		t.Errorf("width: got %v, want 0.3", w)
	}
}

// TestIntervalCalibration checks that the interval holds the true median as often as it says, for
// several distributions.
func TestIntervalCalibration(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range []struct {
		name   string
		draw   func() float64
		median float64
	}{
		{"normal", r.NormFloat64, 0},
		{"skewed", r.ExpFloat64, math.Ln2},
		{"heavy tails", func() float64 { return math.Tan(math.Pi * (r.Float64() - 0.5)) }, 0},
	} {
		for _, n := range []int{6, 10, 25} {
			const trials = 2000
			held := 0
			xs := make([]float64, n)
			for range trials {
				for i := range xs {
					xs[i] = d.draw()
				}
				if s := Summarise(xs); s.Lo <= d.median && d.median <= s.Hi {
					held++
				}
			}
			// Three standard deviations of a count of trials at the nominal level.
			if got, least := float64(held)/trials, Confidence-3*math.Sqrt(Confidence*(1-Confidence)/trials); !(got >= least) {
				t.Errorf("%s, n = %d: the interval held the median in %.3f of trials, want %.3f", d.name, n, got, least)
			}
		}
	}
}

// TestIntervalCalibrationOfStopping checks how often the interval holds the median if samples are
// taken until it is narrow, as a sweep does. It is then narrow by chance more often, and holds the
// median less often than an interval of a fixed number of samples.
func TestIntervalCalibrationOfStopping(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const trials, precision, least = 1000, 0.02, 0.89
	for name, draw := range map[string]func() float64{"normal": r.NormFloat64, "skewed": func() float64 { return r.ExpFloat64() - math.Ln2 }} {
		for _, spread := range []float64{0.01, 0.03, 0.08} {
			held, taken := 0, 0
			for range trials {
				var xs []float64
				for len(xs) < 6 || !(Summarise(xs).Width() <= precision) {
					xs = append(xs, 1+spread*draw())
				}
				taken += len(xs)
				if s := Summarise(xs); s.Lo <= 1 && 1 <= s.Hi {
					held++
				}
			}
			got := float64(held) / trials
			t.Logf("%s, %g: the interval held the median in %.3f of trials, of %.0f samples in the mean", name, spread, got, float64(taken)/trials)
			if got < least {
				t.Errorf("%s, %g: the interval held the median in %.3f of trials, want %.3f", name, spread, got, least)
			}
		}
	}
}

// TestRankTestCalibration checks that samples of one distribution are told apart no more often than
// the level allows, and that different ones are told apart.
func TestRankTestCalibration(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const trials, n, level = 1000, 10, 0.05
	draw := func(shift float64) []float64 {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = r.ExpFloat64() + shift
		}
		return xs
	}
	alarms, caught := 0, 0
	for range trials {
		if RankTest(draw(0), draw(0)) <= level {
			alarms++
		}
		if RankTest(draw(0), draw(2)) <= level {
			caught++
		}
	}
	if got, most := float64(alarms)/trials, level+3*math.Sqrt(level*(1-level)/trials); !(got <= most) {
		t.Errorf("false alarms: %.3f, want at most %.3f", got, most)
	}
	if got := float64(caught) / trials; !(got >= 0.95) {
		t.Errorf("a shift of two standard deviations caught in %.3f of trials", got)
	}
}

// TestRankTestEdges checks samples that are empty or equal.
func TestRankTestEdges(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{nil, nil, 1},
		{[]float64{1}, nil, 1},
		{[]float64{1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 1}, 1},
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2. / 70},
	} {
		if got := RankTest(c.a, c.b); !(math.Abs(got-c.want) <= 1e-12) {
			t.Errorf("RankTest(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestLeastP checks that LeastP is the probability of complete separation.
func TestLeastP(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for m := 1; m <= 9; m++ {
			var a, b []float64
			for i := range n {
				a = append(a, float64(i))
			}
			for i := range m {
				b = append(b, 100+float64(i))
			}
			if got, want := LeastP(n, m), RankTest(a, b); !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("LeastP(%d, %d) = %v, complete separation gives %v", n, m, got, want)
			}
		}
	}
	if LeastP(3, 3) <= 0.05 || LeastP(4, 4) > 0.05 {
		t.Error("four values a side are what a level of 0.05 takes")
	}
	if LeastP(0, 5) != 1 {
		t.Error("no values show no difference")
	}
}

// TestDelta checks relative changes, from zero among others.
func TestDelta(t *testing.T) {
	for _, c := range []struct{ old, new, want float64 }{
		{10, 11, 0.1}, {10, 9, -0.1}, {0, 0, 0}, {0, 1, math.Inf(1)}, {0, -1, math.Inf(-1)}, {-10, -9, 0.1},
	} {
		if got := Delta(c.old, c.new); !(got == c.want || math.Abs(got-c.want) <= 1e-12) {
			t.Errorf("Delta(%v, %v) = %v, want %v", c.old, c.new, got, c.want)
		}
	}
}

// TestHolm checks adjusted probabilities against worked examples.
func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if !(math.Abs(got[i]-want) <= 1e-12) {
			t.Fatalf("got %v", got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Float64Range(0, 1), 0, 20).Draw(t, "p")
		q := Holm(p)
		for i := range p {
			if !(q[i] >= p[i]) || !(q[i] <= min(1, p[i]*float64(len(p)))) {
				t.Fatalf("%v became %v, in a family of %d", p[i], q[i], len(p))
			}
			for k := range p {
				if p[i] < p[k] && q[i] > q[k] {
					t.Fatalf("the order of %v and %v was turned round", p[i], p[k])
				}
			}
		}
	})
}

// TestHolmCalibration checks that the chance of any alarm stays below the level if every hypothesis
// is true.
func TestHolmCalibration(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const trials, level = 4000, 0.05
	alarms := 0
	for range trials {
		p := make([]float64, 12)
		for i := range p {
			p[i] = r.Float64()
		}
		if slices.Min(Holm(p)) <= level {
			alarms++
		}
	}
	if got, most := float64(alarms)/trials, level+3*math.Sqrt(level*(1-level)/trials); !(got <= most) {
		t.Errorf("alarms in %.3f of families, want at most %.3f", got, most)
	}
}

// TestSlope checks the exponents of power laws.
func TestSlope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Float64Range(-3, 3).Draw(t, "slope")
		factor := rapid.Float64Range(1e-3, 1e3).Draw(t, "factor")
		var x, y []float64
		for n := 64.; n <= 4096; n *= 2 {
			x, y = append(x, n), append(y, factor*math.Pow(n, want))
		}
		if got := Slope(x, y); !(math.Abs(got-want) <= 1e-9) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	nan := math.NaN()
	if got := Slope([]float64{1, 2, 3, 4}, []float64{1, nan, 9, 0}); !(math.Abs(got-2) <= 1e-12) {
		t.Errorf("unknown and zero values are left out: got %v, want 2", got)
	}
	if got := Slope([]float64{2, 2}, []float64{1, 5}); !math.IsNaN(got) {
		t.Errorf("one length has no slope: got %v", got)
	}
}
