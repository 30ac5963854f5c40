package equations

import (
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
	"attnlab/theory/hopfield"
)

// memories returns the rows on Hopfield memories.
func memories() []Row {
	return []Row{
		{ID: "T-50", Statement: "W_ij = 1/N sum_mu P_mui P_muj", Check: hebbsRule},
		{
			ID: "T-51", Statement: "E(x) = -1/2 sum_ij W_ij x_i x_j; x_i <- sign(sum_j W_ij x_j), one spin at a time, never raises it; stored patterns stay",
			Check: classicalDynamics,
		},
		{ID: "T-cap", Statement: "a classical network of N spins recalls about 0.14 N random patterns", Check: classicalCapacity},
		{
			ID: "T-52", Statement: "E(x) = -1/beta log sum_j exp(beta k_j.x) + |x|^2/2 + const, which the update never raises",
			Check: modernEnergy, Kernel: modernEnergyThroughKernel,
		},
		{
			ID: "T-53", Statement: "x' = sum_j p_j k_j, p = softmax(beta K x): attention with the query x, keys and values K, and the scale beta",
			Check: modernUpdate, Kernel: modernUpdateThroughKernel,
		},
		{
			ID: "T-mcap", Statement: "capacity exp(d/2); proven are sqrt(p) c^((d-1)/4) patterns on a sphere of radius K sqrt(d-1), with probability 1-p",
			Check: modernCapacity, Kernel: modernCapacityThroughKernel,
		},
		{ID: "P-59,60", Statement: "W = 1/N sum_mu P_mu P_mu^T, E(x) = -1/2 x^T W x; M <= 0.14 N", Is: Alias, Of: []string{"T-50", "T-51", "T-cap"}},
		{
			ID: "P-61..64", Statement: "y = V^T softmax(beta K x), with separate values; dE/dx = x - K^T softmax(beta K x)",
			Check: heteroAssociation, Kernel: heteroAssociationThroughKernel,
		},
		{
			ID: "P-65,66", Statement: "p_i >= 1/(1 + (M-1) exp(-beta Delta_i)), where Delta_i is the margin of overlap i over the others",
			Check: separation, Kernel: separationThroughKernel,
		},
		{ID: "P-7.4", Statement: "queries, keys, values, weights, scale and output, in the words of Hopfield networks", Is: Prose, Of: []string{"package theory/hopfield"}},
		{ID: "N-hop", Statement: "attention is one Hopfield update; capacities", Is: Alias, Of: []string{"T-50", "T-51", "T-cap", "T-52", "T-53", "T-mcap"}},
		{
			ID: "M-hopfield", Statement: "the eleven functions of the library's module hopfield, each beside ours",
			Check: hopfieldModule, Kernel: hopfieldModuleThroughKernel,
		},
	}
}

// twoPatterns returns the documents' classical example: a pattern and its negative.
func twoPatterns() *mat.Dense { return Rows([]float64{1, 1, -1, -1}, []float64{-1, -1, 1, 1}) }

// basis returns the first n unit vectors in d dimensions.
func basis(n, d int) *mat.Dense {
	m := mat.NewDense(n, d, nil)
	for i := range n {
		m.Set(i, i, 1)
	}
	return m
}

// network returns a classical network that stores the patterns.
func (c *Check) network(patterns mat.Matrix, diagonal bool) *hopfield.Classical {
	net, err := hopfield.Hebb(patterns)
	c.Must(err)
	if diagonal {
		return net
	}
	return net.WithoutDiagonal()
}

// memory returns a modern network that stores the patterns.
func (c *Check) memory(keys, values mat.Matrix, beta float64) *hopfield.Modern {
	m, err := hopfield.NewModern(keys, values, beta)
	c.Must(err)
	return m
}

func hebbsRule(c *Check) {
	hebb := func(p mat.Matrix) *mat.Dense {
		m, n := p.Dims()
		w := mat.NewDense(n, n, nil)
		for i := range n {
			for j := range n {
				for mu := range m {
					w.Set(i, j, w.At(i, j)+c.Factor("1/N", 1/float64(n))*p.At(mu, i)*p.At(mu, c.Index("j", j, n)))
				}
			}
		}
		return w
	}
	p := twoPatterns()
	ours := c.network(p, true).W()
	c.NearMat("W of the example", ours, hebb(p), 0)
	c.Printed("W of the example", ".5 .5 -.5 -.5 .5 .5 -.5 -.5 -.5 -.5 .5 .5 -.5 -.5 .5 .5", Flat(ours)...)

	for range 50 {
		p := hopfield.Spins(c.Rand, 1+c.Rand.IntN(6), 2+c.Rand.IntN(12))
		w := hebb(p)
		c.NearMat("W", c.network(p, true).W(), w, 1e-14)
		_, n := p.Dims()
		for i := range n {
			w.Set(i, i, 0)
		}
		c.NearMat("W without its diagonal", c.network(p, false).W(), w, 1e-14)
	}
	c.Erratum("E-27", "the tutorial cites [3] for Hopfield networks; its bibliography ends at [2]", "Ramsauer and others, Hopfield Networks is All You Need (2020)", "[3]")
}

