package attn

import "unsafe"

// Alloc is make([]T, n) in large pages of memory, where the system has them for who asks. A long cache is read as fast as memory gives it, and of the time to find a
// page of 4 KiB a page of 2 MiB needs little. On a Xeon (family 6, model 167), Linux as a guest, decoding 32768 keys of 8 heads took 4 to 9 % less time so, and
// calls of 2048 queries and keys 1 to 3 (AVX-512; medians by turns).
//
// What is less than a large page, or lies at one end of several, is in small ones.
func Alloc[T int8 | uint16 | float32](n int) []T {
	x := make([]T, n)
	if n > 0 {
		askLargePages(unsafe.Pointer(&x[0]), uintptr(n)*unsafe.Sizeof(x[0]))
	}
	return x
}
