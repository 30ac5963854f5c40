package equations

import (
	"io"
	"math"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
	"attnlab/theory/regression"
)

// regressions returns the rows on kernel regression and linear attention.
func regressions() []Row {
	return []Row{
		{
			ID:        "T-45,46,47",
			Statement: "K(q,k) = exp(q.k/sqrt(d_k)); A^ij = K(q^i,k^j) / sum_l K(q^i,k^l); O^ib = sum_j K(q^i,k^j) V^jb / sum_l K(q^i,k^l)",
			Check:     kernelRegression,
			Kernel:    regressionByAttention,
		},
		{
			ID:        "T-48,49",
			Statement: "K(q,k) = phi(q).phi(k); O^i = phi(q^i) (sum_j phi(k^j) V^j) / (phi(q^i) . sum_j phi(k^j))",
			Check:     linearAttention,
			Kernel:    linearKernel,
		},
		{
			ID:        "P-69,70",
			Statement: "(phi(Q) phi(K)^T) V = phi(Q) (phi(K)^T V), the second from sums that are computed once, or from running sums under a causal mask",
			Check:     runningState,
			Kernel:    runningKernel,
		},
		{
			ID:        "P-fm",
			Statement: "feature maps: random Fourier features, elu+1, positive random features; E[phi(x).phi(y)] = exp(x.y)",
			Check:     featureMaps,
			Kernel:    randomFeaturesThroughKernel,
		},
		{
			ID:        "N-ker",
			Statement: "exp(QK^T/sqrt(d)) with Q = K is a kernel matrix: symmetric, without negative eigenvalues",
			Check:     kernelMatrix,
			Kernel:    kernelMatrixFromAttention,
		},
		{
			ID:        "L-5.3",
			Statement: "Attention = phi(Q) (phi(K)^T V), normalised, with phi(x) = elu(x)+1; the listing computes max(0,x)+1 and adds 1e-6 to the sum",
			Check:     lessonListing,
			Kernel:    lessonKernel,
		},
	}
}

// weighted returns sum_j w_ij v_j / (sum_j w_ij + eps), where query i sees the keys below seen(i).
func weighted(nq int, v *mat.Dense, eps float64, seen func(i int) int, w func(i, j int) float64) *mat.Dense {
	_, dv := v.Dims()
	o := mat.NewDense(nq, dv, nil)
	for i := range nq {
		sum := eps
		for j := range seen(i) {
			sum += w(i, j)
		}
		for j := range seen(i) {
			for b := range dv {
				o.Set(i, b, o.At(i, b)+w(i, j)*v.At(j, b)/sum)
			}
		}
	}
	return o
}

// all returns a mask that shows n keys to every query.
func all(n int) func(int) int { return func(int) int { return n } }

// dotRows returns sum_a q_ia k_ja.
func dotRows(q, k mat.Matrix, i, j int) (sum float64) {
	_, d := q.Dims()
	for a := range d {
		sum += q.At(i, a) * k.At(j, a)
	}
	return sum
}

// apart2 returns sum_a (q_ia - k_ja)^2.
func apart2(q, k mat.Matrix, i, j int) (sum float64) {
	_, d := q.Dims()
	for a := range d {
		sum += (q.At(i, a) - k.At(j, a)) * (q.At(i, a) - k.At(j, a))
	}
	return sum
}

// ofOneNorm returns keys of equal norm: each has the components of the first in another order and
// with other signs.
func ofOneNorm(c *Check, n, d int) *mat.Dense {
	k, first := mat.NewDense(n, d, nil), c.Vector(d)
	for j := range n {
		for a, from := range c.Rand.Perm(d) {
			k.Set(j, a, first[from])
			if c.Rand.IntN(2) == 0 {
				k.Set(j, a, -first[from])
			}
		}
	}
	return k
}

