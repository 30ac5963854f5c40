package equations

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/scorers"
)

// attention returns the rows on attention itself.
func attention() []Row {
	return []Row{
		{
			ID: "T-6", Statement: "S_ij = sum_ab q_ia g_ab k_jb: a score is a bilinear form of a query and a key",
			Check: metricScores, Kernel: metricScoresAsked,
		},
		{
			ID: "T-7", Statement: "S = Q K^T / sqrt(d_k): S_ij = sum_a q_ia k_ja / sqrt(d_k)",
			Check: dotScores, Kernel: dotScoresAsked,
		},
		{
			ID: "T-9", Statement: "O = A V: O_ib = sum_j A_ij v_jb, and d_v need not be d_k",
			Check: outputs, Kernel: outputsAsked,
		},
		{
			ID: "T-10", Statement: "O_ib = sum_j exp(sum_ac q_ia g_ac k_jc) v_jb / sum_j exp(sum_ac q_ia g_ac k_jc): attention with a metric, in one equation",
			Check: oneEquation, Kernel: oneEquationAsked,
		},
		{
			ID: "T-11", Statement: "Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V",
			Check: standard, Kernel: standardAsked,
		},
		{
			ID: "T-37..39", Statement: "S^hij = sum_a Q^hia K^hja / sqrt(d), A^hij = softmax_j S^hij, O^hia = sum_j A^hij V^hja: heads are independent, and may share keys",
			Check: heads, Kernel: headsAsked,
		},
		{
			ID: "T-43", Statement: "S = Q M K^T with M learned: dL/dM = Q^T dS K",
			Check: learnedForm, Kernel: learnedFormAsked,
		},
		{
			ID: "T-54..57", Statement: "the first worked example: scores, weights, output, entropy, and the gradients of half the square of the output",
			Check: workedExample, Kernel: workedExampleAsked,
		},
		{
			ID: "P-10..15", Statement: "attention(Q, K, V, mask): a weight is exp(S_ij) / Z_i over the keys that the mask shows, and 0 for the others",
			Check: maskedAttention, Kernel: maskedAttentionAsked,
		},
		{
			ID: "P-prop", Statement: "A_ij >= 0, sum_j A_ij = 1, A is differentiable; permuting keys with values changes no output, shifting all scores of a row no weight",
			Check: invariants, Kernel: invariantsAsked,
		},
		{
			ID: "P-rem", Statement: "Var(q.k) = d_k for components that are independent, of mean 0 and variance 1",
			Check: dotVariance,
		},
		{ID: "P-71..77", Statement: "the worked example", Is: Alias, Of: []string{"T-54..57"}},
		{
			ID: "P-10.2", Statement: "shapes, gradients, large scores, low temperatures, a single key, keys alike, zeros",
			Check: edgeCases, Kernel: edgeCasesAsked,
		},
		{ID: "D-1..3", Statement: "scores, softmax, values", Is: Alias, Of: []string{"T-7", "T-8", "T-9"}},
		{
			ID: "D-shape", Statement: "Q is (n_q, d_k), K (n_k, d_k), V (n_k, d_v), O (n_q, d_v): any other shape is an error",
			Kernel: shapesAsked,
		},
		{
			ID: "D-code", Statement: "attention(Q, K, V, return_weights=True) is the output, (10, 64), and the weights, (10, 20)",
			Check: returnedWeights, Kernel: returnedWeightsAsked,
		},
		{
			ID: "N-gen", Statement: "S_ij = sum_h v_h tanh(sum_a U_ha q_ia + sum_b W_hb k_jb): additive attention, which is not a bilinear form",
			Check: additiveScores, Kernel: additiveScoresAsked,
		},
		{
			ID: "N-ex", Statement: "the worked example to two decimals",
			Check: twoDecimals, Kernel: twoDecimalsAsked,
		},
		{
			ID: "L-2.1", Statement: "scaled dot-product attention with a mask whose 0 blocks, on np.random.seed(42)",
			Check: lessonAttention, Kernel: lessonAttentionAsked,
		},
		{
			ID: "L-2.2", Statement: "Var(q.k) = d_k and Var(q.k / sqrt(d_k)) = 1",
			Check: lessonVariance,
		},
		{
			ID: "M-attention", Statement: "the eight functions of the library's module attention",
			Check: libraryAttention, Kernel: libraryAttentionAsked,
		},
	}
}

// besides returns the answer with by-products, or nil if the kernel does not support them.
func besides(c *Check, a bridge.Attention, call bridge.Call, want attn.Want) *bridge.Answer {
	call.Problem.Want |= want
	ans, err := a.Attend(call)
	if errors.Is(err, attn.ErrUnsupported) {
		return nil
	}
	c.Must(err)
	return ans
}

// normals returns standard normal numbers that are exact in float32.
func normals(c *Check, rows, cols int) *mat.Dense { return bridge.Float32(c.Normal(rows, cols)) }

// withMetric returns a call whose scores are q g k.
func withMetric(q, k, v, g *mat.Dense) bridge.Call {
	return bridge.Call{
		Q: q, K: k, V: v,
		Problem: attn.Problem{Score: attn.Score{Scale: 1, Terms: attn.TermMetric}},
		Args:    attn.Args{Terms: attn.Operands{Metric: bridge.Tensor(g)}},
	}
}

// ex1Metric returns the metric that the worked example is repeated with.
func ex1Metric() *mat.Dense { return Rows([]float64{2, .5}, []float64{.5, 1}) }

func metricScores(c *Check) {
	q, k, v := ex1()
	s := writtenForm(c, q, ex1Metric(), k)
	a, _ := writtenSoftmax(c, s, nil)
	o := writtenOutput(c, a, v)
	c.NearAll("S of the example", Flat(s), []float64{2, .5, 2.5, .5, 1, 1.5}, 1e-15)
	c.Printed("O of the example", "1.27051185 .72948815 .87912784 1.12087216", Flat(o)...)
	d := scorers.Attend(scorers.Bilinear{M: ex1Metric()}, q, k, v, scorers.Options{})
	c.NearMat("S", d.Raw, s, 1e-15)
	c.NearMat("O", d.Output, o, 4e-15)
}

func metricScoresAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	call := withMetric(q, k, v, ex1Metric())
	s := writtenForm(c, q, ex1Metric(), k)
	w, _ := writtenSoftmax(c, s, nil)
	c.Tolerable("O", c.Attend(a, call).O, writtenOutput(c, w, v), 0)
	if ans := besides(c, a, call, attn.WantScores); ans != nil {
		c.Tolerable("S", ans.Scores, s, 0)
	}
}

