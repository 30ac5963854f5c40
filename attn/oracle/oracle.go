// Package oracle defines attention in float64, one row at a time. It computes the tolerance that
// float32 arithmetic is entitled to, and judges a kernel's answer by both. It applies the
// definition directly: it uses no interval, block or shortcut of package attn or of a kernel. A
// linear problem with a rule or a state is defined token by token; any other is a sum over pairs.
//
// # Tolerance
//
// Let u = 2^-24, let A be the weights, s_j = c q.k_j + bias_j a score, and z = s/T. The first-order
// error of a score, in units of u, is eS_j. It is the sum of these terms, of which all but the
// first apply only if the problem has the feature:
//
//	(√d+2) |c| Σ_a |q_a||k_ja|             product
//	(√d_q+2) |c| Σ_ab |q_a||g_ab||k_jb|    metric; q g also replaces q in the product
//	3 |c| Σ_a |q_a||k_ja|                  rotation, which also applies to the absolute values
//	(√d_q+2) |c| Σ_a |q_a||r_a|            relative positions
//	4 |s_j|                                softcap
//	|bias_j|                               bias; scores stop at -MaxFloat32 T ln 2
//	3 slope |pos-j|                        ALiBi: product, sum, difference to the largest score
//
// With it,
//
//	eZ_j = eS_j / T      0 in the limits of T, where small changes do not change weights
//	E    = Σ_j A_j eZ_j
//
//	tolO_b   = u ( Σ_j A_j |V_jb| (eZ_j+E) + (√n+6) Σ_j A_j |V_jb| )
//	tolLSE   = u ( E + √n + 6 + 2|LSE| )
//	tolA_j   = u A_j ( eZ_j + E + √n + 6 )
//	tolMean  = u ( Σ_j A_j eS_j + Σ_j A_j |s_j| (eZ_j+E) + (√n+6) Σ_j A_j |s_j| )
//	tolH     = tolLSE + tolMean of z
//	tolMax   = u max eS_j over the keys that may be the largest
//	tolScore = u eS_j
//
// where n is the number of keys that the row sees. A sink counts as one of them and has no error.
// No constant is tuned.
//
// Some errors are absolute:
//
//   - A 16-bit output may be off by half a unit in its last place: 2^-11 |o| + 2^-25 for f16, 2^-8
//     |o| for bf16.
//   - A weight below 2^-126 may be flushed to 0, which adds 2^-125 to tolA.
//   - A weight below 2^-86 may be left out of an output, which adds 2^-86 Σ_j |V_jb| to tolO.
//     Blocked kernels scale weights by a power of two that float32 holds, and avoid subnormal
//     numbers, which are slow on some CPUs. The error shows only in a column where all heavier keys
//     have zeros.
//   - A subnormal product is off by up to half the spacing of subnormal numbers. That adds (√n+6)
//     2^-149 to tolO, and (√d+2) (1 + Σ_a |k_ja|) 2^-149 to u eS_j.
//
// A row that sees a single key must return the value of that key exactly.
//
// For linear attention with features f, let W_j = Σ_a |f(q_a)||f(k_ja)| and r = √d + √n + 8. Then
//
//	tol(numerator_b) = u r Σ_j W_j |V_jb|      tol(denominator) = u r Σ_j W_j
//	tolO_b = (tol(numerator_b) + |o_b| tol(denominator)) / |denominator| + 2u|o_b|
//
// A norm of Q and K has the relative error h = √d/2 + 4, to which a row so short that float32 loses
// its square adds; r grows by that of the query and of the key.
//
// # Tolerance of a recurrence
//
// The error of column c of a state is bounded by u (drift_c + noise_c), two numbers that follow the
// state token by token. Let S~ be the decayed state and w = v - S~^T k. A token writes u_c = beta
// w_c. Let C = √d + √64 + 6: chunked forms also sum over the keys of a chunk, and the tolerance
// counts 64 of these. Column norms are Euclidean. The matrix of a step, (1 - beta k k^T) diag
// alpha, has a norm of at most m = max(1, |1 - beta k.k|) times a = max |alpha|. Then
//
//	drift_c = m (a drift_c + 2 |S~_c|)          the second term where some alpha is not 1
//	noise_c = √( (m a noise_c)² + e_c² )
//	e_c     = 2 |S_c| + |k| ( |beta| ((C+h) Σ_i |S~_ic k_i| + |v_c|) + (4+h) |u_c| )
//	tolO_c  = u |scale| ( |q| (drift_c + noise_c) + (C+h) Σ_i |S_ic q_i| ) + 2u|o_c|
//
// Without the delta rule m is 1 and e_c = 2 |S_c| + (4+h) |k||v_c|. A gate e^g may be wrong by a
// unit in its last place, in the same direction for every token. These errors add up; roundings add
// up like random numbers. A token that writes nothing (k or beta is 0) under gates of 1 adds no
// error. A normalised problem has z as one more column, and the quotient's tolerance above. A state
// may be off by u (drift_c + noise_c) in every number. Its size is |S_c|, and that of an output
// |scale| |q| |S_c|.
//
// Under gates, a number below 2^-126 may be flushed to 0. That adds (√t+6) 2^-125 (1 + max |S|) to
// a state after t tokens. As elsewhere, a number that float32 cannot hold is infinite: a gate, the
// square of a row's length, S, w, u and the outputs. All else is IEEE arithmetic: e^-Inf is 0, and
// 0 times infinity is NaN.
//
// In units of this tolerance, errors of float32 recurrences by token and by chunk reach 0.44 in the
// trials of TestTolerance. Gates taken from float32 sums of logarithms reach 1.2 to 20 where some
// of these are -70.
//
// # What is judged
//
// A tolerance grows with the scores, so far from 0 it would accept anything: at 1e9 eS is larger
// than any output. Each number therefore has a size: the sum of the sizes of its terms, such as Σ_j
// A_j |V_jb| for an output or Σ_j |k_ja| A_j (|dP_j| + |D| + ...) for dQ. A number whose tolerance
// exceeds 2^-8 of its size counts as not judged (type Verdict). The bounds of a recurrence are not
// of first order, so its numbers must be within the tolerance at any size. The suite fails where no
// number is judged. It compares scores far from 0 with the tolerance of the same scores near 0
// (cases.Case.Near).
//
// # Tolerance of gradients
//
// This is also of first order and computed from the same data. With dP_j = dO.V_j and D = dO.o, the
// gradient of z_j is A_j X_j, where X_j = dP_j - D + dLSE - dH (z_j - LSE + H). The error of a
// weight recomputed from the LSE is
//
//	w_j = eZ_j + tolLSE/u
//
// The error of X_j is
//
//	eX_j = (√d_v+2) Σ_b |dO_b|(|V_jb|+|o_b|) + Σ_b |dO_b| tolO_b/u
//	       + 2|dLSE| + |X_j| + |dH| (w_j + tolH/u + 2(|z_j-LSE| + |H|))
//
// The gradient of a score is ds_j, with the error edS_j. The gradient of the argument of a softcap,
// whose slope is g = 1 - t², is da_j, with the error edA_j. Without a softcap the two are equal:
//
//	edS_j = A_j (w_j |X_j| + eX_j) / T
//	edA_j = edS_j g_j + |ds_j| eg_j      eg = 2|t|g e_j/cap + 12t² + 2g
//
// A gradient that is a sum of ds_j y over n pairs has the tolerance
//
//	u Σ |y| (edA_j + (√n+4)|da_j|)
//
// where y is a key, a query, a table row or 1. The tolerance of dV_j is u Σ |dO| A (w + √n+4). A
// rotation adds 3|da_j||y|, and as much again for rotating back; a metric adds (√d_q+2)|da_j||y|. A
// metric or a feature map applies to tolerances as it does to gradients. A weight may be off by
// 2^-86, because it may be left out of an output.
//
// In units of this tolerance, the largest error of naive is 0.31 over the cases of the suite, and
// 0.67 with the extreme cases. Blocked kernels must stay below 0.5.
//
// Linear attention sums features and values before a query or key multiplies them. Its tolerance
// counts the size of every product.
//
// The gradient of a recurrence's state goes back token by token, and its error follows the
// recursion of the state's with q and dO in place of k and u. Every gradient is a product of
// numbers with such errors, summed over columns. With errors e_c of the state and f_c of its
// gradient, dQ has the error Σ_c e_c |dO_c|, and dK has Σ_c (f_c |u_c| + e_c |beta du_c|). The
// gradient of a gate is the product of S~ with its gradient, which chunked forms take from a
// difference of sums over a chunk. So its tolerance has the square root of the sum of squares of
// the errors of q.dQ and k.dK over 64 tokens. Float32 backward passes reach 0.37 of these
// tolerances.
package oracle