func classicalDynamics(c *Check) {
	// coupling is N W_ij, an integer.
	coupling := func(p mat.Matrix, diagonal bool, i, j int) float64 {
		m, _ := p.Dims()
		sum := 0.0
		for mu := range m {
			sum += p.At(mu, i) * p.At(mu, j)
		}
		if i == j && !diagonal {
			return 0
		}
		return sum
	}
	energy := func(p mat.Matrix, diagonal bool, x []float64) float64 {
		sum := 0.0
		for i := range x {
			for j := range x {
				sum += coupling(p, diagonal, i, j) * x[i] * x[j]
			}
		}
		return c.Sign("minus", -1) * c.Factor("one half", .5) * sum / float64(len(x))
	}
	rule := func(p mat.Matrix, diagonal bool, x []float64, i int) float64 {
		field := 0.0
		for j := range x {
			field += coupling(p, diagonal, i, j) * x[j]
		}
		switch up := c.Sign("sign", 1); {
		case field > 0:
			return up
		case field < 0:
			return -up
		case c.Flip("a sum of 0 keeps the spin"):
			return 0
		}
		return x[i]
	}

	p := twoPatterns()
	c.Printed("E of a stored pattern", "-4", c.network(p, true).Energy(p.RawRowView(0)))
	c.Near("E of a stored pattern", energy(p, true, p.RawRowView(0)), -4, 0)
	for mu := range 2 {
		for i, x := range p.RawRowView(mu) {
			c.Near("a stored spin", rule(p, false, p.RawRowView(mu), i), x, 0)
		}
	}

	var apart, off, rise, together float64
	rises, cycles := 0, 0
	for trial := range 2000 {
		diagonal := trial%2 == 0
		n := 2 + c.Rand.IntN(7)
		p := hopfield.Spins(c.Rand, 1+c.Rand.IntN(4), n)
		net := c.network(p, diagonal)
		start := hopfield.Spins(c.Rand, 1, n).RawRowView(0)
		x := start
		for _, i := range c.Rand.Perm(n) {
			next, _ := net.Sweep(x, []int{i})
			apart = larger(apart, math.Abs(next[i]-rule(p, diagonal, x, i)))
			before, after := energy(p, diagonal, x), energy(p, diagonal, next)
			off = larger(off, math.Abs(after-net.Energy(next)))
			rise = larger(rise, after-before)
			x = next
		}
		all := net.Synchronous(start)
		for i := range all {
			apart = larger(apart, math.Abs(all[i]-rule(p, diagonal, start, i)))
		}
		change := net.Energy(all) - net.Energy(start)
		switch {
		case diagonal:
			together = larger(together, change)
		case change > 0:
			rises++
		}
		if again := net.Synchronous(all); floats.Equal(again, start) && !floats.Equal(all, start) {
			if diagonal {
				c.Fail("with the diagonal of Hebb's rule, synchronous updates go to and fro")
			}
			cycles++
		}
	}
	c.Within("spins against the rule", apart, 0)
	c.Within("E against the network", off, 1e-12)
	c.Within("largest rise of E in an asynchronous update", rise, 0)
	c.Within("largest rise of E in a synchronous update, with the diagonal of Hebb's rule", together, 0)
	c.True("without the diagonal synchronous updates raise E now and then", rises > 0)
	c.True("without the diagonal synchronous updates go to and fro between two states now and then", cycles > 0)
	c.Note("of 1000 random networks without a diagonal, a synchronous update raised E in %d, and %d went to and fro", rises, cycles)

	ones, half := Rows([]float64{1, 1, 1, 1}), []float64{1, 1, -1, -1}
	c.Refutes("E-32", "spin 0 of (1,1,-1,-1) after an update, where the pattern (1,1,1,1) is stored", "0", c.network(ones, true).Synchronous(half)[0])
	c.Erratum("E-32", "the library's classical_hopfield_update", "all spins at once: synchronous", "asynchronous")
}

