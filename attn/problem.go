package attn

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// ErrUnsupported is the error that Check and Plan wrap when a kernel lacks an ability that a valid
// problem needs.
var ErrUnsupported = errors.New("unsupported")

// A Problem is everything that determines the answer except the numbers. It is comparable. The zero
// value of each field after DimV is the plain case.
type Problem struct {
	Op              Op // Op.Takes returns which of the fields below it takes
	Batch           int
	SeqQ, SeqKV     int // capacities: a call may have fewer rows
	HeadsQ, HeadsKV int // HeadsKV divides HeadsQ, unless Linear.HeadsV is set
	Dim, DimV       int // columns of K, and of V and Out
	DimQ            int // columns of Q if a metric is not square; 0 means Dim
	Mask            Mask
	Score           Score
	Linear          Linear
	Q, KV, Out      DType
	Ragged          bool // calls have QStart and, unless K and V are in pages, KStart
	Lengths         bool // calls may have KLen and QPos
	Page            int  // rows of a cache page, a power of two from 8; 0 means contiguous
	Want            Want // by-products and gradients that the plan must be able to compute
}

// MaxDim is the largest Dim, DimV and DimQ. A loop in assembly processes several rows in one call,
// which Go cannot interrupt; the limit keeps that call short.
const MaxDim = 8192

// Frozen is the temperature of the limit T -> 0.
const Frozen = -1.0

// A Score defines how the score of a query and a key is computed.
type Score struct {
	Scale   float64 // 0 means 1/√Dim
	Temp    float64 // 0 means 1; Frozen is T -> 0; +Inf gives uniform weights
	Softcap float64 // 0 means none
	Terms   Terms
	Rope    Rope
}

// Terms is the set of terms that a score has besides the product. Their operands are in Args.Terms.
type Terms uint8

// Score terms.
const (
	TermBias     Terms = 1 << iota // a bias, added to the score
	TermALiBi                      // -slope of the head times the distance |pos-j|
	TermSinks                      // one extra key for each head, without a value
	TermRelative                   // scale * q . r, with the table row r of the relative position
	TermMetric                     // q . g . k in place of q . k
)

// Rope selects the rotation of Q and K by their positions: none, or which two elements of a row
// form a pair. With n angles the first 2n elements turn; the others stay as they are.
type Rope uint8

// Rotations.
const (
	NoRope          Rope = iota
	RopeInterleaved      // pairs 2c and 2c+1
	RopeHalves           // pairs c and c+n
)

// A Linear defines what a linear problem computes from features f:
//
//	o_i = sum_j w_ij v_j / (sum_j w_ij + Eps)   w_ij = f(q_i) . f(k_j)
//	o_i = scale * sum_j w_ij v_j                if Unnormalised
//
// Under a causal mask this is a recurrence over a state S, which the fields after Eps extend. See
// "Linear attention" in the package doc.
type Linear struct {
	Feature      Feature
	Unnormalised bool
	Eps          float64
	Gate         Gate    // decay of the state before each token: Operands.Decay
	Delta        bool    // a token writes beta (v - S^T f(k)) in place of v: Operands.Beta
	Norm         Norm    // applied to rows of Q and K before the feature map
	NormEps      float64 // 0 or more
	HeadsV       int     // heads of V, Decay and Beta; 0 means HeadsKV
	Snapshots    int     // states in Args.StateOut; 0 means 1
}

// A Feature is a map applied to each element of Q and K in a linear problem.
type Feature uint8

// Feature maps.
const (
	EluPlusOne  Feature = iota // x+1 for x > 0, else exp(x)
	ReluPlusOne                // max(x, 0)+1
	Identity
)

var featureNames = [...]string{"elu+1", "relu+1", "identity"}

// String returns the name used in flags and benchmark keys.
func (f Feature) String() string { return name(featureNames[:], int(f), "feature") }

// FeatureByName returns the feature map of that name.
func FeatureByName(s string) (Feature, error) {
	for i, n := range featureNames {
		if n == s {
			return Feature(i), nil
		}
	}
	return 0, fmt.Errorf("unknown feature map %q: one of %s", s, strings.Join(featureNames[:], ", "))
}