import (
	"math"

	"attnlab/attn"
)

const (
	u         = 1.0 / (1 << 24)
	flush     = 0x1p-125 // twice the smallest normal float32
	light     = 0x1p-86  // weights below this may be left out of an output
	subnormal = 0x1p-149 // spacing of the subnormal float32 numbers
)

// An Index is one query row of a call: batch entry, output head and query.
type Index struct{ B, H, I int }

// A Row is the definition's answer for one query row, with the error that float32 arithmetic may
// leave in each number.
type Row struct {
	Visible             int // number of keys that the masks show
	Out, TolOut         []float64
	SizeOut             []float64 // sum of the sizes of each output's terms: see absolute
	LSE, TolLSE         float64
	Mean, TolMean       float64
	SizeMean            float64
	Entropy, TolEntropy float64
	Max, TolMax         float64
	Weights, TolWeights []float64 // by key, 0 for hidden keys; softmax only
	SizeWeights         []float64
	Scores, TolScores   []float64 // by key, -Inf for hidden keys; softmax only
}

// MayBeFirst reports whether a kernel may name key j as the key with the largest score.
func (r *Row) MayBeFirst(j int) bool {
	if math.IsNaN(r.Max) || math.IsInf(r.Max, -1) {
		return j == -1
	}
	if j < 0 || j >= len(r.Scores) {
		return false
	}
	s := r.Scores[j]
	// An infinite score has an infinite tolerance.
	return s == r.Max || !math.IsInf(s, 0) && s >= r.Max-r.TolMax-r.TolScores[j]
}

