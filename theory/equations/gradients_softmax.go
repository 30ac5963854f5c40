package equations

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bridge"
	"attnlab/theory/calculus"
	"attnlab/theory/gibbs"
)

// gradJacobian returns A_j (delta_jn - A_n) / T of one row of weights.
func gradJacobian(c *Check, p []float64, t float64) *mat.Dense {
	minus, rate := c.Sign("minus", 1), c.Factor("1/T", 1/t)
	to := mat.NewDense(len(p), len(p), nil)
	for j := range p {
		for n := range p {
			to.Set(j, n, rate*p[j]*(gradDelta(j, n)-minus*p[c.Index("n", n, len(p))]))
		}
	}
	return to
}

// gradSums returns the row sums of a matrix followed by its column sums.
func gradSums(m mat.Matrix) []float64 {
	rows, cols := m.Dims()
	to := make([]float64, 0, rows+cols)
	for i := range rows {
		to = append(to, floats.Sum(mat.Row(nil, i, m)))
	}
	for j := range cols {
		to = append(to, floats.Sum(mat.Col(nil, j, m)))
	}
	return to
}

func checkSoftmaxJacobian(c *Check) {
	s := []float64{1, 2, 3}
	jac := gradJacobian(c, gibbs.Softmax(s, 1), 1)
	c.Printed("J of [1, 2, 3], first row", ".08192507 -.02203304 -.05989202", jac.RawRowView(0)...)
	c.Printed("J of [1, 2, 3], second row", ".18483645 -.1628034", jac.RawRowView(1)[1:]...)
	c.Printed("J of [1, 2, 3], third row", ".22269543", jac.At(2, 2))
	c.NearAll("its rows and its columns add up to 0", gradSums(jac), make([]float64, 6), 1e-16*3)
	c.NearMat("it is symmetric", jac.T(), jac, 1e-16)
	for _, t := range []float64{0.5, 1, 3} {
		scores := c.Normal(4, 5)
		weights := gibbs.SoftmaxRows(scores, t)
		all := calculus.WeightsByScores(weights, t) // every row at once
		for i := range 4 {
			want := gradJacobian(c, weights.RawRowView(i), t)
			c.NearMat("package gibbs", gibbs.Jacobian(weights.RawRowView(i), t), want, 1e-14)
			for m := range 4 {
				for j := range 5 {
					for n := range 5 {
						c.Near("a row of the batch", all.At(i, j, m, n), gradDelta(m, i)*want.At(j, n), 1e-14)
					}
				}
			}
		}
		c.NearMat("differences", calculus.NumericalJacobian(func(s *mat.Dense) mat.Matrix { return gibbs.SoftmaxRows(s, t) }, scores, 0).Matrix, all.Matrix, 1e-8)
	}
}

// throughScores returns a problem with the given scores. Keys are the unit vectors and the scale is
// 1, so scores are queries and dQ is dS.
func throughScores(name string, scores, v, dO *mat.Dense) backprop {
	_, nk := scores.Dims()
	return backprop{name: name, q: scores, k: gradUnit(nk), v: v, dO: dO, scale: 1}
}

// jacobianOf checks the Jacobian of the softmax as computed by an Attention. With unit vectors as
// values the output is the weights. With the n-th unit vector as gradient by the output, dS is row
// n.
func jacobianOf(c *Check, at bridge.Attention, s []float64, t float64, want *mat.Dense) {
	for n := range s {
		dO := mat.NewDense(1, len(s), nil)
		dO.Set(0, n, 1)
		b := throughScores("a row of the Jacobian", Rows(s), gradUnit(len(s)), dO).heated(t)
		c.Tolerable(b.name, b.ask(c, at).DQ, want.Slice(n, n+1, 0, len(s)), gradNoise)
	}
}

