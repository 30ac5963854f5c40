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

// Split is the columns of m, whose rows are batch sequences one after another, as so many heads
// side by side: head h has columns h d to (h+1) d. It is a view: no number is copied, and the
// heads' rows lie m.Stride apart.
func Split(m Mat, batch, n int) (attn.Tensor, error) {
	if batch < 1 || n < 1 || m.Rows%batch != 0 || m.Cols%n != 0 {
		return attn.Tensor{}, fmt.Errorf("%w: %v is no %d sequences one after another, of %d heads side by side", ErrShape, m, batch, n)
	}
	return heads(m, batch, n), nil
}

// Combine is the matrix that Split views, which is what joins heads: their numbers lie side by side
// already. Heads that lie otherwise, as in the layout attn.BHSD, are an error: to join those takes
// a copy.
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
		return Mat{}, fmt.Errorf("%w: heads of %v are no matrix of float32", ErrShape, t.Type)
	case t.H > 1 && t.SH != t.D:
		return Mat{}, fmt.Errorf("%w: heads of %d numbers begin %d apart, and are joined where they lie side by side", ErrShape, t.D, t.SH)
	case t.B > 1 && t.S > 1 && t.SB != t.S*t.SS:
		return Mat{}, fmt.Errorf("%w: sequences of %d rows, %d apart, begin %d apart: they do not follow one another", ErrShape, t.S, t.SS, t.SB)
	case m.Stride < m.Cols:
		return Mat{}, fmt.Errorf("%w: rows of %d numbers begin %d apart", ErrShape, m.Cols, m.Stride)
	}
	return m, nil
}

// HeadWeights is what head h has of the weights, in place: the columns W_Q^h, W_K^g and W_V^g, g
// being the key head that it shares, and the rows W_O^h. Whoever has a matrix a head writes it
// there.
func (l *Attention) HeadWeights(h int) (q, k, v, o Mat) {
	g := h / (l.Heads / l.KVHeads)
	part := func(w Mat, h, n int) Mat { return w.Part(0, w.Rows, h*(w.Cols/n), w.Cols/n) }
	o = l.Out.W.W
	d := o.Rows / l.Heads
	return part(l.Q.W.W, h, l.Heads), part(l.K.W.W, g, l.KVHeads), part(l.V.W.W, g, l.KVHeads), o.Part(h*d, d, 0, o.Cols)
}

// SumOverHeads is the output of the last Forward once more, head by head:
//
//	y = b_O + Σ_h o_h W_O^h
//
// where Forward has multiplied concat(o_h) with all of W_O. The numbers are the same but for the
// order in which they are added up.
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

// A Head is what one head has made of one sequence, g being the key head that it shares:
//
//	Q = x W_Q^h    K = m W_K^g    V = m W_V^g    O = Weights V    Y = O W_O^h
//
// and each with its bias, but for Y: the sum of Y over the heads, and the bias of W_O, is what the
// layer returns.
type Head struct {
	Q, K, V, O Mat        // views of what the layer has computed, until its next Forward
	Scores     *mat.Dense // of Q and K, by the definition: -Inf for keys that are hidden
	Weights    *mat.Dense // 0 for keys that are hidden
	LSE        []float64  // the logarithm of what the weights are divided by
	Y          Mat        // the head's part of the output
}

// Decompose takes apart what the last Forward has made of sequence b, head by head.
func (p *AttentionPass) Decompose(b int) ([]Head, error) {
	switch {
	case p.a.Q.Data == nil:
		return nil, errors.New("nn: there is nothing to take apart before Forward")
	case b < 0 || b >= p.batch:
		return nil, fmt.Errorf("nn: %s: sequence %d of %d", p.layer.Name, b, p.batch)
	case p.layer.Linear != nil:
		return nil, fmt.Errorf("nn: %s: linear attention has no softmax of scores to take apart", p.layer.Name)
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
		if q.S == 0 || k.S == 0 { // gonum has no empty matrices
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

// rowsOf is the rows of one head of one sequence.
func rowsOf(t *attn.Tensor, b, h int) Mat {
	m := Mat{nil, t.S, t.D, t.SS}
	if t.S > 0 && t.D > 0 {
		m.Data = t.Data[b*t.SB+h*t.SH:][:(t.S-1)*t.SS+t.D]
	}
	return m
}

// Patterns are the weights of each head of sequence b as a kernel has written them
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

// Diversity is how differently heads look: 1 - the mean, over pairs of heads, of the cosine of
// their patterns, a pattern being all weights of a head as one vector. Heads that look alike have
// 0, heads no two of which see the same keys have 1. A single head has 0 (E-33), and so has no
// head; a pattern without weights is like another one without, and unlike all others.
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

// cosine is of the angle between two matrices as vectors.
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

// HeadEntropies are the entropies of the weights of each head, in nats, as a mean over its rows: 0
// of a head whose queries each see one key alone.
func HeadEntropies(patterns []*mat.Dense) []float64 {
	all := make([]float64, len(patterns))
	for h, p := range patterns {
		all[h] = stat.Mean(gibbs.EntropyRows(p), nil)
	}
	return all
}

// CountAttention is the number of parameters of attention in rows of dim, heads of dim/heads, of
// which keys and values have kvHeads:
//
//	W_Q: dim^2    W_K and W_V: dim kv each    W_O: dim^2        kv = dim/heads kvHeads
//
// which is 4 dim^2, however many heads, where each has keys of its own. Biases are dim or kv more
// for each. Without output there is no W_O, as the lesson counts a single head (E-20).
func CountAttention(dim, heads, kvHeads int, bias, output bool) int {
	kv := dim / heads * kvHeads
	rows := dim // of weights, and one of biases
	if bias {
		rows++
	}
	n := rows * (dim + 2*kv)
	if output {
		n += rows * dim
	}
	return n
}
