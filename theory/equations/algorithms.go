package equations

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/theory/bridge"
	"attnlab/theory/gibbs"
	"attnlab/theory/positions"
	"attnlab/theory/streaming"
)

// algorithms returns the rows on algorithms, their cost, and the library's remaining modules.
func algorithms() []Row {
	return []Row{
		{
			ID: "P-67,68", Statement: "m' = max(m, max_j s_j), l' = l exp(m-m') + sum_j exp(s_j-m'), o' = o exp(m-m') + sum_j exp(s_j-m') v_j",
			Check: onlineSoftmax, Kernel: mergedAnswers,
		},
		{
			ID: "P-8.1", Statement: "Flash: Q, K, V in blocks of B, O(n) memory without an n x n matrix",
			Check: blockwise, Kernel: blockwiseAnswers,
		},
		{
			ID: "L-5.2", Statement: "Flash: online softmax, tiles, and a backward pass that recomputes the weights from Q, K, V, O and LSE",
			Check: recomputed, Kernel: recomputedAnswers,
		},
		{
			ID: "L-5.1", Statement: "time O(n^2 d), space O(n^2)",
			Check: counted, Kernel: scratchGrowth,
		},
		{
			ID: "L-P4", Statement: "standard and linear attention at n = 100, 500, 1000, 2000, 5000: time, memory, difference",
			Check: complexity, Kernel: complexityMeasured,
		},
		{
			ID: "M-promised",
			Statement: "what the library's pages promise and its code lacks: efficient, positional, split_heads, combine_heads, softmax_temperature, " +
				"log_partition_function",
			Check: promised, Kernel: promisedAnswers,
		},
		{
			ID: "M-backend", Statement: "backend: which implementation runs",
			Check: backends,
		},
		{
			ID: "P-10.3", Statement: "backend selection: get_backend, is_mlx_available", Is: Prose,
			Of: []string{"kernels.All", "kernels.ByName", "kernels.Best", "attn.Needs"},
		},
		{
			ID: "P-10.1", Statement: "library layout: attention, bilinear, gradients, softmax, multihead, masking, hopfield, backend", Is: Prose,
			Of: []string{"package theory"},
		},
		{ID: "M-utils", Statement: "utils: eight plots and tables", Is: Prose, Of: []string{"package theory/figures"}},
		{ID: "L-3.2", Statement: "each head attends in its own subspace", Is: Prose, Of: []string{"package theory"}},
		{ID: "L-ref", Statement: "references: Vaswani, Devlin, Brown, Su, Press, Dao", Is: Prose, Of: []string{"package theory"}},
	}
}

// growth returns the exponent of y in n: the slope of the line through (log n, log y).
func growth(n, y []float64) float64 {
	logs := func(x []float64) []float64 {
		to := slices.Clone(x)
		for i := range to {
			to[i] = math.Log(to[i])
		}
		return to
	}
	_, slope := stat.LinearRegression(logs(n), logs(y), nil, false)
	return slope
}

// seesAll is the mask that shows every key.
func seesAll(int, int) bool { return true }

func onlineSoftmax(c *Check) {
	const n, dv = 37, 3
	worst, apart, split := 0.0, 0.0, 0.0
	for range 100 {
		s, v := c.Vector(n), c.Normal(n, dv)
		floats.Scale(5, s)
		_, want, lse := byIndex(1, func(_, j int) float64 { return s[j] }, nil, v)

		// the paper's listing, block by block
		m, l, o := math.Inf(-1), 0.0, make([]float64, dv)
		x := streaming.NewState(dv)
		for from := 0; from < n; {
			to := min(from+1+c.Rand.IntN(9), n)
			top := m
			for j := from; j < to; j++ {
				top = max(top, s[j])
			}
			keep := 0.0 // before the first block there is nothing to keep
			if from > 0 {
				keep = math.Exp(c.Sign("m-m'", m-top))
			}
			l *= keep
			if !c.Flip("outputs are rescaled too") {
				floats.Scale(keep, o)
			}
			for j := from; j < to; j++ {
				w := math.Exp(s[j] - top)
				l += w
				floats.AddScaled(o, w, v.RawRowView(j))
			}
			m = top
			x.Push(s[from:to], v.Slice(from, to, 0, dv))
			apart = larger(apart, gap(x.Max, m))
			apart = larger(apart, gap(x.Sum, l)/l)
			apart = larger(apart, floats.Distance(x.Acc, o, math.Inf(1))/l)
			from = to
		}
		for b := range dv {
			worst = larger(worst, gap(o[b]/l, want.At(0, b)))
		}
		worst = larger(worst, gap(m+math.Log(l), lse.At(0, 0)))

		// any order of the splits
		cut := []int{0, c.Rand.IntN(n), c.Rand.IntN(n), n}
		slices.Sort(cut)
		var parts [3]streaming.State
		for i := range parts {
			parts[i] = streaming.NewState(dv)
			for j := cut[i]; j < cut[i+1]; j++ {
				parts[i].Push(s[j:j+1], v.Slice(j, j+1, 0, dv))
			}
		}
		left := streaming.Merge(streaming.Merge(parts[0], parts[1]), parts[2])
		right := streaming.Merge(parts[0], streaming.Merge(parts[2], parts[1]))
		for _, y := range []streaming.State{left, right} {
			split = larger(split, floats.Distance(y.Output(), want.RawRowView(0), math.Inf(1)))
			split = larger(split, gap(y.LSE(), lse.At(0, 0)))
		}
	}
	c.Within("block after block against all at once", worst, 1e-13)
	c.Within("State after each block: m, l and o, over l", apart, 1e-13)
	c.Within("Merge of parts in either order against all at once", split, 1e-13)

	// E-15: splits without a visible key
	inf := math.Inf(1)
	hidden := streaming.NewState(dv)
	hidden.Push([]float64{-inf, -inf}, Rows([]float64{1, inf, 3}, []float64{math.NaN(), 5, 6}))
	c.True("a hidden block leaves a state without keys", math.IsInf(hidden.Max, -1) && hidden.Sum == 0)
	c.NearAll("the output of no keys", hidden.Output(), make([]float64, dv), 0)
	c.Near("the LSE of no keys", hidden.LSE(), -inf, 0)
	seen := streaming.NewState(dv)
	seen.Push(c.Vector(4), c.Normal(4, dv))
	for _, y := range []streaming.State{streaming.Merge(seen, hidden), streaming.Merge(hidden, seen)} {
		c.True("a hidden block is no block, bit by bit", y.Max == seen.Max && y.Sum == seen.Sum && slices.Equal(y.Acc, seen.Acc))
	}
	m, l, o := -inf, 0.0, 0.0
	c.True("E-15: without guards exp(m-m') and o/l are NaN", math.IsNaN(math.Exp(m-max(m, -inf))) && math.IsNaN(o/l))
	c.Erratum("E-15", "the first block all hidden, and all of them",
		"a part without a visible key has no weight; no visible key at all gives output 0, LSE -inf", "exp(-inf+inf) and 0/0, which are NaN")
}