func classicalCapacity(c *Check) {
	// A bit of a stored pattern is unstable where the sum over the other spins of all patterns is
	// against it.
	p := hopfield.Spins(c.Rand, 20, 60)
	net := c.network(p, false)
	for mu := range 20 {
		x, wrong, turned := p.RawRowView(mu), 0, 0
		next := net.Synchronous(x)
		for i := range x {
			votes := 0.0
			for nu := range 20 {
				for j := range x {
					if j != i || c.Flip("no vote for itself") {
						votes += p.At(nu, i) * p.At(nu, j) * x[j]
					}
				}
			}
			if votes*x[i] < 0 {
				wrong++
			}
			if next[i] != x[i] {
				turned++
			}
		}
		c.Near("wrong bits of a stored pattern", float64(turned), float64(wrong), 0)
	}

	const n, networks = 500, 3
	var trials []hopfield.BinaryRecall
	for _, m := range []int{25, 60, 75, 85, 100} {
		r, err := hopfield.BinaryTrial{Spins: n, Networks: networks, Probes: 15}.Run(c.Rand, m)
		c.Must(err)
		trials = append(trials, r)
		spread := c.Factor("spread", math.Sqrt(float64(m-1)/(n-1)))
		predicted, bits := math.Erfc(1/spread/math.Sqrt2)/2, float64(networks*m*n)
		c.Near("share of wrong bits", r.WrongBits, predicted, 6*math.Sqrt(predicted/bits)+1/bits)
		c.Near("its prediction", hopfield.WrongBit(m, n), predicted, 1e-12)
		c.Note("M/N = %.3g: %.2g of the bits and %.2g of the patterns are not fixed, %.0f%% recalled, mean overlap %.3f", r.Load, r.WrongBits, r.NotFixed, 100*r.Recalled, r.Overlap)
	}
	first, last := trials[0], trials[len(trials)-1]
	c.Within("share of patterns that are not fixed, M/N = .05", first.NotFixed, .05)
	c.Within("share of patterns that are fixed, M/N = .2", 1-last.NotFixed, .05)
	c.True("all patterns are recalled at M/N = .05 and less than half at .2", first.Recalled == 1 && last.Recalled < .5)
	knee := hopfield.Knee(trials)
	c.Near("load at which half of the patterns are recalled", knee, .17, .03)
	c.Note("500 spins recall half of the patterns at M/N = %.3f; the more spins, the nearer it is to 0.138", knee)

	capacity := hopfield.ClassicalCapacity(64)
	c.Printed("patterns that 64 spins store: with some wrong bits, most without, all without", "8.8 7.7 3.8", capacity.SomeWrong, capacity.MostExact, capacity.AllExact)
	c.Refutes("E-07b", "M/N, N = 64, most patterns recalled without a wrong bit", "0.14", capacity.MostExact/64)
	c.Refutes("E-07b", "M/N, N = 64, all patterns recalled without a wrong bit", "0.14", capacity.AllExact/64)

	// Other states than the patterns are stable too.
	p = hopfield.Spins(c.Rand, 3, n)
	net = c.network(p, false)
	opposite, mixture := make([]float64, n), make([]float64, n)
	for i := range n {
		opposite[i] = -p.At(0, i)
		mixture[i] = math.Copysign(1, p.At(0, i)+p.At(1, i)+p.At(2, i))
	}
	c.NearAll("the opposite of a pattern stays", net.Synchronous(opposite), opposite, 0)
	c.NearAll("a mixture of three patterns stays", net.Synchronous(mixture), mixture, 0)
}

// overlapsOf returns beta K x.
func overlapsOf(k mat.Matrix, x []float64, beta float64) []float64 {
	m, _ := k.Dims()
	s := make([]float64, m)
	for j := range s {
		for a := range x {
			s[j] += beta * k.At(j, a) * x[a]
		}
	}
	return s
}

// lseOf returns log sum_j exp(s_j).
func lseOf(s []float64) float64 {
	top, z := floats.Max(s), 0.0
	for _, x := range s {
		z += math.Exp(x - top)
	}
	return top + math.Log(z)
}

// weightsOf returns softmax(beta K x).
func weightsOf(k mat.Matrix, x []float64, beta float64) []float64 {
	s := overlapsOf(k, x, beta)
	lse := lseOf(s)
	for j := range s {
		s[j] = math.Exp(s[j] - lse)
	}
	return s
}

