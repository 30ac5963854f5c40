package equations

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bilinear"
	"attnlab/theory/bridge"
	"attnlab/theory/scorers"
)

// bilinearForms returns the rows on bilinear forms and metrics.
func bilinearForms() []Row {
	return []Row{
		{ID: "T-1", Statement: "<u, v> = u_a v^a, the same in every basis", Check: pairing, Kernel: pairingOfKernel},
		{ID: "T-2", Statement: "a metric g_ab is symmetric and positive definite; <u, v>_g = u^a g_ab v^b", Check: metricTensor},
		{ID: "T-low", Statement: "v_a = g_ab v^b", Check: lowering, Kernel: loweringOfKernel},
		{ID: "T-raise", Statement: "v^a = g^ab v_b, g^ac g_cb = δ^a_b", Check: raising},
		{ID: "T-3,4", Statement: "B(αu + βw, v) = α B(u, v) + β B(w, v), and likewise in the second argument", Check: bilinearity, Kernel: bilinearityOfKernel},
		{ID: "T-5", Statement: "B(u, v) = u^a M_ab v^b, M any matrix", Check: anyForm, Kernel: anyFormOfKernel},
		{ID: "T-eucl", Statement: "g_ab = δ_ab: the dot product", Check: euclideanMetric, Kernel: euclideanMetricOfKernel},
		{ID: "T-scal", Statement: "g_ab = δ_ab / √d_k", Check: scaledMetric, Kernel: scaledMetricOfKernel},
		{ID: "T-learn", Statement: "g_ab = sum_c W_ca W_cb; dL/dW = W (G + Gᵀ), G = dL/dg", Check: learnedMetric, Kernel: learnedMetricOfKernel},
		{ID: "P-1..6", Statement: "pairings, metrics, indices lowered and raised, bilinear forms, scores", Is: Alias, Of: []string{"T-1", "T-2", "T-low", "T-raise", "T-3,4", "T-5", "T-6"}},
		{ID: "P-7,8,9", Statement: "metrics: Euclidean, scaled, learned", Is: Alias, Of: []string{"T-eucl", "T-scal", "T-learn"}},
		{ID: "N-bil", Statement: "q k / √d is the bilinear form with M = δ/√d", Check: scaledIdentity, Kernel: scaledIdentityOfKernel},
		{ID: "P-14.2", Statement: "scores with an explicit metric: S = Q g Kᵀ", Check: explicitMetric, Kernel: explicitMetricOfKernel},
		{ID: "M-bilinear", Statement: "12 functions: construct and verify metrics, lower and raise indices, forms of vectors and of batches", Check: formsByName},
	}
}

const u64 = 0x1p-53 // unit roundoff of float64

// doubleSum returns u^a M_ab v^b as a double sum, and the sum of the absolute values of its terms,
// which scales the rounding error.
func doubleSum(u []float64, m mat.Matrix, v []float64) (sum, abs float64) {
	for a := range u {
		for b := range v {
			term := u[a] * m.At(a, b) * v[b]
			sum += term
			abs += math.Abs(term)
		}
	}
	return sum, abs
}

// randomMetric returns a random metric that is well conditioned.
func randomMetric(c *Check, d int) *bilinear.Metric {
	w := c.Normal(d+1, d)
	g := mat.NewDense(d, d, nil)
	g.Mul(w.T(), w)
	for a := range d {
		g.Set(a, a, g.At(a, a)+.5)
	}
	m, err := bilinear.New(g)
	c.Must(err)
	return m
}

// eighths returns random multiples of 1/8 from -1 to 1. They are exact in float32, and so are sums
// of a few of their products.
func eighths(c *Check, r, k int) *mat.Dense {
	m := mat.NewDense(r, k, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return float64(c.Rand.IntN(17)-8) / 8 }, m)
	return m
}

// integers returns random integers from -2 to 2.
func integers(c *Check, r, k int) *mat.Dense {
	m := mat.NewDense(r, k, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return float64(c.Rand.IntN(5) - 2) }, m)
	return m
}

// scoresBy returns the matrix of the scores score(i, j).
func scoresBy(nq, nk int, score func(i, j int) float64) *mat.Dense {
	s := mat.NewDense(nq, nk, nil)
	s.Apply(func(i, j int, _ float64) float64 { return score(i, j) }, s)
	return s
}

// attendOver returns the weights, outputs, and logarithms of the partition functions of attention
// over given scores.
func attendOver(s, v mat.Matrix) (a, o, lse *mat.Dense) {
	nq, nk := s.Dims()
	_, dv := v.Dims()
	a, o, lse = mat.NewDense(nq, nk, nil), mat.NewDense(nq, dv, nil), mat.NewDense(nq, 1, nil)
	for i := range nq {
		top, z := math.Inf(-1), 0.0
		for j := range nk {
			top = max(top, s.At(i, j))
		}
		for j := range nk {
			z += math.Exp(s.At(i, j) - top)
		}
		lse.Set(i, 0, top+math.Log(z))
		for j := range nk {
			a.Set(i, j, math.Exp(s.At(i, j)-lse.At(i, 0)))
			for b := range dv {
				o.Set(i, b, o.At(i, b)+a.At(i, j)*v.At(j, b))
			}
		}
	}
	return a, o, lse
}

