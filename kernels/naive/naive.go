// Package naive computes attention by the equations as papers state them, in float32, with one loop
// for each equation and the whole score matrix in memory. It is the baseline that every other
// kernel is compared with, and it supports everything that softmax attention has here.
//
//	S_ij = scale * q_i . k_j + bias_ij, and other terms (scalar.Scorer); hidden keys: -Inf
//	A_ij = exp(S_ij / T) / (sum_j exp(S_ij / T) + exp(sink))
//	O_ib = sum_j A_ij V_jb
//
// The n_q x n_k matrix of one head is in a worker's scratch, so memory grows with the square of the
// length.
package naive

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/scalar"
)

const have = attn.AllSoftmax

type kernel struct{}

// New returns the kernel naive/go.
func New() attn.Kernel { return kernel{} }

func (kernel) Name() (algo, isa string) { return "naive", "go" }

func (kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require("naive/go", have); err != nil {
		return 0, err
	}
	matrix, err := attn.Floats(p.SeqQ, p.SeqKV)
	if err != nil {
		return 0, err
	}
	matrices, scorer := 1, scalar.ScorerFloats(&p)
	if p.Want&attn.WantGrad != 0 {
		matrices, scorer = 3, scalar.GradientFloats(&p)
	}
	return attn.Floats(max(1, min(workers, p.Batch*p.HeadsQ)), matrices*int(matrix/4)+scorer+p.DimV)
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{p: p, team: team, scratch: scratch}
	for range max(1, min(team.Workers(), p.Batch*p.HeadsQ)) {
		w := &worker{plan: pl, matrix: attn.Alloc[float32](p.SeqQ * p.SeqKV), out: make([]float32, p.DimV)}
		if p.Want&attn.WantGrad != 0 {
			w.back = scalar.NewGradient(&pl.p)
			w.Scorer, w.dA, w.dS = w.back.Scorer, attn.Alloc[float32](p.SeqQ*p.SeqKV), attn.Alloc[float32](p.SeqQ*p.SeqKV)
		} else {
			w.Scorer = scalar.NewScorer(&pl.p)
		}
		pl.workers = append(pl.workers, w)
	}
	pl.task = pl.head
	if p.Want&attn.WantGrad != 0 {
		d := &differentiable{plan: pl}
		d.task = d.pair
		return d, nil
	}
	return pl, nil
}

type plan struct {
	guard   attn.Guard
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []*worker
	a       *attn.Args
	task    func(worker, task int)
}

// worker is the scratch of one worker.
type worker struct {
	*plan
	*scalar.Scorer
	matrix []float32 // [n_q][n_k]: scores, then weights
	out    []float32 // an output row

	back   *scalar.Gradient // nil without a backward pass
	dA, dS []float32        // [n_q][n_k], nil without a backward pass
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	defer pl.guard.Enter("naive/go").Leave()
	pl.p.Must("naive/go", a)
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.HeadsQ, pl.task)
}

func (pl *plan) head(worker, task int) {
	w, b, h := pl.workers[worker], task/pl.p.HeadsQ, task%pl.p.HeadsQ
	w.scores(b, h)
	w.softmax(b, h)
	w.output(b, h)
}

var inf = float32(math.Inf(1))

// row returns the row of query i in the matrix.
func (w *worker) row(b, i int) []float32 {
	nk := w.a.Keys(&w.p, b)
	return w.matrix[i*nk:][:nk]
}

// scores fills S, row by row.
func (w *worker) scores(b, h int) {
	for i := range w.a.Queries(&w.p, b) {
		w.Query(w.a, b, i, h)
		lo, hi := w.Visible()
		s := w.row(b, i)
		for j := range s {
			s[j] = -inf
			if lo <= j && j < hi {
				s[j] = w.Score(j)
			}
		}
	}
}

// softmax turns S into A in place. A hidden key keeps its -Inf, so that output can tell it from a
// key with weight 0.
func (w *worker) softmax(b, h int) {
	p, a, st := &w.p, w.a, &w.a.Stats
	sink := a.Sink(p, h)
	for i := range a.Queries(p, b) {
		s := w.row(b, i)
		at, q := a.QRow(p, b, i)
		fill(&st.Scores, at, q, h, s, -inf)
		top, first := largest(s)
		lse, mean, entropy, _ := row(s, p.Temperature(), sink)
		if mean != mean {
			top, first = mean, -1
		}
		store(&st.Max, at, q, h, top)
		if st.LSE.Data != nil {
			lse.Write(st.LSE.Row(at, q, h))
		}
		store(&st.Mean, at, q, h, mean)
		store(&st.Entropy, at, q, h, entropy)
		if st.ArgMax != nil {
			st.ArgMax[(at*a.Q.S+q)*p.HeadsQ+h] = first
		}
		fill(&st.Weights, at, q, h, s, 0)
	}
}

