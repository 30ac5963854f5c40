package equations

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/positions"
	"attnlab/theory/scorers"
	"attnlab/theory/streaming"
)

// masksAndPositions returns the rows on masks and positions.
func masksAndPositions() []Row {
	return []Row{
		{
			ID: "T-42", Statement: "S'^ij = S^ij where j <= i, -inf elsewhere: a query does not see later keys",
			Check: causalWeights, Kernel: causalAnswers,
		},
		{ID: "D-causal", Statement: "S_ij = q_i.k_j/sqrt(d_k) if j <= i, -inf otherwise", Is: Alias, Of: []string{"T-42"}},
		{ID: "L-6.2", Statement: "GPT: the causal mask, lower triangular", Is: Alias, Of: []string{"T-42"}},
		{
			ID: "L-6.1", Statement: "BERT: a mask of ones is no mask",
			Check: openMask, Kernel: openMasks,
		},
		{
			ID: "M-masking", Statement: "masking: twelve functions, the pairs that each shows, and its picture",
			Check: libraryPictures, Kernel: libraryAnswers,
		},
		{
			ID: "L-4.1", Statement: "Attention(PX) = P Attention(X); Attention(Q, PK, PV) = Attention(Q, K, V)",
			Check: permuted, Kernel: permutedAnswers,
		},
		{
			ID: "L-4.2", Statement: "PE(pos, 2i) = sin(pos/10000^(2i/d)), PE(pos, 2i+1) = cos(pos/10000^(2i/d))",
			Check: sinusoids,
		},
		{
			ID: "L-P3.1", Statement: "w_i = 10000^(-2i/d), a wavelength of 2 pi/w_i positions",
			Check: frequencies,
		},
		{
			ID: "L-4.3", Statement: "PE(pos+k) = T_k PE(pos), T_k of blocks [[cos w_i k, sin w_i k], [-sin w_i k, cos w_i k]] on (sin, cos)",
			Check: shifts,
		},
		{
			ID: "L-P3.2", Statement: "PE(pos).PE(pos+x) = sum_i cos(w_i x), for any pos",
			Check: innerProducts,
		},
		{
			ID: "L-4.4",
			Statement: "R_m: (x, y) of pair i -> (x cos m t_i - y sin m t_i, x sin m t_i + y cos m t_i), t_i = 10000^(-2i/d); " +
				"(R_m q).(R_n k) is a function of m-n",
			Check: rotations, Kernel: rotatedAnswers,
		},
		{
			ID: "L-P3.3", Statement: "how much a score depends on the positions of two rows, besides their distance",
			Check: spreads,
		},
		{
			ID: "L-4.5", Statement: "softmax(q_i.k_j/sqrt(d) - m_h (i-j)), m_h = 2^(-8h/H)",
			Check: alibiSlopes, Kernel: slopedAnswers,
		},
		{
			ID: "T-44", Statement: "S^ij = Q^ia (K^ja + R^(i-j)a)/sqrt(d_k)",
			Check: relativeScores, Kernel: relativeAnswers,
		},
	}
}

// byIndex returns attention one index at a time, as the documents write it. The weights are A_ij =
// exp(s_ij) / sum_j exp(s_ij) over the keys that query i sees. The outputs are O_ib = sum_j A_ij
// V_jb, and LSE_i = log sum_j exp(s_ij). A query that sees no key has zeros, and LSE -Inf.
func byIndex(nq int, s func(i, j int) float64, sees func(i, j int) bool, v mat.Matrix) (weights, out, lse *mat.Dense) {
	nk, dv := v.Dims()
	weights, out, lse = mat.NewDense(nq, nk, nil), mat.NewDense(nq, dv, nil), mat.NewDense(nq, 1, nil)
	for i := range nq {
		top, z := math.Inf(-1), 0.0
		for j := range nk {
			if sees == nil || sees(i, j) {
				top = max(top, s(i, j))
			}
		}
		for j := range nk {
			if sees == nil || sees(i, j) {
				weights.Set(i, j, math.Exp(s(i, j)-top))
				z += weights.At(i, j)
			}
		}
		lse.Set(i, 0, top+math.Log(z))
		if z == 0 {
			continue
		}
		for j := range nk {
			if sees != nil && !sees(i, j) {
				continue
			}
			weights.Set(i, j, weights.At(i, j)/z)
			for b := range dv {
				out.Set(i, b, out.At(i, b)+weights.At(i, j)*v.At(j, b))
			}
		}
	}
	return weights, out, lse
}

// productScores returns the function scale sum_a q_ia k_ja.
func productScores(q, k mat.Matrix, scale float64) func(i, j int) float64 {
	return func(i, j int) float64 { return scale * floats.Dot(mat.Row(nil, i, q), mat.Row(nil, j, k)) }
}

// scoreGradient returns dS_ij = A_ij (dA_ij - sum_j A_ij dA_ij), with dA_ij = sum_b dO_ib V_jb.
func scoreGradient(weights, v, dO mat.Matrix) *mat.Dense {
	nq, nk := weights.Dims()
	dS := mat.NewDense(nq, nk, nil)
	for i := range nq {
		sum := 0.0
		for j := range nk {
			dS.Set(i, j, floats.Dot(mat.Row(nil, i, dO), mat.Row(nil, j, v)))
			sum += weights.At(i, j) * dS.At(i, j)
		}
		for j := range nk {
			dS.Set(i, j, weights.At(i, j)*(dS.At(i, j)-sum))
		}
	}
	return dS
}

// normal32 returns a matrix of normal numbers that are exact in float32.
func (c *Check) normal32(rows, columns int) *mat.Dense {
	return bridge.Float32(c.Normal(rows, columns))
}

// sameBits demands that two answers are the same to the bit.
func (c *Check) sameBits(what string, x, y *bridge.Answer) {
	c.NearMat(what+": O, bit by bit", x.O.X, y.O.X, 0)
	if x.LSE.X != nil {
		c.NearMat(what+": LSE, bit by bit", x.LSE.X, y.LSE.X, 0)
	}
}

