package attn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// largePage is the size of a large page; where it is another one, some advice goes unheard.
const largePage = 2 << 20

// askLargePages asks for the large pages that lie within so many bytes: when memory is touched, and
// at once where it has been, as what make has zeroed. What is at the ends stays in small ones:
// large pages there would be resident for whoever comes next, and a plan's scratch beside a slab
// would seem to take no memory. Whether there are any is for the system to say, and no error.
func askLargePages(start unsafe.Pointer, bytes uintptr) {
	skip := -uintptr(start) & (largePage - 1)
	if bytes < skip+largePage {
		return
	}
	whole := unsafe.Slice((*byte)(unsafe.Add(start, skip)), (bytes-skip)&^(largePage-1))
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(whole, unix.MADV_COLLAPSE)
}