func kernelRegression(c *Check) {
	const nq, nk, d, dv = 3, 5, 4, 2
	scale, square := c.Factor("scale", 1/math.Sqrt(d)), c.Factor("half", 0.5)
	expDot := func(q, k mat.Matrix) func(i, j int) float64 {
		return func(i, j int) float64 { return math.Exp(scale * dotRows(q, k, i, j)) }
	}
	gaussian := func(q, k mat.Matrix) func(i, j int) float64 { // h^2 = sqrt(d)
		return func(i, j int) float64 {
			return math.Exp(c.Sign("minus", -1) * square * apart2(q, k, i, j) / math.Sqrt(d))
		}
	}
	h := math.Pow(d, 0.25)
	q, k, v := c.Normal(nq, d), c.Normal(nk, d), c.Normal(nk, dv)

	// With exp(q.k/sqrt(d)), regression is attention.
	want := weighted(nq, v, 0, all(nk), expDot(q, k))
	c.NearMat("Nadaraya and Watson's regression with exp(q.k/sqrt(d))", regression.ExpDot(0).Regress(q, k, v), want, 1e-12)
	var scores, o mat.Dense
	scores.Mul(q, k.T())
	scores.Scale(1/math.Sqrt(d), &scores)
	attention := gibbs.SoftmaxRows(&scores, 1)
	o.Mul(attention, v)
	c.NearMat("is softmax(QK^T/sqrt(d)) V", want, &o, 1e-12)

	// A Gaussian is another kernel. It gives attention only where all keys have the same norm.
	c.NearMat("regression with a Gaussian", regression.Gaussian(h).Regress(q, k, v), weighted(nq, v, 0, all(nk), gaussian(q, k)), 1e-12)
	farthest := func(k mat.Matrix) float64 {
		var off mat.Dense
		off.Sub(regression.Gaussian(h).Weights(q, k), regression.ExpDot(0).Weights(q, k))
		return floats.Norm(Flat(&off), math.Inf(1))
	}
	raw := farthest(k)
	c.True("E-13: with keys of several norms a Gaussian has other weights", raw > 0.01)
	c.Within("normalised keys have the same weights", farthest(normalised(k)), 1e-15)
	c.Within("and so have keys of any one norm", farthest(ofOneNorm(c, nk, d)), 1e-14)
	c.Erratum("E-13", "attention is \"exactly\" Nadaraya and Watson's regression",
		"with the kernel exp(q.k/sqrt(d)), which is no function of q-k; a Gaussian's weights differ unless the keys have one norm", "exactly")
	c.Erratum("E-13", "the letters", "K(q, k) for the kernel, K for the keys, l for the index that is summed", "K for kernel and keys, k for a key and the index")
	c.Note("E-13: weights of a Gaussian with bandwidth^2 = sqrt(d) and of attention differ by up to %.4f on these keys", raw)

	// exp(q.k/sqrt(d)) is not a function of q-k: shifting both changes it, but not a Gaussian.
	x, y, by := c.Vector(d), c.Vector(d), c.Vector(d)
	sum := func(x []float64) []float64 { return floats.AddTo(make([]float64, d), x, by) }
	dot, bell := regression.ExpDot(0), regression.Gaussian(h)
	c.True("E-13: exp(q.k/sqrt(d)) is no function of q-k", math.Abs(dot(sum(x), sum(y))-dot(x, y)) > 0.01)
	c.Near("a Gaussian is", bell(sum(x), sum(y)), bell(x, y), 1e-13)

	// Attention with -|k|^2/2h^2 added to the score of each key is regression with a Gaussian, for
	// any keys.
	bias := make([]float64, nk)
	for j := range bias {
		bias[j] = -dotRows(k, k, j, j) * square / math.Sqrt(d)
	}
	c.NearAll("GaussianBias", regression.GaussianBias(k, h), bias, 1e-14)
	biased := weighted(nq, v, 0, all(nk), func(i, j int) float64 { return math.Exp(scale*dotRows(q, k, i, j) + bias[j]) })
	c.NearMat("attention with that bias is the Gaussian's regression", biased, regression.Gaussian(h).Regress(q, k, v), 1e-12)

	// Other kernels, by their definitions. The last three see near keys only.
	near := func(i, j int) float64 { return math.Sqrt(apart2(q, k, i, j)) / 3 }
	for _, f := range []struct {
		name   string
		kernel regression.Kernel
		weight func(r float64) float64
	}{
		{"Laplace", regression.Laplace(3), func(r float64) float64 { return math.Exp(-r) }},
		{"Cauchy", regression.Cauchy(3), func(r float64) float64 { return 1 / (1 + r*r) }},
		{"Epanechnikov", regression.Epanechnikov(3), func(r float64) float64 { return math.Max(0, 1-r*r) }},
		{"Triangle", regression.Triangle(3), func(r float64) float64 { return math.Max(0, 1-r) }},
	} {
		want := weighted(nq, v, 0, all(nk), func(i, j int) float64 { return f.weight(near(i, j)) })
		c.NearMat("regression with "+f.name, f.kernel.Regress(q, k, v), want, 1e-12)
	}
}

// normalised returns k with every row divided by its norm.
func normalised(k mat.Matrix) *mat.Dense {
	to := mat.DenseCopyOf(k)
	n, _ := to.Dims()
	for j := range n {
		row := to.RawRowView(j)
		floats.Scale(1/floats.Norm(row, 2), row)
	}
	return to
}

// regressionByAttention checks regressions computed by a kernel: with exp(q.k/sqrt(d)), and with a
// Gaussian, by keys of equal norm and by a bias.
func regressionByAttention(c *Check, a bridge.Attention) {
	const nq, nk, d, dv = 4, 9, 4, 3
	scale, square := c.Factor("scale", 1/math.Sqrt(d)), c.Factor("half", 0.5)
	q, k, v := bridge.Float32(c.Normal(nq, d)), bridge.Float32(c.Normal(nk, d)), bridge.Float32(c.Normal(nk, dv))
	ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v})
	want := weighted(nq, v, 0, all(nk), func(i, j int) float64 { return math.Exp(scale * dotRows(q, k, i, j)) })
	c.Tolerable("attention is the regression with exp(q.k/sqrt(d))", ans.O, want, 1e-13)

	gaussian := func(k mat.Matrix) *mat.Dense {
		return weighted(nq, v, 0, all(nk), func(i, j int) float64 { return math.Exp(-square * apart2(q, k, i, j) / math.Sqrt(d)) })
	}
	even := bridge.Float32(ofOneNorm(c, nk, d))
	ans = c.Attend(a, bridge.Call{Q: q, K: even, V: v})
	c.Tolerable("with keys of one norm, and with a Gaussian", ans.O, gaussian(even), 1e-13)

	bias := mat.NewDense(1, nk, regression.GaussianBias(k, math.Pow(d, 0.25)))
	ans = c.Attend(a, bridge.Call{
		Q: q, K: k, V: v,
		Problem: attn.Problem{Score: attn.Score{Terms: attn.TermBias}},
		Args:    attn.Args{Terms: attn.Operands{Bias: bridge.Tensor(bias)}},
	})
	// The bias is rounded to float32, a relative error of 2^-24. It changes a weight by as much,
	// and an output by at most twice that times the largest value.
	rounding := 2 * 0x1p-24 * floats.Norm(Flat(bias), math.Inf(1)) * floats.Norm(Flat(v), math.Inf(1))
	c.Tolerable("with any keys and a bias of -|k|^2/2h^2, with a Gaussian", ans.O, gaussian(k), rounding)
}

