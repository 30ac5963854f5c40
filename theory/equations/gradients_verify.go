package equations

import (
	"math"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bridge"
	"attnlab/theory/calculus"
	"attnlab/theory/scorers"
)

// wrongBackprops are backward passes with one mistake each, and the gradients that they still
// compute right.
var wrongBackprops = []struct {
	name   string
	right  string // of "QKV"
	change func(a, q, k, dO mat.Matrix, s *calculus.Staged)
}{
	{"dS = A * (dA - rowsum(dA))", "V", func(a, q, k, _ mat.Matrix, s *calculus.Staged) {
		for i := range s.D {
			s.D[i] = floats.Sum(s.DA.RawRowView(i))
		}
		s.DS = calculus.GradSoftmaxFrom(a, s.DA, s.D, 1)
		s.DQ, s.DK = calculus.GradQ(s.DS, k, 0), calculus.GradK(s.DS, q, 0)
	}},
	{"dQ without its scale", "KV", func(_, _, k, _ mat.Matrix, s *calculus.Staged) { s.DQ = calculus.GradQ(s.DS, k, 1) }},
	{"dK without its scale", "QV", func(_, q, _, _ mat.Matrix, s *calculus.Staged) { s.DK = calculus.GradK(s.DS, q, 1) }},
	{"dV of uniform weights", "QK", func(a, _, _, dO mat.Matrix, s *calculus.Staged) {
		_, nk := a.Dims()
		var even mat.Dense
		even.Apply(func(_, _ int, _ float64) float64 { return 1 / float64(nk) }, a)
		s.DV = calculus.GradV(&even, dO)
	}},
	{"dQ is missing", "KV", func(_, _, _, _ mat.Matrix, s *calculus.Staged) { s.DQ = nil }},
}

