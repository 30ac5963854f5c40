package equations

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
)

// writtenEntropy returns H = -sum_j p_j log p_j. States of weight 0 add nothing.
func writtenEntropy(c *Check, p []float64) float64 {
	h := 0.0
	for _, w := range p {
		if w > 0 {
			h += c.Sign("minus", -w*math.Log(w))
		}
	}
	return h
}

// entropyOfWeights checks T-14 on the printed weights and on random ones. It also computes H from
// scores without logarithms of weights: H = log Z - sum p s/T.
func entropyOfWeights(c *Check) {
	even := ratios(make([]float64, 8), 1)
	c.Printed("eight equal weights", "2.07944154", gibbs.Entropy(even))
	c.Near("one weight of 1", gibbs.Entropy([]float64{0, 0, 1, 0}), 0, 0)
	s := gibbsScores()
	for i := range 2 {
		c.Printed("worked example", "1.053363", gibbs.Entropy(ratios(s.RawRowView(i), 1)))
	}
	var direct, online, at trials
	outside := 0.0
	for range 200 {
		s, t := c.Vector(2+c.Rand.IntN(10)), 0.2+3*c.Rand.Float64()
		p, z := exponentials(s, t)
		floats.Scale(1/z, p)
		h := gibbs.Entropy(p)
		direct.add(h, writtenEntropy(c, p))
		online.add(math.Log(z)-floats.Dot(p, s)/c.Factor("T", t), h)
		at.add(gibbs.EntropyAt(s, t), h)
		outside = max(outside, -h, h-math.Log(float64(len(s))))
	}
	direct.near(c, "Entropy", 1e-14)
	online.near(c, "log Z - sum p s/T", 1e-13)
	at.near(c, "EntropyAt", 1e-14)
	c.Within("0 <= H <= log n_k", outside, 0)
}

// entropyOfKernels checks the entropy of equal weights, of a single weight, of the worked example,
// and of random scores at two temperatures. For the last, H is also LSE - Mean/T.
func entropyOfKernels(c *Check, by bridge.Attention) {
	row := func(what string, s *mat.Dense, t float64) {
		ans := c.Attend(by, scored(s, attn.WantEntropy|attn.WantLSE|attn.WantMean, t))
		h := make([]float64, s.RawMatrix().Rows)
		online := bridge.Values{X: new(mat.Dense), Tol: new(mat.Dense)}
		for i := range h {
			h[i] = writtenEntropy(c, ratios(s.RawRowView(i), t))
		}
		online.X.Scale(-1/c.Factor("T", t), ans.Mean.X)
		online.X.Add(online.X, ans.LSE.X)
		online.Tol.Scale(1/t, ans.Mean.Tol)
		online.Tol.Add(online.Tol, ans.LSE.Tol)
		c.Tolerable("H of "+what, ans.Entropy, column(h), 0)
		c.Tolerable("LSE - Mean/T of "+what, online, column(h), 0)
	}
	row("eight equal scores", mat.NewDense(1, 8, nil), 1)
	row("a single key", Rows([]float64{3}), 1)
	row("random scores", scoresFor32(c, 4, 7), 1)
	row("random scores, cold", scoresFor32(c, 4, 7), 0.5)
	row("random scores, hot", scoresFor32(c, 4, 7), 2)
	q, k, v := ex1()
	ans := c.Attend(by, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantEntropy}})
	h := writtenEntropy(c, ratios([]float64{ex1Scale, 0, ex1Scale}, 1))
	c.Printed("H of the worked example", "1.053363", h)
	c.Tolerable("H of the worked example", ans.Entropy, column([]float64{h, h}), 0)
}