// mergedAnswers checks that answers over splits of the keys, merged by their LSE, are the answer
// over all keys.
func mergedAnswers(c *Check, a bridge.Attention) {
	const nk, d, dv = 50, 4, 3
	for _, nq := range wideAndFew {
		q, k, v := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, dv)
		ask := func(from, to int) *bridge.Answer {
			return c.Attend(a, bridge.Call{
				Q: q, K: mat.DenseCopyOf(k.Slice(from, to, 0, d)), V: mat.DenseCopyOf(v.Slice(from, to, 0, dv)), Problem: attn.Problem{Want: attn.WantLSE},
			})
		}
		_, o, lse := byIndex(nq, productScores(q, k, c.Factor("scale", 1/math.Sqrt(d))), nil, v)
		whole := ask(0, nk)
		c.Tolerable("O of all keys", whole.O, o, 0)
		c.Tolerable("LSE of all keys", whole.LSE, lse, 0)
		for _, cut := range []int{1, 13, 32} {
			x, y := ask(0, cut), ask(cut, nk)
			out := bridge.Values{X: mat.NewDense(nq, dv, nil), Tol: mat.NewDense(nq, dv, nil)}
			sum := bridge.Values{X: mat.NewDense(nq, 1, nil), Tol: mat.NewDense(nq, 1, nil)}
			for i := range nq {
				lx, ly := x.LSE.X.At(i, 0), y.LSE.X.At(i, 0)
				m := math.Max(lx, ly)
				wx, wy := math.Exp(lx-m), math.Exp(c.Sign("m-m'", ly-m))
				wx, wy = wx/(wx+wy), wy/(wx+wy)
				sum.X.Set(i, 0, m+math.Log(math.Exp(lx-m)+math.Exp(ly-m)))
				sum.Tol.Set(i, 0, wx*x.LSE.Tol.At(i, 0)+wy*y.LSE.Tol.At(i, 0))
				for b := range dv {
					ox, oy := x.O.X.At(i, b), y.O.X.At(i, b)
					out.X.Set(i, b, wx*ox+wy*oy)
					// weights bounds the error of the shares.
					weights := wx * wy * (x.LSE.Tol.At(i, 0) + y.LSE.Tol.At(i, 0))
					out.Tol.Set(i, b, wx*x.O.Tol.At(i, b)+wy*y.O.Tol.At(i, b)+weights*math.Abs(ox-oy))
				}
			}
			c.Tolerable(fmt.Sprintf("O of keys to %d and from there, joined", cut), out, o, 1e-12)
			c.Tolerable(fmt.Sprintf("LSE of keys to %d and from there, joined", cut), sum, lse, 1e-12)
		}
	}
}

func blockwise(c *Check) {
	const d, dv = 4, 3
	for _, n := range []int{1, 2, 5, 13, 67} {
		q, k, v := c.Normal(n, d), c.Normal(n, d), c.Normal(n, dv)
		for _, m := range []struct {
			name string
			sees func(i, j int) bool
		}{{"", seesAll}, {", causal", func(i, j int) bool { return j <= i }}} {
			_, o, lse := byIndex(n, productScores(q, k, c.Factor("scale", 1/math.Sqrt(d))), m.sees, v)
			for _, block := range []int{1, 3, 16, n, 2 * n} {
				got, gotLSE := streaming.Attend(q, k, v, streaming.Options{Block: block, Mask: m.sees})
				c.NearMat(fmt.Sprintf("O, n = %d in blocks of %d%s", n, block, m.name), got, o, 1e-13)
				c.NearAll(fmt.Sprintf("LSE, n = %d in blocks of %d%s", n, block, m.name), gotLSE, Flat(lse), 1e-13)
			}
		}
	}
	c.Erratum("E-37", "memory of attention by blocks", "n d_v numbers of output, n of LSE, and a scratch that does not grow", "O(n)")
}

// doublings returns 1024, 2048, ..., 32768.
func doublings() (n []float64) {
	for x := 1024.0; x <= 32768; x *= 2 {
		n = append(n, x)
	}
	return n
}

// squareProblem returns a problem of one head with as many queries as keys.
func squareProblem(op attn.Op, n, d int) attn.Problem {
	return attn.Problem{Op: op, Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 1, HeadsKV: 1, Dim: d, DimV: d}
}

// scratchBytes returns the size of the scratch that a plan would allocate for a problem.
func (c *Check) scratchBytes(k attn.Kernel, p attn.Problem) float64 {
	bytes, err := k.Check(p, 1)
	c.Must(err)
	return max(float64(bytes), 1) // log 0 is not finite
}

