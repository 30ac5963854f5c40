package bridge_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/kernels/naive"
	"attnlab/theory/bridge"
)

// example returns the first worked example of the source documents.
func example() bridge.Call {
	return bridge.Call{
		Q: mat.NewDense(2, 2, []float64{1, 0, 0, 1}),
		K: mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1}),
		V: mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1}),
	}
}

// random returns a call of 4 queries and 6 keys, d = 4 and d_v = 3.
func random(r *rand.Rand) bridge.Call {
	return bridge.Call{Q: normal(r, 4, 4), K: normal(r, 6, 4), V: normal(r, 6, 3)}
}

// normal returns a matrix of normal numbers in multiples of 1/256. float32 holds them exactly, also
// after adding a small power of two.
func normal(r *rand.Rand, rows, cols int) *mat.Dense {
	m := mat.NewDense(rows, cols, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return math.Round(256*r.NormFloat64()) / 256 }, m)
	return m
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// attentions returns the definition and a kernel.
func attentions() []bridge.Attention { return []bridge.Attention{{}, bridge.Through(naive.New())} }

func ask(t *testing.T, a bridge.Attention, c bridge.Call) *bridge.Answer {
	t.Helper()
	ans, err := a.Attend(c)
	if err != nil {
		t.Fatal(err)
	}
	return ans
}

// digits requires that numbers agree with printed ones within half a unit of the eighth decimal
// plus the tolerance.
func digits(t *testing.T, what string, got bridge.Values, want ...float64) {
	t.Helper()
	if got.X == nil {
		t.Fatalf("%s: no answer", what)
	}
	x, tol := got.X.RawMatrix().Data, got.Tol.RawMatrix().Data
	if len(x) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(x), len(want))
	}
	for i := range x {
		if x[i] != want[i] && !(math.Abs(x[i]-want[i]) <= 5.1e-9+tol[i]) {
			t.Errorf("%s: number %d is %v, want %v within %v", what, i, x[i], want[i], tol[i])
		}
	}
}

// agree requires that a kernel's answer agrees with the definition's.
func agree(t *testing.T, what string, got, want bridge.Values) {
	t.Helper()
	if (got.X == nil) != (want.X == nil) {
		t.Fatalf("%s: answered %t, and by the definition %t", what, got.X != nil, want.X != nil)
	}
	if got.X == nil {
		return
	}
	gr, gc := got.X.Dims()
	if r, c := want.X.Dims(); r != gr || c != gc {
		t.Fatalf("%s: %d by %d, want %d by %d", what, gr, gc, r, c)
	}
	for i := range gr {
		for j := range gc {
			g, w, tol := got.X.At(i, j), want.X.At(i, j), got.Tol.At(i, j)
			if g != w && !(math.Abs(g-w) <= tol) {
				t.Errorf("%s: (%d, %d) is %v, want %v within %v", what, i, j, g, w, tol)
			}
		}
	}
}

// values returns all values of an answer, by name.
func values(a *bridge.Answer) map[string]bridge.Values {
	return map[string]bridge.Values{
		"O": a.O, "LSE": a.LSE, "Mean": a.Mean, "Entropy": a.Entropy, "Max": a.Max, "Weights": a.Weights, "Scores": a.Scores,
		"dQ": a.DQ, "dK": a.DK, "dV": a.DV, "dRelative": a.DRelative, "dMetric": a.DMetric, "dBias": a.DBias,
	}
}

// has requires that an answer holds exactly the values that were asked for.
func has(t *testing.T, a *bridge.Answer, asked ...string) {
	t.Helper()
	for name, v := range values(a) {
		want := false
		for _, n := range asked {
			want = want || n == name
		}
		if (v.X != nil) != want {
			t.Errorf("%s: answered %t, asked %t", name, v.X != nil, want)
		}
	}
}

