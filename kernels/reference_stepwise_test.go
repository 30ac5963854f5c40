package kernels_test

import (
	"fmt"
	"math"
	"slices"

	"attnlab/attn"
)

// stepwise is the plainest kernel for rules and states: the recurrence of the doc of package attn
// in float32, token by token, and its gradients with all states in memory. TestReference runs it
// beside the kernels.
type stepwise struct{}

func (stepwise) Name() (algo, isa string) { return "stepwise", "test" }

func (stepwise) Check(p attn.Problem, _ int) (int64, error) {
	if err := p.Require("stepwise", attn.NeedLinear|attn.AllRules|attn.NeedRagged|attn.NeedGrad); err != nil {
		return 0, err
	}
	if !p.Carries() {
		return 0, fmt.Errorf("%w: stepwise: a problem without a state", attn.ErrUnsupported)
	}
	return 0, nil
}

func (k stepwise) Plan(p attn.Problem, _ *attn.Team) (attn.Plan, error) {
	_, err := k.Check(p, 1)
	return &steps{p: p}, err
}

type steps struct{ p attn.Problem }

func (x *steps) Scratch() int64 { return 0 }

func (x *steps) Forward(a *attn.Args) { x.all(a, nil) }

func (x *steps) Backward(a *attn.Args, g *attn.Grads) {
	g.Begin()
	x.all(a, g)
}

func (x *steps) all(a *attn.Args, g *attn.Grads) {
	for b := range x.p.Batch {
		for s := range x.p.StateHeads() {
			h := &stepwiseHead{reference: reference{p: &x.p, a: a, g: g}, b: b, s: s, cols: x.p.DimV}
			if !x.p.Linear.Unnormalised {
				h.cols++
			}
			h.run()
		}
	}
}

// A stepwiseHead is a state head. States are [d][cols], where the last column is z.
type stepwiseHead struct {
	reference
	b, s, cols int
}

func (h *stepwiseHead) slot(state []float32, slot, i, j int) *float32 {
	c := recurrence{reference: &h.reference, b: h.b, s: h.s, columns: h.cols}
	return &state[slot*h.stateLen()+c.stateAt(i, j)]
}

// row returns the features of a row of Q or K in float32.
func (h *stepwiseHead) row(t *attn.Tensor, batch, row, head int) []float32 {
	var to []float32
	for _, x := range h.features(numbersOf(t, batch, row, head)) {
		to = append(to, float32(x.x))
	}
	return to
}

// timesRow returns x^T S, of the given number of columns.
func timesRow(x, s []float32, cols int) []float32 {
	to := make([]float32, cols)
	for i, y := range x {
		for j := range to {
			to[j] += y * s[i*cols+j]
		}
	}
	return to
}

// timesColumn returns S y.
func timesColumn(s, y []float32) []float32 {
	to := make([]float32, len(s)/len(y))
	for i := range to {
		for j, x := range y {
			to[i] += s[i*len(y)+j] * x
		}
	}
	return to
}

// addOuter adds f x y^T to S.
func addOuter(s []float32, f float32, x, y []float32) {
	for i := range x {
		for j := range y {
			s[i*len(y)+j] += f * x[i] * y[j]
		}
	}
}

// gates returns the factors of the rows of the state.
func (h *stepwiseHead) gates(batch, row int) []float32 {
	alpha := slices.Repeat([]float32{1}, h.p.Dim)
	if h.p.Linear.Gate != attn.NoGate {
		g := h.a.Terms.Decay.Row(batch, row, h.p.StateHeadOf(h.s, h.p.ValueHeads()))
		for i := range alpha {
			alpha[i] = float32(math.Exp(float64(g[i%len(g)])))
		}
	}
	return alpha
}

func (h *stepwiseHead) beta(t *attn.Tensor, batch, row int) *float32 {
	return &t.Row(batch, row, h.p.StateHeadOf(h.s, t.H))[0]
}

// A stepwiseToken is one step: the features of k, beta, w = v - S^T k, u = beta w, and the states
// after the gate and after the write.
type stepwiseToken struct {
	k, w, u, alpha []float32
	beta           float32
	decayed, after []float32
}

