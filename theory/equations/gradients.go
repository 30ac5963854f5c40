package equations

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bridge"
	"attnlab/theory/calculus"
)

// gradients returns the rows on the backward pass.
func gradients() []Row {
	return []Row{
		{
			ID:        "T-22",
			Statement: "dL/dQ^mn = sum dL/dO^ib dO^ib/dA^jk dA^jk/dS^pq dS^pq/dQ^mn: the chain rule through every stage",
			Check:     checkChainRule, Kernel: kernelChainRule,
		},
		{ID: "T-23,24", Statement: "dO^ib/dA^mn = delta_m^i V^nb; dO^ib/dV^mn = A^im delta_n^b", Check: checkOutputJacobians},
		{ID: "T-25", Statement: "dL/dA^ij = sum_b dL/dO^ib V^jb: dA = dO V^T", Check: checkGradA},
		{ID: "T-26", Statement: "dL/dV^jb = sum_i A^ij dL/dO^ib: dV = A^T dO", Check: checkGradV, Kernel: kernelGradV},
		{ID: "T-27", Statement: "dA^ij/dS^mn = delta_m^i A^ij (delta_n^j - A^in): the Jacobian of the softmax", Check: checkSoftmaxJacobian, Kernel: kernelSoftmaxJacobian},
		{ID: "T-28,29", Statement: "dS = A * (dA - rowsum(A * dA)), and rowsum(A * dA) = rowsum(dO * O)", Check: checkGradSoftmax, Kernel: kernelGradSoftmax},
		{ID: "T-30,31", Statement: "dS^ij/dQ^mn = delta_m^i K^jn / sqrt d; dS^ij/dK^mn = Q^in delta_m^j / sqrt d", Check: checkScoreJacobians},
		{ID: "T-32", Statement: "dQ = dS K / sqrt d", Check: checkGradQ, Kernel: kernelGradQ},
		{ID: "T-33", Statement: "dK = dS^T Q / sqrt d", Check: checkGradK, Kernel: kernelGradK},
		{ID: "T-bwd", Statement: "the backward pass in five steps: dV, dA, dS, dQ, dK", Check: checkBackward, Kernel: kernelBackward},
		{ID: "T-appB", Statement: "verify_gradients: dL/dQ, dL/dK and dL/dV are right, and a wrong backward pass is detected", Check: checkVerify, Kernel: kernelVerify},
		{ID: "P-29..33", Statement: "the chain rule, and dO^ib/dV^mn = sum_j A^ij delta_m^j delta_n^b = A^im delta_n^b", Check: checkValueJacobian, Kernel: kernelGradV},
		{ID: "P-34", Statement: "dL/dV = A^T dL/dO", Is: Alias, Of: []string{"T-26"}},
		{ID: "P-35..37", Statement: "da_j/ds_n = a_j (1 - a_j) for n = j, -a_j a_n otherwise", Check: checkSoftmaxCases, Kernel: kernelSoftmaxCases},
		{ID: "P-38..43", Statement: "dL/dS^in = sum_j dL/dA^ij A^ij (delta_n^j - A^in) = A^in (dL/dA^in - sum_j A^ij dL/dA^ij)", Check: checkSoftmaxProof, Kernel: kernelSoftmaxProof},
		{ID: "P-44..46", Statement: "dS/dQ and dS/dK", Is: Alias, Of: []string{"T-30,31"}},
		{ID: "P-47..50", Statement: "dL/dQ = dS K / sqrt d and dL/dK = dS^T Q / sqrt d", Is: Alias, Of: []string{"T-32", "T-33"}},
		{ID: "P-5.5", Statement: "the backward pass in summary, whose third step is dS = A * (dA - rowsum(A * dA))", Check: checkSummary, Kernel: kernelSummary},
		{ID: "P-5.6", Statement: "gradients of L = sum O^2 agree with numerical ones", Check: checkNumerical, Kernel: kernelNumerical},
		{ID: "P-11.1", Statement: "dH/dS_j = -A_j (log A_j + H), for a penalty on entropy; dLSE/dS_j = A_j; and a learned metric has its gradient too", Check: checkEntropyPenalty, Kernel: kernelEntropyPenalty},
		{ID: "N-grad", Statement: "dL/dS^pq = sum dL/dO^ib dO^ib/dA^mn dA^mn/dS^pq, and so on to Q and K", Check: checkNotesChain, Kernel: kernelNotesChain},
		{ID: "M-gradients", Statement: "the nine functions of the library's module gradients", Check: checkGradientsModule, Kernel: kernelDifference},
	}
}

// Figures of the worked example with the loss of half the squared norm.
const (
	printedDA = "2.40667256 1.59332744 2.00000000 1.59332744 2.40667256 2.00000000"
	printedDS = ".12995281 -.09678433 -.03316847 -.09678433 .12995281 -.03316847"
	printedDQ = ".06843686 -.09189051 -.09189051 .06843686"
	printedDK = ".09189051 -.06843686 -.06843686 .09189051 -.02345365 -.02345365"
	printedDV = ".64023355 .55754227 .55754227 .64023355 .80222419 .80222419"
)

