package harness

import (
	"fmt"
	"os"

	"attnlab/harness/machine"
)

// watchRSS notes the resident memory of a process. The function it returns reports how far above
// that the memory has been since, nil if the system does not tell.
func watchRSS(process int) (peak func() *int64) {
	none := func() *int64 { return nil }
	dir := fmt.Sprintf("/proc/%d/", process)
	if os.WriteFile(dir+"clear_refs", []byte("5"), 0) != nil { // sets VmHWM back to VmRSS
		return none
	}
	base, ok := machine.Field(dir+"status", "VmRSS")
	if !ok {
		return none
	}
	return func() *int64 {
		top, ok := machine.Field(dir+"status", "VmHWM")
		if !ok {
			return nil
		}
		grown := max(top-base, 0)
		return &grown
	}
}
