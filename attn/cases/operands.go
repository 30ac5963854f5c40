package cases

import (
	"fmt"
	"slices"
	"strings"

	"attnlab/attn"
)

var layouts = []string{"bhsd", "bshd", "packed", "padded", "broadcast"}

// Layouts lists the names that NewArgs knows.
func Layouts() []string { return slices.Clone(layouts) }

// gap is the number of floats between the operands of a slab: a cache line.
const gap = 16

// A carver cuts tensors off a slab; without a slab it only counts.
type carver struct {
	slab []float32
	used int
}

// view cuts a tensor with the given strides.
func (c *carver) view(b, s, h, d, sb, ss, sh int) attn.Tensor {
	t := attn.Tensor{B: b, S: s, H: h, D: d, SB: sb, SS: ss, SH: sh}
	n := 0
	if t.Size() > 0 {
		n = (b-1)*sb + (s-1)*ss + (h-1)*sh + d
	}
	t.Data = c.take(n)
	return t
}

func (c *carver) take(n int) []float32 {
	at := c.used + gap
	c.used = at + n
	if c.slab == nil {
		return nil
	}
	return c.slab[at : at+n : at+n]
}

func (c *carver) tensor(layout string, b, s, h, d int) attn.Tensor {
	switch layout {
	case "bhsd", "broadcast":
		return c.view(b, s, h, d, h*s*d, d, s*d)
	case "padded":
		c.used++
		sh := d + 3
		ss := h*sh + 2
		return c.view(b, s, h, d, s*ss+7, ss, sh)
	}
	return c.view(b, s, h, d, s*h*d, h*d, d)
}

func (c *carver) shared(s, h, d, b int) attn.Tensor {
	t := c.view(1, s, 1, d, 0, d, 0)
	t.B, t.H = b, h
	return t
}

// carve lays out the operands of p. ArgMax, lengths and element masks are not floats and get memory of their own.
func carve(p *attn.Problem, layout string, c *carver) *attn.Args {
	a := new(attn.Args)
	b, nq, nk, hq, hkv, d, dv := p.Batch, p.SeqQ, p.SeqKV, p.HeadsQ, p.HeadsKV, p.Dim, p.DimV
	switch layout {
	case "packed":
		slab := c.take(b * nq * (hq*d + hkv*(d+dv)))
		if slab != nil {
			a.Q, a.K, a.V = attn.Packed(slab, b, nq, hq, hkv, d, dv)
		}
	case "broadcast":
		a.Q = c.tensor(layout, b, nq, hq, d)
		a.K, a.V = c.shared(nk, hkv, d, b), c.shared(nk, hkv, dv, b)
	default:
		a.Q, a.K, a.V = c.tensor(layout, b, nq, hq, d), c.tensor(layout, b, nk, hkv, d), c.tensor(layout, b, nk, hkv, dv)
	}
	a.Out = c.tensor(layout, b, nq, hq, dv)
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
		if p.Want&o.want != 0 {
			*o.t = c.tensor(layout, b, nq, hq, o.d)
		}
	}
	if p.Score.Terms&attn.TermBias != 0 {
		a.Terms.Bias = c.tensor("bhsd", 1, nq, hq, nk)
	}
	c.take(0)
	if c.slab == nil {
		return a
	}
	if p.Want&attn.WantArgMax != 0 {
		a.Stats.ArgMax = make([]int32, b*hq*nq)
	}
	if p.Mask.Bitmap == attn.BoolBitmap {
		seen := slices.Repeat([]bool{true}, nq*nk)
		a.Allowed = attn.Bits{Bool: seen, B: 1, S: nq, H: 1, D: nk, SS: nk}
	}
	if p.Lengths {
		a.KLen = slices.Repeat([]int32{int32(nk)}, b)
	}
	return a
}

// SlabLen is the number of floats that NewArgs needs for a problem in a layout.
func SlabLen(p attn.Problem, layout string) (int, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	if !slices.Contains(layouts, layout) {
		return 0, fmt.Errorf("layout %q is not one of %s", layout, strings.Join(layouts, ", "))
	}
	if layout == "packed" && p.SeqQ != p.SeqKV {
		return 0, fmt.Errorf("layout packed: %d query rows and %d key rows; a packed slab has one row for each token", p.SeqQ, p.SeqKV)
	}
	var c carver
	carve(&p, layout, &c)
	return c.used, nil
}

// NewArgs lays out operands for the full capacity of a problem, with an output for everything it Wants: a bias of shape
// [1, query, head, key] if it has TermBias, an element mask [1, query, 1, key] that shows all, and KLen at capacity if it says Lengths. They are cut
// from slab, which keeps its contents, or from new zeroed memory if slab is nil.
func NewArgs(p attn.Problem, layout string, slab []float32) (*attn.Args, error) {
	n, err := SlabLen(p, layout)
	if err != nil {
		return nil, err
	}
	if slab == nil {
		slab = make([]float32, n)
	}
	if len(slab) < n {
		return nil, fmt.Errorf("layout %s: the slab holds %d floats, the operands need %d (SlabLen)", layout, len(slab), n)
	}
	return carve(&p, layout, &carver{slab: slab}), nil
}

// Inputs calls f for each tensor that a call reads and that is set.
func Inputs(a *attn.Args, f func(name string, t *attn.Tensor)) {
	visit(f, []named{{"Q", &a.Q}, {"K", &a.K}, {"V", &a.V}, {"Bias", &a.Terms.Bias}})
}

// Outputs calls f for each tensor that a call writes and that is set.
func Outputs(a *attn.Args, f func(name string, t *attn.Tensor)) {
	s := &a.Stats
	visit(f, []named{
		{"Out", &a.Out}, {"LSE", &s.LSE}, {"Mean", &s.Mean}, {"Entropy", &s.Entropy}, {"Max", &s.Max}, {"Weights", &s.Weights}, {"Scores", &s.Scores},
	})
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

// Rows calls f for each row of a tensor.
func Rows(t *attn.Tensor, f func(b, s, h int, row []float32)) {
	for b := range t.B {
		for s := range t.S {
			for h := range t.H {
				f(b, s, h, t.Row(b, s, h))
			}
		}
	}
}

// Trim shortens a call to its first nq query rows and nk key rows, which is how a plan's capacity is used in part.
func Trim(a *attn.Args, nq, nk int) {
	a.Q.S = nq
	Outputs(a, func(_ string, t *attn.Tensor) { t.S = nq })
	a.K.S, a.V.S = nk, nk
	for _, t := range []*attn.Tensor{&a.Stats.Weights, &a.Stats.Scores} {
		t.D = min(t.D, nk)
	}
	if b := &a.Terms.Bias; b.Size() > 0 {
		b.S, b.D = min(b.S, nq), min(b.D, nk)
	}
	if m := &a.Allowed; m.Bool != nil {
		m.S, m.D = min(m.S, nq), min(m.D, nk)
	}
	for b := range a.KLen {
		a.KLen[b] = min(a.KLen[b], int32(nk))
	}
}
