package equations

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"attnlab/attn"
	"attnlab/nn"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
	"attnlab/theory/tensor"
)

// models returns the rows on what is built from attention. Their mathematics is computed by loops
// and by a twin in float64. What they ask of a kernel is asked of a layer of package nn that runs
// on it.
func models() []Row {
	return []Row{
		{
			ID: "T-34..36", Statement: "Q^hia = sum_b X^ib W_Q^hba, and likewise K and V: each head has its own projection",
			Check: projections, Kernel: projectionsAsked,
		},
		{
			ID: "T-40", Statement: "Y^ia = sum_hc O^hic W_O^hca = concat(O^1 ... O^H) W_O: project the concatenated heads, or sum the projected heads",
			Check: joining, Kernel: joiningAsked,
		},
		{
			ID: "T-41", Statement: "diversity = 1 - mean over pairs of heads of sum_ij A^hij A^gij / (|A^h| |A^g|)",
			Check: headDiversity, Kernel: headDiversityAsked,
		},
		{
			ID: "P-51..57", Statement: "Q^h = X W_Q^h, K^h = X W_K^h, V^h = X W_V^h, Y = sum_h softmax(Q^h K^hT / sqrt(d_k)) V^h W_O^h: self-attention of one input X",
			Check: selfAttention, Kernel: selfAttentionAsked,
		},
		{
			ID: "P-6.2", Statement: "multi-head attention has 4 d_model^2 parameters for any number of heads, and 4 d_model more with biases",
			Check: parameterCount,
		},
		{
			ID: "P-58", Statement: "rank(Q^h) <= d_k: Q^h = X W_Q^h lies in a subspace, and the part of X orthogonal to the columns of W_Q^h has no effect",
			Check: headSubspace,
		},
		{
			ID: "D-self/cross", Statement: "self-attention has n_q = n_k; in cross-attention n_q queries of one sequence see n_k keys of another",
			Kernel: crossAttentionAsked,
		},
		{ID: "D-mha", Statement: "split into heads, attend, join, project", Is: Alias, Of: []string{"T-34..36", "T-37..39", "T-40"}},
		{ID: "N-mha", Statement: "multi-head attention", Is: Alias, Of: []string{"T-34..36", "T-37..39", "T-40"}},
		{ID: "L-2.3", Statement: "self-attention: Q = X W_Q, K = X W_K, V = X W_V", Is: Alias, Of: []string{"P-51..57"}},
		{
			ID: "L-3.1", Statement: "MultiHead(Q, K, V) = Concat(head_1 ... head_h) W^O, with d_model = 64, 8 heads and 10 rows",
			Kernel: lessonHeadsAsked,
		},
		{
			ID: "L-3.3", Statement: "parameters: 3 d^2 of one head without W^O, 4 d^2 of many with it, and of one with it",
			Check: lessonCount,
		},
		{
			ID: "L-5.4", Statement: "K_t = [K_t-1; k_t], V_t = [V_t-1; v_t]: with a cache a step costs O(t d), and the cache holds O(t d layers)",
			Check: cacheCost, Kernel: cacheAsked,
		},
		{ID: "L-6.3", Statement: "cross-attention: queries of the decoder, keys and values of the encoder", Is: Alias, Of: []string{"D-self/cross"}},
		{
			ID: "L-6.4", Statement: "G = softmax(x W_g), y = sum over the k largest G_e of G_e expert_e(x): a mixture of experts, and its gradient",
			Check: mixture,
		},
		{
			ID: "L-P2", Statement: "dW_O = O^T dY, dO = dY W_O^T, dW_Q = X^T dQ, dX = dQ W_Q^T + dK W_K^T + dV W_V^T: a causal multi-head layer, every gradient checked",
			Check: layerGradients, Kernel: layerGradientsAsked,
		},
		{
			ID: "L-P5", Statement: "z = norm(x + attention(x)), y = norm(z + W_2 max(W_1 z, 0)): an encoder block, its gradients checked, that learns to classify sequences",
			Check: encoderBlock, Kernel: encoderBlockAsked,
		},
		{
			ID: "M-multihead", Statement: "the six functions of the library's module multihead",
			Check: glorotWeights, Kernel: libraryHeadsAsked,
		},
	}
}

// layerBound bounds the error of a layer's output or gradient in float32, relative to the largest
// element. It is 32 roundings, the bound that the tests of package nn use.
const layerBound = 32 * 0x1p-24

// gradientBound bounds the difference between a gradient in float64 and central differences,
// relative to the largest element.
const gradientBound = 1e-6

// largestOf returns the largest absolute element.
func largestOf(m *mat.Dense) (x float64) {
	for _, y := range Flat(m) {
		x = math.Max(x, math.Abs(y))
	}
	return x
}

// nearLargest demands that got is want within bound, relative to the largest absolute element of
// want, or to other if want is negligible beside it. The gradient by a bias of keys needs other: it
// is 0, because adding one number to all scores of a row changes no weight.
func nearLargest(c *Check, what string, got, want *mat.Dense, other, bound float64) {
	if want == nil { // a zero gradient
		want = zeros(got)
	}
	size := largestOf(want)
	if size < bound*other {
		size = other
	}
	var off mat.Dense
	off.Sub(got, want)
	c.Within(what+", relative to the largest", largestOf(&off)/size, bound)
}

// nearGradients demands the same of the gradients by the input and by every parameter.
func nearGradients(c *Check, params []*nn.Param, got nn.Mat, t *twin, dx *mat.Dense) {
	nearLargest(c, "gradient by the input", dense(got), dx, 0, layerBound)
	for _, p := range params {
		nearLargest(c, "gradient by "+p.Name, dense(p.Grad), t.grad[p.Name], largestOf(dx), layerBound)
	}
}

