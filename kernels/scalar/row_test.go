package scalar_test

import (
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/scalar"
)

const stats = attn.WantLSE | attn.WantMean | attn.WantEntropy | attn.WantMax | attn.WantArgMax | attn.WantWeights | attn.WantScores

// extremes are changes to the bias, sinks and temperature of a call that make rows special.
var extremes = []struct {
	name string
	temp float64
	edit func(a *attn.Args)
}{
	{"infinity", 0, bias(inf)},
	{"two infinities", 0, bias(inf, inf)},
	{"NaN", 0, bias(nan)},
	{"infinity and NaN", 0, bias(inf, nan)},
	{"no weight", 0, bias(-inf)},
	{"no weights", 0, bias(-inf, -inf, -inf, -inf, -inf, -inf, -inf)},
	{"far", 0, bias(1e9, 1e9)},
	{"frozen", attn.Frozen, bias(9, 9)},
	{"frozen infinity", attn.Frozen, bias(inf)},
	{"uniform", math.Inf(1), bias(9)},
	{"sink infinity", 0, sinks(inf)},
	{"sink NaN", 0, sinks(nan)},
	{"sink and score infinities", 0, func(a *attn.Args) { sinks(inf)(a); bias(inf)(a) }},
	{"large sink", 0, sinks(80)},
	{"small sink", 0, sinks(-80)},
}

// bias sets the first numbers of each row of the bias.
func bias(to ...float32) func(a *attn.Args) {
	return func(a *attn.Args) {
		cases.Rows(&a.Terms.Bias, func(_, _, _ int, row []float32) { copy(row, to) })
	}
}

// sinks sets the sink of every other head.
func sinks(to float32) func(a *attn.Args) {
	return func(a *attn.Args) {
		for h := 0; h < len(a.Terms.Sinks); h += 2 {
			a.Terms.Sinks[h] = to
		}
	}
}

// extreme returns the problem and operands of an extreme.
func extreme(t *testing.T, i int, want attn.Want) (attn.Problem, *attn.Args) {
	p := base()
	p.Want, p.Score.Temp, p.Score.Terms = want, extremes[i].temp, attn.TermBias|attn.TermSinks
	if p.Score.Temp != 0 {
		p.Score.Terms = attn.TermBias
	}
	if p.Score.Temp == attn.Frozen {
		p.Want &^= attn.WantLSE // the LSE has no limit
	}
	a := call(t, p)
	extremes[i].edit(a)
	return p, a
}

// TestRow checks rows by definition, including by-products, against the oracle.
func TestRow(t *testing.T) {
	for _, f := range forms {
		p := base()
		f.add(&p)
		p.Want = stats
		if v := answer(t, p, call(t, p)); !(v.Worst <= 1) {
			t.Errorf("%s: error is %.3g of the tolerance; %s", f.name, v.Worst, v.Where)
		}
	}
	for i := range extremes {
		p, a := extreme(t, i, stats)
		if v := answer(t, p, a); !(v.Worst <= 1) {
			t.Errorf("%s: error is %.3g of the tolerance; %s", extremes[i].name, v.Worst, v.Where)
		}
	}
}

// TestRowSeesNothing checks the results of a query without keys.
func TestRowSeesNothing(t *testing.T) {
	p := base()
	p.SeqQ, p.SeqKV, p.Want = 7, 3, stats
	if v := answer(t, p, call(t, p)); !(v.Worst <= 1) {
		t.Errorf("error is %.3g of the tolerance; %s", v.Worst, v.Where)
	}
}

// TestFirstOfEqual checks that ArgMax is the first key with the largest score.
func TestFirstOfEqual(t *testing.T) {
	p := base()
	p.Want, p.Mask = attn.WantArgMax, attn.Full()
	a := call(t, p)
	cases.Rows(&a.K, func(_, j, _ int, row []float32) {
		for i := range row {
			row[i] = float32(min(j, 3)) // keys 3 and later are equal
		}
	})
	for i := range a.Q.D {
		a.Q.Row(0, 0, 0)[i] = 1
	}
	r := scalar.NewRow(&p)
	r.At(a, 0, 0, 0)
	r.ByDefinition()
	if got := a.Stats.ArgMax[0]; got != 3 {
		t.Errorf("ArgMax is %d, want 3", got)
	}
}

