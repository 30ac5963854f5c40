package attn

import (
	"errors"
	"fmt"
	"math"
)

// A Gate says which numbers of a linear problem's state decay together.
type Gate uint8

// Gates.
const (
	NoGate   Gate = iota
	HeadGate      // one number for each token and value head
	KeyGate       // one for each of the Dim rows of the state too
)

var gateNames = [...]string{"none", "head", "key"}

// String returns the name of the gate: none, head or key.
func (g Gate) String() string { return name(gateNames[:], int(g), "gate") }

// A Norm is a normalisation of the rows of Q and K in a linear problem. The two differ where a row
// is short.
type Norm uint8

// Norms.
const (
	NoNorm  Norm = iota
	NormSum      // x / sqrt(x.x + NormEps)
	NormMax      // x / max(|x|, NormEps)
)

var normNames = [...]string{"none", "sum", "max"}

// String returns the name of the norm: none, sum or max.
func (n Norm) String() string { return name(normNames[:], int(n), "norm") }

// ValueHeads returns the number of heads of V, Decay and Beta.
func (p *Problem) ValueHeads() int {
	if p.Linear.HeadsV != 0 {
		return p.Linear.HeadsV
	}
	return p.HeadsKV
}

// OutHeads returns the number of heads of Out.
func (p *Problem) OutHeads() int {
	if p.HeadsQ == 0 {
		return 0
	}
	return max(p.HeadsQ, p.Linear.HeadsV)
}

// StateHeads returns the number of heads of a linear problem's state, each of which has one key
// head and one value head.
func (p *Problem) StateHeads() int { return max(p.HeadsKV, p.ValueHeads()) }

// HeadOf returns the head that output head h reads, of an operand with the given number of heads.
func (p *Problem) HeadOf(h, heads int) int { return h / (p.OutHeads() / heads) }

// StateHeadOf returns the head that state head s reads, of K or V or an operand of their heads.
func (p *Problem) StateHeadOf(s, heads int) int { return s / (p.StateHeads() / heads) }

// checkHeads reports whether the heads of all operands divide those of Out.
func (p *Problem) checkHeads() error {
	if p.Linear.HeadsV == 0 {
		if p.HeadsQ > 0 && (p.HeadsKV == 0 || p.HeadsQ%p.HeadsKV != 0) {
			return fmt.Errorf("problem: %d key heads do not divide %d query heads", p.HeadsKV, p.HeadsQ)
		}
		return nil
	}
	q, k, v, out := p.HeadsQ, p.HeadsKV, p.Linear.HeadsV, p.OutHeads()
	switch {
	case q == 0 || k == 0:
		return fmt.Errorf("problem: %d value heads with %d query heads and %d key heads: want 1 or more of each, or heads_v 0", v, q, k)
	case out%q != 0 || out%k != 0 || out%v != 0:
		return fmt.Errorf("problem: %d output heads (the larger of query heads and value heads), but %d query heads, %d key heads and %d value heads: each must divide them", out, q, k, v)
	case max(k, v)%min(k, v) != 0:
		return fmt.Errorf("problem: %d key heads and %d value heads: one must divide the other, as a state has one head of each", k, v)
	}
	return nil
}

// Rule reports whether a linear problem has a gate, the delta rule or snapshots, which are defined
// token by token.
func (p *Problem) Rule() bool {
	l := p.Linear
	return l.Gate != NoGate || l.Delta || l.Snapshots > 1
}

// Carries reports whether a call may carry a state: the problem is linear under a causal mask,
// without a bitmap, Lengths or pages.
func (p *Problem) Carries() bool {
	m := p.Mask
	return p.Op == OpLinear && m.Band && m.Left == Unbounded && m.Right == 0 && m.Bitmap == NoBitmap && !p.Lengths && p.Page == 0
}

// StateLen returns the length of a state of a linear problem.
func (p *Problem) StateLen() int {
	width := p.DimV
	if !p.Linear.Unnormalised {
		width++
	}
	return p.Batch * p.StateHeads() * p.Dim * width
}

// SnapshotLen returns the length of Args.StateOut.
func (p *Problem) SnapshotLen() int { return max(1, p.Linear.Snapshots) * p.StateLen() }

// checkLinear returns an error for fields of a linear problem that do not combine.
func checkLinear(p *Problem) error {
	l := p.Linear
	switch {
	case p.DimQ != 0:
		return fmt.Errorf("problem: dim_q is %d, but op is linear, which has no metric: leave it 0", p.DimQ)
	case l.Delta && !l.Unnormalised:
		return errors.New("problem: the delta rule with a normalised output: set Linear.Unnormalised")
	case l.Gate == KeyGate && !l.Unnormalised:
		return errors.New("problem: a gate per key channel with a normalised output: set Linear.Unnormalised, or take a gate per head")
	case l.Norm == NoNorm && l.NormEps != 0:
		return fmt.Errorf("problem: norm eps %v without a norm: set Linear.Norm, or leave NormEps 0", l.NormEps)
	case p.Rule() && !p.Carries():
		return errors.New("problem: a gate, the delta rule or snapshots read tokens in order: want a causal mask, and no bitmap, Lengths or pages")
	case p.Want&WantGrad != 0 && l.Snapshots > 1:
		return fmt.Errorf("problem: gradients of %d snapshots: a backward pass has one state, leave Snapshots 0", l.Snapshots)
	}
	if !fits(1<<46, max(1, l.Snapshots), p.Batch, p.StateHeads(), p.Dim, p.DimV+1) {
		return fmt.Errorf("problem: %d states of batch %d, %d heads and %d by %d numbers are more than any machine can hold", max(1, l.Snapshots), p.Batch, p.StateHeads(), p.Dim, p.DimV)
	}
	return nil
}

