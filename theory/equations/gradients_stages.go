package equations

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bridge"
	"attnlab/theory/calculus"
	"attnlab/theory/gibbs"
	"attnlab/theory/scorers"
)

func checkOutputJacobians(c *Check) {
	const nq, nk, dv = 3, 4, 2
	a, v := gibbs.SoftmaxRows(c.Normal(nq, nk), 1), c.Normal(nk, dv)
	byWeights := calculus.NewJacobian(nq, dv, nq, nk, func(i, b, m, n int) float64 { return gradDelta(i, m) * v.At(c.Index("value", n, nk), b) })
	byValues := calculus.NewJacobian(nq, dv, nk, dv, func(i, b, m, n int) float64 { return a.At(i, m) * gradDelta(c.Index("column", b, dv), n) })
	c.NearMat("dO/dA", calculus.OutputByWeights(nq, v).Matrix, byWeights.Matrix, 0)
	c.NearMat("dO/dV", calculus.OutputByValues(a, dv).Matrix, byValues.Matrix, 0)
	c.NearMat("dO/dA by differences", calculus.NumericalJacobian(func(a *mat.Dense) mat.Matrix { return scorers.Output(a, v) }, a, 0).Matrix, byWeights.Matrix, 1e-8)
	c.NearMat("dO/dV by differences", calculus.NumericalJacobian(func(v *mat.Dense) mat.Matrix { return scorers.Output(a, v) }, v, 0).Matrix, byValues.Matrix, 1e-8)
}

func checkGradA(c *Check) {
	dA := func(b backprop) *mat.Dense {
		nq, nk, _, dv := b.dims()
		_, o := b.forward()
		dO, to := b.upstream(o), mat.NewDense(nq, nk, nil)
		for i := range nq {
			for j := range nk {
				for e := range dv {
					gradAdd(to, i, j, dO.At(i, e)*b.v.At(j, c.Index("column of V", e, dv)))
				}
			}
		}
		return to
	}
	c.Printed("dA of EX1", printedDA, Flat(dA(ex1Backprop()))...)
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		_, o := b.forward()
		c.NearMat(b.name, calculus.GradA(b.upstream(o), b.v), dA(b), 1e-13)
		// The loss is linear in the weights: a change of the weights changes it by exactly what dA
		// gives.
		if nq, nk, _, _ := b.dims(); b.dO != nil {
			move, moved := c.Normal(nq, nk), new(mat.Dense)
			moved.Mul(move, b.v)
			c.Near(b.name+": sum dA * move = sum dO * (move V)", floats.Dot(Flat(dA(b)), Flat(move)), floats.Dot(Flat(b.dO), Flat(moved)), 1e-12)
		}
	}
}

// gradValues returns dV_jb = sum_i A_ij dO_ib.
func (b backprop) gradValues(c *Check) *mat.Dense {
	nq, nk, _, dv := b.dims()
	a, o := b.forward()
	dO, to := b.upstream(o), mat.NewDense(nk, dv, nil)
	for i := range nq {
		for j := range nk {
			for e := range dv {
				gradAdd(to, j, e, a.At(i, c.Index("key", j, nk))*dO.At(c.Index("query of dO", i, nq), e))
			}
		}
	}
	return to
}

func checkGradV(c *Check) {
	c.Printed("dV of EX1", printedDV, Flat(ex1Backprop().gradValues(c))...)
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		c.NearMat(b.name, b.staged().DV, b.gradValues(c), 1e-13)
		c.NearMat(b.name+": differences", b.differences(1e-6).DV, b.gradValues(c), 1e-7*gradSize(b.v))
	}
}

func kernelGradV(c *Check, at bridge.Attention) {
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		b = b.single()
		c.Tolerable(b.name+": dV", b.ask(c, at).DV, b.gradValues(c), gradNoise)
	}
}

func checkScoreJacobians(c *Check) {
	const nq, nk, d = 3, 4, 2
	q, k := c.Normal(nq, d), c.Normal(nk, d)
	scale := c.Factor("scale", 1/math.Sqrt(d))
	byQueries := calculus.NewJacobian(nq, nk, nq, d, func(i, j, m, n int) float64 { return scale * gradDelta(m, i) * k.At(c.Index("key", j, nk), n) })
	byKeys := calculus.NewJacobian(nq, nk, nk, d, func(i, j, m, n int) float64 { return scale * q.At(c.Index("query", i, nq), n) * gradDelta(m, j) })
	c.NearMat("dS/dQ", calculus.ScoresByQueries(nq, k, 0).Matrix, byQueries.Matrix, 1e-15)
	c.NearMat("dS/dK", calculus.ScoresByKeys(q, nk, 0).Matrix, byKeys.Matrix, 1e-15)
	c.NearMat("dS/dQ by differences", calculus.NumericalJacobian(func(q *mat.Dense) mat.Matrix { return scorers.Dot{}.Scores(q, k) }, q, 0).Matrix, byQueries.Matrix, 1e-8)
	c.NearMat("dS/dK by differences", calculus.NumericalJacobian(func(k *mat.Dense) mat.Matrix { return scorers.Dot{}.Scores(q, k) }, k, 0).Matrix, byKeys.Matrix, 1e-8)
}