func causalWeights(c *Check) {
	_, x, v := ex1() // self-attention of its keys
	after := 0
	if c.Flip("own key") {
		after = 1
	}
	past := func(i, j int) bool { return j <= i-after }
	a, o, _ := byIndex(3, productScores(x, x, c.Factor("scale", ex1Scale)), past, v)
	c.Printed("A", "1 0 0 .33023845 .66976155 0 .24825508 .24825508 .50348984", Flat(a)...)
	c.Printed("O", "2 0 .6604769 1.3395231 1 1", Flat(o)...)
	c.True("the first query has its own key alone, and no weight is on a later one", a.At(0, 0) == 1 && a.At(0, 1) == 0 && a.At(0, 2) == 0 && a.At(1, 2) == 0)
	causal := func(i, j int) bool { return j <= i }
	d := scorers.Attend(scorers.Dot{}, x, x, v, scorers.Options{Mask: causal})
	c.NearMat("A, of package scorers", d.Weights, a, 1e-15)
	got, _ := streaming.Attend(x, x, v, streaming.Options{Mask: causal, Block: 2})
	c.NearMat("O, by blocks", got, o, 1e-15)

	allowed := 1.0
	c.True("E-12: S + (1-M)(-inf) is NaN where M = 1", math.IsNaN(2+(1-allowed)*math.Inf(-1)))
	c.Erratum("E-12", "the masked score where M = 1", "S: a mask selects", "S + (1-M)(-inf), which is NaN: 0 times infinity")
}

func causalAnswers(c *Check, a bridge.Attention) {
	for _, n := range wideAndFew {
		causalAnswersOf(c, a, n)
	}
}

// wideAndFew are numbers of queries for which kernels may choose different loops: those for prefill
// and those for decode.
var wideAndFew = []int{20, 4}

func causalAnswersOf(c *Check, a bridge.Attention, n int) {
	const d, dv = 4, 3
	q, k, v := c.normal32(n, d), c.normal32(n, d), c.normal32(n, dv)
	call := bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Mask: attn.Causal(), Want: attn.WantLSE}}
	whole := c.Attend(a, call)
	scale := c.Factor("scale", 1/math.Sqrt(d))
	_, o, lse := byIndex(n, productScores(q, k, scale), func(i, j int) bool { return j <= i }, v)
	c.Tolerable("O", whole.O, o, 0)
	c.Tolerable("LSE", whole.LSE, lse, 0)

	// later rows change no bit of an earlier row
	next := 1
	if c.Flip("own key") {
		next = 0
	}
	same := true
	for i := range n {
		for _, other := range []float64{1, 1e6, math.NaN()} {
			changed := call
			changed.K, changed.V = mat.DenseCopyOf(k), mat.DenseCopyOf(v)
			for j := i + next; j < n; j++ {
				x := c.Vector(d + dv)
				floats.Scale(other, x)
				changed.K.SetRow(j, x[:d])
				changed.V.SetRow(j, x[d:])
			}
			ans := c.Attend(a, changed)
			same = same && slices.Equal(mat.Row(nil, i, ans.O.X), mat.Row(nil, i, whole.O.X)) && ans.LSE.X.At(i, 0) == whole.LSE.X.At(i, 0)
		}
	}
	c.True("keys after a query change no bit of its row, not even as NaN", same)

	// fewer queries than keys: the mask chooses the key that a query aligns with
	call.Q = c.normal32(3, d)
	for _, align := range []struct {
		mask attn.Mask
		own  int
	}{{attn.Causal(), n - 3}, {attn.CausalTopLeft(), 0}} {
		call.Problem.Mask = align.mask
		_, o, lse := byIndex(3, productScores(call.Q, k, scale), func(i, j int) bool { return j <= i+align.own }, v)
		ans := c.Attend(a, call)
		c.Tolerable(fmt.Sprintf("O of 3 queries and %d keys, %v", n, align.mask), ans.O, o, 0)
		c.Tolerable(fmt.Sprintf("LSE of 3 queries and %d keys, %v", n, align.mask), ans.LSE, lse, 0)
	}
}

func openMask(c *Check) {
	q, k, v := c.Normal(5, 4), c.Normal(7, 4), c.Normal(7, 3)
	ones := func(i, j int) bool { return !(c.Flip("one") && i == 2 && j == 3) }
	plain, lse := streaming.Attend(q, k, v, streaming.Options{})
	masked, maskedLSE := streaming.Attend(q, k, v, streaming.Options{Mask: ones})
	c.NearMat("O", masked, plain, 0)
	c.NearAll("LSE", maskedLSE, lse, 0)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: ones})
	c.NearMat("A, of package scorers", d.Weights, scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}).Weights, 0)
}

func openMasks(c *Check, a bridge.Attention) {
	for _, nq := range wideAndFew {
		openMasksOf(c, a, nq)
	}
}

func openMasksOf(c *Check, a bridge.Attention, nq int) {
	const nk, d, dv = 70, 4, 3 // more than a word of bits
	ones := func(i, j int) bool { return !(c.Flip("one") && i == 2 && j == 3) }
	var all []bool
	for i := range nq {
		for j := range nk {
			all = append(all, ones(i, j))
		}
	}
	allowed, err := attn.BoolMask(all, nq, nk)
	c.Must(err)
	call := bridge.Call{Q: c.normal32(nq, d), K: c.normal32(nk, d), V: c.normal32(nk, dv), Problem: attn.Problem{Want: attn.WantLSE}}
	plain := c.Attend(a, call)
	for _, m := range []struct {
		mask    attn.Mask
		allowed attn.Bits
	}{
		{attn.Full().With(attn.BoolBitmap), allowed},
		{attn.Full().With(attn.PackedBitmap), attn.Pack(nq, nk, ones)},
		{attn.Full().WithBlocks(4), attn.BlockSparse(nq, nk, 4, func(int, int) bool { return true })},
		{attn.Window(nk, nk), attn.Bits{}},
	} {
		call.Problem.Mask, call.Args.Allowed = m.mask, m.allowed
		c.sameBits(m.mask.String(), c.Attend(a, call), plain)
	}
}

