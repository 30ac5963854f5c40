//go:build !linux

package harness

// watchRSS returns a function that reports nil: peak resident memory is read on Linux only.
func watchRSS(int) (peak func() *int64) { return func() *int64 { return nil } }