// linearFlop counts a write for each key and state head, two with the delta rule, and a read for
// each query and output head.
func linearFlop(p *Problem, c *Count, queries int64) (forward, backward int64) {
	writes, width := c.Keys, int64(p.DimV)
	if p.Linear.Delta {
		writes *= 2
	}
	if !p.Linear.Unnormalised {
		width++
	}
	return fiveForTwo(times(2*int64(p.Dim)*width, writes+queries))
}

// checkRule reports what is wrong with the operands of a rule and of the state.
func (p *Problem) checkRule(a *Args) error {
	state := a.StateIn != nil || a.StateOut != nil
	if state && !p.Carries() {
		return p.noState("StateIn, StateOut")
	}
	if !state && !p.Rule() {
		return nil
	}
	if err := p.checkPaired(a); err != nil {
		return err
	}
	batch := p.Batch
	if p.Ragged {
		batch = 1
	}
	if t := &a.Terms.Decay; p.Linear.Gate != NoGate {
		width := 1
		if p.Linear.Gate == KeyGate {
			width = p.Dim
		}
		if err := t.fits("Decay", F32, batch, a.K.S, p.ValueHeads(), width); err != nil {
			return err
		}
	}
	if t := &a.Terms.Beta; p.Linear.Delta {
		heads := p.ValueHeads()
		if t.H == 1 {
			heads = 1
		}
		if err := t.fits("Beta", F32, batch, a.K.S, heads, 1); err != nil {
			return err
		}
	}
	return p.checkState(a)
}

// noState returns the error for operands of a state that the problem does not carry.
func (p *Problem) noState(names string) error {
	return fmt.Errorf("%s: given, but the problem carries no state: want op linear, a causal mask, and no bitmap, Lengths or pages; got op %v, mask %v", names, p.Op, p.Mask)
}

// checkPaired reports a sequence that does not have one query for each key.
func (p *Problem) checkPaired(a *Args) error {
	for b := range p.Batch {
		if nq, nk := a.Queries(p, b), a.Keys(p, b); nq != nk {
			return fmt.Errorf("Q, K: %d queries and %d keys in batch entry %d: a rule or a state wants one query for each key", nq, nk, b)
		}
	}
	return nil
}

func (p *Problem) checkState(a *Args) error {
	if n := p.StateLen(); a.StateIn != nil && len(a.StateIn) != n {
		return fmt.Errorf("StateIn: %d numbers, want %d: allocate StateLen of the problem", len(a.StateIn), n)
	}
	if a.StateOut == nil {
		return nil
	}
	if n := p.SnapshotLen(); len(a.StateOut) != n {
		return fmt.Errorf("StateOut: %d numbers, want %d: allocate SnapshotLen of the problem", len(a.StateOut), n)
	}
	inputs := *a
	if a.inPlace() {
		inputs.StateIn = nil
	}
	out := regionOf(a.StateOut)
	if err := inputs.disjointFromInputs("StateOut", out); err != nil {
		return err
	}
	return out.disjoint("StateOut", a.Out.region(), "Out")
}

// inPlace reports whether StateIn is the first state of StateOut.
func (a *Args) inPlace() bool {
	return len(a.StateIn) > 0 && len(a.StateOut) > 0 && &a.StateIn[0] == &a.StateOut[0]
}

// checkStateGrads reports what is wrong with the lengths of dStateOut and dStateIn. checkOutgoing
// checks what they overlap.
func (p *Problem) checkStateGrads(a *Args, g *Grads) error {
	if a.inPlace() {
		return errors.New("StateOut: the same slice as StateIn, which the backward pass reads: give StateOut its own")
	}
	if g.StateOut == nil && g.StateIn == nil {
		return nil
	}
	if !p.Carries() {
		return p.noState("dStateOut, dStateIn")
	}
	if err := p.checkPaired(a); err != nil {
		return err
	}
	n := p.StateLen()
	switch {
	case g.StateOut != nil && len(g.StateOut) != n:
		return fmt.Errorf("dStateOut: %d numbers, want %d: allocate StateLen of the problem", len(g.StateOut), n)
	case g.StateIn != nil && len(g.StateIn) != n:
		return fmt.Errorf("dStateIn: %d numbers, want %d: allocate StateLen of the problem", len(g.StateIn), n)
	}
	return nil
}