// asProduct demands that a product in float32 is want = x w within its rounding errors. With n
// terms these are sqrt(n) + 4 roundings of the sum of absolute terms.
func asProduct(c *Check, what string, got nn.Mat, x, w, want *mat.Dense) {
	size := func(m *mat.Dense) *mat.Dense {
		var to mat.Dense
		to.Apply(func(_, _ int, v float64) float64 { return math.Abs(v) }, m)
		return &to
	}
	_, terms := x.Dims()
	tol := times(size(x), size(w))
	tol.Scale((math.Sqrt(float64(terms))+4)*0x1p-24, tol)
	c.Tolerable(what, bridge.Values{X: dense(got), Tol: tol}, want, 0)
}

// attentionLayer returns a random layer whose biases, if any, are not 0.
func attentionLayer(c *Check, dim, heads, keyHeads int, bias bool) *nn.Attention {
	l, err := nn.NewAttention("a", dim, heads, keyHeads, bias, c.Rand)
	c.Must(err)
	shiftBiases(c, l.Params())
	return l
}

// shiftBiases sets the biases, which are 0 before training, to normal numbers.
func shiftBiases(c *Check, params []*nn.Param) {
	for _, p := range params {
		if p.W.Rows == 1 {
			for j := range p.W.Row(0) {
				p.W.Row(0)[j] += float32(.3 * c.Rand.NormFloat64())
			}
		}
	}
}

// planned returns the plan of a layer. A kernel that lacks a feature of the layer leaves the row
// unclaimed.
func planned(c *Check, l nn.Layer, on nn.On, batch, seq, dim int) nn.Pass {
	p, _, err := l.Plan(on, nn.Shape{Batch: batch, Seq: seq, Dim: dim})
	c.Must(err)
	return p
}

// taken returns the heads of one sequence in a layer's last pass.
func taken(c *Check, p nn.Pass, b int) []nn.Head {
	all, err := p.(*nn.AttentionPass).Decompose(b)
	c.Must(err)
	return all
}

// causal shows to query i the keys up to i.
func causal(i, j int) bool { return j <= i }

// projected returns Q_ia = sum_b x_ib W_ba.
func projected(c *Check, x *mat.Dense, w mat.Matrix) *mat.Dense {
	n, dim := x.Dims()
	_, d := w.Dims()
	q := mat.NewDense(n, d, nil)
	for i := range n {
		for a := range d {
			sum := 0.0
			for b := range dim {
				sum += x.At(i, b) * w.At(c.Index("b of W", b, dim), a)
			}
			q.Set(i, a, sum)
		}
	}
	return q
}

func projections(c *Check) {
	x := c.Normal(5, 6)
	w := []mat.Matrix{c.Normal(6, 2), c.Normal(6, 2), c.Normal(6, 2)}
	q := tensor.MultiHeadProject(x, tensor.Stack(w...))
	for h := range w {
		c.NearMat(fmt.Sprintf("head %d of 3", h), q.Sub(h).Dense(), projected(c, x, w[h]), 1e-14)
	}
	c.NearMat("one head whose W is the identity sees X", projected(c, x, eye(6)), x, 0)
}

// eye returns the identity matrix.
func eye(n int) *mat.Dense {
	m := mat.NewDense(n, n, nil)
	for i := range n {
		m.Set(i, i, 1)
	}
	return m
}

// headAlone returns the output of one head that the kernel computes by itself.
func headAlone(c *Check, a bridge.Attention, q, k, v *mat.Dense) *mat.Dense {
	return bridge.Float32(c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantLSE | attn.WantGrad}}).O.X)
}

func projectionsAsked(c *Check, a bridge.Attention) {
	on, x := c.On(a), normals(c, 5, 8)
	for _, keyHeads := range sharing {
		l := attentionLayer(c, 8, queryHeads, keyHeads, false)
		p := planned(c, l, on, 1, 5, 8)
		p.Forward(single(x))
		for h, head := range taken(c, p, 0) {
			wq, wk, wv, _ := l.HeadWeights(h)
			what := fmt.Sprintf("head %d of %d over %d key heads: ", h, queryHeads, keyHeads)
			for _, s := range []struct {
				name   string
				got, w nn.Mat
			}{{"Q", head.Q, wq}, {"K", head.K, wk}, {"V", head.V, wv}} {
				asProduct(c, what+s.name, s.got, x, dense(s.w), projected(c, x, dense(s.w)))
			}
			c.NearMat(what+"O is that of the head alone", dense(head.O), headAlone(c, a, dense(head.Q), dense(head.K), dense(head.V)), 0)
		}
	}
	l := attentionLayer(c, 8, 1, 1, false)
	for _, w := range []*nn.Linear{l.Q, l.K, l.V, l.Out} {
		copy(w.W.W.Data, single(eye(8)).Data)
	}
	y := planned(c, l, on, 1, 5, 8).Forward(single(x))
	c.NearMat("one head whose W are the identity: attention without heads", dense(y), headAlone(c, a, x, x, x), 0)
}

// joined returns Y_ia = sum_hc O^h_ic W_ca, where c runs over the columns of all heads.
func joined(c *Check, o []*mat.Dense, w *mat.Dense) *mat.Dense {
	n, d := o[0].Dims()
	rows, dim := w.Dims()
	y := mat.NewDense(n, dim, nil)
	for i := range n {
		for a := range dim {
			sum := 0.0
			for h := range o {
				for b := range d {
					row := c.Index("head of W_O", h, len(o))*d + b
					if rows == dim && c.Flip("transpose of W_O") {
						sum += o[h].At(i, b) * w.At(a, row)
					} else {
						sum += o[h].At(i, b) * w.At(row, a)
					}
				}
			}
			y.Set(i, a, sum)
		}
	}
	return y
}

// sideBySide returns the heads as columns of one matrix.
func sideBySide(o []*mat.Dense) *mat.Dense {
	all := mat.DenseCopyOf(o[0])
	for _, m := range o[1:] {
		var next mat.Dense
		next.Augment(all, m)
		all = &next
	}
	return all
}