// eluPlusOne returns the feature map elu(x)+1 of the sources, where elu(x) = exp(x)-1 below 0.
func eluPlusOne(c *Check, x float64) float64 {
	elu := x
	if x < 0 {
		elu = math.Expm1(c.Sign("exponent", 1) * x)
	}
	return elu + c.Factor("one", 1)
}

// product returns sum_a f(q_ia) f(k_ja).
func product(f func(float64) float64, q, k mat.Matrix, i, j int) (sum float64) {
	_, d := q.Dims()
	for a := range d {
		sum += f(q.At(i, a)) * f(k.At(j, a))
	}
	return sum
}

func linearAttention(c *Check) {
	phi := func(x float64) float64 { return eluPlusOne(c, x) }
	elu, err := regression.ByName("elu+1")
	c.Must(err)
	q, k, v := ex1()
	o := elu.Attend(q, k, v)
	c.Printed("EX1, elu+1", "1.06666667 .93333333 .93333333 1.06666667", Flat(o)...)

	const nq, nk, d, dv = 4, 7, 3, 5
	q, k, v = c.Normal(nq, d), c.Normal(nk, d), c.Normal(nk, dv)
	pairs := weighted(nq, v, 0, all(nk), func(i, j int) float64 { return product(phi, q, k, i, j) })
	sums := mat.NewDense(nq, dv, nil) // phi(q_i) of sums over keys that are made once
	for i := range nq {
		for b := range dv {
			above, below := 0.0, 0.0
			for a := range d {
				kv, z := 0.0, 0.0
				for j := range nk {
					kv += phi(k.At(j, a)) * v.At(j, b)
					z += phi(k.At(j, a))
				}
				above += phi(q.At(i, a)) * kv
				below += phi(q.At(i, a)) * z
			}
			sums.Set(i, b, above/below)
		}
	}
	c.NearMat("both orders of association", sums, pairs, 1e-12)
	c.NearMat("pair by pair", elu.Pairwise(q, k, v), pairs, 1e-12)
	c.NearMat("keys summed first", elu.Attend(q, k, v), pairs, 1e-12)
	c.NearMat("weights", elu.Weights(q, k), weighted(nq, identity(nk), 0, all(nk), func(i, j int) float64 { return product(phi, q, k, i, j) }), 1e-12)
	for _, name := range regression.Names() {
		if name == "identity" { // its weights may sum to 0
			continue
		}
		l, err := regression.ByName(name)
		c.Must(err)
		c.NearMat("both orders, "+name, l.Attend(q, k, v), l.Pairwise(q, k, v), 1e-12)
	}

	// The cost is linear in n, but not O(n): it has the factors d_phi and d_v.
	_, once := regression.Products(1000, 1000, 64, 64)
	_, longer := regression.Products(2000, 2000, 64, 64)
	_, wider := regression.Products(1000, 1000, 128, 128)
	c.Near("twice as many keys take twice the products", float64(longer)/float64(once), 2, 0)
	c.Near("twice as many dimensions take four times as many", float64(wider)/float64(once), 4, 0.05)
	pairwise, _ := regression.Products(1000, 1000, 64, 64)
	p := attn.Problem{Op: attn.OpLinear, Batch: 1, HeadsQ: 1, HeadsKV: 1, SeqQ: 1000, SeqKV: 1000, Dim: 64, DimV: 64}
	c.Near("as package attn counts them, a product and a sum being two operations", float64(p.Count(nil).Flop), 2*float64(once), 0)
	c.Note("n = 1000, d = 64: %d products pair by pair, %d with keys summed first", pairwise, once)
	c.Erratum("E-37", "time of linear attention", "O(n d_phi d_v)", "O(n)")
}

// linearKernel checks linear attention without a mask and with a causal one.
func linearKernel(c *Check, a bridge.Attention) {
	const n, d, dv = 21, 5, 3 // more than one chunk of keys
	q, k, v := bridge.Float32(c.Normal(n, d)), bridge.Float32(c.Normal(n, d)), bridge.Float32(c.Normal(n, dv))
	phi := func(x float64) float64 { return eluPlusOne(c, x) }
	own := 1
	if c.Flip("the query's own key") {
		own = 0
	}
	for _, mask := range []struct {
		name string
		mask attn.Mask
		seen func(i int) int
	}{{"full", attn.Full(), all(n)}, {"causal", attn.Causal(), func(i int) int { return i + own }}} {
		ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Op: attn.OpLinear, Mask: mask.mask}})
		want := weighted(n, v, 0, mask.seen, func(i, j int) float64 { return product(phi, q, k, i, j) })
		c.Tolerable("linear attention, elu+1, "+mask.name, ans.O, want, 1e-13)
	}
}