// Want is the set of by-products and gradients that a plan must be able to compute. A call may
// leave any of them out.
type Want uint16

// By-products.
const (
	WantLSE Want = 1 << iota
	WantMean
	WantEntropy
	WantMax
	WantArgMax
	WantWeights
	WantScores
	WantGrad // gradients: the plan has a backward pass, which reads Stats.LSE
)

// Needs is a set of abilities, which a problem needs or a kernel has.
type Needs uint64

// Abilities besides the operations. Every kernel computes problems without a mask and with a causal
// mask, of any sizes, strides and head groups.
const (
	// a band with a left bound, or a right bound other than 0
	NeedWindow Needs = 1 << (iota + Needs(opEnd))
	NeedBool
	NeedPacked
	NeedBlock
	NeedTemp
	NeedSoftcap
	NeedBias
	NeedALiBi
	NeedSinks
	NeedRelative
	NeedMetric
	NeedRope
	NeedTypes
	NeedLengths
	NeedRagged
	NeedPages
	NeedLSE
	NeedMean
	NeedEntropy
	NeedMax
	NeedArgMax
	NeedWeights
	NeedScores
	NeedGrad
	NeedHeadGate
	NeedKeyGate
	NeedDelta
	NeedNorm
	NeedHeadsV // Linear.HeadsV is set
	NeedSnapshots
	needsEnd
)

var needNames = [...]string{
	"window", "bool mask", "packed mask", "block mask", "temperature", "softcap", "bias", "ALiBi", "sinks",
	"relative positions", "metric", "RoPE", "16-bit or int8 operands", "key lengths and positions",
	"ragged batch", "pages", "LSE", "mean score", "entropy", "max", "argmax", "weights", "raw scores", "gradients",
	"gate per head", "gate per key channel", "delta rule", "norm of Q and K", "value heads", "snapshots",
}

// String lists the names of the abilities.
func (n Needs) String() string {
	var s []string
	for op := range opEnd {
		if n&op.Need() != 0 {
			s = append(s, op.String())
		}
	}
	for b := NeedWindow; b < needsEnd; b <<= 1 {
		if n&b != 0 {
			s = append(s, needNames[bits.TrailingZeros64(uint64(b))-int(opEnd)])
		}
	}
	return strings.Join(s, ", ")
}

// Wants returns the by-products and gradients among the abilities.
func (n Needs) Wants() Want {
	return Want(n>>bits.TrailingZeros64(uint64(NeedLSE))) & (WantGrad<<1 - 1)
}

// AllNeeds is the set of all abilities.
const AllNeeds = needsEnd - 1

// Needs returns the abilities that the problem needs from a kernel.
func (p *Problem) Needs() Needs {
	n := p.Op.Need()
	add := func(c bool, b Needs) {
		if c {
			n |= b
		}
	}
	m, s := p.Mask, p.Score
	add(m.Band && (m.Left != Unbounded || m.Right != 0), NeedWindow)
	add(m.Bitmap == BoolBitmap, NeedBool)
	add(m.Bitmap == PackedBitmap, NeedPacked)
	add(m.Bitmap == BlockBitmap, NeedBlock)
	add(s.Temp != 0 && s.Temp != 1, NeedTemp)
	add(s.Softcap != 0, NeedSoftcap)
	for t := TermBias; t <= TermMetric; t <<= 1 {
		add(s.Terms&t != 0, NeedBias<<bits.TrailingZeros8(uint8(t)))
	}
	add(s.Rope != NoRope, NeedRope)
	add(p.Q != F32 || p.KV != F32 || p.Out != F32, NeedTypes)
	add(p.Lengths, NeedLengths)
	add(p.Ragged, NeedRagged)
	add(p.Page != 0, NeedPages)
	for w := WantLSE; w <= WantGrad; w <<= 1 {
		add(p.Want&w != 0, NeedLSE<<bits.TrailingZeros16(uint16(w)))
	}
	l := p.Linear
	add(l.Gate == HeadGate, NeedHeadGate)
	add(l.Gate == KeyGate, NeedKeyGate)
	add(l.Delta, NeedDelta)
	add(l.Norm != NoNorm, NeedNorm)
	add(l.HeadsV != 0, NeedHeadsV)
	add(l.Snapshots > 1, NeedSnapshots)
	return n
}