// normalisedEntropy checks H/log n_k on the printed weights, on random ones, and for a single key.
func normalisedEntropy(c *Check) {
	c.Printed("of [.99, .005, .005]", ".0572841", gibbs.NormalizedEntropy([]float64{.99, .005, .005}))
	var share, even trials
	outside := 0.0
	for n := 2; n <= 12; n++ {
		p := ratios(c.Vector(n), 1)
		h := writtenEntropy(c, p) / math.Log(c.Factor("n_k", float64(n)))
		share.add(gibbs.NormalizedEntropy(p), h)
		outside = max(outside, -h, h-1)
		even.add(gibbs.NormalizedEntropy(ratios(make([]float64, n), 1)), 1)
		c.Near("one weight of 1", gibbs.NormalizedEntropy(gibbs.Softmax(c.Vector(n), 0)), 0, 0)
	}
	share.near(c, "H/log n_k", 1e-15)
	even.near(c, "equal weights", 4e-15)
	c.Within("H/log n_k from 0 to 1", outside, 0)
	single := []float64{1}
	c.Near("a single key", gibbs.NormalizedEntropy(single), 0, 0)
	c.True("E-18: the formula gives NaN for it", math.IsNaN(gibbs.Entropy(single)/math.Log(float64(len(single)))))
	c.Erratum("E-18", "H/log n_k in [0, 1] for n_k = 1", "0, as there is no choice", "0/0")
}

// freeEnergy checks T-15 on s = [2, 1, 0] and random scores.
func freeEnergy(c *Check) {
	s := tt()
	written := func(s []float64, t float64) float64 {
		_, z := exponentials(s, c.Factor("T in Z", t))
		return c.Sign("minus", -t*math.Log(z))
	}
	for _, x := range []struct {
		t       float64
		printed string
	}{{1, "-2.40760596"}, {0.5, "-2.071466"}, {2, "-3.360539"}} {
		c.Printed("F", x.printed, gibbs.FreeEnergy(s, x.t))
		c.Near("-T log Z", gibbs.FreeEnergy(s, x.t), written(s, x.t), 4e-15)
	}
	var random, logZ trials
	for range 50 {
		s, t := c.Vector(5), 0.3+3*c.Rand.Float64()
		random.add(gibbs.FreeEnergy(s, t), written(s, t))
		logZ.add(gibbs.FreeEnergy(s, t), -t*gibbs.LogPartition(s, t))
	}
	random.near(c, "-T log Z of random scores", 2e-14)
	logZ.near(c, "-T LogPartition", 1e-14)
	_, z := exponentials(s, 1)
	c.True("E-39: with the Z of T = 1 there is another F at T = 1/2", math.Abs(-0.5*math.Log(z)-gibbs.FreeEnergy(s, 0.5)) > 0.5)
	c.Erratum("E-39", "the Z of F = -T log Z", "Z(T) = sum_j exp(S_j/T)", "the letter of T-8, whose Z is sum_j exp(S_j)")
}

// freeEnergyOfKernels checks F = -T LSE for random scores.
func freeEnergyOfKernels(c *Check, by bridge.Attention) {
	for _, t := range []float64{0.5, 1, 2} {
		s := scoresFor32(c, 3, 6)
		ans := c.Attend(by, scored(s, attn.WantLSE, t))
		f := make([]float64, 3)
		for i := range f {
			_, z := exponentials(s.RawRowView(i), t)
			f[i] = c.Sign("minus", -t*math.Log(c.Factor("Z", z)))
		}
		c.Tolerable("-T LSE", answerTimes(-t, ans.LSE), column(f), 0)
		var read []float64
		for i := range f {
			read = append(read, float64(attn.FreeEnergy(float32(ans.LSE.X.At(i, 0)), t)))
		}
		largest := max(-slices.Min(f), slices.Max(f))
		c.Tolerable("attn.FreeEnergy", bridge.Values{X: column(read), Tol: answerTimes(-t, ans.LSE).Tol}, column(f), 0x1p-23*largest)
	}
}

// answerTimes returns x times a kernel's answer.
func answerTimes(x float64, v bridge.Values) bridge.Values {
	to := bridge.Values{X: new(mat.Dense), Tol: new(mat.Dense)}
	to.X.Scale(x, v.X)
	to.Tol.Scale(math.Abs(x), v.Tol)
	return to
}

