package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Experts is a mixture of experts. A gate computes weights over the layers for every row, and the
// Top layers with the largest weights process the row. Of equal weights the lower index comes
// first:
//
//	G = softmax(x W_g)
//	y = Σ_e g_e expert_e(x)        over the Top largest G_e
//	g_e = G_e                      or G_e / Σ of the chosen G if Renormalise
//
// Gradients pass through the chosen weights. With StraightThrough the weights are 1/Top in the
// forward pass; the gradient passes to G_e as if it were the weight.
//
// Balance adds a loss to the gradient of the gate: Balance times Experts Σ_e f_e mean(G_e), where
// f_e is expert e's share of all choices. The loss has its minimum, Balance, when all experts are
// chosen equally often.
type Experts struct {
	Gate            *Linear
	Layers          []Layer
	Top             int
	Renormalise     bool
	StraightThrough bool
	Balance         float64
}

// NewExperts returns a mixture of experts layers, each made by a call of layer.
func NewExperts(name string, dim, experts, top int, layer func(i int) Layer, r *rand.Rand) (*Experts, error) {
	if experts < 1 || top < 1 || top > experts {
		return nil, fmt.Errorf("nn: %s: the top %d of %d experts, want at least 1 and at most all", name, top, experts)
	}
	e := &Experts{Gate: NewLinear(name+".gate", dim, experts, false, r), Top: top}
	for i := range experts {
		e.Layers = append(e.Layers, layer(i))
	}
	return e, nil
}

// Params returns the parameters of the gate and of the layers.
func (e *Experts) Params() []*Param { return append(e.Gate.Params(), Chain(e.Layers).Params()...) }

// Route writes the chosen experts of a row of logits, best first, and their weights. all receives
// softmax(logits).
func (e *Experts) Route(logits []float32, all []float64, chosen []int, weights []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		top = math.Max(top, float64(x))
	}
	for i, x := range logits {
		all[i] = math.Exp(float64(x) - top)
		sum += all[i]
	}
	for i := range all {
		all[i] /= sum
	}
	kept := 0.0
	for n := range chosen {
		best := -1
		for i, g := range all {
			taken := false
			for _, c := range chosen[:n] {
				taken = taken || c == i
			}
			if !taken && (best < 0 || g > all[best]) {
				best = i
			}
		}
		chosen[n] = best
		kept += all[best]
	}
	for n, i := range chosen {
		switch {
		case e.StraightThrough:
			weights[n] = 1 / float64(len(chosen))
		case e.Renormalise:
			weights[n] = all[i] / kept
		default:
			weights[n] = all[i]
		}
	}
}

// Plan plans every expert for all rows, because a gate may choose one expert for all.
func (e *Experts) Plan(on On, in Shape) (Pass, int, error) {
	rows, n := in.Rows(), len(e.Layers)
	p := &ExpertsPass{layer: e, all: make([]float64, rows*n), chosen: make([]int, rows*e.Top), weights: make([]float64, rows*e.Top), Load: make([]int, n)}
	gate, experts, err := e.Gate.Plan(on, in)
	if err != nil {
		return nil, 0, err
	}
	if experts != n {
		return nil, 0, fmt.Errorf("%w: %s has %d columns, want %d, one for each expert", ErrShape, e.Gate.W.Name, experts, n)
	}
	dim := 0
	for i, l := range e.Layers {
		pass, out, err := l.Plan(on, Shape{1, rows, in.Dim})
		if err != nil {
			return nil, 0, err
		}
		if i > 0 && out != dim {
			return nil, 0, fmt.Errorf("%w: %s: expert %d returns rows of %d, want %d like the others", ErrShape, e.Gate.W.Name, i, out, dim)
		}
		dim = out
		p.experts = append(p.experts, expert{pass: pass, rows: make([]place, 0, rows), x: NewMat(rows, in.Dim), dy: NewMat(rows, out)})
	}
	p.gate, p.y, p.dx, p.logits = gate, NewMat(rows, dim), NewMat(rows, in.Dim), NewMat(rows, n)
	return p, dim, nil
}

// An ExpertsPass runs Experts.
type ExpertsPass struct {
	Load        []int   // after Forward: the number of rows of each expert
	BalanceLoss float64 // after Forward: the loss of balance, not multiplied by Balance

	layer   *Experts
	gate    Pass
	experts []expert
	all     []float64 // [row][expert]: G
	chosen  []int     // [row][Top]
	weights []float64
	y, dx   Mat
	logits  Mat // gradient of the logits
}