func runningState(c *Check) {
	const n, d, dv = 9, 3, 2
	q, k, v := c.Normal(n, d), c.Normal(n, d), c.Normal(n, dv)
	elu, err := regression.ByName("elu+1")
	c.Must(err)
	phi := func(x float64) float64 { return eluPlusOne(c, x) }
	own := 1
	if c.Flip("the query's own key") {
		own = 0
	}
	// KV_i = sum_{j<=i} phi(k_j) v_j^T and z_i = sum_{j<=i} phi(k_j), each from the one before.
	kv, z := mat.NewDense(d, dv, nil), make([]float64, d)
	state := elu.Start(k, v)
	o, answers := mat.NewDense(n, dv, nil), mat.NewDense(n, dv, nil)
	absorb := func(j int) {
		for x := range d {
			for b := range dv {
				kv.Set(x, b, kv.At(x, b)+phi(k.At(j, x))*v.At(j, b))
			}
			z[x] += phi(k.At(j, x))
		}
	}
	for i := range n {
		if own == 1 {
			absorb(i)
		}
		below := 0.0
		for x := range d {
			below += phi(q.At(i, x)) * z[x]
		}
		for b := range dv {
			above := 0.0
			for x := range d {
				above += phi(q.At(i, x)) * kv.At(x, b)
			}
			o.Set(i, b, above/below)
		}
		if own == 0 {
			absorb(i)
		}
		state.Absorb(k.RawRowView(i), v.RawRowView(i))
		answers.SetRow(i, state.Answer(q.RawRowView(i)))
	}
	c.NearMat("the state, sum of phi(k) v^T", state.KV, kv, 1e-12)
	c.NearAll("and of phi(k)", state.KSum, z, 1e-12)
	c.NearMat("what it answers on the way", answers, o, 1e-12)
	c.NearMat("Causal", elu.Causal(q, k, v), o, 1e-12)
	c.NearMat("is pair by pair over the keys seen", weighted(n, v, 0, func(i int) int { return i + 1 }, func(i, j int) float64 {
		return product(phi, q, k, i, j)
	}), o, 1e-12)
	c.NearMat("the last state is that of no mask", Rows(state.Answer(q.RawRowView(0))), elu.Attend(q.Slice(0, 1, 0, d), k, v), 1e-12)

	// The states of two splits of the keys add up.
	first, second := elu.Start(k, v), elu.Start(k, v)
	for j := range n {
		part := first
		if j >= 4 {
			part = second
		}
		part.Absorb(k.RawRowView(j), v.RawRowView(j))
	}
	first.Merge(second)
	c.NearAll("states of parts merge", first.Answer(q.RawRowView(0)), state.Answer(q.RawRowView(0)), 1e-12)
}

// runningKernel checks causal linear attention in one call. Where a plan carries a state, it also
// checks the outputs token by token, and then the state.
func runningKernel(c *Check, a bridge.Attention) {
	const n, d, dv = 19, 4, 3
	q, k, v := bridge.Float32(c.Normal(n, d)), bridge.Float32(c.Normal(n, d)), bridge.Float32(c.Normal(n, dv))
	phi := func(x float64) float64 { return eluPlusOne(c, x) }
	want := weighted(n, v, 0, func(i int) int { return i + 1 }, func(i, j int) float64 { return product(phi, q, k, i, j) })
	ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Op: attn.OpLinear, Mask: attn.Causal()}})
	c.Tolerable("causal, in one call", ans.O, want, 1e-13)

	stepped, state := tokenByToken(c, a.Kernel(), q, k, v)
	if stepped == nil {
		return
	}
	c.Tolerable("token by token", bridge.Values{X: stepped, Tol: ans.O.Tol}, want, 1e-13)
	// The state is a sum over n keys with rounded features and products. Its error is (sqrt(n)+8)
	// 2^-24 of the sum of absolute terms.
	sums, sizes := mat.NewDense(1, d*dv+d, nil), mat.NewDense(1, d*dv+d, nil)
	add := func(at int, x float64) {
		sums.Set(0, at, sums.At(0, at)+x)
		sizes.Set(0, at, sizes.At(0, at)+math.Abs(x))
	}
	for j := range n {
		for x := range d {
			for b := range dv {
				add(x*dv+b, phi(k.At(j, x))*v.At(j, b))
			}
			add(d*dv+x, phi(k.At(j, x)))
		}
	}
	sizes.Scale(0x1p-24*(math.Sqrt(n)+8), sizes)
	c.Tolerable("the state, sums of phi(k) v^T and of phi(k)", bridge.Values{X: state, Tol: sizes}, sums, 1e-13)
}

