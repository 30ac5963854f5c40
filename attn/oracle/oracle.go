// Package oracle is the definition of attention in float64, one row at a time, with the tolerance that float32 arithmetic is entitled to
// accumulated beside it, and the judge that compares a kernel's answer with both. It reads a problem through the definition alone: no
// interval, no block, no shortcut of package attn or of a kernel.
//
// # Tolerance
//
// With u = 2^-24 and A the weights, for a score s_j = c q.k_j + bias_j and z = s/T,
//
//	eS_j  = (√d+2) |c| Σ_a |q_a||k_ja| + |bias_j|      first-order error of a score, in units of u
//	eZ_j  = eS_j / T                                   0 in the limits of T, whose weights do not depend on small changes
//	E     = Σ_j A_j eZ_j
//
//	tolO_b = u ( Σ_j A_j |V_jb| (eZ_j+E) + (√n+6) Σ_j A_j |V_jb| )
//	tolLSE = u ( E + √n + 6 + 2|LSE| )
//	tolA_j = u A_j ( eZ_j + E + √n + 6 )
//	tolMean = u ( Σ_j A_j eS_j + Σ_j A_j |s_j| (eZ_j+E) + (√n+6) Σ_j A_j |s_j| )
//	tolH   = tolLSE + tolMean of z
//
// n being the keys that the row sees. No constant in it is tuned. Numbers near the bottom of float32 have an absolute error besides: a
// weight below 2^-126 may be flushed, which adds 2^-125 to tolA and 2^-125 Σ_j |V_jb| to tolO, and a product that lands among the
// subnormals is off by up to half their spacing, (√n+6) 2^-149 over the sum. So are the products of a score, and a scaled query element that
// meets |k|: (√d+2) (1 + Σ_a |k_ja|) 2^-149 more in u eS_j.
//
// A row that sees a single key must give that key's value exactly.
//
// For linear attention with features f, W_j = Σ_a |f(q_a)||f(k_ja)| and r = √d + √n + 8,
//
//	tol(numerator_b) = u r Σ_j W_j |V_jb|      tol(denominator) = u r Σ_j W_j
//	tolO_b = (tol(numerator_b) + |o_b| tol(denominator)) / |denominator| + 2u|o_b|
package oracle

import (
	"math"

	"attnlab/attn"
)

const (
	u         = 1.0 / (1 << 24)
	flush     = 0x1p-125 // twice the smallest normal float32
	subnormal = 0x1p-149 // spacing of the subnormal float32 numbers
)

// An Index is one query row of a call.
type Index struct{ B, H, I int }

// A Row is the definition's answer for one query row, with the error that float32 arithmetic may leave in each number.
type Row struct {
	Visible             int // keys the masks show
	Out, TolOut         []float64
	LSE, TolLSE         float64
	Mean, TolMean       float64
	Entropy, TolEntropy float64
	Weights, TolWeights []float64 // by key, 0 for hidden ones; softmax only
}

// An Oracle answers for the rows of one call. It is used by one goroutine at a time.
type Oracle struct {
	p    attn.Problem
	a    *attn.Args
	row  Row
	s    []float64 // score by key; -Inf when hidden
	eS   []float64
	keys []int // visible keys of the row at hand
}

// New prepares to answer for a call. The operands must not change while the oracle is in use.
func New(p attn.Problem, a *attn.Args) (*Oracle, error) {
	const defined = attn.AllNeeds &^ (attn.NeedPacked | attn.NeedBlock | attn.NeedSoftcap | attn.NeedALiBi | attn.NeedSinks | attn.NeedRelative |
		attn.NeedMetric | attn.NeedRope | attn.NeedProjection | attn.NeedRules | attn.NeedTypes | attn.NeedBF16 | attn.NeedRagged |
		attn.NeedPages | attn.NeedMax | attn.NeedArgMax | attn.NeedScores | attn.NeedGrad)
	if err := p.Require("the oracle", defined); err != nil {
		return nil, err
	}
	if err := p.Check(a); err != nil {
		return nil, err
	}
	nk, dv := a.K.S, p.DimV
	return &Oracle{
		p: p, a: a, s: make([]float64, nk), eS: make([]float64, nk), keys: make([]int, 0, nk),
		row: Row{Out: make([]float64, dv), TolOut: make([]float64, dv), Weights: make([]float64, nk), TolWeights: make([]float64, nk)},
	}, nil
}

