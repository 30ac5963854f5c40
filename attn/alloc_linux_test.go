package attn

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestAllocAsks checks that Alloc requests large pages wherever a whole large page fits.
func TestAllocAsks(t *testing.T) {
	plain, err := unix.Mmap(-1, 0, largePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(plain)
	if unix.Madvise(plain, unix.MADV_HUGEPAGE) != nil || !advised(&plain[0]) {
		t.Skip("SKIPPED: this system has no large pages, or does not report which memory requested them")
	}
	x := Alloc[float32](largePage) // four large pages, of which at least three are whole
	for i := largePage / 4; i <= 3*largePage/4; i += largePage / 4 {
		if !advised(&x[i]) {
			t.Errorf("no large page was requested at number %d", i)
		}
	}
	for _, n := range []int{0, 1, largePage/4 - 1} {
		if x := Alloc[float32](n); len(x) != n {
			t.Errorf("got %d numbers, want %d", len(x), n)
		}
	}
}

// advised reports whether the system lists the memory of x as requesting large pages.
func advised[T any](x *T) bool {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return false
	}
	defer f.Close()
	at, within := uintptr(unsafe.Pointer(x)), false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			within = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && within {
			return strings.Contains(flags+" ", " hg ")
		}
	}
	return false
}