// tokenByToken returns a kernel's answers for one query and key after the other, and its final
// state. It returns nil if there is no kernel.
func tokenByToken(c *Check, kernel attn.Kernel, q, k, v *mat.Dense) (o, state *mat.Dense) {
	if kernel == nil {
		return nil, nil
	}
	n, d := q.Dims()
	_, dv := v.Dims()
	p := attn.Problem{Op: attn.OpLinear, Mask: attn.Causal(), Batch: 1, HeadsQ: 1, HeadsKV: 1, SeqQ: 1, SeqKV: 1, Dim: d, DimV: dv}
	plan, err := kernel.Plan(p, nil)
	c.Must(err)
	if closer, ok := plan.(io.Closer); ok {
		defer closer.Close()
	}
	carried := make([]float32, p.StateLen())
	o = mat.NewDense(n, dv, nil)
	for i := range n {
		row := func(m *mat.Dense) attn.Tensor { return bridge.Tensor(Rows(m.RawRowView(i))) }
		args := attn.Args{Q: row(q), K: row(k), V: row(v), Out: attn.New(attn.BHSD, 1, 1, 1, dv), StateIn: carried, StateOut: carried}
		plan.Forward(&args)
		for b, x := range args.Out.Row(0, 0, 0) {
			o.Set(i, b, float64(x))
		}
	}
	state = mat.NewDense(1, len(carried), nil)
	for i, x := range carried {
		state.Set(0, i, float64(x))
	}
	return o, state
}

func featureMaps(c *Check) {
	// Feature maps of one number, by their definitions.
	for _, f := range []struct {
		name string
		phi  func(x float64) float64
	}{
		{"elu+1", func(x float64) float64 { return eluPlusOne(c, x) }},
		{"relu+1", func(x float64) float64 { return (x+math.Abs(x))/2 + 1 }},
		{"relu", func(x float64) float64 { return (x+math.Abs(x))/2 + 1e-6 }},
		{"softplus", func(x float64) float64 { return math.Log(1 + math.Exp(x)) }},
		{"square", func(x float64) float64 { return math.Pow(x, 2) }},
		{"exp", func(x float64) float64 { return math.Pow(math.E, x) }},
		{"identity", func(x float64) float64 { return x }},
	} {
		l, err := regression.ByName(f.name)
		c.Must(err)
		x := append(c.Vector(8), 0, -30, 30)
		got, off := l.Feature.Features(x), 0.0
		for i, y := range got {
			off = larger(off, math.Abs(f.phi(x[i])-y)/(1+math.Abs(y)))
		}
		c.Within("feature map "+f.name, off, 1e-14)
		c.True(f.name+": no feature is negative, or it is the identity", floats.Min(got) >= 0 || f.name == "identity")
	}
	x, y := []float64{.3, -.2}, []float64{.1, .4}
	randomFeatures(c, x, y)
	errorOfDraws(c, x, y)
}

// randomFeatures integrates the contribution of one direction, and its square, over the normal
// distribution in the plane.
func randomFeatures(c *Check, x, y []float64) {
	half, minus := c.Factor("half", 0.5), c.Sign("minus", -1)
	dot := func(x, y []float64) float64 { return x[0]*y[0] + x[1]*y[1] }
	sizes := half * (dot(x, x) + dot(y, y)) // (|x|^2 + |y|^2)/2
	for _, f := range []struct {
		kind       regression.Estimator
		product    func(w []float64) float64
		m, printed string // m Var
	}{
		{regression.Positive, func(w []float64) float64 { return math.Exp(minus*sizes + dot(w, x) + dot(w, y)) }, "positive", ".20033350"},
		{regression.Trig, func(w []float64) float64 {
			return math.Exp(sizes) * (math.Cos(dot(w, x))*math.Cos(dot(w, y)) + math.Sin(dot(w, x))*math.Sin(dot(w, y)))
		}, "trig", ".07335732"},
		{regression.Hyperbolic, func(w []float64) float64 { return math.Exp(minus*sizes) * math.Cosh(dot(w, x)+dot(w, y)) }, "hyperbolic", ""},
	} {
		mean := overThePlane(f.product)
		variance := overThePlane(func(w []float64) float64 { return math.Pow(f.product(w)-mean, 2) })
		c.Printed("E phi(x).phi(y), "+f.m, ".95122942", mean)
		c.Near("is exp(x.y)", mean, math.Exp(dot(x, y)), 1e-12)
		if f.printed != "" {
			c.Printed("m Var, "+f.m, f.printed, variance)
		}
		c.Near("Variance, "+f.m, 10*f.kind.Variance(x, y, 10, false), variance, 1e-12)
		w := c.Vector(2)
		one := regression.Random{Kind: f.kind, W: Rows(w)}
		c.Near("features of one direction, "+f.m, floats.Dot(one.Features(x), one.Features(y)), f.product(w), 1e-13)
	}
	c.True("the name of each is its own", regression.Trig.String() == "trig" && regression.Positive.String() == "positive")

	// exp(w.x) alone, which the library's page calls a random Fourier feature, estimates another
	// kernel: exp(|x+y|^2/2).
	sum := []float64{x[0] + y[0], x[1] + y[1]}
	page := overThePlane(func(w []float64) float64 { return math.Exp(dot(w, sum)) })
	c.Near("E exp(w.x) exp(w.y)", page, math.Exp(dot(sum, sum)/2), 1e-12)
	c.True("E-40: that is not exp(x.y)", math.Abs(page-math.Exp(dot(x, y))) > 0.1)
	c.Erratum("E-40", "random Fourier features", "exp(|x|^2/2) (cos Wx, sin Wx)/sqrt(m), or positive ones, exp(Wx-|x|^2/2)/sqrt(m)", "exp(Wx)/sqrt(d)")
}

