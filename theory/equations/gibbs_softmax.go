package equations

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"attnlab/theory/gibbs"
)

// jacobianOfTwo checks the paper's third example.
func jacobianOfTwo(c *Check) {
	s := []float64{1, 2}
	a := ratios(s, 1)
	c.Printed("a", ".26894142 .73105858", a...)
	j := writtenJacobian(c, a)
	c.Printed("J", ".19661193 -.19661193 -.19661193 .19661193", Flat(j)...)
	c.NearMat("Jacobian", gibbs.Jacobian(a, 1), j, 1e-16)
	c.NearMat("by differences", softmaxDifferences(s), j, 1e-9)
}

// writtenJacobian returns J_ij = p_i (delta_ij - p_j).
func writtenJacobian(c *Check, p []float64) *mat.Dense {
	n := len(p)
	to := mat.NewDense(n, n, nil)
	for i := range n {
		for j := range n {
			delta := 0.0
			if i == c.Index("delta", j, n) {
				delta = 1
			}
			to.Set(i, j, p[i]*(delta+c.Sign("minus", -p[j])))
		}
	}
	return to
}

// softmaxDifferences returns the Jacobian of softmax at s by central differences.
func softmaxDifferences(s []float64) *mat.Dense {
	to := mat.NewDense(len(s), len(s), nil)
	fd.Jacobian(to, func(y, x []float64) { copy(y, ratios(x, 1)) }, s, &fd.JacobianSettings{Formula: fd.Central, Step: 1e-5})
	return to
}

// softmaxProperties checks L-1.1: the listing's figures, and the three properties on random z.
func softmaxProperties(c *Check) {
	z := []float64{1, 2, 3, 4, 1}
	stable := func(z []float64) []float64 { // as the lesson lists it
		p, sum := make([]float64, len(z)), 0.0
		for i, x := range z {
			p[i] = math.Exp(x - c.Sign("largest", slices.Max(z)))
			sum += p[i]
		}
		floats.Scale(1/c.Factor("sum", sum), p)
		return p
	}
	c.Printed("softmax of [1, 2, 3, 4, 1]", ".03106277 .08443737 .22952458 .6239125 .03106277", gibbs.Softmax(z, 1)...)
	huge := []float64{1000, 1001, 999}
	c.NearAll("the stable listing", gibbs.Softmax(huge, 1), stable(huge), 1e-15)
	c.NearAll("of which no shift is seen", gibbs.Softmax(huge, 1), ratios([]float64{0, 1, -1}, 1), 1e-15)

	var sums, shifted trials
	ordered, exact := true, true
	for range 100 {
		z := c.Vector(6)
		for i, x := range z {
			z[i] = math.Round(x*0x1p20) / 0x1p20 // so that shifts by 2^-10 to 2^20 are exact
		}
		p := gibbs.Softmax(z, 1)
		sums.add(floats.Sum(p), 1)
		for i := range z {
			for j := range z {
				ordered = ordered && (z[i] < z[j]) == (p[i] < p[j])
			}
		}
		moved := slices.Clone(z)
		floats.AddConst(math.Ldexp(1, c.Rand.IntN(31)-10), moved)
		exact = exact && slices.Equal(gibbs.Softmax(moved, 1), p)

		other := []float64{1, 2, 3, 4, 1}
		floats.AddConst(4*c.Rand.Float64()-2, other)
		shifted.addAll(gibbs.Softmax(other, 1), gibbs.Softmax([]float64{1, 2, 3, 4, 1}, 1))
	}
	sums.near(c, "sum", 6*0x1p-53)
	c.True("the order is kept", ordered)
	c.True("a shift that is exact changes no bit", exact)
	shifted.near(c, "any shift changes at most 4u", 4*0x1p-53)
}