// A libraryMask is a mask by one function of the library's module on masks, beside our own.
type libraryMask struct {
	name  string
	shows func(i, j int) bool // as the library has it

	mask    attn.Mask
	allowed attn.Bits
	pairs   int // that it shows
}

// libraryMasks returns the masks of n queries and keys, of which the first length are not padding.
// The marked ingredients are common mistakes.
func libraryMasks(c *Check, n, length int) []libraryMask {
	const window, side, stride, global = 4, 3, 3, 2
	own, wide, half := 0, window, window/2
	if c.Flip("own key") {
		own = 1
	}
	if c.Flip("window counts the query") {
		wide++
	}
	if c.Flip("half a window on each side") {
		half = window
	}
	strided := func(i, j int) bool { return i%stride == j%stride }
	if c.Flip("stride counts from the query") {
		strided = func(_, j int) bool { return j%stride == 0 }
	}
	block := side
	if c.Flip("side of a block") {
		block++
	}
	causal := func(i, j int) bool { return j <= i-own }
	local := func(i, j int) bool { return max(i-j, j-i) <= half }
	padding := func(i, j int) bool { return i < length && j < length }
	keep := make([]bool, n)
	all := make([]bool, n*n)
	for i := range n {
		keep[i] = i < length
		for j := range n {
			all[i*n+j] = padding(i, j)
		}
	}
	keys, err := attn.Padding([][]bool{keep})
	c.Must(err)
	pairs, err := attn.BoolMask(all, n, n)
	c.Must(err)
	var none attn.Bits
	full := attn.Full()
	// near returns the number of pairs of n rows that are within half a window.
	near := func(n int) int { return n*(2*(window/2)+1) - (window/2)*(window/2+1) }
	return []libraryMask{
		{"causal_mask", causal, attn.Causal(), none, n * (n + 1) / 2},
		{"causal_mask_with_window", func(i, j int) bool { return causal(i, j) && i-j < wide }, attn.Window(window-1, 0), none, n*window - window*(window-1)/2},
		{"padding_mask", func(_, j int) bool { return j < length }, full.With(attn.BoolBitmap), keys, n * length},
		{"attention_mask_from_padding", padding, full.With(attn.BoolBitmap), pairs, length * length},
		{"causal_padding_mask", func(i, j int) bool { return causal(i, j) && padding(i, j) }, attn.Causal().With(attn.BoolBitmap), pairs, length * (length + 1) / 2},
		{"local_attention_mask", local, full.With(attn.PackedBitmap), attn.Local(n, window), near(n)},
		{"local_attention_mask, as a band", local, attn.Window(window/2, window/2), none, near(n)},
		{"strided_attention_mask", strided, full.With(attn.PackedBitmap), attn.Strided(n, stride), n * n / stride},
		{"block_sparse_mask", func(i, j int) bool { return i/block == j/block }, full.WithBlocks(side), attn.BlockDiagonal(n, side), n / side * side * side},
		{
			"global_local_mask", func(i, j int) bool { return i < global || j < global || local(i, j) }, full.With(attn.PackedBitmap),
			attn.GlobalLocal(n, global, window), n*n - (n-global)*(n-global) + near(n-global),
		},
	}
}

func libraryPictures(c *Check) {
	const n, length = 12, 8 // stride and side divide n
	for _, m := range libraryMasks(c, n, length) {
		var want strings.Builder
		for i := range n {
			for j := range n {
				if m.shows(i, j) {
					want.WriteByte('#')
				} else {
					want.WriteByte('.')
				}
			}
			want.WriteByte('\n')
		}
		p := attn.Problem{Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 1, HeadsKV: 1, Mask: m.mask}
		args := &attn.Args{Q: attn.Tensor{S: n}, K: attn.Tensor{S: n}, Allowed: m.allowed}
		c.True(m.name+" looks the same", p.Picture(args, 0, 0) == want.String())
		shown := strings.Count(want.String(), "#")
		c.Near(m.name+": pairs shown", float64(shown), float64(m.pairs), 0)
		c.Near(m.name+": pairs counted", float64(p.Count(args).Pairs), float64(shown), 0)
	}

	// apply_mask writes -1e9 and mask_to_additive adds it. Both agree with selecting keys where a
	// key is visible; where none is, they do not mask at all.
	mask := func(i, j int) bool { return i < length && j < length }
	q, k, v := c.Normal(n, 4), c.Normal(n, 4), c.Normal(n, 3)
	raw := productScores(q, k, .5)
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: mask})
	filled, _, _ := byIndex(n, func(i, j int) float64 {
		if mask(i, j) {
			return raw(i, j)
		}
		return -1e9
	}, nil, v)
	added, _, _ := byIndex(n, func(i, j int) float64 {
		if mask(i, j) {
			return raw(i, j)
		}
		return raw(i, j) + math.Inf(-1)
	}, nil, v)
	// some returns the rows of queries that see a key.
	some := func(m *mat.Dense) mat.Matrix { return m.Slice(0, length, 0, n) }
	c.NearMat("mask_to_additive with -inf, where there is a key to see", some(d.Weights), some(added), 1e-15)
	c.NearMat("apply_mask, where there is a key to see", some(d.Weights), some(filled), 1e-15)
	c.Near("apply_mask's weights of a row that sees nothing", floats.Sum(filled.RawRowView(n-1)), 1, 1e-15)
	c.Near("ours", floats.Sum(d.Weights.RawRowView(n-1)), 0, 0)
}

