//go:build !linux

package machine

import (
	"fmt"
	"runtime"
)

// Counters returns an error: events are counted on Linux only.
func Counters() (Counter, []string, error) {
	return nil, nil, fmt.Errorf("not read on %s", runtime.GOOS)
}
