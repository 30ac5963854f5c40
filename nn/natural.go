package nn

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/geometry"
)

// Natural is descent along the natural gradient. It measures a step by how much the predictions
// change, not by how much the parameters change:
//
//	w -= rate (F + damping 1)^-1 g
//	F = Σ weight s s^T             over the gradients s observed since the last step
//
// F is Fisher's information if every outcome y of every row is observed: the gradient s of -log
// p(y) with the weight p(y)/n, for n rows (or sequences) that are predicted independently. The
// empirical information needs one observation for each row: the loss of the row's target with the
// weight 1/n. It is cheaper, and as good if targets are distributed as predicted.
//
// Each observation is a backward pass of its own, from a pass that is planned for one row:
//
//	for each row: Forward, ClearGrads, Backward, Observe(1/n)
//	Forward, ClearGrads, Backward of all rows, Step(rate)
//
// Everything is float64. For n parameters F has n^2 elements. An observation takes as many
// operations and a step n^3/3, so use Natural for a small layer, and another optimiser for the
// other layers. A Trainer cannot use it, because it observes nothing.
type Natural struct {
	params   []*Param
	damping  float64
	f        *mat.SymDense
	gradient []float64
	observed bool
	steps    int64
}

// mostNatural is the largest number of parameters. A step with that many takes about 3e9
// operations.
const mostNatural = 2048

// NewNatural returns a Natural. The damping must be positive: adding a constant to all logits of
// classes changes no prediction, so F alone is singular. The damping should be small compared with
// the information that counts, for example 0.001 of it. The larger it is, the more a step resembles
// the plain gradient divided by the damping.
func NewNatural(params []*Param, damping float64) (*Natural, error) {
	n := Count(params)
	if n == 0 || n > mostNatural {
		return nil, fmt.Errorf("nn: natural gradient of %d parameters, want 1 to %d: give it the parameters of one layer, and the others to Adam", n, mostNatural)
	}
	if !(damping > 0) {
		return nil, fmt.Errorf("nn: natural gradient with a damping of %v, want more than 0: the information of classes is singular", damping)
	}
	return &Natural{params: params, damping: damping, f: mat.NewSymDense(n, nil), gradient: make([]float64, n)}, nil
}

// Observe adds the present gradients, those of the loss of one row alone, to the information.
func (o *Natural) Observe(weight float64) {
	o.f.SymRankOne(o.f, weight, mat.NewVecDense(len(o.gradient), o.take()))
	o.observed = true
}

// take returns all gradients in one slice.
func (o *Natural) take() []float64 {
	at := 0
	for _, p := range o.params {
		for i := range p.Grad.Rows {
			for _, g := range p.Grad.Row(i) {
				o.gradient[at] = float64(g)
				at++
			}
		}
	}
	return o.gradient
}

// Step changes the parameters and clears the information. It panics if nothing was observed since
// the last Step, or if the information is not finite.
func (o *Natural) Step(rate float64) {
	if !o.observed {
		panic("nn: natural gradient without information: Observe the gradient of each row before every Step")
	}
	step, err := geometry.Natural(o.f, o.take(), o.damping)
	if err != nil {
		panic(fmt.Errorf("nn: natural gradient: %w", err))
	}
	at := 0
	for _, p := range o.params {
		for i := range p.W.Rows {
			w := p.W.Row(i)
			for j := range w {
				w[j] -= float32(rate * step[at])
				at++
			}
		}
	}
	o.f.Zero()
	o.observed = false
	o.steps++
}

// State returns no matrices: every step clears the information.
func (o *Natural) State() ([]Mat, *int64) { return nil, &o.steps }