func checkVerify(c *Check) {
	q, k, v := ex1()
	verdict, err := calculus.VerifyGradients(q, k, v)
	c.Must(err)
	c.True("EX1: dL_dQ, dL_dK, dL_dV, all_correct", verdict.DQ.Right && verdict.DK.Right && verdict.DV.Right && verdict.AllRight)
	written := func(_ *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *calculus.Staged {
		return backprop{q: mat.DenseCopyOf(q), k: mat.DenseCopyOf(k), v: mat.DenseCopyOf(v), dO: mat.DenseCopyOf(dO), scale: scale}.five(c)
	}
	verdict, err = calculus.Setting{}.Verify(written, q, k, v)
	c.Must(err)
	for _, e := range []struct {
		name string
		calculus.Errors
	}{{"dQ", verdict.DQ}, {"dK", verdict.DK}, {"dV", verdict.DV}} {
		c.Within("EX1 in five steps: "+e.name+" against dual numbers", e.Dual, calculus.Exact)
		c.Within("EX1 in five steps: "+e.name+" against the complex step", e.ComplexStep, calculus.Exact)
		c.Within("EX1 in five steps: "+e.name+" against differences", e.Difference, calculus.Approximate)
	}
	for _, w := range wrongBackprops {
		wrong := func(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *calculus.Staged {
			s := calculus.Backward(d, q, k, v, scale, dO)
			w.change(d.Weights, q, k, dO, s)
			return s
		}
		verdict, err := calculus.Setting{}.Verify(wrong, q, k, v)
		c.Must(err)
		c.True(w.name+": found out, and where", !verdict.AllRight && verdict.DQ.Right == strings.Contains(w.right, "Q") &&
			verdict.DK.Right == strings.Contains(w.right, "K") && verdict.DV.Right == strings.Contains(w.right, "V"))
	}
}

func kernelVerify(c *Check, at bridge.Attention) {
	sign := c.Sign("dO", 1)
	for _, b := range []backprop{ex1Backprop(), someBackprop(c, "causal, T = 1/2", 4, 5, 3, 2).causal().heated(0.5)} {
		b = b.single()
		var dO mat.Dense
		dO.Scale(sign, b.dO)
		dual, err := calculus.Setting{Temp: b.temp, Mask: b.show, Loss: calculus.Loss{Weights: &dO}}.Dual(b.q, b.k, b.v)
		c.Must(err)
		tolerableGradients(c, b.name+" against dual numbers", b.ask(c, at), dual)
	}
}

// ofSquares returns the problem with the loss sum O^2.
func (b backprop) ofSquares() backprop {
	b.dO, b.squares = nil, 1
	return b
}

// upstreamOfSquares returns dO = 2 O.
func (b backprop) upstreamOfSquares(c *Check) *mat.Dense {
	_, o := b.forward()
	o.Scale(c.Factor("2 of dO", 2), o)
	return o
}

func checkNumerical(c *Check) {
	b := ex1Backprop().ofSquares()
	d := b.decompose()
	s := calculus.Backward(d, b.q, b.k, b.v, 0, b.upstreamOfSquares(c))
	for _, f := range []struct {
		name, printed string
		m             *mat.Dense
	}{{"dV", printedDV, s.DV}, {"dA", printedDA, s.DA}, {"dS", printedDS, s.DS}, {"dQ", printedDQ, s.DQ}, {"dK", printedDK, s.DK}} {
		half := Flat(f.m)
		floats.Scale(0.5, half)
		c.Printed("half of "+f.name+" of EX1", f.printed, half...)
	}
	b = someBackprop(c, "10 by 64, 20 by 64", 10, 20, 64, 64).ofSquares()
	d = b.decompose()
	s = calculus.Backward(d, b.q, b.k, b.v, 0, b.upstreamOfSquares(c))
	// The step is 6e-6, that of package fd. The loss is in the hundreds: with a step of 1e-6, its
	// last place would make an error of 1e-7.
	differences := b.differences(0)
	c.NearMat(b.name+": dQ", s.DQ, differences.DQ, 1e-7)
	c.NearMat(b.name+": dK", s.DK, differences.DK, 1e-7)
	c.NearMat(b.name+": dV", s.DV, differences.DV, 1e-7)
	checkSteps(c)
}

// checkSteps checks erratum E-16: the best step for a gradient check in float32, and what a step of
// 1e-5 can detect.
func checkSteps(c *Check) {
	const unit32 = 1.0 / (1 << 24)
	best := calculus.BestStep(unit32)
	c.Printed("the cube root of 2^-24", "4e-3", best)
	c.Refutes("E-16", "step of a central difference in float32", "1e-5", best)
	q, k, v := c.Normal(4, 3), c.Normal(6, 3), c.Normal(6, 3)
	noisy, good := calculus.Float32DifferenceError(q, k, v, 1e-5), calculus.Float32DifferenceError(q, k, v, best)
	c.Within("largest error of float32 differences by 4e-3", good, 1e-3)
	c.True("by 1e-5 it is 30 times that or more", noisy >= 30*good)
	c.True("by 1e-5 it is more than a hundred times the 1e-5 that gradients are to be verified to", noisy > 100*1e-5)
	c.Note("error of float32 central differences: %.2g by h = 1e-5, %.2g by h = 2^-8", noisy, good)
	least, at := math.Inf(1), 0.0
	for e := -18; e <= 0; e++ {
		if x := calculus.Float32DifferenceError(q, k, v, math.Ldexp(1, e)); x < least {
			least, at = x, math.Ldexp(1, e)
		}
	}
	c.Within("the best power of two is near the cube root, by octaves", math.Abs(math.Log2(at/best)), 3)
	const ulp = 2 * unit32
	c.Printed("1e-5 and 1e-4, in units of the last place of 1 in float32", "84 839", 1e-5/ulp, 1e-4/ulp)
	c.Erratum("E-16", "agreement of gradients", "84 to 839 units of the last place of float32, which is what tolerances of 1e-5 and 1e-4 are", "machine-precision agreement")
	c.Erratum("E-16", "tests", "421 test functions in the version read, 69 of them of a linter and of plots; the five counts listed add up to 290", "400+ tests")
}

func kernelNumerical(c *Check, at bridge.Attention) {
	b := someBackprop(c, "10 by 64, 20 by 64", 10, 20, 64, 64).ofSquares().single()
	ans := b.ask(c, at) // with dO = 2 O, rounded
	asked := b.dO
	b.dO = bridge.Float32(b.upstreamOfSquares(c))
	c.NearMat("dO = 2 O", asked, b.dO, 0)
	s := b.staged()
	tolerableGradients(c, b.name, ans, calculus.Gradients{DQ: s.DQ, DK: s.DK, DV: s.DV})
}

func checkGradientsModule(c *Check) {
	b := someBackprop(c, "random", 3, 5, 4, 2)
	d, want := b.decompose(), b.five(c)
	// grad_output_wrt_V, grad_output_wrt_A, grad_softmax, grad_scores_wrt_Q, grad_scores_wrt_K:
	// each takes the result of the stage before it.
	dA := calculus.GradA(b.dO, b.v)
	dS := calculus.GradSoftmax(d.Weights, dA, 1)
	nearStages(c, "the five functions one after the other", &calculus.Staged{
		DV: calculus.GradV(d.Weights, b.dO), DA: dA, DS: dS, DQ: calculus.GradQ(dS, b.k, 0), DK: calculus.GradK(dS, b.q, 0),
	}, want, 1e-13)
	nearStages(c, "attention_backward", calculus.Backward(d, b.q, b.k, b.v, 0, b.dO), want, 1e-13)
	verdict, err := calculus.VerifyGradients(b.q, b.k, b.v)
	c.Must(err)
	c.True("verify_gradients", verdict.AllRight)
	c.NearMat("gradient_numerical_check", calculus.NumericalGradient(func(x *mat.Dense) float64 {
		moved := b
		moved.q = x
		return moved.loss()
	}, b.q, 0), want.DQ, 1e-7*gradSize(want.DQ))
	checkFlow(c, b, d)
}

// checkFlow checks gradient_flow_analysis: the norms of all intermediates, and the fraction of a
// gradient that passes the softmax.
func checkFlow(c *Check, b backprop, d *scorers.Decomposition) {
	f := calculus.GradientFlow(d, b.q, b.k, b.v, 0, b.dO)
	want := b.five(c)
	for _, m := range []struct {
		name string
		m    *mat.Dense
	}{{"Q", b.q}, {"S", d.Scores}, {"A", d.Weights}, {"O", d.Output}, {"dO", b.dO}, {"dV", want.DV}, {"dA", want.DA}, {"dS", want.DS}, {"dQ", want.DQ}, {"dK", want.DK}} {
		squares, largest := 0.0, 0.0
		for _, x := range Flat(m.m) {
			squares += x * x
			largest = max(largest, math.Abs(x))
		}
		c.Near("norm of "+m.name, f.Norm(m.name).Frobenius, math.Sqrt(squares), 1e-12)
		c.Near("largest of "+m.name, f.Norm(m.name).Max, largest, 1e-12)
	}
	// The gain of a softmax is largest for two keys of equal weight with opposite gradients.
	half := c.Factor("1/2", 0.5)
	for _, t := range []float64{0.5, 1, 2} {
		e := backprop{q: Rows([]float64{1}), k: Rows([]float64{1}, []float64{1}), v: Rows([]float64{1}, []float64{-1}), dO: Rows([]float64{1}), temp: t}
		even := calculus.GradientFlow(e.decompose(), e.q, e.k, e.v, 0, e.dO)
		c.Near("the largest gain of a softmax is 1/(2T)", even.Gain[0], half/t, 1e-15)
		for range 50 {
			b := someBackprop(c, "", 2, 5, 3, 2).heated(t)
			for _, g := range calculus.GradientFlow(b.decompose(), b.q, b.k, b.v, 0, b.dO).Gain {
				c.Within("and no gain is larger", g, 1/(2*t)*(1+1e-12))
			}
		}
	}
}

// kernelDifference checks an Attention's gradients against differences of its own outputs. The
// definition only provides the tolerance.
func kernelDifference(c *Check, at bridge.Attention) {
	// The step is exact and far above the rounding of an output. Two steps eliminate the third
	// derivative.
	const h = 1.0 / 16
	b := someBackprop(c, "", 3, 4, 2, 2).single()
	// Multiples of 1/64 make the moved queries exact.
	b.q.Apply(func(_, _ int, x float64) float64 { return math.Round(64*x) / 64 }, b.q)
	sign := c.Sign("sum dO * O", 1)
	grad := b.ask(c, at)
	loss := func(i, e int, move float64) (x, tol float64) {
		moved := b
		moved.q = mat.DenseCopyOf(b.q)
		gradAdd(moved.q, i, e, move)
		o, err := at.Attend(bridge.Call{Q: moved.q, K: b.k, V: b.v})
		c.Must(err)
		for n, g := range Flat(b.dO) {
			x += sign * g * Flat(o.O.X)[n]
			tol += math.Abs(g) * Flat(o.O.Tol)[n]
		}
		return x, tol
	}
	for i := range 3 {
		for e := range 2 {
			// Central differences with steps h and h/2, extrapolated: the error of (4 D(h/2) -
			// D(h)) / 3 is h^4 / 480 times the fifth derivative.
			up, t1 := loss(i, e, h)
			down, t2 := loss(i, e, -h)
			halfUp, t3 := loss(i, e, h/2)
			halfDown, t4 := loss(i, e, -h/2)
			slope := (4*(halfUp-halfDown)/h - (up-down)/(2*h)) / 3
			rounding := (4*(t3+t4)/h + (t1+t2)/(2*h)) / 3
			c.Near("slope of its outputs", slope, grad.DQ.X.At(i, e), grad.DQ.Tol.At(i, e)+rounding+1e-5*gradSize(b.dO))
		}
	}
}