func joining(c *Check) {
	o, w := []*mat.Dense{c.Normal(4, 2), c.Normal(4, 2), c.Normal(4, 2)}, c.Normal(6, 6)
	y := joined(c, o, w)
	c.NearMat("concat(O) W_O", times(sideBySide(o), w), y, 1e-14)
	var outputs, parts []mat.Matrix
	sum := mat.NewDense(4, 6, nil)
	for h := range o {
		part := w.Slice(2*h, 2*h+2, 0, 6).(*mat.Dense)
		outputs, parts = append(outputs, o[h]), append(parts, part)
		sum.Add(sum, times(o[h], part))
	}
	c.NearMat("sum over heads of O^h W_O^h", sum, y, 1e-14)
	c.NearMat("hic,hca->ia", tensor.MultiHeadCombine(tensor.Stack(outputs...), tensor.Stack(parts...)), y, 1e-14)
}

// outputsOf returns the outputs of the heads.
func outputsOf(all []nn.Head) (o []*mat.Dense) {
	for _, head := range all {
		o = append(o, dense(head.O))
	}
	return o
}

func joiningAsked(c *Check, a bridge.Attention) {
	for _, keyHeads := range sharing {
		l := attentionLayer(c, 8, queryHeads, keyHeads, false)
		p := planned(c, l, c.On(a), 1, 5, 8)
		y := p.Forward(single(normals(c, 5, 8)))
		all := taken(c, p, 0)
		o, w := outputsOf(all), dense(l.Out.W.W)
		want, what := joined(c, o, w), fmt.Sprintf("%d key heads: ", keyHeads)
		asProduct(c, what+"concat(O) W_O", y, sideBySide(o), w, want)
		asProduct(c, what+"the sum over heads", p.(*nn.AttentionPass).SumOverHeads(), sideBySide(o), w, want)
		sum := zeros(want)
		for _, head := range all {
			sum.Add(sum, dense(head.Y))
		}
		asProduct(c, what+"the parts of all heads", single(sum), sideBySide(o), w, want)
	}
}

// writtenDiversity returns 1 - 2/(H(H-1)) sum_h<g sum_ij A^h_ij A^g_ij / sqrt(sum A^h_ij^2 sum
// A^g_ij^2).
func writtenDiversity(c *Check, patterns []*mat.Dense) float64 {
	mean, heads := 0.0, float64(len(patterns))
	for h, p := range patterns {
		for _, q := range patterns[:h] {
			pq, pp, qq := 0.0, 0.0, 0.0
			for n, x := range Flat(p) {
				y := Flat(q)[n]
				pq += x * y
				pp += x * x
				qq += y * y
			}
			mean += pq / math.Sqrt(pp*qq) / c.Factor("pairs of heads", heads*(heads-1)/2)
		}
	}
	return 1 - c.Sign("mean cosine", mean)
}

func headDiversity(c *Check) {
	for _, heads := range []int{2, 3, 8} {
		var patterns []*mat.Dense
		for range heads {
			patterns = append(patterns, gibbs.SoftmaxRows(c.Normal(4, 5), 1))
		}
		d := nn.Diversity(patterns)
		c.Near(fmt.Sprintf("%d heads", heads), d, writtenDiversity(c, patterns), 1e-14)
		c.True("not below 0, not above 1", d >= 0 && d <= 1)
		same := []*mat.Dense{patterns[0], patterns[0], patterns[0]}
		c.Near("heads alike", nn.Diversity(same), 0, 1e-15)
	}
	first, second := Rows([]float64{1, 0, 0}, []float64{0, 1, 0}), Rows([]float64{0, 1, 0}, []float64{0, 0, 1})
	c.Near("one key each, and never the same", nn.Diversity([]*mat.Dense{first, second}), 1, 0)
	c.Near("a single head", nn.Diversity([]*mat.Dense{first}), 0, 0)
	c.Erratum("E-33", "diversity of a single head", "0: there is no pair of heads that could differ", "0/0 = NaN")
}

func headDiversityAsked(c *Check, a bridge.Attention) {
	var got, want []*mat.Dense
	var off []float64 // of each pattern, as a part of its norm
	for range 4 {
		q, k, v := normals(c, 5, 4), normals(c, 7, 4), normals(c, 7, 2)
		w := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantWeights}}).Weights
		p, _ := writtenSoftmax(c, writtenScores(c, q, k), nil)
		c.Tolerable("A", w, p, 0)
		got, want, off = append(got, w.X), append(want, p), append(off, mat.Norm(w.Tol, 2)/mat.Norm(p, 2))
	}
	worst := 0.0
	// A cosine changes by at most the changes of both vectors and of their norms.
	for h, x := range off {
		for _, y := range off[:h] {
			worst = max(worst, 2*(x+y))
		}
	}
	c.Near("diversity", nn.Diversity(got), writtenDiversity(c, want), worst+1e-15)
	for h, e := range nn.HeadEntropies(got) {
		c.Near(fmt.Sprintf("mean entropy of head %d", h), e, stat.Mean(Flat(entropyOf(want[h])), nil), 1e-5)
	}
}

func selfAttention(c *Check) {
	const n, dim, heads, d = 5, 6, 3, 2
	x, wo := c.Normal(n, dim), c.Normal(dim, dim)
	var wq, wk, wv, w []mat.Matrix
	var o []*mat.Dense
	for h := range heads {
		wq, wk, wv = append(wq, c.Normal(dim, d)), append(wk, c.Normal(dim, d)), append(wv, c.Normal(dim, d))
		w = append(w, wo.Slice(h*d, h*d+d, 0, dim))
		q, k, v := projected(c, x, wq[h]), projected(c, x, wk[h]), projected(c, x, wv[h])
		s, _, out := written(c, q, k, v, nil)
		o = append(o, out)
		form := writtenForm(c, x, times(wq[h], wk[h].T()), x)
		form.Scale(1/math.Sqrt(d), form)
		c.NearMat(fmt.Sprintf("head %d: S is a bilinear form of X with itself, of matrix W_Q W_K^T / sqrt(d)", h), s, form, 1e-12)
	}
	q, k, v := tensor.MultiHeadProject(x, tensor.Stack(wq...)), tensor.MultiHeadProject(x, tensor.Stack(wk...)), tensor.MultiHeadProject(x, tensor.Stack(wv...))
	s := tensor.MultiHeadScores(q, k, 1/math.Sqrt(d))
	var a []mat.Matrix
	for h := range heads {
		a = append(a, gibbs.SoftmaxRows(s.Sub(h).Dense(), 1))
	}
	y := tensor.MultiHeadCombine(tensor.MultiHeadOutput(tensor.Stack(a...), v), tensor.Stack(w...))
	c.NearMat("Y", y, joined(c, o, wo), 1e-12)
}

