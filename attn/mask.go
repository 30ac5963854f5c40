package attn

import (
	"fmt"
	"math"
)

// Unbounded is a window side without a limit.
const Unbounded = -1

// An Align defines the positions of queries when a call gives none.
type Align uint8

// Alignments.
const (
	BottomRight Align = iota // the last query is at the position of the last key
	TopLeft                  // query i is at the position of key i
)

// A Bitmap is the form of the element mask in Args.Allowed.
type Bitmap uint8

// Forms of an element mask.
const (
	NoBitmap Bitmap = iota
	BoolBitmap
	PackedBitmap // one bit for each key
	BlockBitmap  // one bit for each block of Block queries and Block keys
)

// A Mask defines which keys a query may see. The zero Mask shows all keys. With both a band and a
// bitmap, a key is visible when both show it.
type Mask struct {
	Band        bool  // Left and Right are in effect
	Left, Right int   // keys pos-Left <= j <= pos+Right are shown; a side may be Unbounded
	Align       Align // the positions of queries without QPos
	Bitmap      Bitmap
	Block       int // the side of a block of a BlockBitmap
}

// Full shows every key.
func Full() Mask { return Mask{} }

// Causal shows each query the keys up to its own position. The last query is at the position of the
// last key.
func Causal() Mask { return Mask{Band: true, Left: Unbounded} }

// CausalTopLeft is Causal with query i at the position of key i.
func CausalTopLeft() Mask { return Mask{Band: true, Left: Unbounded, Align: TopLeft} }

// Window shows left keys before the query's position, the key at the position, and right keys after
// it.
func Window(left, right int) Mask { return Mask{Band: true, Left: left, Right: right} }

// With returns the mask with an added element mask of the given form.
func (m Mask) With(b Bitmap) Mask { m.Bitmap = b; return m }

// WithBlocks returns the mask with an added block bitmap, which has one bit for each block of side
// queries and side keys.
func (m Mask) WithBlocks(side int) Mask { m.Bitmap, m.Block = BlockBitmap, side; return m }

// Keys returns the interval lo <= j < hi of keys that the band shows to a query at pos, of the nk
// keys in use. An empty interval has lo == hi.
func (m Mask) Keys(pos, nk int) (lo, hi int) {
	hi = nk
	if !m.Band {
		return 0, hi
	}
	if m.Left != Unbounded {
		lo = min(max(pos-m.Left, 0), nk)
	}
	if m.Right != Unbounded {
		hi = min(max(pos+m.Right+1, lo), nk)
	}
	return lo, max(lo, hi)
}

// Each computes Keys for len(los) consecutive queries, the first at pos. Neither bound ever
// decreases.
func (m Mask) Each(pos, nk int, los, his []int32) {
	lo, hi := -len(los), nk // unbounded
	if m.Band && m.Left != Unbounded {
		lo = pos - m.Left
	}
	if m.Band && m.Right != Unbounded {
		hi = pos + m.Right + 1
	}
	ramp(los, lo, nk)
	ramp(his, hi, nk)
}

// ramp fills to with from, from+1, ..., each limited to 0..n.
func ramp(to []int32, from, n int) {
	from = min(max(from, -len(to)), n)
	begin, end := max(-from, 0), min(n-from, len(to))
	clear(to[:begin])
	for i := begin; i < end; i++ {
		to[i] = int32(from + i)
	}
	for i := end; i < len(to); i++ {
		to[i] = int32(n)
	}
}

// String returns the mask's name in benchmark keys and flags.
func (m Mask) String() string {
	s := "full"
	switch {
	case !m.Band:
	case m.Left == Unbounded && m.Right == 0 && m.Align == TopLeft:
		s = "causal-topleft"
	case m.Left == Unbounded && m.Right == 0:
		s = "causal"
	default:
		side := func(n int) string {
			if n == Unbounded {
				return "inf"
			}
			return fmt.Sprint(n)
		}
		s = "window:" + side(m.Left) + ":" + side(m.Right)
		if m.Align == TopLeft {
			s += ":topleft"
		}
	}
	switch m.Bitmap {
	case BoolBitmap:
		s += "+bool"
	case PackedBitmap:
		s += "+packed"
	case BlockBitmap:
		s += "+block"
	}
	return s
}

// validate reports what makes a mask invalid.
func (m Mask) validate() error {
	if m.Band && (min(m.Left, m.Right) < Unbounded || max(m.Left, m.Right) > math.MaxInt32) {
		return fmt.Errorf("mask: window sides %d, %d: a side is a count of keys, at most %d, or Unbounded (-1)", m.Left, m.Right, math.MaxInt32)
	}
	if !m.Band && (m.Left != 0 || m.Right != 0) {
		return fmt.Errorf("mask: window sides %d, %d without Band", m.Left, m.Right)
	}
	if (m.Bitmap == BlockBitmap) != (m.Block != 0) || m.Block < 0 || m.Block > math.MaxInt32 {
		return fmt.Errorf("mask: %v with blocks of %d: a block bitmap, and no other, has blocks of 1 to %d", m, m.Block, math.MaxInt32)
	}
	if m.Align > TopLeft || m.Bitmap > BlockBitmap {
		return fmt.Errorf("mask: unknown alignment %d or bitmap %d", m.Align, m.Bitmap)
	}
	return nil
}