// Row answers for one row. The result is overwritten by the next call.
func (o *Oracle) Row(at Index) *Row {
	r := &o.row
	*r = Row{Out: r.Out, TolOut: r.TolOut, Weights: r.Weights, TolWeights: r.TolWeights}
	clear(r.Out)
	clear(r.TolOut)
	clear(r.Weights)
	clear(r.TolWeights)
	o.keys = o.keys[:0]
	for j := range o.a.K.S {
		if o.visible(at, j) {
			o.keys = append(o.keys, j)
		}
	}
	r.Visible = len(o.keys)
	if o.p.Op == attn.OpLinear {
		o.linear(at)
	} else {
		o.softmax(at)
	}
	return r
}

// visible is the definition of every mask.
func (o *Oracle) visible(at Index, j int) bool {
	p, a, m := &o.p, o.a, o.p.Mask
	used := a.K.S
	if a.KLen != nil {
		used = int(a.KLen[at.B])
	}
	var pos int
	switch {
	case a.QPos != nil:
		pos = int(a.QPos[at.B]) + at.I
	case m.Align == attn.TopLeft:
		pos = at.I
	default:
		pos = used - a.Q.S + at.I
	}
	switch {
	case j >= used:
		return false
	case m.Band && m.Left != attn.Unbounded && j < pos-m.Left:
		return false
	case m.Band && m.Right != attn.Unbounded && j > pos+m.Right:
		return false
	case p.Mask.Bitmap == attn.BoolBitmap:
		b := &a.Allowed
		return b.Bool[at.B%b.B*b.SB+at.I%b.S*b.SS+at.H%b.H*b.SH+j%b.D]
	}
	return true
}

func (o *Oracle) softmax(at Index) {
	p, a, r := &o.p, o.a, &o.row
	q, kv := a.Q.Row(at.B, at.I, at.H), at.H/p.Group()
	c, rootD := p.Scale(), math.Sqrt(float64(p.Dim))
	top, infinite, invalid := math.Inf(-1), 0, false
	n := o.keys[:0]
	for _, j := range o.keys {
		dot, abs, absK := 0.0, 0.0, 0.0
		for x, k := range a.K.Row(at.B, j, kv) {
			t := float64(q[x]) * float64(k)
			dot += t
			abs += math.Abs(t)
			absK += math.Abs(float64(k))
		}
		s, e := c*dot, (rootD+2)*(math.Abs(c)*abs+(1+absK)*subnormal/u)
		if p.Score.Terms&attn.TermBias != 0 {
			t := &a.Terms.Bias
			bias := float64(t.Data[at.B%t.B*t.SB+at.I%t.S*t.SS+at.H%t.H*t.SH+j%t.D])
			s += bias
			e += math.Abs(bias)
		}
		s = float64(float32(s))
		switch {
		case math.IsNaN(s):
			invalid = true
		case math.IsInf(s, 1):
			infinite++
		case math.IsInf(s, -1):
			continue // weight 0, whatever its value row holds
		}
		o.s[j], o.eS[j] = s, e
		top = max(top, s)
		n = append(n, j)
	}
	o.keys = n
	switch {
	case invalid || infinite > 1:
		o.allNaN()
		return
	case infinite == 1:
		for _, j := range n {
			if math.IsInf(o.s[j], 1) {
				r.Weights[j] = 1
				o.copyValue(at.B, j, kv)
			}
		}
		r.LSE, r.Mean = math.Inf(1), math.Inf(1)
		return
	case len(n) == 0:
		r.LSE = math.Inf(-1)
		return
	}

	// z relative to the largest score, and the partition function Z
	t := p.Temperature()
	z := func(j int) float64 {
		switch {
		case math.IsInf(t, 1):
			return 0
		case t == attn.Frozen && o.s[j] == top:
			return 0
		case t == attn.Frozen:
			return math.Inf(-1)
		}
		return (o.s[j] - top) / t
	}
	beta := 1 / t
	if t == attn.Frozen {
		beta = 0 // of eZ: small changes of the scores leave the limit as it is
	}
	Z := 0.0
	for _, j := range n {
		r.Weights[j] = math.Exp(z(j))
		Z += r.Weights[j]
	}
	E := 0.0
	for _, j := range n {
		r.Weights[j] /= Z
		if r.Weights[j] > 0 {
			E += r.Weights[j] * o.eS[j] * beta
		}
	}
	grow := math.Sqrt(float64(len(n))) + 6
	absS, absZ, errS, errZ := 0.0, 0.0, 0.0, 0.0 // sums for the tolerance of Mean and Entropy
	for _, j := range n {
		w, s, e := r.Weights[j], o.s[j], o.eS[j]
		r.TolWeights[j] = u*w*(e*beta+E+grow) + flush
		zj := s * beta
		r.Mean += w * s
		r.Entropy -= w * zj
		absS += w * math.Abs(s)
		absZ += w * math.Abs(zj)
		errS += w * (e + math.Abs(s)*(e*beta+E))
		errZ += w * (e*beta + math.Abs(zj)*(e*beta+E))
		for b, v := range a.V.Row(at.B, j, kv) {
			r.Out[b] += w * float64(v)
			abs := math.Abs(float64(v))
			r.TolOut[b] += u*w*abs*(e*beta+E+grow) + flush*abs
		}
	}
	for b := range r.TolOut {
		r.TolOut[b] += grow * subnormal
	}
	r.LSE = top*beta + math.Log(Z)
	r.Entropy += r.LSE
	r.TolLSE = u * (E + grow + 2*math.Abs(r.LSE))
	r.TolMean = u * (errS + grow*absS)
	r.TolEntropy = r.TolLSE + u*(errZ+grow*absZ)
	if r.Visible == 1 {
		o.copyValue(at.B, n[0], kv)
	}
}