// An Oracle computes the rows of one call. One goroutine may use it at a time.
type Oracle struct {
	by   definition
	p    attn.Problem
	a    *attn.Args
	row  Row
	keys []int     // visible keys of the current row
	q, k operand   // the current query and key, rotated, the query multiplied by the metric
	raw  operand   // the current query as stored
	v    []float64 // the current value

	unrounded bool // scores are not rounded to float32, unless float32 cannot hold them

	recurrence *recurrence // of a problem with a rule or a state, else nil

	// The softcap's slope at the current score, and its error in units of u.
	slope, errSlope float64
}

// An operand is a row, with the sums of absolute values that its numbers were computed from.
type operand struct{ x, abs []float64 }

// New returns an Oracle for a call. The operands must not change while the oracle is in use. If
// StateOut is the same slice as StateIn, New copies it, and must come before the call.
func New(p attn.Problem, a *attn.Args) (*Oracle, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	by, err := define(p.Op)
	if err != nil {
		return nil, err
	}
	if err := p.Check(a); err != nil {
		return nil, err
	}
	nk, dv, d := a.K.S, p.DimV, max(p.Dim, p.QDim())
	if p.Ragged || p.Page != 0 {
		nk = p.SeqKV
	}
	f := func(n int) []float64 { return make([]float64, n) }
	o := &Oracle{
		by: by, p: p, a: a, keys: make([]int, 0, nk), q: operand{f(d), f(d)}, k: operand{f(d), f(d)}, raw: operand{f(d), f(d)}, v: f(dv),
		row: Row{Out: f(dv), TolOut: f(dv), SizeOut: f(dv), Weights: f(nk), TolWeights: f(nk), SizeWeights: f(nk), Scores: f(nk), TolScores: f(nk)},
	}
	if recurs(&p, a) {
		o.recurrence = newRecurrence(o)
	}
	return o, nil
}

