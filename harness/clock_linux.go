package harness

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of this thread, or of the process if there are several threads.
func cpuTime(threads int) time.Duration {
	id := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	if threads > 1 {
		id = unix.CLOCK_PROCESS_CPUTIME_ID
	}
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