// sameAttention checks the outputs and LSE of a call against attention over given scores.
func sameAttention(c *Check, a bridge.Attention, call bridge.Call, s mat.Matrix) {
	call.Problem.Want |= attn.WantLSE
	ans := c.Attend(a, call)
	_, o, lse := attendOver(s, call.V)
	c.Tolerable("outputs", ans.O, o, 0)
	c.Tolerable("log Z", ans.LSE, lse, 0)
}

// metricProblem returns a problem whose scores are scale * q g k, and its operands.
func metricProblem(g mat.Matrix, scale float64) (attn.Problem, attn.Args) {
	return attn.Problem{Score: attn.Score{Scale: scale, Terms: attn.TermMetric}}, attn.Args{Terms: attn.Operands{Metric: bridge.Tensor(g)}}
}

// pairing checks T-1.
func pairing(c *Check) {
	const d = 4
	relative := func(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }
	written, computed, components := 0.0, 0.0, 0.0
	for bases := 0; bases < 100; {
		b, u, v := c.Normal(d, d), c.Vector(d), c.Vector(d)
		uv := bilinear.Pair(u, v)
		if mat.Cond(b, 2) > 100 || math.Abs(uv) < .1*mat.Norm(mat.NewVecDense(d, u), 2)*mat.Norm(mat.NewVecDense(d, v), 2) {
			continue // of vectors that are all but orthogonal, no digits are left
		}
		bases++
		var inverse mat.Dense
		c.Must(inverse.Inverse(b))
		bu, bv, sum := make([]float64, d), make([]float64, d), 0.0
		for x := range d {
			for y := range d {
				if c.Flip("transpose of the inverse") {
					bu[x] += inverse.At(x, y) * u[y]
				} else {
					bu[x] += inverse.At(y, x) * u[y]
				}
				bv[x] += b.At(x, y) * v[y]
			}
		}
		for x := range d {
			sum += bu[x] * bv[c.Index("index of the vector", x, d)]
		}
		basis, err := bilinear.NewBasis(b)
		c.Must(err)
		covector, vector := basis.Covector(u), basis.Vector(v)
		written = larger(written, relative(sum, uv))
		computed = larger(computed, relative(bilinear.Pair(covector, vector), uv))
		for x := range d {
			components = larger(components, math.Abs(covector[x]-bu[x])/mat.Norm(mat.NewVecDense(d, bu), 2))
			components = larger(components, math.Abs(vector[x]-bv[x])/mat.Norm(mat.NewVecDense(d, bv), 2))
		}
	}
	c.Within("(B^-T u) . (B v) of u . v, written out, 100 bases", written, 1e-12)
	c.Within("the same by package bilinear", computed, 1e-12)
	c.Within("components of both", components, 1e-12)
}

// pairingOfKernel checks that scores do not depend on the basis when queries transform as
// covectors. The numbers are exact in float32 in both bases.
func pairingOfKernel(c *Check, a bridge.Attention) {
	const nq, nk, d = 4, 5, 3
	b := Rows([]float64{1, 1, 0}, []float64{0, 1, 1}, []float64{0, 0, 1})
	inverse := Rows([]float64{1, -1, 1}, []float64{0, 1, -1}, []float64{0, 0, 1})
	q, k, v := eighths(c, nq, d), eighths(c, nk, d), bridge.Float32(c.Normal(nk, 2))
	bq, bk := mat.NewDense(nq, d, nil), mat.NewDense(nk, d, nil)
	for x := range d {
		for y := range d {
			t := inverse.At(y, x)
			if c.Flip("transpose of the inverse") {
				t = inverse.At(x, y)
			}
			for i := range nq {
				bq.Set(i, x, bq.At(i, x)+t*q.At(i, y))
			}
			for j := range nk {
				bk.Set(j, x, bk.At(j, x)+b.At(x, y)*k.At(j, y))
			}
		}
	}
	s := scoresBy(nq, nk, func(i, j int) float64 {
		return bilinear.Pair(q.RawRowView(i), k.RawRowView(j)) * c.Factor("1/√d", 1/math.Sqrt(d))
	})
	sameAttention(c, a, bridge.Call{Q: bq, K: bk, V: v}, s)
}

