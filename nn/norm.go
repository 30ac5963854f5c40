package nn

import "math"

// A Norm normalises every row to mean square 1, and to mean 0 if it is centred. It then scales and
// shifts the columns:
//
//	x'_c = (x_c - mean) / sqrt(mean of (x - mean)^2 + eps)        mean is 0 if not centred
//	y_c  = gain_c x'_c + bias_c
//	dx   = (g - mean(g) - x' mean(g x')) / sqrt(...)              mean(g) only if centred
//	g_c  = dy_c gain_c
//
// Sums over a row are float64.
type Norm struct {
	Gain    *Param // [1][dim]
	Bias    *Param // [1][dim], or nil
	Centred bool
	Eps     float64
}

// NewLayerNorm returns layer normalisation.
func NewLayerNorm(name string, dim int) *Norm {
	return &Norm{Gain: NewParam(name+".gain", 1, dim).Ones(), Bias: NewParam(name+".bias", 1, dim), Centred: true, Eps: 1e-5}
}

// NewRMSNorm returns root-mean-square normalisation, which neither centres nor shifts.
func NewRMSNorm(name string, dim int) *Norm {
	return &Norm{Gain: NewParam(name+".gain", 1, dim).Ones(), Eps: 1e-5}
}

// Params returns the gain and the bias.
func (n *Norm) Params() []*Param {
	if n.Bias == nil {
		return []*Param{n.Gain}
	}
	return []*Param{n.Gain, n.Bias}
}

// Plan allocates. It returns a *NormPass.
func (n *Norm) Plan(on On, in Shape) (Pass, int, error) {
	if err := expect(n.Gain.Name, in, n.Gain.W.Cols); err != nil {
		return nil, 0, err
	}
	p := &NormPass{rowwise: newRowwise(on, in), layer: n, mean: make([]float64, in.Rows()), inverse: make([]float64, in.Rows())}
	p.forward, p.backward, p.params = p.forwardRows, p.backwardRows, p.paramColumns
	return p, in.Dim, nil
}

// A NormPass runs a Norm.
type NormPass struct {
	rowwise
	layer         *Norm
	mean, inverse []float64 // for each row; inverse is 1/sqrt(...)
	params        func(worker, task int)
}

// Moments returns two numbers for each row of the last Forward: the mean that was subtracted, 0 if
// the norm is not centred, and the factor 1/sqrt(...). The slices belong to the pass.
func (p *NormPass) Moments() (mean, inverse []float64) {
	return p.mean[:p.x.Rows], p.inverse[:p.x.Rows]
}

func (p *NormPass) forwardRows(_, task int) {
	gain, bias := p.layer.Gain.W.Row(0), []float32(nil)
	if p.layer.Bias != nil {
		bias = p.layer.Bias.W.Row(0)
	}
	for i, last := span(task, p.x.Rows); i < last; i++ {
		x, y := p.x.Row(i), p.y.Row(i)
		mean, square := 0.0, 0.0
		if p.layer.Centred {
			for _, v := range x {
				mean += float64(v)
			}
			mean /= float64(len(x))
		}
		for _, v := range x {
			d := float64(v) - mean
			square += float64(d * d)
		}
		inverse := 1 / math.Sqrt(square/float64(len(x))+p.layer.Eps)
		p.mean[i], p.inverse[i] = mean, inverse
		for c := range y {
			z := float64(gain[c]) * ((float64(x[c]) - mean) * inverse)
			if bias != nil {
				z += float64(bias[c])
			}
			y[c] = float32(z)
		}
	}
}

// Backward runs the norm backward.
func (p *NormPass) Backward(dy Mat) Mat {
	dx := p.rowwise.Backward(dy)
	p.on.Products.eachRow(dy.Cols, p.params)
	return dx
}

func (p *NormPass) backwardRows(_, task int) {
	gain := p.layer.Gain.W.Row(0)
	for i, last := span(task, p.x.Rows); i < last; i++ {
		x, dy, dx, mean, inverse := p.x.Row(i), p.dy.Row(i), p.dx.Row(i), p.mean[i], p.inverse[i]
		sum, along := 0.0, 0.0
		for c := range x {
			g := float64(dy[c]) * float64(gain[c])
			sum += g
			along += float64(g * ((float64(x[c]) - mean) * inverse))
		}
		if !p.layer.Centred {
			sum = 0
		}
		n := float64(len(x))
		for c := range dx {
			g := float64(dy[c]) * float64(gain[c])
			dx[c] = float32(inverse * (g - sum/n - (float64(x[c])-mean)*inverse*(along/n)))
		}
	}
}

// paramColumns adds up the gradients of some columns' gain and bias, row by row, so that the order
// is the same on every team.
func (p *NormPass) paramColumns(_, task int) {
	gain, bias := p.layer.Gain.Grad.Row(0), []float32(nil)
	if p.layer.Bias != nil {
		bias = p.layer.Bias.Grad.Row(0)
	}
	from, to := span(task, p.dy.Cols)
	var sum, along [rowsAtOnce]float64
	for i := range p.dy.Rows {
		x, dy := p.x.Row(i)[from:to], p.dy.Row(i)[from:to]
		for c := range dy {
			sum[c] += float64(dy[c])
			along[c] += float64(float64(dy[c]) * ((float64(x[c]) - p.mean[i]) * p.inverse[i]))
		}
	}
	for c := from; c < to; c++ {
		gain[c] += float32(along[c-from])
		if bias != nil {
			bias[c] += float32(sum[c-from])
		}
	}
}
