package cases

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unsafe"

	"attnlab/attn"
)

var layouts = []string{"bhsd", "bshd", "packed", "padded", "broadcast"}

// Layouts lists the names that NewArgs accepts.
func Layouts() []string { return slices.Clone(layouts) }

// Sizes in floats. Large operands are aligned as Go's make aligns large slices, because the
// alignment of rows to memory pages affects how fast they are read.
const (
	gap     = 16           // between the operands of a slab: a cache line
	large   = 32 << 10 / 4 // a larger operand is aligned
	aligned = 8 << 10 / 4  // the alignment of large operands
)

// A carver cuts tensors from a slab. Without a slab it only counts.
type carver struct {
	slab []float32
	used int
	odd  int // offset that makes each operand unaligned
}

// view cuts a tensor with the given strides.
func (c *carver) view(typ attn.DType, b, s, h, d, sb, ss, sh int) attn.Tensor {
	t := attn.Tensor{Type: typ, B: b, S: s, H: h, D: d, SB: sb, SS: ss, SH: sh}
	n := 0
	if t.Size() > 0 {
		n = (b-1)*sb + (s-1)*ss + (h-1)*sh + d
	}
	switch typ {
	case attn.F32:
		t.Data = c.take(n)
	case attn.I8:
		t.Int8 = as[int8](c.take((n+3)/4), n)
		if n > 0 {
			t.Scale = c.take((n + d - 1) / d)
		}
	default:
		t.Bits = as[uint16](c.take((n+1)/2), n)
	}
	return t
}

// as returns the memory of floats as n smaller numbers.
func as[T any](x []float32, n int) []T {
	if x == nil {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(x))), n)
}

func (c *carver) take(n int) []float32 {
	at := c.next(n) + c.odd
	c.used = at + n
	if c.slab == nil {
		return nil
	}
	return c.slab[at : at+n : at+n]
}

// next returns the start of the next operand, which has n floats.
func (c *carver) next(n int) int {
	at := c.used + gap
	if n > large {
		at = (at + aligned - 1) / aligned * aligned
	}
	return at
}

// close adds the last gap. If the slab is large, its length is a multiple of the alignment.
func (c *carver) close() { c.used = c.next(c.used) }

func (c *carver) tensor(typ attn.DType, layout string, b, s, h, d int) attn.Tensor {
	switch layout {
	case "bhsd", "broadcast":
		return c.view(typ, b, s, h, d, h*s*d, d, s*d)
	case "padded":
		c.odd = 1
		sh := d + 3
		if typ == attn.I8 { // strides are multiples of d
			sh = 2 * d
		}
		ss := h*sh + 2*sh
		return c.view(typ, b, s, h, d, s*ss+sh, ss, sh)
	}
	return c.view(typ, b, s, h, d, s*h*d, h*d, d)
}

func (c *carver) shared(typ attn.DType, s, h, d, b int) attn.Tensor {
	t := c.view(typ, 1, s, 1, d, 0, d, 0)
	t.B, t.H = b, h
	return t
}