// metricTensor checks T-2.
func metricTensor(c *Check) {
	tables := []struct {
		name string
		g    *mat.Dense
		want error
	}{
		{"[[2, .5], [.5, 1]]", Rows([]float64{2, .5}, []float64{.5, 1}), nil},
		{"diag(1, -1)", Rows([]float64{1, 0}, []float64{0, -1}), bilinear.ErrIndefinite},
		{"[[1, .5], [.3, 1]]", Rows([]float64{1, .5}, []float64{.3, 1}), bilinear.ErrAsymmetric},
		{"zero", Rows([]float64{0, 0}, []float64{0, 0}), bilinear.ErrSingular},
		{"[[1, 2], [2, 4]]", Rows([]float64{1, 2}, []float64{2, 4}), bilinear.ErrSingular},
	}
	for _, t := range tables {
		err := bilinear.Validate(t.g)
		c.True(t.name+" is judged for the right reason", errors.Is(err, t.want) && (err == nil) == (t.want == nil))

		// The rule on its own: the matrix is symmetric, and (λ - p)(λ - q) = 0 has positive roots
		// only.
		trace, det := t.g.At(0, 0)+t.g.At(1, 1), t.g.At(0, 0)*t.g.At(1, 1)-t.g.At(0, 1)*t.g.At(1, 0)
		least := trace/2 - math.Sqrt(trace*trace/4-det)
		positive := least > 0
		if c.Flip("strictly positive eigenvalues") {
			positive = least > -1e-6
		}
		symmetric := t.g.At(0, 1) == t.g.At(1, 0) || c.Flip("symmetry")
		c.True(t.name+" is judged by the rule", (err == nil) == (symmetric && positive))
	}

	var eigen mat.EigenSym
	c.True("eigenvalues are found", eigen.Factorize(mat.NewSymDense(2, []float64{1, 2, 2, 4}), false))
	c.NearAll("eigenvalues of [[1, 2], [2, 4]]", eigen.Values(nil), []float64{0, 5}, 1e-14)
	c.True("E-31: all are above -1e-6, and yet a vector is orthogonal to all", eigen.Values(nil)[0] > -1e-6 && bilinear.Quadratic([]float64{2, -1}, tables[4].g) == 0)
	c.Erratum("E-31", "what makes a metric", "eigenvalues > 0: zero and [[1, 2], [2, 4]] are none", "eigenvalues > -tol")

	for d := 1; d <= 6; d++ {
		g, u, v := randomMetric(c, d), c.Vector(d), c.Vector(d)
		sum := 0.0
		for a := range d {
			for b := range d {
				sum += u[a] * g.At(a, b) * v[c.Index("second index of the metric", b, d)]
			}
		}
		_, abs := doubleSum(u, g, v)
		c.Near("u^a g_ab v^b", g.Inner(u, v), sum, 8*u64*abs)
		c.Near("the same with u and v exchanged", g.Inner(v, u), sum, 8*u64*abs)
		c.True("<v, v>_g > 0", g.Inner(v, v) > 0)
		c.Near("|v|²", g.Norm(v)*g.Norm(v), g.Inner(v, v), 1e-13*g.Inner(v, v))
	}
}

// neighbours returns the metric of the documents' example: each basis vector is at 60 degrees to
// its neighbours.
func neighbours() *mat.Dense {
	return Rows([]float64{1, .5, 0}, []float64{.5, 1, .5}, []float64{0, .5, 1})
}

// lowered returns g_ab v^b as explicit sums.
func lowered(c *Check, g mat.Matrix, v []float64) []float64 {
	low := make([]float64, len(v))
	for a := range v {
		for b := range v {
			low[a] += g.At(a, b) * v[c.Index("index of the vector", b, len(v))]
		}
	}
	return low
}

// lowering checks T-low.
func lowering(c *Check) {
	g, err := bilinear.New(neighbours())
	c.Must(err)
	v := []float64{1, 2, 3}
	c.Printed("lowered", "2 4 4", lowered(c, g, v)...)
	c.NearAll("lowered by package bilinear", g.Lower(v), []float64{2, 4, 4}, 0)
	for d := 1; d <= 6; d++ {
		g, v := randomMetric(c, d), c.Vector(d)
		c.NearAll("g_ab v^b", g.Lower(v), lowered(c, g, v), 1e-14*mat.Norm(g.Matrix(), 1)*mat.Norm(mat.NewVecDense(d, v), 1))
		u := c.Vector(d)
		_, abs := doubleSum(u, g, v)
		c.Near("<u, v>_g is u^a paired with v_a", bilinear.Pair(g.Lower(v), u), g.Inner(u, v), 8*u64*abs)
	}
}

// loweringOfKernel checks that lowered keys need no metric.
func loweringOfKernel(c *Check, a bridge.Attention) {
	const nq, nk, d = 3, 5, 3
	g := neighbours()
	q, k, v := eighths(c, nq, d), eighths(c, nk, d), bridge.Float32(c.Normal(nk, 2))
	low := mat.NewDense(nk, d, nil)
	for j := range nk {
		low.SetRow(j, lowered(c, g, k.RawRowView(j)))
	}
	s := scoresBy(nq, nk, func(i, j int) float64 {
		sum, _ := doubleSum(q.RawRowView(i), g, k.RawRowView(j))
		return sum / math.Sqrt(d)
	})
	sameAttention(c, a, bridge.Call{Q: q, K: low, V: v}, s)
}