func libraryAnswers(c *Check, a bridge.Attention) {
	const n, length, d, dv = 12, 8, 4, 3
	q, k, v := c.normal32(n, d), c.normal32(n, d), c.normal32(n, dv)
	for _, m := range libraryMasks(c, n, length) {
		ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Mask: m.mask, Want: attn.WantLSE}, Args: attn.Args{Allowed: m.allowed}})
		_, o, lse := byIndex(n, productScores(q, k, .5), m.shows, v)
		c.Tolerable(m.name+": O", ans.O, o, 0)
		c.Tolerable(m.name+": LSE", ans.LSE, lse, 0)

		additive := mat.NewDense(n, n, nil) // mask_to_additive
		additive.Apply(func(i, j int, _ float64) float64 {
			if m.shows(i, j) {
				return 0
			}
			return math.Inf(-1)
		}, additive)
		added := c.Attend(a, bridge.Call{
			Q: q, K: k, V: v, Problem: attn.Problem{Score: attn.Score{Terms: attn.TermBias}, Want: attn.WantLSE},
			Args: attn.Args{Terms: attn.Operands{Bias: bridge.Tensor(additive)}},
		})
		c.Tolerable(m.name+", added: O", added.O, o, 0)
		c.Tolerable(m.name+", added: LSE", added.LSE, lse, 0)
	}
}

// shuffled returns the rows of a matrix in another order: row i is row order[i] of m.
func shuffled(m mat.Matrix, order []int) *mat.Dense {
	to := mat.DenseCopyOf(m)
	for i, from := range order {
		to.SetRow(i, mat.Row(nil, from, m))
	}
	return to
}

func permuted(c *Check) {
	const n, d = 7, 4
	self := func(x mat.Matrix) *mat.Dense {
		o, _ := streaming.Attend(x, x, x, streaming.Options{Block: 3})
		return o
	}
	for range 20 {
		x, order := c.Normal(n, d), c.Rand.Perm(n)
		_, o, _ := byIndex(n, productScores(x, x, c.Factor("scale", 1/math.Sqrt(d))), nil, x)
		want := shuffled(o, order)
		if c.Flip("equivariant") {
			want = o
		}
		c.NearMat("Attention(PX)", self(shuffled(x, order)), want, 1e-14)

		q, k, v := c.Normal(5, d), c.Normal(n, d), c.Normal(n, 3)
		pv := shuffled(v, order)
		if c.Flip("values go with their keys") {
			pv = v
		}
		got, lse := streaming.Attend(q, shuffled(k, order), pv, streaming.Options{})
		plain, plainLSE := streaming.Attend(q, k, v, streaming.Options{})
		c.NearMat("Attention(Q, PK, PV)", got, plain, 1e-14)
		c.NearAll("LSE", lse, plainLSE, 1e-14)
	}
	x := c.Normal(n, d)
	order := []int{1, 2, 3, 4, 5, 6, 0}
	var off mat.Dense
	off.Sub(self(shuffled(x, order)), self(x))
	c.True("E-11: Attention(PX) is not Attention(X)", mat.Max(&off) > .1)
	c.Erratum("E-11", "Attention under a permutation of its input",
		"equivariant: rows of the output follow the input's; invariant to permuting keys together with values", "permutation-invariant")
}

func permutedAnswers(c *Check, a bridge.Attention) {
	for _, nq := range wideAndFew {
		permutedAnswersOf(c, a, nq)
	}
}

func permutedAnswersOf(c *Check, a bridge.Attention, nq int) {
	const nk, d, dv = 9, 4, 3
	q, k, v := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, dv)
	call := bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantLSE}}
	plain := c.Attend(a, call)
	_, o, lse := byIndex(nq, productScores(q, k, c.Factor("scale", 1/math.Sqrt(d))), nil, v)

	order, rows := make([]int, nq), make([]int, nq) // each query one place on
	for i := range nq {
		order[i] = (i + 1) % nq
		if rows[i] = order[i]; c.Flip("equivariant") {
			rows[i] = i
		}
	}
	call.Q = shuffled(q, order)
	moved := c.Attend(a, call)
	c.Tolerable("Attention(PQ, K, V)", moved.O, shuffled(o, rows), 0)
	c.NearMat("Attention(PQ, K, V): rows move and change no bit", moved.O.X, shuffled(plain.O.X, rows), 0)

	order = c.Rand.Perm(nk)
	call = bridge.Call{Q: q, K: shuffled(k, order), V: shuffled(v, order), Problem: call.Problem}
	if c.Flip("values go with their keys") {
		call.V = v
	}
	moved = c.Attend(a, call)
	c.Tolerable("Attention(Q, PK, PV)", moved.O, o, 0)
	c.Tolerable("LSE", moved.LSE, lse, 0)
}

func sinusoids(c *Check) {
	base := c.Factor("base", 10000)
	pe := func(pos, column, d int) float64 {
		i := column / 2
		angle := float64(pos) / math.Pow(base, 2*float64(i)/float64(d))
		if (column%2 == 0) != c.Flip("sine first") {
			return math.Sin(angle)
		}
		return math.Cos(angle)
	}
	var third []float64
	for column := range 8 {
		third = append(third, pe(3, column, 8))
	}
	c.Printed("PE(3), d = 8", ".14112001 -.9899925 .29552021 .95533649 .0299955 .99955003 .003 .9999955", third...)
	for d := 1; d <= 9; d++ {
		want := mat.NewDense(60, d, nil)
		want.Apply(func(pos, column int, _ float64) float64 { return pe(pos, column, d) }, want)
		c.NearMat(fmt.Sprintf("PE, d = %d", d), positions.Sinusoid{Dim: d}.Table(60), want, 1e-13)
	}
	// The listing fills columns 0, 2, ... and 1, 3, ... with one number for each frequency.
	const odd = 5
	w := positions.Frequencies(odd, 0)
	c.True("E-34: of 5 columns, 3 are even, as there are frequencies, and 2 odd", len(w) == 3 && odd-len(w) == 2)
	c.Erratum("E-34", "columns of an odd d", "(d+1)/2 sines and (d-1)/2 cosines", "(d+1)/2 of both, which do not fit: the listing fails")
}

