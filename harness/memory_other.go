//go:build !linux

package harness

// watchRSS: peak resident memory is not told here.
func watchRSS(int) (peak func() *int64) { return func() *int64 { return nil } }
