package attn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// largePage is the size of a large page; where it is another one, some advice goes unheard.
const largePage = 2 << 20

// askLargePages asks for the large pages that so many bytes lie in, if these fill half of one: when memory is touched, and at once where it has been, as what make
// has zeroed. What else lies in the first and the last of them is in large pages then, too: otherwise it would be for chance to say how much of a few MiB is.
// Whether there are any is for the system to say, and no error.
func askLargePages(start unsafe.Pointer, bytes uintptr) {
	if bytes < largePage/2 {
		return
	}
	first := uintptr(start) &^ (largePage - 1)
	last := (uintptr(start) + bytes + largePage - 1) &^ (largePage - 1)
	for _, advice := range []uintptr{unix.MADV_HUGEPAGE, unix.MADV_COLLAPSE} {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, first, last-first, advice)
	}
}
