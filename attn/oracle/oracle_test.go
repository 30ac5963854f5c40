package oracle_test

import (
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/oracle"
)

// worked returns the worked example of the source documents: two queries, three keys, scale 1/√2.
func worked(temp float64) (attn.Problem, *attn.Args) {
	p := attn.Problem{
		Batch: 1, SeqQ: 2, SeqKV: 3, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 2, Score: attn.Score{Temp: temp},
		Want: attn.WantMean | attn.WantEntropy | attn.WantWeights,
	}
	if temp != attn.Frozen {
		p.Want |= attn.WantLSE
	}
	return p, &attn.Args{
		Q:   attn.Wrap(attn.BHSD, []float32{1, 0, 0, 1}, 1, 2, 1, 2),
		K:   attn.Wrap(attn.BHSD, []float32{1, 0, 0, 1, 1, 1}, 1, 3, 1, 2),
		V:   attn.Wrap(attn.BHSD, []float32{2, 0, 0, 2, 1, 1}, 1, 3, 1, 2),
		Out: attn.New(attn.BHSD, 1, 2, 1, 2),
	}
}

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s = %.9f, want %.9f", what, got, want)
	}
}

// TestWorkedExample compares the oracle with figures that were computed elsewhere, so that no
// mistake shared with a kernel stays hidden. The last digits are left out because the oracle rounds
// scores to float32.
func TestWorkedExample(t *testing.T) {
	const tol = 1e-7
	for _, c := range []struct {
		temp             float64
		out0, lse, h     float64
		mean             float64
		w0, w1, w2       float64
		skipLSE, skipRow bool
	}{
		{temp: 0, out0: 1.20333628, lse: 1.62062112, h: 1.053363, w0: 0.40111209, w1: 0.19777581, w2: 0.40111209, mean: 0.567258179},
		{temp: 0.5, out0: 1.33742482, skipLSE: true, skipRow: true},
		{temp: 2, out0: 1.11021122, skipLSE: true, skipRow: true},
		{temp: math.Inf(1), out0: 1, lse: math.Log(3), h: math.Log(3), w0: 1. / 3, w1: 1. / 3, w2: 1. / 3, mean: 0.47140452},
		{temp: attn.Frozen, out0: 1.5, h: math.Log(2), w0: 0.5, w2: 0.5, mean: 0.70710678, skipLSE: true},
	} {
		p, a := worked(c.temp)
		o, err := oracle.New(p, a)
		if err != nil {
			t.Fatal(err)
		}
		r := o.Row(oracle.Index{})
		near(t, "out[0]", r.Out[0], c.out0, tol)
		near(t, "out[0]+out[1]", r.Out[0]+r.Out[1], 2, tol)
		if !c.skipLSE {
			near(t, "lse", r.LSE, c.lse, tol)
		}
		if !c.skipRow {
			near(t, "entropy", r.Entropy, c.h, 1e-6)
			near(t, "mean", r.Mean, c.mean, tol)
			near(t, "w0", r.Weights[0], c.w0, tol)
			near(t, "w1", r.Weights[1], c.w1, tol)
			near(t, "w2", r.Weights[2], c.w2, tol)
		}
	}
}

func TestLinearWorkedExample(t *testing.T) {
	p, a := worked(0)
	p.Op, p.Want = attn.OpLinear, 0
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	r := o.Row(oracle.Index{})
	near(t, "out[0]", r.Out[0], 1.06666667, 1e-8)
	near(t, "out[1]", r.Out[1], 0.93333333, 1e-8)
}