// kindOf returns which of the documents' two kinds of attention a kernel computes, and whether it
// stores the matrix of all scores. A kernel that computes neither kind leaves the row unclaimed.
func kindOf(c *Check, k attn.Kernel) (op attn.Op, matrix bool) {
	algo, isa := k.Name()
	does := attn.OpsOf(k)
	switch {
	case slices.Contains(does, attn.OpSoftmax):
	case slices.Contains(does, attn.OpLinear):
		op = attn.OpLinear
	default:
		c.Must(fmt.Errorf("%w: %s/%s does neither softmax nor linear attention", attn.ErrUnsupported, algo, isa))
	}
	return op, algo == "naive" || algo == "tiled"
}

func blockwiseAnswers(c *Check, a bridge.Attention) {
	const d, dv = 8, 5
	if k := a.Kernel(); k != nil {
		scratchOfLong(c, k)
		if op, _ := kindOf(c, k); op == attn.OpLinear {
			return
		}
	}
	// These shapes are not multiples of a block.
	for _, shape := range [][2]int{{1, 1}, {37, 67}, {3, 300}, {64, 257}} {
		nq, nk := shape[0], shape[1]
		q, k, v := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, dv)
		_, o, lse := byIndex(nq, productScores(q, k, c.Factor("scale", 1/math.Sqrt(d))), nil, v)
		ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantLSE}})
		c.Tolerable(fmt.Sprintf("O of %d queries and %d keys", nq, nk), ans.O, o, 0)
		c.Tolerable(fmt.Sprintf("LSE of %d queries and %d keys", nq, nk), ans.LSE, lse, 0)
	}
}

// scratchOfLong checks how the scratch of a kernel grows for long sequences. A term in n^2 shows
// when twice the length takes more than twice the bytes.
func scratchOfLong(c *Check, k attn.Kernel) {
	const d = 64
	op, matrix := kindOf(c, k)
	for _, want := range []attn.Want{0, attn.WantGrad} {
		var bytes []float64
		for _, n := range doublings() {
			p := squareProblem(op, int(n), d)
			p.Want = want
			bytes = append(bytes, c.scratchBytes(k, p))
		}
		what := map[attn.Want]string{0: "forward", attn.WantGrad: "with gradients"}[want]
		for i, n := range doublings() {
			held := bytes[i]
			if matrix {
				c.True(fmt.Sprintf("%s, n = %g: the matrix of scores is held", what, n), held >= c.Factor("bytes of a score", 4)*n*n)
				continue
			}
			if c.Flip("no term in n^2") {
				held += 4 * n * n
			}
			c.Within(fmt.Sprintf("%s, n = %g: scratch, over 64 n d bytes", what, n), held/(64*n*d), 1)
			if i > 0 {
				c.Within(fmt.Sprintf("%s, n = %g: scratch, over twice that of n = %g", what, n, n/2), held/(2*bytes[i-1]), 1)
			}
		}
		c.Note("scratch %s, n = 1024 to 32768, d = %d: %.0f to %.0f bytes, n^%.2f", what, d, bytes[0], bytes[len(bytes)-1], growth(doublings(), bytes))
	}
}

func recomputed(c *Check) {
	q, k, v := ex1()
	out, lse := streaming.Attend(q, k, v, streaming.Options{})
	// The loss is |O|^2/2, whose gradient by O is O.
	dq, dk, dv := streaming.Backward(q, k, v, out, lse, out, streaming.Options{Block: 2})
	c.Printed("dQ of |O|^2/2", ".06843686 -.09189051 -.09189051 .06843686", Flat(dq)...)
	c.Printed("dK", ".09189051 -.06843686 -.06843686 .09189051 -.02345365 -.02345365", Flat(dk)...)
	c.Printed("dV", ".64023355 .55754227 .55754227 .64023355 .80222419 .80222419", Flat(dv)...)

	const nq, nk, d, columns = 9, 11, 4, 3
	q, k, v = c.Normal(nq, d), c.Normal(nk, d), c.Normal(nk, columns)
	dO := c.Normal(nq, columns)
	for _, sees := range []func(i, j int) bool{seesAll, func(i, j int) bool { return j <= i }} {
		o := streaming.Options{Block: 4, Mask: sees}
		out, lse := streaming.Attend(q, k, v, o)
		dq, dk, dv := streaming.Backward(q, k, v, out, lse, dO, o)
		wq, wk, wv := backwardByIndex(c, q, k, v, dO, sees)
		c.NearMat("dQ", dq, wq, 1e-13)
		c.NearMat("dK", dk, wk, 1e-13)
		c.NearMat("dV", dv, wv, 1e-13)

		// Backward is also compared with differences.
		loss := func(x []float64) float64 {
			got, _ := streaming.Attend(mat.NewDense(nq, d, x[:nq*d]), mat.NewDense(nk, d, x[nq*d:][:nk*d]), mat.NewDense(nk, columns, x[(nq+nk)*d:]), o)
			return floats.Dot(Flat(got), Flat(dO))
		}
		at := slices.Concat(Flat(q), Flat(k), Flat(v))
		want := fd.Gradient(nil, loss, at, &fd.Settings{Formula: fd.Central, Step: 1e-6})
		c.NearAll("against central differences", slices.Concat(Flat(dq), Flat(dk), Flat(dv)), want, 1e-7)
	}
}

// backwardByIndex returns the gradients as sums over indices. It stores all weights.
func backwardByIndex(c *Check, q, k, v, dO *mat.Dense, sees func(i, j int) bool) (dq, dk, dv *mat.Dense) {
	nq, d := q.Dims()
	nk, columns := v.Dims()
	scale := c.Factor("scale", 1/math.Sqrt(float64(d)))
	weights, _, _ := byIndex(nq, productScores(q, k, scale), sees, v)
	dq, dk, dv = mat.NewDense(nq, d, nil), mat.NewDense(nk, d, nil), mat.NewDense(nk, columns, nil)
	plain := c.Flip("rowsum(dA) for rowsum(A dA)")
	for i := range nq {
		sum := 0.0
		for j := range nk {
			w := weights.At(i, j)
			if plain && w > 0 {
				w = 1
			}
			sum += w * floats.Dot(dO.RawRowView(i), v.RawRowView(j))
		}
		for j := range nk {
			dA := floats.Dot(dO.RawRowView(i), v.RawRowView(j))
			dS := weights.At(i, j) * (dA + c.Sign("minus", -sum))
			floats.AddScaled(dq.RawRowView(i), scale*dS, k.RawRowView(j))
			floats.AddScaled(dk.RawRowView(j), scale*dS, q.RawRowView(i))
			floats.AddScaled(dv.RawRowView(j), weights.At(i, j), dO.RawRowView(i))
		}
	}
	return dq, dk, dv
}

