package equations

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
)

// gibbsView returns the rows on softmax as a Gibbs distribution.
func gibbsView() []Row {
	return []Row{
		{ID: "T-8", Statement: "A_ij = exp(S_ij) / Z_i, Z_i = sum_k exp(S_ik)", Check: weightsAndPartition, Kernel: weightsOfKernels},
		{ID: "T-12", Statement: "P(j) = exp(-E_j/T) / Z, Z = sum_j exp(-E_j/T)", Check: gibbsDistribution},
		{ID: "T-13", Statement: "A_ij = exp(S_ij/T) / sum_k exp(S_ik/T), S = -E, beta = 1/T", Check: temperature, Kernel: temperatureOfKernels},
		{ID: "T-42p", Statement: "T -> 0: the largest takes all; T -> Inf: A_ij = 1/n_k; scale 1/sqrt(d) is T = sqrt(d)", Check: temperatureLimits, Kernel: limitsOfKernels},
		{ID: "T-14", Statement: "H_i = -sum_j A_ij log A_ij, 0 <= H_i <= log n_k", Check: entropyOfWeights, Kernel: entropyOfKernels},
		{ID: "T-nent", Statement: "0 <= H_i / log n_k <= 1", Check: normalisedEntropy},
		{ID: "T-15", Statement: "F_i = -T log Z_i = -T log sum_j exp(S_ij/T)", Check: freeEnergy, Kernel: freeEnergyOfKernels},
		{ID: "T-16", Statement: "F = <E> - T H, <E> = -sum_j A_j S_j", Check: energyLessEntropy, Kernel: energyOfKernels},
		{ID: "T-table", Statement: "s = [2, 1, 0] at T = 0.5, 1, 2 and Inf: weights and entropies (tutorial)", Check: tutorialTable},
		{ID: "P-16,17", Statement: "the Gibbs distribution, and attention weights as one, with S = -E", Is: Alias, Of: []string{"T-12", "T-13"}},
		{ID: "P-18,19,20", Statement: "the limits of the temperature, and why: A_j = exp((S_j-max S)/T) / sum_k exp((S_k-max S)/T)", Check: limitTheorem},
		{ID: "P-lst1", Statement: "attention_temperature: softmax(scores/temperature)", Is: Alias, Of: []string{"T-13"}},
		{ID: "P-21,22", Statement: "0 <= H <= log n_k, with equality only for one weight of 1 and for n_k equal weights", Check: entropyBounds},
		{ID: "P-lst2", Statement: "attention_entropy = -sum_j w_j log(w_j + eps), normalized_entropy = attention_entropy / log n_k", Check: entropyListing},
		{ID: "P-23,24", Statement: "F = -T log Z = <E> - T H", Is: Alias, Of: []string{"T-15", "T-16"}},
		{ID: "P-25..28", Statement: "A = arg min [<E> - T H(A)] on the simplex: -S_j + T (1 + log A_j) + lambda = 0, so A_j ~ exp(S_j/T)", Check: variationalPrinciple},
		{ID: "P-tab", Statement: "s = [2, 1, 0] at T = 0.25, 0.5, 1, 2 and Inf: weights and entropies (paper)", Check: paperTable},
		{ID: "P-78..80", Statement: "s = [1, 2]: a = softmax(s), da_i/ds_j = a_i (delta_ij - a_j)", Check: jacobianOfTwo},
		{ID: "N-stat", Statement: "the limits of the temperature, and the bounds of the entropy", Is: Alias, Of: []string{"T-42p", "T-14"}},
		{ID: "L-1.1", Statement: "softmax(z)_i = exp(z_i) / sum_j exp(z_j): sums to 1, keeps the order, and is invariant to a shift of all z", Check: softmaxProperties},
		{ID: "L-1.2", Statement: "soft argmax: sum_i i softmax(z)_i", Check: softArgmax},
		{ID: "L-1.3", Statement: "softmax(z/tau), and draws from it by Gumbel noise: arg max_i (z_i/tau + g_i)", Check: softmaxTemperature},
		{ID: "L-1.2b", Statement: "P(max) of the scores 3 and x, for x from -2 to 2 and several tau", Check: maxCurves},
		{ID: "L-1.4", Statement: "J = diag(p) - p p^T", Check: softmaxJacobian},
		{ID: "L-P1", Statement: "problem 1: J_ij = p_i (delta_ij - p_j), and sum_j J_ij = 0", Check: jacobianRowSums},
		{ID: "M-softmax", Statement: "the 13 functions of the library's module softmax", Check: softmaxModule},
	}
}

