package harness

import (
	"sync/atomic"
	"testing"
	"time"

	"attnlab/attn"
)

// Several threads work at the same time, and what they did before they were together is not counted.
func TestTogether(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		team := attn.NewTeam(workers)
		defer team.Close()
		var calls, busy, most atomic.Int64
		done, took := together(team, func(int) int64 {
			calls.Add(1)
			most.Store(max(most.Load(), busy.Add(1)))
			time.Sleep(5 * time.Millisecond)
			busy.Add(-1)
			return 7
		})
		turns := int64(2)
		if workers == 1 {
			turns = 1
		}
		if done != int64(7*workers) || calls.Load() != turns*int64(workers) || most.Load() > int64(workers) || took < 0 {
			t.Errorf("%d workers: did %d in %d calls, %d at once, in %v", workers, done, calls.Load(), most.Load(), took)
		}
	}
}
