//go:build !linux

package harness

// pin does nothing on this system.
func pin() (release func()) { return func() {} }