// exponentials returns exp(s_j/t) and their sum. They may overflow.
func exponentials(s []float64, t float64) (e []float64, sum float64) {
	e = make([]float64, len(s))
	for j, x := range s {
		e[j] = math.Exp(x / t)
		sum += e[j]
	}
	return e, sum
}

// ratios returns exp(s_j/t) divided by their sum.
func ratios(s []float64, t float64) []float64 {
	p, sum := exponentials(s, t)
	floats.Scale(1/sum, p)
	return p
}

// gibbsScores returns the scores of the first worked example.
func gibbsScores() *mat.Dense {
	q, k, _ := ex1()
	var s mat.Dense
	s.Mul(q, k.T())
	s.Scale(ex1Scale, &s)
	return &s
}

// onesOn returns the identity matrix.
func onesOn(n int) *mat.Dense {
	m := mat.NewDense(n, n, nil)
	for i := range n {
		m.Set(i, i, 1)
	}
	return m
}

// scored returns a call whose scores are exactly s and whose output is the weights: Q and V are the
// identity, K is the transpose of s.
func scored(s *mat.Dense, want attn.Want, temp float64) bridge.Call {
	nq, nk := s.Dims()
	return bridge.Call{
		Q: onesOn(nq), K: mat.DenseCopyOf(s.T()), V: onesOn(nk),
		Problem: attn.Problem{Score: attn.Score{Scale: 1, Temp: temp}, Want: want},
	}
}

// trials collects numbers and their expected values, so that many trials make one fact.
type trials struct{ got, want []float64 }

func (t *trials) add(got, want float64) { t.got, t.want = append(t.got, got), append(t.want, want) }

func (t *trials) addAll(got, want []float64) {
	t.got, t.want = append(t.got, got...), append(t.want, want...)
}

func (t *trials) near(c *Check, what string, bound float64) { c.NearAll(what, t.got, t.want, bound) }

// column returns a matrix of one column.
func column(x []float64) *mat.Dense { return mat.NewDense(len(x), 1, x) }

// scoresFor32 returns random scores that are exact in float32.
func scoresFor32(c *Check, nq, nk int) *mat.Dense { return bridge.Float32(c.Normal(nq, nk)) }

// asRows returns f applied to every row of s.
func asRows(s *mat.Dense, f func(row []float64) []float64) *mat.Dense {
	var rows [][]float64
	for i := range s.RawMatrix().Rows {
		rows = append(rows, f(s.RawRowView(i)))
	}
	return Rows(rows...)
}

// weightsAndPartition checks T-8 on the worked example, and logarithms on random scores.
func weightsAndPartition(c *Check) {
	s := gibbsScores()
	a, logZ := writtenWeights(c, s)
	c.Printed("Z", "5.05622996 5.05622996", math.Exp(logZ[0]), math.Exp(logZ[1]))
	c.Printed("A", ".40111209 .19777581 .40111209 .19777581 .40111209 .40111209", Flat(a)...)
	c.Printed("log Z", "1.62062114 1.62062114", gibbs.LogPartitionRows(s, 1)...)
	c.NearMat("Softmax", gibbs.SoftmaxRows(s, 1), a, 1e-15)
	c.NearAll("LogPartition", gibbs.LogPartitionRows(s, 1), logZ, 1e-15)

	random := c.Normal(20, 7)
	a, logZ = writtenWeights(c, random)
	var logs mat.Dense
	logs.Apply(func(_, _ int, p float64) float64 { return math.Log(p) }, a)
	c.NearMat("Softmax of random scores", gibbs.SoftmaxRows(random, 1), a, 1e-15)
	c.NearMat("LogSoftmax", gibbs.LogSoftmaxRows(random, 1), &logs, 1e-14)
	c.NearAll("LogPartition of random scores", gibbs.LogPartitionRows(random, 1), logZ, 1e-14)
}