// overThePlane returns the expectation over two standard normal numbers, by Gauss-Hermite
// quadrature.
func overThePlane(f func(w []float64) float64) (sum float64) {
	const n = 24
	x, weight := make([]float64, n), make([]float64, n)
	quad.Hermite{}.FixedLocations(x, weight, math.Inf(-1), math.Inf(1))
	for i := range n {
		for j := range n {
			sum += weight[i] * weight[j] / math.Pi * f([]float64{math.Sqrt2 * x[i], math.Sqrt2 * x[j]})
		}
	}
	return sum
}

// errorOfDraws checks mean, variance and error of the estimate over random draws of directions.
func errorOfDraws(c *Check, x, y []float64) {
	const draws = 1500
	exact := math.Exp(floats.Dot(x, y))
	seed := uint64(0)
	estimates := func(kind regression.Estimator, m int, draw func(m, d int, seed uint64) *mat.Dense) []float64 {
		to := make([]float64, draws)
		for i := range to {
			seed++
			f := regression.Random{Kind: kind, W: draw(m, len(x), seed)}
			to[i] = floats.Dot(f.Features(x), f.Features(y))
		}
		return to
	}
	for _, kind := range []regression.Estimator{regression.Trig, regression.Positive, regression.Hyperbolic} {
		for _, d := range []struct {
			name       string
			orthogonal bool
			draw       func(m, d int, seed uint64) *mat.Dense
		}{{"independent", false, regression.Directions}, {"orthogonal", true, regression.Orthogonal}} {
			const m = 5 // the last block of orthogonal ones is not full
			e := estimates(kind, m, d.draw)
			mean, variance := stat.MeanVariance(e, nil)
			want := kind.Variance(x, y, m, d.orthogonal)
			// spread is the standard error of the variance.
			spread := math.Sqrt((stat.MomentAbout(4, e, mean, nil) - variance*variance) / draws)
			c.Near(kind.String()+", "+d.name+": mean", mean, exact, 5*math.Sqrt(want/draws))
			c.Near(kind.String()+", "+d.name+": variance", variance, want, 5*spread)
		}
		c.True(kind.String()+": orthogonal directions have less variance", kind.Variance(x, y, 6, true) < kind.Variance(x, y, 6, false))
	}
	// The error falls as 1/sqrt(m).
	var logM, logE []float64
	for _, m := range []int{8, 32, 128} {
		sum := 0.0
		e := estimates(regression.Positive, m, regression.Directions)
		for _, z := range e {
			sum += (z - exact) * (z - exact)
		}
		logM, logE = append(logM, math.Log(float64(m))), append(logE, math.Log(math.Sqrt(sum/draws)))
	}
	_, slope := stat.LinearRegression(logM, logE, nil, false)
	c.Near("the error falls as m^-1/2", slope, c.Factor("power", -0.5), 0.05)
}

// randomFeaturesThroughKernel checks a kernel with the identity for its feature map. Features that
// are computed beforehand then allow any map.
func randomFeaturesThroughKernel(c *Check, a bridge.Attention) {
	const n, d, dv, m = 12, 4, 3, 64
	q, k, v := c.Normal(n, d), c.Normal(n, d), bridge.Float32(c.Normal(n, dv))
	scale := c.Factor("scale", 1/math.Sqrt(d))
	w := regression.Orthogonal(m, d, 1)
	f := regression.Random{Kind: regression.Positive, W: w, Scale: 1 / math.Sqrt(d)}
	features := func(x mat.Matrix) *mat.Dense { // exp(w.x - |x|^2/2)/sqrt(m) at sqrt(scale) x
		rows, _ := x.Dims()
		to := mat.NewDense(rows, m, nil)
		for i := range rows {
			for r := range m {
				to.Set(i, r, math.Exp(math.Sqrt(scale)*dotRows(x, w, i, r)-scale*dotRows(x, x, i, i)/2)/math.Sqrt(m))
			}
		}
		return to
	}
	fq, fk := bridge.Float32(regression.Apply(f, q)), bridge.Float32(regression.Apply(f, k))
	ans := c.Attend(a, bridge.Call{
		Q: fq, K: fk, V: v,
		Problem: attn.Problem{Op: attn.OpLinear, Mask: attn.Causal(), Linear: attn.Linear{Feature: attn.Identity}},
	})
	gq, gk := features(q), features(k)
	want := weighted(n, v, 0, func(i int) int { return i + 1 }, func(i, j int) float64 { return dotRows(gq, gk, i, j) })
	// Features are rounded to float32, a relative error of 2^-24, and none is negative. It changes
	// a weight by twice that, and an output by four times that of the largest value.
	c.Tolerable("positive random features through the identity", ans.O, want, 4*0x1p-24*floats.Norm(Flat(v), math.Inf(1)))
	softmax := weighted(n, v, 0, func(i int) int { return i + 1 }, func(i, j int) float64 { return math.Exp(dotRows(q, k, i, j) / math.Sqrt(d)) })
	var off mat.Dense
	off.Sub(ans.O.X, softmax)
	c.Note("%d positive orthogonal features: at most %.3f from softmax attention, in values of size %.1f", m, floats.Norm(Flat(&off), math.Inf(1)),
		floats.Norm(Flat(v), math.Inf(1)))
}