// TestForward checks the output and every row value of the worked example, from the definition and
// a kernel.
func TestForward(t *testing.T) {
	root, x, y, a, b := 1/math.Sqrt2, 1.20333628, .79666372, .40111209, .19777581
	mean := 2 * a * root // of the scores 1/sqrt(2), 0 and 1/sqrt(2)
	for _, answerer := range attentions() {
		for _, c := range []struct {
			want attn.Want
			name string
			of   func(*bridge.Answer) bridge.Values
			is   []float64
		}{
			{0, "O", func(a *bridge.Answer) bridge.Values { return a.O }, []float64{x, y, y, x}},
			{attn.WantLSE, "LSE", func(a *bridge.Answer) bridge.Values { return a.LSE }, []float64{1.62062114, 1.62062114}},
			{attn.WantMean, "Mean", func(a *bridge.Answer) bridge.Values { return a.Mean }, []float64{mean, mean}},
			{attn.WantEntropy, "Entropy", func(a *bridge.Answer) bridge.Values { return a.Entropy }, []float64{1.62062114 - mean, 1.62062114 - mean}},
			{attn.WantMax, "Max", func(a *bridge.Answer) bridge.Values { return a.Max }, []float64{root, root}},
			{attn.WantWeights, "Weights", func(a *bridge.Answer) bridge.Values { return a.Weights }, []float64{a, b, a, b, a, a}},
			{attn.WantScores, "Scores", func(a *bridge.Answer) bridge.Values { return a.Scores }, []float64{root, 0, root, 0, root, root}},
		} {
			call := example()
			call.Problem.Want = c.want
			ans := ask(t, answerer, call)
			has(t, ans, "O", c.name)
			digits(t, answerer.Name()+", "+c.name, c.of(ans), c.is...)
		}
	}
}

// TestAllAtOnce checks that one call returns every row value, and that hidden keys have weight 0
// and score -Inf.
func TestAllAtOnce(t *testing.T) {
	call := random(source(1))
	call.Problem.Want = attn.WantLSE | attn.WantMean | attn.WantEntropy | attn.WantMax | attn.WantWeights | attn.WantScores
	call.Problem.Mask = attn.Causal()
	def, kernel := ask(t, attentions()[0], call), ask(t, attentions()[1], call)
	has(t, def, "O", "LSE", "Mean", "Entropy", "Max", "Weights", "Scores")
	for name, v := range values(def) {
		agree(t, name, values(kernel)[name], v)
	}
	if w, s := kernel.Weights.X.At(0, 5), kernel.Scores.X.At(0, 5); w != 0 || !math.IsInf(s, -1) {
		t.Errorf("a hidden key has weight %v and score %v, want 0 and -Inf", w, s)
	}
}

// TestGradients checks the gradients of half the square of the output, and of LSE and entropy,
// against differences of the definition in float64.
func TestGradients(t *testing.T) {
	for _, answerer := range attentions() {
		call := example()
		call.DO = ask(t, bridge.Attention{}, call).O.X
		ans := ask(t, answerer, call)
		digits(t, "dQ", ans.DQ, .06843686, -.09189051, -.09189051, .06843686)
		digits(t, "dK", ans.DK, .09189051, -.06843686, -.06843686, .09189051, -.02345365, -.02345365)
		digits(t, "dV", ans.DV, .64023355, .55754227, .55754227, .64023355, .80222419, .80222419)
	}
	call := random(source(2))
	for _, c := range []struct {
		name          string
		do, dlse, dhs *mat.Dense
	}{
		{"dO", normal(source(3), 4, 3), nil, nil},
		{"dLSE", nil, normal(source(4), 4, 1), nil},
		{"dEntropy", nil, nil, normal(source(5), 4, 1)},
		{"all", normal(source(6), 4, 3), normal(source(7), 4, 1), normal(source(8), 4, 1)},
	} {
		call.DO, call.DLSE, call.DEntropy = c.do, c.dlse, c.dhs
		def, kernel := ask(t, attentions()[0], call), ask(t, attentions()[1], call)
		for _, name := range []string{"O", "dQ", "dK", "dV"} {
			agree(t, c.name+": "+name, values(kernel)[name], values(def)[name])
		}
		slopes(t, c.name, call, def)
	}
}