func dotScores(c *Check) {
	q, k, _ := ex1()
	c.Printed("S of the example", "0.70710678 0.00000000 0.70710678 0.00000000 0.70710678 0.70710678", Flat(writtenScores(c, q, k))...)
	for range 20 {
		n := 1 + c.Rand.IntN(6)
		q, k := c.Normal(4, n+1), c.Normal(n, n+1)
		c.NearMat("S", scorers.Dot{}.Scores(q, k), writtenScores(c, q, k), 1e-14)
	}
}

func dotScoresAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	for range 3 {
		call := bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantScores}}
		c.Tolerable("S", c.Attend(a, call).Scores, writtenScores(c, q, k), 0)
		q, k, v = normals(c, 5, 8), normals(c, 9, 8), normals(c, 9, 2)
	}
}

func outputs(c *Check) {
	q, k, v := ex1()
	a, _ := writtenSoftmax(c, writtenScores(c, q, k), nil)
	c.Printed("O of the example", "1.20333628 .79666372 .79666372 1.20333628", Flat(writtenOutput(c, a, v))...)
	q, k, v = c.Normal(4, 3), c.Normal(6, 3), c.Normal(6, 5)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	c.NearMat("O", d.Output, writtenOutput(c, d.Weights, v), 1e-15)
	rows, cols := d.Output.Dims()
	c.True("O has n_q rows and d_v columns", rows == 4 && cols == 5)
}

func outputsAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	for range 2 {
		_, _, o := written(c, q, k, v, nil)
		c.Tolerable("O", c.Attend(a, bridge.Call{Q: q, K: k, V: v}).O, o, 0)
		q, k, v = normals(c, 4, 3), normals(c, 6, 3), normals(c, 6, 5)
	}
}

// inOneEquation returns O_ib = sum_j w_ij v_jb / sum_j w_ij with w_ij = exp(sum_ac q_ia g_ac k_jc).
func inOneEquation(c *Check, q, g, k, v *mat.Dense) *mat.Dense {
	nq, dq := q.Dims()
	nk, dk := k.Dims()
	_, dv := v.Dims()
	o := mat.NewDense(nq, dv, nil)
	for i := range nq {
		for b := range dv {
			numerator, denominator := 0.0, 0.0
			for j := range nk {
				s := 0.0
				for a := range dq {
					for d := range dk {
						s += q.At(i, a) * g.At(a, d) * k.At(j, c.Index("c", d, dk))
					}
				}
				w := math.Exp(s)
				numerator += w * v.At(j, b)
				denominator += w
			}
			o.Set(i, b, numerator/c.Factor("denominator", denominator))
		}
	}
	return o
}

func oneEquation(c *Check) {
	for range 5 {
		q, g, k, v := c.Normal(5, 3), c.Normal(3, 4), c.Normal(7, 4), c.Normal(7, 2)
		o := inOneEquation(c, q, g, k, v)
		a, _ := writtenSoftmax(c, writtenForm(c, q, g, k), nil)
		c.NearMat("scores, weights and output, one after the other", writtenOutput(c, a, v), o, 1e-13)
		c.NearMat("Attend", scorers.Attend(scorers.Bilinear{M: g}, q, k, v, scorers.Options{}).Output, o, 1e-13)
		var bent mat.Dense
		bent.Mul(q, g)
		c.NearMat("the metric taken into Q", scorers.Attend(scorers.Dot{Scale: 1}, &bent, k, v, scorers.Options{}).Output, o, 1e-13)
	}
}

func oneEquationAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	c.Tolerable("O of the example", c.Attend(a, withMetric(q, k, v, ex1Metric())).O, inOneEquation(c, q, ex1Metric(), k, v), 0)
	q, g, k, v := normals(c, 6, 3), normals(c, 3, 4), normals(c, 21, 4), normals(c, 21, 2)
	c.Tolerable("O", c.Attend(a, withMetric(q, k, v, g)).O, inOneEquation(c, q, g, k, v), 0)
}

// sizes are n_q, n_k, d_k, d_v of problems that kernels divide into blocks differently.
var sizes = [][4]int{{1, 1, 1, 1}, {1, 17, 4, 4}, {3, 2, 5, 1}, {4, 5, 8, 8}, {16, 16, 8, 8}, {33, 65, 8, 3}}

func standard(c *Check) {
	q, k, v := ex1()
	_, _, o := written(c, q, k, v, nil)
	c.Printed("O of the example", "1.20333628 .79666372 .79666372 1.20333628", Flat(o)...)
	for _, n := range sizes {
		q, k, v := c.Normal(n[0], n[2]), c.Normal(n[1], n[2]), c.Normal(n[1], n[3])
		_, _, o := written(c, q, k, v, nil)
		c.NearMat(fmt.Sprint("O, sizes ", n), scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}).Output, o, 1e-13)
	}
}

func standardAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	_, _, o := written(c, q, k, v, nil)
	c.Tolerable("O of the example", c.Attend(a, bridge.Call{Q: q, K: k, V: v}).O, o, 0)
	for _, n := range sizes {
		q, k, v := normals(c, n[0], n[2]), normals(c, n[1], n[2]), normals(c, n[1], n[3])
		_, _, o := written(c, q, k, v, nil)
		c.Tolerable(fmt.Sprint("O, sizes ", n), c.Attend(a, bridge.Call{Q: q, K: k, V: v}).O, o, 0)
	}
}

// formGradient returns dL/dM_ab = sum_ij q_ia dS_ij k_jb.
func formGradient(c *Check, q, dS, k *mat.Dense) *mat.Dense {
	nq, dq := q.Dims()
	nk, dk := k.Dims()
	dM := mat.NewDense(dq, dk, nil)
	for a := range dq {
		for b := range dk {
			sum := 0.0
			for i := range nq {
				for j := range nk {
					sum += q.At(i, a) * dS.At(i, j) * k.At(c.Index("j of k", j, nk), b)
				}
			}
			if c.Flip("transpose of dM") {
				dM.Set(b, a, sum)
			} else {
				dM.Set(a, b, sum)
			}
		}
	}
	return dM
}

