package harness

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// A Memory is what one call costs besides its operands. A figure is nil where the system does not
// tell it, or where calls run in another process, which does not: 0 is a measurement.
type Memory struct {
	Scratch *int64 `json:"scratch"`  // what the plan says it holds
	PeakRSS *int64 `json:"peak_rss"` // growth of the process, from inputs in place to its highest point in planning and one call; of a Remote, in one call
	Bytes   *int64 `json:"bytes"`    // allocated on the Go heap by a call in steady state
	Allocs  *int64 `json:"allocs"`
}

// Allocations are counted over up to steadyCalls calls, so that one of the runtime's own rounds
// down to 0 a call, its bytes with it. A slow kernel gets one call, which the runtime's own are not
// divided by: so of a few tries the least counts, because a call's own allocations are in each.
const (
	steadyCalls = 5
	steadyTime  = 100 * time.Millisecond // of calls that are counted together
	steadyTries = 5
	triesTime   = 2 * time.Second // after which no other try begins
)

// Weigh measures what a workload costs in memory. It is meant for a process of its own: what an
// earlier job left behind would count.
func Weigh(w *Workload) (m Memory, err error) {
	j, err := w.Prepare()
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	// Garbage goes back to the system before the watch begins and is left alone while it lasts: a
	// collection would return pages unseen.
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	peak := watchRSS(os.Getpid())
	if err := j.Plan(); err != nil {
		return m, err
	}
	elsewhere := remote(j)
	if elsewhere != nil { // where the inputs are in place since the plan was made
		peak = watchRSS(elsewhere.Process())
	}
	first, err := j.Run(1)
	if err != nil {
		return m, err
	}
	m.PeakRSS = peak()
	if elsewhere != nil { // what else it holds is not known
		return m, nil
	}
	scratch := j.Scratch()
	m.Scratch = &scratch
	calls := max(1, min(steadyCalls, int(steadyTime/max(first.Wall, 1))))
	for try, spent := 0, time.Duration(0); try < steadyTries && spent < triesTime && (try == 0 || *m.Allocs > 0); try++ {
		bytes, allocs, took, err := allocated(j, calls)
		if err != nil {
			return m, err
		}
		if try == 0 || allocs < *m.Allocs || allocs == *m.Allocs && bytes < *m.Bytes {
			m.Bytes, m.Allocs = &bytes, &allocs
		}
		spent += took
	}
	return m, nil
}

// allocated says what one of so many calls allocates, and how long they took.
func allocated(j Job, calls int) (bytes, allocs int64, took time.Duration, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	t, err := j.Run(calls)
	runtime.ReadMemStats(&after)
	n := int64(calls)
	if allocs = int64(after.Mallocs-before.Mallocs) / n; allocs > 0 {
		bytes = int64(after.TotalAlloc-before.TotalAlloc) / n
	}
	return bytes, allocs, t.Wall, err
}
