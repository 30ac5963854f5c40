//go:build !linux

package machine

import "attnlab/harness/run"

func system(*run.Fingerprint) {}

// Available reports false: the bytes that a new process may use are read on Linux only.
func Available() (int64, bool) { return 0, false }

// A Usage is the time of all processors since the machine started, in ticks.
type Usage struct{ Busy, Steal, Total uint64 }

// ReadUsage reports false: the usage is read on Linux only.
func ReadUsage() (Usage, bool) { return Usage{}, false }

// Pressure reports false: how tasks waited for a CPU is read on Linux only.
func Pressure() (share float64, ok bool) { return 0, false }
