package harness

import (
	"sync/atomic"
	"testing"
	"time"

	"attnlab/attn"
)

// Several threads work at the same time, and what they did before they were together is not
// counted: turns, until they finish one together, or enough of them.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		workers, late int // in so many turns one finishes after the others
		after         time.Duration
	}{{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {2, 3, 100 * apart}, {3, 1, 100 * apart}, {2, 2 * maxTurns, apart}} {
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
					time.Sleep(apart)
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
		case c.after > apart:
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