func frequencies(c *Check) {
	const d = 128
	base := c.Factor("base", 10000)
	var w, lengths []float64
	for i := range d / 2 {
		w = append(w, math.Exp(-math.Log(base)*2*float64(i)/d))
		lengths = append(lengths, c.Factor("two pi", 2*math.Pi)/w[i])
	}
	c.Printed("w_0", "1", w[0])
	c.Printed("w_63", "1.15478e-4", w[63])
	ones := slices.Repeat([]float64{1}, d/2)
	c.NearAll("w_i of package positions, relative", floats.DivTo(make([]float64, d/2), positions.Frequencies(d, 0), w), ones, 1e-14)
	c.NearAll("wavelengths of package positions, relative", floats.DivTo(make([]float64, d/2), positions.Wavelengths(d, 0), lengths), ones, 1e-14)
	ratio := 0.0
	for i := 1; i < d/2; i++ {
		ratio = larger(ratio, math.Abs(w[i]/w[i-1]-w[1]))
	}
	c.Within("each is the same part of the one before", ratio, 1e-14)
	for _, i := range []int{0, 1, 16, 32, 48, 63} {
		c.Note("d = 128, i = %d: w = %.6g, wavelength %.6g positions", i, w[i], lengths[i])
	}
}

func shifts(c *Check) {
	const d, most = 8, 1000
	s := positions.Sinusoid{Dim: d}
	w := positions.Frequencies(d, 0)
	table := s.Table(most + 50)
	before := mat.NewDense(50, d, nil) // positions -50 to -1
	for pos := range 50 {
		before.SetRow(pos, s.At(float64(pos-50)))
	}
	at := func(pos int) []float64 {
		if pos < 0 {
			return before.RawRowView(pos + 50)
		}
		return table.RawRowView(pos)
	}
	identity := mat.NewDiagDense(d, slices.Repeat([]float64{1}, d))
	worst, off, square := 0.0, 0.0, 0.0
	for k := -50; k <= 50; k++ {
		t := mat.NewDense(d, d, nil)
		for i := range w {
			sin, cos := math.Sincos(w[i] * float64(k))
			t.Set(2*i, 2*i, cos)
			t.Set(2*i, 2*i+1, sin)
			t.Set(2*i+1, 2*i, c.Sign("minus", -sin))
			t.Set(2*i+1, 2*i+1, cos)
		}
		var moved, product mat.Dense
		moved.Mul(table.Slice(0, most, 0, d), t.T())
		for pos := range most {
			worst = larger(worst, floats.Distance(moved.RawRowView(pos), at(pos+k), math.Inf(1)))
		}
		got, err := s.Shift(float64(k))
		c.Must(err)
		off = larger(off, floats.Distance(Flat(got), Flat(t), math.Inf(1)))
		product.Mul(got, got.T())
		square = larger(square, floats.Distance(Flat(&product), Flat(identity), math.Inf(1)))
	}
	c.Within("T_k PE(pos) - PE(pos+k), pos < 1000, k = -50..50", worst, 1e-12)
	c.Within("T_k of package positions", off, 1e-15)
	c.Within("T_k T_k^T - 1", square, 1e-15)
	_, err := positions.Sinusoid{Dim: 5}.Shift(1)
	c.True("a sine without its cosine has no shift", err != nil)
}

func innerProducts(c *Check) {
	const d = 8
	s := positions.Sinusoid{Dim: d}
	var curve []float64
	for distance := range 5 {
		sum := 0.0
		for i := range d / 2 {
			sum += math.Cos(float64(distance) * math.Pow(c.Factor("base", 10000), -2*float64(i)/d))
		}
		curve = append(curve, sum)
		for _, pos := range []int{0, 1, 17, 500, 999} {
			x, y := s.At(float64(pos)), s.At(float64(pos+distance))
			product := 0.0
			for i := 0; i < d; i += 2 {
				product += x[i]*y[i] + c.Sign("plus", x[i+1]*y[i+1])
			}
			c.Near(fmt.Sprintf("PE(%d).PE(%d)", pos, pos+distance), product, sum, 2e-12)
		}
		c.Near(fmt.Sprintf("Product(%d)", distance), s.Product(float64(distance)), sum, 1e-14)
		c.Near("and on the other side", s.Product(-float64(distance)), sum, 1e-14)
	}
	c.Printed("distance 0 to 4", "4 3.535256 2.563718 1.964890 2.266609", curve...)
}

func rotations(c *Check) {
	base := c.Factor("base", 10000)
	turn := func(x []float64, m float64) []float64 {
		to := make([]float64, len(x))
		for i := range len(x) / 2 {
			sin, cos := math.Sincos(m * math.Pow(base, -2*float64(i)/float64(len(x))))
			to[2*i] = x[2*i]*cos + c.Sign("minus", -x[2*i+1]*sin)
			to[2*i+1] = x[2*i]*sin + x[2*i+1]*cos
		}
		return to
	}
	c.Printed("[1,0,1,0] at 2", "-.41614684 .90929743 .99980001 .01999867", turn([]float64{1, 0, 1, 0}, 2)...)
	rope := positions.Rope{Dim: 4}
	q, k := []float64{1, 2, 3, 4}, []float64{4, 3, 2, 1}
	for _, at := range [][2]int{{3, 1}, {7, 5}, {0, -2}} {
		m, n := float64(at[0]), float64(at[1])
		what := fmt.Sprintf("(R_%g q).(R_%g k)", m, n)
		product := floats.Dot(turn(q, m), turn(k, n))
		c.Printed(what, "1.19005123", product)
		c.Near(what+", of package positions", rope.Score(q, k, at[0], at[1]), product, 1e-13)
	}
	c.Erratum("E-35", "angles, and what the listing verifies",
		"t_i = 10000^(-2i/d); equal m-n give equal products, here 1.19005123 three times; beyond its trained length a model with plain rotations gets worse",
		"t_i is not defined; the listing checks nothing; better extrapolation")
	for range 20 {
		x, m := c.Vector(6), float64(c.Rand.IntN(2000)-1000)
		rope := positions.Rope{Dim: 6}
		got := rope.Turn(x, m)
		c.NearAll("R_m x", got, turn(x, m), 1e-12)
		c.Near("a turn keeps the norm", floats.Norm(got, 2), floats.Norm(x, 2), 1e-14)
		c.NearAll("R_-m R_m x", rope.Turn(got, -m), x, 1e-14)
		var matrix, back mat.VecDense
		matrix.MulVec(rope.Matrix(m), mat.NewVecDense(6, x))
		c.NearMat("R_m as a matrix", &matrix, mat.NewVecDense(6, got), 1e-14)
		back.MulVec(rope.Matrix(m).T(), &matrix) // the backward pass of a rotation
		c.NearMat("R_m^T R_m x", &back, mat.NewVecDense(6, x), 1e-14)
	}
	r := rope.Matrix(2)
	var twice, once mat.Dense
	twice.Mul(r, r)
	once.Mul(r.T(), r)
	identity := mat.NewDiagDense(4, []float64{1, 1, 1, 1})
	c.NearMat("R^T R", &once, identity, 1e-15)
	c.True("E-40: R R is not 1", !mat.EqualApprox(&twice, identity, .1) && !mat.EqualApprox(r, r.T(), .1))
	c.Erratum("E-40", "what undoes a rotation", "its transpose, which is the rotation by -m", "the rotation is its own transpose")
	rotate32(c)
	c.Note("the eight RotaryEmbedding cases of ONNX are read by package attn/cases: benchrun verify --cases puts them to every kernel")
}