// carve lays out the float operands of p, or only their shapes if there is no slab.
func carve(p *attn.Problem, layout string, c *carver) *attn.Args {
	a := new(attn.Args)
	b, nq, nk, hq, hkv, d, dv := p.Batch, p.SeqQ, p.SeqKV, p.HeadsQ, p.HeadsKV, p.Dim, p.DimV
	hv := p.ValueHeads()
	qb, qn, kb, kn := b, nq, b, nk // batch and sequence extents of the tensors
	if p.Ragged {
		qb, qn, kb, kn = 1, b*nq, 1, b*nk
	}
	if p.Page != 0 {
		kb, kn = b*p.PagesEach(), p.Page
	}
	switch layout {
	case "packed":
		slab := c.take(qb * qn * (hq*d + hkv*(d+dv)))
		if slab != nil {
			a.Q, a.K, a.V = attn.Packed(slab, qb, qn, hq, hkv, d, dv)
		}
	case "broadcast":
		a.Q = c.tensor(p.Q, layout, qb, qn, hq, p.QDim())
		a.K, a.V = c.shared(p.KV, kn, hkv, d, kb), c.shared(p.KV, kn, hv, dv, kb)
	default:
		a.Q = c.tensor(p.Q, layout, qb, qn, hq, p.QDim())
		a.K, a.V = c.tensor(p.KV, layout, kb, kn, hkv, d), c.tensor(p.KV, layout, kb, kn, hv, dv)
	}
	a.Out = c.tensor(p.Out, layout, qb, qn, p.OutHeads(), dv)
	for _, o := range [...]struct {
		want attn.Want
		t    *attn.Tensor
		d    int
	}{
		{attn.WantLSE, &a.Stats.LSE, 1},
		{attn.WantMean, &a.Stats.Mean, 1},
		{attn.WantEntropy, &a.Stats.Entropy, 1},
		{attn.WantMax, &a.Stats.Max, 1},
		{attn.WantWeights, &a.Stats.Weights, nk},
		{attn.WantScores, &a.Stats.Scores, nk},
	} {
		if p.Want&o.want != 0 || o.want == attn.WantLSE && p.ReadsLSE() {
			*o.t = c.tensor(attn.F32, layout, qb, qn, hq, o.d)
		}
	}
	terms, t := p.Score.Terms, &a.Terms
	if terms&attn.TermBias != 0 {
		t.Bias = c.tensor(attn.F32, "bhsd", 1, nq, hq, nk)
	}
	if terms&attn.TermALiBi != 0 {
		t.Slopes = c.take(hq)
	}
	if terms&attn.TermSinks != 0 {
		t.Sinks = c.take(hq)
	}
	if terms&attn.TermRelative != 0 {
		t.Relative = c.tensor(attn.F32, "bhsd", 1, max(nq+nk-1, 0), hq, p.QDim())
	}
	if terms&attn.TermMetric != 0 {
		t.Metric = c.tensor(attn.F32, "bhsd", 1, p.QDim(), hq, d)
	}
	if p.Score.Rope != attn.NoRope {
		n := min(p.QDim(), d) / 2
		t.Cos, t.Sin = c.tensor(attn.F32, "bhsd", 1, nq+nk, 1, n), c.tensor(attn.F32, "bhsd", 1, nq+nk, 1, n)
	}
	if strided := layout; p.Rule() {
		if strided == "packed" || strided == "broadcast" {
			strided = "bshd"
		}
		switch p.Linear.Gate {
		case attn.HeadGate:
			t.Decay = c.tensor(attn.F32, strided, kb, kn, hv, 1)
		case attn.KeyGate:
			t.Decay = c.tensor(attn.F32, strided, kb, kn, hv, d)
		}
		if p.Linear.Delta {
			t.Beta = c.tensor(attn.F32, strided, kb, kn, hv, 1)
		}
		a.StateIn, a.StateOut = c.take(p.StateLen()), c.take(p.SnapshotLen())
	}
	c.close()
	return a
}

// complete adds the operands that are not floats.
func complete(p *attn.Problem, a *attn.Args) {
	b, nq, nk := p.Batch, p.SeqQ, p.SeqKV
	if p.Want&attn.WantArgMax != 0 {
		a.Stats.ArgMax = make([]int32, b*p.HeadsQ*nq)
	}
	switch p.Mask.Bitmap {
	case attn.BoolBitmap:
		seen := slices.Repeat([]bool{true}, nq*nk)
		a.Allowed = attn.Bits{Bool: seen, B: 1, S: nq, H: 1, D: nk, SS: nk}
	case attn.PackedBitmap:
		a.Allowed = attn.Pack(nq, nk, shown)
	case attn.BlockBitmap:
		a.Allowed = attn.BlockSparse(nq, nk, p.Mask.Block, shown)
	}
	if p.Ragged {
		a.QStart, a.KStart = evenly(b, nq), evenly(b, nk)
	}
	if p.Page != 0 {
		a.KStart = nil
		n := b * p.PagesEach()
		a.Pages = make([]int32, n)
		// real pages are seldom in order
		for i, page := range rand.New(rand.NewPCG(uint64(n), 6)).Perm(n) {
			a.Pages[i] = int32(page)
		}
	}
	if p.Lengths {
		a.KLen = slices.Repeat([]int32{int32(nk)}, b)
	}
}

func shown(_, _ int) bool { return true }

// evenly returns the offsets of sequences that all have the same length.
func evenly(sequences, length int) []int32 {
	at := make([]int32, sequences+1)
	for b := range at {
		at[b] = int32(b * length)
	}
	return at
}

// SlabLen returns the number of floats that NewArgs needs for a problem in a layout.
func SlabLen(p attn.Problem, layout string) (int, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	if !slices.Contains(layouts, layout) {
		return 0, fmt.Errorf("layout %q is not one of %s", layout, strings.Join(layouts, ", "))
	}
	if layout == "packed" {
		switch {
		case p.SeqQ != p.SeqKV:
			return 0, fmt.Errorf("layout packed: %d query rows and %d key rows; a packed slab has one row for each token, want equal numbers", p.SeqQ, p.SeqKV)
		case p.ValueHeads() != p.HeadsKV:
			return 0, fmt.Errorf("layout packed: %d value heads and %d key heads; a packed slab has as many of both", p.ValueHeads(), p.HeadsKV)
		case p.Q != attn.F32 || p.KV != attn.F32 || p.Page != 0 || p.QDim() != p.Dim:
			return 0, errors.New("layout packed: want Q, K and V in f32, with the same dim and without pages")
		}
	}
	var c carver
	carve(&p, layout, &c)
	return c.used, nil
}