func kernelMatrix(c *Check) {
	const n, d = 8, 3
	x := c.Normal(n, d)
	sign := c.Sign("exponent", 1)
	g := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range n {
			g.SetSym(i, j, math.Exp(sign*dotRows(x, x, i, j)/math.Sqrt(d)))
		}
	}
	gram, err := regression.Gram(regression.ExpDot(0), x)
	c.Must(err)
	c.NearMat("Gram", gram, g, 1e-12*mat.Max(gram))
	values, err := regression.Spectrum(g)
	c.Must(err)
	c.Within("exp(QK^T/sqrt(d)) with Q = K: no eigenvalue below 0", -values[0], 1e-12*values[n-1])

	// The weights are not a kernel matrix: each row is divided by its own sum.
	a := regression.ExpDot(0).Weights(x, x)
	skew := 0.0
	for i := range n {
		for j := range n {
			skew = max(skew, math.Abs(a.At(i, j)-a.At(j, i)))
		}
	}
	c.True("E-22: A is not symmetric", skew > 1e-3)
	// The query 1 gives its weight to the key 3, and the query 3 gives none to the key 1: x.Ax < 0
	// at x = (2, -1).
	two := regression.ExpDot(1).Weights(Rows([]float64{1}, []float64{3}), Rows([]float64{1}, []float64{3}))
	form := 4*two.At(0, 0) - 2*(two.At(0, 1)+two.At(1, 0)) + two.At(1, 1)
	c.True("E-22: there is x with x.Ax < 0", form < -0.1)
	c.Note("E-22: Q = K = (1, 3): (2,-1).A(2,-1) = %.4f", form)
	c.Erratum("E-22", "what is a kernel matrix", "exp(S) with Q = K; A is not symmetric, and x.Ax may be negative", "A forms a kernel matrix")
	_, err = regression.Gram(func(q, k []float64) float64 { return q[0] * k[1] }, x)
	c.True("Gram refuses a kernel that is not symmetric", err != nil)

	// The smallest eigenvalue over points on a line separates positive kernels from others.
	line := mat.NewDense(6, 1, []float64{-1, -.6, -.2, .2, .6, 1})
	for _, f := range []struct {
		name     string
		kernel   regression.Kernel
		positive bool
	}{
		{"Gaussian", regression.Gaussian(.8), true},
		{"Laplace", regression.Laplace(.8), true},
		{"Cauchy", regression.Cauchy(.8), true},
		{"Triangle, on a line", regression.Triangle(.8), true},
		{"Epanechnikov", regression.Epanechnikov(.8), false},
		{"Box", regression.Box(.8), false},
	} {
		g, err := regression.Gram(f.kernel, line)
		c.Must(err)
		values, err := regression.Spectrum(g)
		c.Must(err)
		if f.positive {
			c.Within(f.name+": no eigenvalue below 0", -values[0], 1e-12*values[5])
		} else {
			c.True(f.name+": an eigenvalue below 0", values[0] < -1e-3)
		}
	}
}

// kernelMatrixFromAttention checks exp(S) with Q = K as computed by a kernel. With the identity for
// V the output is the weights, and exp(LSE) is their denominator.
func kernelMatrixFromAttention(c *Check, a bridge.Attention) {
	const n, d = 8, 3
	x := bridge.Float32(c.Normal(n, d))
	ans := c.Attend(a, bridge.Call{Q: x, K: x, V: identity(n), Problem: attn.Problem{Want: attn.WantLSE}})
	scale := c.Factor("scale", 1/math.Sqrt(d))
	g := bridge.Values{X: mat.NewDense(n, n, nil), Tol: mat.NewDense(n, n, nil)}
	want := mat.NewDense(n, n, nil)
	for i := range n {
		z := math.Exp(ans.LSE.X.At(i, 0))
		for j := range n {
			w := ans.O.X.At(i, j)
			g.X.Set(i, j, w*z)
			g.Tol.Set(i, j, z*(ans.O.Tol.At(i, j)+w*ans.LSE.Tol.At(i, 0)))
			want.Set(i, j, math.Exp(scale*dotRows(x, x, i, j)))
		}
	}
	c.Tolerable("weights times exp(LSE) are exp(S)", g, want, 1e-12*mat.Max(want))
	both := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			both.SetSym(i, j, (g.X.At(i, j)+g.X.At(j, i))/2)
		}
	}
	values, err := regression.Spectrum(both)
	c.Must(err)
	// An error changes an eigenvalue by at most its Frobenius norm.
	c.Within("no eigenvalue below 0, but for the tolerance", -values[0], mat.Norm(g.Tol, 2)+1e-12*values[n-1])
}