func selfAttentionAsked(c *Check, a bridge.Attention) {
	for _, keyHeads := range sharing {
		for _, mask := range []struct {
			name string
			mask attn.Mask
			show func(i, j int) bool
		}{{"all keys", attn.Full(), nil}, {"causal", attn.Causal(), causal}} {
			l := attentionLayer(c, 8, queryHeads, keyHeads, true)
			l.Mask = mask.mask
			x := normals(c, 2*7, 8)
			y := planned(c, l, c.On(a), 2, 7, 8).Forward(single(x))
			want, _ := newTwin(c, nil, l.Params()).attention("a", x, x, heading{queryHeads, keyHeads, 2, mask.show})
			nearLargest(c, fmt.Sprintf("Y, %d key heads, %s", keyHeads, mask.name), dense(y), want, 0, layerBound)
		}
	}
}

func parameterCount(c *Check) {
	four := c.Factor("4", 4)
	for _, s := range []struct {
		dim, heads int
		printed    string
	}{{64, 8, "16384"}, {512, 8, "1048576"}, {64, 1, "16384"}, {64, 64, "16384"}} {
		d, head := float64(s.dim), float64(s.dim/s.heads)
		count := float64(nn.CountAttention(s.dim, s.heads, s.heads, false, true))
		what := fmt.Sprintf("d_model = %d, %d heads", s.dim, s.heads)
		c.Printed(what, s.printed, count)
		c.Near(what+": H heads of 3 d_model d_k, and H d_v d_model of W_O", float64(s.heads)*(3*d*head+head*d), count, 0)
		c.Near(what+": 4 d_model^2", four*d*d, count, 0)
		c.Near(what+", with biases 4 d_model more", four*d, float64(nn.CountAttention(s.dim, s.heads, s.heads, true, true))-count, 0)
	}
	for _, bias := range []bool{false, true} {
		for _, keyHeads := range []int{8, 2, 1} {
			l := attentionLayer(c, 64, 8, keyHeads, bias)
			c.Near(fmt.Sprintf("a layer with %d key heads, biases %v", keyHeads, bias), float64(nn.Count(l.Params())),
				float64(nn.CountAttention(64, 8, keyHeads, bias, true)), 0)
		}
	}
}

// rank returns the number of singular values above 1e-12 times the largest.
func rank(m mat.Matrix) (n int) {
	var s mat.SVD
	if !s.Factorize(m, mat.SVDNone) {
		return -1
	}
	values := s.Values(nil) // the largest first
	for _, v := range values {
		if v > 1e-12*values[0] {
			n++
		}
	}
	return n
}

func headSubspace(c *Check) {
	const n, dim, heads, d = 20, 12, 3, 4
	for range 10 {
		x, w := c.Normal(n, dim), c.Normal(dim, dim)
		for h := range heads {
			wh := mat.DenseCopyOf(w.Slice(0, dim, h*d, h*d+d))
			if c.Flip("W_Q^h alone") {
				wh = w
			}
			q := times(x, wh)
			c.Within(fmt.Sprintf("rank of Q of head %d", h), float64(rank(q)), d)
			// The part of another x that the columns of W_Q^h do not span: the residual of a
			// least-squares fit by them.
			z := c.Normal(dim, 1)
			var by mat.Dense
			c.Must(by.Solve(wh, z))
			var rest mat.Dense
			rest.Sub(z, times(wh, &by))
			c.Within("the query of what is orthogonal to W_Q^h", largestOf(times(rest.T(), wh)), 1e-12)
			c.True("which is not 0 itself", mat.Norm(&rest, 2) > 1e-3)
			unseen := &rest
			if c.Flip("the orthogonal part alone") {
				unseen = z
			}
			moved := mat.DenseCopyOf(x)
			for i := range n {
				for b := range dim {
					moved.Set(i, b, x.At(i, b)+unseen.At(b, 0))
				}
			}
			c.NearMat("Q, with that added to every row of X", times(moved, wh), q, 1e-12)
		}
		c.Near("rank of all heads together", float64(rank(times(x, w))), dim, 0)
		c.Within("rank of W_Q^h W_K^hT, the form of a head", float64(rank(times(w.Slice(0, dim, 0, d), c.Normal(d, dim)))), d)
	}
}

func crossAttentionAsked(c *Check, a bridge.Attention) {
	const nq, nk, dim, n = 6, 10, 32, 4
	on := c.On(a)
	for _, memory := range []int{0, nk} {
		l := attentionLayer(c, dim, n, n, true)
		x, dy := normals(c, nq, dim), normals(c, nq, dim)
		m, keys, what := x, nq, "self-attention: "
		if l.Cross = memory > 0; l.Cross {
			m, keys, what = normals(c, nk, dim), nk, "cross-attention: "
			on.Memory = nn.NewParam("memory", nk, dim)
			on.Memory.W = single(m)
		}
		p := planned(c, l, on, 1, nq, dim).(*nn.AttentionPass)
		y := p.Forward(single(x))
		t := newTwin(c, c, l.Params())
		want, back := t.attention("a", x, m, heading{n, n, 1, nil})
		nearLargest(c, what+"Y", dense(y), want, 0, layerBound)
		c.True(what+"Y has n_q rows of d_model", y.Rows == nq && y.Cols == dim)
		for _, head := range taken(c, p, 0) {
			r, k := head.Weights.Dims()
			c.True(what+"A is n_q by n_k", r == nq && k == keys)
		}
		got := p.Backward(single(dy))
		dx, dm := back(dy)
		if memory == 0 {
			dx = plus(dx, dm)
		}
		nearGradients(c, l.Params(), got, t, dx)
		if l.Cross {
			nearLargest(c, what+"gradient by what keys and values are of", dense(on.Memory.Grad), dm, 0, layerBound)
		}
	}
}

