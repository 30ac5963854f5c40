package machine

import (
	"runtime"
	"time"
)

// Clock measures the processor's clock in cycles per second: a chain of additions and exclusive ors, each waiting for the one before, takes a
// cycle for each on every processor that attnlab runs on. A disturbed try is slow, so the fastest of several short ones counts.
func Clock() float64 {
	const rounds, tries = 20_000, 20
	best := 0.0
	for range tries {
		t := time.Now()
		x := chain(rounds)
		best = max(best, rounds*chainLength/time.Since(t).Seconds())
		runtime.KeepAlive(x)
	}
	return best
}

const chainLength = 16

//go:noinline
func chain(rounds int) uint64 {
	x, y, z := uint64(rounds), uint64(rounds)|1, uint64(rounds)<<3
	for range rounds {
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
		x = (x + y) ^ z
	}
	return x
}
