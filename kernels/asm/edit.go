package asm

import "math"

// An Edit is a call of Cap, Add, Slope or Hide, which change scores between the product and the
// weights.
type Edit struct {
	Panel
	Scale   float64   // Cap: factor of tanh; Add, Slope: factor of the score, fused
	Bias    []float32 // Add: [N][Lanes]
	Factor  float64   // Add: factor of the bias
	Bounded bool      // Add: a sum of finite numbers is at least -MaxFloat32
	// Slope: [Lanes]; their sum is the slope, more exact than a float32.
	SlopeHi, SlopeLo []float32
	// Slope: [Lanes], less than 2^31 from any row. Distances of 2^24 and more are rounded.
	Pos []int32
	// Hide: [⌈N/32⌉][Lanes]. Row j is visible if bit j%32 of row j/32 is set.
	Bits []uint32
}

// capRows computes Cap. math.Tanh is within one or two roundings of a float64.
func capRows(p *Edit) {
	for j := range p.N {
		row := p.P[j*p.Lanes:][:p.Width]
		for lane, x := range row {
			row[lane] = float32(p.Scale * math.Tanh(float64(x)))
		}
	}
}

func addRows(p *Edit) {
	for j := range p.N {
		row, add := p.P[j*p.Lanes:][:p.Width], p.Bias[j*p.Lanes:][:p.Width]
		for lane, x := range row {
			row[lane] = p.Biased(x, add[lane])
		}
	}
}

// Biased returns the result of Add for one score. It rounds once: a large bias must not be rounded
// twice.
func (e *Edit) Biased(score, bias float32) float32 {
	sum := float32(float64(e.Scale*float64(score)) + float64(e.Factor*float64(bias)))
	if sum < e.lowest() && min(score, bias) >= -math.MaxFloat32 {
		return e.lowest()
	}
	return sum
}

// lowest returns the least result of Add for finite numbers.
func (e *Edit) lowest() float32 {
	if e.Bounded {
		return -math.MaxFloat32
	}
	return negInf
}

func slopeRows(p *Edit) {
	for lane := range p.Width {
		slope, pos := float64(p.SlopeHi[lane])+float64(p.SlopeLo[lane]), int(p.Pos[lane])
		for j := range p.N {
			x := &p.P[j*p.Lanes+lane]
			*x = float32(float64(p.Scale*float64(*x)) + float64(slope*math.Abs(float64(pos-j))))
		}
	}
}

func hideRows(p *Edit) {
	for j := range p.N {
		row, words := p.P[j*p.Lanes:][:p.Width], p.Bits[j/32*p.Lanes:][:p.Width]
		for lane, word := range words {
			if word>>(j%32)&1 == 0 {
				row[lane] = negInf
			}
		}
	}
}

func rotate(x, cos, sin []float32, pairs bool) {
	step, apart := 1, len(cos)
	if pairs {
		step, apart = 2, 1
	}
	for i, c := range cos {
		at, s := i*step, sin[i]
		a, b := x[at], x[at+apart]
		x[at], x[at+apart] = float32(a*c)-float32(b*s), float32(a*s)+float32(b*c)
	}
}