func lessonHeadsAsked(c *Check, a bridge.Attention) {
	const n, dim, heads = 10, 64, 8
	l := attentionLayer(c, dim, heads, heads, false)
	x := normals(c, n, dim)
	p := planned(c, l, c.On(a), 1, n, dim)
	y := p.Forward(single(x))
	c.True("the output is 10 by 64", y.Rows == n && y.Cols == dim)
	all := taken(c, p, 0)
	c.True("there are 8 heads", len(all) == heads)
	var o []*mat.Dense
	for h, head := range all {
		wq, wk, wv, _ := l.HeadWeights(h)
		_, w, out := written(c, projected(c, x, dense(wq)), projected(c, x, dense(wk)), projected(c, x, dense(wv)), nil)
		o = append(o, out)
		r, k := head.Weights.Dims()
		c.True("weights of a head are 10 by 10", r == n && k == n)
		nearLargest(c, fmt.Sprintf("weights of head %d", h), head.Weights, w, 0, layerBound)
	}
	nearLargest(c, "Concat(head_1 ... head_8) W^O", dense(y), joined(c, o, dense(l.Out.W.W)), 0, layerBound)
}

func lessonCount(c *Check) {
	const d = 64
	single, many := c.Factor("3", 3)*d*d, c.Factor("4", 4)*d*d
	without, with := nn.CountAttention(d, 1, 1, false, false), nn.CountAttention(d, 8, 8, false, true)
	c.Printed("one head without W^O, eight with it", "12288 16384", float64(without), float64(with))
	c.Near("3 d^2", single, float64(without), 0)
	c.Near("4 d^2", many, float64(with), 0)
	c.Near("one head with W^O is as many", many, float64(nn.CountAttention(d, 1, 1, false, true)), 0)
	c.Refutes("E-20", "parameters of a single head with its W^O", "12288", float64(nn.CountAttention(d, 1, 1, false, true)))
}

func cacheCost(c *Check) {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 4096, HeadsQ: 8, HeadsKV: 2, Dim: 64, DimV: 32, Mask: attn.Causal(), Lengths: true}
	var t, bytes, flop, again []float64
	for n := 256; n <= p.SeqKV; n *= 2 {
		step := p.Count(&attn.Args{Q: attn.Tensor{S: 1}, K: attn.Tensor{S: p.SeqKV}, KLen: []int32{int32(n)}})
		c.Near("bytes of a step: t rows of keys and values, and a row of queries and of outputs",
			c.Factor("bytes of a number", 4)*float64(n*p.HeadsKV*(p.Dim+p.DimV)+p.HeadsQ*(p.Dim+p.DimV)), float64(step.Bytes), 0)
		whole := p
		whole.SeqQ, whole.SeqKV, whole.Lengths = n, n, false
		t, bytes, flop, again = append(t, float64(n)), append(bytes, float64(step.Bytes)), append(flop, float64(step.Flop)), append(again, float64(whole.Count(nil).Flop))
	}
	if c.Flip("cache") {
		flop = again
	}
	c.Near("bytes of a step grow as t to the power", growth(t, bytes), 1, .15)
	c.Near("operations of a step grow as t to the power", growth(t, flop), 1, .15)
	c.Near("without a cache, as t to the power", growth(t, again), 2, .15)

	on := c.On(bridge.Attention{})
	for _, layers := range []int{1, 3} {
		on.Caches = &nn.Caches{Capacity: 32}
		stack, err := nn.NewStack("b", nn.Config{Layers: layers, Dim: 16, Heads: 4, KVHeads: 2, Mask: attn.Causal()}, c.Rand)
		c.Must(err)
		planned(c, stack, on, 1, 4, 16)
		const rowBytes = 4 * 2 * 8 // 8 numbers of keys, as many of values
		c.Near(fmt.Sprintf("bytes that %d layers keep of 32 rows", layers), float64(on.Caches.Bytes()), c.Factor("layers", float64(layers))*32*rowBytes, 0)
	}
}

// fed returns the output of a layer with caches for the rows of x. The calls have the given numbers
// of rows; the last number repeats until all rows are done.
func fed(c *Check, p nn.Pass, caches *nn.Caches, x *mat.Dense, calls ...int) *mat.Dense {
	rows, dim := x.Dims()
	got := mat.NewDense(rows, dim, nil)
	for from, call := 0, 0; from < rows; call++ {
		n := min(calls[min(call, len(calls)-1)], rows-from)
		in := mat.NewDense(n, dim, nil)
		for i := range n {
			in.SetRow(i, x.RawRowView(c.Index("row t", from+i, rows)))
		}
		if c.Flip("what was kept") {
			caches.Truncate(0)
		}
		got.Slice(from, from+n, 0, dim).(*mat.Dense).Copy(dense(p.Forward(single(in))))
		from += n
	}
	c.True("all rows are kept", caches.Len() == rows)
	return got
}

