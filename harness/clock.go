package harness

import "time"

// Elapsed is the time that some calls took.
type Elapsed struct {
	Wall time.Duration
	CPU  time.Duration // of the calling thread, or of the whole process for a team; 0 where the system does not tell

	Attention, Products time.Duration // of a layer: the parts of Wall that its attention and its matrix products took
}

// since is the time from one reading of the clocks to now.
func (e Elapsed) since(now Elapsed) Elapsed {
	return Elapsed{Wall: now.Wall - e.Wall, CPU: now.CPU - e.CPU}
}

// judged is the time that a rate is judged by: see the package documentation.
func (e Elapsed) judged(threads int) time.Duration {
	if threads == 1 && e.CPU > 0 {
		return e.CPU
	}
	return e.Wall
}

var started = time.Now()

// read reads both clocks. With one thread the caller must be locked to its thread.
func read(threads int) Elapsed {
	return Elapsed{Wall: time.Since(started), CPU: cpuTime(threads)}
}

// Time runs f and says how long it took.
func Time(threads int, f func()) Elapsed {
	t := read(threads)
	f()
	return t.since(read(threads))
}
