package cases

import (
	"math/rand/v2"

	"attnlab/attn"
)

// NewGrads lays out the gradients of a call, in the layout of its operands: an incoming one for each output that Forward has left and that has a
// gradient, an outgoing one for each operand. They are cut from slab, which holds Poison everywhere else, and outgoing ones hold Poison too.
func NewGrads(p attn.Problem, a *attn.Args, layout string) (g *attn.Grads, slab []float32) {
	var c carver
	carveGrads(&p, a, layout, &c)
	slab = make([]float32, c.used)
	fill(slab, Poison)
	return carveGrads(&p, a, layout, &carver{slab: slab}), slab
}

func carveGrads(p *attn.Problem, a *attn.Args, layout string, c *carver) *attn.Grads {
	g := new(attn.Grads)
	as := func(t *attn.Tensor, layout string) attn.Tensor {
		if t.Size() == 0 {
			return attn.Tensor{}
		}
		return c.tensor(attn.F32, layout, t.B, t.S, t.H, t.D)
	}
	g.Out = as(&a.Out, layout)
	if p.Op == attn.OpSoftmax {
		g.LSE = as(&a.Stats.LSE, layout)
		g.Entropy = as(&a.Stats.Entropy, layout)
	}
	if layout == "packed" {
		slab := c.take(a.Q.B * a.Q.S * (a.Q.H*a.Q.D + a.K.H*(a.K.D+a.V.D)))
		if slab != nil {
			g.Q, g.K, g.V = attn.Packed(slab, a.Q.B, a.Q.S, a.Q.H, a.K.H, a.K.D, a.V.D)
		}
	} else {
		g.Q, g.K, g.V = as(&a.Q, layout), as(&a.K, layout), as(&a.V, layout)
	}
	t := &a.Terms
	g.Terms.Bias, g.Terms.Relative, g.Terms.Metric = as(&t.Bias, "bhsd"), as(&t.Relative, "bhsd"), as(&t.Metric, "bhsd")
	g.Terms.Slopes, g.Terms.Sinks = c.take(len(t.Slopes)), c.take(len(t.Sinks))
	if len(t.Slopes) == 0 {
		g.Terms.Slopes = nil
	}
	if len(t.Sinks) == 0 {
		g.Terms.Sinks = nil
	}
	c.take(0)
	return g
}

// FillGrads writes the incoming gradients of a call: unit normals, the same ones for the same seed in every layout.
func FillGrads(g *attn.Grads, seed uint64) {
	for i, t := range []*attn.Tensor{&g.Out, &g.LSE, &g.Entropy} {
		normal(t, rand.New(rand.NewPCG(seed, 16+uint64(i))), 1)
	}
}

// Incoming calls f for each incoming gradient that is set.
func Incoming(g *attn.Grads, f func(name string, t *attn.Tensor)) {
	visit(f, []named{{"dOut", &g.Out}, {"dLSE", &g.LSE}, {"dEntropy", &g.Entropy}})
}

// Outgoing calls f for each outgoing gradient that is set.
func Outgoing(g *attn.Grads, f func(name string, t *attn.Tensor)) {
	row := func(x []float32) *attn.Tensor { return &attn.Tensor{Data: x, B: 1, S: 1, H: 1, D: len(x)} }
	t := &g.Terms
	visit(f, []named{
		{"dQ", &g.Q},
		{"dK", &g.K},
		{"dV", &g.V},
		{"dBias", &t.Bias},
		{"dRelative", &t.Relative},
		{"dMetric", &t.Metric},
		{"dSlopes", row(t.Slopes)},
		{"dSinks", row(t.Sinks)},
	})
}

// Differentiated returns the case as one whose gradients are asked for, with those of by-products that are in keep, and whether they can be.
func (c Case) Differentiated(keep attn.Want) (Case, bool) {
	c.Family = "gradients/" + c.Family
	c.Problem.Want = attn.WantGrad
	if c.Problem.Op == attn.OpSoftmax {
		c.Problem.Want |= attn.WantEntropy & keep
	}
	return c, c.Problem.Validate() == nil
}
