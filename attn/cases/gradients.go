package cases

import (
	"fmt"
	"math/rand/v2"

	"attnlab/attn"
)

// NewGrads lays out the gradients of a call in the given layout. There is an incoming gradient for
// each output of the call that has one, and an outgoing gradient for each operand. They are cut
// from slab, or from new memory if slab is nil, and hold Poison.
func NewGrads(p attn.Problem, a *attn.Args, layout string, slab []float32) (*attn.Grads, error) {
	n := GradsLen(p, a, layout)
	if slab == nil {
		slab = make([]float32, n)
	}
	if len(slab) < n {
		return nil, fmt.Errorf("layout %s: the slab holds %d floats, the gradients need %d (GradsLen)", layout, len(slab), n)
	}
	fill(slab, Poison)
	return carveGrads(&p, a, layout, &carver{slab: slab}), nil
}

// GradsLen returns the number of floats that NewGrads needs for the gradients of a call. It reads
// only the shapes of the call.
func GradsLen(p attn.Problem, a *attn.Args, layout string) int {
	var c carver
	carveGrads(&p, a, layout, &c)
	return c.used
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
	if p.Op.HasLSE() {
		g.LSE = as(&attn.Tensor{B: a.Stats.LSE.B, S: a.Stats.LSE.S, H: a.Stats.LSE.H, D: min(a.Stats.LSE.D, 1)}, layout)
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
	small := layout
	if layout == "packed" {
		small = "bshd"
	}
	g.Terms.Decay, g.Terms.Beta = as(&t.Decay, small), as(&t.Beta, small)
	if n := len(a.StateIn); n > 0 {
		g.StateOut, g.StateIn = c.take(n), c.take(n)
	}
	g.Terms.Bias, g.Terms.Relative, g.Terms.Metric = as(&t.Bias, "bhsd"), as(&t.Relative, "bhsd"), as(&t.Metric, "bhsd")
	g.Terms.Slopes, g.Terms.Sinks = c.take(len(t.Slopes)), c.take(len(t.Sinks))
	if len(t.Slopes) == 0 {
		g.Terms.Slopes = nil
	}
	if len(t.Sinks) == 0 {
		g.Terms.Sinks = nil
	}
	c.close()
	return g
}

// FillGrads writes the incoming gradients of a call. They are unit normals. The same seed gives the
// same numbers in every layout.
func FillGrads(g *attn.Grads, seed uint64) {
	for i, t := range []*attn.Tensor{&g.Out, &g.LSE, &g.Entropy} {
		normal(t, rand.New(rand.NewPCG(seed, 16+uint64(i))), 1)
	}
	r := rand.New(rand.NewPCG(seed, 19))
	for i := range g.StateOut {
		g.StateOut[i] = float32(r.NormFloat64())
	}
}

// Backward reports whether the case has a backward pass.
func (c *Case) Backward() bool { return c.Problem.Want&attn.WantGrad != 0 }

// Incoming calls f for each incoming gradient that is set.
func Incoming(g *attn.Grads, f func(name string, t *attn.Tensor)) {
	visit(f, []named{{"dOut", &g.Out}, {"dLSE", &g.LSE}, {"dEntropy", &g.Entropy}, {"dStateOut", line(g.StateOut)}})
}

// Outgoing calls f for each outgoing gradient that is set.
func Outgoing(g *attn.Grads, f func(name string, t *attn.Tensor)) {
	t := &g.Terms
	visit(f, []named{
		{"dQ", &g.Q},
		{"dK", &g.K},
		{"dV", &g.V},
		{"dBias", &t.Bias},
		{"dRelative", &t.Relative},
		{"dMetric", &t.Metric},
		{"dSlopes", line(t.Slopes)},
		{"dSinks", line(t.Sinks)},
		{"dDecay", &t.Decay},
		{"dBeta", &t.Beta},
		{"dStateIn", line(g.StateIn)},
	})
}

// line returns a tensor of one row, which is x.
func line(x []float32) *attn.Tensor { return &attn.Tensor{Data: x, B: 1, S: 1, H: 1, D: len(x)} }

// Differentiated returns the case with its gradients wanted, and with those of its by-products'
// gradients that are in keep. It reports whether there is such a case. In family pairs only the
// cases with gradients have one, which are not cases of the forward pass. Family odd has none: the
// gradients of what is not finite are products of infinities with 0.
func (c Case) Differentiated(keep attn.Want) (Case, bool) {
	if c.Family == "pairs" && !c.Backward() || c.Family == "odd" {
		return c, false
	}
	c.Problem.Want = attn.WantGrad
	if c.Problem.Op.HasLSE() {
		c.Problem.Want |= attn.WantEntropy & keep
	}
	return c, c.Problem.Validate() == nil
}