// softArgmax checks L-1.2: the expected index, and the curve of two scores.
func softArgmax(c *Check) {
	z := []float64{1, 2, 3, 4, 1}
	p, mean := ratios(z, 1), 0.0
	for i, w := range p {
		mean += float64(c.Index("position", i, len(p))) * w
	}
	c.Printed("counted from 0, and from 1", "2.539475 3.539475", gibbs.SoftArgmax(z, 1), gibbs.SoftArgmax(z, 1)+1)
	c.Near("sum i p_i", gibbs.SoftArgmax(z, 1), mean, 1e-15)
	curve := gibbs.Curve([]float64{2, -2}, func(x float64) []float64 { return []float64{x, 0} }, 1)
	c.Printed("softmax of [2, 0] and [-2, 0]", ".88079708 .11920292", mat.Col(nil, 0, curve)...)
	var logistic trials
	for x := -6.0; x <= 6; x += 0.25 {
		logistic.add(gibbs.Softmax([]float64{x, 0}, 1)[0], 1/(1+math.Exp(c.Sign("minus", -x))))
	}
	logistic.near(c, "softmax of [x, 0] is the logistic function", 1e-15)
}

// softmaxTemperature checks L-1.3: figures at three temperatures, and draws.
func softmaxTemperature(c *Check) {
	z := []float64{1, 2, 3, 4}
	var written trials
	for _, x := range []struct {
		tau     float64
		printed string
	}{
		{0.1, "0 0 4.54e-5 .9999546"},
		{1, ".0320586 .08714432 .23688282 .64391426"},
		{10, ".21383822 .23632778 .26118259 .28865141"},
	} {
		p := gibbs.Softmax(z, x.tau)
		c.Printed("tau = "+strconv.FormatFloat(x.tau, 'g', -1, 64), x.printed, p...)
		written.addAll(p, ratios(z, c.Factor("tau", x.tau)))
	}
	written.near(c, "exp(z/tau) over their sum", 1e-15)
	c.Near("the two zeros at tau = 0.1", gibbs.Softmax(z, 0.1)[1], math.Exp(-20)/(1+math.Exp(-10)), 1e-14)

	const draws, tau = 20000, 2.0
	limit := distuv.ChiSquared{K: float64(len(z) - 1)}.Quantile(0.999)
	counts, ours := make([]float64, len(z)), make([]float64, len(z))
	for range draws {
		noisy := make([]float64, len(z))
		for i, x := range z {
			gumbel := -math.Log(c.Rand.ExpFloat64()) // P(g < x) = exp(-exp(-x))
			noisy[i] = x/tau + c.Factor("noise", gumbel)
		}
		counts[floats.MaxIdx(noisy)]++
		ours[gibbs.GumbelMax(z, tau, c.Rand)]++
	}
	want := ratios(z, tau)
	floats.Scale(draws, want)
	c.Within("chi-squared of draws by arg max (z/tau + g)", stat.ChiSquare(counts, want), limit)
	c.Within("chi-squared of GumbelMax", stat.ChiSquare(ours, want), limit)

	relaxed := gibbs.GumbelSoftmax(z, tau, 0.5, c.Rand)
	c.Near("a relaxed draw is a distribution", floats.Sum(relaxed), 1, 1e-15)
	hard := gibbs.GumbelSoftmax(z, tau, 0, c.Rand)
	c.Near("which is one state as its own temperature goes to 0", slices.Max(hard), 1, 0)
}

// maxCurves checks the lesson's curves of the weight of score 3 beside another score.
func maxCurves(c *Check) {
	others := []float64{-2, 0, 2}
	var logistic trials
	for _, x := range []struct {
		tau     float64
		printed string
	}{
		{0.5, ".9999546 .99752738 .88079708"}, {1, ".99330715 .95257413 .73105858"}, {2, ".92414182 .81757448 .62245933"},
	} {
		p := mat.Col(nil, 0, gibbs.Curve(others, func(other float64) []float64 { return []float64{3, other} }, x.tau))
		c.Printed("P(max) at tau = "+strconv.FormatFloat(x.tau, 'g', -1, 64), x.printed, p...)
		for i, other := range others {
			logistic.add(p[i], 1/(1+math.Exp(c.Sign("minus", -(3-other))/c.Factor("tau", x.tau))))
		}
	}
	logistic.near(c, "1/(1 + exp(-(3-x)/tau))", 1e-15)
}