// Row returns the definition's answer for one row. The next call overwrites it. If the problem has
// a rule or a state, Row continues from the row before, where that is an earlier row of the same
// state head. So ask for rows in their order.
func (o *Oracle) Row(at Index) *Row {
	r := &o.row
	*r = Row{Out: r.Out, TolOut: r.TolOut, SizeOut: r.SizeOut, Weights: r.Weights, TolWeights: r.TolWeights, SizeWeights: r.SizeWeights, Scores: r.Scores, TolScores: r.TolScores}
	for _, x := range [][]float64{r.Out, r.TolOut, r.SizeOut, r.Weights, r.TolWeights, r.SizeWeights, r.TolScores} {
		clear(x)
	}
	for j := range r.Scores {
		r.Scores[j] = math.Inf(-1)
	}
	if o.recurrence != nil {
		o.recurrence.row(at)
	} else {
		o.see(at)
		r.Visible = len(o.keys)
		o.by.row(o, at)
	}
	for b, x := range r.Out {
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
		case o.p.Out == attn.F16:
			r.rounded(b, 0x1p-11*math.Abs(x)+0x1p-25)
		case o.p.Out == attn.BF16:
			r.rounded(b, 0x1p-8*math.Abs(x)+0x1p-134)
		}
	}
	return r
}

// see fills o.keys with the visible keys of a row.
func (o *Oracle) see(at Index) {
	o.keys = o.keys[:0]
	for j := range o.used(at.B) {
		if o.visible(at, j) {
			o.keys = append(o.keys, j)
		}
	}
}

// rounded adds the error e of rounding number b of Out.
func (r *Row) rounded(b int, e float64) {
	r.TolOut[b] += e
	r.SizeOut[b] += absolute(e)
}

// absolute returns what an absolute tolerance adds to the size of a number. With it, the absolute
// tolerance does not decide whether the number is judged.
func absolute(tol float64) float64 { return tol / wide }

// used returns the number of keys in use.
func (o *Oracle) used(b int) int {
	a := o.a
	switch {
	case a.KLen != nil:
		return int(a.KLen[b])
	case o.p.Page != 0:
		return o.p.SeqKV
	case o.p.Ragged:
		return int(a.KStart[b+1]) - int(a.KStart[b])
	}
	return a.K.S
}

// position returns the position of a query.
func (o *Oracle) position(at Index) int {
	p, a := &o.p, o.a
	switch {
	case a.QPos != nil:
		return int(a.QPos[at.B]) + at.I
	case p.Mask.Align == attn.TopLeft:
		return at.I
	}
	queries := a.Q.S
	if p.Ragged {
		queries = int(a.QStart[at.B+1]) - int(a.QStart[at.B])
	}
	return o.used(at.B) - queries + at.I
}

// visible defines every mask: it reports whether a query sees key j.
func (o *Oracle) visible(at Index, j int) bool {
	a, m, pos := o.a, o.p.Mask, o.position(at)
	switch {
	case m.Band && m.Left != attn.Unbounded && j < pos-m.Left:
		return false
	case m.Band && m.Right != attn.Unbounded && j > pos+m.Right:
		return false
	case m.Bitmap == attn.NoBitmap:
		return true
	}
	b, i := &a.Allowed, at.I
	if m.Bitmap == attn.BlockBitmap {
		i, j = i/m.Block, j/m.Block
	}
	bit := at.B%b.B*b.SB + i%b.S*b.SS + at.H%b.H*b.SH + j%b.D
	if m.Bitmap == attn.BoolBitmap {
		return b.Bool[bit]
	}
	return b.Words[bit/64]&(1<<(bit%64)) != 0
}

// numbers returns a row of a tensor.
func numbers(to []float64, t *attn.Tensor, b, s, h int) []float64 {
	at := b*t.SB + s*t.SS + h*t.SH
	to = to[:t.D]
	switch t.Type {
	case attn.F32:
		for c := range to {
			to[c] = float64(t.Data[at+c])
		}
	case attn.F16:
		for c := range to {
			to[c] = half(t.Bits[at+c])
		}
	case attn.BF16:
		for c := range to {
			to[c] = float64(math.Float32frombits(uint32(t.Bits[at+c]) << 16))
		}
	case attn.I8:
		for c := range to {
			// The product is rounded as kernels round it. The number before int8 is not the
			// operand.
			to[c] = float64(float32(t.Int8[at+c]) * t.Scale[at/t.D])
		}
	}
	return to
}

