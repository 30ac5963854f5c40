package nn

import (
	"errors"
	"fmt"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/theory/gibbs"
)

// Split returns the columns of m as n heads: head h has columns h d to (h+1) d. The rows of m are
// batch sequences, one after another. The result is a view: no number is copied, and the rows of a
// head are m.Stride apart.
func Split(m Mat, batch, n int) (attn.Tensor, error) {
	if batch < 1 || n < 1 || m.Rows%batch != 0 || m.Cols%n != 0 {
		return attn.Tensor{}, fmt.Errorf("%w: %v, want rows that %d sequences divide and columns that %d heads divide", ErrShape, m, batch, n)
	}
	return heads(m, batch, n), nil
}

// Combine returns the matrix that Split views. It joins heads without a copy, because their numbers
// are already side by side. Heads in another layout, such as attn.BHSD, are an error: joining them
// takes a copy.
func Combine(t attn.Tensor) (Mat, error) {
	m := Mat{t.Data, t.B * t.S, t.H * t.D, t.SS}
	if t.S == 1 {
		m.Stride = t.SB
	}
	if m.Rows <= 1 {
		m.Stride = m.Cols
	}
	switch {
	case t.Type != attn.F32:
		return Mat{}, fmt.Errorf("%w: heads of %v, want f32", ErrShape, t.Type)
	case t.H > 1 && t.SH != t.D:
		return Mat{}, fmt.Errorf("%w: heads of %d numbers are %d apart, want them side by side, as in layout BSHD", ErrShape, t.D, t.SH)
	case t.B > 1 && t.S > 1 && t.SB != t.S*t.SS:
		return Mat{}, fmt.Errorf("%w: sequences of %d rows that are %d apart begin %d apart, want one after another", ErrShape, t.S, t.SS, t.SB)
	case m.Stride < m.Cols:
		return Mat{}, fmt.Errorf("%w: rows of %d numbers are %d apart, want at least their length", ErrShape, m.Cols, m.Stride)
	}
	return m, nil
}

// HeadWeights returns views of head h's weights: the columns W_Q^h, W_K^g and W_V^g, where g is the
// key head that h shares, and the rows W_O^h. To set the weights of one head, write to these views.
func (l *Attention) HeadWeights(h int) (q, k, v, o Mat) {
	g := h / (l.Heads / l.KVHeads)
	part := func(w Mat, h, n int) Mat { return w.Part(0, w.Rows, h*(w.Cols/n), w.Cols/n) }
	o = l.Out.W.W
	d := o.Rows / l.Heads
	return part(l.Q.W.W, h, l.Heads), part(l.K.W.W, g, l.KVHeads), part(l.V.W.W, g, l.KVHeads), o.Part(h*d, d, 0, o.Cols)
}

// SumOverHeads computes the output of the last Forward again, head by head:
//
//	y = b_O + Σ_h o_h W_O^h
//
// Forward multiplies concat(o_h) by the whole W_O. The two outputs differ only in the order of
// additions.
func (p *AttentionPass) SumOverHeads() Mat {
	l, o := p.layer, p.o.First(p.a.Q.B*p.a.Q.S)
	y := NewMat(o.Rows, l.Out.W.W.Cols)
	if b := l.Out.B; b != nil {
		for i := range y.Rows {
			copy(y.Row(i), b.W.Row(0))
		}
	}
	d := o.Cols / l.Heads
	for h := range l.Heads {
		_, _, _, w := l.HeadWeights(h)
		p.on.Products.Do(Product{C: y, A: o.Part(0, o.Rows, h*d, d), B: w, Add: true})
	}
	return y
}

// A Head is the computation of one head on one sequence, where g is the key head that it shares:
//
//	Q = x W_Q^h    K = m W_K^g    V = m W_V^g    O = Weights V    Y = O W_O^h
//
// Q, K and V include their biases. The layer's output is the sum of Y over the heads and the bias
// of W_O.
type Head struct {
	Q, K, V, O Mat        // views of the layer's results, valid until its next Forward
	Scores     *mat.Dense // scores by the definition, -Inf for hidden keys
	Weights    *mat.Dense // weights, 0 for hidden keys
	LSE        []float64  // logarithm of the sum that the weights are divided by
	Y          Mat        // the head's share of the output
}