// softmaxJacobian checks L-1.4 on s = [1, 2, 3], on random scores by differences, and at a
// temperature, where J has the factor 1/T.
func softmaxJacobian(c *Check) {
	p := ratios([]float64{1, 2, 3}, 1)
	c.Printed("J of [1, 2, 3]", ".08192507 -.02203304 -.05989202 -.02203304 .18483645 -.1628034 -.05989202 -.1628034 .22269543", Flat(gibbs.Jacobian(p, 1))...)
	c.NearMat("p_i (delta_ij - p_j)", gibbs.Jacobian(p, 1), writtenJacobian(c, p), 1e-16)
	for range 10 {
		s := c.Vector(5)
		c.NearMat("by differences", softmaxDifferences(s), gibbs.Susceptibility(s, 1), 1e-9)
		var scaled mat.Dense
		scaled.Scale(1/c.Factor("T", 3), gibbs.Jacobian(gibbs.Softmax(s, 3), 1))
		c.NearMat("at T = 3", gibbs.Susceptibility(s, 3), &scaled, 1e-16)
	}
}

// jacobianRowSums checks the lesson's first problem: sum_j p_i (delta_ij - p_j) = p_i - p_i sum_j
// p_j = 0. The sum must be 0 because the weights always sum to 1.
func jacobianRowSums(c *Check) {
	for n := 1; n <= 16; n++ {
		p := ratios(c.Vector(n), 1)
		jac, worst := gibbs.Jacobian(p, 1), 0.0
		c.NearMat("p_i (delta_ij - p_j)", jac, writtenJacobian(c, p), 1e-16)
		for i := range n {
			worst = max(worst, math.Abs(floats.Sum(mat.Row(nil, i, jac))))
		}
		c.Within("sum_j J_ij = 0", worst, 1e-16*float64(n))
	}
}

// softmaxModule checks our counterparts of the library's functions against their definitions, on
// masked random scores.
func softmaxModule(c *Check) {
	const t = 0.7
	raw := c.Normal(4, 5)
	show := func(i, j int) bool { return (i+2*j)%5 != 0 }
	s := gibbs.MaskRows(raw, show)
	p, open := mat.NewDense(4, 5, nil), mat.NewDense(4, 5, nil)
	for i := range 4 {
		z, zOpen := 0.0, 0.0
		for j := range 5 {
			zOpen += math.Exp(raw.At(i, j))
			if show(i, j) {
				z += math.Exp(raw.At(i, j) / t)
			}
		}
		for j := range 5 {
			open.Set(i, j, math.Exp(raw.At(i, j))/c.Factor("softmax_rows", zOpen))
			if show(i, j) != c.Flip("mask of gibbs_distribution") {
				p.Set(i, j, math.Exp(raw.At(i, j)/t)/z)
			}
		}
		c.Near("partition_function: LogPartition", gibbs.LogPartition(s.RawRowView(i), t), math.Log(c.Factor("partition_function", z)), 1e-14)
		c.Near("free_energy: FreeEnergy", gibbs.FreeEnergy(s.RawRowView(i), t), c.Sign("free_energy", -t)*math.Log(z), 1e-14)
	}
	c.NearMat("softmax_rows: SoftmaxRows", gibbs.SoftmaxRows(raw, 1), open, 1e-15)
	c.NearMat("log_softmax: LogSoftmaxRows", gibbs.LogSoftmaxRows(raw, 1), asRows(raw, func(row []float64) []float64 {
		_, z := exponentials(row, 1)
		to := slices.Clone(row)
		floats.AddConst(-math.Log(c.Factor("log_softmax", z)), to)
		return to
	}), 1e-14)
	c.NearMat("gibbs_distribution: Mask and Softmax", gibbs.SoftmaxRows(s, t), p, 1e-15)

	weights := gibbs.SoftmaxRows(s, t)
	var each, rows, normalised, states []float64
	for i := range 4 {
		h := 0.0
		for j := range 5 {
			if w := weights.At(i, j); w > 0 {
				h += c.Sign("entropy", -w*math.Log(w))
			}
		}
		each, rows = append(each, gibbs.Entropy(weights.RawRowView(i))), append(rows, h)
		normalised = append(normalised, h/math.Log(c.Factor("normalized_entropy", 5)))
		states = append(states, math.Exp(c.Factor("effective_number_of_states", h)))
	}
	c.NearAll("entropy: Entropy", each, rows, 1e-15)
	c.NearAll("attention_entropy: EntropyRows", gibbs.EntropyRows(weights), rows, 1e-15)
	c.Near("max_entropy: MaxEntropy", gibbs.MaxEntropy(5), math.Log(c.Factor("max_entropy", 5)), 1e-15)
	c.NearAll("normalized_entropy: NormalizedEntropyRows", gibbs.NormalizedEntropyRows(weights), normalised, 1e-15)
	c.NearAll("effective_number_of_states: EffectiveStatesRows", gibbs.EffectiveStatesRows(weights), states, 1e-14)

	temperatures := []float64{0.1, 0.5, 1, 2, 10}
	sweep := mat.NewDense(len(temperatures), 5, nil)
	for i, t := range temperatures {
		sweep.SetRow(i, ratios(raw.RawRowView(0), c.Factor("temperature_sweep", t)))
	}
	c.NearMat("temperature_sweep: Sweep", gibbs.Sweep(raw.RawRowView(0), temperatures...).Weights(), sweep, 1e-14)

	all := gibbs.Jacobians(weights, 1)
	for i := range 4 {
		jac := writtenJacobian(c, weights.RawRowView(i))
		c.NearMat("softmax_jacobian: Jacobian", gibbs.Jacobian(weights.RawRowView(i), 1), jac, 1e-16)
		c.NearMat("softmax_jacobian_batched: Jacobians", all[c.Index("row of softmax_jacobian_batched", i, 4)], jac, 1e-16)
	}
	hiddenRows(c)
	libraryPage(c)
}

