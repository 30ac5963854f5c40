package asm

// peak runs eight independent chains of multiply-adds on operands in registers: what the score loop does, without its loads.
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
	if a0+a1+a2+a3+a4+a5+a6+a7 < 0 { // never, and the compiler does not know
		return 0
	}
	return 16 * int64(rounds)
}

var probe = [6]float32{1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3}

// read sums x in eight chains.
func read(x []float32) float32 {
	var a [8]float32
	for ; len(x) >= 8; x = x[8:] {
		v := (*[8]float32)(x)
		a[0] += v[0]
		a[1] += v[1]
		a[2] += v[2]
		a[3] += v[3]
		a[4] += v[4]
		a[5] += v[5]
		a[6] += v[6]
		a[7] += v[7]
	}
	s := a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7]
	for _, v := range x {
		s += v
	}
	return s
}