// writtenWeights returns A_ij = exp(S_ij)/Z_i and log Z_i with Z_i = sum_k exp(S_ik).
func writtenWeights(c *Check, s mat.Matrix) (a *mat.Dense, logZ []float64) {
	nq, nk := s.Dims()
	a = mat.NewDense(nq, nk, nil)
	overQueries := c.Flip("sum over queries")
	for i := range nq {
		z := 0.0
		if overQueries {
			for k := range nq {
				z += math.Exp(s.At(k, 0))
			}
		} else {
			for k := range nk {
				z += math.Exp(s.At(i, k))
			}
		}
		for j := range nk {
			a.Set(i, j, math.Exp(c.Sign("exponent", s.At(i, j)))/c.Factor("Z", z))
		}
		logZ = append(logZ, math.Log(z))
	}
	return a, logZ
}

// weightsOfKernels checks the weights of the worked example, as the output for V = 1, and the LSE.
// Where a kernel returns weights, it checks these too.
func weightsOfKernels(c *Check, by bridge.Attention) {
	q, k, _ := ex1()
	a, logZ := writtenWeights(c, gibbsScores())
	call := bridge.Call{Q: q, K: k, V: onesOn(3), Problem: attn.Problem{Want: attn.WantLSE}}
	ans := c.Attend(by, call)
	c.Tolerable("weights, as the output for V = 1", ans.O, a, 0)
	c.Tolerable("LSE = log Z", ans.LSE, column(logZ), 0)
	call.Problem.Want = attn.WantWeights
	if ans := ifGiven(c, by, call); ans != nil {
		c.Tolerable("weights", ans.Weights, a, 0)
	}
}

// ifGiven returns the answer to a call beyond the row itself, or nil if the kernel does not support
// it.
func ifGiven(c *Check, by bridge.Attention, call bridge.Call) *bridge.Answer {
	ans, err := by.Attend(call)
	if errors.Is(err, attn.ErrUnsupported) {
		c.Note("%v", err)
		return nil
	}
	c.Must(err)
	return ans
}

// gibbsDistribution checks T-12 on random energies.
func gibbsDistribution(c *Check) {
	var energies, scores trials
	for range 50 {
		e, t := c.Vector(6), 0.5+2*c.Rand.Float64()
		p, z := make([]float64, len(e)), 0.0
		for j, x := range e {
			p[j] = math.Exp(c.Sign("minus", -x) / c.Factor("T", t))
			z += p[j]
		}
		floats.Scale(1/z, p)
		energies.addAll(gibbs.Gibbs(e, t), p)
		scores.addAll(gibbs.Softmax(floats.ScaleTo(make([]float64, len(e)), -1, e), t), p)
	}
	energies.near(c, "Gibbs of energies", 1e-15)
	scores.near(c, "Softmax of scores S = -E", 1e-15)
}

// temperature checks T-13 on the worked example at T = 1/2 and 2, and beta = 1/T.
func temperature(c *Check) {
	s := gibbsScores()
	_, _, v := ex1()
	for _, x := range []struct {
		t       float64
		printed string
	}{
		{0.5, "1.33742482 .66257518 .66257518 1.33742482"},
		{2, "1.11021122 .88978878 .88978878 1.11021122"},
	} {
		a := weightsAt(c, s, x.t)
		var o mat.Dense
		o.Mul(a, v)
		c.Printed("O", x.printed, Flat(&o)...)
		c.NearMat("Softmax(S, T)", gibbs.SoftmaxRows(s, x.t), a, 1e-15)
		beta := 1 / c.Factor("beta", x.t)
		c.NearMat("exp(-beta E) / Z", asRows(s, func(row []float64) []float64 {
			p, z := make([]float64, len(row)), 0.0
			for j, score := range row {
				energy := -score
				p[j] = math.Exp(-beta * energy)
				z += p[j]
			}
			floats.Scale(1/z, p)
			return p
		}), a, 1e-15)
	}
}

// weightsAt returns A_ij = exp(S_ij/T) / sum_k exp(S_ik/T).
func weightsAt(c *Check, s mat.Matrix, t float64) *mat.Dense {
	nq, nk := s.Dims()
	a := mat.NewDense(nq, nk, nil)
	for i := range nq {
		z := 0.0
		for k := range nk {
			z += math.Exp(s.At(i, k) / c.Factor("T", t))
		}
		for j := range nk {
			a.Set(i, j, math.Exp(s.At(i, j)/c.Factor("T", t))/z)
		}
	}
	return a
}