// hiddenRows checks E-14: the weights of a row without a visible key.
func hiddenRows(c *Check) {
	hidden := math.Inf(-1)
	row := []float64{hidden, hidden, hidden}
	c.NearAll("a row without a visible state: weights", gibbs.Softmax(row, 1), []float64{0, 0, 0}, 0)
	c.Near("its log Z", gibbs.LogPartition(row, 1), hidden, 0)
	c.True("E-14: exp(s - max s) is NaN there", math.IsNaN(math.Exp(row[0]-slices.Max(row))))
	c.Erratum("E-14", "gibbs_distribution of a row that is hidden altogether", "zero weights", "NaN")
	filled := gibbs.Softmax([]float64{-1e9, -1e9, -1e9}, 1)
	c.Printed("E-14: filled with -1e9 instead", ".333 .333 .333", filled...)
	c.Refutes("E-14", "weight in a row that is hidden altogether", ".333", gibbs.Softmax(row, 1)[0])
	c.Printed("E-14: with -1e9 added to [1, 2, 3] instead", ".090031 .244728 .665241", gibbs.Softmax([]float64{1 - 1e9, 2 - 1e9, 3 - 1e9}, 1)...)
	fill, score := float32(-1e9), float32(3)
	c.True("E-14: in float32, -1e9 takes up a score of 3", fill+score == fill)
}

// libraryPage checks E-40: the example of the page on statistical mechanics.
func libraryPage(c *Check) {
	s := []float64{.9, .1, .7}
	a, sharp := gibbs.Softmax(s, 1), gibbs.Softmax(s, 1./5)
	c.Printed("softmax of [.9, .1, .7]", ".440905 .198112 .360983", a...)
	c.Printed("which retrieves", ".693594 .450800", a[0]+.7*a[2], a[1]+.7*a[2])
	c.Printed("at beta = 5", ".721399 .013213 .265388", sharp...)
	for j, printed := range []string{".48", ".22", ".30"} {
		c.Refutes("E-40", "weight "+strconv.Itoa(j)+" of [.9, .1, .7]", printed, a[j])
	}
	c.Refutes("E-40", "weight 0 of [.9, .1, .7] at beta = 5", ".88", sharp[0])
	c.Refutes("E-40", "weight 2 of [.9, .1, .7] at beta = 5", ".11", sharp[2])
	c.True("E-40: beta = 5 is colder than beta = 1", gibbs.Entropy(sharp) < gibbs.Entropy(a))
	c.Erratum("E-40", "beta = 5", "a low temperature, T = 1/5", "high temperature")
}