// half defines IEEE half precision.
func half(x uint16) float64 {
	sign := 1 - 2*float64(x>>15)
	switch exponent, fraction := int(x>>10)&31, float64(x&1023); {
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	case exponent < 31:
		return sign * math.Ldexp(1024+fraction, exponent-25)
	case fraction == 0:
		return math.Inf(int(sign))
	}
	return math.NaN()
}

// key returns the row of K or V that holds key j.
func (o *Oracle) key(to []float64, t *attn.Tensor, b, j, kv int) []float64 {
	p, a := &o.p, o.a
	switch {
	case p.Page != 0:
		each := (p.SeqKV + p.Page - 1) / p.Page
		return numbers(to, t, int(a.Pages[b*each+j/p.Page]), j%p.Page, kv)
	case p.Ragged:
		return numbers(to, t, 0, int(a.KStart[b])+j, kv)
	}
	return numbers(to, t, b, j, kv)
}

// load fills an operand with the row x, rotated to position pos.
func (o *Oracle) load(to *operand, x []float64, b, pos int, rope attn.Rope) {
	to.x = to.x[:len(x)]
	to.abs = to.abs[:len(x)]
	for c := range x {
		to.x[c], to.abs[c] = x[c], math.Abs(x[c])
	}
	if rope == attn.NoRope {
		return
	}
	cos, sin := &o.a.Terms.Cos, &o.a.Terms.Sin
	for c := range cos.D {
		e, f := 2*c, 2*c+1
		if rope == attn.RopeHalves {
			e, f = c, c+cos.D
		}
		cs, sn := float64(cos.Data[b%cos.B*cos.SB+pos*cos.SS+c]), float64(sin.Data[b%sin.B*sin.SB+pos*sin.SS+c])
		x, y := to.x[e], to.x[f]
		to.x[e], to.x[f] = x*cs-y*sn, x*sn+y*cs
		x, y = to.abs[e], to.abs[f]
		cs, sn = math.Abs(cs), math.Abs(sn)
		to.abs[e], to.abs[f] = x*cs+y*sn, x*sn+y*cs
	}
}

// rawQuery returns the row's query as stored.
func (o *Oracle) rawQuery(at Index) []float64 {
	b, row := at.B, at.I
	if o.p.Ragged {
		b, row = 0, int(o.a.QStart[at.B])+at.I
	}
	return numbers(o.q.x[:cap(o.q.x)], &o.a.Q, b, row, o.p.HeadOf(at.H, o.p.HeadsQ))
}

// query loads the row's query, rotates it and multiplies it by the metric.
func (o *Oracle) query(at Index) {
	p, a := &o.p, o.a
	o.load(&o.raw, o.rawQuery(at), at.B, 0, attn.NoRope)
	o.load(&o.q, o.raw.x, at.B, o.position(at), p.Score.Rope)
	if p.Score.Terms&attn.TermMetric == 0 {
		return
	}
	g := &a.Terms.Metric
	x, abs := make([]float64, p.Dim), make([]float64, p.Dim)
	for i := range o.q.x {
		for c := range x {
			m := float64(g.Data[i*g.SS+at.H%g.H*g.SH+c])
			x[c] += o.q.x[i] * m
			abs[c] += o.q.abs[i] * math.Abs(m)
		}
	}
	copy(o.q.x[:p.Dim], x)
	copy(o.q.abs[:p.Dim], abs)
	o.q.x, o.q.abs = o.q.x[:p.Dim], o.q.abs[:p.Dim]
}

