package main

import "attnlab/attn"

// A watcher is a kernel that stores the weights it computes. Layers use it like any kernel. The
// wrapped kernel must return weights, as naive and tiled do.
type watcher struct {
	attn.Kernel
	layers []*watched // in the order of Plan
}

// Plan plans the problem with its weights.
func (w *watcher) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	p.Want |= attn.WantWeights
	plan, err := w.Kernel.Plan(p, team)
	if err != nil {
		return nil, err
	}
	seen := &watched{plan.(attn.Differentiable), attn.New(attn.BHSD, p.Batch, p.SeqQ, p.HeadsQ, p.SeqKV)}
	w.layers = append(w.layers, seen)
	return seen, nil
}

// watched is a plan with the weights of its last Forward.
type watched struct {
	attn.Differentiable
	weights attn.Tensor
}

// Forward runs the plan and stores the weights.
func (w *watched) Forward(a *attn.Args) {
	a.Stats.Weights = w.weights
	w.Differentiable.Forward(a)
	a.Stats.Weights = attn.Tensor{}
}
