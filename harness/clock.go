package harness

import "time"

// Elapsed is the time that some calls took.
type Elapsed struct {
	Wall time.Duration
	// CPU is the time of the calling thread, or of the whole process for a team; 0 where the system
	// does not report it.
	CPU time.Duration
	// Attention and Products are parts of Wall: the attention and the matrix products of a layer.
	Attention, Products time.Duration
}

// since returns the time from one reading of the clocks to another.
func (e Elapsed) since(now Elapsed) Elapsed {
	return Elapsed{Wall: now.Wall - e.Wall, CPU: now.CPU - e.CPU}
}

// judged returns the time that a rate is computed from: CPU for one thread where it is known, Wall
// otherwise.
func (e Elapsed) judged(threads int) time.Duration {
	if threads == 1 && e.CPU > 0 {
		return e.CPU
	}
	return e.Wall
}

var started = time.Now()

// read reads both clocks. With one thread, the calling goroutine must be locked to its thread.
func read(threads int) Elapsed {
	return Elapsed{Wall: time.Since(started), CPU: cpuTime(threads)}
}

// Time runs f and returns the time it took.
func Time(threads int, f func()) Elapsed {
	t := read(threads)
	f()
	return t.since(read(threads))
}
