package attn

import "unsafe"

// Alloc is make([]T, n) in large pages of memory, where the system has them for who asks. A CPU has
// to find each page in tables before it reads from it, in a guest in two sets of them; a page of 2
// MiB is found once where 512 of 4 KiB would be. On a Xeon (family 6, model 167), Linux as a guest,
// decoding 32768 keys of 8 heads took 8 to 15 % less time so, 2048 queries and keys 2 to 5 and 512
// 1.5 to 7 (benchrun ab: AVX-512, and AVX2 in decoding).
//
// What is less than a large page, or lies at one end of several, is in small ones.
func Alloc[T int8 | uint16 | float32](n int) []T {
	x := make([]T, n)
	if n > 0 {
		askLargePages(unsafe.Pointer(&x[0]), uintptr(n)*unsafe.Sizeof(x[0]))
	}
	return x
}