// score returns the score of a visible key, and its error in units of u.
func (o *Oracle) score(at Index, j, kv int) (s, e float64) {
	p, a := &o.p, o.a
	c, rootD, rootQ := p.Scale(), math.Sqrt(float64(p.Dim)), math.Sqrt(float64(p.QDim()))
	o.load(&o.k, o.key(o.k.x[:cap(o.k.x)], &a.K, at.B, j, kv), at.B, j, p.Score.Rope)
	dot, abs, absK := 0.0, 0.0, 0.0
	for x, k := range o.k.x {
		dot += o.q.x[x] * k
		abs += o.q.abs[x] * o.k.abs[x]
		absK += o.k.abs[x]
	}
	grow := rootD + 2
	if p.Score.Terms&attn.TermMetric != 0 {
		grow += rootQ + 2
	}
	if p.Score.Rope != attn.NoRope {
		grow += 3
	}
	s, e = c*dot, grow*math.Abs(c)*abs+(rootD+2)*(1+absK)*subnormal/u
	if p.Score.Terms&attn.TermRelative != 0 {
		t := &a.Terms.Relative
		row := j - at.I + o.queries(at.B) - 1
		if clip := a.Terms.RelativeClip; clip > 0 {
			row = clip + max(-clip, min(clip, j-o.position(at)))
		}
		dot, abs := 0.0, 0.0
		for x, q := range o.raw.x {
			r := float64(t.Data[row*t.SS+at.H%t.H*t.SH+x])
			dot += q * r
			abs += math.Abs(q * r)
		}
		s += c * dot
		e += (rootQ + 2) * math.Abs(c) * abs
	}
	o.slope, o.errSlope = 1, 0
	if limit := p.Score.Softcap; limit != 0 {
		t := math.Tanh(s / limit)
		o.slope = 1 - t*t
		o.errSlope = 2*math.Abs(t)*o.slope*e/limit + 12*t*t + 2*o.slope
		s = limit * t
		e += 4 * math.Abs(s)
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		bias := -float64(a.Terms.Slopes[at.H]) * math.Abs(float64(o.position(at)-j))
		s += bias
		e += 3 * math.Abs(bias)
	}
	if p.Score.Terms&attn.TermBias != 0 {
		t := &a.Terms.Bias
		bias := float64(t.Data[at.B%t.B*t.SB+at.I%t.S*t.SS+at.H%t.H*t.SH+j%t.D])
		if lowest := lowest(p.Temperature()); s+bias < lowest && bias >= -math.MaxFloat32 && float32(s) >= -math.MaxFloat32 {
			s = lowest
		} else {
			s += bias
		}
		e += math.Abs(bias)
	}
	if rounded := float64(float32(s)); !o.unrounded || math.IsInf(rounded, 0) {
		s = rounded
	}
	return s, e
}

// lowest returns the lowest score that a finite bias can produce at temperature t: the score whose
// z, as a base-2 logarithm, is -MaxFloat32.
func lowest(t float64) float64 {
	if !(t > 0) || math.IsInf(t, 1) {
		return -math.MaxFloat32
	}
	return max(-math.MaxFloat32, -math.MaxFloat32*math.Ln2*t)
}

func (o *Oracle) queries(b int) int {
	if o.p.Ragged {
		return int(o.a.QStart[b+1]) - int(o.a.QStart[b])
	}
	return o.a.Q.S
}