func recomputedAnswers(c *Check, a bridge.Attention) {
	const d, columns = 6, 5
	for _, shape := range [][2]int{{37, 70}, {4, 9}} {
		nq, nk := shape[0], shape[1]
		q, k, v, dO := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, columns), c.normal32(nq, columns)
		for _, m := range []attn.Mask{attn.Full(), attn.Causal()} {
			call := bridge.Call{Q: q, K: k, V: v, DO: dO, Problem: attn.Problem{Mask: m}}
			ans := c.Attend(a, call)
			own := nk - nq
			dq, dk, dv := backwardByIndex(c, q, k, v, dO, func(i, j int) bool { return !m.Band || j <= own+i })
			c.Tolerable("dQ", ans.DQ, dq, 0)
			c.Tolerable("dK", ans.DK, dk, 0)
			c.Tolerable("dV", ans.DV, dv, 0)
			if a.Kernel() != nil {
				forgetful(c, a.Kernel(), call, ans)
			}
		}
	}
}

// forgetful checks that the gradients have the same bits when one plan runs Forward and another
// runs Backward. The only data that passes between them is Q, K, V, O and LSE.
func forgetful(c *Check, k attn.Kernel, call bridge.Call, ans *bridge.Answer) {
	nq, d := call.Q.Dims()
	nk, columns := call.V.Dims()
	p := call.Problem
	p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV, p.Want = 1, 1, 1, nq, nk, d, columns, attn.WantLSE|attn.WantGrad
	args := attn.Args{Q: bridge.Tensor(call.Q), K: bridge.Tensor(call.K), V: bridge.Tensor(call.V), Out: attn.New(attn.BHSD, 1, nq, 1, columns)}
	args.Stats.LSE = attn.New(attn.BHSD, 1, nq, 1, 1)
	g := attn.Grads{Out: bridge.Tensor(call.DO), Q: attn.New(attn.BHSD, 1, nq, 1, d), K: attn.New(attn.BHSD, 1, nk, 1, d), V: attn.New(attn.BHSD, 1, nk, 1, columns)}
	plan := func(f func(attn.Plan)) {
		pl, err := k.Plan(p, nil)
		c.Must(err)
		if closer, ok := pl.(io.Closer); ok {
			defer closer.Close()
		}
		f(pl)
	}
	plan(func(pl attn.Plan) { pl.Forward(&args) })
	plan(func(pl attn.Plan) { pl.(attn.Differentiable).Backward(&args, &g) })
	for _, t := range []struct {
		name string
		got  []float32
		want *mat.Dense
	}{{"dQ", g.Q.Data, ans.DQ.X}, {"dK", g.K.Data, ans.DK.X}, {"dV", g.V.Data, ans.DV.X}} {
		got := make([]float64, len(t.got))
		for i, x := range t.got {
			got[i] = float64(x)
		}
		c.NearAll(t.name+" by a plan that has not gone forward, bit by bit", got, Flat(t.want), 0)
	}
}

func counted(c *Check) {
	// Each multiply-add is two operations: a score takes d of them, and its share of the output
	// d_v.
	for _, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.Window(2, 1)} {
		const nq, nk, d, dv = 5, 9, 4, 3
		flop := 0.0
		for i := range nq {
			for j := range nk {
				pos := nk - nq + i
				if m.Band && (j > pos+m.Right || m.Left != attn.Unbounded && j < pos-m.Left) {
					continue
				}
				flop += c.Factor("operations a product", 2) * (d + dv)
			}
		}
		p := attn.Problem{Batch: 1, SeqQ: nq, SeqKV: nk, HeadsQ: 1, HeadsKV: 1, Dim: d, DimV: dv, Mask: m}
		c.Near("operations, "+m.String(), float64(p.Count(nil).Flop), flop, 0)
	}
	const d = 64
	var flop, weights []float64
	for _, n := range doublings() {
		p := squareProblem(attn.OpSoftmax, int(n), d)
		flop = append(flop, float64(p.Count(nil).Flop))
		weights = append(weights, weightBytes(p))
		size := c.Factor("bytes of a number", 4) * n * n
		c.Near(fmt.Sprintf("bytes of the weights, n = %g", n), weights[len(weights)-1], size, 0)
	}
	c.Near("operations grow as n to the", growth(doublings(), flop), 2, .15)
	c.Near("bytes of the weights grow as n to the", growth(doublings(), weights), 2, .15)
}

// weightBytes returns the size of the weights of a problem.
func weightBytes(p attn.Problem) float64 {
	without := p.Count(nil).Bytes
	p.Want |= attn.WantWeights
	return float64(p.Count(nil).Bytes - without)
}

// scratchGrowth checks how the scratch of a kernel grows with the length. If there is a clock, it
// also notes the times.
func scratchGrowth(c *Check, a bridge.Attention) {
	k := a.Kernel()
	if k == nil {
		c.Must(fmt.Errorf("the definition plans nothing: %w", attn.ErrUnsupported))
	}
	const d = 64
	op, matrix := kindOf(c, k)
	var bytes []float64
	for _, n := range doublings() {
		bytes = append(bytes, c.scratchBytes(k, squareProblem(op, int(n), d)))
	}
	exponent := growth(doublings(), bytes)
	if matrix != c.Flip("a matrix is held") {
		c.Near("scratch grows as n to the", exponent, 2, .15)
	} else {
		c.Within("scratch grows as n to the", exponent, 1.15)
	}
	if c.Clock == nil {
		return
	}
	var n, seconds []float64
	for _, x := range []int{128, 256, 512} {
		r := rand.New(rand.NewPCG(1, uint64(x)))
		t := newTimed(c, k, squareProblem(op, x, d), r)
		t.plan.Forward(&t.args) // caches warm
		n, seconds = append(n, float64(x)), append(seconds, t.forward(c).Seconds())
		t.close()
	}
	c.Note("forward, one head, d = %d: %s; time grows as n^%.2f", d, timings(n, seconds), growth(n, seconds))
}

