package scalar_test

import (
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/kernels/scalar"
)

var inf, nan = float32(math.Inf(1)), float32(math.NaN())

// base is a problem with two batch entries and two query heads to a key head.
func base() attn.Problem {
	return attn.Problem{Batch: 2, SeqQ: 3, SeqKV: 7, HeadsQ: 4, HeadsKV: 2, Dim: 6, DimV: 5, Mask: attn.Causal()}
}

// A form is a change to a problem.
type form struct {
	name string
	add  func(p *attn.Problem)
}

// forms each add one thing to a score or to its processing; the last adds many.
var forms = []form{
	{"plain", func(*attn.Problem) {}},
	{"scale", func(p *attn.Problem) { p.Score.Scale = 0.7 }},
	{"softcap", func(p *attn.Problem) { p.Score.Softcap = 0.8 }},
	{"bias", func(p *attn.Problem) { p.Score.Terms = attn.TermBias }},
	{"alibi", func(p *attn.Problem) { p.Score.Terms = attn.TermALiBi }},
	{"alibi, both sides", func(p *attn.Problem) { p.Score.Terms, p.Mask = attn.TermALiBi, attn.Full() }},
	{"relative", func(p *attn.Problem) { p.Score.Terms = attn.TermRelative }},
	{"metric", func(p *attn.Problem) { p.Score.Terms, p.DimQ = attn.TermMetric, 4 }},
	{"interleaved", func(p *attn.Problem) { p.Score.Rope = attn.RopeInterleaved }},
	{"halves", func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }},
	{"all", func(p *attn.Problem) {
		p.Score = attn.Score{
			Temp: 0.5, Softcap: 2, Rope: attn.RopeHalves,
			Terms: attn.TermBias | attn.TermALiBi | attn.TermSinks | attn.TermRelative | attn.TermMetric,
		}
	}},
	{"sinks", func(p *attn.Problem) { p.Score.Terms = attn.TermSinks }},
	{"temperature", func(p *attn.Problem) { p.Score.Temp = 3 }},
	{"window", func(p *attn.Problem) { p.Mask = attn.Window(2, 1) }},
	{"bitmap", func(p *attn.Problem) { p.Mask.Bitmap = attn.BoolBitmap }},
	{"top-left", func(p *attn.Problem) { p.Mask.Align = attn.TopLeft }},
}

// call returns operands of a problem.
func call(t *testing.T, p attn.Problem) *attn.Args {
	t.Helper()
	a, err := cases.NewArgs(p, "bshd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", p, a, 3); err != nil {
		t.Fatal(err)
	}
	for i := range a.Allowed.Bool {
		a.Allowed.Bool[i] = i%3 != 0
	}
	return a
}

// answer computes all rows of a call by definition, and judges them by the oracle.
func answer(t *testing.T, p attn.Problem, a *attn.Args) oracle.Verdict {
	t.Helper()
	r, rows := scalar.NewRow(&p), oracle.All(&p, a)
	for _, at := range rows {
		r.At(a, at.B, at.I, at.H)
		r.ByDefinition()
	}
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	return o.Judge(rows)
}

// TestScorer checks scores against the oracle's, and that each form changes them.
func TestScorer(t *testing.T) {
	plain := map[[4]int]float32{}
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			p := base()
			f.add(&p)
			a := call(t, p)
			o, err := oracle.New(p, a)
			if err != nil {
				t.Fatal(err)
			}
			s, changed := scalar.NewScorer(&p), 0
			for _, at := range oracle.All(&p, a) {
				s.Query(a, at.B, at.I, at.H)
				lo, hi := s.Visible()
				want := o.Row(at)
				for j, score := range want.Scores {
					pair, got := [4]int{at.B, at.H, at.I, j}, -inf
					if lo <= j && j < hi {
						got = s.Score(j)
					}
					if oracle.Ratio(float64(got), score, want.TolScores[j]) > 1 {
						t.Errorf("batch %d head %d query %d key %d: score %v, want %v within %.3g", at.B, at.H, at.I, j, got, score, want.TolScores[j])
					}
					if f.name == "plain" {
						plain[pair] = got
					} else if got != plain[pair] {
						changed++
					}
				}
			}
			if same := f.name == "plain" || f.name == "sinks" || f.name == "temperature"; same != (changed == 0) {
				t.Errorf("%d scores differ from those of the plain problem", changed)
			}
		})
	}
}

// TestScorerTypes checks that scores and values are computed from the numbers as they are stored.
func TestScorerTypes(t *testing.T) {
	for _, typ := range []attn.DType{attn.F16, attn.BF16, attn.I8} {
		p := base()
		p.KV = typ
		if typ != attn.I8 {
			p.Q, p.Out = typ, typ
		}
		if v := answer(t, p, call(t, p)); !(v.Worst <= 1) {
			t.Errorf("%v: error is %.3g of the tolerance; %s", typ, v.Worst, v.Where)
		}
	}
}

// TestBiasFloor checks that a sum of finite numbers is at least Problem.Lowest, and that infinities
// and NaN pass.
func TestBiasFloor(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 1, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Score: attn.Score{Scale: 1, Terms: attn.TermBias}}
	for _, c := range []struct{ product, bias, want float32 }{
		{-1, -2, -3},
		{-1, -math.MaxFloat32, p.Lowest()},
		{-3e38, -3e38, p.Lowest()},
		{-1, -inf, -inf},
		{-inf, 1, -inf},
		{inf, -math.MaxFloat32, inf},
		{1, nan, nan},
	} {
		a := call(t, p)
		a.Q.Row(0, 0, 0)[0], a.K.Row(0, 0, 0)[0], a.Terms.Bias.Row(0, 0, 0)[0] = c.product, 1, c.bias
		s := scalar.NewScorer(&p)
		s.Query(a, 0, 0, 0)
		if got := s.Score(0); got != c.want && (got == got || c.want == c.want) {
			t.Errorf("product %v and bias %v: score %v, want %v", c.product, c.bias, got, c.want)
		}
	}
}

// TestPrepared checks that Prepared returns the query after rotation and metric, and Raw the query
// before.
func TestPrepared(t *testing.T) {
	p := attn.Problem{
		Batch: 1, SeqQ: 1, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 1,
		Score: attn.Score{Terms: attn.TermMetric, Rope: attn.RopeHalves},
	}
	a := call(t, p)
	copy(a.Q.Row(0, 0, 0), []float32{1, 2})
	copy(a.Terms.Metric.Row(0, 0, 0), []float32{3, 4})
	copy(a.Terms.Metric.Row(0, 1, 0), []float32{5, 6})
	// At the query's position, (1, 2) becomes (-2, 1).
	a.Terms.Cos.Row(0, 1, 0)[0], a.Terms.Sin.Row(0, 1, 0)[0] = 0, 1
	r := scalar.NewRow(&p)
	if x := r.Prepared(a, 0, 0, 0); x[0] != -1 || x[1] != -2 {
		t.Errorf("prepared query is %v, want [-1 -2]", x)
	}
	if x := r.Raw(a, 0, 0, 0); x[0] != 1 || x[1] != 2 {
		t.Errorf("raw query is %v, want [1 2]", x)
	}
}
