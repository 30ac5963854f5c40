package attn

import (
	"errors"
	"fmt"
)

// Args are the operands of one call.
type Args struct {
	Q, K, V, Out   Tensor
	QStart, KStart []int32  // ragged: Batch+1 row offsets
	KLen, QPos     []int32  // keys in use and first query position, per batch; nil: all keys, and the mask's alignment
	Pages          []int32  // page table; a ring is a table that repeats
	Allowed        Bits     // element mask
	Terms          Operands // operands of score terms
	Stats          Stats    // where by-products go
}

// Operands are the operands of score terms.
type Operands struct {
	Bias         Tensor    // [batch, query, head, key], each extent the problem's or 1
	Slopes       []float32 // ALiBi, one a query head
	Sinks        []float32 // one a query head
	Relative     Tensor
	Metric       Tensor
	Cos, Sin     Tensor
	Features     Tensor // linear: projection
	Decay, Beta  Tensor // linear: gated and delta rules
	RelativeClip int
}

// Stats are by-products: each one that is set is written. Row values have shape [batch, query, head, 1].
type Stats struct {
	LSE, Mean, Entropy, Max Tensor
	Weights, Scores         Tensor  // [batch, query, head, key]
	ArgMax                  []int32 // [batch][query][head]
}

// Grads are the operands of the backward pass.
type Grads struct {
	Out, LSE, Entropy Tensor // incoming
	Q, K, V           Tensor // outgoing
	Terms             Operands
	State, StateIn    []float32 // incoming and outgoing, linear only
}

// Keys is the number of keys in use in batch b.
func (a *Args) Keys(b int) int {
	if a.KLen != nil {
		return int(a.KLen[b])
	}
	return a.K.S
}

// Pos is the position of the first query of batch b; query i stands at Pos+i.
func (a *Args) Pos(p *Problem, b int) int {
	switch {
	case a.QPos != nil:
		return int(a.QPos[b])
	case p.Mask.Align == TopLeft:
		return 0
	}
	return a.Keys(b) - a.Q.S
}

// Visible is the interval of keys that the band shows to query i of batch b.
func (a *Args) Visible(p *Problem, b, i int) (lo, hi int) {
	return p.Mask.Keys(a.Pos(p, b)+i, a.Keys(b))
}

// Check says what is wrong with the operands of a call, naming the operand and both shapes. It allocates nothing when all is well.
func (p *Problem) Check(a *Args) error {
	if a == nil {
		return errors.New("args: nil")
	}
	nq, nk := a.Q.S, a.K.S
	if nq > p.SeqQ || nq < 0 {
		return fmt.Errorf("Q: %d rows, the plan's capacity is %d", nq, p.SeqQ)
	}
	if nk > p.SeqKV || nk < 0 {
		return fmt.Errorf("K: %d rows, the plan's capacity is %d", nk, p.SeqKV)
	}
	if err := a.Q.fits("Q", p.Batch, nq, p.HeadsQ, p.Dim); err != nil {
		return err
	}
	if err := a.K.fits("K", p.Batch, nk, p.HeadsKV, p.Dim); err != nil {
		return err
	}
	if err := a.V.fits("V", p.Batch, nk, p.HeadsKV, p.DimV); err != nil {
		return err
	}
	if err := a.output("Out", &a.Out, p.Batch, nq, p.HeadsQ, p.DimV); err != nil {
		return err
	}
	if err := p.checkLengths(a); err != nil {
		return err
	}
	if err := p.checkMask(a); err != nil {
		return err
	}
	if err := p.checkTerms(a); err != nil {
		return err
	}
	return p.checkStats(a)
}

func (a *Args) output(name string, t *Tensor, b, s, h, d int) error {
	if err := t.fits(name, b, s, h, d); err != nil {
		return err
	}
	if err := t.writable(name); err != nil {
		return err
	}
	if err := t.apart(name, &a.Q, "Q"); err != nil {
		return err
	}
	if err := t.apart(name, &a.K, "K"); err != nil {
		return err
	}
	return t.apart(name, &a.V, "V")
}