// rotate32 checks attn.Rotate and its tables against the rotation in float64. Two products and a
// sum of rounded cosines and sines have an error of about three roundings of |x|+|y|.
func rotate32(c *Check) {
	const rows, d, bound = 50, 8, 3.5 / (1 << 24)
	x := c.normal32(rows, d)
	for _, rope := range []positions.Rope{
		{Dim: d},
		{Dim: d, Halves: true},
		{Dim: d, Turned: 4, Base: 500},
		{Dim: d, Turned: 6, Halves: true},
	} {
		turned, base := rope.Turned, rope.Base
		if turned == 0 {
			turned = d
		}
		if base == 0 {
			base = positions.DefaultBase
		}
		cos, sin := attn.RopeTables(base, rows, turned)
		cos64, sin64 := rope.Tables(rows)
		to := attn.New(attn.BHSD, 1, rows, 1, d)
		c.Must(attn.Rotate(rope.Kind(), to, bridge.Tensor(x), cos, sin, nil))
		want := rope.Rows(x, 0)
		worst, table := 0.0, 0.0
		for m := range rows {
			for i := range turned / 2 {
				a, b := 2*i, 2*i+1
				if rope.Halves {
					a, b = i, i+turned/2
				}
				size := math.Abs(x.At(m, a)) + math.Abs(x.At(m, b))
				for _, e := range []int{a, b} {
					worst = larger(worst, math.Abs(float64(to.Row(0, m, 0)[e])-want.At(m, e))/(bound*size))
				}
				table = larger(table, math.Abs(float64(cos.Row(0, m, 0)[i])-cos64.At(m, i)))
				table = larger(table, math.Abs(float64(sin.Row(0, m, 0)[i])-sin64.At(m, i)))
			}
			for e := turned; e < d; e++ {
				if float64(to.Row(0, m, 0)[e]) != x.At(m, e) || want.At(m, e) != x.At(m, e) {
					c.Fail("element %d of %d turns, and %d are to", e, d, turned)
				}
			}
		}
		c.Within(fmt.Sprintf("attn.RopeTables of %+v, rounded to nearest", rope), table, 0x1p-25)
		c.Within(fmt.Sprintf("attn.Rotate of %+v, in units of what float32 may leave", rope), worst, 1)
	}
}

func rotatedAnswers(c *Check, a bridge.Attention) {
	const d, dv, most = 6, 3, 40
	for _, rope := range []positions.Rope{{Dim: d}, {Dim: d, Halves: true}, {Dim: d, Turned: 4}, {Dim: d, Turned: 4, Halves: true, Base: 100}} {
		nq := wideAndFew[0]
		if rope.Halves {
			nq = wideAndFew[1]
		}
		nk := nq + 2
		q, k, v, dO := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, dv), c.normal32(nq, dv)
		turned, base := d, 10000.0
		if rope.Turned != 0 {
			turned = rope.Turned
		}
		if rope.Base != 0 {
			base = rope.Base
		}
		cos, sin := attn.RopeTables(base, most, turned)
		ans := c.Attend(a, bridge.Call{
			Q: q, K: k, V: v, DO: dO, Problem: attn.Problem{Score: attn.Score{Rope: rope.Kind()}},
			Args: attn.Args{Terms: attn.Operands{Cos: cos, Sin: sin}},
		})
		// rotated by the given tables
		turn := func(x []float64, m int, sign float64) []float64 {
			to := slices.Clone(x)
			for i := range turned / 2 {
				e, f := 2*i, 2*i+1
				if rope.Halves {
					e, f = i, i+turned/2
				}
				cs, sn := float64(cos.Row(0, m, 0)[i]), sign*float64(sin.Row(0, m, 0)[i])
				to[e] = x[e]*cs + c.Sign("minus", -x[f]*sn)
				to[f] = x[e]*sn + x[f]*cs
			}
			return to
		}
		own := nk - nq // the last query aligns with the last key
		if c.Flip("queries stand at the end") {
			own = 0
		}
		rq, rk := mat.NewDense(nq, d, nil), mat.NewDense(nk, d, nil)
		for i := range nq {
			rq.SetRow(i, turn(mat.Row(nil, i, q), own+i, 1))
		}
		for j := range nk {
			rk.SetRow(j, turn(mat.Row(nil, j, k), j, 1))
		}
		scale := c.Factor("scale", 1/math.Sqrt(d))
		weights, o, lse := byIndex(nq, productScores(rq, rk, scale), nil, v)
		c.Tolerable("O", ans.O, o, 0)
		c.Tolerable("LSE", ans.LSE, lse, 0)

		dS := scoreGradient(weights, v, dO)
		back := -1.0
		if c.Flip("gradients turn back") {
			back = 1
		}
		dq, dk := mat.NewDense(nq, d, nil), mat.NewDense(nk, d, nil)
		for i := range nq {
			for j := range nk {
				floats.AddScaled(dq.RawRowView(i), scale*dS.At(i, j), rk.RawRowView(j))
				floats.AddScaled(dk.RawRowView(j), scale*dS.At(i, j), rq.RawRowView(i))
			}
		}
		for i := range nq {
			dq.SetRow(i, turn(dq.RawRowView(i), own+i, back))
		}
		for j := range nk {
			dk.SetRow(j, turn(dk.RawRowView(j), j, back))
		}
		c.Tolerable("dQ", ans.DQ, dq, 0)
		c.Tolerable("dK", ans.DK, dk, 0)
	}
}