// temperatureOfKernels checks outputs and gradients at T = 1/2 and 2. With Z = S/T, dS = dZ/T.
func temperatureOfKernels(c *Check, by bridge.Attention) {
	const nq, nk, d = 4, 6, 3
	q, k, v, do := bridge.Float32(c.Normal(nq, d)), bridge.Float32(c.Normal(nk, d)), bridge.Float32(c.Normal(nk, 2)), bridge.Float32(c.Normal(nq, 2))
	scale := 1 / math.Sqrt(d)
	var s mat.Dense
	s.Mul(q, k.T())
	s.Scale(scale, &s)
	for _, t := range []float64{0.5, 2} {
		problem := attn.Problem{Score: attn.Score{Temp: t}}
		ans := c.Attend(by, bridge.Call{Q: q, K: k, V: v, Problem: problem, DO: do})
		a := weightsAt(c, &s, t)
		var o mat.Dense
		o.Mul(a, v)
		c.Tolerable("O", ans.O, &o, 0)
		// dA = dO V^T, dZ = A o (dA - rowsum(A o dA)), dS = dZ/T, dQ = scale dS K, dK = scale dS^T
		// Q, dV = A^T dO
		var da, dq, dk, dv mat.Dense
		da.Mul(do, v.T())
		ds := mat.NewDense(nq, nk, nil)
		for i := range nq {
			mean := floats.Dot(a.RawRowView(i), da.RawRowView(i))
			for j := range nk {
				ds.Set(i, j, a.At(i, j)*(da.At(i, j)-mean)/c.Factor("T of the gradient", t))
			}
		}
		dq.Mul(ds, k)
		dq.Scale(scale, &dq)
		dk.Mul(ds.T(), q)
		dk.Scale(scale, &dk)
		dv.Mul(a.T(), do)
		c.Tolerable("dQ", ans.DQ, &dq, 0)
		c.Tolerable("dK", ans.DK, &dk, 0)
		c.Tolerable("dV", ans.DV, &dv, 0)
	}
}

// limits returns the weights in both limits. As T -> 0 the largest scores share the weight equally;
// as T -> Inf all scores do.
func limits(c *Check, s []float64) (cold, hot []float64) {
	cold, hot = make([]float64, len(s)), make([]float64, len(s))
	top, ties := slices.Max(s), 0.0
	for _, x := range s {
		if x == top {
			ties++
		}
	}
	first := c.Flip("ties go to the first")
	for j, x := range s {
		switch {
		case x == top && first:
			cold[j] = 1
			first, top = false, math.Inf(1)
		case x == top:
			cold[j] = 1 / ties
		}
		hot[j] = 1 / c.Factor("n_k", float64(len(s)))
	}
	return cold, hot
}

// temperatureLimits checks the limits of T-13, with ties, and the scale of attention as a
// temperature.
func temperatureLimits(c *Check) {
	for _, s := range [][]float64{{1, 5, 2}, {2, 2, 0}, {3, 3, 3, 3}, {-1, -7, 0, 0, 0}} {
		cold, hot := limits(c, s)
		c.NearAll("T = 0", gibbs.Softmax(s, 0), cold, 0)
		c.NearAll("T = Inf", gibbs.Softmax(s, math.Inf(1)), hot, 0)
		c.NearAll("T = 0.01, where scores are 1 apart", ratios(centred(s), 0.01), cold, 1e-40)
		c.NearAll("T = 1e12", ratios(s, 1e12), hot, 1e-11)
	}
	c.Printed("T = 0.01, p_1 of [1, 5, 2]", "1", gibbs.Softmax([]float64{1, 5, 2}, 0.01)[1])
	c.Near("T = 0.01, the same", gibbs.Softmax([]float64{1, 5, 2}, 0.01)[1], 1, 0)
	c.Printed("T -> 0 of [2, 2, 0]", ".5 .5 0", gibbs.Softmax([]float64{2, 2, 0}, 0)...)
	c.Refutes("E-08", "weight of the first of two largest scores as T -> 0", "1.0", gibbs.Softmax([]float64{2, 2, 0}, 0)[0])

	for _, d := range []int{2, 3, 16, 64, 100} {
		q, k := c.Normal(3, d), c.Normal(5, d)
		var raw, scaled mat.Dense
		raw.Mul(q, k.T())
		root := math.Sqrt(c.Factor("d", float64(d)))
		scaled.Scale(1/root, &raw)
		largest := math.Max(mat.Max(&scaled), -mat.Min(&scaled))
		c.NearMat("T = sqrt(d) of unscaled scores", gibbs.SoftmaxRows(&raw, math.Sqrt(float64(d))), gibbs.SoftmaxRows(&scaled, 1), 8*0x1p-53*(1+largest))
	}
}