func TestInfiniteScores(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name  string
		bias  [3]float32
		out   float64
		lse   float64
		first int // the key with the largest score
	}{
		{"one +Inf takes all", [3]float32{0, inf, 0}, 0, math.Inf(1), 1},
		{"two +Inf", [3]float32{inf, inf, 0}, math.NaN(), math.NaN(), -1},
		{"NaN", [3]float32{nan, 0, 0}, math.NaN(), math.NaN(), -1},
		{"all -Inf", [3]float32{-inf, -inf, -inf}, 0, math.Inf(-1), -1},
		{"-Inf hides", [3]float32{0, -inf, -inf}, 2, math.Sqrt(0.5), 0},
	} {
		p, a := worked(0)
		p.Score.Terms = attn.TermBias
		a.Terms.Bias, _ = attn.BiasTensor(c.bias[:], 3)
		o, err := oracle.New(p, a)
		if err != nil {
			t.Fatal(err)
		}
		r := o.Row(oracle.Index{})
		if oracle.Ratio(r.Out[0], c.out, 1e-7) > 1 || oracle.Ratio(r.LSE, c.lse, 1e-7) > 1 {
			t.Errorf("%s: out %v, LSE %v; want %v, %v", c.name, r.Out[0], r.LSE, c.out, c.lse)
		}
		for j := -1; j < 3; j++ {
			if may := r.MayBeFirst(j); may && r.Scores[max(j, 0)] < r.Max || !may && j == c.first {
				t.Errorf("%s: key %d may be the first of the largest: %v", c.name, j, may)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	p, a := worked(0)
	a.Stats.LSE = attn.New(attn.BHSD, 1, 2, 1, 1)
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	rows := oracle.All(&p, a)
	for _, at := range rows {
		r := o.Row(at)
		for c, x := range r.Out {
			a.Out.Row(0, at.I, 0)[c] = float32(x)
		}
		a.Stats.LSE.Row(0, at.I, 0)[0] = float32(r.LSE)
	}
	if v := o.Judge(rows); v.Worst > 0.3 {
		t.Errorf("the definition rounded to float32 is %.2f of its tolerance: %s", v.Worst, v.Where)
	}
	good := a.Out.Data[3]
	a.Out.Data[3] = good * (1 + 1e-5)
	if v := o.Judge(rows); v.Worst <= 1 {
		t.Errorf("an error of 1e-5 passes at %.2f: %s", v.Worst, v.Where)
	}
	a.Out.Data[3] = float32(math.NaN())
	if v := o.Judge(rows); !math.IsInf(v.Worst, 1) {
		t.Errorf("NaN passes at %.2f", v.Worst)
	}
	a.Out.Data[3] = good
	a.Stats.LSE.Data[1] /= math.Ln2 // a base-2 logarithm
	if v := o.Judge(rows); v.Worst <= 1 {
		t.Errorf("LSE to base 2 passes at %.2f", v.Worst)
	}
}

// TestJudgeRounding checks that half a unit in the last place of a 16-bit output is allowed, also
// for subnormal outputs.
func TestJudgeRounding(t *testing.T) {
	for typ, x := range map[attn.DType]float64{attn.F16: 0x1.8p-24, attn.BF16: 0x1.8p-133} {
		p, a := worked(0)
		p.Out, a.Out = typ, attn.NewTyped(typ, attn.BHSD, a.Out.B, a.Out.S, a.Out.H, a.Out.D)
		for i := range a.V.Data {
			a.V.Data[i] = float32(x)
		}
		o, err := oracle.New(p, a)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, p.DimV)
		for c := range row {
			row[c] = float32(x)
		}
		rows := oracle.All(&p, a)
		for _, at := range rows {
			a.Out.Write(row, at.B, at.I, at.H)
		}
		if v := o.Judge(rows); v.Worst > 1 {
			t.Errorf("%v: %v, rounded, is %.3g of its tolerance: %s", typ, x, v.Worst, v.Where)
		}
	}
}

func TestSample(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 50, SeqKV: 50, HeadsQ: 4, HeadsKV: 4, Dim: 1, DimV: 1}
	a := &attn.Args{Q: attn.Tensor{S: 50}}
	rows := oracle.Sample(&p, a, 20, 1)
	seen := map[oracle.Index]bool{}
	first, last := false, false
	for _, at := range rows {
		seen[at] = true
		first = first || at.I == 0
		last = last || at.I == 49
	}
	if len(rows) != 20 || len(seen) != 20 || !first || !last {
		t.Errorf("%d rows, %d different, first row %v, last row %v", len(rows), len(seen), first, last)
	}
	if n := len(oracle.Sample(&p, a, 1000, 1)); n != 400 {
		t.Errorf("a sample larger than the call has %d rows, want all 400", n)
	}
}