func learnedForm(c *Check) {
	c.Erratum("E-24", "the learned form, whose indices contract with those of Q^ia and K^jb", "M_ab: one index up, one down", "M^ab: both up")
	w := c.Normal(3, 3)
	var gram mat.Dense
	gram.Mul(w.T(), w)
	for _, o := range []struct {
		name string
		m    *mat.Dense
	}{{"M = W^T W", &gram}, {"M not symmetric", c.Normal(3, 3)}} {
		q, k, v, dO := c.Normal(4, 3), c.Normal(5, 3), c.Normal(5, 2), c.Normal(4, 2)
		form := scorers.Bilinear{M: o.m}
		s := writtenForm(c, q, o.m, k)
		c.NearMat(o.name+": S", form.Scores(q, k), s, 1e-13)
		a, _ := writtenSoftmax(c, s, nil)
		_, dS := writtenScoreGradient(c, a, v, dO)
		dM := formGradient(c, q, dS, k)
		c.NearMat(o.name+": dM", form.Gradients(q, k, dS).M, dM, 1e-13)
		c.NearAll(o.name+": dM, by differences", Flat(dM), differences(o.m, func() float64 {
			return inner(dO, scorers.Attend(form, q, k, v, scorers.Options{}).Output)
		}), 1e-7)
	}
	// A form that is not symmetric distinguishes queries from keys: S_ij differs from S_ji even
	// where both are the same rows.
	x, m := c.Normal(4, 3), c.Normal(3, 3)
	way := mat.Matrix(m.T())
	if c.Flip("transpose") {
		way = m
	}
	c.NearMat("Q and K exchanged", writtenForm(c, x, m, x).T(), writtenForm(c, x, way, x), 1e-13)
}

func learnedFormAsked(c *Check, a bridge.Attention) {
	q, m, k, v, dO := normals(c, 4, 3), normals(c, 3, 3), normals(c, 6, 3), normals(c, 6, 2), normals(c, 4, 2)
	call := withMetric(q, k, v, m)
	call.DO = dO
	w, _ := writtenSoftmax(c, writtenForm(c, q, m, k), nil)
	_, dS := writtenScoreGradient(c, w, v, dO)
	c.Tolerable("dM", c.Attend(a, call).DMetric, formGradient(c, q, dS, k), 0)
}

// differences returns the gradient of f by the elements of m, by central differences.
func differences(m *mat.Dense, f func() float64) []float64 {
	keep := Flat(m)
	_, cols := m.Dims()
	fill := func(x []float64) {
		for n, y := range x {
			m.Set(n/cols, n%cols, y)
		}
	}
	defer fill(keep)
	return fd.Gradient(nil, func(x []float64) float64 {
		fill(x)
		return f()
	}, keep, &fd.Settings{Formula: fd.Central, Step: 1e-5})
}

// inner returns sum_ij a_ij b_ij.
func inner(a, b *mat.Dense) float64 { return floats.Dot(Flat(a), Flat(b)) }

// exampleGradients returns the gradients of the worked example, given the gradient dO by its
// output.
func exampleGradients(c *Check, a, dO *mat.Dense) (dA, dS, dQ, dK, dV *mat.Dense) {
	q, k, v := ex1()
	dA, dS = writtenScoreGradient(c, a, v, dO)
	dQ, dK, dV = mat.NewDense(2, 2, nil), mat.NewDense(3, 2, nil), mat.NewDense(3, 2, nil)
	scale := c.Factor("1/sqrt(d_k) of gradients", ex1Scale)
	add := func(m *mat.Dense, i, j int, x float64) { m.Set(i, j, m.At(i, j)+x) }
	for i := range 2 {
		for j := range 3 {
			for b := range 2 {
				add(dQ, i, b, scale*dS.At(i, j)*k.At(j, b))
				add(dK, j, b, scale*dS.At(i, j)*q.At(i, b))
				add(dV, j, b, a.At(i, j)*dO.At(c.Index("i of dO", i, 2), b))
			}
		}
	}
	return dA, dS, dQ, dK, dV
}

func workedExample(c *Check) {
	q, k, v := ex1()
	s := writtenScores(c, q, k)
	a, z := writtenSoftmax(c, s, nil)
	o := writtenOutput(c, a, v)
	c.Printed("S", ".70710678 0.00000000 .70710678 0.00000000 .70710678 .70710678", Flat(s)...)
	c.Printed("exp(1/sqrt 2)", "2.02811498", math.Exp(s.At(0, 0)))
	c.Printed("Z", "5.05622996 5.05622996", z...)
	c.Printed("A", ".40111209 .19777581 .40111209 .19777581 .40111209 .40111209", Flat(a)...)
	c.Printed("H", "1.053363 1.053363", Flat(entropyOf(a))...)
	c.Printed("O", "1.20333628 .79666372 .79666372 1.20333628", Flat(o)...)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	c.Printed("log Z", "1.6206211 1.6206211", d.LogPartition...)
	c.NearMat("S, A and O of Attend", stack(d.Scores, d.Weights, d.Output.T()), stack(s, a, o.T()), 4e-15)

	dA, dS, dQ, dK, dV := exampleGradients(c, a, o) // L = half the sum of squares of O
	c.Printed("dA", "2.40667256 1.59332744 2.00000000 1.59332744 2.40667256 2.00000000", Flat(dA)...)
	c.Printed("dS", ".12995281 -.09678433 -.03316847 -.09678433 .12995281 -.03316847", Flat(dS)...)
	c.Printed("dQ", ".06843686 -.09189051 -.09189051 .06843686", Flat(dQ)...)
	c.Printed("dK", ".09189051 -.06843686 -.06843686 .09189051 -.02345365 -.02345365", Flat(dK)...)
	c.Printed("dV", ".64023355 .55754227 .55754227 .64023355 .80222419 .80222419", Flat(dV)...)
	var twice mat.Dense
	twice.Scale(2, o) // L = the sum of squares
	for n, m := range all5(exampleGradients(c, a, &twice)) {
		var half mat.Dense
		half.Scale(.5, m)
		c.NearMat("half of the gradients of the sum of squares", &half, all5(dA, dS, dQ, dK, dV)[n], 1e-15)
	}
}

func all5(a, b, c, d, e *mat.Dense) []*mat.Dense { return []*mat.Dense{a, b, c, d, e} }

// stack returns all elements of some matrices as one column.
func stack(ms ...mat.Matrix) *mat.Dense {
	var all []float64
	for _, m := range ms {
		all = append(all, Flat(m)...)
	}
	return mat.NewDense(len(all), 1, all)
}

func workedExampleAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	s := writtenScores(c, q, k)
	w, z := writtenSoftmax(c, s, nil)
	o := writtenOutput(c, w, v)
	call := bridge.Call{Q: q, K: k, V: v}
	c.Tolerable("O", c.Attend(a, call).O, o, 0)
	if ans := besides(c, a, call, attn.WantScores|attn.WantWeights); ans != nil {
		c.Tolerable("S", ans.Scores, s, 0)
		c.Tolerable("A", ans.Weights, w, 0)
	}
	if ans := besides(c, a, call, attn.WantLSE|attn.WantEntropy); ans != nil {
		c.Tolerable("log Z", ans.LSE, mat.NewDense(2, 1, []float64{math.Log(z[0]), math.Log(z[1])}), 0)
		c.Tolerable("H", ans.Entropy, entropyOf(w), 0)
	}
	call.DO = bridge.Float32(o)
	if ans := besides(c, a, call, 0); ans != nil {
		_, _, dQ, dK, dV := exampleGradients(c, w, call.DO)
		c.Tolerable("dQ", ans.DQ, dQ, 0)
		c.Tolerable("dK", ans.DK, dK, 0)
		c.Tolerable("dV", ans.DV, dV, 0)
	}
}

// someKeys returns a mask, true for a visible key, that shows no key to query 2.
func someKeys(c *Check) func(i, j int) bool {
	return func(i, j int) bool { return (i != 2 && (i+2*j)%3 != 0) != c.Flip("true shows") }
}

func maskedAttention(c *Check) {
	c.Erratum("E-29", "the listing that returns weights", "scaled_dot_product_attention(Q, K, V, return_weights=True)", "attention_with_weights, which is not defined")
	c.Erratum("E-29", "the gradient of the loss by the output", "dL_dO", "dL_d0")
	c.Erratum("E-29", "the random key that Q is drawn with", "one of its own", "the key that is then split for K and V")
	q, k, v := ex1()
	_, _, o := written(c, q, k, v, nil)
	c.Printed("O of the example, all shown", "1.20333628 .79666372 .79666372 1.20333628", Flat(o)...)
	q, k, v = c.Normal(5, 4), c.Normal(7, 4), c.Normal(7, 3)
	_, a, o := written(c, q, k, v, func(i, j int) bool { return i != 2 && (i+2*j)%3 != 0 })
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: someKeys(c)})
	c.NearMat("A", d.Weights, a, 1e-14)
	c.NearMat("O", d.Output, o, 1e-14)
	c.NearAll("weights of a query that sees no key", d.Weights.RawRowView(2), make([]float64, 7), 0)
	c.NearAll("its output", d.Output.RawRowView(2), make([]float64, 3), 0)
	c.Near("its log Z", d.LogPartition[2], math.Inf(-1), 0)
}

func maskedAttentionAsked(c *Check, a bridge.Attention) {
	q, k, v := normals(c, 5, 4), normals(c, 7, 4), normals(c, 7, 3)
	call := bridge.Call{Q: q, K: k, V: v}
	call.Problem.Mask = attn.Full().With(attn.PackedBitmap)
	call.Args.Allowed = attn.Pack(5, 7, func(i, j int) bool { return i != 2 && (i+2*j)%3 != 0 })
	_, w, o := written(c, q, k, v, someKeys(c))
	ans := c.Attend(a, call)
	c.Tolerable("O", ans.O, o, 0)
	c.NearAll("output of a query that sees no key", ans.O.X.RawRowView(2), make([]float64, 3), 0)
	if ans := besides(c, a, call, attn.WantWeights|attn.WantLSE); ans != nil {
		c.Tolerable("A", ans.Weights, w, 0)
		c.Near("log Z of a query that sees no key", ans.LSE.X.At(2, 0), math.Inf(-1), 0)
	}
}

// reordered returns m with its rows in another order.
func reordered(m *mat.Dense, order []int) *mat.Dense {
	to := mat.DenseCopyOf(m)
	for row, from := range order {
		to.SetRow(row, mat.Row(nil, from, m))
	}
	return to
}

// together returns the order of the values for a given order of the keys.
func together(c *Check, order []int) []int {
	if !c.Flip("V with K") {
		return order
	}
	as := make([]int, len(order))
	for j := range as {
		as[j] = j
	}
	return as
}

func invariants(c *Check) {
	const u = 1.0 / (1 << 53)
	order := []int{3, 0, 6, 1, 5, 2, 4}
	for range 50 {
		q, k, v := c.Normal(4, 3), c.Normal(7, 3), c.Normal(7, 2)
		d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
		c.Within("the most negative weight", -min(0, mat.Min(d.Weights)), 0)
		for i := range 4 {
			sum := floats.Sum(d.Weights.RawRowView(i))
			c.Near("sum_j A_ij", sum, c.Factor("1", 1), 7*u)
		}
		moved := scorers.Attend(scorers.Dot{}, q, reordered(k, order), reordered(v, together(c, order)), scorers.Options{})
		c.NearMat("K and V permuted together", moved.Output, d.Output, 1e-14)
		shifted, shift := mat.DenseCopyOf(d.Raw), c.Vector(4)
		shifted.Apply(func(i, j int, s float64) float64 {
			if j > 0 && c.Flip("one shift for all keys") {
				return s
			}
			return s + 10*shift[i]
		}, shifted)
		c.NearMat("scores shifted", scorers.Weights(shifted, scorers.Options{}), d.Weights, 1e-13)

		// Differentiable: the slope along a direction X is A_ij (X_ij - sum_k A_ik X_ik), from both
		// sides.
		const h = 1e-6
		x := c.Normal(4, 7)
		along := func(h float64) *mat.Dense {
			s := mat.DenseCopyOf(x)
			s.Scale(h, s)
			s.Add(s, d.Raw)
			a := scorers.Weights(s, scorers.Options{})
			a.Sub(a, d.Weights)
			a.Scale(1/h, a)
			return a
		}
		slope := mat.NewDense(4, 7, nil)
		for i := range 4 {
			mean := floats.Dot(d.Weights.RawRowView(i), x.RawRowView(i))
			for j := range 7 {
				slope.Set(i, j, d.Weights.At(i, j)*(x.At(i, j)-c.Sign("minus", mean)))
			}
		}
		c.NearMat("slope of A, from above", along(h), slope, 1e-5)
		c.NearMat("slope of A, from below", along(-h), slope, 1e-5)
	}
}

