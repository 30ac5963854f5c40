package attn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/naive"
)

func TestALiBiSlopes(t *testing.T) {
	eight := []float32{1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 32, 1. / 64, 1. / 128, 1. / 256}
	for heads, want := range map[int][]float32{
		0: {},
		1: {1. / 256},
		2: {1. / 16, 1. / 256},
		3: {1. / 16, 1. / 256, 1. / 4},
		8: eight,
		// the slopes of 8 heads, then every other slope of 16
		12: append(slices.Clone(eight), 0.707106781, 0.353553391, 0.176776695, 0.0883883476),
	} {
		if got := attn.ALiBiSlopes(heads); !slices.Equal(got, want) {
			t.Errorf("%d heads: %v, want %v", heads, got, want)
		}
	}
}

// forward runs a problem on the plainest kernel.
func forward(t *testing.T, p attn.Problem, a *attn.Args) {
	t.Helper()
	plan, err := naive.New().Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan.Forward(a)
}

// TestALiBiWeights checks that near keys have more weight: the last of four queries with equal
// scores, at slope 1/2.
func TestALiBiWeights(t *testing.T) {
	p := attn.Problem{
		Batch: 1, SeqQ: 4, SeqKV: 4, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Mask: attn.Causal(),
		Score: attn.Score{Terms: attn.TermALiBi}, Want: attn.WantWeights,
	}
	a := call(p)
	a.Terms.Slopes[0] = 0.5
	forward(t, p, a)
	for j, want := range []float64{0.10153632, 0.1674051, 0.27600434, 0.45505423} {
		if got := a.Stats.Weights.Row(0, 3, 0)[j]; !(math.Abs(float64(got)-want) <= 1e-7) {
			t.Errorf("key %d weighs %v, want %v", j, got, want)
		}
	}
}

// TestT5Bucket checks buckets of both kinds. With both sides there are 16 buckets a side: 8 exact
// ones, then from distance 8 two for each doubling up to 128. With one side 16 are exact, then 16/3
// for each doubling.
func TestT5Bucket(t *testing.T) {
	for _, c := range []struct {
		distance       int
		oneSide, sides int
	}{
		{0, 0, 0},
		{-1, 1, 1},
		{-7, 7, 7},
		{-8, 8, 8},
		{-11, 11, 8},
		{-12, 12, 9},
		{-15, 15, 9},
		{-16, 16, 10},
		{-18, 16, 10},
		{-19, 17, 10},
		{-22, 18, 10},
		{-23, 18, 11},
		{-31, 21, 11},
		{-32, 21, 12},
		{-63, 26, 13},
		{-64, 26, 14},
		{-127, 31, 15},
		{-128, 31, 15},
		{-100000, 31, 15},
		{1, 0, 17},
		{7, 0, 23},
		{8, 0, 24},
		{12, 0, 25},
		{64, 0, 30},
		{1000, 0, 31},
	} {
		if got := attn.T5Bucket(c.distance, 32, 128, false); got != c.oneSide {
			t.Errorf("distance %d: bucket %d, want %d", c.distance, got, c.oneSide)
		}
		if got := attn.T5Bucket(c.distance, 32, 128, true); got != c.sides {
			t.Errorf("distance %d, both sides: bucket %d, want %d", c.distance, got, c.sides)
		}
	}
}

func TestT5Bias(t *testing.T) {
	const heads, buckets = 2, 8
	table := make([]float32, buckets*heads)
	for i := range table {
		table[i] = float32(i)
	}
	bias, err := attn.T5Bias(table, heads, buckets, 20, true, 3, 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[batch 1, seq 2, head 2, dim 5]"; bias.Shape() != want {
		t.Errorf("shape %s, want %s", bias.Shape(), want)
	}
	// The second query is at position 4, that of the last key: distances -4 to 0.
	for j, bucket := range []int{2, 2, 2, 1, 0} {
		if got, want := bias.Row(0, 1, 1)[j], float32(heads*bucket+1); got != want {
			t.Errorf("key %d: %v, want %v", j, got, want)
		}
	}
	for says, f := range map[string]func() (attn.Tensor, error){
		"a table of 16 numbers":            func() (attn.Tensor, error) { return attn.T5Bias(table, 3, 8, 20, true, 0, 1, 1) },
		"at least 2 buckets for each side": func() (attn.Tensor, error) { return attn.T5Bias(table[:4], 2, 2, 20, true, 0, 1, 1) },
		"8 buckets up to":                  func() (attn.Tensor, error) { return attn.T5Bias(table, 2, 8, 4, false, 0, 1, 1) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}

func TestDerivedNumbers(t *testing.T) {
	if got := attn.FreeEnergy(2, 0.5); got != -1 {
		t.Errorf("free energy %v, want -1", got)
	}
	if got := attn.EffectiveKeys(float32(math.Log(7))); !(math.Abs(float64(got)-7) <= 1e-6) {
		t.Errorf("%v keys, want 7", got)
	}
	if got := attn.EffectiveKeys(0); got != 1 {
		t.Errorf("%v keys, want 1", got)
	}
}