// slopes requires that gradients agree with differences of their loss. The definition rounds scores
// to float32, so the steps are wide.
func slopes(t *testing.T, what string, call bridge.Call, ans *bridge.Answer) {
	t.Helper()
	const step = 1. / 64
	forward := call
	forward.DO, forward.DLSE, forward.DEntropy = nil, nil, nil
	forward.Problem.Want = attn.WantLSE | attn.WantEntropy
	loss := func() float64 {
		a, sum := ask(t, bridge.Attention{}, forward), 0.0
		for _, o := range []struct{ by, of *mat.Dense }{{call.DO, a.O.X}, {call.DLSE, a.LSE.X}, {call.DEntropy, a.Entropy.X}} {
			if o.by == nil {
				continue
			}
			var m mat.Dense
			m.MulElem(o.by, o.of)
			sum += mat.Sum(&m)
		}
		return sum
	}
	for _, o := range []struct {
		name string
		x    *mat.Dense
		dx   *mat.Dense
	}{{"dQ", call.Q, ans.DQ.X}, {"dK", call.K, ans.DK.X}, {"dV", call.V, ans.DV.X}} {
		rows, cols := o.x.Dims()
		for i := range rows {
			for j := range cols {
				keep := o.x.At(i, j)
				at := func(h float64) float64 {
					o.x.Set(i, j, keep+h)
					defer o.x.Set(i, j, keep)
					return loss()
				}
				// Richardson extrapolation: the error is of the fourth order in the step.
				near, far := (at(step)-at(-step))/(2*step), (at(2*step)-at(-2*step))/(4*step)
				if got, want := o.dx.At(i, j), (4*near-far)/3; !(math.Abs(got-want) <= 5e-5*(1+math.Abs(want))) {
					t.Errorf("%s: %s (%d, %d) is %v, differences give %v", what, o.name, i, j, got, want)
				}
			}
		}
	}
}

// TestTerms checks masks and score terms, and their gradients, against the definition.
func TestTerms(t *testing.T) {
	r := source(9)
	cos, sin := attn.RopeTables(10000, 6, 4)
	metric := normal(r, 5, 4)
	for _, c := range []struct {
		name  string
		grads []string
		set   func(*bridge.Call)
	}{
		{"temperature", nil, func(c *bridge.Call) { c.Problem.Score.Temp = .5 }},
		{"softcap", nil, func(c *bridge.Call) { c.Problem.Score.Softcap = 2 }},
		{"window", nil, func(c *bridge.Call) { c.Problem.Mask = attn.Window(1, 1) }},
		{"bitmap", nil, func(c *bridge.Call) {
			c.Problem.Mask = attn.Full().With(attn.PackedBitmap)
			c.Args.Allowed = attn.Pack(4, 6, func(i, j int) bool { return i != 2 && j > i })
		}},
		{"bias", []string{"dBias"}, func(c *bridge.Call) {
			c.Problem.Score.Terms, c.Args.Terms.Bias = attn.TermBias, bridge.Tensor(normal(r, 4, 6))
		}},
		{"bias for all queries", []string{"dBias"}, func(c *bridge.Call) {
			c.Problem.Score.Terms, c.Args.Terms.Bias = attn.TermBias, bridge.Tensor(normal(r, 1, 6))
		}},
		{"relative", []string{"dRelative"}, func(c *bridge.Call) {
			c.Problem.Score.Terms, c.Args.Terms.Relative = attn.TermRelative, bridge.Tensor(normal(r, 9, 4))
		}},
		{"metric", []string{"dMetric"}, func(c *bridge.Call) {
			c.Q = normal(r, 4, 5)
			c.Problem.Score.Terms, c.Args.Terms.Metric = attn.TermMetric, bridge.Tensor(metric)
		}},
		{"slopes", nil, func(c *bridge.Call) { c.Problem.Score.Terms, c.Args.Terms.Slopes = attn.TermALiBi, []float32{.5} }},
		{"sinks", nil, func(c *bridge.Call) { c.Problem.Score.Terms, c.Args.Terms.Sinks = attn.TermSinks, []float32{.5} }},
		{"rope", nil, func(c *bridge.Call) {
			c.Problem.Score.Rope, c.Args.Terms.Cos, c.Args.Terms.Sin = attn.RopeInterleaved, cos, sin
		}},
	} {
		plain := random(source(10))
		call := plain
		c.set(&call)
		call.Problem.Want = attn.WantWeights | attn.WantLSE
		call.DO = normal(source(11), 4, 3)
		def, kernel := ask(t, attentions()[0], call), ask(t, attentions()[1], call)
		has(t, def, append([]string{"O", "Weights", "LSE", "dQ", "dK", "dV"}, c.grads...)...)
		for name, v := range values(def) {
			agree(t, c.name+": "+name, values(kernel)[name], v)
		}
		if without := ask(t, bridge.Attention{}, plain); mat.EqualApprox(without.O.X, def.O.X, 1e-3) {
			t.Errorf("%s: makes no difference", c.name)
		}
	}
}