// raising checks T-raise.
func raising(c *Check) {
	g, err := bilinear.New(neighbours())
	c.Must(err)
	inverse := g.Inverse()
	c.Printed("inverse", "1.5 -1 .5 -1 2 -1 .5 -1 1.5", Flat(inverse)...)
	c.NearAll("inverse, all digits", Flat(inverse), []float64{1.5, -1, .5, -1, 2, -1, .5, -1, 1.5}, 4e-15)
	isInverse(c, g, 4e-15)
	v := []float64{1, 2, 3}
	c.NearAll("raised from [2, 4, 4]", g.Raise([]float64{2, 4, 4}), v, 4e-15)
	c.NearAll("lowered and raised", g.Raise(g.Lower(v)), v, 4e-15)
	for d := 1; d <= 6; d++ {
		g, v := randomMetric(c, d), c.Vector(d)
		cond := mat.Cond(g.Matrix(), 2)
		isInverse(c, g, 1e-14*cond)
		c.NearAll("lowered and raised", g.Raise(g.Lower(v)), v, 1e-14*cond)
	}
}

// isInverse demands g^ac g_cb = δ^a_b, and that raising an index is contracting with g^ab.
func isInverse(c *Check, g *bilinear.Metric, bound float64) {
	d := g.SymmetricDim()
	inverse, u := g.Inverse(), c.Vector(d)
	high := make([]float64, d)
	for a := range d {
		for b := range d {
			sum, delta := 0.0, 0.0
			if a == b {
				delta = 1
			}
			for e := range d {
				sum += inverse.At(a, e) * g.At(c.Index("contracted index", e, d), b)
			}
			c.Near("g^ac g_cb = δ^a_b", sum, delta, bound)
			high[a] += inverse.At(a, b) * u[c.Index("index of the covector", b, d)]
		}
	}
	c.NearAll("g^ab u_b", g.Raise(u), high, 10*bound)
}

// bilinearity checks T-3,4.
func bilinearity(c *Check) {
	const alpha, beta = 2, 3
	combine := func(u, w []float64) []float64 {
		sum := make([]float64, len(u))
		for a := range u {
			sum[a] = alpha*u[a] + beta*w[a]
		}
		return sum
	}
	for range 50 {
		m, u, w, v, x := c.Normal(3, 4), c.Vector(3), c.Vector(3), c.Vector(4), c.Vector(4)
		uv, abs1 := doubleSum(u, m, v)
		wv, abs2 := doubleSum(w, m, v)
		ux, abs3 := doubleSum(u, m, x)
		both := c.Factor("α", alpha)*uv + c.Factor("β", beta)*wv
		c.Near("B(αu + βw, v) = α B(u, v) + β B(w, v)", bilinear.Form(combine(u, w), m, v), both, 8*u64*(alpha*abs1+beta*abs2))
		both = c.Factor("α of the second argument", alpha)*uv + c.Factor("β of the second argument", beta)*ux
		c.Near("B(u, αv + βx) = α B(u, v) + β B(u, x)", bilinear.Form(u, m, combine(v, x)), both, 8*u64*(alpha*abs1+beta*abs3))
	}
}

// bilinearityOfKernel checks that a kernel's scores are bilinear. With a single key, the LSE is the
// score.
func bilinearityOfKernel(c *Check, a bridge.Attention) {
	const alpha, beta = 2, 3
	m, q, k := integers(c, 3, 3), eighths(c, 2, 3), eighths(c, 2, 3)
	score := func(q, k []float64) (s, tol float64) {
		p, args := metricProblem(m, 1)
		p.Want = attn.WantLSE
		ans := c.Attend(a, bridge.Call{Q: Rows(q), K: Rows(k), V: Rows([]float64{1}), Problem: p, Args: args})
		return ans.LSE.X.At(0, 0), ans.LSE.Tol.At(0, 0)
	}
	combined := func(m *mat.Dense) []float64 {
		sum := make([]float64, 3)
		for x := range sum {
			sum[x] = alpha*m.At(0, x) + beta*m.At(1, x)
		}
		return sum
	}
	linear := func(what string, x, tol, x1, tol1, x2, tol2 float64) {
		got := bridge.Values{X: Rows([]float64{x}), Tol: Rows([]float64{tol})}
		both := c.Factor("α", alpha)*x1 + c.Factor("β", beta)*x2
		c.Tolerable(what, got, Rows([]float64{both}), alpha*tol1+beta*tol2)
	}
	s1, tol1 := score(q.RawRowView(0), k.RawRowView(0))
	s2, tol2 := score(q.RawRowView(1), k.RawRowView(0))
	s3, tol3 := score(q.RawRowView(0), k.RawRowView(1))
	s, tol := score(combined(q), k.RawRowView(0))
	linear("linear in the query", s, tol, s1, tol1, s2, tol2)
	s, tol = score(q.RawRowView(0), combined(k))
	linear("linear in the key", s, tol, s1, tol1, s3, tol3)
}

