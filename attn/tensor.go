package attn

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// A DType is an element type.
type DType uint8

// Element types. Arithmetic is float32 for all of them.
const (
	F32 DType = iota
	F16
	BF16
	I8
)

var dtypeNames = [...]string{"f32", "f16", "bf16", "int8"}

// String returns the name used in flags, benchmark keys and errors.
func (t DType) String() string { return name(dtypeNames[:], int(t), "dtype") }

// Bytes returns the size of an element. A row of I8 also has a scale.
func (t DType) Bytes() int { return [...]int{F32: 4, F16: 2, BF16: 2, I8: 1}[t] }

// A Tensor is a strided view of a [batch, sequence, head, dim] array. The last dimension is
// contiguous. A stride of 0 broadcasts.
//
// The value of an I8 element is the element times the scale of its row. The row that begins at
// element o has the scale Scale[o/D], so all strides must be multiples of D.
type Tensor struct {
	Data       []float32 // elements of type F32
	Bits       []uint16  // elements of type F16 or BF16
	Int8       []int8    // elements of type I8
	Scale      []float32 // scales of the rows of type I8
	Type       DType
	B, S, H, D int // extents
	SB, SS, SH int // strides in elements
}

// A Layout is the order in which a new tensor stores its dimensions.
type Layout uint8

// Layouts of a tensor with a slab of its own. For three views of one slab see Packed.
const (
	BHSD Layout = iota
	BSHD
)

// Wrap returns data as a contiguous tensor in the given layout. It panics if data is shorter than
// the shape.
func Wrap(l Layout, data []float32, b, s, h, d int) Tensor {
	t := Tensor{Data: data, B: b, S: s, H: h, D: d}
	switch l {
	case BHSD:
		t.SB, t.SH, t.SS = h*s*d, s*d, d
	case BSHD:
		t.SB, t.SS, t.SH = s*h*d, h*d, d
	default:
		panic(fmt.Sprintf("attn.Wrap: unknown layout %d", l))
	}
	if !fits(1<<62, b, s, h, d) || len(data) < b*s*h*d {
		panic(fmt.Sprintf("attn.Wrap: %d elements for shape [%d %d %d %d], want one for each of its numbers", len(data), b, s, h, d))
	}
	return t
}

// New returns a zeroed contiguous tensor.
func New(l Layout, b, s, h, d int) Tensor { return Wrap(l, Alloc[float32](b*s*h*d), b, s, h, d) }

// NewTyped is New for elements of any type.
func NewTyped(typ DType, l Layout, b, s, h, d int) Tensor {
	if typ == F32 {
		return New(l, b, s, h, d)
	}
	t := New(l, b, s, h, 0)
	n := b * s * h * d
	t.Type, t.D, t.SB, t.SS, t.SH = typ, d, h*s*d, d, s*d
	if l == BSHD {
		t.SS, t.SH = h*d, d
	}
	if typ == I8 {
		t.Int8, t.Scale = Alloc[int8](n), Alloc[float32](b*s*h)
	} else {
		t.Bits = Alloc[uint16](n)
	}
	return t
}

// Packed returns Q, K and V as views of one slab. Each row of the slab is [q heads | k heads | v
// heads], the output of a fused projection.
func Packed(data []float32, b, s, hq, hkv, d, dv int) (q, k, v Tensor) {
	row := hq*d + hkv*(d+dv)
	if len(data) < b*s*row {
		panic(fmt.Sprintf("attn.Packed: %d elements, %d rows of %d need %d", len(data), b*s, row, b*s*row))
	}
	view := func(off, h, d int) Tensor {
		return Tensor{Data: data[min(off, len(data)):], B: b, S: s, H: h, D: d, SB: s * row, SS: row, SH: d}
	}
	return view(0, hq, d), view(hq*d, hkv, d), view((hq+hkv)*d, hkv, dv)
}

// Row returns the dim elements at batch b, row s, head h of a float32 tensor. It shares memory with
// t.
func (t *Tensor) Row(b, s, h int) []float32 {
	if t.D == 0 {
		return nil
	}
	o := b*t.SB + s*t.SS + h*t.SH
	return t.Data[o : o+t.D : o+t.D]
}

// Size returns the number of elements that the view addresses. Broadcast elements count each time.
func (t *Tensor) Size() int { return t.B * t.S * t.H * t.D }

// Shape returns the extents as a text for messages.
func (t *Tensor) Shape() string { return shape(t.B, t.S, t.H, t.D) }

func shape(b, s, h, d int) string {
	return fmt.Sprintf("[batch %d, seq %d, head %d, dim %d]", b, s, h, d)
}

func (t *Tensor) isZero() bool {
	return t.Data == nil && t.Bits == nil && t.Int8 == nil && t.empty()
}