// timings formats lengths and times side by side.
func timings(n, seconds []float64) string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("n = %g %.3g ms", n[i], 1e3*seconds[i]))
	}
	return strings.Join(s, ", ")
}

// timed is a plan with its operands.
type timed struct {
	plan attn.Plan
	args attn.Args
}

func newTimed(c *Check, k attn.Kernel, p attn.Problem, r *rand.Rand) *timed {
	t := &timed{args: drawn(p, r)}
	plan, err := k.Plan(p, nil)
	c.Must(err)
	t.plan = plan
	return t
}

// drawn returns operands of normal numbers from a generator.
func drawn(p attn.Problem, r *rand.Rand) (a attn.Args) {
	for _, t := range []struct {
		to   *attn.Tensor
		s, d int
	}{{&a.Q, p.SeqQ, p.Dim}, {&a.K, p.SeqKV, p.Dim}, {&a.V, p.SeqKV, p.DimV}, {&a.Out, p.SeqQ, p.DimV}} {
		*t.to = attn.New(attn.BHSD, 1, t.s, 1, t.d)
		if t.to == &a.Out {
			continue
		}
		for i := range t.to.Data {
			t.to.Data[i] = float32(r.NormFloat64())
		}
	}
	return a
}

// forward runs the plan once and returns the time it took.
func (t *timed) forward(c *Check) time.Duration {
	before := c.Clock()
	t.plan.Forward(&t.args)
	return c.Clock() - before
}

func (t *timed) close() {
	if closer, ok := t.plan.(io.Closer); ok {
		closer.Close()
	}
}

// lessonLengths are the lengths of the lesson's fourth problem.
var lessonLengths = []int{100, 500, 1000, 2000, 5000}

// lessonSeed seeds the inputs of the lesson's fourth problem.
const lessonSeed = 17

func complexity(c *Check) {
	const d = 64
	var n, standard, linear []float64
	for _, x := range lessonLengths {
		p, q := squareProblem(attn.OpSoftmax, x, d), squareProblem(attn.OpLinear, x, d)
		n, standard, linear = append(n, float64(x)), append(standard, float64(p.Count(nil).Flop)), append(linear, float64(q.Count(nil).Flop))
		pairs := c.Factor("operations", 2) * float64(x)
		c.Near(fmt.Sprintf("operations of standard attention, n = %d", x), standard[len(standard)-1], pairs*float64(x)*(d+d), 0)
		c.Near(fmt.Sprintf("operations of linear attention, n = %d", x), linear[len(linear)-1], pairs*2*d*(d+1), 0)
		c.Note("n = %d: standard %.4g operations, linear %.4g; weights %.0f bytes in float64, %.0f in float32", x, standard[len(standard)-1], linear[len(linear)-1],
			8*float64(x*x), weightBytes(p))
	}
	c.Near("operations of standard attention grow as n to the", growth(n, standard), 2, .15)
	c.Near("operations of linear attention grow as n to the", growth(n, linear), 1, .15)
	last := squareProblem(attn.OpSoftmax, 5000, d)
	c.Printed("bytes of the weights at n = 5000, in float64 and float32", "200000000 100000000", 2*weightBytes(last), weightBytes(last))

	for _, x := range lessonLengths[:3] {
		r := rand.New(rand.NewPCG(lessonSeed, uint64(x)))
		args := drawn(squareProblem(attn.OpSoftmax, x, d), r)
		q, k, v := denseOf(args.Q), denseOf(args.K), denseOf(args.V)
		soft, _ := streaming.Attend(q, k, v, streaming.Options{})
		sums := newFeatureSums(k, v)
		var off mat.Dense
		other := mat.NewDense(x, d, nil)
		for i := range x {
			other.SetRow(i, sums.row(q.RawRowView(i)))
		}
		off.Sub(soft, other)
		for _, i := range sampledRows(x)[:3] {
			want, byPairs := softmaxRow(q.RawRowView(i), k, v, 1/math.Sqrt(d)), featureRow(q.RawRowView(i), k, v, c.Factor("one of elu+1", 1))
			c.NearAll(fmt.Sprintf("row %d of standard attention, n = %d", i, x), soft.RawRowView(i), want, 1e-13)
			c.NearAll(fmt.Sprintf("row %d of linear attention, n = %d, sums first or pairs first", i, x), other.RawRowView(i), byPairs, 1e-13)
		}
		c.Note("n = %d: L2 difference of the outputs %.6g, over that of standard attention %.4g (inputs: PCG(%d, %d))", x,
			mat.Norm(&off, 2), mat.Norm(&off, 2)/mat.Norm(soft, 2), lessonSeed, x)
	}
}

// denseOf returns a tensor of one batch entry and one head as a float64 matrix.
func denseOf(t attn.Tensor) *mat.Dense {
	m := mat.NewDense(t.S, t.D, nil)
	m.Apply(func(i, j int, _ float64) float64 { return float64(t.Row(0, i, 0)[j]) }, m)
	return m
}

// sampledRows returns 25 of n rows, evenly spaced.
func sampledRows(n int) (rows []int) {
	for i := range 25 {
		rows = append(rows, i*n/25)
	}
	return rows
}

// softmaxRow returns one output row of softmax attention.
func softmaxRow(q []float64, k, v *mat.Dense, scale float64) []float64 {
	_, o, _ := byIndex(1, func(_, j int) float64 { return scale * floats.Dot(q, k.RawRowView(j)) }, nil, v)
	return o.RawRowView(0)
}

