package attn

import (
	"errors"
	"fmt"
)

// Grads are the operands of the backward pass of a problem that has WantGrad: the gradients of some
// number, the loss, by the outputs of a call, which come in, and by its operands, which go out.
// Incoming ones that are not set count as 0, outgoing ones that are not set are not computed. Each
// has the shape of what it is the gradient by; all are float32. Every row of an outgoing one is
// written, those of no sequence with 0.
//
//	dz_ij = p_ij (dO_i.v_j - dO_i.o_i + dLSE_i - dEntropy_i (z_ij - LSE_i + Entropy_i))
//	ds_ij = dz_ij / T                      of the finished score, and of its bias
//	da_ij = ds_ij (1 - (c_ij/cap)^2)       of what a softcap bends to c_ij, before ALiBi and bias
//
//	dV_j  = sum_i p_ij dO_i                dK_j = scale sum_i da_ij q'_i, turned back       q' and k' being what meets
//	dq'_i = scale sum_j da_ij k'_j         dQ_i = g dq'_i, turned back, + scale sum_j da_ij r_ij
//	dg    = sum_i (R q_i) dq'_i^T          dr   = scale sum_ij da_ij q_i, over the pairs that meet that row
//	dBias = sum ds, over the axes that it is broadcast along       dSlope = -sum ds |pos-j|
//	dSink = sum_i p_sink (dLSE_i - dO_i.o_i - dEntropy_i (sink - LSE_i + Entropy_i))
//
// The backward pass reads Out and, of a softmax, Stats.LSE as Forward has left them, and
// Stats.Entropy where its gradient comes in. The gradient of an LSE that is two numbers is one
// number: that by their sum. A row that sees no key has zero gradients, and so has a key that no
// row sees. A row whose LSE is NaN or +Inf has gradients that are NaN, and so have the keys that it
// sees.
type Grads struct {
	Out, LSE, Entropy Tensor   // incoming
	Q, K, V           Tensor   // outgoing
	Terms             Operands // outgoing: Bias, Slopes, Sinks, Relative, Metric
}

// CheckGrads says what is wrong with the operands of a backward pass, naming the operand and both
// shapes. It allocates nothing when all is well.
func (p *Problem) CheckGrads(a *Args, g *Grads) error {
	if err := p.Check(a); err != nil {
		return err
	}
	switch {
	case g == nil:
		return errors.New("grads: nil")
	case p.Want&WantGrad == 0:
		return errors.New("grads: given, but the problem does not Want them")
	}
	if p.ReadsLSE() && a.Stats.LSE.isZero() {
		return errors.New("Stats.LSE: not given, and the backward pass reads what Forward has left there")
	}
	if err := p.checkIncoming(a, g); err != nil {
		return err
	}
	return p.checkOutgoing(a, g)
}

func (p *Problem) checkIncoming(a *Args, g *Grads) error {
	if !p.Op.HasLSE() && (!g.LSE.isZero() || !g.Entropy.isZero()) {
		return fmt.Errorf("dLSE, dEntropy: given, but op %v has no such outputs", p.Op)
	}
	if !g.Entropy.isZero() && a.Stats.Entropy.isZero() {
		return errors.New("dEntropy: given, and there is no Stats.Entropy that Forward has left")
	}
	for _, o := range [...]struct {
		name string
		t    *Tensor
		d    int
	}{{"dOut", &g.Out, p.DimV}, {"dLSE", &g.LSE, 1}, {"dEntropy", &g.Entropy, 1}} {
		if o.t.isZero() {
			continue
		}
		if err := o.t.fits(o.name, F32, a.Q.B, a.Q.S, p.HeadsQ, o.d); err != nil {
			return err
		}
	}
	return nil
}