// empty reports whether the view has no elements. It does not use Size, which may overflow where
// strides are 0.
func (t *Tensor) empty() bool { return t.B == 0 || t.S == 0 || t.H == 0 || t.D == 0 }

// span returns one more than the largest index of the view, 0 if the view has no elements, or -1 if
// an int cannot hold the index.
func span(ext, stride [4]int) int {
	if min(ext[0], ext[1], ext[2], ext[3]) == 0 {
		return 0
	}
	top := uint64(0)
	for i, n := range ext {
		hi, lo := bits.Mul64(uint64(n-1), uint64(stride[i]))
		var carry uint64
		top, carry = bits.Add64(top, lo, 0)
		if hi|carry != 0 || top > 1<<62 {
			return -1
		}
	}
	return int(top) + 1
}

// fits checks an operand's type, extents, strides and length.
func (t *Tensor) fits(name string, typ DType, b, s, h, d int) error {
	if t.Type != typ {
		return fmt.Errorf("%s: elements are %v, the problem needs %v", name, t.Type, typ)
	}
	if t.B != b || t.S != s || t.H != h || t.D != d {
		return fmt.Errorf("%s: shape %s, the problem needs %s", name, t.Shape(), shape(b, s, h, d))
	}
	return t.room(name)
}

func (t *Tensor) room(name string) error {
	if min(t.B, t.S, t.H, t.D) < 0 {
		return fmt.Errorf("%s: negative extent in shape %s", name, t.Shape())
	}
	if min(t.SB, t.SS, t.SH) < 0 {
		return fmt.Errorf("%s: negative stride (%d, %d, %d)", name, t.SB, t.SS, t.SH)
	}
	n := t.span()
	if n < 0 || n > t.length() {
		return fmt.Errorf("%s: %d elements, shape %s with strides (%d, %d, %d) reaches past them", name, t.length(), t.Shape(), t.SB, t.SS, t.SH)
	}
	if t.Type == I8 && t.D > 0 {
		if t.SB%t.D != 0 || t.SS%t.D != 0 || t.SH%t.D != 0 {
			return fmt.Errorf("%s: strides (%d, %d, %d) are not multiples of %d: rows of int8 find their scale by it", name, t.SB, t.SS, t.SH, t.D)
		}
		if rows := n / t.D; rows > len(t.Scale) {
			return fmt.Errorf("%s: %d scales for %d rows of int8", name, len(t.Scale), rows)
		}
	}
	return nil
}

func (t *Tensor) span() int { return span([4]int{t.B, t.S, t.H, t.D}, [4]int{t.SB, t.SS, t.SH, 1}) }

// length returns the number of elements in memory.
func (t *Tensor) length() int {
	switch t.Type {
	case F32:
		return len(t.Data)
	case I8:
		return len(t.Int8)
	}
	return len(t.Bits)
}

// writable returns an error if two indices of an output share an element. It sorts the dimensions
// by stride: each stride must exceed the reach of the dimensions below it.
func (t *Tensor) writable(name string) error {
	ext, stride := [3]int{t.B, t.S, t.H}, [3]int{t.SB, t.SS, t.SH}
	reach := t.D // elements spanned by the dimensions placed so far
	if t.empty() {
		return nil
	}
	for used := 0; used != 7; {
		next := -1
		for i := range ext {
			if used>>i&1 == 0 && (next < 0 || ext[i] <= 1 || ext[next] > 1 && stride[i] < stride[next]) {
				next = i
			}
		}
		used |= 1 << next
		if ext[next] <= 1 {
			continue
		}
		if stride[next] < reach {
			return fmt.Errorf("%s: strides (%d, %d, %d) make rows of an output overlap", name, t.SB, t.SS, t.SH)
		}
		reach += (ext[next] - 1) * stride[next]
	}
	return nil
}

// A region is the memory that an operand addresses.
type region struct{ lo, hi uintptr }

// regionOf returns the memory of a list.
func regionOf[T any](x []T) region {
	var element T
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(x)))
	return region{lo, lo + uintptr(len(x))*unsafe.Sizeof(element)}
}

// region returns the memory between the first and the last element of a view, gaps included.
func (t *Tensor) region() region {
	n := min(t.span(), t.length()) // operands that are too short are refused elsewhere
	switch {
	case n <= 0:
		return region{}
	case t.Type == F32:
		return regionOf(t.Data[:n])
	case t.Type == I8:
		return regionOf(t.Int8[:n])
	}
	return regionOf(t.Bits[:n])
}

// disjoint returns an error if an output overlaps another operand in memory.
func (r region) disjoint(name string, other region, otherName string) error {
	if r.lo < other.hi && other.lo < r.hi {
		return fmt.Errorf("%s: overlaps %s in memory", name, otherName)
	}
	return nil
}

func (t *Tensor) disjoint(name string, other *Tensor, otherName string) error {
	return t.region().disjoint(name, other.region(), otherName)
}
