package nn

import "math"

// An Optimiser changes parameters by their gradients. Step is one change at a learning rate;
// gradients are left as they are. State is what it remembers of the parameters, matrices in an
// order of its own that a checkpoint keeps, and how many steps it has taken.
type Optimiser interface {
	Step(rate float64)
	State() (memory []Mat, steps *int64)
}

// SGD goes down the gradient: w -= rate v, v = momentum v + g.
type SGD struct {
	params   []*Param
	momentum float64
	v        []Mat // nil without momentum
	steps    int64
}

// NewSGD makes one; momentum 0 is none.
func NewSGD(params []*Param, momentum float64) *SGD {
	s := &SGD{params: params, momentum: momentum}
	if momentum != 0 {
		s.v = like(params)
	}
	return s
}

// like is matrices of zeros with the shapes of parameters.
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

// State is the momenta.
func (s *SGD) State() ([]Mat, *int64) { return s.v, &s.steps }

// Adam scales every element's step by how large its gradients have been:
//
//	m = b1 m + (1-b1) g        v = b2 v + (1-b2) g^2
//	w -= rate (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay w)
//
// the decay apart from the gradient, as AdamW has it.
type Adam struct {
	B1, B2, Eps, Decay float64

	params []*Param
	memory []Mat // m and v of the first parameter, then of the next
	steps  int64
}

// NewAdam makes one with the usual constants: .9, .999, 1e-8.
func NewAdam(params []*Param, decay float64) *Adam {
	a := &Adam{B1: .9, B2: .999, Eps: 1e-8, Decay: decay, params: params}
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

// State is the moments.
func (a *Adam) State() ([]Mat, *int64) { return a.memory, &a.steps }

// ClearGrads makes all gradients 0.
func ClearGrads(params []*Param) {
	for _, p := range params {
		p.Grad.Clear()
	}
}

// ClipGrads scales all gradients so that their norm together is at most most, and returns what it
// was.
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

// A Schedule is a learning rate by step: it climbs to Rate over Warmup steps, and then falls along
// half a cosine to Least at the last of Steps.
type Schedule struct {
	Rate, Least   float64
	Warmup, Steps int64
}

// At is the rate of a step, the first being 0.
func (s Schedule) At(step int64) float64 {
	if step < s.Warmup {
		return s.Rate * float64(step+1) / float64(s.Warmup)
	}
	done := float64(step-s.Warmup) / float64(max(s.Steps-1-s.Warmup, 1))
	return s.Least + (s.Rate-s.Least)*(1+math.Cos(math.Pi*min(done, 1)))/2
}