// TestFromSums checks by-products that are computed from sums, in a known case: keys with scores of
// 0 and 2 ln 2, whose weights are as 1 to 4.
func TestFromSums(t *testing.T) {
	p := attn.Problem{
		Batch: 1, SeqQ: 1, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1,
		Want: attn.WantLSE | attn.WantMean | attn.WantEntropy | attn.WantMax | attn.WantArgMax,
	}
	for _, temp := range []float64{1, 2} {
		p.Score.Temp = temp
		a := call(t, p)
		r := scalar.NewRow(&p)
		r.At(a, 0, 0, 0)
		const m, l, s = 2, 1.25, 2 // scores 0 and 2 as base-2 logarithms, reference 2
		r.FromSums(m, l, s)
		r.Largest(math.Inf(1), 1)
		z := 0.8 * 2 * math.Ln2
		for _, c := range []struct {
			name      string
			got       *attn.Tensor
			wantExact float64
		}{
			{"LSE", &a.Stats.LSE, math.Log(5)},
			{"Mean", &a.Stats.Mean, z * temp},
			{"Entropy", &a.Stats.Entropy, math.Log(5) - z},
			{"Max", &a.Stats.Max, math.Inf(1)},
		} {
			if got := c.got.Row(0, 0, 0)[0]; got != float32(c.wantExact) {
				t.Errorf("temperature %v: %s is %v, want %v", temp, c.name, got, float32(c.wantExact))
			}
		}
		if a.Stats.ArgMax[0] != 1 {
			t.Errorf("ArgMax is %d, want 1", a.Stats.ArgMax[0])
		}
		r.Largest(-1e300, 0)
		if got := a.Stats.Max.Row(0, 0, 0)[0]; got != -math.MaxFloat32 {
			t.Errorf("largest score just beyond float32 is %v, want %v", got, -math.MaxFloat32)
		}
	}
}

// TestFarSums checks which rows need ByDefinition instead of FromSums.
func TestFarSums(t *testing.T) {
	for _, c := range []struct {
		want attn.Want
		m, s float64
		far  bool
	}{
		{attn.WantMean, 1, 1, false},
		{attn.WantMean, 1024, 1, false},
		{attn.WantMean, 1024 / math.Ln2, 1, false},
		{attn.WantMean, 1478, 1, true},
		{attn.WantEntropy, -1478, 1, true},
		{attn.WantLSE, 1478, 1, false},
		{attn.WantMean, math.Inf(-1), 1, false},
		{attn.WantMean, 1, math.Inf(1), true},
		{attn.WantMean, 1, math.NaN(), true},
		{attn.WantLSE, 1, math.NaN(), false},
	} {
		p := base()
		p.Want = c.want
		r := scalar.NewRow(&p)
		if got := r.FarSums(c.m, c.s); got != c.far {
			t.Errorf("want %#x, m %v, s %v: %v, want %v", c.want, c.m, c.s, got, c.far)
		}
	}
}

// TestAddSink checks sums with a sink, in base-2 logarithms that are exact.
func TestAddSink(t *testing.T) {
	const e = math.Log2E // a sink of 1 as a base-2 logarithm, nearly
	type sums struct{ m, l, s, keep float64 }
	for _, c := range []struct {
		name    string
		sink    float32
		m, l, s float64
		want    sums
	}{
		{"none", -inf, 3, 2, 5, sums{3, 2, 5, 1}},
		{"smaller", 0, 3, 2, 5, sums{3, 2.125, 5, 1}},
		{"equal", 0, 0, 2, 5, sums{0, 3, 5, 1}},
		{"larger", 0, -2, 2, 5, sums{0, 1.5, 1.25, 0.25}},
		{"larger than far ones", 0, -2000, 2, 5, sums{0, 1, 0, 0}},
		{"of a row without keys", 0, 7, 0, 0, sums{0, 1, 0, 0}},
		{"in base 2", 1, e, 1, 5, sums{e, 2, 5 + e, 1}},
		{"far, rounded to float32", 1e9, float64(float32(1e9 * e)), 1, 0, sums{float64(float32(1e9 * e)), 2, float64(float32(1e9 * e)), 1}},
		{"lowest", -math.MaxFloat32, -math.MaxFloat32, 1, 0, sums{-math.MaxFloat32, 2, -math.MaxFloat32, 1}},
	} {
		p := base()
		p.Score.Terms = attn.TermSinks
		a := &attn.Args{Terms: attn.Operands{Sinks: []float32{nan, nan, c.sink, nan}}}
		var got sums
		got.m, got.l, got.s, got.keep = scalar.AddSink(&p, a, 2, c.m, c.l, c.s)
		if got != c.want {
			t.Errorf("a sink that is %s: %v, want %v", c.name, got, c.want)
		}
	}
}