// TestBiasGradient checks that the gradient by a bias is the gradient by the final score, A (dA -
// rowsum(A dA)), element by element.
func TestBiasGradient(t *testing.T) {
	call := example()
	call.DO = ask(t, bridge.Attention{}, call).O.X
	call.Problem.Score.Terms, call.Args.Terms.Bias = attn.TermBias, bridge.Tensor(mat.NewDense(2, 3, nil))
	for _, answerer := range attentions() {
		digits(t, answerer.Name(), ask(t, answerer, call).DBias, .12995281, -.09678433, -.03316847, -.09678433, .12995281, -.03316847)
	}
}

// TestLinear checks that the definition answers a linear problem and that naive refuses it.
func TestLinear(t *testing.T) {
	call := example()
	call.Problem.Op = attn.OpLinear
	call.DO = mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	ans := ask(t, bridge.Attention{}, call)
	digits(t, "elu+1", ans.O, 1.06666667, .93333333, .93333333, 1.06666667)
	has(t, ans, "O", "dQ", "dK", "dV")
	_, err := attentions()[1].Attend(call)
	if !errors.Is(err, attn.ErrUnsupported) || !strings.HasPrefix(err.Error(), "naive/go: ") {
		t.Errorf("naive answers a linear problem with %v, want that it is unsupported", err)
	}
}

// TestBadCalls checks that invalid calls return errors that name the cause and do not wrap
// ErrUnsupported.
func TestBadCalls(t *testing.T) {
	r := source(12)
	for _, c := range []struct {
		text string
		set  func(*bridge.Call)
	}{
		{"rows of K and V are 6 and 5", func(c *bridge.Call) { c.V = normal(r, 5, 3) }},
		{"dim_q 5 and dim 4", func(c *bridge.Call) { c.Q = normal(r, 4, 5) }},
		{"dOut", func(c *bridge.Call) { c.DO = normal(r, 4, 2) }},
		{"dLSE", func(c *bridge.Call) { c.DLSE = normal(r, 3, 1) }},
		{"dEntropy", func(c *bridge.Call) { c.DEntropy = normal(r, 4, 2) }},
		{"temperature", func(c *bridge.Call) { c.Problem.Score.Temp = -2 }},
		{"gradients at temperature Frozen or +Inf", func(c *bridge.Call) { c.Problem.Score.Temp, c.DO = math.Inf(1), normal(r, 4, 3) }},
		{"Metric", func(c *bridge.Call) {
			c.Problem.Score.Terms, c.Args.Terms.Metric = attn.TermMetric, bridge.Tensor(normal(r, 4, 5))
		}},
		{"Bias", func(c *bridge.Call) {
			c.Problem.Score.Terms, c.Args.Terms.Bias = attn.TermBias, bridge.Tensor(normal(r, 4, 5))
		}},
		// Given but not enabled.
		{"Bias", func(c *bridge.Call) { c.Args.Terms.Bias = bridge.Tensor(normal(r, 4, 6)) }},
		{"Allowed", func(c *bridge.Call) {
			c.Problem.Mask = attn.Full().With(attn.PackedBitmap)
			c.Args.Allowed = attn.Pack(3, 6, func(_, _ int) bool { return true })
		}},
		{"block", func(c *bridge.Call) { c.Problem.Mask = attn.Full().With(attn.BlockBitmap) }},
	} {
		for _, answerer := range attentions() {
			call := random(r)
			c.set(&call)
			_, err := answerer.Attend(call)
			if err == nil || errors.Is(err, attn.ErrUnsupported) || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), answerer.Name()+": ") {
				t.Errorf("%s: error %v, want one that says %q", answerer.Name(), err, c.text)
			}
		}
	}
}

