package attn

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// ErrUnsupported is what Check and Plan wrap when a kernel does not do what a valid problem asks.
var ErrUnsupported = errors.New("unsupported")

// A Problem is everything that determines the answer except the numbers. It is comparable, and the
// zero value of each field after DimV is the plain case.
type Problem struct {
	Op              Op // the table of operations says which of the fields below a kind of attention takes
	Batch           int
	SeqQ, SeqKV     int // capacities: decoding never replans
	HeadsQ, HeadsKV int // HeadsKV divides HeadsQ
	Dim, DimV       int
	DimQ            int // with TermMetric: columns of Q, where the metric is not square; 0: Dim
	Mask            Mask
	Score           Score
	Linear          Linear
	Q, KV, Out      DType
	Ragged, Lengths bool // Args.QStart/KStart; Args.KLen/QPos
	Page            int  // rows in a cache page, a power of two of 8 or more; 0: contiguous
	Want            Want // by-products and gradients the plan must be able to give
}

// MaxDim is the largest Dim, DimV and DimQ. Loops in assembly, which Go cannot interrupt, take some
// rows at once.
const MaxDim = 8192

// Frozen is the temperature of the limit T -> 0.
const Frozen = -1.0

// A Score says how the score of a query and a key is made.
type Score struct {
	Scale   float64 // 0: 1/√Dim
	Temp    float64 // 0: 1; Frozen: T -> 0; +Inf: uniform
	Softcap float64
	Terms   Terms
	Rope    Rope
}

// Terms is the set of terms that enter a score besides the product; their operands are in
// Args.Terms.
type Terms uint8

// Score terms.
const (
	TermBias     Terms = 1 << iota // added to the score
	TermALiBi                      // -slope of the head times the distance |pos-j|
	TermSinks                      // one extra key a head, without a value
	TermRelative                   // scale * q . r, a row of a table by how far key and query are apart
	TermMetric                     // q . g . k in place of q . k
)

// Rope says whether and how Q and K are rotated by their positions: which two elements of a row
// turn together. With n angles, the first 2n elements turn and the others stay.
type Rope uint8

// Rotations.
const (
	NoRope          Rope = iota
	RopeInterleaved      // 2c and 2c+1
	RopeHalves           // c and c+n
)

// A Linear says what a linear problem computes from features f:
//
//	o_i = sum_j w_ij v_j / (sum_j w_ij + Eps)   w_ij = f(q_i) . f(k_j)
//	o_i = scale * sum_j w_ij v_j                if Unnormalised
type Linear struct {
	Feature      Feature
	Unnormalised bool
	Eps          float64
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

// FeatureByName finds a feature map by its name.
func FeatureByName(s string) (Feature, error) {
	for i, n := range featureNames {
		if n == s {
			return Feature(i), nil
		}
	}
	return 0, fmt.Errorf("unknown feature map %q: one of %s", s, strings.Join(featureNames[:], ", "))
}

// Want is the set of by-products and gradients a plan must be able to give. A call may still leave
// any of them out.
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
	WantGrad // a plan with a backward pass, which reads Stats.LSE: see Grads
)

// Needs is a set of abilities: what a problem asks, or what a kernel has.
type Needs uint64

// Abilities besides the operations. Any kernel does no mask and causal ones, any sizes, strides and
// head groups.
const (
	NeedWindow Needs = 1 << (iota + Needs(opEnd)) // a band bounded on the left, or past the query's own position
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
	needsEnd
)

var needNames = [...]string{
	"window", "bool mask", "packed mask", "block mask", "temperature", "softcap", "bias", "ALiBi", "sinks",
	"relative positions", "metric", "RoPE", "16-bit or int8 operands", "key lengths and positions",
	"ragged batch", "pages", "LSE", "mean score", "entropy", "max", "argmax", "weights", "raw scores", "gradients",
}

// String lists the abilities by name.
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
	return Want(n >> bits.TrailingZeros64(uint64(NeedLSE)))
}

// AllNeeds is every ability that a problem can ask for.
const AllNeeds = needsEnd - 1

// Needs says which abilities the problem asks of a kernel.
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
	return n
}

// Require is the first line of every kernel's Check: it refuses a problem that is malformed, and
// one that needs an ability the kernel named lacks, saying which.
func (p *Problem) Require(kernel string, have Needs) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if lack := p.Needs() &^ have; lack != 0 {
		return fmt.Errorf("%w: %s does not do: %v", ErrUnsupported, kernel, lack)
	}
	return nil
}