func cacheAsked(c *Check, a bridge.Attention) {
	const n, dim = 24, 16
	on, x := c.On(a), normals(c, n, dim)
	stack, err := nn.NewStack("b", nn.Config{Layers: 2, Dim: dim, Heads: 4, KVHeads: 2, Act: nn.ReLU, Bias: true, Mask: attn.Causal()}, c.Rand)
	c.Must(err)
	shiftBiases(c, stack.Params())
	want := dense(planned(c, stack, on, 1, n, dim).Forward(single(x)))
	cached := func(page, seq int, calls ...int) *mat.Dense {
		on.Caches = &nn.Caches{Capacity: 32, Page: page}
		return fed(c, planned(c, stack, on, 1, seq, dim), on.Caches, x, calls...)
	}
	for _, page := range []int{0, 8} {
		what := map[int]string{0: "one cache: ", 8: "pages of 8: "}[page]
		nearLargest(c, what+"token by token, against one causal pass", cached(page, 1, 1), want, 0, 2*layerBound)
		nearLargest(c, what+"10 rows, 7 rows, and token by token", cached(page, 10, 10, 7, 1), want, 0, 2*layerBound)
		// Calls of two rows or more run through one plan. The number of rows in a call does not
		// change the bits of a row.
		c.NearMat(what+"two rows at a time, against all at once through the same plan", cached(page, n, 2), cached(page, n, n), 0)
	}
}

// lessonGate returns x and W_g of the lesson.
func lessonGate() (x, w *mat.Dense) {
	return Rows([]float64{1, -1}), Rows([]float64{.5, 1, -1, 0}, []float64{0, .5, 1, -.5})
}

func mixture(c *Check) {
	x, w := lessonGate()
	logits := projected(c, x, w)
	c.NearAll("x W_g", Flat(logits), []float64{.5, .5, -2, .5}, 0)
	all, _ := writtenSoftmax(c, logits, nil)
	c.Printed("G", ".32445569 .32445569 .02663294 .32445569", Flat(all)...)
	for _, renormalise := range []bool{false, true} {
		e := &nn.Experts{Top: 2, Renormalise: renormalise}
		got, chosen, weights := make([]float64, 4), make([]int, 2), make([]float64, 2)
		e.Route(single(logits).Row(0), got, chosen, weights)
		c.NearAll("G of the router", got, Flat(all), 1e-15)
		c.True("of three that are equally good, those of the lowest index", chosen[0] == 0 && chosen[1] == 1)
		if sum := weights[0] + weights[1]; renormalise {
			c.Near("renormalised, the gates that are kept add up to", sum, 1, 1e-15)
		} else {
			c.Refutes("E-36", "sum of the gates that are kept, when they are not renormalised", "1.00", sum)
		}
	}
	c.Erratum("E-36", "how a gate is trained", "through the values of the gates that are kept, which have derivatives", "straight-through estimators")
	for _, e := range []nn.Experts{{Top: 1}, {Top: 2}, {Top: 3, Renormalise: true}, {Top: 4}, {Top: 2, StraightThrough: true}} {
		someExperts(c, e)
	}
	balance(c)
}

// gates returns the gate of each expert for a row, and G. Experts that are not among the Top
// largest have gate 0. The gates may be renormalised.
func gates(c *Check, e *nn.Experts, logits []float64) (g, soft []float64) {
	all, _ := writtenSoftmax(c, Rows(logits), nil)
	soft = Flat(all)
	g = make([]float64, len(soft))
	kept := 0.0
	for range e.Top {
		best := -1
		for i, x := range soft {
			if g[i] == 0 && (best < 0 || x > soft[best]) {
				best = i
			}
		}
		g[best] = soft[best]
		kept += soft[best]
	}
	if e.Renormalise != c.Flip("renormalised") {
		for i := range g {
			g[i] /= kept
		}
	}
	return g, soft
}

// someExperts checks a mixture of linear experts, and its gradients, against explicit sums.
func someExperts(c *Check, like nn.Experts) {
	const rows, dim, out, n = 12, 5, 3, 4
	e, err := nn.NewExperts("e", dim, n, like.Top, func(i int) nn.Layer {
		l := nn.NewLinear(fmt.Sprint("e", i), dim, out, true, c.Rand)
		shiftBiases(c, l.Params())
		return l
	}, c.Rand)
	c.Must(err)
	e.Renormalise, e.StraightThrough = like.Renormalise, like.StraightThrough
	what := fmt.Sprintf("the %d best of %d, renormalised %v, straight through %v: ", e.Top, n, e.Renormalise, e.StraightThrough)
	x, dy := normals(c, rows, dim), normals(c, rows, out)
	t := newTwin(nil, nil, e.Params())
	value := func() float64 { // sum_re G_re sum_b dy_rb expert_e(x_r)_b
		sum, logits := 0.0, times(x, t.w["e.gate.w"])
		var made [n]*mat.Dense
		for i := range made {
			made[i], _ = t.linear(fmt.Sprint("e", i), x)
		}
		for r := range rows {
			g, _ := gates(c, e, logits.RawRowView(r))
			for i := range made {
				for b := range out {
					sum += g[i] * made[i].At(r, b) * dy.At(r, b)
				}
			}
		}
		return sum
	}
	pass := planned(c, e, c.On(bridge.Attention{}), 1, rows, dim).(*nn.ExpertsPass)
	y := pass.Forward(single(x))
	total := 0
	for _, load := range pass.Load {
		total += load
	}
	c.True(what+"every row sees as many experts as are to be kept", total == rows*e.Top)
	dx := dense(pass.Backward(single(dy)))
	if e.StraightThrough {
		straightThrough(c, what, e, t, x, dy, y)
		return
	}
	c.Near(what+"sum dy y", inner(dense(y), dy), value(), layerBound*rows*out)
	wantX := mat.NewDense(rows, dim, differences(x, value))
	nearLargest(c, what+"gradient by x", dx, wantX, 0, layerBound)
	for _, p := range e.Params() {
		want := mat.NewDense(p.W.Rows, p.W.Cols, differences(t.w[p.Name], value))
		nearLargest(c, what+"gradient by "+p.Name, dense(p.Grad), want, largestOf(wantX), layerBound)
	}
}

