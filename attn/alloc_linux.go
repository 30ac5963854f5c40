package attn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// largePage is the size of a large page. Where the system uses another size, it may ignore the
// advice.
const largePage = 2 << 20

// adviseLargePages advises the kernel to back the whole large pages of a memory range with large
// pages. MADV_HUGEPAGE applies to memory when it is first touched, MADV_COLLAPSE to memory that
// make has already zeroed.
//
// The ends of the range stay in small pages. A large page that also held a neighbouring allocation
// would be resident for it from the start: a plan's scratch would then seem to take no memory.
//
// The system decides whether it grants large pages, so a refusal is no error.
func adviseLargePages(start unsafe.Pointer, bytes uintptr) {
	skip := -uintptr(start) & (largePage - 1)
	if bytes < skip+largePage {
		return
	}
	whole := unsafe.Slice((*byte)(unsafe.Add(start, skip)), (bytes-skip)&^(largePage-1))
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(whole, unix.MADV_COLLAPSE)
}