type expert struct {
	pass  Pass
	rows  []place
	x, dy Mat
	y     Mat // output of the last Forward
}

// A place is a row, and the rank of an expert among the row's choices.
type place struct{ row, choice int }

// Forward copies the rows of each expert together, runs the expert, and adds up the outputs in the
// order of the experts.
func (p *ExpertsPass) Forward(x Mat) Mat {
	e, n := p.layer, len(p.experts)
	logits := p.gate.Forward(x)
	for i := range p.experts {
		p.experts[i].rows = p.experts[i].rows[:0]
	}
	for r := range x.Rows {
		chosen := p.chosen[r*e.Top:][:e.Top]
		e.Route(logits.Row(r), p.all[r*n:][:n], chosen, p.weights[r*e.Top:][:e.Top])
		for choice, i := range chosen {
			p.experts[i].rows = append(p.experts[i].rows, place{r, choice})
		}
	}
	y := p.y.First(x.Rows)
	y.Clear()
	for i := range p.experts {
		own := &p.experts[i]
		p.Load[i] = len(own.rows)
		for k, at := range own.rows {
			copy(own.x.Row(k), x.Row(at.row))
		}
		if len(own.rows) == 0 {
			continue
		}
		own.y = own.pass.Forward(own.x.First(len(own.rows)))
		for k, at := range own.rows {
			w, to := float32(p.weights[at.row*e.Top+at.choice]), y.Row(at.row)
			for c, v := range own.y.Row(k) {
				to[c] += float32(w * v)
			}
		}
	}
	p.BalanceLoss = 0
	for i := range n {
		mean := 0.0
		for r := range x.Rows {
			mean += p.all[r*n+i]
		}
		p.BalanceLoss += float64(n) * float64(p.Load[i]) / float64(max(x.Rows*e.Top, 1)) * mean / float64(max(x.Rows, 1))
	}
	return y
}

// Backward runs the layer backward.
func (p *ExpertsPass) Backward(dy Mat) Mat {
	e, n := p.layer, len(p.experts)
	dx, logits := p.dx.First(dy.Rows), p.logits.First(dy.Rows)
	logits.Clear()
	for i := range p.experts { // stores dg of the chosen in logits; gateRow converts it
		own := &p.experts[i]
		for k, at := range own.rows {
			w, g, sum := float32(p.weights[at.row*e.Top+at.choice]), dy.Row(at.row), 0.0
			for c, v := range own.y.Row(k) {
				sum += float64(v) * float64(g[c])
				own.dy.Row(k)[c] = w * g[c]
			}
			logits.Row(at.row)[i] = float32(sum)
		}
	}
	for r := range dy.Rows {
		p.gateRow(p.all[r*n:][:n], p.chosen[r*e.Top:][:e.Top], p.weights[r*e.Top:][:e.Top], logits.Row(r), dy.Rows)
	}
	for r, from := 0, p.gate.Backward(logits); r < dy.Rows; r++ {
		copy(dx.Row(r), from.Row(r))
	}
	for i := range p.experts {
		own := &p.experts[i]
		if len(own.rows) == 0 {
			continue
		}
		from := own.pass.Backward(own.dy.First(len(own.rows)))
		for k, at := range own.rows {
			add(dx.Row(at.row), from.Row(k))
		}
	}
	return dx
}

// gateRow converts the gradient of the chosen weights to the gradient of the logits, in place.
func (p *ExpertsPass) gateRow(all []float64, chosen []int, weights []float64, d []float32, rows int) {
	e := p.layer
	if e.Renormalise && !e.StraightThrough { // g = G/Σ: dG_e = (dg_e - Σ g dg) / Σ
		kept, along := 0.0, 0.0
		for n, i := range chosen {
			kept += all[i]
			along += float64(weights[n] * float64(d[i]))
		}
		for _, i := range chosen {
			d[i] = float32((float64(d[i]) - along) / kept)
		}
	}
	along := 0.0
	for i, g := range all {
		if e.Balance != 0 {
			d[i] += float32(e.Balance * float64(len(all)) * float64(p.Load[i]) / float64(rows*e.Top) / float64(rows))
		}
		along += float64(g * float64(d[i]))
	}
	for i, g := range all {
		d[i] = float32(g * (float64(d[i]) - along))
	}
}