// straightThrough checks the variant whose gates are 1/Top in the forward pass. The backward pass
// treats them as if they had been G:
//
//	dlogit_e = G_e (dG_e - sum_f G_f dG_f)
//	dG_e = sum_b dy_b expert_e(x)_b, 0 where e is not chosen
func straightThrough(c *Check, what string, e *nn.Experts, t *twin, x, dy *mat.Dense, y nn.Mat) {
	rows, out := dy.Dims()
	n := len(e.Layers)
	experts := make([]*mat.Dense, n)
	for i := range experts {
		experts[i], _ = t.linear(fmt.Sprint("e", i), x)
	}
	logits, want, dlogits := times(x, t.w["e.gate.w"]), mat.NewDense(rows, out, nil), mat.NewDense(rows, n, nil)
	for r := range rows {
		g, soft := gates(c, &nn.Experts{Top: e.Top}, logits.RawRowView(r))
		dg, mean := make([]float64, n), 0.0
		for i := range n {
			if g[i] == 0 {
				continue
			}
			made := experts[i]
			for b := range out {
				want.Set(r, b, want.At(r, b)+made.At(r, b)/float64(e.Top))
				dg[i] += made.At(r, b) * dy.At(r, b)
			}
			mean += soft[i] * dg[i]
		}
		for i := range n {
			dlogits.Set(r, i, soft[i]*(dg[i]-c.Sign("sum G dG", mean)))
		}
	}
	nearLargest(c, what+"y", dense(y), want, 0, layerBound)
	nearLargest(c, what+"gradient by the gate", dense(e.Gate.W.Grad), times(x.T(), dlogits), 0, layerBound)
}

// balance checks the balance loss against its sum. It is 1 where all gates are equal, whichever
// experts are chosen.
func balance(c *Check) {
	const rows, dim, n, top = 16, 3, 4, 2
	e, err := nn.NewExperts("e", dim, n, top, func(i int) nn.Layer { return nn.NewLinear(fmt.Sprint("e", i), dim, dim, false, c.Rand) }, c.Rand)
	c.Must(err)
	x := normals(c, rows, dim)
	pass := planned(c, e, c.On(bridge.Attention{}), 1, rows, dim).(*nn.ExpertsPass)
	pass.Forward(single(x))
	logits, want := times(x, dense(e.Gate.W.W)), 0.0
	for i := range n {
		chosen, mean := 0.0, 0.0
		for r := range rows {
			g, soft := gates(c, e, logits.RawRowView(r))
			mean += soft[i] / rows
			if g[i] > 0 {
				chosen += 1. / (rows * top)
			}
		}
		want += c.Factor("experts", n) * chosen * mean
	}
	c.Near("loss of balance", pass.BalanceLoss, want, 1e-6)
	e.Gate.W.W.Clear()
	pass.Forward(single(x))
	c.Near("of gates that are alike", pass.BalanceLoss, 1, 1e-12)
	c.True("then the lowest indices have all rows", pass.Load[0] == rows && pass.Load[1] == rows && pass.Load[2]+pass.Load[3] == 0)
}

// nearDifferences checks the gradients of a twin against central differences of its forward pass.
// The function value returns the loss, and dx is its gradient by x.
func nearDifferences(c *Check, t *twin, x, dx *mat.Dense, value func() float64) {
	want := mat.NewDense(x.RawMatrix().Rows, x.RawMatrix().Cols, differences(x, value))
	nearLargest(c, "gradient by the input, by differences", dx, want, 0, gradientBound)
	for _, name := range slices.Sorted(maps.Keys(t.w)) {
		w, got := t.w[name], t.grad[name]
		if got == nil {
			got = zeros(w)
		}
		rows, cols := w.Dims()
		nearLargest(c, "gradient by "+name+", by differences", got, mat.NewDense(rows, cols, differences(w, value)), largestOf(want), gradientBound)
	}
}

func layerGradients(c *Check) {
	for _, keyHeads := range []int{4, 2} {
		l := attentionLayer(c, 8, 4, keyHeads, true)
		t := newTwin(nil, c, l.Params())
		x, dy := c.Normal(6, 8), c.Normal(6, 8)
		d := heading{4, keyHeads, 1, causal}
		_, back := t.selfAttention("a", x, d)
		nearDifferences(c, t, x, back(dy), func() float64 {
			y, _ := newTwinOf(t).selfAttention("a", x, d)
			return inner(y, dy)
		})
	}
}

// newTwinOf returns a twin with the weights of t that marks no ingredients.
func newTwinOf(t *twin) *twin {
	other := newTwin(nil, nil, nil)
	other.w = t.w
	return other
}

func layerGradientsAsked(c *Check, a bridge.Attention) {
	on := c.On(a)
	for _, keyHeads := range []int{4, 2} {
		l := attentionLayer(c, 8, 4, keyHeads, true)
		l.Mask = attn.Causal()
		x, dy := normals(c, 2*6, 8), normals(c, 2*6, 8)
		p := planned(c, l, on, 2, 6, 8)
		y := p.Forward(single(x))
		t := newTwin(c, c, l.Params())
		want, back := t.selfAttention("a", x, heading{4, keyHeads, 2, causal})
		nearLargest(c, "Y", dense(y), want, 0, layerBound)
		nearGradients(c, l.Params(), p.Backward(single(dy)), t, back(dy))
	}
}

// anEncoder returns the encoder block of the lesson's problem 5.
func anEncoder(c *Check, dim, hidden int) nn.Chain {
	block, err := nn.NewStack("b", nn.Config{Layers: 1, Dim: dim, Heads: 2, Hidden: hidden, PostNorm: true, Act: nn.ReLU, Bias: true}, c.Rand)
	c.Must(err)
	shiftBiases(c, block.Params())
	return block
}

func encoderBlock(c *Check) {
	const dim = 6
	t := newTwin(nil, c, anEncoder(c, dim, 7).Params())
	x, dy, d := c.Normal(8, dim), c.Normal(8, dim), heading{2, 2, 2, nil}
	_, back := t.encoder("b.0", x, d)
	nearDifferences(c, t, x, back(dy), func() float64 {
		y, _ := newTwinOf(t).encoder("b.0", x, d)
		return inner(y, dy)
	})
	if !c.holds() { // do not train with wrong gradients
		return
	}
	right, chance := firstToken(c)
	c.Within("held-out sequences told wrong, as a part", 1-right, .05)
	c.Note("held-out accuracy %.3f, of %.2f by chance", right, chance)
}