// chainRule returns dQ as the product of four derivatives, each computed from its formula and
// summed over all indices.
func (b backprop) chainRule(c *Check) *mat.Dense {
	nq, nk, d, dv := b.dims()
	a, o := b.forward()
	dO := b.upstream(o)
	scale, minus := c.Factor("scale", b.factor()), c.Sign("minus", 1)
	dQ := mat.NewDense(nq, d, nil)
	for m := range nq {
		for n := range d {
			sum := 0.0
			for i := range nq {
				for e := range dv {
					for j := range nq {
						for k := range nk {
							outputByWeight := gradDelta(i, j) * b.v.At(k, e)
							if outputByWeight == 0 {
								continue
							}
							for p := range nq {
								for q := range nk {
									weightByScore := gradDelta(j, p) * a.At(j, k) * (gradDelta(k, q) - minus*a.At(j, q)) / b.temperature()
									scoreByQuery := scale * gradDelta(p, m) * b.k.At(c.Index("key", q, nk), n)
									sum += dO.At(i, e) * outputByWeight * weightByScore * scoreByQuery
								}
							}
						}
					}
				}
			}
			dQ.Set(m, n, sum)
		}
	}
	return dQ
}

func checkChainRule(c *Check) {
	c.Printed("dQ of EX1", printedDQ, Flat(ex1Backprop().chainRule(c))...)
	for _, b := range []backprop{ex1Backprop(), someBackprop(c, "random", 3, 4, 2, 2), someBackprop(c, "causal, T = 1/2", 3, 4, 2, 3).causal().heated(0.5)} {
		nq, _, _, _ := b.dims()
		want := b.chainRule(c)
		a, o := b.forward()
		dO := b.upstream(o)
		byWeights, byScores := calculus.OutputByWeights(nq, b.v), calculus.WeightsByScores(a, b.temp)
		byQueries := calculus.ScoresByQueries(nq, b.k, b.scale)
		left, right := byWeights.Through(byScores).Through(byQueries), byWeights.Through(byScores.Through(byQueries))
		c.NearMat(b.name+": the product of the Jacobians", left.Pull(dO), want, 1e-13*gradSize(dO))
		c.NearMat(b.name+": the product does not depend on where it is begun", left.Matrix, right.Matrix, 1e-14*gradSize(left.Matrix))
		c.NearMat(b.name+": one step back at a time", byQueries.Pull(byScores.Pull(byWeights.Pull(dO))), want, 1e-13*gradSize(dO))
		c.NearMat(b.name+": the backward pass", b.staged().DQ, want, 1e-13*gradSize(dO))
	}
}

func kernelChainRule(c *Check, at bridge.Attention) {
	for _, b := range []backprop{ex1Backprop(), someBackprop(c, "causal", 3, 4, 2, 3).causal()} {
		b = b.single()
		c.Tolerable(b.name+": dQ", b.ask(c, at).DQ, b.chainRule(c), gradNoise)
	}
}

func checkBackward(c *Check) {
	s := ex1Backprop().five(c)
	for _, f := range []struct {
		name, printed string
		m             *mat.Dense
	}{{"dV", printedDV, s.DV}, {"dA", printedDA, s.DA}, {"dS", printedDS, s.DS}, {"dQ", printedDQ, s.DQ}, {"dK", printedDK, s.DK}} {
		c.Printed(f.name+" of EX1", f.printed, Flat(f.m)...)
	}
	nearStages(c, "EX1", ex1Backprop().staged(), s, 1e-14)
	for _, b := range backpropCases(c) {
		s := b.five(c)
		size := gradSize(s.DQ, s.DK, s.DV)
		nearStages(c, b.name, b.staged(), s, 1e-13*size)
		d := b.differences(1e-6)
		c.NearMat(b.name+": dQ by differences", d.DQ, s.DQ, 1e-7*size)
		c.NearMat(b.name+": dK by differences", d.DK, s.DK, 1e-7*size)
		c.NearMat(b.name+": dV by differences", d.DV, s.DV, 1e-7*size)
	}
}

func kernelBackward(c *Check, at bridge.Attention) {
	for _, b := range append(backpropCases(c), ex1Backprop(), someBackprop(c, "17 queries, 33 keys, causal", 17, 33, 8, 5).causal()) {
		b = b.single()
		s := b.five(c)
		tolerableGradients(c, b.name, b.ask(c, at), calculus.Gradients{DQ: s.DQ, DK: s.DK, DV: s.DV})
	}
}

// misprinted returns a backward pass with the third step as the summary prints it, dS = A * (dA -
// rowsum(dA)).
func (b backprop) misprinted() *calculus.Staged {
	s, d := b.staged(), b.decompose()
	wrongBackprops[0].change(d.Weights, b.q, b.k, nil, s)
	return s
}

