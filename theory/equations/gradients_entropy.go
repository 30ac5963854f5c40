package equations

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bridge"
	"attnlab/theory/calculus"
	"attnlab/theory/gibbs"
	"attnlab/theory/scorers"
)

// entropySlope returns dH/dS_j = -A_j (log A_j + H) / T.
func entropySlope(c *Check, p []float64, t float64) []float64 {
	h, to := 0.0, make([]float64, len(p))
	for _, x := range p {
		if x > 0 {
			h -= x * math.Log(x)
		}
	}
	if c.Flip("without H") {
		h = 0
	}
	minus, rate := c.Sign("minus", 1), c.Factor("1/T", 1/t)
	for j, x := range p {
		if x > 0 {
			to[j] = -minus * rate * x * (math.Log(x) + h)
		}
	}
	return to
}

func checkEntropyPenalty(c *Check) {
	for _, t := range []float64{0.5, 1, 2} {
		for range 20 {
			s := c.Vector(5)
			p := gibbs.Softmax(s, t)
			want := entropySlope(c, p, t)
			c.NearAll("dH/dS", calculus.GradEntropy(p, t), want, 1e-14)
			c.NearAll("dH/dS by differences", fd.Gradient(nil, func(s []float64) float64 { return gibbs.Entropy(gibbs.Softmax(s, t)) }, s, &fd.Settings{Formula: fd.Central}), want, 1e-8)
			c.Near("it adds up to 0", floats.Sum(want), 0, 1e-14)
			uphill := make([]float64, 5)
			floats.AddScaledTo(uphill, s, 0.01, want)
			c.True("a step along it raises the entropy", gibbs.Entropy(gibbs.Softmax(uphill, t)) > gibbs.Entropy(p))
		}
		c.NearAll("even weights have none to gain", entropySlope(c, gibbs.Softmax(make([]float64, 5), t), t), make([]float64, 5), 1e-15)
	}
	b := someBackprop(c, "a penalty on low entropy", 3, 5, 2, 2).causal().heated(0.5)
	b.dH, b.dLSE = []float64{-0.3, -0.3, -0.3}, []float64{0.1, 0.2, 0}
	got := calculus.Incoming{DO: b.dO, DEntropy: b.dH, DLSE: b.dLSE}.Backward(b.decompose(), b.q, b.k, b.v, 0)
	c.NearMat("dS of sum dO * O + sum dH * H + sum dLSE * LSE", got.DS, b.withRows(c), 1e-13)
	c.NearMat("its dQ by differences", calculus.NumericalGradient(func(x *mat.Dense) float64 {
		moved := b
		moved.q = x
		d := moved.decompose()
		return moved.loss() + floats.Dot(b.dH, gibbs.EntropyRows(d.Weights)) + floats.Dot(b.dLSE, d.LogPartition)
	}, b.q, 0), got.DQ, 1e-7*gradSize(got.DQ))
	checkLearnedMetric(c)
}

// withRows returns dS of a loss that also contains the entropy and the LSE of each row, times the
// factors dH and dLSE. The free energy is -T LSE, so its gradient by the scores is minus the
// weights.
func (b backprop) withRows(c *Check) *mat.Dense {
	dS := b.byScores()
	a, _ := b.forward()
	ofLSE := c.Sign("dLSE", 1/b.temperature())
	for i := range b.dH {
		floats.AddScaled(dS.RawRowView(i), b.dH[i], entropySlope(c, a.RawRowView(i), b.temperature()))
		floats.AddScaled(dS.RawRowView(i), b.dLSE[i]*ofLSE, a.RawRowView(i))
	}
	return dS
}

// checkLearnedMetric checks the gradient of a learned metric g = W^T W from end to end. The loss is
// L = sum (O - Y)^2 / 2, and dW = W (G + G^T) with G = dL/dg.
func checkLearnedMetric(c *Check) {
	q, k, v, target := c.Normal(5, 3), c.Normal(6, 3), c.Normal(6, 2), c.Normal(5, 2)
	forward := func(w *mat.Dense) (d *scorers.Decomposition, g, dO *mat.Dense, loss float64) {
		g, dO = new(mat.Dense), new(mat.Dense)
		g.Mul(w.T(), w)
		d = scorers.Attend(scorers.Bilinear{M: g}, q, k, v, scorers.Options{})
		dO.Sub(d.Output, target)
		norm := mat.Norm(dO, 2)
		return d, g, dO, norm * norm / 2
	}
	transposed := !c.Flip("G without its transpose")
	slope := func(w *mat.Dense) *mat.Dense {
		d, g, dO, _ := forward(w)
		both := calculus.BackwardBilinear(d, q, k, v, g, 0, dO).DM
		if transposed {
			both.Add(both, mat.DenseCopyOf(both.T()))
		}
		to := new(mat.Dense)
		to.Mul(w, both)
		return to
	}
	w := c.Normal(2, 3)
	w.Scale(0.5, w)
	_, _, _, first := forward(w)
	c.NearMat("dW of a learned metric by differences", calculus.NumericalGradient(func(w *mat.Dense) float64 {
		_, _, _, loss := forward(w)
		return loss
	}, w, 0), slope(w), 1e-7)
	last := first
	for range 50 {
		step := slope(w)
		step.Scale(-0.02, step)
		w.Add(w, step)
		_, _, _, loss := forward(w)
		c.True("a small step downhill lowers the loss", loss < last)
		last = loss
	}
	c.Note("50 steps of a learned metric of rank 2: loss %.4f -> %.4f", first, last)
}

func kernelEntropyPenalty(c *Check, at bridge.Attention) {
	for _, b := range []backprop{
		someBackprop(c, "entropy, random", 3, 5, 4, 2), someBackprop(c, "entropy, causal, T = 1/2", 4, 4, 3, 2).causal().heated(0.5),
	} {
		b = b.single()
		nq, _, _, _ := b.dims()
		for i := range nq {
			b.dH = append(b.dH, float64(i+1)/4-0.75*float64(i%2)) // exact in float32, of both signs
			b.dLSE = append(b.dLSE, 0.5-float64(i)/8)
		}
		dS, a := b.withRows(c), b.decompose().Weights
		tolerableGradients(c, b.name, b.ask(c, at), calculus.Gradients{
			DQ: calculus.GradQ(dS, b.k, 0), DK: calculus.GradK(dS, b.q, 0), DV: calculus.GradV(a, b.dO),
		})
	}
}
