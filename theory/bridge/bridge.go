// Package bridge passes the matrices of package theory to a kernel and returns its answer. It
// rounds each float64 matrix to float32 and makes one call. Each number of the answer comes with
// the error that float32 arithmetic may have left in it (package oracle). The definition can answer
// the same call in float64 alone. So a statement about attention is checked in the same words
// against the definition and against every kernel.
//
// A call is one batch entry and one head. Nothing here is fast: the bridge is for checking, not for
// timing.
package bridge

import (
	"fmt"
	"io"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/attn/oracle"
)

// An Attention answers calls, with a kernel or, if it is the zero value, with the definition.
type Attention struct{ kernel attn.Kernel }

// Through returns an Attention that answers with the kernel k.
func Through(k attn.Kernel) Attention { return Attention{k} }

// Kernel returns the kernel that answers, or nil for the definition.
func (a Attention) Kernel() attn.Kernel { return a.kernel }

// Definition is the name of the zero Attention.
const Definition = "definition"

// Name returns Definition, or algorithm and instruction set, such as "flash/avx512".
func (a Attention) Name() string {
	if a.kernel == nil {
		return Definition
	}
	algo, isa := a.kernel.Name()
	return algo + "/" + isa
}

// A Call holds the operands of one attention. Q has a row for each query, K and V have a row for
// each key.
type Call struct {
	Q, K, V *mat.Dense
	// Problem sets mask, score and wanted results. Its sizes are taken from the matrices.
	Problem attn.Problem
	// Args holds the operands of masks and terms. Q, K, V, Out and Stats are taken from the
	// matrices.
	Args attn.Args

	// DO, DLSE and DEntropy are the incoming gradients; setting any of them asks for gradients.
	// DLSE and DEntropy have one column.
	DO, DLSE, DEntropy *mat.Dense
}

// Values holds numbers X and the error Tol that float32 may have left in each. Both are nil if the
// call did not ask for them.
type Values struct{ X, Tol *mat.Dense }

// An Answer holds the results of a Call. Values of rows have one column.
type Answer struct {
	O                       Values
	LSE, Mean, Entropy, Max Values
	Weights, Scores         Values

	DQ, DK, DV, DRelative, DMetric, DBias Values
}

// Float32 returns m with every number rounded to float32, as kernels get it.
func Float32(m mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Apply(func(_, _ int, x float64) float64 { return float64(float32(x)) }, m)
	return &to
}

// Tensor returns m as an operand of one batch entry and one head.
func Tensor(m mat.Matrix) attn.Tensor {
	r, c := m.Dims()
	t := attn.New(attn.BHSD, 1, r, 1, c)
	for i := range r {
		for j := range c {
			t.Data[i*c+j] = float32(m.At(i, j))
		}
	}
	return t
}

// Attend answers a call. If the kernel does not support the problem, the error wraps
// attn.ErrUnsupported.
func (a Attention) Attend(c Call) (*Answer, error) {
	q, err := c.begin()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name(), err)
	}
	if a.kernel != nil {
		err = q.run(a.kernel)
	} else {
		err = q.define()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name(), err)
	}
	return q.answer(a.kernel == nil)
}

// A question is a call in tensors.
type question struct {
	p     attn.Problem
	a     attn.Args
	g     attn.Grads
	grads bool
}