func lessonListing(c *Check) {
	// What the listing computes for elu(x)+1: np.maximum(0, x) + 1.
	listing := func(x float64) float64 { return math.Max(0, x) + c.Factor("one", 1) }
	elu, err := regression.ByName("elu+1")
	c.Must(err)
	lesson, err := regression.ByName("lesson")
	c.Must(err)
	at := []float64{-1, -2}
	right, said := elu.Feature.Features(at), lesson.Feature.Features(at)
	c.Printed("phi(-1): elu+1, the listing", ".36787944 1", right[0], said[0])
	c.Refutes("E-09", "elu(-1)+1, which the listing makes", "1", right[0])
	c.Refutes("E-09", "elu(-2)+1, which the listing makes", "1", right[1])
	c.Printed("elu+1 at -1 and -2", ".367879 .135335", right...)
	c.Erratum("E-09", "authors of the features elu+1", "Katharopoulos and others, 2020; the Performer's are positive random ones", "Performer")

	// The first worked example, with the listing's eps and without.
	q, k, v := ex1()
	eps := 1e-6
	if c.Flip("eps") {
		eps = 0
	}
	summed := func(q, k, v *mat.Dense, eps float64) *mat.Dense {
		n, _ := q.Dims()
		nk, _ := k.Dims()
		return weighted(n, v, eps, all(nk), func(i, j int) float64 { return product(listing, q, k, i, j) })
	}
	o := lesson.Attend(q, k, v)
	c.NearMat("the listing, EX1", o, summed(q, k, v, eps), 1e-14)
	c.Printed("the listing, EX1", "1.0666666", o.At(0, 0))
	c.Printed("elu+1 without eps, EX1", "1.06666667", elu.Attend(q, k, v).At(0, 0))
	c.Refutes("E-09b", "O of EX1 without the listing's eps", "1.0666666", elu.Attend(q, k, v).At(0, 0))
	var turned mat.Dense
	turned.Scale(-1, k)
	c.Printed("EX1 with K negated, elu+1", ".878608 1.121392", elu.Attend(q, &turned, v).RawRowView(0)...)
	c.Printed("and the listing", "1.00000 1.00000", lesson.Attend(q, &turned, v).RawRowView(0)...)
	q, k, v = c.Normal(4, 3), c.Normal(6, 3), c.Normal(6, 2)
	c.NearMat("the listing, random numbers", lesson.Attend(q, k, v), summed(q, k, v, eps), 1e-14)

	// Linear attention does not approximate softmax attention here. Neither does phi(Q)(phi(K)^T V)
	// without the denominator.
	q, k, v = ex1()
	var bare, kv mat.Dense
	kv.Mul(regression.Apply(lesson.Feature, k).T(), v)
	bare.Mul(regression.Apply(lesson.Feature, q), &kv)
	c.True("E-09b: the lesson's formula lacks the sum that divides", bare.At(0, 0) > 10*o.At(0, 0))
	c.True("E-09b: with it, it is not softmax attention", math.Abs(regression.ExpDot(0).Regress(q, k, v).At(0, 0)-o.At(0, 0)) > 0.1)
	c.Erratum("E-09b", "the value that phi(q).phi(k) approximates", "exp(q.k/sqrt(d)), before it is normalised", "softmax(q.k)")
	c.Erratum("E-09b", "linear attention", "phi(Q)(phi(K)^T V) over phi(Q)(phi(K)^T 1)", "phi(Q)(phi(K)^T V)")
	c.Erratum("E-09b", "its cost", "O(n d_phi d_v)", "O(nd)")
	costInKeys(c, lesson)
}

// costInKeys checks how the cost grows with n: as n where keys are summed first, as n^2 pair by
// pair.
func costInKeys(c *Check, l regression.Linear) {
	const d = 16
	var logN, logSummed, logPairs, logTime []float64
	for _, n := range []int{128, 256, 512} {
		pairs, summed := regression.Products(n, n, d, d)
		logN = append(logN, math.Log(float64(n)))
		logSummed, logPairs = append(logSummed, math.Log(float64(summed))), append(logPairs, math.Log(float64(pairs)))
		if c.Clock != nil {
			q, k, v := c.Normal(n, d), c.Normal(n, d), c.Normal(n, d)
			best := time.Duration(math.MaxInt64)
			for range 3 {
				before := c.Clock()
				l.Attend(q, k, v)
				best = min(best, c.Clock()-before)
			}
			logTime = append(logTime, math.Log(float64(max(best, 1))))
		}
	}
	slope := func(y []float64) float64 {
		_, b := stat.LinearRegression(logN, y, nil, false)
		return b
	}
	c.Near("products with keys summed first: slope in n", slope(logSummed), 1, 0.15)
	c.Near("products pair by pair: slope in n", slope(logPairs), 2, 0.15)
	if logTime != nil {
		c.Note("time with keys summed first: slope %.2f in n, from 128 to 512", slope(logTime))
	}
}

// lessonKernel checks the variant of the lesson's listing.
func lessonKernel(c *Check, a bridge.Attention) {
	listing := func(x float64) float64 { return math.Max(0, x) + c.Factor("one", 1) }
	q, k, v := ex1()
	const n, d, dv = 17, 4, 3
	for _, x := range []struct {
		name    string
		q, k, v *mat.Dense
	}{
		{"EX1", q, k, v},
		{"random numbers", bridge.Float32(c.Normal(n, d)), bridge.Float32(c.Normal(n, d)), bridge.Float32(c.Normal(n, dv))},
	} {
		nq, _ := x.q.Dims()
		nk, _ := x.k.Dims()
		ans := c.Attend(a, bridge.Call{
			Q: x.q, K: x.k, V: x.v,
			Problem: attn.Problem{Op: attn.OpLinear, Linear: attn.Linear{Feature: attn.ReluPlusOne, Eps: 1e-6}},
		})
		want := weighted(nq, x.v, 1e-6, all(nk), func(i, j int) float64 { return product(listing, x.q, x.k, i, j) })
		c.Tolerable("the listing, "+x.name, ans.O, want, 1e-13)
	}
}
