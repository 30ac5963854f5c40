package nn

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/geometry"
)

// Natural goes down the natural gradient, in which the size of a step is how much it changes what
// is predicted, and not how much it changes numbers:
//
//	w -= rate (F + damping 1)^-1 g        F = Σ weight s s^T, over the gradients s observed since the last step
//
// F is Fisher's information when, for each of n rows (or sequences) that are predicted alone and
// each outcome y, the gradient s of -log p(y) is observed with the weight p(y)/n. The empirical
// information has one observation a row, of its own target's loss with the weight 1/n: cheaper, and
// as good as the targets are drawn from what is predicted. Each observation is a backward pass of
// its own, from a pass that is planned for one row:
//
//	for each row: Forward, ClearGrads, Backward, Observe(1/n)
//	Forward, ClearGrads, Backward of all rows, Step(rate)
//
// All of it is float64. F has the square of the number of parameters: an observation costs as many
// operations, and a step a third of the cube. So it is for small layers, or for one layer of a
// model whose others are trained otherwise; a Trainer, which observes nothing, cannot drive it.
type Natural struct {
	params   []*Param
	damping  float64
	f        *mat.SymDense
	gradient []float64
	observed bool
	steps    int64
}

// mostNatural is as many parameters as a step of some 3e9 operations can have: a second or two.
const mostNatural = 2048

// NewNatural makes one. The damping must be more than 0: where outcomes are classes, no shift of
// all logits can be seen, and F alone is singular. It should be small beside the information that
// counts, as .001 of it: the larger, the more of the step is along the plain gradient, divided by
// it.
func NewNatural(params []*Param, damping float64) (*Natural, error) {
	n := Count(params)
	if n == 0 || n > mostNatural {
		return nil, fmt.Errorf("nn: natural gradient of %d parameters: it solves as many equations, and takes 1 to %d; give it one layer's, and the others to Adam", n, mostNatural)
	}
	if !(damping > 0) {
		return nil, fmt.Errorf("nn: natural gradient with a damping of %v: want more than 0, as the information of classes is singular", damping)
	}
	return &Natural{params: params, damping: damping, f: mat.NewSymDense(n, nil), gradient: make([]float64, n)}, nil
}

// Observe adds to the information that of the gradients as they are: of the loss of one row alone.
func (o *Natural) Observe(weight float64) {
	o.f.SymRankOne(o.f, weight, mat.NewVecDense(len(o.gradient), o.take()))
	o.observed = true
}

// take is all gradients in one row.
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

// Step changes the parameters, and forgets what was observed. It panics if that is nothing, or no
// number.
func (o *Natural) Step(rate float64) {
	if !o.observed {
		panic("nn: a natural gradient without information: Observe the gradient of each row before every Step")
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

// State is no memory: information is forgotten with every step.
func (o *Natural) State() ([]Mat, *int64) { return nil, &o.steps }