// anyForm checks T-5.
func anyForm(c *Check) {
	written := func(u []float64, m mat.Matrix, v []float64) (sum, abs float64) {
		for a := range u {
			for b := range v {
				term := u[a] * m.At(c.Index("first index of M", a, len(u)), b) * v[b]
				sum += term
				abs += math.Abs(term)
			}
		}
		return sum, abs
	}
	m := Rows([]float64{1, 2}, []float64{3, 4})
	if c.Flip("order of the indices of M") {
		m = mat.DenseCopyOf(m.T())
	}
	sum, _ := written([]float64{1, 2}, m, []float64{3, 4})
	c.Printed("u M v", "61", sum)
	c.Near("by package bilinear", bilinear.Form([]float64{1, 2}, Rows([]float64{1, 2}, []float64{3, 4}), []float64{3, 4}), 61, 0)
	for range 20 {
		rows, columns := 1+c.Rand.IntN(5), 1+c.Rand.IntN(5)
		m, u, v := c.Normal(rows, columns), c.Vector(rows), c.Vector(columns)
		sum, abs := written(u, m, v)
		c.Near("u M v, of any shape", bilinear.Form(u, m, v), sum, 8*u64*abs)
	}
}

// anyFormOfKernel checks a form between queries of three components and keys of two.
func anyFormOfKernel(c *Check, a bridge.Attention) {
	p, args := metricProblem(Rows([]float64{1, 2}, []float64{3, 4}), 1)
	p.Want = attn.WantLSE
	ans := c.Attend(a, bridge.Call{Q: Rows([]float64{1, 2}), K: Rows([]float64{3, 4}), V: Rows([]float64{1}), Problem: p, Args: args})
	c.Tolerable("the score of [1, 2] and [3, 4]", ans.LSE, Rows([]float64{61}), 0)

	m, q, k, v := bridge.Float32(c.Normal(3, 2)), bridge.Float32(c.Normal(4, 3)), bridge.Float32(c.Normal(5, 2)), bridge.Float32(c.Normal(5, 2))
	s := scoresBy(4, 5, func(i, j int) (sum float64) {
		for x := range 3 {
			for y := range 2 {
				sum += q.At(i, x) * m.At(c.Index("first index of M", x, 3), y) * k.At(j, y)
			}
		}
		return sum
	})
	p, args = metricProblem(m, 1)
	sameAttention(c, a, bridge.Call{Q: q, K: k, V: v, Problem: p, Args: args}, s)
}

// euclideanMetric checks T-eucl.
func euclideanMetric(c *Check) {
	for d := 1; d <= 8; d++ {
		g, u, v := bilinear.Euclidean(d), c.Vector(d), c.Vector(d)
		dot, uu, vv, apart, abs := 0.0, 0.0, 0.0, 0.0, 0.0
		for a := range d {
			dot += u[a] * v[c.Index("index of the vector", a, d)] * c.Factor("no scale", 1)
			uu += u[a] * u[a]
			vv += v[a] * v[a]
			apart += (u[a] - v[a]) * (u[a] - v[a])
			abs += math.Abs(u[a] * v[a])
		}
		c.Near("<u, v> is the dot product", g.Inner(u, v), dot, 8*u64*abs)
		c.Near("|u|", g.Norm(u), math.Sqrt(uu), 1e-15*math.Sqrt(uu))
		c.Near("|u - v|", g.Distance(u, v), math.Sqrt(apart), 1e-15*math.Sqrt(apart))
		c.Near("cosine", g.Cosine(u, v), dot/math.Sqrt(uu*vv), 1e-14)
		c.NearAll("lowering changes nothing", g.Lower(u), u, 0)
	}
}

// euclideanMetricOfKernel checks that with the metric δ and no scale, scores are plain products.
func euclideanMetricOfKernel(c *Check, a bridge.Attention) {
	q, k, v := bridge.Float32(c.Normal(3, 4)), bridge.Float32(c.Normal(5, 4)), bridge.Float32(c.Normal(5, 2))
	s := scoresBy(3, 5, func(i, j int) (sum float64) {
		for x := range 4 {
			sum += q.At(i, x) * k.At(j, x) * c.Factor("no scale", 1)
		}
		return sum
	})
	p, args := metricProblem(bilinear.Euclidean(4), 1)
	sameAttention(c, a, bridge.Call{Q: q, K: k, V: v, Problem: p, Args: args}, s)
}

// ones returns a vector of d ones.
func ones(d int) []float64 {
	v := make([]float64, d)
	for a := range v {
		v[a] = 1
	}
	return v
}

// scaledMetric checks T-scal.
func scaledMetric(c *Check) {
	for _, d := range []int{1, 2, 4, 8, 16, 32} {
		root := math.Sqrt(float64(d))
		sum := 0.0
		for range d {
			sum += c.Factor("1/√d", 1/root)
		}
		c.Near("d times 1/√d", sum, root, 8*u64*root)
		c.Near("<1, 1> = √d", bilinear.Scaled(d).Inner(ones(d), ones(d)), root, 8*u64*root)
		custom, err := bilinear.ScaledBy(d, .3)
		c.Must(err)
		c.Near("<1, 1> with the scale .3", custom.Inner(ones(d), ones(d)), c.Factor("scale of one's own", .3)*float64(d), 8*u64*float64(d))
	}
	_, err := bilinear.ScaledBy(4, 0)
	c.True("a scale of 0 makes no metric", errors.Is(err, bilinear.ErrSingular))
}