// TestClosed checks that a plan with resources is closed.
func TestClosed(t *testing.T) {
	k := &holding{Kernel: naive.New()}
	ask(t, bridge.Through(k), example())
	if k.planned != 1 || k.closed != 1 {
		t.Errorf("planned %d times and closed %d times, want once each", k.planned, k.closed)
	}
}

// holding is a kernel that counts the resources that its plans hold.
type holding struct {
	attn.Kernel
	planned, closed int
}

func (h *holding) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := h.Kernel.Plan(p, team)
	h.planned++
	return held{plan, h}, err
}

type held struct {
	attn.Plan
	by *holding
}

func (h held) Close() error { h.by.closed++; return nil }

// TestFloat32 checks the rounding to float32 and the layout of tensors.
func TestFloat32(t *testing.T) {
	m := mat.NewDense(1, 3, []float64{.1, 1, 1e-60})
	got := bridge.Float32(m.T())
	for i, want := range []float64{0.100000001490116119384765625, 1, 0} {
		if got.At(i, 0) != want {
			t.Errorf("%v is %v, want %v", m.At(0, i), got.At(i, 0), want)
		}
	}
	if m.At(0, 0) != .1 {
		t.Error("Float32 changed its argument")
	}
	tensor := bridge.Tensor(mat.NewDense(2, 3, []float64{1, 2, 3, 4, 5, 6}).T())
	if tensor.Shape() != "[batch 1, seq 3, head 1, dim 2]" || tensor.Row(0, 2, 0)[1] != 6 || tensor.Row(0, 0, 0)[1] != 4 {
		t.Errorf("tensor %s %v", tensor.Shape(), tensor.Data)
	}
}

// TestNames checks the names of the definition and of a kernel.
func TestNames(t *testing.T) {
	k := naive.New()
	if answerer := (bridge.Attention{}); answerer.Name() != "definition" || answerer.Kernel() != nil {
		t.Errorf("the zero Attention is %s", answerer.Name())
	}
	if answerer := bridge.Through(k); answerer.Name() != "naive/go" || answerer.Kernel() != k {
		t.Errorf("naive is %s", answerer.Name())
	}
}

// The same call to the definition and to a kernel.
func Example() {
	call := bridge.Call{
		Q:       mat.NewDense(2, 2, []float64{1, 0, 0, 1}),
		K:       mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1}),
		V:       mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1}),
		Problem: attn.Problem{Want: attn.WantEntropy},
	}
	for _, answerer := range []bridge.Attention{{}, bridge.Through(naive.New())} {
		ans, err := answerer.Attend(call)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%-10s O = %.4f  H = %.4f\n", answerer.Name(), ans.O.X.RawRowView(0), ans.Entropy.X.At(0, 0))
	}
	// Output:
	// definition O = [1.2033 0.7967]  H = 1.0534
	// naive/go   O = [1.2033 0.7967]  H = 1.0534
}
