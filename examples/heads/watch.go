package main

import "attnlab/attn"

// A watcher is a kernel that keeps the weights of what it answers. It is handed to layers in place
// of the kernel that it is, and layers do not know: the kernel must hand out weights, as naive and
// tiled do.
type watcher struct {
	attn.Kernel
	layers []*watched // in the order in which they were planned
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

// watched is a plan and the weights of its last Forward.
type watched struct {
	attn.Differentiable
	weights attn.Tensor
}

// Forward also keeps the weights.
func (w *watched) Forward(a *attn.Args) {
	a.Stats.Weights = w.weights
	w.Differentiable.Forward(a)
	a.Stats.Weights = attn.Tensor{}
}
