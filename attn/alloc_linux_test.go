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

// Large pages are asked for from one end to the other.
func TestAllocAsks(t *testing.T) {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		t.Skip("SKIPPED: this system has no large pages: ", err)
	}
	if !strings.Contains(string(enabled), "[madvise]") {
		t.Skip("SKIPPED: who asks for large pages is not heard, or everybody: ", string(enabled))
	}
	plain, err := unix.Mmap(-1, 0, largePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(plain)
	if unix.Madvise(plain, unix.MADV_HUGEPAGE) != nil || !asked(t, uintptr(unsafe.Pointer(&plain[0]))) {
		t.Skip("SKIPPED: the system does not say what was asked for")
	}
	for _, n := range []int{largePage / 8, 3 * largePage / 4} {
		x := Alloc[float32](n)
		for _, i := range []int{0, n / 2, n - 1} {
			if !asked(t, uintptr(unsafe.Pointer(&x[i]))) {
				t.Errorf("%d numbers: no large page was asked for at number %d", n, i)
			}
		}
	}
	for _, n := range []int{0, 1, largePage/4 - 1} {
		if x := Alloc[float32](n); len(x) != n {
			t.Errorf("%d numbers: there are %d", n, len(x))
		}
	}
}

// asked is whether large pages have been asked for at an address.
func asked(t *testing.T, at uintptr) bool {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	defer f.Close()
	within := false
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