func spreads(c *Check) {
	const d = 16
	q, k := c.Vector(d), c.Vector(d)
	norms := floats.Norm(q, 2) * floats.Norm(k, 2)
	var at []int
	for s := range 500 {
		at = append(at, s)
	}
	// a key rotated the other way would make the score a function of m+n
	rotated := func(q, k []float64, m, n int) float64 {
		sum := 0.0
		for i := range d / 2 {
			w := math.Pow(10000, -2*float64(i)/d)
			sin, cos := math.Sincos(float64(m) * w)
			ksin, kcos := math.Sincos(float64(n) * w)
			ksin = c.Sign("keys turn as queries do", ksin)
			x, y := q[2*i]*cos-q[2*i+1]*sin, q[2*i]*sin+q[2*i+1]*cos
			u, v := k[2*i]*kcos-k[2*i+1]*ksin, k[2*i]*ksin+k[2*i+1]*kcos
			sum += x*u + y*v
		}
		return sum
	}
	s, rope := positions.Sinusoid{Dim: d}, positions.Rope{Dim: d}
	added := func(q, k []float64, m, n int) float64 {
		x, y := s.At(float64(m)), s.At(float64(n))
		return floats.Dot(q, k) + floats.Dot(q, y) + c.Sign("where the query stands", floats.Dot(x, k)) + floats.Dot(x, y)
	}
	sloped := positions.ALiBiScore(.25)
	for _, distance := range []int{0, 1, 5, 17} {
		c.Within("RoPE: spread", positions.Spread(rotated, q, k, distance, at), 1e-12*norms)
		c.Within("RoPE of package positions: spread", positions.Spread(rope.Score, q, k, distance, at), 1e-12*norms)
		c.Near("RoPE: score", rope.Score(q, k, 100+distance, 100), rotated(q, k, 100+distance, 100), 1e-12*norms)
		c.Within("ALiBi: spread", positions.Spread(sloped, q, k, distance, at), 0)
		c.Near("sinusoid: score", s.Score(q, k, 100+distance, 100), added(q, k, 100+distance, 100), 1e-12*norms)
		wide := positions.Spread(s.Score, q, k, distance, at)
		c.True("sinusoids added to contents do not keep relative positions", wide > .1*norms)
		alone := make([]float64, d)
		c.Within("sinusoids without contents: spread", positions.Spread(s.Score, alone, alone, distance, at), 1e-12*norms)
		c.Note("distance %d, 500 shifts, spread over |q||k|: RoPE %.1e, ALiBi 0, sinusoids added to contents %.2f", distance,
			positions.Spread(rope.Score, q, k, distance, at)/norms, wide/norms)
	}
}

func alibiSlopes(c *Check) {
	slope := func(h, heads int) float64 { return math.Exp2(-c.Factor("eight", 8) * float64(h) / float64(heads)) }
	var eight, twelve []float64
	for h := 1; h <= 8; h++ {
		eight = append(eight, slope(h, 8))
		c.Near(fmt.Sprintf("m_%d of 8", h), eight[h-1], math.Exp2(-float64(h)), 0)
	}
	twelve = slices.Clone(eight)
	for h := 1; h <= 7; h += 2 { // every other one of 16
		twelve = append(twelve, slope(h, 16))
	}
	c.Printed("H = 12 adds", ".70710678 .35355339 .1767767 .08838835", twelve[8:]...)
	for _, want := range [][]float64{eight, twelve} {
		for h, got := range attn.ALiBiSlopes(len(want)) {
			c.Near(fmt.Sprintf("attn.ALiBiSlopes(%d)", len(want)), float64(got)/want[h], 1, 0x1p-24)
		}
	}
	const m, i = .5, 4 // the fourth query, and keys 1 to 4, with equal scores
	weights, _, _ := byIndex(1, func(_, j int) float64 {
		return c.Sign("minus", -m*float64(i-(j+1)))
	}, nil, mat.NewDense(4, 1, []float64{0, 0, 0, 0}))
	c.Printed("weights of keys 1 to 4", ".10153632 .1674051 .27600434 .45505423", Flat(weights)...)
	bias := positions.ALiBi(m, 4, 4)
	for row := range 4 {
		for j := range row + 1 {
			c.Near("ALiBi of package positions", bias.At(row, j), -m*float64(row-j), 0)
		}
	}
	c.Refutes("E-02", "the weight of the nearest of four keys with equal scores, m = .5", ".101536", weights.At(0, 3))
	c.Erratum("E-02", "the bias of query i",
		"m [-(i-1), ..., -1, 0], m_h = 2^(-8h/H) for H a power of two", "m [0, -1, ..., -(i-1)], which favours the oldest key; m is not stated")
}