// rule returns p as an unnormalised causal linear problem with features that are the rows
// themselves. It keeps HeadsV and Snapshots.
func rule(p Problem, gate Gate, delta bool) Problem {
	p.Op, p.Mask, p.Score = OpLinear, Causal(), Score{}
	p.Linear = Linear{Feature: Identity, Unnormalised: true, Gate: gate, Delta: delta, HeadsV: p.Linear.HeadsV, Snapshots: p.Linear.Snapshots}
	return p
}

// normed returns p with rows of Q and K of length 1, as models with the delta rule have them.
func normed(p Problem) Problem {
	p.Linear.Norm, p.Linear.NormEps = NormSum, 1e-6
	return p
}

// GatedDelta returns the problem of the gated delta rule (Qwen3-Next, OLMo-Hybrid), from the sizes
// and types of p. Rows of Q and K are divided by sqrt(x.x + 1e-6) first.
//
//	S~  = e^g S              g: Decay, one number per head
//	u   = beta (v - S~^T k)  beta: Beta
//	S   = S~ + k u^T
//	o   = S^T q / sqrt(dim)
//
// Models compute g = -exp(A) softplus(a + bias) and beta = sigmoid(b). With HeadsV above HeadsKV,
// consecutive value heads share a key head.
func GatedDelta(p Problem) Problem { return normed(rule(p, HeadGate, true)) }

// DeltaNet returns the problem of the delta rule, from the sizes and types of p. Rows of Q and K
// are divided by sqrt(x.x + 1e-6) first.
//
//	u = beta (v - S^T k)   beta: Beta
//	S = S + k u^T
//	o = S^T q / sqrt(dim)
//
// With beta 1 a token replaces the value that is stored under its key.
func DeltaNet(p Problem) Problem { return normed(rule(p, NoGate, true)) }

// KDA returns the problem of Kimi delta attention (Kimi-Linear), from the sizes and types of p. It
// is GatedDelta with a gate per key channel. Rows of Q and K are divided by sqrt(x.x + 1e-6) first.
//
//	S~_i = e^g_i S_i         g: Decay, one number per row i of the state
//	u    = beta (v - S~^T k)
//	S    = S~ + k u^T
//	o    = S^T q / sqrt(dim)
func KDA(p Problem) Problem { return normed(rule(p, KeyGate, true)) }

// GLA returns the problem of gated linear attention, from the sizes and types of p.
//
//	S_i = e^g_i S_i + k_i v^T   g: Decay, one number per row i of the state
//	o   = S^T q / sqrt(dim)
//
// HGRN2 is GLA with k = 1 - e^g.
func GLA(p Problem) Problem { return rule(p, KeyGate, false) }

// SSD returns the problem of a state-space dual (Mamba-2), from the sizes and types of p.
//
//	S = e^g S + k v^T   g: Decay = dt A, one number per head
//	o = S^T q
//
// In the notation of Mamba-2, q is C, k is B, and v is dt x. HeadsQ = HeadsKV is the number of
// groups, HeadsV that of heads. The skip D x is added outside.
func SSD(p Problem) Problem {
	p = rule(p, HeadGate, false)
	p.Score.Scale = 1
	return p
}

// RetNet returns the problem of retention, from the sizes and types of p. Its gates are constant:
// Decay is ConstantDecay(RetNetDecay(heads), batch, seq).
//
//	S = gamma S + k v^T   gamma: e^Decay
//	o = S^T q / sqrt(dim)
func RetNet(p Problem) Problem { return rule(p, HeadGate, false) }

// Lightning returns the problem of lightning attention (MiniMax-01, Ling), from the sizes and types
// of p. It is RetNet with other gates: Decay is ConstantDecay(LightningDecay(heads, layer, layers),
// batch, seq).
//
//	S = gamma S + k v^T   gamma: e^Decay
//	o = S^T q / sqrt(dim)
func Lightning(p Problem) Problem { return RetNet(p) }

// ConstantDecay returns the operand Decay with one gate per value head for all tokens. It shares
// memory with g.
func ConstantDecay(g []float32, batch, seq int) Tensor {
	return Tensor{Data: g, B: batch, S: seq, H: len(g), D: 1, SH: 1}
}

// RetNetDecay returns log(1 - 2^(-5-h)) for heads h.
func RetNetDecay(heads int) []float32 {
	g := make([]float32, max(heads, 0))
	for h := range g {
		g[h] = float32(math.Log1p(-math.Exp2(float64(-5 - h))))
	}
	return g
}

// LightningDecay returns -(8/heads) (1 - layer/layers) h for heads h, in the given layer of a
// model. Head 0 keeps all.
func LightningDecay(heads, layer, layers int) []float32 {
	g := make([]float32, max(heads, 0))
	for h := range g {
		g[h] = float32(-8 * float64(h) / float64(heads) * (1 - float64(layer)/float64(layers)))
	}
	return g
}