// energyLessEntropy checks T-16 on s = [2, 1, 0] and random scores.
func energyLessEntropy(c *Check) {
	s := tt()
	p := ratios(s, 1)
	c.Printed("<E> and H at T = 1", "-1.575210 .832396", gibbs.ExpectedEnergy(p, s), gibbs.Entropy(p))
	c.Within("F - (<E> - T H) at T = 1", math.Abs(gibbs.FreeEnergy(s, 1)-gibbs.ExpectedEnergy(p, s)+gibbs.Entropy(p)), 1e-12)
	var mean, sum trials
	for range 100 {
		s, t := c.Vector(6), 0.3+3*c.Rand.Float64()
		p, energy := ratios(s, t), 0.0
		for j, w := range p {
			energy += c.Sign("minus", -w*s[j])
		}
		mean.add(gibbs.ExpectedEnergy(p, s), energy)
		sum.add(energy-c.Factor("T", t)*writtenEntropy(c, p), gibbs.FreeEnergy(s, t))
	}
	mean.near(c, "<E> of random scores", 1e-14)
	sum.near(c, "<E> - T H = F of random scores", 1e-12)
	c.True("E-40: <S> - H/beta is not F", math.Abs(floats.Dot(p, s)-gibbs.Entropy(p)-gibbs.FreeEnergy(s, 1)) > 3)
	c.Erratum("E-40", "free energy on the library's page", "F = -<S> - H/beta", "F = <S> - H/beta")
}

// energyOfKernels checks the mean score, and F = -Mean - T H, for random scores.
func energyOfKernels(c *Check, by bridge.Attention) {
	for _, t := range []float64{0.5, 1, 2} {
		s := scoresFor32(c, 3, 6)
		ans := c.Attend(by, scored(s, attn.WantMean|attn.WantEntropy|attn.WantLSE, t))
		energy, f := make([]float64, 3), make([]float64, 3)
		for i := range energy {
			p := ratios(s.RawRowView(i), t)
			for j, w := range p {
				energy[i] += c.Sign("minus", -w*s.At(i, j))
			}
			f[i] = energy[i] - c.Factor("T", t)*writtenEntropy(c, p)
		}
		c.Tolerable("<E> = -Mean", answerTimes(-1, ans.Mean), column(energy), 0)
		sum, ts := answerTimes(-1, ans.Mean), answerTimes(-t, ans.Entropy)
		sum.X.Add(sum.X, ts.X)
		sum.Tol.Add(sum.Tol, ts.Tol)
		c.Tolerable("-Mean - T H", sum, column(f), 0)
		c.Tolerable("-T LSE", answerTimes(-t, ans.LSE), column(f), 0)
	}
}

// entropyBounds checks P-21 and P-22 on random weights. Two sharper bounds show that equality holds
// only at the ends: -log max p <= H, and by Pinsker's inequality H <= log n - |p - 1/n|_1^2 / 2.
func entropyBounds(c *Check) {
	var written, ends trials
	below, above, strict := 0.0, 0.0, true
	for range 1000 {
		n := 2 + c.Rand.IntN(9)
		s := c.Vector(n)
		floats.Scale(0.3+3*c.Rand.Float64(), s)
		p, off := ratios(s, 1), 0.0
		h := gibbs.Entropy(p)
		written.add(h, writtenEntropy(c, p))
		for _, w := range p {
			off += math.Abs(w - 1/float64(n))
		}
		below = max(below, -math.Log(slices.Max(p))-h)
		above = max(above, h-gibbs.MaxEntropy(n)+off*off/2)
		strict = strict && h > 0 && h < gibbs.MaxEntropy(n)
	}
	for n := 1; n <= 10; n++ {
		ends.add(gibbs.Entropy(gibbs.Softmax(make([]float64, n), 1)), math.Log(c.Factor("n_k", float64(n))))
		ends.add(gibbs.Entropy(gibbs.Softmax(c.Vector(n), 0)), 0)
	}
	written.near(c, "Entropy", 1e-14)
	c.True("0 < H < log n_k between the ends", strict)
	c.Within("-log max p <= H", below, 1e-14)
	c.Within("H <= log n_k - |p - 1/n_k|^2/2", above, 1e-14)
	ends.near(c, "log n_k of equal weights, 0 of one", 4e-15)
}

