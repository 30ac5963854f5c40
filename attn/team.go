package attn

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A Team is a fixed set of workers that runs tasks without allocating. The nil Team is the caller's
// goroutine alone. Tasks are handed out in order, one at a time, to whichever worker is free, so a
// result must not depend on which worker ran a task. Runs of one Team wait for each other, so a
// task must not call Run.
//
// Workers that have nothing to do look out for the next Run for a while before they sleep: calls of
// a model follow one another, and on a virtual machine of a Xeon (family 6, model 167) it took a
// sleeper some 110 microseconds to be at work.
type Team struct {
	helpers []*bell    // of the workers from 1 on
	run     sync.Mutex // held during a Run
	job     func(worker, task int)
	tasks   int64
	next    atomic.Int64
	busy    atomic.Int64 // helpers that have not finished
	done    *bell        // rung by the last of them
	panics  sync.Mutex
	panic   any // the first panic of a task in this Run
	closed  bool
}

// NewTeam starts a team of so many workers, the caller of Run being one of them. Fewer than two
// workers need no team: the result is nil. Close ends its goroutines.
func NewTeam(workers int) *Team {
	if workers < 2 {
		return nil
	}
	looks := patience
	if workers > runtime.GOMAXPROCS(0) {
		looks = 0 // who looks out would keep another from working
	}
	t := &Team{done: newBell(looks)}
	for worker := 1; worker < workers; worker++ {
		b := newBell(looks)
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

// Workers is the number of workers: the worker argument of a job is below it.
func (t *Team) Workers() int {
	if t == nil {
		return 1
	}
	return 1 + len(t.helpers)
}

// Run calls job once for each task from 0 to tasks-1 and returns when all are done. If a job
// panics, the tasks not yet begun are left out, and Run panics with the same value.
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
		if b.hush() { // it has not come to it, and nothing is left to do
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

// Close ends the team's goroutines. The nil Team may be closed; a second Close does nothing.
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

// A bell is rung by one goroutine and heard by another one, which looks out for it so many times
// before it sleeps. Each ring is heard, or hushed, before the next one.
type bell struct {
	state atomic.Int32
	looks int
	wake  chan struct{}
	_     [40]byte // a cache line for each: who looks at one is not disturbed by the others
}

const (
	quiet int32 = iota
	rung
	asleep // who waits does so for wake
)

const (
	patience = 1000 // looks, which last half a millisecond if no other goroutine wants to run,
	glances  = 1000 // of so many each, after which it may
)

func newBell(looks int) *bell { return &bell{wake: make(chan struct{}, 1), looks: looks} }

func (b *bell) ring() {
	if b.state.Swap(rung) == asleep {
		b.wake <- struct{}{}
	}
}

// hush takes a ring back that has not been heard.
func (b *bell) hush() bool { return b.state.CompareAndSwap(rung, quiet) }

// wait returns when the bell is rung. If it yields, other goroutines may run between looks; where a
// goroutine is locked to its thread, that takes as long as to sleep.
func (b *bell) wait(yields bool) {
	for {
		for range b.looks {
			for range glances {
				if b.state.Load() == rung && b.hush() {
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
		if b.hush() {
			return
		}
	}
}