// rowsTo returns the sum of the rows, weighted by p_j.
func rowsTo(p []float64, rows mat.Matrix) []float64 {
	_, d := rows.Dims()
	to := make([]float64, d)
	for j, w := range p {
		for b := range d {
			to[b] += w * rows.At(j, b)
		}
	}
	return to
}

func modernEnergy(c *Check) {
	energy := func(k mat.Matrix, x []float64, beta float64) float64 {
		e := c.Sign("minus", -1) * lseOf(overlapsOf(k, x, beta))
		if !c.Flip("1/beta") {
			e /= beta
		}
		for _, a := range x {
			e += c.Factor("one half", .5) * a * a
		}
		return e
	}
	asPrinted := func(k mat.Matrix, x []float64, beta float64) float64 {
		return floats.Dot(x, x)/2 - lseOf(overlapsOf(k, x, beta))
	}

	e1 := []float64{1, 0, 0, 0}
	c.Printed("E(e1), beta = 10, patterns e1 to e3 in R^4", "-.50000908", c.memory(basis(3, 4), nil, 10).Energy(e1))
	c.Near("E(e1)", energy(basis(3, 4), e1, 10), c.memory(basis(3, 4), nil, 10).Energy(e1), 1e-14)

	one, from := Rows([]float64{1, 0}), []float64{2, 0}
	m := c.memory(one, nil, 4)
	to := m.Update(from)
	c.NearAll("update of (2,0), pattern (1,0)", to, []float64{1, 0}, 0)
	c.Printed("E before and after", "0.00000000 -.50000000", energy(one, from, 4), energy(one, to, 4))
	c.Printed("E as printed, before and after", "-6.0000000 -3.5000000", asPrinted(one, from, 4), asPrinted(one, to, 4))
	c.Refutes("E-06", "E(2,0), pattern (1,0), beta = 4", "-6", m.Energy(from))
	c.Refutes("E-06", "E after the update, which does not rise", "-3.5", m.Energy(to))
	c.Erratum("E-06b", "the product in the energy, where the update has patterns x", "patterns x", "patterns^T x")

	var off, rise float64
	rises := 0
	for range 20_000 {
		k := c.Normal(1+c.Rand.IntN(5), 1+c.Rand.IntN(4))
		_, d := k.Dims()
		x := c.Vector(d)
		floats.Scale(3, x)
		beta := math.Exp(c.Rand.Float64()*6 - 3)
		m := c.memory(k, nil, beta)
		next := m.Update(x)
		before, after := energy(k, x, beta), energy(k, next, beta)
		rounding := 1 + math.Abs(before) + 1/beta
		step := floats.Distance(next, x, 2)
		off = larger(off, math.Abs(before-m.Energy(x))/rounding)
		rise = larger(rise, (after+step*step/2-before)/rounding)
		if asPrinted(k, next, beta) > asPrinted(k, x, beta)+1e-9 {
			rises++
		}
	}
	c.Within("E against the network, 20 000 random trials", off, 1e-13)
	c.Within("E(x') + |x'-x|^2/2 - E(x), which is at most 0, 20 000 random trials", rise, 1e-13)
	c.True("E as printed rises in some of them", rises > 0)
	c.Note("the energy as printed rose in %d of 20 000 updates, the right one in none", rises)
}

func modernEnergyThroughKernel(c *Check, a bridge.Attention) {
	const beta = 2.0
	k, x := bridge.Float32(c.Normal(5, 3)), bridge.Float32(c.Normal(6, 3))
	ans := c.Attend(a, bridge.Call{Q: x, K: k, V: k, Problem: attn.Problem{Score: attn.Score{Scale: beta}, Want: attn.WantLSE}})
	m := c.memory(k, nil, beta)
	lse := mat.NewDense(6, 1, nil)
	for i := range 6 {
		state, next := x.RawRowView(i), ans.O.X.RawRowView(i)
		lse.Set(i, 0, beta*(floats.Dot(state, state)*c.Factor("one half", .5)-m.Energy(state)))

		// The kernel's update has an error within its tolerance, times the remaining slope.
		off := floats.Norm(ans.O.Tol.RawRowView(i), 2)
		slope := floats.Norm(m.Gradient(next), 2) + floats.Distance(next, state, 2) + off
		step := floats.Distance(next, state, 2)
		c.Within("E(x') + |x'-x|^2/2 - E(x), the kernel's update", m.Energy(next)+step*step/2-m.Energy(state), slope*off+1e-13)
	}
	c.Tolerable("LSE = beta (|x|^2/2 - E)", ans.LSE, lse, 1e-13)
}

