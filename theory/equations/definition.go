package equations

import (
	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/theory/bridge"
)

// definition is the definition of attention as a kernel that layers can run on. It computes in
// float64 and rounds the results to float32.
type definition struct{}

// Name returns the name of the definition.
func (definition) Name() (algo, isa string) { return bridge.Definition, "float64" }

// Check refuses malformed problems only: the definition covers every feature.
func (definition) Check(p attn.Problem, _ int) (scratch int64, err error) {
	return 0, p.Validate()
}

// Plan returns a plan that holds only the problem.
func (d definition) Plan(p attn.Problem, _ *attn.Team) (attn.Plan, error) {
	if _, err := d.Check(p, 1); err != nil {
		return nil, err
	}
	return definitionPlan{p}, nil
}

type definitionPlan struct{ p attn.Problem }

func (d definitionPlan) Scratch() int64 { return 0 }

// of returns the definition's answers to a call. It panics on wrong operands, as every kernel does.
func (d definitionPlan) of(a *attn.Args) *oracle.Oracle {
	o, err := oracle.New(d.p, a)
	if err != nil {
		panic(err)
	}
	return o
}

// Forward writes the outputs and, if LSE is given, the logarithms of the sums that divide the
// weights.
func (d definitionPlan) Forward(a *attn.Args) {
	o := d.of(a)
	for _, at := range oracle.All(&d.p, a) {
		row := o.Row(at)
		b, i := a.QRow(&d.p, at.B, at.I)
		for c, x := range row.Out {
			a.Out.Row(b, i, at.H)[c] = float32(x)
		}
		if a.Stats.LSE.Data != nil {
			a.Stats.LSE.Row(b, i, at.H)[0] = float32(row.LSE)
		}
	}
}

// Backward writes the gradients whose tensors are given.
func (d definitionPlan) Backward(a *attn.Args, g *attn.Grads) {
	_, err := d.of(a).EachGrad(g, func(_ string, _ oracle.Index, got []float32, want, _ []float64) {
		for c, x := range want {
			got[c] = float32(x)
		}
	})
	if err != nil {
		panic(err)
	}
}