func (p *Problem) checkOutgoing(a *Args, g *Grads) error {
	if !g.Terms.Cos.isZero() || !g.Terms.Sin.isZero() {
		return fmt.Errorf("dCos, dSin: %w: no kernel computes this gradient", ErrUnsupported)
	}
	if g.Terms.RelativeClip != 0 {
		return errors.New("dRelative: RelativeClip belongs to the operand, not to its gradient")
	}
	// Names and tensors lie apart: a name ends in an error, and what it came with would be moved to
	// the heap.
	t, slopes, sinks, dSlopes, dSinks := &a.Terms, list(a.Terms.Slopes), list(a.Terms.Sinks), list(g.Terms.Slopes), list(g.Terms.Sinks)
	names := [...]string{"Q", "K", "V", "Bias", "Relative", "Metric", "Slopes", "Sinks", "Out", "Stats.LSE", "Stats.Entropy", "Cos", "Sin", "dOut", "dLSE", "dEntropy"}
	in := [...]*Tensor{
		&a.Q, &a.K, &a.V, &t.Bias, &t.Relative, &t.Metric, &slopes, &sinks, &a.Out, &a.Stats.LSE, &a.Stats.Entropy, &t.Cos, &t.Sin, &g.Out, &g.LSE, &g.Entropy,
	}
	outNames := [...]string{"dQ", "dK", "dV", "dBias", "dRelative", "dMetric", "dSlopes", "dSinks"}
	out := [...]*Tensor{&g.Q, &g.K, &g.V, &g.Terms.Bias, &g.Terms.Relative, &g.Terms.Metric, &dSlopes, &dSinks} // gradients by the first ones of these
	for i, o := range out {
		if o.isZero() {
			continue
		}
		if err := o.outgoing(outNames[i], in[i]); err != nil {
			return err
		}
		for k, other := range in {
			if err := o.apart(outNames[i], other, names[k]); err != nil {
				return err
			}
		}
		for k, other := range out[:i] {
			if o.beside(other) {
				continue
			}
			if err := o.apart(outNames[i], other, outNames[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// outgoing says what is wrong with an outgoing gradient.
func (t *Tensor) outgoing(name string, of *Tensor) error {
	if err := t.fits(name, F32, of.B, of.S, of.H, of.D); err != nil {
		return err
	}
	return t.writable(name)
}

// list is a row of numbers as a tensor.
func list(x []float32) Tensor {
	if x == nil {
		return Tensor{}
	}
	return Tensor{Data: x, B: 1, S: 1, H: 1, D: len(x)}
}

// beside is whether two views share rows of one slab without meeting, as those of Packed do.
func (t *Tensor) beside(other *Tensor) bool {
	if t.SS != other.SS || max(t.B, other.B) > 1 && (t.SB != other.SB || t.SB < max(t.S, other.S)*t.SS) {
		return false
	}
	a, b := t.region().lo, other.region().lo
	if b < a {
		t, other, a, b = other, t, b, a
	}
	width := func(t *Tensor) int { return (t.H-1)*t.SH + t.D }
	gap := int(b-a) / 4
	return width(t) <= gap && gap+width(other) <= t.SS
}

// Shared is whether an outgoing gradient is a sum over pairs of batch entry and key head, so that
// their parts have an order.
func (g *Grads) Shared() bool {
	t := &g.Terms
	return t.Bias.Data != nil || t.Relative.Data != nil || t.Metric.Data != nil || t.Slopes != nil || t.Sinks != nil
}

// Begin clears every outgoing gradient that is set. Every Backward begins with it, after MustGrads.
func (g *Grads) Begin() {
	t := &g.Terms
	for _, o := range [...]*Tensor{&g.Q, &g.K, &g.V, &t.Bias, &t.Relative, &t.Metric} {
		if o.Data == nil {
			continue
		}
		for b := range o.B {
			for s := range o.S {
				for h := range o.H {
					clear(o.Row(b, s, h))
				}
			}
		}
	}
	clear(t.Slopes)
	clear(t.Sinks)
}

// MustGrads panics when the operands of a backward pass are wrong. Every Backward begins with it.
func (p *Problem) MustGrads(kernel string, a *Args, g *Grads) {
	if err := p.CheckGrads(a, g); err != nil {
		panic(fmt.Errorf("%s: %w", kernel, err))
	}
}