// begin converts the operands to tensors and checks the problem.
func (c *Call) begin() (*question, error) {
	q := &question{p: c.Problem, a: c.Args, grads: c.DO != nil || c.DLSE != nil || c.DEntropy != nil}
	p, a := &q.p, &q.a
	nq, dq := c.Q.Dims()
	nk, d := c.K.Dims()
	rows, dv := c.V.Dims()
	if rows != nk {
		return nil, fmt.Errorf("rows of K and V are %d and %d, want one value for each key", nk, rows)
	}
	p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV = 1, 1, 1, nq, nk, d, dv
	if dq != d {
		p.DimQ = dq
	}
	a.Q, a.K, a.V = Tensor(c.Q), Tensor(c.K), Tensor(c.V)
	a.Out = attn.New(attn.BHSD, 1, nq, 1, dv)
	column := func() attn.Tensor { return attn.New(attn.BHSD, 1, nq, 1, 1) }
	if q.grads {
		p.Want |= attn.WantGrad
		if p.Op == attn.OpSoftmax {
			p.Want |= attn.WantLSE
		}
	}
	if c.DEntropy != nil {
		p.Want |= attn.WantEntropy
	}
	for _, s := range []struct {
		want attn.Want
		to   *attn.Tensor
		wide bool
	}{
		{attn.WantLSE, &a.Stats.LSE, false},
		{attn.WantMean, &a.Stats.Mean, false},
		{attn.WantEntropy, &a.Stats.Entropy, false},
		{attn.WantMax, &a.Stats.Max, false},
		{attn.WantWeights, &a.Stats.Weights, true},
		{attn.WantScores, &a.Stats.Scores, true},
	} {
		if p.Want&s.want == 0 {
			continue
		}
		if *s.to = column(); s.wide {
			*s.to = attn.New(attn.BHSD, 1, nq, 1, nk)
		}
	}
	if q.grads {
		for _, s := range []struct {
			from *mat.Dense
			to   *attn.Tensor
		}{{c.DO, &q.g.Out}, {c.DLSE, &q.g.LSE}, {c.DEntropy, &q.g.Entropy}} {
			if s.from != nil {
				*s.to = Tensor(s.from)
			}
		}
		like := func(t *attn.Tensor) attn.Tensor { return attn.New(attn.BHSD, t.B, t.S, t.H, t.D) }
		q.g.Q, q.g.K, q.g.V = like(&a.Q), like(&a.K), like(&a.V)
		for _, s := range []struct{ from, to *attn.Tensor }{
			{&a.Terms.Relative, &q.g.Terms.Relative}, {&a.Terms.Metric, &q.g.Terms.Metric}, {&a.Terms.Bias, &q.g.Terms.Bias},
		} {
			if s.from.Data != nil {
				*s.to = like(s.from)
			}
		}
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if q.grads {
		return q, p.CheckGrads(a, &q.g)
	}
	return q, p.Check(a)
}

// run runs the kernel.
func (q *question) run(k attn.Kernel) error {
	plan, err := k.Plan(q.p, nil)
	if err != nil {
		return err
	}
	if c, ok := plan.(io.Closer); ok {
		defer c.Close()
	}
	plan.Forward(&q.a)
	if q.grads {
		plan.(attn.Differentiable).Backward(&q.a, &q.g)
	}
	return nil
}

// define fills Out and the row values from the definition. The gradients use them.
func (q *question) define() error {
	o, err := oracle.New(q.p, &q.a)
	if err != nil {
		return err
	}
	for i := range q.p.SeqQ {
		row := o.Row(oracle.Index{I: i})
		for c, x := range row.Out {
			q.a.Out.Row(0, i, 0)[c] = float32(x)
		}
		s := &q.a.Stats
		for _, v := range []struct {
			to *attn.Tensor
			x  float64
		}{{&s.LSE, row.LSE}, {&s.Mean, row.Mean}, {&s.Entropy, row.Entropy}, {&s.Max, row.Max}} {
			if v.to.Data != nil {
				v.to.Row(0, i, 0)[0] = float32(v.x)
			}
		}
	}
	return nil
}

// answer returns the numbers that a kernel wrote, or the definition's numbers, each with its
// tolerance.
func (q *question) answer(define bool) (*Answer, error) {
	o, err := oracle.New(q.p, &q.a)
	if err != nil {
		return nil, err
	}
	ans := new(Answer)
	s := &q.a.Stats
	for i := range q.p.SeqQ {
		row := o.Row(oracle.Index{I: i})
		for _, v := range []struct {
			to      *Values
			got     *attn.Tensor
			x, tol  []float64
			written bool
		}{
			{&ans.O, &q.a.Out, row.Out, row.TolOut, true},
			{&ans.LSE, &s.LSE, []float64{row.LSE}, []float64{row.TolLSE}, s.LSE.Data != nil},
			{&ans.Mean, &s.Mean, []float64{row.Mean}, []float64{row.TolMean}, s.Mean.Data != nil},
			{&ans.Entropy, &s.Entropy, []float64{row.Entropy}, []float64{row.TolEntropy}, s.Entropy.Data != nil},
			{&ans.Max, &s.Max, []float64{row.Max}, []float64{row.TolMax}, s.Max.Data != nil},
			{&ans.Weights, &s.Weights, row.Weights, row.TolWeights, s.Weights.Data != nil},
			{&ans.Scores, &s.Scores, row.Scores, row.TolScores, s.Scores.Data != nil},
		} {
			if v.written {
				v.to.put(q.p.SeqQ, len(v.x), i, 0, v.got.Row(0, i, 0), v.x, v.tol, define)
			}
		}
	}
	if !q.grads {
		return ans, nil
	}
	biases := 0 // numbers of dBias so far; they arrive one by one
	_, err = o.EachGrad(&q.g, func(name string, at oracle.Index, got []float32, want, tol []float64) {
		to, rows := map[string]*Values{
			"dQ": &ans.DQ, "dK": &ans.DK, "dV": &ans.DV, "dRelative": &ans.DRelative, "dMetric": &ans.DMetric, "dBias": &ans.DBias,
		}[name], map[string]int{
			"dQ": q.p.SeqQ, "dK": q.p.SeqKV, "dV": q.p.SeqKV, "dRelative": q.a.Terms.Relative.S, "dMetric": q.a.Terms.Metric.S, "dBias": q.a.Terms.Bias.S,
		}[name]
		cols, from := len(want), 0
		if name == "dBias" {
			cols = q.a.Terms.Bias.D
			from = biases % cols
			biases++
		}
		if to != nil {
			to.put(rows, cols, at.I, from, got, want, tol, define)
		}
	})
	return ans, err
}

// put writes to row i of a matrix with the given rows, starting at column from. It writes the
// kernel's numbers, or the definition's if define is set.
func (v *Values) put(rows, cols, i, from int, got []float32, want, tol []float64, define bool) {
	if v.X == nil {
		v.X, v.Tol = mat.NewDense(rows, cols, nil), mat.NewDense(rows, cols, nil)
	}
	for c := range want {
		x := want[c]
		if !define {
			x = float64(got[c])
		}
		v.X.Set(i, from+c, x)
		v.Tol.Set(i, from+c, math.Max(tol[c], 0))
	}
}