func modernUpdate(c *Check) {
	update := func(k mat.Matrix, x []float64, beta float64) []float64 {
		n, d := k.Dims()
		p := weightsOf(k, x, c.Factor("beta", beta))
		to := make([]float64, d)
		for j := range n {
			for b := range d {
				to[b] += p[c.Index("pattern", j, n)] * k.At(j, b)
			}
		}
		return to
	}
	k := Rows([]float64{1, 0}, []float64{0, 1}, []float64{.7, .7})
	q := []float64{.9, .1}
	m := c.memory(k, nil, 1)
	c.Printed("update of (.9,.1), beta = 1", ".693594 .450800", m.Update(q)...)
	c.NearAll("update of (.9,.1), beta = 1", update(k, q, 1), m.Update(q), 1e-15)

	r := c.memory(basis(3, 4), nil, 10).Settle([]float64{1, 0, 0, 0}, hopfield.Limit{})
	c.Near("iterations from e1, beta = 10", float64(r.Iterations), 2, 0)
	c.Printed("where they end", ".99990908 .00004546 .00004546 0", r.State...)
	c.True("it has settled", r.Settled)

	for range 200 {
		k := c.Normal(1+c.Rand.IntN(6), 1+c.Rand.IntN(5))
		_, d := k.Dims()
		x := c.Vector(d)
		beta := math.Exp(c.Rand.NormFloat64())
		c.NearAll("update", c.memory(k, nil, beta).Update(x), update(k, x, beta), 1e-13)
	}

	w := m.Weights(q)
	c.Printed("weights of (.9,.1), beta = 1", ".440905 .198112 .360983", w...)
	c.Refutes("E-40", "weight of the first pattern, beta = 1", "0.48", w[0])
	c.Refutes("E-40", "weight of the second, beta = 1", "0.22", w[1])
	c.Refutes("E-40", "weight of the third, beta = 1", "0.30", w[2])
	w = c.memory(k, nil, 5).Weights(q)
	c.Printed("weights of (.9,.1), beta = 5", ".721399 .013213 .265388", w...)
	c.Refutes("E-40", "weight of the first pattern, beta = 5", "0.88", w[0])
	c.Refutes("E-40", "weight of the third, beta = 5", "0.11", w[2])
	c.Erratum("E-40", "the temperature at beta = 5", "low: T = 1/5", "high")
	s, h := m.Overlaps(q), gibbs.Entropy(w)
	score := floats.Dot(w, s)
	c.Near("F = -<S> - H/beta", c.Sign("energies are minus scores", -1)*score-h/5, gibbs.FreeEnergy(s, 1.0/5), 1e-14)
	c.Erratum("E-40", "the free energy", "F = -<S> - H/beta", "F = <S> - H/beta")
}

func modernUpdateThroughKernel(c *Check, a bridge.Attention) {
	const beta = 2.5
	k, x := bridge.Float32(c.Normal(6, 4)), bridge.Float32(c.Normal(5, 4))
	m := c.memory(k, nil, beta)
	got, err := m.UpdateBy(a, x)
	c.Must(err)
	want := mat.NewDense(5, 4, nil)
	for i := range 5 {
		want.SetRow(i, rowsTo(weightsOf(k, x.RawRowView(i), c.Factor("scale", beta)), k))
	}
	c.Tolerable("five states in one call", got, want, 1e-14)

	// A tolerance of 2e-5 lies between the two steps, 9e-5 and 1e-7, with room for the rounding of
	// float32.
	m = c.memory(basis(3, 4), nil, 10)
	all, err := m.Retrieve(a, basis(1, 4), hopfield.Limit{Iterations: 10, Tolerance: 2e-5})
	c.Must(err)
	path := all[0].Path
	c.Near("iterations from e1, beta = 10", float64(all[0].Iterations), 2, 0)
	for t := 1; t < len(path); t++ {
		before := bridge.Float32(Rows(path[t-1]))
		step, err := m.UpdateBy(a, before)
		c.Must(err)
		exact := rowsTo(weightsOf(basis(3, 4), before.RawRowView(0), 10), basis(3, 4))
		c.Tolerable("a step of the retrieval", bridge.Values{X: Rows(path[t]), Tol: step.Tol}, Rows(exact), 1e-14)
	}
}