func (h *stepwiseHead) run() {
	p, a := h.p, h.a
	state := make([]float32, p.Dim*h.cols)
	for n := range state {
		if a.StateIn != nil {
			state[n] = *h.slot(a.StateIn, 0, n/h.cols, n%h.cols)
		}
	}
	n := h.keys(h.b)
	var tokens []stepwiseToken
	states := [][]float32{state}
	for t := range n {
		batch, row := h.keyPlace(h.b, t)
		x := stepwiseToken{k: h.row(&a.K, batch, row, p.StateHeadOf(h.s, p.HeadsKV)), alpha: h.gates(batch, row), beta: 1, after: slices.Clone(state)}
		for i := range x.after {
			x.after[i] *= x.alpha[i/h.cols]
		}
		x.decayed = slices.Clone(x.after)
		x.w = slices.Clone(a.V.Row(batch, row, p.StateHeadOf(h.s, p.ValueHeads())))
		if h.cols > p.DimV {
			x.w = append(x.w, 1)
		}
		if p.Linear.Delta {
			x.beta = *h.beta(&a.Terms.Beta, batch, row)
			for j, y := range timesRow(x.k, x.decayed, h.cols) {
				x.w[j] -= y
			}
		}
		for _, w := range x.w {
			x.u = append(x.u, x.beta*w)
		}
		addOuter(x.after, 1, x.k, x.u)
		state = x.after
		states, tokens = append(states, state), append(tokens, x)
		if h.g == nil {
			h.eachOut(func(out, q int) {
				y, f := h.read(t, out, q, state)
				for j, to := 0, a.Out.Row(batch, row, out); j < len(to); j++ {
					to[j] = f * y[j]
				}
			})
		}
	}
	if h.g != nil {
		h.back(tokens)
		return
	}
	for slot := range len(a.StateOut) / max(1, p.StateLen()) {
		for i, x := range states[max(n-slot, 0)] {
			*h.slot(a.StateOut, slot, i/h.cols, i%h.cols) = x
		}
	}
}

// eachOut calls f for the heads of Out that read the state head, with their heads of Q.
func (h *stepwiseHead) eachOut(f func(out, q int)) {
	for out := range h.p.OutHeads() {
		if h.p.HeadOf(out, h.p.StateHeads()) == h.s {
			f(out, h.p.HeadOf(out, h.p.HeadsQ))
		}
	}
}

// read returns q^T S and the factor that makes it an output.
func (h *stepwiseHead) read(t, out, q int, state []float32) (y []float32, factor float32) {
	batch, row := h.place(h.b, t)
	y = timesRow(h.row(&h.a.Q, batch, row, q), state, h.cols)
	if h.cols > h.p.DimV {
		return y, 1 / (y[h.p.DimV] + float32(h.p.Linear.Eps))
	}
	return y, float32(h.scale())
}

// addTo adds the gradient of features to that of the row that they are features of.
func (h *stepwiseHead) addTo(to, of *attn.Tensor, batch, row, head int, by []float32) {
	if to.Data == nil {
		return
	}
	var df []number
	for _, x := range by {
		df = append(df, operand(x))
	}
	for i, x := range h.featureBack(numbersOf(of, batch, row, head), df) {
		to.Row(batch, row, head)[i] += float32(x.x)
	}
}

func (h *stepwiseHead) back(tokens []stepwiseToken) {
	p, a, g := h.p, h.a, h.g
	ds := make([]float32, p.Dim*h.cols)
	for n := range ds {
		if g.StateOut != nil {
			ds[n] = *h.slot(g.StateOut, 0, n/h.cols, n%h.cols)
		}
	}
	kh, vh := p.StateHeadOf(h.s, p.HeadsKV), p.StateHeadOf(h.s, p.ValueHeads())
	for t, x := range slices.Backward(tokens) {
		batch, row := h.keyPlace(h.b, t)
		h.eachOut(func(out, q int) {
			y, f := h.read(t, out, q, x.after)
			dn, sum := make([]float32, h.cols), float32(0)
			for j, d := range g.Out.Row(batch, row, out) {
				dn[j], sum = f*d, sum+d*f*y[j]
			}
			if h.cols > p.DimV {
				dn[p.DimV] = -f * sum
			}
			h.addTo(&g.Q, &a.Q, batch, row, q, timesColumn(x.after, dn))
			addOuter(ds, 1, h.row(&a.Q, batch, row, q), dn)
		})
		du, dBeta := timesRow(x.k, ds, h.cols), float32(0)
		dv := make([]float32, h.cols)
		for j, y := range du {
			dv[j], dBeta = x.beta*y, dBeta+y*x.w[j]
			if j < p.DimV && g.V.Data != nil {
				g.V.Row(batch, row, vh)[j] += dv[j]
			}
		}
		dk := timesColumn(ds, x.u)
		if p.Linear.Delta {
			for i, y := range timesColumn(x.decayed, dv) {
				dk[i] -= y
			}
			addOuter(ds, -1, x.k, dv)
			if g.Terms.Beta.Data != nil {
				*h.beta(&g.Terms.Beta, batch, row) += dBeta
			}
		}
		h.addTo(&g.K, &a.K, batch, row, kh, dk)
		for i := range ds {
			if p.Linear.Gate != attn.NoGate && g.Terms.Decay.Data != nil {
				to := g.Terms.Decay.Row(batch, row, vh)
				to[i/h.cols%len(to)] += ds[i] * x.decayed[i]
			}
			ds[i] *= x.alpha[i/h.cols]
		}
	}
	for i, x := range ds {
		if g.StateIn != nil {
			*h.slot(g.StateIn, 0, i/h.cols, i%h.cols) = x
		}
	}
}
