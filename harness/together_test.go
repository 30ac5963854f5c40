package harness

import (
	"sync/atomic"
	"testing"
	"time"

	"attnlab/attn"
)

// TestTogether checks that several threads work at the same time, that they take turns until they
// finish one together, and that the work of these turns is not counted.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		workers, late int           // the number of turns that one thread finishes late
		after         time.Duration // how late
	}{{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {2, 3, 100 * sameTime}, {3, 1, 100 * sameTime}, {2, 2 * maxTurns, sameTime}} {
		team := attn.NewTeam(c.workers)
		defer team.Close()
		var calls, parts, busy, most atomic.Int64
		mine := make([]atomic.Int64, c.workers)
		done, took := together(team, 32, func(thread, n int) int64 {
			calls.Add(1)
			parts.Add(int64(n))
			most.Store(max(most.Load(), busy.Add(1)))
			time.Sleep(time.Millisecond)
			if turn := mine[thread].Load() + 1; thread == 1 && turn <= int64(c.late) {
				for mine[0].Load() < turn {
					time.Sleep(sameTime)
				}
				time.Sleep(c.after)
			}
			mine[thread].Add(1)
			busy.Add(-1)
			return int64(n)
		})
		all := int64(c.workers)
		least, turns := int64(1), calls.Load()/all-1
		switch {
		case c.workers == 1:
			least = 0
		case c.after > sameTime:
			least += int64(c.late)
		}
		if done != 32*all || calls.Load()%all != 0 || turns < least || turns > maxTurns || parts.Load() != done+2*turns*all {
			t.Errorf("%+v: did %d of %d parts in %d calls", c, done, parts.Load(), calls.Load())
		}
		if most.Load() > all || c.workers > 1 && took < time.Millisecond {
			t.Errorf("%+v: %d at once, in %v", c, most.Load(), took)
		}
	}
}
