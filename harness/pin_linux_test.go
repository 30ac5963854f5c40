package harness

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPin checks that a pinned thread may use one CPU, one of those it might use before, and that a
// released one may use them all again.
func TestPin(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	may := func() (s unix.CPUSet) {
		if err := unix.SchedGetaffinity(0, &s); err != nil {
			t.Skip(err)
		}
		return s
	}
	before := may()
	release := pin()
	pinned := may()
	if pinned.Count() != 1 {
		t.Errorf("a pinned thread may use %d CPUs", pinned.Count())
	}
	for cpu := range runtime.NumCPU() {
		if pinned.IsSet(cpu) && !before.IsSet(cpu) {
			t.Errorf("it is on CPU %d, where it may not be", cpu)
		}
	}
	release()
	if after := may(); after != before {
		t.Errorf("a released thread may use %v, not %v", after, before)
	}
}