func store(t *attn.Tensor, b, i, h int, x float32) {
	if t.Data != nil {
		t.Row(b, i, h)[0] = x
	}
}

// fill writes a row of scores or weights, with hidden for keys that are hidden or not in use.
func fill(t *attn.Tensor, b, i, h int, s []float32, hidden float32) {
	if t.Data == nil {
		return
	}
	row := t.Row(b, i, h)
	for j := range row {
		row[j] = hidden
		if j < len(s) && s[j] != -inf {
			row[j] = s[j]
		}
	}
}

// largest returns the largest score and the first key that has it.
func largest(s []float32) (top float32, first int32) {
	top, first = -inf, -1
	for j, x := range s {
		if x > top {
			top, first = x, int32(j)
		}
	}
	return top, first
}

// row computes the softmax of one row at temperature t, in place, with a sink whose weight it
// returns. Limits of t and infinite scores follow the doc of package attn.
func row(s []float32, t float64, sink float32) (lse attn.LogSum, mean, entropy, weight float32) {
	top, infinite := float32(float64(sink)*t), 0
	if sink == -inf {
		top = -inf
	}
	if sink == inf {
		infinite++
	}
	for _, x := range s {
		if x == inf {
			infinite++
		}
		top = max(top, x) // NaN if one is
	}
	switch {
	case top == -inf:
		return attn.LogSum{Ref: math.Inf(-1)}, 0, 0, 0
	case top != top || infinite > 1:
		for j, x := range s {
			if x != -inf {
				s[j] = top - top
			}
		}
		return attn.LogSum{Ref: math.NaN()}, top - top, top - top, top - top
	case infinite == 1: // the infinite score gets all the weight
		for j, x := range s {
			if s[j] = -inf; x == inf {
				s[j] = 1
			}
		}
		if sink == inf {
			weight = 1
		}
		return attn.LogSum{Ref: math.Inf(1)}, inf, 0, weight
	}
	beta := float32(1 / t)
	if t == attn.Frozen {
		beta = inf
	}
	// Means are float64: in float32, equal scores would be rounded the same way each time.
	sum, means, meanZ := float32(0), 0.0, 0.0
	if sink != -inf {
		z := min(sink-float32(top*beta), 0) // rounding top could make it positive
		weight = float32(math.Exp(float64(z)))
		sum = weight
		means, meanZ = float64(sum)*float64(sink)*t, float64(sum)*float64(z)
	}
	for j, x := range s {
		if x == -inf {
			continue
		}
		z := float32((x - top) * beta)
		if x == top {
			z = 0 // also where beta is infinite
		}
		e := float32(math.Exp(float64(z)))
		sum += e
		if e > 0 {
			meanZ += float64(e) * float64(z)
			means += float64(e) * float64(x)
		}
		s[j] = e
	}
	for j, e := range s {
		if e != -inf {
			s[j] = e / sum
		}
	}
	logSum := float32(math.Log(float64(sum)))
	lse = attn.LogSum{Ref: float64(float32(top * beta)), Log: float64(logSum)}
	return lse, float32(means / float64(sum)), logSum - float32(meanZ/float64(sum)), weight / sum
}

// output computes O = A V over the keys that are not hidden.
func (w *worker) output(b, h int) {
	p, a := &w.p, w.a
	sink := a.Sink(p, h)
	for i := range a.Queries(p, b) {
		w.Query(a, b, i, h)
		clear(w.out)
		if sink != sink { // NaN, also in a row that sees no key
			for c := range w.out {
				w.out[c] = sink
			}
		}
		for j, x := range w.row(b, i) {
			if x == -inf {
				continue
			}
			for c, v := range w.Value(j) {
				w.out[c] += float32(x * v)
			}
		}
		at, row := a.QRow(p, b, i)
		a.Out.Write(w.out, at, row, h)
	}
}