// Bits is an element mask: true shows the key. Its extents are [batch, query, head, key]. Each is
// the problem's, or 1, which broadcasts; a block bitmap counts blocks of queries and of keys.
// Strides are in elements. An element of Words is a bit, the lowest bit of a word first.
type Bits struct {
	Bool       []bool   // BoolBitmap
	Words      []uint64 // PackedBitmap, BlockBitmap
	B, S, H, D int
	SB, SS, SH int
}

// Shows reports whether the bitmap shows key j to query i of head h in batch entry b. It is true if
// the problem has no bitmap.
func (a *Args) Shows(p *Problem, b, i, h, j int) bool {
	m := &a.Allowed
	switch p.Mask.Bitmap {
	case NoBitmap:
		return true
	case BlockBitmap:
		i, j = i/p.Mask.Block, j/p.Mask.Block
	}
	off, step := m.Offset(b, i, h)
	off += j * step
	if p.Mask.Bitmap == BoolBitmap {
		return m.Bool[off]
	}
	return m.Words[off/64]>>(off%64)&1 != 0
}

// BoolMask returns data of shape [batch, head, query, key] as an element mask. The first one to
// three dimensions may be left out.
func BoolMask(data []bool, dims ...int) (Bits, error) {
	d, err := fromRight(len(data), dims)
	if err != nil {
		return Bits{}, fmt.Errorf("mask: %w", err)
	}
	return Bits{Bool: data, B: d[0], H: d[1], S: d[2], D: d[3], SB: d[1] * d[2] * d[3], SH: d[2] * d[3], SS: d[3]}, nil
}

// BiasTensor returns data of shape [batch, head, query, key] as an additive bias. The first one to
// three dimensions may be left out.
func BiasTensor(data []float32, dims ...int) (Tensor, error) {
	d, err := fromRight(len(data), dims)
	if err != nil {
		return Tensor{}, fmt.Errorf("bias: %w", err)
	}
	return Tensor{Data: data, B: d[0], H: d[1], S: d[2], D: d[3], SB: d[1] * d[2] * d[3], SH: d[2] * d[3], SS: d[3]}, nil
}

// fromRight returns the extents of a shape of 1 to 4 dimensions, with extents of 1 for the missing
// first ones. It checks that n elements fill the shape.
func fromRight(n int, dims []int) (d [4]int, err error) {
	if len(dims) < 1 || len(dims) > 4 {
		return d, fmt.Errorf("rank %d, want 1 to 4", len(dims))
	}
	d = [4]int{1, 1, 1, 1}
	copy(d[4-len(dims):], dims)
	least := min(d[0], d[1], d[2], d[3])
	for size, i := 1, 0; i < 4 && least != 0; i++ {
		if least < 0 || d[i] > n/size { // the product may not fit an int
			return d, fmt.Errorf("%d elements for shape %v", n, dims)
		}
		size *= d[i]
	}
	return d, nil
}

// Offset returns where the mask of one query begins: the element of key j is Bool[off+j*step].
func (m *Bits) Offset(b, s, h int) (off, step int) {
	return broadcastOffset(b, s, h, m.B, m.S, m.H, m.D, m.SB, m.SS, m.SH)
}

// Offset returns where row (b, s, h) of a tensor begins, such as a bias, whose extents of 1
// broadcast. Element j is Data[off+j*step].
func (t *Tensor) Offset(b, s, h int) (off, step int) {
	return broadcastOffset(b, s, h, t.B, t.S, t.H, t.D, t.SB, t.SS, t.SH)
}

func broadcastOffset(b, s, h, eb, es, eh, ed, sb, ss, sh int) (off, step int) {
	if eb > 1 {
		off += b * sb
	}
	if es > 1 {
		off += s * ss
	}
	if eh > 1 {
		off += h * sh
	}
	if ed > 1 {
		step = 1
	}
	return off, step
}

// broadcastable checks that each extent is the problem's or 1.
func broadcastable(name string, b, s, h, d, pb, ps, ph, pd int) error {
	ok := func(n, want int) bool { return n == want || n == 1 }
	if !ok(b, pb) || !ok(s, ps) || !ok(h, ph) || !ok(d, pd) {
		return fmt.Errorf("%s: shape [batch %d, query %d, head %d, key %d] does not broadcast to [batch %d, query %d, head %d, key %d]",
			name, b, s, h, d, pb, ps, ph, pd)
	}
	return nil
}