// firstToken trains an encoder, on some of all sequences, to name the first token of a sequence. It
// returns the fraction of the other sequences that it names right.
func firstToken(c *Check) (right, chance float64) {
	const tokens, seq, batch, steps, held = 3, 6, 32, 90, 128
	var all [][]int32 // every sequence there is
	for n := range 729 {
		var s []int32
		for range seq {
			s = append(s, int32(n%tokens))
			n /= tokens
		}
		all = append(all, s)
	}
	c.Rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	on := c.On(bridge.Attention{})
	m, err := nn.NewModel(tokens, seq, tokens, true, nn.Config{Layers: 1, Dim: 16, Heads: 2, Hidden: 32, PostNorm: true, Act: nn.ReLU, Bias: true}, c.Rand)
	c.Must(err)
	pass, err := m.Plan(on, batch, seq)
	c.Must(err)
	criterion, params := nn.NewCrossEntropy(on, batch, tokens), m.Params()
	adam := nn.NewAdam(params, 0)
	schedule := nn.Schedule{Rate: c.Sign("down the gradient", .01), Warmup: 10, Steps: steps}
	in, target := make([]int32, 0, batch*seq), make([]int32, batch)
	take := func(pick func(b int) []int32) {
		in = in[:0]
		for b := range batch {
			s := pick(b)
			in, target[b] = append(in, s...), s[0]
		}
	}
	for step := range int64(steps) {
		take(func(int) []int32 { return all[held+c.Rand.IntN(len(all)-held)] })
		nn.ClearGrads(params)
		_, _, dlogits := criterion.Loss(pass.Forward(in), target)
		pass.Backward(dlogits)
		nn.ClipGrads(params, 1)
		adam.Step(schedule.At(step))
	}
	total := 0
	for from := 0; from < held; from += batch {
		take(func(b int) []int32 { return all[from+b] })
		_, n, _ := criterion.Loss(pass.Forward(in), target)
		total += n
	}
	return float64(total) / held, 1. / tokens
}

func encoderBlockAsked(c *Check, a bridge.Attention) {
	const dim = 6
	block := anEncoder(c, dim, 7)
	x, dy := normals(c, 8, dim), normals(c, 8, dim)
	p := planned(c, block, c.On(a), 2, 4, dim)
	y := p.Forward(single(x))
	t := newTwin(c, c, block.Params())
	want, back := t.encoder("b.0", x, heading{2, 2, 2, nil})
	nearLargest(c, "y", dense(y), want, 0, layerBound)
	nearGradients(c, block.Params(), p.Backward(single(dy)), t, back(dy))
}

// glorotWeights checks that init_multihead_weights draws normal numbers of variance 2/(rows +
// columns).
func glorotWeights(c *Check) {
	const dim = 64
	l := attentionLayer(c, dim, 8, 8, false)
	want := math.Sqrt(c.Factor("2", 2) / (dim + dim))
	for _, p := range l.Params() {
		w := Flat(dense(p.W))
		mean, deviation := stat.MeanStdDev(w, nil)
		n := float64(len(w))
		c.Near("mean of "+p.Name, mean, 0, 4*want/math.Sqrt(n))
		c.Near("deviation of "+p.Name, deviation, want, 4*want/math.Sqrt(2*n))
	}
}

// libraryHeadsAsked checks the library's module multihead: multihead_attention with its mask and
// weights, multihead_attention_batched, decompose_multihead, head_diversity and
// head_attention_entropy.
func libraryHeadsAsked(c *Check, a bridge.Attention) {
	const batch, n, dim, heads = 3, 6, 8, 4
	l, on := attentionLayer(c, dim, heads, heads, true), c.On(a)
	l.Mask = attn.Causal()
	x := normals(c, batch*n, dim)
	together := planned(c, l, on, batch, n, dim)
	y := together.Forward(single(x))
	for b := range batch {
		p := planned(c, l, on, 1, n, dim)
		own := mat.DenseCopyOf(x.Slice(b*n, (b+1)*n, 0, dim))
		alone := p.Forward(single(own))
		c.NearMat("multihead_attention_batched: a sequence among others is that sequence alone", dense(y.Part(b*n, n, 0, dim)), dense(alone), 0)
		t := newTwin(c, nil, l.Params())
		want, _ := t.attention("a", own, own, heading{heads, heads, 1, causal})
		nearLargest(c, "multihead_attention", dense(alone), want, 0, layerBound)
		libraryParts(c, l, taken(c, together, b), dense(alone))
	}
}

// libraryParts checks the parts of a layer against its output.
func libraryParts(c *Check, l *nn.Attention, all []nn.Head, y *mat.Dense) {
	sum := zeros(y)
	sum.Apply(func(_, j int, _ float64) float64 { return float64(l.Out.B.W.Row(0)[j]) }, sum)
	var patterns []*mat.Dense
	for h, head := range all {
		_, w, o := written(c, dense(head.Q), dense(head.K), dense(head.V), causal)
		nearLargest(c, fmt.Sprintf("decompose_multihead: weights of head %d", h), head.Weights, w, 0, layerBound)
		nearLargest(c, fmt.Sprintf("decompose_multihead: output of head %d", h), dense(head.O), o, 0, layerBound)
		patterns = append(patterns, head.Weights)
		sum.Add(sum, dense(head.Y))
	}
	nearLargest(c, "decompose_multihead: the parts of the heads and the bias make the output", sum, y, 0, layerBound)
	c.Near("head_diversity", nn.Diversity(patterns), writtenDiversity(c, patterns), 1e-14)
	for h, e := range nn.HeadEntropies(patterns) {
		c.Near("head_attention_entropy", e, stat.Mean(Flat(entropyOf(patterns[h])), nil), 1e-14)
	}
}