// centred returns s minus its largest element. That changes no weight.
func centred(s []float64) []float64 {
	to := slices.Clone(s)
	floats.AddConst(-slices.Max(s), to)
	return to
}

// limitsOfKernels checks both limits, and T = sqrt(d) in place of the scale.
func limitsOfKernels(c *Check, by bridge.Attention) {
	for _, s := range [][]float64{{1, 5, 2}, {2, 2, 0}, {3, 3, 3, 3}, {-1, -7, 0, 0, 0}} {
		cold, hot := limits(c, s)
		c.Tolerable("T = 0", c.Attend(by, scored(Rows(s), 0, attn.Frozen)).O, Rows(cold), 0)
		c.Tolerable("T = 0.01", c.Attend(by, scored(Rows(s), 0, 0.01)).O, Rows(cold), 0)
		c.Tolerable("T = Inf", c.Attend(by, scored(Rows(s), 0, math.Inf(1))).O, Rows(hot), 0)
		c.Tolerable("T = 1e30", c.Attend(by, scored(Rows(s), 0, 1e30)).O, Rows(hot), 0)
	}
	const d = 5
	q, k, v := bridge.Float32(c.Normal(3, d)), bridge.Float32(c.Normal(4, d)), bridge.Float32(c.Normal(4, 2))
	var s, o mat.Dense
	s.Mul(q, k.T())
	s.Scale(1/math.Sqrt(c.Factor("d", d)), &s)
	o.Mul(asRows(&s, func(row []float64) []float64 { return ratios(row, 1) }), v)
	c.Tolerable("scale 1/sqrt(d), T = 1", c.Attend(by, bridge.Call{Q: q, K: k, V: v}).O, &o, 0)
	unscaled := attn.Problem{Score: attn.Score{Scale: 1, Temp: math.Sqrt(d)}}
	c.Tolerable("scale 1, T = sqrt(d)", c.Attend(by, bridge.Call{Q: q, K: k, V: v, Problem: unscaled}).O, &o, 0)
}

// tableRow checks the correct figures, weights and entropy, for a line of a temperature table.
func tableRow(c *Check, t float64, weights, entropy string) {
	s := tt()
	p, z := exponentials(s, c.Factor("T", t))
	floats.Scale(1/z, p)
	table := gibbs.Sweep(s, t)
	c.Printed("weights", weights, p...)
	c.Printed("entropy", entropy, writtenEntropy(c, p))
	c.NearAll("weights of Sweep", table[0].Weights, p, 1e-15)
	c.NearAll("columns of Sweep", []float64{table[0].Entropy, table[0].Normalized, table[0].Effective, table[0].Energy},
		[]float64{writtenEntropy(c, p), writtenEntropy(c, p) / math.Log(3), math.Exp(writtenEntropy(c, p)), -2*p[0] - p[1]}, 4e-15)
	mean := 2*p[0] + p[1]
	capacity := 0.0
	for j, w := range p {
		capacity += w * (s[j] - mean) * (s[j] - mean) / (t * t)
	}
	c.Near("heat capacity of Sweep", table[0].HeatCapacity, capacity, 4e-15)
	if !math.IsInf(t, 1) {
		c.Near("free energy of Sweep", table[0].Free, -t*math.Log(z), 1e-14)
	}
}