// scaledMetricOfKernel checks that by default the score of two vectors of ones is √d. With a single
// key it is the LSE.
func scaledMetricOfKernel(c *Check, a bridge.Attention) {
	for _, d := range []int{1, 2, 4, 8, 16, 32} {
		for _, scale := range []float64{0, .25} {
			want := c.Factor("√d", math.Sqrt(float64(d)))
			if scale != 0 {
				want = c.Factor("scale of one's own", scale) * float64(d)
			}
			call := bridge.Call{Q: Rows(ones(d)), K: Rows(ones(d)), V: Rows([]float64{1})}
			call.Problem = attn.Problem{Score: attn.Score{Scale: scale}, Want: attn.WantLSE}
			c.Tolerable("the score of ones and ones", c.Attend(a, call).LSE, Rows([]float64{want}), 0)
		}
	}
}

// squareOf returns g_ab = sum_c W_ca W_cb as explicit sums.
func squareOf(c *Check, w mat.Matrix) *mat.Dense {
	r, d := w.Dims()
	g := mat.NewDense(d, d, nil)
	for a := range d {
		for b := range d {
			for e := range r {
				left := w.At(e, a)
				if r == d && c.Flip("transpose of the first W") { // E-05: of W W, W must be square
					left = w.At(a, e)
				}
				g.Set(a, b, g.At(a, b)+left*w.At(e, b))
			}
		}
	}
	return g
}

// learnedMetric checks T-learn.
func learnedMetric(c *Check) {
	w := Rows([]float64{1, 2}, []float64{3, 4})
	g := squareOf(c, w)
	c.Printed("WᵀW", "10 14 14 20", Flat(g)...)
	c.NearMat("WᵀW by package bilinear", bilinear.Learned{W: w}.Form(), g, 0)

	var literal mat.Dense // W_a^c W_cb as printed
	literal.Mul(w, w)
	c.Printed("W W", "7 10 15 22", Flat(&literal)...)
	c.True("W W is no metric, not being symmetric", errors.Is(bilinear.Validate(&literal), bilinear.ErrAsymmetric))
	c.Refutes("E-05", "g_00 of a learned metric, W = [[1, 2], [3, 4]]", "7", bilinear.Learned{W: w}.Form().At(0, 0))
	c.Erratum("E-05", "a learned metric", "g_ab = W^c_a W_cb, WᵀW", "g_ab = W_a^c W_cb")

	for n := range 60 {
		d := 1 + c.Rand.IntN(5)
		r := max(1, d+n%3-1) // of fewer rows, as many, and more
		l := bilinear.Learned{W: c.Normal(r, d)}
		form := l.Form()
		c.NearMat("WᵀW", form, squareOf(c, l.W), 1e-13)
		var eigen mat.EigenSym
		c.True("eigenvalues are found", eigen.Factorize(form, false))
		c.Within("no eigenvalue is below 0", -eigen.Values(nil)[0], 1e-12)
		c.True("rank", l.Rank() == min(r, d))
		_, err := l.Metric()
		if r < d {
			c.True("E-05: too few rows make a form that has no inverse", errors.Is(err, bilinear.ErrSingular))
		}
		u, v := c.Vector(d), c.Vector(d)
		_, abs := doubleSum(u, form, v)
		c.Near("<u, v>_g = (W u) . (W v)", l.Inner(u, v), bilinear.Form(u, form, v), 1e-13*(1+abs))
	}
	c.Erratum("E-05", "WᵀW", "positive semi-definite; a metric where W has rank d", "positive definite")

	for _, r := range []int{2, 3, 4} {
		gradientOfLearned(c, r, 3)
	}
}

// gradientOfLearned checks dL/dW = W (G + Gᵀ) against differences. The loss L = sum_ab C_ab sin
// g_ab has a G that is not symmetric.
func gradientOfLearned(c *Check, r, d int) {
	w, weights := c.Normal(r, d), c.Normal(d, d)
	form := squareOf(c, w)
	dg := mat.NewDense(d, d, nil)
	dg.Apply(func(a, b int, x float64) float64 { return x * math.Cos(form.At(a, b)) }, weights)
	dw := learnedGradient(c, w, dg)
	c.NearMat("W (G + Gᵀ)", bilinear.Learned{W: w}.Grad(dg), dw, 1e-13)
	loss := func(x []float64) (sum float64) {
		w := mat.NewDense(r, d, x)
		for a := range d {
			for b := range d {
				g := 0.0
				for e := range r {
					g += w.At(e, a) * w.At(e, b)
				}
				sum += weights.At(a, b) * math.Sin(g)
			}
		}
		return sum
	}
	c.NearAll("dL/dW by differences", fd.Gradient(nil, loss, Flat(w), &fd.Settings{Formula: fd.Central}), Flat(dw), 1e-7)
}

