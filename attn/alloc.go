package attn

import "unsafe"

// Alloc returns make([]T, n), in large memory pages where the system grants them. Address
// translation looks up each page before its first read, and a virtual machine looks it up twice. A
// page of 2 MiB replaces 512 pages of 4 KiB, so reads of a long cache wait less.
//
// The part of the slice before the first whole large page and the part after the last one stay in
// small pages.
//
// Tuning: docs/tuning.md#large-pages
func Alloc[T int8 | uint16 | float32](n int) []T {
	x := make([]T, n)
	if n > 0 {
		adviseLargePages(unsafe.Pointer(&x[0]), uintptr(n)*unsafe.Sizeof(x[0]))
	}
	return x
}
