package harness

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// watchRSS notes the resident memory of this process; the function it returns says how far above that it has been since.
func watchRSS() (peak func() *int64) {
	none := func() *int64 { return nil }
	if os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil { // sets VmHWM back to VmRSS
		return none
	}
	base, ok := status("VmRSS")
	if !ok {
		return none
	}
	return func() *int64 {
		top, ok := status("VmHWM")
		if !ok {
			return nil
		}
		grown := max(top-base, 0)
		return &grown
	}
}

// status reads one field, which the kernel gives in units of 1024 bytes.
func status(field string) (int64, bool) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), field+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
