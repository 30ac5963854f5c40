package peers

import (
	"fmt"
	"time"

	"attnlab/attn"
)

// A backward is a plan with a backward pass.
type backward struct{ *plan }

// Backward is LoadGrads, one RunBackward, and StoreGrads.
func (p *backward) Backward(a *attn.Args, g *attn.Grads) {
	err := p.LoadGrads(a, g)
	if err == nil {
		_, _, err = p.RunBackward(1)
	}
	if err == nil {
		err = p.StoreGrads(g)
	}
	if err != nil {
		panic(err)
	}
}

// LoadGrads copies the gradient of the output to the peer. Other incoming gradients are
// unsupported.
func (p *backward) LoadGrads(a *attn.Args, g *attn.Grads) error {
	err := p.problem.CheckGrads(a, g)
	switch {
	case err != nil:
	case g.LSE.Data != nil:
		err = fmt.Errorf("dLSE: %w", attn.ErrUnsupported)
	case g.Out.Size() < a.Out.Size() || g.Q.Size() < a.Q.Size() || g.K.Size() < a.K.Size() || g.V.Size() < a.V.Size():
		err = fmt.Errorf("dOut, dQ, dK, dV: %w but all together", attn.ErrUnsupported)
	}
	if err != nil {
		return p.kernel.failed(err)
	}
	if p.empty {
		return nil
	}
	_, _, err = p.ask(request{Do: "load_grads"}, []*attn.Tensor{&g.Out}, nil)
	return err
}

// RunBackward computes calls of the backward pass and returns the time that the peer measured.
func (p *backward) RunBackward(calls int) (cpu, wall time.Duration, err error) {
	return p.run(request{Do: "run", Pass: "backward", Calls: calls})
}

// StoreGrads copies the gradients from the peer.
func (p *backward) StoreGrads(g *attn.Grads) error {
	if !p.empty {
		return p.fetch("store_grads", &g.Q, &g.K, &g.V)
	}
	for _, t := range []*attn.Tensor{&g.Q, &g.K, &g.V} {
		for row := range rows(t) {
			clear(row)
		}
	}
	return nil
}
