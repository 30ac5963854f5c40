package nn

import "math"

// An Optimiser changes parameters by their gradients.
type Optimiser interface {
	// Step makes one change at a learning rate. It does not change the gradients.
	Step(rate float64)
	// State returns what the optimiser remembers: matrices in a fixed order, which a checkpoint
	// keeps, and the number of steps taken.
	State() (memory []Mat, steps *int64)
}

// SGD is gradient descent with momentum: v = momentum v + g, w -= rate v.
type SGD struct {
	params   []*Param
	momentum float64
	v        []Mat // nil without momentum
	steps    int64
}

// NewSGD returns an SGD; a momentum of 0 means none.
func NewSGD(params []*Param, momentum float64) *SGD {
	s := &SGD{params: params, momentum: momentum}
	if momentum != 0 {
		s.v = like(params)
	}
	return s
}

// like returns matrices of zeros with the shapes of parameters.
func like(params []*Param) []Mat {
	var list []Mat
	for _, p := range params {
		list = append(list, NewMat(p.W.Rows, p.W.Cols))
	}
	return list
}

// Step changes the parameters.
func (s *SGD) Step(rate float64) {
	s.steps++
	for i, p := range s.params {
		g := p.Grad.Data
		if s.v != nil {
			v := s.v[i].Data
			for j := range v {
				v[j] = float32(s.momentum*float64(v[j])) + g[j]
			}
			g = v
		}
		for j := range p.W.Data {
			p.W.Data[j] -= float32(rate * float64(g[j]))
		}
	}
}

// State returns the momenta.
func (s *SGD) State() ([]Mat, *int64) { return s.v, &s.steps }

// Adam scales each element's step by the size of its past gradients. The decay is separate from the
// gradient, as in AdamW:
//
//	m = b1 m + (1-b1) g        v = b2 v + (1-b2) g^2
//	w -= rate (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay w)
type Adam struct {
	B1, B2, Eps, Decay float64

	params []*Param
	memory []Mat // m and v of the first parameter, then of the next
	steps  int64
}

// NewAdam returns an Adam with the usual constants: 0.9, 0.999 and 1e-8.
func NewAdam(params []*Param, decay float64) *Adam {
	a := &Adam{B1: 0.9, B2: 0.999, Eps: 1e-8, Decay: decay, params: params}
	for _, m := range like(params) {
		a.memory = append(a.memory, m, NewMat(m.Rows, m.Cols))
	}
	return a
}

// Step changes the parameters.
func (a *Adam) Step(rate float64) {
	a.steps++
	c1, c2 := 1-math.Pow(a.B1, float64(a.steps)), 1-math.Pow(a.B2, float64(a.steps))
	for i, p := range a.params {
		m, v := a.memory[2*i].Data, a.memory[2*i+1].Data
		for j, g := range p.Grad.Data {
			g, w := float64(g), float64(p.W.Data[j])
			m[j] = float32(float64(a.B1*float64(m[j])) + float64((1-a.B1)*g))
			v[j] = float32(float64(a.B2*float64(v[j])) + float64((1-a.B2)*g*g))
			step := float64(m[j])/c1/(math.Sqrt(float64(v[j])/c2)+a.Eps) + float64(a.Decay*w)
			p.W.Data[j] = float32(w - float64(rate*step))
		}
	}
}

// State returns the moments.
func (a *Adam) State() ([]Mat, *int64) { return a.memory, &a.steps }

// ClearGrads sets all gradients to 0.
func ClearGrads(params []*Param) {
	for _, p := range params {
		p.Grad.Clear()
	}
}

// ClipGrads scales all gradients so that their common norm is at most most. It returns the norm
// before that.
func ClipGrads(params []*Param, most float64) float64 {
	square := 0.0
	for _, p := range params {
		for _, g := range p.Grad.Data {
			square += float64(float64(g) * float64(g))
		}
	}
	norm := math.Sqrt(square)
	if norm > most {
		f := float32(most / norm)
		for _, p := range params {
			for j := range p.Grad.Data {
				p.Grad.Data[j] *= f
			}
		}
	}
	return norm
}

// A Schedule is a learning rate for each step. It rises linearly to Rate over Warmup steps, then
// falls along half a cosine to Least at the last of Steps.
type Schedule struct {
	Rate, Least   float64
	Warmup, Steps int64
}

// At returns the rate of a step. The first step is 0.
func (s Schedule) At(step int64) float64 {
	if step < s.Warmup {
		return s.Rate * float64(step+1) / float64(s.Warmup)
	}
	done := float64(step-s.Warmup) / float64(max(s.Steps-1-s.Warmup, 1))
	return s.Least + (s.Rate-s.Least)*(1+math.Cos(math.Pi*min(done, 1)))/2
}
