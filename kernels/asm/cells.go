package asm

import (
	"math"
	"unsafe"
)

// A Type is the format that an element of a row is stored in.
type Type uint8

// Types of elements, in the order of package attn's.
const (
	F32 Type = iota
	F16
	BF16
	I8
)

// Cells are rows whose elements may be stored in less than a float32: row j starts at
// Half[j*Stride], or at Byte[j*Stride]. Loops read them in place and convert them to float32 in
// registers, so memory moves a half or a quarter of the bytes.
type Cells struct {
	Rows                 // F32; Stride is used by every type
	Type        Type     // selects the slices that are set
	Half        []uint16 // F16, BF16
	Byte        []int8   // I8: an element is Byte times its row's Scale
	Scale       []float32
	ScaleStride int // distance between the scales of neighbouring rows
}

// From returns the rows starting at row j.
func (c Cells) From(j int) Cells { return c.at(j*c.Stride, j*c.ScaleStride) }

// at returns the rows that begin at an element, with scales that begin at scale.
func (c Cells) at(element, scale int) Cells {
	switch c.Type {
	case F32:
		c.Data = c.Data[element:]
	case F16, BF16:
		c.Half = c.Half[element:]
	case I8:
		c.Byte, c.Scale = c.Byte[element:], c.Scale[scale:]
	}
	return c
}

// Address returns the address of an element.
func (c *Cells) Address(element int) uintptr {
	switch c.Type {
	case F32:
		return uintptr(unsafe.Pointer(unsafe.SliceData(c.Data))) + 4*uintptr(element)
	case I8:
		return uintptr(unsafe.Pointer(unsafe.SliceData(c.Byte))) + uintptr(element)
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(c.Half))) + 2*uintptr(element)
}

// ScaleAddress returns the address of a scale of I8.
func (c *Cells) ScaleAddress(scale int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(c.Scale))) + 4*uintptr(scale)
}

// scale returns the factor of row j.
func (c *Cells) scale(j int) float32 {
	if c.Type != I8 {
		return 1
	}
	return c.Scale[j*c.ScaleStride]
}

// read converts elements of row j to float32, starting at column x, without their scale.
func (c *Cells) read(to []float32, j, x int) {
	at := j*c.Stride + x
	switch c.Type {
	case F32:
		copy(to, c.Data[at:][:len(to)])
	case F16:
		for i, h := range c.Half[at:][:len(to)] {
			to[i] = fromF16(h)
		}
	case BF16:
		for i, h := range c.Half[at:][:len(to)] {
			to[i] = fromBF16(h)
		}
	case I8:
		for i, b := range c.Byte[at:][:len(to)] {
			to[i] = float32(b)
		}
	}
}

func widen(to []float32, from *Cells, n, d int) {
	for j := 0; j < n && d > 0; j++ {
		row := to[j*d:][:d]
		from.read(row, j, 0)
		if from.Type == I8 {
			for c, s := 0, from.scale(j); c < d; c++ {
				row[c] *= s
			}
		}
	}
}

func narrow(to []uint16, from []float32, t Type) {
	for i, x := range from {
		if t == F16 {
			to[i] = toF16(x)
		} else {
			to[i] = toBF16(x)
		}
	}
}

// piece is the number of columns that the portable loops read from a row of cells at a time.
const piece = 128

// dotCells is dotRows for rows that are not float32.
func dotCells(p *Dot, k *Cells, q *Rows, scores []float32, n int) {
	var row [piece]float32
	for j := range n {
		for r := range p.R {
			scores[r*p.Stride+j] = 0
		}
		for x := 0; x < p.D; x += piece {
			part := row[:min(piece, p.D-x)]
			k.read(part, j, x)
			for r := range p.R {
				scores[r*p.Stride+j] += product(q.Data[r*q.Stride+x:][:len(part)], part)
			}
		}
		for r := range p.R {
			z := &scores[r*p.Stride+j]
			*z = float32(float64(float64(*z)*p.Factor) * float64(k.scale(j)))
		}
	}
}

// accumulateCells is accumulate for the columns of cells starting at column, in order of j. row is
// scratch.
func accumulateCells(o, w []float32, y *Cells, column int, row []float32) {
	for j := range w {
		y.read(row, j, column)
		weight := w[j] * y.scale(j)
		for i, x := range row {
			o[i] += float32(weight * x)
		}
	}
}

// fromF16 converts an F16. It moves exponent and fraction to their places in a float32. An exact
// multiplication corrects the bias of the exponent and normalises subnormal numbers. NaN becomes
// quiet.
func fromF16(h uint16) float32 {
	const exponents = 0x7c00
	bits, f := uint32(h&0x7fff)<<13, float32(0)
	if h&exponents == exponents {
		f = math.Float32frombits(bits | 0x7f800000)
	} else {
		f = math.Float32frombits(bits) * 0x1p112
	}
	return math.Float32frombits(math.Float32bits(f) | uint32(h&0x8000)<<16)
}

// toF16 rounds to nearest even. Results that will be subnormal are rounded by adding 1/2, whose
// last bit is worth the least F16.
func toF16(x float32) uint16 {
	const (
		infinity  = 0x7f800000
		overflow  = 0x477ff000 // 65520, the least number that rounds to infinity
		subnormal = 0x38800000 // 2^-14, the least normal number
	)
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > infinity:
		return sign | 0x7e00
	case b >= overflow:
		return sign | 0x7c00
	case b < subnormal:
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+.5)-math.Float32bits(.5))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-112<<23)>>13)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBF16 rounds to nearest even. All NaNs become one.
func toBF16(x float32) uint16 {
	if x != x {
		return 0xffff
	}
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
