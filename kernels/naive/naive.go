// Package naive writes out the whole score matrix: the equations as they stand in the papers, in float32, one loop an equation. It is the
// baseline that every other kernel is compared with, and the only one that hands out the attention weights.
//
//	S_ij = scale * sum_a Q_ia K_ja + bias_ij      hidden keys: -Inf
//	A_ij = exp(S_ij / T) / sum_j exp(S_ij / T)
//	O_ib = sum_j A_ij V_jb
//
// For each (batch, head) the n_q x n_k matrix lives in scratch, one a worker, so memory grows with the square of the length.
package naive

import (
	"math"

	"attnlab/attn"
)

const have = attn.NeedSoftmax | attn.NeedWindow | attn.NeedBool | attn.NeedTemp | attn.NeedBias | attn.NeedLengths |
	attn.NeedLSE | attn.NeedMean | attn.NeedEntropy | attn.NeedWeights

type kernel struct{}

// New returns the kernel naive/go.
func New() attn.Kernel { return kernel{} }

func (kernel) Name() (algo, isa string) { return "naive", "go" }

func (kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require("naive/go", have); err != nil {
		return 0, err
	}
	return attn.Floats(max(1, min(workers, p.Batch*p.HeadsQ)), p.SeqQ, p.SeqKV)
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{p: p, team: team, matrix: make([]float32, scratch/4)}
	pl.task = pl.head
	return pl, nil
}

type plan struct {
	p      attn.Problem
	team   *attn.Team
	matrix []float32 // [worker][n_q][n_k]: scores, then weights
	a      *attn.Args
	task   func(worker, task int)
}

func (pl *plan) Scratch() int64 { return 4 * int64(len(pl.matrix)) }

func (pl *plan) Forward(a *attn.Args) {
	pl.p.Must("naive/go", a)
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.HeadsQ, pl.task)
	pl.a = nil
}

func (pl *plan) head(worker, task int) {
	b, h := task/pl.p.HeadsQ, task%pl.p.HeadsQ
	n := pl.p.SeqQ * pl.p.SeqKV
	m := pl.matrix[worker*n:][:n]
	pl.scores(m, b, h)
	pl.softmax(m, b, h)
	pl.output(m, b, h)
}

var inf = float32(math.Inf(1))

// scores fills S, row by row.
func (pl *plan) scores(m []float32, b, h int) {
	p, a := &pl.p, pl.a
	nk, kv, scale := a.K.S, h/p.Group(), float32(p.Scale())
	for i := range a.Q.S {
		s, q := m[i*nk:][:nk], a.Q.Row(b, i, h)
		lo, hi := a.Visible(p, b, i)
		for j := range s {
			s[j] = -inf
		}
		for j := lo; j < hi; j++ {
			dot := float32(0)
			for x, k := range a.K.Row(b, j, kv) {
				dot += float32(q[x] * k)
			}
			s[j] = scale * dot
		}
		if p.Score.Terms&attn.TermBias != 0 {
			bias := &a.Terms.Bias
			off, step := bias.Offset(b, i, h)
			for j := lo; j < hi; j++ {
				s[j] += bias.Data[off+j*step]
			}
		}
		if p.Mask.Bitmap == attn.BoolBitmap {
			off, step := a.Allowed.Offset(b, i, h)
			for j := lo; j < hi; j++ {
				if !a.Allowed.Bool[off+j*step] {
					s[j] = -inf
				}
			}
		}
	}
}

// softmax turns S into A in place. A hidden key keeps its -Inf, which is no weight, so that output can tell it from a weight of 0.
func (pl *plan) softmax(m []float32, b, h int) {
	a, st := pl.a, &pl.a.Stats
	nk := a.K.S
	for i := range a.Q.S {
		w := m[i*nk:][:nk]
		lse, mean, entropy := row(w, pl.p.Temperature())
		store(&st.LSE, b, i, h, lse)
		store(&st.Mean, b, i, h, mean)
		store(&st.Entropy, b, i, h, entropy)
		if st.Weights.Data != nil {
			for j, x := range w {
				if x == -inf {
					x = 0
				}
				st.Weights.Row(b, i, h)[j] = x
			}
		}
	}
}

func store(t *attn.Tensor, b, i, h int, x float32) {
	if t.Data != nil {
		t.Row(b, i, h)[0] = x
	}
}

// row is the softmax of one row at temperature t, with the limits and the infinite scores as package attn states them.
func row(s []float32, t float64) (lse, mean, entropy float32) {
	top, infinite := -inf, 0
	for _, x := range s {
		if x == inf {
			infinite++
		}
		top = max(top, x) // NaN if one is
	}
	switch {
	case top == -inf:
		return -inf, 0, 0
	case top != top || infinite > 1:
		for j, x := range s {
			if x != -inf {
				s[j] = top - top
			}
		}
		return top - top, top - top, top - top
	case infinite == 1: // it takes all the weight
		for j, x := range s {
			if s[j] = -inf; x == inf {
				s[j] = 1
			}
		}
		return inf, inf, 0
	}
	beta := float32(1 / t)
	if t == attn.Frozen {
		beta = inf
	}
	sum, meanZ := float32(0), float32(0)
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
			meanZ += float32(e * z)
			mean += float32(e * x)
		}
		s[j] = e
	}
	for j, e := range s {
		if e != -inf {
			s[j] = e / sum
		}
	}
	mean /= sum
	logSum := float32(math.Log(float64(sum)))
	return logSum + float32(top*beta), mean, logSum - meanZ/sum
}

// output is O = A V over the keys that are not hidden.
func (pl *plan) output(m []float32, b, h int) {
	a := pl.a
	nk, kv := a.K.S, h/pl.p.Group()
	for i := range a.Q.S {
		o, w := a.Out.Row(b, i, h), m[i*nk:][:nk]
		clear(o)
		lo, hi := a.Visible(&pl.p, b, i)
		for j := lo; j < hi; j++ {
			if w[j] == -inf {
				continue
			}
			for c, v := range a.V.Row(b, j, kv) {
				o[c] += float32(w[j] * v)
			}
		}
	}
}