func invariantsAsked(c *Check, a bridge.Attention) {
	const u = 1.0 / (1 << 24)
	q, k, v := coarse(normals(c, 5, 4)), coarse(normals(c, 9, 4)), normals(c, 9, 3)
	_, _, o := written(c, q, k, v, nil)

	// With values of 1 an output is the sum of the weights.
	ones := mat.NewDense(9, 1, nil)
	ones.Apply(func(_, _ int, _ float64) float64 { return c.Factor("1", 1) }, ones)
	sums := mat.NewDense(5, 1, []float64{1, 1, 1, 1, 1})
	c.Tolerable("sum_j A_ij", c.Attend(a, bridge.Call{Q: q, K: k, V: ones}).O, sums, 0)
	if ans := besides(c, a, bridge.Call{Q: q, K: k, V: v}, attn.WantWeights); ans != nil {
		c.Within("the most negative weight", -min(0, mat.Min(ans.Weights.X)), 0)
		for i := range 5 {
			c.Near("sum_j A_ij of the weights themselves", floats.Sum(ans.Weights.X.RawRowView(i)), 1, 9*u)
		}
	}

	order := []int{3, 0, 8, 6, 1, 5, 7, 2, 4}
	c.Tolerable("K and V permuted together", c.Attend(a, bridge.Call{Q: q, K: reordered(k, order), V: reordered(v, together(c, order))}).O, o, 0)

	// Adding a vector w to every key adds the same number, q.w, to all scores of a row. The sums
	// are exact in float32.
	w, shifted := []float64{1, -2, .5, 3}, mat.DenseCopyOf(k)
	shifted.Apply(func(j, b int, x float64) float64 {
		if j > 0 && c.Flip("one shift for all keys") {
			return x
		}
		return x + w[b]
	}, shifted)
	c.Tolerable("scores shifted", c.Attend(a, bridge.Call{Q: q, K: shifted, V: v}).O, o, 0)
}

// coarse returns m rounded to multiples of 1/64.
func coarse(m *mat.Dense) *mat.Dense {
	m.Apply(func(_, _ int, x float64) float64 { return math.Round(64*x) / 64 }, m)
	return m
}

// meanRows returns n rows, each the mean of the rows of v.
func meanRows(c *Check, n int, v *mat.Dense) *mat.Dense {
	nk, dv := v.Dims()
	to := mat.NewDense(n, dv, nil)
	to.Apply(func(_, b int, _ float64) float64 {
		return c.Factor("1/n_k", 1/float64(nk)) * floats.Sum(mat.Col(nil, b, v))
	}, to)
	return to
}

// alike returns n rows, all of them the first row of m.
func alike(n int, m *mat.Dense) *mat.Dense {
	_, cols := m.Dims()
	to := mat.NewDense(n, cols, nil)
	for i := range n {
		to.SetRow(i, mat.Row(nil, 0, m))
	}
	return to
}

// An edge is a call whose answer is known without computing.
type edge struct {
	name          string
	q, k, v, want *mat.Dense
	bound         float64
}

func edges(c *Check) []edge {
	q, k, v := normals(c, 3, 4), normals(c, 5, 4), normals(c, 5, 2)
	zeros := func(m *mat.Dense) *mat.Dense { return mat.NewDense(m.RawMatrix().Rows, m.RawMatrix().Cols, nil) }
	one := normals(c, 1, 2)
	return []edge{
		{"a single key: its value", q, normals(c, 1, 4), one, alike(3, one), 0},
		{"keys alike: the mean of the values", q, alike(5, k), v, meanRows(c, 3, v), 1e-15},
		{"queries of zeros: the mean of the values", zeros(q), k, v, meanRows(c, 3, v), 1e-15},
		{"keys of zeros: the mean of the values", q, zeros(k), v, meanRows(c, 3, v), 1e-15},
		{"values of zeros", q, k, zeros(v), mat.NewDense(3, 2, nil), 0},
	}
}

// largeScores returns operands whose products are 10000, 9990.625 and 0, and the weights for these
// scores.
func largeScores(c *Check) (q, k, v, weights *mat.Dense) {
	q, k = Rows([]float64{100, 0}), Rows([]float64{100, 7}, []float64{99.90625, 7}, []float64{0, 7})
	gap := c.Sign("the largest is taken away", q.At(0, 0)*(k.At(1, 0)-k.At(0, 0)))
	w := 1 / (1 + math.Exp(gap))
	return q, k, Rows([]float64{1, 0}, []float64{0, 1}, []float64{5, 5}), Rows([]float64{w, 1 - w, 0})
}

func edgeCases(c *Check) {
	q, k, v := c.Normal(3, 4), c.Normal(5, 4), c.Normal(5, 2)
	rows, cols := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}).Output.Dims()
	c.True("the output is n_q by d_v", rows == 3 && cols == 2)

	dO := c.Normal(3, 2)
	a, _ := writtenSoftmax(c, writtenScores(c, q, k), nil)
	_, dS := writtenScoreGradient(c, a, v, dO)
	c.NearMat("dQ, by differences", queryGradient(c, dS, k), queryDifferences(q, k, v, dO), 1e-7)

	q, k, v, weights := largeScores(c)
	d := scorers.Attend(scorers.Dot{Scale: 1}, q, k, v, scorers.Options{})
	c.True("exp of the largest score is no number", math.IsInf(math.Exp(d.Raw.At(0, 0)), 1))
	c.NearMat("weights of scores of 1e4", d.Weights, weights, 1e-15)

	q, k, v = ex1()
	d = scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Temp: 1e-3})
	c.NearAll("O of the example at T = 1e-3", Flat(d.Output), []float64{1.5, .5, .5, 1.5}, 1e-15)

	for _, e := range edges(c) {
		c.NearMat(e.name, scorers.Attend(scorers.Dot{}, e.q, e.k, e.v, scorers.Options{}).Output, e.want, e.bound)
	}
}

// queryGradient returns dQ_ia = sum_j dS_ij k_ja / sqrt(d_k).
func queryGradient(c *Check, dS, k *mat.Dense) *mat.Dense {
	nq, nk := dS.Dims()
	_, d := k.Dims()
	dQ := mat.NewDense(nq, d, nil)
	for i := range nq {
		for a := range d {
			sum := 0.0
			for j := range nk {
				sum += dS.At(i, j) * k.At(j, a)
			}
			dQ.Set(i, a, c.Factor("1/sqrt(d_k) of dQ", 1/math.Sqrt(float64(d)))*sum)
		}
	}
	return dQ
}