// eluPlus returns the feature elu(x) + one.
func eluPlus(x, one float64) float64 {
	if x > 0 {
		return x + one
	}
	return math.Exp(x) - 1 + one
}

// featureRow returns one output row of linear attention as a sum over pairs: sum_j f(q).f(k_j) v_j
// / sum_j f(q).f(k_j).
func featureRow(q []float64, k, v *mat.Dense, one float64) []float64 {
	nk, dv := v.Dims()
	o, sum := make([]float64, dv), 0.0
	for j := range nk {
		w := 0.0
		for a, x := range q {
			w += eluPlus(x, one) * eluPlus(k.At(j, a), one)
		}
		sum += w
		floats.AddScaled(o, w, v.RawRowView(j))
	}
	floats.Scale(1/sum, o)
	return o
}

// featureSums are sum_j f(k_j) v_j^T and sum_j f(k_j). Any output row follows from them without the
// keys.
type featureSums struct {
	kv   *mat.Dense
	keys []float64
}

func newFeatureSums(k, v *mat.Dense) featureSums {
	nk, d := k.Dims()
	_, dv := v.Dims()
	s := featureSums{mat.NewDense(d, dv, nil), make([]float64, d)}
	for j := range nk {
		for a := range d {
			f := eluPlus(k.At(j, a), 1)
			s.keys[a] += f
			floats.AddScaled(s.kv.RawRowView(a), f, v.RawRowView(j))
		}
	}
	return s
}

func (s featureSums) row(q []float64) []float64 {
	_, dv := s.kv.Dims()
	o, sum := make([]float64, dv), 0.0
	for a, x := range q {
		f := eluPlus(x, 1)
		sum += f * s.keys[a]
		floats.AddScaled(o, f, s.kv.RawRowView(a))
	}
	floats.Scale(1/sum, o)
	return o
}

// longest returns the greatest length to run a kernel at: one that takes it a fraction of a second.
func longest(k attn.Kernel) int {
	if k == nil {
		return 5000
	}
	algo, isa := k.Name()
	switch {
	case algo == "linear":
		return 5000
	case algo == "naive" || isa == "go":
		return 1000
	case algo == "tiled":
		return 2000
	}
	return 5000
}

// complexityMeasured runs one kind of attention at the lesson's lengths. It checks sampled output
// rows in float64 against both kinds: they agree with their own kind within tolerance, and differ
// from the other kind as computed.
func complexityMeasured(c *Check, a bridge.Attention) {
	const d = 64
	kernel, op := a.Kernel(), attn.OpSoftmax
	if kernel != nil {
		op, _ = kindOf(c, kernel)
	}
	scale, one := 1/math.Sqrt(d), 1.0
	if op == attn.OpLinear {
		one = c.Factor("one of elu+1", one)
	} else {
		scale = c.Factor("scale", scale)
	}
	var n, seconds []float64
	var differences []string
	for _, x := range lessonLengths {
		if x > longest(kernel) {
			c.Note("%s stops at n = %d: it is slow, or holds the matrix of scores", a.Name(), longest(kernel))
			break
		}
		p := squareProblem(op, x, d)
		r := rand.New(rand.NewPCG(lessonSeed, uint64(x)))
		args := drawn(p, r)
		if kernel != nil {
			plan, err := kernel.Plan(p, nil)
			c.Must(err)
			t := timed{plan, args}
			if c.Clock != nil {
				n, seconds = append(n, float64(x)), append(seconds, t.forward(c).Seconds())
			} else {
				t.plan.Forward(&t.args)
			}
			t.close()
		}
		o, err := oracle.New(p, &args)
		c.Must(err)
		q, k, v := denseOf(args.Q), denseOf(args.K), denseOf(args.V)
		var sums featureSums
		if op == attn.OpSoftmax {
			sums = newFeatureSums(k, v)
		}
		rows := sampledRows(x)
		got := bridge.Values{X: mat.NewDense(len(rows), d, nil), Tol: mat.NewDense(len(rows), d, nil)}
		want, other := mat.NewDense(len(rows), d, nil), mat.NewDense(len(rows), d, nil)
		for at, i := range rows {
			row := o.Row(oracle.Index{I: i})
			got.Tol.SetRow(at, row.TolOut)
			got.X.SetRow(at, row.Out)
			if kernel != nil {
				for b, y := range args.Out.Row(0, i, 0) {
					got.X.Set(at, b, float64(y))
				}
			}
			if op == attn.OpLinear {
				want.SetRow(at, featureRow(q.RawRowView(i), k, v, one))
				other.SetRow(at, softmaxRow(q.RawRowView(i), k, v, scale))
			} else {
				want.SetRow(at, softmaxRow(q.RawRowView(i), k, v, scale))
				other.SetRow(at, sums.row(q.RawRowView(i)))
			}
		}
		c.Tolerable(fmt.Sprintf("%d rows of %v attention, n = %d", len(rows), op, x), got, want, 0)
		other.Sub(other, got.X)
		differences = append(differences, fmt.Sprintf("n = %d %.4g", x, mat.Norm(other, 2)*math.Sqrt(float64(x)/float64(len(rows)))))
	}
	c.Note("L2 difference of standard and linear attention, from 25 rows (inputs: PCG(%d, n)): %s", lessonSeed, strings.Join(differences, ", "))
	if len(n) > 0 {
		c.Note("forward, one head, d = %d, once: %s; time grows as n^%.2f", d, timings(n, seconds), growth(n, seconds))
	}
}