// entropyListing checks the paper's listing. Its eps makes the entropy of a single weight negative.
func entropyListing(c *Check) {
	const eps = 1e-12
	listing := func(w []float64) float64 {
		h := 0.0
		for _, x := range w {
			h += c.Sign("minus", -x*math.Log(x+eps))
		}
		return h
	}
	single := []float64{0, 1, 0}
	c.Printed("the listing, one weight of 1", "-1.0001e-12", listing(single))
	c.Near("ours", gibbs.Entropy(single), 0, 0)
	c.Refutes("E-17", "entropy of one weight of 1", "-1.0001e-12", gibbs.Entropy(single))
	one := float32(1)
	c.True("E-17: in float32, 1 + eps is 1", one+float32(eps) == one)
	var entropy, normalised trials
	for range 100 {
		w := ratios(c.Vector(6), 1)
		entropy.add(gibbs.Entropy(w), listing(w))
		normalised.add(gibbs.NormalizedEntropy(w), listing(w)/math.Log(c.Factor("n_k", 6)))
	}
	entropy.near(c, "otherwise eps changes H by at most n eps", 6*eps+4e-15)
	normalised.near(c, "and so H/log n_k", 6*eps+4e-15)
}

// variationalPrinciple checks P-25 to P-28: the excess of the functional over F, the stationary
// point of the Lagrangian, and two descents that find it from elsewhere.
func variationalPrinciple(c *Check) {
	phi := func(a, s []float64, t float64) float64 {
		energy, entropy := 0.0, 0.0
		for j, x := range a {
			energy -= x * s[j]
			if x > 0 {
				entropy -= x * math.Log(x)
			}
		}
		return energy - c.Factor("T of H", t)*entropy
	}
	var written, excess, stationary trials
	below := 0.0
	for range 1000 {
		s, t := c.Vector(5), 0.3+2*c.Rand.Float64()
		a := make([]float64, len(s)) // evenly over the simplex
		for j := range a {
			a[j] = c.Rand.ExpFloat64()
		}
		floats.Scale(1/floats.Sum(a), a)
		p, f := ratios(s, t), gibbs.FreeEnergy(s, t)
		written.add(gibbs.Functional(a, s, t), phi(a, s, t))
		below = max(below, f-phi(a, s, t))
		excess.add(phi(a, s, t)-f, c.Factor("T of KL", t)*stat.KullbackLeibler(a, p))
		excess.add(t*gibbs.Divergence(a, s, t), phi(a, s, t)-f)
		lambda := -f - t
		for j, x := range p {
			stationary.add(-s[j]+c.Sign("T", t)*(1+math.Log(x))+lambda, 0)
		}
	}
	written.near(c, "Functional", 1e-13)
	c.Within("Phi(A) >= F", below, 0)
	excess.near(c, "Phi(A) - F = T KL(A || softmax)", 1e-12)
	stationary.near(c, "-S_j + T (1 + log A_j) + lambda = 0, lambda = -F - T", 1e-12)

	for _, t := range []float64{1, 2} {
		c.NearAll("projected gradient descent from equal weights", projectedDescent(c, tt(), t), ratios(tt(), t), 1e-10)
	}
	for range 20 {
		s, t := c.Vector(5), 0.3+2*c.Rand.Float64()
		m, err := gibbs.Minimize(s, t, gibbs.Descent{})
		c.Must(err)
		far := floats.Distance(m.Weights, ratios(s, t), 1)
		c.Within("mirror descent: |A - softmax|_1 <= sqrt(2 gap/T)", far-math.Sqrt(2*m.Gap/t), 1e-14)
		c.Near("mirror descent: least value", m.Value, gibbs.FreeEnergy(s, t), m.Gap+1e-14)
	}
}

// projectedDescent minimises the functional of P-25 by gradient steps projected onto sum A = 1.
func projectedDescent(c *Check, s []float64, t float64) []float64 {
	a := make([]float64, len(s))
	floats.AddConst(1/float64(len(a)), a)
	g := make([]float64, len(a))
	for range 3000 {
		for j, x := range a {
			g[j] = -s[j] + t*(1+math.Log(x))
		}
		mean := stat.Mean(g, nil)
		for j := range a {
			a[j] -= 0.02 * c.Sign("downhill", g[j]-mean)
		}
	}
	return a
}