// queryDifferences returns the gradient of sum dO O by the elements of Q, by differences.
func queryDifferences(q, k, v, dO *mat.Dense) *mat.Dense {
	rows, cols := q.Dims()
	return mat.NewDense(rows, cols, differences(q, func() float64 {
		return inner(dO, scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}).Output)
	}))
}

func edgeCasesAsked(c *Check, a bridge.Attention) {
	for _, e := range edges(c) {
		ans := c.Attend(a, bridge.Call{Q: e.q, K: e.k, V: e.v})
		if e.bound == 0 {
			c.NearMat(e.name, ans.O.X, e.want, 0)
		} else {
			c.Tolerable(e.name, ans.O, e.want, 0)
		}
	}
	q, k, v, weights := largeScores(c)
	c.Tolerable("scores of 1e4", c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Score: attn.Score{Scale: 1}}}).O, writtenOutput(c, weights, v), 0)

	q, k, v = ex1()
	cold := bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Score: attn.Score{Temp: 1e-3}}}
	if ans := besides(c, a, cold, 0); ans != nil {
		c.Tolerable("O of the example at T = 1e-3", ans.O, Rows([]float64{1.5, .5}, []float64{.5, 1.5}), 0)
	}
	call := bridge.Call{Q: normals(c, 3, 4), K: normals(c, 5, 4), V: normals(c, 5, 2), DO: normals(c, 3, 2)}
	if ans := besides(c, a, call, 0); ans != nil {
		c.Tolerable("dQ, by differences", ans.DQ, queryDifferences(call.Q, call.K, call.V, call.DO), 1e-8)
	}
}

// shapesAsked checks the errors for operands that do not fit, each with one row or column too many.
func shapesAsked(c *Check, a bridge.Attention) {
	c.Erratum("E-25", "the shape of O", "(n_q, d_v), that of Q only where d_v = d_k", "the same as that of the queries, (n_q, d_v)")
	more := 1
	if c.Flip("one too many") {
		more = 0
	}
	for _, o := range []struct {
		name, says string
		set        func(*bridge.Call)
	}{
		{"columns of K", "dim", func(call *bridge.Call) { call.K = normals(c, 5, 4+more) }},
		{"rows of V", "rows of K and V are 5 and 6", func(call *bridge.Call) { call.V = normals(c, 5+more, 2) }},
		{"rows of K", "rows of K and V are 6 and 5", func(call *bridge.Call) { call.K = normals(c, 5+more, 4) }},
		{"columns of dO", "dOut", func(call *bridge.Call) { call.DO = normals(c, 3, 2+more) }},
		{"rows of dO", "dOut", func(call *bridge.Call) { call.DO = normals(c, 3+more, 2) }},
		{"rows of a metric", "Metric", func(call *bridge.Call) {
			call.Problem.Score.Terms, call.Args.Terms.Metric = attn.TermMetric, bridge.Tensor(normals(c, 4+more, 4))
		}},
		{"columns of a bias", "Bias", func(call *bridge.Call) {
			call.Problem.Score.Terms, call.Args.Terms.Bias = attn.TermBias, bridge.Tensor(normals(c, 3, 5+more))
		}},
		{"rows of a mask", "Allowed", func(call *bridge.Call) {
			call.Problem.Mask = attn.Full().With(attn.PackedBitmap)
			call.Args.Allowed = attn.Pack(3+more, 5, func(_, _ int) bool { return true })
		}},
	} {
		call := bridge.Call{Q: normals(c, 3, 4), K: normals(c, 5, 4), V: normals(c, 5, 2)}
		o.set(&call)
		_, err := a.Attend(call)
		c.True(o.name+": an error", err != nil)
		c.True(o.name+": not one of ability", !errors.Is(err, attn.ErrUnsupported))
		c.True(o.name+": it says "+o.says, err != nil && strings.Contains(err.Error(), o.says))
	}
	rows, cols := c.Attend(a, bridge.Call{Q: normals(c, 3, 4), K: normals(c, 5, 4), V: normals(c, 5, 2)}).O.X.Dims()
	want := 2
	if c.Flip("d_v and not d_k") {
		want = 4
	}
	c.True("O is (n_q, d_v)", rows == 3 && cols == want)
}

func returnedWeights(c *Check) {
	c.Erratum("E-26", "drawing normal numbers", "jax.random.normal", "jnp.randn, which does not exist")
	c.Erratum("E-26", "the call of multihead_attention", "it takes W_Q, W_K, W_V and W_O, whose first axis is the heads", "multihead_attention(Q, K, V, num_heads=8)")
	const u = 1.0 / (1 << 53)
	q, k, v := c.Normal(10, 64), c.Normal(20, 64), c.Normal(20, 64)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	rows, cols := d.Output.Dims()
	c.True("the output is (10, 64)", rows == 10 && cols == 64)
	rows, cols = d.Weights.Dims()
	c.True("the weights are (10, 20)", rows == 10 && cols == 20)
	for i := range rows {
		c.Near("sum_j A_ij", floats.Sum(d.Weights.RawRowView(i)), 1, 20*u)
	}
	_, a, _ := written(c, q, k, v, nil)
	c.NearMat("A", d.Weights, a, 1e-14)
	c.NearMat("O = A V", d.Output, writtenOutput(c, d.Weights, v), 1e-14)
}

func returnedWeightsAsked(c *Check, a bridge.Attention) {
	const u = 1.0 / (1 << 24)
	q, k, v := normals(c, 10, 64), normals(c, 20, 64), normals(c, 20, 64)
	ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantWeights}})
	_, w, o := written(c, q, k, v, nil)
	c.Tolerable("A", ans.Weights, w, 0)
	c.Tolerable("O", ans.O, o, 0)
	for i := range 10 {
		c.Near("sum_j A_ij", floats.Sum(ans.Weights.X.RawRowView(i)), 1, 20*u)
	}
}

// writtenAdditive returns S_ij = sum_h v_h tanh(sum_a U_ha q_ia + sum_b W_hb k_jb).
func writtenAdditive(c *Check, s scorers.Additive, q, k *mat.Dense) *mat.Dense {
	nq, dq := q.Dims()
	nk, dk := k.Dims()
	to := mat.NewDense(nq, nk, nil)
	for i := range nq {
		for j := range nk {
			sum := 0.0
			for h := range s.V {
				x := 0.0
				for a := range dq {
					x += s.U.At(h, a) * q.At(i, a)
				}
				for b := range dk {
					x += c.Sign("plus", s.W.At(h, b)*k.At(j, b))
				}
				sum += s.V[c.Index("h", h, len(s.V))] * math.Tanh(x)
			}
			to.Set(i, j, sum)
		}
	}
	return to
}

