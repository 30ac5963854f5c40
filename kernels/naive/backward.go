package naive

import (
	"math"

	"attnlab/attn"
)

// A Staged plan is a plan of this kernel with a backward pass. It shows the matrices that the pass
// computes.
type Staged interface {
	attn.Differentiable
	// Watch makes every later Backward call f for each head; nil ends that. The workers of a team
	// call f concurrently, and its argument is valid until it returns.
	Watch(f func(Stages))
}

// Stages are the matrices of one head in the backward pass, [query][key], in the order of their
// computation. A hidden pair is 0 in all of them.
//
//	A_ij   the weights
//	dV_j   = sum_i A_ij dO_i
//	dA_ij  = dO_i . V_j
//	dS_ij  = A_ij (dA_ij - sum_k A_ik dA_ik + dLSE_i - dH_i (log A_ij + H_i)) / T
//	dQ, dK = dS passed through the score: scalar.Gradient
type Stages struct {
	B, H, Queries, Keys int
	A, DA, DS           []float32
}

// differentiable is a plan with a backward pass.
type differentiable struct {
	*plan
	g     *attn.Grads
	watch func(Stages)
	task  func(worker, task int)
}

func (d *differentiable) Watch(f func(Stages)) { d.watch = f }

func (d *differentiable) Backward(a *attn.Args, g *attn.Grads) {
	defer d.guard.Enter("naive/go").Leave()
	p := &d.p
	p.MustGrads("naive/go", a, g)
	g.Begin()
	d.a, d.g = a, g
	if pairs := p.Batch * p.HeadsKV; g.Shared() { // then key heads must take turns
		for task := range pairs {
			d.pair(0, task)
		}
	} else {
		d.team.Run(pairs, d.task)
	}
}

// pair computes the heads that share a key head.
func (d *differentiable) pair(worker, task int) {
	w, p := d.workers[worker], &d.p
	b, kv := task/p.HeadsKV, task%p.HeadsKV
	for h := kv * p.Group(); h < (kv+1)*p.Group(); h++ {
		w.scores(b, h)
		for i := range d.a.Queries(p, b) {
			entropy := w.weights(d.g, b, h, i)
			w.gradient(d.g, b, h, i, entropy)
		}
		w.pass(d.g, b, h)
		if d.watch != nil {
			d.watch(w.stages(b, h))
		}
	}
	w.back.RotateBack(d.a, d.g, b, kv)
}

// weights turns a row of S into a row of A, adds its contribution to the gradient of the sink, and
// returns the row's entropy. A row with scores that are not finite has weights that are NaN.
func (w *worker) weights(g *attn.Grads, b, h, i int) (entropy float32) {
	p, s := &w.p, w.row(b, i)
	sink := w.a.Sink(p, h)
	sound := sink < inf
	for _, x := range s {
		sound = sound && x < inf // false for NaN
	}
	if !sound {
		nan := float32(math.NaN())
		for j, x := range s {
			if x != -inf {
				s[j] = nan
			}
		}
		w.sink(g, h, nan)
		return nan
	}
	_, _, entropy, weight := row(s, p.Temperature(), sink)
	if weight > 0 {
		dout, dlse, dentropy := w.incoming(g, b, h, i)
		d := float32(0)
		for j, x := range s {
			if x > 0 {
				d += float32(x * w.along(dout, j))
			}
		}
		w.sink(g, h, float32(weight*(dlse-d-float32(dentropy*(float32(math.Log(float64(weight)))+entropy)))))
	}
	return entropy
}

// sink adds to the gradient of the sink of a head.
func (w *worker) sink(g *attn.Grads, h int, x float32) {
	if g.Terms.Sinks != nil {
		g.Terms.Sinks[h] += x
	}
}

// incoming returns the gradients of a row's results.
func (w *worker) incoming(g *attn.Grads, b, h, i int) (dout []float32, dlse, dentropy float32) {
	at, row := w.a.QRow(&w.p, b, i)
	if g.Out.Data != nil {
		dout = g.Out.Row(at, row, h)
	}
	if g.LSE.Data != nil {
		dlse = g.LSE.Row(at, row, h)[0]
	}
	if g.Entropy.Data != nil {
		dentropy = g.Entropy.Row(at, row, h)[0]
	}
	return dout, dlse, dentropy
}

// along returns dO . V_j.
func (w *worker) along(dout []float32, j int) float32 {
	if dout == nil {
		return 0
	}
	sum := float32(0)
	for c, v := range w.Value(j) {
		sum += float32(dout[c] * v)
	}
	return sum
}

// gradient fills a row of dA and of dS.
func (w *worker) gradient(g *attn.Grads, b, h, i int, entropy float32) {
	w.Query(w.a, b, i, h)
	a := w.row(b, i)
	n, at := len(a), len(a)*i
	dA, dS := w.dA[at:][:n], w.dS[at:][:n]
	dout, dlse, dentropy := w.incoming(g, b, h, i)
	sum := float32(0)
	for j, x := range a {
		dA[j], dS[j] = 0, 0
		if x != -inf {
			dA[j] = w.along(dout, j)
			sum += float32(x * dA[j])
		}
	}
	t := float32(w.p.Temperature())
	for j, x := range a {
		if x == -inf {
			continue
		}
		by := dA[j] - sum + dlse
		if dentropy != 0 && x != 0 {
			by -= float32(dentropy * (float32(math.Log(float64(x))) + entropy))
		}
		dS[j] = float32(x*by) / t
	}
}

// pass passes dS on to Q, K and the score terms, and dO to V.
func (w *worker) pass(g *attn.Grads, b, h int) {
	for i := range w.a.Queries(&w.p, b) {
		w.back.Query(w.a, g, b, i, h)
		a := w.row(b, i)
		dout, _, _ := w.incoming(g, b, h, i)
		for j, x := range a {
			if x == -inf {
				continue
			}
			if dout != nil {
				w.back.AddValue(j, x, dout)
			}
			w.back.AddScore(j, w.dS[i*len(a)+j])
		}
		w.back.Done()
	}
}

// stages returns the head's matrices for Watch.
func (w *worker) stages(b, h int) Stages {
	nq, nk := w.a.Queries(&w.p, b), w.a.Keys(&w.p, b)
	n := nq * nk
	for i, x := range w.matrix[:n] {
		if x == -inf {
			w.matrix[i] = 0
		}
	}
	return Stages{B: b, H: h, Queries: nq, Keys: nk, A: w.matrix[:n], DA: w.dA[:n], DS: w.dS[:n]}
}