func modernCapacity(c *Check) {
	// lambert is W0(z), the w with w e^w = z, by bisection.
	lambert := func(z float64) float64 {
		lo, hi := 0.0, 1+z
		for range 200 {
			if mid := (lo + hi) / 2; mid*math.Exp(mid) < z {
				lo = mid
			} else {
				hi = mid
			}
		}
		return lo
	}
	bound := func(beta, k float64, d int, p float64) (constant, patterns float64) {
		n := float64(d - 1)
		a := 2 / n * (1 + math.Log(c.Factor("2 beta K^2 p (d-1)", 2*beta*k*k*p*n)))
		b := c.Factor("2/5", 2.0/5) * beta * k * k
		constant = b / lambert(math.Exp(a+math.Log(b)))
		return constant, math.Sqrt(p) * math.Pow(constant, c.Factor("(d-1)/4", n/4))
	}
	for _, x := range []struct {
		beta, k              float64
		d                    int
		printed, exponential string
	}{
		{1, 3, 20, "3.1546 7.41", "22026"},
		{1, 1, 75, "1.3719 10.97", "1.93e16"},
	} {
		const p = .001
		ours, err := hopfield.StorageBound(x.beta, x.k, x.d, p)
		c.Must(err)
		constant, patterns := bound(x.beta, x.k, x.d, p)
		c.Near("c", constant, ours.C, 1e-11)
		c.Near("the bound", patterns, ours.Patterns, 1e-9)
		c.Printed("c and the bound", x.printed, ours.C, ours.Patterns)
		c.True("the theorem covers its own example", ours.Proven)
		c.Printed("exp(d/2)", x.exponential, math.Exp(float64(x.d)/2))
		c.Refutes("E-07", "patterns that are proven to be stored in d dimensions", x.exponential, ours.Patterns)
	}
	c.Printed("2^(d/2), binary patterns, d = 20", "1024", hopfield.BinaryExponential(20))
	c.Erratum("E-07", "a comment of the library", "at least sqrt(p) c^((d-1)/4) is proven", "O(d^(d/2))")

	// Both sides of exp(10) = 22026: the radius of the sphere and beta decide, and exp(d/2) depends
	// on neither.
	for _, x := range []struct{ k, least, most float64 }{{3, 1, 1}, {.5, 0, 0}} {
		r, err := hopfield.SphereTrial{Dim: 20, Radius: x.k * math.Sqrt(19), Beta: 1, Probes: 20}.Run(bridge.Attention{}, c.Rand, 2000)
		c.Must(err)
		c.True("share of 2000 patterns that are recalled", x.least <= r.Recalled && r.Recalled <= x.most)
		c.Note("beta = 1, d = 20, K = %g: of 2000 stored patterns %.0f%% are recalled; the farthest way of a probe is %.3g radii", x.k, 100*r.Recalled, r.Farthest)
	}
}

func modernCapacityThroughKernel(c *Check, a bridge.Attention) {
	b, err := hopfield.StorageBound(1, 3, 20, .001)
	c.Must(err)
	r, err := hopfield.SphereTrial{Dim: 20, Radius: 3 * math.Sqrt(19), Beta: 1}.Run(a, c.Rand, int(math.Ceil(b.Patterns)))
	c.Must(err)
	c.Near("share of as many patterns as the bound says that are recalled", r.Recalled, 1, 0)
}

