package nn

import "math/rand/v2"

// A Dropout sets elements to 0 with probability Rate while a model trains, and divides the others
// by 1-Rate. Otherwise it is the identity. The choice of elements depends only on the seed, the
// step, the layer's number and the row: not on the team or on earlier calls.
type Dropout struct {
	Rate  float64
	Layer uint64 // a different number for every Dropout of a model
	Noise *Noise
}

// Noise tells all Dropouts of a model whether it trains, and at which step.
type Noise struct {
	Seed  uint64
	Step  uint64
	Train bool
}

// Params returns nil.
func (d *Dropout) Params() []*Param { return nil }

// Plan allocates.
func (d *Dropout) Plan(on On, in Shape) (Pass, int, error) {
	p := &dropoutPass{rowwise: newRowwise(on, in), layer: d, keep: make([]uint32, in.Rows()*in.Dim)}
	for range on.Products.workers {
		p.sources = append(p.sources, new(rand.PCG))
	}
	p.forward, p.backward = p.forwardRows, p.backwardRows
	return p, in.Dim, nil
}

type dropoutPass struct {
	rowwise
	layer   *Dropout
	keep    []uint32 // a random number for each element; least or more keeps it
	trained bool     // the last Forward was in training
	sources []*rand.PCG
}

func (p *dropoutPass) Forward(x Mat) Mat {
	if p.trained = p.layer.Noise.Train && p.layer.Rate > 0; !p.trained {
		return x
	}
	return p.rowwise.Forward(x)
}

func (p *dropoutPass) Backward(dy Mat) Mat {
	if !p.trained {
		return dy
	}
	return p.rowwise.Backward(dy)
}

// least returns the smallest random number that keeps an element.
func (p *dropoutPass) least() uint32 { return uint32(p.layer.Rate * (1 << 32)) }

func (p *dropoutPass) forwardRows(worker, task int) {
	source, noise, least, factor := p.sources[worker], p.layer.Noise, p.least(), float32(1/(1-p.layer.Rate))
	for i, last := span(task, p.x.Rows); i < last; i++ {
		source.Seed(noise.Seed+p.layer.Layer<<32, noise.Step<<32+uint64(i))
		x, y, keep := p.x.Row(i), p.y.Row(i), p.keep[i*p.x.Cols:]
		for c, x := range x {
			keep[c] = uint32(source.Uint64() >> 32)
			if y[c] = 0; keep[c] >= least {
				y[c] = x * factor
			}
		}
	}
}

func (p *dropoutPass) backwardRows(_, task int) {
	least, factor := p.least(), float32(1/(1-p.layer.Rate))
	for i, last := span(task, p.dy.Rows); i < last; i++ {
		dy, dx, keep := p.dy.Row(i), p.dx.Row(i), p.keep[i*p.dy.Cols:]
		for c, g := range dy {
			if dx[c] = 0; keep[c] >= least {
				dx[c] = g * factor
			}
		}
	}
}
