package layer

import (
	"time"

	"attnlab/attn"
	"attnlab/nn"
)

// A watch adds up the time that the attention and the matrix products of a layer take. While it has
// a judge, it shows every result to it.
//
// The clock is read before and after each of them, so reading it is part of the layer's time.
type watch struct {
	attention, products time.Duration
	judge               *judge
}

// product notes a product, and how long it took. It is called by a Multiplier that is watched.
func (w *watch) product(p nn.Product, took time.Duration) {
	w.products += took
	if w.judge != nil {
		w.judge.product(p)
	}
}

// A watchedKernel is a kernel whose plans are watched.
type watchedKernel struct {
	attn.Kernel
	watch *watch
}

// Plan returns a plan that reports its calls to the watch.
func (k watchedKernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := k.Kernel.Plan(p, team)
	if err != nil {
		return nil, err
	}
	w := &watchedPlan{plan, p, k.watch}
	if d, ok := plan.(attn.Differentiable); ok {
		return &watchedGradients{w, d}, nil
	}
	return w, nil
}

// A watchedPlan is a plan of the forward pass.
type watchedPlan struct {
	attn.Plan
	problem attn.Problem
	watch   *watch
}

// Forward runs the forward pass and notes how long it took.
func (p *watchedPlan) Forward(a *attn.Args) {
	begun := time.Now()
	p.Plan.Forward(a)
	p.watch.attention += time.Since(begun)
	if j := p.watch.judge; j != nil {
		j.forward(p.problem, a)
	}
}

// A watchedGradients is a plan of both passes.
type watchedGradients struct {
	*watchedPlan
	back attn.Differentiable
}

// Backward runs the backward pass and notes how long it took.
func (p *watchedGradients) Backward(a *attn.Args, g *attn.Grads) {
	begun := time.Now()
	p.back.Backward(a, g)
	p.watch.attention += time.Since(begun)
	if j := p.watch.judge; j != nil {
		j.backward(p.problem, p.back, a, g)
	}
}