func checkSummary(c *Check) {
	s := ex1Backprop().five(c)
	c.Printed("dV of EX1", printedDV, Flat(s.DV)...)
	c.Printed("dS of EX1", printedDS, Flat(s.DS)...)
	c.Printed("dQ of EX1", printedDQ, Flat(s.DQ)...)
	c.Printed("dK of EX1", printedDK, Flat(s.DK)...)
	wrong := ex1Backprop().misprinted()
	c.Printed("E-03: dS_1 of EX1 with the misprint", "-1.441327 -.871533 -1.604448", wrong.DS.RawRowView(0)...)
	c.Printed("E-03: dQ_1 of EX1 with the misprint", "-2.153688 -1.750783", wrong.DQ.RawRowView(0)...)
	c.Refutes("E-03", "dS_11 of EX1 with step 3 as printed, A * (dA - rowsum(dA))", "-1.441327", s.DS.At(0, 0))
	c.Refutes("E-03", "dQ_11 of EX1 with step 3 as printed", "-2.153688", s.DQ.At(0, 0))
	differences := ex1Backprop().differences(1e-6)
	c.NearMat("differences say which one it is", differences.DQ, s.DQ, 1e-7)
	c.True("and which one it is not", math.Abs(differences.DQ.At(0, 0)-wrong.DQ.At(0, 0)) > 2)
	c.Erratum("E-03", "step 3 of the summary", "dS = A * (dA - rowsum(A * dA))", "dS = A * (dA - rowsum(dA))")
}

func kernelSummary(c *Check, at bridge.Attention) {
	for _, b := range []backprop{ex1Backprop(), someBackprop(c, "random", 4, 6, 3, 2)} {
		b = b.single()
		ans, s, wrong := b.ask(c, at), b.five(c), b.misprinted()
		tolerableGradients(c, b.name, ans, calculus.Gradients{DQ: s.DQ, DK: s.DK, DV: s.DV})
		apart := floats.Distance(Flat(ans.DQ.X), Flat(wrong.DQ), math.Inf(1))
		c.True(b.name+": nowhere near the misprint", apart > 1e4*mat.Max(ans.DQ.Tol))
	}
}

// chainByScores returns dL/dS_mn = sum dL/dO_ib dO_ib/dA_pj dA_pj/dS_mn. With oneRow it uses the
// label i for p too, as the notes do; i then occurs three times.
func (b backprop) chainByScores(c *Check, oneRow bool) *mat.Dense {
	nq, nk, _, dv := b.dims()
	a, o := b.forward()
	dO := b.upstream(o)
	minus := c.Sign("minus", 1)
	to := mat.NewDense(nq, nk, nil)
	for m := range nq {
		for n := range nk {
			for i := range nq {
				for p := range nq {
					if oneRow && p != i {
						continue
					}
					for j := range nk {
						for e := range dv {
							outputByWeight := gradDelta(i, p) * b.v.At(j, e)
							weightByScore := gradDelta(p, c.Index("row of S", m, nq)) * a.At(p, j) * (gradDelta(j, n) - minus*a.At(p, n))
							gradAdd(to, m, n, dO.At(i, e)*outputByWeight*weightByScore)
						}
					}
				}
			}
		}
	}
	return to
}

func checkNotesChain(c *Check) {
	c.Printed("dS of EX1", printedDS, Flat(ex1Backprop().chainByScores(c, false))...)
	scale := c.Factor("scale", ex1Scale)
	dS := ex1Backprop().chainByScores(c, false)
	q, k, _ := ex1()
	dQ, dK := new(mat.Dense), new(mat.Dense)
	dQ.Mul(dS, k)
	dK.Mul(dS.T(), q)
	dQ.Scale(scale, dQ)
	dK.Scale(scale, dK)
	c.Printed("dQ of EX1", printedDQ, Flat(dQ)...)
	c.Printed("dK of EX1", printedDK, Flat(dK)...)
	for _, b := range []backprop{ex1Backprop(), someBackprop(c, "random", 3, 4, 2, 3)} {
		want := b.chainByScores(c, false)
		c.NearMat(b.name+": dS", b.staged().DS, want, 1e-13)
		// The terms that a single label omits are all 0, because a weight depends only on the
		// scores of its own row. The notation is wrong, but the number is right.
		c.NearMat(b.name+": with i for both rows", b.chainByScores(c, true), want, 0)
	}
	c.Erratum("E-23", "labels of the chain rule", "dO^ib/dA^mn dA^mn/dS^pq: every summed index twice", "dO^ib/dA^ij dA^ij/dS^mn: i three times")
}

func kernelNotesChain(c *Check, at bridge.Attention) {
	b := throughScores("dS", c.Normal(3, 4), c.Normal(4, 2), c.Normal(3, 2)).single()
	c.Tolerable(b.name, b.ask(c, at).DQ, b.chainByScores(c, false), gradNoise)
}