func additiveScores(c *Check) {
	q, k := c.Normal(4, 3), c.Normal(6, 2)
	u, w, v := c.Normal(5, 3), c.Normal(5, 2), c.Normal(1, 5)
	s := scorers.Additive{U: u, W: w, V: v.RawRowView(0)}
	c.NearMat("S", s.Scores(q, k), writtenAdditive(c, s, q, k), 1e-13)
	dS := c.Normal(4, 6)
	g := s.Gradients(q, k, dS)
	for _, o := range []struct {
		name string
		by   *mat.Dense
		got  []float64
	}{{"dQ", q, Flat(g.Q)}, {"dK", k, Flat(g.K)}, {"dU", u, Flat(g.U)}, {"dW", w, Flat(g.W)}, {"dV", v, g.V}} {
		loss := func() float64 { return inner(dS, writtenAdditive(c, s, q, k)) }
		c.NearAll(o.name+", by differences", o.got, differences(o.by, loss), 1e-7)
	}
	notBilinear(c)
}

// notBilinear checks the errors of the notes about the family of scores.
func notBilinear(c *Check) {
	x, y, k := c.Normal(1, 3), c.Normal(1, 3), c.Normal(1, 3)
	var both mat.Dense
	both.Add(x, y)
	defect := func(s scorers.Scorer) float64 { // of S(x + y, k) = S(x, k) + S(y, k)
		return math.Abs(s.Scores(&both, k).At(0, 0) - s.Scores(x, k).At(0, 0) - s.Scores(y, k).At(0, 0))
	}
	form := scorers.Bilinear{M: c.Normal(3, 3)}
	net := scorers.Additive{U: c.Normal(4, 3), W: c.Normal(4, 3), V: c.Vector(4)}
	c.Within("a bilinear form is linear in the query", defect(form), 1e-13)
	c.True("additive scores are not", defect(net) > .01)
	c.Erratum("E-22", "additive attention", "not bilinear: tanh is between query and score", "a member of the family of bilinear forms")

	identity := mat.NewDiagDense(3, []float64{1, 1, 1})
	c.NearMat("S = Q K^T has the metric delta", scorers.Bilinear{M: identity}.Scores(x, k), scorers.Dot{Scale: 1}.Scores(x, k), 1e-15)
	c.Erratum("E-22", "the metric of S = Q K^T", "delta", "the scaled identity, which belongs to S = Q K^T / sqrt(d)")

	// |q-k|^2 = q.q - 2 q.k + k.k: a large score means a small distance.
	dot := func(a, b *mat.Dense) float64 { return scorers.Dot{Scale: 1}.Scores(a, b).At(0, 0) }
	var gap mat.Dense
	gap.Sub(x, k)
	c.Near("|q-k|^2", dot(&gap, &gap), dot(x, x)-c.Factor("2", 2)*dot(x, k)+dot(k, k), 1e-13)
	c.True("a query's score with itself is not 0", dot(x, x) > .01)
	c.Erratum("E-22", "what a score measures", "similarity", "distance")

	q := c.Normal(4, 3)
	a := scorers.Weights(scorers.Dot{}.Scores(q, q), scorers.Options{})
	var skew mat.Dense
	skew.Sub(a, a.T())
	c.True("A with Q = K is not symmetric", mat.Max(&skew) > .01)
	c.Erratum("E-22", "which matrix is a kernel matrix", "exp(S) with Q = K; A, whose rows are divided by their own sums, is not symmetric", "A")
}

// additiveScoresAsked checks that a kernel can take any scores: as a bias, with products of zero.
func additiveScoresAsked(c *Check, a bridge.Attention) {
	q, k, v := c.Normal(4, 3), c.Normal(6, 2), normals(c, 6, 2)
	s := scorers.Additive{U: c.Normal(5, 3), W: c.Normal(5, 2), V: c.Vector(5)}
	bias := bridge.Float32(s.Scores(q, k))
	call := bridge.Call{Q: mat.NewDense(4, 1, nil), K: mat.NewDense(6, 1, nil), V: v}
	call.Problem.Score.Terms, call.Args.Terms.Bias = attn.TermBias, bridge.Tensor(bias)
	w, _ := writtenSoftmax(c, bias, nil)
	c.Tolerable("O", c.Attend(a, call).O, writtenOutput(c, w, v), 0)
	c.NearMat("the bias is the scores", bias, writtenAdditive(c, s, q, k), 1e-6)
}

func twoDecimals(c *Check) {
	q, k, v := ex1()
	s, a, o := written(c, q, k, v, nil)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	for _, f := range []struct {
		name, printed string
		loops, theory *mat.Dense
	}{
		{"S", ".71 0.00 .71 0.00 .71 .71", s, d.Scores},
		{"A", ".40 .20 .40 .20 .40 .40", a, d.Weights},
		{"O", "1.20 .80 .80 1.20", o, d.Output},
	} {
		c.Printed(f.name, f.printed, Flat(f.loops)...)
		c.Printed(f.name+" of Attend", f.printed, Flat(f.theory)...)
	}
}

func twoDecimalsAsked(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v})
	c.Printed("O", "1.20 .80 .80 1.20", Flat(ans.O.X)...)
	_, _, o := written(c, q, k, v, nil)
	c.Tolerable("O", ans.O, o, 0)
}

// lessonInputs returns the operands that the lesson's listing draws: four queries, five keys, d_k =
// d_v = 8.
func lessonInputs() (q, k, v *mat.Dense) {
	r := newNumpyRandom(42)
	q = r.randn(4, 8)
	k = r.randn(5, 8)
	v = r.randn(5, 8)
	return q, k, v
}

// lessonMask is a mask in the lesson's form: 0 hides a key.
var lessonMask = [4][5]int{{1, 1, 0, 1, 1}, {1, 0, 0, 0, 1}, {0, 0, 0, 1, 0}, {1, 1, 1, 1, 1}}

func lessonShows(c *Check) func(i, j int) bool {
	return func(i, j int) bool { return (lessonMask[i][j] != 0) != c.Flip("0 blocks") }
}