// gradQueries returns dQ_ia = scale sum_j dS_ij K_ja.
func (b backprop) gradQueries(c *Check) *mat.Dense {
	nq, nk, d, _ := b.dims()
	dS, to := b.byScores(), mat.NewDense(nq, d, nil)
	scale := c.Factor("scale", b.factor())
	for i := range nq {
		for j := range nk {
			for e := range d {
				gradAdd(to, i, e, scale*dS.At(i, j)*b.k.At(c.Index("key", j, nk), e))
			}
		}
	}
	return to
}

func checkGradQ(c *Check) {
	c.Printed("dQ of EX1", printedDQ, Flat(ex1Backprop().gradQueries(c))...)
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		want := b.gradQueries(c)
		c.NearMat(b.name, b.staged().DQ, want, 1e-13*gradSize(want))
		c.NearMat(b.name+": differences", b.differences(1e-6).DQ, want, 1e-7*gradSize(want, b.v))
	}
}

func kernelGradQ(c *Check, at bridge.Attention) {
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		b = b.single()
		c.Tolerable(b.name+": dQ", b.ask(c, at).DQ, b.gradQueries(c), gradNoise)
	}
}

// gradKeys returns dK_ja = scale sum_i dS_ij Q_ia.
func (b backprop) gradKeys(c *Check) *mat.Dense {
	nq, nk, d, _ := b.dims()
	dS, to := b.byScores(), mat.NewDense(nk, d, nil)
	scale := c.Factor("scale", b.factor())
	for i := range nq {
		for j := range nk {
			for e := range d {
				gradAdd(to, j, e, scale*dS.At(i, j)*b.q.At(c.Index("query", i, nq), e))
			}
		}
	}
	return to
}

func checkGradK(c *Check) {
	c.Printed("dK of EX1", printedDK, Flat(ex1Backprop().gradKeys(c))...)
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		want := b.gradKeys(c)
		c.NearMat(b.name, b.staged().DK, want, 1e-13*gradSize(want))
		c.NearMat(b.name+": differences", b.differences(1e-6).DK, want, 1e-7*gradSize(want, b.v))
	}
}

func kernelGradK(c *Check, at bridge.Attention) {
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		b = b.single()
		c.Tolerable(b.name+": dK", b.ask(c, at).DK, b.gradKeys(c), gradNoise)
	}
}

func checkValueJacobian(c *Check) {
	// dV_mn = sum_ib dO_ib dO_ib/dV_mn. The derivative is sum_j A_ij delta_mj delta_nb; the
	// misprint has delta_mi.
	contracted := func(b backprop, misprint bool) *mat.Dense {
		nq, nk, _, dv := b.dims()
		a, o := b.forward()
		dO := b.upstream(o)
		to := mat.NewDense(nk, dv, nil)
		for m := range nk {
			for n := range dv {
				for i := range nq {
					for e := range dv {
						for j := range nk {
							partner := j
							if misprint {
								partner = i
							}
							gradAdd(to, m, n, dO.At(i, e)*a.At(i, j)*gradDelta(m, partner)*gradDelta(n, c.Index("column of dO", e, dv)))
						}
					}
				}
			}
		}
		return to
	}
	misprint := c.Flip("delta_m^i")
	c.Printed("dV of EX1", printedDV, Flat(contracted(ex1Backprop(), misprint))...)
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		_, _, _, dv := b.dims()
		a, o := b.forward()
		want := contracted(b, misprint)
		c.NearMat(b.name+": through the Jacobian", calculus.OutputByValues(a, dv).Pull(b.upstream(o)), want, 1e-13)
		c.NearMat(b.name+": in one product", b.staged().DV, want, 1e-13)
	}
	c.Refutes("E-04", "dV_11 of EX1 with the derivative as printed, where A is summed over j without a partner", "1.20333628", contracted(ex1Backprop(), misprint).At(0, 0))
	c.Printed("E-04: which is what the printed formula gives", "1.20333628", contracted(ex1Backprop(), true).At(0, 0))
	c.Erratum("E-04", "equation 33", "A^ij delta_m^j delta_n^b = A^im delta_n^b", "A^ij delta_m^i delta_n^b = A^im delta_n^b")
}