func (o *Oracle) allNaN() {
	r := &o.row
	r.LSE, r.Mean, r.Entropy = math.NaN(), math.NaN(), math.NaN()
	for b := range r.Out {
		r.Out[b] = math.NaN()
	}
	for _, j := range o.keys {
		r.Weights[j] = math.NaN()
	}
}

func (o *Oracle) copyValue(b, j, kv int) {
	for c, v := range o.a.V.Row(b, j, kv) {
		o.row.Out[c], o.row.TolOut[c] = float64(v), 0
	}
}

func feature(f attn.Feature, x float64) float64 {
	switch f {
	case attn.EluPlusOne:
		if x > 0 {
			return x + 1
		}
		return math.Exp(x)
	case attn.ReluPlusOne:
		return math.Max(x, 0) + 1 // math.Max, unlike max on a constant, keeps NaN
	default:
		return x
	}
}

func (o *Oracle) linear(at Index) {
	p, a, r := &o.p, o.a, &o.row
	if len(o.keys) == 0 {
		return
	}
	q, kv := a.Q.Row(at.B, at.I, at.H), at.H/p.Group()
	den, tolDen := p.Linear.Eps, 0.0
	grow := u * (math.Sqrt(float64(p.Dim)) + math.Sqrt(float64(len(o.keys))) + 8)
	for _, j := range o.keys {
		w, abs := 0.0, 0.0
		for x, k := range a.K.Row(at.B, j, kv) {
			t := feature(p.Linear.Feature, float64(q[x])) * feature(p.Linear.Feature, float64(k))
			w += t
			abs += math.Abs(t)
		}
		den += w
		tolDen += grow * abs
		for b, v := range a.V.Row(at.B, j, kv) {
			r.Out[b] += w * float64(v)
			r.TolOut[b] += grow * abs * math.Abs(float64(v))
		}
	}
	for b := range r.Out {
		if p.Linear.Unnormalised {
			r.Out[b] *= p.Scale()
			r.TolOut[b] *= math.Abs(p.Scale())
		} else {
			r.Out[b] /= den
			r.TolOut[b] = (r.TolOut[b] + math.Abs(r.Out[b])*tolDen) / math.Abs(den)
		}
		r.TolOut[b] += 2*u*math.Abs(r.Out[b]) + 6*subnormal
	}
}