func lessonAttention(c *Check) {
	q, k, v := lessonInputs()
	_, a, o := written(c, q, k, v, nil)
	c.Printed("A, row 0", ".04776039 .14452342 .291851 .08233432 .43353087", a.RawRowView(0)...)
	c.Printed("O, row 0", "-.23361132 .47279906 .93494327 .30342251 -.32246129 -.24933302 -.83782131 -.55209267", o.RawRowView(0)...)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	c.NearMat("A", d.Weights, a, 1e-14)
	c.NearMat("O", d.Output, o, 1e-14)
	_, _, o = written(c, q, k, v, lessonShows(c))
	masked := scorers.Options{Mask: func(i, j int) bool { return lessonMask[i][j] != 0 }}
	c.NearMat("O with a mask", scorers.Attend(scorers.Dot{}, q, k, v, masked).Output, o, 1e-14)
}

func lessonAttentionAsked(c *Check, a bridge.Attention) {
	q, k, v := lessonInputs()
	q, k, v = bridge.Float32(q), bridge.Float32(k), bridge.Float32(v)
	_, _, o := written(c, q, k, v, nil)
	call := bridge.Call{Q: q, K: k, V: v}
	c.Tolerable("O", c.Attend(a, call).O, o, 0)
	_, _, o = written(c, q, k, v, lessonShows(c))
	call.Problem.Mask = attn.Full().With(attn.PackedBitmap)
	call.Args.Allowed = attn.Pack(4, 5, func(i, j int) bool { return lessonMask[i][j] != 0 })
	c.Tolerable("O with a mask", c.Attend(a, call).O, o, 0)
}

// libraryAttention checks the module function by function. The doc of package scorers has our names
// for these functions.
func libraryAttention(c *Check) {
	q, k, v, g := c.Normal(4, 3), c.Normal(6, 3), c.Normal(6, 2), c.Normal(3, 3)
	show := func(i, j int) bool { return j <= i+2 }
	s, a, o := written(c, q, k, v, nil)
	c.NearMat("attention_scores", scorers.Dot{}.Scores(q, k), s, 1e-14)
	unscaled := mat.DenseCopyOf(s)
	unscaled.Scale(math.Sqrt(3), s)
	c.NearMat("attention_scores(scale=False)", scorers.Dot{Scale: 1}.Scores(q, k), unscaled, 1e-14)
	bent := writtenForm(c, q, g, k)
	c.NearMat("attention_scores_with_metric", scorers.Bilinear{M: g}.Scores(q, k), bent, 1e-13)
	c.NearMat("attention_weights", scorers.Weights(s, scorers.Options{}), a, 1e-14)
	warm := mat.DenseCopyOf(s)
	warm.Scale(c.Factor("1/T", 1/2.5), s)
	cool, _ := writtenSoftmax(c, warm, show)
	c.NearMat("attention_weights(mask, temperature)", scorers.Weights(s, scorers.Options{Mask: show, Temp: 2.5}), cool, 1e-14)
	c.NearMat("attention_output", scorers.Output(a, v), o, 1e-14)
	c.NearMat("scaled_dot_product_attention", scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}).Output, o, 1e-14)
	tilted, _ := writtenSoftmax(c, bent, nil)
	c.NearMat("bilinear_attention", scorers.Attend(scorers.Bilinear{M: g}, q, k, v, scorers.Options{}).Output, writtenOutput(c, tilted, v), 1e-13)
	libraryBatch(c)
	libraryDecomposition(c)
}

// libraryBatch checks batched_attention, with a mask for all entries and with one for each.
func libraryBatch(c *Check) {
	var q, k, v []*mat.Dense
	for range 3 {
		q, k, v = append(q, c.Normal(2, 3)), append(k, c.Normal(4, 3)), append(v, c.Normal(4, 2))
	}
	for _, o := range []struct {
		name string
		show func(b, i, j int) bool
	}{
		{"batched_attention, no mask", func(_, _, _ int) bool { return true }},
		{"batched_attention, a mask for all", func(_, i, j int) bool { return i != j }},
		{"batched_attention, a mask each", func(b, _, j int) bool { return b != j }},
	} {
		got := scorers.AttendBatch(scorers.Dot{}, q, k, v, func(b int) scorers.Options {
			return scorers.Options{Mask: func(i, j int) bool { return o.show(b, i, j) }}
		})
		for b := range got {
			n := c.Index("entry", b, 3)
			_, _, want := written(c, q[n], k[n], v[n], func(i, j int) bool { return o.show(n, i, j) })
			c.NearMat(o.name, got[b].Output, want, 1e-14)
		}
	}
}

// libraryDecomposition checks decompose_attention, whose partition function sums unshifted
// exponentials.
func libraryDecomposition(c *Check) {
	q, k, v := ex1()
	s := writtenScores(c, q, k)
	_, z := writtenSoftmax(c, s, nil)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	c.NearMat("decompose_attention: scores", d.Scores, s, 1e-15)
	c.NearAll("decompose_attention: partition", d.Partition(), z, 1e-14)
	c.NearAll("log Z", d.LogPartition, []float64{math.Log(z[0]), math.Log(z[1])}, 1e-15)

	large := scorers.Decompose(Rows([]float64{89, 88}), Rows([]float64{1}, []float64{2}), scorers.Options{})
	c.True("E-30: exp(89) is no float32", math.IsInf(float64(float32(math.Exp(89))), 1))
	c.Near("log Z of [89, 88]", large.LogPartition[0], 89+math.Log1p(math.Exp(-1)), 1e-13)
	c.Erratum("E-30", "the partition function of scores [89, 88]", fmt.Sprintf("log Z = %.6f", large.LogPartition[0]), "Z = sum exp(S), which overflows in float32 where S > 88.72")
}

func libraryAttentionAsked(c *Check, a bridge.Attention) {
	q, k, v := normals(c, 4, 3), normals(c, 6, 3), normals(c, 6, 2)
	call := bridge.Call{Q: q, K: k, V: v}
	call.Problem.Want, call.Problem.Mask = attn.WantScores|attn.WantWeights|attn.WantLSE, attn.Causal()
	call.Problem.Score.Temp = 2.5
	ans := c.Attend(a, call)
	show := func(i, j int) bool { return j <= i+2 }
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: show, Temp: 2.5})
	c.Tolerable("scores", ans.Scores, d.Scores, 0)
	c.Tolerable("log Z", ans.LSE, mat.NewDense(4, 1, d.LogPartition), 0)
	warm := writtenScores(c, q, k)
	warm.Scale(c.Factor("1/T", 1/2.5), warm)
	w, _ := writtenSoftmax(c, warm, show)
	c.Tolerable("weights", ans.Weights, w, 0)
	c.Tolerable("output", ans.O, writtenOutput(c, w, v), 0)
}
