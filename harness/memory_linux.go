package harness

import (
	"os"

	"attnlab/harness/machine"
)

// watchRSS notes the resident memory of this process; the function it returns says how far above that it has been since.
func watchRSS() (peak func() *int64) {
	none := func() *int64 { return nil }
	if os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil { // sets VmHWM back to VmRSS
		return none
	}
	base, ok := machine.Field("/proc/self/status", "VmRSS")
	if !ok {
		return none
	}
	return func() *int64 {
		top, ok := machine.Field("/proc/self/status", "VmHWM")
		if !ok {
			return nil
		}
		grown := max(top-base, 0)
		return &grown
	}
}