// Validate says what is wrong with a problem, for any kernel.
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
	} {
		if f.n < 0 {
			return fmt.Errorf("problem: %s is %d, want 0 or more", f.name, f.n)
		}
	}
	if p.HeadsQ > 0 && (p.HeadsKV == 0 || p.HeadsQ%p.HeadsKV != 0) {
		return fmt.Errorf("problem: %d key heads do not divide %d query heads", p.HeadsKV, p.HeadsQ)
	}
	// Neither an index nor a count of pairs may overflow, nor either of them times what scratch has
	// for it.
	if !fits(1<<46, p.Batch, max(p.HeadsQ, p.HeadsKV), max(p.SeqQ, p.SeqKV), max(p.Dim, p.DimV, p.DimQ)) ||
		!fits(1<<58, p.Batch, p.HeadsQ, p.SeqQ, p.SeqKV) {
		return fmt.Errorf("problem: batch %d, heads %d and %d, seq %d by %d, dim %d and %d are more than any machine can hold or do",
			p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV)
	}
	if n := max(p.SeqQ, p.SeqKV); n > math.MaxInt32 {
		return fmt.Errorf("problem: seq %d, want at most %d: positions are numbers of 32 bits", n, math.MaxInt32)
	}
	if n := max(p.Dim, p.DimV, p.DimQ); n > MaxDim {
		return fmt.Errorf("problem: rows of %d numbers, want dim, dim_v and dim_q of at most %d: loops take some rows at once, and must soon end", n, MaxDim)
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
		return fmt.Errorf("problem: gradients of %v, %v and %v operands; the backward pass takes f32", p.Q, p.KV, p.Out)
	case p.Want&WantGrad != 0 && p.Page != 0:
		return errors.New("problem: gradients of keys in pages; a cache is not trained through, give K and V as they lie before it")
	case p.Want&WantGrad != 0 && (s.Temp == Frozen || math.IsInf(s.Temp, 1)):
		return errors.New("problem: gradients at a limit of temperature, where weights do not follow the scores; leave WantGrad out")
	case s.Temp == Frozen && p.Want&WantLSE != 0:
		return errors.New("problem: LSE has no limit as T -> 0; ask for the mean score, which becomes the largest one")
	case s.Terms&TermSinks != 0 && (s.Temp == Frozen || math.IsInf(s.Temp, 1)):
		return errors.New("problem: a sink has no part in the limits of temperature, where scores are all or nothing to one another; leave TermSinks out")
	case p.DimQ != 0 && p.DimQ != p.Dim && s.Terms&TermMetric == 0:
		return fmt.Errorf("problem: dim_q %d and dim %d differ, and only TermMetric can join them", p.DimQ, p.Dim)
	case max(p.Q, p.KV, p.Out) > I8 || l.Feature > Identity:
		return errors.New("problem: unknown element type or feature map")
	case p.Q == I8 || p.Out == I8:
		return errors.New("problem: int8 is a type for K and V; Q and Out are f32, f16 or bf16")
	case p.Page != 0 && (p.Page < 8 || p.Page&(p.Page-1) != 0 || p.Page > 1<<30):
		return fmt.Errorf("problem: pages of %d rows, want a power of two from 8 to %d", p.Page, 1<<30)
	case math.IsNaN(l.Eps) || math.IsInf(l.Eps, 0) || l.Eps < 0:
		return fmt.Errorf("problem: linear eps %v, want a small number, 0 or more", l.Eps)
	}
	return p.checkOp()
}

// Sizes are checked on numbers of 64 bits: attnlab is for machines whose ints have as many.
const _ int = 1 << 62

// fits says that a product of extents, of which those that are 0 count as 1, stays below a limit.
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

// Scale is the effective factor of q . k.
func (p *Problem) Scale() float64 {
	switch {
	case p.Score.Scale != 0:
		return p.Score.Scale
	case p.Dim == 0:
		return 1
	}
	return 1 / math.Sqrt(float64(p.Dim))
}

// QDim is the number of columns of Q.
func (p *Problem) QDim() int {
	if p.DimQ != 0 {
		return p.DimQ
	}
	return p.Dim
}

// Temperature is the effective temperature: positive, +Inf, or Frozen.
func (p *Problem) Temperature() float64 {
	if p.Score.Temp == 0 {
		return 1
	}
	return p.Score.Temp
}

// Lowest is the lowest finite score that a bias leaves: -2.36e38 T, or -MaxFloat32 if that is
// larger, as it is in the limits of temperature. Kernels hold z = s/T as a base-2 logarithm, in
// which no lower one is finite. Scores below count as equal to it, so that a row that is filled
// with the lowest float32, as a mask often is, has the mean of its values for an answer.
func (p *Problem) Lowest() float32 {
	lowest := -math.MaxFloat32
	if t := p.Temperature(); t > 0 && !math.IsInf(t, 1) {
		lowest = max(lowest, lowest*math.Ln2*t)
	}
	return float32(lowest)
}

// Group is the number of query heads that share a key head: 0 where there are none.
func (p *Problem) Group() int { return p.HeadsQ / max(p.HeadsKV, 1) }

func name(names []string, i int, kind string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}
