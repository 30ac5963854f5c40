package attn

import (
	"errors"
	"fmt"
)

// Grads are the operands of the backward pass of a problem with WantGrad. The gradients of a loss
// with respect to the outputs of a call come in; the gradients with respect to its operands go out.
// An incoming gradient that is not set counts as 0. An outgoing one that is not set is not
// computed. Each has the shape of its operand or output, and all are float32. Every row of an
// outgoing gradient is written, with 0 where the row belongs to no sequence.
//
//	dz_ij = p_ij (dO_i.v_j - dO_i.o_i + dLSE_i - dEntropy_i (z_ij - LSE_i + Entropy_i))
//	ds_ij = dz_ij / T                      score, and its bias
//	da_ij = ds_ij (1 - (c_ij/cap)^2)       before the softcap, which returns c_ij
//
//	dV_j  = sum_i p_ij dO_i
//	dK_j  = scale sum_i da_ij q'_i         rotated back
//	dq'_i = scale sum_j da_ij k'_j
//	dQ_i  = g dq'_i                        rotated back, + scale sum_j da_ij r_ij
//	dg    = sum_i (R q_i) dq'_i^T
//	dr    = scale sum_ij da_ij q_i         over the pairs that use the row
//	dBias = sum ds                         over the axes that it is broadcast along
//	dSlope = -sum ds |pos-j|
//	dSink = sum_i p_sink (dLSE_i - dO_i.o_i - dEntropy_i (sink - LSE_i + Entropy_i))
//
// Here k'_j = R k_j, and q'_i is R q_i multiplied by the metric g.
//
// The backward pass reads Out as Forward left it. For softmax it also reads Stats.LSE, and
// Stats.Entropy if its gradient comes in. An LSE of two numbers has one gradient, that of their
// sum.
//
// A linear problem with a rule has the gradients of its recurrence (package oracle). Decay has that
// of the logarithm. A linear problem that Carries a state may have dStateOut, which comes in, and
// dStateIn, which goes out; its Backward reads StateIn.
//
// A row that sees no key has zero gradients, and so has a key that no row sees. A row whose LSE is
// NaN or +Inf has NaN gradients, and so have the keys that it sees.
type Grads struct {
	Out, LSE, Entropy Tensor   // incoming
	Q, K, V           Tensor   // outgoing
	Terms             Operands // outgoing: Bias, Slopes, Sinks, Relative, Metric, Decay, Beta

	StateOut []float32 // incoming, one state
	StateIn  []float32 // outgoing, one state
}

// CheckGrads reports what is wrong with the operands of a backward pass. The error names the
// operand, what it got and what it wants. CheckGrads allocates nothing when the operands are right.
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
		return errors.New("Stats.LSE: not given, but the backward pass reads it: set it before Forward, which writes it")
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
		return errors.New("dEntropy: given, but Stats.Entropy is not: set it before Forward, which writes it")
	}
	for _, o := range [...]struct {
		name string
		t    *Tensor
		d    int
	}{{"dOut", &g.Out, p.DimV}, {"dLSE", &g.LSE, 1}, {"dEntropy", &g.Entropy, 1}} {
		if o.t.isZero() {
			continue
		}
		if err := o.t.fits(o.name, F32, a.Q.B, a.Q.S, p.OutHeads(), o.d); err != nil {
			return err
		}
	}
	return p.checkStateGrads(a, g)
}

func (p *Problem) checkOutgoing(a *Args, g *Grads) error {
	if !g.Terms.Cos.isZero() || !g.Terms.Sin.isZero() {
		return fmt.Errorf("dCos, dSin: %w: no kernel computes this gradient", ErrUnsupported)
	}
	if g.Terms.RelativeClip != 0 {
		return errors.New("dRelative: RelativeClip belongs to the operand, not to its gradient")
	}
	// Names and tensors are in separate arrays: an error uses the name, and whatever shared a
	// struct with it would be moved to the heap.
	t, slopes, sinks, dSlopes, dSinks := &a.Terms, list(a.Terms.Slopes), list(a.Terms.Sinks), list(g.Terms.Slopes), list(g.Terms.Sinks)
	state, dIn, dOut := list(a.StateIn), list(g.StateIn), list(g.StateOut)
	if a.StateIn == nil { // the gradient of a state of zeros
		state = Tensor{B: dIn.B, S: dIn.S, H: dIn.H, D: dIn.D}
	}
	names := [...]string{"Q", "K", "V", "Bias", "Relative", "Metric", "Slopes", "Sinks", "Decay", "Beta", "StateIn", "Out", "Stats.LSE", "Stats.Entropy", "Cos", "Sin", "dOut", "dLSE", "dEntropy", "dStateOut"}
	in := [...]*Tensor{
		&a.Q, &a.K, &a.V, &t.Bias, &t.Relative, &t.Metric, &slopes, &sinks, &t.Decay, &t.Beta, &state, &a.Out, &a.Stats.LSE, &a.Stats.Entropy,
		&t.Cos, &t.Sin, &g.Out, &g.LSE, &g.Entropy, &dOut,
	}
	outNames := [...]string{"dQ", "dK", "dV", "dBias", "dRelative", "dMetric", "dSlopes", "dSinks", "dDecay", "dBeta", "dStateIn"}
	// out[i] is the gradient of in[i].
	out := [...]*Tensor{&g.Q, &g.K, &g.V, &g.Terms.Bias, &g.Terms.Relative, &g.Terms.Metric, &dSlopes, &dSinks, &g.Terms.Decay, &g.Terms.Beta, &dIn}
	for i, o := range out {
		if o.isZero() {
			continue
		}
		if err := o.outgoing(outNames[i], in[i]); err != nil {
			return err
		}
		for k, other := range in {
			if err := o.disjoint(outNames[i], other, names[k]); err != nil {
				return err
			}
		}
		for k, other := range out[:i] {
			if o.interleaves(other) {
				continue
			}
			if err := o.disjoint(outNames[i], other, outNames[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// outgoing reports what is wrong with the outgoing gradient of an operand.
func (t *Tensor) outgoing(name string, of *Tensor) error {
	if err := t.fits(name, F32, of.B, of.S, of.H, of.D); err != nil {
		return err
	}
	return t.writable(name)
}

// list returns a tensor of one row, which is x.
func list(x []float32) Tensor {
	if x == nil {
		return Tensor{}
	}
	return Tensor{Data: x, B: 1, S: 1, H: 1, D: len(x)}
}

// interleaves reports whether two views share rows of one slab without overlapping, as those of
// Packed do.
func (t *Tensor) interleaves(other *Tensor) bool {
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

// Shared reports whether an outgoing gradient sums over pairs of batch entry and key head. The
// addends of such a sum need a fixed order.
func (g *Grads) Shared() bool {
	t := &g.Terms
	return t.Bias.Data != nil || t.Relative.Data != nil || t.Metric.Data != nil || t.Slopes != nil || t.Sinks != nil
}

// Begin clears every outgoing gradient that is set. Every Backward calls it after MustGrads.
func (g *Grads) Begin() {
	t := &g.Terms
	for _, o := range [...]*Tensor{&g.Q, &g.K, &g.V, &t.Bias, &t.Relative, &t.Metric, &t.Decay, &t.Beta} {
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
	clear(g.StateIn)
}

// MustGrads panics when the operands of a backward pass are wrong. Every Backward calls it first.
func (p *Problem) MustGrads(kernel string, a *Args, g *Grads) {
	if err := p.CheckGrads(a, g); err != nil {
		panic(fmt.Errorf("%s: %w", kernel, err))
	}
}