// tutorialTable checks the tutorial's table: the correct figures, and which of the printed ones are
// wrong.
func tutorialTable(c *Check) {
	tableRow(c, 0.25, ".981690 .017980 .000329", ".093035")
	tableRow(c, 0.5, ".866813 .117310 .015876", ".441057")
	tableRow(c, 1, ".665241 .244728 .090031", ".832396")
	tableRow(c, 2, ".506480 .307196 .186324", "1.020191")
	tableRow(c, math.Inf(1), ".333333 .333333 .333333", "1.098612")
	refuteTable(c, 0.5, "tutorial", ".88 .11 .01", ".42")
	refuteTable(c, 1, "tutorial", "", ".80")
	refuteTable(c, 2, "tutorial", ".47 .32 .21", "")
	c.Printed("the entropy 1.02 at T = 2 is that of the right weights", "1.02", gibbs.At(tt(), 2).Entropy)
	c.Printed("entropy of the printed weights at T = 1/2", ".401345", gibbs.Entropy([]float64{.88, .11, .01}))
}

// paperTable checks the paper's table.
func paperTable(c *Check) {
	for _, x := range []struct {
		t                float64
		weights, entropy string
	}{
		{0.25, ".982 .018 .000", ".09"},
		{0.5, ".867 .117 .016", ".44"},
		{1, ".665 .245 .090", ".83"},
		{2, ".506 .307 .186", "1.02"},
		{math.Inf(1), ".333 .333 .333", "1.10"},
	} {
		tableRow(c, x.t, x.weights, x.entropy)
	}
	refuteTable(c, 0.25, "paper", ".997 .003", ".02")
	refuteTable(c, 0.5, "paper", ".876 .118 .006", ".42")
	refuteTable(c, 1, "paper", "", ".80")
	refuteTable(c, 2, "paper", ".474 .316 .211", "")
	c.Printed("entropy of the printed weights at T = 1/2", ".398843", gibbs.Entropy([]float64{.876, .118, .006}))
	wrong := []float64{.474, .316, .211}
	c.Printed("sum of the printed weights at T = 2, and their entropy", "1.001 1.046194", floats.Sum(wrong), gibbs.Entropy(wrong))
	c.NearAll("which are [9, 6, 4]/19", []float64{9. / 19, 6. / 19, 4. / 19}, wrong, .0005)
}

// refuteTable records erratum E-01 for the wrong figures of one temperature: the first weights, as
// many as are given, and the entropy.
func refuteTable(c *Check, t float64, source, weights, entropy string) {
	at := gibbs.At(tt(), t)
	what := " of [2, 1, 0] at T = " + strconv.FormatFloat(t, 'g', -1, 64) + ", " + source
	for j, printed := range strings.Fields(weights) {
		c.Refutes("E-01", "weight "+strconv.Itoa(j)+what, printed, at.Weights[j])
	}
	if entropy != "" {
		c.Refutes("E-01", "entropy"+what, entropy, at.Entropy)
	}
}

// limitTheorem checks P-18 to P-20: figures near both limits, the form of the proof, and the rate
// at which the other weights vanish.
func limitTheorem(c *Check) {
	s := tt()
	c.Printed("p_1 at T = 0.01", "3.72008e-44", gibbs.Softmax(s, 0.01)[1])
	worst := 0.0
	for _, p := range gibbs.Softmax(s, 1e9) {
		worst = max(worst, math.Abs(p-1./3))
	}
	c.True("|p - 1/3| < 1e-9 at T = 1e9", worst < 1e-9)
	var proof trials
	over := 0.0
	for range 20 {
		s := c.Vector(5)
		top, gap := slices.Max(s), math.Inf(1)
		for _, x := range s {
			if x < top {
				gap = min(gap, top-x) // to the second largest
			}
		}
		for _, t := range []float64{3, 1, 0.3, 0.1, 0.01} {
			p, z := make([]float64, len(s)), 0.0
			for j, x := range s {
				p[j] = math.Exp(c.Sign("S_j - max S", x-top) / c.Factor("T", t))
				z += p[j]
			}
			floats.Scale(1/z, p)
			got := gibbs.Softmax(s, t)
			proof.addAll(got, p)
			over = max(over, 1-slices.Max(got)-4*math.Exp(-gap/t))
		}
	}
	proof.near(c, "exp((S_j-max S)/T) over their sum", 1e-14)
	c.Within("what the largest weight lacks of 1 <= (n-1) exp(-gap/T)", over, 1e-15)
	even := gibbs.Softmax([]float64{7, 1, 7, 7}, 0)
	c.NearAll("m scores that tie for the largest share 1/m", even, []float64{1. / 3, 0, 1. / 3, 1. / 3}, 0)
	c.Refutes("E-08", "weight of a largest score that is not the only one", "1.0", even[0])
}
