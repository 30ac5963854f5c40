package asm

import (
	"runtime"
	"unsafe"
)

// peak runs eight independent chains of multiply-adds on operands in registers: the score loop
// without its loads.
func peak(rounds int) int64 {
	var a0, a1, a2, a3, a4, a5, a6, a7 float32
	x0, x1, x2, x3, y0, y1 := probe[0], probe[1], probe[2], probe[3], probe[4], probe[5]
	for range rounds {
		a0 += float32(x0 * y0)
		a1 += float32(x1 * y0)
		a2 += float32(x2 * y0)
		a3 += float32(x3 * y0)
		a4 += float32(x0 * y1)
		a5 += float32(x1 * y1)
		a6 += float32(x2 * y1)
		a7 += float32(x3 * y1)
	}
	if a0+a1+a2+a3+a4+a5+a6+a7 < 0 { // never true, but the compiler cannot tell
		return 0
	}
	return 16 * int64(rounds)
}

var probe = [6]float32{1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3}

// chain alternates additions and exclusive ors, as the compiler would merge additions alone.
func chain(rounds int) int64 {
	x, y, z := uint64(rounds), uint64(rounds)|1, uint64(rounds)<<3
	for range rounds {
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
	}
	runtime.KeepAlive(x)
	return 16 * int64(max(rounds, 0))
}

// slots adds to eight independent numbers. They differ, as the compiler would compute equal ones
// once.
func slots(rounds int) int64 {
	x := uint64(rounds) | 1
	a, b, c, d, e, f, g, h := x, x<<1, x<<2, x<<3, x<<4, x<<5, x<<6, x<<7
	for range rounds {
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
		a, b, c, d, e, f, g, h = a+x, b+x, c+x, d+x, e+x, f+x, g+x, h+x
	}
	runtime.KeepAlive(a ^ b ^ c ^ d ^ e ^ f ^ g ^ h)
	return 64 * int64(max(rounds, 0))
}

// read reads every element of x, two at a time: plain Go has no load wider than eight bytes.
func read(x []float32) float32 {
	first := float32(0)
	if len(x) > 0 && uintptr(unsafe.Pointer(&x[0]))%8 != 0 {
		first, x = x[0], x[1:]
	}
	if len(x)%2 != 0 {
		first, x = first+x[len(x)-1], x[:len(x)-1]
	}
	var a, b, c, d uint64
	if len(x) > 0 {
		w := unsafe.Slice((*uint64)(unsafe.Pointer(&x[0])), len(x)/2)
		for ; len(w) >= 8; w = w[8:] {
			a ^= w[0] ^ w[4]
			b ^= w[1] ^ w[5]
			c ^= w[2] ^ w[6]
			d ^= w[3] ^ w[7]
		}
		for _, v := range w {
			a ^= v
		}
	}
	return first + float32(a^b^c^d)
}

// update multiplies by a number that the compiler does not know. It would leave out a product with
// the constant 1, and then the store of the number just loaded.
func update(x []float32) {
	one := float32(min(len(x), 1))
	for ; len(x) >= 8; x = x[8:] {
		x[0], x[1], x[2], x[3] = one*x[0], one*x[1], one*x[2], one*x[3]
		x[4], x[5], x[6], x[7] = one*x[4], one*x[5], one*x[6], one*x[7]
	}
	for i := range x {
		x[i] *= one
	}
}