func heteroAssociation(c *Check) {
	read := func(k, v mat.Matrix, x []float64, beta float64) []float64 {
		n, d := v.Dims()
		p := weightsOf(k, x, c.Factor("beta", beta))
		y := make([]float64, d)
		for j := range n {
			for b := range d {
				y[b] += p[j] * v.At(c.Index("value", j, n), b)
			}
		}
		return y
	}
	gradient := func(k mat.Matrix, x []float64, beta float64) []float64 {
		g := rowsTo(weightsOf(k, x, beta), k)
		for b := range g {
			g[b] = x[b] + c.Sign("x less the update", -1)*g[b]
		}
		return g
	}
	var lopsided float64
	for range 50 {
		n := 2 + c.Rand.IntN(5)
		k, v, x := c.Normal(n, 3), c.Normal(n, 4), c.Vector(3)
		beta := math.Exp(c.Rand.NormFloat64())
		m := c.memory(k, v, beta)
		c.NearAll("what is read", m.Read(x), read(k, v, x, beta), 1e-13)
		c.NearAll("dE/dx", m.Gradient(x), gradient(k, x, beta), 1e-13)
		slope := fd.Gradient(nil, m.Energy, x, &fd.Settings{Formula: fd.Central})
		c.NearAll("dE/dx against central differences", slope, gradient(k, x, beta), 1e-8*(1+beta*beta))

		// A map is a gradient where its Jacobian is symmetric. It is symmetric with the keys as
		// values, but not with other values: then no energy has this map as its gradient.
		jacobian := func(m *hopfield.Modern) *mat.Dense {
			j := mat.NewDense(3, 3, nil)
			fd.Jacobian(j, func(y, x []float64) { copy(y, m.Read(x)) }, x, &fd.JacobianSettings{Formula: fd.Central})
			return j
		}
		asymmetry := func(j *mat.Dense) float64 {
			var gap mat.Dense
			gap.Sub(j, j.T())
			return mat.Norm(&gap, math.Inf(1))
		}
		c.Within("asymmetry of the Jacobian, values = keys", asymmetry(jacobian(c.memory(k, nil, beta))), 1e-7*(1+beta*beta))
		lopsided = larger(lopsided, asymmetry(jacobian(c.memory(k, c.Normal(n, 3), beta))))
	}
	c.True("the Jacobian is not symmetric with other values", lopsided > .1)

	// At the fixed point (1,0) of the single pattern (1,0), the printed energy's gradient x - beta
	// K^T softmax(beta K x) is not 0.
	m := c.memory(Rows([]float64{1, 0}), nil, 4)
	fixed := []float64{1, 0}
	asPrinted := fd.Gradient(nil, func(x []float64) float64 { return floats.Dot(x, x)/2 - lseOf(overlapsOf(m.Keys, x, 4)) }, fixed, &fd.Settings{Formula: fd.Central})
	c.NearAll("gradient of the printed energy at the fixed point", asPrinted, []float64{-3, 0}, 1e-8)
	c.NearAll("gradient of the right one", m.Gradient(fixed), []float64{0, 0}, 0)
	c.Refutes("E-06", "dE/dx at the fixed point (1,0), beta = 4", "-3", m.Gradient(fixed)[0])
}

func heteroAssociationThroughKernel(c *Check, a bridge.Attention) {
	const beta = 3.0
	k, v, x := bridge.Float32(c.Normal(6, 4)), bridge.Float32(c.Normal(6, 5)), bridge.Float32(c.Normal(3, 4))
	got, err := c.memory(k, v, beta).ReadBy(a, x)
	c.Must(err)
	want := mat.NewDense(3, 5, nil)
	for i := range 3 {
		want.SetRow(i, rowsTo(weightsOf(k, x.RawRowView(i), c.Factor("beta", beta)), v))
	}
	c.Tolerable("what is read", got, want, 1e-14)
}

func separation(c *Check) {
	promise := func(beta, margin float64, patterns int) float64 {
		return 1 / (1 + float64(patterns-1)*math.Exp(c.Sign("minus", -1)*beta*c.Factor("margin", margin)))
	}
	s := []float64{1, .8, .8}
	p := gibbs.Softmax(s, 1.0/10)
	c.Printed("softmax of 10 (1, .8, .8)", ".786986 .106507 .106507", p...)
	c.Near("margin", hopfield.Margin(s, 0), .2, 1e-15)
	c.Near("where all others are as near, the bound is the weight", promise(10, .2, 3), p[0], 1e-14)
	c.Near("the bound", hopfield.Promise(10, .2, 3), promise(10, .2, 3), 1e-15)
	c.Printed("as the paper has it, without the denominator", "1 .135335 .135335", 1, math.Exp(-10*.2), math.Exp(-10*.2))
	c.Refutes("E-21", "weight of the first of (1, .8, .8), beta = 10", "1.000000", p[0])
	c.Refutes("E-21", "weight of the others", "0.135335", p[1])

	var broken, off float64
	for range 300 {
		n := 2 + c.Rand.IntN(5)
		k := c.Normal(n, 3)
		beta := math.Exp(c.Rand.NormFloat64())
		report := c.memory(k, nil, beta).Separation()
		for i := range n {
			margin := math.Inf(1)
			for j := range n {
				if j != i {
					margin = min(margin, floats.Dot(k.RawRowView(i), k.RawRowView(i))-floats.Dot(k.RawRowView(i), k.RawRowView(j)))
				}
			}
			weight := weightsOf(k, k.RawRowView(i), beta)[i]
			off = larger(off, larger(math.Abs(report.Margins[i]-margin), math.Abs(report.Weights[i]-weight)))
			broken = larger(broken, promise(beta, margin, n)-weight)
		}
	}
	c.Within("margins and weights against the report", off, 1e-13)
	c.Within("what the margin promises, less the weight", broken, 1e-13)
}

