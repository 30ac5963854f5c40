package attn

import "math"

// Read returns the row at batch b, row s, head h as float32 numbers. It returns a float32 row
// itself; it converts other rows into to and returns that. Only the product of an int8 and its
// scale is rounded.
func (t *Tensor) Read(to []float32, b, s, h int) []float32 {
	if t.Type == F32 {
		return t.Row(b, s, h)
	}
	if t.D == 0 {
		return nil
	}
	o := b*t.SB + s*t.SS + h*t.SH
	to = to[:t.D:t.D]
	switch t.Type {
	case F16:
		for c, x := range t.Bits[o:][:t.D] {
			to[c] = FromF16(x)
		}
	case BF16:
		for c, x := range t.Bits[o:][:t.D] {
			to[c] = FromBF16(x)
		}
	case I8:
		scale := t.Scale[o/t.D]
		for c, x := range t.Int8[o:][:t.D] {
			to[c] = float32(x) * scale
		}
	}
	return to
}

// Write stores float32 numbers as the row at batch b, row s, head h, each rounded to the nearest
// number of the tensor's type. An int8 row gets the scale that makes its largest number 127. An
// int8 row cannot hold a number that is not finite: its scale becomes NaN.
func (t *Tensor) Write(from []float32, b, s, h int) {
	if t.D == 0 {
		return
	}
	o := b*t.SB + s*t.SS + h*t.SH
	switch t.Type {
	case F32:
		copy(t.Data[o:][:t.D], from)
	case F16:
		for c, x := range from[:t.D] {
			t.Bits[o+c] = ToF16(x)
		}
	case BF16:
		for c, x := range from[:t.D] {
			t.Bits[o+c] = ToBF16(x)
		}
	case I8:
		t.Scale[o/t.D] = quantise(t.Int8[o:][:t.D], from[:t.D])
	}
}

// quantise rounds x to int8 numbers and returns their scale.
func quantise(to []int8, x []float32) (scale float32) {
	top := float32(0)
	for _, v := range x {
		top = max(top, v, -v) // NaN if any v is NaN
	}
	scale = top / 127
	if scale-scale != 0 {
		clear(to)
		return float32(math.NaN())
	}
	for c, v := range x {
		q := 0.0
		if scale > 0 {
			q = math.RoundToEven(float64(v) / float64(scale))
		}
		to[c] = int8(max(-127, min(q, 127)))
	}
	return scale
}

// FromF16 returns the value of an IEEE half-precision number.
func FromF16(x uint16) float32 {
	sign, exponent, fraction := uint32(x>>15)<<31, uint32(x>>10&31), uint32(x&0x3ff)
	switch exponent {
	case 0: // zero or subnormal: a multiple of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// ToF16 returns the nearest half-precision number, ties to even. NaN stays a NaN and becomes quiet.
func ToF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, size := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case size > 0x7f800000:
		return sign | 0x7e00 | uint16(size>>13&0x1ff)
	case size >= 0x477ff000: // 65520 and above
		return sign | 0x7c00
	case size < 0x38800000: // below 2^-14: the sum puts the multiple of 2^-24 into the lowest bits
		return sign | uint16(math.Float32bits(math.Float32frombits(size)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((size-(127-15)<<23+0xfff+size>>13&1)>>13)
}

// FromBF16 returns the value of a bfloat16 number.
func FromBF16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// ToBF16 returns the nearest bfloat16 number, ties to even. NaN stays a NaN and becomes quiet.
func ToBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