// NewArgs lays out operands for the full capacity of a problem, with outputs for everything that it
// Wants, and an LSE if it wants gradients. Operands are cut from slab, which keeps its contents, or
// from new zeroed memory if slab is nil. Where the problem asks for them, there are
//
//   - a bias of shape [1, query, head, key], and the operands of the other terms;
//   - an element mask of shape [1, query, 1, key] that shows all keys;
//   - KLen at capacity;
//   - ragged sequences of full length, one after the other;
//   - pages in random order;
//   - gates, beta, and a state before and after the call, for a linear problem with a rule.
func NewArgs(p attn.Problem, layout string, slab []float32) (*attn.Args, error) {
	n, err := SlabLen(p, layout)
	if err != nil {
		return nil, err
	}
	if slab == nil {
		slab = attn.Alloc[float32](n)
	}
	if len(slab) < n {
		return nil, fmt.Errorf("layout %s: the slab holds %d floats, the operands need %d (SlabLen)", layout, len(slab), n)
	}
	a := carve(&p, layout, &carver{slab: slab})
	complete(&p, a)
	return a, nil
}

// Outline is NewArgs without memory for floats. It has the shapes, masks, lengths, offsets and
// pages that determine the work of a call.
func Outline(p attn.Problem) *attn.Args {
	a := carve(&p, "bhsd", new(carver))
	complete(&p, a)
	return a
}

// Inputs calls f for each tensor that is set and that a call reads.
func Inputs(a *attn.Args, f func(name string, t *attn.Tensor)) {
	t := &a.Terms
	visit(f, []named{
		{"Q", &a.Q},
		{"K", &a.K},
		{"V", &a.V},
		{"Bias", &t.Bias},
		{"Relative", &t.Relative},
		{"Metric", &t.Metric},
		{"Cos", &t.Cos},
		{"Sin", &t.Sin},
		{"Decay", &t.Decay},
		{"Beta", &t.Beta},
	})
}

// Outputs calls f for each tensor that is set and that a call writes.
func Outputs(a *attn.Args, f func(name string, t *attn.Tensor)) {
	s := &a.Stats
	visit(f, []named{
		{"Out", &a.Out}, {"LSE", &s.LSE}, {"Mean", &s.Mean}, {"Entropy", &s.Entropy}, {"Max", &s.Max}, {"Weights", &s.Weights}, {"Scores", &s.Scores},
	})
}

// States calls f for the states of a call that are set: the incoming one, and those it writes.
func States(a *attn.Args, f func(name string, x []float32)) {
	if len(a.StateIn) > 0 {
		f("StateIn", a.StateIn)
	}
	if len(a.StateOut) > 0 {
		f("StateOut", a.StateOut)
	}
}

type named struct {
	name string
	t    *attn.Tensor
}

func visit(f func(string, *attn.Tensor), all []named) {
	for _, o := range all {
		if o.t.Size() > 0 {
			f(o.name, o.t)
		}
	}
}

// Rows calls f for each row of a tensor. Changes that f makes to a row are stored, rounded to the
// tensor's type.
func Rows(t *attn.Tensor, f func(b, s, h int, row []float32)) {
	if t.Type == attn.F32 {
		for b := range t.B {
			for s := range t.S {
				for h := range t.H {
					f(b, s, h, t.Row(b, s, h))
				}
			}
		}
		return
	}
	row, was := make([]float32, t.D), make([]float32, t.D)
	same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	for b := range t.B {
		for s := range t.S {
			for h := range t.H {
				t.Read(row, b, s, h)
				copy(was, row)
				// Rounding an int8 row a second time can change it, so only changed rows are
				// written.
				if f(b, s, h, row); !slices.EqualFunc(row, was, same) {
					t.Write(row, b, s, h)
				}
			}
		}
	}
}

// Trim shortens a call to its first nq query rows and nk key rows, below the plan's capacity. The
// call must not be ragged and must not have pages or a block bitmap.
func Trim(a *attn.Args, nq, nk int) {
	a.Q.S = nq
	a.Terms.Decay.S, a.Terms.Beta.S = min(a.Terms.Decay.S, nk), min(a.Terms.Beta.S, nk)
	Outputs(a, func(_ string, t *attn.Tensor) { t.S = nq })
	a.K.S, a.V.S = nk, nk
	for _, t := range []*attn.Tensor{&a.Stats.Weights, &a.Stats.Scores} {
		t.D = min(t.D, nk)
	}
	if b := &a.Terms.Bias; b.Size() > 0 {
		b.S, b.D = min(b.S, nq), min(b.D, nk)
	}
	if m := &a.Allowed; m.Bool != nil || m.Words != nil {
		m.S, m.D = min(m.S, nq), min(m.D, nk)
	}
	if a.Terms.RelativeClip == 0 {
		a.Terms.Relative.S = min(a.Terms.Relative.S, max(nq+nk-1, 0))
	}
	if a.Stats.ArgMax != nil {
		a.Stats.ArgMax = a.Stats.ArgMax[:a.Q.B*nq*a.Q.H]
	}
	for b := range a.KLen {
		a.KLen[b] = min(a.KLen[b], int32(nk))
	}
}