func separationThroughKernel(c *Check, a bridge.Attention) {
	k, x := bridge.Float32(Rows([]float64{1}, []float64{.8}, []float64{.8})), Rows([]float64{1})
	ans := c.Attend(a, bridge.Call{Q: x, K: k, V: k, Problem: attn.Problem{Score: attn.Score{Scale: 10}, Want: attn.WantWeights}})
	margin := hopfield.Margin(Flat(k), 0)
	far := math.Exp(c.Sign("minus", -1) * 10 * margin)
	c.Tolerable("weights of (1, .8, .8)", ans.Weights, Rows([]float64{1 / (1 + 2*far), far / (1 + 2*far), far / (1 + 2*far)}), 1e-14)
}

func hopfieldModule(c *Check) {
	p := twoPatterns()
	net := c.network(p, true)
	x := p.RawRowView(0)
	c.Near("classical_hopfield_energy: Energy", net.Energy(x), -4, 0)
	c.NearAll("classical_hopfield_update: Synchronous, and Sweep for what its name says", net.Synchronous([]float64{1, 1, 1, -1}), x, 0)

	m, e1 := c.memory(basis(3, 4), nil, 10), []float64{1, 0, 0, 0}
	c.Printed("modern_hopfield_energy: Energy", "-.50000908", m.Energy(e1))
	far := math.Exp(c.Sign("minus", -1) * 10)
	c.NearAll("modern_hopfield_update: Update", m.Update(e1), []float64{1 / (1 + 2*far), far / (1 + 2*far), far / (1 + 2*far), 0}, 1e-15)
	c.Near("hopfield_retrieve: Settle, Retrieve", float64(m.Settle(e1, hopfield.Limit{Iterations: 10, Tolerance: 1e-6}).Iterations), 2, 0)

	q, k, v := ex1()
	one := c.memory(k, v, 0)
	var o []float64
	for i := range 2 {
		o = append(o, one.Read(q.RawRowView(i))...)
	}
	c.Printed("attention_as_hopfield: Read, ReadBy, beta = 1/sqrt(d) by default", "1.20333628 .79666372 .79666372 1.20333628", o...)

	c.Printed("classical_capacity: ClassicalCapacity", "8.8", hopfield.ClassicalCapacity(64).SomeWrong)
	b, err := hopfield.StorageBound(1, 3, 20, .001)
	c.Must(err)
	c.Printed("modern_capacity: StorageBound", "7.41", b.Patterns)

	// separation_quality is the smallest distance of two patterns divided by their mean norm. The
	// patterns here are a triangle of sides 3, 4 and 5 with a corner at the origin.
	triangle := Rows([]float64{0, 0}, []float64{3, 0}, []float64{0, 4})
	c.Near("separation_quality: Separation", c.memory(triangle, nil, 1).Separation().Ratio, 3/(7*c.Factor("mean over patterns", 1.0/3)), 1e-15)

	at := floats.Span(make([]float64, 100), -2, 2)
	for i, e := range m.Landscape(make([]float64, 4), e1, at) {
		want := at[i]*at[i]/2 - math.Log(math.Exp(10*at[i])+2)/10
		c.Near("energy_landscape_1d: Landscape", e, want, 1e-13)
	}

	pair := c.memory(Rows([]float64{1, 0}, []float64{-1, 0}), nil, 8)
	for _, t := range []struct{ deviation, want, within float64 }{{.1, 1, 0}, {10, .5 + .5*math.Erf(.1/math.Sqrt2), .15}} {
		share, err := pair.Basin(bridge.Attention{}, c.Rand, 0, t.deviation, 200, hopfield.Limit{})
		c.Must(err)
		c.Near("retrieval_basin: Basin, which is half of the plane", share, t.want, t.within)
	}
}

func hopfieldModuleThroughKernel(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	got, err := c.memory(k, v, 0).ReadBy(a, q)
	c.Must(err)
	want := mat.NewDense(2, 2, nil)
	for i := range 2 {
		want.SetRow(i, rowsTo(weightsOf(k, q.RawRowView(i), c.Factor("1/sqrt(d)", ex1Scale)), v))
	}
	c.Tolerable("attention_as_hopfield", got, want, 1e-14)
}
