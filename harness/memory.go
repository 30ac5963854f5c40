package harness

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// Memory is what one call needs besides its operands. A figure is nil where the system does not
// tell it, or where the calls run in another process; 0 is a measurement.
type Memory struct {
	// Scratch is what the plan holds, in bytes.
	Scratch *int64 `json:"scratch"`
	// PeakRSS is how far resident memory grew above the inputs, in bytes: at most in planning and
	// one call, or in one call of an attn.Remote.
	PeakRSS *int64 `json:"peak_rss"`
	// Bytes and Allocs are what one call in steady state allocates on the Go heap.
	Bytes  *int64 `json:"bytes"`
	Allocs *int64 `json:"allocs"`
}

// Allocations are counted over steadyCalls calls if these are short. An allocation of the runtime's
// own then rounds down to 0 a call, and its bytes with it. A slow kernel gets only one call a try.
// The least count of several tries is its own, because each call makes its own allocations.
const (
	steadyCalls = 5
	steadyTime  = 100 * time.Millisecond // of the calls that are counted together
	steadyTries = 5
	triesTime   = 2 * time.Second // after which no other try begins
)

// MeasureMemory measures the memory of a workload. It wants a process of its own, since it would
// count what an earlier job left behind.
func MeasureMemory(w *Workload) (m Memory, err error) {
	j, err := w.Prepare()
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	// Return garbage to the system before the watch, and collect none during it: a collection would
	// return pages unseen.
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	peak := watchRSS(os.Getpid())
	if err := j.Plan(); err != nil {
		return m, err
	}
	elsewhere := remote(j)
	if elsewhere != nil { // its inputs are in place since it planned
		peak = watchRSS(elsewhere.Process())
	}
	first, err := j.Run(1)
	if err != nil {
		return m, err
	}
	m.PeakRSS = peak()
	if elsewhere != nil { // its scratch and heap are not known
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

// allocated makes n calls. It returns what one of them allocates, and the time they took together.
func allocated(j Job, n int) (bytes, allocs int64, took time.Duration, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	t, err := j.Run(n)
	runtime.ReadMemStats(&after)
	if allocs = int64(after.Mallocs-before.Mallocs) / int64(n); allocs > 0 {
		bytes = int64(after.TotalAlloc-before.TotalAlloc) / int64(n)
	}
	return bytes, allocs, t.Wall, err
}
