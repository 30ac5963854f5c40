//go:build !linux

package machine

import (
	"fmt"
	"runtime"
)

// Counters are the CPU's event counters; not told here.
func Counters() (Counter, []string, error) {
	return nil, nil, fmt.Errorf("not read on %s", runtime.GOOS)
}