// Decompose returns the computation of the last Forward on sequence b, head by head.
func (p *AttentionPass) Decompose(b int) ([]Head, error) {
	switch {
	case p.a.Q.Data == nil:
		return nil, errors.New("nn: Decompose before Forward: call Forward first")
	case b < 0 || b >= p.batch:
		return nil, fmt.Errorf("nn: %s: sequence %d, want 0 to %d", p.layer.Name, b, p.batch-1)
	case p.layer.Linear != nil:
		return nil, fmt.Errorf("nn: %s: linear attention has no softmax to decompose", p.layer.Name)
	}
	l, q, k := p.layer, &p.a.Q, &p.a.K
	problem := l.problem(&p.projections, p.batch, q.S, k.S)
	problem.Want = attn.WantLSE
	definition, err := oracle.New(problem, &p.a)
	if err != nil {
		return nil, err
	}
	all := make([]Head, l.Heads)
	for h := range all {
		g := h / (l.Heads / l.KVHeads)
		a := &all[h]
		a.Q, a.K, a.V, a.O = rowsOf(q, b, h), rowsOf(k, b, g), rowsOf(&p.a.V, b, g), rowsOf(&p.a.Out, b, h)
		if q.S == 0 || k.S == 0 { // mat.NewDense panics on an empty matrix
			a.Scores, a.Weights = new(mat.Dense), new(mat.Dense)
		} else {
			a.Scores, a.Weights = mat.NewDense(q.S, k.S, nil), mat.NewDense(q.S, k.S, nil)
		}
		for i := range q.S {
			row := definition.Row(oracle.Index{B: b, H: h, I: i})
			a.LSE = append(a.LSE, row.LSE)
			if k.S > 0 {
				a.Scores.SetRow(i, row.Scores)
				a.Weights.SetRow(i, row.Weights)
			}
		}
		_, _, _, w := l.HeadWeights(h)
		a.Y = NewMat(q.S, w.Cols)
		p.on.Products.Do(Product{C: a.Y, A: a.O, B: w})
	}
	return all, nil
}

// rowsOf returns the rows of one head of one sequence.
func rowsOf(t *attn.Tensor, b, h int) Mat {
	m := Mat{nil, t.S, t.D, t.SS}
	if t.S > 0 && t.D > 0 {
		m.Data = t.Data[b*t.SB+h*t.SH:][:(t.S-1)*t.SS+t.D]
	}
	return m
}

// Patterns returns the weights of each head of sequence b, as a kernel wrote them
// (attn.WantWeights).
func Patterns(weights attn.Tensor, b int) []*mat.Dense {
	all := make([]*mat.Dense, weights.H)
	for h := range all {
		all[h] = mat.NewDense(weights.S, weights.D, nil)
		for i := range weights.S {
			for j, w := range weights.Row(b, i, h) {
				all[h].Set(i, j, float64(w))
			}
		}
	}
	return all
}

// Diversity returns how different the patterns of heads are: 1 minus the mean cosine over pairs of
// heads, where a pattern is all weights of a head as one vector. Equal heads have 0. If no two
// heads see the same keys, it is 1. With one head or none it is 0 (E-33). Two patterns without
// weights count as equal; one without weights differs from every other.
func Diversity(patterns []*mat.Dense) float64 {
	sum, pairs := 0.0, 0
	for h, p := range patterns {
		for _, q := range patterns[:h] {
			sum += cosine(p, q)
			pairs++
		}
	}
	if pairs == 0 {
		return 0
	}
	return 1 - sum/float64(pairs)
}

// cosine returns the cosine of the angle between two matrices as vectors.
func cosine(p, q *mat.Dense) float64 {
	switch a, b := mat.Norm(p, 2), mat.Norm(q, 2); {
	case a == 0 && b == 0:
		return 1
	case a == 0 || b == 0:
		return 0
	default:
		var products mat.Dense
		products.MulElem(p, q)
		return mat.Sum(&products) / (a * b)
	}
}

// HeadEntropies returns the entropy of each head's weights in nats, as the mean over its rows. It
// is 0 for a head whose queries each see a single key.
func HeadEntropies(patterns []*mat.Dense) []float64 {
	all := make([]float64, len(patterns))
	for h, p := range patterns {
		all[h] = stat.Mean(gibbs.EntropyRows(p), nil)
	}
	return all
}

// CountAttention returns the number of parameters of attention in rows of dim. A head has dim/heads
// numbers; there are heads heads of queries and kvHeads of keys and values:
//
//	W_Q: dim^2    W_K and W_V: dim kv each    W_O: dim^2        kv = dim/heads kvHeads
//
// With kvHeads = heads that is 4 dim^2 for any number of heads. A bias adds dim or kv to each.
// Without output there is no W_O, as the lesson counts a single head (E-20).
func CountAttention(dim, heads, kvHeads int, bias, output bool) int {
	kv := dim / heads * kvHeads
	rows := dim // rows of weights, and one of biases
	if bias {
		rows++
	}
	n := rows * (dim + 2*kv)
	if output {
		n += rows * dim
	}
	return n
}