func promised(c *Check) {
	promisedPositions(c)
	promisedMasks(c)

	// split_heads and combine_heads are views: nothing is copied
	const n, heads, d = 5, 3, 4
	x := make([]float32, n*heads*d)
	for i := range x {
		x[i] = float32(i)
	}
	split := attn.Wrap(attn.BSHD, x, 1, n, heads, d)
	joined := attn.Wrap(attn.BSHD, split.Data, 1, n, 1, heads*d)
	same := true
	for i := range n {
		for h := range heads {
			for a := range d {
				at := c.Index("head", h, heads)*d + a
				same = same && split.Row(0, i, h)[a] == float32(i*heads*d+at) && joined.Row(0, i, 0)[at] == split.Row(0, i, h)[a]
			}
		}
	}
	c.True("split_heads, combine_heads: x[i][h*d+a] is head h's a", same)

	// softmax_temperature, log_partition_function, heat capacity, susceptibility
	for _, t := range []float64{.25, 1, 3} {
		s := c.Vector(6)
		z, logs := 0.0, make([]float64, len(s))
		for j, x := range s {
			logs[j] = x / t
			z += math.Exp(logs[j])
		}
		p := make([]float64, len(s))
		mean, square := 0.0, 0.0
		for j, x := range s {
			p[j] = math.Exp(logs[j]) / z
			mean += p[j] * x
			square += p[j] * x * x
		}
		c.NearAll("softmax_temperature", gibbs.Softmax(s, t), p, 1e-15)
		c.Near("log_partition_function", gibbs.LogPartition(s, t), math.Log(z), 1e-14)
		c.Near("heat capacity: beta^2 Var(E)", gibbs.HeatCapacity(s, t), (square+c.Sign("minus", -mean*mean))/(t*t), 1e-13)
		chi := mat.NewDense(len(s), len(s), nil)
		chi.Apply(func(i, j int, _ float64) float64 {
			if i == j {
				return (p[i] - p[i]*p[i]) / t
			}
			return -p[i] * p[j] / t
		}, chi)
		c.NearMat("susceptibility: beta (p_i delta_ij - p_i p_j)", gibbs.Susceptibility(s, t), chi, 1e-14)
	}
}

func promisedPositions(c *Check) {
	// Rows L-4.2 and L-4.4 check sinusoidal_encoding and the tables of rotary_embedding against
	// their equations.
	s := positions.Sinusoid{Dim: 64}.Table(100)
	rows, columns := s.Dims()
	c.True("sinusoidal_encoding(100, 64)", rows == 100 && columns == 64 && s.At(0, 0) == 0 && s.At(0, 1) == 1)
	cos, sin := positions.Rope{Dim: 4}.Tables(3)
	c.NearAll("rotary_embedding: cos and sin of 2 and .02", slices.Concat(cos.RawRowView(2), sin.RawRowView(2)),
		[]float64{math.Cos(2), math.Cos(.02), math.Sin(2), math.Sin(.02)}, 1e-15)
	// apply_rope: the page's example has the angles 2 and 0.2, which base 100 gives.
	c.Printed("apply_rope, m = 2, theta = [1, .1]", "-.42 .91 .98 .20", positions.Rope{Dim: 4, Base: 100}.Turn([]float64{1, 0, 1, 0}, 2)...)

	const n = 6
	for _, slope := range attn.ALiBiSlopes(4) { // alibi_bias
		want := mat.NewDense(n, n, nil)
		want.Apply(func(i, j int, _ float64) float64 { return c.Sign("minus", -float64(slope)*math.Abs(float64(i-j))) }, want)
		c.NearMat("alibi_bias: -m |i-j|", positions.ALiBi(float64(slope), n, n), want, 0)
	}

	// T5: of the 32 buckets for both sides, 16 belong to each. Eight are the distances 0 to 7; the
	// other eight grow with the logarithm up to 128.
	buckets := make([]float64, 32)
	for b := range buckets {
		buckets[b] = float64(b)
	}
	const far = 200
	bias, err := positions.T5(buckets, 128, true, far, far)
	c.Must(err)
	worst := 0.0
	for i := range far {
		for j := range far {
			back, bucket := i-j, 0
			if back < 0 {
				back, bucket = -back, 16
			}
			if back < 8 {
				bucket += back
			} else {
				bucket += min(8+int(math.Log(float64(back)/8)/math.Log(c.Factor("farthest", 128)/8)*8), 15)
			}
			worst = larger(worst, gap(bias.At(i, j), float64(bucket)))
		}
	}
	c.Within("T5: buckets of all distances to 199", worst, 0)

	// Transformer-XL: four terms
	const nq, nk, d = 3, 5, 4
	q, k, table, u, v := c.Normal(nq, d), c.Normal(nk, d), c.Normal(nq+nk-1, d), c.Vector(d), c.Vector(d)
	want := mat.NewDense(nq, nk, nil)
	want.Apply(func(i, j int, _ float64) float64 {
		r := table.RawRowView(j - i + nq - 1)
		asked := floats.Dot(q.RawRowView(i), k.RawRowView(j)) + floats.Dot(q.RawRowView(i), r)
		return asked + floats.Dot(u, k.RawRowView(j)) + c.Sign("global position", floats.Dot(v, r))
	}, want)
	c.NearMat("Transformer-XL: q.k + q.r + u.k + v.r", positions.XL(q, k, table, u, v).Sum(), want, 1e-14)
}

func promisedMasks(c *Check) {
	// BigBird: global, window and random keys
	const n, global, width, random = 30, 2, 4, 3
	bits := positions.BigBird(n, global, width, random, c.Rand)
	p := squareProblem(attn.OpSoftmax, n, 1)
	p.Mask = attn.Full().With(attn.PackedBitmap)
	args := attn.Args{Q: attn.Tensor{S: n}, K: attn.Tensor{S: n}, Allowed: bits}
	var shown, want []float64
	kept := true
	for i := range n {
		fixed, seen := 0.0, 0.0
		for j := range n {
			must, sees := i < global || j < global || max(i-j, j-i) <= width/2, args.Shows(&p, 0, i, 0, j)
			kept = kept && (sees || !must)
			if must {
				fixed++
			}
			if sees {
				seen++
			}
		}
		if i >= global { // global rows see all keys
			fixed += c.Factor("random keys", random)
		}
		shown, want = append(shown, seen), append(want, fixed)
	}
	c.True("BigBird: global keys and the window are shown", kept)
	c.NearAll("BigBird: keys that each query sees", shown, want, 0)
}