// Require returns an error if the problem is invalid, or if it needs an ability that the named
// kernel lacks. Every kernel's Check calls it first.
func (p *Problem) Require(kernel string, have Needs) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if lack := p.Needs() &^ have; lack != 0 {
		return fmt.Errorf("%w: %s does not do: %v", ErrUnsupported, kernel, lack)
	}
	return nil
}

// Validate reports what makes a problem invalid for every kernel.
func (p *Problem) Validate() error {
	for _, f := range [...]struct {
		name string
		n    int
	}{
		{"batch", p.Batch},
		{"seq_q", p.SeqQ},
		{"seq_kv", p.SeqKV},
		{"heads_q", p.HeadsQ},
		{"heads_kv", p.HeadsKV},
		{"dim", p.Dim},
		{"dim_v", p.DimV},
		{"dim_q", p.DimQ},
		{"page", p.Page},
		{"heads_v", p.Linear.HeadsV},
		{"snapshots", p.Linear.Snapshots},
	} {
		if f.n < 0 {
			return fmt.Errorf("problem: %s is %d, want 0 or more", f.name, f.n)
		}
	}
	if err := p.checkHeads(); err != nil {
		return err
	}
	// Indices and counts of pairs must not overflow, nor their products with the scratch bytes that
	// a kernel holds for each.
	if !fits(1<<46, p.Batch, max(p.OutHeads(), p.HeadsKV), max(p.SeqQ, p.SeqKV), max(p.Dim, p.DimV, p.DimQ)) ||
		!fits(1<<58, p.Batch, p.OutHeads(), p.SeqQ, p.SeqKV) {
		return fmt.Errorf("problem: batch %d, heads %d and %d, seq %d by %d, dim %d and %d are more than any machine can hold or compute",
			p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV)
	}
	if n := max(p.SeqQ, p.SeqKV); n > math.MaxInt32 {
		return fmt.Errorf("problem: seq %d, want at most %d: positions are numbers of 32 bits", n, math.MaxInt32)
	}
	if n := max(p.Dim, p.DimV, p.DimQ); n > MaxDim {
		return fmt.Errorf("problem: rows of %d numbers, want dim, dim_v and dim_q of at most %d: a loop over several rows cannot be interrupted", n, MaxDim)
	}
	if err := p.Mask.validate(); err != nil {
		return err
	}
	s, l := p.Score, p.Linear
	switch {
	case p.Op >= opEnd:
		return fmt.Errorf("problem: unknown op %d", p.Op)
	case math.IsNaN(s.Scale) || math.IsInf(s.Scale, 0) || float32(s.Scale) == 0 && s.Scale != 0 || math.IsInf(float64(float32(s.Scale)), 0):
		return fmt.Errorf("problem: scale %v, want a number that float32 holds (0 means 1/√dim)", s.Scale)
	case math.IsNaN(s.Temp) || s.Temp < 0 && s.Temp != Frozen:
		return fmt.Errorf("problem: temperature %v, want a positive number, +Inf, or Frozen (-1) for the limit to 0", s.Temp)
	case s.Temp > 0 && !math.IsInf(s.Temp, 1) && (s.Temp < 1e-30 || s.Temp > 1e30):
		return fmt.Errorf("problem: temperature %v, want 1e-30 to 1e30, +Inf, or Frozen (-1) for the limit to 0", s.Temp)
	case s.Softcap != 0 && !(1e-30 <= s.Softcap && s.Softcap <= 1e30):
		return fmt.Errorf("problem: softcap %v, want 1e-30 to 1e30, or 0 for none", s.Softcap)
	case s.Terms >= TermMetric<<1 || s.Rope > RopeHalves || p.Want >= WantGrad<<1:
		return fmt.Errorf("problem: unknown bits in terms %#x, rope %d or want %#x", s.Terms, s.Rope, p.Want)
	case p.Want&WantGrad != 0 && (p.Q != F32 || p.KV != F32 || p.Out != F32):
		return fmt.Errorf("problem: gradients of %v, %v and %v operands; the backward pass wants f32", p.Q, p.KV, p.Out)
	case p.Want&WantGrad != 0 && p.Page != 0:
		return errors.New("problem: gradients of keys in pages: a paged cache has no gradients, give K and V without Page")
	case p.Want&WantGrad != 0 && (s.Temp == Frozen || math.IsInf(s.Temp, 1)):
		return errors.New("problem: gradients at temperature Frozen or +Inf, where weights do not follow the scores: leave WantGrad out")
	case s.Temp == Frozen && p.Want&WantLSE != 0:
		return errors.New("problem: LSE has no limit as T -> 0: ask for the mean score, which becomes the largest score")
	case s.Terms&TermSinks != 0 && (s.Temp == Frozen || math.IsInf(s.Temp, 1)):
		return errors.New("problem: sinks at temperature Frozen or +Inf, which are defined for scores alone: leave TermSinks out")
	case p.DimQ != 0 && p.DimQ != p.Dim && s.Terms&TermMetric == 0:
		return fmt.Errorf("problem: dim_q %d and dim %d differ: leave dim_q 0, or add TermMetric", p.DimQ, p.Dim)
	case max(p.Q, p.KV, p.Out) > I8 || l.Feature > Identity || l.Gate > KeyGate || l.Norm > NormMax:
		return errors.New("problem: unknown element type, feature map, gate or norm")
	case p.Q == I8 || p.Out == I8:
		return errors.New("problem: int8 is a type for K and V: want f32, f16 or bf16 for Q and Out")
	case p.Page != 0 && (p.Page < 8 || p.Page&(p.Page-1) != 0 || p.Page > 1<<30):
		return fmt.Errorf("problem: pages of %d rows, want a power of two from 8 to %d", p.Page, 1<<30)
	case math.IsNaN(l.Eps) || math.IsInf(l.Eps, 0) || l.Eps < 0:
		return fmt.Errorf("problem: linear eps %v, want a small number, 0 or more", l.Eps)
	case math.IsNaN(l.NormEps) || math.IsInf(l.NormEps, 0) || l.NormEps < 0:
		return fmt.Errorf("problem: norm eps %v, want a small number, 0 or more", l.NormEps)
	}
	return p.checkOp()
}