func (p *Problem) checkLengths(a *Args) error {
	switch {
	case a.QStart != nil || a.KStart != nil:
		return errors.New("QStart, KStart: given, but the problem is not Ragged")
	case a.Pages != nil:
		return errors.New("Pages: given, but the problem has no Page size")
	case !p.Lengths && (a.KLen != nil || a.QPos != nil):
		return errors.New("KLen, QPos: given, but the problem does not say Lengths")
	case a.KLen != nil && len(a.KLen) != p.Batch:
		return fmt.Errorf("KLen: %d entries for batch %d", len(a.KLen), p.Batch)
	case a.QPos != nil && len(a.QPos) != p.Batch:
		return fmt.Errorf("QPos: %d entries for batch %d", len(a.QPos), p.Batch)
	}
	for b, n := range a.KLen {
		if n < 0 || int(n) > a.K.S {
			return fmt.Errorf("KLen[%d]: %d keys in use of %d", b, n, a.K.S)
		}
	}
	return nil
}

func (p *Problem) checkMask(a *Args) error {
	m := &a.Allowed
	if p.Mask.Bitmap == NoBitmap {
		if m.Bool != nil || m.Words != nil {
			return errors.New("Allowed: given, but the problem's mask has no bitmap")
		}
		return nil
	}
	if err := broadcastable("Allowed", m.B, m.S, m.H, m.D, p.Batch, a.Q.S, p.HeadsQ, a.K.S); err != nil {
		return err
	}
	if min(m.SB, m.SS, m.SH) < 0 {
		return fmt.Errorf("Allowed: negative stride (%d, %d, %d)", m.SB, m.SS, m.SH)
	}
	if n := span([4]int{m.B, m.S, m.H, m.D}, [4]int{m.SB, m.SS, m.SH, 1}); n < 0 || n > len(m.Bool) {
		return fmt.Errorf("Allowed: %d elements, shape %s reaches past them", len(m.Bool), shape(m.B, m.S, m.H, m.D))
	}
	return nil
}

func (p *Problem) checkTerms(a *Args) error {
	t := &a.Terms
	if p.Score.Terms&TermBias == 0 {
		if !t.Bias.isZero() {
			return errors.New("Bias: given, but the problem's score has no TermBias")
		}
	} else {
		b := &t.Bias
		if b.Type != F32 {
			return fmt.Errorf("Bias: type %v: %w: operands are f32", b.Type, ErrUnsupported)
		}
		if err := broadcastable("Bias", b.B, b.S, b.H, b.D, p.Batch, a.Q.S, p.HeadsQ, a.K.S); err != nil {
			return err
		}
		if err := b.room("Bias"); err != nil {
			return err
		}
	}
	for _, o := range [...]struct {
		name string
		set  bool
	}{
		{"Slopes", t.Slopes != nil},
		{"Sinks", t.Sinks != nil},
		{"Relative", !t.Relative.isZero()},
		{"Metric", !t.Metric.isZero()},
		{"Cos", !t.Cos.isZero()},
		{"Sin", !t.Sin.isZero()},
		{"Features", !t.Features.isZero()},
		{"Decay", !t.Decay.isZero()},
		{"Beta", !t.Beta.isZero()},
	} {
		if o.set {
			return fmt.Errorf("%s: %w: no kernel reads this operand yet", o.name, ErrUnsupported)
		}
	}
	return nil
}

func (p *Problem) checkStats(a *Args) error {
	s := &a.Stats
	for _, o := range [...]struct {
		name string
		t    *Tensor
		want Want
		d    int
	}{
		{"Stats.LSE", &s.LSE, WantLSE, 1},
		{"Stats.Mean", &s.Mean, WantMean, 1},
		{"Stats.Entropy", &s.Entropy, WantEntropy, 1},
		{"Stats.Max", &s.Max, WantMax, 1},
		{"Stats.Weights", &s.Weights, WantWeights, a.K.S},
		{"Stats.Scores", &s.Scores, WantScores, a.K.S},
	} {
		if o.t.isZero() {
			continue
		}
		if p.Want&o.want == 0 {
			return fmt.Errorf("%s: given, but the problem does not Want it", o.name)
		}
		if err := a.output(o.name, o.t, p.Batch, a.Q.S, p.HeadsQ, o.d); err != nil {
			return err
		}
		if err := o.t.apart(o.name, &a.Out, "Out"); err != nil {
			return err
		}
	}
	if s.ArgMax != nil && p.Want&WantArgMax == 0 {
		return errors.New("Stats.ArgMax: given, but the problem does not Want it")
	}
	return nil
}

// Must panics when the operands of a call are wrong. Every Forward begins with it.
func (p *Problem) Must(kernel string, a *Args) {
	if err := p.Check(a); err != nil {
		panic(fmt.Errorf("%s: %w", kernel, err))
	}
}