// learnedGradient returns dL/dW_ca = sum_b W_cb (G_ba + G_ab) as explicit sums.
func learnedGradient(c *Check, w, dg mat.Matrix) *mat.Dense {
	r, d := w.Dims()
	dw := mat.NewDense(r, d, nil)
	for e := range r {
		for a := range d {
			for b := range d {
				other := dg.At(a, b)
				if c.Flip("transpose of G") {
					other = dg.At(b, a)
				}
				dw.Set(e, a, dw.At(e, a)+w.At(e, b)*(dg.At(b, a)+other))
			}
		}
	}
	return dw
}

// learnedMetricOfKernel checks that with the metric WᵀW a kernel's scores are those of projected
// queries and keys. Its gradient by the metric then gives the gradient by W.
func learnedMetricOfKernel(c *Check, a bridge.Attention) {
	const nq, nk, d, dv = 4, 5, 3, 2
	w := integers(c, d, d)
	q, k, v, dO := eighths(c, nq, d), eighths(c, nk, d), bridge.Float32(c.Normal(nk, dv)), bridge.Float32(c.Normal(nq, dv))
	scale := 1 / math.Sqrt(d)
	project := func(x []float64) []float64 {
		y := make([]float64, d)
		for e := range d {
			for b := range d {
				y[e] += w.At(e, b) * x[b]
			}
		}
		return y
	}
	s := scoresBy(nq, nk, func(i, j int) (sum float64) {
		wq, wk := project(q.RawRowView(i)), project(k.RawRowView(j))
		for e := range d {
			sum += wq[e] * wk[e] * scale
		}
		return sum
	})
	p, args := metricProblem(squareOf(c, w), 0)
	call := bridge.Call{Q: q, K: k, V: v, Problem: p, Args: args}
	sameAttention(c, a, call, s)

	weights, o, _ := attendOver(s, v)
	dg := mat.NewDense(d, d, nil)
	for i := range nq {
		for j := range nk {
			ds := 0.0
			for b := range dv {
				ds += weights.At(i, j) * dO.At(i, b) * (v.At(j, b) - o.At(i, b))
			}
			for x := range d {
				for y := range d {
					dg.Set(x, y, dg.At(x, y)+scale*q.At(i, x)*ds*k.At(j, y))
				}
			}
		}
	}
	call.DO = dO
	ans := c.Attend(a, call)
	c.Tolerable("dL/dg", ans.DMetric, dg, 0)

	var got bridge.Values // dL/dW, of the kernel's dL/dg
	got.X = bilinear.Learned{W: w}.Grad(ans.DMetric.X)
	size := mat.NewDense(d, d, nil)
	size.Apply(func(_, _ int, x float64) float64 { return math.Abs(x) }, w)
	got.Tol = bilinear.Learned{W: size}.Grad(ans.DMetric.Tol)
	c.Tolerable("dL/dW", got, learnedGradient(c, w, dg), 1e-12)
}

// scaledIdentity checks N-bil.
func scaledIdentity(c *Check) {
	q, k, _ := ex1()
	root := c.Factor("1/√d", ex1Scale)
	for i := range 2 {
		for j := range 3 {
			u, v := q.RawRowView(i), k.RawRowView(j)
			sum := 0.0
			for a := range 2 {
				sum += u[a] * root * v[c.Index("index of the key", a, 2)]
			}
			c.Near("q δ/√d k", bilinear.Form(u, bilinear.Scaled(2), v), sum, 1e-15)
			c.Near("E-22: the metric of q . k without a scale is δ", bilinear.Form(u, bilinear.Euclidean(2), v), sum*math.Sqrt2, 1e-15)
		}
	}
	c.Printed("S", ".70710678 0 .70710678 0 .70710678 .70710678", Flat(bilinear.Forms(q, bilinear.Scaled(2), k))...)
	c.Erratum("E-22", "metric of S = Q Kᵀ", "δ; the scaled identity is that of Q Kᵀ / √d", "the scaled identity")

	// A form is a similarity, not a distance. The two are related by |q - k|² = q . q - 2 q . k + k
	// . k.
	for range 20 {
		g, u, v := randomMetric(c, 4), c.Vector(4), c.Vector(4)
		square := g.Inner(u, u) - c.Factor("2", 2)*g.Inner(u, v) + g.Inner(v, v)
		c.Near("|u - v|² = <u, u> - 2 <u, v> + <v, v>", g.Distance(u, v)*g.Distance(u, v), square, 1e-14*(g.Inner(u, u)+g.Inner(v, v)))
	}
	g := bilinear.Euclidean(2)
	c.True("E-22: a larger score may be farther away", g.Inner([]float64{1, 0}, []float64{3, 0}) > g.Inner([]float64{1, 0}, []float64{1, 0}) &&
		g.Distance([]float64{1, 0}, []float64{3, 0}) > g.Distance([]float64{1, 0}, []float64{1, 0}))
	c.Erratum("E-22", "S", "a similarity: |q - k|² = q . q - 2 q . k + k . k", "a distance")
}