// Sizes are checked as 64-bit numbers: attnlab requires an int of 64 bits.
const _ int = 1 << 62

// fits reports whether the product of extents is below limit. An extent of 0 counts as 1.
func fits(limit uint64, n ...int) bool {
	size := uint64(1)
	for _, k := range n {
		hi, lo := bits.Mul64(size, uint64(max(k, 1)))
		if hi != 0 || lo >= limit {
			return false
		}
		size = lo
	}
	return true
}

// Scale returns the factor of q . k.
func (p *Problem) Scale() float64 {
	switch {
	case p.Score.Scale != 0:
		return p.Score.Scale
	case p.Dim == 0:
		return 1
	}
	return 1 / math.Sqrt(float64(p.Dim))
}

// QDim returns the number of columns of Q.
func (p *Problem) QDim() int {
	if p.DimQ != 0 {
		return p.DimQ
	}
	return p.Dim
}

// Temperature returns the temperature in effect: positive, +Inf, or Frozen.
func (p *Problem) Temperature() float64 {
	if p.Score.Temp == 0 {
		return 1
	}
	return p.Score.Temp
}

// Lowest returns the lowest finite score that a bias can produce: -2.36e38 T, but at least
// -MaxFloat32, which is also the value in the limits of temperature.
//
// Kernels hold z = s/T as a base-2 logarithm, and no lower score has a finite one. Lower scores
// count as equal to it. The output of a row masked with the lowest float32 is therefore the mean of
// its values.
func (p *Problem) Lowest() float32 {
	lowest := -math.MaxFloat32
	if t := p.Temperature(); t > 0 && !math.IsInf(t, 1) {
		lowest = max(lowest, lowest*math.Ln2*t)
	}
	return float32(lowest)
}

// Group returns the number of query heads that share a key head, or 0 if there are no heads.
func (p *Problem) Group() int { return p.HeadsQ / max(p.HeadsKV, 1) }

func name(names []string, i int, kind string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}