func slopedAnswers(c *Check, a bridge.Attention) {
	const n, d, dv = 22, 4, 3
	for _, shape := range []struct {
		nq   int
		mask attn.Mask
	}{{n, attn.Causal()}, {20, attn.Full()}, {4, attn.Causal()}} {
		q, k, v := c.normal32(shape.nq, d), c.normal32(n, d), c.normal32(n, dv)
		for _, slope := range attn.ALiBiSlopes(2) {
			ans := c.Attend(a, bridge.Call{
				Q: q, K: k, V: v, Problem: attn.Problem{Mask: shape.mask, Score: attn.Score{Terms: attn.TermALiBi}, Want: attn.WantLSE},
				Args: attn.Args{Terms: attn.Operands{Slopes: []float32{slope}}},
			})
			product := productScores(q, k, c.Factor("scale", 1/math.Sqrt(d)))
			own := n - shape.nq
			_, o, lse := byIndex(shape.nq, func(i, j int) float64 {
				return product(i, j) + c.Sign("minus", -float64(slope)*math.Abs(float64(own+i-j)))
			}, func(i, j int) bool { return !shape.mask.Band || j <= own+i }, v)
			c.Tolerable("O", ans.O, o, 0)
			c.Tolerable("LSE", ans.LSE, lse, 0)
		}
	}
	// equal scores: with the identity for V, the output is the weights
	identity := mat.DenseCopyOf(mat.NewDiagDense(4, []float64{1, 1, 1, 1}))
	ans := c.Attend(a, bridge.Call{
		Q: mat.NewDense(1, 1, nil), K: mat.NewDense(4, 1, nil), V: identity, Problem: attn.Problem{Score: attn.Score{Terms: attn.TermALiBi}},
		Args: attn.Args{Terms: attn.Operands{Slopes: []float32{.5}}},
	})
	c.Tolerable("weights of equal scores", ans.O, mat.NewDense(1, 4, []float64{.10153632, .1674051, .27600434, .45505423}), 5e-9)
}

func relativeScores(c *Check) {
	const nq, nk = 2, 3
	q, k, v := ex1()
	r := func(x float64) []float64 { return []float64{.5 * x, -.5 * x} } // R^x
	scale := c.Factor("scale", ex1Scale)
	score := func(i, j int) float64 {
		row, sum := r(c.Sign("i-j", float64(i-j))), 0.0
		for a := range 2 {
			sum += q.At(i, a) * (k.At(j, a) + row[a])
		}
		return sum * scale
	}
	s := mat.NewDense(nq, nk, nil)
	s.Apply(func(i, j int, _ float64) float64 { return score(i, j) }, s)
	weights, o, _ := byIndex(nq, score, nil, v)
	c.Printed("S", ".70710678 -.35355339 0 -.35355339 .70710678 1.06066017", Flat(s)...)
	c.Printed("O", "1.35544735 .64455265 .76401042 1.23598958", Flat(o)...)

	table := mat.NewDense(nq+nk-1, 2, nil) // from keys before to keys after
	distances := map[int]bool{}
	for i := range nq {
		for j := range nk {
			distances[i-j] = true
			table.SetRow(positions.TableRow(i, j, nq, nk, 0), r(float64(i-j)))
		}
	}
	var got mat.Dense
	got.Mul(q, k.T())
	got.Add(&got, positions.Relative(q, table, nk, 0))
	got.Scale(ex1Scale, &got)
	c.NearMat("S, of package positions", &got, s, 1e-15)

	// sizes that the tutorial leaves open
	c.Near("E-38: distances there are", float64(len(distances)), nq+nk-1, 0)
	c.Erratum("E-38", "rows of R", "n_q+n_k-1, or 2c+1 if distances beyond c share a row; a second table may add to the values", "R^(i-j), of no stated size")
	clipped := c.Normal(3, 2) // distances -1, 0, 1
	near := positions.Relative(q, clipped, nk, 1)
	values := positions.RelativeValues(weights, clipped, 1)
	for i := range nq {
		want := make([]float64, 2)
		for j := range nk {
			x := c.Index("row of the table", min(max(j-(nk-nq+i), -1), 1)+1, 3)
			c.Near("clipped", near.At(i, j), floats.Dot(mat.Row(nil, i, q), clipped.RawRowView(x)), 1e-15)
			floats.AddScaled(want, weights.At(i, j), clipped.RawRowView(x))
		}
		c.NearAll("a table of values", values.RawRowView(i), want, 1e-15)
	}
}

func relativeAnswers(c *Check, a bridge.Attention) {
	const d, dv = 4, 2
	for x, clip := range []int{0, 2} {
		nq := wideAndFew[x]
		nk := nq + 2
		q, k, v, dO := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, dv), c.normal32(nq, dv)
		rows := nq + nk - 1
		if clip > 0 {
			rows = 2*clip + 1
		}
		table := c.normal32(rows, d)
		ans := c.Attend(a, bridge.Call{
			Q: q, K: k, V: v, DO: dO, Problem: attn.Problem{Score: attn.Score{Terms: attn.TermRelative}},
			Args: attn.Args{Terms: attn.Operands{Relative: bridge.Tensor(table), RelativeClip: clip}},
		})
		row := func(i, j int) int {
			x := j - i + nq - 1
			if clip > 0 {
				x = min(max(j-i-(nk-nq), -clip), clip) + clip
			}
			return c.Index("row of the table", x, rows)
		}
		scale := c.Factor("scale", 1/math.Sqrt(d))
		weights, o, lse := byIndex(nq, func(i, j int) float64 {
			sum := 0.0
			for x := range d {
				sum += q.At(i, x) * (k.At(j, x) + table.At(row(i, j), x))
			}
			return sum * scale
		}, nil, v)
		c.Tolerable("O", ans.O, o, 0)
		c.Tolerable("LSE", ans.LSE, lse, 0)
		dS, dR := scoreGradient(weights, v, dO), mat.NewDense(rows, d, nil)
		for i := range nq {
			for j := range nk {
				floats.AddScaled(dR.RawRowView(row(i, j)), scale*dS.At(i, j), q.RawRowView(i))
			}
		}
		c.Tolerable("dR", ans.DRelative, dR, 0)
	}
}
