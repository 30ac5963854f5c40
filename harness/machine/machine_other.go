//go:build !linux

package machine

import "attnlab/harness/run"

func system(*run.Fingerprint) {}

// Available is the number of bytes that a new process may use; not told here.
func Available() (int64, bool) { return 0, false }

// A Usage is a reading of how the processors have spent their time since the machine started, in
// ticks.
type Usage struct{ Busy, Steal, Total uint64 }

// ReadUsage reads it; not told here.
func ReadUsage() (Usage, bool) { return Usage{}, false }

// Pressure is the part of the last minute in which some task waited for a CPU; not told here.
func Pressure() (share float64, ok bool) { return 0, false }
