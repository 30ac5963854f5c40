package harness

import "golang.org/x/sys/unix"

// pin keeps the calling thread on one CPU, the last one that it may use, until release is called.
// Where the system refuses, pin does nothing.
func pin() (release func()) {
	var may, one unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil {
		return func() {}
	}
	for cpu, left := 0, may.Count(); left > 0; cpu++ {
		if may.IsSet(cpu) {
			if left--; left == 0 {
				one.Set(cpu)
			}
		}
	}
	if unix.SchedSetaffinity(0, &one) != nil {
		return func() {}
	}
	return func() { _ = unix.SchedSetaffinity(0, &may) } // it was allowed before
}
