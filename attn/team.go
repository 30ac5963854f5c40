package attn

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A Team is a fixed set of workers that runs tasks without allocating. The nil Team runs every task
// on the caller's goroutine. Tasks are handed out in order, one at a time, to any worker that is
// free, so a result must not depend on which worker ran a task. Concurrent Runs of one Team wait
// for each other, so a task must not call Run.
//
// An idle worker polls for the next Run for a while before it sleeps: calls of a model follow one
// another closely, and waking a sleeping thread takes long.
type Team struct {
	helpers []*bell    // the bells of workers 1, 2, ...; worker 0 is the caller of Run
	run     sync.Mutex // held during a Run
	job     func(worker, task int)
	tasks   int64
	next    atomic.Int64 // the next task to hand out
	busy    atomic.Int64 // helpers that have not finished this Run
	done    *bell        // rung by the last helper that finishes
	panics  sync.Mutex
	panic   any // the first panic of a task in this Run
	closed  bool
}

// NewTeam starts a team of the given number of workers, one of which is the caller of Run. With
// fewer than two workers it returns nil, the team of the caller alone. Close ends the team's
// goroutines.
func NewTeam(workers int) *Team {
	if workers < 2 {
		return nil
	}
	patience := rounds
	if workers > runtime.GOMAXPROCS(0) {
		patience = 0 // a polling worker would hold a thread that another worker needs
	}
	t := &Team{done: newBell(patience)}
	for worker := 1; worker < workers; worker++ {
		b := newBell(patience)
		t.helpers = append(t.helpers, b)
		go func() {
			for b.wait(true); !t.closed; b.wait(true) {
				t.work(worker)
				if t.busy.Add(-1) == 0 {
					t.done.ring()
				}
			}
		}()
	}
	return t
}

// Workers returns the number of workers. The worker argument of a job is below it.
func (t *Team) Workers() int {
	if t == nil {
		return 1
	}
	return 1 + len(t.helpers)
}

// Run calls job once for each task from 0 to tasks-1 and returns when all calls have returned. If a
// job panics, Run starts no further tasks and panics with the same value.
func (t *Team) Run(tasks int, job func(worker, task int)) {
	if t == nil || tasks < 2 {
		for i := range tasks {
			job(0, i)
		}
		return
	}
	t.run.Lock()
	defer t.run.Unlock()
	if t.closed {
		panic("attn: Run on a closed Team")
	}
	t.job, t.tasks, t.panic = job, int64(tasks), nil
	t.next.Store(0)
	helpers := t.helpers[:min(len(t.helpers), tasks-1)]
	t.busy.Store(int64(len(helpers)))
	for _, b := range helpers {
		b.ring()
	}
	t.work(0)
	busy := int64(len(helpers))
	for _, b := range helpers {
		if b.cancel() { // the helper has not started, and no task is left for it
			busy = t.busy.Add(-1)
		}
	}
	if busy > 0 {
		t.done.wait(false)
	}
	t.job = nil
	if t.panic != nil {
		panic(t.panic)
	}
}

func (t *Team) work(worker int) {
	defer func() {
		if r := recover(); r != nil {
			t.next.Store(t.tasks)
			t.panics.Lock()
			if t.panic == nil {
				t.panic = r
			}
			t.panics.Unlock()
		}
	}()
	for {
		i := t.next.Add(1) - 1
		if i >= t.tasks {
			return
		}
		t.job(worker, int(i))
	}
}

// Close ends the team's goroutines. Closing a nil Team, or a closed one, does nothing.
func (t *Team) Close() {
	if t == nil {
		return
	}
	t.run.Lock()
	defer t.run.Unlock()
	if !t.closed {
		t.closed = true
		for _, b := range t.helpers {
			b.ring()
		}
	}
}

// A bell wakes one waiting goroutine. The waiter polls it for a number of rounds before it sleeps.
// Each ring is received or cancelled before the next one.
type bell struct {
	state  atomic.Int32
	rounds int
	wake   chan struct{}
	_      [40]byte // fills a cache line, so that polling one bell does not slow another
}

const (
	quiet int32 = iota
	rung
	asleep // the waiter is blocked on wake
)

// A waiter polls its bell this many rounds before it sleeps, and this many times in each round. It
// may yield to other goroutines after a round. Longer polling saves wake-ups and costs CPU time.
//
// Tuning: docs/tuning.md#team-patience
const rounds, polls = 1000, 1000

func newBell(rounds int) *bell { return &bell{wake: make(chan struct{}, 1), rounds: rounds} }

// ring wakes the waiter, now or when it next waits.

func (b *bell) ring() {
	if b.state.Swap(rung) == asleep {
		b.wake <- struct{}{}
	}
}

// cancel takes back a ring that has not been received, and reports whether there was one.
func (b *bell) cancel() bool { return b.state.CompareAndSwap(rung, quiet) }

// wait returns when the bell is rung. With yields, other goroutines may run between rounds. A
// goroutine that is locked to its thread should not yield: for it, a yield takes as long as sleep.
func (b *bell) wait(yields bool) {
	for {
		for range b.rounds {
			for range polls {
				if b.state.Load() == rung && b.cancel() {
					return
				}
			}
			if yields {
				runtime.Gosched()
			}
		}
		if b.state.CompareAndSwap(quiet, asleep) {
			<-b.wake
		}
		if b.cancel() {
			return
		}
	}
}