// softmax computes a row of a softmax problem.
func (o *Oracle) softmax(at Index) {
	p, a, r := &o.p, o.a, &o.row
	kv, s, eS := at.H/p.Group(), r.Scores, r.TolScores
	o.query(at)
	top, infinite, invalid := math.Inf(-1), 0, false
	n := o.keys[:0]
	for _, j := range o.keys {
		s[j], eS[j] = o.score(at, j, kv)
		switch {
		case math.IsNaN(s[j]):
			invalid = true
		case math.IsInf(s[j], 1):
			infinite++
		case math.IsInf(s[j], -1):
			continue // weight 0, whatever the value row holds
		}
		top = max(top, s[j])
		n = append(n, j)
	}
	o.keys = n
	r.Max = top
	for _, j := range n {
		if s[j]+u*eS[j] >= top-u*eS[j] {
			r.TolMax = max(r.TolMax, u*eS[j]+2*u*math.Abs(top))
		}
	}
	t, sink := p.Temperature(), math.Inf(-1)
	if p.Score.Terms&attn.TermSinks != 0 { // a key with z = sink and no value
		sink = float64(a.Terms.Sinks[at.H])
		invalid = invalid || math.IsNaN(sink)
		if math.IsInf(sink, 1) {
			infinite++
		}
	}
	defer func() {
		for _, j := range n {
			eS[j] = u * (eS[j] + math.Abs(s[j]))
		}
	}()
	switch {
	case invalid || infinite > 1:
		o.allNaN()
		return
	case infinite == 1:
		for _, j := range n {
			if math.IsInf(s[j], 1) {
				r.Weights[j] = 1
				o.copyValue(at.B, j, kv)
			}
		}
		r.LSE, r.Mean = math.Inf(1), math.Inf(1)
		return
	case len(n) == 0 && math.IsInf(sink, -1):
		r.LSE = math.Inf(-1)
		return
	}

	// z relative to the largest z, and the partition function Z
	beta := 1 / t
	if t == attn.Frozen {
		beta = 0 // eZ is 0: small changes of the scores do not change the limit
	}
	high := max(top*beta, sink)
	if len(n) == 0 {
		high = sink
	}
	z := func(j int) float64 {
		switch {
		case math.IsInf(t, 1):
			return 0
		case t == attn.Frozen && s[j] == top:
			return 0
		case t == attn.Frozen:
			return math.Inf(-1)
		case high == sink:
			return s[j]/t - high
		}
		return (s[j] - top) / t
	}
	rest := 0.0 // weight of the sink
	if !math.IsInf(sink, -1) {
		rest = math.Exp(sink - high)
	}
	Z := rest
	for _, j := range n {
		r.Weights[j] = math.Exp(z(j))
		Z += r.Weights[j]
	}
	rest /= Z
	E := 0.0
	for _, j := range n {
		r.Weights[j] /= Z
		if r.Weights[j] > 0 {
			E += r.Weights[j] * eS[j] * beta
		}
	}
	grow := math.Sqrt(float64(len(n))) + 6
	absS, absZ, errS, errZ := 0.0, 0.0, 0.0, 0.0 // sums for the tolerance of Mean and Entropy
	add := func(w, s, zj, e float64) {
		r.Mean += w * s
		r.Entropy -= w * zj
		absS += w * math.Abs(s)
		absZ += w * math.Abs(zj)
		errS += w * (e + math.Abs(s)*(e*beta+E))
		errZ += w * (e*beta + math.Abs(zj)*(e*beta+E))
	}
	if rest > 0 {
		add(rest, t*sink, sink, 0)
	}
	for _, j := range n {
		w, e := r.Weights[j], eS[j]
		r.TolWeights[j], r.SizeWeights[j] = u*w*(e*beta+E+grow)+flush, w+absolute(flush)
		add(w, s[j], s[j]*beta, e)
		for b, v := range o.key(o.v, &a.V, at.B, j, kv) {
			r.Out[b] += w * v
			r.TolOut[b] += u*w*math.Abs(v)*(e*beta+E+grow) + light*math.Abs(v)
			r.SizeOut[b] += (w + absolute(light)) * math.Abs(v)
		}
	}
	for b := range r.TolOut {
		r.rounded(b, grow*subnormal)
	}
	r.LSE = high + math.Log(Z)
	r.Entropy += r.LSE
	r.TolLSE = u * (E + grow + 2*math.Abs(r.LSE))
	r.TolMean, r.SizeMean = u*(errS+grow*absS), absS
	r.TolEntropy = r.TolLSE + u*(errZ+grow*absZ)
	if r.Visible == 1 && rest == 0 {
		o.copyValue(at.B, n[0], kv)
	}
}

// allNaN makes every number of the row NaN.
func (o *Oracle) allNaN() {
	r := &o.row
	r.LSE, r.Mean, r.Entropy, r.Max = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	for b := range r.Out {
		r.Out[b] = math.NaN()
	}
	for _, j := range o.keys {
		r.Weights[j] = math.NaN()
	}
}

// copyValue makes Out the value row of key j, with no tolerance.
func (o *Oracle) copyValue(b, j, kv int) {
	for c, v := range o.key(o.v, &o.a.V, b, j, kv) {
		o.row.Out[c], o.row.TolOut[c] = v, 0
	}
}