func kernelSoftmaxJacobian(c *Check, at bridge.Attention) {
	for _, t := range []float64{1, 0.5, 2} {
		for _, s := range [][]float64{{1, 2, 3}, {0.5, -1.25, 2, 0, 0.75}} {
			jacobianOf(c, at, s, t, gradJacobian(c, gibbs.Softmax(s, t), t))
		}
	}
}

// gradScores returns dS = A * (dA - rowsum(A * dA)) / T.
func (b backprop) gradScores(c *Check) *mat.Dense {
	nq, nk, _, _ := b.dims()
	a, o := b.forward()
	dA, to := calculus.GradA(b.upstream(o), b.v), mat.NewDense(nq, nk, nil)
	misprint, minus, rate := c.Flip("rowsum(dA)"), c.Sign("minus", 1), c.Factor("1/T", 1/b.temperature())
	for i := range nq {
		sum := 0.0
		for j := range nk {
			if misprint {
				sum += dA.At(i, j)
			} else {
				sum += a.At(i, j) * dA.At(i, j)
			}
		}
		for j := range nk {
			to.Set(i, j, rate*a.At(i, j)*(dA.At(i, j)-minus*sum))
		}
	}
	return to
}

func checkGradSoftmax(c *Check) {
	c.Printed("dS of EX1", printedDS, Flat(ex1Backprop().gradScores(c))...)
	for _, b := range append(backpropCases(c), ex1Backprop()) {
		want, s := b.gradScores(c), b.staged()
		nq, _, _, _ := b.dims()
		d := b.decompose()
		size := gradSize(s.DA)
		c.NearMat(b.name, s.DS, want, 1e-14*size)
		c.NearMat(b.name+": from the weights alone", calculus.GradSoftmax(d.Weights, s.DA, b.temp), want, 1e-14*size)
		c.NearAll(b.name+": rowsum(A * dA) = rowsum(dO * O)", calculus.RowSums(d.Weights, s.DA), calculus.RowSums(b.upstream(d.Output), d.Output), 1e-14*size)
		c.NearAll(b.name+": a row adds up to 0", gradSums(want)[:nq], make([]float64, nq), 1e-14*size)
	}
}

func kernelGradSoftmax(c *Check, at bridge.Attention) {
	for _, b := range []backprop{
		throughScores("dS", c.Normal(4, 5), c.Normal(5, 3), c.Normal(4, 3)),
		throughScores("dS, causal", c.Normal(4, 5), c.Normal(5, 3), c.Normal(4, 3)).causal(),
		throughScores("dS, T = 1/2", c.Normal(4, 5), c.Normal(5, 3), c.Normal(4, 3)).heated(0.5),
		throughScores("dS, T = 2", c.Normal(4, 5), c.Normal(5, 3), c.Normal(4, 3)).heated(2),
	} {
		b = b.single()
		c.Tolerable(b.name, b.ask(c, at).DQ, b.gradScores(c), gradNoise)
	}
}

// softmaxCases returns the Jacobian as the proof derives it. With a_j = e_j / Z and e_j = exp(s_j),
// the quotient rule gives
//
//	da_j/ds_n = (delta_jn e_j Z - e_j e_n) / Z^2
func softmaxCases(c *Check, s []float64) *mat.Dense {
	minus := c.Sign("minus", 1)
	z := 0.0
	for _, x := range s {
		z += math.Exp(x)
	}
	to := mat.NewDense(len(s), len(s), nil)
	for j := range s {
		for n := range s {
			numerator := -minus * math.Exp(s[j]) * math.Exp(s[n])
			if n == c.Index("j", j, len(s)) {
				numerator += math.Exp(s[j]) * z
			}
			to.Set(j, n, numerator/(z*z))
		}
	}
	return to
}