// promisedAnswers checks what the library's pages promise and each kernel supports.
func promisedAnswers(c *Check, a bridge.Attention) {
	const d, dv = 4, 3
	var refused error
	answered := false
	ask := func(call bridge.Call, then func(ans *bridge.Answer)) {
		ans, err := a.Attend(call)
		if errors.Is(err, attn.ErrUnsupported) {
			refused = err
			return
		}
		c.Must(err)
		answered = true
		then(ans)
	}
	for _, nq := range wideAndFew {
		nk := nq + 3
		q, k, v := c.normal32(nq, d), c.normal32(nk, d), c.normal32(nk, dv)
		own := nk - nq

		// efficient.flash_attention, local_attention and create_local_mask, create_strided_mask
		// (every third key)
		for _, m := range []struct {
			name    string
			mask    attn.Mask
			allowed attn.Bits
			sees    func(i, j int) bool
		}{
			{"flash_attention", attn.Full(), attn.Bits{}, nil},
			{"local_attention", attn.Window(2, 2), attn.Bits{}, func(i, j int) bool { return max(own+i-j, j-own-i) <= 2 }},
			{"strided mask", attn.Full().With(attn.PackedBitmap), attn.Pack(nq, nk, func(_, j int) bool { return j%3 == 0 }), func(_, j int) bool { return j%3 == 0 }},
		} {
			ask(bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Mask: m.mask}, Args: attn.Args{Allowed: m.allowed}}, func(ans *bridge.Answer) {
				_, o, _ := byIndex(nq, productScores(q, k, c.Factor("scale", 1/math.Sqrt(d))), m.sees, v)
				c.Tolerable(m.name, ans.O, o, 0)
			})
		}

		// efficient.linear_attention
		ask(bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Op: attn.OpLinear}}, func(ans *bridge.Answer) {
			want := mat.NewDense(nq, dv, nil)
			for i := range nq {
				want.SetRow(i, featureRow(q.RawRowView(i), k, v, c.Factor("one of elu+1", 1)))
			}
			c.Tolerable("linear_attention", ans.O, want, 0)
		})
		askXL(c, nq, nk, ask)
	}
	if !answered {
		c.Must(refused)
	}
}

// askXL checks the score of Transformer-XL, expressed in the terms that kernels have. Its numbers
// make all sums and products exact in float32.
func askXL(c *Check, nq, nk int, ask func(bridge.Call, func(*bridge.Answer))) {
	const d, dv = 4, 3
	coarse := func(m *mat.Dense) *mat.Dense {
		m.Apply(func(_, _ int, x float64) float64 { return math.Round(16*x) / 16 }, m)
		return m
	}
	q, k, table, uv, v := coarse(c.Normal(nq, d)), coarse(c.Normal(nk, d)), coarse(c.Normal(nq+nk-1, d)), coarse(c.Normal(2, d)), c.normal32(nk, dv)
	queries, bias := positions.XLAsTerms(q, table, uv.RawRowView(0), uv.RawRowView(1), nk)
	bias.Scale(.5, bias) // 1/sqrt(d)
	ask(bridge.Call{
		Q: queries, K: k, V: v, Problem: attn.Problem{Score: attn.Score{Terms: attn.TermRelative | attn.TermBias}},
		Args: attn.Args{Terms: attn.Operands{Relative: bridge.Tensor(table), Bias: bridge.Tensor(bias)}},
	}, func(ans *bridge.Answer) {
		_, o, _ := byIndex(nq, func(i, j int) float64 {
			r := table.RawRowView(j - i + nq - 1)
			asked := floats.Dot(q.RawRowView(i), k.RawRowView(j)) + floats.Dot(q.RawRowView(i), r)
			return (asked + floats.Dot(uv.RawRowView(0), k.RawRowView(j)) + c.Sign("global position", floats.Dot(uv.RawRowView(1), r))) / 2
		}, nil, v)
		c.Tolerable("Transformer-XL", ans.O, o, 0)
	})
}

// A stub is a kernel whose outputs are all one number. It counts its calls.
type stub struct {
	number float32
	name   string
	asked  int
}

func (s *stub) Name() (algo, isa string) { return s.name, "none" }

func (s *stub) Check(p attn.Problem, _ int) (int64, error) {
	return 0, p.Require(s.name, attn.NeedSoftmax)
}

func (s *stub) Plan(p attn.Problem, _ *attn.Team) (attn.Plan, error) {
	if _, err := s.Check(p, 1); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *stub) Forward(a *attn.Args) {
	s.asked++
	for i := range a.Out.S {
		row := a.Out.Row(0, i, 0)
		for b := range row {
			row[b] = s.number
		}
	}
}

func (s *stub) Scratch() int64 { return 0 }

func backends(c *Check) {
	one, two := &stub{number: 1, name: "one"}, &stub{number: 2, name: "two"}
	call := bridge.Call{Q: c.Normal(2, 3), K: c.Normal(4, 3), V: c.Normal(4, 2)}
	for _, k := range []*stub{one, two, one} {
		preferred := k
		if c.Flip("the first one stays") {
			preferred = one
		}
		a := bridge.Through(preferred)
		c.True(k.name+" is the one that is named", a.Name() == k.name+"/none" && a.Kernel() == attn.Kernel(k))
		ans := c.Attend(a, call)
		c.NearAll(k.name+" is the one that runs", Flat(ans.O.X), slices.Repeat([]float64{float64(k.number)}, 4), 0)
	}
	c.True("and no other", one.asked == 2 && two.asked == 1)
	call.Problem.Want = attn.WantEntropy
	_, err := bridge.Through(one).Attend(call)
	c.True("what it cannot do it refuses, by name", errors.Is(err, attn.ErrUnsupported) && strings.Contains(err.Error(), "entropy"))
	c.Erratum("E-28", "backends of the library", "a kernel is a value that is passed, and the one that is passed runs",
		"several backends; no function of attention asks which, and the first answer is kept whatever is preferred later")
	c.Erratum("E-28", "modules of the library", "einsum and utils besides", "eight modules")
}