// scaledIdentityOfKernel checks that the metric δ/√d without a scale is the default. In four
// dimensions 1/√d is exact in float32.
func scaledIdentityOfKernel(c *Check, a bridge.Attention) {
	q, k, v := bridge.Float32(c.Normal(3, 4)), bridge.Float32(c.Normal(5, 4)), bridge.Float32(c.Normal(5, 2))
	s := scoresBy(3, 5, func(i, j int) (sum float64) {
		for x := range 4 {
			sum += q.At(i, x) * k.At(j, x) * c.Factor("1/√d", .5)
		}
		return sum
	})
	p, args := metricProblem(bilinear.Scaled(4), 1)
	sameAttention(c, a, bridge.Call{Q: q, K: k, V: v, Problem: p, Args: args}, s)
	sameAttention(c, a, bridge.Call{Q: q, K: k, V: v}, s)
}

// explicitMetric checks P-14.2.
func explicitMetric(c *Check) {
	q, k, _ := ex1()
	g := bilinear.Scaled(2)
	s := writtenForm(c, q, g, k)
	c.Printed("S", ".70710678 0 .70710678 0 .70710678 .70710678", Flat(s)...)
	c.NearMat("S by package bilinear", bilinear.Forms(q, g, k), s, 1e-15)
	c.NearMat("S by package scorers", scorers.Bilinear{M: g}.Scores(q, k), s, 1e-15)
	m, u, v := c.Normal(3, 2), c.Normal(4, 3), c.Normal(5, 2)
	c.NearMat("any form of any batches", bilinear.Forms(u, m, v), writtenForm(c, u, m, v), 1e-14)
}

// explicitMetricOfKernel checks a kernel with the metric of the worked example.
func explicitMetricOfKernel(c *Check, a bridge.Attention) {
	q, k, v := ex1()
	g := bridge.Float32(bilinear.Scaled(2))
	p, args := metricProblem(g, 1)
	sameAttention(c, a, bridge.Call{Q: q, K: k, V: v, Problem: p, Args: args}, writtenForm(c, q, g, k))
}

// formsByName checks M-bilinear.
func formsByName(c *Check) {
	const d = 4
	u, v := c.Vector(d), c.Vector(d)
	weights := []float64{.5, 1, 2, 3}
	diagonal, err := bilinear.Diagonal(weights...)
	c.Must(err)
	custom, err := bilinear.ScaledBy(d, .7)
	c.Must(err)
	w := c.Normal(d+1, d)
	learned, err := bilinear.Learned{W: w}.Metric()
	c.Must(err)
	for _, m := range []struct {
		name string
		g    *bilinear.Metric
		at   func(a, b int) float64
	}{
		{"Euclidean", bilinear.Euclidean(d), func(a, b int) float64 { return 1 }},
		{"scaled Euclidean", bilinear.Scaled(d), func(a, b int) float64 { return c.Factor("1/√d", .5) }},
		{"scaled by a number", custom, func(a, b int) float64 { return .7 }},
		{"diagonal", diagonal, func(a, b int) float64 { return weights[c.Index("weight", a, d)] }},
		{"learned", learned, nil},
	} {
		want := squareOf(c, w)
		if m.at != nil {
			want = scoresBy(d, d, func(a, b int) float64 {
				if a != b {
					return 0
				}
				return m.at(a, b)
			})
		}
		c.NearMat(m.name+" metric", m.g, want, 1e-14)
		sum, abs := doubleSum(u, want, v)
		c.Near("inner product, "+m.name, m.g.Inner(u, v), sum, 1e-14*(1+abs))
		c.NearAll("lower, "+m.name, m.g.Lower(v), lowered(c, want, v), 1e-13)
		isInverse(c, m.g, 1e-13*mat.Cond(m.g.Matrix(), 2))
		c.NearAll("raise, "+m.name, m.g.Raise(lowered(c, want, v)), v, 1e-13*mat.Cond(m.g.Matrix(), 2))
		c.True("verified, "+m.name, bilinear.Validate(m.g) == nil)
	}

	m, left, right, like := c.Normal(3, 2), c.Normal(5, 3), c.Normal(4, 2), c.Normal(5, 2)
	sum, abs := doubleSum(left.RawRowView(0), m, right.RawRowView(0))
	c.Near("bilinear form", bilinear.Form(left.RawRowView(0), m, right.RawRowView(0)), sum, 8*u64*abs)
	c.NearMat("bilinear forms of a batch", bilinear.Forms(left, m, right), writtenForm(c, left, m, right), 1e-14)
	all := writtenForm(c, left, m, like)
	for i, x := range bilinear.RowForms(left, m, like) {
		c.Near("bilinear forms, row by row", x, all.At(i, i), 1e-14)
	}
	square := c.Normal(d, d)
	sum, abs = doubleSum(v, square, v)
	c.Near("quadratic form", bilinear.Quadratic(v, square), sum, 8*u64*abs)
	c.Near("quadratic form of the transpose", bilinear.Quadratic(v, square.T()), sum, 8*u64*abs)
}