func checkSoftmaxCases(c *Check) {
	s := []float64{1, 2}
	c.Printed("a", ".26894142 .73105858", gibbs.Softmax(s, 1)...)
	c.Printed("J of [1, 2]", ".19661193 -.19661193 -.19661193 .19661193", Flat(softmaxCases(c, s))...)
	for range 20 {
		s := c.Vector(4)
		a, jac := gibbs.Softmax(s, 1), softmaxCases(c, s)
		for j := range s {
			for n := range s {
				if j == n {
					c.Near("n = j: a_j (1 - a_j)", jac.At(j, n), a[j]*(1-a[j]), 1e-15)
				} else {
					c.Near("otherwise: -a_j a_n", jac.At(j, n), -a[j]*a[n], 1e-15)
				}
			}
		}
		c.NearMat("package gibbs", gibbs.Jacobian(a, 1), jac, 1e-15)
		numerical := mat.NewDense(4, 4, nil)
		fd.Jacobian(numerical, func(to, s []float64) { copy(to, gibbs.Softmax(s, 1)) }, s, &fd.JacobianSettings{Formula: fd.Central})
		c.NearMat("differences", numerical, jac, 1e-8)
	}
}

func kernelSoftmaxCases(c *Check, at bridge.Attention) {
	jacobianOf(c, at, []float64{1, 2}, 1, softmaxCases(c, []float64{1, 2}))
}

// throughJacobian returns dS_in = sum_j dA_ij A_ij (delta_jn - A_in), the form before
// simplification.
func (b backprop) throughJacobian(c *Check) *mat.Dense {
	nq, nk, _, _ := b.dims()
	a, o := b.forward()
	dA, to := calculus.GradA(b.upstream(o), b.v), mat.NewDense(nq, nk, nil)
	minus := c.Sign("minus", 1)
	for i := range nq {
		for n := range nk {
			for j := range nk {
				gradAdd(to, i, n, dA.At(i, j)*a.At(i, c.Index("j of A", j, nk))*(gradDelta(j, n)-minus*a.At(i, n)))
			}
		}
	}
	return to
}

func checkSoftmaxProof(c *Check) {
	c.Printed("dS of EX1", printedDS, Flat(ex1Backprop().throughJacobian(c))...)
	for _, b := range []backprop{ex1Backprop(), someBackprop(c, "3 queries, 5 keys", 3, 5, 4, 2), someBackprop(c, "causal", 4, 4, 2, 3).causal()} {
		nq, _, _, _ := b.dims()
		d, want := b.decompose(), b.throughJacobian(c)
		s := b.staged()
		size := gradSize(s.DA)
		c.NearMat(b.name+": simplified", s.DS, want, 1e-14*size)
		c.NearMat(b.name+": through the Jacobian", calculus.WeightsByScores(d.Weights, 1).Pull(s.DA), want, 1e-14*size)
		// Adding a number to a row of dA changes nothing, because the weights of a row sum to 1.
		shifted := mat.DenseCopyOf(s.DA)
		shifted.Apply(func(i, _ int, x float64) float64 { return x + float64(i+1) }, shifted)
		c.NearMat(b.name+": with a shifted dA", calculus.GradSoftmax(d.Weights, shifted, 1), want, 1e-14*(size+float64(nq)))
	}
}

func kernelSoftmaxProof(c *Check, at bridge.Attention) {
	// Adding the same row to every value adds it to every output, whatever the weights: dQ and dK
	// do not change.
	b := someBackprop(c, "values moved alike", 4, 6, 3, 2)
	// Multiples of 1/64 make a sum with integers exact.
	b.v.Apply(func(_, _ int, x float64) float64 { return math.Round(64*x) / 64 }, b.v)
	b = b.single()
	dS := b.throughJacobian(c)
	before := calculus.Gradients{DQ: calculus.GradQ(dS, b.k, 0), DK: calculus.GradK(dS, b.q, 0)}
	b.v = mat.DenseCopyOf(b.v)
	b.v.Apply(func(_, e int, x float64) float64 { return x + float64(3-5*e) }, b.v)
	ans := b.ask(c, at)
	c.Tolerable(b.name+": dQ", ans.DQ, before.DQ, 10*gradNoise)
	c.Tolerable(b.name+": dK", ans.DK, before.DK, 10*gradNoise)
}
