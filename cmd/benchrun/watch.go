package main

import (
	"time"

	"attnlab/attn"
	"attnlab/nn"
)

// A watch adds up the time that the attention and the matrix products of a layer take, and shows
// them to a judge while there is one. The clock is read before and after each of them, seven of a
// block forward; what that takes is in the time of the layer.
type watch struct {
	attention, products time.Duration
	judge               *layerJudge
}

// product is for Multiplier.Watch.
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

type watchedPlan struct {
	attn.Plan
	problem attn.Problem
	watch   *watch
}

func (p *watchedPlan) Forward(a *attn.Args) {
	begun := time.Now()
	p.Plan.Forward(a)
	p.watch.attention += time.Since(begun)
	if j := p.watch.judge; j != nil {
		j.forward(p.problem, a)
	}
}

type watchedGradients struct {
	*watchedPlan
	back attn.Differentiable
}

func (p *watchedGradients) Backward(a *attn.Args, g *attn.Grads) {
	begun := time.Now()
	p.back.Backward(a, g)
	p.watch.attention += time.Since(begun)
	if j := p.watch.judge; j != nil {
		j.backward(p.problem, p.back, a, g)
	}
}
